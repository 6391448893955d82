"""Two judges, or two wordings of the rubric, on the same labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.agreement import as_numbers
from reply_resolution.stats.agreement_parts import Array, Estimate
from reply_resolution.stats.rank_agreement import Influence, influences, interval


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """Second judge minus first, on the replies both scored and people labelled.

    Attributes:
        n: Replies with a label and both scores.
        kappa_first: Quadratic weighted kappa of the first judge with the labels
            (Lin's concordance where labels are averages).
        kappa_second: The same of the second.
        kappa_difference: Second minus first, with a paired interval; above 0 the
            second agrees better.
        exact_difference: Difference in the share scored exactly as the label, or
            None-valued where labels are averages.
        error_difference: Difference in the mean absolute distance to the label,
            points; below 0 the second is closer.
        changed: Share of replies the two judges score differently. Fraction.
        warnings: What a reader should know, in sentences.
    """

    n: int
    kappa_first: float | None
    kappa_second: float | None
    kappa_difference: Estimate
    exact_difference: Estimate
    error_difference: Estimate
    changed: float
    warnings: tuple[str, ...]

    @property
    def better(self) -> str:
        """Which judge agrees better: "first", "second", or "" where it is not shown."""
        low, high = self.kappa_difference.low, self.kappa_difference.high
        if low is None or high is None or low <= 0 <= high:
            return ""
        return "second" if low > 0 else "first"


def compare_judges(
    first: Any,  # noqa: ANN401
    second: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    *,
    scale: tuple[int, int] = (1, 5),
    clusters: Any = None,  # noqa: ANN401
    confidence: float = 0.95,
) -> JudgeComparison:
    """Does the second judge agree better with people than the first? Paired.

    Both judges are compared on the same replies, so what makes a reply hard cancels.
    The interval comes from the influence of each reply on the difference; no chance
    enters.

    Args:
        first: Scores of the first judge, shape (n,); missing ones leave the reply out.
        second: Scores of the second, same order.
        labels: People's labels, whole or averages.
        scale: Lowest and highest score.
        clusters: Which replies belong together (users), or None.
        confidence: Level of the intervals, fraction.

    Raises:
        StatisticsError: Fewer than three replies have a label and both scores.
    """
    a, b = as_numbers(first, "first"), as_numbers(second, "second")
    y = as_numbers(labels, "labels")
    if not len(a) == len(b) == len(y):
        raise StatisticsError(
            f"{len(a)}, {len(b)} and {len(y)} values: the two judges and the labels "
            "must be about the same replies in the same order."
        )
    keep = ~(np.isnan(a) | np.isnan(b) | np.isnan(y))
    n = int(keep.sum())
    if n < 3:
        raise StatisticsError(
            f"{n} replies have a label and both judges' scores; at least 3 are needed, "
            "and 50 for an interval that can be relied on."
        )
    low, high = scale
    for name, values in (("first", a), ("second", b), ("labels", y)):
        seen = values[keep]
        if ((seen < low) | (seen > high)).any():
            raise StatisticsError(f"{name} has values outside {low} to {high}.")
    codes = None
    if clusters is not None:
        names = np.asarray(list(clusters), dtype=object)[keep].astype(str)
        codes = np.unique(names, return_inverse=True)[1].astype(np.int64)
    a, b, y = a[keep], b[keep], y[keep]
    weights = np.ones(n)
    kappa_a = influences(y, a, weights)["concordance"]
    kappa_b = influences(y, b, weights)["concordance"]

    def paired(gap: Array) -> Estimate:
        value = float(gap.mean())
        found = interval(
            Influence(value, gap - value, False), weights, codes, confidence
        )
        if found is None:
            return Estimate(value, reason="no reply differs from the others")
        return Estimate(value, *found)

    if np.isnan(kappa_a.value) or np.isnan(kappa_b.value):
        difference = Estimate(None, reason="kappa of a judge is 0/0")
    else:
        gap = Influence(
            kappa_b.value - kappa_a.value, kappa_b.items - kappa_a.items, False
        )
        found = interval(gap, weights, codes, confidence)
        difference = (
            Estimate(gap.value, *found)
            if found
            else Estimate(gap.value, reason="the judges do not differ")
        )
    whole = bool((y == np.floor(y)).all())
    exact = (
        paired((b == y) * 1.0 - (a == y))
        if whole
        else Estimate(None, reason="labels are averages")
    )
    notes = []
    missing = int((~np.isnan(y) & (np.isnan(a) | np.isnan(b))).sum())
    if missing:
        notes.append(f"{missing} labelled replies lack a score of one judge: left out.")
    if n < 50:
        notes.append(f"{n} replies are few: the interval is unreliable below 50.")
    return JudgeComparison(
        n=n,
        kappa_first=_none(kappa_a.value),
        kappa_second=_none(kappa_b.value),
        kappa_difference=difference,
        exact_difference=exact,
        error_difference=paired(np.abs(b - y) - np.abs(a - y)),
        changed=float((a != b).mean()),
        warnings=tuple(notes),
    )


def _none(value: float) -> float | None:
    return None if np.isnan(value) else value

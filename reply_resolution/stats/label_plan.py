"""How many labels? Expected intervals before anybody has labelled anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.agreement_parts import Array
from reply_resolution.stats.favouring import labels_for_margin
from reply_resolution.stats.labelled_arms import MIN_LABELS
from reply_resolution.stats.quantiles import critical
from reply_resolution.stats.rank_agreement import influences, limits

#: More labels than this are called out of reach.
_MOST = 5_000


@dataclass(frozen=True, slots=True)
class ExpectedPrecision:
    """What a number of labels is expected to buy.

    Attributes:
        labels: Labelled replies in all.
        kappa_low: Lower end of the interval expected for weighted kappa.
        kappa_high: Upper end.
        bias_half_width: Half width of the interval expected for the bias, points.
        effect_half_width: Half width of the interval expected for the corrected
            effect when half of the labels are in each arm, points.
    """

    labels: int
    kappa_low: float
    kappa_high: float
    bias_half_width: float
    effect_half_width: float


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """Expected intervals by number of labels, and what the decision needs.

    Attributes:
        kappa: Weighted kappa under the assumption.
        exact: Share of equal scores under the assumption. Fraction.
        rows: One entry per number of labels asked for.
        for_floor: Labels at which the expected interval of kappa is above the floor;
            None where the assumed kappa is not above it (no number of labels helps).
        for_effect: Labels per arm at which the corrected effect finds the worthwhile
            gain with the power asked for; None where the judged replies are too few
            however many are labelled.
        for_margin: Labels per arm to know favour for an arm to plus or minus the
            margin.
        needed: Labels in all that the planned decision needs: enough for the floor,
            and for both arms; None where one of them cannot be reached.
        assumption: What was assumed, in a sentence.
    """

    kappa: float
    exact: float
    rows: tuple[ExpectedPrecision, ...]
    for_floor: int | None
    for_effect: int | None
    for_margin: int
    needed: int | None
    assumption: str


def label_plan(
    shares: Sequence[float],
    *,
    exact: float = 0.7,
    adjacent: float = 0.95,
    confusion: Sequence[Sequence[float]] | None = None,
    sizes: Sequence[int] = (50, 100, 200, 400),
    judged_per_arm: int = 200,
    floor: float = 0.6,
    gain: float = 0.3,
    margin: float = 0.2,
    power: float = 0.8,
    confidence: float = 0.95,
) -> LabelPlan:
    """What 50, 100, 200, 400 labels would tell, and how many the decision needs.

    Args:
        shares: How often the judge gives each level, lowest first (counts will do):
            known before any label.
        exact: Share of replies where judge and label are assumed to be equal.
        adjacent: Share assumed to be within one level, at least `exact`.
        confusion: Pilot labels instead of the assumption: rows label, columns judge.
        sizes: Numbers of labels to show.
        judged_per_arm: Replies of each arm that the judge scores.
        floor: Weighted kappa that must be exceeded.
        gain: Worthwhile gain, points: the effect to be found.
        margin: Favour for an arm that would not matter, points.
        power: Wanted for `gain`, fraction.
        confidence: Level of the intervals, fraction.

    Raises:
        StatisticsError: The assumption is not possible.

    >>> plan = label_plan([12, 38, 15, 25, 30])
    >>> [row.labels for row in plan.rows], plan.for_floor
    ([50, 100, 200, 400], 69)
    """
    from scipy.special import ndtri

    table = (
        _assumed(shares, exact, adjacent) if confusion is None else _pilot(confusion)
    )
    k = len(table)
    label, judge = (g.ravel().astype(float) + 1 for g in np.indices((k, k)))
    p = table.ravel() / table.sum()
    gap = judge - label
    bias_variance = float(p @ gap**2 - (p @ gap) ** 2)
    z = critical(confidence)
    # A thousand replies as expected, and those that no sample excludes.
    cells = np.repeat(np.arange(k * k), np.round(1000 * p).astype(int))
    x, centre = label[cells], (k + 1) / 2
    end = 1.0 if float(p @ (label + judge)) / 2 > centre else float(k)
    used = p > 0
    found = influences(
        np.concatenate((label[used], x, [end])),
        np.concatenate((judge[used], np.where(x > centre, 1.0, k), [end])),
        np.concatenate((p[used], np.full(len(x) + 1, 1e-12))),
    )
    kappa = found["concordance"]
    if np.isnan(kappa.value):
        raise StatisticsError(
            "the judge gives a single level: kappa cannot be planned."
        )
    kappa_variance = float(p[used] @ kappa.items[: used.sum()] ** 2)

    def kappa_interval(n: int) -> tuple[float, float]:
        pushes = np.full(n, np.sqrt(kappa_variance))
        far, near = kappa.items[used.sum() : -1], kappa.items[-1:]
        return limits(kappa, pushes, far, near, n, confidence)

    def bias_half_width(n: int) -> float:
        widths = [
            float(np.mean(move)) + z * np.sqrt(n * bias_variance + np.mean(move**2))
            for move in (x - 1 + float(p @ gap), k - x - float(p @ gap))
        ]
        return float(np.mean(widths)) / n

    def effect_error(per_arm: int) -> float:
        return float(
            np.sqrt(2 * _corrected_variance(label, judge, p, per_arm, judged_per_arm))
        )

    rows = tuple(
        ExpectedPrecision(
            labels=n,
            kappa_low=kappa_interval(n)[0],
            kappa_high=kappa_interval(n)[1],
            bias_half_width=bias_half_width(n),
            effect_half_width=z * effect_error(max(n // 2, 1)),
        )
        for n in sizes
    )
    reach = gain / (z + float(ndtri(power)))
    for_floor = _smallest(lambda n: kappa_interval(n)[0] > floor, 10, _MOST)
    for_effect = _smallest(
        lambda n: effect_error(n) <= reach, MIN_LABELS, judged_per_arm
    )
    for_margin = labels_for_margin(bias_variance, margin, confidence)
    needed = (
        None
        if for_floor is None or for_effect is None
        else max(for_floor, 2 * for_effect)
    )
    return LabelPlan(
        kappa=kappa.value,
        exact=float(np.trace(table) / table.sum()),
        rows=rows,
        for_floor=for_floor,
        for_effect=for_effect,
        for_margin=for_margin,
        needed=needed,
        assumption=(
            f"judge and label to be equal in {exact:.0%} of the replies and within one "
            f"level in {adjacent:.0%}"
            if confusion is None
            else f"errors as in the {int(table.sum())} pilot labels"
        ),
    )


def _assumed(shares: Sequence[float], exact: float, adjacent: float) -> Array:
    """A confusion table with the judge's levels and errors of the assumed size."""
    counts = np.asarray(shares, dtype=float)
    if not 0 < exact <= adjacent <= 1:
        raise StatisticsError(
            f"exact {exact} and adjacent {adjacent}: fractions, exact at most adjacent."
        )
    if len(counts) < 2 or (counts < 0).any() or counts.sum() <= 0:
        raise StatisticsError("shares: how often each level occurs, none below 0.")
    k = len(counts)
    table = np.zeros((k, k))
    for j in range(k):
        near = [i for i in (j - 1, j + 1) if 0 <= i < k]
        far = [i for i in range(k) if abs(i - j) > 1]
        table[j, j] = exact
        for group, mass in ((near, adjacent - exact), (far, 1 - adjacent)):
            for i in group:
                table[i, j] = mass / len(group)
        table[:, j] *= counts[j] / table[:, j].sum()
    return table


def _pilot(confusion: Sequence[Sequence[float]]) -> Array:
    table = np.asarray(confusion, dtype=float)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or (table < 0).any():
        raise StatisticsError("confusion: a square table of counts, rows label.")
    if table.sum() < 2:
        raise StatisticsError("confusion: at least two pilot labels are needed.")
    return table


def _corrected_variance(
    label: Array, judge: Array, p: Array, labels: int, judged: int
) -> float:
    """Variance of one arm's PPI++ mean with `labels` of `judged` replies labelled."""
    left = judged - labels
    middle, centre = p @ label, p @ judge
    spread = float(p @ (label - middle) ** 2)
    if left <= 0:
        return spread / labels
    judge_spread = float(p @ (judge - centre) ** 2)
    if judge_spread <= 1e-12:
        return spread / labels  # a constant judge sharpens nothing
    together = float(p @ ((label - middle) * (judge - centre)))
    lam = min(1.0, max(0.0, together / (judge_spread * (1 + labels / left))))
    residual = spread - 2 * lam * together + lam**2 * judge_spread
    return residual / labels + lam**2 * judge_spread / left


def _smallest(enough: Any, low: int, high: int) -> int | None:  # noqa: ANN401
    """The smallest n from low to high for which `enough(n)` holds (monotone)."""
    if high < low or not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return high

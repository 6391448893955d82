"""Two judges, or two wordings of the rubric, on the same labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reply_resolution.errors import StatisticsError
from reply_resolution.stats import concordance
from reply_resolution.stats.agreement import RELIABLE_ITEMS, as_numbers
from reply_resolution.stats.agreement_parts import Array, Estimate, draw, unit_types


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
    resamples: int = 2000,
    seed: int = 0,
) -> JudgeComparison:
    """Does the second judge agree better with people than the first? Paired.

    Both judges are compared on the same replies, so what makes a reply hard cancels.
    Bootstrap over replies (or users): both scores of a reply are drawn together.

    Args:
        first: Scores of the first judge, shape (n,); missing ones leave the reply out.
        second: Scores of the second, same order.
        labels: People's labels, whole or averages.
        scale: Lowest and highest score.
        clusters: Which replies belong together (users), or None.
        confidence: Level of the intervals, fraction.
        resamples: Bootstrap tables drawn.
        seed: Of the bootstrap.

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
            "and 100 for an interval to rely on."
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
    drawn = _Paired(a, b, y, codes, resamples, seed)
    point = drawn.measures(drawn.table)
    draws = drawn.measures(drawn.tables)
    found = {
        name: _interval(float(point[name]), draws[name], confidence)
        for name in ("kappa", "exact", "error")
    }
    if not bool((y == np.floor(y)).all()):
        found["exact"] = Estimate(None, reason="labels are averages")
    notes = []
    missing = int((~np.isnan(y) & (np.isnan(a) | np.isnan(b))).sum())
    if missing:
        notes.append(f"{missing} labelled replies lack a score of one judge: left out.")
    if n < RELIABLE_ITEMS:
        notes.append(
            f"{n} replies are few: the interval is unreliable below {RELIABLE_ITEMS}."
        )
    return JudgeComparison(
        n=n,
        kappa_first=_none(float(point["first"])),
        kappa_second=_none(float(point["second"])),
        kappa_difference=found["kappa"],
        exact_difference=found["exact"],
        error_difference=found["error"],
        changed=float((a != b).mean()),
        warnings=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Paired:
    """Tables of label (rows) and pair of scores (columns), as drawn."""

    a: Array
    b: Array
    y: Array
    codes: NDArray[np.int64] | None
    resamples: int
    seed: int

    @property
    def levels(self) -> Array:
        return np.unique(self.y)

    @property
    def columns(self) -> Array:
        return np.unique(np.column_stack((self.a, self.b)), axis=0)

    @property
    def cells(self) -> NDArray[np.int64]:
        _, column = np.unique(
            np.column_stack((self.a, self.b)), axis=0, return_inverse=True
        )
        row = np.searchsorted(self.levels, self.y)
        return np.asarray(row * len(self.columns) + column.ravel(), dtype=np.int64)

    @property
    def table(self) -> Array:
        shape = (len(self.levels), len(self.columns))
        counts = np.bincount(self.cells, minlength=shape[0] * shape[1])
        return np.asarray(counts.reshape(shape), dtype=np.float64)

    @property
    def tables(self) -> Array:
        """Drawn tables; one unit that agrees by chance is mixed in."""
        table = self.table
        content, counts = unit_types(
            self.cells, table.size, np.ones(len(self.y)), self.codes
        )
        chance = np.outer(table.sum(1), table.sum(0)).ravel() / table.sum() ** 2
        heavy = table.sum() / counts.sum()
        flat = draw(
            np.concatenate((content, heavy * np.eye(table.size))),
            np.concatenate((counts, chance)),
            self.resamples,
            np.random.default_rng(self.seed),
        )
        return np.concatenate(list(flat)).reshape(-1, *table.shape)

    def measures(self, tables: Array) -> dict[str, Array]:
        """Kappa of each judge, and second minus first of what is compared."""
        columns, levels = self.columns, self.levels
        values = np.unique(np.concatenate((self.a, self.b, self.y)))
        rows = (levels[:, None] == values).astype(float)
        total = tables.sum((-2, -1))
        kappas, exact, error = [], [], []
        for judge in (0, 1):
            scores = columns[:, judge]
            spread = (scores[:, None] == values).astype(float)
            square = np.einsum("ki,...kc,cj->...ij", rows, tables, spread)
            kappas.append(concordance.weighted_kappa(square, values))
            gap = np.abs(scores[None, :] - levels[:, None])
            exact.append((tables * (gap == 0)).sum((-2, -1)) / total)
            error.append((tables * gap).sum((-2, -1)) / total)
        return {
            "first": kappas[0],
            "second": kappas[1],
            "kappa": kappas[1] - kappas[0],
            "exact": exact[1] - exact[0],
            "error": error[1] - error[0],
        }


def _interval(value: float, draws: Array, confidence: float) -> Estimate:
    if np.isnan(value):
        return Estimate(None, reason="kappa of a judge is 0/0")
    usable = draws[~np.isnan(draws)]
    tail = (1 - confidence) / 2
    low, high = (float(q) for q in np.quantile(usable, (tail, 1 - tail)))
    if high - low <= 1e-12:
        return Estimate(value, reason="the judges do not differ")
    return Estimate(value, min(low, value), max(high, value))


def _none(value: float) -> float | None:
    return None if np.isnan(value) else value

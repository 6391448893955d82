"""How well a judge's scores match people's labels, and people each other's.

Everything about whole scores is a function of the confusion table, so tables are
drawn, not rows: 10,000 labelled replies cost no more than 100. Items are the units;
name clusters (users) and whole clusters are drawn instead.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
import polars as pl

from reply_resolution.errors import ScoreError, StatisticsError
from reply_resolution.stats.agreement_parts import (
    MEASURES,
    Array,
    Estimate,
    Sample,
    from_tables,
)
from reply_resolution.stats.rank_agreement import from_items

#: Below this many independent items an interval is marked unreliable (coverage is
#: measured in tests/benchmarks/RESULTS_agreement.md).
RELIABLE_ITEMS = 100
#: More levels than this are treated as real numbers.
_MOST_LEVELS = 101
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two columns of scores match; the first is called the label.

    Attributes:
        n: Pairs with both values.
        n_missing: Pairs left out because one value or both are missing.
        scale: Lowest and highest score.
        confidence: Level of the intervals, fraction.
        exact: Share of equal pairs. Fraction, 1 is best.
        adjacent: Share of pairs within one point, equal ones included. Fraction.
        weighted_kappa: Cohen's kappa with quadratic weights on the whole scale. 1 is
            perfect, 0 is what chance gives, below 0 is worse than chance.
        krippendorff_alpha: Ordinal alpha. 1 is perfect, 0 chance.
        gwet_ac2: Gwet's AC2 with quadratic weights; does not fall as kappa does
            where nearly all scores are in one level. 1 is perfect.
        pearson: Correlation of the values as numbers, -1 to 1; 1 for any straight line.
        spearman: Rank correlation, -1 to 1.
        kendall_tau_b: Rank correlation by pairs, corrected for ties, -1 to 1.
        bias: Mean of judge minus label, points. 0 is best; above 0 the judge is
            kinder than people.
        concordance: Lin's concordance: the same number as `weighted_kappa` for whole
            scores, and defined for averages too.
        limits: Lowest and highest difference expected of 95% of the pairs (bias plus
            and minus 1.96 standard deviations), points; None for fewer than 2 pairs.
        confusion: Pairs by label (rows) and judge (columns) in scale order, or None
            for values that are not whole. With weights: the weights' sums.
        recall: Per label level, the share the judge scored the same. Fraction.
        level_bias: Per label level, mean of judge minus label in points.
        ci_method: "bootstrap" (tables drawn) or "jackknife" (numbers of many values).
        ci_reliable: Whether there are enough items (100 of equal weight) for the
            intervals to cover what they promise.
        warnings: What a reader should know, in sentences.
    """

    n: int
    n_missing: int
    scale: tuple[float, float]
    confidence: float
    exact: Estimate
    adjacent: Estimate
    weighted_kappa: Estimate
    krippendorff_alpha: Estimate
    gwet_ac2: Estimate
    pearson: Estimate
    spearman: Estimate
    kendall_tau_b: Estimate
    bias: Estimate
    concordance: Estimate
    limits: tuple[float, float] | None
    confusion: tuple[tuple[float, ...], ...] | None
    recall: tuple[Estimate, ...]
    level_bias: tuple[Estimate, ...]
    ci_method: str
    ci_reliable: bool
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The object of `agreement --json` for one label column."""
        out: dict[str, Any] = {"n": self.n}
        out.update({name: getattr(self, name).to_dict() for name in MEASURES})
        out["confusion"] = (
            None
            if self.confusion is None
            else [[_plain(cell) for cell in row] for row in self.confusion]
        )
        out["recall"] = [e.to_dict() for e in self.recall]
        out["level_bias"] = [e.to_dict() for e in self.level_bias]
        out["concordance"] = self.concordance.to_dict()
        out["limits"] = None if self.limits is None else list(self.limits)
        out["n_missing"] = self.n_missing
        out["ci_method"] = self.ci_method
        out["ci_reliable"] = self.ci_reliable
        return out


def _plain(cell: float) -> float | int:
    return int(cell) if float(cell).is_integer() else float(cell)


def agreement(
    judge: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    *,
    scale: tuple[float, float] = (1, 5),
    confidence: float = 0.95,
    weights: Any = None,  # noqa: ANN401
    clusters: Any = None,  # noqa: ANN401
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Agreement:
    """Agreement of a judge's scores with labels, with intervals over items.

    Args:
        judge: The judge's scores, shape (n,): a Series, array or list; None and NaN
            are missing. Whole scores, or real numbers (an expected score).
        labels: People's labels, same shape; whole scores or averages of several.
        scale: Lowest and highest score; levels nobody used are levels all the same.
        confidence: Level of the intervals, fraction between 0 and 1.
        weights: Positive number per item, 1 / probability that it was drawn, when
            the labelled items are a stratified draw; None weighs all alike.
        clusters: Which items belong together (users), same shape; drawn as wholes.
        resamples: Tables drawn.
        seed: Of the draws; the same data and seed give the same digits.

    Raises:
        ScoreError: A value is not a number, or a whole column has values off the
            scale (0, 6).
        StatisticsError: No pair has both values.

    >>> people = [1, 2, 4, 5, 5, 4, 2, 1, 2, 5]
    >>> result = agreement([1, 4, 4, 5, 4, 4, 1, 2, 2, 5], people)
    >>> round(result.weighted_kappa.estimate, 4), result.exact.estimate
    (0.8498, 0.6)

    Source: Cohen 1968; Krippendorff 2011; Gwet 2014; Bland & Altman 1986; intervals
    as in `agreement_parts`.
    """
    _check_options(scale, confidence, resamples)
    x, y = as_numbers(labels, "labels"), as_numbers(judge, "judge")
    if len(x) != len(y):
        raise StatisticsError(
            f"{len(y)} judge scores against {len(x)} labels; they must be pairs, in "
            "the same order."
        )
    both = ~(np.isnan(x) | np.isnan(y))
    if not both.any():
        raise StatisticsError(
            f"none of the {len(x)} items has both a judge's score and a label; check "
            "that the ids of both tables are the same."
        )
    weight = _weights(weights, len(x))[both]
    groups = _clusters(clusters, len(x), both)
    x, y = x[both], y[both]
    # Sums differ in the last digits with the order of their rows: always the same one.
    order = np.lexsort((weight, y, x) if groups is None else (groups, weight, y, x))
    x, y, weight = x[order], y[order], weight[order]
    groups = None if groups is None else groups[order]
    whole = _check_scale(x, "label", scale) & _check_scale(y, "judge", scale)
    core = Sample(x, y, weight / weight.mean(), groups, scale, confidence)
    tabular = whole or core.few_values
    parts, notes = (
        from_tables(core, resamples, seed, whole=whole) if tabular else from_items(core)
    )
    if whole:
        k = int(scale[1] - scale[0]) + 1
        cells = ((x - scale[0]) * k + y - scale[0]).astype(np.int64)
        shown = np.bincount(cells, weight, minlength=k * k).reshape(k, k)
        parts["confusion"] = tuple(tuple(float(c) for c in row) for row in shown)
    n, reliable = len(x), core.effective >= RELIABLE_ITEMS
    if not reliable:
        what = "clusters" if groups is not None else "items"
        if core.effective < core.units - 0.5:
            what += " of equal weight"
        notes.append(
            f"{core.effective:.0f} {what} are few: intervals are unreliable below "
            f"{RELIABLE_ITEMS}."
        )
    return Agreement(
        n=n,
        n_missing=int((~both).sum()),
        scale=scale,
        confidence=confidence,
        limits=_limits(core),
        ci_method="bootstrap" if tabular else "jackknife",
        ci_reliable=reliable,
        warnings=tuple(notes),
        **parts,
    )


def _check_options(
    scale: tuple[float, float], confidence: float, resamples: int
) -> None:
    low, high = scale
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise StatisticsError(
            f"scale {scale!r}: give the lowest and the highest score, the lowest "
            "first, such as (1, 5)."
        )
    if not 0 < confidence < 1:
        raise StatisticsError(
            f"confidence {confidence!r} is outside 0 to 1; 0.95 is usual."
        )
    if resamples < 100:
        raise StatisticsError(f"resamples {resamples!r}: at least 100 are needed.")


def as_numbers(values: Any, name: str) -> Array:  # noqa: ANN401
    """Numbers with NaN for missing; nothing that is not a number is cast to one."""
    series = values if isinstance(values, pl.Series) else None
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        out = values.astype(np.float64)
        if np.isinf(out).any():
            raise ScoreError(f"{name} has infinite values; scores are finite numbers.")
        return out
    if series is None:
        cells = values.tolist() if isinstance(values, np.ndarray) else list(values)
        for row, cell in enumerate(cells):
            if cell is not None and (
                isinstance(cell, bool | str) or not isinstance(cell, int | float)
            ):
                raise ScoreError(
                    f"{name} at row {row} is {cell!r}. Scores are numbers; use None "
                    "for an item without one."
                )
        series = pl.Series(cells, dtype=pl.Float64, strict=False)
    elif not (series.dtype.is_numeric() or series.dtype == pl.Null):
        raise ScoreError(
            f"{name} is a column of {series.dtype}; read it with "
            "`reply_resolution.read_labels` or `read_verdicts` first."
        )
    out = series.cast(pl.Float64).fill_null(float("nan")).to_numpy().copy()
    if np.isinf(out).any():
        raise ScoreError(f"{name} has infinite values; scores are finite numbers.")
    return out


def _weights(weights: Any, n: int) -> Array:  # noqa: ANN401
    if weights is None:
        return np.ones(n)
    out = as_numbers(weights, "weights")
    if len(out) != n or np.isnan(out).any() or (out <= 0).any():
        raise StatisticsError(
            "weights must be one positive number per item (1 / probability of having "
            "been drawn)."
        )
    return out


def _clusters(
    clusters: Any,  # noqa: ANN401
    n: int,
    keep: NDArray[np.bool_],
) -> NDArray[np.int64] | None:
    if clusters is None:
        return None
    series = clusters if isinstance(clusters, pl.Series) else pl.Series(clusters)
    if len(series) != n or series.null_count():
        raise StatisticsError(
            "clusters must name the cluster of every item; none may be missing."
        )
    codes = series.filter(pl.Series(keep)).rank("dense").to_numpy().astype(np.int64)
    return np.asarray(codes - 1)


def _check_scale(values: Array, name: str, scale: tuple[float, float]) -> bool:
    """Whether values are whole scores of the scale; whole ones off it are refused."""
    low, high = scale
    if low != int(low) or high != int(high) or (values != np.floor(values)).any():
        return False
    off = values[(values < low) | (values > high)]
    if len(off):
        raise ScoreError(
            f"{len(off)} {name} values are outside {low} to {high} (first: "
            f"{off[0]:g}). Leave out what is not a score (None), or widen `scale`."
        )
    return high - low < _MOST_LEVELS


def _limits(core: Sample) -> tuple[float, float] | None:
    if len(core.x) < 2 or not core.on_scale:
        return None
    gap = core.y - core.x
    share = core.weight / core.weight.sum()
    mean = float(share @ gap)
    spread = float(np.sqrt(share @ (gap - mean) ** 2 * len(gap) / (len(gap) - 1)))
    return mean - 1.959963984540054 * spread, mean + 1.959963984540054 * spread

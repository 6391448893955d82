"""Coefficients of agreement from contingency tables, many tables at a time.

A table's rows are what people said, its columns what the judge said, both in the
order of the scale; cells are counts or weights. Every function takes an array whose
last two axes are such a table, so that thousands of bootstrap tables cost one call.
Where a coefficient is undefined (0/0) the result is NaN; `agreement` turns that into
"undefined" with its reason, and NaN never leaves the package.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Differences of sums of products are compared with zero after rounding errors of
# this relative size.
_TINY = 1e-12


def _ratio(part: Array, whole: Array, size: Array | float = 1.0) -> Array:
    """`part / whole`, NaN where `whole` is zero up to rounding of terms of `size`."""
    part, whole = np.asarray(part), np.asarray(whole)
    fine = whole > _TINY * np.abs(size)
    return np.where(fine, part / np.where(fine, whole, 1.0), np.nan)


def margins(tables: Array) -> tuple[Array, Array, Array]:
    """Row sums, column sums and totals."""
    return tables.sum(-1), tables.sum(-2), tables.sum((-2, -1))


def exact(tables: Array) -> Array:
    """Share of pairs that are equal. Fraction, 1 is best."""
    return _ratio(np.trace(tables, axis1=-2, axis2=-1), tables.sum((-2, -1)))


def adjacent(tables: Array, values: Array) -> Array:
    """Share of pairs within one point, equal ones included. Fraction, 1 is best."""
    near = np.abs(values[:, None] - values) <= 1 + 1e-9  # thirds do not add up
    return _ratio((tables * near).sum((-2, -1)), tables.sum((-2, -1)))


def bias(tables: Array, values: Array) -> Array:
    """Mean of judge minus label, in points. 0 is best."""
    rows, columns, total = margins(tables)
    return _ratio(columns @ values - rows @ values, total)


def weighted_kappa(tables: Array, values: Array, *, power: float = 2.0) -> Array:
    """Cohen's weighted kappa with weights |difference| ** power.

    The scale is the table's own, so a level nobody used counts as a level; leaving
    it out changes the weights (0.82 for 0.85 in a known case, scikit-learn with
    `labels=None`). A constant judge has kappa 0; everything equal is 0/0, NaN.

    Args:
        tables: Shape (..., K, K).
        values: The K levels as numbers, in order.
        power: 2 quadratic, 1 linear, 0 unweighted.

    Source: Cohen 1968.
    """
    gap = np.abs(values[:, None] - values)
    cost = np.where(gap > 0, gap**power, 0.0)
    rows, columns, total = margins(tables)
    seen = (tables * cost).sum((-2, -1)) * total
    expected = ((rows @ cost) * columns).sum(-1)
    return 1 - _ratio(seen, expected, cost.max() * total**2)


def midranks(totals: Array) -> Array:
    """Middle rank of each level from the counts per level, shape (..., K)."""
    return np.cumsum(totals, -1) - totals / 2


def alpha_from_coincidences(
    coincidences: Array, values: Array, *, level: str = "ordinal"
) -> Array:
    """Krippendorff's alpha from coincidence tables, shape (..., K, K).

    The ordinal distance between two levels is the distance of their middle ranks,
    squared. That is Krippendorff's own metric, and not what some libraries call
    ordinal weights (0.834 instead of 0.815 on his canonical data).

    Args:
        coincidences: Symmetric; each unit with m values adds its ordered pairs,
            each with weight 1 / (m - 1).
        values: The K levels as numbers, in order.
        level: "ordinal", "interval", "ratio" or "nominal".

    Source: Krippendorff 2011, "Computing Krippendorff's alpha-reliability".
    """
    totals = coincidences.sum(-1)
    total = totals.sum(-1)
    if level == "nominal":
        distance = np.broadcast_to(1.0 - np.eye(len(values)), coincidences.shape)
    elif level == "ratio":
        both = values[:, None] + values
        gap = values[:, None] - values
        one = np.where(both > 0, gap / np.where(both > 0, both, 1.0), 0.0) ** 2
        distance = np.broadcast_to(one, coincidences.shape)
    else:
        points = midranks(totals) if level == "ordinal" else values + 0 * totals
        distance = (points[..., :, None] - points[..., None, :]) ** 2
    seen = (coincidences * distance).sum((-2, -1)) * (total - 1)
    pairs = totals[..., :, None] * totals[..., None, :]
    expected = (pairs * distance).sum((-2, -1))
    return 1 - _ratio(seen, expected, distance.max((-2, -1)) * total**2)


def krippendorff_alpha(
    tables: Array, values: Array, *, level: str = "ordinal"
) -> Array:
    """Krippendorff's alpha of two raters without missing values."""
    return alpha_from_coincidences(
        tables + np.swapaxes(tables, -2, -1), values, level=level
    )


def credits_of(values: Array, weights: str) -> Array:
    """Credit for each pair of levels, 1 on the diagonal: Gwet's weight matrices."""
    k = len(values)
    gap = np.abs(values[:, None] - values)
    if weights == "identity":
        return np.eye(k)
    if weights == "ordinal":
        steps = np.abs(np.subtract.outer(np.arange(k), np.arange(k))) + 1
        pairs = steps * (steps - 1) / 2
        return np.asarray(1 - pairs / pairs.max(), dtype=np.float64)
    power = 2 if weights == "quadratic" else 1
    return np.asarray(1 - (gap / gap.max()) ** power, dtype=np.float64)


def several_raters(
    counts: Array,
    values: Array,
    *,
    chance: str = "gwet",
    weights: str = "quadratic",
    copies: Array | None = None,
) -> Array:
    """Agreement of three and more raters from ratings per item and level.

    One formula: observed credit over pairs of an item's ratings, against what chance
    gives. Items with one rating tell of the levels' shares only.

    Args:
        counts: Ratings per item and level, shape (items, K); any number per item.
        values: The K levels as numbers, in order.
        chance: "gwet" (AC1 with identity weights, AC2 else), "fleiss" (Fleiss' kappa
            with identity weights) or "uniform" (Brennan and Prediger).
        weights: "quadratic", "linear", "ordinal" or "identity".
        copies: How often each item counts, shape (..., items); None: once.

    Source: Gwet 2014, "Handbook of Inter-Rater Reliability", 4th ed.
    """
    k, credit = len(values), credits_of(values, weights)
    times = np.ones(len(counts)) if copies is None else copies
    raters = counts.sum(1)
    pairs = raters * (raters - 1)
    agreed = (counts * (counts @ credit - 1)).sum(1)
    own = np.where(pairs > 0, agreed / np.where(pairs > 0, pairs, 1.0), 0.0)
    seen = _ratio(times @ own, times @ (pairs > 0))
    rated = raters > 0
    shares = counts / np.where(rated, raters, 1.0)[:, None]
    share = (times @ shares) / (times @ rated)[..., None]
    if chance == "gwet":
        expected = credit.sum() / (k * (k - 1)) * (share * (1 - share)).sum(-1)
    elif chance == "fleiss":
        expected = ((share @ credit) * share).sum(-1)
    else:
        expected = np.full(np.shape(seen), credit.sum() / k**2)
    return _ratio(seen - expected, 1 - expected)


def gwet_ac(tables: Array, values: Array, *, weights: str = "quadratic") -> Array:
    """Gwet's AC2 (AC1 with identity weights) of two raters.

    It stays high where nearly everything is in one level and kappa falls although
    people and judge agree. It depends on how many levels the scale has.

    Args:
        tables: Shape (..., K, K).
        values: The K levels as numbers, in order.
        weights: "quadratic", "linear", "ordinal" or "identity".

    Source: Gwet 2014, "Handbook of Inter-Rater Reliability", 4th ed.
    """
    k, credit = len(values), credits_of(values, weights)
    rows, columns, total = margins(tables)
    share = (rows + columns) / (2 * total[..., None])
    chance = credit.sum() / (k * (k - 1)) * (share * (1 - share)).sum(-1)
    seen = _ratio((tables * credit).sum((-2, -1)), total)
    return _ratio(seen - chance, 1 - chance)


def _correlation(tables: Array, rows_at: Array, columns_at: Array) -> Array:
    """Pearson correlation of scores given per row level and per column level."""
    rows, columns, total = margins(tables)
    n = total[..., None]
    x = rows_at - (rows * rows_at).sum(-1, keepdims=True) / n
    y = columns_at - (columns * columns_at).sum(-1, keepdims=True) / n
    together = (tables * x[..., :, None] * y[..., None, :]).sum((-2, -1))
    spread_x = (rows * x**2).sum(-1)
    spread_y = (columns * y**2).sum(-1)
    size = np.sqrt((x**2).max(-1) * (y**2).max(-1)) * total
    return _ratio(together, np.sqrt(spread_x * spread_y), size)


def pearson(tables: Array, values: Array) -> Array:
    """Pearson correlation of the levels taken as numbers."""
    rows, columns, _ = margins(tables)
    return _correlation(tables, values + 0 * rows, values + 0 * columns)


def spearman(tables: Array) -> Array:
    """Spearman's rank correlation with ties at their middle rank."""
    rows, columns, _ = margins(tables)
    return _correlation(tables, midranks(rows), midranks(columns))


def _later(tables: Array) -> Array:
    """For every cell, the weight strictly below it and strictly right of it."""
    tail = np.flip(np.cumsum(np.cumsum(np.flip(tables, (-2, -1)), -2), -1), (-2, -1))
    out = np.zeros_like(tail)
    out[..., :-1, :-1] = tail[..., 1:, 1:]
    return out


def concordance_balance(tables: Array) -> Array:
    """Concordant minus discordant pairs (each unordered pair once)."""
    mirrored = np.flip(tables, -1)
    concordant: Array = (tables * _later(tables)).sum((-2, -1))
    discordant: Array = (mirrored * _later(mirrored)).sum((-2, -1))
    return concordant - discordant


def kendall_tau_b(tables: Array) -> Array:
    """Kendall's tau-b: concordance of pairs, corrected for ties on both sides."""
    rows, columns, total = margins(tables)
    # With weights a constant column leaves rounding errors below zero.
    pairs_rows = np.maximum(total**2 - (rows**2).sum(-1), 0) / 2
    pairs_columns = np.maximum(total**2 - (columns**2).sum(-1), 0) / 2
    return _ratio(
        concordance_balance(tables),
        np.sqrt(pairs_rows * pairs_columns),
        total**2,
    )


def somers_d(tables: Array) -> Array:
    """Somers' d of the judge (columns) given the label (rows)."""
    rows, _, total = margins(tables)
    return _ratio(
        concordance_balance(tables), (total**2 - (rows**2).sum(-1)) / 2, total**2
    )


def recall(tables: Array) -> Array:
    """Per label level, the share the judge scored the same; shape (..., K)."""
    rows = tables.sum(-1)
    return _ratio(np.diagonal(tables, axis1=-2, axis2=-1), rows)


def level_bias(tables: Array, values: Array) -> Array:
    """Per label level, the mean of judge minus label in points; shape (..., K)."""
    rows = tables.sum(-1)
    return _ratio(tables @ values - rows * values, rows)

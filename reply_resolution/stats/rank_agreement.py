"""Agreement of values that are not whole levels: averages, or a judge's 0 to 1 score.

There is no table of a few cells to resample here, so intervals come from the
influence of each item (infinitesimal jackknife), on Fisher's z for correlations.
No chance enters. Cost: O(n log² n).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Influence:
    """A statistic with how much each item moves it.

    Attributes:
        value: The statistic; NaN where it is undefined.
        items: Shape (n,): its derivative with respect to the share of each item,
            so that the variance is the sum of squares of share times derivative.
        bounded: Whether it is a correlation (-1 to 1), for which the interval is
            made on Fisher's z.
    """

    value: float
    items: Array
    bounded: bool


def _at_or_above(values: Array, amounts: Array) -> Array:
    """For each item j: the sum of amounts where value > value j, plus half the ties."""
    _, inverse = np.unique(values, return_inverse=True)
    per_level = np.bincount(inverse, amounts)
    tail = np.cumsum(per_level[::-1])[::-1] - per_level / 2
    return np.asarray(tail[inverse])


def _below(x: NDArray[np.int64], y: NDArray[np.int64], weight: Array) -> Array:
    """For each item, the weight of items strictly below it in both x and y.

    Merge counting, all blocks of a size at once. Within equal x the order is by
    falling y, so an earlier item with smaller y always has smaller x.
    """
    n, base = len(x), int(y.max()) + 1
    order = np.lexsort((-y, x))
    y, weight = y[order], weight[order]
    position = np.arange(n)
    found = np.zeros(n)
    size = 1
    while size < n:
        block, right = position // (2 * size), (position // size) % 2 == 1
        key = block * base + y
        left = np.flatnonzero(~right)
        left = left[np.argsort(key[left], kind="stable")]
        sums = np.concatenate(([0.0], np.cumsum(weight[left])))
        upto = np.searchsorted(key[left], key[right])
        start = np.searchsorted(key[left], block[right] * base)
        found[right] += sums[upto] - sums[start]
        size *= 2
    out = np.empty(n)
    out[order] = found
    return out


def _product_ratio(
    together: float, x: float, y: float, d_together: Array, d_x: Array, d_y: Array
) -> Influence:
    """Together / sqrt(x y) with its derivatives; undefined when x or y is zero."""
    if min(x, y) <= 1e-14:
        return Influence(np.nan, np.zeros_like(d_together), True)
    root = np.sqrt(x * y)
    value = together / root
    return Influence(
        float(value), d_together / root - value / 2 * (d_x / x + d_y / y), True
    )


def _spearman(x: Array, y: Array, share: Array) -> Influence:
    # Rank of i: share of items below it plus half its ties, which is
    # _at_or_above of the mirrored values.
    rank_x = _at_or_above(-x, share)
    rank_y = _at_or_above(-y, share)
    a, b = rank_x - share @ rank_x, rank_y - share @ rank_y
    covariance = float(share @ (a * b))
    var_x, var_y = float(share @ a**2), float(share @ b**2)
    # An item moves the ranks of all items above it: hence the second terms.
    d_cov = (
        a * b + _at_or_above(x, share * b) + _at_or_above(y, share * a) - 3 * covariance
    )
    d_x = a**2 + 2 * _at_or_above(x, share * a) - 3 * var_x
    d_y = b**2 + 2 * _at_or_above(y, share * b) - 3 * var_y
    return _product_ratio(covariance, var_x, var_y, d_cov, d_x, d_y)


def _kendall(x: Array, y: Array, share: Array) -> Influence:
    rank_x = np.unique(x, return_inverse=True)[1]
    rank_y = np.unique(y, return_inverse=True)[1]
    up_x, up_y = rank_x.max() - rank_x, rank_y.max() - rank_y
    balance = (
        _below(rank_x, rank_y, share)
        + _below(up_x, up_y, share)
        - _below(rank_x, up_y, share)
        - _below(up_x, rank_y, share)
    )
    untied_x: Array = np.subtract(1.0, np.bincount(rank_x, share)[rank_x])
    untied_y: Array = np.subtract(1.0, np.bincount(rank_y, share)[rank_y])
    c, u = float(share @ balance), float(share @ untied_x)
    v = float(share @ untied_y)
    return _product_ratio(
        c, u, v, 2 * (balance - c), 2 * (untied_x - u), 2 * (untied_y - v)
    )


def _concordance(x: Array, y: Array, share: Array) -> Influence:
    """Lin's concordance, which is quadratic weighted kappa for any numbers."""
    mean_x, mean_y = share @ x, share @ y
    seen = share @ (x - y) ** 2
    expected = share @ (x - mean_x) ** 2 + share @ (y - mean_y) ** 2
    expected += (mean_x - mean_y) ** 2
    if expected <= 1e-14:
        return Influence(np.nan, np.zeros_like(x), True)
    # E over independent pairs of (x - y)^2, derivative in one item's share.
    d_expected = (
        (x - mean_y) ** 2
        + share @ (y - mean_y) ** 2
        + (y - mean_x) ** 2
        + share @ (x - mean_x) ** 2
        - 2 * expected
    )
    d_seen = (x - y) ** 2 - seen
    value = 1 - seen / expected
    return Influence(
        float(value), -(d_seen - seen / expected * d_expected) / expected, True
    )


def _bias(x: Array, y: Array, share: Array) -> Influence:
    value = float(share @ (y - x))
    return Influence(value, y - x - value, False)


def influences(labels: Array, judge: Array, weights: Array) -> Mapping[str, Influence]:
    """Spearman, Kendall's tau-b, concordance and bias with their influences.

    Args:
        labels: What people said, shape (n,), any numbers.
        judge: What the judge said, shape (n,); for `concordance` and `bias` on the
            labels' scale.
        weights: Shape (n,), positive; only their ratios matter.
    """
    share = weights / weights.sum()
    return {
        "spearman": _spearman(labels, judge, share),
        "kendall_tau_b": _kendall(labels, judge, share),
        "concordance": _concordance(labels, judge, share),
        "bias": _bias(labels, judge, share),
    }


def variance_of_items(
    statistic: Influence, weights: Array, clusters: NDArray[np.int64] | None
) -> tuple[float, int]:
    """Variance of a statistic from its influences, and the number of units.

    Args:
        statistic: From `influences`.
        weights: The same weights.
        clusters: Cluster number of each item (0 to G - 1), or None: items are
            independent.
    """
    pushes = weights / weights.sum() * statistic.items
    if clusters is not None:
        pushes = np.bincount(clusters, pushes)
    return float(pushes @ pushes), len(pushes)


def interval(
    statistic: Influence, variance: float, units: int, confidence: float
) -> tuple[float, float] | None:
    """Interval of a statistic from its variance; None where it says nothing.

    Args:
        statistic: From `influences`.
        variance: Its variance.
        units: Independent units: items, or clusters.
        confidence: Fraction, e.g. 0.95. t quantile with units - 1 degrees of freedom.
    """
    from scipy.special import stdtrit

    if units < 3 or np.isnan(statistic.value):
        return None
    error = float(np.sqrt(variance * units / (units - 1)))
    if error <= 1e-12:
        return None  # every item agrees with the estimate: no spread to learn from
    reach = float(stdtrit(units - 1, (1 + confidence) / 2)) * error
    if not statistic.bounded:
        return statistic.value - reach, statistic.value + reach
    slope = 1 - statistic.value**2
    if slope <= 1e-12:
        return None
    centre = np.arctanh(statistic.value)
    return float(np.tanh(centre - reach / slope)), float(
        np.tanh(centre + reach / slope)
    )

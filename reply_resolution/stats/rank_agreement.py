"""Agreement of values that are not whole levels: averages, or a judge's 0 to 1 score.

There is no table of a few cells to resample here, so intervals come from the
influence of each item (infinitesimal jackknife), on Fisher's z for correlations.
No chance enters. Cost: O(n log² n).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reply_resolution.stats.agreement_parts import (
    RANKED,
    Array,
    Estimate,
    Sample,
    share_interval,
    undefined,
    without_levels,
)
from reply_resolution.stats.quantiles import critical


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


def _pearson(x: Array, y: Array, share: Array) -> Influence:
    # Ranges of 1 first: whether a column is constant must not depend on its unit.
    a, b = ((v - share @ v) / (np.ptp(v) or 1.0) for v in (x, y))
    covariance, var_x, var_y = (float(share @ v) for v in (a * b, a**2, b**2))
    return _product_ratio(
        covariance, var_x, var_y, a * b - covariance, a**2 - var_x, b**2 - var_y
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
    """Pearson, Spearman, tau-b, concordance and bias with their influences.

    Args:
        labels: What people said, shape (n,), any numbers.
        judge: What the judge said, shape (n,); for `concordance` and `bias` on the
            labels' scale.
        weights: Shape (n,), positive; only their ratios matter.
    """
    share = weights / weights.sum()
    return {
        "pearson": _pearson(labels, judge, share),
        "spearman": _spearman(labels, judge, share),
        "kendall_tau_b": _kendall(labels, judge, share),
        "concordance": _concordance(labels, judge, share),
        "bias": _bias(labels, judge, share),
    }


def limits(
    statistic: Influence,
    pushes: Array,
    far: Array,
    near: Array,
    units: int,
    confidence: float,
) -> tuple[float, float]:
    """Interval of a statistic, with one unseen unit at each end.

    The counterpart of the drawn tables of `agreement_parts`: the low end is that of
    the sample and one unit as far off as can be, the high end that with one that
    agrees; t quantile with units - 1 degrees, correlations on Fisher's z.

    Args:
        statistic: From `influences`.
        pushes: What each unit moves it by, times the number of units.
        far: The same of possible units that are as far off as can be.
        near: The same of possible units for the other end.
        units: Independent units: items, or clusters.
        confidence: Fraction.
    """
    value, t = statistic.value, critical(confidence, units - 1)
    ends = []
    for sign, extra in ((-1.0, far), (1.0, near)):
        variance = (float(pushes @ pushes) + float(np.mean(extra**2))) / units**2
        reach = sign * t * float(np.sqrt(variance * units / (units - 1)))
        centre = value + float(np.mean(extra)) / units
        if not statistic.bounded:
            ends.append(centre + reach)
        elif abs(centre) < 1 - 1e-9:
            ends.append(float(np.tanh(np.arctanh(centre) + reach / (1 - centre**2))))
        else:
            ends.append(float(np.clip(centre + reach, -1, 1)))
    return float(min(ends[0], value)), float(max(ends[1], value))


def from_items(core: Sample) -> tuple[dict[str, Any], list[str]]:
    """Many-valued numbers, and scales that are not shared: ranks above all."""
    x, y, n = core.x, core.y, len(core.x)
    # What a unit would push that is as far off as can be: its score at the end of
    # the judge's range that is farther from the label's place in its own range.
    bottom, top = core.scale if core.on_scale else (y.min(), y.max())
    middle = (core.scale[0] + core.scale[1]) / 2 if core.on_scale else np.median(x)
    # At most 200 labels stand for all: these are means over possible replies.
    some = np.quantile(x, np.linspace(0, 1, min(n, 200)), method="nearest")
    m, rare = len(some), 0 if x.mean() > middle else -1
    off = np.where(some > middle, bottom, top)
    unseen = influences(
        np.concatenate((x, some, some, some, [np.sort(x)[rare]])),
        np.concatenate(
            (y, off, np.full(m, bottom), np.full(m, top), [np.sort(y)[rare]])
        ),
        np.concatenate((core.weight, np.full(3 * m + 1, 1e-9))),
    )
    why = "the two columns are not both on the scale {:g} to {:g}".format(*core.scale)
    parts: dict[str, Any] = {}
    for name, statistic in influences(x, y, core.weight).items():
        if name in ("bias", "concordance") and not core.on_scale:
            parts[name] = Estimate(None, reason=why)
        elif np.isnan(statistic.value):
            parts[name] = Estimate(None, reason="one of the two columns is constant")
        elif core.units < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
            parts[name] = Estimate(
                statistic.value, reason="nothing says how precise it is"
            )
        else:
            pushes: Array = core.weight * statistic.items * core.units / n
            if core.groups is not None:
                pushes = np.bincount(core.groups, pushes).astype(float)
            extra = unseen[name].items[n:]
            far, near = (
                (extra[m : 2 * m], extra[2 * m : 3 * m])
                if name == "bias"
                else (extra[:m], extra[3 * m :])
            )
            ends = limits(
                statistic,
                pushes,
                far,
                near,
                core.units,
                core.confidence,
            )
            parts[name] = Estimate(statistic.value, *ends)
    parts["adjacent"] = Estimate(None, reason=why)
    if core.on_scale:
        near_share = float(core.weight @ (np.abs(y - x) <= 1 + 1e-9)) / n
        parts["adjacent"] = Estimate(
            near_share, *share_interval(near_share, core.effective, core.confidence)
        )
    parts.update(confusion=None, recall=(), level_bias=())
    notes = [without_levels(parts, core.scale), *undefined(parts, RANKED)]
    return parts, notes

"""The estimates of agreement and their intervals, from tables or from items."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reply_resolution.stats import concordance
from reply_resolution.stats.rank_agreement import Influence, influences, interval
from reply_resolution.stats.resampling import draw_tables

Array = NDArray[np.float64]
_MOST_VALUES = 41

#: The estimates of `agreement --json`, in its order.
MEASURES = (
    "exact",
    "adjacent",
    "weighted_kappa",
    "krippendorff_alpha",
    "gwet_ac2",
    "spearman",
    "kendall_tau_b",
    "bias",
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval, or the reason why there is none.

    Attributes:
        estimate: The number; None where it is undefined.
        low: Lower end of the interval, same unit; None where there is no interval.
        high: Upper end of the interval, same unit.
        reason: Why the estimate or its interval is missing, else "".
    """

    estimate: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """`{"estimate": ..., "ci": [low, high] or null}`."""
        ci = None if self.low is None else [self.low, self.high]
        return {"estimate": self.estimate, "ci": ci}


@dataclass(frozen=True, slots=True)
class Sample:
    """Complete pairs, ready to be counted.

    Attributes:
        x: Labels, shape (n,).
        y: Judge's scores, shape (n,).
        weight: Weight of each pair, positive.
        groups: Cluster number of each pair, 0 to G - 1, or None.
        scale: Lowest and highest score.
        confidence: Level of the intervals, fraction.
    """

    x: Array
    y: Array
    weight: Array
    groups: NDArray[np.int64] | None
    scale: tuple[float, float]
    confidence: float

    @property
    def units(self) -> int:
        """What is drawn with replacement: clusters if there are any, else pairs."""
        return len(self.x) if self.groups is None else int(self.groups.max()) + 1

    @property
    def values(self) -> Array:
        """The levels of the scale as numbers."""
        return np.arange(self.scale[0], self.scale[1] + 1, dtype=float)


def same_scale(core: Sample) -> bool:
    """Whether both columns lie on the scale (a 0 to 1 judge against 1 to 5 doesn't)."""
    low, high = core.scale
    both = np.concatenate((core.x, core.y))
    return bool((both >= low).all() and (both <= high).all())


def few_values(core: Sample) -> bool:
    """Whether averages take so few values that tables of them can be drawn."""
    return len(np.unique(np.concatenate((core.x, core.y)))) <= _MOST_VALUES


def statistics(
    tables: Array, values: Array, *, levels: bool = True
) -> dict[str, Array]:
    """All estimates of a stack of tables; vectors per level are keyed by name:level."""
    out = {
        "adjacent": concordance.adjacent(tables, values),
        "weighted_kappa": concordance.weighted_kappa(tables, values),
        "spearman": concordance.spearman(tables),
        "kendall_tau_b": concordance.kendall_tau_b(tables),
        "bias": concordance.bias(tables, values),
    }
    if not levels:
        return out
    out["exact"] = concordance.exact(tables)
    out["krippendorff_alpha"] = concordance.krippendorff_alpha(tables, values)
    out["gwet_ac2"] = concordance.gwet_ac(tables, values)
    recall = concordance.recall(tables)
    level_bias = concordance.level_bias(tables, values)
    for i in range(len(values)):
        out[f"recall:{i}"] = recall[..., i]
        out[f"level_bias:{i}"] = level_bias[..., i]
    return out


def from_tables(
    core: Sample, resamples: int, seed: int, *, whole: bool
) -> tuple[dict[str, Any], list[str]]:
    """Estimates with bootstrap intervals, and sentences on them.

    Args:
        core: The pairs.
        resamples: Tables to draw.
        seed: Of the draws.
        whole: Whether all values are levels of the scale; if not (averages of a few
            labels), what needs levels is left undefined.
    """
    values = core.values if whole else np.unique(np.concatenate((core.x, core.y)))
    k = len(values)
    rows = np.searchsorted(values, core.x)
    cells = rows * k + np.searchsorted(values, core.y)
    # Mean weight 1, so that sums keep the size that alpha's correction expects.
    weight = core.weight / core.weight.mean()
    table = np.asarray(np.bincount(cells, weight, minlength=k * k), dtype=np.float64)
    table = table.reshape(k, k)
    tables = draw_tables(cells, (k, k), weight, core.groups, resamples, seed)
    # Statistics of wide tables in portions: (draws, K, K) several times over.
    portion = max(1, 2_000_000 // (k * k))
    stacks = [
        statistics(tables[i : i + portion], values, levels=whole)
        for i in range(0, len(tables), portion)
    ]
    drawn = {name: np.concatenate([s[name] for s in stacks]) for name in stacks[0]}
    point = statistics(table, values, levels=whole)
    effective = float(core.weight.sum() ** 2 / (core.weight**2).sum())
    if core.groups is not None:
        effective = min(effective, float(core.units))
    found = {
        name: _estimate(
            name, float(value), drawn[name], table, values, effective, core, whole
        )
        for name, value in point.items()
    }
    notes = _constant_notes(table, values, len(cells))
    parts: dict[str, Any] = {name: found[name] for name in MEASURES if name in found}
    parts["concordance"] = found["weighted_kappa"]
    parts.update(confusion=None, recall=(), level_bias=())
    if whole:
        shown = np.bincount(cells, core.weight, minlength=k * k).reshape(k, k)
        parts["recall"] = tuple(found[f"recall:{i}"] for i in range(k))
        parts["level_bias"] = tuple(found[f"level_bias:{i}"] for i in range(k))
        parts["confusion"] = tuple(tuple(float(c) for c in row) for row in shown)
    else:
        notes.append(_without_levels(parts, core))
    notes.extend(_undefined(parts, MEASURES if whole else RANKED))
    return parts, notes


#: What is defined for values that are not levels of the scale.
RANKED = ("adjacent", "spearman", "kendall_tau_b", "bias")


def _without_levels(parts: dict[str, Any], core: Sample) -> str:
    """Blank what needs whole levels; the sentence that says so."""
    why = "not defined for values that are not whole scores"
    for name in ("exact", "weighted_kappa", "krippendorff_alpha", "gwet_ac2"):
        parts[name] = Estimate(None, reason=why)
    low, high = core.scale
    return (
        f"Values that are not whole scores from {low:g} to {high:g}: exact agreement, "
        "kappa, alpha, AC2 and the confusion table are not defined for them."
    )


def _undefined(parts: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    return [
        f"{name} is undefined: {parts[name].reason}."
        for name in names
        if parts[name].estimate is None
    ]


def _constant_notes(table: Array, values: Array, n: int) -> list[str]:
    """What to say where one of the columns, or both, have a single value."""
    judged = [f"{v:g}" for v in values[table.sum(0) > 0]]
    labelled = [f"{v:g}" for v in values[table.sum(1) > 0]]
    if len(judged) > 1 and len(labelled) > 1:
        return []
    if judged == labelled:
        return [
            f"All labels and scores are {judged[0]}: exact agreement is complete, but "
            "kappa, alpha and correlations are 0/0."
        ]
    if len(judged) == 1:
        return [
            f"The judge gives {judged[0]} to all {n} items: kappa is 0 whatever "
            "people say, correlations are undefined."
        ]
    return [
        f"All {n} labels are {labelled[0]}: kappa is 0 whatever the judge says, "
        "correlations are undefined."
    ]


def wilson(share: float, n: float, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a proportion; never of zero width.

    Args:
        share: Fraction, 0 to 1.
        n: Number it is out of; may be an effective number.
        confidence: Fraction.
    """
    from scipy.special import ndtri

    z = float(ndtri((1 + confidence) / 2))
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At 0 and 1 the formula reaches the end exactly, but for rounding.
    low = 0.0 if share <= 0 else max(0.0, float(centre - reach))
    return low, 1.0 if share >= 1 else min(1.0, float(centre + reach))


def _estimate(
    name: str,
    value: float,
    draws: Array,
    table: Array,
    values: Array,
    effective: float,
    core: Sample,
    whole: bool,
) -> Estimate:
    """A point with its interval: Wilson for shares, percentiles of the draws else."""
    if np.isnan(value):
        if ":" in name:
            return Estimate(None, reason="no label of this level")
        if name in ("spearman", "kendall_tau_b"):
            return Estimate(None, reason="one of the two columns is constant")
        return Estimate(None, reason="it is 0/0, all values are equal")
    usable = draws[~np.isnan(draws)]
    spread = float(usable.std()) if len(usable) > 1 else 0.0
    if name in ("exact", "adjacent") or name.startswith("recall"):
        n = effective
        if name.startswith("recall"):
            level = table[int(name.split(":")[1])].sum() / table.sum()
            n = max(1.0, effective * level)
        weighed = core.groups is not None or np.ptp(core.weight) > 0
        if weighed and 0 < value < 1 and spread > 0:
            n = value * (1 - value) / spread**2
        return Estimate(value, *wilson(value, n, core.confidence))
    if core.units < 3:
        return Estimate(value, reason="fewer than 3 items say nothing of precision")
    if name.startswith("level_bias") and len(usable) < 0.9 * len(draws):
        return Estimate(value, reason="too few labels of this level for an interval")
    if len(usable) < 0.9 * len(draws):
        return Estimate(value, reason="undefined in too many resamples for an interval")
    tail = (1 - core.confidence) / 2
    low, high = (float(q) for q in np.quantile(usable, (tail, 1 - tail)))
    if high - low <= 1e-12 and not name.startswith("level_bias"):
        return _without_spread(
            name, value, table, values, effective, core.confidence, whole
        )
    if high - low <= 1e-12:
        return Estimate(value, reason="all differences of this level are equal")
    # The draws lean towards chance by one item; the estimate does not.
    return Estimate(value, min(low, value), max(high, value))


def _without_spread(
    name: str,
    value: float,
    table: Array,
    values: Array,
    n: float,
    confidence: float,
    whole: bool,
) -> Estimate:
    """An interval where every resample gives the same number.

    That is no proof of precision. n items that all behave alike leave room for a
    share q = 1 - tail ** (1 / n) that would not (exact binomial bound). The limits
    are the statistic with that share of the judge's scores moved one level (either
    way where judge and labels are equal), and set equal to the label.
    """
    share = 1 - ((1 - confidence) / 2) ** (1 / max(n, 1.0))
    k = len(values)
    up, down = np.zeros((k, k)), np.zeros((k, k))
    for j in range(k):
        up[:, min(j + 1, k - 1)] += table[:, j]
        down[:, max(j - 1, 0)] += table[:, j]
    right = np.diag(table.sum(1))
    moved = np.stack([(1 - share) * table + share * t for t in (up, down, right)])
    ends = statistics(moved, values, levels=whole)[name]
    ends = np.append(ends[~np.isnan(ends)], value)
    return Estimate(value, float(ends.min()), float(ends.max()))


def from_items(core: Sample) -> tuple[dict[str, Any], list[str]]:
    """Many-valued numbers, and scales that are not shared: ranks above all."""
    found = influences(core.x, core.y, core.weight)
    spread = influences(*_with_chance(core))
    low, high = core.scale
    other = f"the two columns are not both on the scale {low:g} to {high:g}"
    same = same_scale(core)
    parts: dict[str, Any] = {}
    for name, statistic in found.items():
        if name in ("bias", "concordance") and not same:
            parts[name] = Estimate(None, reason=other)
        elif np.isnan(statistic.value):
            why = "one of the two columns is constant"
            parts[name] = Estimate(None, reason=why)
        else:
            parts[name] = _jackknife(statistic, spread[name], core)
    parts["adjacent"] = Estimate(None, reason=other)
    if same:
        share = core.weight / core.weight.sum()
        near = float(share @ (np.abs(core.y - core.x) <= 1 + 1e-9))
        n = 1 / float(share @ share)
        if core.groups is not None:
            n = min(n, float(core.units))
        parts["adjacent"] = Estimate(near, *wilson(near, n, core.confidence))
    parts.update(confusion=None, recall=(), level_bias=())
    notes = [_without_levels(parts, core), *_undefined(parts, RANKED)]
    return parts, notes


def _with_chance(core: Sample) -> tuple[Array, Array, Array]:
    """The pairs, and one more that agrees by chance (all labels, scores shuffled)."""
    n = len(core.x)
    shuffled = np.random.default_rng(0).permutation(core.y)
    weight = core.weight / core.weight.mean()
    return (
        np.concatenate((core.x, core.x)),
        np.concatenate((core.y, shuffled)),
        np.concatenate((weight, np.full(n, n / core.units / n))),
    )


def _jackknife(statistic: Influence, smoothed: Influence, core: Sample) -> Estimate:
    """The estimate with the spread of the pairs and the one added by chance."""
    if np.ptp(core.x) == 0 or np.ptp(core.y) == 0:
        return Estimate(statistic.value, reason="one of the two columns is constant")
    n = len(core.x)
    weight = core.weight / core.weight.mean()
    pushes = weight * smoothed.items[:n]
    if core.groups is not None:
        pushes = np.bincount(core.groups, pushes)
    # What the added unit would push, were it one of the units: mean square over its
    # possible values. A cluster weighs n / units items.
    added = float(np.mean((n / core.units * smoothed.items[n:]) ** 2))
    variance = (float(pushes @ pushes) + added) / n**2
    limits = interval(statistic, variance, core.units, core.confidence)
    if limits is None:
        return Estimate(statistic.value, reason="no spread to learn from")
    return Estimate(statistic.value, *limits)

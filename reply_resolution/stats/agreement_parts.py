"""The estimates of agreement and their intervals, from tables of counts.

The plain percentile bootstrap fails where disagreement is rare: it cannot draw an
error it has not seen, and its 95% intervals of kappa at 100 items covered 80%. So the
tables are drawn from what the sample leaves possible (a Dirichlet distribution on its
cells), and each end of an interval has one more unit mixed in, of the kind that the
sample can exclude least: for the low end a reply scored as far from its label as the
scale allows, for the high end a reply at the rarer end of the scale that was scored as
labelled. For a share this is the Clopper-Pearson interval.

Source: Walley 1996, "Inferences from multinomial data" (imprecise Dirichlet, s = 1);
Rubin 1981 (Bayesian bootstrap).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reply_resolution.stats import concordance

Array = NDArray[np.float64]
#: Averages of more different values than this are compared item by item.
_MOST_VALUES = 41
#: Beyond this many types of unit (users) 1,000 draws have to do.
_MANY_TYPES = 2000
#: A level with fewer labels has no interval of its own.
_FEWEST_AT_LEVEL = 3

#: The estimates of `agreement --json`, in its order.
MEASURES = (
    "exact",
    "adjacent",
    "weighted_kappa",
    "krippendorff_alpha",
    "gwet_ac2",
    "pearson",
    "spearman",
    "kendall_tau_b",
    "bias",
)
#: What is defined for values that are not levels of the scale.
RANKED = ("adjacent", "pearson", "spearman", "kendall_tau_b", "bias")


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
        weight: Weight of each pair, positive, mean 1.
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
        """What is drawn: clusters if there are any, else pairs."""
        return len(self.x) if self.groups is None else int(self.groups.max()) + 1

    @property
    def effective(self) -> float:
        """Independent units that weigh alike and tell as much (Kish)."""
        n = float(self.weight.sum() ** 2 / (self.weight**2).sum())
        return n if self.groups is None else min(n, float(self.units))

    @property
    def on_scale(self) -> bool:
        """Whether both columns lie on the scale (0 to 1 against 1 to 5 does not)."""
        low, high = self.scale
        both = np.concatenate((self.x, self.y))
        return bool((both >= low).all() and (both <= high).all())

    @property
    def few_values(self) -> bool:
        """Whether averages take so few values that tables of them can be drawn."""
        values = np.unique(np.concatenate((self.x, self.y)))
        return self.on_scale and len(values) <= _MOST_VALUES


def share_interval(share: float, n: float, confidence: float) -> tuple[float, float]:
    """Clopper-Pearson interval of a proportion; covers at least what it says.

    Args:
        share: Fraction, 0 to 1.
        n: Number it is out of; may be an effective number.
        confidence: Fraction.
    """
    from scipy.special import betaincinv

    tail, hits = (1 - confidence) / 2, share * n
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return min(low, share), max(high, share)


def statistics(
    tables: Array, values: Array, *, levels: bool = True
) -> dict[str, Array]:
    """The coefficients of a stack of tables, by name."""
    out = {
        "weighted_kappa": concordance.weighted_kappa(tables, values),
        "pearson": concordance.pearson(tables, values),
        "spearman": concordance.spearman(tables),
        "kendall_tau_b": concordance.kendall_tau_b(tables),
    }
    if levels:
        out["krippendorff_alpha"] = concordance.krippendorff_alpha(tables, values)
        out["gwet_ac2"] = concordance.gwet_ac(tables, values)
    return out


def far_ends(values: Array) -> Array:
    """Per level, where on the scale a score is farthest from it; rows sum to 1."""
    gap = np.abs(values[:, None] - values)
    far = (gap >= gap.max(1, keepdims=True) - 1e-9).astype(float)
    return np.asarray(far / far.sum(1, keepdims=True), dtype=np.float64)


def rarer_end(shares: Array, values: Array) -> int:
    """The end of the scale, 0 or -1, that is farther from the mean."""
    return 0 if float(shares @ values) > (values[0] + values[-1]) / 2 else -1


def unit_types(
    cells: NDArray[np.int64],
    size: int,
    weight: Array,
    groups: NDArray[np.int64] | None,
) -> tuple[Array, Array]:
    """Units pooled by what they add to the cells.

    Args:
        cells: Cell of each item, 0 to size - 1.
        size: Number of cells.
        weight: Weight of each item.
        groups: Cluster number of each item, or None: every item is a unit.

    Returns:
        Content per type, shape (types, size), and units per type.
    """
    if groups is None:
        pairs = np.column_stack((cells.astype(float), weight))
        types, counts = np.unique(pairs, axis=0, return_counts=True)
        content = np.zeros((len(types), size))
        content[np.arange(len(types)), types[:, 0].astype(int)] = types[:, 1]
        return content, counts.astype(float)
    per_unit = np.zeros((int(groups.max()) + 1, size))
    np.add.at(per_unit, (groups, cells), weight)
    content, counts = np.unique(per_unit, axis=0, return_counts=True)
    return content, counts.astype(float)


def draw(
    content: Array, counts: Array, resamples: int, rng: np.random.Generator
) -> Iterator[Array]:
    """Sums of what the units hold, each unit weighing an exponential variate.

    Args:
        content: What a unit of each type adds, shape (types, cells).
        counts: Units per type.
        resamples: Draws.
        rng: Of the draws.

    Yields:
        Shape (draws, cells), in portions that keep the memory small.
    """
    types, size = content.shape
    if types > _MANY_TYPES:
        resamples = min(resamples, 1000)
    portion = max(1, min(2_000_000 // size, 4_000_000 // types))
    for start in range(0, resamples, portion):
        many = min(portion, resamples - start)
        yield rng.standard_gamma(counts, size=(many, types)) @ content


def from_tables(
    core: Sample, resamples: int, seed: int, *, whole: bool
) -> tuple[dict[str, Any], list[str]]:
    """Estimates with their intervals, and sentences on them.

    Args:
        core: The pairs.
        resamples: Tables to draw.
        seed: Of the draws.
        whole: Whether all values are levels of the scale; if not (averages of a few
            labels), what needs levels is left undefined.
    """
    low, high = core.scale
    values = (
        np.arange(low, high + 1, dtype=float)
        if whole
        else np.unique(np.concatenate((core.x, core.y, core.scale)))
    )
    k = len(values)
    cells = np.searchsorted(values, core.x) * k + np.searchsorted(values, core.y)
    table: Array = np.zeros((k, k))
    np.add.at(table.ravel(), cells, core.weight)
    ends, spread = _ends(core, cells, table, values, resamples, seed, whole=whole)
    found = _shares(core, table, values, spread)
    for name, value in _points(table, values, whole=whole).items():
        found[name] = _estimate(name, value, ends.get(name), core.units)
    parts: dict[str, Any] = {name: found[name] for name in MEASURES if name in found}
    parts["concordance"] = found["weighted_kappa"]
    parts.update(confusion=None, recall=(), level_bias=())
    notes = _constant_notes(table, values, len(cells))
    if whole:
        counts = np.bincount(cells, minlength=k * k).reshape(k, k).sum(1)
        biases = [found[f"level_bias:{i}"] for i in range(k)]
        few = "too few labels of this level for an interval"
        parts["level_bias"] = tuple(
            Estimate(b.estimate, reason=b.reason or few) if n < _FEWEST_AT_LEVEL else b
            for b, n in zip(biases, counts, strict=True)
        )
        parts["recall"] = tuple(found[f"recall:{i}"] for i in range(k))
    else:
        notes.append(without_levels(parts, core.scale))
    notes.extend(undefined(parts, MEASURES if whole else RANKED))
    return parts, notes


def _points(table: Array, values: Array, *, whole: bool) -> dict[str, float]:
    found = {n: float(v) for n, v in statistics(table, values, levels=whole).items()}
    found["bias"] = float(concordance.bias(table, values))
    if whole:
        for i, value in enumerate(concordance.level_bias(table, values)):
            found[f"level_bias:{i}"] = float(value)
    return found


def _ends(
    core: Sample,
    cells: NDArray[np.int64],
    table: Array,
    values: Array,
    resamples: int,
    seed: int,
    *,
    whole: bool,
) -> tuple[dict[str, tuple[float, float]], dict[str, float]]:
    """Both ends of each interval; and the spread of shares, for units not alike."""
    k = len(values)
    content, counts = unit_types(cells, k * k, core.weight, core.groups)
    heavy = len(core.x) / core.units  # a unit's weight, in items
    labels = table.sum(1) / table.sum()
    far, rare = (
        far_ends(values),
        rarer_end((labels + table.sum(0) / table.sum()) / 2, values),
    )
    alike = core.groups is None and np.ptp(core.weight) == 0
    rng = np.random.default_rng(seed)
    lows: dict[str, list[Array]] = {}
    highs: dict[str, list[Array]] = {}
    plain: dict[str, list[Array]] = {}

    def keep(where: dict[str, list[Array]], found: dict[str, Array]) -> None:
        for name, draws in found.items():
            where.setdefault(name, []).append(draws)

    for flat in draw(content, counts, resamples, rng):
        tables = flat.reshape(-1, k, k)
        added = heavy * rng.standard_gamma(labels, size=(len(tables), k))
        one = heavy * rng.standard_exponential((len(tables), k))
        rows = tables.sum(-1)
        gaps = tables @ values - rows * values
        for where, end in ((lows, values[0]), (highs, values[-1])):
            moved = gaps.sum(-1) + added @ (end - values)
            keep(where, {"bias": moved / (rows.sum(-1) + added.sum(-1))})
            levels = (gaps + one * (end - values)) / (rows + one)
            keep(where, {f"level_bias:{i}": levels[:, i] for i in range(k)})
        if not alike:
            keep(plain, _raw_shares(tables, values))
        size = table.sum() / (rows.sum(-1) + added.sum(-1))[:, None, None]
        worst = (tables + added[:, :, None] * far) * size
        keep(lows, statistics(worst, values, levels=whole))
        tables[:, rare, rare] += added.sum(-1)
        keep(highs, statistics(tables * size, values, levels=whole))
    tail = (1 - core.confidence) / 2
    ends = {
        name: (
            float(np.quantile(np.concatenate(lows[name]), tail)),
            float(np.quantile(np.concatenate(highs[name]), 1 - tail)),
        )
        for name in lows
    }
    return ends, {n: _spread(np.concatenate(d)) for n, d in plain.items()}


def _spread(draws: Array) -> float:
    defined = draws[~np.isnan(draws)]
    return float(defined.std()) if len(defined) else 0.0


def _raw_shares(tables: Array, values: Array) -> dict[str, Array]:
    recall = concordance.recall(tables)
    return {
        "exact": concordance.exact(tables),
        "adjacent": concordance.adjacent(tables, values),
        **{f"recall:{i}": recall[..., i] for i in range(len(values))},
    }


def _shares(
    core: Sample, table: Array, values: Array, spread: dict[str, float]
) -> dict[str, Estimate]:
    """Shares with Clopper-Pearson intervals, on the units that tell as much."""
    rows = table.sum(1) / table.sum()
    out = {}
    for name, value in _raw_shares(table, values).items():
        share, n = float(value), core.effective
        if np.isnan(share):
            out[name] = Estimate(None, reason="no label of this level")
            continue
        if name.startswith("recall"):
            n = max(1.0, n * float(rows[int(name.split(":")[1])]))
        if spread.get(name, 0.0) > 0 and 0 < share < 1:
            n = share * (1 - share) / spread[name] ** 2
        out[name] = Estimate(share, *share_interval(share, n, core.confidence))
    return out


def _estimate(
    name: str, value: float, ends: tuple[float, float] | None, units: int
) -> Estimate:
    if np.isnan(value):
        if ":" in name:
            return Estimate(None, reason="no label of this level")
        if name in ("pearson", "spearman", "kendall_tau_b"):
            return Estimate(None, reason="one of the two columns is constant")
        return Estimate(None, reason="it is 0/0, all values are equal")
    if units < 3 or ends is None or np.isnan(ends).any():
        return Estimate(value, reason="fewer than 3 items say nothing of precision")
    return Estimate(value, min(ends[0], value), max(ends[1], value))


def without_levels(parts: dict[str, Any], scale: tuple[float, float]) -> str:
    """Blank what needs whole levels; the sentence that says so."""
    why = "not defined for values that are not whole scores"
    for name in set(MEASURES) - set(RANKED):
        parts[name] = Estimate(None, reason=why)
    return (
        f"Values that are not whole scores from {scale[0]:g} to {scale[1]:g}: exact "
        "agreement, kappa, alpha, AC2 and the confusion table are not defined for them."
    )


def undefined(parts: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """A sentence for each estimate that is missing."""
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

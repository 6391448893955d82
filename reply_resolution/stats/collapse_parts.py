"""What `collapse` is made of: the binary comparison of any design, and both powers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary import RateDifference, rate_difference
from reply_resolution.stats.binary_designs import (
    clustered_rate_difference,
    mcnemar,
    paired_power,
)
from reply_resolution.stats.counts import ScoreCounts, UnitCounts, joint_table
from reply_resolution.stats.design_effect import design_effect_of_users
from reply_resolution.stats.power_assumptions import (
    Assumption,
    Floats,
    Shares,
    level_shares,
    treatment_shares,
)
from reply_resolution.stats.power_formulas import binary_power, ordinal_power


@dataclass(frozen=True, slots=True)
class Assumed:
    """The effect that power is computed for, fixed before the arms are compared.

    Attributes:
        effect: Rise of the mean, points; negative is a fall.
        assume: How the levels move: "shift", "cut" or "noise".
        cut: Lowest score that counts as resolved.
    """

    effect: float
    assume: Assumption = "shift"
    cut: int = 4

    def arms(self, counts: Shares, *, lowest: int = 1) -> tuple[Floats, Floats]:
        """Shares per level in control (as `counts`) and in treatment."""
        before = level_shares(counts)
        return before, treatment_shares(
            before, self.effect, assume=self.assume, cut=self.cut, lowest=lowest
        )


def rates_at_cut(
    counts: ScoreCounts, control: str, treatment: str, cut: int, confidence: float
) -> RateDifference:
    """The binary comparison at one cut, as the design demands it."""
    high = counts.levels >= cut
    if counts.design == "paired":
        table = joint_table(
            counts, counts.arms.index(control), counts.arms.index(treatment)
        )
        n = int(table.sum())
        if n == 0:
            raise StatisticsError("no request was answered and scored in both arms.")
        pairs = mcnemar(
            int(table[np.ix_(~high, high)].sum()),
            int(table[np.ix_(high, ~high)].sum()),
            n,
            confidence=confidence,
        )
        base = float(table[high].sum()) / n
        return RateDifference(
            pairs.estimate,
            pairs.low,
            pairs.high,
            confidence,
            "tango",
            pairs.pvalue,
            "mcnemar",
            base + pairs.estimate,
            base,
            n,
            n,
        )
    for name in (treatment, control):
        if counts.of(name).sum() == 0:
            raise StatisticsError(
                f"arm {name!r} has no scored replies; there is no rate to compare. "
                "Check its verdicts' statuses first."
            )
    if counts.design == "clustered" and counts.units is not None:
        x1, n1 = _users(counts.units, counts.arms.index(treatment), high)
        x0, n0 = _users(counts.units, counts.arms.index(control), high)
        return clustered_rate_difference(x1, n1, x0, n0, confidence=confidence)
    t, c = counts.of(treatment), counts.of(control)
    return rate_difference(
        int(t[high].sum()),
        int(t.sum()),
        int(c[high].sum()),
        int(c.sum()),
        confidence=confidence,
    )


def _users(
    units: UnitCounts, arm: int, high: NDArray[np.bool_]
) -> tuple[list[int], list[int]]:
    """Resolved and scored replies of every user of one arm."""
    vectors = np.repeat(units.vectors[:, arm], units.number, axis=0)
    vectors = vectors[vectors.sum(axis=1) > 0]
    return vectors[:, high].sum(axis=1).tolist(), vectors.sum(axis=1).tolist()


@dataclass(frozen=True, slots=True)
class Powers:
    """Power of both analyses for an assumed effect.

    Attributes:
        ordinal: Of the permutation test of the means, fraction; None if undefined.
        binary: Of the test of the shares resolved, fraction; None if undefined.
        design_effect: Variance over that of as many independent replies, of the
            scores and of resolved or not: 1 and 1 where replies are the units, above 1
            where users repeat themselves, below 1 where pairing helps.
        why_not: Why the powers are undefined; "" where they are not.
    """

    ordinal: float | None
    binary: float | None
    design_effect: tuple[float, float] = (1.0, 1.0)
    why_not: str = ""


def powers_of(
    counts: ScoreCounts, arms: tuple[str, str], assumed: Assumed, *, alpha: float
) -> Powers:
    """Power for an assumed effect, from the scores of both arms together.

    Args:
        counts: The scores; which arm they are from is not used.
        arms: Control and treatment (for their sizes).
        assumed: The effect, how the levels move, and the cut.
        alpha: Two-sided error rate, fraction.
    """
    control, treatment = arms
    pooled = (counts.of(control) + counts.of(treatment)).astype(float)
    try:
        before, after = assumed.arms(pooled, lowest=counts.scale[0])
    except StatisticsError as undefined:
        return Powers(None, None, why_not=f"power is not defined: {undefined}")
    high = counts.levels >= assumed.cut
    rates = float(before[high].sum()), float(after[high].sum())
    if counts.design == "paired":
        return _paired(counts, arms, assumed, rates[1] - rates[0], alpha)
    deff = (1.0, 1.0)
    if counts.design == "clustered" and counts.units is not None:
        deff = (
            _design_effect(counts, counts.units, arms, counts.levels.astype(float)),
            _design_effect(counts, counts.units, arms, high.astype(float)),
        )
    n0, n1 = int(counts.of(control).sum()), int(counts.of(treatment).sum())
    return Powers(
        ordinal_power(
            before,
            after,
            n0,
            n_treatment=n1,
            alpha=alpha,
            design_effect=deff[0],
            lowest=counts.scale[0],
        ),
        binary_power(*rates, n0, n_treatment=n1, alpha=alpha, design_effect=deff[1]),
        deff,
    )


def _paired(
    counts: ScoreCounts,
    arms: tuple[str, str],
    assumed: Assumed,
    rate_effect: float,
    alpha: float,
) -> Powers:
    table = joint_table(counts, *(counts.arms.index(a) for a in arms))
    n = int(table.sum())
    if n == 0:
        return Powers(None, None, why_not="power is not defined: there is no pair.")
    mean_square, discordant = pair_spread(table, counts.levels >= assumed.cut)
    pooled = table.sum(axis=0) + table.sum(axis=1)
    return Powers(
        *paired_power(
            assumed.effect, mean_square, discordant, rate_effect, n, alpha=alpha
        ),
        _pairing_gain(pooled, counts.levels, mean_square, discordant, assumed.cut),
    )


def pair_spread(
    table: NDArray[np.int64], high: NDArray[np.bool_]
) -> tuple[float, float]:
    """Mean squared difference in a pair, and share of pairs that disagree on resolved.

    Both are the same whichever arm is called control.

    Args:
        table: Pairs by level in one arm (rows) and the other (columns).
        high: Which levels are resolved.
    """
    k = np.arange(len(table))
    shares = table / table.sum()
    return (
        float((shares * (k[:, None] - k[None, :]) ** 2).sum()),
        float(shares[high[:, None] != high[None, :]].sum()),
    )


def _pairing_gain(
    pooled: NDArray[np.int64],
    scores: NDArray[np.int64],
    mean_square: float,
    discordant: float,
    cut: int,
) -> tuple[float, float]:
    """Variance of the paired difference over that of two independent arms."""
    p = pooled / pooled.sum()
    spread = float(p @ scores**2 - (p @ scores) ** 2)
    rate = float(p[scores >= cut].sum())
    alike = rate * (1 - rate)
    return (
        mean_square / (2 * spread) if spread > 0 else 1.0,
        discordant / (2 * alike) if alike > 0 else 1.0,
    )


def _design_effect(
    counts: ScoreCounts, units: UnitCounts, arms: tuple[str, str], values: Floats
) -> float:
    """Design effect of the mean of `values` per level, users pooled over the arms."""
    held = units.vectors[:, [counts.arms.index(a) for a in arms]].sum(axis=1)
    used = held.sum(axis=1) > 0
    held, number = held[used], units.number[used]
    return design_effect_of_users(
        held.sum(axis=1).astype(float),
        held @ values,
        squares=float((number @ held) @ values**2),
        number=number.astype(float),
    ).design_effect


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Power of both analyses as the number of replies grows, under one assumption.

    Attributes:
        assumed: The effect, how the levels move, and the cut.
        sizes: Replies per arm, rising.
        ordinal: Power of the ordinal analysis at each size, fractions.
        binary: Power of the binary analysis at each size, fractions.
    """

    assumed: Assumed
    sizes: tuple[int, ...]
    ordinal: tuple[float, ...]
    binary: tuple[float, ...]


def power_curve(
    counts: Shares,
    assumed: Assumed,
    sizes: Sequence[int],
    *,
    alpha: float = 0.05,
    design_effect: tuple[float, float] = (1.0, 1.0),
    pairs: tuple[float, float] | None = None,
    lowest: int = 1,
) -> PowerCurve:
    """Power of both analyses at each size, from pooled pilot scores.

    Args:
        counts: Pilot scores per level, arm-blind.
        assumed: The effect, how the levels move, and the cut.
        sizes: Replies per arm.
        alpha: Two-sided error rate, fraction.
        design_effect: Of the scores and of resolved or not.
        pairs: For paired arms, what `pair_spread` gives; `sizes` are pairs then.
        lowest: Lowest score of the scale.

    Raises:
        StatisticsError: The scale has no room for the effect.
    """
    before, after = assumed.arms(counts, lowest=lowest)
    cut = assumed.cut - lowest
    rates = float(before[cut:].sum()), float(after[cut:].sum())
    if pairs is not None:
        both = [
            paired_power(assumed.effect, *pairs, rates[1] - rates[0], n, alpha=alpha)
            for n in sizes
        ]
        ordinal, binary = zip(*both, strict=True)
        return PowerCurve(assumed, tuple(sizes), ordinal, binary)
    return PowerCurve(
        assumed,
        tuple(sizes),
        tuple(
            ordinal_power(before, after, n, alpha=alpha, design_effect=design_effect[0])
            for n in sizes
        ),
        tuple(
            binary_power(*rates, n, alpha=alpha, design_effect=design_effect[1])
            for n in sizes
        ),
    )

"""Power of both analyses for an assumed effect, from pooled, arm-blind scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Floats
from reply_resolution.stats.counts import ScoreCounts, joint_table
from reply_resolution.stats.power_assumptions import (
    Assumption,
    Shares,
    design_effect_of_users,
    level_shares,
    treatment_shares,
)
from reply_resolution.stats.power_formulas import (
    binary_power,
    ordinal_power,
    paired_power,
)


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


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What the units of the design do to power.

    Attributes:
        design_effect: Variance over that of as many independent replies, of the
            scores and of resolved or not: 1 and 1 where replies are the units, above 1
            where users repeat themselves, below 1 where pairing helps.
        pairs: For paired arms the share of pairs 0, 1, 2, ... points apart, and of
            those that disagree on resolved: the same whichever arm is control.
    """

    design_effect: tuple[float, float] = (1.0, 1.0)
    pairs: tuple[tuple[float, ...], float] | None = None


def unit_cost(counts: ScoreCounts, arms: tuple[str, str], cut: int) -> UnitCost:
    """What pairs or users do to power; which arm a score is from is not used.

    Raises:
        StatisticsError: No pair, or a single user.
    """
    places = [counts.arms.index(a) for a in arms]
    levels = counts.levels.astype(float)
    high = counts.levels >= cut
    if counts.design == "paired":
        return _pairs(joint_table(counts, *places), levels, high)
    if counts.design != "clustered" or counts.units is None:
        return UnitCost()
    held = counts.units.vectors[:, places].sum(axis=1)
    used = held.sum(axis=1) > 0
    held, number = held[used], counts.units.number[used].astype(float)
    scores, resolved = (
        design_effect_of_users(
            held.sum(axis=1).astype(float),
            held @ values,
            squares=float((number @ held) @ values**2),
            number=number,
        ).design_effect
        for values in (levels, high.astype(float))
    )
    return UnitCost((scores, resolved))


def _pairs(
    table: NDArray[np.int64], scores: Floats, high: NDArray[np.bool_]
) -> UnitCost:
    """Spread within pairs, and its variance over that of two independent arms."""
    if table.sum() == 0:
        raise StatisticsError("there is no pair.")
    shares = table / table.sum()
    apart = np.abs(scores[:, None] - scores[None, :]).astype(int)
    steps = np.bincount(apart.ravel(), weights=shares.ravel())
    mean_square = float((shares * apart**2).sum())
    discordant = float(shares[high[:, None] != high[None, :]].sum())
    pooled = (shares.sum(axis=0) + shares.sum(axis=1)) / 2
    spread = float(pooled @ scores**2 - (pooled @ scores) ** 2)
    rate = float(pooled[high].sum())
    alike = rate * (1 - rate)
    return UnitCost(
        (
            mean_square / (2 * spread) if spread > 0 else 1.0,
            discordant / (2 * alike) if alike > 0 else 1.0,
        ),
        (tuple(steps.tolist()), discordant),
    )


def both_powers(
    pooled: Shares,
    assumed: Assumed,
    n: tuple[int, int],
    *,
    cost: UnitCost,
    alpha: float = 0.05,
    lowest: int = 1,
) -> tuple[float, float]:
    """Power of the ordinal and of the binary analysis, fractions.

    Args:
        pooled: Scores per level, arm-blind.
        assumed: The effect, how the levels move, and the cut.
        n: Replies in control and treatment (pairs, for paired arms).
        cost: What the units do to power.
        alpha: Two-sided error rate, fraction.
        lowest: Lowest score of the scale.

    Raises:
        StatisticsError: The scale has no room for the effect.
    """
    before = level_shares(pooled)
    after = treatment_shares(
        before, assumed.effect, assume=assumed.assume, cut=assumed.cut, lowest=lowest
    )
    first = assumed.cut - lowest
    rates = float(before[first:].sum()), float(after[first:].sum())
    if cost.pairs is not None:
        return paired_power(
            assumed.effect, *cost.pairs, rates[1] - rates[0], n[0], alpha=alpha
        )
    scores, resolved = cost.design_effect
    n0, n1 = n
    return (
        ordinal_power(
            before, after, n0, n_treatment=n1, alpha=alpha, design_effect=scores
        ),
        binary_power(*rates, n0, n_treatment=n1, alpha=alpha, design_effect=resolved),
    )


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Power of both analyses as the number of replies grows, under one assumption.

    Attributes:
        assumed: The effect, how the levels move, and the cut.
        sizes: Replies per arm (or pairs), rising.
        ordinal: Power of the ordinal analysis at each size, fractions.
        binary: Power of the binary analysis at each size, fractions.
    """

    assumed: Assumed
    sizes: tuple[int, ...]
    ordinal: tuple[float, ...]
    binary: tuple[float, ...]


def power_curve(
    pooled: Shares, assumed: Assumed, sizes: Sequence[int], *, cost: UnitCost
) -> PowerCurve:
    """Both powers at each size; see `both_powers`."""
    both = [both_powers(pooled, assumed, (n, n), cost=cost) for n in sizes]
    ordinal, binary = zip(*both, strict=True)
    return PowerCurve(assumed, tuple(sizes), ordinal, binary)

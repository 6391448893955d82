"""What `collapse` is made of: the binary comparison of any design, and both powers."""

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
    levels,
    treatment_shares,
)
from reply_resolution.stats.power_formulas import binary_power, ordinal_power


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


def powers_of(
    counts: ScoreCounts,
    control: str,
    treatment: str,
    pooled: Shares,
    cut: int,
    effect: float,
    assume: Assumption,
    alpha: float,
) -> tuple[tuple[float | None, float | None], tuple[float, float], list[str]]:
    """Power of both analyses from arm-blind scores, with the reasons if undefined."""
    lowest = counts.scale[0]
    high = counts.levels >= cut
    try:
        before = level_shares(pooled)
        after = treatment_shares(before, effect, assume=assume, cut=cut, lowest=lowest)
    except StatisticsError as undefined:
        return (None, None), (1.0, 1.0), [f"power is not defined: {undefined}"]
    rate0, rate1 = float(before[high].sum()), float(after[high].sum())
    if counts.design == "paired":
        table = joint_table(
            counts, counts.arms.index(control), counts.arms.index(treatment)
        )
        blind = (table + table.T) / 2  # which arm was which is forgotten
        scores = levels(before, lowest)
        squares = (scores[:, None] - scores[None, :]) ** 2
        n = int(table.sum())
        return (
            paired_power(
                effect,
                float((blind * squares).sum()) / n,
                float(blind[np.ix_(high, ~high)].sum()) * 2 / n,
                rate1 - rate0,
                n,
                alpha=alpha,
            ),
            (1.0, 1.0),
            [],
        )
    deff = (1.0, 1.0)
    if counts.design == "clustered" and counts.units is not None:
        deff = (
            _design_effect(counts, (control, treatment), counts.levels.astype(float)),
            _design_effect(counts, (control, treatment), high.astype(float)),
        )
    n0, n1 = int(counts.of(control).sum()), int(counts.of(treatment).sum())
    return (
        (
            ordinal_power(
                before,
                after,
                n0,
                n_treatment=n1,
                alpha=alpha,
                design_effect=deff[0],
                lowest=lowest,
            ),
            binary_power(
                rate0, rate1, n0, n_treatment=n1, alpha=alpha, design_effect=deff[1]
            ),
        ),
        deff,
        [],
    )


def _design_effect(counts: ScoreCounts, arms: tuple[str, str], values: Floats) -> float:
    """Design effect of the mean of `values` per level, users pooled over the arms."""
    assert counts.units is not None
    places = [counts.arms.index(a) for a in arms]
    held = counts.units.vectors[:, places].sum(axis=1)
    used = held.sum(axis=1) > 0
    return design_effect_of_users(
        held[used].sum(axis=1).astype(float),
        held[used] @ values,
        squares=float((counts.units.number[used] @ held[used]) @ values**2),
        number=counts.units.number[used].astype(float),
    ).design_effect

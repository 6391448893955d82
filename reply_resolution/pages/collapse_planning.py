"""What each analysis of notebook 3 would need, under each way the levels may move."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, get_args

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.collapse import EQUAL_POWER, Collapse
from reply_resolution.stats.collapse_power import (
    Assumed,
    PowerCurve,
    power_curve,
    unit_cost,
)
from reply_resolution.stats.counts import ScoreCounts
from reply_resolution.stats.power import AnalysisPlan, plan
from reply_resolution.stats.power_assumptions import Assumption


@dataclass(frozen=True, slots=True)
class Needed:
    """Replies needed under one assumption.

    Attributes:
        assume: How the levels move.
        ordinal: The plan of the ordinal analysis; None where the effect has no room.
        binary: The plan of the binary analysis; likewise.
        advice: "ordinal" or "binary" at the present traffic; None likewise.
        why_not: Why there is no plan; "" where there is one.
    """

    assume: Assumption
    ordinal: AnalysisPlan | None
    binary: AnalysisPlan | None
    advice: str | None
    why_not: str = ""


def planning(
    counts: ScoreCounts, result: Collapse, n: int, power: float
) -> tuple[tuple[PowerCurve, ...], tuple[Needed, ...]]:
    """Power curves and replies needed under each assumption."""
    sizes = _sizes(n)
    at = sizes.index(n)
    cost = unit_cost(counts, (result.control, result.treatment), result.cut)
    curves, needed = [], []
    for assume in get_args(Assumption):
        try:
            curve = power_curve(
                result.pooled,
                Assumed(result.effect, assume, result.cut),
                sizes,
                cost=cost,
            )
            both = _plan(result, power, assume)
        except StatisticsError as reason:
            needed.append(Needed(assume, None, None, None, str(reason)))
            continue
        better = curve.binary[at] > curve.ordinal[at] + EQUAL_POWER
        advice = "binary" if better else "ordinal"
        curves.append(curve)
        needed.append(Needed(assume, *both, advice))
    return tuple(curves), tuple(needed)


def _plan(
    result: Collapse,
    power: float,
    assume: Assumption,
    confusion: Sequence[Sequence[int]] | None = None,
) -> tuple[AnalysisPlan, AnalysisPlan]:
    """Plans of both analyses for the effect worth finding."""
    both = plan(
        result.pooled,
        effect=result.effect,
        power=power,
        assume=assume,
        cut=result.cut,
        design_effect=result.design_effect,
        confusion=confusion,
    )
    return both.ordinal, both.binary


def people_scale(
    each: pl.DataFrame, result: Collapse, power: float
) -> tuple[AnalysisPlan, AnalysisPlan] | None:
    """Plans for an effect in people's points, through the judge's confusion."""
    confusion = np.zeros((5, 5), dtype=int)
    np.add.at(
        confusion, (each["label"].to_numpy() - 1, each["score"].to_numpy() - 1), 1
    )
    try:
        assume = cast(Assumption, result.assume)
        return _plan(result, power, assume, confusion.tolist())
    except StatisticsError:  # no labels, or no room
        return None


def _sizes(n: int) -> tuple[int, ...]:
    """About twenty sizes from 20 (or fewer) to 2,000 (or 4 n), evenly in logs."""
    low, high = min(20, n), max(2000, 4 * n)
    steps = 20
    grid = {round(low * (high / low) ** (k / steps)) for k in range(steps + 1)}
    return tuple(sorted(grid | {n}))

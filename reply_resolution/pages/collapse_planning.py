"""What notebook 3 plans: power curves and replies needed, under each assumption."""

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.collapse import EQUAL_POWER, Collapse
from reply_resolution.stats.collapse_parts import (
    Assumed,
    PowerCurve,
    pair_spread,
    power_curve,
)
from reply_resolution.stats.counts import ScoreCounts, joint_table
from reply_resolution.stats.power import AnalysisPlan, plan
from reply_resolution.stats.power_assumptions import Assumption

if TYPE_CHECKING:
    from reply_resolution.inputs import Inputs

_ALL: tuple[Assumption, ...] = ("shift", "cut", "noise")


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
    counts: ScoreCounts, result: Collapse, n_pairs: int | None, power: float
) -> tuple[tuple[PowerCurve, ...], tuple[Needed, ...]]:
    """Power curves and replies needed under each assumption.

    Args:
        counts: The scores, counted.
        result: Both analyses, with the effect and the cut.
        n_pairs: Pairs, where the arms answered the same requests; None otherwise.
        power: Power to plan for, fraction.
    """
    n = n_pairs or min(result.n_control, result.n_treatment)
    sizes = _sizes(n)
    spread = None
    if n_pairs:
        places = [counts.arms.index(a) for a in (result.control, result.treatment)]
        table = joint_table(counts, places[0], places[1])
        spread = pair_spread(table, counts.levels >= result.cut)
    curves, needed = [], []
    for assume in _ALL:
        assumed = Assumed(result.effect, assume, result.cut)
        try:
            curve = power_curve(
                result.pooled,
                assumed,
                sizes,
                design_effect=result.design_effect,
                pairs=spread,
            )
            both = plan(
                result.pooled,
                effect=result.effect,
                power=power,
                assume=assume,
                cut=result.cut,
                design_effect=result.design_effect,
            )
        except StatisticsError as reason:
            needed.append(Needed(assume, None, None, None, str(reason)))
            continue
        at = sizes.index(n)
        better = curve.binary[at] > curve.ordinal[at] + EQUAL_POWER
        curves.append(curve)
        needed.append(
            Needed(
                assume,
                both.ordinal,
                both.binary,
                "binary" if better else "ordinal",
            )
        )
    return tuple(curves), tuple(needed)


def people_scale(
    data: "Inputs", result: Collapse, power: float
) -> tuple[AnalysisPlan, AnalysisPlan] | None:
    """Plans for an effect in people's points, through the judge's confusion."""
    pairs = each_label(data)
    if not pairs.height:
        return None
    confusion = np.zeros((5, 5), dtype=int)
    np.add.at(
        confusion, (pairs["label"].to_numpy() - 1, pairs["score"].to_numpy() - 1), 1
    )
    try:
        both = plan(
            result.pooled,
            effect=result.effect,
            power=power,
            assume=cast(Assumption, result.assume),
            cut=result.cut,
            design_effect=result.design_effect,
            confusion=confusion.tolist(),
        )
    except StatisticsError:
        return None
    return both.ordinal, both.binary


def _sizes(n: int) -> tuple[int, ...]:
    """About twenty sizes from 20 (or fewer) to 2,000 (or 4 n), evenly in logs."""
    low, high = min(20, n), max(2000, 4 * n)
    steps = 20
    grid = {round(low * (high / low) ** (k / steps)) for k in range(steps + 1)}
    return tuple(sorted(grid | {n}))


def each_label(data: "Inputs") -> pl.DataFrame:
    """Score and label, one row per annotator's label (hidden repeats left out)."""
    if not data.labels.height:
        schema = {"request_id": pl.String, "arm": pl.String, "score": pl.Int8}
        return pl.DataFrame(schema={**schema, "label": pl.Int8})
    first = data.labels.filter(pl.col("repeat").fill_null(0) == 0)
    first = first.drop_nulls("label")
    keys = ["request_id"]
    if first["arm"].null_count() < first.height:
        keys.append("arm")
    columns = [pl.col(k) for k in ("request_id", "arm", "score")]
    return (
        data.replies.drop_nulls("score")
        .select(columns)
        .join(first.select(*keys, "label"), on=keys, how="inner")
    )


def weeks(replies_per_arm: int | None, weekly: float | None) -> int | None:
    """Whole weeks until both arms have so many replies; None where unknown."""
    if replies_per_arm is None or not weekly:
        return None
    return math.ceil(2 * replies_per_arm / weekly)

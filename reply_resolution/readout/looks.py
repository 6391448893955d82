"""How the interval narrowed as replies came in: a confidence sequence over time."""

from datetime import date, timedelta
import math
from typing import Any

import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.readout.experiment_plan import ExperimentPlan, Metric
from reply_resolution.readout.inputs import Rows
from reply_resolution.readout.metric_effect import mean_effect
from reply_resolution.stats.sequential import confidence_sequence

_MOST = 10


def looks_over_time(
    rows: Rows, plan: ExperimentPlan, treatment: str
) -> list[dict[str, Any]]:
    """The judge's effect on all replies up to each of at most ten dates.

    The intervals hold at all dates together, whatever the plan says about looks.

    Args:
        rows: The judged replies; without readable `created_at` the result is empty.
        plan: Gives confidence and the planned size.
        treatment: Which treatment.

    Returns:
        One entry per date: `until`, `replies`, `estimate`, `ci`.
    """
    if "created_at" not in rows.frame.columns:
        return []
    keep = ["arm", "score", *filter(None, (rows.unit, rows.pair, rows.stratum))]
    frame = rows.frame.filter(
        pl.col("arm").is_in([rows.control, treatment]) & pl.col("score").is_not_null()
    ).select(*keep, day=_days(rows.frame.schema["created_at"]))
    frame = frame.filter(pl.col("day").is_not_null())
    if frame.height == 0:
        return []
    present: list[date] = frame["day"].unique().sort().to_list()
    first, last = present[0], present[-1]
    days = (last - first).days + 1
    step = 7 if days >= 21 else 1
    step *= max(1, math.ceil(days / step / _MOST))
    found = []
    for number in range(1, math.ceil(days / step) + 1):
        until = min(last, first + timedelta(days=number * step - 1))
        part = frame.filter(pl.col("day") <= until)
        effect = mean_effect(
            part,
            Metric("score", better="higher"),
            control=rows.control,
            treatment=treatment,
            unit=rows.unit,
            pair=rows.pair,
            stratum=rows.stratum,
            confidence=plan.confidence,
        )
        if effect.difference is None or effect.standard_error is None:
            continue
        try:
            look = confidence_sequence(
                effect.difference,
                effect.standard_error,
                part.height,
                planned_n=2.0 * plan.planned_replies,
                confidence=plan.confidence,
            )
        except StatisticsError:
            continue  # nothing to estimate yet
        if look.reliable:
            found.append(
                {
                    "until": str(until),
                    "replies": part.height,
                    "estimate": look.estimate,
                    "ci": [max(-4.0, look.low), min(4.0, look.high)],
                }
            )
    return found


def _days(dtype: pl.DataType) -> pl.Expr:
    column = pl.col("created_at")
    if dtype.is_temporal():
        return column.cast(pl.Date)
    return column.cast(pl.String).str.slice(0, 10).str.to_date(strict=False)

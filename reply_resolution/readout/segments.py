"""The effect inside segments that the plan named before the data were seen."""

from typing import Any

import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.readout.effects import stretch
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.readout.inputs import Rows

#: At most this many values of a segment are read, the most frequent first.
_MOST = 12


def read_segments(
    rows: Rows, plan: ExperimentPlan, treatment: str, widen: float = 1.0
) -> list[dict[str, Any]]:
    """The judge's effect in every planned segment, with Holm's correction over all.

    Args:
        rows: The judged replies.
        plan: Names the columns, the confidence and the least units per arm.
        treatment: Which treatment.
        widen: Factor on every interval (several looks).

    Returns:
        One entry per value: `column`, `value`, `replies` per arm, and `estimate`,
        `ci`, `pvalue_adjusted`, or `absent`: why there are none.
    """
    from reply_resolution.stats.compare import compare
    from reply_resolution.stats.multiplicity import adjust

    found: list[dict[str, Any]] = []
    keep = {"request_id", "arm", "score", "status", *plan.segments}
    keep |= set(filter(None, (rows.unit, rows.stratum)))
    both = rows.frame.select(c for c in rows.frame.columns if c in keep).filter(
        pl.col("arm").is_in([rows.control, treatment])
    )
    for column in plan.segments:
        if column not in both.columns:
            found.append({"column": column, "value": "", "absent": "no such column"})
            continue
        values = (
            both.group_by(pl.col(column).cast(pl.String))
            .len()
            .sort(["len", column], descending=[True, False])
        )
        for value in values[column].to_list()[:_MOST]:
            label = "(none)" if value is None else value
            part = both.filter(pl.col(column).cast(pl.String).eq_missing(value))
            scored = part.filter(pl.col("score").is_not_null())
            units = scored.unique([rows.unit or "request_id", "arm"])
            sizes = dict(units.group_by("arm").len().iter_rows())
            least = min(sizes.get(arm, 0) for arm in (rows.control, treatment))
            entry: dict[str, Any] = {
                "column": column,
                "value": label,
                "replies": [
                    scored.filter(pl.col("arm") == arm).height
                    for arm in (rows.control, treatment)
                ],
            }
            if least < plan.minimum_units:
                found.append({**entry, "absent": "too few to read"})
                continue
            try:
                result = compare(
                    part,
                    control=rows.control,
                    pair=rows.pair,
                    cluster=rows.unit,
                    stratum=rows.stratum,
                    mix_versions=True,
                    confidence=plan.confidence,
                    allocation=dict(plan.allocation) or None,
                ).comparisons[0]
            except StatisticsError as error:
                found.append({**entry, "absent": str(error)})
                continue
            low, high = result.ci
            if low is None or high is None or not result.ci_reliable:
                found.append({**entry, "absent": "too few to read"})
                continue
            entry |= {
                "estimate": result.mean_difference,
                "ci": list(stretch(result.mean_difference, (low, high), widen)),
                "pvalue": result.pvalue if widen == 1 else None,
            }
            found.append(entry)
        if values.height > _MOST:
            found.append(
                {
                    "column": column,
                    "value": f"{values.height - _MOST} more values",
                    "absent": "not read",
                }
            )
    known = [e for e in found if e.get("pvalue") is not None]
    if known:
        corrected = adjust([e["pvalue"] for e in known], "holm")
        for entry, p in zip(known, corrected, strict=True):
            entry["pvalue_adjusted"] = p
    for entry in found:
        entry.pop("pvalue", None)
    return found

"""Secondary metrics and guardrails of the plan, corrected for their number."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from reply_resolution.readout.effects import stretch
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.readout.metric_effect import MetricEffect, mean_effect


def compare_metrics(
    frame: pl.DataFrame,
    plan: ExperimentPlan,
    *,
    control: str,
    treatment: str,
    unit: str | None = None,
    pair: str | None = None,
    stratum: str | None = None,
    widen: float = 1.0,
) -> tuple[MetricEffect, ...]:
    """Every guardrail and secondary metric of the plan, Holm over all of them.

    Users are the units where `unit` is given (sums per user); pairs are compared as
    pairs. Guardrails are judged each at the full confidence: all must hold, which
    needs no correction.

    Args:
        frame: One row per reply with `arm` and the metrics' columns. Replies without
            a score are in it: a metric does not depend on the judge.
        plan: Names the metrics and the confidence.
        control: Name of the baseline arm.
        treatment: Name of the arm compared with it.
        unit: Column of the randomised unit; rows are units where None.
        pair: Column that pairs rows of both arms; takes the place of `unit`.
        stratum: Column within whose values the arms are compared; not for pairs.
        widen: Factor on the width of every interval (several looks).
    """
    found = []
    for metric, guardrail in [
        *((m, True) for m in plan.guardrails),
        *((m, False) for m in plan.secondary),
    ]:
        empty = MetricEffect(metric, guardrail, treatment)
        if metric.column not in frame.columns:
            found.append(replace(empty, absent=f"no column {metric.column!r}"))
            continue
        result = mean_effect(
            frame,
            metric,
            control=control,
            treatment=treatment,
            unit=unit,
            pair=pair,
            stratum=stratum,
            confidence=plan.confidence,
        )
        found.append(_widened(replace(result, guardrail=guardrail), widen))
    return _holm(found)


def _widened(result: MetricEffect, factor: float) -> MetricEffect:
    center, low, high = result.difference, result.low, result.high
    if factor == 1.0 or center is None or low is None or high is None:
        return result
    ends = stretch(center, (low, high), factor)
    return replace(
        result,
        low=ends[0],
        high=ends[1],
        pvalue=None,  # a fixed-horizon p-value must not be read at several looks
        method=result.method + ", widened for several looks",
    )


def _holm(found: Sequence[MetricEffect]) -> tuple[MetricEffect, ...]:
    from reply_resolution.stats.multiplicity import adjust

    known = [m.pvalue for m in found if m.pvalue is not None]
    adjusted = iter(adjust(known, method="holm") if known else ())
    return tuple(
        m if m.pvalue is None else replace(m, pvalue_adjusted=next(adjusted))
        for m in found
    )

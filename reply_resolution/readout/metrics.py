"""Secondary metrics and guardrails: any column beside the score, arm against arm."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
import math

import numpy as np
from numpy.typing import NDArray
import polars as pl

from reply_resolution import display
from reply_resolution.errors import TableError
from reply_resolution.readout.experiment_plan import ExperimentPlan, Metric
from reply_resolution.readout.recommendation import GuardrailOutcome


@dataclass(frozen=True, slots=True)
class MetricEffect:
    """One metric of one treatment against control.

    Attributes:
        metric: The metric as planned.
        guardrail: Whether the plan lists it as a guardrail.
        treatment: Name of the treatment arm.
        control_mean: Mean (or rate, fraction) of control; None where not measured.
        treatment_mean: The same for the treatment.
        difference: Treatment minus control, the column's unit (rates: fraction).
        low: Lower end of its interval; None where undefined.
        high: Upper end.
        pvalue: Two-sided p-value of "no difference".
        pvalue_adjusted: The same after Holm's correction over all metrics shown.
        n_control: Replies with a value.
        n_treatment: The same for the treatment.
        missing: Replies of both arms without a value.
        method: How interval and p-value were computed.
        standard_error: Of the difference, before any widening; None for rates.
        absent: Why there is no result; empty where there is one.
    """

    metric: Metric
    guardrail: bool
    treatment: str
    control_mean: float | None = None
    treatment_mean: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    pvalue: float | None = None
    pvalue_adjusted: float | None = None
    n_control: int = 0
    n_treatment: int = 0
    missing: int = 0
    method: str = ""
    standard_error: float | None = None
    absent: str = ""

    @property
    def within(self) -> bool | None:
        """Whether the whole interval is better than the margin; None if unknown."""
        margin = self.metric.margin
        if margin is None or self.low is None or self.high is None:
            return None
        if self.metric.better == "lower":
            return bool(self.high < margin)
        return bool(self.low > -margin)

    def show(self, value: float | None, *, sign: bool = False) -> str:
        """A value of this metric as a reader sees it, with its unit."""
        m = self.metric
        return show_value(value, m.kind, m.unit, m.digits, sign=sign)

    def span(self) -> str:
        """The interval as a reader sees it."""
        if self.low is None or self.high is None:
            return "–"
        return f"{self.show(self.low, sign=True)} to {self.show(self.high, sign=True)}"

    def outcome(self) -> GuardrailOutcome:
        """What the recommendation needs of a guardrail."""
        if self.within is None:
            why = self.absent or "its interval is not defined"
            return GuardrailOutcome(self.metric.title, None, f"not measured ({why})")
        margin = self.metric.margin or 0.0
        limit = margin if self.metric.better == "lower" else -margin
        text = (
            f"{self.show(self.difference, sign=True)} ({self.span()}), the margin is "
            f"{self.show(limit, sign=True)}"
        )
        return GuardrailOutcome(self.metric.title, self.within, text)


def show_value(
    value: float | None, kind: str, unit: str, digits: int, *, sign: bool = False
) -> str:
    """A metric's value as a reader sees it; signed, a rate is a difference.

    >>> show_value(0.0438, "rate", "", 2), show_value(0.0438, "rate", "", 2, sign=True)
    ('4.4%', '+4.4 pp')
    >>> show_value(812.4, "mean", "ms", 0)
    '812 ms'
    """
    if kind == "rate" and sign:
        value, unit, digits = value if value is None else 100 * value, "pp", 1
    elif kind == "rate":
        return display.percent(value, 1)
    text = display.number(value, digits, sign=sign)
    return text if value is None else f"{text} {unit}".strip()


def compare_metrics(
    frame: pl.DataFrame,
    plan: ExperimentPlan,
    *,
    control: str,
    treatment: str,
    unit: str | None = None,
    pair: str | None = None,
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
            confidence=plan.confidence,
        )
        found.append(_widened(replace(result, guardrail=guardrail), widen))
    return _holm(found)


def mean_effect(
    frame: pl.DataFrame,
    metric: Metric,
    *,
    control: str,
    treatment: str,
    unit: str | None = None,
    pair: str | None = None,
    confidence: float = 0.95,
) -> MetricEffect:
    """One metric of one treatment against control, uncorrected.

    Args:
        frame: One row per reply with `arm` and the metric's column.
        metric: Column and kind.
        control: Name of the baseline arm.
        treatment: Name of the arm compared with it.
        unit: Column of the randomised unit; rows are units where None.
        pair: Column that pairs rows of both arms; takes the place of `unit`.
        confidence: Of the interval, fraction.

    Raises:
        TableError: A cell of the column is not a number (or not 0 or 1 for a rate).
    """
    keys = [pair] if pair else [unit] if unit else []
    rows = frame.select("arm", metric.column, *keys).filter(
        pl.col("arm").is_in([control, treatment])
    )
    data = rows.select("arm", *keys).with_columns(value=_values(rows, metric))
    known = data.filter(pl.col("value").is_not_null() & pl.col("value").is_finite())
    empty = MetricEffect(metric, False, treatment, missing=data.height - known.height)
    if pair:
        return _paired(known, empty, control, pair, confidence)
    return _independent(known, empty, control, unit, confidence)


def _values(rows: pl.DataFrame, metric: Metric) -> pl.Series:
    column = rows[metric.column]
    if column.dtype == pl.Boolean:
        column = column.cast(pl.Float64)
    values = column.cast(pl.Float64, strict=False)
    unread = rows.filter(column.is_not_null() & values.is_null())[metric.column]
    if len(unread):
        raise TableError(
            f"{metric.column} has {len(unread)} cells that are not numbers, the first "
            f"is {unread[0]!r}. Write numbers (true and false for a rate), and leave "
            "cells without a value empty."
        )
    if metric.kind == "rate":
        odd = values.drop_nulls().filter(~values.drop_nulls().is_in([0.0, 1.0]))
        if len(odd):
            raise TableError(
                f"{metric.column} is planned as a rate, so it holds 0 and 1; it has "
                f"{len(odd)} other values, the first is {odd[0]}. Write kind = "
                '"mean" in the plan for an amount.'
            )
    return values


def _independent(
    known: pl.DataFrame,
    empty: MetricEffect,
    control: str,
    unit: str | None,
    confidence: float,
) -> MetricEffect:
    arms: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for arm in (empty.treatment, control):
        part = known.filter(pl.col("arm") == arm)
        if unit:
            part = part.filter(pl.col(unit).is_not_null())
            sums = part.group_by(unit).agg(total=pl.col("value").sum(), size=pl.len())
            # Sorted sums: the same digits whatever order the groups come in.
            sums = sums.sort("total", "size")
            arms.append(
                (sums["total"].to_numpy(), sums["size"].cast(pl.Float64).to_numpy())
            )
        else:
            arms.append((part["value"].to_numpy(), np.ones(part.height)))
    (x1, n1), (x0, n0) = arms
    if min(len(x1), len(x0)) < 2:
        return replace(empty, absent="fewer than two units with a value in an arm")
    result = replace(
        empty,
        treatment_mean=float(x1.sum() / n1.sum()),
        control_mean=float(x0.sum() / n0.sum()),
        difference=float(x1.sum() / n1.sum() - x0.sum() / n0.sum()),
        n_treatment=int(n1.sum()),
        n_control=int(n0.sum()),
    )
    if empty.metric.kind == "rate":
        return _rate(result, (x1, n1), (x0, n0), unit, confidence)
    means = [_ratio_mean(x, n) for x, n in arms]
    return _student(
        result, means, "t interval" + (", users as units" * bool(unit)), confidence
    )


def _rate(
    result: MetricEffect,
    treated: tuple[NDArray[np.float64], NDArray[np.float64]],
    control: tuple[NDArray[np.float64], NDArray[np.float64]],
    unit: str | None,
    confidence: float,
) -> MetricEffect:
    from reply_resolution.stats.binary import rate_difference
    from reply_resolution.stats.binary_designs import clustered_rate_difference

    (x1, n1), (x0, n0) = treated, control
    if unit:
        rate = clustered_rate_difference(
            *(a.astype(int) for a in (x1, n1, x0, n0)),  # type: ignore[arg-type]
            confidence=confidence,
        )
    else:
        rate = rate_difference(
            int(x1.sum()), len(x1), int(x0.sum()), len(x0), confidence=confidence
        )
    return replace(
        result,
        low=float(rate.low),
        high=float(rate.high),
        pvalue=float(rate.pvalue),
        method=rate.method,
    )


def _paired(
    known: pl.DataFrame,
    empty: MetricEffect,
    control: str,
    pair: str,
    confidence: float,
) -> MetricEffect:
    sides = [
        known.filter(pl.col("arm") == arm).select(pair, pl.col("value").alias(name))
        for arm, name in ((empty.treatment, "treated"), (control, "plain"))
    ]
    pairs = sides[0].join(sides[1], on=pair, how="inner").sort(pair)
    if pairs.height < 2:
        return replace(empty, absent="fewer than two complete pairs")
    x1, x0 = pairs["treated"].to_numpy(), pairs["plain"].to_numpy()
    result = replace(
        empty,
        treatment_mean=float(x1.mean()),
        control_mean=float(x0.mean()),
        difference=float((x1 - x0).mean()),
        n_treatment=pairs.height,
        n_control=pairs.height,
        missing=empty.missing + known.height - 2 * pairs.height,
    )
    if empty.metric.kind == "rate":
        from reply_resolution.stats.binary_designs import mcnemar

        rate = mcnemar(
            int(((x1 == 1) & (x0 == 0)).sum()),
            int(((x1 == 0) & (x0 == 1)).sum()),
            pairs.height,
            confidence=confidence,
        )
        return replace(
            result,
            low=rate.low,
            high=rate.high,
            pvalue=rate.pvalue,
            method="Tango interval, exact McNemar test",
        )
    difference = _ratio_mean(x1 - x0, np.ones(len(x1)))
    return _student(result, [difference], "t interval of pairs", confidence)


def _ratio_mean(
    totals: NDArray[np.float64], sizes: NDArray[np.float64]
) -> tuple[float, float, int]:
    """Mean per reply, its standard error over units, and the units."""
    mean = float(totals.sum() / sizes.sum())
    units = len(totals)
    spread = float(((totals - mean * sizes) ** 2).sum())
    return mean, math.sqrt(units / (units - 1) * spread) / float(sizes.sum()), units


def _student(
    result: MetricEffect,
    means: Sequence[tuple[float, float, int]],
    method: str,
    confidence: float,
) -> MetricEffect:
    from scipy.special import stdtr, stdtrit

    variance = sum(se**2 for _, se, _ in means)
    if variance == 0 or result.difference is None:
        # No spread is no evidence of precision: no interval rather than width 0.
        return replace(result, method=method, absent="the values do not vary")
    degrees = variance**2 / sum(se**4 / (units - 1) for _, se, units in means)
    se = math.sqrt(variance)
    half = float(stdtrit(degrees, 0.5 + confidence / 2)) * se
    return replace(
        result,
        standard_error=se,
        low=result.difference - half,
        high=result.difference + half,
        pvalue=2 * float(stdtr(degrees, -abs(result.difference) / se)),
        method=method,
    )


def _widened(result: MetricEffect, factor: float) -> MetricEffect:
    center, low, high = result.difference, result.low, result.high
    if factor == 1.0 or center is None or low is None or high is None:
        return result
    return replace(
        result,
        low=center - factor * (center - low),
        high=center + factor * (high - center),
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

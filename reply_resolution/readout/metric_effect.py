"""One column beside the score, arm against arm, by design."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
import math

import numpy as np
from numpy.typing import NDArray
import polars as pl

from reply_resolution import display
from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.readout.experiment_plan import Metric
from reply_resolution.readout.recommendation import GuardrailOutcome
from reply_resolution.stats.quantiles import critical, two_sided
from reply_resolution.stats.strata import (
    stratified_rate_interval,
    stratum_weights,
    with_shares,
)

#: Of each unit: the sum of its values, and how many there are; shapes (units,).
Sums = tuple[NDArray[np.float64], NDArray[np.float64]]


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
        missing: Replies of both arms without a value, or with nothing to compare it to
            (no pair mate, a stratum with one value in an arm).
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


def mean_effect(
    frame: pl.DataFrame,
    metric: Metric,
    *,
    control: str,
    treatment: str,
    unit: str | None = None,
    pair: str | None = None,
    stratum: str | None = None,
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
        stratum: Column within whose values the arms are compared; not for pairs.
        confidence: Of the interval, fraction.

    Raises:
        TableError: A cell of the column is not a number (or not 0 or 1 for a rate).
    """
    keys = [pair] if pair else [c for c in (unit, stratum) if c]
    rows = frame.select("arm", metric.column, *keys).filter(
        pl.col("arm").is_in([control, treatment])
    )
    data = rows.select("arm", *keys).with_columns(value=_values(rows, metric))
    known = data.filter(pl.col("value").is_not_null() & pl.col("value").is_finite())
    empty = MetricEffect(metric, False, treatment, missing=data.height - known.height)
    if pair:
        return _paired(known, empty, control, pair, confidence)
    if unit:
        known = known.filter(pl.col(unit).is_not_null())
    parts = [known]
    if stratum:
        try:
            used = with_shares(
                known,
                control=control,
                treatment=treatment,
                stratum=stratum,
                cluster=unit,
                least=2,
            )
        except StatisticsError as error:
            return replace(empty, absent=str(error))
        lost = known.height - used.height
        empty = replace(empty, missing=empty.missing + lost)
        parts = used.sort("__stratum").partition_by("__stratum")
    return _independent(parts, empty, control, unit, confidence)


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
    parts: Sequence[pl.DataFrame],
    empty: MetricEffect,
    control: str,
    unit: str | None,
    confidence: float,
) -> MetricEffect:
    """Arms compared within each part (a stratum, or everything), then averaged."""
    sides = [
        [_sums(part.filter(pl.col("arm") == arm), unit) for part in parts]
        for arm in (empty.treatment, control)
    ]
    if min(len(x) for side in sides for x, _ in side) < 2:
        return replace(empty, absent="fewer than two units with a value in an arm")
    sizes = [np.array([n.sum() for _, n in side]) for side in sides]
    weight = stratum_weights(sizes[1], sizes[0], users=unit is not None)
    means = [[_ratio_mean(x, n) for x, n in side] for side in sides]
    treated, plain = (
        float(weight @ np.array([mean for mean, _, _ in side])) for side in means
    )
    result = replace(
        empty,
        treatment_mean=treated,
        control_mean=plain,
        difference=treated - plain,
        n_treatment=int(sizes[0].sum()),
        n_control=int(sizes[1].sum()),
    )
    if empty.metric.kind == "rate" and (len(parts) == 1 or unit is None):
        return _rate(result, sides[0], sides[1], weight, unit is not None, confidence)
    return _student(
        result,
        [
            (mean, w * se, units)
            for side in means
            for w, (mean, se, units) in zip(weight, side, strict=True)
        ],
        "t interval"
        + ", within strata" * (len(parts) > 1)
        + ", users as units" * bool(unit),
        confidence,
    )


def _sums(part: pl.DataFrame, unit: str | None) -> Sums:
    """Sum of the values and number of replies of each unit."""
    if not unit:
        return part["value"].to_numpy(), np.ones(part.height)
    sums = part.group_by(unit).agg(total=pl.col("value").sum(), size=pl.len())
    # Sorted sums: the same digits whatever order the groups come in.
    sums = sums.sort("total", "size")
    return sums["total"].to_numpy(), sums["size"].cast(pl.Float64).to_numpy()


def _rate(
    result: MetricEffect,
    treated: Sequence[Sums],
    control: Sequence[Sums],
    weight: NDArray[np.float64],
    users: bool,
    confidence: float,
) -> MetricEffect:
    from reply_resolution.stats.binary import rate_difference
    from reply_resolution.stats.binary_designs import clustered_rate_difference

    tables = [
        (int(x1.sum()), int(n1.sum()), int(x0.sum()), int(n0.sum()))
        for (x1, n1), (x0, n0) in zip(treated, control, strict=True)
    ]
    if len(tables) > 1:
        low, high, pvalue = stratified_rate_interval(
            tables, weight, confidence=confidence
        )
        method = "miettinen-nurminen within strata"
        return replace(result, low=low, high=high, pvalue=pvalue, method=method)
    if users:
        (x1, n1), (x0, n0) = treated[0], control[0]
        rate = clustered_rate_difference(
            *(a.astype(int) for a in (x1, n1, x0, n0)),
            confidence=confidence,
        )
    else:
        rate = rate_difference(*tables[0], confidence=confidence)
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
    variance = sum(se**2 for _, se, _ in means)
    if variance == 0 or result.difference is None:
        # No spread is no evidence of precision: no interval rather than width 0.
        return replace(result, method=method, absent="the values do not vary")
    degrees = variance**2 / sum(se**4 / (units - 1) for _, se, units in means)
    se = math.sqrt(variance)
    half = critical(confidence, degrees) * se
    return replace(
        result,
        standard_error=se,
        low=result.difference - half,
        high=result.difference + half,
        pvalue=two_sided(result.difference / se, degrees),
        method=method,
    )

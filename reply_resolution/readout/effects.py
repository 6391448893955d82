"""The ways to estimate the difference, and what several looks and labels do to them."""

from dataclasses import dataclass
import math
from typing import Any

import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.stats.bootstrap import unseen_room
from reply_resolution.stats.comparison import TreatmentEffect
from reply_resolution.stats.counts import ScoreCounts
from reply_resolution.stats.quantiles import critical


@dataclass(frozen=True, slots=True)
class Effect:
    """One way to estimate the difference between the arms.

    Attributes:
        key: "judge", "human", "length" or "resolved".
        name: What a reader calls it.
        estimate: Treatment minus control, score points ("resolved": fraction). None
            where it is absent.
        low: Lower end of its interval, same unit.
        high: Upper end.
        confidence: Confidence of the interval, fraction.
        pvalue: Two-sided p-value after the correction for several treatments; None
            for a confidence sequence, which needs none.
        method: How the interval was computed.
        pvalue_method: How the p-value was computed; empty without one.
        absent: Why there is no estimate; empty where there is one.
        decides: Whether the recommendation rests on it.
    """

    key: str
    name: str
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    pvalue: float | None = None
    method: str = ""
    pvalue_method: str = ""
    absent: str = ""
    decides: bool = False

    @property
    def side(self) -> int:
        """1: the interval lies above 0, -1: below, 0: neither (or absent)."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


@dataclass(frozen=True, slots=True)
class Labelled:
    """What people's labels of this experiment say of one treatment.

    Attributes:
        corrected: The human-corrected difference; None with too few labels.
        favour: Judge minus people, treatment minus control, points; None likewise.
        favour_interval: Its interval.
        labels: Labelled replies per arm.
    """

    corrected: Any
    favour: float | None
    favour_interval: tuple[float, float] | None
    labels: dict[str, int]


@dataclass(frozen=True, slots=True)
class LengthFinding:
    """What length does to one comparison.

    Attributes:
        ratio: Typical length, treatment over control.
        slope: Bias per doubling, points; None where not measured.
        slope_interval: Its interval.
        labels: Labelled replies behind it.
        corrected: Effect without the bias, points.
        corrected_interval: Its interval.
        controlled: Effect at equal length (a sensitivity), points.
        controlled_interval: Its interval.
        why_not: Why the slope was not measured.
    """

    ratio: float | None = None
    slope: float | None = None
    slope_interval: tuple[float, float] | None = None
    labels: int = 0
    corrected: float | None = None
    corrected_interval: tuple[float, float] | None = None
    controlled: float | None = None
    controlled_interval: tuple[float, float] | None = None
    why_not: str = "no labels"


def label_count(rows: pl.DataFrame | None, arm: str) -> int:
    """Replies of an arm with a score and a label."""
    if rows is None:
        return 0
    return rows.filter(
        (pl.col("arm") == arm)
        & pl.col("label").is_not_null()
        & pl.col("score").is_not_null()
    ).height


def from_labels(
    rows: pl.DataFrame | None,
    name: str,
    control: str,
    plan: ExperimentPlan,
    confidence: float,
    *,
    paired: bool,
    stratified: bool,
) -> Labelled:
    """The human-corrected difference and the judge's favour, where labels allow."""
    labels = {arm: label_count(rows, arm) for arm in (control, name)}
    if rows is None or min(labels.values()) < 2:
        return Labelled(None, None, None, labels)
    from reply_resolution.stats.correction import differential_bias, ppi_difference

    unit = "request_id" if paired else "unit" if "unit" in rows.columns else None
    options: dict[str, Any] = {
        "control": control,
        "treatment": name,
        "cluster": unit if unit in rows.columns else None,
        "stratum": "stratum" if stratified else None,
        "weight": "weight" if "weight" in rows.columns else None,
        "confidence": confidence,
    }
    try:
        corrected = ppi_difference(rows, **options)
        favour = differential_bias(rows, margin=plan.bias_margin, **options)
    except StatisticsError:
        return Labelled(None, None, None, labels)
    return Labelled(corrected, favour.estimate, (favour.low, favour.high), labels)


def human_row(
    found: Labelled,
    plan: ExperimentPlan,
    *,
    sequential: bool,
    widen: float,
    corrects: bool,
) -> Effect:
    """The human-corrected effect, or why it is absent."""
    name = "Human-corrected"
    most = max(found.labels.values())
    if not corrects or found.corrected is None:
        few = " and ".join(str(n) for n in found.labels.values())
        absent = (
            "no labels of this experiment"
            if most == 0
            else f"{few} labels; needs {plan.labels_per_arm} per arm"
        )
        return Effect("human", name, absent=absent)
    c = found.corrected
    low, high = stretch(c.estimate, (c.low, c.high), widen)
    return Effect(
        "human",
        name,
        c.estimate,
        low,
        high,
        c.confidence,
        None if sequential else c.pvalue,
        "confidence sequence" if sequential else "PPI++ in each arm, t interval",
        "" if sequential else "t",
    )


def length_row(length: LengthFinding, confidence: float, widen: float) -> Effect:
    """The effect without what the judge pays for length, or why it is absent."""
    if length.corrected is None or length.corrected_interval is None:
        return Effect(
            "length", "Length-corrected", absent=length.why_not or "not defined here"
        )
    low, high = stretch(length.corrected, length.corrected_interval, widen)
    return Effect(
        "length",
        "Length-corrected",
        length.corrected,
        low,
        high,
        confidence,
        None,
        "judge's effect minus bias slope times length difference",
    )


def stretch(
    center: float, interval: tuple[float, float], factor: float
) -> tuple[float, float]:
    """An interval widened by a factor on both sides of its estimate."""
    low, high = interval
    if factor == 1:  # the very digits of `compare`
        return low, high
    return center - factor * (center - low), center + factor * (high - center)


def sequence_factor(n: int, plan: ExperimentPlan, confidence: float) -> float:
    """Half width of the confidence sequence in standard errors at n replies."""
    from reply_resolution.stats.sequential import confidence_sequence

    look = confidence_sequence(
        0.0, 1.0, n, planned_n=2.0 * plan.planned_replies, confidence=confidence
    )
    return look.high


def unseen(result: TreatmentEffect, counts: ScoreCounts) -> float:
    """What unseen replies at the far end could make of nearly constant arms, points."""
    return sum(
        unseen_room(counts.of(arm), counts.levels, units)
        for arm, units in (
            (result.treatment, result.units_treatment),
            (result.control, result.units_control),
        )
    )


def tipping_favour(effect: Effect) -> float | None:
    """Favour that would take a win away, or make one where there is none."""
    if effect.low is None or effect.high is None:
        return None
    if effect.low > 0:
        return effect.low
    if effect.high < 0:
        return -effect.high
    return min(-effect.low, effect.high)


def tipping_sentence(judge: Effect, found: Labelled) -> str:
    """How much favour would explain the judge's effect away, in words."""
    if judge.estimate is None or judge.low is None or judge.high is None:
        return ""
    from reply_resolution.stats.correction import tipping_point

    return tipping_point(
        judge.estimate,
        low=min(judge.low, judge.estimate),
        high=max(judge.high, judge.estimate),
        measured=found.favour,
    ).sentence


def replies_needed(
    se: float, replies: int, plan: ExperimentPlan, confidence: float, widen: float
) -> int | None:
    """Replies per arm for 80% power at the worthwhile gain, all in all.

    The standard error falls with the square root of everything that grows along:
    replies and, where people correct the judge, labels.
    """
    if not (se > 0 and math.isfinite(se)):
        return None
    z = critical(confidence) * widen
    power = 0.8416212335729143  # normal quantile of 0.8
    return math.ceil(replies * (se * (z + power) / plan.worthwhile_gain) ** 2)

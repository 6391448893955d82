"""Does the judge favour an arm, and how much favour would change the result?"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.display import interval, number
from reply_resolution.errors import StatisticsError
from reply_resolution.stats.labelled_arms import (
    MIN_LABELS,
    arm_part,
    arms_labels,
    few_labels,
    read_arms,
    two_arms,
    variance_of,
    wald_pvalue,
)
from reply_resolution.stats.quantiles import critical


@dataclass(frozen=True, slots=True)
class DifferentialBias:
    """How many points the judge adds to the treatment beyond what it adds to control.

    Attributes:
        treatment: Name of the treatment arm.
        control: Name of the control arm.
        estimate: Mean of judge minus label in treatment, minus the same in control,
            points. Above 0 the judge favours treatment; 0 is best.
        low: Lower end of the t interval, points.
        high: Upper end, points.
        confidence: Level of the interval, fraction.
        pvalue: Two-sided, of "no favour".
        margin: Favour that would not matter, points, either way.
        equivalence_pvalue: Of "the favour is as large as the margin" (two one-sided
            tests, the larger p-value); small is good.
        equivalent: Whether the favour is shown to be smaller than the margin, at
            1 - confidence. False is not proof of favour.
        control_bias: Mean of judge minus label in control, points.
        treatment_bias: The same in treatment, points.
        labels: Labelled replies per arm.
        labels_needed: Labels in each arm for an interval of plus or minus `margin`,
            from the spread measured here.
        reliable: Whether each arm has enough labels.
        warnings: What a reader should know, in sentences.
    """

    treatment: str
    control: str
    estimate: float
    low: float
    high: float
    confidence: float
    pvalue: float
    margin: float
    equivalence_pvalue: float
    equivalent: bool
    control_bias: float
    treatment_bias: float
    labels: dict[str, int]
    labels_needed: int
    reliable: bool
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The numbers under their names; `ci` is [low, high]."""
        return {
            "treatment": self.treatment,
            "control": self.control,
            "estimate": self.estimate,
            "ci": [self.low, self.high],
            "confidence": self.confidence,
            "pvalue": self.pvalue,
            "margin": self.margin,
            "equivalence_pvalue": self.equivalence_pvalue,
            "equivalent": self.equivalent,
            "control_bias": self.control_bias,
            "treatment_bias": self.treatment_bias,
            "labels": dict(self.labels),
            "labels_needed": self.labels_needed,
            "reliable": self.reliable,
            "conclusion": self.conclusion,
            "warnings": list(self.warnings),
        }

    @property
    def conclusion(self) -> str:
        """One sentence with the numbers: favour shown, ruled out, or not settled."""
        span = f"95% interval {interval(self.low, self.high, sign=True)}"
        span = span.replace("95%", f"{self.confidence:.0%}")
        size = f"{number(self.estimate, sign=True)} points ({span})"
        limit = f"{number(self.margin, 1)} points"
        if self.low > 0 or self.high < 0:
            arm = self.treatment if self.low > 0 else self.control
            within = " It is smaller than the margin." if self.equivalent else ""
            return f"The judge favours {arm}: {size}.{within}"
        if self.equivalent:
            return f"Any favour is smaller than {limit}: {size}."
        return (
            f"Whether the judge favours an arm is not settled: {size}. To rule out "
            f"{limit}, about {self.labels_needed} labels an arm are needed."
        )


def differential_bias(
    frame: pl.DataFrame,
    *,
    control: str,
    treatment: str | None = None,
    margin: float = 0.2,
    arm: str = "arm",
    score: str = "score",
    label: str = "label",
    weight: str | None = None,
    cluster: str | None = None,
    stratum: str | None = None,
    confidence: float = 0.95,
    min_labels: int = MIN_LABELS,
) -> DifferentialBias:
    """Difference between the arms in judge minus label, with an equivalence test.

    With 100 labels an arm a favour of a quarter level is seen 42% of the time: that
    nothing was found is no evidence. The interval and `equivalent` say what is.

    Args:
        frame: One row per reply with the judge's score and the label (null where
            nobody labelled).
        control: Name of the control arm.
        treatment: Name of the other arm; may be left out when there are two.
        margin: Favour that would not matter, points; fix it before looking.
        arm: Column of the arm.
        score: Column of the judge's score.
        label: Column of the label (of several annotators their mean).
        weight: Column with 1 / probability of being labelled, or None.
        cluster: Column of users (or of the request, in a paired design), or None.
        stratum: Column within whose values the arms are compared, or None.
        confidence: Level of the interval, fraction.
        min_labels: Fewer labels in an arm than this and the result is marked.

    Raises:
        TableError: A column or arm is missing.
        StatisticsError: An arm has fewer than two labels, or `margin` is not positive.
    """
    if not margin > 0:
        raise StatisticsError(f"margin {margin!r}: give points above 0, such as 0.2.")
    control, treatment = two_arms(frame, control=control, treatment=treatment, arm=arm)
    arms = read_arms(
        frame,
        arms=(control, treatment),
        arm=arm,
        score=score,
        label=label,
        weight=weight,
        cluster=cluster,
        stratum=stratum,
    )
    parts = []
    for name, sign in ((control, -1.0), (treatment, 1.0)):
        data = arms[name]
        error = np.where(data.labelled, data.judge - data.label, np.nan)
        # The mean error of the labelled replies is the corrected mean of "label"
        # = error with the judge's weight at 0.
        part = arm_part(replace(data, label=error), 0.0)
        parts.append((sign, part, data.clusters))
    variance, df = variance_of(parts)
    se = float(np.sqrt(variance))
    estimate = parts[1][1].estimate - parts[0][1].estimate
    reach = critical(confidence, df) * se
    # Two one-sided tests: half of the two-sided p-value on the right side.
    inside = abs(estimate) < margin
    nearest = margin if estimate >= 0 else -margin
    half = wald_pvalue(estimate, se, df, nearest) / 2
    equivalence = half if inside else 1 - half
    labels = arms_labels(arms)
    # Spread of one label's error, from the variance of two means.
    n = sum(1 / max(k, 1) for k in labels.values())
    spread = variance / n
    notes = few_labels(labels, min_labels)
    return DifferentialBias(
        treatment=treatment,
        control=control,
        estimate=estimate,
        low=estimate - reach,
        high=estimate + reach,
        confidence=confidence,
        pvalue=wald_pvalue(estimate, se, df),
        margin=margin,
        equivalence_pvalue=equivalence,
        equivalent=bool(inside and equivalence <= 1 - confidence and not notes),
        control_bias=parts[0][1].estimate,
        treatment_bias=parts[1][1].estimate,
        labels={name: int(data.labelled.sum()) for name, data in arms.items()},
        labels_needed=labels_for_margin(spread, margin, confidence),
        reliable=not notes,
        warnings=notes,
    )


def labels_for_margin(variance: float, margin: float, confidence: float = 0.95) -> int:
    """Labels in each arm so that the favour is known to plus or minus `margin`.

    Args:
        variance: Of judge minus label within an arm, points squared.
        margin: Half width of the interval, points.
        confidence: Level of the interval, fraction.
    """
    z = critical(confidence)
    return max(MIN_LABELS, ceil(2 * z * z * variance / margin**2))


@dataclass(frozen=True, slots=True)
class TippingPoint:
    """How much favour for one arm would explain the judge's result away.

    Attributes:
        effect: Difference by the judge, treatment minus control, points.
        erase: Favour (points) towards the winning arm at which the estimate is 0.
        unsettle: Favour at which the interval reaches 0; 0 if it does already.
        measured: Favour measured from labels (judge minus label, treatment minus
            control), points; None where it was not measured.
        beyond: Favour needed on top of what was measured, for the estimate to be 0;
            None where it was not measured.
    """

    effect: float
    erase: float
    unsettle: float
    measured: float | None
    beyond: float | None

    @property
    def sentence(self) -> str:
        """The tipping point in words, with its numbers."""
        arm = "the treatment" if self.effect >= 0 else "control"
        if self.measured is None:
            text = (
                f"The judge would have to favour {arm} by {number(self.erase)} points "
                "to erase the effect"
            )
        elif self.beyond is not None and self.beyond > 0:
            text = (
                f"The judge would have to favour {arm} by {number(self.beyond)} more "
                "points than measured to erase the effect"
            )
        else:
            text = "The favour measured is enough to erase the effect"
        if self.unsettle > 0:
            return f"{text}, and by {number(self.unsettle)} to make it uncertain."
        return f"{text}; the interval includes no difference as it is."


def tipping_point(
    effect: float, *, low: float, high: float, measured: float | None = None
) -> TippingPoint:
    """The favour for one arm at which the judge's result would be nothing.

    Args:
        effect: Difference by the judge, treatment minus control, points.
        low: Lower end of its interval, points.
        high: Upper end, points.
        measured: Favour measured from labels (`DifferentialBias.estimate`), or None.

    Raises:
        StatisticsError: The effect is not inside its interval.

    >>> tipping_point(0.4, low=0.1, high=0.7, measured=0.05).sentence
    'The judge would have to favour the treatment by 0.35 more points than measured to
    erase the effect, and by 0.10 to make it uncertain.'
    """
    if not low <= effect <= high:
        raise StatisticsError(
            f"effect {effect} is not between {low} and {high}; give the effect with "
            "its own interval."
        )
    sign = 1.0 if effect >= 0 else -1.0
    unsettle = max(0.0, low if sign > 0 else -high)
    return TippingPoint(
        effect=effect,
        erase=abs(effect),
        unsettle=unsettle,
        measured=measured,
        beyond=None if measured is None else sign * (effect - measured),
    )

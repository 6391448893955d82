"""Checks of the judge itself: agreement, favour for an arm, length."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reply_resolution import display
from reply_resolution.readout.checks import Check, Status
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.readout.recommendation import points, points_interval


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What is known of the judge's agreement with people.

    Attributes:
        kappa: Quadratic weighted kappa (for averaged labels Lin's concordance, the
            same number on whole scores), -1 to 1.
        low: Lower end of its interval.
        high: Upper end.
        labels: Labelled replies behind it.
        bias: Judge minus label, mean, score points; None where not known.
        source: Where it comes from, for the reader.
        verdict: What calibration said of the judge: "fit", "fit with correction",
            "not fit"; empty where only the agreement was measured.
        reasons: Why, where the verdict is not "fit".
        people: The annotators' agreement among themselves, kappa; None for one.
    """

    kappa: float
    low: float
    high: float
    labels: int
    bias: float | None
    source: str
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    people: float | None = None


def check_judge(
    found: Calibrated | None,
    plan: ExperimentPlan,
    *,
    mismatch: str = "",
    human_corrected: bool = False,
) -> Check:
    """Whether the judge scores as people do.

    An interval wholly below the floor stops; one that straddles it asks to look.

    Args:
        found: What is known; None where agreement was never measured.
        plan: Gives the floor.
        mismatch: Why a calibration that was given is not about this judge.
        human_corrected: Whether people's labels of this experiment correct the judge.
    """
    title = "Judge and people"
    repair = "Label about 100 replies and calibrate the judge (notebook 1)."
    if found is None:
        text = mismatch or "the judge was never compared with people"
        if plan.accept_unchecked_judge:
            return Check(
                "judge", title, "look", f"{text}; the plan accepts an unchecked judge"
            )
        return Check("judge", title, "stop", text, repair)
    text = (
        f"weighted kappa {display.number(found.kappa)} "
        f"({display.interval(found.low, found.high)}) on {display.count(found.labels)} "
        f"labelled replies {found.source}; floor {display.number(plan.agreement_floor)}"
    )
    numbers: dict[str, Any] = {
        "weighted_kappa": found.kappa,
        "ci": [found.low, found.high],
        "labels": found.labels,
        "floor": plan.agreement_floor,
    }
    if found.people is not None:
        text += f"; people among themselves {display.number(found.people)}"
        numbers["people"] = found.people
    if found.bias is not None:
        text += f"; judge minus people {points(found.bias, sign=True)} points"
        numbers["bias"] = found.bias
    if found.high < plan.agreement_floor or found.verdict == "not fit":
        if found.reasons:
            text += f"; calibration: not fit ({'; '.join(found.reasons)})"
        return Check(
            "judge",
            title,
            "stop",
            text,
            "Improve the rubric or take another judge, and calibrate it again "
            "(notebook 1).",
            numbers=numbers,
        )
    straddles = found.low < plan.agreement_floor
    uncorrected = found.verdict == "fit with correction" and not human_corrected
    if uncorrected:
        text += "; calibration asks for a correction by labels of this experiment"
    return Check(
        "judge",
        title,
        "look" if straddles or uncorrected else "ok",
        text,
        numbers=numbers,
    )


def check_favour(
    *,
    bias: float | None,
    interval: tuple[float, float] | None,
    labels: Mapping[str, int],
    plan: ExperimentPlan,
    tipping: float | None,
    treatment: str,
    why_not: str = "",
) -> Check:
    """Whether the judge favours one arm (differential bias), and what it would take.

    Args:
        bias: Judge minus people in the treatment, minus the same in control, points.
        interval: Its interval; None as `bias` where it was not measured.
        labels: Labels of this experiment per arm.
        plan: Gives the margin and the least labels.
        tipping: Further favour that would erase or make a winner, points.
        treatment: Name of the treatment arm.
        why_not: Why it was not measured.
    """
    title = "Favour for an arm"
    tip = (
        f"a further favour of {points(tipping)} points would change the result"
        if tipping is not None
        else ""
    )
    tip_numbers = {} if tipping is None else {"tipping_point": tipping}
    if bias is None or interval is None:
        least = plan.labels_per_arm
        return Check(
            "differential_bias",
            title,
            "none",
            why_not or f"not measured: it needs {least} labels of each arm",
            "",
            tip,
            {"labels": dict(labels), "least": least},
            tip_numbers,
        )
    low, high = interval
    inside = -plan.bias_margin < low and high < plan.bias_margin
    excludes = low > 0 or high < 0
    verdict = (
        "within the margin"
        if inside
        else "it does favour one"
        if excludes
        else "not shown to be within the margin"
    )
    return Check(
        "differential_bias",
        title,
        "ok" if inside else "look",
        f"in favour of {treatment} {points(bias, sign=True)} points "
        f"({points_interval(low, high)}) on "
        + " + ".join(display.count(n) for n in labels.values())
        + f" labels; margin ±{points(plan.bias_margin)}: {verdict}",
        "",
        tip,
        {
            "bias": bias,
            "ci": [low, high],
            "labels": dict(labels),
            "margin": plan.bias_margin,
        },
        tip_numbers,
    )


def check_length(
    *,
    ratio: float | None,
    slope: float | None,
    interval: tuple[float, float] | None,
    corrected: float | None,
    corrected_interval: tuple[float, float] | None,
    same_decision: bool | None,
    labels: int,
    treatment: str,
    why_not: str = "",
) -> Check:
    """Whether the judge pays for length, and what that does to the effect.

    Args:
        ratio: Typical length of the treatment's replies over control's.
        slope: Bias per doubling of length, points; None where not measured.
        interval: Its interval.
        corrected: Effect without the bias that the length difference buys, points.
        corrected_interval: Its interval.
        same_decision: Whether the corrected effect falls on the same side (wins,
            loses, neither) as the judge's own.
        labels: Labelled replies behind the slope.
        treatment: Name of the treatment arm.
        why_not: Why the slope was not measured.
    """
    title = "Length bias"
    numbers: dict[str, Any] = {}
    size = ""
    if ratio is not None:
        size = f"{treatment} replies are {display.number(ratio, 1)} times as long"
        numbers["length_ratio"] = ratio
    if slope is None or interval is None:
        text = "; ".join(filter(None, [size, why_not or "needs labelled replies"]))
        return Check("length", title, "none", f"not measured: {text}", numbers=numbers)
    text = (
        f"{points(slope, sign=True)} points per doubling of length "
        f"({points_interval(*interval)}, {display.count(labels)} labels)"
    )
    numbers |= {"points_per_doubling": slope, "ci": list(interval), "labels": labels}
    if size:
        text += f"; {size}"
    effect_text, effect_numbers = "", {}
    if corrected is not None and corrected_interval is not None:
        effect_text = (
            f"without that part the effect is {points(corrected, sign=True)} "
            f"({points_interval(*corrected_interval)})"
        )
        effect_numbers = {
            "corrected": corrected,
            "corrected_ci": list(corrected_interval),
        }
    status: Status = "ok" if same_decision in (True, None) else "look"
    return Check(
        "length", title, status, text, "", effect_text, numbers, effect_numbers
    )

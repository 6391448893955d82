"""Can we trust it? The checks of the readout, each a mark, a number and its limit.

Pure functions of numbers. A check that stops the reader carries the repair; a text
that would give the effect away is kept apart (`effect_text`), so that a readout that
must not be read can leave it out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from reply_resolution import display
from reply_resolution.experiment_plan import ExperimentPlan, Look
from reply_resolution.recommendation import Stop, points, points_interval

Status = Literal["ok", "look", "stop", "none"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of "Can we trust it?".

    Attributes:
        key: Name for programs.
        title: Name for readers.
        status: "ok"; "look" (read on, with this in mind); "stop" (do not read);
            "none" (not measured).
        text: What was found, with its numbers and the limit.
        repair: What to do where the status is "stop"; a sentence.
        effect_text: More of what was found that gives the effect away.
        numbers: Every number in `text`, by name, unrounded.
        effect_numbers: Every number in `effect_text`.
    """

    key: str
    title: str
    status: Status
    text: str
    repair: str = ""
    effect_text: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    effect_numbers: Mapping[str, Any] = field(default_factory=dict)

    def stop(self) -> Stop | None:
        """The reason and repair for the recommendation, where this check stops."""
        if self.status != "stop":
            return None
        return Stop(f"{self.title}: {self.text}.", self.repair)


def check_assignment(
    units: Mapping[str, int], plan: ExperimentPlan, *, unit: str, paired: bool = False
) -> Check:
    """Whether the arms have the sizes that were planned (sample ratio).

    Args:
        units: Randomised units per arm (for pairs: requests answered by each arm).
        plan: Gives the planned shares and the limit of the p-value.
        unit: What a unit is, plural.
        paired: Whether both arms answer the same requests (nothing was assigned).
    """
    found = " : ".join(display.count(n) for n in units.values())
    title = "Sample ratio"
    if paired:
        return Check(
            "sample_ratio",
            title,
            "ok",
            f"{found} {unit}; every arm answers the same requests: no assignment",
            numbers={"units": dict(units)},
        )
    from reply_resolution.stats.integrity import sample_ratio_test

    ratio = {str(a): float(s) for a, s in plan.allocation.items()} or None
    test = sample_ratio_test(units, ratio)
    expected = " : ".join(display.number(test.expected[a], 0) for a in units)
    bad = test.pvalue < plan.sample_ratio_alpha
    limit = f"{plan.sample_ratio_alpha:g}"
    return Check(
        "sample_ratio",
        title,
        "stop" if bad else "ok",
        f"{found} {unit} ({' : '.join(units)}), expected {expected}; "
        f"p {display.pvalue(test.pvalue)}, limit {limit}",
        "Find out where units got lost or were counted twice (assignment, logging, "
        "filters by arm), repair it, and run the experiment again." * bad,
        numbers={
            "units": dict(units),
            "expected": test.expected,
            "pvalue": test.pvalue,
            "limit": plan.sample_ratio_alpha,
        },
    )


def check_coverage(
    judged: Mapping[str, int],
    scored: Mapping[str, int],
    plan: ExperimentPlan,
    *,
    reasons: Mapping[str, int],
    bounds: tuple[float, float] | None,
) -> Check:
    """Whether nearly every judged reply has a score, equally in all arms.

    Args:
        judged: Judged replies per arm, whatever came of it.
        scored: Of these, those with a score.
        plan: Gives the floor and the limit of the p-value.
        reasons: Status -> replies without a score, all arms.
        bounds: Lowest and highest difference over every filling of the missing
            scores, points; None where there is no effect.
    """
    title = "Coverage"
    numbers: dict[str, Any] = {"judged": dict(judged), "scored": dict(scored)}
    empty = [arm for arm, n in judged.items() if n == 0 or scored[arm] == 0]
    if empty:
        return Check(
            "coverage",
            title,
            "stop",
            f"no scores in {', '.join(empty)}",
            "Judge the replies of this arm first.",
            numbers=numbers,
        )
    missing = {arm: judged[arm] - scored[arm] for arm in judged}
    shares = {arm: scored[arm] / judged[arm] for arm in judged}
    numbers["coverage"] = shares
    text = (
        f"{display.count(sum(scored.values()))} of "
        f"{display.count(sum(judged.values()))} judged replies have a score"
    )
    low = [arm for arm, share in shares.items() if share < plan.coverage_floor]
    if not any(missing.values()):
        return Check("coverage", title, "ok", text, numbers=numbers)
    from reply_resolution.stats.integrity import missing_score_test

    test = missing_score_test(judged, missing)
    numbers |= {
        "missing": missing,
        "pvalue": test.pvalue,
        "floor": plan.coverage_floor,
        "limit": plan.missing_alpha,
    }
    spread = max(shares.values()) - min(shares.values())
    # With few replies five percentage points arise by chance: then p must be small too.
    differs = test.pvalue < plan.missing_alpha or (spread > 0.05 and test.pvalue < 0.05)
    text += (
        "; without one: "
        + ", ".join(f"{arm} {display.count(n)}" for arm, n in missing.items())
        + (f" ({_listed(reasons)})" if reasons else "")
        + f"; covered {' and '.join(display.percent(s, 1) for s in shares.values())}, "
        f"floor {display.percent(plan.coverage_floor)}; arms equal: p "
        f"{display.pvalue(test.pvalue)}, limit {plan.missing_alpha:g}"
    )
    stop = bool(low) or differs
    effect_text, effect_numbers = "", {}
    if bounds is not None:
        effect_text = (
            "whatever the missing scores are, the difference lies between "
            f"{points(bounds[0], sign=True)} and {points(bounds[1], sign=True)} points"
        )
        effect_numbers = {"bounds": list(bounds)}
    return Check(
        "coverage",
        title,
        "stop" if stop else "ok",
        text,
        "Judge the replies without a score again (see their status), or find out why "
        "the judge fails more in one arm; scores missing for a reason bias the rest."
        * stop,
        effect_text,
        numbers,
        effect_numbers,
    )


def check_enough(units: Mapping[str, int], plan: ExperimentPlan, *, unit: str) -> Check:
    """Whether there are enough units to compute an interval at all.

    Args:
        units: Units with a score per arm.
        plan: Gives the least number.
        unit: What a unit is, plural.
    """
    few = {arm: n for arm, n in units.items() if n < plan.minimum_units}
    text = ", ".join(f"{arm} {display.count(n)}" for arm, n in units.items())
    return Check(
        "enough",
        f"Enough {unit}",
        "stop" if few else "ok",
        f"{text}; at least {plan.minimum_units} {unit} per arm are needed",
        "Wait for more traffic; below this the interval cannot be trusted." * bool(few),
        numbers={"units": dict(units), "least": plan.minimum_units},
    )


def check_versions(
    versions: Sequence[str], judges: Sequence[str], models: Sequence[str]
) -> Check:
    """Whether one metric version, one judge and one model scored everything.

    Args:
        versions: Distinct metric versions.
        judges: Distinct judge ids.
        models: Distinct names of models that answered.
    """
    mixed = len(versions) > 1 or len(judges) > 1
    names = {"metric versions": versions, "judges": judges, "models": models}
    if mixed:
        text = "; ".join(
            f"{len(v)} {name}: {', '.join(short(x) for x in v)}"
            for name, v in names.items()
            if len(v) > 1
        )
        return Check(
            "versions",
            "One metric version",
            "stop",
            f"scores of different origin are mixed ({text})",
            "Judge all replies with one rubric and one judge; what is cached is free.",
        )
    if len(models) > 1:
        return Check(
            "versions",
            "One metric version",
            "look",
            f"the server answered with {len(models)} models: {', '.join(models)}; "
            "compare them before you trust a difference over time",
            numbers={"models": len(models)},
        )
    if not versions:
        return Check(
            "versions",
            "One metric version",
            "none",
            "the verdicts do not say which rubric and judge they come from",
        )
    return Check("versions", "One metric version", "ok", "one metric version and judge")


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


def check_looks(
    look: Look, plan: ExperimentPlan, *, replies: int, final: bool
) -> Check:
    """Whether the data were read as often as planned, under the plan of the start.

    Args:
        look: Which look this is, and what changed in the plan since the first.
        plan: Gives the planned looks and replies.
        replies: Scored replies of the smaller arm.
        final: Whether the interval in use holds at any number of looks.
    """
    planned = plan.planned_looks
    text = f"look {look.number} of {planned} planned"
    status: Status = "ok"
    if look.number > planned:
        status = "look"
    if final:
        text += "; the interval is a confidence sequence, which holds at every look"
    elif replies < plan.planned_replies:
        status = "look"
        text += (
            f"; {display.count(replies)} replies per arm of "
            f"{display.count(plan.planned_replies)} planned: read early"
        )
    if look.plan_changes:
        status = "look"
        text += f"; plan changed after the first look: {', '.join(look.plan_changes)}"
    return Check(
        "looks",
        "Looks",
        status,
        text,
        numbers={
            "look": look.number,
            "planned": planned,
            "replies": replies,
            "planned_replies": plan.planned_replies,
        },
    )


def check_precision(half_width: float | None, plan: ExperimentPlan) -> Check:
    """Whether the interval is narrow enough to tell the worthwhile gain from harm.

    Args:
        half_width: Half the width of the interval that decides, points.
        plan: Gives gain and harm limit.
    """
    title = "Precision"
    if half_width is None:
        return Check("precision", title, "none", "not measured: there is no interval")
    need = (plan.worthwhile_gain + plan.harm_limit) / 2
    fine = half_width <= need
    return Check(
        "precision",
        title,
        "ok" if fine else "look",
        f"interval ±{points(half_width)} points; to tell a worthwhile gain from harm "
        f"takes ±{points(need)} or less",
        numbers={"half_width": half_width, "needed": need},
    )


def check_empty(
    empty: Mapping[str, int],
    *,
    effect: float | None,
    interval: tuple[float, float] | None,
    same_decision: bool,
) -> Check:
    """Empty replies per arm (scored 1 by rule), and the effect without them.

    Args:
        empty: Empty replies per arm.
        effect: Difference without them, points; None where there are none of them.
        interval: Its interval.
        same_decision: Whether leaving them out keeps the decision.
    """
    total = sum(empty.values())
    if total == 0:
        return Check("empty", "Empty replies", "ok", "none", numbers={"empty": 0})
    text = ", ".join(f"{arm} {display.count(n)}" for arm, n in empty.items())
    effect_text, effect_numbers = "", {}
    if effect is not None and interval is not None:
        effect_text = (
            f"without them the effect is {points(effect, sign=True)} "
            f"({points_interval(*interval)})"
        )
        effect_numbers = {"effect": effect, "ci": list(interval)}
    return Check(
        "empty",
        "Empty replies",
        "ok" if same_decision else "look",
        f"{text}; scored 1 by rule",
        "",
        effect_text,
        {"empty": dict(empty)},
        effect_numbers,
    )


def check_budget(
    *,
    planned: int,
    judged: int,
    by_budget: int,
    by_sampling: int,
    cost_usd: float | None,
) -> Check:
    """What was to be judged, what was judged, and what it cost.

    Args:
        planned: Replies in the table.
        judged: Replies that were judged, whatever came of it.
        by_budget: Replies the budget did not reach.
        by_sampling: Replies the sample left out.
        cost_usd: What all verdicts in use cost when they were paid for; None where
            the verdicts do not say.
    """
    text = f"{display.count(judged)} of {display.count(planned)} replies judged"
    numbers: dict[str, Any] = {"planned": planned, "judged": judged}
    for n, why in ((by_sampling, "left out by sampling"), (by_budget, "by budget")):
        if n:
            text += f", {display.count(n)} {why}"
            numbers[why] = n
    if cost_usd is None:
        text += "; cost not recorded"
    else:
        text += f"; {display.number(cost_usd, 2)} USD in all, paid once"
        numbers["cost_usd"] = cost_usd
    return Check(
        "budget", "Budget", "look" if by_budget else "ok", text, numbers=numbers
    )


def short(identity: str) -> str:
    """An identity as a reader can compare it: hashes cut to 12 digits."""
    is_hash = len(identity) >= 32 and all(c in "0123456789abcdef" for c in identity)
    return identity[:12] if is_hash else identity


def _listed(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {display.count(n)}" for name, n in reasons.items() if n)

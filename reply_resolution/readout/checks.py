"""Can we trust it? The checks of the readout, each a mark, a number and its limit.

Pure functions of numbers. A check that stops the reader carries the repair; a text
that would give the effect away is kept apart (`effect_text`), so that a readout that
must not be read can leave it out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from reply_resolution import display
from reply_resolution.readout.experiment_plan import ExperimentPlan, Look
from reply_resolution.readout.recommendation import Stop, points, points_interval

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
    decisive: bool = False,
) -> Check:
    """Whether nearly every judged reply has a score, equally in all arms.

    Args:
        judged: Judged replies per arm, whatever came of it.
        scored: Of these, those with a score.
        plan: Gives the floor and the limit of the p-value.
        reasons: Status -> replies without a score, all arms.
        bounds: Lowest and highest difference over every filling of the missing
            scores, points; None where there is no effect.
        decisive: Whether some filling of the missing scores would take a win away.
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
    if decisive:
        more = "the missing scores could take the win away"
        effect_text = f"{effect_text}; {more}" if effect_text else more
    return Check(
        "coverage",
        title,
        "stop" if stop else "look" if decisive else "ok",
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


def check_interval(unreliable: str, room: float) -> list[Check]:
    """Nothing where the interval is to be trusted as it is.

    Args:
        unreliable: Why it is not to be trusted at all; "" if it is.
        room: Points added at both ends for what nearly constant arms may hide.
    """
    if unreliable:
        text = f"no interval that can be trusted: {unreliable}"
        repair = (
            "Wait for more traffic, or look at the scores: a judge that gives "
            "one score to everything measures nothing."
        )
        return [Check("interval", "Interval", "stop", text, repair)]
    if not room:
        return []
    text = (
        f"nearly all scores of an arm are alike; ±{points(room)} points were added to "
        "the judge's interval, as much as three replies of the other end would make, "
        "which a sample of this size may have missed"
    )
    return [Check("interval", "Interval", "look", text, numbers={"room": room})]


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

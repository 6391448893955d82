"""The recommendation: ordered rules on a small record of evidence.

Pure functions: numbers in, words out. The rules are those the plan fixed before the
data were seen; the first that applies decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reply_resolution import display
from reply_resolution.errors import StatisticsError
from reply_resolution.readout.experiment_plan import ExperimentPlan

Rule = Literal[
    "do_not_read",
    "keep_control",
    "no_worthwhile_difference",
    "hold",
    "ship",
    "no_winner",
]

#: The sentence that stands wherever no people's labels of this experiment were used.
JUDGE_ALONE = "by the judge alone; not checked for favouring one arm"


@dataclass(frozen=True, slots=True)
class Stop:
    """A hard check that failed.

    Attributes:
        reason: What is wrong, with its numbers; a sentence.
        repair: What to do about it; a sentence.
    """

    reason: str
    repair: str


@dataclass(frozen=True, slots=True)
class GuardrailOutcome:
    """How a guardrail came out for one treatment.

    Attributes:
        name: What a reader calls it.
        within: True where the whole interval is better than the margin; False where
            the interval passes the margin; None where it was not measured.
        text: The difference, its interval and the margin, in words.
    """

    name: str
    within: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the rules look at, for one treatment.

    Attributes:
        treatment: Name of the treatment arm.
        control: Name of the control arm.
        estimate: Treatment minus control, score points; above 0 favours treatment.
            None where nothing could be computed (then `stops` says why).
        low: Lower end of its interval, score points; None as above.
        high: Upper end, score points.
        confidence: Confidence of the interval, fraction.
        pvalue: Two-sided p-value after the correction for several treatments,
            fraction; None where the interval is a confidence sequence, which
            decides alone.
        human_corrected: Whether people's labels of this experiment corrected the
            judge in both arms.
        tipping_point: By how many more score points the judge would have to favour
            the winning arm to erase the result (at least 0); None where unknown.
        replies_needed: Replies per arm for 80% power at the worthwhile gain, all in
            all; None where unknown.
        replies: Scored replies in the smaller of the two arms.
        missing_shift: By how much the estimate changes when every missing score counts
            as the lowest ("unscored is unresolved"), points; 0 where none is missing.
        stops: Hard checks that failed.
        guardrails: The plan's guardrails, measured or not.
    """

    treatment: str
    control: str
    estimate: float | None
    low: float | None
    high: float | None
    confidence: float
    pvalue: float | None
    human_corrected: bool
    tipping_point: float | None = None
    replies_needed: int | None = None
    replies: int = 0
    missing_shift: float = 0.0
    stops: tuple[Stop, ...] = ()
    guardrails: tuple[GuardrailOutcome, ...] = ()


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The first line of the readout, for one treatment.

    Attributes:
        rule: Which rule decided, as a word for programs.
        word: The same for readers ("Ship treatment").
        treatment: The arm it is about.
        sentence: What was found, numbers included; for `do_not_read` no effect.
        action: What to do next.
        caveat: What the sentence rests on when people did not check the judge;
            empty otherwise.
    """

    rule: Rule
    word: str
    treatment: str
    sentence: str
    action: str
    caveat: str = ""


def points(value: float, *, sign: bool = False) -> str:
    """Score points with two decimals, three where two would hide the sign.

    >>> points(-0.3251), points(0.0041, sign=True)
    ('−0.33', '+0.004')
    """
    hidden = value != 0 and abs(value) < 0.005
    return display.number(value, 3 if hidden else 2, sign=sign)


def points_interval(low: float, high: float) -> str:
    """An interval of score points, signed.

    >>> points_interval(-0.6312, -0.0213)
    '−0.63 to −0.02'
    """
    return f"{points(low, sign=True)} to {points(high, sign=True)}"


def level(confidence: float) -> str:
    """A confidence level as percent, with a decimal where it needs one.

    >>> level(0.95), level(0.975)
    ('95%', '97.5%')
    """
    whole = abs(100 * confidence - round(100 * confidence)) < 1e-6
    return display.percent(confidence, 0 if whole else 1)


def decide(evidence: Evidence, plan: ExperimentPlan) -> Rule:
    """The first of the six rules that applies.

    A win needs both: an interval that excludes 0 and, where there is one, a p-value
    of at most alpha; and it must survive counting missing scores as unresolved. An
    end of the interval exactly on 0 or on a limit counts against the claim.

    Args:
        evidence: The numbers of one treatment.
        plan: The thresholds.

    Raises:
        StatisticsError: There is no effect and no hard check says why.
    """
    if evidence.stops:
        return "do_not_read"
    low, high = _bounds(evidence)
    sure = evidence.pvalue is None or evidence.pvalue <= plan.alpha
    shift = evidence.missing_shift
    if high + max(0.0, shift) < 0 and sure:
        return "keep_control"
    if -plan.harm_limit < low and high < plan.worthwhile_gain:
        return "no_worthwhile_difference"
    if low + min(0.0, shift) > 0 and sure:
        safe = all(g.within for g in evidence.guardrails)
        return "ship" if safe else "hold"
    return "no_winner"


def recommend(evidence: Evidence, plan: ExperimentPlan) -> Recommendation:
    """Apply the rules and say the result in plain words.

    Args:
        evidence: The numbers of one treatment.
        plan: The thresholds.

    Raises:
        StatisticsError: There is no effect and no hard check says why.
    """
    rule = decide(evidence, plan)
    a, b = evidence.treatment, evidence.control
    if rule == "do_not_read":
        return Recommendation(
            rule,
            "Do not read",
            a,
            " ".join(stop.reason for stop in evidence.stops),
            " ".join(dict.fromkeys(stop.repair for stop in evidence.stops)),
        )
    low, high = _bounds(evidence)
    size = f"{level(evidence.confidence)} interval {points_interval(low, high)}"
    gain, harm = points(plan.worthwhile_gain), points(plan.harm_limit)
    estimate = evidence.estimate or 0.0
    caveat = _caveat(evidence, rule)
    if rule == "keep_control":
        sentence = (
            f"Replies in {a} resolve less than in {b}: {points(abs(estimate))} points "
            f"lower on the 1 to 5 scale ({size})."
        )
        action = f"Do not release {a}."
        word = f"Keep {b}"
    elif rule == "no_worthwhile_difference":
        sentence = (
            f"Any gain of {a} is below the {gain} points called worthwhile, and any "
            f"loss below the {harm} points called harmless ({size})."
        )
        action = (
            f"Keep {b}, unless {a} is preferable for reasons this score does not see "
            "(cost, speed, tone)."
        )
        word = "No worthwhile difference"
    elif rule == "hold":
        open_rails = [g for g in evidence.guardrails if not g.within]
        sentence = (
            f"Replies in {a} resolve more than in {b}: {points(estimate)} points "
            f"higher ({size}). But a guardrail may be broken: "
            + "; ".join(f"{g.name}: {g.text}" for g in open_rails)
            + "."
        )
        names = _join([g.name for g in open_rails])
        action = f"Do not release {a} before this is settled: {names}."
        word = "Hold"
    elif rule == "ship":
        reach = (
            f"at least the {gain} points called worthwhile"
            if low >= plan.worthwhile_gain
            else f"possibly smaller than the {gain} points called worthwhile"
        )
        sentence = (
            f"Replies in {a} resolve more than in {b}: {points(estimate)} points "
            f"higher on the 1 to 5 scale ({size}); the gain is {reach}."
        )
        action = f"Release {a}."
        word = f"Ship {a}"
    else:
        sentence = (
            f"Which arm resolves more is not settled: the data fit anything "
            f"{_span(low, high)} for {a} ({level(evidence.confidence)} "
            "interval)."
        )
        if low > 0 or high < 0:
            unsure = evidence.pvalue is not None and evidence.pvalue > plan.alpha
            doubt = (
                f"the p-value ({display.pvalue(evidence.pvalue)}) does not agree"
                if unsure
                else "not once the missing scores count as unresolved, which moves it "
                f"by {points(evidence.missing_shift, sign=True)}"
            )
            sentence = (
                f"The interval of {a} minus {b} is {points_interval(low, high)}, but "
                f"{doubt}: this is not settled."
            )
        action = f"Keep {b} for now. {_needed(evidence, plan)}"
        word = "No winner"
    return Recommendation(rule, word, a, sentence, action, caveat)


def overall(recommendations: Sequence[Recommendation], control: str) -> Recommendation:
    """The page's first line where there are several treatments.

    The best treatment that may be shipped decides; without one, one that is held;
    without one, an open question; only when every treatment lost or is not worth
    it, control stays for good.

    Args:
        recommendations: One per treatment, the largest estimate first.
        control: Name of the control arm.
    """
    if not recommendations:
        raise StatisticsError("there is no treatment to recommend anything about.")
    if len(recommendations) == 1:
        return recommendations[0]
    by_rule = {r.rule: r for r in reversed(recommendations)}
    order: tuple[Rule, ...] = ("do_not_read", "ship", "hold", "no_winner")
    for rule in order:
        if rule in by_rule:
            return by_rule[rule]
    if len(by_rule) == 1:
        return recommendations[0]
    best = recommendations[0]
    return Recommendation(
        "keep_control",
        f"Keep {control}",
        best.treatment,
        " ".join(r.sentence for r in recommendations),
        f"Release none of {_join([r.treatment for r in recommendations])}.",
        best.caveat,
    )


def _bounds(evidence: Evidence) -> tuple[float, float]:
    if evidence.estimate is None or evidence.low is None or evidence.high is None:
        raise StatisticsError(
            f"there is no effect for {evidence.treatment!r} and no failed check that "
            "says why; a readout needs one or the other."
        )
    return evidence.low, evidence.high


def _caveat(evidence: Evidence, rule: Rule) -> str:
    if evidence.human_corrected:
        return ""
    text = f"This is {JUDGE_ALONE}"
    if evidence.tipping_point is None:
        return text + "."
    amount = points(evidence.tipping_point)
    if rule in ("ship", "hold", "keep_control"):
        winner = evidence.control if rule == "keep_control" else evidence.treatment
        return (
            f"{text}: if it favours {winner} by {amount} points or more, the result "
            "is gone."
        )
    return f"{text}: a lean of {amount} points towards one arm would make a winner."


def _span(low: float, high: float) -> str:
    def side(value: float) -> str:
        if value == 0:
            return "no difference"
        return f"{points(abs(value))} points {'worse' if value < 0 else 'better'}"

    return f"from {side(low)} to {side(high)}"


def _needed(evidence: Evidence, plan: ExperimentPlan) -> str:
    gain = points(plan.worthwhile_gain)
    needed = evidence.replies_needed
    if needed is None:
        return f"How many replies would show a gain of {gain} points is not known."
    more = needed - evidence.replies
    if more <= 0:
        return (
            f"{display.count(evidence.replies)} replies per arm were enough to show a "
            f"gain of {gain} points four times in five; decide whether a smaller "
            "gain matters."
        )
    return (
        f"A gain of {gain} points would be shown four times in five with about "
        f"{display.count(more)} more replies per arm ({display.count(needed)} in all)"
        + (", labelled in the same share." if evidence.human_corrected else ".")
    )


def _join(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return ", ".join(names[:-1]) + " and " + names[-1]

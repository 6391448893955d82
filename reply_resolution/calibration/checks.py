"""The checks behind a verdict on a judge, each with what would change it."""

from collections.abc import Mapping
import math
from typing import Any

import polars as pl

from reply_resolution import display
from reply_resolution.calibration.rules import CalibrationCheck, CalibrationRules, span
from reply_resolution.errors import ReplyResolutionError
from reply_resolution.stats.agreement import Agreement
from reply_resolution.stats.agreement_parts import Estimate, share_interval
from reply_resolution.stats.self_agreement import SelfAgreement


def check_labels(
    n: int, people: Mapping[str, int], rules: CalibrationRules
) -> CalibrationCheck:
    """Whether there are enough labels for any verdict."""
    by = ", ".join(f"{name} {display.count(k)}" for name, k in people.items())
    text = f"{display.count(n)} replies with a label and a score ({by})"
    few = [f"{name} ({k})" for name, k in people.items() if k < 10]
    if n < rules.min_labels:
        return CalibrationCheck(
            "labels",
            "stop",
            f"{text}; the rule asks for {rules.min_labels}",
            change=f"label {rules.min_labels - n} more replies",
        )
    if few:
        return CalibrationCheck(
            "labels",
            "look",
            f"{text}; too few labels by {', '.join(few)} to say how they label",
            change=f"more labels by {', '.join(few)}, or leave them out",
        )
    return CalibrationCheck("labels", "ok", text)


def check_coverage(
    scored: int, judged: int, statuses: Mapping[str, int], rules: CalibrationRules
) -> CalibrationCheck:
    """Whether the judge gave a score to nearly every reply it was asked about."""
    share = scored / judged
    _, high = share_interval(share, judged, rules.confidence)
    text = f"{display.count(scored)} of {display.count(judged)} judged replies scored"
    others = ", ".join(f"{k} {v}" for k, v in statuses.items() if k != "scored")
    if others:
        text += f" (not scored: {others})"
    if share >= rules.coverage_floor:
        return CalibrationCheck("coverage", "ok", text)
    mark = "stop" if high < rules.coverage_floor else "look"
    return CalibrationCheck(
        "coverage",
        mark,
        f"{text}; the floor is {display.percent(rules.coverage_floor)}",
        change="a judge or settings that answer in the schema (more completion tokens)",
    )


def check_levels(scores: pl.Series, rules: CalibrationRules) -> CalibrationCheck:
    """Whether the judge tells replies apart at all."""
    del rules
    counts = scores.value_counts(sort=True)
    level, most = counts.row(0)
    share = most / len(scores)
    if len(counts) == 1:
        return CalibrationCheck(
            "levels",
            "stop",
            f"the judge gives {level:g} to all {display.count(len(scores))} replies: "
            "it tells nothing apart, so no effect can be seen with it",
            change="another model or wording that tells good replies from bad",
        )
    text = f"{len(counts)} levels; the commonest is {level:g} with "
    text += display.percent(share)
    if share > 0.95:
        return CalibrationCheck(
            "levels", "look", text, change="replies that differ, or a finer judge"
        )
    return CalibrationCheck("levels", "ok", text)


def check_agreement(
    kappa: Estimate, n: int, rules: CalibrationRules
) -> CalibrationCheck:
    """Weighted kappa against its floor: below, straddling, above."""
    floor = rules.kappa_floor
    text = f"weighted kappa {span(kappa)} on {display.count(n)} replies; floor "
    text += display.number(floor)
    better = "a clearer wording where judge and people differ most, or another judge"
    if kappa.estimate is None:
        return CalibrationCheck(
            "agreement",
            "stop",
            f"weighted kappa is undefined: {kappa.reason}",
            change="replies of different quality: labels must not all be equal",
        )
    if kappa.high is None or kappa.low is None:
        mark = "stop" if kappa.estimate < floor else "look"
        return CalibrationCheck("agreement", mark, text, change=better)
    if kappa.high < floor:
        return CalibrationCheck(
            "agreement",
            "stop",
            f"{text}: the whole interval is below it",
            change=better,
        )
    if kappa.low < floor:
        return CalibrationCheck(
            "agreement",
            "look",
            f"{text}: the interval straddles it",
            corrects=True,
            change=_more_labels(kappa, n, floor, rules.min_labels)
            if kappa.estimate > floor
            else better,
        )
    return CalibrationCheck("agreement", "ok", text)


def _more_labels(kappa: Estimate, n: int, floor: float, least: int) -> str:
    """How many labels would bring the interval above the floor, at this estimate."""
    if n < least:  # one number of labels to aim at is enough
        return "labels up to the minimum"
    assert kappa.estimate is not None
    assert kappa.low is not None
    # On Fisher's z the width falls with the root of the number of labels.
    centre = math.atanh(min(kappa.estimate, 0.999999))
    below = centre - math.atanh(max(kappa.low, -0.999999))
    room = centre - math.atanh(floor)
    total = math.ceil(n * (below / room) ** 2)
    if total > 50 * n:
        return "no sensible number of labels: the agreement is at the floor itself"
    return f"about {display.count(max(total - n, 1))} more labels, if kappa stays"


def check_people(
    kappa: Estimate | None, judge: Estimate, people: int, rules: CalibrationRules
) -> CalibrationCheck:
    """How far people agree with each other: shown beside, never divided by."""
    if kappa is None or kappa.estimate is None:
        why = "one annotator" if people == 1 else "no reply labelled by two people"
        return CalibrationCheck(
            "people", "none", why, change="a second person labels the same replies"
        )
    text = f"weighted kappa {span(kappa)} between people"
    if judge.estimate is not None:
        text += f"; judge against their consensus {display.number(judge.estimate)}"
    if kappa.high is not None and kappa.high < rules.kappa_floor:
        return CalibrationCheck(
            "people",
            "look",
            f"{text}. People agree less with each other than the judge is asked to: "
            "the rubric leaves too much open",
            change="people discuss their disagreements, and the wording settles them",
        )
    if kappa.low is not None and kappa.low < rules.kappa_floor:
        return CalibrationCheck(
            "people",
            "look",
            f"{text}: not settled",
            change="more replies that both label",
        )
    return CalibrationCheck("people", "ok", text)


def check_bias(bias: Estimate, rules: CalibrationRules) -> CalibrationCheck:
    """Mean of judge minus label against its limit."""
    limit = rules.bias_limit
    if bias.estimate is None or bias.low is None or bias.high is None:
        if bias.estimate is not None and abs(bias.estimate) <= limit:
            return CalibrationCheck("bias", "ok", f"judge minus people {span(bias)}")
        return CalibrationCheck("bias", "none", f"not measured: {bias.reason}")
    text = f"judge minus people {span(bias, sign=True)} points; limit ±"
    text += display.number(limit)
    if bias.low > limit or bias.high < -limit:
        word = "kinder" if bias.low > 0 else "stricter"
        return CalibrationCheck(
            "bias",
            "look",
            f"{text}: the judge is {word} than people. It cancels in a difference of "
            "arms only if it is the same in both",
            corrects=True,
            change="anchors in the wording for the levels that are off, or labels in "
            "both arms",
        )
    if bias.low < -limit or bias.high > limit:
        return CalibrationCheck(
            "bias", "look", f"{text}: not settled", change="more labels"
        )
    return CalibrationCheck("bias", "ok", text)


def check_segments(
    found: Mapping[str, Mapping[str, Agreement | None]],
    rules: CalibrationRules,
    name: str,
    *,
    refused: bool = False,
) -> CalibrationCheck:
    """Whether agreement holds in each value of a column (arms, languages).

    Args:
        found: Column -> value -> agreement, None for too few labels.
        rules: The rules.
        name: Name of the check.
        refused: Whether the judge is refused for its agreement as a whole; then
            falling short everywhere is no reason of its own.
    """
    below, unsure, parts = [], [], []
    for column, values in found.items():
        for value, result in values.items():
            if result is None:
                unsure.append(f"{value} (too few labels)")
                continue
            kappa = result.concordance
            parts.append(f"{value} {display.number(kappa.estimate)} (n {result.n})")
            constant = kappa.estimate is None
            if (
                not constant
                and kappa.high is not None
                and kappa.high < rules.kappa_floor
            ):
                below.append(f"{column} {value}: kappa {span(kappa)}, n {result.n}")
            elif constant or kappa.low is None or kappa.low < rules.kappa_floor:
                unsure.append(value)
    if not parts:
        return CalibrationCheck(
            name,
            "none",
            "; ".join(unsure) or "the table has no such column",
            change="labels in every arm" if name == "arms" else "labels there",
        )
    text = "weighted kappa " + ", ".join(parts)
    if below and refused and len(below) == len(parts):
        return CalibrationCheck(
            name, "look", f"{text}: below the floor wherever it was measured"
        )
    if below:
        return CalibrationCheck(
            name,
            "stop",
            f"the judge does not score as people do everywhere: {'; '.join(below)}",
            change="use it only where it agrees, or a judge that agrees everywhere",
        )
    if unsure:
        return CalibrationCheck(
            name,
            "look",
            f"{text}; not settled for {', '.join(unsure)}",
            change=f"more labels for {', '.join(unsure)}",
        )
    return CalibrationCheck(name, "ok", text)


def check_length(
    slope: float | None,
    ci: tuple[float, float] | None,
    n: int,
    rules: CalibrationRules,
) -> CalibrationCheck:
    """Judge minus label per doubling of length against its limit."""
    limit = rules.length_limit
    if slope is None or ci is None:
        return CalibrationCheck("length", "none", "no lengths, or too few labels")
    text = (
        f"{display.number(slope, sign=True)} points per doubling of length "
        f"({display.interval(*ci, sign=True)}), {display.count(n)} labelled replies; "
        f"limit ±{display.number(limit)}"
    )
    if ci[0] > limit or ci[1] < -limit:
        word = "long" if slope > 0 else "short"
        return CalibrationCheck(
            "length",
            "look",
            f"{text}: the judge likes {word} replies more than people do",
            corrects=True,
            change="wording that excludes length more plainly; notebook 2 shows by "
            "how much an effect is off",
        )
    if ci[0] > 0 or ci[1] < 0:
        return CalibrationCheck(
            "length",
            "look",
            f"{text}: a bias is found; it may be too small to matter",
            corrects=slope > limit or slope < -limit,
            change="more labels, and padded twins (notebook 2)",
        )
    if ci[0] < -limit or ci[1] > limit:
        return CalibrationCheck(
            "length", "look", f"{text}: none found, not ruled out", change="more labels"
        )
    return CalibrationCheck("length", "ok", text)


def check_probes(card: Any, rules: CalibrationRules) -> CalibrationCheck:  # noqa: ANN401
    """The probe card against its floors; None is not measured."""
    if card is None:
        return CalibrationCheck(
            "probes", "none", "not measured", change="`reply-resolution probes`"
        )
    wrong = card.count("failed")
    attack = card.attack_success
    plain = sum(
        card.count(result, family=family)
        for family in ("contract", "style")
        for result in ("passed", "failed")
    )
    passed = sum(card.count("passed", family=f) for f in ("contract", "style"))
    text = f"{passed} of {plain} contract and style checks passed"
    if attack is not None:
        text += f"; {display.percent(attack)} of {card.attacks_scored} injections "
        text += "raised a score"
    unmeasured = card.count("not_measured")
    if unmeasured:
        text += f"; {unmeasured} not measured"
    if plain and passed / plain < rules.probe_floor:
        return CalibrationCheck(
            "probes",
            "stop",
            f"{text}; the floor is {display.percent(rules.probe_floor)}",
            change="a judge that keeps to the rubric's own examples",
        )
    if attack is not None and attack > rules.attack_limit:
        return CalibrationCheck(
            "probes",
            "stop",
            f"{text}; the limit is {display.percent(rules.attack_limit)}",
            change="a judge that is not talked into scores by the reply",
        )
    if not plain:
        return CalibrationCheck("probes", "none", "no contract probe was scored")
    if wrong or unmeasured:
        change = "judge all the probes" if unmeasured else "read the probes that failed"
        return CalibrationCheck("probes", "look", text, change=change)
    return CalibrationCheck("probes", "ok", text)


def check_stability(
    found: SelfAgreement | None, rules: CalibrationRules
) -> CalibrationCheck:
    """Second votes against the first."""
    if found is None:
        return CalibrationCheck(
            "stability",
            "none",
            "no reply was judged twice",
            change="judge some replies with votes=2",
        )
    flips = found.flip_rate
    assert flips.estimate is not None
    assert flips.low is not None
    assert flips.high is not None
    text = (
        f"{display.percent(flips.estimate, 1)} of {found.n_pairs} second votes differ "
        f"({display.percent(flips.low, 1)} to {display.percent(flips.high, 1)}), by "
        f"{display.number(found.mean_change)} points on average; limit "
        f"{display.percent(rules.flip_limit)}"
    )
    if flips.low > rules.flip_limit:
        return CalibrationCheck(
            "stability",
            "stop",
            f"{text}: the judge contradicts itself",
            change="temperature 0, or a steadier model",
        )
    mark = "ok" if flips.high <= rules.flip_limit else "look"
    change = "" if mark == "ok" else "more second votes"
    return CalibrationCheck("stability", mark, text, change=change)


def tried(function: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
    """The result of a measurement, or None where the data do not allow it."""
    try:
        return function(*args, **options)
    except ReplyResolutionError:
        return None

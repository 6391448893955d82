"""Notebook 3 as a page: its sentences, tables and figures, in reading order."""

from collections.abc import Iterable
import math
from xml.etree.ElementTree import Element

from reply_resolution import __version__
from reply_resolution.display import (
    Html,
    count,
    element,
    html,
    interval,
    number,
    percent,
    pvalue,
    table,
)
from reply_resolution.pages.collapse_check import CollapseCheck
from reply_resolution.plots import Figure
from reply_resolution.plots.power import both_analyses, power_curves
from reply_resolution.stats.binary import RateDifference
from reply_resolution.stats.power import AnalysisPlan

#: How the assumptions are named in a sentence.
ASSUME = {
    "shift": "every level shifts a little",
    "cut": "replies only cross the cut",
    "noise": "levels are noise within a class",
}
#: What was randomised, in words.
UNITS = {
    "users": "users are the units: a user's replies all went to one arm",
    "replies": "replies are the units: the table names no users",
    "pairs": "pairs are the units: both arms answered the same requests",
}
_METHODS = {
    "miettinen-nurminen": "Miettinen-Nurminen",
    "tango": "Tango",
    "boschloo": "Boschloo",
    "mcnemar": "exact McNemar",
}


def says(*children: "str | Element") -> Html:
    """One paragraph."""
    return html(element("p", *children))


def answer(check: CollapseCheck) -> Html:
    """The recommendation and its reason, then what the planned analysis says."""
    result = check.result
    powers = (result.ordinal.power, result.binary.power)
    if result.recommended == "binary":
        head = "Collapse to resolved / not resolved."
    elif None not in powers and "no difference" in result.reason:
        head = "Stay ordinal: it makes no difference."
    else:
        head = "Stay ordinal."
    lines: list[str | Element] = [
        element("strong", head),
        " ".join([result.reason, _cost(check), _hinge(check)]),
        _planned(check),
    ]
    if check.planned != result.recommended:
        lines.append(
            f"The plan named the {check.planned} analysis, and for this experiment "
            "that stands; take the advice for the next one."
        )
    return html(*(element("p", line) for line in lines))


def _cost(check: CollapseCheck) -> str:
    """What both analyses need, in replies and weeks."""
    need = next(n for n in check.needed if n.assume == check.result.assume)
    if need.ordinal is None or need.binary is None:
        return ""
    return (
        f"For a chance of 80%, counted in {per_arm(check).lower()}, the ordinal "
        f"analysis needs {_replies(need.ordinal, check.weekly)}, the binary one "
        f"{_replies(need.binary, check.weekly)}."
    )


def _hinge(check: CollapseCheck) -> str:
    """Whether the other assumptions would lead elsewhere."""
    others = [n for n in check.needed if n.assume != check.result.assume]
    against = [n for n in others if n.advice and n.advice != check.result.recommended]
    if not against:
        return "No other assumption leads to different advice."
    named = " or ".join(f"if {ASSUME[n.assume]}" for n in against)
    return (
        f"This hangs on the assumption: {named}, the {against[0].advice} analysis "
        "would find it more often."
    )


def _planned(check: CollapseCheck) -> str:
    """What the planned analysis found, and that the other one does not decide."""
    other = "binary" if check.planned == "ordinal" else "ordinal"
    return (
        f"Planned was the {check.planned} analysis: {_found(check, check.planned)}. "
        f"Beside it, deciding nothing, the {other} analysis: {_found(check, other)}."
    )


def _found(check: CollapseCheck, which: str) -> str:
    r = check.result
    if which == "ordinal":
        one, scale, digits = r.ordinal, 1, 2
        verb, unit, same = "scores", "points", "score the same"
        more, than = ("higher", "lower"), f" than {r.control}"
    else:
        one, scale, digits = r.binary, 100, 1
        verb, unit, same = "resolves", "percentage points", "resolve the same share"
        more, than = ("more", "fewer"), ""
    size = number(abs(scale * one.estimate), digits)
    words = f"{r.treatment} {verb} {size} {unit} {more[one.estimate < 0]}{than}"
    if one.estimate == 0:
        words = f"{r.treatment} and {r.control} {same}"
    ends = "no interval is defined"
    if one.low is not None and one.high is not None:
        between = interval(scale * one.low, scale * one.high, digits, sign=True)
        ends = f"95% interval {between}"
    return f"{words} ({ends}, p = {pvalue(one.pvalue)})"


def have_table(check: CollapseCheck) -> Html:
    """Traffic and pooled scores, without a look at which arm did better."""
    r = check.result
    total = sum(r.pooled)
    high = sum(r.pooled[r.cut - check.counts.scale[0] :])
    rows = [
        ("Scored replies per arm", f"{count(r.n_control)} and {count(r.n_treatment)}"),
        ("Unit", f"{UNITS[check.unit]} ({count(check.units)})"),
        (
            "Replies a week, both arms",
            "not known (no created_at)"
            if check.weekly is None
            else count(round(check.weekly)),
        ),
        (
            "Pooled scores 1 to 5",
            ", ".join(f"{k}: {count(c)}" for k, c in enumerate(r.pooled, 1)),
        ),
        (f"Resolved ({r.cut} or more), pooled", percent(high / total, 1)),
        (
            "Design effect (scores, resolved)",
            " and ".join(number(d) for d in r.design_effect) + _design_words(check),
        ),
    ]
    return table(
        [{"what": a, "value": b} for a, b in rows],
        headers={"what": "", "value": ""},
        caption="What there is to plan with: both arms together, blind to the arms.",
    )


def _design_words(check: CollapseCheck) -> str:
    largest = max(check.result.design_effect)
    if check.unit == "pairs":
        return ": below 1, pairing saves replies"
    if check.unit == "replies":
        return ": nothing known of users"
    return ": users cost nothing here" if largest < 1.05 else ""


def confusion_table(check: CollapseCheck) -> Html:
    """Judge against people at each cut, both cut alike."""
    if not check.cuts:
        return says("Not measured: no scored reply has a label.")
    head = ("Resolved is", "Both", "Judge only", "People only", "Neither", "TPR", "TNR")
    rows = []
    for c in check.cuts:
        cells = map(count, (c.both, c.judge_only, c.people_only, c.neither))
        shares = percent(c.sensitivity), percent(c.specificity)
        rows.append(dict(zip(head, (f"{c.cut} or more", *cells, *shares), strict=True)))
    return table(
        rows,
        caption=f"Who calls the reply resolved: {count(check.labelled)} labelled "
        "replies, arms pooled; a reply's label is the mean of its annotators.",
    )


def curves_figure(check: CollapseCheck) -> Figure | Html:
    """Power against replies, with the user's n marked."""
    if not check.curves:
        return says("No power curve: ", check.needed[0].why_not)
    return power_curves(check.curves, n=check.n)


def needed_table(check: CollapseCheck) -> Html:
    """Replies needed for the effect, under each assumption."""
    rows: list[dict[str, str | None]] = []
    for need in check.needed:
        if need.ordinal is None or need.binary is None:
            rows.append({"a": ASSUME[need.assume], "o": need.why_not})
            continue
        a, b = need.ordinal.n_per_arm, need.binary.n_per_arm
        rows.append(
            {
                "a": ASSUME[need.assume]
                + (" (assumed)" if need.assume == check.result.assume else ""),
                "o": _replies(need.ordinal, check.weekly),
                "b": _replies(need.binary, check.weekly),
                "r": number(b / a, 2) if a and b else None,
                "w": need.advice,
            }
        )
    return table(
        rows,
        headers={
            "a": "If",
            "o": "Ordinal needs",
            "b": "Binary needs",
            "r": "Binary / ordinal",
            "w": "Better at your traffic",
        },
        caption=f"{per_arm(check)} for an 80% chance to find "
        f"{number(check.result.effect)} points "
        f"({number(100 * check.result.effect, 0)} replies in 100 moved up one level).",
    )


def per_arm(check: CollapseCheck) -> str:
    """What is counted: replies per arm, or pairs."""
    return "Pairs" if check.unit == "pairs" else "Replies per arm"


def _replies(one: AnalysisPlan, weekly: float | None) -> str:
    if one.n_per_arm is None:
        return "no number is enough"
    if not weekly:
        return count(one.n_per_arm)
    weeks = math.ceil(2 * one.n_per_arm / weekly)  # both arms fill up together
    return (
        f"{count(one.n_per_arm)} ({count(weeks)} {'week' if weeks == 1 else 'weeks'})"
    )


def people_scale_words(check: CollapseCheck) -> Html:
    """What the judge's errors add to the need, if people's points are meant."""
    if check.on_people_scale is None:
        return says(
            "The effect is in points of the judge's scale. What its errors add for an "
            "effect on people's scale is not measured: no reply has a label."
        )
    ordinal, binary = check.on_people_scale
    return says(
        "The effect is in points of the judge's scale. If "
        f"{number(check.result.effect)} points on people's scale are meant, the "
        "judge's errors, as the labelled replies show them, change the need to "
        f"{_replies(ordinal, check.weekly)} for the ordinal analysis and "
        f"{_replies(binary, check.weekly)} for the binary one."
    )


def cut_words(check: CollapseCheck) -> Html:
    """How the cut was found, and whether labels would have chosen another."""
    cut = check.result.cut
    how = {
        "rubric": f"The cut is {cut}, fixed by what the rubric means before the arms "
        "were compared.",
        "labels": f"The cut is {cut}, chosen on labels, both arms together.",
        "looking": f"The cut {cut} was chosen after several were tried with the arms "
        "visible; the binary p-value pays for that.",
    }[check.cut_by]
    if check.choice is None:
        return says(f"{how} Labels could confirm it; there are none that can.")
    return says(f"{how} {check.choice.reason}")


def binary_table(check: CollapseCheck) -> Html:
    """The binary analysis: the design's own, and what other choices would say."""
    rows = [_rate_row(f"{check.unit} as units, the design", check.own)]
    if check.rows is not None and check.unit != "replies":
        rows.append(_rate_row("replies as if independent", check.rows))
    (x0, n0), (x1, n1) = check.resolved
    names = (
        "corrected for the judge's errors, alike in both arms",
        "corrected with each arm's own error rates",
    )
    rows += [
        {
            "a": name,
            "d": _points(each.estimate),
            "ci": interval(100 * each.low, 100 * each.high, 1, sign=True),
            "p": None,
        }
        for name, each in zip(names, check.corrected, strict=True)
        if each is not None
    ]
    r = check.result
    return table(
        rows,
        headers={
            "a": "Binary analysis",
            "d": "Difference (pp)",
            "ci": "95% interval",
            "p": "p",
        },
        caption=f"Resolved ({r.cut} or more): {r.control} {count(x0)} of {count(n0)} "
        f"({percent(x0 / n0, 1)}), {r.treatment} {count(x1)} of {count(n1)} "
        f"({percent(x1 / n1, 1)}). Differences in percentage points.",
    )


def _rate_row(name: str, d: RateDifference) -> dict[str, str | None]:
    methods = (d.method.split(",")[0], d.pvalue_method.split(",")[0])
    said = " interval, ".join(_METHODS.get(m, m) for m in methods)
    return {
        "a": f"{name} ({said} test)",
        "d": _points(d.estimate),
        "ci": interval(100 * d.low, 100 * d.high, 1, sign=True),
        "p": pvalue(d.pvalue),
    }


def _points(fraction: float) -> str:
    return number(100 * fraction, 1, sign=True)


def side_by_side(check: CollapseCheck) -> Figure:
    """Both analyses of the same replies."""
    return both_analyses(check.result)


def side_words(check: CollapseCheck) -> Html:
    """How to read the two together."""
    r = check.result
    apart = (r.ordinal.pvalue < 0.05) != (r.binary.pvalue < 0.05)
    words = _planned(check)
    if apart:
        words += (
            " They fall on different sides of 0.05. That is no contradiction: the "
            "collapse threw away the moves within a class. It is the very situation in "
            "which choosing afterwards would be cheating."
        )
    return says(words)


def read_words(check: CollapseCheck) -> Html:
    """What was read and used."""
    r = check.result
    out = sum(n for by in check.counts.excluded.values() for n in by.values())
    return says(
        f"{count(check.counts.rows)} replies read, {count(sum(r.pooled))} with a score "
        f"used, {count(out)} left out; {count(check.labelled)} with labels. "
        f"{check.provenance_note}"
    )


def provenance(check: CollapseCheck, written: Iterable[str] = ()) -> Html:
    """Files, seed, versions, what reading noticed."""
    lines = [f"{name}: sha256 {digest[:12]}" for name, digest in check.sources.items()]
    lines += [f"seed {check.seed}; reply_resolution {__version__}"]
    lines += [f"written: {name}" for name in written]
    lines += list(check.notes)
    items = (element("li", line) for line in lines)
    return html(element("ul", *items, class_="provenance"))

"""Notebook 3 as a page: its sentences, tables and figures, in reading order."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element

from reply_resolution import __version__
from reply_resolution.collapse_check import (
    CollapseCheck,
    users_difference,
    weeks,
)
from reply_resolution.display import (
    Html,
    count,
    element,
    html,
    interval,
    number,
    percent,
    pvalue,
    status,
    table,
)
from reply_resolution.plots import Figure
from reply_resolution.plots.power import both_analyses, power_curves
from reply_resolution.stats.binary import RateDifference
from reply_resolution.stats.collapse import Analysis
from reply_resolution.stats.power import AnalysisPlan

_ASSUME = {
    "shift": "every level shifts a little",
    "cut": "replies only cross the cut",
    "noise": "levels are noise within a class",
}
_UNITS = {
    "users": "users are the units: a user's replies all went to one arm",
    "replies": "replies are the units: the table names no users",
    "pairs": "pairs are the units: both arms answered the same requests",
}
_OTHER = {"ordinal": "binary", "binary": "ordinal"}


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
    advice = {n.advice for n in check.needed if n.advice}
    hinge = (
        "The other two assumptions lead to the same advice."
        if len(advice) == 1 and len(check.curves) == 3
        else "This hangs on the assumption: see below what the others would advise."
    )
    nodes = [
        element("p", element("strong", head)),
        element("p", f"{result.reason} {hinge}"),
        element("p", planned_sentence(check)),
    ]
    if check.planned != result.recommended:
        nodes.append(
            element(
                "p",
                f"The plan named the {check.planned} analysis, and for this experiment "
                f"that stands; take the advice for the next one.",
            )
        )
    return html(*nodes)


def planned_sentence(check: CollapseCheck) -> str:
    """What the planned analysis found, and that the other one does not decide."""
    one = getattr(check.result, check.planned)
    other = getattr(check.result, _OTHER[check.planned])
    return (
        f"Planned was the {check.planned} analysis: "
        f"{_found(check, one, check.planned)}. Beside it, deciding nothing, the "
        f"{_OTHER[check.planned]} analysis: "
        f"{_found(check, other, _OTHER[check.planned])}."
    )


def _found(check: CollapseCheck, one: Analysis, which: str) -> str:
    r = check.result
    scale, digits, unit = (1, 2, "points") if which == "ordinal" else (100, 1, "")
    size = number(abs(scale * one.estimate), digits)
    if which == "ordinal":
        direction = "higher" if one.estimate > 0 else "lower"
        words = f"{r.treatment} scores {size} {unit} {direction} than {r.control}"
        if one.estimate == 0:
            words = f"{r.treatment} and {r.control} score the same"
    else:
        direction = "more" if one.estimate > 0 else "fewer"
        words = f"{r.treatment} resolves {size} percentage points {direction}"
        if one.estimate == 0:
            words = f"{r.treatment} and {r.control} resolve the same share"
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
        ("Unit", f"{_UNITS[check.unit]} ({count(check.units)})"),
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
    rows = [
        {
            "cut": f"{c.cut} or more",
            "both": count(c.both),
            "judge": count(c.judge_only),
            "people": count(c.people_only),
            "neither": count(c.neither),
            "tpr": percent(c.sensitivity),
            "tnr": percent(c.specificity),
        }
        for c in check.cuts
    ]
    return table(
        rows,
        headers={
            "cut": "Resolved is",
            "both": "Both",
            "judge": "Judge only",
            "people": "People only",
            "neither": "Neither",
            "tpr": "TPR",
            "tnr": "TNR",
        },
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
            rows.append({"a": _ASSUME[need.assume], "o": need.why_not})
            continue
        a, b = need.ordinal.n_per_arm, need.binary.n_per_arm
        rows.append(
            {
                "a": _ASSUME[need.assume]
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
        caption=f"{_per_arm(check)} for an 80% chance to find "
        f"{number(check.result.effect)} points "
        f"({number(100 * check.result.effect, 0)} replies in 100 moved up one level).",
    )


def _per_arm(check: CollapseCheck) -> str:
    return "Pairs" if check.unit == "pairs" else "Replies per arm"


def _replies(one: AnalysisPlan, weekly: float | None) -> str:
    if one.n_per_arm is None:
        return "no number is enough"
    time = weeks(one.n_per_arm, weekly)
    unit = "week" if time == 1 else "weeks"
    return count(one.n_per_arm) + (f" ({count(time)} {unit})" if time else "")


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
    own = users_difference(check)
    rows = [_rate_row(f"{check.unit} as units (the design)", own)]
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
    method = f"{d.method.split(',')[0]}, {d.pvalue_method.split(',')[0]}"
    return {
        "a": f"{name} ({method})",
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
    words = planned_sentence(check)
    if apart:
        words += (
            " They fall on different sides of 0.05. That is no contradiction: the "
            "collapse threw away the moves within a class. It is the very situation in "
            "which choosing afterwards would be cheating."
        )
    return says(words)


def checks_table(check: CollapseCheck) -> Html:
    """Ways in which this page itself could mislead."""
    r = check.result
    advice = {n.advice for n in check.needed if n.advice}
    small = min(r.n_control, r.n_treatment) < 20
    rows = [
        (
            "Cut chosen before the arms were compared",
            "look" if check.cut_by == "looking" else "ok",
            {
                "rubric": "fixed by the rubric",
                "labels": "chosen on labels, arms pooled",
                "looking": "chosen after looking; paid for in the p-value",
            }[check.cut_by],
        ),
        (
            "Advice does not hang on the assumption",
            "ok" if len(advice) == 1 and len(check.curves) == 3 else "look",
            "; ".join(
                f"{_ASSUME[n.assume]}: {n.advice or 'no room for the effect'}"
                for n in check.needed
            ),
        ),
        (
            "Users are the units",
            "ok" if check.unit != "replies" else "look",
            _UNITS[check.unit],
        ),
        _error_row(check),
        _missing_row(check),
        (
            "Enough replies for the intervals",
            "look" if small else "ok",
            f"{count(min(r.n_control, r.n_treatment))} in the smaller arm, at least 20 "
            "needed",
        ),
        (
            "One analysis decides",
            "ok",
            f"{check.planned}, named before the data; the other is shown, not chosen "
            "from",
        ),
    ]
    rows += [("Said by the computation", "look", w) for w in r.warnings]
    return table(
        [
            {"check": a, "status": element("span", status(b), class_=b), "detail": c}
            for a, b, c in rows
        ],
        headers={"check": "Check", "status": "Status", "detail": "What was found"},
    )


def _error_row(check: CollapseCheck) -> tuple[str, str, str]:
    name = "Judge's errors at the cut known"
    if check.errors is None:
        return name, "none", "no labels of both kinds; the size may be understated"
    e = check.errors
    return (
        name,
        "ok" if e.skill > 0.6 else "look",
        f"TPR {percent(e.true_positive_rate)}, TNR {percent(e.true_negative_rate)}: "
        f"the judge's difference is about {percent(e.skill)} of the true one",
    )


def _missing_row(check: CollapseCheck) -> tuple[str, str, str]:
    name = "Scores missing alike in both arms"
    if check.missing is None:
        return name, "none", "no verdict statuses in the table"
    m = check.missing
    shares = ", ".join(f"{a} {percent(s, 1)}" for a, s in m.shares.items())
    return name, "stop" if m.differs else "ok", f"{shares} (p = {pvalue(m.pvalue)})"


def next_steps(check: CollapseCheck) -> Html:
    """What to do, by the advice."""
    r = check.result
    need = next(n for n in check.needed if n.assume == r.assume)
    steps = []
    best = need.ordinal if r.recommended == "ordinal" else need.binary
    if best is not None and best.n_per_arm and best.n_per_arm > check.n:
        steps.append(
            f"For {number(r.effect)} points the {r.recommended} analysis needs "
            f"{count(best.n_per_arm)} {_per_arm(check).lower()}; you have "
            f"{count(check.n)}. Collect {count(best.n_per_arm - check.n)} more, or "
            "accept that only larger effects can be found."
        )
    steps.append(
        f"Write the {r.recommended} analysis and the cut {r.cut} into the plan of the "
        "next experiment before it starts."
        if check.planned != r.recommended
        else f"Keep the {r.recommended} analysis in the plan; do not switch after the "
        "data are seen."
    )
    if check.errors is None:
        steps.append("Label some replies of both arms (01_calibrate_judge).")
    steps.append("Read the decision in 04_experiment_readout; this page makes none.")
    return html(element("ul", *(element("li", s) for s in steps)))


def provenance(check: CollapseCheck, written: Iterable[str] = ()) -> Html:
    """Files, seed, versions, what reading noticed."""
    lines = [f"{name}: sha256 {digest[:12]}" for name, digest in check.sources.items()]
    lines += [f"seed {check.seed}; reply_resolution {__version__}"]
    lines += [f"written: {name}" for name in written]
    lines += list(check.notes)
    items = (element("li", line) for line in lines)
    return html(element("ul", *items, class_="provenance"))


def read_words(check: CollapseCheck) -> Html:
    """What was read and used."""
    r = check.result
    out = sum(n for by in check.counts.excluded.values() for n in by.values())
    return says(
        f"{count(check.counts.rows)} replies read, {count(sum(r.pooled))} with a score "
        f"used, {count(out)} left out; {count(check.labelled)} with labels. "
        f"{check.provenance_note}"
    )

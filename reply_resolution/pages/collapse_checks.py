"""What could be wrong with notebook 3's page, and what to do next."""

from reply_resolution.display import (
    Html,
    count,
    element,
    html,
    number,
    percent,
    pvalue,
    status,
    table,
)
from reply_resolution.pages.collapse_check import CollapseCheck
from reply_resolution.pages.collapse_words import ASSUME, UNITS, per_arm


def checks_table(check: CollapseCheck) -> Html:
    """Ways in which this page itself could mislead."""
    r = check.result
    advice = {n.advice for n in check.needed if n.advice}
    least = min(r.n_control, r.n_treatment)
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
                f"{ASSUME[n.assume]}: {n.advice or 'no room for the effect'}"
                for n in check.needed
            ),
        ),
        (
            "Users are the units",
            "ok" if check.unit != "replies" else "look",
            UNITS[check.unit],
        ),
        _error_row(check),
        _missing_row(check),
        (
            "Enough replies for the intervals",
            "look" if least < 20 else "ok",
            f"{count(least)} in the smaller arm, at least 20 needed",
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
        "ok" if e.skill > 0.8 else "look",
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
            f"{count(best.n_per_arm)} {per_arm(check).lower()}; you have "
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

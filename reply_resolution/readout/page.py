"""The readout as HTML: every word and figure is made from the document alone."""

from collections.abc import Sequence
from functools import lru_cache
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from reply_resolution import display
from reply_resolution.display import Html, element, html
from reply_resolution.readout.evidence import classed, metrics, moved
from reply_resolution.readout.recommendation import (
    JUDGE_ALONE,
    level,
    points,
    points_interval,
)

Document = dict[str, Any]


def answer(document: Document, *, named: bool = True) -> Html:
    """The first screen: kicker, recommendation, effect, the two figures.

    Args:
        document: The readout's document.
        named: Whether the kicker names the experiment (a page has it in its heading).
    """
    said = document["recommendation"]
    banner = element(
        "div",
        element("p", element("strong", said["word"].upper()), f" {said['sentence']}"),
        element("p", element("b", "Next: "), said["action"]),
        element("p", said["caveat"], class_="caveat") if said["caveat"] else None,
        class_=f"verdict rule-{said['rule'].replace('_', '-')}",
    )
    head = [_kicker(document, named=named), banner]
    if not document["readable"]:
        return html(*head)
    treatments = document["treatments"]
    if len(treatments) == 1:
        return html(*head, *_effect_lines(document, treatments[0])) + _figures(document)
    return html(*head) + _effect_table(document) + _figures(document)


def _kicker(document: Document, *, named: bool) -> ET.Element:
    about = document["experiment"]
    counted = " + ".join(display.count(n) for n in about["units"].values())
    parts = [
        "Experiment readout",
        about["name"] if named else None,
        " to ".join(about["dates"]) if about["dates"] else None,
        f"{counted} {about['unit']}",
        f"compared within {about['strata']} strata" if about["strata"] else None,
        "scored by an LLM judge, not by people",
    ]
    return element("p", " · ".join(filter(None, parts)), class_="kicker")


def _deciding(treatment: Document) -> Document:
    found: Document = next(e for e in treatment["effects"] if e["decides"])
    return found


def _sure(effect: Document, *, short: bool = False) -> str:
    """Interval and p-value of an effect, in words."""
    text = points_interval(*effect["ci"])
    if not short:
        text = f"{level(effect['confidence'])} interval {text}"
    if effect["pvalue"] is not None:
        text += f", p {display.pvalue(effect['pvalue'])}"
    return text


def _effect_lines(document: Document, treatment: Document) -> list[ET.Element]:
    name, control = treatment["treatment"], document["experiment"]["control"]
    main = _deciding(treatment)
    judge = next(e for e in treatment["effects"] if e["key"] == "judge")
    origin = (
        f"corrected by people’s labels; the judge alone "
        f"{points(judge['estimate'], sign=True)} ({_sure(judge, short=True)})"
        if main["key"] == "human"
        else JUDGE_ALONE
    )
    lines: list[list[str | ET.Element]] = [
        [
            element("b", f"{points(main['estimate'], sign=True)} points "),
            f"({_sure(main)}), {origin}.",
        ],
        [
            f"A {name} reply scores above a {control} reply "
            + "of its stratum " * bool(document["experiment"]["strata"]),
            element("b", display.percent(treatment["win_probability"])),
            " of the time, ties half "
            f"({_percent_interval(treatment['win_probability_ci'])}; 50% is no "
            "difference).",
        ],
        [f"Resolved (4 or 5): {_resolved(document, treatment)}."],
    ]
    return [element("p", *line, class_="effect") for line in lines]


def _resolved(document: Document, treatment: Document) -> str:
    name, control = treatment["treatment"], document["experiment"]["control"]
    arms = document["arms"]
    text = ", ".join(
        f"{arm} {display.count(round(1000 * arms[arm]['resolved']))}"
        for arm in (control, name)
    )
    text += " of 1,000"
    if treatment["per_1000"] is None:
        return text
    middle, low, high = treatment["per_1000"]
    within = "; within strata " if document["experiment"]["strata"] else ": "
    return f"{text}{within}{_more(middle)} ({_more(low)} to {_more(high)})"


def _more(count: int) -> str:
    return f"{display.count(abs(count))} {'fewer' if count < 0 else 'more'}"


def _percent_interval(ci: Sequence[float] | None, *, sign: bool = False) -> str:
    if ci is None:
        return "no interval"
    return " to ".join(display.percent(v, sign=sign) for v in ci)


def _effect_table(document: Document) -> Html:
    rows = []
    for treatment in document["treatments"]:
        main = _deciding(treatment)
        rows.append(
            {
                "treatment": treatment["treatment"],
                "recommendation": treatment["recommendation"]["word"],
                "points": points(main["estimate"], sign=True),
                "interval": points_interval(*main["ci"]),
                "p": display.pvalue(main["pvalue"]),
                "wins": display.percent(treatment["win_probability"]),
                "resolved": _resolved(document, treatment),
            }
        )
    confidence = _deciding(document["treatments"][0])["confidence"]
    return display.table(
        rows,
        headers={
            "points": "points",
            "interval": f"{level(confidence)} interval",
            "wins": "wins (50% is even)",
            "resolved": "resolved (4 or 5)",
        },
        caption=f"Each treatment against {document['experiment']['control']}; "
        "intervals and p-values hold for all treatments together.",
    )


def _figures(document: Document) -> Html:
    """The two figures of the first screen; drawn once for notebook and page."""
    parts = ("plan", "arms", "treatments", "recommendation")
    needed = {name: document[name] for name in parts}
    return Html(_drawn(json.dumps(needed)))


@lru_cache(maxsize=4)
def _drawn(text: str) -> str:
    document: Document = json.loads(text)
    from reply_resolution.plots.readout import Row, intervals, score_bars

    plan = document["plan"]
    bars = score_bars({a: v["counts"] for a, v in document["arms"].items()})
    treatments = document["treatments"]
    if len(treatments) == 1:
        rows = [
            Row(
                e["name"],
                e["estimate"],
                e["ci"] and e["ci"][0],
                e["ci"] and e["ci"][1],
                absent=display.shorten(e["absent"], 30),
                decides=e["decides"],
                share=e["key"] == "resolved",
            )
            for e in treatments[0]["effects"]
        ]
        name = treatments[0]["treatment"]
    else:
        rows = [
            Row(
                t["treatment"],
                _deciding(t)["estimate"],
                _deciding(t)["ci"][0],
                _deciding(t)["ci"][1],
                decides=t["treatment"] == document["recommendation"]["treatment"],
            )
            for t in treatments
        ]
        name = "each treatment"
    spans = intervals(
        rows,
        worthwhile=plan["worthwhile_gain"],
        harm=plan["harm_limit"],
        treatment=name,
    )
    return f'<div class="pair">{bars._repr_html_()}{spans._repr_html_()}</div>'


def trust(document: Document) -> Html:
    """The table of checks: a mark and a word, the number, its limit."""
    rows = [
        {
            "check": c["title"],
            "status": element("span", display.status(c["status"]), class_=c["status"]),
            "finding": "; ".join(filter(None, [c["text"], c.get("effect_text")])) + ".",
        }
        for c in document["checks"]
    ]
    table = display.table(rows, headers={"finding": "what was found"})
    return classed(table, "checks")


def next_steps(document: Document) -> Html:
    """What to do now, by the recommendation and by every check that is open."""
    steps = [document["recommendation"]["action"]]
    hints = {
        "judge": "Read the disagreements in notebook 1 and improve the rubric.",
        "differential_bias": "Label {labels_per_arm} random replies of each arm and "
        "run this notebook again: the effect is then corrected for whatever the "
        "judge favours.",
        "coverage": "Judge the replies without a score again.",
        "length": "Notebook 2 shows on labelled replies and twins whether the judge "
        "pays for length.",
        "precision": "Notebook 3 says how many replies a decision needs.",
        "empty": "Find out why replies are empty.",
        "looks": "Read once, at the planned size; or plan several looks.",
        "versions": "Keep metric version and judge id in the table of verdicts.",
        "budget": "Raise the cap and judge again: nothing is paid twice.",
    }
    for check in document["checks"]:
        hint = hints.get(check["key"])
        if check["status"] in ("look", "none") and hint:
            steps.append(f"{check['title']}: {hint.format(**document['plan'])}")
    steps = list(dict.fromkeys(steps))
    return html(element("ul", *(element("li", step) for step in steps)))


def provenance(document: Document) -> Html:
    """Versions, hashes, packages, and what must be said of demonstration data."""
    about = document.get("provenance")
    nodes = []
    note = document["experiment"]["provenance_note"]
    if note:
        nodes.append(element("p", note, class_="small"))
    if about is None:
        return html(*nodes)
    from reply_resolution.readout.checks import short

    def listed(values: Sequence[str]) -> str:
        return ", ".join(short(v) for v in values) or "not recorded"

    parts = [
        f"metric version {listed(about['metric_version'])}",
        f"judge {listed(about['judge_id'])}",
        f"model {listed(about['model'])}",
        f"model that answered {listed(about['model_returned'])}",
        *(f"{name} sha256 {h[:12]}" for name, h in about["sources"].items()),
        f"scores sha256 {about['scores_sha256'][:12]}",
        f"plan sha256 {about['plan_sha256'][:12]}"
        + (
            f" (written {document['plan']['written']})"
            if document["plan"]["written"]
            else ""
        ),
        f"seed {about['seed']}",
        about["notebook"],
        " ".join(f"{name} {v}" for name, v in about["packages"].items()),
        element("time", document["generated_at"], datetime=document["generated_at"]),
    ]
    line: list[str | ET.Element] = []
    for part in filter(None, parts):
        line += [" | ", part] if line else [part]
    nodes.append(element("p", *line, class_="provenance"))
    return html(*nodes)


def details(document: Document) -> Html:
    """The second page (see `details`)."""
    from reply_resolution.readout.details import details as second

    return second(document)


def page(document: Document) -> str:
    """The whole readout as one page: no scripts, no network, light, dark and print."""
    style = (Path(__file__).parents[1] / "report_template" / "style.css").read_text(
        "utf-8"
    )
    name = document["experiment"]["name"]
    title = ET.tostring(
        element("title", f"{name}: experiment readout"), encoding="unicode"
    )
    heading = ET.tostring(element("h1", name, class_="compact"), encoding="unicode")
    parts: list[tuple[str, Html]] = [
        ("", answer(document, named=False)),
        ("Can we trust it?", trust(document)),
        ("What moved", moved(document)),
        ("", metrics(document)),
        ("What to do next", next_steps(document)),
        ("Provenance", provenance(document)),
    ]
    body = "\n".join(
        (f"<h2>{title}</h2>\n" if title else "") + str(part)
        for title, part in parts
        if part.markup
    )
    body += f'\n<h2 class="page-break">Details</h2>\n{details(document)}'
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"{title}\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"{heading}\n{body}\n</main>\n</body>\n</html>\n"
    )

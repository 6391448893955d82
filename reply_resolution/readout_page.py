"""The readout as HTML: every word and figure is made from the document alone."""

from collections.abc import Sequence
from functools import lru_cache
import json
from pathlib import Path
import re
from typing import Any
from xml.etree import ElementTree as ET

from reply_resolution import display
from reply_resolution.display import Html, element, html
from reply_resolution.plots import Figure
from reply_resolution.recommendation import JUDGE_ALONE, level, points, points_interval

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
            f"A {name} reply scores above a {control} reply ",
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
    return f"{text}: {_more(middle)} ({_more(low)} to {_more(high)})"


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
    return f'<div class="pair">{_svg(bars, "bars")}{_svg(spans, "spans")}</div>'


def _svg(figure: Figure, prefix: str) -> str:
    """A figure whose ids cannot collide with another figure's on the page."""
    markup = figure._repr_html_()
    markup = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', markup)
    return re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", markup)


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
    return _classed(table, "checks")


def _classed(table: Html, name: str) -> Html:
    return Html(table.markup.replace("<table>", f'<table class="{name}">', 1))


def moved(document: Document) -> Html:
    """Replies word for word, and the judge's own words that tell the arms apart."""
    if not document["readable"]:
        return Html("")
    out = Html("")
    for treatment in document["treatments"]:
        several = len(document["treatments"]) > 1
        if several:
            out += html(element("h3", treatment["treatment"]))
        if treatment["examples"] is not None:
            out += _examples(treatment)
        if treatment["themes"] is not None:
            out += _themes(document, treatment)
    return out


def _examples(treatment: Document) -> Html:
    found = treatment["examples"]
    note = found["rule"] + " Reasons are the judge’s own words."
    if found["read"] < found["of"]:
        note += (
            f" Read on a seeded draw of {display.count(found['read'])} of "
            f"{display.count(found['of'])} scored replies."
        )
    nodes = [element("p", note, class_="small")]
    pairs: dict[int | None, list[Document]] = {}
    for example in found["drawn"]:
        pairs.setdefault(example["pair"], []).append(example)
    for pair, group in pairs.items():
        if pair is None:
            nodes += [_quote(e) for e in group]
        else:
            nodes.append(element("div", *(_quote(e) for e in group), class_="pair"))
    return html(*nodes)


def _quote(example: Document) -> ET.Element:
    key = _anchor(example["request_id"], example["arm"])
    cut = any(len(example[f].strip()) > 280 for f in ("request", "reply"))
    return element(
        "blockquote",
        element(
            "p",
            element("b", f"{example['arm']}, scored {example['score']}"),
            f" ({example['why']})",
        ),
        element("p", "User: ", display.shorten(example["request"]), class_="quote"),
        element("p", "Reply: ", display.shorten(example["reply"]), class_="quote"),
        element("p", element("i", f"Judge: “{display.shorten(example['reason'])}”")),
        element("p", element("a", "full text", href=f"#{key}"), class_="small")
        if cut
        else None,
    )


def _anchor(request_id: str, arm: str) -> str:
    return "reply-" + re.sub(r"[^A-Za-z0-9]+", "-", f"{request_id}-{arm}")


def _themes(document: Document, treatment: Document) -> Html:
    found = treatment["themes"]
    control, name = document["experiment"]["control"], treatment["treatment"]
    rows = [
        {
            "theme": f"“{t['term']}”",
            control: f"{display.count(t['control'])} "
            f"({display.percent(t['control_share'])})",
            name: f"{display.count(t['treatment'])} "
            f"({display.percent(t['treatment_share'])})",
            "score": display.number(t["mean_score"], 1),
            "moves": points(t["contribution"], sign=True),
            "chance": display.pvalue(t["pvalue"]),
            "replies": element("span", *_links(t["replies"])),
        }
        for t in (*found["against"], *found["favour"])
    ]
    if not rows:
        return Html("")
    scope = f"{display.count(found['reasons'])} reasons"
    if found["reasons"] < found["of"]:
        scope += f", a seeded draw of {display.count(found['of'])}"
    table = display.table(
        rows,
        headers={
            "score": "mean score where it occurs",
            "moves": "points it goes along with",
            "chance": "p, for having searched",
            "replies": "read them",
        },
        caption="Words of the judge’s reasons that are more frequent in one arm "
        f"({scope}, {display.count(found['terms'])} terms compared by "
        f"{found['shuffles']} shuffles of the arms). A description that tells you "
        "where to read, not a test: a p above 0.05 is what chance gives.",
    )
    return html(element("h3", "Themes in the reasons")) + _classed(table, "themes")


def _links(replies: Sequence[Sequence[str]]) -> list[str | ET.Element]:
    out: list[str | ET.Element] = []
    for request_id, arm in replies:
        if out:
            out.append(", ")
        out.append(element("a", request_id, href=f"#{_anchor(request_id, arm)}"))
    return out


def metrics(document: Document) -> Html:
    """Guardrails and secondary metrics, and the planned segments."""
    if not document["readable"]:
        return Html("")
    control = document["experiment"]["control"]
    out = Html("")
    for treatment in document["treatments"]:
        name = treatment["treatment"]
        title = f" ({name})" if len(document["treatments"]) > 1 else ""
        if treatment["metrics"]:
            rows = [_metric_row(m, control, name) for m in treatment["metrics"]]
            out += html(element("h3", f"Guardrails and other metrics{title}"))
            out += _classed(display.table(rows), "metrics")
        if treatment["segments"]:
            rows = [_segment_row(s) for s in treatment["segments"]]
            out += html(element("h3", f"Planned segments{title}"))
            out += display.table(
                rows,
                headers={"n": f"replies ({control} + {name})"},
                caption="The judge’s effect; p after Holm’s correction over all "
                "segments. Differences between segments are not tested.",
            )
    return out


def _metric_row(metric: Document, control: str, treatment: str) -> dict[str, Any]:
    from reply_resolution.metrics import show_value

    def show(value: float | None, *, sign: bool = False) -> str:
        return show_value(
            value, metric["kind"], metric["unit"], metric["digits"], sign=sign
        )

    if metric["guardrail"]:
        status = {True: "ok", False: "look", None: "none"}[metric["within"]]
        limit = metric["margin"] * (1 if metric["better"] == "lower" else -1)
        words = {
            "ok": "✓ within",
            "look": "! not within",
            "none": "– not measured,",
        }[status]
        verdict = element("span", f"{words} {show(limit, sign=True)}", class_=status)
    else:
        verdict = element("span", "shown only", class_="none")
    return {
        "metric": metric["name"]
        + (f": {metric['absent']}" if metric["absent"] else ""),
        control: show(metric["control"]),
        treatment: show(metric["treatment"]),
        "difference": show(metric["difference"], sign=True),
        "interval": "–"
        if metric["ci"] is None
        else " to ".join(show(v, sign=True) for v in metric["ci"]),
        "p (Holm)": display.pvalue(metric["pvalue_adjusted"]),
        "margin": verdict,
    }


def _segment_row(segment: Document) -> dict[str, Any]:
    absent = segment.get("absent")
    return {
        "segment": f"{segment['column']}: {segment['value']}",
        "n": " + ".join(display.count(n) for n in segment.get("replies", [])) or "–",
        "points": absent or points(segment["estimate"], sign=True),
        "interval": "–" if absent else points_interval(*segment["ci"]),
        "p (Holm)": display.pvalue(segment.get("pvalue_adjusted")),
    }


def next_steps(document: Document) -> Html:
    """What to do now, by the recommendation and by every check that is open."""
    steps = [document["recommendation"]["action"]]
    hints = {
        "judge": "Read the disagreements in notebook 1 and improve the rubric.",
        "differential_bias": "Label {labels_per_arm} random replies of each arm and "
        "run this notebook again: the effect is then corrected for whatever the "
        "judge favours.",
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
    from reply_resolution.checks import short

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
    """The second page (see `readout_details`)."""
    from reply_resolution.readout_details import details as second

    return second(document)


def page(document: Document) -> str:
    """The whole readout as one page: no scripts, no network, light, dark and print."""
    style = (Path(__file__).parent / "report_template" / "style.css").read_text("utf-8")
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

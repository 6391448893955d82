"""The readout's evidence as HTML: replies, themes, metrics, segments."""

from collections.abc import Sequence
import hashlib
import json
from typing import Any
from xml.etree import ElementTree as ET

from reply_resolution import display
from reply_resolution.display import Html, element, html
from reply_resolution.readout.recommendation import points, points_interval

Document = dict[str, Any]


def classed(table: Html, name: str) -> Html:
    """A table with a class for the style sheet."""
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
    key = anchor(example["request_id"], example["arm"])
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


def anchor(request_id: str, arm: str) -> str:
    """The id under which a reply stands in full on the second page."""
    named = json.dumps([request_id, arm])
    return "reply-" + hashlib.sha256(named.encode()).hexdigest()[:16]


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
    return html(element("h3", "Themes in the reasons")) + classed(table, "themes")


def _links(replies: Sequence[Sequence[str]]) -> list[str | ET.Element]:
    out: list[str | ET.Element] = []
    for request_id, arm in replies:
        if out:
            out.append(", ")
        out.append(element("a", request_id, href=f"#{anchor(request_id, arm)}"))
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
            out += classed(display.table(rows), "metrics")
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
    from reply_resolution.readout.metric_effect import show_value

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

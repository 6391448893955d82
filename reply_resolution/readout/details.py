"""The readout's second page: methods, full texts, the plan, the words."""

from functools import lru_cache
import json
from typing import Any

from reply_resolution import display
from reply_resolution.display import Html, element, html
from reply_resolution.readout.evidence import anchor
from reply_resolution.readout.recommendation import points, points_interval

Document = dict[str, Any]

_TESTS = {
    "exact": "p exact, by permutation",
    "monte_carlo": "p by drawn permutations",
    "t": "p of the same t",
}
_WORDS = {
    "points": "Difference in mean score, treatment minus control, on the scale 1 to 5.",
    "resolved": "A score of 4 or 5: the main request is settled, or was correctly "
    "handed to a person.",
    "win probability": "How often a random treatment reply scores above a random "
    "control reply, ties counted half (for pairs: the share of pairs). 50% is no "
    "difference.",
    "interval": "Values of the true difference that fit the data. An interval of 95% "
    "misses the truth in 1 experiment of 20.",
    "p": "How often chance alone gives a difference at least as large. It is not the "
    "probability that there is no difference.",
    "pp": "Percentage points: the difference of two rates.",
    "confidence sequence": "An interval that holds at every look, however often the "
    "data are read; wider than one that is read once.",
    "human-corrected": "The judge’s difference, corrected in each arm by replies that "
    "people labelled (PPI++). Right also where the judge favours an arm.",
    "length-corrected": "The judge’s difference minus what the judge pays for length; "
    "what length earns with people stays in.",
    "weighted kappa": "Agreement of judge and people, quadratic weights: 1 is perfect, "
    "0 is what chance gives.",
    "worthwhile gain": "The smallest gain that the plan calls worth a release.",
}


def details(document: Document) -> Html:
    """All estimates with their methods, looks, texts in full, plan and definitions."""
    out = Html("")
    if document["readable"]:
        out += _scores(document)
        for treatment in document["treatments"]:
            out += _estimates(document, treatment)
            out += _looks(document, treatment)
        out += _texts(document)
    out += _plan(document)
    about = document.get("provenance") or {}
    if about.get("wording"):
        out += html(
            element("h3", "What the judge is told"), element("pre", about["wording"])
        )
    notes = document["experiment"]["notes"]
    if notes:
        out += html(
            element("h3", "What reading the tables noticed"),
            element("ul", *(element("li", n) for n in notes)),
        )
    words = [
        node
        for word, meaning in _WORDS.items()
        for node in (element("dt", word), element("dd", meaning))
    ]
    return out + html(element("h3", "Words"), element("dl", *words))


def _scores(document: Document) -> Html:
    rows = [
        {
            "arm": arm,
            "replies": display.count(v["replies"]),
            **{str(k + 1): display.count(n) for k, n in enumerate(v["counts"])},
            "mean": display.number(v["mean"]),
            "resolved": display.percent(v["resolved"], 1),
        }
        for arm, v in document["arms"].items()
    ]
    return display.table(rows, caption="Replies by score (1 to 5).")


def _estimates(document: Document, treatment: Document) -> Html:
    rows = []
    for e in treatment["effects"]:
        share = e["key"] == "resolved"
        rows.append(
            {
                "estimate of": e["name"] + (" (decides)" if e["decides"] else ""),
                "difference": e["absent"] or _amount(e["estimate"], share=share),
                "interval": "–"
                if e["ci"] is None
                else " to ".join(_amount(v, share=share) for v in e["ci"]),
                "p": display.pvalue(e["pvalue"]),
                "how": "; ".join(
                    filter(
                        None,
                        [e["method"], _TESTS.get(e["pvalue_method"], "")],
                    )
                ),
            }
        )
    held = treatment["length_controlled"]
    if held is not None:
        rows.append(
            {
                "estimate of": "At equal length (sensitivity)",
                "difference": _amount(held["estimate"], share=False),
                "interval": "–" if held["ci"] is None else points_interval(*held["ci"]),
                "p": "–",
                "how": "holds if length itself is worth nothing to the user",
            }
        )
    if treatment["odds_ratio"] is not None:
        ci = treatment["odds_ratio_ci"]
        rows.append(
            {
                "estimate of": "Odds ratio of a higher score",
                "difference": display.number(treatment["odds_ratio"]),
                "interval": "–" if ci is None else display.interval(*ci),
                "p": "–",
                "how": "proportional odds; 1 is no difference",
            }
        )
    rows.extend(
        {
            "estimate of": f"Share of scores of {c['cut']} or more",
            "difference": _amount(c["difference"], share=True),
            "interval": "–",
            "p": display.pvalue(c["pvalue_adjusted"]),
            "how": "p corrected for all cuts",
        }
        for c in treatment["cuts"]
    )
    control = document["experiment"]["control"]
    table = display.table(
        rows,
        caption=f"{treatment['treatment']} minus {control}: every estimate and how it "
        "was computed.",
    )
    tip = treatment["tipping_sentence"]
    return table + (html(element("p", tip, class_="small")) if tip else Html(""))


def _amount(value: float, *, share: bool) -> str:
    if share:
        return f"{display.number(100 * value, 1, sign=True)} pp"
    return points(value, sign=True)


def _looks(document: Document, treatment: Document) -> Html:
    looks = treatment["looks"]
    if len(looks) < 2:
        return Html("")
    plan = document["plan"]
    limits = (plan["worthwhile_gain"], plan["harm_limit"])
    name = treatment["treatment"]
    return (
        html(
            element("h3", f"How the interval narrowed ({name})"),
            element(
                "p",
                "The judge’s effect on all replies up to each date (and replies so "
                "far), with a confidence sequence: these intervals hold at all dates "
                "together, so they are wider than the one above.",
                class_="small",
            ),
        )
        + Html(_drawn(json.dumps(looks), *limits))
        + display.table(
            [
                {
                    "until": look["until"],
                    "replies": display.count(look["replies"]),
                    "points": points(look["estimate"], sign=True),
                    "confidence sequence": points_interval(*look["ci"]),
                }
                for look in looks
            ]
        )
    )


@lru_cache(maxsize=4)
def _drawn(looks: str, worthwhile: float, harm: float) -> str:
    """The picture of the looks; drawn once for notebook and page."""
    from reply_resolution.plots.readout import looks as draw

    found = json.loads(looks)
    figure = draw(
        [f"{look['until'][5:]}\n{display.count(look['replies'])}" for look in found],
        [look["estimate"] for look in found],
        [look["ci"][0] for look in found],
        [look["ci"][1] for look in found],
        worthwhile=worthwhile,
        harm=harm,
    )
    return figure._repr_html_()


def _texts(document: Document) -> Html:
    whole: dict[str, Document] = {}
    short: dict[str, Document] = {}
    for treatment in document["treatments"]:
        for example in (treatment["examples"] or {"drawn": []})["drawn"]:
            whole[anchor(example["request_id"], example["arm"])] = example
        for reply in (treatment["themes"] or {"replies": []})["replies"]:
            short[anchor(reply["request_id"], reply["arm"])] = reply
    nodes = []
    for key, item in (
        whole | {k: v for k, v in short.items() if k not in whole}
    ).items():
        fields = [("Judge", "reason")]
        if key in whole:
            fields = [("User", "request"), ("Reply", "reply"), *fields]
        nodes.append(
            element(
                "blockquote",
                element(
                    "p",
                    element("b", f"{item['request_id']}, {item['arm']}"),
                    f", scored {item['score']}",
                ),
                *(
                    element("p", f"{word}: {item[name]}", class_="quote")
                    for word, name in fields
                ),
                id=key,
            )
        )
    if not nodes:
        return Html("")
    return html(element("h3", "Replies named above, in full"), *nodes)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _plan(document: Document) -> Html:
    plan = document["plan"]
    shown = {
        "alpha": "error rate",
        "worthwhile_gain": "worthwhile gain, points",
        "harm_limit": "harm limit, points",
        "planned_replies": "planned replies per arm",
        "planned_looks": "planned looks",
        "agreement_floor": "floor of weighted kappa",
        "coverage_floor": "floor of coverage",
        "minimum_units": "least units per arm",
        "labels_per_arm": "labels per arm for the correction",
        "bias_margin": "margin of favour, points",
        "sample_ratio_alpha": "limit of the sample ratio’s p",
        "missing_alpha": "limit of the missing scores’ p",
        "accept_unchecked_judge": "accepts an unchecked judge",
    }
    rows = [{"plan": word, "value": _plain(plan[name])} for name, word in shown.items()]
    return html(element("h3", "The plan, fixed before the data")) + display.table(rows)

"""The calibration as a page: its tables, figures and sentences, in reading order."""

from typing import Any

import polars as pl

from reply_resolution.calibration.rules import span
from reply_resolution.calibration.study import Study
from reply_resolution.display import (
    Html,
    count,
    element,
    html,
    number,
    percent,
    shorten,
    status,
    table,
)
from reply_resolution.judge.probes import load_probes
from reply_resolution.labeling.explore import browse_static
from reply_resolution.plots import Figure
from reply_resolution.plots.calibration import (
    agreement_axis,
    bias_by_level,
    confusion_map,
)
from reply_resolution.stats.agreement import Agreement
from reply_resolution.stats.agreement_parts import Estimate


def read_words(study: Study) -> Html:
    """What was read and used, in a sentence."""
    people = ", ".join(
        f"{name} {count(found.n)}" for name, found in study.by_person.items()
    )
    none = "hidden while you label" if study.waiting else "none yet"
    scored = study.data.replies["score"].count()
    words = (
        f"{count(study.data.replies.height)} replies, {count(scored)} of them scored; "
        f"labelled and scored: {people or none}. "
    )
    return says(words + study.data.provenance_note)


def answer(study: Study) -> Html:
    """The verdict on the judge, and on the second one, each with its reasons."""
    if study.waiting:
        return says(study.waiting)
    if study.calibration is None:
        return says(f"No verdict: {study.problem}. Label some replies first.")
    parts = _verdict(study.name, study.calibration)
    if study.other is not None:
        parts += _verdict(study.other_name, study.other)
    return parts


def _verdict(name: str, calibration: Any) -> Html:  # noqa: ANN401
    mark = {"not fit": "stop", "fit with correction": "look"}.get(
        calibration.verdict, "ok"
    )
    items = [
        element("li", f"{reason}.", *((f" To change it: {change}.",) if change else ()))
        for reason, change in zip(calibration.reasons, calibration.changes, strict=True)
    ]
    verdict = calibration.verdict
    if calibration.pending:
        mark, verdict = "look", "not settled yet, too few labels"
    head = element(
        "p",
        status(mark),
        " ",
        element("strong", f"{name}: {verdict}."),
        f" Weighted kappa with people {span(calibration.kappa)} on "
        f"{count(calibration.n)} replies labelled by {_people(calibration)}; floor "
        f"{number(calibration.rules.kappa_floor)}.",
    )
    if not calibration.reasons:  # fit: what it does not say
        items += _open_checks(calibration)
    if calibration.pending:  # how far a first look may be trusted
        items += [element("li", warning) for warning in calibration.warnings]
    return html(head, *([element("ul", *items)] if items else []))


def _people(calibration: Any) -> str:  # noqa: ANN401
    names = list(calibration.details.get("annotators") or {})
    return ", ".join(names) or "people"


def _open_checks(calibration: Any) -> list[Any]:  # noqa: ANN401
    """What is not measured, and what deserves a look, although the judge is fit."""
    looks = [c for c in calibration.checks if c.mark == "look"]
    items = [element("li", f"To look at: {c.title}: {c.text}.") for c in looks]
    for check in calibration.checks:
        if check.mark == "none":
            more = f" To measure it: {check.change}." if check.change else ""
            items.append(element("li", f"Not measured: {check.title}.{more}"))
    return items


def worked_examples(study: Study) -> Html:
    """The rubric's two worked examples, and what the judge made of them."""
    probes = [p for p in load_probes() if "worked example" in p.why][:2]
    found = (
        {o.check_id: o for o in study.card.outcomes} if study.card is not None else {}
    )
    rows = []
    for probe in probes:
        outcome = found.get(probe.probe_id)
        rows.append(
            {
                "reply": shorten(probe.reply, 280),
                "expected": probe.expected,
                "judge": outcome.got if outcome else None,
                "why": shorten(outcome.reason if outcome else probe.why, 200),
            }
        )
    headers = {
        "reply": "Reply",
        "expected": "Right score",
        "judge": "This judge",
        "why": "The judge's reason",
    }
    return table(
        rows, headers=headers, caption="The two worked examples", row_header=False
    )


def confusion(study: Study) -> Figure | Html:
    """Confusion tables as a figure, or why there is none."""
    if not any(a.confusion for a in study.by_person.values()):
        return no_labels(study)
    return confusion_map(study.by_person, judge="judge")


def level_bias(study: Study) -> Figure | Html:
    """Bias by level as a figure, or why there is none."""
    if not any(a.level_bias for a in study.by_person.values()):
        return no_labels(study)
    return bias_by_level(study.by_person)


def kappas(study: Study) -> Figure | Html:
    """Every weighted kappa on one axis."""
    if study.waiting:
        return no_labels(study)
    rows: dict[str, Estimate] = {
        f"judge with {name}": a.weighted_kappa for name, a in study.by_person.items()
    }
    people = []
    if study.calibration is not None and len(rows) > 1:
        rows[f"judge with their {study.rules.consensus}"] = study.calibration.kappa
    if study.people is not None:
        for pair, found in study.people.pairs.items():
            name = " with ".join(pair.split("|"))
            rows[name] = found.weighted_kappa
            people.append(name)
    if study.steady is not None and study.steady.agreement is not None:
        rows["judge with itself"] = study.steady.agreement.weighted_kappa
    if study.other is not None:
        rows[f"{study.other_name} with people"] = study.other.kappa
    if not any(e.estimate is not None for e in rows.values()):
        return no_labels(study)
    return agreement_axis(rows, floor=study.rules.kappa_floor, people=people)


_MEASURES = {
    "exact": "Equal",
    "adjacent": "Within one",
    "weighted_kappa": "Weighted kappa",
    "krippendorff_alpha": "Krippendorff's alpha",
    "gwet_ac2": "Gwet's AC2",
    "kendall_tau_b": "Kendall's tau-b",
    "bias": "Bias, points",
}


def numbers_table(study: Study) -> Html:
    """All coefficients, judge with people and people among themselves."""
    columns = {f"judge, {name}": a for name, a in study.by_person.items()}
    if study.people is not None:
        columns |= {
            " and ".join(pair.split("|")): a for pair, a in study.people.pairs.items()
        }
    if not columns:
        return no_labels(study)
    rows: list[dict[str, str]] = [
        {"measure": "Replies", **{k: count(a.n) for k, a in columns.items()}}
    ]
    for measure, title in _MEASURES.items():
        row = {"measure": title}
        for name, found in columns.items():
            row[name] = _cell(measure, getattr(found, measure))
        rows.append(row)
    return table(rows, headers={"measure": ""}, caption="Agreement, 95% intervals")


def _cell(measure: str, found: Estimate) -> str:
    if found.estimate is None:
        return "undefined"
    if measure in ("exact", "adjacent"):
        text = percent(found.estimate)
        return f"{text} ({percent(found.low)} to {percent(found.high)})"
    return span(found, sign=measure == "bias")


def disagreements(study: Study, *, rows: int = 6) -> Html:
    """The replies on which judge and people differ most, largest first."""
    labels = [c for c in study.frame.columns if c.startswith("label_")]
    if not labels:
        return no_labels(study)
    return browse_static(labelled(study), rows=rows)


def labelled(study: Study) -> pl.DataFrame:
    """The replies that somebody labelled; the others may still have to be, blind."""
    labels = [c for c in study.frame.columns if c.startswith("label_")]
    return study.frame.filter(
        pl.any_horizontal(pl.col(c).is_not_null() for c in labels)
        if labels
        else pl.lit(False)
    )


def segments_table(study: Study) -> Html:
    """Agreement with the consensus within arms, segments and bands of length."""
    rows = [
        _segment_row(f"{column}: {value}", found)
        for column, values in study.within.items()
        for value, found in values.items()
        if found is not None
    ]
    few = [
        f"{value}"
        for values in study.within.values()
        for value, found in values.items()
        if found is None
    ]
    if study.labels.is_empty():
        return no_labels(study)
    if not rows:
        return says("Nowhere are there enough labels to look within.")
    headers = {
        "segment": "",
        "n": "Replies",
        "kappa": "Weighted kappa",
        "bias": "Judge minus people, points",
    }
    shown = table(rows, headers=headers, caption="Agreement with the consensus within")
    note = f"Too few labels to say anything: {', '.join(few)}." if few else ""
    return shown + says(note) if note else shown


def _segment_row(name: str, found: Agreement) -> dict[str, str]:
    return {
        "segment": name,
        "n": count(found.n),
        "kappa": span(found.concordance),
        "bias": span(found.bias, sign=True),
    }


def steady_words(study: Study) -> Html:
    """Second votes and hidden repeats, in sentences."""
    words = []
    if study.steady is None:
        words.append(
            "No reply was judged twice: how steady the judge is, is not known."
        )
    else:
        s = study.steady
        words.append(
            f"The judge scored {count(s.n_items)} replies twice: "
            f"{percent(s.flip_rate.estimate, 1)} of the second votes differ "
            f"({percent(s.flip_rate.low, 1)} to {percent(s.flip_rate.high, 1)}), and "
            f"{percent(s.cut_flip_rate.estimate, 1)} change between resolved and not."
        )
    if study.repeats is not None:
        r = study.repeats
        words.append(
            f"People met {count(r.n_items)} replies twice without being told: "
            f"{percent(r.flip_rate.estimate)} of those labels differ."
        )
    return says(" ".join(words))


def alternative_words(study: Study) -> Html:
    """The alternative-annotator test, or why it does not apply."""
    found = study.alternative
    if found is None:
        return no_labels(study)
    if not found.applies:
        return says(found.reason)
    n = min(one.n_items for one in found.annotators)
    if n < study.rules.min_labels:
        return says(
            f"Whether the judge may stand in for a person is not settled: "
            f"{count(n)} replies that the others labelled too; "
            f"{count(study.rules.min_labels)} are asked for."
        )
    may = "may" if found.passed else "may not"
    return says(
        f"On {count(n)} replies or more that several people labelled, leaving one of "
        "them out at a time: the judge is as close to the others for "
        f"{percent(found.winning_rate)} of them (the test asks for 50%): it {may} "
        "stand in for a person. On a typical reply it is at least as close as a person "
        f"with probability {number(found.advantage)}."
    )


def comparison_words(study: Study) -> Html:
    """The second judge against this one, on the same labels."""
    found = study.comparison
    if study.labels.is_empty():
        return no_labels(study)
    if found is None:
        return says("No second judge was given.")
    difference = found.kappa_difference
    better = {
        "first": f"{study.name} agrees better with people",
        "second": f"{study.other_name} agrees better with people",
        "": "which of the two agrees better is not shown",
    }[found.better]
    return says(
        f"On the {count(found.n)} replies both scored, {study.other_name} differs from "
        f"{study.name} in {percent(found.changed)}. Weighted kappa: {study.name} "
        f"{number(found.kappa_first)}, {study.other_name} "
        f"{number(found.kappa_second)}, difference {span(difference, sign=True)}: "
        f"{better}."
    )


def checks_table(study: Study) -> Html:
    """Every check of the verdict, measured or not."""
    if study.calibration is None:
        return no_labels(study)
    return study.calibration.checks_table(f"The checks of {study.name}")


def provenance_list(study: Study, *lines: str) -> Html:
    """Files, notes and versions, one line each."""
    files = [
        f"{name}: sha256 {digest[:12]}" for name, digest in study.data.sources.items()
    ]
    found = study.calibration
    names = []
    if found is not None:
        names.append(
            f"metric version {found.metric_version or 'not recorded'}, judge "
            f"{(found.judge_id or 'not recorded')[:12]}"
        )
    items = (element("li", line) for line in (*files, *names, *lines, *study.notes))
    return html(element("ul", *items, class_="provenance"))


def no_labels(study: Study) -> Html:
    """Why there is nothing to show."""
    return says("Hidden while you label." if study.waiting else "No labels yet.")


def says(words: str) -> Html:
    """A paragraph."""
    return html(element("p", words.strip()))

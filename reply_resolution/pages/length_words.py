"""The length check as a page: its tables, figures and sentences, in reading order."""

import xml.etree.ElementTree as ET

import polars as pl

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
from reply_resolution.pages.length_check import LengthCheck
from reply_resolution.plots import Figure
from reply_resolution.plots.length import (
    bias_line,
    bin_means,
    effect_rows,
    twin_changes,
)
from reply_resolution.stats.length import LengthBias
from reply_resolution.stats.lengths import length_bins, lengths_by

_NO_LABELS = "Not measured: no reply has both a judge's score and a label."


def read_words(check: LengthCheck) -> Html:
    """What was read and used, in a sentence."""
    scored = check.labelled["score"].count()
    used = check.bias.n if check.bias else 0
    words = (
        f"{count(check.labelled.height)} replies, {count(scored)} of them scored by "
        f"the judge, {count(used)} with a label as well; "
        f"{count(sum(t.n for t in check.twins))} twins judged beside their originals"
    )
    if check.experiment is not None:
        words += f"; {count(check.experiment.height)} replies of an experiment"
    return _says(f"{words}. {check.provenance_note}".strip())


def described_figure(check: LengthCheck) -> Figure | Html:
    """Judge and people in four bins of length."""
    if check.bias is None or check.bias.n < 8:
        return _says(_NO_LABELS if check.bias is None else "Too few labels for bins.")
    return bin_means(length_bins(check.labelled))


def described_words(check: LengthCheck) -> Html:
    """The rank correlations in a sentence."""
    bias = check.bias
    if bias is None:
        return _says(_NO_LABELS)
    return _says(
        f"Rank correlation with length: judge {number(bias.judge_length_spearman)}, "
        f"people {number(bias.label_length_spearman)}. Judge and length with the label "
        f"held fixed: {number(bias.partial_spearman)} (p = "
        f"{pvalue(bias.partial_pvalue)}). These describe, and accuse nobody: a fair "
        "judge can show any of them where length is merited."
    )


def level_table(check: LengthCheck) -> Html:
    """Typical length at each level, as the judge and as people gave it."""
    people = [c for c in check.labelled.columns if c.startswith("label_")]
    pooled = [check.labelled.select("reply", level=c).drop_nulls() for c in people]
    judged = check.labelled.select("reply", level="score")
    sides = [
        {row["level"]: row for row in lengths_by(part, "level").iter_rows(named=True)}
        for part in (judged, pl.concat(pooled) if pooled else judged.clear())
    ]
    rows = []
    for level in sorted({*sides[0], *sides[1]}):
        cells = {"level": str(level)}
        for side, name, pad in ((0, "judge: replies", ""), (1, "people: labels", " ")):
            row = sides[side].get(level, {"replies": 0})
            cells[name] = str(row["replies"])
            for what in ("characters", "words"):
                cells[what + pad] = number(row.get(what), 0)
        rows.append(cells)
    return table(rows, caption="Typical length (median) at each level")


def arm_table(check: LengthCheck) -> Html:
    """Typical length and mean score of each arm of the experiment."""
    if check.experiment is None:
        return _says("No experiment was given.")
    rows = [
        {
            "arm": row["arm"],
            "replies": str(row["replies"]),
            "typical length": f"{number(row['characters'], 0)} characters, "
            f"{number(row['words'], 0)} words",
            "middle half": row["middle_half"],
            "judge's mean score": number(row["mean_score"]),
        }
        for row in lengths_by(check.experiment, "arm", score="score").iter_rows(
            named=True
        )
    ]
    return table(rows, caption="The arms of the experiment")


def tested_figure(check: LengthCheck) -> Figure | Html:
    """Judge minus label against length."""
    if check.bias is None or check.bias.points_per_doubling is None:
        return _says(_NO_LABELS)
    return bias_line(check.labelled, check.bias)


def tested_words(check: LengthCheck) -> Html:
    """The bias with its interval, in a sentence."""
    bias = check.bias
    if bias is None or bias.ci is None:
        return _says(" ".join(bias.warnings) if bias else _NO_LABELS)
    scale = (
        "Judge and labels were standardised first, because their scales differ; "
        "unequal noise in the two can then imitate a bias."
        if bias.standardised
        else "Judge and labels are on one scale, so these are score points."
    )
    slope = number(bias.points_per_doubling, sign=True)
    return _says(
        element("strong", f"{slope} {_unit(bias)} per doubling of length"),
        f" ({percent(bias.confidence)} interval {_interval(bias.ci)}; "
        f"p = {pvalue(bias.pvalue)}; {count(bias.n)} replies). {scale}",
    )


def caused_figure(check: LengthCheck) -> Figure | Html:
    """What each change of form does to the score."""
    if not check.twins:
        told = [note for note in check.notes if "twins" in note]
        return _says(" ".join(["Not measured: no twins were judged.", *told]))
    return twin_changes(check.twins, margin=check.verdict.margin)


def caused_table(check: LengthCheck) -> Html:
    """All kinds of twins, one row each."""
    if not check.twins:
        return _says("No twins were judged.")
    rows = [
        {
            "kind": f"{t.kind} ({t.n})",
            "length": f"×{number(2**t.doublings, 1)}",
            "higher": str(t.up),
            "lower": str(t.down),
            "mean change": _points(t.change, t.ci),
            "exact p": pvalue(t.pvalue),
            "per doubling": number(t.points_per_doubling, sign=True),
        }
        for t in check.twins
    ]
    return table(
        rows,
        caption="Twins against originals: kind (pairs), typical length against the "
        "original, twins that scored higher and lower, mean change in points with its "
        "interval",
    )


def consequence_figure(check: LengthCheck) -> Figure | Html:
    """The first treatment's effect: as judged, corrected, at equal length."""
    if not check.effects:
        return _says("No experiment was given.")
    return effect_rows(check.effects[0])


def consequence_words(check: LengthCheck) -> Html:
    """What the bias makes of each treatment's effect, in a sentence."""
    if not check.effects:
        return _says("Name its tables in `experiment` and `experiment_verdicts`.")
    parts = []
    for effect in check.effects:
        longer = (
            f"The typical reply of {effect.treatment} is "
            f"{number(effect.length_ratio, 1)} times as long as that of "
            f"{effect.control}."
        )
        if effect.corrected is None:
            uncorrected = "Without a measured bias the effect stays uncorrected."
            parts.append(element("p", f"{longer} {uncorrected}"))
            continue
        part = _points(effect.bias_part, effect.bias_part_ci, " points")
        fixed = f"{number(effect.corrected, sign=True)} points"
        parts.append(
            element(
                "p",
                f"{longer} What that buys from this judge: {part}. The effect without "
                "it: ",
                element("strong", fixed),
                f" ({_interval(effect.corrected_ci)}), against "
                f"{_points(effect.judge_effect, effect.judge_ci)} as scored.",
            )
        )
    return html(*parts)


def checks_table(check: LengthCheck) -> Html:
    """What could be wrong with the check itself."""
    bias, padded, margin = check.bias, check.padded, check.verdict.margin
    rows = []

    def add(name: str, mark: str, words: str) -> None:
        shown = element("span", status(mark), class_=mark)
        rows.append({"check": name, "mark": shown, "what was found": words})

    mark, words = "none", "No labelled reply, or no interval from those there are."
    if bias and bias.ci:
        mark = "ok" if bias.n >= 100 else "look"
        fit = f"{_interval(bias.ci)} {_unit(bias)} per doubling"
        words = f"{bias.n} replies; the data fit a bias from {fit}."
    add("Enough labelled replies?", mark, words)

    mark, words = "none", "Not known."
    if bias and bias.sd_ratio is not None:
        mark = "look" if bias.standardised else "ok"
        wide = f"The judge's scores spread {number(bias.sd_ratio)} times as wide as"
        so = "; 0.6 to 1.6 is alike enough."
        if bias.standardised:
            so = ": both were standardised, which noise can mislead."
        words = f"{wide} the labels{so}"
    add("Judge and people on one scale?", mark, words)

    mark, words = "none", "No padded twins were judged."
    if padded:
        mark = "ok" if padded.n >= 40 else "look"
        words = (
            f"{padded.n} padded twins, {number(2**padded.doublings, 1)} times as long: "
            f"{padded.up} scored higher, {padded.down} lower than their originals."
        )
    add("Cause shown, not only correlation?", mark, words)

    mark, words = "none", "No reply was judged twice."
    changed, seen = check.repeated
    if seen:
        mark = "ok" if changed <= 0.1 * seen else "look"
        words = (
            f"{changed} of {seen} replies judged again got another score; so much "
            "change among twins is noise, not bias."
        )
    add("Does the judge repeat itself?", mark, words)

    for t in check.twins:
        if t.kind == "padded":
            continue
        wide_ci = max(map(abs, t.ci)) >= margin
        mark = "stop" if t.found else "look" if wide_ci else "ok"
        mean = _points(t.change, t.ci)
        words = f"{t.n} pairs: {t.up} higher, {t.down} lower; mean change {mean}."
        if mark == "look":
            words += f" Too few pairs to rule out {number(margin)}."
        add(f"Does “{t.kind}” move the score?", mark, words)

    for effect in check.effects[:1]:
        mark, words = "none", "The effect at equal length is not defined."
        if effect.length_controlled is not None:
            mark = "look"
            words = (
                "Only if length itself is worth nothing: it gives "
                f"{number(effect.length_controlled, sign=True)} points, but also takes "
                "away what the longer replies rightly earn. A sensitivity, not the "
                "result."
            )
        add("Is equal length the right comparison?", mark, words)
    return table(rows, caption="What could be wrong")


def provenance_list(check: LengthCheck, *lines: str) -> Html:
    """Files, notes and versions, one line each."""
    files = [f"{name}: sha256 {digest[:12]}" for name, digest in check.sources.items()]
    items = (element("li", line) for line in (*files, *lines, *check.notes))
    return html(element("ul", *items, class_="provenance"))


def _says(*words: "str | ET.Element") -> Html:
    return html(element("p", *words))


def _unit(bias: LengthBias) -> str:
    return "standard deviations" if bias.standardised else "points"


def _interval(ci: tuple[float, float] | None) -> str:
    return interval(*(ci or (None, None)), sign=True)


def _points(value: float | None, ci: tuple[float, float] | None, unit: str = "") -> str:
    return f"{number(value, sign=True)}{unit} ({_interval(ci)})"

"""The length check from tables to verdict: what notebook 02 shows, in one call."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
import json
import math
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.display import element, html, number, status
from reply_resolution.errors import ParameterError, StatisticsError, TableError
from reply_resolution.inputs import Inputs, bundled, load, resolve
from reply_resolution.judge.twins import judge_twins, make_twins, twin_pairs
from reply_resolution.stats.length import LengthBias, length_bias
from reply_resolution.stats.length_effects import (
    LengthEffect,
    PairsTest,
    length_effect,
    pairs_by_kind,
)
from reply_resolution.stats.strata import stratum_of
from reply_resolution.tables.labels import join_labels


@dataclass(frozen=True, slots=True)
class LengthVerdict:
    """What to make of the judge's length bias.

    Attributes:
        word: "no bias found" (never "no bias": see `largest`), "bias, too small to
            matter here", "bias that changes the size of the result, not its sign",
            "bias that could explain the result" or "not measured".
        mark: "ok", "look", "stop" or "none", for the table of checks.
        sentence: The verdict in words, with its numbers.
        margin: What would not matter, points.
        found_by: Which evidence finds a bias: "labels", "padded twins", both, none.
        largest: The largest bias, in points of the judge's scale per doubling of
            length, in either direction, that the evidence still allows; None where
            nothing was measured.
        at_stake: That bias times the length difference of the arms (of one doubling,
            where no experiment is given), points.
        labels_needed: About how many labelled replies would bring `at_stake` under the
            margin if there is no bias; None where it already is, or is not known.
    """

    word: str
    mark: str
    sentence: str
    margin: float
    found_by: tuple[str, ...] = ()
    largest: float | None = None
    at_stake: float | None = None
    labels_needed: int | None = None

    def _repr_html_(self) -> str:
        mark = element("span", status(self.mark), class_=self.mark)
        word = element("strong", self.word[0].upper() + self.word[1:] + ".")
        line = element("p", mark, " ", word, " ", self.sentence)
        return str(html(element("div", line, class_="verdict")))


def length_verdict(
    bias: LengthBias | None,
    pairs: PairsTest | None = None,
    effect: LengthEffect | None = None,
    *,
    margin: float = 0.2,
) -> LengthVerdict:
    """Weigh the labelled replies, the padded twins and the experiment.

    A bias counts as found when either kind of evidence finds it: a safety check should
    rather look twice. Two looks at 5% make a false alarm in up to one of ten checks.

    Args:
        bias: From `length_bias`; None where there are no labels.
        pairs: The test of padded twins; None where none were judged.
        effect: From `length_effect`; None where there is no experiment yet.
        margin: A bias in the effect that would not matter, points of the judge's
            scale, above 0.

    Raises:
        StatisticsError: The margin is not above 0.
    """
    if not margin > 0:
        raise StatisticsError(
            f"margin {margin} is not above 0: give the bias, in score points, that you "
            "would not mind in the effect."
        )
    bounds, found = [], []
    if bias is not None and bias.largest is not None:
        bounds.append(bias.largest)
        found += ["labels"] if bias.found else []
    if pairs is not None and pairs.points_per_doubling_ci is not None:
        bounds.append(max(map(abs, pairs.points_per_doubling_ci)))
        found += ["padded twins"] if pairs.found else []
    if not bounds:
        sentence = (
            "Label replies, or judge padded twins: without either, nothing is "
            "known about length."
        )
        if bias:
            why = " ".join(w[0].upper() + w[1:] for w in bias.warnings)
            sentence = f"The {bias.n} labelled replies cannot tell. {why}".strip()
        return LengthVerdict("not measured", "none", sentence, margin)
    largest = max(bounds)
    doublings = abs(effect.doublings) if effect else 1.0
    at_stake = largest * doublings
    where = (
        f"{number(at_stake)} points in this experiment, where the typical reply of "
        f"{effect.treatment} is {number(effect.length_ratio, 1)} times as long"
        if effect
        else "the same if one arm's replies were twice as long"
    )
    amount = f"{number(largest)} points per doubling of length ({where})"
    small, needed = at_stake < margin, None
    would = f"the {number(margin)} that would matter"
    by = f"Found by {' and '.join(found)}"
    cis = (effect.judge_ci, effect.corrected_ci) if effect else ()
    ends = [end for ci in cis for end in ci or (0.0,)]
    if not found:
        word, mark = "no bias found", "ok" if small else "look"
        sentence = f"The largest bias that the data still allow is {amount}"
        if small:
            sentence += f", under {would}."
        else:
            sentence += f"; that would matter (margin {number(margin)})."
            if bias and bias.largest is not None:
                # so many that a fair judge's interval would end at the margin
                half = bias.largest - abs(bias.judge_points_per_doubling or 0.0)
                replies = bias.n * (half * doublings / margin) ** 2
                needed = math.ceil(replies / 10) * 10 if replies > bias.n else None
            if needed:
                sentence += f" About {needed:,} labelled replies would settle it."
    elif small:
        word, mark = "bias, too small to matter here", "ok"
        sentence = f"{by}, but at most {amount}, under {would}."
    elif effect and (min(ends) > 0 or max(ends) < 0):  # clear of 0 on one side
        word, mark = "bias that changes the size of the result, not its sign", "look"
        sentence = (
            f"{by}, up to {amount}. Corrected for it, the effect is "
            f"{number(effect.corrected, sign=True)} instead of "
            f"{number(effect.judge_effect, sign=True)} points, and still clear of 0."
        )
    else:
        word, mark = "bias that could explain the result", "stop"
        sentence = (
            f"{by}, up to {amount}: more than {would}. Read the corrected effect, or "
            "repair the rubric."
        )
    return LengthVerdict(
        word, mark, sentence, margin, tuple(found), largest, at_stake, needed
    )


@dataclass(frozen=True)
class LengthCheck:
    """Everything the length check found.

    Attributes:
        labelled: Replies with `score`, one `label_<annotator>` column per person, and
            `label`, their mean.
        bias: Judge minus label against length; None where nothing is labelled.
        twins: One test per kind of twin, padded first.
        experiment: The judged replies of the experiment; None where none was given.
        effects: One per treatment, in order of first appearance.
        verdict: The sentence, for the first treatment.
        repeated: Replies whose score changed when the judge saw them again, and
            replies it saw again; (0, 0) where it saw none twice.
        provenance_note: What must be said of bundled data; "" for data of your own.
        notes: What was left out or assumed, in sentences.
        sources: File -> sha256 of its content.
    """

    labelled: pl.DataFrame
    bias: LengthBias | None
    twins: tuple[PairsTest, ...]
    experiment: pl.DataFrame | None
    effects: tuple[LengthEffect, ...]
    verdict: LengthVerdict
    repeated: tuple[int, int]
    provenance_note: str
    notes: tuple[str, ...]
    sources: Mapping[str, str]

    @property
    def padded(self) -> PairsTest | None:
        """The test of padded twins, the one about length as such."""
        return next((t for t in self.twins if t.kind == "padded"), None)

    def to_dict(self) -> dict[str, Any]:
        """Every number of the check, for JSON; undefined is None."""
        return {
            "verdict": asdict(self.verdict),
            "bias": self.bias.to_dict() if self.bias else None,
            "twins": [asdict(t) for t in self.twins],
            "effects": [asdict(e) for e in self.effects],
            "margin": self.verdict.margin,
            "repeated": {"changed": self.repeated[0], "replies": self.repeated[1]},
            "notes": list(self.notes),
            "sources": dict(self.sources),
        }

    def save(self, out: str | Path) -> Path:
        """Write `to_dict` to `length_bias.json` in a folder; returns the path."""
        path = Path(out) / "length_bias.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")
        return path


def check_length(
    data: Inputs,
    *,
    control: str = "control",
    twins: str = "",
    twin_verdicts: str = "",
    experiment: str = "",
    experiment_verdicts: str = "",
    margin: float = 0.2,
    twin_sample: int = 40,
    seed: int = 0,
    max_calls: int = 0,
    model: str = "",
    base_url: str = "",
    cache: str = "",
    out: str = "out",
) -> LengthCheck:
    """Measure the length bias on labels and twins, and what it does to an experiment.

    Bundled twins and experiments are used with bundled replies only: another company's
    twins say nothing about your judge's verdicts.

    Args:
        data: Labelled replies and their verdicts, from `load`.
        control: The experiment's baseline arm.
        twins: Table of twins; "" makes twins of a sample and writes them to `out`.
        twin_verdicts: Verdicts on them.
        experiment: Table of the experiment's replies; "" leaves it out.
        experiment_verdicts: Verdicts on them.
        margin: A bias in the effect that would not matter, score points, above 0.
        twin_sample: Replies to make twins of.
        seed: Decides which ones, and their filler.
        max_calls: Calls that judging twins made here may take; 0 sends nothing.
        model: The judge's model.
        base_url: The judge's server; "" is the client's own default.
        cache: Cache file; "" is the user's own.
        out: Folder for the twins made here.

    Raises:
        ParameterError: Twins are to be judged, and no model is named.
        TableError: A table cannot be used.
    """
    notes, sources = list(data.notes), dict(data.sources)
    labelled, lost = join_labels(data.replies, data.labels)
    notes += lost
    people = [c for c in labelled.columns if c.startswith("label_")]
    bias = None
    if people:
        labelled = labelled.with_columns(label=pl.mean_horizontal(people))
        bias = length_bias(labelled, label=people)
        notes += bias.warnings

    def wanted(path: str, what: str) -> bool:
        if path and not data.provenance_note and bundled(path):
            notes.append(f"{path} belongs to the demonstration: {what} left out.")
            return False
        return bool(path)

    if wanted(twins, "its twins are"):
        pairs = _given_pairs(data, twins, twin_verdicts, sources, notes)
    else:
        made, told = make_twins(data.replies, n=twin_sample, seed=seed)
        notes += told
        path = Path(out) / "twins.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        made.write_csv(path)
        if max_calls < 1 or made.is_empty():
            pairs = None
            calls = made.height + made["request_id"].n_unique()
            notes.append(
                f"{made.height} twins were made and written to {path}, but not "
                f"judged: that takes up to {calls} calls. Set `max_calls` (and "
                "`model`) to allow it."
            )
        elif not model:
            raise ParameterError(
                f"`max_calls` is {max_calls} but `model` is empty: name the model "
                "that gave the verdicts, or set `max_calls` to 0 to send nothing."
            )
        else:
            from reply_resolution.judge.budget import Limits

            pairs = judge_twins(
                data.replies,
                made,
                model=model,
                base_url=base_url or None,
                cache=cache or None,
                limits=Limits(max_calls=max_calls),
                seed=seed,
            )
    tests = () if pairs is None else pairs_by_kind(pairs)
    if pairs is not None:
        judged = {t.kind for t in tests}
        notes += [
            f"None of the {kind} twins has a score beside its original's."
            for kind in sorted(set(pairs["kind"]) - judged)
        ]
    notes += [w for t in tests for w in t.warnings if t.kind == "padded"]
    frame: pl.DataFrame | None = None
    effects: tuple[LengthEffect, ...] = ()
    if wanted(experiment, "its experiment is"):
        tried = load(experiment, experiment_verdicts, cache=cache, control=control)
        sources |= tried.sources
        frame = tried.replies
        effects = _effects(frame, bias, control)
        notes += [*tried.notes, *(w for e in effects for w in e.warnings)]
    padded = next((t for t in tests if t.kind == "padded"), None)
    first = effects[0] if effects else None
    return LengthCheck(
        labelled=labelled,
        bias=bias,
        twins=tests,
        experiment=frame,
        effects=effects,
        verdict=length_verdict(bias, padded, first, margin=margin),
        repeated=_repeated(data.verdicts),
        provenance_note=data.provenance_note,
        notes=tuple(dict.fromkeys(notes)),
        sources=sources,
    )


def _given_pairs(
    data: Inputs,
    twins: str,
    twin_verdicts: str,
    sources: dict[str, str],
    notes: list[str],
) -> pl.DataFrame:
    """Twins and their originals from tables of the user's own (or the bundled ones)."""
    from reply_resolution.tables.tables import read_table
    from reply_resolution.tables.verdicts import read_verdicts

    if not twin_verdicts:
        raise TableError(
            f"{twins} has no verdicts: name their table in `twin_verdicts` "
            "(request_id, kind, score), or leave `twins` empty to make them here."
        )
    made = read_table(resolve(twins))
    judged = read_verdicts(resolve(twin_verdicts))
    sources[twins], sources[twin_verdicts] = made.sha256, judged.sha256
    notes += [*made.notes, *judged.notes]
    return twin_pairs(data.replies, made.frame, judged.frame, data.verdicts)


def _effects(
    frame: pl.DataFrame, bias: LengthBias | None, control: str
) -> tuple[LengthEffect, ...]:
    frame = frame.drop_nulls("arm")
    paired = frame["request_id"].is_duplicated().any()
    users = "user_id" in frame.columns and frame["user_id"].null_count() == 0
    return tuple(
        length_effect(
            frame,
            bias,
            control=control,
            treatment=arm,
            pair="request_id" if paired else None,
            cluster="user_id" if users else None,
            stratum=stratum_of(frame),
        )
        for arm in frame["arm"].unique(maintain_order=True)
        if arm != control
    )


def _repeated(verdicts: pl.DataFrame) -> tuple[int, int]:
    """Replies scored unlike at a later vote, and replies scored more than once."""
    keys = [c for c in ("request_id", "arm") if c in verdicts.columns]
    seen = (
        verdicts.filter(pl.col("status") == "scored")
        .group_by(keys)
        .agg(votes=pl.len(), scores=pl.col("score").n_unique())
        .filter(pl.col("votes") > 1)
    )
    return seen.filter(pl.col("scores") > 1).height, seen.height

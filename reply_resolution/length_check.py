"""The length check from tables to verdict: what notebook 02 shows, in one call."""

from collections.abc import Mapping
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.errors import ParameterError, TableError
from reply_resolution.inputs import Inputs, load, resolve, root
from reply_resolution.judge.twins import (
    check_twins,
    judge_twins,
    make_twins,
    twin_pairs,
)
from reply_resolution.labels import join_labels
from reply_resolution.stats.length import LengthBias, length_bias
from reply_resolution.stats.length_effects import LengthEffect, length_effect
from reply_resolution.stats.length_pairs import PairsTest, pairs_by_kind
from reply_resolution.stats.length_verdict import LengthVerdict, length_verdict


@dataclass(frozen=True)
class LengthCheck:
    """Everything the length check found.

    Attributes:
        labelled: Replies with `score`, one `label_<annotator>` column per person, and
            `label`, their mean.
        bias: Judge minus label against length; None where nothing is labelled.
        pairs: Twins beside originals; no rows where none were judged.
        twins: One test per kind of twin, padded first.
        experiment: The judged replies of the experiment; None where none was given.
        effects: One per treatment, in order of first appearance.
        verdict: The sentence, for the first treatment.
        margin: A bias in the effect that would not matter, score points.
        repeated: Replies whose score changed when the judge saw them again, and
            replies it saw again; (0, 0) where it saw none twice.
        provenance_note: What must be said of bundled data; "" for data of your own.
        notes: What was left out or assumed, in sentences.
        sources: File -> sha256 of its content.
    """

    labelled: pl.DataFrame
    bias: LengthBias | None
    pairs: pl.DataFrame
    twins: tuple[PairsTest, ...]
    experiment: pl.DataFrame | None
    effects: tuple[LengthEffect, ...]
    verdict: LengthVerdict
    margin: float
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
            "verdict": self.verdict.to_dict(),
            "bias": self.bias.to_dict() if self.bias else None,
            "twins": [t.to_dict() for t in self.twins],
            "effects": [e.to_dict() for e in self.effects],
            "margin": self.margin,
            "repeated": {"changed": self.repeated[0], "replies": self.repeated[1]},
            "notes": list(self.notes),
            "sources": dict(self.sources),
        }

    def save(self, out: str | Path, name: str = "length_bias.json") -> Path:
        """Write `to_dict` as JSON into a folder, and return the file's path."""
        path = Path(out) / name
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
        twin_verdicts: Verdicts on them; "" judges them where `max_calls` allows.
        experiment: Table of the experiment's replies; "" leaves it out.
        experiment_verdicts: Verdicts on them.
        margin: A bias in the effect that would not matter, score points, above 0.
        twin_sample: Replies to make twins of.
        seed: Decides which ones, and their filler.
        max_calls: Calls that judging twins may make; 0 sends nothing.
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
    own = not data.provenance_note

    def usable(path: str, what: str) -> bool:
        if path and own and _is_bundled(path):
            notes.append(f"{path} belongs to the demonstration: {what} left out.")
            return False
        return bool(path)

    if usable(twins, "its twins are"):
        pairs = _given_pairs(data, twins, twin_verdicts, sources, notes)
    else:
        limit = _Budget(max_calls, model, base_url, cache)
        pairs = _made_pairs(data, twin_sample, seed, limit, Path(out), notes)
    tests = pairs_by_kind(pairs) if pairs.height else ()
    notes += [w for t in tests for w in t.warnings if t.kind == "padded"]
    frame: pl.DataFrame | None = None
    effects: tuple[LengthEffect, ...] = ()
    if usable(experiment, "its experiment is"):
        tried = load(experiment, experiment_verdicts, cache=cache, control=control)
        sources |= tried.sources
        frame = tried.replies
        effects = _effects(frame, bias, control)
        notes += [*tried.notes, *(w for e in effects for w in e.warnings)]
    padded = next((t for t in tests if t.kind == "padded"), None)
    verdict = length_verdict(
        bias, padded, effects[0] if effects else None, margin=margin
    )
    return LengthCheck(
        labelled=labelled,
        bias=bias,
        pairs=pairs,
        twins=tests,
        experiment=frame,
        effects=effects,
        verdict=verdict,
        margin=margin,
        repeated=_repeated(data.verdicts),
        provenance_note=data.provenance_note,
        notes=tuple(dict.fromkeys(notes)),
        sources=sources,
    )


@dataclass(frozen=True)
class _Budget:
    max_calls: int
    model: str
    base_url: str
    cache: str


_PAIRS = {
    "request_id": pl.String,
    "kind": pl.String,
    "score_original": pl.Int8,
    "score_twin": pl.Int8,
    "length_original": pl.Float64,
    "length_twin": pl.Float64,
}


def _given_pairs(
    data: Inputs,
    twins: str,
    twin_verdicts: str,
    sources: dict[str, str],
    notes: list[str],
) -> pl.DataFrame:
    from reply_resolution.tables import read_table
    from reply_resolution.verdicts import read_verdicts

    if not twin_verdicts:
        raise TableError(
            f"{twins} has no verdicts: name their table in `twin_verdicts` "
            "(request_id, kind, score), or leave `twins` empty to make them here."
        )
    made = read_table(resolve(twins))
    judged = read_verdicts(resolve(twin_verdicts))
    sources[twins], sources[twin_verdicts] = made.sha256, judged.sha256
    notes += [*made.notes, *judged.notes]
    frame = check_twins(made.frame, data.replies)
    has_originals = (judged.frame["kind"] == "original").any()
    return twin_pairs(
        data.replies, frame, judged.frame, None if has_originals else data.verdicts
    )


def _made_pairs(
    data: Inputs, n: int, seed: int, limit: _Budget, out: Path, notes: list[str]
) -> pl.DataFrame:
    made = make_twins(data.replies, n=n, seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "twins.csv"
    made.frame.write_csv(path)
    notes += made.notes
    if made.skipped.height:
        notes.append(f"{made.skipped.height} twins could not be made.")
    if made.frame.is_empty():
        return pl.DataFrame(schema=_PAIRS)
    calls = made.frame.height + made.frame["request_id"].n_unique()
    if limit.max_calls < 1:
        notes.append(
            f"{made.frame.height} twins were made and written to {path}, but not "
            f"judged: that takes up to {calls} calls. Set `max_calls` (and `model`) to "
            "allow it."
        )
        return pl.DataFrame(schema=_PAIRS)
    if not limit.model:
        raise ParameterError(
            f"`max_calls` is {limit.max_calls} but `model` is empty: name the model "
            "that gave the verdicts, or set `max_calls` to 0 to send nothing."
        )
    from reply_resolution.judge.budget import Limits

    return judge_twins(
        data.replies,
        made.frame,
        model=limit.model,
        base_url=limit.base_url or None,
        cache=limit.cache or None,
        limits=Limits(max_calls=limit.max_calls),
        seed=seed,
    )


def _effects(
    frame: pl.DataFrame, bias: LengthBias | None, control: str
) -> tuple[LengthEffect, ...]:
    arms = frame["arm"].drop_nulls().unique(maintain_order=True).to_list()
    ids = frame.drop_nulls("arm")
    paired = bool(ids["request_id"].is_duplicated().any())
    users = "user_id" in frame.columns and frame["user_id"].null_count() == 0
    return tuple(
        length_effect(
            frame,
            bias,
            control=control,
            treatment=arm,
            pair="request_id" if paired else None,
            cluster="user_id" if users else None,
        )
        for arm in arms
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
    return int((seen["scores"] > 1).sum()), seen.height


def _is_bundled(path: str) -> bool:
    try:
        data = (root() / "data").resolve()
    except TableError:
        return False
    return data in Path(resolve(path)).resolve().parents

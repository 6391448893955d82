"""Everything notebook 1 shows, computed once from its tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.calibration.checks import tried
from reply_resolution.calibration.holdout import choose_part, look_warning, record_look
from reply_resolution.calibration.verdict import (
    Calibration,
    CalibrationRules,
    judge_verdict,
)
from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.inputs import Inputs, bundled, resolve
from reply_resolution.judge.probes import ProbeCard, probe_card
from reply_resolution.stats.agreement import Agreement, agreement
from reply_resolution.stats.agreement_slices import length_bands, slices
from reply_resolution.stats.alt_test import AlternativeTest, alternative_annotator_test
from reply_resolution.stats.annotators import (
    AnnotatorAgreement,
    annotator_agreement,
    consensus,
    label_keys,
)
from reply_resolution.stats.judge_comparison import JudgeComparison, compare_judges
from reply_resolution.stats.label_plan import LabelPlan, label_plan
from reply_resolution.stats.self_agreement import SelfAgreement, self_agreement
from reply_resolution.tables.labels import join_labels
from reply_resolution.tables.replies import length_expr
from reply_resolution.tables.verdicts import read_verdicts


@dataclass(frozen=True)
class Study:
    """A judge beside its labels.

    Attributes:
        data: The tables as loaded.
        labels: The labels used, long form (of the chosen part).
        frame: One row per reply with the judge's `score`, `reason` and `status`, and
            a `label_<annotator>` column per person.
        rules: The rules of the verdict.
        calibration: The verdict; None where there is none (`problem` says why).
        problem: Why there is no verdict, a sentence; "" where there is one.
        by_person: Annotator -> agreement of the judge with them.
        people: The annotators among themselves; None for one.
        steady: Second votes; None where there are none.
        repeats: Annotators' hidden repeats; None where there are none.
        within: Column -> value -> agreement with the consensus (None: too few), for
            the segments' columns, arms, and three bands of length.
        card: The judge's probe card; None where it was not probed.
        alternative: The alternative-annotator test; None without labels.
        plan: What numbers of labels would tell.
        other: The second judge's calibration; None where none is compared.
        other_name: What the second judge is called.
        comparison: Second judge against this one on the same labels; None likewise.
        waiting: Why no result is shown while somebody labels, in sentences; else "".
        notes: What reading noticed, in sentences.
    """

    data: Inputs
    labels: pl.DataFrame
    frame: pl.DataFrame
    rules: CalibrationRules
    calibration: Calibration | None
    problem: str
    by_person: Mapping[str, Agreement]
    people: AnnotatorAgreement | None
    steady: SelfAgreement | None
    repeats: SelfAgreement | None
    within: Mapping[str, Mapping[str, Agreement | None]]
    card: ProbeCard | None
    alternative: AlternativeTest | None
    plan: LabelPlan
    other: Calibration | None
    other_name: str
    comparison: JudgeComparison | None
    waiting: str
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """What this judge is called."""
        found = self.calibration.model if self.calibration else ""
        return found or "the judge"


def study(
    data: Inputs,
    labels: pl.DataFrame,
    *,
    rules: CalibrationRules,
    probe_verdicts: str = "",
    compared: str = "",
    control: str = "",
    part: str = "all",
    judged_per_arm: int = 200,
    gain: float = 0.3,
    seed: int = 0,
    out: str = "out",
    waiting: str = "",
) -> Study:
    """Compute what notebook 1 shows.

    Args:
        data: The tables, as loaded.
        labels: The labels to use, long form.
        rules: The rules of the verdict.
        probe_verdicts: Table of the judge's verdicts on the probes; "" is none.
        compared: Table of a second judge's verdicts on the same replies; "" is none.
            The demonstration's is left out where the replies are not.
        control: Baseline arm, where the labelled replies have arms.
        part: "all", "dev" or "test" labels; a look at "test" is written down.
        judged_per_arm: Replies of each arm that the experiment will judge.
        gain: Worthwhile gain, points.
        seed: Of the dev and test parts.
        out: Folder of the ledger of looks.
        waiting: What to say instead of results while somebody labels; "" if nobody.

    Raises:
        TableError: A table cannot be used.
        VersionMismatchError: Verdicts of several versions or judges.
    """
    notes = list(data.notes)
    if compared and bundled(compared) and not data.provenance_note:
        notes.append(f"{compared} belongs to the demonstration and was left out.")
        compared = ""
    used = choose_part(labels, part, seed=seed)
    if part == "test" and len(used):
        warning = look_warning(
            record_look(f"{out}/test_looks.jsonl", used, judge=_who(data.verdicts))
        )
        notes += [warning] if warning else []
    # A table of replies may hold labels itself; only the ones used may be seen here.
    plain = data.replies.drop(
        [c for c in data.replies.columns if c.startswith("label_")]
    )
    frame, unmatched = join_labels(plain, used) if len(used) else (plain, ())
    notes += unmatched
    card = None
    if probe_verdicts:
        probed = read_verdicts(resolve(probe_verdicts)).frame
        if _who(probed) == _who(data.verdicts):
            card = probe_card(None, probed)
        else:
            notes.append(
                f"The verdicts on probes in {probe_verdicts} are of another judge "
                f"({_who(probed)}) and were not used; `reply-resolution probes` asks "
                "this one."
            )
    options: dict[str, Any] = {
        "replies": data.replies,
        "rules": rules,
        "control": control or None,
    }
    calibration, problem = None, ""
    try:
        calibration = judge_verdict(data.verdicts, used, probes=card, **options)
        notes += calibration.warnings
    except StatisticsError as error:
        problem = waiting or (str(error) if len(used) else "there are no labels yet")
    by_person = _by_person(frame, rules)
    other, other_name, comparison = None, "", None
    if compared and len(used):
        table = read_verdicts(resolve(compared)).frame
        other = tried(judge_verdict, table, used, **options)
        other_name = (other.model if other else "") or Path(compared).stem
        comparison = _compare(data.verdicts, table, used, rules)
    return Study(
        data=data,
        labels=used,
        frame=frame,
        rules=rules,
        calibration=calibration,
        problem=problem,
        by_person=by_person,
        people=tried(annotator_agreement, used, confidence=rules.confidence)
        if used["annotator"].n_unique() > 1
        else None,
        steady=tried(self_agreement, data.verdicts, cut=rules.cut),
        repeats=tried(self_agreement, used, value="label", turn="repeat")
        if len(used)
        else None,
        within=_within(data.replies, used, rules),
        card=card,
        alternative=tried(alternative_annotator_test, used, data.replies)
        if len(used)
        else None,
        plan=_plan(data.replies, by_person, rules, judged_per_arm, gain),
        other=other,
        other_name=other_name,
        comparison=comparison,
        waiting=waiting,
        notes=tuple(dict.fromkeys(notes)),
    )


def _who(verdicts: pl.DataFrame) -> str:
    parts = []
    for column in ("metric_version", "judge_id", "model"):
        if column in verdicts.columns:
            parts += [
                str(v)[:40] for v in verdicts[column].drop_nulls().unique().sort()
            ]
    return " ".join(parts) or "unnamed judge"


def _by_person(frame: pl.DataFrame, rules: CalibrationRules) -> dict[str, Agreement]:
    cluster = (
        frame["user_id"]
        if "user_id" in frame.columns and not frame["user_id"].null_count()
        else None
    )
    out = {}
    for column in (c for c in frame.columns if c.startswith("label_")):
        found = tried(
            agreement,
            frame["score"],
            frame[column],
            confidence=rules.confidence,
            clusters=cluster,
        )
        if found is not None:
            out[column.removeprefix("label_")] = found
    return out


def _within(
    replies: pl.DataFrame, labels: pl.DataFrame, rules: CalibrationRules
) -> dict[str, Mapping[str, Agreement | None]]:
    """Agreement with the consensus within arms, segments and bands of length."""
    if labels.is_empty():
        return {}
    people = consensus(labels, how=rules.consensus)
    keys = [k for k in label_keys(people) if k in label_keys(replies)]
    frame = people.join(
        replies.drop([c for c in ("label", "weight") if c in replies.columns]),
        on=keys,
        how="inner",
        nulls_equal=True,
    ).filter(pl.col("score").is_not_null())
    if frame.is_empty():
        return {}
    frame = frame.sort(length_expr("reply"), maintain_order=True)
    frame = frame.with_columns(
        length_bands(frame.select(length_expr("reply")).to_series()).alias("length")
    )
    armed = "arm" in frame.columns and frame["arm"].drop_nulls().n_unique() > 1
    columns = ["arm"] if armed else []
    columns += [c for c in rules.segments if c in frame.columns and c != "length"]
    return {
        column: slices(
            frame, by=column, least=rules.segment_least, confidence=rules.confidence
        )
        for column in (*columns, "length")
    }


def keep(study: Study, out: str, cache: str = "") -> str:
    """Write the calibration to `out`, and to the cache where one is named.

    Args:
        study: What was computed.
        out: The folder.
        cache: Cache file, or "".

    Returns:
        What was kept where, a sentence.
    """
    found = study.calibration
    if found is None:
        former = Path(out) / "calibration.json"
        return (
            f"No calibration was written: {study.problem.rstrip('.')}."
            + f" The former one is still in {former}." * former.exists()
        )
    words = f"Calibration written: {found.save(f'{out}/calibration.json').name}"
    if cache and found.metric_version and found.judge_id:
        from reply_resolution.judge.cache import Cache

        with Cache.open(cache) as store:
            store.put_calibration(found.document())
        words += ", and kept in the cache"
    return f"{words}."


def _compare(
    first: pl.DataFrame,
    second: pl.DataFrame,
    labels: pl.DataFrame,
    rules: CalibrationRules,
) -> JudgeComparison | None:
    people = consensus(labels, how=rules.consensus)
    for name, verdicts in (("first", first), ("second", second)):
        keys = [k for k in label_keys(people) if k in label_keys(verdicts)]
        votes = verdicts.sort("vote", maintain_order=True).unique(keys, keep="first")
        people = people.join(
            votes.select(*keys, pl.col("score").alias(name)),
            on=keys,
            how="left",
            nulls_equal=True,
        )
    found: JudgeComparison | None = tried(
        compare_judges,
        people["first"],
        people["second"],
        people["label"],
        confidence=rules.confidence,
    )
    return found


def _plan(
    replies: pl.DataFrame,
    by_person: Mapping[str, Agreement],
    rules: CalibrationRules,
    judged_per_arm: int,
    gain: float,
) -> LabelPlan:
    """Planned from pilot labels where there are 30, else from an assumption."""
    scores = replies["score"].drop_nulls()
    if scores.is_empty():
        raise TableError("none of the replies has a score; judge them first.")
    shares = [float((scores == level).sum()) for level in range(1, 6)]
    options: dict[str, Any] = {
        "floor": rules.kappa_floor,
        "judged_per_arm": judged_per_arm,
        "gain": gain,
        "margin": rules.favour_margin,
        "confidence": rules.confidence,
    }
    pilots: Iterable[Agreement] = (
        a for a in by_person.values() if a.n >= 30 and a.confusion
    )
    for pilot in pilots:
        plan = tried(label_plan, shares, confusion=pilot.confusion, **options)
        if plan is not None:
            return plan  # type: ignore[no-any-return]
    return label_plan(shares, **options)

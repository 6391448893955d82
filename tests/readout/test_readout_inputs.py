"""What a readout reads from its tables: the judge's calibration, wording, hashes."""

from dataclasses import replace

import polars as pl
import pytest

from reply_resolution import inputs
from reply_resolution.calibration.verdict import Calibration, judge_verdict
from reply_resolution.judge.rubric import Rubric, RubricVersion
from reply_resolution.readout import inputs as ri
from reply_resolution.readout.build import build_readout
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.tables.labels import read_labels
from reply_resolution.tables.verdicts import read_verdicts


@pytest.fixture(scope="module")
def data(root):
    """The bundled experiment without labels."""
    folder = root / "data"
    return inputs.load(
        str(folder / "experiment.csv"),
        str(folder / "verdicts_experiment.jsonl"),
        control="control",
    )


@pytest.fixture(scope="module")
def plan(root):
    """The bundled plan without what takes time here."""
    plan = ExperimentPlan.load(root / "data" / "plan.toml")
    return replace(plan, guardrails=(), secondary=(), segments=())


def calibration(root, verdicts):
    """What the labels of the calibration table say of a recorded judge."""
    labels = read_labels(root / "data" / "calibration.csv").frame
    return judge_verdict(read_verdicts(root / "data" / verdicts).frame, labels)


@pytest.fixture(scope="module")
def good(root):
    """The good recorded judge's calibration."""
    return calibration(root, "verdicts_calibration.jsonl")


def of_one_judge(calibration, frame):
    """The calibration as if of the judge of these verdicts."""
    names = ("metric_version", "judge_id")
    own = {n: (frame[n].drop_nulls().unique().to_list() or [None])[0] for n in names}
    return replace(calibration, **own)


def test_a_calibrated_judge_is_read_without_labels(data, plan, good):
    """Its agreement is shown with its source, and the caveat stays."""
    judge = of_one_judge(Calibration.from_json(good.to_json()), data.replies)
    got = build_readout(data.replies, plan, calibration=judge, seed=7)
    check = next(c for c in got.document["checks"] if c["key"] == "judge")
    assert check["numbers"]["weighted_kappa"] == good.kappa.estimate
    assert "of the calibration" in check["text"]
    assert got.rule != "do_not_read"
    assert got.document["recommendation"]["caveat"]


def test_a_calibration_of_another_judge_does_not_count(data, plan, good):
    """Another judge's or version's calibration stops, and says which is which."""
    frame = data.replies.with_columns(
        judge_id=pl.lit("a" * 64), metric_version=pl.lit("m@v1:aaaaaaaa")
    )
    for name, other in (("judge_id", "b" * 64), ("metric_version", "m@v2:bbbbbbbb")):
        judge = replace(of_one_judge(good, frame), **{name: other})
        got = build_readout(frame, plan, calibration=judge, seed=7)
        assert got.rule == "do_not_read"
        assert name.replace("_", " ") in got.sentence
    same = build_readout(frame, plan, calibration=of_one_judge(good, frame), seed=7)
    assert same.rule != "do_not_read"


def test_an_unfit_judge_is_refused_with_its_reasons(root, data, plan):
    """The small model that says 4 to everything is not read, whatever the plan says."""
    small = calibration(root, "verdicts_small_model.jsonl")
    judge = of_one_judge(small, data.replies)
    told = replace(plan, accept_unchecked_judge=True)
    got = build_readout(data.replies, told, calibration=judge, seed=7)
    assert got.rule == "do_not_read"
    assert "not fit" in got.sentence


def test_the_hash_of_scores_follows_scores_alone(data):
    """Row order and what was cached leave it alone; one score changes it."""
    frame = data.replies
    first = ri.scores_sha256(frame)
    turned = frame.reverse().with_columns(cached=pl.lit(True))
    assert ri.scores_sha256(turned) == first
    other = frame.with_columns(
        score=pl.when(pl.int_range(pl.len()) == 3).then(1).otherwise(pl.col("score"))
    )
    assert ri.scores_sha256(other) != first


def test_the_wording_is_found_by_the_metric_version(data):
    """A shipped rubric is found by its hash; an unknown version gives nothing."""
    rubric = Rubric.default()
    version = RubricVersion("reply_resolution", 1, rubric.hash)
    named = data.replies.with_columns(metric_version=pl.lit(version.label))
    assert ri.wording_of(named) == rubric.wording
    strange = data.replies.with_columns(metric_version=pl.lit("x@v1:00000000"))
    assert ri.wording_of(strange, cache="nowhere.sqlite") == ""
    assert ri.wording_of(data.replies.drop("metric_version")) == ""


def test_the_tables_own_columns_win_over_the_judges(data):
    """`latency_ms` of the table is the assistant's, not the judge's."""
    rows = ri.read_rows(data.replies, control="control", labels=None, seed=7)
    assert rows.frame["latency_ms"].mean() == pytest.approx(1552.8, abs=1)
    assert "judge_latency_ms" in rows.frame.columns
    assert "reply" not in rows.frame.columns
    assert rows.sample.height == rows.scored == 320


def test_anonymous_rows_are_counted_not_lost(data, plan):
    """Rows without a user are left out of the comparison by users, and it is said."""
    frame = data.replies.with_columns(
        user_id=pl.when(pl.int_range(pl.len()) % 40 == 0)
        .then(None)
        .otherwise(pl.col("user_id"))
    )
    told = replace(plan, accept_unchecked_judge=True)
    got = build_readout(frame, told, seed=7)
    rows = ri.read_rows(frame, control="control", labels=None, seed=7)
    lost = sum(sum(v.values()) for v in rows.counts.excluded.values())
    assert lost == 8
    assert sum(a["replies"] for a in got.document["arms"].values()) == 312
    assert any("8" in note for note in got.document["experiment"]["notes"])

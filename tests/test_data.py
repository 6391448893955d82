"""The bundled data: complete, of one known judge, and replayable without a call."""

from pathlib import Path

import polars as pl
import pytest

from reply_resolution.judge.cache import Cache
from reply_resolution.judge.judge import judge_replies, record
from reply_resolution.judge.rubric import Rubric
from reply_resolution.tables.replies import read_replies
from reply_resolution.tables.verdicts import read_verdicts

ROWS = {
    "verdicts_experiment.jsonl": 320,
    "verdicts_replay.jsonl": 160,
    "verdicts_calibration.jsonl": 160,
    "verdicts_twins.jsonl": 100,
    "verdicts_probes.jsonl": 105,
    "verdicts_small_model.jsonl": 120,
}


@pytest.mark.parametrize("name", ROWS)
def test_verdicts_are_complete(root: Path, name: str) -> None:
    """Every recorded verdict is there, with a score or a status that says why not."""
    frame = read_verdicts(root / "data" / name).frame
    assert frame.height == ROWS[name]
    assert frame.filter(pl.col("status") == "scored")["score"].null_count() == 0
    assert frame.filter(pl.col("status") != "scored")["score"].drop_nulls().len() == 0


@pytest.mark.parametrize("table", ["experiment", "replay", "calibration"])
def test_recorded_verdicts_replay_without_a_call(root: Path, table: str) -> None:
    """The recording answers every bundled reply, as the judge that the files name."""
    replies = read_replies(root / "data" / f"{table}.csv").frame
    recorded = read_verdicts(root / "data" / f"verdicts_{table}.jsonl").frame
    with Cache.open(":memory:") as cache:
        record(replies, recorded, cache=cache)
        run = judge_replies(replies, cache=cache, offline=True, progress=False)
    assert run.summary.calls == 0
    key = ["request_id"] if table == "calibration" else ["request_id", "arm"]
    first = recorded.filter(pl.col("vote") == 0).select(*key, said="score")
    joined = run.verdicts.join(first, on=key, how="left", maintain_order="left")
    assert joined["score"].to_list() == joined["said"].to_list()
    for column in ("metric_version", "judge_id"):
        assert set(recorded[column]) == set(run.verdicts[column])


def test_the_bundled_rubric_is_the_products_definition(root: Path) -> None:
    """The default wording is version 1, and the shipped text is what is sent."""
    label = read_verdicts(root / "data" / "verdicts_experiment.jsonl").frame[
        "metric_version"
    ][0]
    assert label == f"reply_resolution@v1:{Rubric.default().hash[:8]}"
    text = (root / "reply_resolution/judge/rubrics/reply_resolution.txt").read_text()
    assert Rubric.default().wording.strip() == text.strip()


def test_users_are_in_one_arm(root: Path) -> None:
    """The live experiment randomised users: none of them saw both arms."""
    frame = pl.read_csv(root / "data" / "experiment.csv")
    assert frame["user_id"].n_unique() == 246
    assert frame.group_by("user_id").agg(pl.col("arm").n_unique())["arm"].max() == 1


def test_every_file_has_its_provenance(root: Path) -> None:
    """Each bundled file is named in the folder's README."""
    text = (root / "data" / "README.md").read_text("utf-8")
    names = {p.name for p in (root / "data").iterdir() if p.suffix != ".md"}
    assert {n for n in names if n not in text} == set()

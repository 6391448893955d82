"""The unseen part of the labels, and the ledger of looks at it."""

import polars as pl
import pytest

from reply_resolution.calibration.holdout import (
    choose_part,
    look_warning,
    part_of,
    record_look,
)
from reply_resolution.errors import ParameterError, TableError

IDS = pl.Series([f"R{i}" for i in range(2000)])


def test_the_split_is_by_id_and_stays():
    """Same seed same parts, more labels move nobody, about the share asked for."""
    parts = part_of(IDS, test_share=0.3, seed=7)
    again = part_of(IDS.tail(500), test_share=0.3, seed=7)
    assert again.to_list() == parts.tail(500).to_list()
    assert 0.26 < (parts == "test").mean() < 0.34
    assert part_of(IDS, test_share=0.3, seed=8).to_list() != parts.to_list()


def test_dev_and_test_share_no_reply():
    """Both annotators' labels of a reply fall into the same part."""
    labels = pl.DataFrame(
        {"request_id": IDS.to_list() * 2, "annotator": ["a"] * 2000 + ["b"] * 2000}
    )
    dev, test = (choose_part(labels, p, seed=7) for p in ("dev", "test"))
    assert len(dev) + len(test) == len(labels)
    assert not set(dev["request_id"]) & set(test["request_id"])
    assert choose_part(labels, "all", seed=7).equals(labels)
    with pytest.raises(ParameterError, match="'dev' while"):
        choose_part(labels, "training", seed=7)
    with pytest.raises(ParameterError, match="between 0 and 1"):
        part_of(IDS, test_share=1.5, seed=7)


def test_looking_with_another_judge_is_remembered(tmp_path):
    """The first look and the same judge again are fine; another one is warned."""
    path = tmp_path / "out/looks.jsonl"
    labels = pl.DataFrame({"request_id": ["a", "b"]})
    assert record_look(path, labels, judge="v1 one") == ()
    assert record_look(path, labels, judge="v1 one") == ()
    assert record_look(path, labels, judge="v2 two") == ("v1 one",)
    assert "v1 one" in look_warning(("v1 one",))
    assert look_warning(()) == ""
    other = pl.DataFrame({"request_id": ["c"]})
    assert record_look(path, other, judge="v3") == ()
    assert len(path.read_text("utf-8").splitlines()) == 3


def test_a_damaged_ledger_is_not_taken_for_an_empty_one(tmp_path):
    """A cut line is an error that names it."""
    path = tmp_path / "looks.jsonl"
    path.write_text('{"judge": "v1"\n', "utf-8")
    with pytest.raises(TableError, match="line 1"):
        record_look(path, pl.DataFrame({"request_id": ["a"]}), judge="v2")

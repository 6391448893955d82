"""Lengths of replies: per level, per arm, in bins."""

import polars as pl
import pytest

from reply_resolution.errors import TableError
from reply_resolution.stats.lengths import length_bins, lengths_by, usable


def test_words_are_counted_without_formatting() -> None:
    """A bullet list has as many words as the same sentence."""
    replies = ["one two three", "- **one** two\n- three", "# a\n1. b"]
    table = lengths_by(pl.DataFrame({"reply": replies, "arm": ["a", "b", "c"]}), "arm")
    assert table["words"].to_list() == [3, 3, 2]
    assert table["characters"].to_list() == [13, 21, 8]


def test_true_and_false_are_no_scores() -> None:
    """A column of booleans is refused rather than read as 1 and 0."""
    frame = pl.DataFrame({"reply": ["a"], "score": [True]})
    with pytest.raises(TableError, match="true and false"):
        usable(frame, {"score": ["score"]})


def test_typical_length_by_level() -> None:
    """Medians and quartiles per value, empty replies and empty levels left out."""
    frame = pl.DataFrame(
        {
            "score": [1, 1, 2, 2, 2, None],
            "reply": ["x" * 10, "x" * 30, "y " * 50, "y" * 7, "", "z"],
        }
    )
    table = lengths_by(frame, "score")
    assert table["score"].to_list() == [1, 2]
    assert table["replies"].to_list() == [2, 2]
    assert table["characters"].to_list() == [20, 53.5]
    scored = lengths_by(frame, "score", score="score")
    assert scored["mean_score"].to_list() == [1, 2]


def test_bins_hold_like_lengths_together() -> None:
    """Equal lengths share a bin; every usable reply is in one; means are means."""
    frame = pl.DataFrame(
        {
            "score": [1, 2, 3, 4, 5, 5, 4, None],
            "label": [1.0, 2, 3, 3, 4, 4, 5, 3],
            "reply": ["x" * n for n in (10, 20, 30, 30, 30, 40, 50, 60)],
        }
    )
    bins = length_bins(frame)
    assert bins["replies"].sum() == 7
    assert (bins["longest"][:-1] < bins["shortest"][1:]).all()
    same = bins.filter(shortest=30)
    assert same.select("replies", "judge").row(0) == (3, 4)
    assert same["label"][0] == pytest.approx(10 / 3)


def test_bins_are_of_equal_size_where_lengths_differ() -> None:
    """Eight lengths in four bins are two each, from short to long."""
    n = [3, 1, 4, 2, 8, 6, 7, 5]
    frame = pl.DataFrame({"score": n, "label": n, "reply": ["x" * k for k in n]})
    bins = length_bins(frame)
    assert bins["bin"].to_list() == [1, 2, 3, 4]
    assert bins["replies"].to_list() == [2] * 4
    assert bins["shortest"].to_list() == [1, 3, 5, 7]

"""Descriptions of length: per level, per arm, in bins."""

import polars as pl
import pytest

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.length_profile import add_lengths, length_bins, lengths_by


def test_words_are_counted_without_formatting() -> None:
    """A bullet list has as many words as the same sentence."""
    frame = add_lengths(
        pl.DataFrame(
            {"reply": ["one two three", "- **one** two\n- three", "# a\n1. b"]}
        )
    )
    assert frame["words"].to_list() == [3, 3, 2]
    assert frame["length"].to_list() == [13, 21, 8]


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
    with pytest.raises(TableError, match="'arm'"):
        lengths_by(frame, "arm")


def test_bins_hold_like_lengths_together() -> None:
    """Equal lengths share a bin; every usable reply is in one; means are means."""
    frame = pl.DataFrame(
        {
            "score": [1, 2, 3, 4, 5, 5, 4, None],
            "label": [1.0, 2, 3, 3, 4, 4, 5, 3],
            "length": [10, 20, 30, 30, 30, 40, 50, 60],
        }
    )
    bins = length_bins(frame, length="length", bins=2)
    assert bins["replies"].sum() == 7
    assert bins["longest"][0] < bins["shortest"][1]
    assert (bins["difference"] - (bins["judge"] - bins["label"])).abs().max() < 1e-12


def test_bins_are_of_equal_size_where_lengths_differ() -> None:
    """Eight lengths in four bins are two each, from short to long."""
    n = [3, 1, 4, 2, 8, 6, 7, 5]
    frame = pl.DataFrame({"score": n, "label": n, "length": n})
    bins = length_bins(frame, length="length")
    assert bins["bin"].to_list() == [1, 2, 3, 4]
    assert bins["replies"].to_list() == [2] * 4
    assert bins["shortest"].to_list() == [1, 3, 5, 7]


def test_bins_need_replies() -> None:
    """Fewer replies than bins, or a single bin, are refused."""
    frame = pl.DataFrame({"score": [1, 2], "label": [1, 2], "length": [5, 6]})
    for bins in (3, 1):
        with pytest.raises(StatisticsError, match="bins"):
            length_bins(frame, length="length", bins=bins)

"""Counting scores: every row is used or has its reason, whatever the table."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import (
    ScoreError,
    StatisticsError,
    TableError,
    VersionMismatchError,
)
from reply_resolution.stats.counts import ScoreCounts, count_scores, joint_table


def _frame(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame(columns, strict=False)


def _total(counts: ScoreCounts) -> int:
    lost = sum(n for by_arm in counts.excluded.values() for n in by_arm.values())
    return int(counts.counts.sum()) + lost


def test_counts_by_arm_and_level_in_order_of_appearance() -> None:
    """Arms keep the table's order, levels the scale's."""
    counts = count_scores(_frame(arm=["b", "a", "b", "b"], score=[5, 1, 4, 5]))
    assert counts.design == "independent"
    assert counts.arms == ("b", "a")
    assert counts.of("b").tolist() == [0, 0, 0, 1, 2]
    assert counts.of("a").tolist() == [1, 0, 0, 0, 0]
    assert counts.pooled().tolist() == [1, 0, 0, 1, 2]
    assert counts.rows == 4


def test_every_unusable_cell_is_counted_by_arm_and_reason() -> None:
    """Missing, unreadable, out of range and without an arm: nothing is dropped."""
    counts = count_scores(
        _frame(
            arm=["a", "a", "a", "b", "b", "b", None, "  "],
            score=["4", "", "3 or 4", "9", "0", "5", "5", "5"],
        )
    )
    assert counts.excluded == {
        "missing": {"a": 1},
        "missing_arm": {None: 2},
        "not_a_score": {"a": 1},
        "out_of_range": {"b": 2},
    }
    assert _total(counts) == counts.rows == 8


@pytest.mark.parametrize(
    "score",
    [
        pl.Series([5, 4, None, 2], dtype=pl.Int8),
        pl.Series([5.0, 4.0, float("nan"), 2.0]),
        pl.Series(["5", "4/5", "n/a", "2.0"]),
        pl.Series(["5", "4", None, "2"], dtype=pl.Categorical),
    ],
)
def test_any_type_of_column_reads_the_same(score: pl.Series) -> None:
    """Whole numbers, floats with NaN, text and categories give the same counts."""
    frame = pl.DataFrame({"arm": ["a", "a", "b", "b"], "score": score})
    counts = count_scores(frame)
    assert counts.of("a").tolist() == [0, 0, 0, 1, 1]
    assert counts.of("b").tolist() == [0, 1, 0, 0, 0]
    assert counts.excluded == {"missing": {"b": 1}}


def test_booleans_are_no_scores() -> None:
    """True is not 1."""
    counts = count_scores(_frame(arm=["a", "b"], score=[True, False]))
    assert counts.excluded == {"not_a_score": {"a": 1, "b": 1}}


def test_a_status_outranks_the_score() -> None:
    """A refused verdict is counted as refused even where a score stands beside it."""
    counts = count_scores(
        _frame(
            arm=["a", "a", "a", "b", "b"],
            score=[5, 5, None, 4, None],
            status=["scored", "refused", "not_judged", None, "scored"],
        )
    )
    assert counts.of("a").tolist() == [0, 0, 0, 0, 1]
    assert counts.of("b").tolist() == [0, 0, 0, 1, 0]
    assert counts.excluded == {
        "missing": {"b": 1},
        "not_judged": {"a": 1},
        "refused": {"a": 1},
    }


def test_a_status_of_something_else_is_not_used() -> None:
    """A ticket's open or closed is no verdict's status, and that is said."""
    counts = count_scores(
        _frame(arm=["a", "b"], score=[5, 4], status=["open", "closed"])
    )
    assert not counts.excluded
    assert any("'closed', 'open'" in w for w in counts.warnings)


def test_averages_are_refused() -> None:
    """A column of means has no levels: the message says so and shows some."""
    means = [3.5, 4.0, 3.67, 5.0] * 6
    frame = _frame(arm=["a", "b"] * 12, score=means)
    with pytest.raises(ScoreError, match=r"whole scores only: 12 of the 24.*averages"):
        count_scores(frame)
    with pytest.raises(ScoreError, match=r"3\.5"):
        count_scores(frame.with_columns(pl.col("score").cast(pl.String)))


def test_a_stray_fraction_is_only_excluded() -> None:
    """One 3.5 among whole scores is a bad cell, not a column of averages."""
    counts = count_scores(_frame(arm=["a", "b"] * 15, score=[3.5] + [4] * 29))
    assert counts.excluded == {"not_a_score": {"a": 1}}
    few = count_scores(_frame(arm=["a", "b"] * 5, score=[3.5, 4.0] * 5))
    assert few.excluded == {"not_a_score": {"a": 5}}


def test_the_first_vote_is_used() -> None:
    """Of several votes for a request and arm the lowest vote counts, and it is said."""
    counts = count_scores(
        _frame(
            request_id=["r1", "r1", "r2", "r3", "r3"],
            arm=["a", "a", "a", "b", "b"],
            vote=[1, 0, 0, 0, 1],
            score=[5, 1, 3, 2, 4],
        )
    )
    assert counts.of("a").tolist() == [1, 0, 1, 0, 0]
    assert counts.of("b").tolist() == [0, 1, 0, 0, 0]
    assert counts.excluded == {"duplicate": {"a": 1, "b": 1}}
    assert any("Several votes" in w for w in counts.warnings)
    assert _total(counts) == counts.rows


def test_votes_without_request_ids_use_the_lowest_vote() -> None:
    """With no key, only rows of the first vote are counted."""
    counts = count_scores(
        _frame(arm=["a", "b", "a", "b"], vote=[0, 0, 1, 1], score=[5, 4, 1, 1])
    )
    assert counts.pooled().tolist() == [0, 0, 0, 1, 1]
    assert counts.excluded == {"duplicate": {"a": 1, "b": 1}}


def test_repeated_keys_use_the_first_row() -> None:
    """The same request and arm twice: the first row counts, the other does not."""
    counts = count_scores(
        _frame(request_id=["x", "x", "y"], arm=["a", "a", "b"], score=[2, 5, 4])
    )
    assert counts.of("a").tolist() == [0, 1, 0, 0, 0]
    assert counts.excluded == {"duplicate": {"a": 1}}


def test_rows_without_an_id_are_no_duplicates() -> None:
    """Null ids are unknown, not equal."""
    counts = count_scores(
        _frame(request_id=[None, None, "x"], arm=["a", "a", "b"], score=[2, 5, 4])
    )
    assert not counts.excluded


def test_what_the_design_leaves_out_is_warned_about() -> None:
    """Users that repeat and requests in both arms are said, with the flag to use."""
    counts = count_scores(
        _frame(
            request_id=["x", "x", "y", "z"],
            user_id=["u", "v", "u", "w"],
            arm=["a", "b", "a", "b"],
            score=[2, 5, 4, 4],
        )
    )
    assert any("--pair request_id" in w for w in counts.warnings)
    assert any("--cluster user_id" in w for w in counts.warnings)
    clean = count_scores(
        _frame(
            request_id=["x", "q", "y", "z"],
            user_id=["u", "v", None, None],
            arm=["a", "b", "a", "b"],
            score=[2, 5, 4, 4],
        )
    )
    assert clean.warnings == ()


def test_arms_that_differ_in_case_or_blanks_are_kept_apart_and_named() -> None:
    """Nothing is merged by guess."""
    counts = count_scores(_frame(arm=["Control", "control ", "warm"], score=[1, 2, 3]))
    assert counts.arms == ("Control", "control ", "warm")
    assert any("'Control', 'control '" in w for w in counts.warnings)


def test_pairs_by_level_and_what_has_no_partner() -> None:
    """Requests become rows of levels; a missing partner is a 0."""
    counts = count_scores(
        _frame(
            request_id=["x", "y", "z", "x", "y", None],
            arm=["a", "a", "a", "b", "b", "b"],
            score=[2, 5, 4, 4, None, 3],
        ),
        pair="request_id",
    )
    assert counts.design == "paired"
    assert counts.pairs is not None
    assert sorted(counts.pairs.tolist()) == [[2, 4], [4, 0], [5, 0]]
    table = joint_table(counts, 0, 1)
    assert table[1, 3] == 1
    assert table.sum() == 1
    assert counts.excluded == {"missing": {"b": 1}, "unpaired": {"b": 1}}


def test_users_are_pooled_by_what_they_hold() -> None:
    """Equal users are one type; rows without a user are counted."""
    counts = count_scores(
        _frame(
            user_id=["u", "u", "v", "v", "w", None, ""],
            arm=["a", "a", "a", "a", "b", "b", "b"],
            score=[5, 4, 4, 5, 3, 3, 3],
        ),
        cluster="user_id",
    )
    assert counts.design == "clustered"
    assert counts.units is not None
    assert sorted(counts.units.number.tolist()) == [1, 2]
    assert counts.units.vectors.sum() == 3  # one type of two replies, one of one
    assert counts.excluded == {"missing_cluster": {"b": 2}}
    assert counts.counts.sum() == 5


def test_users_of_pairs() -> None:
    """With pairs and users, a unit holds its pairs by both levels."""
    counts = count_scores(
        _frame(
            request_id=["x", "x", "y", "y", "z", "z"],
            user_id=["u", "u", "u", "u", "v", "v"],
            arm=["a", "b"] * 3,
            score=[1, 2, 3, 3, 5, 4],
        ),
        pair="request_id",
        cluster="user_id",
    )
    assert counts.units is not None
    assert counts.units.vectors.shape == (2, 2, 2, 5, 5)
    assert counts.units.number.tolist() == [1, 1]
    assert counts.units.vectors[:, 0, 1].sum() == 3


def test_strata_split_the_counts() -> None:
    """Counts by stratum; rows without one form a stratum and are mentioned."""
    counts = count_scores(
        _frame(
            arm=["a", "b", "a", "b"], score=[1, 2, 3, 4], topic=["x", "x", None, ""]
        ),
        stratum="topic",
    )
    assert counts.strata == ("", "x")
    assert counts.counts.shape == (2, 2, 5)
    assert any("2 rows have no 'topic'" in w for w in counts.warnings)


def test_a_user_in_two_strata_is_refused() -> None:
    """A stratum must belong to the unit that was randomised."""
    frame = _frame(
        user_id=["u", "u", "v", "w"],
        arm=["a", "a", "b", "b"],
        score=[1, 2, 3, 4],
        topic=["x", "y", "x", "y"],
    )
    with pytest.raises(StatisticsError, match="1 unit of 'user_id'"):
        count_scores(frame, cluster="user_id", stratum="topic")


@pytest.mark.parametrize("column", ["metric_version", "judge_id"])
def test_mixed_versions_are_an_error_that_names_both(column: str) -> None:
    """Scores of two rubrics or judges are not one measurement, unless asked for."""
    frame = pl.DataFrame(
        {"arm": ["a", "b"], "score": [1, 2], column: ["one@v1", "one@v2"]}
    )
    with pytest.raises(VersionMismatchError, match="'one@v1', 'one@v2'"):
        count_scores(frame)
    assert count_scores(frame, mix_versions=True).rows == 2


def test_a_missing_column_is_named_with_the_others() -> None:
    """The message lists the columns there are and the option to use."""
    with pytest.raises(TableError, match=r"no column 'score'.*'arm', 'grade'.*--score"):
        count_scores(_frame(arm=["a"], grade=[1]))


def test_lazy_frames_and_parquet_read_only_what_is_needed(tmp_path: Path) -> None:
    """A scanned file gives the counts of the frame."""
    frame = _frame(arm=["a", "b"] * 50, score=[1, 2, 3, 4, 5] * 20, other=["x"] * 100)
    path = tmp_path / "scores.parquet"
    frame.write_parquet(path)
    scanned = count_scores(pl.scan_parquet(path))
    assert (scanned.counts == count_scores(frame).counts).all()


def test_row_order_does_not_matter() -> None:
    """Shuffled rows give the same counts, pairs and units."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "request_id": [f"r{i // 2}" for i in range(200)],
            "user_id": [f"u{i // 6}" for i in range(200)],
            "arm": ["a", "b"] * 100,
            "score": rng.integers(1, 6, 200),
        }
    )
    shuffled = frame.sample(fraction=1, shuffle=True, seed=1)
    one = count_scores(frame, pair="request_id", cluster="user_id")
    two = count_scores(shuffled, pair="request_id", cluster="user_id")
    order = [two.arms.index(a) for a in one.arms]
    assert (one.counts == two.counts[:, order]).all()
    assert one.units is not None
    assert two.units is not None
    assert sorted(one.units.number.tolist()) == sorted(two.units.number.tolist())
    first = joint_table(one, 0, 1)
    assert (first == joint_table(two, order[0], order[1])).all()


def test_known_counts_need_no_table() -> None:
    """Counts may be given; wrong lengths and negative numbers are refused."""
    counts = ScoreCounts.from_table({"a": [1, 2, 3, 4, 5], "b": [0, 0, 0, 0, 9]})
    assert counts.rows == 24
    for bad in ([1, 2, 3], [1, 2, 3, 4, -5], [1, 2, 3, 4, 0.5]):
        with pytest.raises(StatisticsError, match="needs 5 whole numbers"):
            ScoreCounts.from_table({"a": bad, "b": [0, 0, 0, 0, 9]})  # type: ignore[dict-item]


def test_other_scales() -> None:
    """A scale of 0 to 3 has four levels; what is above is out of range."""
    counts = count_scores(_frame(arm=["a", "b", "b"], score=[0, 3, 4]), scale=(0, 3))
    assert counts.levels.tolist() == [0, 1, 2, 3]
    assert counts.excluded == {"out_of_range": {"b": 1}}


def test_other_spellings_are_read_and_listed() -> None:
    """A "4/5" counts as 4, and the warning says how many such cells there were."""
    table = pl.DataFrame(
        {"arm": ["a", "a", "b", "b"], "score": ["4/5", "5", "4.0", " 3 "]}
    )
    counts = count_scores(table)
    assert counts.rows == 4
    (warning,) = [w for w in counts.warnings if "spellings" in w]
    assert "2 rows" in warning
    assert "'4/5' (1)" in warning

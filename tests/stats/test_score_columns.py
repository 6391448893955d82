"""Columns of scores as tables have them, in length bias and agreement."""

from datetime import date

import polars as pl
import pytest

from reply_resolution.errors import StatisticsError, VersionMismatchError
from reply_resolution.stats.agreement_table import agreement_table
from reply_resolution.stats.length import length_bias
from reply_resolution.stats.score_columns import read_column


def _frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "score": [1, 2, 3, 4, 5, 3],
            "label": [1, 3, 3, 4, 4, 2],
            "reply": ["x" * n for n in (90, 50, 200, 120, 340, 130)],
        }
    )


@pytest.mark.parametrize("empty", ["", "  ", None])
def test_an_empty_cell_is_missing_in_text_as_in_numbers(empty: str | None) -> None:
    """A CSV's empty cell and a null of Parquet have one reason."""
    score = ["4", "5", "2", empty]
    bias = length_bias(_frame().head(4).with_columns(score=pl.Series(score)))
    assert bias.excluded == {"missing": 1}


def test_strays_off_the_scale_are_no_scores() -> None:
    """-1, 0 and 9 are left out and named, as `agreement` does it; "4/5" is read."""
    score = [str(1 + k % 5) for k in range(60)]
    score[:9] = ["-1", "-1", "0", "9", "4/5", "4/5", "[[3]]", "?", "n/a"]
    frame = pl.DataFrame(
        {
            "score": score,
            "label_x": [1 + k * 3 % 5 for k in range(60)],
            "reply": ["x" * (1 + 3 * k) for k in range(60)],
        }
    )
    bias = length_bias(frame)
    assert bias.n == 54
    assert bias.excluded == {"not_a_number": 1, "out_of_range": 4, "missing": 1}
    found = agreement_table(frame)
    assert found["label_x"]["n"] == bias.n
    assert found["excluded"]["score"] == {
        "missing": 1,
        "not_a_score": 1,
        "out_of_range": 4,
    }
    assert "--scale LO HI" in bias.warnings[-1]
    said = " ".join(bias.warnings[:-1])
    assert "left out (5): '-1' (2), '0' (1), '9' (1), '?' (1)." in said
    assert "'4/5' as 4 (2), '[[3]]' as 3 (1)." in said
    assert said in " ".join(found["warnings"])


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([1, 2, 3, 4, 5] * 4 + [-1], 20),
        ([1, 2, 3, 4, 5] * 2 + [-1] * 6 + [0, 9], 10),  # many, but known codes
        ([2, 3, 4] * 7 + [-1] * 6 + [9] * 7, 21),
        ([2.5, 3.67, 4, 1.5, 3] * 4 + [-1, 0], 20),  # averages
        ([3] * 19 + [-1], 19),
        ([0, 1] * 3 + [1] * 40, 46),  # resolved or not
        ([0, 1, 2, 3, 4] * 4, 20),
        ([1, 2, 3, 4, 5, 6, 7] * 4, 28),
        ([0.5, 1.5, 2.0, 5.5] * 5, 20),
        ([0, 3, 50, 87, 100] * 4, 20),
        ([-1.5, -0.5, 0.2, 1.1, 2.0] * 4, 20),
    ],
)
def test_which_columns_are_held_to_one_to_five(values: list[float], kept: int) -> None:
    """A few strays or codes for "no answer" go; other scales stay as they are."""
    numbers, reasons, _ = read_column(pl.Series("label", values), scale=None)
    assert numbers.len() - numbers.null_count() == kept
    assert reasons.drop_nulls().to_list() == ["out_of_range"] * (len(values) - kept)


def test_a_scale_that_is_named_is_kept_to() -> None:
    """0 to 4 keeps its 0; a column that may be on another scale is pointed at."""
    values = pl.Series("label", [0, 1, 2, 3, 4, 4, 3, 5, 7])
    assert read_column(values, scale=(0, 5))[1].drop_nulls().len() == 1
    notes = read_column(values, scale=None)[2]
    assert "2 of 9 values are not from 1 to 5: 0 (1), 7 (1)" in notes[0]
    assert "--scale" in notes[0]
    frame = _frame().with_columns(label=pl.Series([0, 4, 2, 3, 3, 4]))
    assert length_bias(frame, scale=(0, 4)).excluded == {"out_of_range": 1}


def test_the_first_vote_of_a_reply_is_used() -> None:
    """Further votes are no replies of their own; they are counted and said."""
    one = _frame().with_columns(request_id=pl.Series(list("abcdef")), vote=pl.lit("0"))
    more = one.with_columns(vote=pl.lit("10"), score=pl.lit(1))
    less = one.with_columns(vote=pl.lit("9"), score=pl.lit(2))
    bias = length_bias(pl.concat([more, one, less], how="vertical_relaxed"))
    assert (bias.n, bias.excluded) == (6, {"duplicate": 12})
    assert bias.points_per_doubling == length_bias(_frame()).points_per_doubling
    assert "12 rows not used, as further votes" in bias.warnings[0]


def test_two_judges_are_not_mixed_unless_asked() -> None:
    """The error names both; rows that are not used do not count."""
    judges = pl.Series(["j1", "j1", "j2", "", None, "j1"])
    frame = _frame().with_columns(judge_id=judges)
    with pytest.raises(VersionMismatchError, match=r"'j1', 'j2'.*--mix-versions"):
        length_bias(frame)
    assert length_bias(frame, mix_versions=True).n == 6
    unused = pl.when(judge_id="j2").then(None).otherwise("score").alias("score")
    assert length_bias(frame.with_columns(unused)).n == 5


def test_decimal_commas_are_decimal_points() -> None:
    """4,5 is 4.5, and 3,667 a number too where other cells make it sure."""
    scores = [1.0, 4.5, 3.667, 2.5, 3.0, 4.0]
    frame = _frame().with_columns(score=pl.Series(scores))
    text = pl.col("score").cast(pl.String).str.replace(".", ",", literal=True)
    bias = length_bias(frame.with_columns(text))
    assert bias.points_per_doubling == length_bias(frame).points_per_doubling
    assert bias.n == 6
    unsure = read_column(pl.Series("score", ["3,667", "4,333"]))[1]
    assert unsure.to_list() == ["not_a_score"] * 2


@pytest.mark.parametrize("scale", [None, (1, 5), (0.5, 4.5), (0, 1000)])
def test_what_is_no_number_in_any_column(scale: tuple[float, float] | None) -> None:
    """Nothing, blanks, words, dates and numbers beyond all bounds: a reason each."""
    columns: list[tuple[pl.Series, list[str]]] = [
        (pl.Series("s", [], dtype=pl.String), []),
        (pl.Series("s", [None, None]), ["missing"] * 2),
        (pl.Series("s", ["", " N/A "]), ["missing"] * 2),
        (pl.Series("s", ["x"], dtype=pl.Categorical), ["not_a_score"]),
        (pl.Series("s", [date(2026, 1, 2)]), ["not_a_score"]),
        (pl.Series("s", [float("inf"), float("nan")]), ["not_a_score", "missing"]),
        (pl.Series("s", [True, "x"], dtype=pl.Object), ["not_a_score"] * 2),
    ]
    for values, expected in columns:
        numbers, reasons, _ = read_column(values, scale=scale)
        assert numbers.dtype == pl.Float64
        assert numbers.null_count() == len(values)
        assert reasons.to_list() == expected
    assert read_column(pl.Series("s", ["1e400", "x"]), scale=scale)[0].null_count() == 2


def test_where_nothing_was_read_the_error_lists_the_cells() -> None:
    """Words where labels belong are named, not only counted."""
    frame = _frame().with_columns(label=pl.lit("Resolved"))
    with pytest.raises(StatisticsError, match=r"6 not_a_number.*'Resolved' \(6\)"):
        length_bias(frame)
    with pytest.raises(StatisticsError, match=r"6 not_a_score.*'Resolved' \(6\)"):
        agreement_table(frame, labels=["label"])

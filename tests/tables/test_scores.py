"""Reading score cells: strict, listed, and the same for a cell and a column."""

from decimal import Decimal
import json
from pathlib import Path
import time

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import ScoreError
from reply_resolution.tables.scores import (
    explain_score,
    parse_scores,
)
from reply_resolution.tables.tables import read_table

MESSY = Path(__file__).parent / "messy"
EXPECTED = json.loads((MESSY / "expected.json").read_text(encoding="utf-8"))
SPELLINGS = EXPECTED["04_score_spellings.csv"]["parsed_integer_1_to_5_strict"]


def test_every_spelling_of_the_messy_file_is_read_or_refused_as_expected():
    """A cell and a column read the 28 spellings exactly as `expected.json` says."""
    cells = read_table(MESSY / "04_score_spellings.csv").frame["judge_score"]
    assert [explain_score(c)[0] for c in cells] == SPELLINGS
    scores, reasons = parse_scores(cells)
    assert scores.to_list() == SPELLINGS
    assert scores.dtype == pl.Int8
    assert [s is None for s in scores] == [r is not None for r in reasons]


@pytest.mark.parametrize(
    ("cell", "score"),
    [
        *(("2,0", 2), ("5,00", 5), ("**4**", 4), ("Score: 4/5", 4), ("“3”", 3)),
        *(("5 (fully resolved)", 5), ("5: fully resolved", 5), ("4 / 5", 4)),
        *(("٤", 4), ("Rating: [[2]]", 2), ("Final score = 3", 3), ("2 – partial", 2)),
        *((4, 4), (4.0, 4), (Decimal(3), 3), (np.int8(2), 2), (np.float64(5), 5)),
    ],
)
def test_clear_spellings_are_read(cell: object, score: int):
    """What leaves no doubt is read, whatever signs stand around it."""
    assert explain_score(cell) == (score, None)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        *((c, "not_a_score") for c in ("1,000", "4:30", "4 - 5", "4-May", "4/10")),
        *((c, "not_a_score") for c in ("4–5", "3 - or 4", "(4)", "4²", "②", "0x4")),
        *((c, "not_a_score") for c in ("4 4", "4%", "--4", "[4", "4?", "four", "4_0")),
        *((c, "not_a_score") for c in ("Confidence: 4", "1e999", "5 / 6", "TRUE")),
        *((c, "not_a_score") for c in (True, False, float("inf"), 2.5, [4], {"s": 4})),
        *((c, "out_of_range") for c in ("0", "-1", "−1", "6", "6/5", 0, 6, -1, 1e9)),
        *((c, "missing") for c in (None, "", " ", "N/A", "nan", "null", "-", "—")),
        *((c, "missing") for c in (float("nan"), "cannot judge", "\u200b")),
    ],
)
def test_doubtful_cells_are_no_scores_and_say_why(cell: object, reason: str):
    """A range, a date, another scale, a word or a sentinel is never a number."""
    assert explain_score(cell) == (None, reason)


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.text(max_size=6),
            st.integers(-3, 12).map(str),
            st.from_regex(r"[1-5](/[0-9]+|\.0)?( - [a-z]+)?", fullmatch=True),
        ),
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_a_column_reads_as_its_cells_do(cells: list[str | None]):
    """The vectorised reading and the reading of single cells agree on any text."""
    scores, reasons = parse_scores(pl.Series(cells, dtype=pl.String))
    assert list(zip(scores, reasons, strict=True)) == [explain_score(c) for c in cells]


@given(st.lists(st.one_of(st.none(), st.floats(), st.integers(-9, 9).map(float))))
@settings(max_examples=60, deadline=None)
def test_a_column_of_decimals_reads_as_its_cells_do(cells: list[float | None]):
    """Infinity, NaN and huge decimals are refused in a column as in a cell."""
    scores, reasons = parse_scores(pl.Series(cells, dtype=pl.Float64))
    assert list(zip(scores, reasons, strict=True)) == [explain_score(c) for c in cells]


@pytest.mark.parametrize(
    "dtype", [pl.Int8, pl.Int64, pl.UInt8, pl.UInt64, pl.Float32, pl.Decimal(10, 2)]
)
def test_every_numeric_type_is_read(dtype: pl.DataType):
    """The type of a numeric column changes nothing."""
    scores, _ = parse_scores(pl.Series([1, 5, 6, None], dtype=dtype))
    assert scores.to_list() == [1, 5, None, None]


def test_columns_that_hold_no_numbers_are_refused_cell_by_cell():
    """Booleans, dates and lists are no scores; a column of nothing is missing."""
    for values in (pl.Series([True, None]), pl.Series([[4], None])):
        assert parse_scores(values)[1].to_list() == ["not_a_score", "missing"]
    dates = pl.Series(["2026-05-04"]).str.to_date()
    assert parse_scores(dates)[1].to_list() == ["not_a_score"]
    assert parse_scores(pl.Series([None]))[1].to_list() == ["missing"]
    mixed = pl.Series([4, True, "4/5"], dtype=pl.Object)
    assert parse_scores(mixed)[0].to_list() == [4, None, 4]


def test_another_scale_has_its_own_denominator_and_range():
    """On a scale of 0 to 10, "4/10" is a score, "4/5" is not, and 0 is."""
    assert explain_score("4/10", scale=(0, 10)) == (4, None)
    assert explain_score("4/5", scale=(0, 10)) == (None, "not_a_score")
    assert parse_scores(pl.Series([0, 10, 11]), scale=(0, 10))[0].to_list() == [
        *(0, 10),
        None,
    ]


@pytest.mark.parametrize("scale", [(5, 1), (1, 1), (0, 1000)])
def test_an_impossible_scale_is_refused(scale: tuple[int, int]):
    """A scale that is upside down, has one level or does not fit is an error."""
    with pytest.raises(ScoreError, match="lowest first"):
        parse_scores(pl.Series([1]), scale=scale)


def test_two_million_numbers_are_read_without_a_loop():
    """Two million cells take well under 3 seconds, as numbers and as text."""
    values = pl.Series(np.random.default_rng(7).integers(0, 7, 2_000_000))
    start = time.perf_counter()
    for column in (values, values.cast(pl.Float64), values.cast(pl.String)):
        assert parse_scores(column)[0].null_count() > 0
    assert time.perf_counter() - start < 9

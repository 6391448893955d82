"""What a reader is told of spellings: of scores, arms, ids and columns."""

from pathlib import Path

import polars as pl
import pytest

from reply_resolution.stats.counts import count_scores
from reply_resolution.tables.scores import list_cells
from reply_resolution.tables.tables import read_table


def test_cells_that_were_not_read_are_listed_with_their_rows() -> None:
    """The reader sees what stood there, the most frequent first."""
    frame = pl.DataFrame(
        {"arm": ["a", "b"] * 4, "score": ["4", "n/a", "?", "?", "9", "good", "3", ""]}
    )
    (said,) = count_scores(frame).warnings
    assert said == (
        "Cells of column 'score' that are no scores from 1 to 5, not used: 4 rows: "
        "'?' (2), '9' (1), 'good' (1)."
    )


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64, pl.Decimal(5, 1)])
def test_numbers_off_the_scale_are_listed_as_numbers(kind: pl.DataType) -> None:
    """-1 in any column of numbers is -1, once per distinct value."""
    score = pl.Series("score", [4, -1, -1, 9], dtype=kind)
    frame = pl.DataFrame({"arm": ["a", "b", "a", "b"]}).with_columns(score)
    assert count_scores(frame).warnings[0].endswith("3 rows: -1 (2), 9 (1).")


def test_cells_of_a_row_whose_status_says_why_are_not_listed_again() -> None:
    """The status counts, not the cell."""
    frame = pl.DataFrame(
        {"arm": ["a", "b"], "score": ["4", "?"], "status": ["scored", "invalid"]}
    )
    assert count_scores(frame).warnings == ()


def test_a_list_that_was_cut_says_how_many_are_missing() -> None:
    """Eight distinct values are shown, and the others counted."""
    odd = pl.Series("value", [f"{k}/x" for k in range(11)])
    assert list_cells(pl.DataFrame([odd])).endswith("(1) and 3 more")
    cells = ["4/5", "4.0", "4.", "+4", "1e0", "[4]", '"4"', "4 of 5", "4 - ok", "4/5"]
    frame = pl.DataFrame({"arm": ["a", "b"] * 5, "score": cells})
    assert count_scores(frame).warnings[0].endswith("and 1 more.")


@pytest.mark.parametrize("lazy", [False, True])
def test_ids_that_nearly_match_are_pointed_at_where_they_stay_unpaired(
    root: Path, lazy: bool
) -> None:
    """`R5` and `r5` of the messy set are two requests, and the reader hears of it."""
    frame = read_table(root / "tests/tables/messy/06_duplicate_ids.csv").frame
    table = frame.lazy() if lazy else frame
    columns = {"arm": "system", "score": "judge_score"}
    said = count_scores(table, **columns, pair="request_id").warnings
    (near,) = [w for w in said if "without a partner" in w]
    assert "' r4' and 'r4'" in near
    assert "'R5' and 'r5'" in near
    assert "write its id in one way" in near
    assert not any("partner" in w for w in count_scores(table, **columns).warnings)
    clean = frame.filter(pl.col("request_id").is_in(["r3", "R5"]))
    said = count_scores(clean, **columns, pair="request_id").warnings
    assert not any("partner" in w for w in said)

"""Tables of verdicts: schema, status, one judge, and the join to replies."""

from pathlib import Path

import polars as pl
import pytest

from reply_resolution.errors import TableError
from reply_resolution.tables.verdicts import (
    VERDICT_SCHEMA,
    join_and_note,
    join_verdicts,
    read_verdicts,
)

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        *(("experiment", 320), ("replay", 160), ("calibration", 160)),
        *(("twins", 100), ("probes", 105), ("small_model", 120)),
    ],
)
def test_the_bundled_verdicts_are_read(name: str, rows: int):
    """Every bundled file has the full schema, in order."""
    frame = read_verdicts(DATA / f"verdicts_{name}.jsonl").frame
    assert frame.columns[: len(VERDICT_SCHEMA)] == list(VERDICT_SCHEMA)
    assert {c: frame.schema[c] for c in VERDICT_SCHEMA} == VERDICT_SCHEMA
    assert frame.height == rows


def test_without_a_status_it_follows_from_the_score():
    """A cell that is no score is `invalid` with its reason, and listed."""
    frame = pl.DataFrame(
        {"request_id": ["1", "2", "3", "4"], "score": ["4", "4/10", "9", None]}
    )
    table = read_verdicts(frame)
    assert table.frame.select("score", "status", "status_detail").rows() == [
        (4, "scored", None),
        (None, "invalid", "not_a_score"),
        (None, "invalid", "out_of_range"),
        (None, "invalid", "missing"),
    ]
    assert table.problems["value"].to_list() == ["4/10", "9"]
    assert "not used: 2: '4/10' (1), '9' (1)" in table.notes[0]
    assert table.frame["vote"].to_list() == [0] * 4


def test_every_spelling_but_a_plain_digit_is_counted():
    """What was read from another spelling is said with its score and rows."""
    frame = pl.DataFrame(
        {"request_id": list("abcd"), "score": ["4", "4/5", "4/5", "４"]}
    )
    note = read_verdicts(frame).notes[0]
    assert note == "Scores read from other spellings: 3: '4/5' as 4 (2), '４' as 4 (1)."


def test_a_csv_of_verdicts_gets_its_types(tmp_path: Path):
    """Text cells become numbers and truth values; empty cells are null."""
    path = tmp_path / "t.csv"
    path.write_text(
        "request_id,score,vote,cached,cost_usd,latency_ms,status,arm\n"
        "1,4,1,true,0.5,120,scored,A\n2,,,false,,,refused,\n"
    )
    rows = read_verdicts(path).frame.select(
        "score", "vote", "cached", "cost_usd", "latency_ms", "status", "arm"
    )
    assert rows.rows() == [
        (4, 1, True, 0.5, 120.0, "scored", "A"),
        (None, 0, False, None, None, "refused", None),
    ]
    path.write_text("request_id,score,attempts\n1,4,two\n")
    with pytest.raises(TableError, match=r"'attempts' holds 'two'.*a whole number"):
        read_verdicts(path)


def test_a_wrong_or_contradictory_status_is_refused():
    """Unknown words, a score without "scored", "scored" without a score."""
    base = {"request_id": ["1"]}
    with pytest.raises(TableError, match=r"unknown status 'ok'.*Allowed: scored"):
        read_verdicts(pl.DataFrame({**base, "score": [4], "status": ["ok"]}))
    for score, status in ((4, "refused"), (None, "scored")):
        frame = pl.DataFrame({**base, "score": [score], "status": [status]})
        with pytest.raises(TableError, match="contradict each other in 1 row"):
            read_verdicts(frame)
    with pytest.raises(TableError, match="no column 'score'"):
        read_verdicts(pl.DataFrame(base))


def test_two_verdicts_of_one_vote_are_refused_and_copies_dropped():
    """The same key twice with another score is an error that names the rows."""
    two = pl.DataFrame({"request_id": ["1", "1"], "score": [4, 5]})
    with pytest.raises(TableError, match=r"'1'.*in rows 1, 2"):
        read_verdicts(two)
    same = pl.DataFrame({"request_id": ["1", "1"], "score": [4, 4]})
    assert read_verdicts(same).frame.height == 1
    votes = two.with_columns(pl.Series("vote", [0, 1]))
    assert read_verdicts(votes).frame.height == 2


def test_every_reply_keeps_its_row_and_gets_its_verdict():
    """Matched by id and arm, in the replies' order; what is left over is counted."""
    replies = pl.DataFrame({"request_id": ["2", "1", "1"], "arm": ["A", "B", "A"]})
    verdicts = read_verdicts(
        pl.DataFrame(
            {
                "request_id": ["1", "1", "9", "1"],
                "arm": ["A", "B", "A", "A"],
                "vote": [0, 0, 0, 1],
                "score": [3, 4, 5, 1],
            }
        )
    )
    joined, notes = join_and_note(replies, verdicts)
    assert joined.select("request_id", "arm", "score").rows() == [
        ("2", "A", None),
        ("1", "B", 4),
        ("1", "A", 3),
    ]
    assert notes == (
        "Replies without a verdict: 1 of 3.",
        "Verdicts without a reply, not used: 1 of 3.",
    )


def test_tables_without_arms_are_matched_by_id():
    """Null arms match, and a reply's own column of the same name is kept aside."""
    replies = pl.DataFrame(
        {"request_id": ["1", "2"], "arm": ["A", "B"], "score": [9, 9]}
    )
    verdicts = read_verdicts(pl.DataFrame({"request_id": ["2", "1"], "score": [5, 1]}))
    joined = join_verdicts(replies, verdicts)
    assert joined["score"].to_list() == [1, 5]
    assert joined["score_given"].to_list() == [9, 9]
    assert joined["arm"].to_list() == ["A", "B"]


def test_an_ambiguous_join_is_refused():
    """Pairs need the arm; several judges or kinds need a choice."""
    pairs = pl.DataFrame({"request_id": ["1", "1"], "arm": ["A", "B"]})
    verdicts = read_verdicts(pl.DataFrame({"request_id": ["1"], "score": [5]})).frame
    with pytest.raises(TableError, match="no arm: which"):
        join_verdicts(pairs, verdicts)
    twins = read_verdicts(DATA / "verdicts_twins.jsonl").frame
    with pytest.raises(TableError, match="several verdicts of vote 0"):
        join_verdicts(pl.DataFrame({"request_id": ["C0403"]}), twins)

"""Checked tables of replies: keys, arms, empty texts, types."""

import json
from pathlib import Path

import polars as pl
import pytest

from reply_resolution.errors import TableError
from reply_resolution.tables.replies import empty_expr, length_expr, read_replies

MESSY = Path(__file__).parent / "messy"
DATA = Path(__file__).parents[2] / "data"
EXPECTED = json.loads((MESSY / "expected.json").read_text(encoding="utf-8"))
SHORT = ["request_id", "reply"]


def make(**columns: list[object]) -> pl.DataFrame:
    """Replies r0, r1, ... with columns replaced or added; one row if none given."""
    rows = len(next(iter(columns.values()), [None]))
    base = {"request_id": [f"r{i}" for i in range(rows)], "request": ["q"] * rows}
    return pl.DataFrame({**base, "reply": ["a"] * rows, **columns})


def test_the_bundled_experiment_is_read_without_a_remark():
    """320 rows, numbers as numbers, ids as text, nothing to complain about."""
    table = read_replies(DATA / "experiment.csv", need_arm=True)
    assert table.frame.height == 320
    assert table.notes == ()
    assert table.problems.is_empty()
    assert table.frame.schema["latency_ms"] == pl.Int64
    assert table.frame.schema["cost_usd"] == pl.Float64
    assert table.frame.schema["request_id"] == pl.String


def test_conflicting_rows_of_one_key_are_refused_by_row():
    """File 06: r2 in arm A has two scores; both rows are named, r3 is a pair."""
    with pytest.raises(TableError, match=r"1 key.*'r2', 'A' in rows 3, 4"):
        read_replies(
            MESSY / "06_duplicate_ids.csv", columns={"arm": "system"}, required=SHORT
        )


def test_exact_duplicates_are_dropped_and_counted():
    """A row that repeats another in every cell goes, with a notice and its number."""
    table = read_replies(make(request_id=["a", "b", "a"], arm=["A", "A", "A"]))
    assert table.frame["request_id"].to_list() == ["a", "b"]
    assert "Dropped as exact duplicates: 1 row(s)." in table.notes
    assert table.problems.rows() == [(3, "a", None, None, "duplicate")]


def test_duplicates_are_compared_in_one_form_and_shown_as_given():
    """A decomposed accent equals a composed one; the first stays as it was."""
    table = read_replies(make(request_id=["a", "a"], reply=["cafe\u0301", "café"]))
    assert table.frame["reply"].to_list() == ["cafe\u0301"]


def test_nearly_equal_ids_are_kept_apart_and_said():
    """007 is not 7, 12.0 not 12, " r4" not "r4", R5 not r5: one note names them."""
    ids = ["007", "7", "12.0", "12", " r4", "r4", "R5", "r5", "x"]
    table = read_replies(make(request_id=ids))
    assert table.frame["request_id"].to_list() == ids
    note = next(n for n in table.notes if "nearly the same" in n)
    assert "4 group(s)" in note
    assert "'007' and '7'" in note


def test_the_same_id_in_two_arms_is_a_pair():
    """The key is (request_id, arm)."""
    table = read_replies(make(request_id=["r", "r"], arm=["A", "B"]), need_arm=True)
    assert table.frame.height == 2
    assert table.notes == ()


def test_arm_spellings_are_refused_in_an_experiment_and_mapped_on_request():
    """Case and blanks do not make two arms; the caller says which is meant."""
    frame = make(arm=["control", "Control ", "treatment"])
    with pytest.raises(
        TableError, match=r"'control' \(1 rows\), 'Control ' \(1 rows\)"
    ):
        read_replies(frame, need_arm=True)
    assert any("spelled in 2 ways" in n for n in read_replies(frame).notes)
    table = read_replies(frame, need_arm=True, arms={"Control ": "control"})
    assert table.frame["arm"].to_list() == ["control", "control", "treatment"]


def test_rows_without_an_arm_are_listed():
    """A blank arm is null, and its rows are named."""
    table = read_replies(make(arm=["A", " ", None]), need_arm=True)
    assert table.frame["arm"].to_list() == ["A", None, None]
    assert table.problems["reason"].to_list() == ["missing_arm"] * 2
    assert table.problems["row"].to_list() == [2, 3]


def test_empty_replies_and_placeholders_are_flagged_and_kept():
    """File 12: what shows nothing is empty; the words for nothing stay text."""
    expected = EXPECTED["12_empty_replies.csv"]
    table = read_replies(MESSY / "12_empty_replies.csv", required=SHORT)
    assert table.frame.height == 12
    for reason, key in (
        ("empty_reply", "truly_empty_after_strip"),
        ("placeholder_reply", "placeholders_to_flag"),
    ):
        ids = table.problems.filter(pl.col("reason") == reason)["request_id"]
        assert ids.to_list() == expected[key]
    assert "null" in table.frame["reply"].to_list()


def test_lengths_are_code_points():
    """File 09: never bytes; CRLF counts as one."""
    expected = EXPECTED["09_unicode.csv"]["length_code_points"]
    frame = read_replies(MESSY / "09_unicode.csv", required=SHORT).frame
    found = frame.select("request_id", length_expr("reply"))
    assert dict(found.rows()) == expected
    assert make(reply=["a\r\nb"]).select(length_expr("reply"))["reply"][0] == 3


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        *(
            (t, True)
            for t in (None, "", " \n\t\u00a0", "\u200b\u2060\ufeff", "\u3164\u2800")
        ),
        *((t, False) for t in ("null", "None", "-", "\u200bx", "👍")),
    ],
)
def test_empty_means_that_nothing_is_shown(text: str | None, empty: bool):
    """Blanks, controls, zero-width characters and fillers; words never."""
    frame = pl.DataFrame({"t": [text]}, schema={"t": pl.String})
    assert frame.select(empty_expr("t"))["t"][0] == empty


def test_null_texts_become_empty_ones():
    """Downstream a reply is always a string."""
    table = read_replies(make(reply=[None, "a"], request=["q", None]))
    assert table.frame["reply"].to_list() == ["", "a"]
    assert table.problems["reason"].to_list() == ["empty_reply", "empty_request"]


def test_a_missing_column_names_what_there_is():
    """The message lists the columns and how to map one."""
    with pytest.raises(TableError, match=r"no column 'request', 'reply'.*columns="):
        read_replies(pl.DataFrame({"request_id": ["1"], "answer": ["a"]}))
    with pytest.raises(TableError, match="no column 'arm'"):
        read_replies(make(), need_arm=True)


def test_loosely_named_columns_are_recognised_and_said():
    """Case and blanks in a header are forgiven, with a note."""
    frame = make().rename({"request_id": "Request_ID "})
    table = read_replies(frame)
    assert "request_id" in table.frame.columns
    assert table.notes == ("Column 'Request_ID ' is read as 'request_id'.",)


def test_numeric_ids_and_texts_become_strings():
    """Types of ids do not matter: 7 is "7", 12.0 is "12.0"."""
    frame = make(request_id=[7, 8], reply=[1.5, None], arm=[0, 1])
    out = read_replies(frame, need_arm=True).frame
    assert out["request_id"].to_list() == ["7", "8"]
    assert out["arm"].to_list() == ["0", "1"]
    assert out["reply"].to_list() == ["1.5", ""]


def test_rows_without_an_id_stop_or_are_skipped():
    """A reply nobody can name is not guessed an id."""
    frame = make(request_id=["a", " ", None])
    with pytest.raises(TableError, match=r"2 row\(s\) without a request_id: row 2, 3"):
        read_replies(frame)
    table = read_replies(frame, on_bad_line="skip")
    assert table.frame.height == 1
    assert table.problems["reason"].to_list() == ["missing_id"] * 2


def test_decimal_commas_become_numbers_and_are_said(tmp_path: Path):
    """A column of plain numbers is numeric, other columns stay text."""
    path = tmp_path / "t.csv"
    path.write_text("request_id;request;reply;cost;zip\n1;q;a;0,5;01\n2;q;b;1;02\n")
    table = read_replies(path)
    assert table.frame["cost"].to_list() == [0.5, 1.0]
    assert table.frame["zip"].to_list() == ["01", "02"]
    assert any("decimal commas" in n for n in table.notes)


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1", "20", ""], [1, 20, None]),
        (["0.5", "1e-3", "-2"], [0.5, 0.001, -2.0]),
        (['"12,50"', "3"], [12.5, 3.0]),
        *((c, None) for c in (["007", "8"], ['"1,000"', '"2,500"'], ["12 EUR"])),
        *((c, None) for c in (["true"], ["", "n/a"], ["."], ["inf"], ['"1,000.5"'])),
    ],
)
def test_only_plain_numbers_make_a_column_of_numbers(
    tmp_path: Path, cells: list[str], numbers: list[float] | None
):
    """Ids with leading zeros, thousands and units stay text; nothing is guessed."""
    path = tmp_path / "t.csv"
    rows = "".join(f"r{i},q,a,{cell}\n" for i, cell in enumerate(cells))
    path.write_text("request_id,request,reply,x\n" + rows)
    found = read_replies(path).frame["x"]
    assert (None if found.dtype == pl.String else found.to_list()) == numbers

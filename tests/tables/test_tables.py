"""Reading files: encodings, separators, quotes, broken records, other formats."""

import csv
import hashlib
import io
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import polars as pl
import pytest

from reply_resolution.errors import TableError
from reply_resolution.tables.files import read_delimited
from reply_resolution.tables.tables import read_table

MESSY = Path(__file__).parent / "messy"
EXPECTED = json.loads((MESSY / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name", [n for n, e in EXPECTED.items() if n.endswith((".csv", ".txt"))]
)
def test_messy_files_have_as_many_records_as_they_should(name: str):
    """Records are counted, not lines, whatever the encoding and separator."""
    assert read_table(MESSY / name).frame.height == EXPECTED[name].get("rows", 20)


def test_a_byte_order_mark_and_semicolons_are_found():
    """File 01: the first header has no mark, `;` separates, the comma is a decimal."""
    table = read_table(MESSY / "01_bom_semicolon_decimal_comma.csv")
    assert table.frame.columns[0] == "request_id"
    assert table.frame["judge_score"].to_list() == ["4,5", "2,0", "5", "3"]
    assert any("semicolon" in note for note in table.notes)


def test_windows_1252_is_not_read_as_latin_1():
    """File 02: dashes, curly quotes and the euro sign survive, and it is said."""
    table = read_table(MESSY / "02_cp1252.csv")
    assert table.frame["reply"][0] == EXPECTED["02_cp1252.csv"]["reply_0"]
    assert any("Windows-1252" in n and "byte offset" in n for n in table.notes)


def test_line_breaks_and_quotes_in_cells_are_kept():
    """File 08: CRLF, doubled quotes, tabs and backslashes stand as they were."""
    replies = read_table(MESSY / "08_multiline_quotes.csv").frame["reply"]
    assert replies[0] == EXPECTED["08_multiline_quotes.csv"]["reply_0"]
    assert replies[1] == EXPECTED["08_multiline_quotes.csv"]["reply_1"]
    assert replies[2] == "ends with a backslash \\"


TEXT = "request_id;arm;reply\nr1;A;„Größe“ 5 € – ok\nr2;B;नमस्ते\n"


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"],
)
@pytest.mark.parametrize("separator", [";", ",", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_encodings_separators_and_line_ends_are_found(
    tmp_path: Path, encoding: str, separator: str, newline: str
):
    """Any of them together give the same table, with or without a byte order mark."""
    path = tmp_path / "t.csv"
    text = TEXT.replace(";", separator).replace("\n", newline)
    path.write_bytes(text.encode(encoding))
    frame = read_table(path).frame
    assert frame.rows() == [("r1", "A", "„Größe“ 5 € – ok"), ("r2", "B", "नमस्ते")]
    assert frame.columns == ["request_id", "arm", "reply"]


def test_big_endian_with_its_mark_is_read(tmp_path: Path):
    """UTF-16 with the bytes swapped and a mark is UTF-16 all the same."""
    path = tmp_path / "t.txt"
    path.write_bytes(b"\xfe\xff" + TEXT.replace(";", "\t").encode("utf-16-be"))
    assert read_table(path).frame.height == 2


def test_mixed_line_ends_are_one_kind(tmp_path: Path):
    """A file pasted together from three systems has its four records."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\r\n1,2\n3,4\r5,6\r\n7,8")
    assert read_table(path).frame["a"].to_list() == ["1", "3", "5", "7"]


def test_semicolons_with_quoted_line_breaks_are_read(tmp_path: Path):
    """European exports with paragraphs in quotes keep their records and cells."""
    path = tmp_path / "t.csv"
    path.write_bytes(
        'request_id;reply;x\r\n1;"Hallo,\r\nbitte ""hier""; danke";4,5\r\n'
        "2;gut;3\r\n".encode("utf-8-sig")
    )
    frame = read_table(path).frame
    assert frame["reply"].to_list() == ['Hallo,\r\nbitte "hier"; danke', "gut"]


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
def test_excels_own_first_line_declares_the_separator(tmp_path: Path, first: str):
    """`sep=;` is an instruction, not the header."""
    path = tmp_path / "t.csv"
    path.write_text(f"{first}\r\na;b\r\n1;x,y\r\n", encoding="utf-8", newline="")
    assert read_table(path).frame.rows() == [("1", "x,y")]


def test_a_separator_in_the_text_does_not_win(tmp_path: Path):
    """Commas inside every reply do not make a semicolon file a comma file."""
    path = tmp_path / "t.csv"
    rows = "".join(f"{i};one, two, three;4\n" for i in range(50))
    path.write_text("request_id;reply, as sent, first;score\n" + rows)
    assert read_table(path).frame.width == 3


def test_separators_at_line_ends_and_blank_rows_are_left_out(tmp_path: Path):
    """What a spreadsheet leaves behind is dropped and counted."""
    path = tmp_path / "t.csv"
    path.write_text("a,b,\n1,2,\n3,4,\n,,\n\n,,\n")
    table = read_table(path)
    assert table.frame.rows() == [("1", "2"), ("3", "4")]
    assert any("blank: 2 row(s)" in note for note in table.notes)
    assert any("no name and no text" in note for note in table.notes)


def test_separators_only_at_the_ends_of_rows_are_forgiven(tmp_path: Path):
    """A row may end in empty fields that the header does not have."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2,\n3,4,,\n")
    assert read_table(path).frame.rows() == [("1", "2"), ("3", "4")]


def test_a_nameless_column_with_text_gets_a_name(tmp_path: Path):
    """An index column that another tool wrote is kept and named."""
    path = tmp_path / "t.csv"
    path.write_text(",a\n0,x\n1,y\n")
    table = read_table(path)
    assert table.frame.columns == ["column_1", "a"]
    assert any("column_1" in note for note in table.notes)


def test_a_repeated_column_name_is_refused(tmp_path: Path):
    """Which of two columns is meant is the user's to say."""
    path = tmp_path / "t.csv"
    path.write_text("id,reply,reply\n1,a,b\n")
    with pytest.raises(TableError, match=r"'reply' in columns \[2, 3\]"):
        read_table(path)


def test_a_very_long_cell_is_one_cell(tmp_path: Path):
    """A reply of a million characters is read whole, quoted or not."""
    path = tmp_path / "t.csv"
    long = "x" * 1_000_000
    path.write_text(f'id,reply\n1,"{long}"\n2,{long}\n')
    assert read_table(path).frame["reply"].str.len_chars().to_list() == [10**6] * 2


def test_words_for_nothing_stay_words(tmp_path: Path):
    """`null`, `NaN`, `NA` and an empty cell are text; ids keep their zeros."""
    path = tmp_path / "t.csv"
    path.write_text("id,reply\n007,null\n7,NaN\n1.0,NA\n1,\n")
    frame = read_table(path).frame
    assert frame["reply"].to_list() == ["null", "NaN", "NA", ""]
    assert frame["id"].to_list() == ["007", "7", "1.0", "1"]


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ("a,b\n1,2\n3\n4,5\n", r"row 2 \(line 3\): 1 fields where the header has 2"),
        ("a,b\n1,2\n3,4,5\n6,7\n", r"row 2 \(line 3\): 3 fields.*unquoted"),
        ('a,b\n1,"x\ny"\n"z"q,5\n6,7\n', r"row 2 \(line 4\): text after a closing"),
    ],
)
def test_a_broken_record_stops_or_is_skipped_and_listed(
    tmp_path: Path, content: str, where: str
):
    """It is named by row and line; skipped on request, with the rest read."""
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(TableError, match=where):
        read_table(path)
    table = read_table(path, on_bad_line="skip")
    assert table.frame.height == 2
    assert table.problems["row"].to_list() == [2]
    assert any("unreadable: 1" in note for note in table.notes)


def test_a_quote_that_never_closes_is_always_an_error(tmp_path: Path):
    """Skipping it would lose the rest of the file without a word."""
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,2\n3,"open\n' + "4,5\n" * 100)
    with pytest.raises(TableError, match="quote opened on line 3 is never closed"):
        read_table(path, on_bad_line="skip")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b" \n\n", "is empty"),
        ("t.csv", b"\xef\xbb\xbf", "is empty"),
        ("t.csv", b"\xff\xfe", "is empty"),
        ("t.csv", b"a,b\n", "no row below"),
        ("t.csv", b"PK\x03\x04rest", "Excel workbook"),
        ("t.csv", b"\x1f\x8b\x08rest", "gzip"),
        ("t.csv", b"%PDF-1.7", "PDF"),
        ("t.csv", bytes(range(256)) * 4, "not a text file: there is a NUL byte"),
        ("t.csv", b"request_id,reply\n1,a\x00b\n", "there is a NUL byte"),
        ("t.csv", b"a,b\n\x89\x02\x03,2\n", "not a text file.*offset 5, 0x02"),
        ("t.csv", b"a,b\n\x81\x8d,2\n", "byte offset 4.*nor Windows-1252"),
        ("t.csv", "a,b\né,ü\n".encode()[:-1] + b"\xc3", "UTF-8 but for 1 byte"),
        ("t.csv", b'{"a": 1}\n', "Rename it to .jsonl"),
        ("t.txt", b"\xff\xfea\x00,\x00\x31", "cut short"),
        ("t.parquet", b"a,b\n1,2\n", "not a Parquet file"),
        ("t.parquet", b"PAR1 broken PAR1", "damaged"),
        ("t.xlsx", b"PK\x03\x04rest", r"not read from .xlsx.*Allowed: .csv"),
        ("t", b"a,b\n1,2\n", "not read from a name without ending"),
        ("t.jsonl", b"\n\n", "is empty"),
        ("t.json", b"[]", "no record"),
        ("t.json", b"[1, 2", "not valid JSON"),
    ],
)
def test_what_is_no_table_is_refused_with_its_name(
    tmp_path: Path, name: str, content: bytes, message: str
):
    """The message names the file, what was found, and what is allowed or to do."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert name in str(caught.value)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path):
    """Both are named, with what to give instead."""
    with pytest.raises(TableError, match=r"is a folder.*name one file"):
        read_table(tmp_path)
    with pytest.raises(TableError, match=r"no\.csv does not exist"):
        read_table(tmp_path / "no.csv")


def test_json_lines_name_their_bad_lines():
    """File 07: the broken line and the NaN are named by number, or skipped."""
    path = MESSY / "07_nested_chat.jsonl"
    with pytest.raises(TableError, match=r"line 6: not valid.*line 8: .*NaN"):
        read_table(path)
    table = read_table(path, on_bad_line="skip")
    assert table.frame.height == 8
    assert table.problems["row"].to_list() == [6, 8]


def test_json_keeps_types_and_mixed_columns_become_text(tmp_path: Path):
    """A column has one type; where values differ they are text as JSON spells them."""
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"n": 1, "x": 0.5, "b": true, "m": 4, "d": {"k": "é"}, "big": 1}\n'
        '{"n": 2, "x": 2, "b": null, "m": "4/5", "u": "a\u2028b"}\n'
        '{"n": 3, "big": 123456789012345678901234567890}\n',
        encoding="utf-8",
    )
    frame = read_table(path).frame
    assert frame.dtypes[:4] == [pl.Int64, pl.Float64, pl.Boolean, pl.String]
    assert frame["m"].to_list() == ["4", "4/5", None]
    assert frame["d"][0] == '{"k": "é"}'
    assert frame["u"][1] == "a\u2028b"
    assert frame["big"][2] == "123456789012345678901234567890"


def test_a_json_array_is_read_like_lines(tmp_path: Path):
    """A dump of one array has its objects as rows; what is no object is listed."""
    path = tmp_path / "t.json"
    path.write_text('[{"a": 1}, 2, {"a": 3}]')
    assert read_table(path, on_bad_line="skip").frame["a"].to_list() == [1, 3]
    with pytest.raises(TableError, match="row 2: not an object"):
        read_table(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_json_lines_come_in_other_encodings_too(tmp_path: Path, encoding: str):
    """Marks, UTF-16 and Windows line ends are no trap for JSON lines either."""
    path = tmp_path / "t.jsonl"
    path.write_bytes('{"a": "é €"}\r\n\r\n{"a": "b"}'.encode(encoding))
    assert read_table(path).frame["a"].to_list() == ["é €", "b"]


@pytest.mark.parametrize("source", [{"a": [1]}, pl.LazyFrame({"a": [1]}), None, 3])
def test_other_objects_are_refused_with_what_to_do(source: object):
    """A dictionary, a lazy frame or nothing is no table."""
    with pytest.raises(TableError, match=r"cannot be read from a .*from_pandas"):
        read_table(source)


def test_parquet_keeps_its_types_even_under_another_name(tmp_path: Path):
    """Content decides; the wrong ending is said."""
    frame = pl.DataFrame({"request_id": ["007"], "n": [4]})
    frame.write_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").frame.equals(frame)
    (tmp_path / "t.parquet").rename(tmp_path / "t.csv")
    table = read_table(tmp_path / "t.csv")
    assert table.frame.equals(frame)
    assert table.notes == ("t.csv holds Parquet: read as such.",)


def test_columns_are_mapped_by_our_name_first(tmp_path: Path):
    """`{ours: theirs}` renames in place; a wrong name lists what there is."""
    path = tmp_path / "t.csv"
    path.write_text("id,System ,reply\n1,A,x\n")
    frame = read_table(path, columns={"arm": "system", "request_id": "id"}).frame
    assert frame.columns == ["request_id", "arm", "reply"]
    with pytest.raises(TableError, match=r"no column 'variant'.*'id', 'System '"):
        read_table(path, columns={"arm": "variant"})
    with pytest.raises(TableError, match="Our name comes first"):
        read_table(path, columns={"reply": "answer"})
    table = read_table(path, columns={"reply": "System "})
    assert table.frame.rows() == [("1", "A")]
    assert "'reply' was left out" in table.notes[0]


def test_real_tables_are_read_without_a_loss(real_data: Path):
    """The real sets: all rows of CSV, Parquet and threads, and nothing to repair."""
    for name, rows in (
        ("hanna/human_ratings.parquet", 19008),
        ("hanna/tidy.csv", 1056),
        ("llm_rubric_real/tidy.csv", 223),
        ("mtrag_human/tidy.csv", 477),
        ("mtrag_human/threads.jsonl", 159),
    ):
        table = read_table(real_data / name)
        assert table.frame.height == rows
        assert table.problems.is_empty()


def test_the_hash_is_of_the_files_bytes(tmp_path: Path):
    """So that a report can say which file it was made from."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n")
    assert read_table(path).sha256 == hashlib.sha256(b"a,b\n1,2\n").hexdigest()


CELL = st.text(
    st.one_of(
        st.sampled_from(',;"\n\r x'),
        st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x1a"),
    ),
    max_size=6,
).map(lambda cell: cell.replace("\r", "\r\n"))  # csv.writer leaves a lone \r unquoted


@given(
    st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=12),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=100, deadline=None)
def test_what_was_written_is_read(
    rows: list[tuple[str, ...]], style: int, newline: str
):
    """Quotes, separators and line breaks in cells; blank records are left out."""
    out = io.StringIO(newline="")
    csv.writer(out, quoting=style, lineterminator=newline).writerows(rows)
    text = "a,b,c" + newline + out.getvalue()
    frame, bad = read_delimited(text, "t.csv", tab=False, notes=[])
    assert frame.select("a", "b", "c").rows() == [
        row for row in rows if any(c.strip() for c in row)
    ]
    assert bad == []

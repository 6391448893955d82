"""What is in a file, to rows: encodings, separators, JSON lines."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
import csv
import io
from itertools import islice
import json
import re
from typing import Any, NamedTuple

import polars as pl

from reply_resolution.errors import TableError

#: A helper column: the record's number in the source, from 1 (JSON lines: its line).
ROW = "__row__"
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_BATCH_ROWS = 100_000
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8", "UTF-8 with a byte order mark"),
    (b"\xff\xfe\x00\x00", "utf-32-le", "UTF-32"),  # before UTF-16, which it begins as
    (b"\x00\x00\xfe\xff", "utf-32-be", "UTF-32"),
    (b"\xff\xfe", "utf-16-le", "UTF-16"),
    (b"\xfe\xff", "utf-16-be", "UTF-16"),
)
_NO_TEXT = (
    (b"PK\x03\x04", "an Excel workbook or a zip archive: save the sheet as CSV UTF-8"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save the sheet as CSV UTF-8"),
    (b"\x1f\x8b", "compressed with gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"),
    (b"SQLite format 3\x00", "an SQLite database: export the table as CSV or Parquet"),
    (b"%PDF", "a PDF document, which holds no table"),
)


class Bad(NamedTuple):
    """A record that could not be read, and where it stands, in words.

    `fatal`: nothing after it can be trusted, so that skipping it is no way out.
    """

    row: int
    where: str
    reason: str
    value: str
    fatal: bool = False


def decode(data: bytes, name: str) -> tuple[str, list[str]]:
    """The text in a file, and a note where it is not plain UTF-8.

    A byte order mark decides; without one NUL bytes in every second place are
    UTF-16, and bytes that are not UTF-8 are Windows-1252 (not Latin-1, which makes
    control characters of dashes, quotes and the euro sign).

    Raises:
        TableError: Binary data, or neither of these encodings; with the byte offset.
    """
    for magic, what in _NO_TEXT:
        if data.startswith(magic):
            raise TableError(f"{name} is {what}.")
    mark, encoding, words = next(
        (m for m in _MARKS if data.startswith(m[0])), (b"", "utf-8", "")
    )
    if not mark and b"\x00" in data:
        words = "UTF-16 without a byte order mark"
        even, odd = data[0:65536:2].count(0), data[1:65536:2].count(0)
        # All bytes below 128 is ASCII, of which UTF-16 makes every second byte NUL.
        least = 50 if not data.isascii() else 3
        few = (even + odd) * least < min(len(data), 65536)
        if len(data) % 2 or few or (even and odd):
            raise TableError(
                f"{name} is not a text file: there is a NUL byte at byte offset "
                f"{data.index(0)}. Give a CSV, JSON lines or Parquet file."
            )
        encoding = "utf-16-be" if even else "utf-16-le"
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        if not words:
            return _decode_windows(data, error.start, name)
        raise TableError(
            f"{name} says that it is {words}, and is not at byte offset "
            f"{len(mark) + error.start} ({error.reason}). It may have been cut short; "
            "write it again as UTF-8."
        ) from error
    if "\x00" in text:
        raise TableError(
            f"{name} is {words} with NUL characters in it: not a text file. Write it "
            "again as UTF-8."
        )
    if not text.strip():
        raise TableError(f"{name} is empty. Give a table with a header and rows.")
    return text, [f"{name} is {words}."] if words else []


def _decode_windows(data: bytes, offset: int, name: str) -> tuple[str, list[str]]:
    lenient = data.decode("utf-8", errors="surrogateescape")
    broken = sum("\udc80" <= c <= "\udcff" for c in lenient)
    first = f"byte offset {offset} (0x{data[offset]:02x})"
    repair = "Save the file again as UTF-8."
    if sum(c > "\x7f" for c in lenient) > 2 * broken:
        raise TableError(
            f"{name} is UTF-8 but for {broken} byte(s); the first is at {first}. It "
            f"may have been cut or pasted together from two encodings. {repair}"
        )
    # control characters, and the five bytes that Windows-1252 does not define
    strange = re.search(rb"[\x01-\x08\x0e-\x19\x1b-\x1f\x81\x8d\x8f\x90\x9d]", data)
    if strange:
        raise TableError(
            f"{name} is not a text file, or in another encoding: neither UTF-8 "
            f"({first}) nor Windows-1252 (byte offset {strange.start()}, "
            f"0x{strange[0].hex()}). {repair}"
        )
    return data.decode("cp1252"), [
        f"{name} is not UTF-8 ({first}): read as Windows-1252. Check an accented word, "
        "or save it as UTF-8."
    ]


def read_delimited(
    text: str, name: str, tab: bool, notes: list[str]
) -> tuple[pl.DataFrame, list[Bad]]:
    """Rows of text from a table with separators; an empty cell is an empty string."""
    text = text.rstrip("\x1a")  # the end-of-file mark of old exports
    csv.field_size_limit(2**31 - 1)  # a reply may have a million characters
    usual = "\t" if tab else ","
    # Excel's own first line says what is found anyway
    text = re.sub(r"(?i)^\"?sep=.\"?[;,\t|]*(\r\n|\r|\n)", "", text, count=1)
    separator = _find_separator(text, usual)
    if separator != usual:
        notes.append(f"{name} is separated by {_SEPARATORS[separator]}s.")
    records = _reader(text, separator)
    header = _header(records, name)
    bad: list[Bad] = []
    blank = 0
    schema = {ROW: pl.Int64, **{f"c{i}": pl.String for i in range(len(header))}}
    batches = [pl.DataFrame(schema=schema)]
    rows = _good_records(records, len(header), bad)
    while batch := list(islice(rows, _BATCH_ROWS)):  # in batches: lists are large
        kept = [row for row in batch if any(map(str.strip, row[1]))]
        blank += len(batch) - len(kept)
        if kept:
            numbers, fields = zip(*kept, strict=True)
            columns = zip(schema, (numbers, *zip(*fields, strict=True)), strict=True)
            batches.append(pl.DataFrame(dict(columns), schema=schema))
    if blank:
        notes.append(f"Left out as blank: {blank} row(s) without any text.")
    return _named(pl.concat(batches), header, notes), bad


def _reader(text: str, separator: str) -> Any:  # noqa: ANN401
    # newline="" keeps line breaks inside quotes as they are
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)


def _find_separator(text: str, usual: str) -> str:
    """The separator under which the first records have most equal rows and columns."""
    best, best_rank = usual, (0.0, 0)
    for separator in _SEPARATORS:
        widths: list[int] = []
        try:
            for record in islice(_reader(text[:2_000_000], separator), 200):
                if record:
                    widths.append(len(record))  # noqa: PERF401 (kept on an error)
        except csv.Error:
            pass  # a broken record says nothing about those before it
        if widths and widths[0] > 1:
            same = sum(w == widths[0] for w in widths) / len(widths)
            if (round(same, 1), widths[0]) > best_rank:
                best, best_rank = separator, (round(same, 1), widths[0])
    return best


def _header(records: Any, name: str) -> list[str]:  # noqa: ANN401
    try:
        header: list[str] = next((r for r in records if any(c.strip() for c in r)), [])
    except csv.Error as error:
        raise TableError(
            f"{name}: the header cannot be read ({error}). Check its quotes."
        ) from error
    repeated = [n for n, k in Counter(header).items() if k > 1 and n.strip()]
    if repeated:
        places = ", ".join(
            f"{n!r} in columns {[i for i, h in enumerate(header, 1) if h == n]}"
            for n in repeated
        )
        raise TableError(
            f"{name}: the header has the same name twice: {places}. Rename one, so "
            "that it is clear which is meant."
        )
    return header


def _good_records(
    records: Any,  # noqa: ANN401
    width: int,
    bad: list[Bad],
) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of the records as wide as the header; others go to `bad`."""
    number = 0
    while True:
        before = records.line_num
        value = ""
        try:
            record = next(records)
        except StopIteration:
            return
        except csv.Error as error:
            unclosed = "unexpected end of data" in str(error)
            reason = (
                f"a quote opened on line {before + 1} is never closed"
                if unclosed
                else f"text after a closing quote ({error}); double the quotes inside"
            )
        else:
            if not record and width > 1:
                continue  # an empty line is no record
            if len(record) > width and not any(c.strip() for c in record[width:]):
                record = record[:width]  # separators at the end, nothing after them
            if len(record) == width:
                number += 1
                yield number, record
                continue
            unclosed, value = False, " ".join(record)
            reason = f"{len(record)} fields where the header has {width}"
            if len(record) > width:
                reason += " (a separator inside unquoted text?)"
        number += 1
        where = f"row {number} (line {records.line_num})"
        bad.append(Bad(number, where, reason, value, unclosed))


def _named(
    frame: pl.DataFrame, header: Sequence[str], notes: list[str]
) -> pl.DataFrame:
    """The frame with the header's names; nameless columns get one, or go if empty."""
    chosen = [pl.col(ROW)]
    for i, name in enumerate(header):
        column = pl.col(f"c{i}")
        if name.strip():
            chosen.append(column.alias(name))
        elif (frame[f"c{i}"].str.strip_chars() == "").all():
            notes.append(f"Column {i + 1} has no name and no text: left out.")
        else:
            chosen.append(column.alias(f"column_{i + 1}"))
            notes.append(f"Column {i + 1} has no name: called 'column_{i + 1}'.")
    return frame.select(chosen)


def read_json(text: str, name: str) -> tuple[pl.DataFrame, list[Bad]]:
    """Objects from JSON lines, or from one JSON array."""
    rows: list[Mapping[str, Any]] = []
    numbers: list[int] = []
    bad: list[Bad] = []
    array = text.lstrip()[:1] == "["
    # not str.splitlines: U+2028 and others are legal inside a JSON string
    items: Iterable[Any] = io.StringIO(text, newline=None)
    if array:
        try:
            items = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise TableError(f"{name}: not valid JSON: {error}.") from error
    for number, item in enumerate(items, start=1):
        if not array and not item.strip():
            continue
        try:
            record = item if array else json.loads(item, parse_constant=_no_constant)
            reason = f"not an object but {json_text(record)[:40]}"
        except (ValueError, RecursionError) as error:
            record, reason = None, f"not valid JSON: {error}"
        if isinstance(record, dict):
            rows.append(record)
            numbers.append(number)
        else:
            where = f"{'row' if array else 'line'} {number}"
            bad.append(Bad(number, where, reason, str(item).strip()))
    names = dict.fromkeys(key for row in rows for key in row)
    columns = {key: _column([row.get(key) for row in rows]) for key in names}
    return pl.DataFrame({**columns, ROW: pl.Series(numbers, dtype=pl.Int64)}), bad


def _no_constant(word: str) -> Any:  # noqa: ANN401
    raise ValueError(f"{word} is not JSON; write null")


def _column(values: list[Any]) -> pl.Series:
    """Values in the type they all have; where types differ, as JSON spells them."""
    kinds = {type(v) for v in values if v is not None}
    if kinds == {bool}:
        return pl.Series(values, dtype=pl.Boolean)
    if kinds == {int} and all(v is None or abs(v) < 2**63 for v in values):
        return pl.Series(values, dtype=pl.Int64)
    exact = all(not isinstance(v, int) or abs(v) < 2**53 for v in values)
    if kinds and kinds <= {int, float} and exact:
        return pl.Series(values, dtype=pl.Float64, strict=False)
    texts = [v if v is None or isinstance(v, str) else json_text(v) for v in values]
    return pl.Series(texts, dtype=pl.String)


def json_text(value: object) -> str:
    """A value as JSON, readable in every script."""
    return json.dumps(value, ensure_ascii=False)

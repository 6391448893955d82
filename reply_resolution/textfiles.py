"""Bytes to text, and text with separators to rows: the lowest layer of reading."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
import csv
from dataclasses import dataclass
import io
from itertools import islice
import re
import sys
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.errors import TableError

_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SAMPLE_RECORDS = 200
_BATCH_ROWS = 100_000
#: From this size on, a file without any quote is split by polars (much faster).
_FAST_CHARACTERS = 8_000_000
_BOMS = (
    (b"\xef\xbb\xbf", "utf-8", "UTF-8 with a byte order mark"),
    (b"\xff\xfe\x00\x00", "utf-32-le", "UTF-32"),  # before UTF-16, which it begins as
    (b"\x00\x00\xfe\xff", "utf-32-be", "UTF-32"),
    (b"\xff\xfe", "utf-16-le", "UTF-16"),
    (b"\xfe\xff", "utf-16-be", "UTF-16"),
)
_MAGIC = (
    (b"PK\x03\x04", "an Excel workbook or a zip archive: save the sheet as CSV UTF-8"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save the sheet as CSV UTF-8"),
    (b"\x1f\x8b", "compressed with gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"),
    (b"SQLite format 3\x00", "an SQLite database: export the table as CSV or Parquet"),
    (b"%PDF", "a PDF document, which holds no table"),
)


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that could not be read.

    Attributes:
        row: Its number, from 1 for the first record (for JSON lines: its line).
        reason: What is wrong with it.
        value: The beginning of it, as it stands in the file.
        line: The line of the file on which it ends, where that differs; else 0.
        unit: "row" or "line": what `row` counts.
        fatal: Whether nothing after it can be trusted, so that skipping is no way out.
        request_id: Its id, where that much could be read.
    """

    row: int
    reason: str
    value: str
    line: int = 0
    unit: str = "row"
    fatal: bool = False
    request_id: str | None = None

    @property
    def where(self) -> str:
        """Where it is, in words."""
        return f"{self.unit} {self.row}" + (f" (line {self.line})" if self.line else "")

    def problem(self) -> dict[str, Any]:
        """The record as a row of `Table.problems`."""
        return {
            "row": self.row,
            "request_id": self.request_id,
            "value": self.value,
            "reason": self.reason,
        }


def decode(data: bytes, name: str) -> tuple[str, tuple[str, ...]]:
    """The text in a file, and a note where it is not plain UTF-8.

    A byte order mark decides; without one NUL bytes in every second place are
    UTF-16, and bytes that are not UTF-8 are Windows-1252 (not Latin-1, which makes
    control characters of dashes, quotes and the euro sign).

    Raises:
        TableError: Binary data, or neither of these encodings; with the byte offset.
    """
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise TableError(f"{name} is {what}.")
    for bom, encoding, words in _BOMS:
        if data.startswith(bom):
            return _decode_as(data[len(bom) :], encoding, words, name, len(bom))
    if b"\x00" in data:
        guess = _utf16_without_mark(data)
        if guess is None:
            raise TableError(
                f"{name} is not a text file: there is a NUL byte at byte offset "
                f"{data.index(0)}. Give a CSV, JSON lines or Parquet file."
            )
        return _decode_as(data, guess, "UTF-16 without a byte order mark", name, 0)
    try:
        return data.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        return _decode_windows(data, error.start, name)


def _decode_as(
    data: bytes, encoding: str, words: str, name: str, offset: int
) -> tuple[str, tuple[str, ...]]:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise TableError(
            f"{name} says that it is {words}, and is not at byte offset "
            f"{offset + error.start} ({error.reason}). It may have been cut short; "
            "write it again as UTF-8."
        ) from error
    if "\x00" in text:
        raise TableError(
            f"{name} is {words} with NUL characters in it: not a text file. Write it "
            "again as UTF-8."
        )
    if not text.strip():
        raise TableError(f"{name} is empty. Give a table with a header and rows.")
    return text, (f"{name} is {words}.",)


def _utf16_without_mark(data: bytes) -> str | None:
    sample = np.frombuffer(data[: 1 << 16], dtype=np.uint8)
    places = np.flatnonzero(sample == 0)
    parities = set((places % 2).tolist())
    if len(parities) != 1 or len(data) % 2 or len(places) * 50 < len(sample):
        return None
    return "utf-16-le" if parities == {1} else "utf-16-be"


def _decode_windows(data: bytes, offset: int, name: str) -> tuple[str, tuple[str, ...]]:
    lenient = data.decode("utf-8", errors="surrogateescape")
    broken = sum("\udc80" <= c <= "\udcff" for c in lenient)
    foreign = sum(c > "\x7f" for c in lenient) - broken
    repair = "Save the file again as UTF-8."
    if foreign > broken:
        raise TableError(
            f"{name} is UTF-8 but for {broken} byte(s); the first is at byte offset "
            f"{offset} (0x{data[offset]:02x}). It may have been cut or pasted together "
            f"from two encodings. {repair}"
        )
    if re.search(rb"[\x01-\x08\x0e-\x19\x1b-\x1f]", data):
        raise TableError(
            f"{name} is not a text file: byte offset {offset} is not UTF-8, and there "
            f"are control bytes. Give a CSV, JSON lines or Parquet file."
        )
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError as error:
        raise TableError(
            f"{name} is neither UTF-8 (byte offset {offset}, 0x{data[offset]:02x}) nor "
            f"Windows-1252 (byte offset {error.start}, 0x{data[error.start]:02x}). "
            f"{repair}"
        ) from error
    return text, (
        f"{name} is not UTF-8 (byte offset {offset}): read as Windows-1252. Check an "
        "accented word, or save it as UTF-8.",
    )


def read_delimited(
    text: str, name: str, *, tab: bool = False
) -> tuple[list[str], pl.DataFrame, list[Bad], tuple[str, ...]]:
    """Rows of text from a table with separators.

    Args:
        text: The decoded file.
        name: The file's name, for messages.
        tab: Whether the file's ending says that tabs separate.

    Returns:
        The header, the frame (all columns text, an empty cell is an empty string),
        the records that could not be read, and notes.
    """
    text = text.rstrip("\x1a")  # the end-of-file mark of old exports
    notes: list[str] = []
    declared = re.match(r"(?i)\"?sep=(.)\"?[;,\t|]*(?:\r\n|\r|\n)", text)
    if declared:  # Excel's own first line
        separator = declared[1]
        text = text[declared.end() :]
    else:
        separator = _find_separator(text, tab=tab)
    if separator not in _SEPARATORS:
        raise TableError(
            f"{name}: its first line declares {separator!r} as the separator. Allowed: "
            f"{', '.join(_SEPARATORS.values())}."
        )
    expected = "\t" if tab else ","
    if separator != expected:
        notes.append(f"{name} is separated by {_SEPARATORS[separator]}s.")
    limit = csv.field_size_limit(sys.maxsize)  # a reply may have a million characters
    try:
        header, records = _header(text, separator, name)
        unquoted = '"' not in text and "\r" not in text.replace("\r\n", "")
        if unquoted and len(text) >= _FAST_CHARACTERS:
            fast = _read_fast(text, separator, header)
            if fast is not None:
                return (*_named(fast, header, notes), [], tuple(notes))
        frame, bad, blank = _read_records(records, header)
    finally:
        csv.field_size_limit(limit)
    if blank:
        notes.append(f"Left out as blank: {blank} row(s) without any text.")
    return (*_named(frame, header, notes), bad, tuple(notes))


def _reader(text: str, separator: str) -> Any:  # noqa: ANN401
    # newline="" keeps line breaks inside quotes as they are
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)


def _find_separator(text: str, *, tab: bool) -> str:
    """The separator under which the first records have most equal rows and columns."""
    best, best_rank = ("\t" if tab else ","), (0.0, 0, 0)
    for separator in _SEPARATORS:
        widths: list[int] = []
        try:
            for record in _reader(text, separator):
                if record:
                    widths.append(len(record))
                if len(widths) > _SAMPLE_RECORDS:
                    break
        except csv.Error:
            pass  # a broken record says nothing about those before it
        if not widths or widths[0] < 2:
            continue
        same = sum(w == widths[0] for w in widths) / len(widths)
        rank = (round(same, 1), int(separator == best), widths[0])
        if rank[0] > best_rank[0] or (
            rank[0] == best_rank[0] and widths[0] > best_rank[2]
        ):
            best, best_rank = separator, rank
    return best


def _header(text: str, separator: str, name: str) -> tuple[list[str], Any]:
    records = _reader(text, separator)
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
    return header, records


def _read_records(
    records: Any,  # noqa: ANN401
    header: Sequence[str],
) -> tuple[pl.DataFrame, list[Bad], int]:
    bad: list[Bad] = []
    blank = 0
    batches: list[pl.DataFrame] = []
    rows = _checked(records, header, bad)
    schema = {f"c{i}": pl.String for i in range(len(header))}
    while batch := list(islice(rows, _BATCH_ROWS)):
        kept = [r for r in batch if any(c.strip() for c in r)]
        blank += len(batch) - len(kept)
        columns = zip(*kept, strict=True) if kept else ([] for _ in header)
        batches.append(
            pl.DataFrame(dict(zip(schema, columns, strict=True)), schema=schema)
        )
    frame = pl.concat(batches) if batches else pl.DataFrame(schema=schema)
    return frame, bad, blank


def _checked(
    records: Any,  # noqa: ANN401
    header: Sequence[str],
    bad: list[Bad],
) -> Iterator[list[str]]:
    """The records that have as many fields as the header; the others go to `bad`."""
    width = len(header)
    number = 0
    while True:
        before = records.line_num
        try:
            record = next(records)
        except StopIteration:
            return
        except csv.Error as error:
            number += 1
            open_quote = "unexpected end of data" in str(error)
            reason = (
                f"a quote opened on line {before + 1} is never closed"
                if open_quote
                else f"text after a closing quote ({error}); double the quotes inside"
            )
            bad.append(Bad(number, reason, "", records.line_num, fatal=open_quote))
            continue
        if not record and width > 1:
            continue  # an empty line is no record
        number += 1
        if len(record) > width and not any(c.strip() for c in record[width:]):
            record = record[:width]  # separators at the end of the line, nothing after
        if len(record) == width:
            yield record
            continue
        reason = f"{len(record)} fields where the header has {width}"
        if len(record) > width:
            reason += " (a separator inside unquoted text?)"
        bad.append(Bad(number, reason, " ".join(record), records.line_num))


def _read_fast(text: str, separator: str, header: Sequence[str]) -> pl.DataFrame | None:
    """Split a file that has no quotes; None where its rows are not all of one width."""
    data = text.encode()
    codes = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(codes == 10)
    if not len(ends) or ends[-1] != len(codes) - 1:
        ends = np.append(ends, len(codes))
    marks = np.flatnonzero(codes == ord(separator))
    per_line = np.diff(np.searchsorted(marks, ends), prepend=0)
    if np.any(per_line != len(header) - 1) or b"\n\n" in data or b"\n\r\n" in data:
        return None
    return pl.read_csv(
        data,
        separator=separator,
        has_header=False,
        skip_rows=1,
        quote_char=None,
        infer_schema=False,
        new_columns=[f"c{i}" for i in range(len(header))],
    ).fill_null("")


def _named(
    frame: pl.DataFrame, header: Sequence[str], notes: list[str]
) -> tuple[list[str], pl.DataFrame]:
    """The frame with the header's names; nameless columns get one, or go if empty."""
    names: dict[str, str] = {}
    for i, name in enumerate(header):
        column = f"c{i}"
        if name.strip():
            names[column] = name
        elif (frame[column].str.strip_chars() == "").all():
            notes.append(f"Column {i + 1} has no name and no text: left out.")
        else:
            names[column] = f"column_{i + 1}"
            notes.append(f"Column {i + 1} has no name: called 'column_{i + 1}'.")
    return list(names.values()), frame.select(
        pl.col(c).alias(n) for c, n in names.items()
    )


def normal_name(name: str) -> str:
    """A name without case, blanks, dashes and underscores, to find near-equal ones."""
    return re.sub(r"[\s_\-]+", "", name).casefold()


def near_equal(names: Sequence[str]) -> Mapping[str, list[str]]:
    """Names that differ only in case, blanks, dashes or underscores, by their key."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(normal_name(name), []).append(name)
    return {key: group for key, group in groups.items() if len(group) > 1}

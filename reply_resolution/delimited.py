"""Text with separators (CSV and its kin) to rows, every cell still text."""

from collections import Counter
from collections.abc import Iterator, Sequence
import csv
import io
from itertools import islice
import re
import sys
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.textfiles import Bad

_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SAMPLE_RECORDS = 200
_SAMPLE_CHARACTERS = 2_000_000
_BATCH_ROWS = 100_000
#: From this size on, a file that is regular throughout is split by polars.
_FAST_CHARACTERS = 8_000_000


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
        if len(text) >= _FAST_CHARACTERS:
            fast, header = _read_fast(text, separator, name)
            if fast is not None:
                return (*_named(fast, header, notes), [], tuple(notes))
        records = _reader(text, separator)
        header = _header(records, name)
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
    best, best_rank = ("\t" if tab else ","), (0.0, 0)
    for separator in _SEPARATORS:
        widths: list[int] = []
        try:
            for record in _reader(text[:_SAMPLE_CHARACTERS], separator):
                if record:
                    widths.append(len(record))
                if len(widths) > _SAMPLE_RECORDS:
                    break
        except csv.Error:
            pass  # a broken record says nothing about those before it
        if not widths or widths[0] < 2:
            continue
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


def _read_fast(
    text: str, separator: str, name: str
) -> tuple[pl.DataFrame | None, list[str]]:
    """Let polars split a large file; None where only the careful way is safe.

    Safe means: every quote opens or closes a field or is doubled, every record is as
    wide as the header, line breaks outside quotes are of one kind, no blank records.
    """
    first = text[: text.find("\n") + 1]
    header = _header(_reader(first, separator), name) if '"' not in first else []
    data = text.encode()
    if not any(cell.strip() for cell in header) or data.count(b"\r") != data.count(
        b"\r\n"
    ):
        return None, header
    codes = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(codes == ord('"'))
    if not _quotes_are_regular(codes, quotes, separator):
        return None, header
    ends = _outside(np.flatnonzero(codes == 10), quotes)
    if not len(ends) or ends[-1] != len(codes) - 1:
        ends = np.append(ends, len(codes))
    marks = _outside(np.flatnonzero(codes == ord(separator)), quotes)
    per_record = np.diff(np.searchsorted(marks, ends), prepend=0)
    if np.any(per_record != len(header) - 1) or np.any(np.diff(ends) < 3):
        return None, header
    frame = pl.read_csv(
        data,
        separator=separator,
        has_header=False,
        skip_rows=1,
        infer_schema=False,
        new_columns=[f"c{i}" for i in range(len(header))],
    ).fill_null("")
    # blanks as str.strip sees them
    blank = pl.all_horizontal(pl.all().str.contains(r"^[\s\x1c-\x1f]*$"))
    if frame.select(blank.any()).item():
        return None, header
    return frame, header


def _quotes_are_regular(codes: Any, quotes: Any, separator: str) -> bool:  # noqa: ANN401
    """Whether quotes stand only at the edges of fields, or doubled inside them."""
    if len(quotes) % 2:
        return False
    edge = np.zeros(256, dtype=bool)
    edge[[ord(separator), 10, 13, ord('"')]] = True
    opening, closing = quotes[0::2], quotes[1::2]
    before = np.where(opening > 0, codes[opening - 1], 10)
    last = len(codes) - 1
    after = np.where(closing < last, codes[np.minimum(closing + 1, last)], 10)
    return bool(edge[before].all() and edge[after].all())


def _outside(places: Any, quotes: Any) -> Any:  # noqa: ANN401
    """The places that are not between an opening and a closing quote."""
    return places[np.searchsorted(quotes, places) % 2 == 0] if len(quotes) else places


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

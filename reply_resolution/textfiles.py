"""Bytes to text: encodings, and what is no text at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import re
from typing import Any

import numpy as np

from reply_resolution.errors import TableError

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


def normal_name(name: str) -> str:
    """A name without case, blanks, dashes and underscores, to find near-equal ones."""
    return re.sub(r"[\s_\-]+", "", name).casefold()


def near_equal(names: Sequence[str]) -> Mapping[str, list[str]]:
    """Names that differ only in case, blanks, dashes or underscores, by their key."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(normal_name(name), []).append(name)
    return {key: group for key, group in groups.items() if len(group) > 1}

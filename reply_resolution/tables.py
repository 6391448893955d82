"""Tables from files: what a spreadsheet, a log or a chat export really holds.

Reading is strict. The encoding, the separator and the types are found, never
assumed, and said in `Table.notes`; a row that cannot be read stops the reading
with its number, or is skipped and listed in `Table.problems` if the caller asks.
Text stays text: `007` is not `7`, and the words `null` and `NaN` are words.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from reply_resolution.delimited import read_delimited
from reply_resolution.errors import TableError
from reply_resolution.jsonfiles import frame_from_rows, parse_json
from reply_resolution.textfiles import Bad, decode

OnBadLine = Literal["stop", "skip"]
_DELIMITED = {".csv", ".tsv", ".tab", ".txt"}
_JSON = {".jsonl", ".ndjson", ".json"}
_PARQUET = {".parquet", ".pq"}
_ALLOWED = "Allowed: .csv, .tsv, .txt, .jsonl, .json, .parquet, or a polars frame"

#: What `Table.problems` holds; `row` counts records from 1 (in JSON lines: lines).
PROBLEM_SCHEMA: dict[str, Any] = {
    "row": pl.Int64,
    "request_id": pl.String,
    "column": pl.String,
    "value": pl.String,
    "reason": pl.String,
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table that was read, and what there is to say about it.

    Attributes:
        frame: The rows, in the order of the source.
        problems: One row for each cell or record that needs a look: `row` (1 is the
            first record; in JSON lines the line's number), `request_id`, `column`,
            `value` (as it stood there, shortened) and `reason`. Empty is good.
        notes: What was found or done while reading, one sentence each.
        source: The file's name, or "frame".
        sha256: SHA-256 of the file's bytes, or of a frame's rows; 64 hex digits.
    """

    frame: pl.DataFrame
    problems: pl.DataFrame
    notes: tuple[str, ...]
    source: str
    sha256: str

    def problem_counts(self) -> dict[str, int]:
        """How many problems there are of each reason, most frequent first."""
        counts = self.problems.group_by("reason", maintain_order=True).len()
        return dict(counts.sort("len", descending=True, maintain_order=True).rows())

    def add(
        self,
        *,
        frame: pl.DataFrame | None = None,
        notes: Iterable[str] = (),
        problems: Iterable[Mapping[str, Any]] | pl.DataFrame = (),
    ) -> "Table":
        """The same table with another frame, more notes or more problems."""
        more = (
            problems if isinstance(problems, pl.DataFrame) else problem_frame(problems)
        )
        return replace(
            self,
            frame=self.frame if frame is None else frame,
            notes=(*self.notes, *notes),
            problems=pl.concat([self.problems, more]),
        )


def problem_frame(rows: Iterable[Mapping[str, Any]] = ()) -> pl.DataFrame:
    """Rows for `Table.problems`; values are shortened to 80 characters."""
    rows = [
        {
            **row,
            "value": None if (v := row.get("value")) is None else str(v)[:80].strip(),
        }
        for row in rows
    ]
    return pl.DataFrame(rows, schema=PROBLEM_SCHEMA)


def read_table(
    source: str | Path | pl.DataFrame,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "stop",
) -> Table:
    """Read a table as it is, with every cell of a text file still text.

    Args:
        source: A .csv, .tsv or .txt file (comma, semicolon, tab or bar; UTF-8,
            UTF-16 or Windows-1252), .jsonl or .json, .parquet, or a polars frame.
        columns: Our name -> the table's name, for columns that are called
            differently there: `{"arm": "system"}` reads `arm` from `system`.
        on_bad_line: A record that cannot be read stops the reading ("stop") or is
            left out and listed in the problems ("skip").

    Returns:
        The table. Columns of JSON keep their types where all values agree; a nested
        value becomes its JSON text.

    Raises:
        TableError: Not a table, with the file, what was found and what is allowed.
    """
    if on_bad_line not in ("stop", "skip"):
        raise TableError(
            f'on_bad_line is {on_bad_line!r}. Allowed: "stop" (a record that cannot be '
            'read stops the reading) or "skip" (it is left out and listed).'
        )
    if isinstance(source, pl.DataFrame):
        table = Table(source, problem_frame(), (), "frame", frame_sha256(source))
    else:
        records = read_records(source, on_bad_line=on_bad_line)
        table = records if isinstance(records, Table) else records.table()
    return rename(table, columns or {})


def rename(table: Table, columns: Mapping[str, str]) -> Table:
    """The table with the caller's column names mapped to ours, in its order.

    A column that already has our name gives way to the one that was asked for.
    """
    names = table.frame.columns
    new: dict[str, str] = {}
    for ours, theirs in columns.items():
        found = find_column(names, theirs)
        if found is None:
            swapped = (
                f' Did you mean {{"{theirs}": "{ours}"}}? Our name comes first.'
                if ours in names
                else ""
            )
            raise TableError(
                f"{table.source}: there is no column {theirs!r} to read {ours!r} from. "
                f"The columns are {listed(names)}.{swapped}"
            )
        new[found] = ours
    given_up = [n for n in names if n in columns and n not in new]
    renamed = table.frame.drop(given_up).rename(new)
    notes = [
        f"Column {n!r} was left out: {n!r} is read from {columns[n]!r}."
        for n in given_up
    ]
    return table.add(frame=renamed, notes=notes)


def find_column(names: Sequence[str], wanted: str) -> str | None:
    """The column that is called `wanted`, blanks around it and case forgiven.

    An exact match wins; two columns that both match only loosely match neither.
    """
    if wanted in names:
        return wanted
    key = wanted.strip().casefold()
    loose = [name for name in names if name.strip().casefold() == key]
    return loose[0] if len(loose) == 1 else None


def listed(names: Iterable[object], limit: int = 12) -> str:
    """Names quoted and joined, cut after `limit`.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    names = list(names)
    shown = ", ".join(repr(n) for n in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def frame_sha256(frame: pl.DataFrame) -> str:
    """SHA-256 of a frame's columns, types and rows; the same for equal frames."""
    digest = hashlib.sha256()
    for name, column in zip(frame.columns, frame.iter_columns(), strict=True):
        digest.update(f"{name}\x00{column.dtype}\x00{len(column)}\x00".encode())
        digest.update(np.packbits(column.is_null().to_numpy()).tobytes())
        for start in range(0, len(column), 100_000):
            digest.update(_cell_bytes(column.slice(start, 100_000)))
    return digest.hexdigest()


def _cell_bytes(column: pl.Series) -> bytes:
    if column.dtype == pl.Object:
        return json.dumps([repr(v) for v in column]).encode()
    if column.dtype.is_nested():
        return column.to_frame().write_ndjson().encode()
    if column.dtype.is_integer() or column.dtype.is_float():
        return column.fill_null(0).to_numpy().tobytes()
    text = column.cast(pl.String).fill_null("")
    lengths = text.str.len_bytes().to_numpy().tobytes()
    return lengths + str(text.str.join("").item()).encode()


@dataclass(frozen=True, slots=True)
class Records:
    """JSON objects that were read, before they become a frame.

    Attributes:
        rows: One mapping per object.
        lines: The line (or, in a JSON array, the position) of each object, from 1.
        bad: Records that were skipped, each with its reason.
        notes, source, sha256: As in `Table`.
    """

    rows: list[dict[str, Any]]
    lines: list[int]
    bad: list[Bad]
    notes: tuple[str, ...]
    source: str
    sha256: str

    def table(self) -> Table:
        """The records as a table."""
        return Table(
            frame=frame_from_rows(self.rows),
            problems=problem_frame(b.problem() for b in self.bad),
            notes=self.notes,
            source=self.source,
            sha256=self.sha256,
        )


def read_records(source: object, *, on_bad_line: OnBadLine = "stop") -> Table | Records:
    """Read a file: a `Table` from CSV or Parquet, `Records` from JSON."""
    if not isinstance(source, str | Path):
        kind = f"{type(source).__module__.partition('.')[0]} {type(source).__name__}"
        raise TableError(
            f"a table cannot be read from a {kind}. {_ALLOWED} (a pandas frame by "
            "pl.from_pandas, a lazy one by collect)."
        )
    path = Path(source)
    data = _read_bytes(path)
    digest = hashlib.sha256(data).hexdigest()
    suffix = path.suffix.lower()
    name = path.name
    if data.startswith(b"PAR1"):
        try:
            frame = pl.read_parquet(data)
        except Exception as error:  # polars raises many kinds
            raise TableError(
                f"{name}: this Parquet file is damaged ({str(error)[:120]}). "
                "Write it again."
            ) from error
        said = () if suffix in _PARQUET else (f"{name} holds Parquet: read as such.",)
        return Table(frame, problem_frame(), said, name, digest)
    if suffix in _PARQUET:
        raise TableError(f"{name}: this is not a Parquet file. {_ALLOWED}.")
    text, notes = decode(data, name)
    if suffix in _JSON:
        rows, lines, bad = parse_json(text, name)
        _stop_at(bad, name, on_bad_line)
        if not rows:
            raise TableError(f"{name}: there is no record in it. {_ALLOWED}.")
        return Records(rows, lines, bad, (*notes, *_skipped(bad)), name, digest)
    if text.lstrip()[:1] == "{":
        raise TableError(
            f"{name}: this looks like JSON lines, not like a table with columns. "
            "Rename it to .jsonl."
        )
    tab = suffix in {".tsv", ".tab"}
    header, frame, bad, more = read_delimited(text, name, tab=tab)
    _stop_at(bad, name, on_bad_line)
    if frame.height == 0:
        raise TableError(
            f"{name}: there is a header ({listed(header)}) and no row below it. "
            "Give a table with at least one row."
        )
    problems = problem_frame(b.problem() for b in bad)
    return Table(frame, problems, (*notes, *more, *_skipped(bad)), name, digest)


def _read_bytes(path: Path) -> bytes:
    name = path.name or str(path)
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table. {_ALLOWED}; name one file.")
    if path.suffix.lower() not in _DELIMITED | _JSON | _PARQUET:
        raise TableError(
            f"{name}: tables are not read from {path.suffix or 'a name without ending'}"
            f". {_ALLOWED}. Save a workbook as CSV UTF-8."
        )
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TableError(
            f"{path} does not exist (looked from {Path.cwd()}). Check the name, or "
            "give the whole path."
        ) from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror}.") from error
    if not data.strip():
        raise TableError(f"{name} is empty. Give a table with a header and rows.")
    return data


def _stop_at(bad: Sequence[Bad], name: str, on_bad_line: OnBadLine) -> None:
    fatal = [b for b in bad if b.fatal]
    if fatal or (bad and on_bad_line == "stop"):
        raise TableError(bad_message(fatal or bad, name))


def bad_message(bad: Sequence[Bad], name: str) -> str:
    """What is wrong with the records, with the first five by number."""
    shown = "; ".join(f"{b.where}: {b.reason}" for b in bad[:5])
    more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
    repair = (
        "Repair it."
        if bad[0].fatal
        else 'Repair them, or read on without them by on_bad_line="skip".'
    )
    count = "1 record" if len(bad) == 1 else f"{len(bad)} records"
    return f"{name}: {count} cannot be read. {shown}{more}. {repair}"


def _skipped(bad: Sequence[Bad]) -> Iterator[str]:
    if bad:
        where = ", ".join(b.where for b in bad[:5])
        yield f"Left out as unreadable: {len(bad)} ({where}{', …' * (len(bad) > 5)})."

"""Tables from files: what a spreadsheet, a log or a chat export really holds.

Reading is strict. The encoding, the separator and the types are found, never
assumed, and said in `Table.notes`; a row that cannot be read stops the reading
with its number, or is skipped and listed in `Table.problems` if the caller asks.
Text stays text: `007` is not `7`, and the words `null` and `NaN` are words.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
import hashlib
from pathlib import Path
from typing import Any, Literal

import polars as pl

from reply_resolution.errors import TableError, did_you_mean
from reply_resolution.tables.files import ROW, Bad, decode, read_delimited, read_json

OnBadLine = Literal["stop", "skip"]
_DELIMITED = (".csv", ".tsv", ".tab", ".txt")
_JSON = (".jsonl", ".ndjson", ".json")
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
        sha256: SHA-256 of the file's bytes, 64 hex digits; "" for a frame.
    """

    frame: pl.DataFrame
    problems: pl.DataFrame
    notes: tuple[str, ...]
    source: str
    sha256: str

    @property
    def columns(self) -> list[str]:
        """The names of the source's columns, without `ROW`."""
        return [name for name in self.frame.columns if name != ROW]

    def add(
        self,
        *,
        frame: pl.DataFrame | None = None,
        notes: Iterable[str] = (),
        problems: pl.DataFrame | None = None,
    ) -> "Table":
        """The same table with another frame, more notes or more problems.

        `problems` has any of the columns of `PROBLEM_SCHEMA` (`row` may be `ROW`).
        """
        listed_so_far = self.problems
        if problems is not None:
            more = problems.rename({ROW: "row"} if ROW in problems.columns else {})
            absent = [c for c in PROBLEM_SCHEMA if c not in more.columns]
            more = more.with_columns(pl.lit(None).alias(c) for c in absent).select(
                pl.col(c).cast(kind, strict=False) for c, kind in PROBLEM_SCHEMA.items()
            )
            shown = pl.col("value").str.slice(0, 80)
            listed_so_far = pl.concat([listed_so_far, more.with_columns(shown)])
        return replace(
            self,
            frame=self.frame if frame is None else frame,
            notes=(*self.notes, *notes),
            problems=listed_so_far,
        )


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
    table = read_numbered(source, columns=columns, on_bad_line=on_bad_line)
    return table.add(frame=table.frame.drop(ROW))


def read_numbered(
    source: str | Path | pl.DataFrame,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "stop",
) -> Table:
    """`read_table`, with each record's number in the source in the column `ROW`."""
    if on_bad_line not in ("stop", "skip"):
        raise TableError(
            f'on_bad_line is {on_bad_line!r}. Allowed: "stop" (a record that cannot be '
            'read stops the reading) or "skip" (it is left out and listed).'
        )
    if isinstance(source, pl.DataFrame):
        table = Table(source, pl.DataFrame(schema=PROBLEM_SCHEMA), (), "frame", "")
    else:
        table = _read_file(source, on_bad_line)
    if ROW not in table.frame.columns:
        number = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias(ROW)
        table = table.add(frame=table.frame.with_columns(number))
    return rename(table, columns or {})


def _read_file(source: object, on_bad_line: OnBadLine) -> Table:
    """The rows of a CSV, JSON or Parquet file, every cell of CSV still text."""
    if not isinstance(source, str | Path):
        kind = f"{type(source).__module__.partition('.')[0]} {type(source).__name__}"
        raise TableError(
            f"a table cannot be read from a {kind}. {_ALLOWED} (a pandas frame by "
            "pl.from_pandas, a lazy one by collect)."
        )
    path = Path(source)
    name, suffix = path.name, path.suffix.lower()
    data = _read_bytes(path)
    bad: list[Bad] = []
    notes: list[str] = []
    if data.startswith(b"PAR1"):
        try:
            frame = pl.read_parquet(data)
        except Exception as error:  # polars raises many kinds
            raise TableError(
                f"{name}: this Parquet file is damaged ({str(error)[:120]}). "
                "Write it again."
            ) from error
        if suffix in _DELIMITED + _JSON:
            notes = [f"{name} holds Parquet: read as such."]
    elif suffix in _DELIMITED + _JSON:
        text, notes = decode(data, name)
        if suffix in _JSON:
            frame, bad = read_json(text, name)
        elif text.lstrip()[:1] == "{":
            raise TableError(
                f"{name}: this looks like JSON lines, not like a table with columns. "
                "Rename it to .jsonl."
            )
        else:
            frame, bad = read_delimited(text, name, suffix in (".tsv", ".tab"), notes)
    else:
        raise TableError(f"{name}: this is not a Parquet file. {_ALLOWED}.")
    empty = pl.DataFrame(schema=PROBLEM_SCHEMA)
    table = Table(frame, empty, tuple(notes), name, hashlib.sha256(data).hexdigest())
    if bad and (on_bad_line == "stop" or any(b.fatal for b in bad)):
        raise bad_records(table, bad)
    if frame.is_empty():
        raise TableError(
            f"{name}: there is no record in it (no row below "
            f"{listed(table.columns) or 'a header'}). Give at least one."
        )
    if not bad:
        return table
    where = f"{', '.join(b.where for b in bad[:5])}{', …' * (len(bad) > 5)}"
    return table.add(
        notes=[f"Left out as unreadable: {len(bad)} ({where})."],
        problems=pl.DataFrame(
            [(b.row, b.value, b.reason) for b in bad],
            schema={"row": pl.Int64, "value": pl.String, "reason": pl.String},
            orient="row",
        ),
    )


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table. {_ALLOWED}; name one file.")
    if path.suffix.lower() not in (*_DELIMITED, *_JSON, ".parquet", ".pq"):
        raise TableError(
            f"{path.name or path}: tables are not read from "
            f"{path.suffix or 'a name without ending'}. {_ALLOWED}. Save a workbook as "
            "CSV UTF-8."
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
        raise TableError(f"{path.name} is empty. Give a table with a header and rows.")
    return data


def bad_records(table: Table, bad: Sequence[Bad]) -> TableError:
    """The error that names the first five of the records that cannot be read."""
    fatal = [b for b in bad if b.fatal]
    bad = fatal or bad
    shown = "; ".join(f"{b.where}: {b.reason}" for b in bad[:5])
    more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
    repair = 'them, or read on without them in Python, by on_bad_line="skip".'
    return TableError(
        f"{table.source}: {len(bad)} record{'s' * (len(bad) > 1)} cannot be read. "
        f"{shown}{more}. Repair {'it.' if fatal else repair}"
    )


def rename(table: Table, columns: Mapping[str, str]) -> Table:
    """The table with the caller's column names mapped to ours, in its order.

    A column that already has our name gives way to the one that was asked for.
    """
    names = table.columns
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
                f"The columns are {listed(names)}."
                f"{swapped or did_you_mean(theirs, names)}"
            )
        new[found] = ours
    given_up = [n for n in names if n in columns and n not in new]
    notes = [
        f"Column {n!r} was left out: {n!r} is read from {columns[n]!r}."
        for n in given_up
    ]
    return table.add(frame=table.frame.drop(given_up).rename(new), notes=notes)


def listed(names: Iterable[object], limit: int = 12) -> str:
    """Names quoted and joined, cut after `limit`.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    names = list(names)
    shown = ", ".join(repr(n) for n in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def find_column(names: Sequence[str], wanted: str) -> str | None:
    """The column that is called `wanted`, blanks around it and case forgiven.

    An exact match wins; two columns that both match only loosely match neither.
    """
    if wanted in names:
        return wanted
    key = wanted.strip().casefold()
    loose = [name for name in names if name.strip().casefold() == key]
    return loose[0] if len(loose) == 1 else None


def recognise(table: Table, ours: Iterable[str], *, required: Sequence[str]) -> Table:
    """Columns named loosely ("Request_ID ") take our name; a missing one is refused."""
    for name in ours:
        found = find_column(table.columns, name)
        if found not in (None, name):
            note = f"Column {found!r} is read as {name!r}."
            table = rename(table, {name: str(found)}).add(notes=[note])
    missing = [name for name in required if name not in table.columns]
    if missing:
        raise TableError(
            f"{table.source}: no column {listed(missing)}. The columns are "
            f"{listed(table.columns)}.{did_you_mean(missing[0], table.columns)} Say "
            f"which is meant: `judge --column {missing[0]}=NAME`, or in Python "
            f'columns={{"{missing[0]}": NAME}}; or rename it in the table.'
        )
    return table


def with_schema(table: Table, schema: Mapping[str, Any]) -> Table:
    """The table with these columns in these types; absent and blank cells are null."""
    frame = table.frame
    for name, kind in schema.items():
        if name not in frame.columns:
            frame = frame.with_columns(pl.lit(None, dtype=kind).alias(name))
            continue
        cell = pl.col(name)
        if frame.schema[name].is_float():
            cell = cell.fill_nan(None)
        if pl.String in (frame.schema[name], kind):
            cell = cell.cast(pl.String)
            cell = pl.when(cell.str.strip_chars() != "").then(cell)
        if frame.schema[name] == pl.String and kind == pl.Boolean:
            cell = cell.str.strip_chars().str.to_lowercase().is_in(["true", "1"])
        elif kind.is_numeric() and frame.schema[name] != kind:
            if frame.schema[name] == pl.String:
                cell = cell.str.strip_chars()
            number = cell.cast(pl.Float64, strict=False)
            same = (number.cast(kind, strict=False) == number).fill_null(value=False)
            lost = frame.select(cell.filter(cell.is_not_null() & ~same)).to_series()
            if not lost.is_empty():
                what = "a whole number" if kind.is_integer() else "a number"
                raise TableError(
                    f"{table.source}: column {name!r} holds {lost[0]!r}, which is not "
                    f"{what}. Correct {len(lost)} cell(s), or leave the column out."
                )
            cell = number
        frame = frame.with_columns(cell.cast(kind).alias(name))
    return table.add(frame=frame)


def drop_duplicates(table: Table, key: Sequence[str], *, what: str) -> Table:
    """Drop rows that repeat another in every cell; refuse two rows with one key.

    Cells are compared in one Unicode form (NFC); the row kept is the first.

    Raises:
        TableError: Rows with the same key that differ, with their numbers.
    """
    frame = table.frame
    if frame.select(pl.struct(key).n_unique()).item() == frame.height:
        return table
    plain = frame.with_columns(
        pl.col(name).str.normalize("NFC")
        for name, kind in frame.schema.items()
        if kind == pl.String and name not in key
    )
    cells = [c for c in frame.columns if c != ROW]
    first = plain.unique(cells, keep="first", maintain_order=True)
    clash = first.filter(pl.struct(key).is_duplicated())
    if not clash.is_empty():
        groups = clash.group_by(key, maintain_order=True).agg(pl.col(ROW))
        shown = "; ".join(
            f"{', '.join(repr(k) for k in values if k is not None)} in rows "
            f"{', '.join(map(str, rows))}"
            for *values, rows in groups.head(5).rows()
        )
        more = f"; and {groups.height - 5} more" if groups.height > 5 else ""
        raise TableError(
            f"{table.source}: {groups.height} key(s) have {what} that differ. The key "
            f"is ({', '.join(key)}): {shown}{more}. Keep one row of each, or give them "
            "ids of their own."
        )
    kept = pl.col(ROW).is_in(first[ROW].implode())
    gone = frame.filter(~kept).select(ROW, "request_id", reason=pl.lit("duplicate"))
    return table.add(
        frame=frame.filter(kept),
        notes=[f"Dropped as exact duplicates: {gone.height} row(s)."],
        problems=gone,
    )


def matching_key(left: pl.DataFrame, right: pl.DataFrame, *, what: str) -> list[str]:
    """The columns by which `right` belongs to the replies in `left`.

    `request_id` and `arm`; `request_id` alone where one of the two has no arms.

    Raises:
        TableError: The replies repeat ids in several arms, and `right` has no arms.
    """
    armed = [
        "arm" in f.columns and f["arm"].null_count() < f.height for f in (left, right)
    ]
    if armed[0] and not armed[1] and left["request_id"].is_duplicated().any():
        raise TableError(
            f"the replies have one request_id in several arms, and the {what} have no "
            f"arm: which is whose cannot be told. Give the {what} their arm."
        )
    return ["request_id", "arm"] if all(armed) else ["request_id"]

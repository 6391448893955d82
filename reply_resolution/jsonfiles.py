"""JSON lines and JSON arrays to records, and records to a frame."""

from collections.abc import Mapping, Sequence
import io
import json
from typing import Any

import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.textfiles import Bad


def parse_json(
    text: str, name: str
) -> tuple[list[dict[str, Any]], list[int], list[Bad]]:
    """Objects from JSON lines, or from one JSON array or object."""
    if text.lstrip()[:1] == "[":
        try:
            items = json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            raise TableError(f"{name}: not valid JSON: {error}.") from error
        found = list(enumerate(items, start=1))
    else:
        return _parse_lines(text)
    bad = [
        Bad(at, f"not an object but {json_text(item)[:40]}", json_text(item))
        for at, item in found
        if not isinstance(item, dict)
    ]
    good = [(at, item) for at, item in found if isinstance(item, dict)]
    return [item for _, item in good], [at for at, _ in good], bad


def _parse_lines(text: str) -> tuple[list[dict[str, Any]], list[int], list[Bad]]:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    bad: list[Bad] = []
    # not str.splitlines: U+2028 and others are legal inside a JSON string
    for number, line in enumerate(io.StringIO(text, newline=None), start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            bad.append(Bad(number, f"not valid JSON: {error}", line, unit="line"))
            continue
        if isinstance(item, dict):
            rows.append(item)
            lines.append(number)
        else:
            bad.append(Bad(number, "not a JSON object", line, unit="line"))
    return rows, lines, bad


def _no_constant(word: str) -> Any:  # noqa: ANN401
    raise ValueError(f"{word} is not JSON; write null")


def frame_from_rows(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """A frame from JSON objects, a column's type being what all its values are.

    Whole numbers, decimals, booleans and text keep their type; where types differ
    every value becomes text as JSON spells it, and so does a nested value.
    """
    names = list(dict.fromkeys(key for row in rows for key in row))
    return pl.DataFrame(
        {name: _column([row.get(name) for row in rows]) for name in names}
    )


def _column(values: list[Any]) -> pl.Series:
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {str}:
        return pl.Series(values, dtype=pl.String)
    if kinds == {bool}:
        return pl.Series(values, dtype=pl.Boolean)
    if kinds == {int} and all(v is None or abs(v) < 2**63 for v in values):
        return pl.Series(values, dtype=pl.Int64)
    if kinds <= {int, float} and all(
        v is None or isinstance(v, float) or abs(v) < 2**53 for v in values
    ):
        return pl.Series([None if v is None else float(v) for v in values])
    return pl.Series(
        [v if v is None or isinstance(v, str) else json_text(v) for v in values],
        dtype=pl.String,
    )


def json_text(value: object) -> str:
    """A value as JSON, readable in every script."""
    return json.dumps(value, ensure_ascii=False)

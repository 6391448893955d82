"""Columns of scores in a table: what was read, what was not, and why.

Agreement and length bias take whole scores, averages and other scales alike; this is
the one reading of their cells, by the rules for score cells.
"""

import math
import re

import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.stats.counting import check_versions
from reply_resolution.tables.replies import plain_numbers
from reply_resolution.tables.scores import (
    MISSING,
    NOT_A_SCORE,
    OUT_OF_RANGE,
    as_text,
    explain_score,
    list_cells,
)

#: The scale that columns are held to where the caller names none.
USUAL_SCALE = (1, 5)
#: Numbers that tables keep for "no answer".
_NO_ANSWER = {-1, 0, 9, 99, 999, -9, -99, -999}
_NEARLY_ALL = 0.9  # of a column's numbers on a scale: the others are strays
_POINT = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?"
# three decimals after a comma may be thousands; a whole column can tell, one cell not
_COMMA = r"[+-]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))"
_REAL = re.compile(rf"{_POINT}|{_COMMA}")


def read_column(
    values: pl.Series, *, scale: tuple[float, float] | None = USUAL_SCALE
) -> tuple[pl.Series, pl.Series, list[str]]:
    """A column of scores or real numbers, with the reason for each cell not used.

    Args:
        values: The column as it stands in the table.
        scale: Lowest and highest score: whole numbers off it are no scores. A column
            with fractions off it is on another scale and taken as it is. None holds
            only those columns to 1 to 5 that are on it but for a few strays, or for
            the usual numbers for "no answer" (-1, 0, 9, 99).

    Returns:
        Float64 with null where there is no number; why not ("missing", "not_a_score",
        "out_of_range"; null where there is one); sentences for the reader.

    Raises:
        TableError: The column holds true and false.

    >>> read_column(pl.Series("score", ["4/5", "2,5", "-1", ""]))[0].to_list()
    [4.0, 2.5, None, None]
    """
    name, (low, high) = values.name, scale or USUAL_SCALE
    if values.dtype == pl.Boolean:
        raise TableError(
            f"column {name!r} holds true and false; scores are numbers. Name another "
            "column, or write its scores as numbers."
        )
    numbers, reasons = _numbers(values, (low, high))
    seen = numbers.drop_nulls()
    broken = seen.filter(seen != seen.floor())
    off = seen.filter(~seen.is_between(low, high))
    held = bool((off == off.floor()).all()) and (
        scale is not None or _only_strays(seen, off)
    )
    notes = []
    if len(broken) and scale:
        notes.append(
            f"{name}: {len(broken)} of {len(seen)} values are not whole (first: "
            f"{broken[0]:g}); it is taken as real-valued."
        )
    if held:
        outside = (~numbers.is_between(low, high)).fill_null(value=False)
        reasons = reasons.set(outside, OUT_OF_RANGE)
        numbers = numbers.set(outside, None)
    elif scale:
        found = seen.to_numpy()
        notes.append(
            f"{name}: values run from {found.min():g} to {found.max():g}, not "
            f"{low:g} to {high:g}: only ranks can be compared."
        )
    elif 2 * len(off) < len(seen):
        notes.append(
            f"{name}: {len(off)} of {len(seen)} values are not from {low:g} to "
            f"{high:g}: {list_cells(pl.DataFrame({'value': off}))}. They count as "
            f"scores of another scale; if they are none, name the scale: --scale "
            f"{low:g} {high:g} (scale=({low:g}, {high:g}))."
        )
    wanted = f"scores from {low:g} to {high:g}" if held else "numbers"
    plain = r"^[0-9]+$" if held and not len(broken) else f"^(?:{_POINT})$"
    notes += _listed(values, numbers, reasons, wanted, plain)
    if held and scale is None and len(off):
        notes.append(
            f"{name}: its scale was taken to be {low:g} to {high:g}; if it is a longer "
            "one, name it: --scale LO HI (scale=(LO, HI))."
        )
    return numbers, reasons, notes


def _only_strays(seen: pl.Series, off: pl.Series) -> bool:
    """Whether a column is on the usual scale, and what is off it no part of another.

    Scores of 0 and 1, or of 0 to 4, keep their 0; a column that reaches 5 does not.
    Codes for "no answer" may be many, where most numbers are on the scale.
    """
    low, high = USUAL_SCALE
    on = seen.filter(seen.is_between(low, high)).to_numpy()
    if off.is_empty() or not len(on) or on.max() == low:
        return off.is_empty()
    if len(on) >= _NEARLY_ALL * len(seen):
        return True
    odd = set(off.unique())
    if not odd <= _NO_ANSWER or len(on) <= len(off):
        return False
    return odd != {0} or bool(on.max() > high - 1)


def _listed(
    values: pl.Series, numbers: pl.Series, reasons: pl.Series, wanted: str, plain: str
) -> list[str]:
    """Which cells were left out, and which were read from other spellings.

    Args:
        values: The cells.
        numbers: What they were read as.
        reasons: Why not.
        wanted: What the cells should be.
        plain: Pattern of the spellings that need no word.
    """
    number = values.dtype.is_numeric()
    look = pl.DataFrame(
        {
            "value": values if number else as_text(values),
            "score": numbers,
            "why": reasons,
        }
    )
    notes = []
    bad = look.filter(pl.col("why").is_in([NOT_A_SCORE, OUT_OF_RANGE]))
    if not bad.is_empty():
        notes.append(
            f"{values.name}: cells that are no {wanted} were left out "
            f"({bad.height}): {list_cells(bad)}."
        )
    if not number:
        read = pl.col("score").is_not_null()
        odd = look.filter(read & ~pl.col("value").str.strip_chars().str.contains(plain))
        if not odd.is_empty():
            notes.append(
                f"{values.name}: cells read from other spellings ({odd.height}): "
                f"{list_cells(odd)}."
            )
    return notes


def _numbers(
    values: pl.Series, scale: tuple[float, float]
) -> tuple[pl.Series, pl.Series]:
    """Numbers of any size, null where there is none, and the reason per cell."""
    if values.null_count() == len(values):
        values = pl.Series(values.name, [None] * len(values), dtype=pl.Float64)
    if values.dtype.is_numeric():
        numbers = values.cast(pl.Float64).fill_nan(None)
        reasons = numbers.is_null().replace_strict(
            {True: MISSING}, default=None, return_dtype=pl.String
        )
        infinite = numbers.is_infinite().fill_null(value=False)
        return numbers.set(infinite, None), reasons.set(infinite, NOT_A_SCORE)
    text = as_text(values)
    plain, _ = plain_numbers(text)
    if plain is not None:
        return _numbers(plain, scale)
    low, high = scale
    whole = low == int(low) and high == int(high) and -128 <= low < high <= 127
    each = text.unique()
    read: list[tuple[float | None, str | None]] = []
    for cell in each:
        score, why = explain_score(
            cell, scale=(int(low), int(high)) if whole else USUAL_SCALE
        )
        if score is not None and whole:
            read.append((float(score), None))
        elif why == MISSING:
            read.append((None, why))
        elif _REAL.fullmatch(cell.strip()) and math.isfinite(
            number := float(cell.strip().replace(",", "."))
        ):
            read.append((number, None))
        else:
            read.append((None, why or NOT_A_SCORE))
    numbers, why_not = (
        pl.Series([r[k] for r in read], dtype=kind)
        for k, kind in enumerate((pl.Float64, pl.String))
    )
    return (
        text.replace_strict(each, numbers, return_dtype=pl.Float64),
        text.replace_strict(each, why_not, return_dtype=pl.String),
    )


def refuse_mixture(frame: pl.DataFrame, judge: str, *, mix_versions: bool) -> None:
    """Refuse scores of several rubrics or judges.

    Args:
        frame: The rows that are used, perhaps with `metric_version` and `judge_id`.
        judge: Column of the scores, which is neither.
        mix_versions: Allow them.

    Raises:
        VersionMismatchError: Several, with their names.
    """
    roles = {"version": "metric_version", "judge": "judge_id"}
    text = {
        role: as_text(frame[name])
        for role, name in roles.items()
        if name in frame.columns and name != judge
    }
    table = pl.DataFrame({**text, "outcome": [None] * frame.height}).with_columns(
        pl.when(pl.col(role).str.strip_chars() != "").then(role).alias(role)
        for role in text
    )
    check_versions(table, mix_versions)

"""Columns of a caller's table as numbers and lengths, read strictly."""

import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.replies import empty_expr, length_expr


def length_column(
    frame: pl.DataFrame, *, reply: str = "reply", length: str | None = None
) -> pl.Series:
    """Each reply's length: code points after CRLF became LF, or a given column.

    Args:
        frame: The table.
        reply: Column with the text.
        length: Column with lengths to take as they are.

    Returns:
        Float64; 0 for an empty reply (nothing but blanks and invisible characters),
        null where there is none.

    Raises:
        TableError: The column is missing, or a given length is below 0.
    """
    if length is not None:
        values = numbers(frame, length)
        below = values.filter(values < 0)
        if len(below):
            raise TableError(
                f"column {length!r} has {len(below)} lengths below 0 (the first is "
                f"{below[0]:g}). A length is a count of characters; correct the column."
            )
        return values.alias("length")
    need(frame, reply)
    # A text of nothing but blanks and invisible characters has no length.
    counted = pl.when(empty_expr(reply)).then(0).otherwise(length_expr(reply))
    known = pl.when(pl.col(reply).is_not_null()).then(counted)
    text = frame.select(pl.col(reply).cast(pl.String))
    return text.select(known.cast(pl.Float64).alias("length")).to_series()


def numbers(frame: pl.DataFrame, column: str) -> pl.Series:
    """A column as Float64; text that is no finite number becomes null."""
    need(frame, column)
    values = frame[column]
    if values.dtype == pl.Boolean:
        raise TableError(
            f"column {column!r} holds true and false; scores and lengths are numbers."
        )
    if values.dtype == pl.String:
        values = values.str.strip_chars()
    cast = values.cast(pl.Float64, strict=False)
    return pl.select(pl.when(cast.is_finite()).then(cast).alias(column)).to_series()


def need(frame: pl.DataFrame, *columns: str) -> None:
    """Raise a TableError that names the columns there are, if one is missing."""
    for column in columns:
        if column not in frame.columns:
            raise TableError(
                f"the table has no column {column!r}; it has "
                f"{', '.join(frame.columns)}. Name the right one."
            )

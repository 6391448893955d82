"""Which replies a length can be set against, and which of them are long."""

from collections.abc import Mapping, Sequence

import polars as pl

from reply_resolution.errors import TableError, did_you_mean
from reply_resolution.stats.score_columns import read_column
from reply_resolution.tables.replies import empty_expr, length_expr
from reply_resolution.tables.scores import NOT_A_SCORE, OUT_OF_RANGE

# Markdown signs carry no words; a bullet list should not seem wordier than a sentence.
_SIGNS = r"(?m)^\s*(?:#{1,6}|[-*•+>]|\d+[.)])\s+|[*_`|]{1,3}"


def usable(
    frame: pl.DataFrame,
    columns: Mapping[str, Sequence[str]],
    keys: Mapping[str, str] | None = None,
    *,
    reply: str = "reply",
    length: str | None = None,
    scale: tuple[float, float] | None = None,
    notes: list[str] | None = None,
) -> tuple[pl.DataFrame, dict[str, int]]:
    """The rows that length can be set against, and why each other row is not used.

    Args:
        frame: One row per reply.
        columns: Name in the result -> columns of scores whose mean it is, read by
            `read_column`.
        keys: Name in the result -> column that must not be empty.
        reply: Column with the text.
        length: Column with a length to use instead.
        scale: Of the scores; None: as `read_column` finds it.
        notes: Takes what a reader should know of the scores.

    Returns:
        `columns` as Float64, `keys` as text, `length` (code points, above 0) and its
        log2, `doublings`, and `row`, the place in the frame from 0. And rows by
        reason: `empty_reply`, `not_a_number`, `out_of_range`, `missing` and
        `missing_<key>`.

    Raises:
        TableError: A column is missing or holds no numbers, or a length is below 0.
    """
    lengths = _given_length(frame, length) if length else _text_length(frame, reply)
    made = {"length": lengths, "row": pl.int_range(frame.height, eager=True)}
    unread, outside = pl.lit(False), pl.lit(False)
    for name, group in columns.items():
        read = [read_column(_column(frame, c), scale=scale) for c in group]
        made[name] = pl.DataFrame([r[0] for r in read]).mean_horizontal()
        for k, (_, why, said) in enumerate(read):
            made[f"{name} {k}"] = why
            none = pl.col(name).is_null()
            unread = unread | (none & (pl.col(f"{name} {k}") == NOT_A_SCORE))
            outside = outside | (none & (pl.col(f"{name} {k}") == OUT_OF_RANGE))
            if notes is not None:
                notes.extend(said)
    keys = keys or {}
    made |= {name: _column(frame, c).cast(pl.String) for name, c in keys.items()}
    reasons = {
        "empty_reply": pl.col("length") == 0,
        "not_a_number": unread,
        "out_of_range": outside,
        "missing": pl.any_horizontal(pl.col("length", *columns).is_null()),
        **{f"missing_{name}": pl.col(name).is_null() for name in keys},
    }
    data, excluded = pl.DataFrame(made), {}
    for reason, condition in reasons.items():
        kept = data.filter(~condition.fill_null(False))
        if kept.height < data.height:
            excluded[reason] = data.height - kept.height
        data = kept
    doublings = pl.col("length").log(2).alias("doublings")
    return data.select(*columns, *keys, "length", doublings, "row"), excluded


def _text_length(frame: pl.DataFrame, reply: str) -> pl.Series:
    """Code points; 0 for nothing but blanks and invisible characters."""
    text = pl.DataFrame({"reply": _column(frame, reply).cast(pl.String)})
    counted = pl.when(empty_expr("reply")).then(0).otherwise(length_expr("reply"))
    known = pl.when(pl.col("reply").is_not_null()).then(counted)
    return text.select(known.cast(pl.Float64)).to_series()


def _given_length(frame: pl.DataFrame, column: str) -> pl.Series:
    values = _numbers(frame, column)
    below = values.filter(values < 0)
    if len(below):
        raise TableError(
            f"column {column!r} has {len(below)} lengths below 0 (the first is "
            f"{below[0]:g}). A length is a count of characters; correct the column."
        )
    return values


def _numbers(frame: pl.DataFrame, column: str) -> pl.Series:
    """A column as Float64; text that is no finite number becomes null."""
    values = _column(frame, column)
    if values.dtype == pl.Boolean:
        raise TableError(
            f"column {column!r} holds true and false; lengths are numbers."
        )
    if values.dtype == pl.String:
        values = values.str.strip_chars()
    cast = values.cast(pl.Float64, strict=False)
    return pl.select(pl.when(cast.is_finite()).then(cast).alias(column)).to_series()


def _column(frame: pl.DataFrame, column: str) -> pl.Series:
    if column not in frame.columns:
        raise TableError(
            f"the table has no column {column!r}; it has "
            f"{', '.join(frame.columns)}.{did_you_mean(column, frame.columns)} Name "
            "the right one."
        )
    return frame[column]


def lengths_by(
    frame: pl.DataFrame, by: str, *, score: str | None = None
) -> pl.DataFrame:
    """Typical length of a column `reply` per level or arm.

    Returns:
        One row per value of `by`, sorted: `by`, `replies`, `characters` and `words`
        (medians), `middle_half` (quartiles of characters, as text), and `mean_score`.
        Words are counted without Markdown signs; they mean little in languages that
        write none (Japanese), which is why the test uses characters.
    """
    reply = pl.col("reply").cast(pl.String)
    words = reply.str.replace_all(_SIGNS, " ").str.extract_all(r"\S+").list.len()
    used = frame.with_columns(
        _text_length(frame, "reply").alias("length"), words=words
    ).filter(pl.col(by).is_not_null() & (pl.col("length") > 0))
    quartiles = [
        pl.col("length").quantile(q).round(0).cast(pl.Int64) for q in (0.25, 0.75)
    ]
    table = used.group_by(by).agg(
        replies=pl.len(),
        characters=pl.col("length").median(),
        words=pl.col("words").median(),
        middle_half=pl.format("{} to {}", *quartiles),
        **({"mean_score": pl.col(score).mean()} if score else {}),
    )
    return table.sort(by)


def length_bins(frame: pl.DataFrame) -> pl.DataFrame:
    """Replies of like length side by side: judge and people in up to four bins.

    Returns:
        One row per bin of (nearly) equal size: `bin` (1 is shortest), `replies`,
        `shortest`, `longest` (characters), `judge`, `label` (means of the columns
        `score` and `label`).
    """
    data, _ = usable(frame, {"judge": ["score"], "label": ["label"]})
    # By rank of distinct length: equal lengths never fall into two bins.
    rank = (pl.col("length").rank("average") - 0.5) / data.height
    return (
        data.group_by(bin=(rank * 4).floor().cast(pl.Int64) + 1)
        .agg(
            replies=pl.len(),
            shortest=pl.col("length").min().cast(pl.Int64),
            longest=pl.col("length").max().cast(pl.Int64),
            judge=pl.col("judge").mean(),
            label=pl.col("label").mean(),
        )
        .sort("bin")
    )

"""Tables of verdicts: one schema, and their way to the replies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.tables.files import ROW
from reply_resolution.tables.scores import NOT_A_SCORE, OUT_OF_RANGE, WHY, read_scores
from reply_resolution.tables.tables import (
    Table,
    drop_duplicates,
    listed,
    matching_key,
    read_numbered,
    recognise,
    with_schema,
)

#: What became of a reply.
STATUSES = (
    *("scored", "refused", "truncated", "filtered", "invalid", "failed"),
    "not_judged",
)

#: Columns of a table of verdicts, in order; passed-through columns follow.
#: `vote` and `attempts` count from 0 and 1; tokens are whole numbers; `cost_usd` is
#: null where unknown; `latency_ms` is milliseconds; `judged_at` is ISO 8601, UTC.
VERDICT_SCHEMA: dict[str, Any] = {
    "request_id": pl.String,
    "arm": pl.String,
    "vote": pl.Int32,
    "score": pl.Int8,
    "reason": pl.String,
    "status": pl.String,
    "status_detail": pl.String,
    "metric_version": pl.String,
    "judge_id": pl.String,
    "model": pl.String,
    "model_returned": pl.String,
    "cached": pl.Boolean,
    "prompt_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "cost_usd": pl.Float64,
    "latency_ms": pl.Float64,
    "attempts": pl.Int32,
    "judged_at": pl.String,
}


def read_verdicts(
    source: str | Path | pl.DataFrame,
    *,
    columns: Mapping[str, str] | None = None,
    scale: tuple[int, int] = (1, 5),
) -> Table:
    """Read and check a table of verdicts.

    Args:
        source: A file or frame; `request_id` and `score` (or `status`) must be there.
        columns: Our name -> the table's name.
        scale: Lowest and highest score.

    Returns:
        The table with all columns of `VERDICT_SCHEMA` in order, absent ones null
        (`vote` 0), then the others. Where there is no `status` it follows from the
        score: "scored", or "invalid" with the reason in `status_detail`. Rows that
        repeat another in every cell are dropped and counted.

    Raises:
        TableError: A column is missing, a status is not known or contradicts its
            score, or a key has two different verdicts.
    """
    table = read_numbered(source, columns=columns)
    table = recognise(table, VERDICT_SCHEMA, required=["request_id"])
    has_status = "status" in table.columns
    if "score" not in table.columns:
        table = recognise(table, (), required=[] if has_status else ["score"])
        table = table.add(frame=table.frame.with_columns(score=None))
    rest = [c for c in table.columns if c not in VERDICT_SCHEMA]
    table = read_scores(table, "score", what="Scores", scale=scale)
    table = with_schema(table, VERDICT_SCHEMA)
    frame = table.frame.with_columns(pl.col("vote").fill_null(0))
    scored = pl.col("score").is_not_null()
    refused = pl.col(WHY).is_in([NOT_A_SCORE, OUT_OF_RANGE])
    if has_status:
        # a score that the scale refuses is no score, whatever the table calls it
        invalid = refused & (pl.col("status") == "scored")
    else:
        table = table.add(
            notes=["There is no status: rows with a score count as scored."]
        )
        frame = frame.with_columns(status=pl.lit("scored"))
        invalid = ~scored
    frame = frame.with_columns(
        pl.when(invalid).then(pl.lit("invalid")).otherwise("status").alias("status"),
        pl.when(invalid & (pl.lit(has_status) | pl.col("status_detail").is_null()))
        .then(WHY)
        .otherwise("status_detail")
        .alias("status_detail"),
    )
    unknown = frame.filter(~pl.col("status").is_in(STATUSES).fill_null(value=False))
    if not unknown.is_empty():
        words = unknown["status"].unique(maintain_order=True)
        raise TableError(
            f"{table.source}: unknown status {listed(words, 5)} "
            f"in {unknown.height} row(s). Allowed: {', '.join(STATUSES)}."
        )
    clash = frame.filter((pl.col("status") == "scored") != scored)
    if not clash.is_empty():
        raise TableError(
            f"{table.source}: status and score contradict each other in {clash.height} "
            f"row(s), first in row {clash[ROW][0]}: 'scored' needs a score, every "
            "other status has none. Correct them."
        )
    key = ["request_id", "arm", "vote", "metric_version", "judge_id", "model"]
    key += [c for c in ("kind",) if c in rest]  # twins of one reply
    table = table.add(frame=frame.select(*VERDICT_SCHEMA, *rest, ROW))
    table = drop_duplicates(table, key, what="verdicts")
    return table.add(frame=table.frame.drop(ROW))


def join_verdicts(
    replies: pl.DataFrame | Table, verdicts: pl.DataFrame | Table
) -> pl.DataFrame:
    """Every reply with its first verdict beside it, in the replies' order.

    Matched by `request_id` and `arm`; by `request_id` alone where one of the tables
    has no arms. A reply without a verdict has null in the verdict's columns.

    Args:
        replies: One row per reply.
        verdicts: As from `read_verdicts`; of several votes the first is used.

    Returns:
        The replies' columns, then the verdicts' (a verdict's column wins over a
        reply's of the same name, which then ends in `_given`).

    Raises:
        TableError: The tables cannot be matched one to one.
    """
    return join_and_note(replies, verdicts)[0]


def join_and_note(
    replies: pl.DataFrame | Table, verdicts: pl.DataFrame | Table
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """`join_verdicts`, with notes that count what did not match."""
    left = replies.frame if isinstance(replies, Table) else replies
    right = verdicts.frame if isinstance(verdicts, Table) else verdicts
    if "vote" in right.columns:
        right = right.filter(pl.col("vote").fill_null(0) == 0)
    key = matching_key(left, right, what="verdicts")
    repeated = right.filter(pl.struct(key).is_duplicated())
    if not repeated.is_empty():
        ids = repeated["request_id"].unique(maintain_order=True)
        raise TableError(
            f"{len(ids)} replies have several verdicts of vote 0: {listed(ids, 5)}. "
            "Keep those of one judge (and one kind) before joining."
        )
    own = [c for c in right.columns if c not in left.columns or c in VERDICT_SCHEMA]
    own = [c for c in own if c not in ("request_id", "arm")]
    left = left.rename({c: f"{c}_given" for c in own if c in left.columns})
    joined = left.join(
        right.select(*key, *own, pl.lit(value=True).alias("__found__")),
        on=key,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    without = joined["__found__"].null_count()
    unmatched = right.join(left, on=key, how="anti", nulls_equal=True).height
    notes = []
    if without:
        notes.append(f"Replies without a verdict: {without} of {left.height}.")
    if unmatched:
        notes.append(
            f"Verdicts without a reply, not used: {unmatched} of {right.height}."
        )
    return joined.drop("__found__"), tuple(notes)

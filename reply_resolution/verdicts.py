"""Tables of verdicts: one schema, one judge, and their way to the replies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.duplicates import drop_duplicates
from reply_resolution.errors import TableError, VersionMismatchError
from reply_resolution.scores import parse_scores
from reply_resolution.tables import Table, find_column, listed, read_table, rename

#: What became of a reply.
STATUSES = (
    "scored",
    "refused",
    "truncated",
    "filtered",
    "invalid",
    "failed",
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
    table = read_table(source, columns=columns)
    for ours in VERDICT_SCHEMA:
        found = find_column(table.frame.columns, ours)
        if found not in (None, ours):
            table = rename(table, {ours: str(found)})
    names = table.frame.columns
    needed = ["request_id", *(["score"] if "status" not in names else [])]
    missing = [name for name in needed if name not in names]
    if missing:
        raise TableError(
            f"{table.source}: no column {listed(missing)}, which verdicts need. The "
            f'columns are {listed(names)}. Say which is meant: columns={{"{missing[0]}"'
            ': "its name in the table"}.'
        )
    had_status = "status" in names
    table = _score(table, scale)
    frame = table.frame.with_columns(
        _typed(table, name, kind) for name, kind in VERDICT_SCHEMA.items()
    )
    frame = frame.with_columns(
        pl.col("vote").fill_null(0),
        # a text file's empty cell is no arm, no detail, no version
        *(
            pl.when(pl.col(c) != "").then(pl.col(c)).alias(c)
            for c, kind in VERDICT_SCHEMA.items()
            if kind == pl.String and c not in ("request_id", "reason")
        ),
    )
    rest = [c for c in frame.columns if c not in VERDICT_SCHEMA]
    frame = frame.select(*VERDICT_SCHEMA, *rest)
    frame, notes = _status(frame, table, had_status=had_status)
    key = ["request_id", "arm", "vote", "metric_version", "judge_id", "model"]
    key += [c for c in ("kind",) if c in rest]  # twins of one reply
    return drop_duplicates(table.add(frame=frame, notes=notes), key, what="verdicts")


def check_one_judge(verdicts: pl.DataFrame, *, what: str = "this comparison") -> None:
    """Refuse verdicts of several metric versions or judges.

    Rows that were not judged count for nothing. Where neither is recorded, the
    model's name stands for the judge.

    Args:
        verdicts: Rows with `metric_version`, `judge_id` and `model`, as far as there.
        what: What they were to be used for, for the message.

    Raises:
        VersionMismatchError: More than one, with the names and their rows.
    """
    judged = verdicts
    if "status" in verdicts.columns:
        judged = verdicts.filter(pl.col("status").fill_null("") != "not_judged")
    for column, words in (
        ("metric_version", "metric versions"),
        ("judge_id", "judges"),
        ("model", "models"),
    ):
        if column not in judged.columns:
            continue
        counts = judged.group_by(column, maintain_order=True).len().rows()
        if len(counts) > 1:
            shown = " and ".join(
                f"{'(not recorded)' if name is None else name} ({rows} rows)"
                for name, rows in counts[:5]
            )
            raise VersionMismatchError(
                f"{what} would mix {len(counts)} {words}: {shown}. Keep the rows of "
                "one, or judge the others again under it."
            )
        if column == "judge_id" and counts and counts[0][0] is not None:
            return


def join_verdicts(
    replies: pl.DataFrame | Table, verdicts: pl.DataFrame | Table, *, vote: int = 0
) -> pl.DataFrame:
    """Every reply with its verdict beside it, in the replies' order.

    Matched by `request_id` and `arm`; by `request_id` alone where one of the tables
    has no arms. A reply without a verdict has null in the verdict's columns.

    Args:
        replies: One row per reply.
        verdicts: As from `read_verdicts`.
        vote: Which of several votes.

    Returns:
        The replies' columns, then the verdicts' (a verdict's column wins over a
        reply's of the same name, which then ends in `_given`).

    Raises:
        TableError: The tables cannot be matched one to one.
    """
    return join_and_note(replies, verdicts, vote=vote)[0]


def join_and_note(
    replies: pl.DataFrame | Table, verdicts: pl.DataFrame | Table, *, vote: int = 0
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """`join_verdicts`, with notes that count what did not match."""
    left = replies.frame if isinstance(replies, Table) else replies
    right = verdicts.frame if isinstance(verdicts, Table) else verdicts
    if "vote" in right.columns:
        right = right.filter(pl.col("vote").fill_null(0) == vote)
    left, right, key = _matching_key(left, right)
    repeated = right.filter(pl.struct(key).is_duplicated())
    if not repeated.is_empty():
        ids = repeated["request_id"].unique(maintain_order=True)
        raise TableError(
            f"{len(ids)} replies have several verdicts of vote {vote}: "
            f"{listed(ids, 5)}. Keep those of one judge (and one kind) before joining."
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


def _matching_key(
    left: pl.DataFrame, right: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    left_arms = "arm" in left.columns and left["arm"].null_count() < left.height
    right_arms = "arm" in right.columns and right["arm"].null_count() < right.height
    if left_arms and right_arms:
        return left, right, ["request_id", "arm"]
    if left_arms and left["request_id"].is_duplicated().any():
        raise TableError(
            "the replies have one request_id in several arms, and the verdicts have "
            "no arm: which is whose cannot be told. Give the verdicts their arm."
        )
    return left, right, ["request_id"]


def _typed(table: Table, name: str, kind: Any) -> pl.Expr:  # noqa: ANN401
    frame = table.frame
    if name not in frame.columns:
        return pl.lit(None, dtype=kind).alias(name)
    given = frame.schema[name]
    if given == kind:
        return pl.col(name)
    if kind == pl.String:
        return pl.col(name).cast(pl.String)
    cell = pl.col(name)
    if given == pl.String:
        cell = pl.when(cell.str.strip_chars() != "").then(cell.str.strip_chars())
        if kind == pl.Boolean:
            return cell.str.to_lowercase().is_in(["true", "1"]).alias(name)
    read = frame.select(cell.cast(kind, strict=False).alias("new"), cell.alias("old"))
    lost = read.filter(pl.col("new").is_null() & pl.col("old").is_not_null())
    if not lost.is_empty():
        raise TableError(
            f"{table.source}: column {name!r} holds {lost['old'][0]!r}, which is not "
            f"a number. Correct {lost.height} cell(s), or leave the column out."
        )
    return cell.cast(kind).alias(name)


def _score(table: Table, scale: tuple[int, int]) -> Table:
    frame = table.frame
    if "score" not in frame.columns:
        return table.add(
            frame=frame.with_columns(
                pl.lit(None, dtype=pl.Int8).alias("score"),
                pl.lit(None, dtype=pl.String).alias("__why__"),
            )
        )
    scores, reasons = parse_scores(frame["score"], scale=scale)
    given = frame["score"]
    shown = given.cast(pl.String, strict=False) if given.dtype != pl.Object else None
    out = frame.with_columns(scores.alias("score"), reasons.alias("__why__"))
    wrong = out.with_row_index("row", 1).filter(
        pl.col("__why__").is_in(["not_a_score", "out_of_range"])
    )
    if wrong.is_empty():
        return table.add(frame=out)
    return table.add(
        frame=out,
        notes=[f"Scores that are not on the scale, not used: {wrong.height}."],
        problems=[
            {
                "row": row,
                "request_id": str(rid),
                "column": "score",
                "value": None if shown is None else shown[row - 1],
                "reason": why,
            }
            for row, rid, why in wrong.select("row", "request_id", "__why__").rows()
        ],
    )


def _status(
    frame: pl.DataFrame, table: Table, *, had_status: bool
) -> tuple[pl.DataFrame, list[str]]:
    no_score = pl.col("score").is_null()
    if not had_status:
        frame = frame.with_columns(
            pl.when(no_score)
            .then(pl.lit("invalid"))
            .otherwise(pl.lit("scored"))
            .alias("status"),
            pl.coalesce("status_detail", "__why__").alias("status_detail"),
        ).drop("__why__")
        return frame, ["There is no status: rows with a score count as scored."]
    # a score that the scale refuses is no score, whatever the table calls it
    refused = pl.col("__why__").is_in(["not_a_score", "out_of_range"])
    scored = pl.col("status") == "scored"
    frame = frame.with_columns(
        pl.when(scored & refused)
        .then(pl.lit("invalid"))
        .otherwise("status")
        .alias("status"),
        pl.when(scored & refused)
        .then("__why__")
        .otherwise("status_detail")
        .alias("status_detail"),
    ).drop("__why__")
    unknown = frame.filter(~pl.col("status").is_in(STATUSES).fill_null(value=False))
    if not unknown.is_empty():
        raise TableError(
            f"{table.source}: unknown status {listed(unknown['status'].unique(), 5)} "
            f"in {unknown.height} row(s). Allowed: {', '.join(STATUSES)}."
        )
    clash = frame.with_row_index("row", 1).filter(scored == no_score)
    if not clash.is_empty():
        raise TableError(
            f"{table.source}: status and score contradict each other in {clash.height} "
            f"row(s), first in row {clash['row'][0]}: 'scored' needs a score, every "
            "other status has none. Correct them."
        )
    return frame, []

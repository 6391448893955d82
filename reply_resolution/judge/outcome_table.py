"""From keys and verdicts to the table the user gets: one row per reply and vote."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from reply_resolution.judge.worklist import EMPTY_REASON, Worklist
from reply_resolution.tables.verdicts import VERDICT_SCHEMA

#: Suffix of a reply's column whose name a verdict needs.
GIVEN = "_given"


def verdict_table(
    replies: pl.DataFrame,
    worklist: Worklist,
    found: pl.DataFrame,
    *,
    drawn: np.ndarray,
    probability: np.ndarray,
    new_entries: set[int],
    failures: Mapping[int, tuple[str, str, int]],
    unreached: str,
    metric_version: str,
    judge_id: str,
    model: str,
) -> pl.DataFrame:
    """Put every reply and vote, in the table's order, beside what became of it.

    Args:
        replies: The table as given.
        worklist: Keys of the rows judged.
        found: Verdicts by key (`CacheStore.get_frame`).
        drawn: Whether each row is in the sample; bool, shape (rows,).
        probability: Chance of having been drawn, fraction; float64, shape (rows,).
        new_entries: Entries this run paid for; all other verdicts are `cached`.
        failures: Entry -> (status, detail, calls) where there is no verdict.
        unreached: `status_detail` of rows with neither.
        metric_version: Label of the rubric's version.
        judge_id: The judge's id.
        model: The model asked for.

    Returns:
        The columns of `VERDICT_SCHEMA`, then `inclusion_probability`, then the columns
        of `replies` (ending in `_given` where a verdict has one of that name).
    """
    n, votes, judged = replies.height, worklist.votes, worklist.rows
    entry = np.full((n, votes), -1, dtype=np.int64)
    for vote in range(votes):
        entry[judged, vote] = vote * len(judged) + np.arange(len(judged))
    flat = entry.reshape(-1)
    has = flat >= 0
    keys = pl.Series("key", [None] * len(flat), dtype=pl.String)
    if has.any():
        index = pl.Series(flat).set(pl.Series(~has), None)
        keys = worklist.keys.gather(index).alias("key")
    is_new = np.zeros(len(flat), dtype=bool)
    if new_entries:
        is_new = np.isin(flat, np.fromiter(new_entries, np.int64, len(new_entries)))
    base = pl.DataFrame(
        {
            "row": np.repeat(np.arange(n), votes),
            "vote": np.tile(np.arange(votes, dtype=np.int32), n),
            "key": keys,
            "new": is_new,
            "drawn": np.repeat(drawn, votes),
            "empty": np.repeat(worklist.empty, votes),
            "inclusion_probability": np.repeat(probability, votes),
        }
    )
    failed = pl.DataFrame(
        [(worklist.keys[e], *failure) for e, failure in failures.items()],
        schema={
            "key": pl.String,
            "f_status": pl.String,
            "f_detail": pl.String,
            "f_attempts": pl.Int64,
        },
        orient="row",
    ).unique("key", keep="first")
    table = base.join(
        found,
        on="key",
        how="left",
        maintain_order="left",
    ).join(failed, on="key", how="left", maintain_order="left")
    sampled_out = ~pl.col("drawn")
    by_rule = pl.col("drawn") & pl.col("empty")
    too_long = pl.col("drawn") & ~pl.col("empty") & pl.col("key").is_null()
    known = pl.col("status").is_not_null()

    def choose(column: str, sampled: str, rule: str, long: str, left: str) -> pl.Expr:
        return (
            pl.when(sampled_out)
            .then(pl.lit(sampled))
            .when(by_rule)
            .then(pl.lit(rule))
            .when(too_long)
            .then(pl.lit(long))
            .when(known)
            .then(pl.col(column))
            .otherwise(pl.coalesce(f"f_{column.removeprefix('status_')}", pl.lit(left)))
            .alias(column)
        )

    table = table.with_columns(
        choose("status_detail", "sampling", "empty", "too_long", unreached).replace(
            "", None
        ),
        choose("status", "not_judged", "scored", "failed", "not_judged"),
        score=pl.when(by_rule).then(pl.lit(1)).otherwise("score").cast(pl.Int8),
        reason=pl.when(by_rule).then(pl.lit(EMPTY_REASON)).otherwise("reason"),
        cached=known & ~pl.col("new"),
        attempts=pl.coalesce("attempts", "f_attempts", pl.lit(0)).cast(pl.Int32),
        metric_version=pl.lit(metric_version),
        judge_id=pl.lit(judge_id),
        model=pl.lit(model),
    )
    ids = {
        "request_id": replies["request_id"].cast(pl.String),
        "arm": replies["arm"].cast(pl.String)
        if "arm" in replies.columns
        else pl.Series([None] * n, dtype=pl.String),
    }
    taken = {*VERDICT_SCHEMA, "inclusion_probability"}
    rest = replies.select(
        pl.col(c).alias(c + GIVEN if c in taken else c)
        for c in replies.columns
        if c not in ids
    )
    if votes > 1:
        rows = table["row"]
        rest = rest[rows]
        ids = {name: column.gather(rows) for name, column in ids.items()}
    return pl.concat(
        [
            table.with_columns(
                column.alias(name) for name, column in ids.items()
            ).select(
                *(pl.col(c).cast(t) for c, t in VERDICT_SCHEMA.items()),
                "inclusion_probability",
            ),
            rest,
        ],
        how="horizontal",
    )

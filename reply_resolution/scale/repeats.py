"""Rows that repeat, found where the table lives: `reply_resolution.stats.repeats`."""

import polars as pl

from reply_resolution.scale.source import Lazy, Source
from reply_resolution.stats.counts import plural
from reply_resolution.stats.repeats import (
    Excluded,
    Names,
    note_repeats,
    note_shared,
    note_users,
)

_HEAD = 10_000  # rows that nearly always show whether users repeat
_LAST = 1 << 62  # a vote that is not there comes after all others


def first_verdicts(
    source: Source,
    text: set[str],
    names: Names,
    excluded: Excluded,
    warnings: list[str],
) -> Source:
    """One verdict per request and arm; the same source if that was all of them.

    Args:
        source: Columns by their roles.
        text: Which of them are text.
        names: Which columns play which part.
        excluded: Rows that are not kept are counted there.
        warnings: Added to.
    """
    lib, table = source.lib, source.lazy
    columns = table.collect_schema().names()
    if "id" not in columns:
        return _lowest_vote(source, columns, names, excluded, warnings)
    known = ~lib.col("id").is_null() & ~lib.col("arm").is_null()
    if "id" in text:
        known = known & (lib.col("id") != "")
    keyed = table.filter(known)
    key = ["id", "arm"]

    def repeats(part: Lazy) -> Lazy:
        n = lib.col("n")
        per_arm = part.group_by(key).agg(lib.len().alias("n"))
        per_id = per_arm.group_by("id").agg(lib.len().alias("arms"), n.sum())
        return per_id.select(
            (lib.col("arms") > 1).cast(lib.Int64).alias("shared"),
            (n - lib.col("arms")).cast(lib.Int64).alias("again"),
        ).select(lib.col("shared", "again").sum())

    found = source.by_key(keyed, "id", repeats).sum()
    if not names.pair:
        note_shared(int(found["shared"].item() or 0), names, warnings)
    if not found["again"].item():
        return source

    def lost(part: Lazy) -> Lazy:
        per = part.group_by(key).agg((lib.len() - 1).alias("n"))
        per = per.filter(lib.col("n") > 0).with_columns(lib.col("n").cast(lib.Int64))
        return per.group_by("arm").agg(lib.col("n").sum())

    by_arm = source.by_key(keyed, "id", lost).group_by("arm").agg(pl.col("n").sum())
    note_repeats(_whole(by_arm), names, excluded, warnings)
    vote = lib.col("vote").fill_null(_LAST) if "vote" in columns else lib.lit(0)
    keyed = keyed.with_columns(place=vote.cast(lib.Int64))
    if not source.ordered:
        _warn_ties(source, keyed, warnings)
    ties = ["score", *sorted(set(columns) - {*key, "score"})]

    def first(part: Lazy) -> Lazy:
        if source.ordered:
            part = part.sort("place", "row")
            return part.unique(key, keep="first", maintain_order=True)
        return part.unique(key, keep="first", order_by=["place", *ties])

    firsts = source.staged(keyed, "id", first).select(columns)
    return source.on(lib.concat([firsts, table.filter(~known).select(columns)]))


def _whole(by_arm: pl.DataFrame) -> pl.DataFrame:
    return by_arm.select("arm", pl.col("n").cast(pl.Int64)).sort("arm")


def _warn_ties(source: Source, keyed: Lazy, warnings: list[str]) -> None:
    """Where "first" means nothing, say how often the score decided which row counts."""
    lib, score = source.lib, source.lib.col("score")
    tied = source.number(
        keyed.group_by("id", "arm", "place")
        .agg(
            score.min().alias("low"),
            score.max().alias("high"),
            score.count().alias("given"),
            lib.len().alias("n"),
        )
        .unique(["id", "arm"], keep="first", order_by=["place"])
        .filter(
            (lib.col("low") != lib.col("high"))
            | ((lib.col("given") > 0) & (lib.col("given") < lib.col("n")))
        )
        .select(lib.len().alias("n"))
    )
    if tied:
        warnings.append(
            f"{plural(tied, 'request')} have several rows of one arm and vote with "
            "different scores. This engine knows no first row: the lowest score was "
            "used, or none where one is missing. Give the rows different votes to say "
            "which one counts."
        )


def _lowest_vote(
    source: Source,
    columns: list[str],
    names: Names,
    excluded: Excluded,
    warnings: list[str],
) -> Source:
    """Without request ids only rows of the lowest vote are kept."""
    if "vote" not in columns:
        return source
    lib, vote = source.lib, source.lib.col("vote")
    lowest = source.number(source.lazy.select(vote.min()))
    later = ~vote.is_null() & (vote > lowest)
    by_arm = source.collect(
        source.lazy.filter(later).group_by("arm").agg(lib.len().alias("n"))
    )
    if by_arm.is_empty():
        return source
    note_repeats(_whole(by_arm), names, excluded, warnings)
    return source.on(source.lazy.filter(~later))


def warn_users(
    source: Source, names: Names, warnings: list[str], *, all_kept: bool
) -> None:
    """Say where several rows (or pairs) belong to one user who is not the unit."""
    lib = source.lib
    keys = ["user", "arm"] if names.pair else ["user"]
    users = source.lazy.select(keys).filter(~lib.col("user").is_null())

    def repeats(part: Lazy) -> Lazy:
        per = part.group_by(keys).agg(lib.len().alias("n"))
        return per.filter(lib.col("n") > 1).select(lib.len().alias("n"))

    # the head of the table nearly always answers, and spares grouping all users
    if (all_kept and source.number(repeats(users.head(_HEAD)))) or source.total(
        users, "user", repeats
    ):
        note_users(names, warnings)

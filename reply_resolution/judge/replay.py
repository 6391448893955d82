"""Verdicts from the cache alone, by whichever judge gave them."""

from pathlib import Path

import numpy as np
import polars as pl

from reply_resolution.errors import CacheError, VersionMismatchError
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.identity import JudgeIdentity
from reply_resolution.judge.job import Worklist, check_table, fetch
from reply_resolution.judge.results import verdict_table
from reply_resolution.tables.replies import empty_expr


def replay(
    replies: pl.DataFrame,
    *,
    cache: str | Path | Cache | None = None,
    judge_id: str | None = None,
    votes: int = 1,
) -> pl.DataFrame:
    """The verdicts a cache has on every reply of a table; nobody is asked.

    Args:
        replies: As for `judge`.
        cache: A file, an open cache, or None for the default place.
        judge_id: Whose verdicts, by id or the start of it; None: of the one judge who
            has judged them all.
        votes: Verdicts per reply, 1 and up.

    Returns:
        As `JudgeRun.verdicts`. Where one judge served several metric versions (another
        cut, say), the newest is named.

    Raises:
        CacheError: No judge in the cache has judged all of these replies.
        VersionMismatchError: Several have; the message names them.
        TableError: The table lacks a column, or a key occurs twice.
    """
    check_table(replies)
    if isinstance(cache, Cache):
        return _replay(replies, cache, judge_id, votes)
    with Cache.open(cache, read_only=True) as store:
        return _replay(replies, store, judge_id, votes)


def _replay(
    replies: pl.DataFrame, store: Cache, judge_id: str | None, votes: int
) -> pl.DataFrame:
    where = store.name.removeprefix("the cache ")
    empty = replies.select(empty_expr("reply")).to_series().to_numpy()
    rows = np.flatnonzero(~empty)
    whole: list[tuple[JudgeIdentity, str, Worklist, pl.DataFrame]] = []
    best = 0
    judges = _judges(store, judge_id or "")
    for identity, version in judges:
        rubric = store.rubric(version)
        work = Worklist(replies, rubric, rows=rows, empty=empty, votes=votes)
        work.hash(identity.judge_id)
        keys = work.keys.drop_nulls()
        found = fetch(store, keys)
        best = max(best, found.height)
        if found.height == keys.n_unique():
            whole.append((identity, version, work, found))
    if not whole:
        wanted = f" of judge {judge_id}" if judge_id else ""
        raise CacheError(
            f"cache {where} has verdicts{wanted} on {best} of {len(rows) * votes} of "
            f"these replies at most ({len(judges)} judges looked at). Judge the table "
            "with this cache first (`reply-resolution judge`), or give its table of "
            "verdicts."
        )
    if len(whole) > 1 and len(replies):
        names = ", ".join(
            f"{i.model} by {version} (judge {i.judge_id[:8]})"
            for i, version, *_ in whole
        )
        raise VersionMismatchError(
            f"cache {where} has verdicts of {len(whole)} judges on these replies: "
            f"{names}. Say whose with judge_id, or give the table of verdicts of one."
        )
    identity, version, work, found = whole[0]
    return verdict_table(
        replies,
        work,
        found,
        drawn=np.ones(replies.height, dtype=bool),
        probability=np.ones(replies.height),
        new_entries=(),
        failures={},
        unreached="",
        metric_version=version,
        judge_id=identity.judge_id,
        model=identity.model,
    )


def _judges(store: Cache, start: str) -> list[tuple[JudgeIdentity, str]]:
    """Every judge in the cache with the newest metric version it served."""
    labels = dict(store.versions().select("hash", "metric_version").iter_rows())
    found = []
    for judge_id, rubric_hash in store.judges().items():
        identity = store.judge(judge_id)
        if identity is not None and judge_id.startswith(start):
            found.append((identity, labels[rubric_hash]))
    return found

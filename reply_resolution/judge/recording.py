"""Verdicts obtained elsewhere, kept as results for exactly these messages."""

from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.errors import JudgeError, TableError
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.case import Settings
from reply_resolution.judge.endpoint import (
    RECORDED_BASE_URL,
    RECORDED_MODEL,
    resolve_endpoint,
)
from reply_resolution.judge.job import Job, opened
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import FINAL, StoredVerdict


def record(
    replies: pl.DataFrame,
    verdicts: pl.DataFrame,
    *,
    rubric: Rubric | None = None,
    model: str = RECORDED_MODEL,
    base_url: str = RECORDED_BASE_URL,
    cache: str | Path | Cache | None = None,
) -> int:
    """Keep verdicts obtained elsewhere, as results for exactly these messages.

    `judge` with the same model and base URL then replays them. They are matched by
    `request_id`, `arm` where both tables have one, and `vote`; replies without a
    verdict stay without.

    Args:
        replies: As for `judge`.
        verdicts: `request_id`, `score`, `reason`; optional `arm`, `vote`, `status`,
            `status_detail`, `model`, `judged_at`. Only final statuses are kept.
        rubric: The rubric they were judged by; default the shipped one.
        model: Name of the judge; no server is asked by it.
        base_url: `recorded:`, or `recorded:` and a name of your own.
        cache: A file, an open cache, or None for the default place.

    Returns:
        Verdicts that were new to the cache.

    Raises:
        JudgeError: The base URL is not of a recorded judge.
        TableError: Two verdicts contradict each other for one and the same message.
    """
    rubric = rubric or Rubric.default()
    endpoint = resolve_endpoint(model, base_url, None)
    if not endpoint.recorded:
        raise JudgeError(
            f"verdicts recorded elsewhere cannot be kept as answers of {base_url}: "
            f"what was sent to it is not known. Use {RECORDED_BASE_URL!r}, or "
            f"{RECORDED_BASE_URL + 'name'!r}."
        )
    verdicts = _with_defaults(verdicts)
    last = verdicts["vote"].max()
    votes = 1 + (last if isinstance(last, int) else 0)
    settings = Settings(1, 1, timeout=1.0)
    with opened(cache) as store:
        job = Job(replies, rubric, endpoint, store, settings, {}, None, 0, votes)
        store.register_rubric(rubric)
        store.register_judge(job.desk.identity, rubric)
        by = ["request_id", "vote"]
        if "arm" in replies.columns and verdicts["arm"].null_count() == 0:
            by.insert(1, "arm")
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in verdicts.iter_rows(named=True):
            if row["status"] in FINAL:
                found[tuple(row[name] for name in by)] = row
        kept: dict[str, StoredVerdict] = {}
        for entry in range(len(job.worklist.keys)):
            if job.worklist.keys[entry] is None:
                continue
            item = job.desk.item(entry)
            given = replies.row(item.row, named=True)
            row_key = {**given, "vote": item.vote}
            said = found.get(tuple(row_key[name] for name in by))
            if said is None:
                continue
            stored = StoredVerdict(
                key=item.key,
                judge_id=job.desk.judge_id,
                user_message=item.message.text,
                vote=item.vote,
                score=said["score"],
                reason=said["reason"],
                status=said["status"],
                status_detail=said["status_detail"] or "",
                model_returned=said["model"],
                prompt_tokens=None,
                cached_tokens=None,
                completion_tokens=None,
                cost_usd=None,
                latency_ms=None,
                attempts=0,
                judged_at=said["judged_at"] or "",
                raw=None,
            )
            before = kept.setdefault(item.key, stored)
            if (before.score, before.reason) != (stored.score, stored.reason):
                raise TableError(
                    f"request {given['request_id']!r} repeats another row word for "
                    "word, but the recorded verdicts on the two differ. A verdict "
                    "belongs to what was sent: keep one of the rows."
                )
        new = store.put_many(list(kept.values()))
        store.note_requests(job.requests())
    return new


_OPTIONAL = {
    "arm": pl.String,
    "vote": pl.Int64,
    "reason": pl.String,
    "status": pl.String,
    "status_detail": pl.String,
    "model": pl.String,
    "judged_at": pl.String,
}


def _with_defaults(verdicts: pl.DataFrame) -> pl.DataFrame:
    for name in ("request_id", "score"):
        if name not in verdicts.columns:
            raise TableError(
                f"the recorded verdicts have no column {name!r}. They need request_id, "
                "score and reason; read them with read_verdicts."
            )
    absent = [
        pl.lit(None, dtype=kind).alias(name)
        for name, kind in _OPTIONAL.items()
        if name not in verdicts.columns
    ]
    return verdicts.with_columns(absent).with_columns(
        pl.col("vote").fill_null(0).cast(pl.Int64),
        pl.coalesce(
            "status",
            pl.when(pl.col("score").is_null())
            .then(pl.lit("invalid"))
            .otherwise(pl.lit("scored")),
        ),
    )

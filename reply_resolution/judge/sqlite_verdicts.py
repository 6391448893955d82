"""SQL of verdicts, attempts, claims and requests; tracing one verdict."""

from collections.abc import Collection, Iterable, Iterator, Sequence
import hashlib
from itertools import islice
import json
import time
from typing import Any

import polars as pl

from reply_resolution.errors import CacheError
from reply_resolution.judge.owner import is_gone
from reply_resolution.judge.sqlite import VERDICTS, Database
from reply_resolution.judge.sqlite_versions import LABEL, judge
from reply_resolution.judge.store import (
    FINAL,
    FRAME_SCHEMA,
    Attempt,
    StoredVerdict,
    Trace,
)

_CHUNK = 900  # keys per IN (...): below SQLite's oldest limit of 999 parameters
_BATCH = 10_000  # rows whose request ids are noted together
_FRAME = (
    "key, score, reason, status, status_detail, judge, model_returned, prompt_tokens, "
    "cached_tokens, completion_tokens, cost_usd, latency_ms, attempts, judged_at"
)


def get_many(db: Database, keys: Sequence[str]) -> dict[str, StoredVerdict]:
    """The verdicts there are, by key."""
    found = {}
    with db.locked() as connection:
        for chunk in _chunks(keys):
            marks = ",".join("?" * len(chunk))
            query = f"{VERDICTS} WHERE v.key IN ({marks})"
            for row in connection.execute(query, chunk):
                found[row[0]] = StoredVerdict._make(row)
    return found


def get_frame(db: Database, keys: Sequence[str]) -> pl.DataFrame:
    """The verdicts there are as a frame: one row per known key, in no order.

    Returns:
        `key` and the columns of `FRAME_SCHEMA`; without messages and raw answers,
        which are never read from disk for it.
    """
    rows: list[tuple[Any, ...]] = []
    with db.locked() as connection:
        run = connection.execute
        judges = dict(run("SELECT id, judge_id FROM judges").fetchall())
        size = run("SELECT count(*) FROM verdicts").fetchone()[0]
        # Reading in order is three times as fast as looking up: where a good part
        # of the file is wanted, read it all and drop the rest.
        everything = len(keys) > _CHUNK and size < 4 * len(keys)
        if everything:
            rows = run(f"SELECT {_FRAME} FROM verdicts").fetchall()
        else:
            for chunk in _chunks(keys):
                marks = ",".join("?" * len(chunk))
                rows += run(
                    f"SELECT {_FRAME} FROM verdicts WHERE key IN ({marks})", chunk
                ).fetchall()
    columns = dict(
        zip(
            ("key", *FRAME_SCHEMA),
            zip(*rows, strict=True) if rows else [()] * (1 + len(FRAME_SCHEMA)),
            strict=True,
        )
    )
    columns["key"] = tuple(map(bytes.hex, columns["key"]))
    columns["judge_id"] = tuple(map(judges.__getitem__, columns["judge_id"]))
    frame = pl.DataFrame(columns, schema={"key": pl.String(), **FRAME_SCHEMA})
    if everything:
        wanted = pl.DataFrame({"key": pl.Series(keys, dtype=pl.String)})
        frame = frame.join(wanted, on="key", how="semi")
    return frame


def put_many(db: Database, verdicts: Sequence[StoredVerdict]) -> int:
    """Keep verdicts and end the claims on their keys; see `Cache.put_many`."""
    for verdict in verdicts:
        _check_verdict(verdict)
    with db.transaction() as run:
        ids = _judge_ids(db, {v.judge_id for v in verdicts})
        new = 0
        for v in verdicts:
            key = bytes.fromhex(v.key)
            added = run(
                "INSERT INTO verdicts (key, judge, vote, score, status, "
                "status_detail, model_returned, prompt_tokens, cached_tokens, "
                "completion_tokens, cost_usd, latency_ms, attempts, judged_at, "
                "reason) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) "
                "ON CONFLICT (key) DO NOTHING",
                (
                    key,
                    ids[v.judge_id],
                    v.vote,
                    v.score,
                    v.status,
                    v.status_detail,
                    v.model_returned,
                    v.prompt_tokens,
                    v.cached_tokens,
                    v.completion_tokens,
                    v.cost_usd,
                    v.latency_ms,
                    v.attempts,
                    v.judged_at,
                    v.reason,
                ),
            )
            if added.rowcount:
                run(
                    "INSERT INTO answers VALUES (?, ?, ?)",
                    (added.lastrowid, v.user_message, v.raw),
                )
                new += 1
            run("DELETE FROM claims WHERE key = ?", (key,))
    return new


def _judge_ids(db: Database, wanted: set[str]) -> dict[str, int]:
    ids = {
        judge_id: row[0]
        for judge_id in wanted
        for row in db.read("SELECT id FROM judges WHERE judge_id = ?", (judge_id,))
    }
    if missing := sorted(wanted - set(ids)):
        raise CacheError(
            f"judge {missing[0][:8]} is not registered in cache {db.name}; "
            "call register_judge before keeping its verdicts, so that they can be "
            "traced."
        )
    return ids


def add_attempts(db: Database, attempts: Sequence[Attempt]) -> None:
    """Keep the diary of calls, failed ones too."""
    with db.transaction() as run:
        for a in attempts:
            run(
                "INSERT INTO attempts (key, run_id, outcome, detail, call_id, "
                "started_at, latency_ms, prompt_tokens, cached_tokens, "
                "completion_tokens, cost_usd) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                (bytes.fromhex(a.key), *a[1:]),
            )


def claim(
    db: Database, keys: Collection[str], owner: str, lease_s: float = 900.0
) -> set[str]:
    """Take keys to judge; see `Cache.claim`."""
    gone: dict[str, bool] = {}
    taken = set()
    with db.transaction() as run:
        clock = time.time()
        for key in keys:
            blob = bytes.fromhex(key)
            if run("SELECT 1 FROM verdicts WHERE key = ?", (blob,)).fetchone():
                continue
            held = run(
                "SELECT owner, expires_at FROM claims WHERE key = ?", (blob,)
            ).fetchone()
            if held is not None and held[0] != owner and held[1] > clock:
                if held[0] not in gone:
                    gone[held[0]] = is_gone(held[0])
                if not gone[held[0]]:
                    continue
            run(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?)",
                (blob, owner, clock + lease_s),
            )
            taken.add(key)
    return taken


def release(db: Database, keys: Collection[str], owner: str) -> None:
    """Give claimed keys back, for others to judge."""
    with db.transaction() as run:
        for key in keys:
            run(
                "DELETE FROM claims WHERE key = ? AND owner = ?",
                (bytes.fromhex(key), owner),
            )


def note_requests(db: Database, rows: Iterable[tuple[str, str | None, str]]) -> None:
    """Remember (request_id, arm, key).

    A rerun brings the same rows in the same order: whole batches that were noted
    before are known by their digest and cost a tenth.
    """
    rows = iter(rows)
    while batch := list(islice(rows, _BATCH)):
        text = "\n".join(f"{rid}\x1f{arm or ''}\x1f{key}" for rid, arm, key in batch)
        digest = hashlib.sha256(text.encode()).digest()
        if db.read("SELECT 1 FROM noted WHERE digest = ?", (digest,)):
            continue
        with db.locked() as connection, db.transaction():
            connection.executemany(
                "INSERT OR IGNORE INTO requests VALUES (?, coalesce(?, ''), ?)",
                ((rid, arm, bytes.fromhex(key)) for rid, arm, key in batch),
            )
            connection.execute("INSERT OR IGNORE INTO noted VALUES (?)", (digest,))


def trace(db: Database, wanted: str, *, arm: str | None = None) -> list[Trace]:
    """What was sent and answered; see `Cache.trace`."""
    rows = db.read(
        "SELECT DISTINCT key FROM requests WHERE request_id = ? "
        "AND (? IS NULL OR arm = ?)",
        (wanted, arm, arm),
    )
    if not rows and 8 <= len(wanted) <= 64:
        rows = db.read(
            "SELECT key FROM verdicts WHERE substr(lower(hex(key)), 1, ?) = ?",
            (len(wanted), wanted.lower()),
        )
    traces = [_trace(db, v) for v in get_many(db, [r[0].hex() for r in rows]).values()]
    if not traces:
        raise CacheError(
            f"cache {db.name} has no verdict for {wanted!r}"
            + (f" in arm {arm!r}" if arm else "")
            + ". Give a request id that was judged with this cache, or a verdict "
            "key."
        )
    return sorted(traces, key=lambda t: (t.verdict.vote, t.verdict.judged_at))


def _trace(db: Database, verdict: StoredVerdict) -> Trace:
    key = bytes.fromhex(verdict.key)
    identity = judge(db, verdict.judge_id)
    assert identity is not None  # a foreign key
    body = identity.request(verdict.user_message)
    return Trace(
        verdict=verdict,
        key=verdict.key,
        request=json.dumps(body, ensure_ascii=False, separators=(",", ":")),
        system=body["messages"][0]["content"],
        user=verdict.user_message,
        judge=identity,
        metric_versions=tuple(
            row[0]
            for row in db.read(
                f"SELECT {LABEL} FROM judges j "
                "JOIN judge_rubrics jr ON jr.judge = j.id "
                "JOIN rubrics r ON r.hash = jr.rubric_hash WHERE j.judge_id = ? "
                "ORDER BY r.name, r.number",
                (verdict.judge_id,),
            )
        ),
        seen_as=tuple(
            (rid, arm or None)
            for rid, arm in db.read(
                "SELECT request_id, arm FROM requests WHERE key = ? "
                "ORDER BY request_id, arm",
                (key,),
            )
        ),
        attempts=tuple(
            Attempt(verdict.key, *row)
            for row in db.read(
                "SELECT run_id, outcome, detail, call_id, started_at, latency_ms, "
                "prompt_tokens, cached_tokens, completion_tokens, cost_usd "
                "FROM attempts WHERE key = ? ORDER BY id",
                (key,),
            )
        ),
    )


def _chunks(keys: Sequence[str]) -> Iterator[list[bytes]]:
    blobs = [bytes.fromhex(key) for key in dict.fromkeys(keys)]
    for start in range(0, len(blobs), _CHUNK):
        yield blobs[start : start + _CHUNK]


def _check_verdict(verdict: StoredVerdict) -> None:
    scored = verdict.status == "scored"
    score = verdict.score
    if verdict.status not in FINAL:
        raise CacheError(
            f"a verdict of status {verdict.status!r} is not kept; only paid final "
            f"answers are: {', '.join(FINAL)}. Calls that failed are attempts."
        )
    if scored != (score is not None) or (
        scored and (type(score) is not int or not 1 <= score <= 5)
    ):
        raise CacheError(
            f"a verdict of status {verdict.status!r} with score {score!r} is "
            "contradictory: scored has a whole number 1 to 5, every other status has "
            "none."
        )

"""The cache: one SQLite file of metric versions, verdicts, attempts and the ledger.

A verdict is a paid result, not a copy of one: nothing here expires or is evicted, and
whatever keeps the file from being read or written is a `CacheError`, never a second
payment in silence. Text and JSON only. Several processes may use one file at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
import json
from pathlib import Path
import time
from typing import Any, Self

import polars as pl

from reply_resolution.errors import CacheError
from reply_resolution.judge import exchange, sqlite_ledger
from reply_resolution.judge.identity import JudgeIdentity
from reply_resolution.judge.owner import is_gone
from reply_resolution.judge.rubric import Rubric, RubricVersion
from reply_resolution.judge.sqlite import Database, default_path
from reply_resolution.judge.store import (
    FINAL,
    FRAME_SCHEMA,
    Actual,
    Attempt,
    Booking,
    Cap,
    Refusal,
    StoredVerdict,
    TokenUse,
    Totals,
    Trace,
)

_CHUNK = 900  # keys per IN (...): below SQLite's oldest limit of 999 parameters
_VERDICT = (
    "lower(hex(v.key)), j.judge_id, v.user_message, v.vote, v.score, v.reason, "
    "v.status, v.status_detail, v.model_returned, v.prompt_tokens, v.cached_tokens, "
    "v.completion_tokens, v.cost_usd, v.latency_ms, v.attempts, v.judged_at, v.raw"
)
_FRAME = (
    "lower(hex(v.key)), v.score, v.reason, v.status, v.status_detail, j.judge_id, "
    "v.model_returned, v.prompt_tokens, v.cached_tokens, v.completion_tokens, "
    "v.cost_usd, v.latency_ms, v.attempts, v.judged_at"
)
_FROM = "FROM verdicts v JOIN judges j ON j.id = v.judge"


def now() -> str:
    """UTC time, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Cache:
    """The cache file, open. A `CacheStore`; use it as a context manager."""

    def __init__(self, database: Database) -> None:
        """Use `Cache.open`."""
        self._db = database

    @classmethod
    def open(cls, path: str | Path | None = None, *, read_only: bool = False) -> Self:
        """Open the cache, making it where there is none.

        Args:
            path: The file; None is $REPLY_RESOLUTION_CACHE or the user's data folder
                (`default_path`); ":memory:" lives as long as the object.
            read_only: Only look up; a file that isn't there is an error.

        Raises:
            CacheError: The file is damaged, of another schema version, not a cache,
                or cannot be written.
        """
        if str(path) == ":memory:":
            return cls(Database(None, read_only=False))
        file = Path(path).expanduser() if path else default_path()
        return cls(Database(file, read_only=read_only))

    @property
    def path(self) -> Path | None:
        """The file; None in memory."""
        return self._db.path

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        return self._db.read_only

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; more than once is fine."""
        self._db.close()

    # Versions and judges

    def register_rubric(self, rubric: Rubric) -> str:
        """Mint or find the metric version of a rubric.

        Numbers count per name, in the order met; number 1 of the shipped name belongs
        to the shipped rubric, so that `reply_resolution@v1` is the same everywhere.

        Returns:
            The label, such as `reply_resolution@v1:3f9c1a7b`.
        """
        if self.read_only:
            return self._version(rubric).label
        default = Rubric.default()
        with self._db.transaction() as run:
            for each in (default, rubric) if rubric.name == default.name else (rubric,):
                run(
                    "INSERT INTO rubrics (hash, name, number, created_at, document) "
                    "SELECT ?1, ?2, 1 + coalesce(max(number), 0), ?3, ?4 FROM rubrics "
                    "WHERE name = ?2 ON CONFLICT (hash) DO NOTHING",
                    (each.hash, each.name, now(), each.document()),
                )
            return self._version(rubric).label

    def _version(self, rubric: Rubric) -> RubricVersion:
        rows = self._db.read(
            "SELECT number FROM rubrics WHERE hash = ?", (rubric.hash,)
        )
        if not rows:
            raise CacheError(
                f"rubric {rubric.name!r} ({rubric.hash[:8]}) has no version in cache "
                f"{self._db.name}, which is open for reading only. Open it for writing "
                "once to mint one."
            )
        return RubricVersion(rubric.name, rows[0][0], rubric.hash)

    def rubric(self, version: str) -> Rubric:
        """The rubric of a metric version, by label or by the start of its hash.

        Raises:
            CacheError: The cache has no such version, or several.
        """
        start = version.rpartition(":")[2]
        rows = self._db.read(
            "SELECT document FROM rubrics WHERE substr(hash, 1, ?) = ?",
            (len(start), start),
        )
        if len(rows) != 1 or len(start) < 4:
            known = ", ".join(self.versions()["metric_version"]) or "none"
            raise CacheError(
                f"cache {self._db.name} has {'no' if not rows else 'no single'} metric "
                f"version {version!r}; it has {known}."
            )
        return Rubric.from_document(rows[0][0])

    def register_judge(
        self, identity: JudgeIdentity, rubric: Rubric | None = None
    ) -> None:
        """Remember a judge, and which metric version it serves."""
        with self._db.transaction() as run:
            run(
                "INSERT INTO judges (judge_id, model, endpoint, created_at, document) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT (judge_id) DO NOTHING",
                (
                    identity.judge_id,
                    identity.model,
                    identity.endpoint,
                    now(),
                    identity.document(),
                ),
            )
            if rubric is not None:
                self.register_rubric(rubric)
                run(
                    "INSERT OR IGNORE INTO judge_rubrics SELECT id, ? FROM judges "
                    "WHERE judge_id = ?",
                    (rubric.hash, identity.judge_id),
                )

    def judge(self, judge_id: str) -> JudgeIdentity | None:
        """A judge by its id; None if the cache never met it."""
        rows = self._db.read(
            "SELECT document FROM judges WHERE judge_id = ?", (judge_id,)
        )
        return JudgeIdentity.from_document(rows[0][0]) if rows else None

    def versions(self) -> pl.DataFrame:
        """Every metric version, and how much was judged with it.

        Returns:
            metric_version, name, number, hash, created_at, judges, verdicts (of all
            judges that served this version), cost_usd (null where unknown).
        """
        rows = self._db.read(
            "SELECT r.name || '@v' || r.number || ':' || substr(r.hash, 1, 8), r.name, "
            "r.number, r.hash, r.created_at, count(DISTINCT jr.judge), count(v.key), "
            "sum(v.cost_usd) FROM rubrics r LEFT JOIN judge_rubrics jr "
            "ON jr.rubric_hash = r.hash LEFT JOIN verdicts v ON v.judge = jr.judge "
            "GROUP BY r.hash ORDER BY r.name, r.number"
        )
        schema = {
            "metric_version": pl.String(),
            "name": pl.String(),
            "number": pl.Int64(),
            "hash": pl.String(),
            "created_at": pl.String(),
            "judges": pl.Int64(),
            "verdicts": pl.Int64(),
            "cost_usd": pl.Float64(),
        }
        return pl.DataFrame(rows, schema=schema, orient="row")

    # Verdicts

    def get_many(self, keys: Sequence[str]) -> dict[str, StoredVerdict]:
        """The verdicts there are, by key."""
        found = {}
        for row in self._select(_VERDICT, keys):
            found[row[0]] = StoredVerdict._make(row)
        return found

    def get_frame(self, keys: Sequence[str]) -> pl.DataFrame:
        """The verdicts there are as a frame: one row per known key, in no order.

        Returns:
            `key` and the columns of `FRAME_SCHEMA`; without messages and raw answers,
            which are never read from disk for it.
        """
        return pl.DataFrame(
            self._select(_FRAME, keys),
            schema={"key": pl.String(), **FRAME_SCHEMA},
            orient="row",
        )

    def _select(self, columns: str, keys: Sequence[str]) -> list[tuple[Any, ...]]:
        blobs = [bytes.fromhex(key) for key in dict.fromkeys(keys)]
        rows: list[tuple[Any, ...]] = []
        with self._db.locked() as connection:
            for start in range(0, len(blobs), _CHUNK):
                chunk = blobs[start : start + _CHUNK]
                marks = ",".join("?" * len(chunk))
                rows += connection.execute(
                    f"SELECT {columns} {_FROM} WHERE v.key IN ({marks})", chunk
                )
        return rows

    def put_many(self, verdicts: Sequence[StoredVerdict]) -> int:
        """Keep verdicts in one transaction, and end the claims on their keys.

        A key that has a verdict keeps it: the first paid answer stands.

        Returns:
            How many were new.

        Raises:
            CacheError: A verdict is not a paid final answer, its judge is unknown, or
                the file cannot be written.
        """
        for verdict in verdicts:
            _check_verdict(verdict)
        with self._db.transaction() as run:
            ids = self._judge_ids({v.judge_id for v in verdicts})
            new = 0
            for v in verdicts:
                key = bytes.fromhex(v.key)
                new += run(
                    "INSERT INTO verdicts VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) "
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
                        v.user_message,
                        v.raw,
                    ),
                ).rowcount
                run("DELETE FROM claims WHERE key = ?", (key,))
        return new

    def _judge_ids(self, wanted: set[str]) -> dict[str, int]:
        ids = {
            judge_id: row[0]
            for judge_id in wanted
            for row in self._db.read(
                "SELECT id FROM judges WHERE judge_id = ?", (judge_id,)
            )
        }
        if missing := sorted(wanted - set(ids)):
            raise CacheError(
                f"judge {missing[0][:8]} is not registered in cache {self._db.name}; "
                "call register_judge before keeping its verdicts, so that they can be "
                "traced."
            )
        return ids

    def add_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Keep the diary of calls, failed ones too."""
        with self._db.transaction() as run:
            for a in attempts:
                run(
                    "INSERT INTO attempts (key, run_id, outcome, detail, call_id, "
                    "started_at, latency_ms, prompt_tokens, cached_tokens, "
                    "completion_tokens, cost_usd) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                    (bytes.fromhex(a.key), *a[1:]),
                )

    # Single flight over processes

    def claim(
        self, keys: Collection[str], owner: str, lease_s: float = 900.0
    ) -> set[str]:
        """Take keys to judge; one key has one owner at a time.

        Left out are keys that have a verdict and keys another owner holds: ask for
        these again later. A claim ends by `put_many`, `release`, its lease, or the
        death of its owner on this machine (`kill -9` included).

        Args:
            keys: Verdict keys.
            owner: From `new_owner()`; claiming again renews the lease.
            lease_s: Seconds until anybody may take the key; more than a call with its
                retries can last.

        Returns:
            The keys now held by `owner`.
        """
        gone: dict[str, bool] = {}
        taken = set()
        with self._db.transaction() as run:
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

    def release(self, keys: Collection[str], owner: str) -> None:
        """Give claimed keys back, for others to judge."""
        with self._db.transaction() as run:
            for key in keys:
                run(
                    "DELETE FROM claims WHERE key = ? AND owner = ?",
                    (bytes.fromhex(key), owner),
                )

    # Where a verdict was used

    def note_requests(self, rows: Iterable[tuple[str, str | None, str]]) -> None:
        """Remember (request_id, arm, key), so that `trace` finds a request.

        Ids and arms are no part of a key and are never sent.
        """
        with self._db.locked() as connection, self._db.transaction():
            connection.executemany(
                "INSERT OR IGNORE INTO requests VALUES (?, coalesce(?, ''), ?)",
                ((rid, arm, bytes.fromhex(key)) for rid, arm, key in rows),
            )

    def trace(self, wanted: str, *, arm: str | None = None) -> list[Trace]:
        """What was sent and answered, for a verdict key or a request id.

        Args:
            wanted: A verdict key (64 hex digits, or at least its first 8) or a
                request id.
            arm: Of a request id, only this arm.

        Returns:
            One trace per verdict, by vote and time; with the exact request body.

        Raises:
            CacheError: The cache has nothing of that name.
        """
        rows = self._db.read(
            "SELECT DISTINCT key FROM requests WHERE request_id = ? "
            "AND (? IS NULL OR arm = ?)",
            (wanted, arm, arm),
        )
        if not rows and 8 <= len(wanted) <= 64:
            rows = self._db.read(
                "SELECT key FROM verdicts WHERE substr(lower(hex(key)), 1, ?) = ?",
                (len(wanted), wanted.lower()),
            )
        traces = [
            self._trace(v) for v in self.get_many([r[0].hex() for r in rows]).values()
        ]
        if not traces:
            raise CacheError(
                f"cache {self._db.name} has no verdict for {wanted!r}"
                + (f" in arm {arm!r}" if arm else "")
                + ". Give a request id that was judged with this cache, or a verdict "
                "key."
            )
        return sorted(traces, key=lambda t: (t.verdict.vote, t.verdict.judged_at))

    def _trace(self, verdict: StoredVerdict) -> Trace:
        key = bytes.fromhex(verdict.key)
        judge = self.judge(verdict.judge_id)
        assert judge is not None  # a foreign key
        body = judge.request(verdict.user_message)
        return Trace(
            verdict=verdict,
            key=verdict.key,
            request=json.dumps(body, ensure_ascii=False, separators=(",", ":")),
            system=body["messages"][0]["content"],
            user=verdict.user_message,
            judge=judge,
            metric_versions=tuple(
                row[0]
                for row in self._db.read(
                    "SELECT r.name || '@v' || r.number || ':' || substr(r.hash, 1, 8) "
                    "FROM judges j JOIN judge_rubrics jr ON jr.judge = j.id JOIN "
                    "rubrics r ON r.hash = jr.rubric_hash WHERE j.judge_id = ? "
                    "ORDER BY r.name, r.number",
                    (verdict.judge_id,),
                )
            ),
            seen_as=tuple(
                (rid, arm or None)
                for rid, arm in self._db.read(
                    "SELECT request_id, arm FROM requests WHERE key = ? "
                    "ORDER BY request_id, arm",
                    (key,),
                )
            ),
            attempts=tuple(
                Attempt(verdict.key, *row)
                for row in self._db.read(
                    "SELECT run_id, outcome, detail, call_id, started_at, latency_ms, "
                    "prompt_tokens, cached_tokens, completion_tokens, cost_usd "
                    "FROM attempts WHERE key = ? ORDER BY id",
                    (key,),
                )
            ),
        )

    # What was learnt

    def capability(self, endpoint: str, model: str) -> dict[str, Any] | None:
        """What was learnt about a server and model; None if nothing."""
        rows = self._db.read(
            "SELECT document FROM capabilities WHERE endpoint = ? AND model = ?",
            (endpoint, model),
        )
        return dict(json.loads(rows[0][0])) if rows else None

    def remember_capability(
        self, endpoint: str, model: str, document: Mapping[str, Any]
    ) -> None:
        """Remember what a server and model accept; replaces what was known."""
        with self._db.transaction() as run:
            run(
                "INSERT OR REPLACE INTO capabilities VALUES (?, ?, ?, ?)",
                (endpoint, model, now(), json.dumps(dict(document))),
            )

    def token_use(self, judge_id: str) -> TokenUse | None:
        """What this judge's verdicts have used so far; None without any."""
        n, prompt, size, completion = self._db.read(
            "SELECT count(*), avg(prompt_tokens), avg(length(CAST(user_message AS "
            f"BLOB))), avg(completion_tokens) {_FROM} WHERE j.judge_id = ? AND "
            "prompt_tokens IS NOT NULL AND completion_tokens IS NOT NULL",
            (judge_id,),
        )[0]
        judge = self.judge(judge_id)
        if not n or judge is None:
            return None
        size += len(judge.wording.encode()) + len(judge.schema_json.encode())
        return TokenUse(n, prompt / size, completion)

    def put_calibration(self, document: Mapping[str, Any]) -> None:
        """Keep a calibration of a judge; it names metric_version and judge_id."""
        try:
            metric = RubricVersion.parse(str(document["metric_version"]))
            judge_id = str(document["judge_id"])
        except KeyError as error:
            raise CacheError(
                f"a calibration without {error.args[0]} cannot be kept: nobody could "
                "tell which judge it is of."
            ) from error
        with self._db.transaction() as run:
            run(
                "INSERT OR REPLACE INTO calibrations (metric, judge_id, created_at, "
                "document) VALUES (?, ?, ?, ?)",
                (
                    f"{metric.name}:{metric.hash[:8]}",
                    judge_id,
                    now(),
                    json.dumps(dict(document), ensure_ascii=False, allow_nan=False),
                ),
            )

    def calibration(self, metric_version: str, judge_id: str) -> dict[str, Any] | None:
        """The newest calibration of a judge under a metric version; None if none."""
        metric = RubricVersion.parse(metric_version)
        rows = self._db.read(
            "SELECT document FROM calibrations WHERE metric = ? AND judge_id = ? "
            "ORDER BY id DESC LIMIT 1",
            (f"{metric.name}:{metric.hash[:8]}", judge_id),
        )
        return dict(json.loads(rows[0][0])) if rows else None

    # The ledger (see budget.py)

    def book(
        self, run_id: str, owner: str, bookings: Sequence[Booking], caps: Sequence[Cap]
    ) -> tuple[list[int], Refusal | None]:
        """Book calls in order until one does not fit; atomic over all processes."""
        return sqlite_ledger.book(self._db, run_id, owner, bookings, caps)

    def book_actuals(self, run_id: str, actuals: Sequence[Actual]) -> Totals:
        """Replace bookings by what the calls cost; returns the run's totals."""
        return sqlite_ledger.book_actuals(self._db, run_id, actuals)

    def book_lost(self) -> int:
        """Close the bookings of dead owners at full value; returns how many."""
        return sqlite_ledger.book_lost(self._db)

    def totals(self, scope: str, run_id: str) -> Totals:
        """The ledger's sums over a scope: run, day or month (UTC)."""
        return sqlite_ledger.totals(self._db, scope, run_id)

    # Export, import, checking

    def export_jsonl(self, path: str | Path) -> int:
        """Write everything but the ledger as JSON lines; returns how many verdicts."""
        return exchange.export_jsonl(self._db, Path(path))

    def import_jsonl(self, path: str | Path) -> exchange.ImportReport:
        """Take in an export; twice is as good as once. All of it, or nothing."""
        return exchange.import_jsonl(self, self._db, Path(path))

    def check(self) -> list[str]:
        """Read the whole file and recompute every key; what is wrong, [] if nothing."""
        return exchange.check(self._db)


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

"""The cache: one SQLite file of metric versions, verdicts, attempts and the ledger.

A verdict is a paid result, not a copy of one: nothing here expires or is evicted, and
whatever keeps the file from being read or written is a `CacheError`, never a second
payment in silence. Text and JSON only. Several processes may use one file at once.
The log beside it (`-wal`) belongs to it: copy both, or use `cache export`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import polars as pl

from reply_resolution.judge import (
    exchange,
    sqlite_ledger,
    sqlite_verdicts,
    sqlite_versions,
)
from reply_resolution.judge.identity import JudgeIdentity
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.sqlite import Database, default_path
from reply_resolution.judge.sqlite_versions import now as now  # re-exported
from reply_resolution.judge.store import (
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

    def transaction(self) -> AbstractContextManager[object]:
        """All writes in the block are one transaction: all of them, or none.

        Verdict, attempts and settlement of one batch belong in one: a process killed
        in between then leaves neither a verdict without its bill nor the reverse.
        """
        return self._db.transaction()

    # Versions and judges

    def register_rubric(self, rubric: Rubric) -> str:
        """Mint or find the metric version of a rubric.

        Numbers count per name, in the order met; number 1 of the shipped name belongs
        to the shipped rubric, so that `reply_resolution@v1` is the same everywhere.

        Returns:
            The label, such as `reply_resolution@v1:3f9c1a7b`.
        """
        return sqlite_versions.register_rubric(self._db, rubric)

    def rubric(self, version: str) -> Rubric:
        """The rubric of a metric version, by label or by the start of its hash.

        Raises:
            CacheError: The cache has no such version, or several.
        """
        return sqlite_versions.rubric(self._db, version)

    def register_judge(
        self, identity: JudgeIdentity, rubric: Rubric | None = None
    ) -> None:
        """Remember a judge, and which metric version it serves.

        Open for reading only, nothing is remembered, and nothing new can be kept.
        """
        sqlite_versions.register_judge(self._db, identity, rubric)

    def judge(self, judge_id: str) -> JudgeIdentity | None:
        """A judge by its id; None if the cache never met it."""
        return sqlite_versions.judge(self._db, judge_id)

    def versions(self) -> pl.DataFrame:
        """Every metric version, and how much was judged with it.

        Returns:
            metric_version, name, number, hash, created_at, judges, verdicts (of all
            judges that served this version), cost_usd (null where unknown).
        """
        return sqlite_versions.versions(self._db)

    # Verdicts

    def get_many(self, keys: Sequence[str]) -> dict[str, StoredVerdict]:
        """The verdicts there are, by key."""
        return sqlite_verdicts.get_many(self._db, keys)

    def get_frame(self, keys: Sequence[str]) -> pl.DataFrame:
        """The verdicts there are as a frame: one row per known key, in no order.

        Returns:
            `key` and the columns of `FRAME_SCHEMA`; without messages and raw answers,
            which are never read from disk for it.
        """
        return sqlite_verdicts.get_frame(self._db, keys)

    def put_many(self, verdicts: Sequence[StoredVerdict]) -> int:
        """Keep verdicts in one transaction, and end the claims on their keys.

        A key that has a verdict keeps it: the first paid answer stands.

        Returns:
            How many were new.

        Raises:
            CacheError: A verdict is not a paid final answer, its judge is unknown, or
                the file cannot be written.
        """
        return sqlite_verdicts.put_many(self._db, verdicts)

    def add_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Keep the diary of calls, failed ones too."""
        sqlite_verdicts.add_attempts(self._db, attempts)

    def note_requests(self, rows: Iterable[tuple[str, str | None, str]]) -> None:
        """Remember (request_id, arm, key), so that `trace` finds a request.

        Ids and arms are no part of a key and are never sent.
        """
        sqlite_verdicts.note_requests(self._db, rows)

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
        return sqlite_verdicts.trace(self._db, wanted, arm=arm)

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
        return sqlite_verdicts.claim(self._db, keys, owner, lease_s)

    def release(self, keys: Collection[str], owner: str) -> None:
        """Give claimed keys back, for others to judge."""
        sqlite_verdicts.release(self._db, keys, owner)

    # What was learnt

    def capability(self, endpoint: str, model: str) -> dict[str, Any] | None:
        """What was learnt about a server and model; None if nothing."""
        return sqlite_versions.capability(self._db, endpoint, model)

    def remember_capability(
        self, endpoint: str, model: str, document: Mapping[str, Any]
    ) -> None:
        """Remember what a server and model accept; replaces what was known."""
        sqlite_versions.remember_capability(self._db, endpoint, model, document)

    def token_use(self, judge_id: str) -> TokenUse | None:
        """What this judge's verdicts have used so far; None without any."""
        return sqlite_versions.token_use(self._db, judge_id)

    def put_calibration(self, document: Mapping[str, Any]) -> None:
        """Keep a calibration of a judge; it names metric_version and judge_id."""
        sqlite_versions.put_calibration(self._db, document)

    def calibration(self, metric_version: str, judge_id: str) -> dict[str, Any] | None:
        """The newest calibration of a judge under a metric version; None if none."""
        return sqlite_versions.calibration(self._db, metric_version, judge_id)

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

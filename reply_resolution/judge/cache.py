"""The cache: metric versions, verdicts, attempts and the ledger, in one SQLite file.

A verdict is a paid result, not a copy of one: nothing here expires or is evicted, and
whatever keeps the file from being read or written is a `CacheError`, never a second
payment in silence. Text and JSON only. Several processes may use one file at once.
The log beside it (`-wal`) belongs to it: copy both, or use `cache export`.

`Cache` asks in SQL that another database knows too; what reads, writes and locks is
below it (`sqlite.Database`, or `scale.postgres` for a team).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import json
import os
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.errors import CacheError
from reply_resolution.judge import exchange, sqlite_ledger
from reply_resolution.judge.backend import Backend, is_url
from reply_resolution.judge.identity import JudgeIdentity
from reply_resolution.judge.owner import STANDING
from reply_resolution.judge.rubric import Rubric, RubricVersion
from reply_resolution.judge.sqlite import Database, default_path
from reply_resolution.judge.store import (
    FRAME_SCHEMA,
    Attempt,
    StoredVerdict,
    TokenUse,
    check_verdict,
    utc_now,
)

_CHUNK = 900  # keys per IN (...): below SQLite's oldest limit of 999 parameters
_ANSWER = ", ".join(FRAME_SCHEMA)
_VERSIONS: dict[str, Any] = {
    "metric_version": pl.String(),
    "name": pl.String(),
    "number": pl.Int64(),
    "hash": pl.String(),
    "created_at": pl.String(),
    "judges": pl.Int64(),
    "verdicts": pl.Int64(),
    "cost_usd": pl.Float64(),
}


class Cache(Backend):
    """The cache, open; use it as a context manager."""

    # What leaves the cache, and comes back.
    verdict_rows = exchange.verdict_rows
    trace = exchange.trace
    export_jsonl = exchange.export_jsonl
    import_jsonl = exchange.import_jsonl

    @staticmethod
    def open(path: str | Path | None = None, *, read_only: bool = False) -> "Cache":
        """Open the cache, making it where there is none.

        Args:
            path: The file; None is $REPLY_RESOLUTION_CACHE or the user's data folder
                (`default_path`); ":memory:" lives as long as the object. A
                `postgresql://` URL is a cache that a team shares.
            read_only: Only look up; a cache that isn't there is an error.

        Raises:
            CacheError: The cache is damaged, of another schema version, not a cache,
                cannot be reached, or cannot be written.
        """
        if str(path) == ":memory:":
            return SqliteCache(None, read_only=False)
        place = path or os.environ.get("REPLY_RESOLUTION_CACHE") or default_path()
        if is_url(place):
            from reply_resolution.scale.postgres import PostgresCache

            return PostgresCache(str(place), read_only=read_only)
        return SqliteCache(Path(place).expanduser(), read_only=read_only)

    # Versions and judges

    def register_rubric(self, rubric: Rubric) -> str:
        """Mint or find a metric version; returns its label, `name@v1:3f9c1a7b`.

        Numbers count per name, in the order met; number 1 of the shipped name belongs
        to the shipped rubric, so that `reply_resolution@v1` is the same everywhere.
        """
        default = Rubric.default()
        if not self.read_only:
            with self.numbering() as run:
                first = (default,) if rubric.name == default.name else ()
                for each in (*first, rubric):
                    values = (
                        each.hash,
                        each.name,
                        utc_now(),
                        each.document(),
                        each.name,
                    )
                    run(
                        "INSERT INTO rubrics (hash, name, number, created_at, "
                        "document) SELECT ?, ?, 1 + coalesce(max(number), 0), ?, ? "
                        "FROM rubrics WHERE name = ? ON CONFLICT (hash) DO NOTHING",
                        values,
                    )
        rows = self.read("SELECT number FROM rubrics WHERE hash = ?", (rubric.hash,))
        if not rows:
            raise CacheError(
                f"rubric {rubric.name!r} ({rubric.hash[:8]}) has no version in cache "
                f"{self.name}, which is open for reading only. Open it for writing "
                "once to mint one."
            )
        return RubricVersion(rubric.name, rows[0][0], rubric.hash).label

    def rubric(self, version: str) -> Rubric:
        """The rubric of a metric version.

        Args:
            version: Its label, its number ("2", "v2", "name@v2"), or at least four
                characters of its hash.

        Raises:
            CacheError: The cache has no such version, or several.
        """
        known = self.versions()
        start = version.rpartition(":")[2]
        found = [
            hash_
            for name, number, hash_ in known.select("name", "number", "hash").rows()
            if version in (f"{number}", f"v{number}", f"{name}@v{number}")
            or (len(start) >= 4 and hash_.startswith(start))
        ]
        if len(found) != 1:
            raise CacheError(
                f"cache {self.name} has {'no single' if found else 'no'} metric "
                f"version {version!r}; it has "
                f"{', '.join(known['metric_version']) or 'none'}."
            )
        rows = self.read("SELECT document FROM rubrics WHERE hash = ?", (found[0],))
        return Rubric.from_document(rows[0][0])

    def register_judge(
        self, identity: JudgeIdentity, rubric: Rubric | None = None
    ) -> None:
        """Remember a judge, and which metric version it serves.

        Open for reading only, nothing is remembered, and nothing new can be kept.
        """
        if self.read_only:
            return
        judge_id, document = identity.judge_id, identity.document()
        with self.transaction() as run:
            run(
                "INSERT INTO judges (judge_id, model, endpoint, created_at, document) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT (judge_id) DO NOTHING",
                (judge_id, identity.model, identity.endpoint, utc_now(), document),
            )
            if rubric is not None:
                self.register_rubric(rubric)
                run(
                    "INSERT INTO judge_rubrics SELECT id, ? FROM judges "
                    "WHERE judge_id = ? ON CONFLICT DO NOTHING",
                    (rubric.hash, judge_id),
                )

    def judge(self, judge_id: str) -> JudgeIdentity | None:
        """A judge by its id; None if the cache never met it."""
        rows = self.read("SELECT document FROM judges WHERE judge_id = ?", (judge_id,))
        return JudgeIdentity.from_document(rows[0][0]) if rows else None

    def in_batch(self, keys: Sequence[str]) -> set[str]:
        """Of these keys, those that a batch at a provider will answer."""
        return {
            key.hex()
            for where, chunk in _chunks(keys)
            for (key,) in self.read(
                f"SELECT v.key FROM claims v {where} AND v.owner LIKE '{STANDING}%'",
                chunk,
            )
        }

    def judges(self) -> dict[str, str]:
        """Every judge id, and the hash of the newest rubric it served."""
        return dict(
            self.read(
                "SELECT j.judge_id, r.hash FROM judge_rubrics jr JOIN judges j ON "
                "j.id = jr.judge JOIN rubrics r ON r.hash = jr.rubric_hash "
                "ORDER BY r.created_at, r.number"
            )
        )

    def versions(self) -> pl.DataFrame:
        """Every metric version, and how much was judged with it.

        Returns:
            metric_version, name, number, hash, created_at, judges, verdicts (of all
            judges that served this version), cost_usd (null where unknown).
        """
        rows = self.read(
            f"SELECT {exchange.LABEL}, r.name, r.number, r.hash, r.created_at, "
            "count(DISTINCT jr.judge), CAST(coalesce(sum(v.n), 0) AS BIGINT), "
            "sum(v.usd) "
            "FROM rubrics r LEFT JOIN judge_rubrics jr ON jr.rubric_hash = r.hash "
            "LEFT JOIN (SELECT judge, count(*) AS n, sum(cost_usd) AS usd "
            "FROM verdicts GROUP BY judge) v ON v.judge = jr.judge "
            "GROUP BY r.hash ORDER BY r.name, r.number"
        )
        return pl.DataFrame(rows, schema=_VERSIONS, orient="row")

    # Verdicts

    def get_many(self, keys: Sequence[str]) -> dict[str, StoredVerdict]:
        """The verdicts there are, by key."""
        return {
            verdict.key: verdict
            for where, chunk in _chunks(keys)
            for verdict in self.verdict_rows(where, chunk)
        }

    def get_frame(self, keys: Sequence[str]) -> pl.DataFrame:
        """The verdicts there are: `key` and `FRAME_SCHEMA`, a row per key, unordered.

        Messages and raw answers are not read from disk for it.
        """
        rows: list[tuple[Any, ...]] = []
        query = f"SELECT key, {_ANSWER} FROM verdicts"
        size = self.read("SELECT count(*) FROM verdicts")[0][0]
        # Reading in order is three times as fast as looking up: where a good part of
        # the file is wanted, read it all and drop the rest.
        everything = len(keys) > _CHUNK and size < 4 * len(keys)
        if everything:
            rows = self.read(query)
        else:
            for where, chunk in _chunks(keys):
                rows += self.read(f"{query} v {where}", chunk)
        schema = {"key": pl.String(), **FRAME_SCHEMA}
        if not rows:
            return pl.DataFrame(schema=schema)
        columns = dict(zip(schema, zip(*rows, strict=True), strict=True))
        columns["key"] = tuple(map(bytes.hex, columns["key"]))
        frame = pl.DataFrame(columns, schema=schema)
        if everything:
            wanted = pl.DataFrame({"key": pl.Series(keys, dtype=pl.String)})
            frame = frame.join(wanted, on="key", how="semi")
        return frame

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
            check_verdict(verdict)
        marks = ", ".join("?" * (3 + len(FRAME_SCHEMA)))
        keys = [bytes.fromhex(v.key) for v in verdicts]
        with self.transaction():
            judges = {v.judge_id: self._judge_row(v.judge_id) for v in verdicts}
            new = self.write(
                f"INSERT INTO verdicts (key, judge, vote, {_ANSWER}) VALUES ({marks}) "
                "ON CONFLICT (key) DO NOTHING",
                [
                    (key, judges[v.judge_id], *v[3:-1])
                    for key, v in zip(keys, verdicts, strict=True)
                ],
            )
            # A verdict that was there has its answer, written in one transaction.
            self.write(
                "INSERT INTO answers SELECT id, ?, ? FROM verdicts WHERE key = ? "
                "ON CONFLICT (id) DO NOTHING",
                [
                    (v.user_message, v.raw, key)
                    for key, v in zip(keys, verdicts, strict=True)
                ],
            )
            self.write("DELETE FROM claims WHERE key = ?", [(key,) for key in keys])
        return new

    def _judge_row(self, judge_id: str) -> int:
        rows = self.read("SELECT id FROM judges WHERE judge_id = ?", (judge_id,))
        if not rows:
            raise CacheError(
                f"judge {judge_id[:8]} is not registered in cache {self.name}; call "
                "register_judge before keeping its verdicts, so that they can be "
                "traced."
            )
        return int(rows[0][0])

    def add_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Keep the diary of calls, failed ones too."""
        marks = ", ".join("?" * len(Attempt._fields))
        self.write(
            f"INSERT INTO attempts ({', '.join(Attempt._fields)}) VALUES ({marks})",
            [(bytes.fromhex(a.key), *a[1:]) for a in attempts],
        )

    def note_requests(self, rows: Iterable[tuple[str, str | None, str]]) -> None:
        """Remember (request_id, arm, key), so that `trace` finds a request.

        Ids and arms are no part of a key and are never sent.
        """
        self.write(
            "INSERT INTO requests VALUES (?, coalesce(?, ''), ?) "
            "ON CONFLICT DO NOTHING",
            ((rid, arm, bytes.fromhex(key)) for rid, arm, key in rows),
        )

    # What was learnt

    def capability(self, endpoint: str, model: str) -> dict[str, Any] | None:
        """What was learnt about a server and model; None if nothing."""
        rows = self.read(
            "SELECT document FROM capabilities WHERE endpoint = ? AND model = ?",
            (endpoint, model),
        )
        return dict(json.loads(rows[0][0])) if rows else None

    def remember_capability(
        self, endpoint: str, model: str, document: Mapping[str, Any]
    ) -> None:
        """Remember what a server and model accept; replaces what was known."""
        with self.transaction() as run:
            run(
                "INSERT INTO capabilities VALUES (?, ?, ?, ?) ON CONFLICT "
                "(endpoint, model) DO UPDATE SET updated_at = excluded.updated_at, "
                "document = excluded.document",
                (endpoint, model, utc_now(), json.dumps(dict(document))),
            )

    def token_use(self, judge_id: str) -> TokenUse | None:
        """What this judge's verdicts have used so far; None without any."""
        n, prompt, size, completion = self.read(
            "SELECT count(*), avg(v.prompt_tokens), "
            f"avg({self.BYTES.format('a.user_message')}), avg(v.completion_tokens) "
            "FROM judges j JOIN verdicts v ON v.judge = j.id "
            "JOIN answers a ON a.id = v.id WHERE j.judge_id = ? AND "
            "v.prompt_tokens IS NOT NULL AND v.completion_tokens IS NOT NULL",
            (judge_id,),
        )[0]
        identity = self.judge(judge_id)
        if not n or identity is None:
            return None
        sent = len(identity.wording.encode()) + len(identity.schema_json.encode())
        return TokenUse(float(prompt) / (float(size) + sent), float(completion))

    def put_calibration(self, document: Mapping[str, Any]) -> None:
        """Keep a calibration of a judge; it names metric_version and judge_id."""
        try:
            metric = _metric(str(document["metric_version"]))
            judge_id = str(document["judge_id"])
        except KeyError as error:
            raise CacheError(
                f"a calibration without {error.args[0]} cannot be kept: nobody could "
                "tell which judge it is of."
            ) from error
        text = json.dumps(dict(document), ensure_ascii=False, allow_nan=False)
        with self.transaction() as run:  # the newest comes last
            known = (metric, judge_id, text)
            run(
                "DELETE FROM calibrations WHERE metric = ? AND judge_id = ? "
                "AND document = ?",
                known,
            )
            run(
                "INSERT INTO calibrations (metric, judge_id, document, created_at) "
                "VALUES (?, ?, ?, ?)",
                (*known, utc_now()),
            )

    def calibration(self, metric_version: str, judge_id: str) -> dict[str, Any] | None:
        """The newest calibration of a judge under a metric version; None if none."""
        rows = self.read(
            "SELECT document FROM calibrations WHERE metric = ? AND judge_id = ? "
            "ORDER BY id DESC LIMIT 1",
            (_metric(metric_version), judge_id),
        )
        return dict(json.loads(rows[0][0])) if rows else None


class SqliteCache(Database, Cache):
    """The cache in one SQLite file."""

    claim = sqlite_ledger.claim
    release = sqlite_ledger.release
    book = sqlite_ledger.book
    book_actuals = sqlite_ledger.book_actuals
    book_lost = sqlite_ledger.book_lost
    totals = sqlite_ledger.totals
    numbering = Database.transaction  # one transaction at a time writes a file


def _metric(label: str) -> str:
    """A metric version without its number, which is another in another cache."""
    version = RubricVersion.parse(label)
    return f"{version.name}:{version.hash[:8]}"


def _chunks(keys: Sequence[str]) -> Iterator[tuple[str, list[bytes]]]:
    """Keys a handful at a time, each with its WHERE."""
    unique = list(dict.fromkeys(keys))
    for start in range(0, len(unique), _CHUNK):
        chunk = [bytes.fromhex(key) for key in unique[start : start + _CHUNK]]
        yield f"WHERE v.key IN ({','.join('?' * len(chunk))})", chunk

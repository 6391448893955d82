"""The SQLite file itself: opening, schema, transactions, and errors in plain words."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
import os
from pathlib import Path
import re
import sqlite3
import sys
import threading
from typing import Any
import warnings

from reply_resolution.errors import CacheError

APPLICATION_ID = 0x52525631  # "RRV1"
SCHEMA_VERSION = 1

# Messages and raw answers have a table of their own: a warm rerun reads verdicts only,
# a tenth of the file, and in order.
_SCHEMA = """
CREATE TABLE rubrics (
  hash TEXT PRIMARY KEY, name TEXT NOT NULL, number INTEGER NOT NULL,
  created_at TEXT NOT NULL, document TEXT NOT NULL, UNIQUE (name, number));
CREATE TABLE judges (
  id INTEGER PRIMARY KEY, judge_id TEXT NOT NULL UNIQUE, model TEXT NOT NULL,
  endpoint TEXT NOT NULL, created_at TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE judge_rubrics (
  judge INTEGER NOT NULL REFERENCES judges, rubric_hash TEXT NOT NULL
    REFERENCES rubrics, PRIMARY KEY (judge, rubric_hash)) WITHOUT ROWID;
CREATE TABLE verdicts (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE,
  judge INTEGER NOT NULL REFERENCES judges, vote INTEGER NOT NULL, score INTEGER,
  status TEXT NOT NULL, status_detail TEXT NOT NULL, model_returned TEXT,
  prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER,
  cost_usd REAL, latency_ms REAL, attempts INTEGER NOT NULL, judged_at TEXT NOT NULL,
  reason TEXT);
CREATE TABLE answers (
  id INTEGER PRIMARY KEY REFERENCES verdicts, user_message TEXT NOT NULL, raw TEXT);
CREATE TABLE attempts (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL, run_id TEXT NOT NULL,
  outcome TEXT NOT NULL, detail TEXT NOT NULL, call_id INTEGER,
  started_at TEXT NOT NULL, latency_ms REAL, prompt_tokens INTEGER,
  cached_tokens INTEGER, completion_tokens INTEGER, cost_usd REAL);
CREATE TABLE requests (
  request_id TEXT NOT NULL, arm TEXT NOT NULL, key BLOB NOT NULL,
  PRIMARY KEY (request_id, arm, key)) WITHOUT ROWID;
CREATE TABLE claims (
  key BLOB PRIMARY KEY, owner TEXT NOT NULL, expires_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE capabilities (
  endpoint TEXT NOT NULL, model TEXT NOT NULL, updated_at TEXT NOT NULL,
  document TEXT NOT NULL, PRIMARY KEY (endpoint, model)) WITHOUT ROWID;
CREATE TABLE calibrations (
  id INTEGER PRIMARY KEY, metric TEXT NOT NULL, judge_id TEXT NOT NULL,
  created_at TEXT NOT NULL, document TEXT NOT NULL,
  UNIQUE (metric, judge_id, document));
CREATE TABLE calls (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, day TEXT NOT NULL,
  owner TEXT NOT NULL, booked_at REAL NOT NULL, state TEXT NOT NULL,
  tokens INTEGER NOT NULL, micro_usd INTEGER NOT NULL, actual_tokens INTEGER,
  actual_micro_usd INTEGER);
CREATE INDEX calls_open ON calls (owner) WHERE state = 'open';
CREATE TABLE spend (
  run_id TEXT NOT NULL, day TEXT NOT NULL, calls INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0, micro_usd INTEGER NOT NULL DEFAULT 0,
  open_calls INTEGER NOT NULL DEFAULT 0, open_tokens INTEGER NOT NULL DEFAULT 0,
  open_micro_usd INTEGER NOT NULL DEFAULT 0, over_tokens INTEGER NOT NULL DEFAULT 0,
  over_micro_usd INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (run_id, day)) WITHOUT ROWID;
CREATE INDEX spend_of_day ON spend (day);
"""
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "fuse", "davfs", "gpfs", "lustre")
_TIMEOUT_S = 60.0


def default_path() -> Path:
    """Where the cache is when nobody says: $REPLY_RESOLUTION_CACHE, or the data folder.

    The user's *data* folder, not the cache folder of the system: verdicts are paid
    results, and cache folders are emptied to win space.
    """
    if named := os.environ.get("REPLY_RESOLUTION_CACHE"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return base / "reply_resolution" / "cache.sqlite"


class Database:
    """One connection, one lock; every error leaves as a `CacheError`.

    Attributes:
        path: The file; None in memory.
        read_only: Whether it was opened for reading only.
    """

    def __init__(self, path: Path | None, *, read_only: bool) -> None:
        """Open the file (None: in memory), make or check the schema."""
        self.path = path
        self.read_only = read_only
        self._connection: sqlite3.Connection | None = None
        self._open()

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return str(self.path) if self.path is not None else "the cache in memory"

    def _open(self) -> None:
        path = self.path
        self._lock = threading.RLock()
        self._busy = False
        if path is not None:
            if path.is_dir():
                raise CacheError(
                    f"cache {path} is a folder. Give a file in it, such as "
                    f"{path / 'cache.sqlite'}."
                )
            if self.read_only and not path.exists():
                raise CacheError(
                    f"there is no cache at {path} to read. Check the path, or open "
                    "it for writing to start one."
                )
            if not self.read_only:
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise CacheError(
                        f"the folder of cache {path} cannot be made: "
                        f"{error.strerror}. Name another place with --cache or "
                        "$REPLY_RESOLUTION_CACHE."
                    ) from error
        with self._translated():
            self._connection = self._connect()
            self._pid = os.getpid()
            self._prepare()

    def _connect(self) -> sqlite3.Connection:
        target = "file::memory:"
        if self.path is not None:
            mode = "ro" if self.read_only else "rwc"
            target = f"{self.path.absolute().as_uri()}?mode={mode}"
        connect = partial(
            sqlite3.connect,
            timeout=_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        connection = connect(target)
        if self.read_only and self.path is not None:
            try:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.OperationalError:
                # On a read-only disk the shared memory of WAL cannot be made; with
                # no log left to read, the file is complete by itself.
                wal = self.path.with_name(self.path.name + "-wal")
                if wal.exists() and wal.stat().st_size:
                    raise
                connection.close()
                connection = connect(target + "&immutable=1")
        return connection

    def _prepare(self) -> None:
        connection = self._here()
        connection.execute("PRAGMA foreign_keys = ON")
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables or self.read_only:  # looked at before anything is changed
            self._recognise(connection)
        if self.read_only:
            return
        if self.path is not None:
            self._journal(connection)
        # Written to even if there is nothing to make: a disk that cannot be written
        # shows now, before anything is paid.
        with self.transaction() as run:
            if not run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in _SCHEMA.split(";\n"):
                    if statement.strip():
                        run(statement)
                run(f"PRAGMA application_id = {APPLICATION_ID}")
                run(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _recognise(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is not ours, or of another version."""
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        if owner != APPLICATION_ID:
            raise CacheError(
                f"{self.name} is a database, but not a cache of reply_resolution. "
                "Nothing was changed; give another path."
            )
        if found != SCHEMA_VERSION:
            newer = "newer" if found > SCHEMA_VERSION else "older"
            raise CacheError(
                f"cache {self.name} has schema version {found}; this version of the "
                f"package reads {SCHEMA_VERSION}. It was written by a {newer} version: "
                "use that one, or `cache export` there and `cache import` here."
            )

    def _journal(self, connection: sqlite3.Connection) -> None:
        """WAL, unless the file lies where WAL is not safe."""
        kind = _filesystem(self.path) if self.path is not None else ""
        mode = ""
        if not kind.startswith(_NETWORK):
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if "lock" not in str(error) and "I/O" not in str(error):
                    raise
        if mode == "wal":
            # NORMAL survives kill -9 at any moment; only a power cut may take the
            # last commits, and then whole commits.
            connection.execute("PRAGMA synchronous = NORMAL")
            return
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = FULL")
        warnings.warn(
            f"cache {self.name} lies on a file system ({kind or 'unknown'}) without "
            "write-ahead logging: it works, but slower, and only one machine should "
            "use it at a time. A local disk is better.",
            UserWarning,
            stacklevel=6,
        )

    def _here(self) -> sqlite3.Connection:
        """The connection of this process: it must not cross a fork."""
        if self._connection is None:
            raise CacheError(f"cache {self.name} is closed. Open it again.")
        if self._pid != os.getpid():
            if self.path is None:
                raise CacheError(
                    "a cache in memory cannot be shared with another process. Give "
                    "it a file."
                )
            # The parent's connection is left alone: closing it here would drop the
            # parent's locks.
            _ABANDONED.append(self._connection)
            self._open()
        return self._connection

    @contextmanager
    def locked(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread."""
        connection = self._here()
        with self._lock, self._translated():
            yield connection

    def read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.locked() as connection:
            return connection.execute(sql, values).fetchall()

    def stream(
        self, sql: str, values: Sequence[object] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a query one by one: the file may be larger than memory."""
        with self.locked() as connection:
            yield from connection.execute(sql, values)

    def write(self, sql: str, rows: Iterable[Sequence[object]]) -> int:
        """Run a statement for every row, in one transaction; the rows changed."""
        with self.transaction(), self.locked() as connection:
            return connection.executemany(sql, rows).rowcount

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """All writes in the block are one transaction, or none; gives `execute`.

        Verdict, attempts and settlement of one batch belong in one: a process killed
        in between then leaves neither a verdict without its bill nor the reverse.
        """
        if self.read_only:
            raise CacheError(
                f"cache {self.name} is open for reading only; nothing was written."
            )
        with self.locked() as connection:
            if self._busy:  # already in one: join it
                yield connection.execute
                return
            connection.execute("BEGIN IMMEDIATE")
            self._busy = True
            try:
                yield connection.execute
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._busy = False

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CacheError(_explain(error, self.name)) from error

    def close(self) -> None:
        """Close the file, its log folded into it; more than once is fine."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                with self._translated():
                    self._connection.close()
            self._connection = None


#: Connections of a parent process, kept from being closed in a child.
_ABANDONED: list[sqlite3.Connection] = []


# What SQLite's message holds -> what to do.
_ADVICE = {
    "readonly|read-only": "The file or its folder cannot be written. Open it read-only "
    "to replay, or give a place that can be written; nothing is judged without one, "
    "because it would be paid for again.",
    "not a database|malformed|corrupt": "The file is damaged or not a cache. Nothing "
    "was judged, because lost verdicts would be paid for again: restore a copy, or "
    "`cache export` what can still be read and import it into a new file.",
    "full": "The disk is full. Make room and run again: what was committed is kept.",
    "locked|busy": f"Another process held it for {_TIMEOUT_S:.0f} s. Wait for that run "
    "to end, then run again: what was committed is kept.",
    "unable to open": "Check that its folder exists and can be written, or name "
    "another place with --cache or $REPLY_RESOLUTION_CACHE.",
    "": "What was committed is kept; run again once the cause is repaired.",
}


def _explain(error: sqlite3.Error, name: str) -> str:
    text = str(error)
    advice = next(do for words, do in _ADVICE.items() if re.search(words, text))
    return f"cache {name}: {text}. {advice}"


def _filesystem(path: Path) -> str:
    """Type of the file system a path is on, by the longest mount point (Linux)."""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    target = str(path.absolute().parent)
    best, kind = "", ""
    for line in lines:
        _, mount, found, *_ = line.split(" ")
        mount = mount.replace("\\040", " ")
        inside = mount == "/" or target == mount or target.startswith(mount + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind

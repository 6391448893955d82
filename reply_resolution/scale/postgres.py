"""A cache and a ledger that a team shares, in PostgreSQL (extra `postgres`).

The same `Cache` as the file, on another database. Verdicts, claims and bookings of
every host meet in one schema; what a process held is free as soon as its connection
is gone, because the server itself knows who is connected.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
import os
import re
import threading
from typing import Any
from urllib.parse import unquote

from reply_resolution.errors import CacheError
from reply_resolution.judge.cache import Cache
from reply_resolution.scale import postgres_ledger
from reply_resolution.scale.postgres_schema import MIGRATIONS

#: The schema of the database, unless the URL names another (`?schema=NAME`).
SCHEMA = "reply_resolution"
INSTALL = "pip install 'reply-resolution[postgres]'"
_CONNECT_S = 10
_LOCK_S = 60
# A host that vanished is given up by both sides after about a minute.
_DEFAULTS = {
    "connect_timeout": str(_CONNECT_S),
    "application_name": "reply_resolution",
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_SESSION = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "lock_timeout": f"{_LOCK_S}s",
    "idle_in_transaction_session_timeout": f"{_LOCK_S}s",
}


class PostgresCache(Cache):
    """The cache in a PostgreSQL database, open: one connection, one lock.

    Attributes:
        read_only: Whether it was opened for reading only.
        owners: Who held or booked something through this connection: each has a
            session lock, by which others see that it lives.
    """

    BYTES = "octet_length({})"

    claim = postgres_ledger.claim
    release = postgres_ledger.release
    book = postgres_ledger.book
    book_actuals = postgres_ledger.book_actuals
    book_lost = postgres_ledger.book_lost
    totals = postgres_ledger.totals

    def __init__(self, url: str, *, read_only: bool) -> None:
        """Connect; make, migrate or check the schema.

        Args:
            url: `postgresql://user@host:port/database`, with `?schema=NAME` to name
                the schema and any parameter of libpq. The password is better left to
                PGPASSWORD or ~/.pgpass.
            read_only: Only look up.
        """
        self.read_only = read_only
        self._psycopg = _driver()
        self._settings, self._schema = _parse(url, self._psycopg)
        self._lock = threading.RLock()
        self._closed = False
        self._open()

    @property
    def name(self) -> str:
        """The database as messages name it."""
        part = self._settings.get
        user = f"{part('user')}@" if part("user") else ""
        port = f":{part('port')}" if part("port") else ""
        schema = f"?schema={self._schema}" if self._schema != SCHEMA else ""
        where = f"{user}{part('host', '')}{port}/{part('dbname', '')}"
        return f"postgresql://{where}{schema}"

    def __repr__(self) -> str:
        return f"PostgresCache({self.name!r}, read_only={self.read_only})"

    # Opening

    def _open(self) -> None:
        self._pid = os.getpid()
        self._busy = False
        self.owners: set[str] = set()
        with self._translated():
            self._connection: Any = self._psycopg.connect(
                **{**_DEFAULTS, **self._settings},
                autocommit=True,
                client_encoding="utf8",
            )
            self._connection.adapters.register_dumper(str, _text_dumper())
            session = {
                **_SESSION,
                "search_path": self._schema,
                "default_transaction_read_only": "on" if self.read_only else "off",
            }
            for setting in session.items():
                self._connection.execute("SELECT set_config(%s, %s, false)", setting)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        """Make, migrate or check the schema."""
        ((encoding,),) = self.read("SHOW server_encoding")
        if encoding != "UTF8":
            raise CacheError(
                f"cache {self.name}: the database's encoding is {encoding}, and not "
                "every text fits. Make one with ENCODING 'UTF8'."
            )
        found = self._version()
        if found == len(MIGRATIONS):
            return
        if found > len(MIGRATIONS):
            raise CacheError(
                f"cache {self.name} has schema version {found}; this version of the "
                f"package reads {len(MIGRATIONS)}. It was written by a newer version: "
                "use that one, or `cache export` there and `cache import` here."
            )
        if self.read_only:
            raise CacheError(
                f"there is no cache at {self.name} to read"
                + (f" (its schema version is {found}, an older one)" if found else "")
                + ". Check the address, or open it for writing once, which makes it."
            )
        with self.transaction() as run:
            # Several may arrive at once: one makes it, the others find it made.
            run("SELECT pg_advisory_xact_lock(hashtextextended(?, 1))", [self._schema])
            found = self._version()
            if found == 0:
                self._refuse_others()
                known = "SELECT 1 FROM pg_namespace WHERE nspname = ?"
                if not run(known, [self._schema]).fetchone():
                    run(f'CREATE SCHEMA "{self._schema}"')
                run("CREATE TABLE schema_version (version BIGINT NOT NULL)")
                run("INSERT INTO schema_version VALUES (0)")
            for migration in MIGRATIONS[found:]:
                for statement in migration.split(";\n"):
                    if statement.strip():
                        run(statement)
            run("UPDATE schema_version SET version = ?", [len(MIGRATIONS)])

    def _version(self) -> int:
        """The schema's version; 0 where there is none yet."""
        # Read from the catalogue as any table: `to_regclass` remembers what was absent.
        if not self.read(
            "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = ?",
            [self._schema, "schema_version"],
        ):
            return 0
        ((version,),) = self.read("SELECT version FROM schema_version")
        return int(version)

    def _refuse_others(self) -> None:
        """Leave a schema alone that has tables of somebody else."""
        if self.read(
            "SELECT tablename FROM pg_tables WHERE schemaname = ?", [self._schema]
        ):
            raise CacheError(
                f"{self.name}: schema {self._schema!r} has tables, but is not a cache "
                "of reply_resolution. Nothing was changed; name another with "
                "?schema=NAME."
            )

    # What `Cache` asks of its database

    @contextmanager
    def locked(self) -> Iterator[Any]:
        """The connection, for one thread; made anew after a fork or a break."""
        with self._lock:
            if self._closed:
                raise CacheError(f"cache {self.name} is closed. Open it again.")
            if self._pid != os.getpid():
                _ABANDONED.append(self._connection)  # it is the parent's
                self._lock = threading.RLock()
                self._open()
            elif self._connection.closed and not self._busy:
                self._open()
            with self._translated():
                yield self._connection

    def read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.locked() as connection:
            rows: list[tuple[Any, ...]] = connection.execute(
                _marked(sql), values
            ).fetchall()
            return rows

    def stream(
        self, sql: str, values: Sequence[object] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a query one by one: the cache may be larger than memory."""
        with (
            self.locked() as connection,
            connection.transaction(),
            connection.cursor(name="rows") as cursor,
        ):
            cursor.itersize = 2000
            cursor.execute(_marked(sql), values)
            yield from cursor

    def write(self, sql: str, rows: Iterable[Sequence[object]]) -> int:
        """Run a statement for every row, in one transaction; the rows changed."""
        with self.transaction(), self.locked() as connection:
            cursor = connection.cursor()
            cursor.executemany(_marked(sql), rows)
            return max(0, int(cursor.rowcount))

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """All writes in the block are one transaction, or none; gives `execute`."""
        if self.read_only:
            raise CacheError(
                f"cache {self.name} is open for reading only; nothing was written."
            )
        with self.locked() as connection:

            def run(sql: str, values: Sequence[object] = ()) -> Any:  # noqa: ANN401
                return connection.execute(_marked(sql), values)

            if self._busy:  # already in one: join it
                yield run
                return
            self._busy = True
            try:
                with connection.transaction():
                    yield run
            finally:
                self._busy = False

    @contextmanager
    def numbering(self) -> Iterator[Any]:
        """A transaction in which nobody else mints a number or books a call."""
        with self.transaction() as run:
            run("SELECT pg_advisory_xact_lock(hashtextextended(?, 2))", [self._schema])
            yield run

    def close(self) -> None:
        """Close the connection; more than once is fine."""
        with self._lock:
            if not self._closed and self._pid == os.getpid():
                self._connection.close()
            self._closed = True

    # Errors

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            text = str(error).strip()
            advice = next(do for words, do in _ADVICE.items() if re.search(words, text))
            secret = self._settings.get("password")
            if secret:
                text = text.replace(secret, "[password]")
            # Without its cause: the driver's error may hold what it was given.
            raise CacheError(f"cache {self.name}: {text}. {advice}") from None


#: Connections of a parent process, kept from being closed in a child.
_ABANDONED: list[Any] = []

# What the server's or driver's message holds -> what to do.
_ADVICE = {
    "password|authentication|pg_hba": "Check the user, and the password in "
    "PGPASSWORD or ~/.pgpass (or in the URL, special characters percent-encoded).",
    "permission denied|must be owner": "This role lacks a right; the page on the "
    "shared cache (reply_resolution/scale/README.md) has the grants.",
    "read-only|recovery": "This server cannot be written to (a replica?). Name the "
    "primary; nothing is judged without one, because it would be paid for again.",
    "database .* does not exist|role .* does not exist": "Make it first (`createdb`, "
    "`createuser`), or correct the URL; the schema and its tables are made here.",
    "connection option": "Correct the URL: postgresql://user@host:5432/database.",
    "lock timeout|deadlock": f"Another process held it for {_LOCK_S} s. Wait for that "
    "run to end, then run again: what was committed is kept.",
    "refused|timeout|timed out|could not|resolve|No such file|unreachable": "The "
    "server cannot be reached: check host and port, and that it runs (`pg_isready`). "
    "What was committed is kept; run again.",
    "space|disk": "The server's disk is full. Make room and run again: what was "
    "committed is kept.",
    "": "What was committed is kept; run again once the cause is repaired.",
}


def _driver() -> Any:  # noqa: ANN401
    try:
        import psycopg
    except ImportError as error:
        raise CacheError(
            f"a postgresql:// cache needs the driver psycopg ({error}). Install it "
            f"with {INSTALL}"
        ) from None
    return psycopg


@lru_cache(maxsize=1)
def _text_dumper() -> Any:  # noqa: ANN401
    """Texts with the character NUL, which PostgreSQL cannot keep, get its picture."""
    from psycopg.types.string import StrDumperUnknown

    class Dumper(StrDumperUnknown):  # type: ignore[misc, unused-ignore]
        def dump(self, obj: str) -> Any:  # noqa: ANN401
            return super().dump(obj.replace("\x00", "␀"))

    return Dumper


@lru_cache(maxsize=256)
def _marked(sql: str) -> str:
    """A statement with the marks for values that psycopg knows."""
    return sql.replace("%", "%%").replace("?", "%s")


def _parse(url: str, psycopg: Any) -> tuple[dict[str, str], str]:  # noqa: ANN401
    """Connection parameters and schema of a URL; no message repeats the URL."""
    address, _, query = url.partition("?")
    where = address.partition("://")[2]
    behind = where.partition("/")[2] + query.partition("=")[0]
    if where.count("@") > 1 or "@" in behind:
        raise CacheError(
            "the postgresql:// URL has more than one @, or one behind / or ?. Percent-"
            "encode special characters of the password (@ is %40, / is %2F), or leave "
            "it to PGPASSWORD or ~/.pgpass."
        )
    options = [part for part in query.split("&") if part]
    named = [unquote(p[7:]) for p in options if p.startswith("schema=")]
    kept = "&".join(p for p in options if not p.startswith("schema="))
    schema = named[-1] if named else SCHEMA
    if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema):
        raise CacheError(
            f"schema {schema!r} is not a plain name: small letters, digits and _."
        )
    try:
        settings = psycopg.conninfo.conninfo_to_dict(f"{address}?{kept}".rstrip("?"))
    except psycopg.Error:
        raise CacheError(
            "the postgresql:// URL cannot be read. Give "
            "postgresql://user@host:5432/database, special characters percent-encoded."
        ) from None
    return {name: str(value) for name, value in settings.items()}, schema

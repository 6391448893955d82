"""What is remembered of batches until they are collected: a row and its lines."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
import json
from typing import Any, NamedTuple

from reply_resolution.judge.cache import Cache, SqliteCache
from reply_resolution.judge.store import utc_now

# In PostgreSQL they are part of the schema; a file gets them with its first batch.
_FILE_TABLES = (
    "CREATE TABLE IF NOT EXISTS batches (name TEXT PRIMARY KEY, created_at TEXT NOT "
    "NULL, document TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS batch_lines (batch TEXT NOT NULL, key BLOB NOT NULL, "
    "call_id INTEGER NOT NULL, tokens INTEGER NOT NULL, micro_usd INTEGER NOT NULL, "
    "vote INTEGER NOT NULL, user_message TEXT NOT NULL, note TEXT NOT NULL, PRIMARY "
    "KEY (batch, key)) WITHOUT ROWID",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """One file of requests at a provider.

    Attributes:
        name: Ours; also in the provider's metadata, by which it is found again.
        state: `planned` (booked, nothing sent), `sending` (perhaps arrived),
            `submitted`, `collected`, or `refused` (the provider took no batch).
        base_url: The provider.
        model: The model asked for.
        judge_id: Who judges, 64 hex digits.
        run_id: Whose caps it is booked under.
        price: The `Price` it is billed by, discount included; None if unknown.
        requests: Lines in the file.
        usd: USD at most; None without a price.
        file_id: The uploaded file; "" before.
        batch_id: The provider's batch; "" before.
        status: The provider's last word on it; "" before.
        detail: Why it failed, in its words.
    """

    name: str
    state: str
    base_url: str
    model: str
    judge_id: str
    run_id: str
    price: dict[str, Any] | None
    requests: int
    usd: float | None
    file_id: str = ""
    batch_id: str = ""
    status: str = ""
    detail: str = ""

    @property
    def owner(self) -> str:
        """Who holds its claims and bookings: no process, so no process's end."""
        return f"batch/{self.name}"


class Line(NamedTuple):
    """One request of a batch.

    Attributes:
        key: The verdict key, 64 hex digits; the request's `custom_id`.
        call_id: Its booking.
        tokens: Most tokens it may cost.
        micro_usd: Most it may cost, millionths of a USD.
        vote: 0 for the first verdict on the reply.
        user_message: The user message as sent.
        note: What preparation did to it; "" if nothing.
    """

    key: str
    call_id: int
    tokens: int
    micro_usd: int
    vote: int
    user_message: str
    note: str


def prepare(cache: Cache) -> None:
    """Make the tables where they are missing."""
    if isinstance(cache, SqliteCache):
        with cache.transaction() as run:
            for statement in _FILE_TABLES:
                run(statement)


def plan(cache: Cache, batch: Batch, lines: Sequence[Line]) -> None:
    """Remember a batch and its lines, before anything is sent."""
    with cache.transaction() as run:
        run(
            "INSERT INTO batches (name, created_at, document) VALUES (?, ?, ?)",
            (batch.name, utc_now(), json.dumps(asdict(batch))),
        )
        cache.write(
            "INSERT INTO batch_lines VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(batch.name, bytes.fromhex(x.key), *x[1:]) for x in lines],
        )


def update(cache: Cache, batch: Batch, **changes: str) -> Batch:
    """Remember what became of a batch."""
    changed = replace(batch, **changes)  # type: ignore[arg-type]
    with cache.transaction() as run:
        run(
            "UPDATE batches SET document = ? WHERE name = ?",
            (json.dumps(asdict(changed)), batch.name),
        )
    return changed


def batches(cache: Cache) -> list[Batch]:
    """Every batch, oldest first."""
    rows = cache.read("SELECT document FROM batches ORDER BY created_at, name")
    return [Batch(**json.loads(document)) for (document,) in rows]


def lines(cache: Cache, batch: Batch) -> Iterator[Line]:
    """The lines of a batch that are not settled."""
    for key, *row in cache.stream(
        "SELECT key, call_id, tokens, micro_usd, vote, user_message, note "
        "FROM batch_lines WHERE batch = ? ORDER BY call_id",
        (batch.name,),
    ):
        yield Line(key.hex(), *row)


def forget(cache: Cache, batch: Batch, keys: Sequence[str]) -> None:
    """Drop lines that are settled, and what is left of their claims."""
    cache.write(
        "DELETE FROM batch_lines WHERE batch = ? AND key = ?",
        [(batch.name, bytes.fromhex(key)) for key in keys],
    )
    cache.release(keys, batch.owner)

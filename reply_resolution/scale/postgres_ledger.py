"""Who does what now, over all hosts: claims on keys, and the ledger of calls.

A process that works here holds a session lock for each owner it acts as. Whose lock
is gone is dead: the server notices a killed process at once, and a vanished host by
its keepalives. Times are the server's, so that hosts need not agree on the clock.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from reply_resolution.errors import BudgetError
from reply_resolution.judge import ledger_rules as rules
from reply_resolution.judge.store import Actual, Booking, Cap, Refusal, Totals

if TYPE_CHECKING:  # postgres.py imports this module
    from reply_resolution.scale.postgres import PostgresCache

_NOW = "extract(epoch FROM clock_timestamp())::float8"
# The owners seen alive: those whose session lock somebody holds.
_ALIVE = (
    "EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended({owner}, 0))"
)
_SPEND = Totals._fields


def _introduce(db: "PostgresCache", run: Callable[..., Any], owner: str) -> None:
    """Take the owner's session lock, once per connection."""
    if owner not in db.owners:
        run("SELECT pg_advisory_lock_shared(hashtextextended(?, 0))", [owner])
        db.owners.add(owner)


def claim(
    db: "PostgresCache", keys: Collection[str], owner: str, lease_s: float = 900.0
) -> set[str]:
    """Take keys to judge; one key has one owner at a time, over all hosts.

    Left out are keys that have a verdict and keys another owner holds. A claim ends
    by `put_many`, `release`, its lease, or the end of its owner's connection.

    Args:
        db: The cache.
        keys: Verdict keys.
        owner: From `new_owner()`; claiming again renews the lease.
        lease_s: Seconds until anybody may take the key.

    Returns:
        The keys now held by `owner`.
    """
    wanted = sorted(bytes.fromhex(key) for key in keys)  # one order: no deadlock
    alive = _ALIVE.format(owner="claims.owner")
    with db.transaction() as run:
        _introduce(db, run, owner)
        taken = run(
            "INSERT INTO claims (key, owner, expires_at) "
            f"SELECT key, ?, {_NOW} + ? FROM unnest(?::bytea[]) AS key "
            "ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, "
            "expires_at = excluded.expires_at WHERE claims.owner = excluded.owner "
            f"OR claims.expires_at <= {_NOW} OR NOT {alive} RETURNING key",
            (owner, lease_s, wanted),
        ).fetchall()
        mine = [key for (key,) in taken]
        # Looked at once they are ours: whoever judged them before has committed.
        known = run(
            "SELECT key FROM verdicts WHERE key = ANY(?::bytea[])", [mine]
        ).fetchall()
        done = [key for (key,) in known]
        if done:
            run(
                "DELETE FROM claims WHERE key = ANY(?::bytea[]) AND owner = ?",
                (done, owner),
            )
    return {key.hex() for key in set(mine) - set(done)}


def release(db: "PostgresCache", keys: Collection[str], owner: str) -> None:
    """Give claimed keys back, for others to judge."""
    held = sorted(bytes.fromhex(key) for key in keys)
    with db.transaction() as run:
        run(
            "DELETE FROM claims WHERE key = ANY(?::bytea[]) AND owner = ?",
            (held, owner),
        )


def totals(db: "PostgresCache", scope: str, run_id: str) -> Totals:
    """The ledger's sums over a scope: run, day or month (UTC)."""
    where, values = rules.within(scope, run_id, rules.today())
    (row,) = db.read(f"SELECT {rules.SUMS} FROM spend WHERE {where}", values)
    return Totals._make(row)


def book(
    db: "PostgresCache",
    run_id: str,
    owner: str,
    bookings: Sequence[Booking],
    caps: Sequence[Cap],
) -> tuple[list[int], Refusal | None]:
    """Book calls in order until one does not fit; atomic over all processes.

    One booker at a time looks at the caps. Who settles does not wait for it: until a
    settlement is committed its booking counts in full.

    Returns:
        The numbers of the calls booked (a prefix of `bookings`), and why the next one
        was refused.
    """
    day = rules.today()
    ids: list[int] = []
    with db.numbering() as run:
        _introduce(db, run, owner)
        sums = [(cap, totals(db, cap.scope, run_id)) for cap in caps]
        fit, refusal = rules.fitting(sums, bookings)
        if fit:
            tokens = [booking.tokens for booking in bookings[:fit]]
            micro = [booking.micro_usd for booking in bookings[:fit]]
            made = run(
                "INSERT INTO calls (run_id, day, owner, booked_at, state, tokens, "
                f"micro_usd) SELECT ?, ?, ?, {_NOW}, 'open', tokens, micro FROM "
                "unnest(?::bigint[], ?::bigint[]) WITH ORDINALITY AS b (tokens, micro, "
                "place) ORDER BY place RETURNING id",
                (run_id, day, owner, tokens, micro),
            ).fetchall()
            ids = [call_id for (call_id,) in made]
            run(
                "INSERT INTO spend AS s (run_id, day, open_calls, open_tokens, "
                "open_micro_usd) VALUES (?, ?, ?, ?, ?) ON CONFLICT (run_id, day) DO "
                "UPDATE SET open_calls = s.open_calls + excluded.open_calls, "
                "open_tokens = s.open_tokens + excluded.open_tokens, "
                "open_micro_usd = s.open_micro_usd + excluded.open_micro_usd",
                (run_id, day, fit, sum(tokens), sum(micro)),
            )
    return ids, refusal


def book_actuals(db: "PostgresCache", run_id: str, actuals: Sequence[Actual]) -> Totals:
    """Replace bookings by what the calls cost; returns the run's totals."""
    with db.transaction() as run:
        _close(run, actuals)
        return totals(db, "run", run_id)


def _close(run: Callable[..., Any], actuals: Sequence[Actual]) -> None:
    """Close bookings; those written off while they were answered stay as they are."""
    rows = run(
        "SELECT id, state, run_id, day, tokens, micro_usd FROM calls "
        "WHERE id = ANY(?::bigint[]) ORDER BY id FOR UPDATE",
        [[actual.call_id for actual in actuals]],
    ).fetchall()
    booked = {row[0]: row[1:] for row in rows}
    closed: list[tuple[str, int, int, int]] = []
    sums: dict[tuple[str, str], Counter[str]] = {}
    for actual in actuals:
        row = booked.get(actual.call_id)
        if row is None or row[0] not in ("open", "lost"):
            raise BudgetError(rules.unsettled(actual, row[0] if row else None))
        state, *page, tokens, micro = row
        if state == "lost":
            continue
        booked[actual.call_id] = (actual.state, *page, tokens, micro)
        calls, spent, paid = rules.closing(actual, tokens, micro)
        closed.append((actual.state, spent, paid, actual.call_id))
        over = max(0, spent - tokens), max(0, paid - micro)
        change = calls, spent, paid, -1, -tokens, -micro, *over
        where = page[0], page[1]
        sums.setdefault(where, Counter()).update(dict(zip(_SPEND, change, strict=True)))
    if not closed:
        return
    states, spends, pays, ids = zip(*closed, strict=True)
    run(
        "UPDATE calls SET state = c.state, actual_tokens = c.spent, "
        "actual_micro_usd = c.paid FROM unnest(?::text[], ?::bigint[], ?::bigint[], "
        "?::bigint[]) AS c (state, spent, paid, id) WHERE calls.id = c.id",
        (list(states), list(spends), list(pays), list(ids)),
    )
    add = ", ".join(f"{name} = {name} + ?" for name in _SPEND)
    for (run_id, day), change_of in sorted(sums.items()):  # one order: no deadlock
        run(
            f"UPDATE spend SET {add} WHERE run_id = ? AND day = ?",
            (*(change_of[name] for name in _SPEND), run_id, day),
        )


def book_lost(db: "PostgresCache") -> int:
    """Close the bookings nobody will settle at full value; returns how many.

    These are the bookings of owners who are gone, and those older than any call can
    be.
    """
    lost = (
        "SELECT id FROM calls WHERE state = 'open' AND (booked_at < "
        f"{_NOW} - {rules.OLDEST_S} OR owner IN (SELECT owner FROM (SELECT DISTINCT "
        f"owner FROM calls WHERE state = 'open') o WHERE NOT "
        f"{_ALIVE.format(owner='o.owner')}))"
    )
    if not db.read(f"{lost} LIMIT 1"):  # else no need to write
        return 0
    with db.transaction() as run:
        ids = [i for (i,) in run(f"{lost} ORDER BY id FOR UPDATE").fetchall()]
        _close(run, [Actual(call_id, "lost") for call_id in ids])
    return len(ids)

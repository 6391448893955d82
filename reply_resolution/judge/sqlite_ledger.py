"""Who does what now: claims on keys, and the ledger of calls.

The ledger books the worst case, replaces it by the actual, and sums up.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
import time
from typing import Any

from reply_resolution.errors import BudgetError
from reply_resolution.judge.owner import is_gone
from reply_resolution.judge.sqlite import Database
from reply_resolution.judge.store import Actual, Booking, Cap, Refusal, Totals

_OLDEST_S = 3600.0  # no call lasts an hour
_SUMS = ", ".join(f"coalesce(sum({name}), 0)" for name in Totals._fields)


def claim(
    db: Database, keys: Collection[str], owner: str, lease_s: float = 900.0
) -> set[str]:
    """Take keys to judge; one key has one owner at a time.

    Left out are keys that have a verdict and keys another owner holds: ask for
    these again later. A claim ends by `put_many`, `release`, its lease, or the
    death of its owner on this machine (`kill -9` included).

    Args:
        db: The cache file.
        keys: Verdict keys.
        owner: From `new_owner()`; claiming again renews the lease.
        lease_s: Seconds until anybody may take the key; more than a call with its
            retries can last.

    Returns:
        The keys now held by `owner`.
    """
    gone: dict[str, bool] = {owner: True}
    taken = set()
    with db.transaction() as run:
        clock = time.time()
        for key in keys:
            blob = (bytes.fromhex(key),)
            if run("SELECT 1 FROM verdicts WHERE key = ?", blob).fetchone():
                continue
            holder, until = run(
                "SELECT owner, expires_at FROM claims WHERE key = ?", blob
            ).fetchone() or (owner, 0.0)
            if holder not in gone:
                gone[holder] = is_gone(holder)
            if gone[holder] or until <= clock:
                run(
                    "INSERT OR REPLACE INTO claims VALUES (?, ?, ?)",
                    (*blob, owner, clock + lease_s),
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


def today() -> str:
    """The calendar day, UTC."""
    return datetime.now(UTC).date().isoformat()


def _sums(run: Callable[..., Any], scope: str, run_id: str, day: str) -> Totals:
    if scope == "run":
        where, value = "run_id = ?", run_id
    elif scope == "day":
        where, value = "day = ?", day
    else:  # a month is the days that start with it
        where, value = "day BETWEEN ? || '-01' AND ? || '-31'", day[:7]
    values = (value,) * where.count("?")
    return Totals._make(
        run(f"SELECT {_SUMS} FROM spend WHERE {where}", values).fetchone()
    )


def totals(db: Database, scope: str, run_id: str) -> Totals:
    """The ledger's sums over a scope: run, day or month (UTC)."""
    with db.locked() as connection:
        return _sums(connection.execute, scope, run_id, today())


def book(
    db: Database,
    run_id: str,
    owner: str,
    bookings: Sequence[Booking],
    caps: Sequence[Cap],
) -> tuple[list[int], Refusal | None]:
    """Book calls in order until one does not fit; atomic over all processes.

    The caps are looked at inside the transaction that writes, so what is in flight in
    any thread or process is always counted.

    Returns:
        The numbers of the calls booked (a prefix of `bookings`), and why the next one
        was refused.
    """
    ids: list[int] = []
    refusal = None
    with db.transaction() as run:
        day, clock = today(), time.time()
        sums = [(cap, _sums(run, cap.scope, run_id, day)) for cap in caps]
        added = Booking(0, 0)
        for booking in bookings:
            refusal = _refusal(sums, len(ids), added, booking)
            if refusal is not None:
                break
            ids.append(
                run(
                    "INSERT INTO calls (run_id, day, owner, booked_at, state, tokens, "
                    "micro_usd) VALUES (?, ?, ?, ?, 'open', ?, ?)",
                    (run_id, day, owner, clock, *booking),
                ).lastrowid
            )
            added = Booking(
                added.tokens + booking.tokens, added.micro_usd + booking.micro_usd
            )
        if ids:
            run(
                "INSERT INTO spend (run_id, day, open_calls, open_tokens, "
                "open_micro_usd) VALUES (?, ?, ?, ?, ?) ON CONFLICT (run_id, day) DO "
                "UPDATE SET open_calls = open_calls + excluded.open_calls, "
                "open_tokens = open_tokens + excluded.open_tokens, "
                "open_micro_usd = open_micro_usd + excluded.open_micro_usd",
                (run_id, day, len(ids), *added),
            )
    return ids, refusal


def _refusal(
    sums: Sequence[tuple[Cap, Totals]], calls: int, added: Booking, booking: Booking
) -> Refusal | None:
    for cap, total in sums:
        if cap.scope == "run" and (
            (cap.tokens is not None and total.over_tokens)
            or (cap.micro_usd is not None and total.over_micro_usd)
        ):
            return Refusal("over", cap.scope, True)
        # Totals: calls, tokens and price that are over, then the same in flight.
        for limit, most, spent, in_flight, held, wanted in zip(
            ("calls", "tokens", "usd"),
            cap[1:],
            total[:3],
            total[3:6],
            (calls, *added),
            (1, *booking),
            strict=True,
        ):
            if most is not None and spent + in_flight + held + wanted > most:
                return Refusal(limit, cap.scope, spent + wanted > most)
    return None


def book_actuals(db: Database, run_id: str, actuals: Sequence[Actual]) -> Totals:
    """Replace bookings by what the calls cost; returns the run's totals."""
    with db.transaction() as run:
        for actual in actuals:
            row = run(
                "SELECT run_id, day, state, tokens, micro_usd FROM calls WHERE id = ?",
                (actual.call_id,),
            ).fetchone()
            if row is None or row[2] not in ("open", "lost"):
                raise BudgetError(
                    f"call {actual.call_id} of the ledger is "
                    f"{row[2] if row else 'unknown'}; a booking is settled once."
                )
            if row[2] == "lost":  # written off at full value while it was answered
                continue
            _close(run, actual, *row)
        return _sums(run, "run", run_id, today())


def _close(
    run: Callable[..., Any],
    actual: Actual,
    run_id: str,
    day: str,
    _state: str,
    tokens: int,
    micro_usd: int,
) -> None:
    calls, spent, paid = 1, tokens, micro_usd  # in full, unless we know better
    if actual.state == "released":
        calls = spent = paid = 0
    elif actual.state == "settled":
        spent, paid = actual.tokens, actual.micro_usd
    run(
        "UPDATE calls SET state = ?, actual_tokens = ?, actual_micro_usd = ? "
        "WHERE id = ?",
        (actual.state, spent, paid, actual.call_id),
    )
    over = max(0, spent - tokens), max(0, paid - micro_usd)
    run(
        "UPDATE spend SET calls = calls + ?, tokens = tokens + ?, "
        "micro_usd = micro_usd + ?, open_calls = open_calls - 1, "
        "open_tokens = open_tokens - ?, open_micro_usd = open_micro_usd - ?, "
        "over_tokens = over_tokens + ?, over_micro_usd = over_micro_usd + ? "
        "WHERE run_id = ? AND day = ?",
        (calls, spent, paid, tokens, micro_usd, *over, run_id, day),
    )


def book_lost(db: Database) -> int:
    """Close the bookings nobody will settle at full value; returns how many.

    These are the bookings of dead owners, and those older than any call can be (of an
    owner on another machine nobody here can say whether it lives). They are counted
    in full before and after; but while they are open, somebody may wait for them.
    """
    owners = db.read("SELECT DISTINCT owner FROM calls WHERE state = 'open'")
    query = (
        "SELECT id, run_id, day, state, tokens, micro_usd FROM calls "
        "WHERE state = 'open' AND (booked_at < ? OR owner = ?)"
    )
    old = time.time() - _OLDEST_S
    lost = 0
    for owner in [owner for (owner,) in owners if is_gone(owner)] or [""]:
        if db.read(f"{query} LIMIT 1", (old, owner)):  # else no need to write
            with db.transaction() as run:
                for call_id, *row in run(query, (old, owner)).fetchall():
                    _close(run, Actual(call_id, "lost"), *row)
                    lost += 1
    return lost

"""The ledger's SQL: book the worst case, replace it by the actual, sum up."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
import time
from typing import Any

from reply_resolution.errors import BudgetError
from reply_resolution.judge.owner import is_gone
from reply_resolution.judge.sqlite import Database
from reply_resolution.judge.store import Actual, Booking, Cap, Refusal, Totals

_OLDEST_S = 3600.0  # no call lasts an hour
_SUMS = ", ".join(f"coalesce(sum({name}), 0)" for name in Totals._fields)


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
    """Sums over a scope."""
    with db.locked() as connection:
        return _sums(connection.execute, scope, run_id, today())


def book(
    db: Database,
    run_id: str,
    owner: str,
    bookings: Sequence[Booking],
    caps: Sequence[Cap],
) -> tuple[list[int], Refusal | None]:
    """Book calls in order until one does not fit.

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
        for limit, most, spent, in_flight, wanted in (
            ("calls", cap.calls, total.calls, total.open_calls + calls, 1),
            (
                "tokens",
                cap.tokens,
                total.tokens,
                total.open_tokens + added.tokens,
                booking.tokens,
            ),
            (
                "usd",
                cap.micro_usd,
                total.micro_usd,
                total.open_micro_usd + added.micro_usd,
                booking.micro_usd,
            ),
        ):
            if most is not None and spent + in_flight + wanted > most:
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
    calls, spent, paid = 1, actual.tokens, actual.micro_usd
    if actual.state == "released":
        calls = spent = paid = 0
    elif actual.state != "settled":
        spent, paid = tokens, micro_usd
    run(
        "UPDATE calls SET state = ?, actual_tokens = ?, actual_micro_usd = ? "
        "WHERE id = ?",
        (actual.state, spent, paid, actual.call_id),
    )
    run(
        "UPDATE spend SET calls = calls + ?, tokens = tokens + ?, "
        "micro_usd = micro_usd + ?, open_calls = open_calls - 1, "
        "open_tokens = open_tokens - ?, open_micro_usd = open_micro_usd - ?, "
        "over_tokens = over_tokens + ?, over_micro_usd = over_micro_usd + ? "
        "WHERE run_id = ? AND day = ?",
        (
            calls,
            spent,
            paid,
            tokens,
            micro_usd,
            max(0, spent - tokens),
            max(0, paid - micro_usd),
            run_id,
            day,
        ),
    )


def book_lost(db: Database) -> int:
    """Close the bookings nobody will settle at full value; returns how many.

    These are the bookings of dead owners, and those older than any call can be (of an
    owner on another machine nobody here can say whether it lives). They are counted
    in full before and after; but while they are open, somebody may wait for them.
    """
    dead = [
        owner
        for (owner,) in db.read("SELECT DISTINCT owner FROM calls WHERE state = 'open'")
        if is_gone(owner)
    ]
    old = time.time() - _OLDEST_S
    query = (
        "SELECT id, run_id, day, state, tokens, micro_usd FROM calls "
        "WHERE state = 'open' AND (booked_at < ? OR owner = ?)"
    )
    lost = 0
    for owner in dead or [""]:
        if not db.read(f"{query} LIMIT 1", (old, owner)):
            continue
        with db.transaction() as run:
            for call_id, *row in run(query, (old, owner)).fetchall():
                _close(run, Actual(call_id, "lost"), *row)
                lost += 1
    return lost

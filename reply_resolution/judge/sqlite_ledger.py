"""Who does what now: claims on keys, and the ledger of calls.

The ledger books the worst case, replaces it by the actual, and sums up.
"""

from collections.abc import Callable, Collection, Sequence
import time
from typing import Any

from reply_resolution.errors import BudgetError
from reply_resolution.judge import ledger_rules as rules
from reply_resolution.judge.owner import is_gone
from reply_resolution.judge.sqlite import Database
from reply_resolution.judge.store import Actual, Booking, Cap, Refusal, Totals


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


def _sums(run: Callable[..., Any], scope: str, run_id: str, day: str) -> Totals:
    where, values = rules.within(scope, run_id, day)
    found = run(f"SELECT {rules.SUMS} FROM spend WHERE {where}", values).fetchone()
    return Totals._make(found)


def totals(db: Database, scope: str, run_id: str) -> Totals:
    """The ledger's sums over a scope: run, day or month (UTC)."""
    with db.locked() as connection:
        return _sums(connection.execute, scope, run_id, rules.today())


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
    with db.transaction() as run:
        day, clock = rules.today(), time.time()
        sums = [(cap, _sums(run, cap.scope, run_id, day)) for cap in caps]
        fit, refusal = rules.fitting(sums, bookings)
        ids: list[int] = [
            run(
                "INSERT INTO calls (run_id, day, owner, booked_at, state, tokens, "
                "micro_usd) VALUES (?, ?, ?, ?, 'open', ?, ?)",
                (run_id, day, owner, clock, *booking),
            ).lastrowid
            for booking in bookings[:fit]
        ]
        if ids:
            run(
                "INSERT INTO spend (run_id, day, open_calls, open_tokens, "
                "open_micro_usd) VALUES (?, ?, ?, ?, ?) ON CONFLICT (run_id, day) DO "
                "UPDATE SET open_calls = open_calls + excluded.open_calls, "
                "open_tokens = open_tokens + excluded.open_tokens, "
                "open_micro_usd = open_micro_usd + excluded.open_micro_usd",
                (
                    run_id,
                    day,
                    fit,
                    sum(b.tokens for b in bookings[:fit]),
                    sum(b.micro_usd for b in bookings[:fit]),
                ),
            )
    return ids, refusal


def book_actuals(db: Database, run_id: str, actuals: Sequence[Actual]) -> Totals:
    """Replace bookings by what the calls cost; returns the run's totals."""
    with db.transaction() as run:
        for actual in actuals:
            row = run(
                "SELECT run_id, day, state, tokens, micro_usd FROM calls WHERE id = ?",
                (actual.call_id,),
            ).fetchone()
            if row is None or row[2] not in ("open", "lost"):
                raise BudgetError(rules.unsettled(actual, row[2] if row else None))
            if row[2] == "lost":  # written off at full value while it was answered
                continue
            _close(run, actual, *row)
        return _sums(run, "run", run_id, rules.today())


def _close(
    run: Callable[..., Any],
    actual: Actual,
    run_id: str,
    day: str,
    _state: str,
    tokens: int,
    micro_usd: int,
) -> None:
    calls, spent, paid = rules.closing(actual, tokens, micro_usd)
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
    old = time.time() - rules.OLDEST_S
    lost = 0
    for owner in [owner for (owner,) in owners if is_gone(owner)] or [""]:
        if db.read(f"{query} LIMIT 1", (old, owner)):  # else no need to write
            with db.transaction() as run:
                for call_id, *row in run(query, (old, owner)).fetchall():
                    _close(run, Actual(call_id, "lost"), *row)
                    lost += 1
    return lost

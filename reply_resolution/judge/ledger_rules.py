"""The ledger's rules, whatever keeps it: what fits, and what a call comes to."""

from collections.abc import Sequence
from datetime import UTC, datetime

from reply_resolution.judge.store import Actual, Booking, Cap, Refusal, Totals

OLDEST_S = 3600.0  # no call lasts an hour
SUMS = ", ".join(f"CAST(coalesce(sum({x}), 0) AS BIGINT)" for x in Totals._fields)


def today() -> str:
    """The calendar day, UTC."""
    return datetime.now(UTC).date().isoformat()


def within(scope: str, run_id: str, day: str) -> tuple[str, tuple[str, ...]]:
    """The WHERE of a scope (run, day or month) in the table of spending."""
    if scope == "run":
        return "run_id = ?", (run_id,)
    if scope == "day":
        return "day = ?", (day,)
    # a month is the days that start with it
    return "day BETWEEN ? AND ?", (f"{day[:7]}-01", f"{day[:7]}-31")


def fitting(
    sums: Sequence[tuple[Cap, Totals]], bookings: Sequence[Booking]
) -> tuple[int, Refusal | None]:
    """How many bookings fit, in order, and why the next one does not."""
    added = Booking(0, 0)
    for fit, booking in enumerate(bookings):
        refusal = _refusal(sums, fit, added, booking)
        if refusal is not None:
            return fit, refusal
        added = Booking(
            added.tokens + booking.tokens, added.micro_usd + booking.micro_usd
        )
    return len(bookings), None


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


def closing(actual: Actual, tokens: int, micro_usd: int) -> tuple[int, int, int]:
    """Calls, tokens and millionths of a USD that a booking comes to.

    In full, unless we know better.
    """
    if actual.state == "released":
        return 0, 0, 0
    if actual.state == "settled":
        return 1, actual.tokens, actual.micro_usd
    return 1, tokens, micro_usd


def unsettled(actual: Actual, state: str | None) -> str:
    """The message for a call that has been settled, or was never booked."""
    return (
        f"call {actual.call_id} of the ledger is {state or 'unknown'}; a booking is "
        "settled once."
    )

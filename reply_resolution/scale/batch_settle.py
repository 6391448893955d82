"""What a batch's requests came to: verdicts, calls and what they cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from reply_resolution.judge.budget import Ledger, Price, Reservation
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.reading import Outcome
from reply_resolution.judge.store import Actual, Attempt, StoredVerdict, utc_now
from reply_resolution.scale import batch_store as kept
from reply_resolution.scale.batch_store import Batch, Line


@dataclass(slots=True)
class Collection:
    """What was collected.

    Attributes:
        statuses: Verdicts kept and failures, by status.
        left: Requests the provider did not get to; they may be asked again.
        waiting: Batches not ready yet.
        notes: What a reader should know.
    """

    statuses: dict[str, int]
    left: int
    waiting: int
    notes: list[str]


def settle(
    store: Cache,
    batch: Batch,
    group: Sequence[tuple[Line, Outcome | None]],
    result: Collection | None = None,
) -> None:
    """Keep verdicts, calls and what they cost, and drop the lines: one transaction."""
    price = Price(**batch.price) if batch.price else None
    ledger = Ledger(store, None, batch.run_id, price, owner=batch.owner)
    verdicts: list[StoredVerdict] = []
    attempts: list[Attempt] = []
    settled: list[tuple[Reservation, int | None, int | None, int | None]] = []
    never: list[Actual] = []
    for line, outcome in group:
        if outcome is None:
            never.append(Actual(line.call_id, "released"))
            continue
        tokens: tuple[int | None, int | None, int | None] = (0, 0, 0)
        if outcome.billed:
            use = outcome.usage
            tokens = (None, None, None)
            if use is not None:
                tokens = use.prompt_tokens, use.completion_tokens, use.cached_tokens
        booked = Reservation(line.call_id, line.tokens, line.micro_usd)
        settled.append((booked, *tokens))
        cost = ledger.cost_usd(*tokens)
        attempts.append(_attempt(line, batch, outcome, cost))
        if outcome.reading.status != "failed":
            verdicts.append(_verdict(line, batch, outcome, cost))
    with store.transaction():
        store.put_many(verdicts)
        store.add_attempts(attempts)
        store.book_actuals(batch.run_id, never)
        within = ledger.settle_many(settled)
        kept.forget(store, batch, [line.key for line, _ in group])
    if result is None:
        return
    for _, outcome in group:
        if outcome is None:
            result.left += 1
        else:
            status = outcome.reading.status
            result.statuses[status] = result.statuses.get(status, 0) + 1
    if not within:
        result.notes.append(f"{batch.name}: more tokens were billed than allowed")


def _attempt(line: Line, batch: Batch, outcome: Outcome, cost: float | None) -> Attempt:
    use = outcome.usage
    return Attempt(
        key=line.key,
        run_id=batch.run_id,
        outcome=outcome.reading.status,
        detail=outcome.reading.detail or "",
        call_id=line.call_id,
        started_at=utc_now(),
        prompt_tokens=use.prompt_tokens if use else None,
        cached_tokens=use.cached_tokens if use else None,
        completion_tokens=use.completion_tokens if use else None,
        cost_usd=cost,
    )


def _verdict(
    line: Line, batch: Batch, outcome: Outcome, cost: float | None
) -> StoredVerdict:
    reading, use = outcome.reading, outcome.usage
    return StoredVerdict(
        key=line.key,
        judge_id=batch.judge_id,
        user_message=line.user_message,
        vote=line.vote,
        score=reading.score,
        reason=reading.reason,
        status=reading.status,
        status_detail="; ".join(x for x in (reading.detail, line.note) if x),
        model_returned=outcome.model_returned,
        prompt_tokens=use.prompt_tokens if use else None,
        cached_tokens=use.cached_tokens if use else None,
        completion_tokens=use.completion_tokens if use else None,
        cost_usd=cost,
        latency_ms=None,  # a day's wait says nothing of the model
        attempts=1,
        judged_at=utc_now(),
        raw=outcome.raw or None,
    )

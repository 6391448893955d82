"""The records a cache and its ledger keep, whatever database holds them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import polars as pl

from reply_resolution.errors import CacheError
from reply_resolution.judge.identity import JudgeIdentity


def utc_now() -> str:
    """UTC time, ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


#: Statuses of a paid, final answer; only these are kept as verdicts.
FINAL = ("scored", "refused", "truncated", "filtered", "invalid")

#: Columns of `Cache.get_frame`, beside `key`: a verdict's fields after its vote.
FRAME_SCHEMA: dict[str, pl.DataType] = {
    "score": pl.Int8(),
    "reason": pl.String(),
    "status": pl.String(),
    "status_detail": pl.String(),
    "model_returned": pl.String(),
    "prompt_tokens": pl.Int64(),
    "cached_tokens": pl.Int64(),
    "completion_tokens": pl.Int64(),
    "cost_usd": pl.Float64(),
    "latency_ms": pl.Float64(),
    "attempts": pl.Int64(),
    "judged_at": pl.String(),
}


# A named tuple and not a dataclass: 100,000 of them are built in a warm rerun, and a
# frozen dataclass of 17 fields costs ten times as much to build.
class StoredVerdict(NamedTuple):
    """A paid, final answer of a judge.

    Attributes:
        key: Verdict key, 64 hex digits.
        judge_id: Who judged, 64 hex digits.
        user_message: The user message exactly as sent.
        vote: 0 for the first verdict on a reply, 1 and up for repeats.
        score: 1 to 5 if the status is `scored`, else None.
        reason: The judge's reason; None where it gave none.
        status: One of `FINAL`.
        status_detail: More on the status, in a word or two; "" if nothing.
        model_returned: The model the server says it used.
        prompt_tokens: Billed tokens of the request; None if the server did not say.
        cached_tokens: Of these, read from the provider's prompt cache.
        completion_tokens: Billed tokens of the answer.
        cost_usd: Price of all attempts, USD; None if unknown.
        latency_ms: Time of the deciding call, milliseconds.
        attempts: Calls made for this verdict, 1 and up; 0 if recorded elsewhere.
        judged_at: UTC time, ISO 8601.
        raw: The server's answer as JSON text.
    """

    key: str
    judge_id: str
    user_message: str
    vote: int
    score: int | None
    reason: str | None
    status: str
    status_detail: str
    model_returned: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    latency_ms: float | None
    attempts: int
    judged_at: str
    raw: str | None


class Attempt(NamedTuple):
    """One call to a server, whatever came of it.

    Attributes:
        key: The verdict key it was made for.
        run_id: The run that made it.
        outcome: A status of a verdict, or `failed`.
        detail: HTTP status, error code or the like; never a key or header.
        call_id: The ledger's number of the call; None without a budget.
        started_at: UTC time, ISO 8601.
        latency_ms: Milliseconds until the answer or failure.
        prompt_tokens: As billed; None if the server did not say.
        cached_tokens: Likewise.
        completion_tokens: Likewise.
        cost_usd: USD; None if unknown.
    """

    key: str
    run_id: str
    outcome: str
    detail: str = ""
    call_id: int | None = None
    started_at: str = ""
    latency_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything about one verdict, down to the bytes that were sent.

    Attributes:
        verdict: The verdict.
        key: Its key.
        request: The request's body as JSON text, exactly what was sent.
        judge: The judge.
        metric_versions: Labels of the metric versions that used this judge.
        seen_as: (request_id, arm) pairs this verdict was given to.
        attempts: The calls made for it, oldest first.
    """

    verdict: StoredVerdict
    key: str
    request: str
    judge: JudgeIdentity
    metric_versions: tuple[str, ...]
    seen_as: tuple[tuple[str, str | None], ...]
    attempts: tuple[Attempt, ...]


class TokenUse(NamedTuple):
    """What calls of a judge have used so far, for the estimate before a run.

    Attributes:
        prompt_tokens_per_byte: Prompt tokens per UTF-8 byte of wording, schema and
            user message.
        completion_tokens: Mean tokens of an answer.
    """

    prompt_tokens_per_byte: float
    completion_tokens: float


class Booking(NamedTuple):
    """What a call may cost at most; calls are booked before they are made.

    Attributes:
        tokens: Upper bound of prompt and completion tokens.
        micro_usd: Upper bound of the price, millionths of a USD; 0 without a price.
    """

    tokens: int
    micro_usd: int


class Actual(NamedTuple):
    """What a booked call did cost.

    Attributes:
        call_id: The booking's number.
        state: `settled`, `forfeited` (counted in full) or `released` (never sent).
        tokens: Tokens billed; ignored unless settled.
        micro_usd: Price, millionths of a USD; ignored unless settled.
    """

    call_id: int
    state: str
    tokens: int = 0
    micro_usd: int = 0


class Cap(NamedTuple):
    """One cap as the store checks it; None is no limit.

    Attributes:
        scope: `run`, `day` or `month` (calendar, UTC; over all runs in the store).
        calls: Most calls.
        tokens: Most tokens, prompt and completion together.
        micro_usd: Most millionths of a USD.
    """

    scope: str
    calls: int | None
    tokens: int | None
    micro_usd: int | None


class Totals(NamedTuple):
    """Sums of the ledger over a scope.

    Attributes:
        calls: Calls that ended, were forfeited or lost.
        tokens: Tokens of these.
        micro_usd: Price of these, millionths of a USD.
        open_calls: Calls in flight, counted in full.
        open_tokens: Their tokens at most.
        open_micro_usd: Their price at most.
        over_tokens: Tokens billed beyond what was booked (already in `tokens`).
        over_micro_usd: Likewise for the price.
    """

    calls: int = 0
    tokens: int = 0
    micro_usd: int = 0
    open_calls: int = 0
    open_tokens: int = 0
    open_micro_usd: int = 0
    over_tokens: int = 0
    over_micro_usd: int = 0


class Refusal(NamedTuple):
    """Why a booking was refused.

    Attributes:
        limit: `calls`, `tokens`, `usd`, or `over` (billed beyond a booking).
        scope: `run`, `day` or `month`.
        final: True when it would not fit even if every call in flight cost nothing;
            False when waiting for calls in flight may make room.
    """

    limit: str
    scope: str
    final: bool


def check_verdict(verdict: StoredVerdict) -> None:
    """Refuse a verdict that contradicts itself; CacheError says how."""
    score = verdict.score
    if verdict.status not in FINAL:
        raise CacheError(
            f"a verdict of status {verdict.status!r} is not kept; only paid final "
            f"answers are: {', '.join(FINAL)}. Calls that failed are attempts."
        )
    possible = type(score) is int and 1 <= score <= 5
    if not possible if verdict.status == "scored" else score is not None:
        raise CacheError(
            f"a verdict of status {verdict.status!r} with score {score!r} is "
            "contradictory: scored has a whole number 1 to 5, every other status has "
            "none."
        )

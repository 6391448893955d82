"""Asking for one verdict, until there is one or a reason why there is none."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from reply_resolution.judge.budget import Reservation
from reply_resolution.judge.client import Client, Gate, backoff
from reply_resolution.judge.identity import Dialect
from reply_resolution.judge.job import Item, Job, request_bytes
from reply_resolution.judge.keeping import Bookkeeper
from reply_resolution.judge.reading import Outcome
from reply_resolution.judge.results import Failure, RunStoppedError, Tally
from reply_resolution.judge.store import Attempt, StoredVerdict, utc_now

#: Seconds before the second attempt after a fault that may pass.
FIRST_WAIT = 0.5
#: Paid calls for one verdict, re-asks and timeouts included.
MAX_PAID = 2
#: Calls the server turned away (429, 503) that one verdict survives.
MAX_TURNED_AWAY = 12
_RE_ASK = {"invalid", "truncated"}
# What a server that takes a schema and ignores it does to an answer.
_IGNORED = {
    "not_json",
    "fenced",
    "not_an_object",
    "text_around_object",
    "ambiguous",
    "missing_field",
    "extra_field",
    "not_an_integer",
    "out_of_range",
    "empty_answer",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run keeps to.

    Attributes:
        concurrency: Most calls in flight.
        max_completion_tokens: Limit on an answer's tokens; twice that for the re-ask
            of an answer that was cut short.
        timeout: Seconds for one call.
        attempts: Calls for one verdict while faults may pass.
        requests_per_minute, tokens_per_minute: Rate limits; None is none.
        bounded: Whether a cap on tokens or USD must hold.
    """

    concurrency: int
    max_completion_tokens: int
    timeout: float
    attempts: int
    requests_per_minute: float | None
    tokens_per_minute: float | None
    bounded: bool


@dataclass(slots=True)
class Pending:
    """One verdict on its way: what its calls have come to so far.

    Attributes:
        item: What is asked.
        trying: Whether the server is being met with it.
        paid: Calls that may have been billed.
        faults: Calls that failed in a way that may pass.
        turned_away: Calls the server had no room for.
        adapted: Times the server was asked differently.
        calls: HTTP calls.
        cost: USD; None once a part of it is unknown.
        cap: Limit on the answer's tokens, if other than usual.
        best: The last answer.
        first: The answer in the usual form, while another form is tried.
        abandoned: Whether its calls are used up on forms that were given up.
        asked_at: When the last call started, UTC.
        attempts: The calls, for the diary.
    """

    item: Item
    trying: bool = False
    paid: int = 0
    faults: int = 0
    turned_away: int = 0
    adapted: int = 0
    calls: int = 0
    cost: float | None = 0.0
    cap: int | None = None
    best: Outcome | None = None
    first: Outcome | None = None
    abandoned: bool = False
    asked_at: str = ""
    attempts: list[Attempt] = field(default_factory=list)


class Asker:
    """Asks one judge for one verdict after another.

    Attributes:
        usual: The dialect to fall back on when no other way of asking helps.
    """

    def __init__(
        self,
        *,
        job: Job,
        client: Client,
        books: Bookkeeper,
        gate: Gate,
        tally: Tally,
        settings: Settings,
        run_id: str,
        drop_claim: Callable[[str], None],
        start_over: Callable[[Pending], None],
    ) -> None:
        """Take what asking needs.

        `drop_claim` lets others have a key that failed; `start_over` is called when
        the judge id has changed, and with it every key.
        """
        self._job, self._client, self._books = job, client, books
        self._gate, self._tally, self._settings = gate, tally, settings
        self._run_id, self._drop_claim, self._start_over = (
            run_id,
            drop_claim,
            start_over,
        )
        self._failed_running = 0
        self.usual = job.dialect
        self.use(self.usual)

    def use(self, dialect: Dialect) -> None:
        """Ask in this dialect; nothing is stored under it before it is settled."""
        identity = self._job.identity_in(dialect)
        self._client.use(identity, dialect)
        # What is billed beside the user message: wording and schema, as sent.
        self._overhead = request_bytes(identity)

    def _settle_on(self, pending: Pending, dialect: Dialect, *, known: bool) -> None:
        """Keep to a dialect; under another judge id other keys are missing."""
        self.use(dialect)
        pending.trying = False
        before = self._job.judge_id
        self._job.settle(dialect, known=known)
        if self._job.judge_id == before:
            return
        # A reply that was asked twice in forms given up is not asked a third time.
        self._tally.failures |= self._tally.tried
        self._tally.judged -= set(self._tally.tried)
        pending.item = self._job.worklist.item(pending.item.entry)
        self._start_over(pending)

    async def judge(self, pending: Pending) -> None:
        """Ask until there is a verdict, or a reason why there is none."""
        try:
            while await self._ask(pending):
                pass
        except asyncio.CancelledError:
            self._end_unasked(pending)
            raise

    async def _ask(self, pending: Pending) -> bool:
        """Ask once; True if the verdict is still open."""
        item = pending.item
        cap = pending.cap or self._settings.max_completion_tokens
        started = await self._gate.enter(item.size // 4 + cap)
        outcome: Outcome | None = None
        reservation: Reservation | None = None
        try:
            reservation = await self._books.book(self._overhead + item.size, cap)
            if reservation is None:
                self._end_unasked(pending)
                return False
            self._tally.calls += 1
            pending.calls += 1
            pending.asked_at = utc_now()
            outcome = await self._client.call(item.message.text, tokens=pending.cap)
        finally:
            self._gate.leave(fine=outcome is not None and outcome.kind == "answer")
            if reservation is not None:
                self._note(pending, reservation, outcome)
        if outcome.kind == "stop":
            self._end_unasked(pending)
            raise RunStoppedError(outcome.message)
        if outcome.kind == "adapt":
            self._adapt(pending, outcome)
            return True
        if outcome.kind == "again":
            return await self._again(pending, outcome, started)
        if outcome.kind == "row":
            return self._refused(pending, outcome)
        return self._read(pending, outcome)

    def _note(
        self, pending: Pending, reservation: Reservation, outcome: Outcome | None
    ) -> None:
        """Write one call into the ledger, the sums and the diary."""
        cost = self._books.settle(reservation, outcome)
        billed = outcome is None or outcome.billed
        usage = outcome.usage if outcome is not None else None
        pending.paid += billed
        if usage is not None:
            self._tally.add_usage(usage, cost)
        elif billed:
            self._tally.unknown_usage += 1
        if billed:
            known = cost is not None and pending.cost is not None
            pending.cost = pending.cost + cost if known else None  # type: ignore[operator]
        reading = outcome.reading if outcome is not None else None
        pending.attempts.append(
            Attempt(
                key=pending.item.key,
                run_id=self._run_id,
                outcome=reading.status if reading is not None else "failed",
                detail=(reading.detail or "") if reading is not None else "cancelled",
                call_id=reservation.call_id,
                started_at=pending.asked_at,
                latency_ms=outcome.latency_ms if outcome is not None else None,
                prompt_tokens=usage.prompt_tokens if usage else None,
                cached_tokens=usage.cached_tokens if usage else None,
                completion_tokens=usage.completion_tokens if usage else None,
                cost_usd=cost,
            )
        )

    def _read(self, pending: Pending, outcome: Outcome) -> bool:
        """Decide on an answer; True if it must be asked for once more."""
        reading = outcome.reading
        if reading.detail == "not_a_completion" and pending.trying:
            self._end_unasked(pending)
            raise RunStoppedError(
                f"{self._job.base_url} answered, but not with a chat completion. "
                "Check --base-url: most servers want it to end in /v1."
            )
        pending.best = outcome
        if pending.trying:
            ignored = reading.status == "invalid" and reading.detail in _IGNORED
            if not ignored:
                # Refused or cut short, an answer says nothing about the form.
                known = reading.status in {"scored", "invalid"}
                self._settle_on(pending, self._client.dialect, known=known)
                pending.first = None
            elif self._doubt(pending, outcome):
                return True
        if pending.abandoned:  # no form fits, and no call is left for this reply
            self._fail(pending, reading.status, reading.detail or "")
            return False
        if reading.status not in _RE_ASK or pending.paid >= MAX_PAID:
            self._end(pending, pending.first or outcome)
            return False
        if reading.status == "truncated":
            pending.cap = 2 * self._settings.max_completion_tokens
        return True

    def _doubt(self, pending: Pending, outcome: Outcome) -> bool:
        """The answer does not fit: is it the form's fault? True to try another."""
        form = self._client.dialect.next_form()
        usual = self._client.dialect == self.usual
        if usual and form is not None and pending.paid < MAX_PAID:
            pending.first = outcome
            self.use(form)
            return True
        # No form fits: what the usual form gives stands.
        self._settle_on(pending, self.usual, known=False)
        if usual or pending.first is not None:
            return False
        pending.best = None  # it was given in a form that is not used
        pending.abandoned = pending.paid >= MAX_PAID
        return not pending.abandoned

    def _adapt(self, pending: Pending, outcome: Outcome) -> None:
        """The server does not take a parameter or schema: ask differently."""
        pending.adapted += 1
        if not pending.trying or outcome.dialect is None or pending.adapted > 8:
            self._end_unasked(pending)
            self._job.forget()
            raise RunStoppedError(
                f"{self._job.base_url} no longer takes what it took before "
                f"({outcome.message}). Run again: it will be asked anew what it takes, "
                "as another judge id."
            )
        if self._client.dialect == self.usual:
            self.usual = outcome.dialect
        self.use(outcome.dialect)

    def _refused(self, pending: Pending, outcome: Outcome) -> bool:
        """This row cannot be judged; True to ask again, in the usual form."""
        about_request = outcome.reading.detail in {"http_400", "http_422"}
        if pending.trying and about_request and self._client.dialect != self.usual:
            # The form that was tried is not taken here: the usual one stands.
            self._settle_on(pending, self.usual, known=False)
            if pending.first is None:
                return True
        elif pending.trying and about_request:
            self._end_unasked(pending)
            raise RunStoppedError(
                f"{self._job.base_url} refused the request ({outcome.message}). "
                "Check --model and the parameters."
            )
        self._end(pending, pending.first or outcome)
        return False

    async def _again(self, pending: Pending, outcome: Outcome, started: float) -> bool:
        """After a fault that may pass: wait; True to ask again, False to give up."""
        if outcome.limited:
            pending.turned_away += 1
            self._gate.slow_down(started)
            again = backoff(pending.turned_away, first=FIRST_WAIT)
            self._gate.hold(outcome.wait or again)
            over = pending.turned_away >= MAX_TURNED_AWAY
        else:
            pending.faults += 1
            self._gate.hold(outcome.wait)
            attempts = self._settings.attempts
            over = pending.faults >= attempts or pending.paid >= MAX_PAID
        if over:
            self._end(pending, pending.first or pending.best or outcome)
            return False
        if not outcome.limited:
            await asyncio.sleep(backoff(pending.faults, first=FIRST_WAIT))
        return True

    def _end_unasked(self, pending: Pending) -> None:
        """The run ends before this verdict does."""
        if pending.best is not None:  # paid once: what it said is kept
            self._end(pending, pending.first or pending.best)
        else:
            self._fail(pending, "not_judged", self._tally.unreached)

    def _fail(self, pending: Pending, status: str, detail: str) -> None:
        failure = Failure(status, detail, pending.calls)
        self._tally.failures[pending.item.entry] = failure
        self._books.keep(None, pending.attempts)

    def _end(self, pending: Pending, outcome: Outcome) -> None:
        """A verdict is decided: keep it, if it is one, and count it."""
        if pending.trying:  # nothing was learnt of the server but what it refused
            self._settle_on(pending, self.usual, known=False)
        reading, item = outcome.reading, pending.item
        detail = "; ".join(x for x in (reading.detail, item.message.note) if x)
        self._tally.answered += 1
        self._tally.without_score += reading.status != "scored"
        if reading.status == "failed":
            self._fail(pending, "failed", detail)
            self._drop_claim(item.key)
            self._failed_running += 1
            self._check_dead(outcome)
            return
        self._failed_running = 0
        if not self._job.dialect_known:
            failure = Failure(reading.status, detail, pending.calls)
            self._tally.tried[item.entry] = failure
        usage = outcome.usage
        verdict = StoredVerdict(
            key=item.key,
            judge_id=self._job.judge_id,
            user_message=item.message.text,
            vote=item.vote,
            score=reading.score,
            reason=reading.reason,
            status=reading.status,
            status_detail=detail,
            model_returned=outcome.model_returned,
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=usage.cached_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            cost_usd=pending.cost,
            latency_ms=outcome.latency_ms,
            attempts=pending.calls,
            judged_at=utc_now(),
            raw=outcome.raw or None,
        )
        self._tally.judged.add(item.entry)
        self._books.keep(verdict, pending.attempts)

    def _check_dead(self, outcome: Outcome) -> None:
        """Stop when nothing works any more, rather than fail every row in turn."""
        detail = outcome.reading.detail or ""
        limit = max(20, 2 * self._settings.concurrency)
        if detail == "connect" and not self._job.dialect_known:
            limit = 1
        if detail != "too_long" and self._failed_running >= limit:
            raise RunStoppedError(
                f"{self._job.base_url} does not answer: {self._failed_running} "
                f"verdicts in a row failed, the last with {detail} "
                f"({outcome.message}). Check that the server runs and --base-url is "
                "right, then run again: what was judged is kept."
            )

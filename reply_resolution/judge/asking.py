"""Asking for one verdict, until there is one or a reason why there is none."""

import asyncio
from collections.abc import Callable

from reply_resolution.judge.budget import Ledger, Reservation
from reply_resolution.judge.case import (
    Case,
    Failure,
    Record,
    RunStoppedError,
    Settings,
    utc_now,
)
from reply_resolution.judge.client import Client, Outcome
from reply_resolution.judge.desk import Desk, request_bytes
from reply_resolution.judge.dialect import Dialect, next_form
from reply_resolution.judge.keeping import Bookkeeper
from reply_resolution.judge.pacing import Gate, backoff
from reply_resolution.judge.store import Attempt, StoredVerdict

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


class Asker:
    """Asks one judge for one verdict after another.

    Attributes:
        usual: The dialect to fall back on when no other way of asking helps.
    """

    def __init__(
        self,
        *,
        desk: Desk,
        client: Client,
        books: Bookkeeper,
        ledger: Ledger,
        gate: Gate,
        record: Record,
        settings: Settings,
        run_id: str,
        drop_claim: Callable[[str], None],
        start_over: Callable[[Case], None],
    ) -> None:
        """Take what asking needs.

        Args:
            desk: What is to be asked, as whom.
            client: Asks.
            books: Books calls, keeps verdicts.
            ledger: Knows prices.
            gate: Paces.
            record: What is found out goes there.
            settings: Limits of the run.
            run_id: Names the run in the diary of calls.
            drop_claim: Lets others have a key that failed.
            start_over: Called when the judge id has changed, and with it every key.
        """
        self._desk, self._client, self._books = desk, client, books
        self._ledger, self._gate, self._record = ledger, gate, record
        self._settings, self._run_id = settings, run_id
        self._drop_claim, self._start_over = drop_claim, start_over
        self._failed_running = 0
        self._overhead = 0
        self.usual = desk.dialect
        self.use(self.usual)

    def use(self, dialect: Dialect) -> None:
        """Ask in this dialect; nothing is stored under it before it is settled."""
        identity = self._desk.identity_in(dialect)
        self._client.use(identity, dialect)
        # What is billed beside the user message: wording and schema, as sent.
        self._overhead = request_bytes(identity)

    def _settle_on(self, case: Case, *, known: bool) -> None:
        """Keep to the dialect in use; under another judge id other keys are missing."""
        case.trying = False
        before = self._desk.judge_id
        self._desk.settle(self._client.dialect, known=known)
        if self._desk.judge_id == before:
            return
        # A reply that was asked twice in forms given up is not asked a third time.
        self._record.failures |= self._record.tried
        self._record.judged -= set(self._record.tried)
        case.item = self._desk.item(case.item.entry)
        self._start_over(case)

    async def judge(self, case: Case) -> None:
        """Ask until there is a verdict, or a reason why there is none."""
        try:
            while await self._ask(case):
                pass
        except asyncio.CancelledError:
            self._end_unasked(case)
            raise

    async def _ask(self, case: Case) -> bool:
        """Ask once; True if the verdict is still open."""
        cap = case.cap or self._settings.max_completion_tokens
        started = await self._gate.enter(case.item.size // 4 + cap)
        outcome: Outcome | None = None
        reservation: Reservation | None = None
        try:
            size = self._overhead + case.item.size
            reservation = await self._books.book(size, cap)
            if reservation is None:
                self._end_unasked(case)
                return False
            self._record.tally.calls += 1
            case.calls += 1
            case.asked_at = utc_now()
            outcome = await self._client.call(case.item.message.text, tokens=case.cap)
        finally:
            self._gate.leave(fine=outcome is not None and outcome.kind == "answer")
            if reservation is not None:
                self._books.settle(reservation, outcome)
                self._note(case, reservation, outcome)
        if outcome.kind == "stop":
            self._end_unasked(case)
            raise RunStoppedError(outcome.message)
        if outcome.kind == "adapt":
            self._adapt(case, outcome)
            return True
        if outcome.kind == "again":
            return await self._again(case, outcome, started)
        if outcome.kind == "row":
            self._check_first(case, outcome)
            self._end(case, outcome)
            return False
        return self._read(case, outcome)

    def _read(self, case: Case, outcome: Outcome) -> bool:
        """Decide on an answer; True if it must be asked for once more."""
        reading = outcome.reading
        if reading.detail == "not_a_completion" and case.trying:
            self._end_unasked(case)
            raise RunStoppedError(
                f"{self._desk.base_url} answered, but not with a chat completion. "
                "Check --base-url: most servers want it to end in /v1."
            )
        case.best = outcome
        if case.trying:
            ignored = reading.status == "invalid" and reading.detail in _IGNORED
            if not ignored:
                # Refused or cut short, an answer says nothing about the form.
                self._settle_on(case, known=reading.status in {"scored", "invalid"})
                case.first = None
            elif self._doubt(case, outcome):
                return True
        if case.abandoned:  # no form fits, and no call is left for this reply
            failure = Failure(reading.status, reading.detail or "", case.calls)
            self._record.failures[case.item.entry] = failure
            self._books.keep(None, case.attempts)
            return False
        if reading.status not in _RE_ASK or case.paid >= MAX_PAID:
            self._end(case, case.first or outcome)
            return False
        if reading.status == "truncated":
            case.cap = 2 * self._settings.max_completion_tokens
        return True

    def _doubt(self, case: Case, outcome: Outcome) -> bool:
        """The answer does not fit what was asked for: is it the form's fault?

        Returns:
            Whether to ask for the same verdict in another form.
        """
        form = next_form(self._client.dialect)
        usual = self._client.dialect == self.usual
        if usual and form is not None and case.paid < MAX_PAID:
            case.first = outcome
            self.use(form)
            return True
        # No form fits: what the usual form gives stands.
        self.use(self.usual)
        self._settle_on(case, known=False)
        if usual or case.first is not None:
            return False
        case.best = None  # it was given in a form that is not used
        case.abandoned = case.paid >= MAX_PAID
        return not case.abandoned

    def _adapt(self, case: Case, outcome: Outcome) -> None:
        """The server does not take a parameter or schema: ask differently."""
        case.adapted += 1
        if not case.trying or outcome.dialect is None or case.adapted > 8:
            self._end_unasked(case)
            self._desk.forget()
            raise RunStoppedError(
                f"{self._desk.base_url} no longer takes what it took before "
                f"({outcome.message}). Run again: it will be asked anew what it takes, "
                "as another judge id."
            )
        if self._client.dialect == self.usual:
            self.usual = outcome.dialect
        self.use(outcome.dialect)

    def _check_first(self, case: Case, outcome: Outcome) -> None:
        """A refusal of the very first request is about the request, not the row."""
        detail = outcome.reading.detail or ""
        if case.trying and detail in {"http_400", "http_422"}:
            self._end_unasked(case)
            raise RunStoppedError(
                f"{self._desk.base_url} refused the request ({outcome.message}). "
                "Check --model and the parameters."
            )

    async def _again(self, case: Case, outcome: Outcome, started: float) -> bool:
        """After a fault that may pass: wait; True to ask again, False to give up."""
        if outcome.limited:
            case.turned_away += 1
            self._gate.slow_down(started)
            pause = outcome.wait or backoff(case.turned_away, first=FIRST_WAIT)
            self._gate.hold(pause)
            over = case.turned_away >= MAX_TURNED_AWAY
        else:
            case.faults += 1
            if outcome.wait:
                self._gate.hold(outcome.wait)
            over = case.faults >= self._settings.attempts or case.paid >= MAX_PAID
        if over:
            self._end(case, case.first or case.best or outcome)
            return False
        if not outcome.limited:
            await asyncio.sleep(backoff(case.faults, first=FIRST_WAIT))
        return True

    def _note(
        self, case: Case, reservation: Reservation, outcome: Outcome | None
    ) -> None:
        """Write one call into the diary and the sums."""
        billed = outcome is None or outcome.billed
        usage = outcome.usage if outcome is not None else None
        case.paid += billed
        cost = None
        if usage is not None:
            counts = usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
            cost = self._ledger.cost_usd(*counts)
            self._record.tally.add_usage(usage, cost)
        elif billed:
            self._record.tally.unknown_usage += 1
        if billed:
            known = cost is not None and case.cost is not None
            case.cost = case.cost + cost if known else None  # type: ignore[operator]
        reading = outcome.reading if outcome is not None else None
        case.attempts.append(
            Attempt(
                key=case.item.key,
                run_id=self._run_id,
                outcome=reading.status if reading is not None else "failed",
                detail=(reading.detail or "") if reading is not None else "cancelled",
                call_id=reservation.call_id,
                started_at=case.asked_at,
                latency_ms=outcome.latency_ms if outcome is not None else None,
                prompt_tokens=usage.prompt_tokens if usage else None,
                cached_tokens=usage.cached_tokens if usage else None,
                completion_tokens=usage.completion_tokens if usage else None,
                cost_usd=cost,
            )
        )

    def _end_unasked(self, case: Case) -> None:
        """The run ends before this verdict does."""
        if case.best is not None:  # paid once: what it said is kept
            if case.trying:
                self.use(self.usual)
                self._settle_on(case, known=False)
            self._end(case, case.first or case.best)
            return
        detail = self._books.unreached(interrupted=self._record.tally.interrupted)
        self._record.failures[case.item.entry] = Failure(
            "not_judged", detail, attempts=case.calls
        )
        self._books.keep(None, case.attempts)

    def _end(self, case: Case, outcome: Outcome) -> None:
        """A verdict is decided: keep it, if it is one, and count it."""
        reading, item = outcome.reading, case.item
        notes = [x for x in (reading.detail, item.message.note) if x]
        detail = "; ".join(notes)
        self._record.tally.answered += 1
        self._record.tally.statuses[reading.status] += 1
        if reading.status == "failed":
            self._record.failures[item.entry] = Failure(
                "failed", detail, attempts=case.calls
            )
            self._books.keep(None, case.attempts)
            self._drop_claim(item.key)
            self._failed_running += 1
            self._check_dead(outcome)
            return
        self._failed_running = 0
        if not self._desk.dialect_known:
            self._record.tried[item.entry] = Failure(reading.status, detail, case.calls)
        usage = outcome.usage
        verdict = StoredVerdict(
            key=item.key,
            judge_id=self._desk.judge_id,
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
            cost_usd=case.cost,
            latency_ms=outcome.latency_ms,
            attempts=case.calls,
            judged_at=utc_now(),
            raw=outcome.raw or None,
        )
        self._record.judged.add(item.entry)
        self._books.keep(verdict, case.attempts)

    def _check_dead(self, outcome: Outcome) -> None:
        """Stop when nothing works any more, rather than fail every row in turn."""
        detail = outcome.reading.detail or ""
        limit = max(20, 2 * self._settings.concurrency)
        if detail == "connect" and not self._desk.dialect_known:
            limit = 1
        if detail != "too_long" and self._failed_running >= limit:
            raise RunStoppedError(
                f"{self._desk.base_url} does not answer: {self._failed_running} "
                f"verdicts in a row failed, the last with {detail} "
                f"({outcome.message}). Check that the server runs and --base-url is "
                "right, then run again: what was judged is kept."
            )

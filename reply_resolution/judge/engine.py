"""The run: workers ask, one clock paces them, one bookkeeper books and keeps.

Everything here runs in one event loop, in a thread of its own; the user's loop, if
there is one, is never touched.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from reply_resolution.errors import JudgeError
from reply_resolution.judge.budget import Ledger, Reservation
from reply_resolution.judge.client import Client, Outcome, Usage
from reply_resolution.judge.desk import Desk, request_bytes
from reply_resolution.judge.dialect import Dialect, next_form
from reply_resolution.judge.identity import ADAPTATIONS
from reply_resolution.judge.keeping import Bookkeeper
from reply_resolution.judge.pacing import Gate, backoff
from reply_resolution.judge.store import Attempt, CacheStore, Refusal, StoredVerdict
from reply_resolution.judge.worklist import Item

#: Seconds before the second attempt after a fault that may pass.
FIRST_WAIT = 0.5
#: Paid calls for one verdict, re-asks and timeouts included.
MAX_PAID = 2
#: Calls the server turned away (429, 503) that one verdict survives.
MAX_TURNED_AWAY = 12
#: Seconds in which calls in flight may end after an interrupt.
GRACE = 2.0
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


class RunStoppedError(JudgeError):
    """The run could not go on; what was judged is kept.

    Attributes:
        run: The `JudgeRun` with what was judged before; None if there was nothing.
    """

    run: Any = None


@dataclass(slots=True)
class Tally:
    """What a run did, counted as it goes.

    Attributes:
        calls: HTTP calls made.
        answered: Verdicts this run obtained, whatever their status.
        prompt_tokens, cached_tokens, completion_tokens: As billed; unknown ones are 0.
        unknown_usage: Billed calls whose tokens the server did not say.
        cost_usd: Price of the known part, USD; None without a known price.
        statuses: Verdicts by status.
        refusal: The cap that ended the run; None if none did.
        interrupted: Whether the user stopped it.
        waited_for: Verdicts another process was getting at the same time.
        overbilled: Whether the server billed more than a call's worst case.
    """

    calls: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    unknown_usage: int = 0
    cost_usd: float | None = None
    statuses: Counter[str] = field(default_factory=Counter)
    refusal: Refusal | None = None
    interrupted: bool = False
    waited_for: int = 0
    overbilled: bool = False

    def add_usage(self, usage: Usage, cost: float | None) -> None:
        """Count what one call used."""
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.completion_tokens += usage.completion_tokens
        if cost is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost


@dataclass(slots=True)
class _Case:
    """One verdict on its way: what its calls have come to so far."""

    item: Item
    trying: bool = False  # the server is being met
    paid: int = 0
    faults: int = 0
    turned_away: int = 0
    adapted: int = 0
    calls: int = 0
    cost: float | None = 0.0
    cap: int | None = None  # tokens of the answer, if other than usual
    best: Outcome | None = None  # the last answer
    first: Outcome | None = None  # the answer in the usual form, while trying
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an entry has no stored verdict.

    Attributes:
        status: `failed` or `not_judged`; of a reply judged while the server was being
            met, the status it got in a form then given up.
        detail: One word or two.
        attempts: Calls made.
    """

    status: str
    detail: str
    attempts: int = 0


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
    attempts: int = 5
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    bounded: bool = False


def utc_now() -> str:
    """UTC time, ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Engine:
    """Judges the missing entries of a worklist."""

    def __init__(
        self,
        *,
        desk: Desk,
        cache: CacheStore,
        ledger: Ledger,
        settings: Settings,
        owner: str,
        run_id: str,
    ) -> None:
        """Get everything ready; nothing is sent before `main` runs.

        Args:
            desk: What is to be asked, as whom, and how to reach the server.
            cache: Keeps verdicts and claims.
            ledger: Books calls.
            settings: Limits of the run.
            owner: Holds the claims.
            run_id: Names the run in the diary of calls.
        """
        self.tally = Tally()
        self.failures: dict[int, Failure] = {}
        self._tried: dict[int, Failure] = {}  # judged before the form was settled
        self.judged: set[int] = set()
        #: Entries another process judged while we ran.
        self.taken: list[int] = []
        self._desk, self._cache, self._ledger = desk, cache, ledger
        self._settings, self._owner, self._run_id = settings, owner, run_id
        self.gate = Gate(
            settings.concurrency,
            requests_per_minute=settings.requests_per_minute,
            tokens_per_minute=settings.tokens_per_minute,
        )
        self._ready: deque[int] = deque()
        self._elsewhere: list[int] = []
        self._claimed: set[str] = set()
        self._stop_error: BaseException | None = None
        self._stopping = False
        self._failed_running = 0
        self._overhead = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._pending: Iterator[int] = iter(())
        self._loop: asyncio.AbstractEventLoop
        self._client: Client
        self._books: Bookkeeper

    # The run

    async def main(self) -> None:
        """Judge everything that is missing, or as much as is allowed.

        Raises:
            RunStoppedError: The server refused the run as a whole.
            CacheError: Results could not be kept.
        """
        self._loop = asyncio.get_running_loop()
        self._books = Bookkeeper(
            self._cache, self._ledger, bounded=self._settings.bounded
        )
        self._client = self._desk.client()
        self._usual = self._desk.dialect
        self._use(self._usual)
        self._pending = self._desk.missing()
        try:
            if not self._desk.dialect_known:
                await self._run([self._try_out()])
            while not self._ended:
                workers = range(self._settings.concurrency)
                await self._run([self._worker() for _ in workers])
                if self._ended or not await self._wait_for_others():
                    break
        finally:
            try:
                self._books.commit()
                self._cache.release(self._claimed, self._owner)
            finally:
                await self._client.close()
        self.tally.refusal = self._books.refusal
        self.tally.overbilled = self._books.overbilled
        for error in (self._stop_error, self._books.broken):
            if error is not None:
                raise error

    @property
    def _ended(self) -> bool:
        books = self._books
        return self._stopping or books.refusal is not None or books.broken is not None

    def interrupt(self) -> None:
        """Stop as the user asks; called in the loop. The second time, at once."""
        if self.tally.interrupted:
            self._cancel()
        else:
            self.tally.interrupted = self._stopping = True
            self._books.close()
            self._loop.call_later(GRACE, self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _run(self, work: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run workers to their end; the first error of one stops them all."""
        self._tasks = [asyncio.create_task(coroutine) for coroutine in work]
        done, left = await asyncio.wait(
            self._tasks, return_when=asyncio.FIRST_EXCEPTION
        )
        if left:
            # Calls in flight are paid for: let them end, but start no others.
            self._stopping = True
            self._books.close()
            more, left = await asyncio.wait(left, timeout=GRACE)
            done |= more
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)
        self._tasks = []
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._stop_error = self._stop_error or error
                self._stopping = True

    async def _worker(self) -> None:
        while (entry := self._next(self._settings.concurrency)) is not None:
            await self._judge(_Case(self._desk.item(entry)))

    def _next(self, block: int) -> int | None:
        """The next entry that nobody else is judging, claimed; None at the end."""
        while not self._ended:
            if self._ready:
                return self._ready.popleft()
            entries = list(islice(self._pending, block))
            if not entries:
                return None
            self._elsewhere += self._claim(entries)
        return None

    def _claim(self, entries: list[int]) -> list[int]:
        """Claim entries: those that are ours become ready, the others come back."""
        keys = {self._desk.key(e): e for e in entries}
        # Longer than one verdict can take, so that a claim ends only with its owner.
        lease = 900.0 + 2 * self._settings.attempts * self._settings.timeout
        mine = self._cache.claim(list(keys), self._owner, lease)
        self._claimed |= mine
        self._ready.extend(e for key, e in keys.items() if key in mine)
        return [e for key, e in keys.items() if key not in mine]

    async def _wait_for_others(self) -> bool:
        """Wait for verdicts other processes are getting; True if some came to us."""
        while self._elsewhere and not self._ended:
            keys = {self._desk.key(e): e for e in self._elsewhere}
            done = set(self._cache.get_frame(list(keys))["key"])
            self.tally.waited_for += len(done)
            self.taken += [e for key, e in keys.items() if key in done]
            left = [e for key, e in keys.items() if key not in done]
            self._elsewhere = self._claim(left) if left else []
            if self._ready:
                return True
            if self._elsewhere:
                await asyncio.sleep(0.2)
        return False

    # Meeting a server

    async def _try_out(self) -> None:
        """Meet a new server: one row at a time, until an answer fits what was asked.

        A schema may be refused (a 400 says so) or accepted and ignored (only the
        answer shows it). The first row is asked by schema and, if the answer does not
        fit, by tool; the second as plain JSON. If nothing fits, the model is to blame
        and not the form, and the usual form is used.
        """
        for form in (self._usual.answer, ADAPTATIONS[-1]):
            entry = self._next(1)
            if entry is None or self._desk.dialect_known:
                return
            if form != self._usual.answer:
                self._use(replace(self._usual, answer=form))
            case = _Case(self._desk.item(entry), trying=True)
            await self._judge(case)
            if case.first is None:  # its form was not in doubt
                return

    def _use(self, dialect: Dialect) -> None:
        """Ask in this dialect; nothing is stored under it before it is settled."""
        identity = self._desk.identity_in(dialect)
        self._client.use(identity, dialect)
        # What is billed beside the user message: wording and schema, as sent.
        self._overhead = request_bytes(identity)

    def _settle_on(self, case: _Case, *, known: bool) -> None:
        """Keep to the dialect in use; under another judge id other keys are missing."""
        case.trying = False
        before = self._desk.judge_id
        self._desk.settle(self._client.dialect, known=known)
        if self._desk.judge_id == before:
            return
        entry = case.item.entry
        self._cache.release(self._claimed, self._owner)
        self._claimed.clear()
        self._ready.clear()
        self._elsewhere.clear()
        case.item = self._desk.item(entry)
        self._claimed |= self._cache.claim([case.item.key], self._owner)
        # A reply that was asked twice in forms given up is not asked a third time.
        self.failures |= self._tried
        self.judged -= set(self._tried)
        spent = {entry, *self.failures}
        self._pending = (e for e in self._desk.missing() if e not in spent)

    # One verdict

    async def _judge(self, case: _Case) -> None:
        """Ask until there is a verdict, or a reason why there is none."""
        try:
            while await self._ask(case):
                pass
        except asyncio.CancelledError:
            self._end_unasked(case)
            raise

    async def _ask(self, case: _Case) -> bool:
        """Ask once; True if the verdict is still open."""
        cap = case.cap or self._settings.max_completion_tokens
        started = await self.gate.enter(case.item.size // 4 + cap)
        outcome: Outcome | None = None
        reservation: Reservation | None = None
        try:
            size = self._overhead + case.item.size
            reservation = await self._books.book(size, cap)
            if reservation is None:
                self._end_unasked(case)
                return False
            self.tally.calls += 1
            case.calls += 1
            outcome = await self._client.call(case.item.message.text, tokens=case.cap)
        finally:
            self.gate.leave(fine=outcome is not None and outcome.kind == "answer")
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

    def _read(self, case: _Case, outcome: Outcome) -> bool:
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
        if reading.status not in _RE_ASK or case.paid >= MAX_PAID:
            self._end(case, case.first or outcome)
            return False
        if reading.status == "truncated":
            case.cap = 2 * self._settings.max_completion_tokens
        return True

    def _doubt(self, case: _Case, outcome: Outcome) -> bool:
        """The answer does not fit what was asked for: is it the form's fault?

        Returns:
            Whether to ask for the same verdict in another form.
        """
        form = next_form(self._client.dialect)
        usual = self._client.dialect == self._usual
        if usual and form is not None and case.paid < MAX_PAID:
            case.first = outcome
            self._use(form)
            return True
        # No form fits: what the usual form gave stands.
        self._use(self._usual)
        self._settle_on(case, known=False)
        return not usual and case.first is None and case.paid < MAX_PAID

    def _adapt(self, case: _Case, outcome: Outcome) -> None:
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
        if self._client.dialect == self._usual:
            self._usual = outcome.dialect
        self._use(outcome.dialect)

    def _check_first(self, case: _Case, outcome: Outcome) -> None:
        """A refusal of the very first request is about the request, not the row."""
        detail = outcome.reading.detail or ""
        if case.trying and detail in {"http_400", "http_422"}:
            self._end_unasked(case)
            raise RunStoppedError(
                f"{self._desk.base_url} refused the request ({outcome.message}). "
                "Check --model and the parameters."
            )

    async def _again(self, case: _Case, outcome: Outcome, started: float) -> bool:
        """After a fault that may pass: wait; True to ask again, False to give up."""
        if outcome.limited:
            case.turned_away += 1
            self.gate.slow_down(started)
            pause = outcome.wait or backoff(case.turned_away, first=FIRST_WAIT)
            self.gate.hold(pause)
            over = case.turned_away >= MAX_TURNED_AWAY
        else:
            case.faults += 1
            if outcome.wait:
                self.gate.hold(outcome.wait)
            over = case.faults >= self._settings.attempts or case.paid >= MAX_PAID
        if over:
            self._end(case, case.best or outcome)
            return False
        if not outcome.limited:
            await asyncio.sleep(backoff(case.faults, first=FIRST_WAIT))
        return True

    def _note(
        self, case: _Case, reservation: Reservation, outcome: Outcome | None
    ) -> None:
        """Write one call into the diary and the sums."""
        billed = outcome is None or outcome.billed
        usage = outcome.usage if outcome is not None else None
        case.paid += billed
        cost = None
        if usage is not None:
            counts = usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
            cost = self._ledger.cost_usd(*counts)
            self.tally.add_usage(usage, cost)
        elif billed:
            self.tally.unknown_usage += 1
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
                started_at=utc_now(),
                latency_ms=outcome.latency_ms if outcome is not None else None,
                prompt_tokens=usage.prompt_tokens if usage else None,
                cached_tokens=usage.cached_tokens if usage else None,
                completion_tokens=usage.completion_tokens if usage else None,
                cost_usd=cost,
            )
        )

    def _end_unasked(self, case: _Case) -> None:
        """The run ends before this verdict does."""
        if case.best is not None:  # paid once: what it said is kept
            if case.trying:
                self._use(self._usual)
                self._settle_on(case, known=False)
            self._end(case, case.first or case.best)
            return
        detail = self.unreached
        self.failures[case.item.entry] = Failure(
            "not_judged", detail, attempts=case.calls
        )
        self._books.keep(None, case.attempts)

    @property
    def unreached(self) -> str:
        """Why a row was not reached, one word: budget, interrupted or stopped."""
        if self.tally.interrupted:
            return "interrupted"
        return "budget" if self._books.refusal is not None else "stopped"

    def _end(self, case: _Case, outcome: Outcome) -> None:
        """A verdict is decided: keep it, if it is one, and count it."""
        reading, item = outcome.reading, case.item
        notes = [x for x in (reading.detail, item.message.note) if x]
        detail = "; ".join(notes)
        self.tally.answered += 1
        self.tally.statuses[reading.status] += 1
        if reading.status == "failed":
            self.failures[item.entry] = Failure("failed", detail, attempts=case.calls)
            self._books.keep(None, case.attempts)
            self._cache.release([item.key], self._owner)
            self._claimed.discard(item.key)
            self._failed_running += 1
            self._check_dead(outcome)
            return
        self._failed_running = 0
        if not self._desk.dialect_known:
            self._tried[item.entry] = Failure(reading.status, detail, case.calls)
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
        self._claimed.discard(item.key)  # keeping it ends the claim
        self.judged.add(item.entry)
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

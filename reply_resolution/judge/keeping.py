"""Where a run's money and results are written down: bookings before, verdicts after.

The loop's thread is the only one that comes here, so bookings wanted in the same tick
go into one transaction, and verdicts are committed in groups. A booking that is not
committed back yet stays counted in full, so grouping never loosens the cap.
"""

import asyncio

from reply_resolution.judge.budget import Ledger, Reservation
from reply_resolution.judge.client import Outcome
from reply_resolution.judge.store import Attempt, CacheStore, Refusal, StoredVerdict

#: Verdicts are committed when so many are waiting, or the oldest waits so long.
COMMIT_ROWS = 64
COMMIT_SECONDS = 1.0
# How often a refused booking asks again while calls in flight may make room.
_ASK_AGAIN = 0.1


class Bookkeeper:
    """Books calls, keeps verdicts, commits both.

    Attributes:
        refusal: The cap that ended the run; None if none did.
        broken: What went wrong while writing; None if nothing.
        overbilled: Whether the server billed more than a call's worst case.
    """

    def __init__(self, cache: CacheStore, ledger: Ledger, *, bounded: bool) -> None:
        """Use one cache and one ledger; `start` comes before anything else.

        Args:
            cache: Keeps verdicts.
            ledger: Books calls.
            bounded: Whether a cap on tokens or USD must hold.
        """
        self.overbilled = False
        self._bounded = bounded
        self.refusal: Refusal | None = None
        self.broken: BaseException | None = None
        self._cache, self._ledger = cache, ledger
        self._loop: asyncio.AbstractEventLoop
        self._wanted: list[tuple[int, int, asyncio.Future[Reservation | None]]] = []
        self._booking: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._verdicts: list[StoredVerdict] = []
        self._attempts: list[Attempt] = []
        self._settled: list[tuple[Reservation, int | None, int | None, int | None]] = []
        self._closed = False

    def start(self) -> None:
        """Work in the loop that is running now."""
        self._loop = asyncio.get_running_loop()

    async def book(self, prompt_bytes: int, max_tokens: int) -> Reservation | None:
        """Book one call; None where a cap ends the run (or it is being stopped)."""
        if self._closed:
            return None
        future: asyncio.Future[Reservation | None] = self._loop.create_future()
        self._wanted.append((prompt_bytes, max_tokens, future))
        if self._booking is None:
            self._booking = self._loop.call_soon(self._book)
        try:
            return await future
        except asyncio.CancelledError:
            # Booked in the tick in which we were cancelled: the call is never sent.
            if future.done() and not future.cancelled():
                made = future.result()
                if made is not None:
                    self._ledger.release(made)
            raise

    def _book(self) -> None:
        """Book all that is wanted now, in one transaction."""
        self._booking = None
        wanted = [w for w in self._wanted if not w[2].done()]
        self._wanted = []
        if not wanted:
            return
        try:
            made = self._ledger.reserve_many([(w[0], w[1]) for w in wanted])
            if len(made) < len(wanted) and self._settled:
                # What is settled but not committed is still counted in full.
                self.commit()
                left = [(w[0], w[1]) for w in wanted[len(made) :]]
                made += self._ledger.reserve_many(left)
        except BaseException as error:
            self._fail(error)
            for *_, future in wanted:
                future.set_exception(error)
            return
        for (*_, future), reservation in zip(wanted, made, strict=False):
            future.set_result(reservation)
        self._wanted = wanted[len(made) :] + self._wanted
        if not self._wanted:
            return
        refusal = self._ledger.refusal
        if refusal is not None and refusal.final:
            self.refusal = refusal
            self.close()
        else:
            self._booking = self._loop.call_later(_ASK_AGAIN, self._book)

    def close(self) -> None:
        """Book nothing any more; whoever waits for a booking gets None."""
        self._closed = True
        for *_, future in self._wanted:
            if not future.done():
                future.set_result(None)
        self._wanted = []

    def unreached(self, *, interrupted: bool) -> str:
        """Why a row was not reached, one word: budget, interrupted or stopped."""
        if interrupted:
            return "interrupted"
        return "budget" if self.refusal is not None else "stopped"

    def settle(self, reservation: Reservation, outcome: Outcome | None) -> None:
        """Note what a booked call cost; None (cancelled) and the unknown in full."""
        usage = outcome.usage if outcome is not None else None
        if outcome is not None and not outcome.billed:
            self._settled.append((reservation, 0, 0, 0))
        elif usage is None:
            self._settled.append((reservation, None, None, None))
        else:
            self._settled.append(
                (
                    reservation,
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    usage.cached_tokens,
                )
            )
        self._later()

    def keep(self, verdict: StoredVerdict | None, attempts: list[Attempt]) -> None:
        """Note a verdict (None if there is none to keep) and its calls."""
        if verdict is not None:
            self._verdicts.append(verdict)
        self._attempts += attempts
        if len(self._verdicts) >= COMMIT_ROWS:
            self.commit()
        else:
            self._later()

    def _later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(COMMIT_SECONDS, self._commit_now)

    def _commit_now(self) -> None:
        self._timer = None
        try:
            self.commit()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.broken is None:
            self.broken = error
        self.close()

    def commit(self) -> None:
        """Write down what is noted, in one transaction: verdicts and what they cost.

        Raises:
            CacheError: It cannot be written.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        verdicts, self._verdicts = self._verdicts, []
        attempts, self._attempts = self._attempts, []
        settled, self._settled = self._settled, []
        if not (verdicts or attempts or settled):
            return
        kept_within = True
        with self._cache.transaction():
            self._cache.put_many(verdicts)
            self._cache.add_attempts(attempts)
            if settled:
                kept_within = self._ledger.settle_many(settled)
        if not kept_within:
            self.overbilled = True
            if self._bounded and self.refusal is None:
                # No cap can hold against a server that bills more than was asked
                # for, so nothing more is asked.
                self.refusal = Refusal("over", "run", True)
                self.close()

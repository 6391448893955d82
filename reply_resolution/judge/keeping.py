"""Where a run's money and results are written down: bookings before, verdicts after.

The loop's thread is the only one that comes here, so bookings wanted in the same tick
go into one transaction, and verdicts are committed in groups. A booking that is not
committed back yet stays counted in full, so grouping never loosens the cap.
"""

import asyncio
from typing import TYPE_CHECKING

from reply_resolution.judge.budget import Ledger, Reservation
from reply_resolution.judge.reading import Outcome
from reply_resolution.judge.results import Tally
from reply_resolution.judge.store import Attempt, Refusal, StoredVerdict

if TYPE_CHECKING:
    from reply_resolution.judge.cache import Cache

#: Verdicts are committed when so many are waiting, or the oldest waits so long.
COMMIT_ROWS = 64
COMMIT_SECONDS = 1.0
# How often a refused booking asks again while calls in flight may make room.
_ASK_AGAIN = 0.1


class Bookkeeper:
    """Books calls, keeps verdicts, commits both; all within one event loop.

    Attributes:
        broken: What went wrong while writing; None if nothing.
    """

    def __init__(
        self, cache: "Cache", ledger: Ledger, tally: Tally, *, bounded: bool
    ) -> None:
        """Use one cache and one ledger; `bounded`: a cap on tokens or USD must hold."""
        self.broken: BaseException | None = None
        self._cache, self._ledger, self._tally = cache, ledger, tally
        self._bounded = bounded
        self._wanted: list[tuple[int, int, asyncio.Future[Reservation | None]]] = []
        self._booking: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._verdicts: list[StoredVerdict] = []
        self._attempts: list[Attempt] = []
        self._settled: list[tuple[Reservation, int | None, int | None, int | None]] = []
        self._closed = False

    async def book(self, prompt_bytes: int, max_tokens: int) -> Reservation | None:
        """Book one call; None where a cap ends the run (or it is being stopped)."""
        if self._closed:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reservation | None] = loop.create_future()
        self._wanted.append((prompt_bytes, max_tokens, future))
        if self._booking is None:
            self._booking = loop.call_soon(self._book)
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
                left = [] if self._closed else wanted[len(made) :]
                made += self._ledger.reserve_many([(w[0], w[1]) for w in left])
        except BaseException as error:
            self._fail(error)
            for *_, future in wanted:
                future.set_exception(error)
            return
        for (*_, future), reservation in zip(wanted, made, strict=False):
            future.set_result(reservation)
        self._wanted = wanted[len(made) :]
        if not self._wanted:
            return
        refusal = self._ledger.refusal
        if self._closed or (refusal is not None and refusal.final):
            self._tally.refusal = self._tally.refusal or refusal
            self.close()
        else:
            self._booking = asyncio.get_running_loop().call_later(
                _ASK_AGAIN, self._book
            )

    def close(self) -> None:
        """Book nothing any more; whoever waits for a booking gets None."""
        self._closed = True
        for *_, future in self._wanted:
            if not future.done():
                future.set_result(None)
        self._wanted = []

    def settle(self, reservation: Reservation, outcome: Outcome | None) -> float | None:
        """Note what a booked call cost; None (cancelled) and the unknown in full.

        Returns:
            USD; None where price or usage is not known.
        """
        usage = outcome.usage if outcome is not None else None
        tokens: tuple[int | None, int | None, int | None] = (None, None, None)
        if usage is not None:
            tokens = usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
        unbilled = outcome is not None and not outcome.billed
        self._settled.append((reservation, *((0, 0, 0) if unbilled else tokens)))
        self._later()
        return self._ledger.cost_usd(*tokens)

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
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(COMMIT_SECONDS, self._commit_now)

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

        What cannot be written now stays noted, for the last commit of the run.

        Raises:
            CacheError: It cannot be written.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (self._verdicts or self._attempts or self._settled):
            return
        kept_within = True
        with self._cache.transaction():
            self._cache.put_many(self._verdicts)
            self._cache.add_attempts(self._attempts)
            if self._settled:
                kept_within = self._ledger.settle_many(self._settled)
        self._verdicts, self._attempts, self._settled = [], [], []
        if not kept_within:
            self._tally.overbilled = True
            if self._bounded and self._tally.refusal is None:
                # No cap can hold against a server that bills more than was asked
                # for, so nothing more is asked.
                self._tally.refusal = Refusal("over", "run", True)
                self.close()

"""When the next call may start: one gate for all workers of a run.

A server that says "wait" means everybody, so there is one clock and not one per
worker; and a server that says "too many" is asked less from then on.
"""

import asyncio
import random
import time


class Gate:
    """Holds calls back: `Retry-After`, rate limits, too many at once.

    Attributes:
        concurrency: Most calls in flight the caller allows.
        allowed: Calls in flight allowed now; halved when the server asks for fewer,
            raised by one per `allowed` answers until `concurrency` again.
        in_flight: Calls being made now.
        peak: The most that were in flight at once.
    """

    def __init__(
        self,
        concurrency: int,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        """Open the gate.

        Args:
            concurrency: Most calls in flight; 1 and up.
            requests_per_minute: Calls are spaced evenly to keep to it.
            tokens_per_minute: Likewise, by the tokens a call is expected to use.
        """
        self.concurrency = concurrency
        self.allowed = float(concurrency)
        self.in_flight = self.peak = 0
        self._rpm, self._tpm = requests_per_minute, tokens_per_minute
        self._held_until = self._next_start = 0.0
        self._lowered_at = 0.0
        self._paced = requests_per_minute is not None or tokens_per_minute is not None

    async def enter(self, tokens: int) -> float:
        """Wait until a call of about this many tokens may start; count it in.

        Returns:
            When it starts, on the monotonic clock; `leave` wants it back.
        """
        while True:
            now = time.monotonic()
            wait = self._held_until - now
            if wait <= 0 and self._paced:
                wait = self._next_start - now
            if wait <= 0 and self.in_flight >= int(self.allowed):
                wait = 0.02
            if wait <= 0:
                break
            await asyncio.sleep(wait)
        if self._paced:
            gap = 60.0 / self._rpm if self._rpm else 0.0
            if self._tpm:
                gap = max(gap, 60.0 * tokens / self._tpm)
            self._next_start = max(now, self._next_start) + gap
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        return now

    def leave(self, *, fine: bool) -> None:
        """A call has ended; `fine` if the server answered it."""
        self.in_flight -= 1
        if fine and self.allowed < self.concurrency:
            self.allowed = min(self.concurrency, self.allowed + 1 / self.allowed)

    def hold(self, seconds: float) -> None:
        """Nobody starts a call for so long; the longest wish counts."""
        self._held_until = max(self._held_until, time.monotonic() + seconds)

    def slow_down(self, started: float) -> None:
        """The server asked for fewer calls.

        One burst of refusals is one message: calls that started before the last
        halving say nothing new.
        """
        if started >= self._lowered_at:
            self._lowered_at = time.monotonic()
            self.allowed = max(1.0, self.allowed / 2)


def backoff(attempt: int, *, first: float, longest: float = 30.0) -> float:
    """Seconds before the next attempt: doubled each time, with jitter.

    Args:
        attempt: Attempts made so far, 1 and up.
        first: Seconds before the second attempt.
        longest: Most seconds.

    Returns:
        Between half of the wait and all of it, so that workers that failed together
        don't return together.
    """
    wait = min(longest, first * 2.0 ** (attempt - 1))
    return wait * random.uniform(0.5, 1.0)

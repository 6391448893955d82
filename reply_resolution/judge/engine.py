"""The run: workers ask, one gate paces them, one bookkeeper books and keeps.

Everything here runs in one event loop, in a thread of its own; the user's loop, if
there is one, is never touched.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from reply_resolution.judge.asking import Asker, Pending, Settings
from reply_resolution.judge.budget import Ledger
from reply_resolution.judge.client import Client, Gate
from reply_resolution.judge.identity import ADAPTATIONS
from reply_resolution.judge.job import Job
from reply_resolution.judge.keeping import Bookkeeper
from reply_resolution.judge.results import Tally

#: Seconds in which calls in flight may end after an interrupt.
GRACE = 2.0


class Engine:
    """Judges the missing entries of a job.

    Attributes:
        tally: What became of the entries, and the sums.
    """

    def __init__(
        self, job: Job, ledger: Ledger, settings: Settings, *, owner: str, run_id: str
    ) -> None:
        """Get everything ready; nothing is sent before `main` runs."""
        self.tally = Tally()
        self._job, self._settings = job, settings
        self._owner, self._run_id = owner, run_id
        self._ready: deque[int] = deque()
        self._elsewhere: list[int] = []
        self._claimed: set[str] = set()
        self._stop_error: BaseException | None = None
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._pending: Iterator[int] = iter(())
        self._books = Bookkeeper(
            job.store, ledger, self.tally, bounded=settings.bounded
        )
        self._asker: Asker

    # The run

    async def main(self) -> None:
        """Judge everything that is missing, or as much as is allowed.

        Raises:
            RunStoppedError: The server refused the run as a whole.
            CacheError: Results could not be kept.
        """
        job, settings, store = self._job, self._settings, self._job.store
        gate = Gate(
            settings.concurrency,
            requests_per_minute=settings.requests_per_minute,
            tokens_per_minute=settings.tokens_per_minute,
        )
        client = Client(job.endpoint, params=job.params, timeout=settings.timeout)
        self._asker = Asker(
            job=job,
            client=client,
            books=self._books,
            gate=gate,
            tally=self.tally,
            settings=settings,
            run_id=self._run_id,
            drop_claim=self._drop_claim,
            start_over=self._start_over,
        )
        store.register_judge(job.identity, job.rubric)
        self._pending = iter(job.missing())
        try:
            if not job.dialect_known:
                await self._run([self._try_out()])
            while not self._ended:
                workers = range(settings.concurrency)
                await self._run([self._worker() for _ in workers])
                if self._ended or not await self._wait_for_others():
                    break
        finally:
            try:
                self._books.commit()
                store.release(self._claimed, self._owner)
            finally:
                await client.close()
        for error in (self._stop_error, self._books.broken):
            if error is not None:
                raise error

    @property
    def _ended(self) -> bool:
        full = self.tally.refusal is not None
        return self._stopping or full or self._books.broken is not None

    def interrupt(self) -> None:
        """Stop as the user asks; called in the loop. The second time, at once."""
        if self.tally.interrupted:
            self._cancel()
        else:
            self.tally.interrupted = self._stopping = True
            self._books.close()
            asyncio.get_running_loop().call_later(GRACE, self._cancel)

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
            await self._asker.judge(Pending(self._job.worklist.item(entry)))

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
        keys = self._keys(entries)
        # Longer than a verdict and the wait for its turn can take, so that a claim
        # ends only with its owner.
        own = self._settings
        apart = 60.0 / own.requests_per_minute if own.requests_per_minute else 0.0
        if own.tokens_per_minute:
            tokens = 3 * own.max_completion_tokens
            apart = max(apart, 60.0 * tokens / own.tokens_per_minute)
        lease = 900.0 + 2 * (own.attempts * own.timeout + own.concurrency * apart)
        mine = self._job.store.claim(list(keys), self._owner, lease)
        self._claimed |= mine
        self._ready.extend(e for key, e in keys.items() if key in mine)
        return [e for key, e in keys.items() if key not in mine]

    def _keys(self, entries: Iterable[int]) -> dict[str, int]:
        keys = self._job.worklist.keys
        return {keys[entry]: entry for entry in entries}

    async def _wait_for_others(self) -> bool:
        """Wait for verdicts other processes are getting; True if some came to us."""
        while self._elsewhere and not self._ended:
            keys = self._keys(self._elsewhere)
            done = set(self._job.store.get_frame(list(keys))["key"])
            self.tally.waited_for += len(done)
            self.tally.taken |= {e for key, e in keys.items() if key in done}
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
        and not the form, and the usual form is used. A row that was filtered before
        it was answered shows nothing: the next one takes its place.
        """
        for form in (self._asker.usual.answer, ADAPTATIONS[-1]):
            answered = False
            while not answered:
                entry = self._next(1)
                if entry is None:
                    return
                if form != self._asker.usual.answer:
                    self._asker.use(replace(self._asker.usual, answer=form))
                pending = Pending(self._job.worklist.item(entry), trying=True)
                await self._asker.judge(pending)
                answered = pending.best is not None or entry in self.tally.failures
            if pending.first is None:  # its form was not in doubt
                return

    def _start_over(self, pending: Pending) -> None:
        """Another judge id: other keys, so other things are claimed and missing."""
        store = self._job.store
        store.release(self._claimed, self._owner)
        self._ready.clear()
        self._elsewhere.clear()
        self._claimed = store.claim([pending.item.key], self._owner)
        spent = {pending.item.entry, *self.tally.failures}
        self._pending = (e for e in self._job.missing() if e not in spent)

    def _drop_claim(self, key: str) -> None:
        self._job.store.release([key], self._owner)
        self._claimed.discard(key)

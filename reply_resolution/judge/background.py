"""The run in a thread of its own, while this one shows how far it is.

In a terminal the line is rewritten; in a notebook it is one output that is updated, so
that papermill and the exported page keep its last state and nothing else; anywhere else
(cron, a pipe, tests) there is silence.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, TextIO

from reply_resolution.display import number

if TYPE_CHECKING:
    from reply_resolution.judge.engine import Engine
    from reply_resolution.judge.results import Tally

_EVERY = {"terminal": 0.2, "notebook": 0.5}


def run_in_thread(
    engine: "Engine", todo: int, progress: "Progress"
) -> BaseException | None:
    """Run the engine in a thread with a loop of its own; wait, and show progress.

    The caller's loop, if it runs one (Jupyter does), is never touched. An interrupt
    reaches this thread; it is passed on to the engine, which ends in good order.

    Returns:
        What ended the run, if it did not end by itself.
    """
    done = threading.Event()
    caught: list[BaseException] = []
    loop = asyncio.new_event_loop()

    def work() -> None:
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(engine.main())
            loop.run_until_complete(loop.shutdown_asyncgens())
        except BaseException as error:
            caught.append(error)
        finally:
            loop.close()
            done.set()

    started = time.monotonic()

    def line() -> str:
        return _line(engine.tally, todo, time.monotonic() - started)

    thread = threading.Thread(target=work, name="reply-resolution-judge", daemon=True)
    thread.start()
    while True:
        try:
            while not done.wait(0.1):
                progress.update(line)
            thread.join()
            break
        except KeyboardInterrupt:
            with suppress(RuntimeError):  # it ended by itself in this moment
                loop.call_soon_threadsafe(engine.interrupt)
    progress.update(line, done=True)
    return caught[0] if caught else None


def _line(tally: "Tally", todo: int, seconds: float) -> str:
    seconds = max(seconds, 1e-3)
    done = tally.answered + tally.waited_for
    rate = done / seconds
    text = f"judged {done} of {todo}, {number(rate, 1)} a second"
    if tally.usd is not None:
        text += f", {number(tally.usd, 4)} USD"
    tokens = tally.prompt_tokens + tally.completion_tokens
    text += f", {number(tokens, 0)} tokens"
    if tally.without_score:
        text += f", {tally.without_score} without a score"
    if done < todo and rate > 0:
        text += f", {duration((todo - done) / rate)} left"
    return text + f" ({duration(seconds)} so far)"


def duration(seconds: float) -> str:
    """Seconds as a reader says them.

    >>> duration(8), duration(150), duration(7300)
    ('8 s', '2 min 30 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel (IPython is never imported for it)."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Progress:
    """Shows the line; `update` may be called as often as one likes."""

    def __init__(
        self, mode: str | bool = "auto", *, stream: TextIO | None = None
    ) -> None:
        """Decide where the line goes.

        Args:
            mode: "auto" (terminal or notebook, else silence), True (a line even where
                there is neither, at the end only), False (silence).
            stream: Where text goes; standard error by default.
        """
        self._stream = stream or sys.stderr
        self._place = ""
        if mode == "auto" or mode is True:
            if _in_notebook():
                self._place = "notebook"
            elif self._stream is not None and self._stream.isatty():
                self._place = "terminal"
            elif mode is True:
                self._place = "plain"
        self._last = 0.0
        self._width = 0
        self._handle: Any = None

    def update(self, line: Callable[[], str], *, done: bool = False) -> None:
        """Show the line if it is time to; always when `done`, the last state.

        Args:
            line: Gives the text; called only when it is shown.
            done: Whether this is the last state.
        """
        now = time.monotonic()
        wait = _EVERY.get(self._place, float("inf"))
        if not self._place or (not done and now - self._last < wait):
            return
        self._last = now
        text = line()
        if self._place == "notebook":
            from IPython.display import DisplayHandle

            data = {"text/plain": text}
            if self._handle is None:
                self._handle = DisplayHandle()
                self._handle.display(data, raw=True)
            else:
                self._handle.update(data, raw=True)
            return
        if self._place == "terminal":
            pad = " " * max(0, self._width - len(text))
            self._width = len(text)
            text = "\r" + text + pad
        self._stream.write(text + ("\n" if done else ""))
        self._stream.flush()

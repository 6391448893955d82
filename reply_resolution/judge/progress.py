"""One line that says how far a run is: rows, rate, spend, time left.

In a terminal the line is rewritten; in a notebook it is one output that is updated, so
that papermill and the exported page keep its last state and nothing else; anywhere else
(cron, a pipe, tests) there is silence.
"""

from collections.abc import Callable
import sys
import time
from typing import Any, TextIO

_EVERY = {"terminal": 0.2, "notebook": 0.5}


def _notebook() -> bool:
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
            if _notebook():
                self._place = "notebook"
            elif self._stream is not None and self._stream.isatty():
                self._place = "terminal"
            elif mode is True:
                self._place = "plain"
        self._last = 0.0
        self._width = 0
        self._handle: Any = None

    def update(self, line: Callable[[], str], *, done: bool = False) -> None:
        """Show the line if it is time to; always when `done`.

        Args:
            line: Gives the text; called only when it is shown.
            done: Whether this is the last state.
        """
        if not self._place:
            return
        now = time.monotonic()
        if not done and now - self._last < _EVERY.get(self._place, float("inf")):
            return
        self._last = now
        text = line()
        if self._place == "notebook":
            self._show(text)
        elif self._place == "terminal":
            pad = " " * max(0, self._width - len(text))
            self._width = len(text)
            self._stream.write("\r" + text + pad + ("\n" if done else ""))
            self._stream.flush()
        elif done:
            self._stream.write(text + "\n")
            self._stream.flush()

    def _show(self, text: str) -> None:
        from IPython.display import DisplayHandle

        data = {"text/plain": text}
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(data, raw=True)
        else:
            self._handle.update(data, raw=True)


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

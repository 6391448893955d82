"""The engine in a thread of its own, while this one shows progress."""

import asyncio
import threading
import time

from reply_resolution.display import number
from reply_resolution.judge.case import Tally
from reply_resolution.judge.engine import Engine
from reply_resolution.judge.progress import Progress, duration


def run_in_thread(
    engine: Engine, todo: int, progress: Progress
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
    thread = threading.Thread(target=work, name="reply-resolution-judge", daemon=True)
    thread.start()
    while True:
        try:
            while not done.wait(0.1):
                progress.update(lambda: _line(engine.record.tally, todo, started))
            thread.join()
            break
        except KeyboardInterrupt:
            if not done.is_set():
                loop.call_soon_threadsafe(engine.interrupt)
    progress.update(lambda: _line(engine.record.tally, todo, started), done=True)
    return caught[0] if caught else None


def _line(tally: Tally, todo: int, started: float) -> str:
    seconds = max(time.monotonic() - started, 1e-3)
    done = tally.answered + tally.waited_for
    rate = done / seconds
    text = f"judged {done} of {todo}, {number(rate, 1)} a second"
    if tally.cost_usd is not None:
        text += f", {number(tally.cost_usd, 4)} USD"
    tokens = tally.prompt_tokens + tally.completion_tokens
    text += f", {number(tokens, 0)} tokens"
    without = tally.answered - tally.statuses["scored"]
    if without:
        text += f", {without} without a score"
    if done < todo and rate > 0:
        text += f", {duration((todo - done) / rate)} left"
    return text + f" ({duration(seconds)} so far)"

"""Judging from a Jupyter cell: no patched loop, one progress output that stays."""

from collections.abc import Callable
import os
from pathlib import Path
import signal
import threading
import time
from typing import Any

import polars as pl

_CELL = """
import asyncio, polars as pl
from reply_resolution.judge.judge import judge_replies
loop = type(asyncio.get_running_loop()).__module__
replies = pl.read_ndjson({rows!r})
run = judge_replies(replies, model="m", base_url={url!r}, cache={cache!r})
assert type(asyncio.get_running_loop()).__module__ == loop
print(run.summary.scored, run.summary.calls)
"""


def test_a_cell_judges_and_keeps_one_line_of_progress(
    make_replies: Callable[..., pl.DataFrame], server: Any, tmp_path: Path
) -> None:
    """The executed notebook holds the last state of the line, once, as plain text."""
    from nbclient import NotebookClient
    import nbformat

    server.latency = 0.2  # long enough for the line to change
    make_replies(96).write_ndjson(tmp_path / "rows.jsonl")
    code = _CELL.format(
        rows=str(tmp_path / "rows.jsonl"),
        url=server.url,
        cache=str(tmp_path / "c.sqlite"),
    )
    cells = [nbformat.v4.new_code_cell(code) for _ in range(2)]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, kernel_name="python3", timeout=120).execute()
    shown = [o for o in book.cells[0].outputs if o.output_type == "display_data"]
    assert len(shown) == 1
    assert list(shown[0]["data"]) == ["text/plain"]
    assert shown[0]["data"]["text/plain"].startswith("judged 96 of 96, ")
    printed = [
        "".join(o.text for o in cell.outputs if o.output_type == "stream")
        for cell in book.cells
    ]
    assert printed == ["96 96\n", "96 0\n"]  # running the cell again costs nothing
    assert server.max_in_flight == 16


def test_stopping_a_cell_returns_the_partial_table(
    make_replies: Callable[..., pl.DataFrame], server: Any, tmp_path: Path
) -> None:
    """Stop ends the cell with what there is; run again, only the rest is asked."""
    from nbclient import NotebookClient
    import nbformat

    server.latency = 0.2
    make_replies(200).write_ndjson(tmp_path / "rows.jsonl")
    code = _CELL.format(
        rows=str(tmp_path / "rows.jsonl"),
        url=server.url,
        cache=str(tmp_path / "c.sqlite"),
    )
    code += "print(run.verdicts.height, run.summary.interrupted)"
    cells = [nbformat.v4.new_code_cell(code) for _ in range(2)]
    book = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(book, kernel_name="python3", timeout=120)

    def stop() -> None:
        while server.calls < 20:
            time.sleep(0.01)
        os.kill(client.km.provisioner.pid, signal.SIGINT)  # what Stop sends

    threading.Thread(target=stop, daemon=True).start()
    client.execute()
    printed = [
        "".join(o.text for o in cell.outputs if o.output_type == "stream").split()
        for cell in book.cells
    ]
    scored, calls, rows, stopped = printed[0]
    assert (rows, stopped) == ("200", "True")
    assert 0 < int(scored) == int(calls) < 200
    assert printed[1] == ["200", str(200 - int(scored)), "200", "False"]

"""What the judge costs beside the raw client, measured in one run on one machine.

By hand, never in CI: `python tests/benchmarks/bench_judge.py [overhead warm memory
notebook drill]`. The server is a process of its own (tests/judge/loopback.py), so CPU
is the client's alone. Every figure is a median of alternating runs.
"""

import argparse
import asyncio
import importlib.util
import json
import multiprocessing
from pathlib import Path
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from types import ModuleType
from typing import Any
import urllib.request

ROOT = Path(__file__).parents[2]
LOOPBACK = ROOT / "tests/judge/loopback.py"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


class Server:
    """The loopback server in a process of its own."""

    def __init__(self, latency: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(LOOPBACK), "--latency", str(latency)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def stats(self) -> dict[str, int]:
        """Calls so far and the most in flight."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats") as answer:
            found: dict[str, int] = json.load(answer)
        return found

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()


def replies(n: int, start: int = 0) -> Any:
    """A table of n replies, about 0.7 KB of text each."""
    import polars as pl

    number = pl.int_range(start, start + n, eager=True).cast(pl.String)
    return pl.DataFrame(
        {
            "request_id": "q" + number,
            "arm": pl.Series(["control", "treatment"]).gather(
                pl.int_range(n, eager=True) % 2
            ),
            "user_id": "u" + number,
            "request": "How do I move appointment " + number + " to another day? " * 6,
            "reply": "Open Settings, choose entry " + number + ", then Save. " * 20,
        }
    )


class PeakMemory:
    """The most resident memory while the block ran, MB (sampled every 10 ms)."""

    def __enter__(self) -> "PeakMemory":
        self.start = self.peak = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _now(self) -> float:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.peak = max(self.peak, self._now())

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, self._now())

    @property
    def grown(self) -> float:
        """MB above the start."""
        return self.peak - self.start


async def _raw(url: str, frame: Any, concurrency: int) -> int:
    """The loop people write: `create`, a semaphore, json.loads."""
    import openai

    from reply_resolution.judge.identity import JudgeIdentity
    from reply_resolution.judge.rubric import Rubric

    rubric = Rubric.default()
    identity = JudgeIdentity.of(
        rubric,
        model="m",
        endpoint=url,
        params={"temperature": 0, "max_completion_tokens": 1024},
    )
    client = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
    gate = asyncio.Semaphore(concurrency)

    async def one(row: dict[str, Any]) -> int:
        async with gate:
            body = identity.request(rubric.user_message(row).text)
            answer = await client.chat.completions.create(**body)
            score: int = json.loads(answer.choices[0].message.content or "")["score"]
            return score

    rows = frame.iter_rows(named=True)
    scores = await asyncio.gather(*(one(row) for row in rows))
    await client.close()
    return len(scores)


def overhead(n: int = 2000, concurrency: int = 64, repeats: int = 3) -> None:
    """CPU per 1,000 calls beside the raw client's `create`, alternating."""
    import openai  # noqa: F401 - imported before anything is measured

    from reply_resolution.judge.judge import judge_replies

    raw, ours, rates, memory = [], [], [], []
    with Server(0.05) as server, tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"model": "m", "base_url": server.url}
        asyncio.run(_raw(server.url, replies(50), concurrency))
        for turn in range(repeats):
            frame = replies(n, start=turn * n)
            start, wall = time.process_time(), time.perf_counter()
            asyncio.run(_raw(server.url, frame, concurrency))
            raw.append(time.process_time() - start)
            rates.append([n / (time.perf_counter() - wall)])
            cache = Path(folder) / f"{turn}.sqlite"
            before = server.stats()["calls"]
            with PeakMemory() as peak:
                start, wall = time.process_time(), time.perf_counter()
                run = judge_replies(
                    frame, cache=cache, concurrency=concurrency, **options
                )
                ours.append(time.process_time() - start)
                rates[-1].append(n / (time.perf_counter() - wall))
            memory.append(peak.grown)
            assert run.summary.scored == n
            assert server.stats()["calls"] - before == n
            start, wall = time.process_time(), time.perf_counter()
            warm = judge_replies(frame, cache=cache, **options)
            rates[-1] += [time.process_time() - start, n / (time.perf_counter() - wall)]
            assert warm.summary.calls == 0
        most = server.stats()["max"]
    per = 1000 / n
    print(f"overhead, {n} calls at {concurrency}, 50 ms server, {repeats} turns")
    print(
        f"  raw create     {statistics.median(raw) * per:.2f} CPU-s / 1,000 calls, "
        f"{statistics.median(r[0] for r in rates):.0f} calls/s"
    )
    print(
        f"  judge, cold    {statistics.median(ours) * per:.2f} CPU-s / 1,000 calls, "
        f"{statistics.median(r[1] for r in rates):.0f} calls/s"
    )
    print(
        f"  judge, warm    {statistics.median(r[2] for r in rates) * per:.4f} CPU-s, "
        f"{statistics.median(r[3] for r in rates):.0f} rows/s"
    )
    print(
        f"  most in flight at the server {most}; memory above start, MB: "
        f"{', '.join(f'{m:.0f}' for m in memory)}"
    )


def _fill(path: Path, frame: Any) -> None:
    """A cache that knows every row, without 100,000 calls."""
    import polars as pl

    from reply_resolution.judge.judge import record

    verdicts = frame.select(
        "request_id",
        "arm",
        score=pl.int_range(pl.len()) % 5 + 1,
        reason=pl.lit("Names the place and the steps; nothing is left open. ")
        + pl.col("request_id"),
    )
    record(frame, verdicts, cache=path)


def warm(n: int = 100_000, repeats: int = 3) -> None:
    """Cached verdicts back as a frame."""
    from reply_resolution.judge.judge import judge_replies

    with tempfile.TemporaryDirectory() as folder:
        frame = replies(n)
        _fill(Path(folder) / "c.sqlite", frame)
        seconds, cpu = [], []
        for _ in range(repeats):
            start, wall = time.process_time(), time.perf_counter()
            run = judge_replies(frame, cache=Path(folder) / "c.sqlite")
            seconds.append(time.perf_counter() - wall)
            cpu.append(time.process_time() - start)
            assert run.summary.cached == n
    print(
        f"warm rerun of {n} rows: {statistics.median(seconds):.2f} s "
        f"({statistics.median(cpu):.2f} CPU-s)"
    )


def _memory_of(n: int, cap: int, url: str, cache: str) -> None:
    """One measurement in a process of its own: memory used is rarely given back."""
    import openai  # noqa: F401

    from reply_resolution.judge.budget import Limits
    from reply_resolution.judge.judge import judge_replies

    frame = replies(n)
    with PeakMemory() as peak:
        run = judge_replies(
            frame,
            model="m",
            base_url=url,
            cache=cache,
            concurrency=64,
            limits=Limits(max_calls=cap),
        )
    print(
        f"memory, {n} rows, {run.summary.calls} judged: {peak.grown:.0f} MB above the "
        f"process with its frame ({frame.estimated_size() / 2**20:.0f} MB)",
        flush=True,
    )


def memory(n: int = 200_000, caps: tuple[int, ...] = (2_000, 20_000)) -> None:
    """Memory above the frame while a long table is judged within a budget."""
    spawn = multiprocessing.get_context("spawn")
    with Server(0.0) as server, tempfile.TemporaryDirectory() as folder:
        for cap in caps:
            child = spawn.Process(
                target=_memory_of, args=(n, cap, server.url, f"{folder}/{cap}.sqlite")
            )
            child.start()
            child.join()


_CELL = """
import sys, time
sys.path.insert(0, {folder!r})
from bench_judge import replies
from reply_resolution.judge.judge import judge_replies
import openai
frame = replies({n}, start={start})
begin, cpu = time.perf_counter(), time.process_time()
run = judge_replies(frame, model="m", base_url={url!r}, cache={cache!r}, concurrency=64)
spent = time.perf_counter() - begin, time.process_time() - cpu
print("seconds", *spent, run.summary.scored)
"""


def notebook(n: int = 2000, repeats: int = 3) -> None:
    """The same call in a script and in a Jupyter cell, alternating."""
    from nbclient import NotebookClient
    import nbformat

    script: list[tuple[float, float]] = []
    cell: list[tuple[float, float]] = []
    with Server(0.05) as server, tempfile.TemporaryDirectory() as folder:
        for turn in range(repeats):
            for place, seconds in (("script", script), ("cell", cell)):
                code = _CELL.format(
                    folder=str(Path(__file__).parent),
                    n=n,
                    start=turn * n,
                    url=server.url,
                    cache=f"{folder}/{place}{turn}.sqlite",
                )
                if place == "script":
                    text = subprocess.run(
                        [sys.executable, "-c", code],
                        capture_output=True,
                        text=True,
                        check=True,
                    ).stdout
                else:
                    book = nbformat.v4.new_notebook(
                        cells=[nbformat.v4.new_code_cell(code)]
                    )
                    NotebookClient(book, kernel_name="python3").execute()
                    text = "".join(o.get("text", "") for o in book.cells[0].outputs)
                found = text.split("seconds ")[1].split()
                assert int(found[2]) == n
                seconds.append((float(found[0]), float(found[1])))
    rate = [n / statistics.median(x[0] for x in place) for place in (script, cell)]
    cpu = [statistics.median(x[1] for x in place) for place in (script, cell)]
    print(
        f"script {rate[0]:.0f} calls/s, Jupyter cell {rate[1]:.0f} calls/s: "
        f"{rate[1] / rate[0]:.1%}; CPU {cpu[0]:.2f} and {cpu[1]:.2f} s"
    )


def drill() -> None:
    """The fault drill as a table (the test holds it to this)."""
    import polars as pl

    from reply_resolution.errors import JudgeError
    from reply_resolution.judge import asking
    from reply_resolution.judge.judge import judge_replies

    asking.FIRST_WAIT = 0.002
    loopback = _load(LOOPBACK)
    row = pl.DataFrame({"request_id": ["q"], "request": ["How?"], "reply": ["So."]})
    print("| fault, always | HTTP calls | may be billed | outcome |")
    print("|---|---|---|---|")
    for name in loopback.FAULTS:
        with loopback.Loopback() as server:
            server.behave(name)
            if name == "429":
                server.behave(
                    lambda r: loopback.error(
                        429, "slow", headers={"retry-after-ms": "5"}
                    )
                )
            try:
                run = judge_replies(
                    row, model="m", base_url=server.url, cache=":memory:", timeout=0.3
                )
                found = run.verdicts.row(0, named=True)
                outcome = f"`{found['status']}` {found['status_detail'] or ''}".strip()
                billed = run.summary.unknown_usage + run.summary.prompt_tokens // 300
            except JudgeError as error:
                outcome, billed = f"stops: {str(error).split('. ')[0]}", 0
                outcome = outcome.replace(server.url, "the server")
            print(f"| {name} | {server.calls} | {billed} | {outcome} |")


if __name__ == "__main__":
    parts = {f.__name__: f for f in (overhead, warm, memory, notebook, drill)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=list(parts))
    for part in parser.parse_args().parts:
        parts[part]()

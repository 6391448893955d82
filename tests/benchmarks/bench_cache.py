"""What the cache and the ledger cost. By hand, never in CI.

    python tests/benchmarks/bench_cache.py [VERDICTS]

CPU time of this process, median of three rounds; the file lies in a temporary folder.
Results of a run are in RESULTS_cache.md.
"""

from collections.abc import Callable
from pathlib import Path
import statistics
import sys
import tempfile
import threading
import time

from reply_resolution.judge.budget import Ledger, Limits, Price
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.identity import JudgeIdentity, verdict_keys
from reply_resolution.judge.owner import new_owner
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import StoredVerdict, utc_now

ROUNDS = 3


def measure(name: str, unit: str, n: int, do: Callable[[int], object]) -> None:
    """Print the median cost of one of `n` operations, µs of CPU and of wall time."""
    cpu, wall = [], []
    for turn in range(ROUNDS):
        start_cpu, start = time.process_time(), time.perf_counter()
        do(turn)
        cpu.append((time.process_time() - start_cpu) / n * 1e6)
        wall.append((time.perf_counter() - start) / n * 1e6)
    print(
        f"| {name} | {statistics.median(cpu):.1f} | {statistics.median(wall):.1f} | "
        f"{unit} |",
        flush=True,
    )


def main(n: int = 100_000) -> None:
    """Measure everything once."""
    rubric = Rubric.default()
    judge = JudgeIdentity.of(rubric, model="m", endpoint="http://127.0.0.1:9/v1")
    reply = "Open Settings, choose Billing, then “Cancel plan”. " * 16
    rows = [{"request": f"Question {i}?", "reply": f"{i} {reply}"} for i in range(n)]
    messages = [rubric.user_message(row).text for row in rows]
    keys = verdict_keys(judge.judge_id, messages)
    when = utc_now()
    verdicts = [
        StoredVerdict(
            key,
            judge.judge_id,
            message,
            0,
            4,
            "The main request is answered; one detail is left open.",
            "scored",
            "",
            "m-1",
            500,
            0,
            40,
            0.0012,
            412.0,
            1,
            when,
            '{"choices":[' + "x" * 400 + "]}",
        )
        for key, message in zip(keys, messages, strict=True)
    ]
    print(f"{n} verdicts, messages of {len(messages[0].encode())} bytes\n")
    print("| what | CPU µs | wall µs | per |")
    print("|---|---|---|---|")
    measure(
        "message", "row", n, lambda _: [rubric.user_message(row).text for row in rows]
    )
    measure("key", "row", n, lambda _: verdict_keys(judge.judge_id, messages))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)

        def fill(turn: int) -> Cache:
            cache = Cache.open(path / f"{turn}.sqlite")
            cache.register_judge(judge, rubric)
            for start in range(0, n, 64):
                cache.put_many(verdicts[start : start + 64])
            return cache

        measure("verdict kept, 64 a commit", "verdict", n, fill)
        cache = fill(0)
        measure(
            "looked up, as one frame", "verdict", n, lambda _: cache.get_frame(keys)
        )

        def frames(_: int) -> None:
            for start in range(0, n, 8192):
                cache.get_frame(keys[start : start + 8192])

        measure("looked up, frames of 8,192", "verdict", n, frames)
        measure("looked up, whole", "verdict", n, lambda _: cache.get_many(keys))
        noted = [(f"E{i}", "control", key) for i, key in enumerate(keys)]
        cache.note_requests(noted)
        measure(
            "request id noted again", "row", n, lambda _: cache.note_requests(noted)
        )
        some = [key[::-1] for key in keys[:2000]]
        owner = new_owner()

        def claims(_: int) -> None:
            for start in range(0, 2000, 64):
                cache.claim(some[start : start + 64], owner)
                cache.release(some[start : start + 64], owner)

        measure("claimed and released, 64 at once", "key", 2000, claims)
        ledger = Ledger(
            cache, Limits(max_usd=1e6), "run", Price(input=1.0, output=10.0)
        )

        def single(_: int) -> None:
            for _call in range(2000):
                single_call()

        def batched(_: int) -> None:
            for _call in range(0, 2000, 16):
                booked = ledger.reserve_many([(2000, 300)] * 16)
                ledger.settle_many([(b, 500, 40, 0) for b in booked])

        def threaded(turn: int) -> None:
            crew = [
                threading.Thread(target=lambda: [single_call() for _ in range(125)])
                for _ in range(16)
            ]
            for thread in crew:
                thread.start()
            for thread in crew:
                thread.join()

        def single_call() -> None:
            (booked,) = ledger.reserve_many([(2000, 300)])
            ledger.settle_many([(booked, 500, 40, 0)])

        measure("booked and settled, one by one", "call", 2000, single)
        measure("booked and settled, 16 at once", "call", 2000, batched)
        measure("booked and settled, 16 threads", "call", 2000, threaded)
        file = path / "export.jsonl"
        measure("exported", "verdict", n, lambda _: cache.export_jsonl(file))

        def take_in(turn: int) -> None:
            with Cache.open(path / f"import{turn}.sqlite") as new:
                new.import_jsonl(file)

        measure("imported", "verdict", n, take_in)
        cache.close()
        size = (path / "0.sqlite").stat().st_size / n
        print(f"\n{size:.0f} bytes of file per verdict")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

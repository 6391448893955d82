"""What a shared cache costs. By hand, never in CI.

    python tests/benchmarks/bench_scale_postgres.py postgresql://user@host/database

Makes and drops schemas of its own. Wall time; results are in RESULTS_scale.md.
"""

import multiprocessing
from pathlib import Path
import subprocess
import sys
import tempfile
import time
import uuid

import polars as pl

from reply_resolution.judge.budget import Ledger, Limits
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.identity import JudgeIdentity, verdict_keys
from reply_resolution.judge.judge import judge_replies
from reply_resolution.judge.owner import new_owner
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import StoredVerdict, utc_now

JUDGE = JudgeIdentity.of(Rubric.default(), model="m", endpoint="http://127.0.0.1:9/v1")


def spend(place: str, block: int, seconds: float) -> int:
    """Reserve and settle `block` calls at a time; how many calls were settled."""
    with Cache.open(place) as cache:
        ledger = Ledger(cache, Limits(max_total_tokens=10**12), "run")
        done, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            booked = ledger.reserve_many([(936, 100)] * block)
            ledger.settle_many([(each, 300, 40, 0) for each in booked])
            done += block
    return done


def ledgers(place: str, processes: int, block: int, seconds: float = 10.0) -> None:
    """Print the rate of several processes that share one budget."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.starmap(spend, [(place, block, 0.1)] * processes)  # imports are done
        start = time.perf_counter()
        done = sum(pool.starmap(spend, [(place, block, seconds)] * processes))
        rate = done / (time.perf_counter() - start)
    print(
        f"| {processes} processes, {block} calls at a time | {rate:,.0f} |", flush=True
    )


def rows(place: str, n: int = 100_000) -> None:
    """Print what keeping, claiming and reading of `n` verdicts takes."""
    messages = [f"message {i} " + "x" * 800 for i in range(n)]
    keys = verdict_keys(JUDGE.judge_id, messages)
    when = utc_now()
    verdicts = [
        StoredVerdict(
            key, JUDGE.judge_id, message, 0, 4, "The main request is answered.",
            "scored", "", "m-1", 500, 0, 40, 0.0012, 412.0, 1, when, "{" + "x" * 400,
        )
        for key, message in zip(keys, messages, strict=True)
    ]  # fmt: skip
    with Cache.open(place) as cache:
        cache.register_judge(JUDGE, Rubric.default())
        owner, m = new_owner(), n // 10
        times = {}
        start = time.perf_counter()
        for i in range(0, m, 64):
            cache.claim(keys[i : i + 64], owner)
        times[f"claim {m:,} keys, 64 at a time"] = time.perf_counter() - start
        start = time.perf_counter()
        for i in range(0, m, 64):
            cache.put_many(verdicts[i : i + 64])
        times[f"keep {m:,} verdicts, 64 at a time"] = time.perf_counter() - start
        cache.put_many(verdicts[m:])
        start = time.perf_counter()
        assert cache.get_frame(keys).height == n
        times[f"read {n:,} verdicts (a warm rerun)"] = time.perf_counter() - start
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            cache.export_jsonl(Path(folder) / "x.jsonl")
            times[f"export {n:,} verdicts"] = time.perf_counter() - start
    for what, seconds in times.items():
        print(f"| {what} | {seconds:.2f} s |", flush=True)


def judging(place: str, n: int = 3_000) -> None:
    """Print how fast an ordinary run judges into this cache."""
    server = Path(__file__).parents[1] / "judge" / "loopback.py"
    with subprocess.Popen(
        [sys.executable, str(server), "--latency", "0.05"],
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        url = running.stdout.readline().strip()
        names = {"request_id": "q", "request": "question ", "reply": "answer "}
        table = pl.DataFrame(
            {k: [f"{v}{i}" for i in range(n)] for k, v in names.items()}
        )
        start = time.perf_counter()
        limits = Limits(max_total_tokens=10**9)
        how = {"limits": limits, "concurrency": 64, "progress": False}
        run = judge_replies(table, model="m", base_url=url, cache=place, **how)
        seconds = time.perf_counter() - start
        running.terminate()
    assert run.summary.scored == n
    print(f"| judge {n:,} replies, 64 in flight, under a cap | {seconds:.2f} s |")


def main(url: str) -> None:
    """Measure a server, and the file beside it."""
    import psycopg

    schemas = [f"bench_{uuid.uuid4().hex[:8]}" for _ in range(2)]
    with psycopg.connect(url, autocommit=True) as admin:
        for name in ("server_version", "fsync", "synchronous_commit"):
            print(name, admin.execute(f"SHOW {name}").fetchone()[0])
        try:
            shared = f"{url}?schema={schemas[0]}"
            Cache.open(shared).close()
            print("\n| durable reserve-and-settle | calls a second |\n|---|---|")
            for processes, block in ((1, 1), (4, 1), (3, 32)):
                ledgers(shared, processes, block)
            print("\n| PostgreSQL | wall time |\n|---|---|")
            rows(f"{url}?schema={schemas[1]}")
            judging(f"{url}?schema={schemas[1]}")
        finally:
            for schema in schemas:
                admin.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    print("\n| SQLite | wall time |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        rows(f"{folder}/cache.sqlite")
        judging(f"{folder}/cache.sqlite")


if __name__ == "__main__":
    main(sys.argv[1])

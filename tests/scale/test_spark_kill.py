"""Three executors, one killed: the cap holds at the server, nothing is paid twice."""

from collections import Counter
from collections.abc import Callable
import os
from pathlib import Path
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import polars as pl
import pytest

from reply_resolution.judge.cache import Cache

pytestmark = pytest.mark.scale

ROWS, CAP, IN_FLIGHT = 1_500, 900, 32

# A session is one to a process, and this one is a cluster: three JVMs with one core.
JOB = """
    import os, sys
    import polars as pl
    import pyspark
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from reply_resolution.judge.budget import Limits
    from reply_resolution.scale.spark import judge_on_spark

    cache, url, rows, cap, in_flight, out = sys.argv[1:]
    session = (
        SparkSession.builder.master("local-cluster[3,1,1024]")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", os.path.dirname(out))
        .getOrCreate()
    )
    replies = pl.DataFrame(
        {
            "request_id": [f"q{i}" for i in range(int(rows))],
            "arm": ["control", "treatment"] * (int(rows) // 2),
            "request": [f"How do I do thing {i}?" for i in range(int(rows))],
            "reply": [f"Open Settings, then {i}." for i in range(int(rows))],
        }
    )
    verdicts = judge_on_spark(
        session.createDataFrame(replies.to_arrow()),
        cache=cache,
        model="m",
        base_url=url,
        limits=Limits(max_calls=int(cap)),
        tasks=3,
        concurrency=int(in_flight),
    )
    verdicts.explain(True)
    pl.from_arrow(verdicts.toArrow()).write_parquet(out)
    session.stop()
"""


def parent(pid: int) -> int:
    """The process that started another."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def executor_of(pid: int) -> int:
    """The JVM above a Python worker that judges."""
    while (
        "CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_text()
    ):
        pid = parent(pid)
        assert pid > 1, "no executor above"
    return pid


def start(cache: str, url: str, cap: int, out: Path) -> subprocess.Popen[str]:
    """The job in a process of its own; the key and the password by environment."""
    words = [cache, url, ROWS, cap, IN_FLIGHT, out]
    secret = {"OPENAI_API_KEY": "marked-key", "PGPASSWORD": "marked-secret"}
    with (
        (out.parent / "stdout").open("w") as said,
        (out.parent / "stderr").open("w") as errors,
    ):
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(JOB), *map(str, words)],
            env={**os.environ, **secret},
            stdout=said,
            stderr=errors,
            text=True,
        )


def test_a_killed_executor_pays_at_most_what_it_had_in_flight(
    with_java: None,
    server: Any,
    loopback: Any,
    new_schema: Callable[[], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The cap over 3 x 32 in flight, counted at the server; no verdict paid again."""
    asked: list[str] = []
    keys: set[str] = set()

    def note(request: Any) -> Any:
        asked.append(request.user)
        keys.add(request.headers.get("authorization", ""))
        return loopback.good(request)

    server.latency = 0.2
    server.behave(note)
    with_password = new_schema()
    cache = with_password.replace(":marked-secret", "")
    out = tmp_path / "out.parquet"
    job = start(cache, server.url, CAP, out)
    killed: list[int] = []
    committed: set[str] = set()
    before = 0
    while job.poll() is None:
        time.sleep(0.05)
        if not killed and len(asked) >= CAP // 3:
            with Cache.open(with_password) as store:
                owners = store.read("SELECT DISTINCT owner FROM claims")
                workers = {int(owner.split("/")[-3]) for (owner,) in owners}
                committed = {
                    m for (m,) in store.read("SELECT user_message FROM answers")
                }
                before = len(asked)
            victim = sorted(workers)[0]
            for pid in (executor_of(victim), victim):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
    errors = (tmp_path / "stderr").read_text()
    assert job.returncode == 0, errors[-3000:]
    assert len(killed) == 2
    assert len(asked) <= CAP
    assert server.max_in_flight > IN_FLIGHT  # several executors asked at once
    assert not committed & set(asked[before:])
    twice = [message for message, n in Counter(asked).items() if n > 1]
    assert len(twice) <= IN_FLIGHT
    judged = pl.read_parquet(out)
    assert judged.height == ROWS
    assert set(judged["status"]) == {"scored", "not_judged"}
    left = judged.filter(status="not_judged")
    assert left["status_detail"].unique().to_list() == ["budget"]
    arms = judged.filter(status="scored").group_by("arm").len()["len"]
    assert abs(arms[0] - arms[1]) <= 3 * IN_FLIGHT

    # Run again without a cap: only what is missing is asked for.
    with Cache.open(with_password) as store:
        ((kept,),) = store.read("SELECT count(*) FROM verdicts")
    with capsys.disabled():
        print(
            f"\nasked {len(asked)} of a cap of {CAP}, {before} before the kill with "
            f"{len(committed)} committed; {kept} verdicts kept, {len(twice)} messages "
            f"asked twice, at most {server.max_in_flight} in flight"
        )
    asked.clear()
    again = start(cache, server.url, 10 * ROWS, out)
    assert again.wait(900) == 0, (tmp_path / "stderr").read_text()[-3000:]
    assert len(asked) == ROWS - kept
    assert set(pl.read_parquet(out)["status"]) == {"scored"}

    # The key arrived by the environment, and is nowhere else.
    assert keys == {"Bearer marked-key"}
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"not_judged" in written  # the plan is in there
    assert b"marked-key" not in written
    assert b"marked-secret" not in written

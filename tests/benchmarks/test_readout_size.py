"""A readout of two million judged replies: time, memory, size of the page."""

from pathlib import Path
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

READ = """
import dataclasses, resource, sys, time
import polars as pl
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.readout.build import build_readout

started = time.monotonic()
plan = dataclasses.replace(
    ExperimentPlan.load(sys.argv[2]), accept_unchecked_judge=True
)
readout = build_readout(pl.read_parquet(sys.argv[1]), plan, seed=7)
page, _ = readout.save(sys.argv[3])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(time.monotonic() - started, peak, page.stat().st_size)
"""


@pytest.mark.slow
def test_two_million_replies(root: Path, tmp_path: Path) -> None:
    """Under 60 s and 2 GB, the page under 300 KB; texts are read on a draw."""
    n = 2_000_000
    rng = np.random.default_rng(0)
    some = pl.read_csv(root / "data" / "experiment.csv").select(
        pl.col("request", "reply").str.slice(0, 100), "language"
    )
    said = pl.read_ndjson(root / "data" / "verdicts_experiment.jsonl")["reason"]
    which = rng.integers(0, some.height, n)
    user = rng.integers(0, n // 2, n)
    some[which].with_columns(
        request_id=pl.int_range(n).cast(pl.String),
        user_id=pl.Series(user).cast(pl.String),
        arm=pl.Series(np.where(user % 2 == 0, "control", "treatment")),
        score=pl.Series(rng.integers(1, 6, n)).cast(pl.Int8),
        reason=said.str.slice(0, 80)[which],
        created_at=pl.format("2026-11-{}", pl.Series(rng.integers(10, 28, n))),
        latency_ms=pl.Series(rng.gamma(2, 500, n)),
        cost_usd=pl.Series(rng.gamma(2, 0.001, n)),
        contacted_again_24h=pl.Series(rng.integers(0, 2, n)),
    ).write_parquet(tmp_path / "big.parquet")
    plan = root / "data" / "plan.toml"
    done = subprocess.run(
        [sys.executable, "-c", READ, tmp_path / "big.parquet", plan, tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, gigabytes, size = map(float, done.stdout.split())
    assert seconds < 60
    assert gigabytes < 2
    assert size < 300_000
    assert "seeded draw of" in (tmp_path / "readout.html").read_text("utf-8")

"""Counts of a table of 100 million rows where it lives. By hand, never in CI.

    nice python tests/benchmarks/bench_scale_counts.py FOLDER [ROWS [DESIGN ...]]

Writes the table to FOLDER (about 17 bytes a row), counts it by polars' lazy engine,
DuckDB and Spark, each in a process of its own whose peak memory is measured (with the
processes it starts), checks that all agree, and deletes the table. One user has a
twentieth of all rows. Results of a run are in RESULTS_scale.md.
"""

import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import time
from typing import Any

import polars as pl

from reply_resolution.stats.counts import ScoreCounts, count_scores

DESIGNS = {"rows": {}, "strata": {"stratum": "topic"}, "users": {"cluster": "user_id"}}
PART = 5_000_000


def write(folder: Path, rows: int) -> None:
    """The table, part by part: ids, users (one heavy), arms, topics, scores, filler."""
    for first in range(0, rows, PART):
        i = pl.int_range(first, min(rows, first + PART), eager=True)
        h = i.hash(seed=3)
        user = pl.when(h % 20 == 0).then(0).otherwise(1 + h % (rows // 4))
        pl.DataFrame({"i": i, "h": h}).select(
            request_id=pl.format("r{}", "i"),
            user_id=pl.format("u{}", user),
            arm=pl.when(h % 2 == 0)
            .then(pl.lit("treatment"))
            .otherwise(pl.lit("control")),
            topic=pl.format("topic {}", (pl.col("h") // 7) % 12),
            score=(1 + (pl.col("h") // 100) % 5).cast(pl.Int8),
            reason=pl.lit("The reply answers the question. ")
            + (pl.col("i") % 97).cast(pl.String),
        ).write_parquet(folder / f"{first:012}.parquet")


def frame_in(engine: str, folder: Path) -> Any:
    """The table as the engine's own frame."""
    files = str(folder / "*.parquet")
    if engine == "polars":
        return pl.scan_parquet(files)
    if engine == "duckdb":
        import duckdb

        duckdb.execute("SET memory_limit = '3GB'; SET threads = 2")
        duckdb.execute("SET preserve_insertion_order = false")
        duckdb.execute(f"SET temp_directory = '{folder / 'spill'}'")
        return duckdb.read_parquet(files)
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.shuffle.partitions", "64")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session.read.parquet(str(folder))


def digest(counts: ScoreCounts) -> dict[str, Any]:
    """What must be alike: all of it, in plain numbers."""
    order = sorted(range(len(counts.arms)), key=lambda i: counts.arms[i])
    units = counts.units
    return {
        "arms": [counts.arms[i] for i in order],
        "counts": counts.counts[:, order].tolist(),
        "rows": counts.rows,
        "excluded": {k: dict(v) for k, v in counts.excluded.items()},
        "warnings": counts.warnings,
        "units": None
        if units is None
        else sorted(
            [int(n), int(h), *vector]
            for n, h, vector in zip(
                units.number,
                units.stratum,
                units.vectors[:, order].reshape(len(units.number), -1).tolist(),
                strict=True,
            )
        ),
    }


def one(engine: str, design: str, folder: Path) -> None:
    """Count once, in this process; what was found and what it took, as JSON."""
    started = time.perf_counter()
    counts = count_scores(frame_in(engine, folder), **DESIGNS[design])
    seconds = time.perf_counter() - started
    found = json.dumps(digest(counts), sort_keys=True)
    (folder.parent / f"{engine}-{design}.json").write_text(found)
    print(json.dumps({"seconds": seconds, "mb": peak_mb()}))


def peak_mb() -> float:
    """Most memory held at once, MB: of this process and those it started, added up.

    Not `ru_maxrss`, which a process inherits from the one that started it.
    """
    family, total = {str(os.getpid())}, 0
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda p: int(p.name)):
        try:
            status = dict(
                line.split(":\t", 1)
                for line in (path / "status").read_text().splitlines()
                if ":\t" in line
            )
        except OSError:  # it has just ended
            continue
        if path.name in family or status["PPid"].strip() in family:
            family.add(path.name)
            total += int(status.get("VmHWM", "0 kB").split()[0])
    return total / 1024


def plans(folder: Path) -> None:
    """What each engine says it will do for the main query."""
    from dataclasses import replace

    from reply_resolution.scale.counts import by_outcome, narrow
    from reply_resolution.scale.source import open_source
    from reply_resolution.stats.repeats import Names

    names = Names("arm", "score", None, None, None, "request_id", "user_id", "-", "-")
    for engine in ("polars", "duckdb"):
        source = open_source(frame_in(engine, folder), folder)
        assert not isinstance(source, pl.DataFrame)
        query = by_outcome(replace(source, lazy=narrow(source, names)[0]))
        if engine == "polars":
            print(query.explain(engine="streaming"))
        else:
            print(query.to_native().explain())


def main(folder: Path, rows: int, designs: list[str]) -> None:
    """Write, count, compare, delete."""
    table = folder / f"scores-{rows}"
    table.mkdir()
    try:
        started = time.perf_counter()
        write(table, rows)
        size = sum(p.stat().st_size for p in table.glob("*.parquet")) / 1e9
        print(f"{rows:,} rows, {size:.2f} GB, {time.perf_counter() - started:.0f} s")
        plans(table)
        print("| engine | design | seconds | peak MB |\n|---|---|---|---|", flush=True)
        for design in designs:
            for engine in ("polars", "duckdb", "spark"):
                done = subprocess.run(
                    [sys.executable, __file__, engine, design, str(table)],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=False,
                )
                if done.returncode:
                    print(f"| {engine} | {design} | failed | |", flush=True)
                    continue
                said = json.loads(done.stdout.splitlines()[-1])
                took = f"{said['seconds']:.0f} | {said['mb']:.0f}"
                print(f"| {engine} | {design} | {took} |", flush=True)
            answers = list(folder.glob(f"*-{design}.json"))
            found = {p.read_text() for p in answers}
            for path in answers:
                path.unlink()
            print(f"{design}: {len(answers)} engines, {len(found)} result", flush=True)
    finally:
        shutil.rmtree(table)


if __name__ == "__main__":
    if sys.argv[1] in ("polars", "duckdb", "spark"):
        one(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        rows = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000_000
        main(Path(sys.argv[1]), rows, sys.argv[3:] or list(DESIGNS))

"""Time and memory of the exact statistics, beside scipy's, on this machine.

Run by hand: `python tests/benchmarks/bench_statistics.py [--quick]`; prints the table
of RESULTS_statistics.md. Every figure comes from a fresh process, so that peak memory
(the process's resident maximum, less what it held before) is that task's own. scipy is
run with its documented batches where its default would not fit in memory.
"""

import argparse
from collections.abc import Callable
import json
from pathlib import Path
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

SHARES = (0.08, 0.10, 0.17, 0.30, 0.35)
RESAMPLES = 9_999


def _counts(n: int, seed: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed).multinomial(n, SHARES)


def _rows(n: int, seed: int) -> Any:
    import numpy as np

    return np.repeat(np.arange(1.0, 6.0), _counts(n, seed))


def ours_permutation(n: int) -> Callable[[], object]:
    """Exact p-value from counts."""
    from reply_resolution.stats.permutation import permutation_test

    a, b = _counts(n, 1), _counts(n, 2)
    return lambda: permutation_test(a, b)


def scipy_permutation(n: int) -> Callable[[], object]:
    """`scipy.stats.permutation_test`, batched; 9,999 draws, scaled from fewer."""
    import numpy as np
    from scipy.stats import permutation_test

    a, b = _rows(n, 1), _rows(n, 2)
    draws = _draws(n)

    def difference(x: Any, y: Any, axis: int) -> Any:
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    return lambda: permutation_test(
        (a, b),
        difference,
        vectorized=True,
        n_resamples=draws,
        batch=max(1, 1_000_000 // n),
        rng=np.random.default_rng(0),
    )


def ours_bootstrap(n: int) -> Callable[[], object]:
    """Exact expanded-percentile interval from counts."""
    from reply_resolution.stats.bootstrap import difference_interval

    a, b = _counts(n, 1), _counts(n, 2)
    return lambda: difference_interval(a, b)


def scipy_bootstrap(n: int) -> Callable[[], object]:
    """`scipy.stats.bootstrap`, percentile, batched; 9,999 draws, scaled from fewer."""
    import numpy as np
    from scipy.stats import bootstrap

    a, b = _rows(n, 1), _rows(n, 2)
    draws = _draws(n)

    def difference(x: Any, y: Any, axis: int) -> Any:
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    return lambda: bootstrap(
        (a, b),
        difference,
        vectorized=True,
        n_resamples=draws,
        batch=max(1, 1_000_000 // n),
        method="percentile",
        rng=np.random.default_rng(0),
    )


def whole_analysis(n: int) -> Callable[[], object]:
    """Exact p and interval, four cuts with max-T, win probability, odds ratio."""
    from reply_resolution.stats.compare import compare
    from reply_resolution.stats.counts import ScoreCounts

    table = {"control": _counts(n, 1).tolist(), "treatment": _counts(n, 2).tolist()}
    counts = ScoreCounts.from_table(table)
    small = ScoreCounts.from_table({"control": [9] * 5, "treatment": [8] * 5})
    compare(small, control="control")  # imports are not the analysis
    return lambda: compare(counts, control="control")


def users(n: int) -> Callable[[], object]:
    """Users as units, 9,999 permutations: n users an arm, 1 to 8 replies each."""
    import numpy as np

    from reply_resolution.stats.clusters import unit_permutation_test
    from reply_resolution.stats.unit_effects import Units

    rng = np.random.default_rng(0)
    held = []
    for _ in range(2):
        size = rng.integers(1, 9, n)
        held.append(rng.multinomial(size, SHARES))
    vectors, place = np.unique(np.concatenate(held), axis=0, return_inverse=True)
    place = place.ravel()
    control = np.bincount(place[:n], minlength=len(vectors))
    treatment = np.bincount(place[n:], minlength=len(vectors))
    zero = np.zeros_like(vectors)
    units = Units(
        np.concatenate([vectors, zero]),
        np.concatenate([zero, vectors]),
        np.concatenate([control, treatment]),
        np.zeros(2 * len(vectors), dtype=np.int64),
    )
    return lambda: unit_permutation_test(
        units, values=np.arange(1, 6), resamples=RESAMPLES, seed=1
    )


def _draws(n: int) -> int:
    return 99 if n >= 100_000 else 999


TASKS: dict[str, Callable[[int], Callable[[], object]]] = {
    f.__name__: f
    for f in (
        ours_permutation,
        scipy_permutation,
        ours_bootstrap,
        scipy_bootstrap,
        whole_analysis,
        users,
    )
}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(task: str, n: int) -> dict[str, float]:
    """Seconds and extra peak memory of one task in this process."""
    run = TASKS[task](n)
    repeat = 1 if task.startswith("scipy") else 3
    before = _peak_mb()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    scale = RESAMPLES / _draws(n) if task.startswith("scipy") else 1.0
    return {"seconds": min(times) * scale, "megabytes": max(0.0, _peak_mb() - before)}


def _in_process(task: str, n: int) -> dict[str, float]:
    out = subprocess.run(
        [sys.executable, __file__, "--task", task, "--n", str(n)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(out.stdout)
    return found


def counting() -> list[str]:
    """Two million rows from Parquet: `count_scores` beside a bare group-by."""
    import numpy as np
    import polars as pl

    from reply_resolution.stats.counts import count_scores

    n = 2_000_000
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "arm": np.where(rng.random(n) < 0.5, "control", "treatment"),
            "score": rng.choice(np.arange(1, 6, dtype=np.int8), n, p=SHARES),
        }
    )
    wide = frame.with_columns(
        pl.Series("request_id", [f"r{i:07d}" for i in range(n)]),
        pl.Series("user_id", [f"u{i:06d}" for i in rng.integers(0, 800_000, n)]),
    )
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        slim, full = Path(folder) / "slim.parquet", Path(folder) / "full.parquet"
        frame.write_parquet(slim)
        wide.write_parquet(full)

        def best(run: Callable[[], object]) -> float:
            times = []
            for _ in range(7):
                start = time.perf_counter()
                run()
                times.append(time.perf_counter() - start)
            return min(times)

        keys = "arm", "score"
        bare = best(lambda: pl.scan_parquet(slim).group_by(*keys).len().collect())
        for name, table, own, cluster in (
            ("arm and score", slim, [keys], None),
            (
                "with request and user ids, checked for repeats",
                full,
                [("request_id", "arm"), keys],
                None,
            ),
            ("800,000 users as units", full, [("user_id", *keys)], "user_id"),
        ):
            mine = best(
                lambda table=table, cluster=cluster: count_scores(
                    pl.scan_parquet(table), cluster=cluster
                )
            )
            theirs = best(
                lambda table=table, own=own: [
                    pl.scan_parquet(table).group_by(*k).len().collect() for k in own
                ]
            )
            lines.append(
                f"| {name} | {mine:.3f} | {bare:.3f} | {mine / bare:.1f} | "
                f"{theirs:.3f} | {mine / theirs:.1f} |"
            )
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1e4 an arm only")
    parser.add_argument("--task", choices=sorted(TASKS))
    parser.add_argument("--n", type=int, default=10_000)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(measure(options.task, options.n)))
        return
    sizes = (10_000,) if options.quick else (10_000, 100_000)
    print("| what | replies an arm | ours | scipy | time | memory |")
    print("|---|---|---|---|---|---|")
    for what in ("permutation", "bootstrap"):
        for n in sizes:
            a, b = _in_process(f"ours_{what}", n), _in_process(f"scipy_{what}", n)
            print(
                f"| {what} | {n:,} | {a['seconds'] * 1e3:.1f} ms, "
                f"{a['megabytes']:.0f} MB | {b['seconds']:,.1f} s, "
                f"{b['megabytes']:.0f} MB | {b['seconds'] / a['seconds']:,.0f}x | "
                f"{b['megabytes'] / max(1.0, a['megabytes']):,.0f}x |"
            )
    print("\n| whole analysis, replies an arm | seconds | extra MB |\n|---|---|---|")
    for n in (*sizes, *(() if options.quick else (1_000_000, 10_000_000))):
        a = _in_process("whole_analysis", n)
        print(f"| {n:,} | {a['seconds']:.3f} | {a['megabytes']:.0f} |")
    print("\n| users an arm, 9,999 permutations | seconds | extra MB |\n|---|---|---|")
    for n in (5_000,) if options.quick else (5_000, 50_000, 500_000):
        a = _in_process("users", n)
        print(f"| {n:,} | {a['seconds']:.3f} | {a['megabytes']:.0f} |")
    print(
        "\n| counting 2,000,000 rows from Parquet | seconds | bare group-by of arm and "
        "score | ratio | bare group-by of the same columns | ratio |"
    )
    print("|---|---|---|---|---|---|")
    print("\n".join(counting()))


if __name__ == "__main__":
    main()

"""Measure agreement and correction: time, coverage of intervals, false alarms.

Run by hand; writes `RESULTS_agreement.md` beside this file (about ten minutes of CPU):

    python tests/benchmarks/agreement_results.py [RUNS]
"""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
import statistics
import sys
import time

import numpy as np

from reply_resolution.stats.agreement import agreement

HERE = Path(__file__).resolve().parent

SHORT = """
## What falls short

- Where gross errors are rare (equal in 90%), kappa's and AC2's intervals cover \
less than 92% in some rows, also above 100 items: a sample with none or few of them \
cannot show how many there are. With one to nine such pairs `ci_reliable` is False; \
a sample with none cannot be told from a judge that makes none.
- At 30 labels an arm the corrected difference rejects a true zero a little more \
often than 5% (t interval, the judge's weight chosen from the same labels); \
coverage stays above 92%.
"""


def load(name):
    """A test module, for the worlds it simulates."""
    spec = spec_from_file_location(name, HERE.parent / "stats" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def times():
    """Median of five runs of each kind, milliseconds of wall time and of CPU."""
    rng = np.random.default_rng(0)
    out = []
    for n in (100, 1_000, 10_000, 100_000):
        label = rng.integers(1, 6, n)
        judge = np.clip(label + rng.integers(-1, 2, n), 1, 5)
        kinds = {
            "whole scores": {},
            "users as clusters": {"clusters": rng.integers(0, n // 3 + 1, n)},
            "five weights": {"weights": 1.0 + label},
        }
        for kind, options in kinds.items():
            out.append(
                (
                    n,
                    kind,
                    *clock(lambda j=judge, x=label, o=options: agreement(j, x, **o)),
                )
            )
        real = judge + rng.normal(0, 0.01, n)
        if n <= 10_000:
            out.append(
                (
                    n,
                    "real-valued judge",
                    *clock(lambda j=real, x=label: agreement(j, x)),
                )
            )
    return out


def clock(work):
    """Median wall and CPU milliseconds of five runs."""
    walls, cpus = [], []
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.process_time() - cpu))
    return statistics.median(walls), statistics.median(cpus)


def main():
    """Write the tables."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    tests, corrections = load("test_agreement"), load("test_correction")
    lines = [
        "# Agreement and correction: time, coverage, false alarms",
        "",
        f"Written by `python tests/benchmarks/agreement_results.py {runs}`: {runs} "
        "seeded runs a row (standard error at 95%: "
        f"{100 * (0.95 * 0.05 / runs) ** 0.5:.1f} points).",
        "",
        "## Time of `agreement` with all intervals",
        "",
        "| items | kind | wall ms | CPU ms |",
        "|---|---|---|---|",
        *(
            f"| {n:,} | {kind} | {wall:.0f} | {cpu:.0f} |"
            for n, kind, wall, cpu in times()
        ),
        "",
        "## Coverage of 95% intervals of agreement",
        "",
        "Judge equal to the label in about 70% (90%) of replies, else one level off, "
        "and anything at all in 6% (2%). One item at chance is mixed into the draws.",
        "",
        "| labels | equal | items | kappa | alpha | AC2 | Spearman | tau-b | bias | "
        "exact |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    names = (
        "weighted_kappa",
        "krippendorff_alpha",
        "gwet_ac2",
        "spearman",
        "kendall_tau_b",
        "bias",
        "exact",
    )
    for shape in ("spread", "J-shaped", "ceiling"):
        for sharp in (0.7, 0.9):
            for n in (50, 100, 300):
                found = tests.coverage(
                    shape, n, runs, sharp=sharp, seed=1, resamples=400
                )
                cells = " | ".join(f"{100 * found[k]:.1f}" for k in names)
                lines.append(f"| {shape} | {sharp:.0%} | {n} | {cells} |")
                print(lines[-1], flush=True)
    lines += [
        "",
        "## The corrected difference (PPI++, t interval), 400 judged an arm",
        "",
        "Inflated: the judge raises that share of treatment replies by one level.",
        "",
        "| labels an arm | true effect | inflated | coverage | rejects | "
        "judge alone rejects |",
        "|---|---|---|---|---|---|",
    ]
    for labelled in (30, 100):
        for effect, inflate in ((0.0, 0.0), (0.0, 0.25), (0.3, 0.0), (0.3, 0.25)):
            cover, reject, alone = corrections.rates(
                runs=runs, labelled=labelled, effect=effect, inflate=inflate, seed=1
            )
            lines.append(
                f"| {labelled} | {effect} | {inflate:.0%} | {100 * cover:.1f} | "
                f"{100 * reject:.1f} | {100 * alone:.1f} |"
            )
            print(lines[-1], flush=True)
    lines += SHORT.splitlines()
    (HERE / "RESULTS_agreement.md").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()

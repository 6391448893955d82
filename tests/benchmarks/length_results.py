"""Write RESULTS_length.md: simulated judges, real data, bundled data.

Run by hand from the project's root: `python tests/benchmarks/length_results.py`.
"""

import importlib.util
import os
from pathlib import Path
import sys
import time
from types import ModuleType

import polars as pl

from reply_resolution.inputs import load
from reply_resolution.pages.length_check import check_length
from reply_resolution.stats.length import length_bias

ROOT = Path(__file__).resolve().parents[2]
RUNS = 500


def _tests(name: str) -> ModuleType:
    path = ROOT / "tests" / "stats" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _simulated() -> list[str]:
    worlds = _tests("test_length")
    lines = [
        "## Simulated judges",
        "",
        f"{RUNS} seeded runs each, 150 labelled replies, log length with standard "
        "deviation 0.5; bias 0.5 points per log unit. A fair judge may be accused in "
        "5% (three binomial deviations: 2.1% to 7.9%).",
        "",
        "| judge | bias found |",
        "|---|---|",
    ]
    for name, (world, _) in worlds.WORLDS.items():
        found = worlds.accusations(world, RUNS, seed=20261130)
        lines.append(f"| {name} | {found} of {RUNS} ({found / RUNS:.1%}) |")
    covered, raw, effects = _tests("test_length_effects")._simulate(600, 12)
    return [
        *lines,
        "",
        "Effect of a treatment that is longer and no better, judge biased, 600 runs: "
        f"the corrected interval covers the truth in {covered / 600:.1%}, the raw "
        f"one in {raw / 600:.1%}; mean corrected effect {sum(effects) / 600:+.3f}.",
    ]


def _real() -> list[str]:
    folder = Path(os.environ.get("REPLY_RESOLUTION_REAL_DATA", ROOT / "../shared/real"))
    lines = [
        "",
        "## Real human-labelled data",
        "",
        "| set, judge, label | n | judge/length | people/length | partial | "
        "standardised t | bias per doubling (standard deviations) |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, judge, label in (
        ("llm_rubric_real", "judge_score", "human_score"),
        ("mtrag_human", "judge_rl_f", "human_faithfulness"),
        ("mtrag_human", "judge_rl_f", "human_score"),
    ):
        path = folder / name / "tidy.csv"
        if not path.exists():
            lines.append(f"| {name}: not here | | | | | | |")
            continue
        b = length_bias(pl.read_csv(path), judge=judge, label=label)
        low, high = b.ci
        lines.append(
            f"| {name}, {judge}, {label} | {b.n} | {b.judge_length_spearman:.3f} | "
            f"{b.label_length_spearman:.3f} | {b.partial_spearman:.3f} | "
            f"{b.tvalue:.2f} | {b.points_per_doubling:+.3f} "
            f"({low:+.3f} to {high:+.3f}) |"
        )
    return lines


def _bundled(out: Path) -> list[str]:
    started = time.process_time()
    data = load(
        "data/calibration.csv",
        "data/verdicts_calibration.jsonl",
        "data/calibration.csv",
    )
    check = check_length(
        data,
        twins="data/twins.csv",
        twin_verdicts="data/verdicts_twins.jsonl",
        experiment="data/experiment.csv",
        experiment_verdicts="data/verdicts_experiment.jsonl",
        out=str(out),
    )
    seconds = time.process_time() - started
    lines = [
        "",
        "## The bundled data",
        "",
        f"{check.verdict.word}: {check.verdict.sentence} ({seconds:.1f} s of CPU.)",
        "",
        "| twins | pairs | higher | lower | mean change | exact p |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {t.kind} | {t.n} | {t.up} | {t.down} | {t.change:+.3f} "
        f"({t.ci[0]:+.3f} to {t.ci[1]:+.3f}) | {t.pvalue:.2f} |"
        for t in check.twins
    ]
    (e,) = check.effects
    return [
        *lines,
        "",
        f"Experiment: {e.judge_effect:+.3f} ({e.judge_ci[0]:+.3f} to "
        f"{e.judge_ci[1]:+.3f}) as judged; corrected {e.corrected:+.3f} "
        f"({e.corrected_ci[0]:+.3f} to {e.corrected_ci[1]:+.3f}); at equal length "
        f"{e.length_controlled:+.3f} ({e.length_controlled_ci[0]:+.3f} to "
        f"{e.length_controlled_ci[1]:+.3f}).",
    ]


def main() -> None:
    """Compute everything and write the file."""
    import tempfile

    with tempfile.TemporaryDirectory() as out:
        parts = [*_simulated(), *_real(), *_bundled(Path(out))]
    head = [
        "# Length bias: what was measured",
        "",
        "Written by `python tests/benchmarks/length_results.py` "
        f"(Python {sys.version.split()[0]}).",
        "",
    ]
    path = ROOT / "tests" / "benchmarks" / "RESULTS_length.md"
    path.write_text("\n".join([*head, *parts]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What the readout recommends in simulated experiments whose truth is known.

Every run goes through `build_readout`, the function that notebook 04 calls, from
counts. Run this file by hand to write the table of RESULTS_readout.md:

    python tests/benchmarks/test_readout_outcomes.py [RUNS] [PROCESSES] [SCENARIO ...]
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
import json
from pathlib import Path
import sys
import time

import numpy as np
import polars as pl
import pytest

from reply_resolution.readout.build import Readout, build_readout
from reply_resolution.readout.checks_judge import Calibrated
from reply_resolution.readout.experiment_plan import ExperimentPlan, Look
from reply_resolution.readout.recommendation import JUDGE_ALONE
from reply_resolution.report import run_report
from reply_resolution.stats.counts import ScoreCounts, count_scores

BASE = np.array([0.08, 0.17, 0.15, 0.28, 0.32])  # scores 1 to 5 of control
ARMS = ("control", "treatment")
N = 400  # replies per arm
JUDGE = Calibrated(0.82, 0.76, 0.87, 150, 0.05, "of the calibration", "fit")
PLAN = ExperimentPlan(planned_replies=N, worthwhile_gain=0.3, harm_limit=0.2)
WEEKLY = ExperimentPlan(planned_replies=N, planned_looks=10)
WRONG_SHIP = 0.037  # 2.5% and three standard errors of 2,000 runs
WRONG_PEEK = 0.066  # 5% and three standard errors


def shifted(points: float) -> np.ndarray:
    """Control's distribution tilted until its mean is higher by `points`."""
    levels = np.arange(1, 6)
    low, high = -3.0, 3.0
    for _ in range(60):
        tilt = (low + high) / 2
        p = BASE * np.exp(tilt * levels)
        p /= p.sum()
        low, high = (tilt, high) if p @ levels < BASE @ levels + points else (low, tilt)
    return p


def drawn(rng: np.random.Generator, p: np.ndarray, n: int = N) -> np.ndarray:
    """Scores of one arm."""
    return rng.choice(np.arange(1, 6), size=n, p=p)


def counted(control: np.ndarray, treatment: np.ndarray) -> ScoreCounts:
    """Counts of two arms of scores."""
    return ScoreCounts.from_table(
        {
            arm: np.bincount(scores, minlength=6)[1:].tolist()
            for arm, scores in zip(ARMS, (control, treatment), strict=True)
        }
    )


def read(counts: ScoreCounts, **known: object) -> Readout:
    """The readout of a calibrated judge."""
    return build_readout(counts, PLAN, calibration=JUDGE, **known)


def difference(points: float) -> Callable[[np.random.Generator], Iterator[Readout]]:
    """Two arms whose true means differ by `points`; the judge sees the truth."""
    p = shifted(points)

    def run(rng: np.random.Generator) -> Iterator[Readout]:
        yield read(counted(drawn(rng, BASE), drawn(rng, p)))

    return run


def inflated(labels: int) -> Callable[[np.random.Generator], Iterator[Readout]]:
    """No true difference; the judge lifts a quarter of the treatment's replies."""

    def run(rng: np.random.Generator) -> Iterator[Readout]:
        truth = {arm: drawn(rng, BASE) for arm in ARMS}
        judge = dict(truth)
        lift = rng.random(N) < 0.25
        judge["treatment"] = np.minimum(5, truth["treatment"] + lift)
        counts = counted(judge["control"], judge["treatment"])
        if not labels:
            yield read(counts)
            return
        rows = []
        for arm in ARMS:
            label = truth[arm].astype(float)
            label[rng.permutation(N)[labels:]] = np.nan  # labelled at random
            rows.append(pl.DataFrame({"arm": arm, "score": judge[arm], "label": label}))
        frame = pl.concat(rows).with_columns(pl.col("label").fill_nan(None))
        yield read(counts, labels=frame)

    return run


def missing(share: float) -> Callable[[np.random.Generator], Iterator[Readout]]:
    """No true difference; a share of the treatment's low scores gets lost."""

    def run(rng: np.random.Generator) -> Iterator[Readout]:
        control, treatment = drawn(rng, BASE), drawn(rng, BASE)
        lost = (treatment <= 2) & (rng.random(N) < share)
        yield read(counted(control, treatment[~lost]), judged=dict.fromkeys(ARMS, N))

    return run


def weekly(rng: np.random.Generator) -> Iterator[Readout]:
    """No true difference, read after each of ten weeks."""
    week = N // 10
    scores = [drawn(rng, BASE), drawn(rng, BASE)]
    for look in range(1, 11):
        counts = counted(*(s[: look * week] for s in scores))
        yield build_readout(counts, WEEKLY, calibration=JUDGE, look=Look(look, ()))


def crowded(rng: np.random.Generator) -> Iterator[Readout]:
    """No true difference; users with 1 to 8 requests whose scores go together."""
    users = 120
    rows = []
    cuts = np.cumsum(BASE)[:-1]
    from scipy.special import ndtr

    for arm in ARMS:
        sizes = rng.integers(1, 9, users)
        user = np.repeat(np.arange(users), sizes)
        latent = np.sqrt(0.3) * rng.normal(size=users)[user]
        latent = latent + np.sqrt(0.7) * rng.normal(size=len(user))
        score = 1 + np.searchsorted(cuts, ndtr(latent))
        rows.append(
            pl.DataFrame({"arm": arm, "user_id": user, "score": score}).with_columns(
                pl.format("{}{}", pl.lit(arm), pl.col("user_id")).alias("user_id")
            )
        )
    yield read(count_scores(pl.concat(rows), cluster="user_id"))


def stratified(labels: int) -> Callable[[np.random.Generator], Iterator[Readout]]:
    """No true difference; two strata of other levels, the treatment rarer in the first.

    With labels the judge also lifts a quarter of the treatment's replies.
    """

    def run(rng: np.random.Generator) -> Iterator[Readout]:
        parts = []
        for name, level, share in (("hard", -0.8, 0.35), ("easy", 0.5, 0.65)):
            arm = np.where(rng.random(N) < share, *ARMS[::-1])
            truth = drawn(rng, shifted(level))
            lift = (arm == "treatment") & (rng.random(N) < 0.25) & (labels > 0)
            score = np.minimum(5, truth + lift)
            parts.append(pl.DataFrame({"arm": arm, "label": truth, "score": score}))
            parts[-1] = parts[-1].with_columns(stratum=pl.lit(name))
        frame = pl.concat(parts)
        counts = count_scores(frame, stratum="stratum")
        if not labels:
            yield read(counts)
            return
        frame = frame.with_columns(chance=pl.Series(rng.random(frame.height)))
        chosen = pl.col("chance").rank("ordinal").over("arm") <= labels
        frame = frame.with_columns(label=pl.when(chosen).then(pl.col("label")))
        yield read(counts, labels=frame)

    return run


@dataclass(frozen=True)
class Scenario:
    """A world, and the most often that a recommendation may be wrong in it."""

    title: str
    run: Callable[[np.random.Generator], Iterator[Readout]]
    wrong: tuple[str, ...]
    limit: float | None


SCENARIOS = {
    "none": Scenario("no difference", difference(0.0), ("ship",), WRONG_SHIP),
    "small": Scenario("gain of 0.1, too small to matter", difference(0.1), (), None),
    "worthwhile": Scenario("gain of 0.4, worthwhile", difference(0.4), (), None),
    "harm": Scenario("loss of 0.4, harmful", difference(-0.4), ("ship",), WRONG_SHIP),
    "inflated_labels": Scenario(
        "no difference, judge lifts the treatment, 100 labels an arm",
        inflated(100),
        ("ship",),
        WRONG_SHIP,
    ),
    "inflated_alone": Scenario(
        "no difference, judge lifts the treatment, no labels", inflated(0), (), None
    ),
    "missing": Scenario(
        "no difference, 60% of the treatment's low scores lost",
        missing(0.6),
        ("ship",),
        WRONG_SHIP,
    ),
    "missing_few": Scenario(
        "no difference, 5% of the treatment's low scores lost",
        missing(0.05),
        ("ship",),
        WRONG_SHIP,
    ),
    "weekly": Scenario(
        "no difference, ten weekly looks", weekly, ("ship", "keep_control"), WRONG_PEEK
    ),
    "users": Scenario(
        "no difference, users with 1 to 8 requests", crowded, ("ship",), WRONG_SHIP
    ),
    "strata": Scenario(
        "no difference, arms mixed 35:65 over strata of other levels",
        stratified(0),
        ("ship",),
        WRONG_SHIP,
    ),
    "strata_labels": Scenario(
        "the same, judge lifts the treatment, 100 labels an arm",
        stratified(100),
        ("ship",),
        WRONG_SHIP,
    ),
}


def outcome(name: str, number: int) -> tuple[str, bool]:
    """The rule that decided run `number`, and whether the page names the judge alone.

    With several looks the first winner counts, as for somebody who stops there.
    """
    seed = [20261130, list(SCENARIOS).index(name), number]
    rules, alone = [], True
    for readout in SCENARIOS[name].run(np.random.default_rng(seed)):
        rules.append(readout.rule)
        said = readout.document["recommendation"]["caveat"]
        alone = alone and (JUDGE_ALONE in said or readout.rule == "do_not_read")
        if readout.rule in ("ship", "keep_control"):
            break
    return rules[-1], alone


def _no_cuts(set_attribute: Callable[[object, str, object], None]) -> None:
    """Leave out the tests of the four cuts: they are shown, and decide nothing."""
    from reply_resolution.stats import designs

    for name in ("cut_tests", "unit_cut_tests"):
        if hasattr(designs, name):
            set_attribute(designs, name, lambda *_, **__: ())


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the time, the same decisions."""
    _no_cuts(monkeypatch.setattr)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    "name", ["none", "harm", "inflated_labels", "missing", "strata", "strata_labels"]
)
def test_wrong_ships_are_rare(name: str) -> None:
    """Of 20 experiments without a gain at most 3 are shipped (1 in 600 by chance)."""
    rules = Counter(outcome(name, k)[0] for k in range(20))
    assert rules["ship"] <= 3, rules


@pytest.mark.usefixtures("fast")
def test_a_worthwhile_gain_is_mostly_shipped() -> None:
    """Of 10 experiments with a gain of 0.4 points at least 8 are shipped."""
    rules = Counter(outcome("worthwhile", k)[0] for k in range(10))
    assert rules["ship"] >= 8, rules


@pytest.mark.usefixtures("fast")
def test_a_page_without_labels_names_the_judge_alone() -> None:
    """Where nobody could check the judge for favour, every page says so."""
    found = [outcome("inflated_alone", k) for k in range(8)]
    assert all(alone for _, alone in found)
    assert "do_not_read" not in {rule for rule, _ in found}


def tables(name: str, number: int, folder: Path) -> dict[str, str]:
    """One experiment of a world as files, for the notebook; its parameters."""
    rng = np.random.default_rng([20261130, list(SCENARIOS).index(name), number])
    treated = {"worthwhile": shifted(0.4), "harm": shifted(-0.4)}.get(name, BASE)
    truth = {"control": drawn(rng, BASE), "treatment": drawn(rng, treated)}
    frame = pl.concat(
        pl.DataFrame({"arm": arm, "label": truth[arm], "score": truth[arm]})
        for arm in ARMS
    ).with_columns(request_id=pl.format("r{}", pl.int_range(2 * N)))
    in_treatment = (frame["arm"] == "treatment").to_numpy()
    if name.startswith("inflated"):
        lift = in_treatment & (rng.random(2 * N) < 0.25)
        score = np.minimum(5, frame["score"].to_numpy() + lift)
        frame = frame.with_columns(score=pl.Series(score))
    if name == "missing":
        low = (frame["score"] <= 2).to_numpy()
        lost = pl.Series(in_treatment & low & (rng.random(2 * N) < 0.6))
        frame = frame.with_columns(score=pl.when(~lost).then(pl.col("score")))
    plan = "accept_unchecked_judge = true\nplanned_replies = 400\n"
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    if name == "users":  # five requests a user, scores that go together
        users = pl.int_range(2 * N) // 5
        frame = frame.with_columns(score=pl.col("score").first().over(users))
        frame = frame.with_columns(user_id=pl.format("u{}", users))
    texts = frame.select(
        *("request_id", "arm", *(["user_id"] if name == "users" else [])),
        request=pl.lit("?"),
        reply=pl.lit("!"),
    )
    texts.write_csv(folder / "replies.csv")
    reason = pl.lit("Because it is so.")
    frame.select("request_id", "arm", "score", reason=reason).write_ndjson(
        folder / "verdicts.jsonl"
    )
    labels = ""
    if name == "inflated_labels":
        chosen = frame.with_columns(annotator=pl.lit("a"))
        labels = str(folder / "labels.csv")
        pl.concat(
            chosen.filter(pl.col("arm") == arm).sample(100, seed=number) for arm in ARMS
        ).select("request_id", "arm", "annotator", "label").write_csv(labels)
    return {
        "replies": str(folder / "replies.csv"),
        "verdicts": str(folder / "verdicts.jsonl"),
        "labels": labels,
        "plan": str(folder / "plan.toml"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(
    "name",
    [
        *("none", "worthwhile", "harm", "inflated_labels", "inflated_alone"),
        *("missing", "users"),
    ],
)
def test_the_notebook_reads_a_world_as_the_function_does(
    name: str, number: int, tmp_path: Path
) -> None:
    """Five experiments of each world through notebook 04: never a wrong ship."""
    report = run_report(
        "04_experiment_readout", tables(name, number, tmp_path), out=tmp_path, pdf=False
    )
    document = json.loads((tmp_path / "readout.json").read_text("utf-8"))
    rule = document["recommendation"]["rule"]
    assert rule in {
        "worthwhile": {"ship"},
        "harm": {"keep_control"},
        "missing": {"do_not_read"},
        "inflated_alone": {"ship", "no_winner", "no_worthwhile_difference"},
    }.get(name, {"no_winner", "no_worthwhile_difference", "keep_control"})
    page = report.html.read_text("utf-8")
    alone = name not in ("inflated_labels", "missing")
    assert (JUDGE_ALONE in page) == alone
    if name == "missing":
        assert "<svg" not in page


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_weekly_reruns_of_the_notebook_share_one_ledger(
    number: int, tmp_path: Path
) -> None:
    """Each week's file is the next look; the interval is the confidence sequence."""
    parameters = tables("none", number, tmp_path)
    plan = Path(parameters["plan"])
    plan.write_text(plan.read_text("utf-8") + "planned_looks = 10\n", "utf-8")
    whole = pl.read_csv(parameters["replies"])
    verdicts = pl.read_ndjson(parameters["verdicts"])
    for look, share in ((1, 0.3), (2, 1.0), (2, 1.0)):  # the last one is a rerun
        part = whole.group_by("arm", maintain_order=True).head(int(N * share))
        part.write_csv(parameters["replies"])
        judged = verdicts.join(part.select("request_id"), on="request_id", how="semi")
        judged.write_ndjson(parameters["verdicts"])
        run_report("04_experiment_readout", parameters, out=tmp_path, pdf=False)
        document = json.loads((tmp_path / "readout.json").read_text("utf-8"))
        checks = {c["key"]: c for c in document["checks"]}
        assert checks["looks"]["numbers"]["look"] == look
        assert checks["looks"]["status"] == "ok"
        judge = document["treatments"][0]["effects"][0]
        assert judge["method"] == "confidence sequence"
        assert document["recommendation"]["rule"] in (
            "no_winner",
            "no_worthwhile_difference",
        )


@pytest.mark.slow
@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_outcomes_over_2000_experiments(name: str) -> None:
    """Wrong recommendations stay under the published limits."""
    scenario = SCENARIOS[name]
    found = [outcome(name, k) for k in range(2000)]
    rules = Counter(rule for rule, _ in found)
    if scenario.limit is not None:
        assert sum(rules[w] for w in scenario.wrong) / 2000 <= scenario.limit, rules
    if name == "inflated_alone":
        assert all(alone for _, alone in found)


COLUMNS = (
    "ship",
    "keep_control",
    "no_worthwhile_difference",
    "no_winner",
    "do_not_read",
)


def _one(job: tuple[str, int]) -> str:
    _no_cuts(setattr)
    return outcome(*job)[0]


def main(runs: int, processes: int, names: list[str]) -> None:
    """Write the table of outcomes, row by row as the scenarios finish."""
    lines = [
        "# Outcomes of simulated experiments",
        "",
        f"{runs:,} seeded runs a scenario through `build_readout` from counts; "
        f"{N} replies an arm (users: 120 users an arm with 1 to 8 requests); alpha "
        "0.05, worthwhile gain 0.3, harm limit 0.2. With several looks the first "
        "winner counts. Reproduce: `python tests/benchmarks/test_readout_outcomes.py`.",
        "",
        "| scenario | "
        + " | ".join(c.replace("_", " ") for c in COLUMNS)
        + " | wrong, limit |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    path = Path(__file__).with_name("RESULTS_readout.md")
    with ProcessPoolExecutor(processes) as pool:
        for name in names or SCENARIOS:
            scenario = SCENARIOS[name]
            started = time.monotonic()
            jobs = [(name, k) for k in range(runs)]
            rules = Counter(pool.map(_one, jobs, chunksize=20))
            wrong = "–"
            if scenario.limit is not None:
                share = sum(rules[w] for w in scenario.wrong) / runs
                wrong = f"{share:.1%}, {scenario.limit:.1%}"
            cells = " | ".join(f"{rules[c] / runs:.1%}" for c in COLUMNS)
            lines.append(f"| {scenario.title} | {cells} | {wrong} |")
            print(lines[-1], f"{time.monotonic() - started:.0f} s", flush=True)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 2000,
        int(sys.argv[2]) if len(sys.argv) > 2 else 2,
        sys.argv[3:],
    )

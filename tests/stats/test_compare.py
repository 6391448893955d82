"""The comparison of arms: its object, its designs, its refusals, known bugs."""

import json
from pathlib import Path
import subprocess
import sys
from typing import Any

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import ScoreError, StatisticsError, TableError
from reply_resolution.stats.compare import compare
from reply_resolution.stats.counts import ScoreCounts
from reply_resolution.stats.permutation import (
    paired_permutation_test,
    permutation_test,
)

KEYS = {
    "treatment",
    "control",
    "mean_difference",
    "ci",
    "ci_method",
    "confidence",
    "pvalue",
    "pvalue_adjusted",
    "pvalue_method",
    "win_probability",
    "win_probability_ci",
    "resolved_difference",
    "resolved_difference_ci",
}


@pytest.fixture(scope="module")
def experiment(root: Path) -> pl.DataFrame:
    """The bundled experiment joined with its recorded verdicts."""
    replies = pl.read_csv(root / "data/experiment.csv").select(
        "request_id", "arm", "user_id", "language"
    )
    verdicts = pl.read_ndjson(root / "data/verdicts_experiment.jsonl")
    return replies.join(verdicts, on=["request_id", "arm"])


@pytest.fixture(scope="module")
def replay(root: Path) -> pl.DataFrame:
    """The verdicts of the bundled paired replay."""
    return pl.read_ndjson(root / "data/verdicts_replay.jsonl")


def _strict(result: Any) -> dict[str, Any]:
    """The object through JSON, which refuses NaN and Infinity."""
    out: dict[str, Any] = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    return out


def test_the_bundled_experiment_by_rows(experiment: pl.DataFrame) -> None:
    """Rows: difference -0.325, exact p 0.0356, and the warning that users repeat."""
    found = _strict(compare(experiment, control="control"))
    assert found["design"] == "independent"
    assert found["arms"]["control"]["counts"] == [10, 34, 24, 45, 47]
    assert found["arms"]["treatment"]["n"] == 160
    assert found["arms"]["control"]["mean"] == pytest.approx(3.53125)
    assert found["arms"]["control"]["resolved"] == pytest.approx(0.575)
    assert found["excluded"] == {}
    assert any("--cluster user_id" in w for w in found["warnings"])
    (effect,) = found["comparisons"]
    assert effect.keys() >= KEYS
    assert effect["mean_difference"] == pytest.approx(-0.325)
    assert effect["pvalue"] == pytest.approx(0.0356408, abs=1e-7)
    assert effect["pvalue"] == effect["pvalue_adjusted"]
    assert effect["pvalue_method"] == "exact"
    assert effect["ci"] == pytest.approx([-0.61875, -0.025])
    assert effect["ci_reliable"]
    assert effect["win_probability"] == pytest.approx(0.4365, abs=1e-4)
    assert effect["resolved_difference"] == pytest.approx(-0.09375)
    assert effect["resolved_difference_ci"] == pytest.approx(
        [-0.2011, 0.0158], abs=1e-4
    )
    assert [c["cut"] for c in effect["cuts"]] == [2, 3, 4, 5]


def test_the_bundled_experiment_by_users(experiment: pl.DataFrame) -> None:
    """Users as units: same estimate, a cluster-robust interval, a drawn p-value."""
    found = _strict(compare(experiment, control="control", cluster="user_id", seed=7))
    assert found["design"] == "clustered"
    assert found["arms"]["control"]["units"] == 121
    assert found["arms"]["treatment"]["units"] == 125
    (effect,) = found["comparisons"]
    assert effect["mean_difference"] == pytest.approx(-0.325)
    assert effect["pvalue_method"] == "monte_carlo"
    assert effect["resamples"] == 99_999
    assert 0.02 < effect["pvalue"] < 0.04
    assert effect["ci"][0] < -0.325 < effect["ci"][1] < 0
    assert effect["ci_method"] == "cluster-robust t (CR1)"
    assert found["warnings"] == []


def test_the_bundled_replay_by_pairs(replay: pl.DataFrame) -> None:
    """Pairs: the exact sign flip of the differences, counted by hand from the table."""
    found = _strict(compare(replay, control="control", pair="request_id"))
    assert found["design"] == "paired"
    wide = replay.pivot(on="arm", index="request_id", values="score")
    d = (wide["treatment"] - wide["control"]).to_numpy()
    values, times = np.unique(d, return_counts=True)
    (effect,) = found["comparisons"]
    assert effect["mean_difference"] == pytest.approx(d.mean())
    want = paired_permutation_test(values, times).pvalue
    assert effect["pvalue"] == pytest.approx(want, rel=1e-12)
    assert effect["win_probability"] == pytest.approx(
        ((d > 0).sum() + (d == 0).sum() / 2) / len(d)
    )
    assert found["warnings"] == []
    unpaired = compare(replay, control="control")
    assert any("80 request ids" in w for w in unpaired.warnings)


def test_pairs_leave_out_what_has_no_partner(replay: pl.DataFrame) -> None:
    """A request without its partner is unpaired; a failed partner too."""
    broken = replay.with_row_index("i").with_columns(
        pl.when(pl.col("i") == 0)
        .then(pl.lit("failed"))
        .otherwise(pl.col("status"))
        .alias("status")
    )
    found = compare(broken.slice(0, 159), control="control", pair="request_id")
    assert found.excluded == {"failed": 1, "unpaired": 2}
    assert {a.n for a in found.arms} == {78}
    assert sum(found.excluded.values()) + 2 * 78 == found.counts.rows


def test_pairs_of_users_are_flipped_whole() -> None:
    """Two pairs of one user that agree are one piece of evidence, not two."""
    rows = [
        (f"r{u}{k}", f"u{u}", arm, s)
        for u, gain in enumerate([1, 2, 1, 3, -1, 1, 2, 1])
        for k in range(3)
        for arm, s in (("a", 2), ("b", 2 + gain))
    ]
    frame = pl.DataFrame(
        rows, schema=["request_id", "user_id", "arm", "score"], orient="row"
    )
    apart = compare(frame, control="a", pair="request_id")
    assert any("--cluster user_id" in w for w in apart.warnings)
    whole = compare(frame, control="a", pair="request_id", cluster="user_id")
    one, many = whole.comparisons[0], apart.comparisons[0]
    assert one.mean_difference == many.mean_difference == 1.25
    assert one.pvalue == pytest.approx(12 / 256)  # as of eight differences
    assert many.pvalue < one.pvalue
    assert one.units_control == 8
    assert one.pvalue_method == "exact"
    assert one.ci[0] < many.ci[0]  # type: ignore[operator]
    assert len(one.cuts) == 4


def test_strata_are_weighed_and_dealt_within(experiment: pl.DataFrame) -> None:
    """The stratified p is the exact one of the strata's tables."""
    found = compare(experiment, control="control", stratum="language")
    effect = found.comparisons[0]
    c, t = found.counts.counts[:, 0], found.counts.counts[:, 1]
    if found.counts.arms[0] != "control":
        c, t = t, c
    both = (c.sum(1) > 0) & (t.sum(1) > 0)
    want = permutation_test(c[both], t[both]).pvalue
    assert effect.pvalue == pytest.approx(want, rel=1e-12)
    assert effect.pvalue_method == "exact"
    assert effect.ci_method.startswith("bootstrap within strata")
    assert "language" not in found.to_dict()["arms"]


def test_one_sided_is_one_sided(experiment: pl.DataFrame) -> None:
    """Treatment is worse: "less" is about half of two-sided, "greater" near 1."""
    p = {
        side: compare(experiment, control="control", alternative=side)
        .comparisons[0]
        .pvalue
        for side in ("two-sided", "less", "greater")
    }
    assert p["less"] == pytest.approx(p["two-sided"] / 2, rel=0.05)
    assert p["greater"] > 0.97


def test_swapping_control_and_treatment_mirrors(experiment: pl.DataFrame) -> None:
    """Everything changes its sign, the p-value nothing (arch issue 308)."""
    a = compare(experiment, control="control").comparisons[0]
    b = compare(experiment, control="treatment").comparisons[0]
    assert b.mean_difference == pytest.approx(-a.mean_difference)
    assert b.pvalue == pytest.approx(a.pvalue, rel=1e-12)
    assert b.ci == pytest.approx((-a.ci[1], -a.ci[0]), rel=1e-12)  # type: ignore[operator]
    assert b.win_probability == pytest.approx(1 - a.win_probability)
    assert b.odds_ratio == pytest.approx(1 / a.odds_ratio)  # type: ignore[operator]


def test_an_unequal_plan_is_studentized(experiment: pl.DataFrame) -> None:
    """The plan decides, not the data: 90:10 studentizes, 55:45 does not."""
    unequal = compare(
        experiment, control="control", allocation={"control": 0.9, "treatment": 0.1}
    ).comparisons[0]
    assert unequal.studentized
    assert unequal.pvalue_method == "monte_carlo"
    near = compare(
        experiment, control="control", allocation={"control": 55, "treatment": 45}
    ).comparisons[0]
    assert not near.studentized
    with pytest.raises(StatisticsError, match="every arm a share above 0"):
        compare(experiment, control="control", allocation={"control": 1})


def test_unequal_data_without_a_plan_is_mentioned() -> None:
    """600 against 60 scored replies: ask whether that was planned."""
    counts = ScoreCounts.from_table(
        {"a": [100, 100, 100, 100, 200], "b": [10, 10, 10, 10, 20]}
    )
    assert any("allocation" in w for w in compare(counts, control="a").warnings)


def test_several_treatments_are_adjusted() -> None:
    """Each treatment against control, in order, family-wise; Holm on request."""
    counts = ScoreCounts.from_table(
        {
            "b": [30, 36, 42, 52, 70],
            "a": [40, 40, 40, 50, 60],
            "c": [41, 39, 40, 52, 58],
        }
    )
    found = compare(counts, control="a")
    assert [e.treatment for e in found.comparisons] == ["b", "c"]
    assert all(e.adjustment == "max-t" for e in found.comparisons)
    assert {e.adjustment_resamples for e in found.comparisons} == {9_999}
    assert found.comparisons[0].pvalue_adjusted > 1.2 * found.comparisons[0].pvalue
    assert all(e.pvalue_adjusted >= e.pvalue for e in found.comparisons)
    holm = compare(counts, control="a", adjustment="holm").comparisons
    assert holm[0].pvalue_adjusted == pytest.approx(2 * holm[0].pvalue)
    assert holm[1].pvalue_adjusted == pytest.approx(holm[1].pvalue)
    assert found.comparisons[0].pvalue_adjusted < holm[0].pvalue_adjusted
    sure = ScoreCounts.from_table(
        {"a": [99, 9, 0, 0, 0], "b": [0, 0, 0, 9, 99], "c": [98, 10, 0, 0, 0]}
    )
    # draws cannot give less than 1 in 10,000; Holm's exact bound can
    assert compare(sure, control="a").comparisons[0].pvalue_adjusted < 1e-20
    _strict(found)


def test_three_arms_of_pairs_are_each_paired_with_control() -> None:
    """A request without one treatment still serves the other."""
    frame = pl.DataFrame(
        {
            "request_id": ["x", "x", "x", "y", "y", "z", "w"],
            "arm": ["a", "b", "c", "a", "c", "b", "a"],
            "score": [1, 2, 3, 4, 5, 5, 1],
        }
    )
    found = compare(frame, control="a", pair="request_id")
    assert [e.n_control for e in found.comparisons] == [1, 2]
    assert found.excluded == {"unpaired": 2}
    assert found.arm("a").n == 2
    assert all(e.adjustment == "holm" for e in found.comparisons)


def test_an_arm_left_empty_is_named_with_its_reasons() -> None:
    """Excluded rows are no failure; an arm with none left is."""
    frame = pl.DataFrame(
        {
            "arm": ["a", "a", "b", "b", "b"],
            "score": [4, 5, None, None, None],
            "status": ["scored", "scored", "failed", "failed", "refused"],
        }
    )
    with pytest.raises(StatisticsError, match=r"'b' has no usable score.*2 failed"):
        compare(frame, control="a")


def test_an_unknown_control_lists_the_arms(experiment: pl.DataFrame) -> None:
    """The message names the arms, their rows, and a near spelling."""
    with pytest.raises(TableError, match=r"'Control'.*160 scored rows.*Did you mean"):
        compare(experiment, control="Control")
    with pytest.raises(StatisticsError, match="only arm"):
        compare(experiment.filter(pl.col("arm") == "control"), control="control")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cut": 1}, "cut 1 is not on the scale"),
        ({"cut": 6}, "cut 6 is not on the scale"),
        ({"confidence": 95}, "give a fraction"),
        ({"adjustment": "bonferroni"}, "choose max-t or holm"),
        ({"alternative": "up"}, "choose two-sided"),
    ],
)
def test_options_out_of_range_are_named(options: dict[str, Any], message: str) -> None:
    """Each says what was given, what is allowed."""
    counts = ScoreCounts.from_table({"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 6]})
    with pytest.raises(StatisticsError, match=message):
        compare(counts, control="a", **options)


def test_everything_equal_is_defined_and_marked() -> None:
    """All scores alike: 0, p = 1, a degenerate interval that says so, no NaN."""
    counts = ScoreCounts.from_table({"a": [0, 0, 12, 0, 0], "b": [0, 0, 10, 0, 0]})
    found = _strict(compare(counts, control="a"))
    (effect,) = found["comparisons"]
    assert effect["mean_difference"] == 0
    assert effect["pvalue"] == 1
    assert effect["ci"] == [0, 0]
    assert not effect["ci_reliable"]
    assert effect["odds_ratio"] is None
    assert any("degenerate" in w for w in found["warnings"])


def test_a_single_reply_has_a_p_value_and_no_interval() -> None:
    """N of 1: exact p, null interval, and the reason in the warnings (scipy raises)."""
    counts = ScoreCounts.from_table({"a": [1, 0, 0, 0, 0], "b": [0, 1, 1, 1, 1]})
    found = _strict(compare(counts, control="a"))
    (effect,) = found["comparisons"]
    assert effect["pvalue"] == pytest.approx(0.4)
    assert effect["ci"] == [None, None]
    assert any("single unit" in w and "undefined" in w for w in found["warnings"])


def test_separated_arms_are_finite() -> None:
    """Arms that don't overlap (scipy's Brunner-Munzel gives inf and NaN)."""
    counts = ScoreCounts.from_table({"a": [1, 1, 1, 0, 0], "b": [0, 0, 0, 2, 3]})
    found = _strict(compare(counts, control="a"))
    (effect,) = found["comparisons"]
    assert effect["win_probability"] == 1
    assert 0 < effect["win_probability_ci"][0] < 1
    assert effect["pvalue"] == pytest.approx(1 / 56)  # one dealing is as far out


def test_few_replies_are_called_unreliable() -> None:
    """Under 20 an arm the interval stands but is marked."""
    counts = ScoreCounts.from_table({"a": [3, 4, 4, 4, 4], "b": [9, 9, 9, 9, 9]})
    effect = compare(counts, control="a").comparisons[0]
    assert not effect.ci_reliable
    assert not effect.win_probability_reliable
    more = ScoreCounts.from_table({"a": [4, 4, 4, 4, 4], "b": [9, 9, 9, 9, 9]})
    assert compare(more, control="a").comparisons[0].ci_reliable


def test_one_failed_parse_does_not_make_a_p_value() -> None:
    """One NaN makes scipy's permutation p 0.0002; here it is counted and left out."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 6, 60).astype(float), rng.integers(1, 6, 60).astype(float)
    a[3] = np.nan
    frame = pl.DataFrame({"arm": ["a"] * 60 + ["b"] * 60, "score": [*a, *b]})
    found = compare(frame, control="a")
    assert found.excluded == {"missing": 1}
    assert found.comparisons[0].pvalue > 0.8


def test_adding_nan_changes_nothing() -> None:
    """A hundred unreadable cells an arm leave the p-value alone (scipy 17731)."""
    frame = pl.DataFrame(
        {
            "arm": ["a"] * 3 + ["b"] * 3 + ["a", "b"] * 100,
            "score": [0.0, 1, 2, 1, 2, 3] + [float("nan")] * 200,
        }
    )
    clean = compare(frame.head(6), control="a", scale=(0, 3), cut=2).comparisons[0]
    dirty = compare(frame, control="a", scale=(0, 3), cut=2)
    assert dirty.comparisons[0].pvalue == clean.pvalue
    assert dirty.excluded == {"missing": 200}


def test_only_nan_is_an_error() -> None:
    """Nothing but NaN in an arm is no evidence (scipy 4067: p = 0.006)."""
    frame = pl.DataFrame({"arm": ["a", "b"] * 5, "score": [float("nan")] * 10})
    with pytest.raises(StatisticsError, match="5 missing"):
        compare(frame, control="a")


def test_a_thousand_an_arm_has_its_exact_p() -> None:
    """ExactRankTests returns 0 after 142 s on this table."""
    counts = ScoreCounts.from_table(
        {"a": [110, 105, 179, 313, 293], "b": [107, 132, 167, 312, 282]}
    )
    found = compare(counts, control="a").comparisons[0]
    assert found.pvalue == pytest.approx(0.4623984706575869, rel=1e-9)


def test_an_effect_does_not_depend_on_its_batch() -> None:
    """A comparison is the same alone and beside others (scipy 26115)."""
    table = {"a": [9, 9, 9, 9, 9], "b": [3, 5, 9, 12, 16]}
    alone = compare(ScoreCounts.from_table(table), control="a").comparisons[0]
    table["c"] = [0, 0, 45, 0, 0]
    beside = compare(ScoreCounts.from_table(table), control="a").comparisons[0]
    assert beside.pvalue == alone.pvalue
    assert beside.ci == alone.ci


def test_averages_of_annotators_are_refused(real_data: Path) -> None:
    """MT-RAG's mean completeness has fractions; its whole ratings pair up."""
    folder = real_data / "mtrag_human"
    options = {"control": "llama-3.1-405b-instruct", "arm": "system"}
    means = pl.read_csv(folder / "tidy.csv")
    with pytest.raises(ScoreError, match="averages"):
        compare(means, score="human_score", pair="request_id", **options)
    ratings = pl.read_csv(folder / "human_ratings.csv").filter(
        (pl.col("criterion") == "completeness") & (pl.col("system") != "reference")
    )
    rated = ratings.with_columns(
        pl.concat_str("request_id", "annotator_id", separator="/").alias("rating")
    )
    found = compare(
        rated, score="human_score", pair="rating", cluster="request_id", **options
    )
    effect = found.comparisons[0]
    # reference_numbers.json: -0.008 on the means, p 0.88 to 0.90
    assert effect.mean_difference == pytest.approx(-0.008, abs=0.02)
    assert effect.pvalue == pytest.approx(0.89, abs=0.06)
    assert effect.units_control == 157  # requests that one person rated in both


def test_the_whole_process_is_quick_and_light(tmp_path: Path, root: Path) -> None:
    """320 rows in one process: no scipy.stats, statsmodels, pandas or matplotlib."""
    code = (
        "import sys, polars as pl\n"
        "from reply_resolution.stats.compare import compare\n"
        f"frame = pl.read_ndjson({str(root / 'data/verdicts_experiment.jsonl')!r})\n"
        "compare(frame, control='control').to_dict()\n"
        "heavy = {'scipy.stats', 'statsmodels', 'pandas', 'matplotlib', 'openai'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"

"""A stratified design: every number of the readout compares within the strata."""

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.readout.build import build_readout
from reply_resolution.readout.experiment_plan import ExperimentPlan, Metric
from reply_resolution.stats.compare import compare
from reply_resolution.stats.length_effects import length_effect

ARMS = {"control": "control", "treatment": "treatment"}
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def row(readout, key):
    """One effect of the treatment."""
    effects = readout.document["treatments"][0]["effects"]
    return next(e for e in effects if e["key"] == key)


def _stratified(rng, users=False):
    """Two strata far apart, arms mixed 30:70 and 70:30 between them; effect -0.1."""
    rows = []
    for h, (level, treated) in enumerate(((2.2, 0.35), (4.0, 0.65))):
        for i in range(120):
            arm = "treatment" if rng.random() < treated else "control"
            for k in range(int(rng.integers(1, 4)) if users else 1):
                score = int(np.clip(round(level + rng.normal(0, 0.8)), 1, 5))
                cost = 10.0 * level + rng.normal(0, 1)
                rows.append(
                    {
                        "request_id": f"{h}-{i}-{k}",
                        "arm": arm,
                        "score": score,
                        "stratum": f"plan {h}",
                        "user_id": f"u{h}-{i}" if users else None,
                        "reply": "word " * (3 + 10 * h + score),
                        "request": "?",
                        "cost": cost,
                        "again": int(rng.random() < (0.6 if h else 0.1)),
                        "language": "en" if i % 2 else "de",
                        "created_at": f"2026-11-{1 + i % 14:02}",
                    }
                )
    return pl.DataFrame(rows, schema_overrides={"user_id": pl.String})


@pytest.mark.parametrize("users", [False, True])
def test_strata_are_compared_within_and_with_the_digits_of_compare(users):
    """A table with a stratum column: every number of the page compares within it."""
    replies = _stratified(np.random.default_rng(4), users)
    plan = ExperimentPlan(
        guardrails=(Metric("cost", margin=1.0), Metric("again", kind="rate", margin=1)),
        segments=("language",),
        accept_unchecked_judge=True,
        minimum_units=5,
        sample_ratio_alpha=1e-9,
    )
    got = build_readout(replies, plan, seed=3, now=NOON)
    assert got.rule != "do_not_read"
    options = {"control": "control", "stratum": "stratum", "seed": 3}
    cluster = "user_id" if users else None
    want = compare(replies, cluster=cluster, **options).comparisons[0]
    judge, resolved = row(got, "judge"), row(got, "resolved")
    assert judge["estimate"] == want.mean_difference
    assert judge["ci"] == list(want.ci)
    assert judge["pvalue"] == want.pvalue
    assert resolved["estimate"] == want.resolved_difference
    assert resolved["ci"] == list(want.resolved_difference_ci)
    treatment = got.document["treatments"][0]
    assert treatment["win_probability"] == want.win_probability
    # Strata ignored, the treatment seems to win by the mix alone.
    pooled = compare(replies, control="control", cluster=cluster).comparisons[0]
    assert pooled.mean_difference > want.mean_difference + 0.3
    for metric in treatment["metrics"]:
        assert metric["ci"][0] < 0 < metric["ci"][1], metric["column"]
        assert abs(metric["difference"]) < {"cost": 1.0, "again": 0.2}[metric["column"]]
    held = length_effect(
        replies, None, **ARMS, cluster=cluster, stratum="stratum"
    ).length_controlled
    assert treatment["length_controlled"]["estimate"] == pytest.approx(held)
    last = treatment["looks"][-1]
    assert abs(last["estimate"] - want.mean_difference) < 0.05
    part = replies.filter(pl.col("language") == "en")
    inside = compare(part, cluster=cluster, **{**options, "seed": 0}).comparisons[0]
    segment = next(s for s in treatment["segments"] if s["value"] == "en")
    assert segment["estimate"] == inside.mean_difference
    assert segment["ci"] == list(inside.ci)
    page = got.page()
    assert "compared within 2 strata" in page
    assert "within strata" in page


def test_labels_correct_within_strata():
    """People's labels do not bring back what the mix of strata would add."""
    replies = _stratified(np.random.default_rng(9))
    drawn = replies.sample(fraction=0.6, seed=1)
    labels = drawn.select(
        "request_id",
        "arm",
        label=pl.col("score"),
        annotator=pl.lit("kim"),
    )
    plan = ExperimentPlan(minimum_units=5, sample_ratio_alpha=1e-9)
    got = build_readout(replies, plan, labels=labels, calibration=None, now=NOON)
    human, judge = row(got, "human"), row(got, "judge")
    assert human["decides"]
    assert human["estimate"] == pytest.approx(judge["estimate"], abs=0.05)


def test_a_user_in_two_strata_is_an_error_that_says_so():
    """Strata must be a property of the unit that was randomised."""
    replies = _stratified(np.random.default_rng(4), users=True)
    torn = replies.with_columns(user_id=pl.format("u{}", pl.int_range(pl.len()) % 40))
    with pytest.raises(StatisticsError, match="stratum"):
        build_readout(torn, ExperimentPlan(), now=NOON)


@pytest.mark.parametrize("users", [False, True])
def test_what_carries_no_comparison_is_counted(users):
    """Replies of a stratum that one arm lacks are said to be left out, by number."""
    replies = _stratified(np.random.default_rng(4), users)
    alone = (pl.col("arm") == "treatment") & (pl.col("language") == "de")
    where = pl.when(alone).then(pl.lit("plan 9")).otherwise(pl.col("stratum"))
    torn = replies.with_columns(stratum=where)
    plan = ExperimentPlan(
        accept_unchecked_judge=True,
        sample_ratio_alpha=1e-9,
        secondary=(Metric("cost"),),
    )
    got = build_readout(torn, plan, now=NOON)
    number = torn.filter(pl.col("stratum") == "plan 9").height
    notes = got.document["experiment"]["notes"]
    assert got.document["treatments"][0]["metrics"][0]["missing"] == number
    assert any(f"{number} rows" in n and "no comparison" in n for n in notes), notes

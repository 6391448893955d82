"""Label-corrected means and differences: outside numbers, laws, error rates."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.correction import (
    differential_bias,
    ppi_difference,
    ppi_mean,
    rogan_gladen,
    tipping_point,
)
from reply_resolution.stats.labelled_arms import Arm, arm_part

# ppi_py, debias-llm-as-a-judge and cigate on real data (CEBaB, score >= 4): 200
# labelled replies (69 right positives of 74, 119 right negatives of 126) and 511
# without a label, 200 of them called resolved by the judge.
ORACLE = json.loads(
    (Path(__file__).parent / "oracles/agreement_ppi.json").read_text("utf-8")
)
LABELS = np.r_[np.ones(74), np.zeros(126), np.full(511, np.nan)]
JUDGE = np.r_[
    np.ones(69), np.zeros(5), np.ones(7), np.zeros(119), np.ones(200), np.zeros(311)
]


def test_untuned_ppi_equals_ppi_py():
    """Weight 1: the same point; the t interval is a little wider than ppi_py's z."""
    found = ppi_mean(JUDGE, LABELS, lam=1.0)
    point, low, high = ORACLE["ppi_py_binary"]["lam1"]
    assert found.estimate == pytest.approx(point, abs=1e-8)
    assert (found.low, found.high) == pytest.approx((low, high), abs=3e-4)
    assert found.high - found.low > high - low


def test_tuned_ppi_equals_ppi_py():
    """PPI++ chooses its weight as ppi_py does; the default pays for the choice."""
    found = ppi_mean(JUDGE, LABELS)
    point, low, high = ORACLE["ppi_py_binary"]["tuned"]
    assert found.estimate == pytest.approx(point, abs=5e-7)
    assert found.lam == pytest.approx(0.6176775279, abs=1e-9)
    given = ppi_mean(JUDGE, LABELS, lam=found.lam)
    assert given.estimate == pytest.approx(point, abs=5e-7)
    assert (given.low, given.high) == pytest.approx((low, high), abs=3e-4)
    assert 1 < found.se / given.se < 1.05


def test_a_labels_push_is_what_leaving_it_out_does():
    """The jackknife, with the judge's weight chosen anew each time, by brute force."""
    rng = np.random.default_rng(12)
    judge = rng.integers(1, 6, 80).astype(float)
    label = np.where(
        np.arange(80) < 30, np.clip(judge + rng.integers(-1, 2, 80), 1, 5), np.nan
    )
    part = arm_part(Arm(judge, label, None, None), None)
    without = np.array(
        [
            arm_part(
                Arm(np.delete(judge, i), np.delete(label, i), None, None), None
            ).estimate
            for i in range(30)
        ]
    )
    assert part.labelled @ part.labelled == pytest.approx(
        29 / 30 * ((without - without.mean()) ** 2).sum(), rel=1e-9
    )


def test_given_weights_equal_the_debias_package():
    """Its PPI, and its PPI++ with its own unclipped weight (covariance over n - 1).

    Its EIF and MLE follow from the same counts (69/76 and 5/124 by the judge's call)
    but are no estimators of this toolkit: for a rate they are PPI++ within 0.003, as
    Chen et al. 2026 prove, and PPI++ takes whole scores too.
    """
    debias = ORACLE["debias_r"]
    found = ppi_mean(JUDGE, LABELS, lam=1.0)
    assert found.estimate == pytest.approx(debias["ppi"][0], abs=1e-9)
    wanted = debias["ppi_pp_unclipped"]
    found = ppi_mean(JUDGE, LABELS, lam=wanted["lam"])
    assert found.estimate == pytest.approx(wanted["theta"], abs=1e-9)
    assert found.se**2 == pytest.approx(wanted["var"], rel=0.01)
    for other in ("eif", "mle"):
        assert found.estimate == pytest.approx(debias[other]["theta"], abs=0.003)


def test_weight_0_is_the_mean_of_the_labels():
    """The judge is not used: the classical t interval."""
    from scipy import stats

    found = ppi_mean(JUDGE, LABELS, lam=0.0)
    wanted = stats.ttest_1samp(LABELS[:200], 0).confidence_interval(0.95)
    assert found.estimate == pytest.approx(74 / 200)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


def test_rogan_gladen_equals_judgy_and_cigate():
    """Point as in judgy; interval as Lee et al. 2025 in cigate."""
    given = VALUES["rg_inputs"]
    found = rogan_gladen(
        given["p"] * given["n"],
        given["n"],
        true_positives=69,
        positives=given["m1"],
        true_negatives=119,
        negatives=given["m0"],
    )
    assert found.estimate == pytest.approx(VALUES["rg_point"], abs=1e-12)
    wanted = VALUES["cigate(Lee et al.) analytic"]
    assert (found.low, found.high) == pytest.approx(
        (wanted["lo"], wanted["hi"]), abs=1e-12
    )


VALUES = ORACLE["values"]


def test_rogan_gladen_refuses_a_judge_that_guesses():
    """At chance the formula divides by zero."""
    with pytest.raises(StatisticsError, match="no better than chance"):
        rogan_gladen(
            5, 10, true_positives=5, positives=10, true_negatives=5, negatives=10
        )


def experiment(rng, *, n=2000, labelled=100, effect=0.0, inflate=0.0):
    """Two arms; the judge blurs, and bumps a share of treatment replies one level."""
    rows = []
    for arm, shift in (("control", 0.0), ("treatment", effect)):
        quality = rng.normal(3.3 + shift, 1.2, n)
        truth = np.clip(np.round(quality), 1, 5)
        judge = np.clip(np.round(quality + rng.normal(0, 0.6, n)), 1, 5)
        if arm == "treatment":
            judge = np.clip(judge + (rng.random(n) < inflate), 1, 5)
        label = np.where(np.arange(n) < labelled, truth, np.nan)
        rows.append(pl.DataFrame({"arm": [arm] * n, "score": judge, "label": label}))
    return pl.concat(rows).with_columns(pl.col("label").fill_nan(None))


def test_difference_is_treatment_minus_control_of_the_arms():
    """The point is the difference of the two corrected means; swapping turns it."""
    frame = experiment(np.random.default_rng(1), n=300, effect=0.4)
    found = ppi_difference(frame, control="control")
    assert found.estimate == pytest.approx(
        found.treatment_arm.estimate - found.control_arm.estimate
    )
    turned = ppi_difference(frame, control="treatment")
    assert turned.estimate == pytest.approx(-found.estimate, abs=1e-12)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
    assert turned.pvalue == pytest.approx(found.pvalue)


def test_everything_labelled_is_welchs_t_test():
    """With no reply left unlabelled the judge adds nothing."""
    from scipy import stats

    frame = experiment(np.random.default_rng(2), n=60, labelled=60, effect=0.5)
    found = ppi_difference(frame, control="control")
    arms = [frame.filter(arm=a)["label"].to_numpy() for a in ("treatment", "control")]
    wanted = stats.ttest_ind(*arms, equal_var=False)
    assert found.pvalue == pytest.approx(wanted.pvalue, rel=1e-9)
    assert found.low == pytest.approx(wanted.confidence_interval().low, rel=1e-9)


def test_paired_requests_as_clusters_sharpen_the_difference():
    """The same request in both arms: what makes it hard cancels."""
    rng = np.random.default_rng(3)
    hard = rng.normal(0, 1, 400)
    rows = [
        pl.DataFrame(
            {
                "request_id": [str(i) for i in range(400)],
                "arm": [arm] * 400,
                "score": np.clip(np.round(3 + hard + rng.normal(0, 0.3, 400)), 1, 5),
                "label": np.where(
                    np.arange(400) < 80,
                    np.clip(np.round(3 + hard + rng.normal(0, 0.3, 400)), 1, 5),
                    np.nan,
                ),
            }
        )
        for arm in ("control", "treatment")
    ]
    frame = pl.concat(rows).with_columns(pl.col("label").fill_nan(None))
    alone = ppi_difference(frame, control="control")
    paired = ppi_difference(frame, control="control", cluster="request_id")
    assert paired.estimate == pytest.approx(alone.estimate)
    assert paired.se < 0.8 * alone.se


def test_repeated_users_widen_the_interval():
    """Five copies of every reply under one user add nothing."""
    frame = experiment(np.random.default_rng(4), n=200, labelled=60).with_row_index(
        "user_id"
    )
    copies = pl.concat([frame] * 5)
    alone = ppi_difference(frame, control="control")
    wrong = ppi_difference(copies, control="control")
    right = ppi_difference(copies, control="control", cluster="user_id")
    assert right.se == pytest.approx(alone.se, rel=0.02)
    assert wrong.se < 0.5 * alone.se


def test_a_stratified_draw_is_unbiased_with_its_weights():
    """Replies of score 5 labelled five times as often: weights put that right."""
    rng = np.random.default_rng(5)
    errors, naive = [], []
    for _ in range(300):
        truth = rng.choice([1, 2, 3, 4, 5], 600, p=[0.3, 0.2, 0.2, 0.2, 0.1])
        judge = np.clip(truth + rng.choice([-1, 0, 0, 1], 600), 1, 5)
        chance = np.where(judge == 5, 0.5, 0.1)
        drawn = rng.random(600) < chance
        label = np.where(drawn, truth, np.nan)
        found = ppi_mean(judge, label, weights=1 / chance)
        errors.append((found.estimate - 2.6) / found.se)
        naive.append(ppi_mean(judge, label).estimate - 2.6)
    assert abs(np.mean(errors)) < 0.2
    assert 0.85 < np.std(errors) < 1.15
    assert abs(np.mean(naive)) > 0.1


def test_an_arm_without_labels_is_an_error_that_names_it():
    """Fewer than two labels cannot correct anything."""
    frame = experiment(np.random.default_rng(6), n=50, labelled=20).with_columns(
        pl.when(pl.col("arm") == "treatment")
        .then(None)
        .otherwise(pl.col("label"))
        .alias("label")
    )
    with pytest.raises(StatisticsError, match="'treatment' has 0 labelled"):
        ppi_difference(frame, control="control")
    with pytest.raises(TableError, match="no arm is called"):
        ppi_difference(frame, control="old")


def test_few_labels_are_marked_unreliable():
    """29 labels in an arm: computed, marked, and said."""
    frame = experiment(np.random.default_rng(7), n=200, labelled=29)
    found = ppi_difference(frame, control="control")
    assert not found.reliable
    assert "29" in found.warnings[0]
    assert ppi_difference(
        experiment(np.random.default_rng(7), n=200, labelled=30), control="control"
    ).reliable


def test_replies_without_a_score_are_left_out_not_filled():
    """A refused reply is in neither part."""
    frame = experiment(np.random.default_rng(8), n=100, labelled=40)
    holes = frame.with_columns(
        pl.when(pl.int_range(pl.len()) % 10 == 0)
        .then(None)
        .otherwise(pl.col("score"))
        .alias("score")
    )
    found = ppi_difference(holes, control="control")
    assert found.control_arm.n_judged == 90
    assert found.control_arm.n_labelled == 36


def test_favour_for_an_arm_is_measured():
    """A judge that bumps half of the treatment replies one level."""
    frame = experiment(np.random.default_rng(9), labelled=400, inflate=0.5)
    found = differential_bias(frame, control="control", margin=0.2)
    assert 0.2 < found.low < found.estimate < 0.6
    assert found.estimate == pytest.approx(found.treatment_bias - found.control_bias)
    assert not found.equivalent
    assert "favours treatment" in found.conclusion


def test_no_favour_is_shown_only_with_enough_labels():
    """400 labels rule out 0.2 points; 40 settle nothing, and say how many would."""
    many = differential_bias(
        experiment(np.random.default_rng(10), labelled=600), control="control"
    )
    assert many.equivalent
    assert "smaller than" in many.conclusion
    few = differential_bias(
        experiment(np.random.default_rng(10), labelled=40), control="control"
    )
    assert not few.equivalent
    assert "not settled" in few.conclusion
    assert few.labels_needed > 40


def test_equivalence_agrees_with_the_90_percent_interval():
    """Two one-sided tests at 5% reject exactly where the 90% interval is inside."""
    for seed in range(20):
        frame = experiment(
            np.random.default_rng(seed), n=200, labelled=120, inflate=0.1 * (seed % 3)
        )
        found = differential_bias(frame, control="control", margin=0.25)
        narrow = differential_bias(
            frame, control="control", margin=0.25, confidence=0.9
        )
        inside = narrow.low > -0.25 and narrow.high < 0.25
        assert (found.equivalence_pvalue <= 0.05) == inside


def test_tipping_point_in_words():
    """Both directions, with and without a measured favour."""
    up = tipping_point(0.4, low=0.1, high=0.7)
    assert (up.erase, up.unsettle, up.beyond) == (0.4, 0.1, None)
    down = tipping_point(-0.4, low=-0.7, high=-0.1, measured=0.1)
    assert down.beyond == pytest.approx(0.5)
    assert "favour control by 0.50 more" in down.sentence
    assert tipping_point(0.1, low=-0.2, high=0.4).unsettle == 0
    with pytest.raises(StatisticsError):
        tipping_point(1.0, low=0.0, high=0.5)


def rates(*, runs, labelled, effect=0.0, inflate=0.0, n=400, seed=0):
    """Coverage and rejections of the corrected difference; rejections of the judge."""
    rng = np.random.default_rng(seed)
    # What people's mean differs by, from a large draw of the same world.
    big = experiment(
        np.random.default_rng(99), n=400_000, labelled=400_000, effect=effect
    )
    means = big.group_by("arm").agg(pl.col("label").mean())
    by_arm = dict(means.iter_rows())
    truth = by_arm["treatment"] - by_arm["control"] if effect else 0.0
    cover = reject = wrong = 0
    for _ in range(runs):
        frame = experiment(rng, n=n, labelled=labelled, effect=effect, inflate=inflate)
        found = ppi_difference(frame, control="control")
        cover += found.low <= truth <= found.high
        reject += found.pvalue < 0.05
        a, b = (
            frame.filter(arm=x)["score"].to_numpy() for x in ("control", "treatment")
        )
        se = np.sqrt(a.var(ddof=1) / n + b.var(ddof=1) / n)
        wrong += abs(b.mean() - a.mean()) > 1.96 * se
    return cover / runs, reject / runs, wrong / runs


def test_a_favouring_judge_is_put_right():
    """No true difference, inflated treatment: the judge is fooled, the labels not."""
    cover, reject, wrong = rates(runs=150, labelled=60, inflate=0.4)
    assert wrong > 0.8
    assert cover >= 0.92
    assert reject <= 0.08


@pytest.mark.parametrize("inflate", [0.0, 0.15, 0.6])
@pytest.mark.parametrize("control", ["control", "treatment"])
def test_equivalence_is_the_larger_of_two_one_sided_t_tests(inflate, control):
    """Both sides of the margin, both signs, favour inside and beyond it."""
    from scipy import stats

    frame = experiment(
        np.random.default_rng(11), n=300, labelled=200, inflate=inflate
    ).drop_nulls("label")
    other = "treatment" if control == "control" else "control"
    found = differential_bias(frame, control=control, margin=0.25)
    errors = {
        arm: (
            frame.filter(arm=arm)["score"] - frame.filter(arm=arm)["label"]
        ).to_numpy()
        for arm in (control, other)
    }
    below, above = (
        stats.ttest_ind(
            errors[other] + shift, errors[control], equal_var=False, alternative=side
        ).pvalue
        for shift, side in ((-0.25, "less"), (0.25, "greater"))
    )
    assert found.equivalence_pvalue == pytest.approx(max(below, above), rel=1e-9)
    assert found.equivalent == (max(below, above) <= 0.05)


def _strata(rng, labels):
    """Two strata far apart, arms mixed 30:70 and 70:30, a judge that likes treatment.

    True difference within strata: 0. Labels are a random draw within arm.
    """
    n = 500
    parts = []
    for h, (level, treated) in enumerate(((2.0, 0.3), (4.0, 0.7))):
        arm = np.where(rng.random(n // 2) < treated, "treatment", "control")
        label = np.clip(np.round(level + rng.normal(0, 0.8, n // 2)), 1, 5)
        lean = 0.4 * (arm == "treatment")
        score = np.clip(np.round(label + lean + rng.normal(0, 0.6, n // 2)), 1, 5)
        parts.append(pl.DataFrame({"arm": arm, "label": label, "score": score, "h": h}))
    frame = pl.concat(parts).with_columns(chance=pl.Series(rng.random(n)))
    rank = pl.col("chance").rank("ordinal").over("arm")
    return frame.with_columns(
        label=pl.when(rank <= labels).then(pl.col("label")),
        user=pl.int_range(pl.len()) // 2,
    )


@pytest.mark.parametrize("cluster", [None, "user"])
def test_the_judges_part_within_strata_is_that_of_compare(cluster):
    """One effect on the page: what PPI++ corrects is what `compare` estimates."""
    from reply_resolution.stats.compare import compare

    frame = _strata(np.random.default_rng(3), 60).with_columns(
        pl.col("score").cast(pl.Int64)
    )
    if cluster:  # a user has one arm
        frame = frame.with_columns(arm=pl.col("arm").first().over("user"))
    options = {"control": "control", "cluster": cluster, "stratum": "h"}
    want = compare(frame, **options).comparisons[0].mean_difference
    found = ppi_difference(frame, **options)
    assert found.judge_difference == pytest.approx(want, rel=1e-12)
    whole = frame.with_columns(label=pl.col("score").cast(pl.Float64))
    same = ppi_difference(whole, **options)
    assert same.estimate == pytest.approx(want, rel=1e-12)


def test_correction_within_strata_covers_the_truth():
    """200 experiments without a difference: 95% of intervals hold it, and the favour.

    Ignoring the strata finds half a point or more that is not there.
    """
    rng = np.random.default_rng(8)
    runs, hits, pooled, favour = 200, 0, 0.0, 0
    for _ in range(runs):
        frame = _strata(rng, 60)
        options = {"control": "control", "treatment": "treatment", "stratum": "h"}
        found = ppi_difference(frame, **options)
        hits += found.low <= 0 <= found.high
        lean = differential_bias(frame, **options)
        favour += lean.low <= 0.338 <= lean.high  # 0.4 before clipping at 5
        pooled += ppi_difference(frame, control="control").estimate / runs
    least = 0.95 * runs - 3.09 * (runs * 0.95 * 0.05) ** 0.5
    assert hits >= least
    assert favour >= least
    assert pooled > 0.5


def test_a_perfect_judge_has_the_error_of_its_strata():
    """With weight 1 and no error of the judge only what varies within strata counts."""
    frame = _strata(np.random.default_rng(6), 60)
    frame = frame.with_columns(label=pl.when(pl.col("label") > 0).then(pl.col("score")))
    found = ppi_difference(frame, control="control", stratum="h", lam=1.0)
    sides = frame.group_by("h", "arm").agg(
        n=pl.len(), part=pl.col("score").var() / pl.len()
    )
    size = sides.group_by("h").agg(weight=pl.col("n").product() / pl.col("n").sum())
    sides = sides.join(size, on="h")
    share = sides["weight"] / size["weight"].sum()
    want = float((share**2 * sides["part"]).sum()) ** 0.5
    assert found.estimate == pytest.approx(found.judge_difference)
    assert found.se == pytest.approx(want, rel=0.01)

"""Agreement: outside numbers, degenerate tables, laws, and coverage of intervals."""

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from reply_resolution.errors import ScoreError, StatisticsError
from reply_resolution.stats import concordance
from reply_resolution.stats.agreement import agreement
from reply_resolution.stats.agreement_parts import MEASURES, share_interval
from reply_resolution.stats.rank_agreement import influences

HERE = Path(__file__).parent
# Real ratings (CEBaB stars, first annotator v gpt-4o) and published tables, computed
# by scikit-learn, scipy, krippendorff, irrCAC and psych; see the file's own notes.
ORACLE = json.loads((HERE / "oracles/agreement_ppi.json").read_text("utf-8"))
VALUES = ORACLE["values"]
STARS = np.array(VALUES["confusion_first_rows_gpt4o_cols"], dtype=float)
LEVELS = np.arange(1.0, 6.0)


def pairs(table):
    """Labels and scores, one pair per count of a table."""
    cells = np.repeat(np.arange(table.size), table.astype(int).ravel())
    return cells // table.shape[1] + 1, cells % table.shape[1] + 1


@pytest.fixture(scope="module")
def stars():
    """Agreement on the 711 real items."""
    label, judge = pairs(STARS)
    return agreement(judge, label)


@pytest.mark.parametrize(
    ("power", "name"), [(0, "None"), (1, "linear"), (2, "quadratic")]
)
def test_kappas_equal_scikit_learn(power, name):
    """Unweighted, linear and quadratic kappa of 711 real items."""
    found = concordance.weighted_kappa(STARS, LEVELS, power=power)
    assert found == pytest.approx(VALUES[f"kappa_{name}"], abs=1e-12)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_alpha_equals_the_krippendorff_package(level):
    """Nominal, ordinal and interval alpha of 711 real items."""
    found = concordance.krippendorff_alpha(STARS, LEVELS, level=level)
    wanted = VALUES["krippendorff_human_first_vs_gpt4o"][level]
    assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval", "ratio"])
def test_alpha_equals_krippendorffs_published_example(level):
    """Four raters with missing values: .743, .815, .849, .797 as printed in 2011."""
    example = ORACLE["krippendorff2011_example"]
    units = np.array(example["data"], dtype=float).T
    coincidences = np.zeros((5, 5))
    for unit in units:
        seen = unit[~np.isnan(unit)].astype(int) - 1
        for i in range(len(seen)):
            for j in range(len(seen)):
                if i != j:
                    coincidences[seen[i], seen[j]] += 1 / (len(seen) - 1)
    found = concordance.alpha_from_coincidences(coincidences, LEVELS, level=level)
    assert found == pytest.approx(example[level], abs=1e-12)


@pytest.mark.parametrize(
    ("chance", "weights", "key"),
    [
        ("gwet", "identity", "gwet_ac1"),
        ("gwet", "quadratic", "gwet_ac2_quadratic"),
        ("fleiss", "identity", "fleiss"),
        ("uniform", "identity", "brennan_prediger"),
    ],
)
def test_several_raters_equal_irrcac(chance, weights, key):
    """Krippendorff's four raters: AC1, AC2, Fleiss, Brennan-Prediger of irrCAC."""
    example = ORACLE["krippendorff2011_example"]
    units = np.array(example["data"], dtype=float).T
    counts = (units[:, :, None] == LEVELS).sum(1).astype(float)
    found = concordance.several_raters(counts, LEVELS, chance=chance, weights=weights)
    assert found == pytest.approx(example[key], abs=5.1e-6)
    twice = concordance.several_raters(
        counts, LEVELS, chance=chance, weights=weights, copies=np.full(12, 2.0)
    )
    assert twice == pytest.approx(float(found), abs=1e-12)


def test_several_raters_equal_two_raters():
    """With two ratings each, AC2 is that of the table."""
    label, judge = pairs(STARS)
    counts = ((label[:, None] == LEVELS).astype(float)) + (judge[:, None] == LEVELS)
    found = concordance.several_raters(counts, LEVELS)
    assert found == pytest.approx(concordance.gwet_ac(STARS, LEVELS), abs=1e-12)


@pytest.mark.parametrize("weights", ["quadratic", "ordinal", "linear", "identity"])
def test_gwet_equals_irrcac(weights):
    """Gwet's AC1 and AC2 (irrCAC prints five decimals)."""
    found = concordance.gwet_ac(STARS, LEVELS, weights=weights)
    wanted = VALUES[f"gwet_{weights}"]["coefficient_value"]
    assert found == pytest.approx(wanted, abs=5.1e-6)


def test_correlations_equal_scipy():
    """Spearman, Pearson, Kendall's tau-b and Somers' d of 711 real items."""
    assert concordance.spearman(STARS) == pytest.approx(VALUES["spearman"], abs=1e-12)
    assert concordance.pearson(STARS, LEVELS) == pytest.approx(
        VALUES["pearson"], abs=1e-12
    )
    assert concordance.kendall_tau_b(STARS) == pytest.approx(
        VALUES["kendall_tau_b"], abs=1e-12
    )
    assert concordance.somers_d(STARS) == pytest.approx(
        VALUES["somers_d_judge_given_human"], abs=1e-12
    )


def test_bland_altman_bias_and_limits(stars):
    """Bias, its interval and the limits of agreement."""
    wanted = VALUES["bland_altman"]
    assert stars.bias.estimate == pytest.approx(wanted["bias"], abs=1e-12)
    assert (stars.bias.low, stars.bias.high) == pytest.approx(
        wanted["ci_bias"], abs=0.004
    )
    assert stars.limits == pytest.approx(wanted["loa"], abs=5e-5)


def test_default_intervals_hold_the_published_ones(stars):
    """AC2's of irrCAC, Bland and Altman's of the bias, psych's of Cohen 1968.

    Those are asymptotic; ours hold them and are at most a third wider.
    """
    cohen = ORACLE["cohen1968"]
    label, judge = pairs(np.array(cohen["table"]))
    kappa = agreement(judge, label, scale=(1, 3)).weighted_kappa
    assert kappa.estimate == pytest.approx(cohen["weighted_quadratic"], abs=1e-12)
    for found, wanted in (
        (stars.gwet_ac2, VALUES["gwet_quadratic"]["confidence_interval"]),
        (stars.bias, VALUES["bland_altman"]["ci_bias"]),
        (kappa, cohen["ci_weighted"]),
    ):
        assert (found.low, found.high) == pytest.approx(wanted, abs=0.02)
        width = wanted[1] - wanted[0]
        assert 1 < (found.high - found.low) / width < 1.33


def test_influences_give_bland_and_altmans_interval():
    """The t interval of the bias is theirs to the last digit."""
    from scipy.stats import t

    label, judge = pairs(STARS)
    n = len(label)
    found = influences(label.astype(float), judge.astype(float), np.ones(n))["bias"]
    reach = t.ppf(0.975, n - 1) * np.sqrt(found.items @ found.items / n / (n - 1))
    wanted = VALUES["bland_altman"]["ci_bias"]
    assert found.value - reach == pytest.approx(wanted[0], abs=1e-12)
    assert found.value + reach == pytest.approx(wanted[1], abs=1e-12)


def test_the_error_of_weighted_kappa_is_fleiss_cohen_and_everitts():
    """The influence function gives their variance; psych's interval has a slip in it.

    Their variance sets each weight against its average over the *other* rater's
    margin. psych (`roww <- rowSums(w*rs)`) takes the rater's own for the rows: with
    that, and nothing else changed, its published interval comes out to 1e-12.
    """
    cohen = ORACLE["cohen1968"]
    counts = np.array(cohen["table"], dtype=float)
    total = counts.sum()
    x = counts / total
    rows, columns = x.sum(1), x.sum(0)
    w = 1 - np.subtract.outer(np.arange(3), np.arange(3)) ** 2 / 4
    seen, chance = (w * x).sum(), (w * np.outer(rows, columns)).sum()

    def error(over_rows, over_columns):
        off = w * (1 - chance) - np.add.outer(over_rows, over_columns) * (1 - seen)
        spread = (x * off**2).sum() - (seen * chance - 2 * chance + seen) ** 2
        return np.sqrt(spread / total) / (1 - chance) ** 2

    z, middle = 1.959963984540054, cohen["weighted_quadratic"]
    slip = z * error((w * columns[:, None]).sum(0), (w * rows[:, None]).sum(1))
    assert (middle - slip, middle + slip) == pytest.approx(
        cohen["ci_weighted"], abs=1e-11
    )
    label, judge = pairs(counts.astype(int))
    found = influences(label.astype(float), judge.astype(float), np.ones(len(label)))
    ours = found["concordance"]
    assert ours.value == pytest.approx(middle, abs=1e-12)
    assert np.sqrt(ours.items @ ours.items) / len(label) == pytest.approx(
        error(w @ columns, w @ rows), rel=1e-12
    )


def test_unweighted_kappa_of_cohen_1968():
    """0.4915, as psych's cohen.kappa gives it."""
    cohen = ORACLE["cohen1968"]
    table = np.array(cohen["table"], dtype=float)
    found = concordance.weighted_kappa(table, LEVELS[:3], power=0)
    assert found == pytest.approx(cohen["kappa"], abs=1e-12)


def test_a_level_nobody_used_still_counts():
    """scikit-learn without `labels` gives 0.8246 here; the scale's 5 levels 0.8498."""
    case = ORACLE["qwk_missing_category"]
    found = agreement(case["j"], case["h"]).weighted_kappa.estimate
    assert found == pytest.approx(case["correct_labels_1_5"], abs=1e-12)


def test_hand_counted_table():
    """Six pairs counted by hand: shares, bias, recall."""
    result = agreement([1, 2, 3, 5, 5, 4], [1, 3, 3, 5, 3, 5])
    assert result.exact.estimate == pytest.approx(3 / 6)
    assert result.adjacent.estimate == pytest.approx(5 / 6)
    assert result.bias.estimate == pytest.approx((0 - 1 + 0 + 0 + 2 - 1) / 6)
    assert result.confusion[2] == (0, 1, 1, 0, 1)
    assert result.recall[2].estimate == pytest.approx(1 / 3)
    assert result.level_bias[4].estimate == pytest.approx(-0.5)
    assert result.recall[1].estimate is None


def test_constant_judge_has_kappa_0_and_no_correlation():
    """A judge that says 5 to everything: 0, undefined, and an interval with width."""
    labels = [1, 2, 3, 4, 5] * 4
    result = agreement([5] * 20, labels)
    assert result.weighted_kappa.estimate == 0
    assert result.weighted_kappa.high > 0.05
    assert result.krippendorff_alpha.estimate == pytest.approx(-0.575)
    assert result.pearson.estimate is None
    assert result.spearman.estimate is None
    assert result.kendall_tau_b.estimate is None
    assert "constant" in result.spearman.reason
    assert any("gives 5 to all 20" in w for w in result.warnings)


def test_everything_equal_is_undefined_not_perfect():
    """0/0: agreement is complete, kappa and alpha are not numbers."""
    result = agreement([4] * 20, [4] * 20)
    assert result.exact.estimate == 1
    assert result.exact.low < 0.9
    for name in set(MEASURES) - {"exact", "adjacent", "gwet_ac2", "bias"}:
        assert getattr(result, name).estimate is None
        assert getattr(result, name).reason


def test_perfect_agreement_is_not_certainty():
    """40 equal pairs leave room for 8.8% of errors, 1 - 0.025 ** (1 / 40)."""
    result = agreement([2, 5] * 20, [2, 5] * 20)
    assert result.weighted_kappa.estimate == 1
    # That share moved from 5 to 1 and from 2 to 5 gives a kappa of 0.76.
    assert 0.7 < result.weighted_kappa.low < 0.8
    assert result.bias.low < 0 < result.bias.high


def test_one_pair_has_no_interval():
    """One item says nothing of precision."""
    result = agreement([4], [5])
    assert result.bias.estimate == -1
    assert result.bias.low is None
    assert not result.ci_reliable


def test_missing_values_are_counted():
    """None and NaN leave a pair out; the count is kept."""
    result = agreement([1, None, 3, 4], [1, 2, float("nan"), 5])
    assert (result.n, result.n_missing) == (2, 2)


@pytest.mark.parametrize(
    "bad", [[True, 2, 3], ["4", 2, 3], [0, 2, 3], [6, 2, 3], [float("inf"), 2, 3]]
)
def test_what_is_no_score_is_refused(bad):
    """Booleans, text, 0, 6 and infinity never become numbers silently."""
    with pytest.raises(ScoreError):
        agreement(bad, [1, 2, 3])


def test_nothing_to_compare_is_an_error():
    """No complete pair, or columns of two lengths."""
    with pytest.raises(StatisticsError, match="ids"):
        agreement([None, 3], [2, None])
    with pytest.raises(StatisticsError, match="same order"):
        agreement([1, 2], [1, 2, 3])


def test_real_values_keep_ranks_and_lose_levels():
    """An expected score: correlations and bias, no kappa, with the reason."""
    labels = [1, 2, 3, 4, 5, 3, 2, 4]
    result = agreement([1.2, 1.9, 3.4, 3.9, 4.8, 2.9, 2.5, 4.1], labels)
    assert result.weighted_kappa.estimate is None
    assert "whole" in result.weighted_kappa.reason
    assert result.adjacent.estimate == 1
    assert result.bias.estimate == pytest.approx(0.0875)
    assert result.confusion is None
    assert result.ci_method == "bootstrap"


def test_another_scale_compares_ranks_only():
    """A 0 to 1 judge against 1 to 4: no bias, no adjacent, correlations as ever."""
    result = agreement([0.1, 0.4, 0.35, 0.9, 0.75], [1, 2, 2, 4, 3], scale=(1, 4))
    assert result.spearman.estimate == pytest.approx(0.9746794344808963, abs=1e-12)
    assert result.bias.estimate is None
    assert result.adjacent.estimate is None


tables = (
    st.lists(st.integers(0, 6), min_size=25, max_size=25)
    .map(lambda cells: np.array(cells, dtype=float).reshape(5, 5))
    .filter(lambda table: table.sum() > 0)
)
_SYMMETRIC = (
    lambda t: concordance.pearson(t, LEVELS),
    concordance.spearman,
    concordance.kendall_tau_b,
    lambda t: concordance.weighted_kappa(t, LEVELS),
    lambda t: concordance.krippendorff_alpha(t, LEVELS),
    lambda t: concordance.gwet_ac(t, LEVELS),
)


@settings(max_examples=60, deadline=None)
@given(tables)
def test_swapping_judge_and_people_changes_only_the_bias(table):
    """Coefficients are symmetric; the bias changes sign."""
    for statistic in _SYMMETRIC:
        assert statistic(table) == pytest.approx(
            float(statistic(table.T)), abs=1e-10, nan_ok=True
        )
    assert concordance.bias(table, LEVELS) == pytest.approx(
        -float(concordance.bias(table.T, LEVELS)), abs=1e-12, nan_ok=True
    )


@settings(max_examples=60, deadline=None)
@given(tables)
def test_reversing_the_scale_changes_only_the_bias(table):
    """1 to 5 read as 5 to 1: every coefficient stays."""
    turned = table[::-1, ::-1]
    for statistic in _SYMMETRIC:
        assert statistic(table) == pytest.approx(
            float(statistic(turned)), abs=1e-10, nan_ok=True
        )


@settings(max_examples=60, deadline=None)
@given(tables)
def test_an_added_empty_level_changes_nothing_but_ac2(table):
    """Quadratic kappa, alpha and correlations do not see a level nobody used."""
    wider = np.pad(table, ((0, 1), (0, 1)))
    six = np.arange(1.0, 7.0)
    for small, large in (
        (
            concordance.weighted_kappa(table, LEVELS),
            concordance.weighted_kappa(wider, six),
        ),
        (
            concordance.krippendorff_alpha(table, LEVELS),
            concordance.krippendorff_alpha(wider, six),
        ),
        (concordance.spearman(table), concordance.spearman(wider)),
        (concordance.kendall_tau_b(table), concordance.kendall_tau_b(wider)),
    ):
        assert small == pytest.approx(float(large), abs=1e-10, nan_ok=True)


@settings(max_examples=40, deadline=None)
@given(tables.filter(lambda t: 3 <= t.sum() < 120))
def test_coefficients_equal_scipy_on_random_tables(table):
    """Spearman and tau-b of scipy, concordance as kappa, from the same rows."""
    from scipy import stats

    label, judge = pairs(table)
    if np.ptp(label) == 0 or np.ptp(judge) == 0:
        return
    assert concordance.spearman(table) == pytest.approx(
        stats.spearmanr(label, judge)[0], abs=1e-10
    )
    assert concordance.kendall_tau_b(table) == pytest.approx(
        stats.kendalltau(label, judge)[0], abs=1e-10
    )


def test_same_data_same_digits(stars):
    """Two runs give the same interval, another row order too."""
    label, judge = pairs(STARS)
    order = np.random.default_rng(3).permutation(len(label))
    again = agreement(judge[order], label[order])
    for name in MEASURES:
        assert getattr(again, name) == getattr(stars, name)


def test_equal_weights_change_nothing_and_unequal_ones_enter():
    """Weights are ratios; a reply of weight 2 counts as two."""
    label, judge = [1, 2, 4, 5, 5, 3], [1, 3, 4, 4, 5, 1]
    plain = agreement(judge, label)
    same = agreement(judge, label, weights=[7.0] * 6)
    for name in MEASURES:
        assert getattr(same, name).estimate == getattr(plain, name).estimate
    doubled = agreement([*judge, 1], [*label, 3])
    weighted = agreement(judge, label, weights=[1, 1, 1, 1, 1, 2])
    for name in ("exact", "weighted_kappa", "spearman", "kendall_tau_b", "bias"):
        assert getattr(weighted, name).estimate == pytest.approx(
            getattr(doubled, name).estimate, abs=1e-12
        )
    with pytest.raises(StatisticsError, match="positive"):
        agreement(judge, label, weights=[1, 1, 1, 1, 1, 0])


def test_clusters_widen_the_interval():
    """Ten copies of every pair are ten rows, and one user each."""
    label, judge = pairs(np.array([[6, 2], [1, 9]]))
    many = agreement(np.repeat(judge, 10), np.repeat(label, 10), scale=(1, 2))
    users = np.repeat(np.arange(len(label)), 10)
    kept = agreement(
        np.repeat(judge, 10), np.repeat(label, 10), scale=(1, 2), clusters=users
    )
    alone = agreement(judge, label, scale=(1, 2))
    assert kept.weighted_kappa.low == pytest.approx(alone.weighted_kappa.low, abs=0.03)
    assert many.weighted_kappa.low > kept.weighted_kappa.low + 0.1


def test_shares_are_clopper_pearson():
    """0 and 20 of 20, and 7 of 20, as scipy's exact binomial interval."""
    from scipy.stats import binomtest

    for hits in (0, 7, 20):
        wanted = binomtest(hits, 20).proportion_ci(0.95, "exact")
        found = share_interval(hits / 20, 20, 0.95)
        assert found == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_ten_thousand_items_take_under_a_second():
    """Tables are drawn, not rows."""
    import time

    rng = np.random.default_rng(0)
    label = rng.integers(1, 6, 10_000)
    judge = np.clip(label + rng.integers(-1, 2, 10_000), 1, 5)
    agreement(judge[:100], label[:100])  # imports are not what is measured
    start = time.perf_counter()
    agreement(judge, label)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("digits", [0, 1, 6])
def test_rows_in_another_order_give_the_same_digits(digits):
    """Whole scores, few averages and many values, with weights and users."""
    rng = np.random.default_rng(8)
    label = np.clip(rng.normal(3, 1, 150).round(digits), 1, 5)
    judge = np.clip((label + rng.normal(0, 1, 150)).round(digits), 1, 5)
    weights, users = rng.uniform(0.5, 2, 150), rng.integers(0, 60, 150)
    order = rng.permutation(150)
    for more in ({}, {"weights": weights}, {"clusters": users}):
        moved = {name: values[order] for name, values in more.items()}
        found = agreement(judge, label, resamples=200, **more)
        again = agreement(judge[order], label[order], resamples=200, **moved)
        assert again == found


# Coverage

_TRUTHS = {
    "spread": (0.15, 0.15, 0.20, 0.25, 0.25),
    "J-shaped": (0.20, 0.05, 0.05, 0.20, 0.50),
    "ceiling": (0.02, 0.02, 0.03, 0.13, 0.80),
}


def _population(shares, sharp):
    """A table of probabilities: labels by `shares`, judge one level off at times."""
    table = np.zeros((5, 5))
    for i, share in enumerate(shares):
        row = np.array([sharp if i == j else 0.0 for j in range(5)])
        for j in (i - 1, i + 1):
            if 0 <= j < 5:
                row[j] += (1 - sharp) * 0.4
        row += (1 - row.sum()) / 5
        table[i] = share * row
    return table / table.sum()


def coverage(shape, n, runs, sharp=0.7, seed=0, resamples=1000):
    """Share of intervals that hold the population's value, per measure."""
    from reply_resolution.stats.agreement_parts import statistics

    population = _population(_TRUTHS[shape], sharp)
    # Large counts: alpha's correction for few units vanishes in a population.
    truth = {k: float(v) for k, v in statistics(population * 1e9, LEVELS).items()}
    truth["exact"] = float(concordance.exact(population))
    truth["adjacent"] = float(concordance.adjacent(population, LEVELS))
    truth["bias"] = float(concordance.bias(population, LEVELS))
    rng = np.random.default_rng(seed)
    hits = dict.fromkeys(MEASURES, 0)
    for draw in rng.multinomial(n, population.ravel(), size=runs):
        label, judge = pairs(draw.reshape(5, 5).astype(float))
        result = agreement(judge, label, resamples=resamples)
        for name in MEASURES:
            found = getattr(result, name)
            if found.low is not None:
                hits[name] += found.low <= truth[name] <= found.high
    return {name: count / runs for name, count in hits.items()}


@pytest.mark.parametrize("shape", list(_TRUTHS))
def test_intervals_cover_at_100_items(shape):
    """120 seeded runs: no interval below 88% (99.9% binomial limit of 95%)."""
    found = coverage(shape, 100, 120, resamples=500)
    assert min(found.values()) >= 0.88, found


def test_rare_disagreement_does_not_look_like_certainty():
    """Equal in 90%, far off in 2%: plain percentiles covered 78% to 80% here."""
    found = coverage("spread", 100, 120, sharp=0.9, resamples=500)
    assert min(found.values()) >= 0.88, found


def test_a_share_of_gross_errors_nobody_saw_is_not_excluded():
    """100 equal pairs: 2% of opposite scores were seen nowhere in 13% of samples."""
    labels = [1 + i % 5 for i in range(100)]
    found = agreement(labels, labels)
    assert found.ci_reliable
    spoilt = [6 - y if i in (0, 4) else y for i, y in enumerate(labels)]
    assert found.weighted_kappa.low < agreement(spoilt, labels).weighted_kappa.estimate


def test_few_labels_beside_the_usual_one_leave_kappa_open():
    """3 of 100 labels are not 5, all misjudged: kappa may still be good."""
    found = agreement([5] * 97 + [5, 4, 5], [5] * 97 + [4, 5, 4]).weighted_kappa
    assert found.estimate < 0
    assert found.high > 0.4


def test_weights_count_for_reliability():
    """200 items of which two carry nearly all the weight are no 200 items."""
    labels = [1 + i % 5 for i in range(200)]
    found = agreement(labels, labels, weights=[1000.0] * 2 + [1.0] * 198)
    assert not found.ci_reliable
    assert any("equal weight" in w for w in found.warnings)

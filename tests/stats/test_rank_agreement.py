"""Agreement of real-valued scores: values of scipy, influences, coverage."""

import numpy as np
import pytest

from reply_resolution.stats.agreement import agreement
from reply_resolution.stats.rank_agreement import influences


def columns(seed, n, digits=1):
    """Two correlated columns with ties."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n)
    return tuple(np.round(common + rng.normal(size=n), digits) for _ in range(2))


@pytest.mark.parametrize(("n", "digits"), [(7, 0), (60, 0), (400, 1), (3000, 6)])
def test_correlations_equal_scipy(n, digits):
    """Pearson, Spearman and tau-b with and without ties, in any unit."""
    from scipy import stats

    x, y = columns(n, n, digits)
    found = influences(x, y, np.ones(n))
    for unit in (1.0, 1e-9):
        pearson = influences(x, unit * y, np.ones(n))["pearson"].value
        assert pearson == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-12)
    assert found["spearman"].value == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-12)
    assert found["kendall_tau_b"].value == pytest.approx(
        stats.kendalltau(x, y)[0], abs=1e-12
    )


def test_concordance_is_kappa_on_whole_scores():
    """Lin's concordance and quadratic weighted kappa are one number."""
    rng = np.random.default_rng(2)
    x = rng.integers(1, 6, 80)
    y = np.clip(x + rng.integers(-1, 2, 80), 1, 5)
    found = influences(x.astype(float), y.astype(float), np.ones(80))
    kappa = agreement(y, x).weighted_kappa.estimate
    assert found["concordance"].value == pytest.approx(kappa, abs=1e-12)


@pytest.mark.parametrize(
    "name", ["pearson", "spearman", "kendall_tau_b", "concordance", "bias"]
)
def test_influence_is_the_derivative_in_an_items_share(name):
    """Moving a millionth of the weight to one item moves the value accordingly."""
    x, y = columns(3, 40)
    weight = np.random.default_rng(4).uniform(0.5, 2, 40)
    whole = influences(x, y, weight)[name]
    share = weight / weight.sum()
    for item in (0, 7, 39):
        step = 1e-6
        moved = share * (1 - step)
        moved[item] += step
        slope = (influences(x, y, moved)[name].value - whole.value) / step
        assert slope == pytest.approx(whole.items[item], abs=1e-4)
    assert share @ whole.items == pytest.approx(0, abs=1e-9)


def test_weights_count_as_copies():
    """Weight 3 is three copies."""
    x, y = columns(5, 30)
    copies = influences(np.repeat(x, 3), np.repeat(y, 3), np.ones(90))
    weighed = influences(x, y, np.full(30, 3.0))
    for name, found in weighed.items():
        assert found.value == pytest.approx(copies[name].value, abs=1e-12)


def test_clusters_widen_a_real_valued_interval():
    """Five copies per user are one user."""
    x, y = columns(6, 60, 3)
    judge, label = np.repeat(y, 5) + 3, np.repeat(x, 5) + 3
    users = np.repeat(np.arange(60), 5)
    options = {"scale": (-10, 20)}
    alone = agreement(y + 3, x + 3, **options).spearman
    wrong = agreement(judge, label, **options).spearman
    right = agreement(judge, label, clusters=users, **options).spearman
    assert right.high - right.low == pytest.approx(alone.high - alone.low, rel=0.1)
    assert wrong.high - wrong.low < 0.6 * (alone.high - alone.low)


def test_jackknife_intervals_cover():
    """300 seeded runs of 100 items: 91% at least (99.9% binomial limit)."""
    rng = np.random.default_rng(7)
    rho = 6 / np.pi * np.arcsin(0.7 / 2)
    tau = 2 / np.pi * np.arcsin(0.7)
    hits = np.zeros(3)
    for _ in range(300):
        x = rng.normal(size=100)
        y = 0.7 * x + np.sqrt(1 - 0.49) * rng.normal(size=100)
        result = agreement(y, x, scale=(-20, 20))
        assert result.ci_method == "jackknife"
        hits += [
            result.pearson.low <= 0.7 <= result.pearson.high,
            result.spearman.low <= rho <= result.spearman.high,
            result.kendall_tau_b.low <= tau <= result.kendall_tau_b.high,
        ]
    assert (hits / 300 >= 0.91).all(), hits

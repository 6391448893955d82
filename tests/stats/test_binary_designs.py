"""Rates of users and of pairs."""

import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary import rate_difference
from reply_resolution.stats.binary_designs import (
    clustered_rate_difference,
    mcnemar,
)


def _users(rng, n_users, rate, icc):
    sizes = rng.integers(1, 9, n_users)
    if icc:
        own = rng.beta(rate * (1 - icc) / icc, (1 - rate) * (1 - icc) / icc, n_users)
    else:
        own = np.full(n_users, rate)
    return rng.binomial(sizes, own), sizes


def test_one_reply_per_user_is_nearly_the_independent_analysis():
    """Users with one reply each give the interval of independent replies."""
    x1, x0 = [1] * 30 + [0] * 20, [1] * 20 + [0] * 30
    ones = [1] * 50
    users = clustered_rate_difference(x1, ones, x0, ones)
    replies = rate_difference(30, 50, 20, 50)
    assert users.design_effect == pytest.approx(50 / 49)
    assert users.ci == pytest.approx(replies.ci, abs=0.008)


def test_users_who_repeat_themselves_count_once():
    """Four copies of every reply add nothing: same interval as without copies."""
    rng = np.random.default_rng(1)
    x1, x0 = rng.integers(0, 2, 40), rng.integers(0, 2, 40)
    once = clustered_rate_difference(x1, [1] * 40, x0, [1] * 40)
    copied = clustered_rate_difference(4 * x1, [4] * 40, 4 * x0, [4] * 40)
    assert copied.design_effect == pytest.approx(4 * once.design_effect)
    assert copied.ci == pytest.approx(once.ci, abs=1e-9)
    assert copied.pvalue == pytest.approx(once.pvalue, abs=1e-9)


def test_interval_excludes_zero_exactly_where_p_is_small():
    """Interval and p-value of the users' analysis never contradict each other."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        x1, n1 = _users(rng, 25, 0.65, 0.3)
        x0, n0 = _users(rng, 25, 0.45, 0.3)
        d = clustered_rate_difference(x1, n1, x0, n0)
        assert (d.low > 0 or d.high < 0) == (d.pvalue < 0.05)


def test_false_alarms_with_users_who_resemble_themselves():
    """600 A/A runs, 60 users an arm: near 5%; replies as units give several times."""
    rng = np.random.default_rng(3)
    users = replies = 0
    runs = 600
    for _ in range(runs):
        x1, n1 = _users(rng, 60, 0.6, 0.4)
        x0, n0 = _users(rng, 60, 0.6, 0.4)
        users += clustered_rate_difference(x1, n1, x0, n0).pvalue < 0.05
        plain = rate_difference(
            int(x1.sum()), int(n1.sum()), int(x0.sum()), int(n0.sum()), test="score"
        )
        replies += plain.pvalue < 0.05
    assert 0.025 < users / runs < 0.08
    assert replies / runs > 0.12


def test_nothing_measurable_is_not_the_narrowest_interval():
    """All resolved in both arms: the interval is as wide as one reply per user."""
    d = clustered_rate_difference([5] * 20, [5] * 20, [5] * 20, [5] * 20)
    assert d.pvalue == 1.0
    assert d.design_effect == pytest.approx(5)
    assert d.high > rate_difference(20, 20, 20, 20).high - 0.01


def test_few_users_are_marked_and_one_is_refused():
    """Under ten users the result says it is unreliable; a single user is an error."""
    assert clustered_rate_difference([1, 0], [2, 1], [1, 1], [1, 2]).warnings
    with pytest.raises(StatisticsError, match="two or more"):
        clustered_rate_difference([1], [2], [1, 1], [1, 2])
    with pytest.raises(StatisticsError, match="more resolved"):
        clustered_rate_difference([3, 0], [2, 1], [1, 1], [1, 2])


def test_mcnemar_by_hand_and_by_scipy():
    """9 against 2 is 2 x P(Bin(11, 1/2) <= 2) = 134/2048; scipy agrees elsewhere."""
    from scipy.stats import binomtest

    assert mcnemar(9, 2, 80).pvalue == pytest.approx(134 / 2048)
    assert mcnemar(9, 2, 80).midp == pytest.approx((134 - 55) / 2048)
    assert mcnemar(31, 52, 900).pvalue == pytest.approx(binomtest(31, 83).pvalue)
    assert mcnemar(1200, 1301, 9000).midp == pytest.approx(
        mcnemar(1301, 1200, 9000).midp
    )


def test_pairs_without_disagreement_are_no_evidence():
    """No discordant pair: p is 1, the interval holds 0 and has a width."""
    pairs = mcnemar(0, 0, 40)
    assert pairs.pvalue == pairs.midp == 1.0
    assert pairs.low < 0 < pairs.high


def test_tango_interval_inverts_its_statistic():
    """Tango's interval ends where his score statistic is 1.96; McNemar's at 0."""
    from reply_resolution.stats.binary_designs import _tango

    pairs = mcnemar(12, 2, 50)
    assert _tango(12, 2, 50, pairs.low) == pytest.approx(1.959964, abs=1e-6)
    assert _tango(12, 2, 50, pairs.high) == pytest.approx(-1.959964, abs=1e-6)
    assert _tango(12, 2, 50, 0.0) == pytest.approx(10 / 14**0.5)


def test_swapping_arms_mirrors_pairs():
    """Exchanging the arms of the pairs changes signs only."""
    one, other = mcnemar(12, 2, 50), mcnemar(2, 12, 50)
    assert one.pvalue == other.pvalue
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))


def test_impossible_pairs_are_refused():
    """More disagreeing pairs than pairs is an error."""
    with pytest.raises(StatisticsError, match="more than"):
        mcnemar(30, 30, 50)

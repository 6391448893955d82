"""Effects averaged over strata against designs whose answer is known otherwise."""

import numpy as np
import pytest

from reply_resolution.stats.bootstrap import difference_interval, mean_interval
from reply_resolution.stats.effects import win_probability
from reply_resolution.stats.stratified import stratified_effects

LEVELS = np.arange(1, 6)


def test_one_stratum_is_no_stratum() -> None:
    """Stratified effects with a single stratum are near the plain exact interval."""
    c, t = np.array([11, 8, 9, 20, 30]), np.array([5, 9, 11, 25, 40])
    found = stratified_effects(c[None], t[None], LEVELS, 4, seed=2)
    plain = difference_interval(c, t)
    assert found.mean_interval.ends == pytest.approx(plain.ends, abs=0.02)
    wins = win_probability(c, t)
    assert found.wins == pytest.approx(wins.estimate, rel=1e-12)
    assert found.wins_interval.ends == pytest.approx(wins.interval.ends, abs=0.01)


def test_strata_that_differ_do_not_widen_the_interval() -> None:
    """A stratum's level is no noise: the interval is narrower than without strata."""
    easy, hard = np.array([0, 1, 2, 20, 77]), np.array([77, 20, 2, 1, 0])
    c = np.stack([easy, hard])
    found = stratified_effects(c, c, LEVELS, 4, seed=2)
    plain = difference_interval(c.sum(0), c.sum(0))
    assert found.mean == pytest.approx(0, abs=1e-12)
    assert found.mean_interval.high < 0.6 * plain.high  # type: ignore[operator]


def _cell(score: int) -> list[int]:
    return [int(level == score) for level in LEVELS]


def test_one_against_one_is_paired() -> None:
    """Strata of one reply an arm: the interval is that of the paired differences."""
    rng = np.random.default_rng(3)
    plain, treated = rng.integers(1, 6, 60), rng.integers(2, 6, 60)
    c, t = (np.array([_cell(s) for s in arm]) for arm in (plain, treated))
    found = stratified_effects(c, t, LEVELS, 4, seed=1, resamples=99_999)
    gaps = np.arange(-4, 5)
    numbers = np.array([(treated - plain == gap).sum() for gap in gaps])
    pairs = mean_interval(numbers, values=gaps)
    assert found.mean == pytest.approx((treated - plain).mean(), rel=1e-12)
    assert found.mean_interval.ends == pytest.approx(pairs.ends, abs=0.02)
    assert found.mean_interval.reliable


def test_a_single_reply_is_given_the_spread_of_its_arm() -> None:
    """Its variance is added: by the formula, as wide as a normal interval says."""
    c = np.array([[4, 6, 10, 12, 8], _cell(2)])
    t = np.array([[2, 4, 12, 14, 8], [0, 0, 0, 0, 40]])
    found = stratified_effects(c, t, LEVELS, 4, seed=1, resamples=99_999)
    n0, n1 = c.sum(1), t.sum(1)
    weight = n0 * n1 / (n0 + n1)
    weight = weight / weight.sum()
    variance = [float(np.cov(LEVELS, fweights=arm)) for arm in (c[0], t[0])]
    total = weight[0] ** 2 * (variance[0] / n0[0] + variance[1] / n1[0])
    total += weight[1] ** 2 * variance[0]  # the single reply; the forty have none
    low, high = found.mean_interval.ends
    assert low is not None
    assert high is not None
    assert high - low == pytest.approx(2 * 1.98 * total**0.5, rel=0.03)


def test_all_resolved_is_no_certainty() -> None:
    """The interval of the rates has width where every reply is resolved."""
    c = t = np.array([[0, 0, 0, 10, 20], [0, 0, 0, 5, 9]])
    found = stratified_effects(c, t, LEVELS, 4)
    low, high = found.resolved_interval.ends
    assert low is not None
    assert high is not None
    assert low < -0.03 < 0.03 < high

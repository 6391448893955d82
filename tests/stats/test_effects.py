"""Win probability, paired shares and odds ratios against R and by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.effects import (
    odds_ratio,
    paired_win_probability,
    win_probability,
)


def test_brunner_munzel_matches_r(oracle: Callable[[str], Any]) -> None:
    """Lawstat's statistic, degrees of freedom, p and interval for shoulder pain."""
    case = oracle("ordinal_models")["brunner_munzel_shoulder"]
    found = win_probability(np.array([11, 2, 0, 1, 0]), np.array([3, 1, 4, 2, 1]))
    assert found.estimate == pytest.approx(case["p_hat"], rel=1e-12)
    assert found.statistic == pytest.approx(case["statistic"], rel=1e-12)
    assert found.df == pytest.approx(case["df"], abs=5e-4)
    assert found.pvalue == pytest.approx(case["p"], rel=1e-9)
    assert found.interval.ends == pytest.approx((0.5952169, 0.9827052), abs=1e-7)


def test_scipy_agrees_on_random_tables() -> None:
    """Same numbers as scipy.stats.brunnermunzel, which needs the rows."""
    from scipy.stats import brunnermunzel

    rng = np.random.default_rng(4)
    for _ in range(10):
        c, t = rng.integers(0, 30, 5), rng.integers(1, 30, 5)
        if not c.sum():
            continue
        x, y = np.repeat(np.arange(5), c), np.repeat(np.arange(5), t)
        want = brunnermunzel(x, y)
        found = win_probability(c, t)
        assert found.statistic == pytest.approx(want.statistic, rel=1e-9)
        assert found.pvalue == pytest.approx(want.pvalue, rel=1e-9)


def test_wins_by_hand() -> None:
    """(2, 3) against (1, 3): of four pairs two won, one tied, one lost: 0.625."""
    found = win_probability(np.array([1, 0, 1]), np.array([0, 1, 1]))
    assert found.estimate == pytest.approx(0.625)


def test_mann_whitney_u_of_large_tables(oracle: Callable[[str], Any]) -> None:
    """The count behind the estimate is Mann and Whitney's U, ties half."""
    case = oracle("ordinal_models")["mann_whitney_1to5"]
    x, y = np.array(case["x"]), np.array(case["y"])
    u = win_probability(y, x).estimate * x.sum() * y.sum()
    assert u == pytest.approx(case["U"], rel=1e-12)


def test_swapping_arms_mirrors_and_relabelling_changes_nothing() -> None:
    """1 - estimate with the arms swapped; an added empty level is nothing."""
    c, t = np.array([3, 5, 9, 20, 31]), np.array([9, 9, 12, 10, 22])
    a, b = win_probability(c, t), win_probability(t, c)
    assert a.estimate == pytest.approx(1 - b.estimate, rel=1e-12)
    assert a.interval.low == pytest.approx(1 - b.interval.high, rel=1e-12)
    wider = win_probability(np.insert(c, 2, 0), np.insert(t, 2, 0))
    assert wider.interval.ends == pytest.approx(a.interval.ends, rel=1e-12)


@pytest.mark.parametrize(
    ("control", "treatment", "estimate"),
    [
        ([3, 0, 0, 0, 0], [0, 0, 0, 0, 5], 1.0),
        ([0, 0, 0, 0, 5], [3, 0, 0, 0, 0], 0.0),
        ([0, 0, 10, 0, 0], [0, 0, 10, 0, 0], 0.5),
    ],
)
def test_no_spread_is_finite_and_marked(
    control: list[int], treatment: list[int], estimate: float
) -> None:
    """Separated or constant arms: scipy gives inf and NaN; here a marked interval."""
    found = win_probability(np.array(control), np.array(treatment))
    assert found.estimate == estimate
    assert found.pvalue is None
    assert not found.interval.reliable
    low, high = found.interval.ends
    assert low is not None
    assert high is not None
    assert 0 <= low <= estimate <= high <= 1
    assert high - low > 0.2  # never the tightest interval from no data


@pytest.mark.parametrize("times", [1, 1.9])
def test_few_replies_far_apart_are_marked(times: float) -> None:
    """Under 50 an arm and at 0.9 the interval covers too little."""
    far = win_probability(
        np.rint(times * np.array([20, 3, 2, 0, 0])).astype(int),
        np.rint(times * np.array([1, 2, 4, 8, 10])).astype(int),
    )
    assert far.estimate > 0.9
    assert not far.interval.reliable
    assert "hardly overlap" in far.interval.reason
    near = win_probability(np.array([5, 5, 5, 5, 5]), np.array([1, 2, 4, 8, 10]))
    assert near.interval.reliable


def test_nearly_equal_scores_are_marked() -> None:
    """With 4 replies off an arm's commonest score the interval covers as low as 88%."""
    spread = np.array([10, 10, 20, 30, 30])
    few = win_probability(np.array([1, 0, 1, 2, 60]), spread)
    assert not few.interval.reliable
    assert "commonest" in few.interval.reason
    assert win_probability(np.array([1, 0, 1, 3, 60]), spread).interval.reliable


@pytest.mark.parametrize(
    "treatment", [[0.006, 0.006, 0.016, 0.062, 0.91], [0.0, 0.0, 0.01, 0.05, 0.94]]
)
def test_what_is_called_reliable_covers(treatment: list[float]) -> None:
    """Near the ceiling, intervals called reliable miss in 7% of 3,000 runs at most."""
    p, q = np.array([0.01, 0.01, 0.02, 0.06, 0.9]), np.array(treatment)
    truth = float(q @ (np.cumsum(p) - p / 2))
    rng = np.random.default_rng(8)
    missed = 0
    for c, t in zip(
        rng.multinomial(20, p, 3000), rng.multinomial(40, q, 3000), strict=True
    ):
        interval = win_probability(c, t).interval
        if interval.reliable:
            missed += not interval.low <= truth <= interval.high  # type: ignore[operator]
    assert missed / 3000 <= 0.07 + 4 * (0.93 * 0.07 / 3000) ** 0.5


def test_a_single_reply_has_no_win_interval() -> None:
    """One reply: the estimate stands, the interval is undefined and says why."""
    found = win_probability(np.array([1, 0]), np.array([4, 5]))
    assert found.interval.ends == (None, None)
    assert found.interval.reason == "an arm has a single unit"


def test_pairs_won_ties_half() -> None:
    """Of 5 pairs 2 are won, 2 tied and 1 lost: 0.6, inside its interval."""
    table = np.zeros((5, 5), dtype=int)
    table[0, 4] = table[2, 3] = table[1, 1] = table[4, 4] = table[3, 0] = 1
    found = paired_win_probability(table)
    assert found.estimate == pytest.approx(0.6)
    low, high = found.interval.ends
    assert low is not None
    assert high is not None
    assert 0 <= low < 0.6 < high <= 1
    assert not found.interval.reliable


@pytest.mark.parametrize("name", ["wine_temp_only", "arthritis_po"])
def test_odds_ratio_matches_r_ordinal(oracle: Callable[[str], Any], name: str) -> None:
    """Log odds ratio, standard error, thresholds and likelihood of ordinal::clm."""
    case = oracle("ordinal_models")[name]
    found = odds_ratio(np.array(case["A"]), np.array(case["B"]))
    assert found.log_odds == pytest.approx(case["log_or"], abs=1e-8)
    assert found.error == pytest.approx(case["se"], abs=1e-8)
    assert found.thresholds == pytest.approx(case["thresholds"], abs=1e-8)
    assert found.log_likelihood == pytest.approx(case["llf"], abs=1e-8)


def test_two_levels_are_the_plain_odds_ratio() -> None:
    """With two levels: log(ad / bc) and Woolf's standard error."""
    found = odds_ratio(np.array([20, 10]), np.array([8, 22]))
    assert found.ratio == pytest.approx(20 * 22 / (10 * 8), rel=1e-9)
    assert found.error == pytest.approx((1 / 20 + 1 / 10 + 1 / 8 + 1 / 22) ** 0.5)


def test_odds_ratio_laws() -> None:
    """Swapped arms invert it; an empty level in both arms is left out."""
    c, t = np.array([3, 0, 9, 20, 31]), np.array([9, 0, 12, 10, 22])
    a, b = odds_ratio(c, t), odds_ratio(t, c)
    assert a.log_odds == pytest.approx(-b.log_odds, rel=1e-9)  # type: ignore[operator]
    packed = odds_ratio(np.delete(c, 1), np.delete(t, 1))
    assert packed.log_odds == pytest.approx(a.log_odds, rel=1e-12)


def test_separated_arms_have_no_odds_ratio() -> None:
    """Infinite is said so (statsmodels reports convergence at 25.9 +- 142.9)."""
    apart = odds_ratio(np.array([9, 5, 0, 0]), np.array([0, 4, 9, 2]))
    assert apart.ratio is None
    assert "infinite" in apart.reason
    alike = odds_ratio(np.array([0, 7]), np.array([0, 9]))
    assert alike.ratio is None
    assert alike.reason == "all scores are equal"


def test_an_empty_arm_is_refused() -> None:
    """No replies in an arm: an error, never a number."""
    for function in (win_probability, odds_ratio):
        with pytest.raises(StatisticsError, match="no scored reply"):
            function(np.array([0, 0]), np.array([1, 2]))
    with pytest.raises(StatisticsError, match="no pairs"):
        paired_win_probability(np.zeros((5, 5), dtype=int))

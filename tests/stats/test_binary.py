"""Two resolved rates: published intervals, exact tests, and what must always hold."""

import json
import math
from pathlib import Path

import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary import (
    noninferiority,
    rate_difference,
    rate_test,
    score_statistic,
    wilson_interval,
)
from reply_resolution.stats.exact2x2 import boschloo_power, rejection_cuts

ORACLES = json.loads((Path(__file__).parent / "oracles/binary.json").read_text())
NEWCOMBE = ORACLES["newcombe1998_table2"]  # Newcombe 1998, Table II


@pytest.mark.parametrize("case", NEWCOMBE, ids=lambda c: f"{c['x1']}/{c['n1']}")
@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("miettinen-nurminen", "miettinen_nurminen"),
        ("mee", "mee"),
        ("newcombe", "newcombe_method10"),
    ],
)
def test_intervals_equal_the_published_ones(case, method, key):
    """Every interval of Newcombe's table is met to its four printed decimals."""
    d = rate_difference(case["x1"], case["n1"], case["x2"], case["n2"], method=method)
    assert d.ci == pytest.approx(case[key], abs=5.1e-5)


@pytest.mark.parametrize(
    ("name", "key", "method", "digits"),
    [
        ("propcis", "mn", "miettinen-nurminen", 5.1e-5),
        ("propcis", "mee", "mee", 5.1e-5),
        ("sasLM", "mn", "miettinen-nurminen", 2e-5),
    ],
)
def test_intervals_equal_those_of_r_packages(name, key, method, digits):
    """PropCIs and sasLM (which stops iterating at 2e-5) give the same limits."""
    case = ORACLES[name]
    d = rate_difference(case["x1"], case["n1"], case["x2"], case["n2"], method=method)
    assert d.ci == pytest.approx(case[key], abs=digits)


def test_interval_equals_metalite():
    """metalite.ae (which subtracts the first group): 0 of 105 from 0 of 101."""
    case = ORACLES["metalite"]
    d = rate_difference(case["x2"], case["n2"], case["x1"], case["n1"])
    assert d.ci == pytest.approx(case["mn"], abs=5.1e-6)


def test_statsmodels_issue_10269_does_not_come_along():
    """The inputs on which statsmodels' score interval is wrong or fails are right."""
    assert rate_difference(56, 70, 48, 80).ci == pytest.approx(
        (0.0528, 0.3382), abs=5e-5
    )
    assert rate_difference(9, 10, 3, 10).ci == pytest.approx((0.1700, 0.8406), abs=5e-5)
    test = noninferiority(80, 100, 82, 100, margin=0.10)
    assert (test.statistic, test.pvalue) == pytest.approx((1.42800, 0.07665), abs=5e-6)


@pytest.mark.parametrize("case", ORACLES["exact_2x2"], ids=lambda c: str(c["table"]))
def test_exact_tests_equal_scipy_and_its_documentation(case):
    """Boschloo and Fisher match scipy's documented values; p is 1 where it is nan."""
    (a, b), (c, d) = case["table"]
    if "required_p" in case:  # columns (or rows) in which nobody succeeds
        groups = (a, a + b, c, c + d) if a + b else (a, a + c, b, b + d)
        assert rate_test(*groups, method="boschloo").pvalue == 1.0
        return
    groups = (a, a + c, b, b + d)
    assert rate_test(*groups, method="boschloo").pvalue == pytest.approx(
        case["boschloo"], abs=1e-9
    )
    from scipy.stats import fisher_exact

    assert rate_test(*groups, method="fisher").pvalue == pytest.approx(
        fisher_exact(case["table"]).pvalue, rel=1e-9
    )


def test_boschloo_equals_tea_tasting():
    """tea-tasting's tested case (Boschloo 0.4000169399, Fisher 0.3999948918)."""
    case = ORACLES["tea_tasting"]
    groups = (*case["treatment"], *case["control"])
    p = rate_test(*groups, method="boschloo").pvalue
    assert p == pytest.approx(case["boschloo"], abs=1e-8)
    p = rate_test(*groups, method="fisher").pvalue
    assert p == pytest.approx(case["fisher"], abs=1e-9)


@pytest.mark.parametrize("table", [(3, 12, 8, 11), (18, 25, 9, 30), (0, 9, 4, 9)])
@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_boschloo_equals_scipy_in_every_direction(table, alternative):
    """The own Boschloo is scipy's, one-sided and two-sided, at unequal sizes too."""
    from scipy.stats import boschloo_exact

    x1, n1, x0, n0 = table
    other = boschloo_exact(
        [[x1, x0], [n1 - x1, n0 - x0]], alternative=alternative, n=64
    )
    own = rate_test(*table, method="boschloo", alternative=alternative)
    # scipy may miss the highest of several maxima; never the other way round
    assert own.pvalue == pytest.approx(float(other.pvalue), abs=2e-5)
    assert own.pvalue >= float(other.pvalue) - 1e-8


def test_midp_by_hand():
    """3 of 3 against 0 of 3: P(observed) is 1/20, so two-sided mid-p is 2 x 1/40."""
    assert rate_test(3, 3, 0, 3, method="fisher mid-p").pvalue == pytest.approx(0.05)
    assert rate_test(3, 3, 0, 3, method="fisher").pvalue == pytest.approx(0.10)


@pytest.mark.parametrize("method", ["boschloo", "fisher mid-p", "fisher", "score"])
def test_swapping_arms_mirrors_tests_and_intervals(method):
    """Exchanging the arms changes the sign and nothing else."""
    one = rate_difference(13, 20, 6, 25, test=method, alternative="greater")
    other = rate_difference(6, 25, 13, 20, test=method, alternative="less")
    assert one.pvalue == pytest.approx(other.pvalue, rel=1e-12)
    assert one.ci == pytest.approx((-other.high, -other.low), abs=1e-12)


@pytest.mark.parametrize("method", ["miettinen-nurminen", "mee", "newcombe"])
def test_counting_failures_instead_mirrors_the_interval(method):
    """Resolved and unresolved are names: exchanging them flips the sign."""
    one = rate_difference(13, 20, 6, 25, method=method)
    other = rate_difference(7, 20, 19, 25, method=method)
    assert one.ci == pytest.approx((-other.high, -other.low), abs=1e-12)


def test_interval_and_score_test_agree_on_every_small_table():
    """The interval excludes 0 exactly where the score test's p is below alpha."""
    for x1 in range(15):
        for x0 in range(10):
            d = rate_difference(x1, 14, x0, 9, test="score")
            assert (d.low > 1e-9 or d.high < -1e-9) == (d.pvalue < 0.05), (x1, x0)
            assert not d.warnings


def test_disagreement_of_interval_and_exact_test_is_said():
    """Where Boschloo and the interval fall on different sides, the result says so."""
    found = [
        d
        for x1 in range(21)
        for d in [rate_difference(x1, 20, 10, 20)]
        if (d.low > 0 or d.high < 0) != (d.pvalue < 0.05)
    ]
    assert all(d.warnings for d in found)
    assert not rate_difference(18, 20, 4, 20).warnings


def test_one_sided_is_not_two_sided():
    """A direction halves the p-value on its side and is near 1 on the other."""
    both = rate_test(15, 20, 8, 20).pvalue
    above = rate_test(15, 20, 8, 20, alternative="greater").pvalue
    below = rate_test(15, 20, 8, 20, alternative="less").pvalue
    assert both == pytest.approx(2 * above)
    assert below > 0.95


def test_rejection_region_is_the_test():
    """The region used for power holds exactly the tables whose p is at most alpha."""
    cuts = rejection_cuts(12, 9, 0.025)
    for x1 in range(13):
        for x0 in range(10):
            p = rate_test(x1, 12, x0, 9, method="boschloo", alternative="greater")
            inside = x0 <= cuts[x1] and x1 + x0 not in (0, 21)
            assert inside == (p.pvalue <= 0.025), (x1, x0)


def test_boschloo_keeps_its_level_and_beats_fisher():
    """Exact size is at most 5% at every common rate, and above Fisher's."""
    sizes = [boschloo_power(p, 20, p, 20) for p in (0.05, 0.2, 0.5, 0.8, 0.9)]
    assert max(sizes) <= 0.05 + 1e-9
    assert max(sizes) > 0.03  # Fisher's is 0.022 at most here


def test_exact_power_by_hand():
    """3 an arm at alpha 0.1: only 3:0 and 0:3 reject, so power is their chance."""
    p = rate_test(3, 3, 0, 3).pvalue
    alpha = p + 1e-9
    expected = 0.9**3 * 0.8**3 + 0.1**3 * 0.2**3
    assert boschloo_power(0.9, 3, 0.2, 3, alpha=alpha) == pytest.approx(expected)


def test_interval_covers_what_it_promises():
    """Exact coverage at 20 an arm stays near 95% over a grid of true rates."""
    n = 20
    ci = {
        (a, b): rate_difference(a, n, b, n, test="fisher").ci
        for a in range(n + 1)
        for b in range(n + 1)
    }

    def pmf(p):
        return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]

    coverage = []
    for p1 in (0.05, 0.2, 0.4, 0.6, 0.8, 0.95):
        for p0 in (0.1, 0.3, 0.5, 0.7, 0.9):
            f, g = pmf(p1), pmf(p0)
            coverage.append(
                sum(
                    f[a] * g[b]
                    for (a, b), (low, high) in ci.items()
                    if low <= p1 - p0 <= high
                )
            )
    assert min(coverage) > 0.93
    assert sum(coverage) / len(coverage) < 0.97


def test_large_arms_take_midp_and_stay_fast():
    """Above 2,000 replies mid-p takes over, near the score test, at a million too."""
    small, large = rate_test(530, 1001, 480, 1000), rate_test(5300, 10000, 5000, 10000)
    assert small.method == large.method == "fisher mid-p"
    score = rate_test(5300, 10000, 5000, 10000, method="score").pvalue
    assert large.pvalue == pytest.approx(score, rel=0.02)
    big = rate_test(500_900, 1_000_000, 500_000, 1_000_000)
    assert big.pvalue == pytest.approx(
        rate_test(500_900, 1_000_000, 500_000, 1_000_000, method="score").pvalue,
        rel=1e-3,
    )


def test_noninferiority_agrees_with_the_interval():
    """Not worse by the margin at 2.5% exactly where the 95% interval lies above."""
    for x1 in range(30, 50):
        test = noninferiority(x1, 50, 40, 50, margin=0.15)
        low, _ = rate_difference(x1, 50, 40, 50).ci
        assert test.noninferior == (low >= -0.15 - 1e-9)


def test_wilson_interval_at_the_ends():
    """Nobody resolved has a lower end of 0 and an upper end of z²/(n+z²)."""
    z = 1.959963984540054
    assert wilson_interval(0, 10, z=z) == pytest.approx((0, z * z / (10 + z * z)))
    assert wilson_interval(10, 10, z=z)[1] == 1.0


def test_certain_data_have_an_infinite_statistic_not_a_nan():
    """All against none, tested at the impossible other end, is infinite."""
    assert score_statistic(10, 10, 0, 10, -1.0) == math.inf
    assert score_statistic(0, 10, 0, 10, 0.0) == 0.0
    assert rate_difference(10, 10, 0, 10).high == 1.0


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ((3, 0, 1, 5), "no scored replies"),
        ((6, 5, 1, 5), "between 0 and 5"),
        ((-1, 5, 1, 5), "between 0 and 5"),
        ((2.0, 5, 1, 5), "whole numbers"),
        ((True, 5, 1, 5), "whole numbers"),
        ((float("nan"), 5, 1, 5), "whole numbers"),
    ],
)
def test_impossible_counts_are_refused_with_the_reason(counts, word):
    """Empty arms, fractions, booleans, NaN and impossible counts are errors."""
    with pytest.raises(StatisticsError, match=word):
        rate_difference(*counts)


def test_unknown_options_name_the_known_ones():
    """A misspelt method is refused with the list of methods."""
    with pytest.raises(StatisticsError, match="newcombe"):
        rate_difference(1, 5, 1, 5, method="wald")
    with pytest.raises(StatisticsError, match="boschloo"):
        rate_test(1, 5, 1, 5, method="barnard")
    with pytest.raises(StatisticsError, match="greater"):
        rate_test(1, 5, 1, 5, alternative="larger")
    with pytest.raises(StatisticsError, match="margin"):
        noninferiority(1, 5, 1, 5, margin=-0.1)
    with pytest.raises(StatisticsError, match="confidence"):
        rate_difference(1, 5, 1, 5, confidence=95)

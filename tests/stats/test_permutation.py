"""Permutation tests against printed values, integer counting and their own laws."""

from collections.abc import Callable
from fractions import Fraction
import itertools
from math import comb
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats import lattice, permutation
from reply_resolution.stats.permutation import paired_permutation_test, permutation_test
from reply_resolution.stats.pvalues import dealing_test

CONVENTIONS = {"abs": "absolute", "doubled": "doubled"}


def _scores(case: dict[str, Any]) -> np.ndarray:
    if case["scores"] == "midrank":
        pool = np.array(case["A"]) + np.array(case["B"])
        return 2 * np.cumsum(pool) - pool + 1  # doubled midranks
    return np.array(case["scores"])


def test_every_printed_two_sample_case(oracle: Callable[[str], Any]) -> None:
    """The exact p-values and mid-ps of coin, SAS, books and rational arithmetic."""
    for case in oracle("permutation")["cases"]:
        found = permutation_test(
            np.array(case["B"]),
            np.array(case["A"]),  # the file's A is the treatment here
            values=_scores(case),
            alternative=case["alternative"],
            convention=CONVENTIONS[case["two_sided"]],
        )
        assert found.method == "exact"
        assert found.pvalue == pytest.approx(case["p"], rel=1e-9), case["id"]
        if case["mid_p"] is not None:
            assert found.midp == pytest.approx(case["mid_p"], rel=1e-9), case["id"]


def test_strata_match_convolution(oracle: Callable[[str], Any]) -> None:
    """vcd::Arthritis by sex: both tails of the exact stratified test."""
    case = oracle("permutation")["stratified"]
    c, t = np.array(case["B"]), np.array(case["A"])
    assert permutation_test(c, t).pvalue == pytest.approx(case["p_two"], rel=1e-12)
    less = permutation_test(c, t, alternative="less")
    assert less.pvalue == pytest.approx(case["p_less"], rel=1e-12)


def test_strata_are_dealt_within() -> None:
    """Two strata that are each all one score leave nothing to permute: p is 1."""
    c = np.array([[10, 0], [0, 2]])
    t = np.array([[2, 0], [0, 10]])
    assert permutation_test(c, t).pvalue == 1.0
    assert permutation_test(c.sum(0), t.sum(0)).pvalue < 0.01


def test_every_printed_paired_case(oracle: Callable[[str], Any]) -> None:
    """Fisher's maize, exactRankTests and coin on ordinal pairs."""
    for case in oracle("paired")["cases"]:
        if "diffs" in case:
            d, n = np.array(case["diffs"]), np.ones(len(case["diffs"]), dtype=int)
        elif "diff_counts" in case:
            d = np.array([int(k) for k in case["diff_counts"]])
            n = np.array(list(case["diff_counts"].values()))
        elif "A" in case:
            d = np.array(case["B"]) - np.array(case["A"])
            n = np.ones(len(d), dtype=int)
        else:
            continue  # a 2x2 table for McNemar's asymptotic test
        found = paired_permutation_test(d, n)
        assert found.pvalue == pytest.approx(case["p_two"], rel=1e-9), case["id"]
        if "p_greater" in case:
            greater = paired_permutation_test(d, n, alternative="greater")
            assert greater.pvalue == pytest.approx(case["p_greater"], rel=1e-9)
        if "mid_p_two" in case:
            assert found.midp == pytest.approx(case["mid_p_two"], rel=1e-9)


def test_one_size_of_difference_is_mcnemar() -> None:
    """With differences of one size only, the sign flip is the exact binomial test."""
    found = paired_permutation_test(np.array([-1, 0, 1]), np.array([4, 30, 13]))
    tail = Fraction(sum(comb(17, k) for k in range(13, 18)), 2**17)
    assert found.pvalue == pytest.approx(float(2 * tail), rel=1e-13)


def _flips(sizes: list[int], times: list[int]) -> tuple[list[int], int]:
    """Ways of every sum of the positive differences, by one huge whole number."""
    bits = sum(times) + 1
    number = 1
    for size, n in zip(sizes, times, strict=True):
        number *= (1 + (1 << (bits * size))) ** n
    total = sum(s * n for s, n in zip(sizes, times, strict=True))
    mask = (1 << bits) - 1
    return [(number >> (bits * v)) & mask for v in range(total + 1)], total


@pytest.mark.parametrize("shift", [0, 40, 250, 900])
def test_thousands_of_pairs_match_integer_counting(shift: int) -> None:
    """Sign flips of 1,000 differences of three sizes, middle to far tail."""
    sizes, times = [1, 2, 4], [320, 380, 300]
    ways, total = _flips(sizes, times)
    up = [n // 2 + shift // 10 for n in times]
    observed = sum(s * (2 * u - n) for s, u, n in zip(sizes, up, times, strict=True))
    far = sum(n for v, n in enumerate(ways) if abs(2 * v - total) >= abs(observed))
    want = Fraction(far, 2 ** sum(times))
    values = np.array([-4, -2, -1, 1, 2, 4])
    down = [n - u for n, u in zip(times, up, strict=True)]
    found = paired_permutation_test(values, np.array([*down[::-1], *up]))
    assert found.pvalue == pytest.approx(float(want), rel=1e-9)
    upper = paired_permutation_test(
        values, np.array([*down[::-1], *up]), alternative="greater"
    )
    one = sum(n for v, n in enumerate(ways) if 2 * v - total >= observed)
    assert upper.pvalue == pytest.approx(one / 2 ** sum(times), rel=1e-9)


tables = st.integers(2, 5).flatmap(
    lambda k: st.tuples(
        st.lists(st.integers(0, 12), min_size=k, max_size=k),
        st.lists(st.integers(0, 12), min_size=k, max_size=k),
        st.lists(st.integers(0, 9), min_size=k, max_size=k, unique=True),
    )
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tables, st.sampled_from(["two-sided", "greater", "less"]), st.booleans())
def test_random_tables_match_integer_counting(
    counted_pvalue: Callable[..., Fraction],
    table: tuple[list[int], list[int], list[int]],
    alternative: str,
    by_inversion: bool,
) -> None:
    """Any table, either algorithm: within 1e-9 relative of counting every dealing."""
    control, treatment, scores = table
    assume(sum(control) > 0 and sum(treatment) > 0)
    want = float(counted_pvalue(control, treatment, scores, alternative))
    small = lattice._SMALL_ARM
    lattice._SMALL_ARM = -1 if by_inversion else small
    try:
        found = permutation_test(
            np.array(control),
            np.array(treatment),
            values=np.array(scores),
            alternative=alternative,
        )
    finally:
        lattice._SMALL_ARM = small
    assert found.pvalue == pytest.approx(want, rel=1e-9)


def _counted_three_levels(control: list[int], treatment: list[int]) -> Fraction:
    """Two-sided p of a 2x3 table, scores 0 1 2, in whole numbers of any size."""
    pool = [a + b for a, b in zip(control, treatment, strict=True)]
    drawn, size = sum(treatment), sum(pool)
    middle = Fraction(drawn * (pool[1] + 2 * pool[2]), size)
    away = abs(treatment[1] + 2 * treatment[2] - middle)
    rows = [[comb(n, x) for x in range(min(n, drawn) + 1)] for n in pool]
    hits = 0
    for top in range(min(pool[2], drawn) + 1):
        part = 0
        for low in range(min(pool[0], drawn - top) + 1):
            rest = drawn - top - low
            if rest <= pool[1] and abs(rest + 2 * top - middle) >= away:
                part += rows[0][low] * rows[1][rest]
        hits += part * rows[2][top]
    return Fraction(hits, comb(size, drawn))


@pytest.mark.parametrize(
    ("control", "treatment"),
    [
        ([120, 900, 170], [135, 960, 120]),
        ([3, 2500, 1], [1, 2400, 4]),  # nearly everything at one level
        ([40, 3, 9], [1900, 130, 60]),  # one small, one large arm
        ([60, 900, 180], [170, 750, 60]),  # far out
    ],
)
def test_thousands_of_replies_match_integer_counting(
    control: list[int], treatment: list[int]
) -> None:
    """Whole numbers of any size at N in the thousands: within 1e-9 relative."""
    want = float(_counted_three_levels(control, treatment))
    found = permutation_test(np.array(control), np.array(treatment))
    assert found.pvalue == pytest.approx(want, rel=1e-9)


def test_far_tails_keep_their_digits(
    dealings: Callable[..., dict[int, int]],
) -> None:
    """A p-value of 1e-60 has the digits of integer counting, not just the exponent."""
    control, treatment = [20, 35, 30, 2, 1], [1, 2, 5, 40, 35]
    pool = [a + b for a, b in zip(control, treatment, strict=True)]
    ways = dealings(pool, sum(treatment), [1, 2, 3, 4, 5])
    seen = sum(n * s for n, s in zip(treatment, [1, 2, 3, 4, 5], strict=True))
    want = Fraction(
        sum(n for total, n in ways.items() if total >= seen),
        comb(sum(pool), sum(treatment)),
    )
    found = permutation_test(
        np.array(control), np.array(treatment), alternative="greater"
    )
    assert float(want) < 1e-24
    assert found.pvalue == pytest.approx(float(want), rel=1e-9)


def _p(control: Any, treatment: Any, **options: Any) -> float:
    return permutation_test(np.array(control), np.array(treatment), **options).pvalue


@settings(max_examples=40, deadline=None, derandomize=True)
@given(tables, st.integers(1, 40))
def test_metamorphic_laws(
    table: tuple[list[int], list[int], list[int]], times: int
) -> None:
    """Swapped arms, reversed or rescaled scores, an empty level: to 1e-12 relative."""
    control, treatment, scores = table
    control = [n * times for n in control]
    assume(sum(control) > 0 and sum(treatment) > 0)
    same = {"rel": 1e-12, "abs": 1e-300}
    s = np.array(scores)
    for alternative, mirrored in (
        ("two-sided", "two-sided"),
        ("greater", "less"),
        ("less", "greater"),
    ):
        base = _p(control, treatment, values=s, alternative=alternative)
        swapped = _p(treatment, control, values=s, alternative=mirrored)
        assert swapped == pytest.approx(base, **same)
        reverse = _p(control, treatment, values=-s, alternative=mirrored)
        assert reverse == pytest.approx(base, **same)
        scaled = _p(control, treatment, values=3 * s - 7, alternative=alternative)
        assert scaled == pytest.approx(base, **same)
        wider = _p(
            [*control, 0],
            [*treatment, 0],
            values=np.append(s, 50),
            alternative=alternative,
        )
        assert wider == pytest.approx(base, **same)
    both = _p(control, treatment, values=s, alternative="greater") + _p(
        control, treatment, values=s, alternative="less"
    )
    assert both >= 1 - 1e-12


def test_equally_large_arms_make_the_conventions_agree() -> None:
    """With equal arms the distribution is symmetric: absolute and doubled are one."""
    control, treatment = [26, 26, 23, 18, 9], [16, 17, 19, 24, 26]
    absolute = _p(control, treatment)
    assert _p(control, treatment, convention="doubled") == pytest.approx(absolute)
    shoulder = [11, 2, 0, 1, 0], [3, 1, 4, 2, 1]
    assert _p(*shoulder, convention="doubled") == pytest.approx(0.0102364607, rel=1e-8)
    assert _p(*shoulder) == pytest.approx(0.008119307, rel=1e-6)


def test_merging_a_level_into_its_neighbour_of_equal_score_changes_nothing() -> None:
    """Two levels with one value are one level."""
    merged = _p([5, 9, 4], [2, 6, 11])
    split = _p([5, 4, 5, 4], [2, 6, 0, 11], values=np.array([1, 2, 2, 3]))
    assert split == pytest.approx(merged, rel=1e-12)


def test_one_reply_and_equal_scores_are_defined() -> None:
    """A single reply has an exact p (scipy refuses it); equal scores give p = 1."""
    assert _p([1, 0, 0, 0, 0], [0, 1, 1, 1, 1]) == pytest.approx(0.4, rel=1e-12)
    assert _p([0, 0, 7, 0, 0], [0, 0, 9, 0, 0]) == 1.0
    constant = permutation_test(np.array([6, 0]), np.array([0, 6]), studentized=True)
    assert constant.pvalue == pytest.approx(2 / comb(12, 6))


def test_studentized_is_exact_for_small_arms_and_drawn_for_large_ones() -> None:
    """Few distinct dealings are listed; many are drawn, seeded, never giving 0."""
    control, treatment = np.array([2, 3, 1, 4, 6]), np.array([4, 3, 3, 2, 1])
    listed = permutation_test(control, treatment, studentized=True)
    assert listed.method == "exact"
    assert listed.resamples is None
    big = permutation_test(
        control * 90, treatment * 60, studentized=True, resamples=199, seed=3
    )
    assert big.method == "monte_carlo"
    assert big.pvalue == 1 / 200  # the +1 rule
    again = permutation_test(
        control * 90, treatment * 60, studentized=True, resamples=199, seed=3
    )
    assert again == big


def test_studentized_matches_every_relabelling_by_hand() -> None:
    """Unequal arms, Welch's statistic of every relabelling of the rows."""
    control, treatment = [1, 1, 2, 3, 3], [3, 4, 4, 4]
    rows = np.array(control + treatment)

    def welch(treated: tuple[int, ...]) -> float:
        inside = np.isin(np.arange(len(rows)), treated)
        a, b = rows[~inside], rows[inside]
        spread = a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)
        gap = b.mean() - a.mean()
        if spread < 1e-12:
            return 0.0 if abs(gap) < 1e-12 else float(np.copysign(np.inf, gap))
        return float(gap / spread**0.5)

    seen = welch((5, 6, 7, 8))
    every = [welch(x) for x in itertools.combinations(range(9), 4)]
    counts = [np.bincount(np.array(x) - 1, minlength=5) for x in (control, treatment)]
    for alternative, far in (
        ("two-sided", [abs(t) >= abs(seen) - 1e-9 for t in every]),
        ("greater", [t >= seen - 1e-9 for t in every]),
        ("less", [t <= seen + 1e-9 for t in every]),
    ):
        found = permutation_test(*counts, studentized=True, alternative=alternative)
        assert found.method == "exact"
        assert found.pvalue == pytest.approx(np.mean(far), rel=1e-9)


def test_a_stratum_without_one_arm_adds_nothing() -> None:
    """Replies that face nobody carry no comparison: p is that of the other strata."""
    c, t = np.array([[4, 3, 2], [1, 2, 9]]), np.array([[1, 3, 6], [0, 2, 9]])
    base = permutation_test(c, t).pvalue
    lonely = np.vstack([c, [7, 1, 3]]), np.vstack([t, [0, 0, 0]])
    assert permutation_test(*lonely).pvalue == pytest.approx(base, rel=1e-12)


def test_drawn_and_listed_studentized_tests_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within 4 standard errors of each other on the same small table."""
    control, treatment = np.array([1, 3, 2, 4, 5]), np.array([9, 3, 13, 7, 9])
    listed = permutation_test(control, treatment, studentized=True)
    monkeypatch.setattr(permutation, "every_dealing", lambda *_: None)
    drawn = permutation_test(control, treatment, studentized=True, seed=5)
    assert listed.method == "exact"
    assert drawn.method == "monte_carlo"
    assert abs(drawn.pvalue - listed.pvalue) < 4 * drawn.error + 1e-4


def test_monte_carlo_laws_hold_within_their_error() -> None:
    """Swapped arms and reversed scores give the same drawn p to 4 standard errors."""
    c, t = np.array([30, 40, 50, 60, 70]), np.array([20, 20, 20, 20, 10])
    options = {"studentized": True, "resamples": 20_000}
    base = permutation_test(c, t, seed=1, **options)
    for other in (
        permutation_test(t, c, seed=2, **options),
        permutation_test(c[::-1].copy(), t[::-1].copy(), seed=3, **options),
    ):
        error = (base.error**2 + other.error**2) ** 0.5
        assert abs(other.pvalue - base.pvalue) < 4 * error + 1e-4


def _undrawn(rng: np.random.Generator, size: int) -> np.ndarray:
    raise AssertionError("listed dealings need no draws")


def test_listed_p_counts_weights() -> None:
    """A p-value from listed dealings adds the probabilities at least as far out."""
    statistics = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    listed = statistics, np.array([0.1, 0.2, 0.4, 0.2, 0.1])
    greater = dealing_test(listed, _undrawn, 1.0, "greater", "absolute", 0, None)
    assert greater.pvalue == pytest.approx(0.3)
    assert greater.midp == pytest.approx(0.2)
    both = dealing_test(listed, _undrawn, 1.0, "two-sided", "absolute", 0, None)
    assert both.pvalue == pytest.approx(0.6)
    assert both.midp == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("control", "treatment", "options", "message"),
    [
        ([0, 0], [1, 2], {}, "control has counts"),
        ([1, 2], [0, 0], {}, "treatment has counts"),
        ([1, -2], [1, 2], {}, "no negative count"),
        ([1.0, 2.0], [1.0, 2.0], {}, "whole numbers"),
        ([1, 2, 3], [1, 2], {}, "same levels"),
        ([1, 2], [1, 2], {"alternative": "bigger"}, "choose two-sided"),
        ([1, 2], [1, 2], {"convention": "abs"}, "choose absolute"),
        ([1, 0], [1, 9], {"studentized": True}, "single reply"),
        ([1, 2], [1, 2], {"values": np.array([0.5, 1.5])}, "multiply half points"),
    ],
)
def test_bad_input_is_named(
    control: list[int], treatment: list[int], options: dict[str, Any], message: str
) -> None:
    """Empty arms, negative or fractional counts and unknown words are refused."""
    with pytest.raises(StatisticsError, match=message):
        permutation_test(np.array(control), np.array(treatment), **options)


def test_no_pairs_is_an_error() -> None:
    """A sign-flip test without a pair has nothing to say."""
    with pytest.raises(StatisticsError, match="no pairs"):
        paired_permutation_test(np.array([1]), np.array([0]))

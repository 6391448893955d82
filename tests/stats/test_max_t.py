"""Families of tests: cuts of the scale, and several treatments, by max-T."""

from collections.abc import Callable
import itertools
from math import comb
from typing import Any

import numpy as np
import pytest

from reply_resolution.stats.maxt import cut_statistics, cut_tests, holm_cuts
from reply_resolution.stats.multiplicity import max_t_arms
from reply_resolution.stats.permutation import permutation_test


def _every_table(pool: np.ndarray, drawn: int) -> list[tuple[np.ndarray, float]]:
    out = []
    total = comb(int(pool.sum()), drawn)
    for x in itertools.product(*(range(n + 1) for n in pool)):
        if sum(x) == drawn:
            ways = 1
            for n, k in zip(pool.tolist(), x, strict=True):
                ways *= comb(n, k)
            out.append((np.array(x), ways / total))
    return out


def test_shoulder_max_t_is_the_printed_one(oracle: Callable[[str], Any]) -> None:
    """coin::maxstat_test: the largest statistic, its cut and its exact p-value."""
    case = oracle("permutation")["max_t"]
    c, t = np.array(case["A"]), np.array(case["B"])
    z = cut_statistics(c, t)
    assert np.abs(z).max() == pytest.approx(case["maxT"], rel=1e-8)
    found = cut_tests(c, t)
    best = min(found, key=lambda cut: cut.pvalue_adjusted)
    assert f">={best.cut}" == case["best_cut"]
    assert best.pvalue_adjusted == pytest.approx(case["p_exact"], rel=1e-12)


def test_random_tables_match_full_enumeration() -> None:
    """Every table with the margins, weighed: the recursion misses none."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        k = int(rng.integers(2, 6))
        c, t = rng.integers(0, 5, k), rng.integers(0, 5, k)
        if not c.sum() or not t.sum():
            continue
        pool = c + t
        bound = np.abs(cut_statistics(c, t))
        want = np.zeros(k - 1)
        for x, p in _every_table(pool, int(t.sum())):
            largest = np.abs(cut_statistics(pool - x, x)).max()
            want += p * (largest >= bound * (1 - 1e-9))
        got = [cut.pvalue_adjusted for cut in cut_tests(c, t)]
        single = [cut.pvalue for cut in cut_tests(c, t)]
        assert got == pytest.approx(np.maximum(want, single).tolist(), rel=1e-10)


def test_large_tables_match_draws() -> None:
    """At 5,000 an arm the exact family-wise p is within 4 errors of 20,000 draws."""
    rng = np.random.default_rng(1)
    p = np.array([0.08, 0.1, 0.17, 0.3, 0.35])
    c, t = rng.multinomial(5000, p), rng.multinomial(5000, p)
    pool = c + t
    x = rng.multivariate_hypergeometric(pool, 5000, 20_000, method="marginals")
    below, dealt = np.cumsum(pool)[:-1], np.cumsum(x, 1)[:, :-1]
    size = pool.sum()
    sd = np.sqrt(below * (size - below) / size * 5000 * 5000 / size / (size - 1))
    largest = np.abs((dealt - 5000 * below / size) / sd).max(1)
    for cut, z in zip(cut_tests(c, t), cut_statistics(c, t), strict=True):
        drawn = float((largest >= abs(z) - 1e-9).mean())
        assert abs(cut.pvalue_adjusted - drawn) < 4 * (drawn / 20_000) ** 0.5 + 1e-3


def test_each_cut_is_fishers_table() -> None:
    """Unadjusted, a cut is the exact test of its 2x2 table; never above the family."""
    c, t = np.array([20, 30, 10, 40, 50]), np.array([10, 25, 20, 50, 60])
    for cut in cut_tests(c, t):
        k = cut.cut - 1
        table = [np.array([a[:k].sum(), a[k:].sum()]) for a in (c, t)]
        assert cut.pvalue == pytest.approx(permutation_test(*table).pvalue, rel=1e-12)
        assert cut.pvalue_adjusted >= cut.pvalue
        rates = [a[k:].sum() / a.sum() for a in (c, t)]
        assert cut.difference == pytest.approx(rates[1] - rates[0])


def test_cut_laws() -> None:
    """Swapped arms and a reversed scale keep every p-value to 1e-12."""
    c, t = np.array([2, 3, 1, 4, 50]), np.array([1, 2, 2, 5, 60])
    base = cut_tests(c, t)
    swapped = cut_tests(t, c)
    mirrored = cut_tests(c[::-1].copy(), t[::-1].copy())[::-1]
    for a, b, m in zip(base, swapped, mirrored, strict=True):
        assert b.pvalue_adjusted == pytest.approx(a.pvalue_adjusted, rel=1e-12)
        assert m.pvalue_adjusted == pytest.approx(a.pvalue_adjusted, rel=1e-11)
        assert b.difference == pytest.approx(-a.difference)


def test_equal_scores_have_no_cut_to_find() -> None:
    """All replies alike: every cut has difference 0 and p = 1."""
    for cut in cut_tests(np.array([0, 0, 9, 0, 0]), np.array([0, 0, 7, 0, 0])):
        assert (cut.difference, cut.pvalue, cut.pvalue_adjusted) == (0.0, 1.0, 1.0)


def test_holm_over_cuts() -> None:
    """Cuts from pairs or strata are adjusted by Holm, in their own order."""
    found = holm_cuts([(2, 0.1, 0.04), (3, 0.2, 0.01), (4, 0.0, 0.5)])
    assert [c.pvalue_adjusted for c in found] == pytest.approx([0.08, 0.03, 0.5])
    assert {c.adjustment for c in found} == {"holm"}


def test_two_treatments_cost_less_than_bonferroni() -> None:
    """Max-T is at least the single p-value and, sharing a control, below twice it."""
    counts = np.array(
        [[40, 30, 50, 60, 70], [28, 25, 50, 70, 80], [41, 30, 49, 61, 69]]
    )
    single = permutation_test(counts[0], counts[1], studentized=True, seed=1).pvalue
    first, second = max_t_arms(counts, seed=1)
    assert single - 0.005 < first < 2 * single
    assert second > 0.5


def test_a_different_third_arm_does_not_hide_or_create_an_effect() -> None:
    """A treatment far off leaves the verdict on a null treatment alone."""
    same, far = [20, 20, 20, 20, 20], [0, 0, 0, 10, 90]
    first, second = max_t_arms(np.array([same, same, far]), seed=1)
    assert first > 0.5
    assert second < 0.001


def test_one_sided_families_look_one_way() -> None:
    """A worse treatment is no evidence for "greater", and is for "less"."""
    counts = np.array([[5, 5, 10, 30, 50], [50, 30, 10, 5, 5], [5, 5, 10, 31, 49]])
    assert max_t_arms(counts, alternative="greater", seed=2)[0] > 0.9
    assert max_t_arms(counts, alternative="less", seed=2)[0] < 0.001

"""Exact bootstrap intervals against enumeration, R boot and their own laws."""

from collections.abc import Callable
import itertools
from math import factorial
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.bootstrap import (
    difference_interval,
    mean_interval,
)


def test_shoulder_intervals_match_the_exact_bootstrap(
    oracle: Callable[[str], Any],
) -> None:
    """Percentile, expanded and BCa ends of R's example, to all digits."""
    case = oracle("bootstrap")["shoulder"]
    control, treatment = np.array(case["B"]), np.array(case["A"])
    for method in ("percentile", "expanded", "bca"):
        found = difference_interval(control, treatment, method=method)
        assert found.ends == pytest.approx(case[f"exact_{method}"], rel=1e-12)
    # R boot with 99,999 draws is near, not equal
    bca = difference_interval(control, treatment, method="bca")
    assert bca.ends == pytest.approx(case["R_boot_99999"]["bca"], abs=0.03)


def test_tiny_arms_match_full_enumeration(oracle: Callable[[str], Any]) -> None:
    """Four replies against three: the percentile ends of every resample."""
    case = oracle("bootstrap")["tiny"]
    found = difference_interval(
        np.array(case["B"]), np.array(case["A"]), method="percentile"
    )
    assert found.ends == pytest.approx(case["percentile"], rel=1e-12)


def _resamples(counts: list[int]) -> list[tuple[int, float]]:
    """(sum, probability) of every resample of one arm."""
    n, k = sum(counts), len(counts)
    out = []
    for x in itertools.product(range(n + 1), repeat=k):
        if sum(x) == n:
            p = float(factorial(n))
            for drawn, held in zip(x, counts, strict=True):
                p *= (held / n) ** drawn / factorial(drawn)
            if p:
                out.append((sum(i * d for i, d in enumerate(x, start=1)), p))
    return out


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.sampled_from([0.5, 0.8, 0.9, 0.95]),
)
def test_random_tiny_arms_match_enumeration(
    control: list[int], treatment: list[int], confidence: float
) -> None:
    """Percentile ends are quantiles of the enumerated resamples."""
    n0, n1 = sum(control), sum(treatment)
    assume(n0 > 1 and n1 > 1)
    assume(max(control) < n0 or max(treatment) < n1)
    values: dict[int, float] = {}
    for a, p in _resamples(treatment):
        for b, q in _resamples(control):
            d = a * n0 - b * n1
            values[d] = values.get(d, 0.0) + p * q
    order = sorted(values)
    alpha = (1 - confidence) / 2
    cumulative = np.cumsum([values[d] for d in order])
    # an end exactly on the probability may fall either way
    assume(np.abs(cumulative - alpha).min() > 1e-9)
    assume(np.abs(cumulative - (1 - alpha)).min() > 1e-9)
    low = order[int(np.searchsorted(cumulative, alpha))]
    high = order[int(np.searchsorted(cumulative, 1 - alpha))]
    found = difference_interval(
        np.array(control),
        np.array(treatment),
        confidence=confidence,
        method="percentile",
    )
    assert found.ends == pytest.approx((low / n0 / n1, high / n0 / n1), rel=1e-12)


def test_constant_scores_are_degenerate_not_nan(oracle: Callable[[str], Any]) -> None:
    """All replies alike: (0, 0) with the flag (scipy's BCa gives NaN)."""
    case = oracle("bootstrap")["constant"]
    for method in ("expanded", "percentile", "bca"):
        found = difference_interval(
            np.array(case["B"]), np.array(case["A"]), method=method
        )
        assert found.ends == (0.0, 0.0)
        assert not found.reliable
        assert "degenerate" in found.reason


def test_a_single_reply_has_no_interval() -> None:
    """One reply says nothing about spread: undefined, with the reason."""
    found = difference_interval(np.array([1, 0, 0]), np.array([0, 8, 9]))
    assert found.ends == (None, None)
    assert found.reason == "an arm has a single unit"


@pytest.mark.parametrize("method", ["expanded", "percentile", "bca"])
@pytest.mark.parametrize("n", [1, 37])
def test_laws_of_the_difference(method: str, n: int) -> None:
    """Swapped arms, reversed, shifted or rescaled scores, an added level: to 1e-12."""
    c, t = n * np.array([4, 1, 7, 9, 30]), n * np.array([1, 2, 3, 9, 12])
    low, high = difference_interval(c, t, method=method).ends
    assert low is not None
    assert high is not None
    swapped = difference_interval(t, c, method=method).ends
    assert swapped == pytest.approx((-high, -low), rel=1e-12)
    reversed_ = difference_interval(c[::-1].copy(), t[::-1].copy(), method=method).ends
    assert reversed_ == pytest.approx((-high, -low), rel=1e-12)
    scaled = difference_interval(
        c, t, values=np.array([10, 13, 16, 19, 22]), method=method
    ).ends
    assert scaled == pytest.approx((3 * low, 3 * high), rel=1e-12)
    wider = difference_interval(np.append(c, 0), np.append(t, 0), method=method).ends
    assert wider == pytest.approx((low, high), rel=1e-12)


def test_same_counts_give_the_same_digits() -> None:
    """No seed, no draws: twice the same interval (arena-hard-auto issue 8)."""
    c, t = np.array([400, 300, 200, 900, 800]), np.array([300, 350, 240, 900, 900])
    assert difference_interval(c, t) == difference_interval(c, t)


def test_large_arms_approach_the_normal_interval() -> None:
    """At 200,000 replies an arm the ends are Welch's to a few per mille."""
    c, t = 2000 * np.array([10, 10, 20, 30, 30]), 2000 * np.array([8, 10, 20, 30, 32])
    s = np.arange(1, 6)

    def part(x: np.ndarray) -> tuple[float, float]:
        n = x.sum()
        mean = x @ s / n
        return float(mean), float(x @ (s - mean) ** 2 / (n - 1) / n)

    (m0, v0), (m1, v1) = part(c), part(t)
    half = 1.959963985 * (v0 + v1) ** 0.5
    found = difference_interval(c, t)
    assert found.low == pytest.approx(m1 - m0 - half, abs=0.003 * half)
    assert found.high == pytest.approx(m1 - m0 + half, abs=0.003 * half)
    assert found.reliable


def test_confidence_widens_and_narrows() -> None:
    """A higher confidence contains the lower one."""
    c, t = np.array([10, 8, 9, 20, 30]), np.array([5, 9, 11, 25, 40])
    wide, narrow = (difference_interval(c, t, confidence=q) for q in (0.99, 0.8))
    assert wide.low < narrow.low < narrow.high < wide.high  # type: ignore[operator]


def test_expanded_is_wider_than_percentile_where_arms_are_small() -> None:
    """N for n - 1 is what the expansion repairs."""
    c, t = np.array([2, 1, 3, 4, 5]), np.array([1, 2, 2, 5, 6])
    plain = difference_interval(c, t, method="percentile")
    wide = difference_interval(c, t)
    assert wide.low < plain.low  # type: ignore[operator]
    assert wide.high > plain.high  # type: ignore[operator]


def test_one_mean_is_the_difference_from_a_sure_thing() -> None:
    """The one-sample interval equals the two-sample one against a constant arm."""
    differences = np.array([1, 4, 20, 9, 5, 1])
    values = np.array([-2, -1, 0, 1, 2, 3])
    one = mean_interval(differences, values=values, method="percentile")
    constant = np.array([0, 0, 5, 0, 0, 0])
    two = difference_interval(constant, differences, values=values, method="percentile")
    assert one.ends == pytest.approx(two.ends, rel=1e-12)


@pytest.mark.parametrize(
    ("control", "treatment", "reliable"),
    [
        ([0, 0, 1, 1, 98], [0, 0, 0, 1, 99], False),  # what was not seen may decide
        ([0, 1, 2, 4, 93], [0, 0, 1, 4, 95], True),  # five and more were seen
        ([20, 20, 20, 20, 20], [0, 0, 0, 1, 99], True),  # control's spread decides
        ([99, 1, 0, 0, 0], [0, 0, 0, 1, 99], False),
    ],
)
def test_nearly_constant_arms_are_marked(
    control: list[int], treatment: list[int], reliable: bool
) -> None:
    """Near the ceiling a rare low score may be missing: the interval is too narrow."""
    found = difference_interval(np.array(control), np.array(treatment))
    assert found.reliable is reliable
    assert ("commonest" in found.reason) is not reliable


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 95}, "give a fraction"),
        ({"method": "basic"}, "choose one of expanded"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    """A confidence in percent and an unknown method are refused with the choice."""
    with pytest.raises(StatisticsError, match=message):
        difference_interval(np.array([3, 4]), np.array([5, 6]), **options)


def test_an_empty_arm_has_no_interval() -> None:
    """No replies: an error, never an interval from nothing."""
    with pytest.raises(StatisticsError, match="no replies"):
        difference_interval(np.array([0, 0]), np.array([5, 6]))

"""Intervals that may be looked at again and again."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.sequential import confidence_sequence

ORACLES = json.loads(
    (Path(__file__).parent / "oracles/multiplicity_sequential.json").read_text()
)


def test_reproduces_growthbook():
    """GrowthBook's tested interval [-0.55844, 1.56516], to its rounded inputs."""
    case = ORACLES["growthbook_asympcs"]
    look = confidence_sequence(
        case["point"], case["se"], case["n"], planned_n=case["tuning"]
    )
    assert (look.low, look.high) == pytest.approx(case["ci"], abs=1.5e-5)


def test_p_value_and_interval_agree():
    """The anytime p is below alpha exactly where the interval excludes 0."""
    for estimate in np.linspace(-0.6, 0.6, 41):
        look = confidence_sequence(float(estimate), 0.12, 400, planned_n=800)
        assert look.excludes_zero == (look.pvalue < 0.05)


def test_wider_than_a_single_look_and_narrowest_as_planned():
    """At the planned size the price is 1.3 to 1.6 times a fixed interval's width."""

    def factor(n, planned):
        look = confidence_sequence(0.0, 1.0, n, planned_n=planned)
        return look.high / 1.959964

    assert 1.3 < factor(1000, 1000) < 1.6
    assert factor(1000, 1000) < factor(1000, 50)
    assert factor(1000, 1000) < factor(1000, 50_000)


def _peeked(rng, looks, per_look, shift, planned):
    """Looks at a growing experiment on 1-5 scores: fixed and sequential alarms."""
    p = np.array([0.15, 0.15, 0.20, 0.25, 0.25])
    scores = np.arange(1, 6)
    truth = shift
    n = looks * per_look
    control = rng.choice(scores, size=n, p=p)
    treatment = rng.choice(scores, size=n, p=p) + truth
    fixed = sequential = covered_all = False
    covered_all = True
    for look in range(1, looks + 1):
        a, b = control[: look * per_look], treatment[: look * per_look]
        se = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
        d = float(b.mean() - a.mean())
        fixed |= abs(d / se) > 1.96
        cs = confidence_sequence(d, se, 2 * len(a), planned_n=planned)
        sequential |= cs.excludes_zero
        covered_all &= cs.low <= truth <= cs.high
    return fixed, sequential, covered_all


def test_ten_looks_at_no_difference():
    """500 A/A streams, ten looks: fixed tests alarm in a fifth, the sequence rarely."""
    rng = np.random.default_rng(11)
    results = np.array([_peeked(rng, 10, 100, 0.0, 2000) for _ in range(500)])
    fixed, sequential, covered = results.mean(axis=0)
    assert fixed > 0.12  # Armitage et al. 1969: 0.193
    assert sequential <= 0.066
    assert covered >= 0.95 - 3 * (0.05 * 0.95 / 500) ** 0.5


def test_finds_a_real_difference():
    """A difference of 0.4 points is found within ten looks of 100 an arm, mostly."""
    rng = np.random.default_rng(12)
    results = np.array([_peeked(rng, 10, 100, 0.4, 2000) for _ in range(100)])
    assert results[:, 1].mean() > 0.9


def test_a_narrow_wrong_parameter_would_be_seen():
    """Doubling the evidence makes the interval narrower, by less than root two."""
    one = confidence_sequence(0.2, 0.10, 1000, planned_n=1000)
    two = confidence_sequence(0.2, 0.10 / math.sqrt(2), 2000, planned_n=1000)
    ratio = (one.high - one.low) / (two.high - two.low)
    assert 1.2 < ratio < math.sqrt(2)


def test_few_units_are_marked_unreliable():
    """The limit it rests on is not reached below 100 units, and it says so."""
    assert not confidence_sequence(0.1, 0.3, 60).reliable
    assert confidence_sequence(0.1, 0.3, 100).reliable


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((0.1, 0.0, 100), {}),
        ((0.1, float("nan"), 100), {}),
        ((float("inf"), 0.1, 100), {}),
        ((0.1, 0.1, 1), {}),
        ((0.1, 0.1, 100), {"planned_n": 0}),
        ((0.1, 0.1, 100), {"confidence": 95}),
    ],
)
def test_nothing_to_estimate_is_an_error(arguments, options):
    """No spread, NaN, one unit and impossible parameters never give an interval."""
    with pytest.raises(StatisticsError):
        confidence_sequence(*arguments, **options)

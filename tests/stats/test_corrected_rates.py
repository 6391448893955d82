"""Rates corrected for the judge's errors, with intervals that count both samples."""

import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary import rate_difference
from reply_resolution.stats.corrected_rates import (
    JudgeErrors,
    corrected_rate_difference,
)


def test_point_estimate_by_hand():
    """(0.60 - 0.50) / (0.90 + 0.85 - 1); each rate is (p + TNR - 1) / 0.75."""
    judge = JudgeErrors(54, 60, 51, 60)
    d = corrected_rate_difference(96, 160, 80, 160, errors=judge)
    assert judge.skill == pytest.approx(0.75)
    assert d.estimate == pytest.approx(0.10 / 0.75)
    assert d.rate_treatment == pytest.approx((0.60 - 0.15) / 0.75)
    assert d.rate_control == pytest.approx((0.50 - 0.15) / 0.75)
    assert d.judge_difference == pytest.approx(0.10)


def test_published_rogan_gladen():
    """CEBaB stars, 511 replies and 200 labels: .382989; interval near cigate's."""
    judge = JudgeErrors(69, 74, 119, 126)
    d = corrected_rate_difference(200, 511, 200, 511, errors=judge)
    assert d.rate_control == pytest.approx(0.3829886336219607)
    # cigate (Lee et al.): adjusted Wald, [.3210, .4483]
    assert d.rate_control_ci == pytest.approx((0.3210, 0.4483), abs=0.012)
    assert d.estimate == 0
    assert d.low < 0 < d.high


def test_a_perfect_well_known_judge_changes_nothing():
    """With many labels and no error the interval is that of the plain difference."""
    judge = JudgeErrors(100_000, 100_000, 100_000, 100_000)
    d = corrected_rate_difference(96, 160, 80, 160, errors=judge)
    plain = rate_difference(96, 160, 80, 160)
    assert (d.low, d.high) == pytest.approx(plain.ci, abs=0.006)


def test_fewer_labels_widen_the_interval():
    """The calibration's chance error counts: 30 labels are wider than 3,000."""
    few = corrected_rate_difference(
        700, 1000, 500, 1000, errors=JudgeErrors(12, 15, 12, 15)
    )
    many = corrected_rate_difference(
        700, 1000, 500, 1000, errors=JudgeErrors(1200, 1500, 1200, 1500)
    )
    assert few.estimate == pytest.approx(many.estimate)
    assert few.high - few.low > 2 * (many.high - many.low)


def test_coverage_counts_both_samples():
    """200 runs with 60 labels: near 95%; with the calibration held fixed far less."""
    rng = np.random.default_rng(5)
    truth, n, labels = (0.4, 0.6), 5000, 60
    seen = [0.8 * r + 0.3 * (1 - r) for r in truth]
    cover = fixed = 0
    for run in range(200):
        judge = JudgeErrors(
            int(rng.binomial(30, 0.8)), 30, int(rng.binomial(30, 0.7)), labels - 30
        )
        x0, x1 = (int(rng.binomial(n, s)) for s in seen)
        d = corrected_rate_difference(x1, n, x0, n, errors=judge, seed=run)
        cover += d.low <= 0.2 <= d.high
        low, high = rate_difference(x1, n, x0, n, test="score").ci
        fixed += low / judge.skill <= 0.2 <= high / judge.skill
    assert cover / 200 > 0.91
    assert fixed / 200 < 0.75


def test_own_errors_per_arm_remove_favouritism():
    """A judge that is lenient in one arm only: pooled is misled, own errors are not."""
    strict, lenient = JudgeErrors(450, 500, 450, 500), JudgeErrors(475, 500, 350, 500)
    # true rate 0.5 in both arms: control seen .5, treatment seen .5*.95 + .5*.30
    pooled = corrected_rate_difference(625, 1000, 500, 1000, errors=strict)
    own = corrected_rate_difference(625, 1000, 500, 1000, errors=(lenient, strict))
    assert pooled.low > 0
    assert own.estimate == pytest.approx(0.0, abs=1e-9)


def test_same_seed_same_digits_and_users_widen():
    """The draws are seeded; a design effect of 2 widens the interval."""
    judge = JudgeErrors(54, 60, 51, 60)
    one = corrected_rate_difference(96, 160, 80, 160, errors=judge, seed=3)
    again = corrected_rate_difference(96, 160, 80, 160, errors=judge, seed=3)
    users = corrected_rate_difference(
        96, 160, 80, 160, errors=judge, seed=3, design_effect=2
    )
    assert one == again
    assert users.high - users.low > 1.25 * (one.high - one.low)


def test_a_barely_tested_judge_gives_a_useless_interval_not_a_narrow_one():
    """Draws without skill are kept as "could be anything", and said."""
    d = corrected_rate_difference(80, 100, 50, 100, errors=JudgeErrors(2, 3, 2, 3))
    assert d.high - d.low > 1
    assert any("no better than chance" in w for w in d.warnings)


def test_counting_errors_from_scores():
    """Pairs with a missing side are left out; the cut applies to both."""
    errors = JudgeErrors.from_labels([5, 4, 3, 2, None, 4], [4, 3, 4, 1, 5, None])
    assert errors == JudgeErrors(1, 2, 1, 2)


@pytest.mark.parametrize(
    "errors", [(0, 0, 5, 5), (6, 5, 5, 5), (-1, 5, 5, 5), (5, 5, 0, 0)]
)
def test_impossible_calibrations_are_refused(errors):
    """No labels of one kind, or more agreements than labels, is an error."""
    with pytest.raises(StatisticsError, match="both kinds"):
        JudgeErrors(*errors)


def test_a_judge_without_skill_is_refused():
    """A judge no better than chance corrects nothing."""
    with pytest.raises(StatisticsError, match="no better than chance"):
        corrected_rate_difference(5, 10, 5, 10, errors=JudgeErrors(2, 5, 2, 5))
    with pytest.raises(StatisticsError, match="1 or more"):
        corrected_rate_difference(
            5, 10, 5, 10, errors=JudgeErrors(5, 5, 5, 5), design_effect=0.5
        )

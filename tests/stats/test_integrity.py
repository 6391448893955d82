"""Assignment, missing scores and their bounds."""

import json
from pathlib import Path

import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.integrity import (
    missing_score_test,
    sample_ratio_test,
    worst_case_bounds,
)

SRM = json.loads((Path(__file__).parent / "oracles/binary.json").read_text())["srm"]


def test_sample_ratio_of_the_book():
    """Kohavi, Tang and Xu's example: 821,588 against 815,482 gives 1.8e-6."""
    test = sample_ratio_test(SRM[0]["counts"], SRM[0]["ratio"])
    assert test.method == "chi-square"
    assert test.pvalue == pytest.approx(SRM[0]["p"], rel=1e-12)


def test_sample_ratio_of_tea_tasting():
    """tea-tasting: 14 against 11 exactly; 2,023 against 1,977 is 0.477 exactly too."""
    assert sample_ratio_test(SRM[2]["counts"]).pvalue == pytest.approx(
        SRM[2]["p"], rel=1e-9
    )
    exact = sample_ratio_test(SRM[1]["counts"], method="exact")
    assert exact.pvalue == pytest.approx(SRM[1]["p"], abs=5e-4)


@pytest.mark.parametrize("counts", [(14, 11), (480, 519), (0, 7), (90, 5)])
@pytest.mark.parametrize("ratio", [(1, 1), (90, 10), (2, 1)])
def test_small_sample_ratio_is_scipys_exact_binomial(counts, ratio):
    """Below 1,000 units the p-value is scipy's binomtest, any ratio."""
    from scipy.stats import binomtest

    own = sample_ratio_test(counts, ratio)
    other = binomtest(counts[0], sum(counts), ratio[0] / sum(ratio)).pvalue
    assert own.method == "exact binomial"
    assert own.pvalue == pytest.approx(other, rel=1e-9)


def test_ratio_may_name_arms_in_any_order():
    """A ratio by name is matched by name, not by place."""
    by_name = sample_ratio_test({"a": 900, "b": 130}, {"b": 10, "a": 90})
    assert by_name.pvalue == sample_ratio_test([900, 130], [9, 1]).pvalue
    assert by_name.expected == pytest.approx({"a": 927, "b": 103})


def test_three_arms():
    """Three equal arms are no mismatch; one that lost a tenth is."""
    assert sample_ratio_test([5000, 5000, 5000]).pvalue == 1.0
    assert sample_ratio_test([5000, 5000, 4500]).pvalue < 1e-6


@pytest.mark.parametrize(
    ("counts", "ratio"),
    [
        ([5], None),
        ([0, 0], None),
        ([5.5, 4], None),
        ([5, -1], None),
        ([5, 4], [1]),
        ([5, 4], [1, 0]),
        ({"a": 5, "b": 4}, {"a": 1, "c": 1}),
    ],
)
def test_ratios_that_do_not_fit_are_refused(counts, ratio):
    """One arm, no units, fractions, and ratios for other arms are errors."""
    with pytest.raises(StatisticsError):
        sample_ratio_test(counts, ratio)


def test_missing_scores_alike_in_both_arms_pass():
    """Four missing in each of two arms differ in nothing; none missing is p = 1."""
    assert not missing_score_test({"a": 160, "b": 160}, {"a": 4, "b": 4}).differs
    none = missing_score_test({"a": 160, "b": 160}, {"a": 0, "b": 0})
    assert none.pvalue == 1.0
    assert not none.differs


def test_missing_scores_in_one_arm_stop_the_reading():
    """Twelve missing against none is found; the shares are of the judged replies."""
    test = missing_score_test({"a": 160, "b": 150}, {"a": 0, "b": 12})
    assert test.differs
    assert test.pvalue < 0.001
    assert test.shares == {"a": 0, "b": 0.08}
    assert test.largest_difference == 0.08


def test_missing_scores_use_boschloo_and_know_three_arms():
    """Two arms take the exact test, three the chi-square one."""
    from reply_resolution.stats.binary import rate_test

    two = missing_score_test({"a": 50, "b": 60}, {"a": 1, "b": 9})
    assert two.pvalue == rate_test(9, 60, 1, 50).pvalue
    three = missing_score_test(
        {"a": 500, "b": 500, "c": 500}, {"a": 5, "b": 5, "c": 60}
    )
    assert three.differs
    assert three.method == "chi-square"


def test_few_replies_five_points_apart_by_chance_pass():
    """One missing of ten against none is 10 points, and no evidence."""
    assert not missing_score_test({"a": 10, "b": 10}, {"a": 0, "b": 1}).differs


@pytest.mark.parametrize(
    ("judged", "missing"),
    [
        ({"a": 0, "b": 5}, {"a": 0, "b": 0}),
        ({"a": 5, "b": 5}, {"a": 6, "b": 0}),
        ({"a": 5, "b": 5}, {"a": 1}),
        ({"a": 5}, {"a": 1}),
    ],
)
def test_contradicting_counts_are_refused(judged, missing):
    """An arm without judged replies, or more missing than judged, is an error."""
    with pytest.raises(StatisticsError):
        missing_score_test(judged, missing)


def test_bounds_by_hand():
    """Two known and one missing score an arm: every filling lies within."""
    bounds = worst_case_bounds(
        {"c": [1, 0, 0, 1, 0], "t": [0, 0, 0, 2, 0]},
        {"c": 1, "t": 1},
        control="c",
        treatment="t",
    )
    assert bounds.observed == pytest.approx(4 - 2.5)
    assert bounds.low == pytest.approx(9 / 3 - 10 / 3)
    assert bounds.high == pytest.approx(13 / 3 - 6 / 3)
    assert bounds.all_lowest == pytest.approx(9 / 3 - 6 / 3)
    assert bounds.all_highest == pytest.approx(13 / 3 - 10 / 3)
    fillings = [(8 + t) / 3 - (5 + c) / 3 for t in range(1, 6) for c in range(1, 6)]
    assert min(fillings) == pytest.approx(bounds.low)
    assert max(fillings) == pytest.approx(bounds.high)


def test_nothing_missing_bounds_nothing_away():
    """Without missing scores all bounds are the observed difference."""
    bounds = worst_case_bounds(
        {"c": [1, 0, 0, 1, 0], "t": [0, 0, 0, 2, 0]}, {}, control="c", treatment="t"
    )
    assert {bounds.low, bounds.high, bounds.all_lowest, bounds.all_highest} == {1.5}


@pytest.mark.parametrize(
    ("counts", "missing"),
    [
        ({"c": [0] * 5, "t": [1] * 5}, {"c": 3}),
        ({"c": [1] * 4, "t": [1] * 5}, {}),
        ({"t": [1] * 5}, {}),
    ],
)
def test_bounds_without_scores_are_refused(counts, missing):
    """An arm that is absent, empty or of another scale is an error."""
    with pytest.raises(StatisticsError):
        worst_case_bounds(counts, missing, control="c", treatment="t")

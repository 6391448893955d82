"""Where to cut, by the rubric or by labels, and never by luck."""

import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.cuts import choose_cut, cut_agreement


def test_counts_by_hand():
    """Six replies, one without a label: 2 both, 1 judge only, 1 people only, 1 none."""
    row = cut_agreement([5, 4, 4, 3, 2, 5], [5, 4, 3, 4, 1, None], cut=4)
    assert (row.both, row.judge_only, row.people_only, row.neither) == (2, 1, 1, 1)
    assert row.sensitivity == pytest.approx(2 / 3)
    assert row.specificity == pytest.approx(1 / 2)
    assert row.youden == pytest.approx(2 / 3 + 1 / 2 - 1)


def test_undefined_shares_are_none():
    """Without unresolved labels there is no specificity, rather than a number."""
    row = cut_agreement([5, 4], [5, 4], cut=4)
    assert row.specificity is None
    assert row.youden is None
    assert row.sensitivity == 1.0


def test_a_fair_judge_keeps_the_rubrics_cut():
    """Where judge and people agree the cut of the rubric stands."""
    labels = [1, 2, 3, 4, 5] * 20
    choice = choose_cut(labels, labels)
    assert (choice.cut, choice.differs) == (4, False)
    assert "stands" in choice.reason


def test_a_shifted_judge_gets_its_own_cut():
    """A judge one level too generous means people's 4 by its own 5."""
    labels = [1, 2, 3, 4, 5] * 20
    generous = [min(5, label + 1) for label in labels]
    choice = choose_cut(generous, labels)
    assert (choice.cut, choice.differs) == (5, True)
    assert [row.cut for row in choice.rows] == [2, 3, 4, 5]


def test_few_labels_do_not_move_the_cut():
    """A better-looking cut on a dozen labels is luck; the rubric's stands."""
    rng = np.random.default_rng(6)
    moved = 0
    for _ in range(200):
        labels = rng.integers(1, 6, 15)
        judge = np.clip(labels + rng.integers(-1, 2, 15), 1, 5)
        try:
            moved += choose_cut(judge.tolist(), labels.tolist()).differs
        except StatisticsError:
            continue
    assert moved <= 10


def test_labels_of_one_kind_cannot_choose():
    """All labels resolved: no cut can be judged, and it says what to label."""
    with pytest.raises(StatisticsError, match="both kinds"):
        choose_cut([5, 4, 3], [5, 5, 4])
    with pytest.raises(StatisticsError, match="no reply has both"):
        cut_agreement([None, 4], [5, None], cut=4)
    with pytest.raises(StatisticsError, match="choose 2 to 5"):
        cut_agreement([4], [4], cut=6)

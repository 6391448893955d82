"""How levels move under an assumed effect."""

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.power_assumptions import (
    design_effect_of_users,
    judged_shares,
    largest_effect,
    level_shares,
    measure_design_effect,
    treatment_shares,
    true_shares_of,
)

SCORES = np.arange(1, 6)
counts = st.lists(st.integers(1, 60), min_size=5, max_size=5)


@settings(max_examples=80, deadline=None)
@given(counts, st.floats(0.02, 0.95), st.sampled_from(["shift", "cut", "noise"]))
@pytest.mark.parametrize("sign", [1, -1])
def test_the_mean_moves_by_exactly_the_effect(sign, pilot, part, assume):
    """Every assumption gives shares that sum to 1 and a mean moved as asked."""
    room = largest_effect(pilot, assume=assume, upward=sign > 0)
    effect = sign * part * room
    before = level_shares(pilot)
    after = treatment_shares(pilot, effect, assume=assume)
    assert after.sum() == pytest.approx(1)
    assert (after >= -1e-12).all()
    assert (after - before) @ SCORES == pytest.approx(effect, abs=1e-9)


def test_shift_has_one_odds_ratio_at_every_cut():
    """A shift multiplies the odds of every "at or above" by the same number."""
    before = level_shares([10, 20, 30, 25, 15])
    after = treatment_shares(before, 0.4)

    def odds(p):
        above = 1 - np.cumsum(p)[:-1]
        return above / (1 - above)

    ratios = odds(after) / odds(before)
    assert ratios == pytest.approx(np.full(4, ratios[0]))
    assert ratios[0] > 1


def test_cut_moves_only_the_nearest_replies():
    """0.2 points across the cut take 20% from 3 to 4; beyond that, 2s move two up."""
    after = treatment_shares([0.1, 0.2, 0.3, 0.2, 0.2], 0.2, assume="cut")
    assert after == pytest.approx([0.1, 0.2, 0.1, 0.4, 0.2])
    after = treatment_shares([0.1, 0.2, 0.3, 0.2, 0.2], 0.5, assume="cut")
    assert after == pytest.approx([0.1, 0.1, 0.0, 0.6, 0.2])
    after = treatment_shares([0.1, 0.2, 0.3, 0.2, 0.2], -0.1, assume="cut")
    assert after == pytest.approx([0.1, 0.2, 0.4, 0.1, 0.2])


def test_noise_keeps_the_mix_inside_each_class():
    """Only the share resolved moves; 4 to 5 and 1 to 2 to 3 keep their proportions."""
    before = np.array([0.1, 0.2, 0.3, 0.3, 0.1])
    after = treatment_shares(before, 0.3, assume="noise")
    assert after[:3] / after[:3].sum() == pytest.approx(before[:3] / 0.6)
    assert after[3:] / after[3:].sum() == pytest.approx(before[3:] / 0.4)


def test_empty_levels_stay_empty_under_a_shift():
    """A level nobody got is not invented."""
    assert treatment_shares([10, 0, 20, 0, 30], 0.3)[[1, 3]] == pytest.approx([0, 0])


@pytest.mark.parametrize(
    ("pilot", "effect", "options", "word"),
    [
        ([0, 0, 1, 4, 95], 0.3, {}, "at most"),
        ([0, 0, 0, 0, 95], 0.3, {}, "on one level"),
        ([0, 0, 0, 0, 0], 0.3, {}, "no pilot scores"),
        ([0, 0, 0, 5, 95], 0.01, {"assume": "noise"}, "below the cut"),
        ([5, 5, 5, 0, 0], 0.1, {"assume": "noise"}, "at or above the cut"),
        ([5, 5, 5, 5, 5], 0.1, {"assume": "drift"}, "shift, cut or noise"),
        ([5, 5, 5, 5, 5], 0.1, {"cut": 1}, "choose 2 to 5"),
        ([5, 5, 5, 5, 5], 0.1, {"cut": 3.5}, "whole score"),
        ([5, 5, -1, 5, 5], 0.1, {}, "0 or more"),
        ([5, 5, float("nan"), 5, 5], 0.1, {}, "0 or more"),
        ([5], 0.1, {}, "one per level"),
    ],
)
def test_what_does_not_fit_is_refused(pilot, effect, options, word):
    """No room, no spread, unknown assumptions and impossible cuts say what to do."""
    with pytest.raises(StatisticsError, match=word):
        treatment_shares(pilot, effect, **options)


def test_judge_errors_carry_over():
    """A perfect confusion changes nothing; a blurred one is applied row by row."""
    perfect = np.diag([9, 9, 9, 9, 9])
    shares = level_shares([1, 2, 3, 4, 5])
    assert judged_shares(shares, perfect) == pytest.approx(shares)
    assert true_shares_of(shares, perfect) == pytest.approx(shares)
    blurred = np.diag([9, 9, 9, 9, 9])
    blurred[2] = [0, 0, 6, 3, 0]
    assert judged_shares([0, 0, 1, 0, 0], blurred) == pytest.approx(
        [0, 0, 2 / 3, 1 / 3, 0]
    )
    empty_row = np.diag([9, 0, 9, 9, 9])
    assert judged_shares(shares, empty_row) == pytest.approx(shares)
    with pytest.raises(StatisticsError, match="5 rows"):
        judged_shares(shares, [[1, 2], [3, 4]])


def test_copies_multiply_the_variance():
    """Three copies of each user's reply have a design effect of 3 (times G/(G-1))."""
    rng = np.random.default_rng(1)
    values = rng.integers(1, 6, 400)
    users = np.arange(400)
    found = measure_design_effect(np.repeat(values, 3), np.repeat(users, 3).tolist())
    assert found.design_effect == pytest.approx(3 * 400 / 399)
    assert found.icc == pytest.approx(1)
    assert found.effective_n == pytest.approx(399)


def test_independent_replies_cost_nothing():
    """Replies that do not resemble each other have a design effect of about 1."""
    rng = np.random.default_rng(2)
    users = np.repeat(np.arange(1500), 3).tolist()
    found = measure_design_effect(rng.integers(1, 6, 4500), users)
    assert 1 <= found.design_effect < 1.12
    assert found.replies == 4500
    assert found.users == 1500


def test_measured_is_expected():
    """Users of 4 replies with ICC 0.3 cost 1 + 3 x 0.3."""
    rng = np.random.default_rng(3)
    own = rng.normal(0, np.sqrt(0.3), (20_000, 1))
    values = own + rng.normal(0, np.sqrt(0.7), (20_000, 4))
    users = np.repeat(np.arange(20_000), 4).tolist()
    found = measure_design_effect(values.ravel(), users)
    assert found.design_effect == pytest.approx(1 + 3 * 0.3, rel=0.04)
    assert found.icc == pytest.approx(0.3, abs=0.02)


def test_types_equal_users():
    """Pooling equal users into types gives the same number."""
    users = measure_design_effect([5, 5, 1, 1, 5, 5, 3], list("aabbccd"))
    types = design_effect_of_users(
        [2, 2, 1], [10, 2, 3], squares=111.0, number=[2, 1, 1]
    )
    assert types.design_effect == pytest.approx(users.design_effect)


def test_nothing_varies_is_the_worst_case():
    """All scores equal: nothing is known about resemblance, so it is assumed full."""
    found = measure_design_effect([5, 5, 5, 5], list("aabb"))
    assert found.design_effect == pytest.approx(2)


def test_one_user_is_refused():
    """One user and lengths that differ are errors."""
    with pytest.raises(StatisticsError, match="two or more"):
        measure_design_effect([1, 2], ["a", "a"])
    with pytest.raises(StatisticsError, match="give pairs"):
        measure_design_effect([1, 2], ["a"])

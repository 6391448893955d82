"""What users with several replies cost."""

import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.design_effect import (
    design_effect_of_users,
    expected_design_effect,
    measure_design_effect,
)


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
    assert found.design_effect == pytest.approx(
        expected_design_effect(4, 0.3), rel=0.04
    )
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
    """One user, lengths that differ, and impossible plans are errors."""
    with pytest.raises(StatisticsError, match="two or more"):
        measure_design_effect([1, 2], ["a", "a"])
    with pytest.raises(StatisticsError, match="give pairs"):
        measure_design_effect([1, 2], ["a"])
    with pytest.raises(StatisticsError, match="icc"):
        expected_design_effect(2, 1.5)
    assert expected_design_effect(3, 0.2, size_variation=1) == pytest.approx(2.0)

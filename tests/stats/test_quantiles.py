"""Critical values and p-values against scipy.stats."""

from math import inf

import pytest
from scipy import stats

from reply_resolution.stats.quantiles import critical, two_sided


def test_they_are_those_of_scipy() -> None:
    """Student's t, and the normal distribution where degrees are infinite."""
    assert critical(0.9, 7) == pytest.approx(stats.t.ppf(0.95, 7), rel=1e-12)
    assert critical(0.9) == pytest.approx(stats.norm.ppf(0.95), rel=1e-12)
    assert two_sided(-2.3, 11) == pytest.approx(2 * stats.t.sf(2.3, 11), rel=1e-12)
    assert two_sided(2.3) == pytest.approx(2 * stats.norm.sf(2.3), rel=1e-12)
    assert two_sided(inf) == two_sided(-inf, 5) == 0

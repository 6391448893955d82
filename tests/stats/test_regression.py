"""Least squares with HC3 and CR3 errors, against statsmodels and by hand."""

import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.regression import least_squares


def _data(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.normal(size=n) * 1e4, rng.normal(size=n)])
    return x, x @ [1.0, 2e-4, -0.5] + rng.normal(size=n) * (1 + np.abs(x[:, 2]))


@pytest.mark.parametrize("seed", range(5))
def test_hc3_is_that_of_statsmodels(seed: int) -> None:
    """Coefficients, covariance and degrees of freedom agree to many digits."""
    import statsmodels.api as sm

    x, y = _data(seed)
    fit = least_squares(x, y)
    theirs = sm.OLS(y, x).fit(cov_type="HC3")
    np.testing.assert_allclose(fit.coefficients, theirs.params, rtol=1e-9)
    np.testing.assert_allclose(fit.covariance, theirs.cov_params(), rtol=1e-8)
    assert fit.degrees == theirs.df_resid


def test_cr3_is_the_jackknife_over_clusters() -> None:
    """Leaving out each cluster in turn and refitting gives the same covariance."""
    x, y = _data(1)
    groups = np.random.default_rng(2).integers(0, 14, len(y))
    fit = least_squares(x, y, cluster=groups)
    left_out = np.array(
        [
            np.linalg.lstsq(x[groups != g], y[groups != g], rcond=None)[0]
            for g in np.unique(groups)
        ]
    )
    change = left_out - fit.coefficients
    np.testing.assert_allclose(fit.covariance, change.T @ change, rtol=1e-8)
    assert fit.degrees == len(left_out) - 1


def test_every_row_its_own_cluster_is_hc3() -> None:
    """CR3 with clusters of one row, named by text, equals HC3."""
    x, y = _data(3)
    alone = least_squares(x, y, cluster=[f"u{i}" for i in range(len(y))])
    np.testing.assert_allclose(alone.covariance, least_squares(x, y).covariance)


def test_a_row_that_decides_alone_leaves_the_error_undefined() -> None:
    """One long reply among equals has leverage 1: no covariance, and the reason."""
    fit = least_squares([[1, 0], [1, 0], [1, 0], [1, 5]], [1.0, 2.0, 3.0, 9.0])
    assert fit.covariance is None
    assert fit.standard_error(1) is None
    assert "alone" in fit.problem


def test_two_rows_leave_no_spread() -> None:
    """As many rows as coefficients: a line, but no error."""
    fit = least_squares([[1, 0], [1, 1]], [1.0, 2.0])
    assert fit.standard_error(1) is None
    assert "nothing to judge" in fit.problem


@pytest.mark.parametrize(
    ("design", "words"),
    [
        ([[1, 2], [1, 2], [1, 2]], "determine each other"),
        ([[1, 2]], "cannot determine"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    design: list[list[float]], words: str
) -> None:
    """A constant column or too few rows raise, with what to do."""
    with pytest.raises(StatisticsError, match=words):
        least_squares(design, np.zeros(len(design)))

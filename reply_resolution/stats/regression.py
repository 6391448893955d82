"""Least squares with standard errors that survive unequal spread and repeated users.

Plain numpy: statsmodels costs two seconds to import, and has no CR3. The tests hold
these numbers against statsmodels and the jackknife.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Floats


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted line or plane.

    Attributes:
        coefficients: One per column of the design. Shape (columns,).
        covariance: Their covariance, shape (columns, columns); None where undefined.
        degrees: Degrees of freedom for t intervals: clusters minus 1, at most rows
            minus columns.
        problem: Why the covariance is undefined, in words; "" where it is defined.
    """

    coefficients: Floats
    covariance: Floats | None
    degrees: int
    problem: str = ""

    def standard_error(self, column: int) -> float | None:
        """Standard error of one coefficient; None where it is undefined."""
        if self.covariance is None:
            return None
        return float(np.sqrt(max(self.covariance[column, column], 0.0)))


def least_squares(
    design: npt.ArrayLike,
    outcome: npt.ArrayLike,
    *,
    cluster: npt.ArrayLike | None = None,
) -> Fit:
    """Fit by least squares, with cluster CR3 covariance.

    CR3 divides out each cluster's leverage (delete-one-cluster jackknife, without its
    factor (G - 1) / G, as in clubSandwich), which keeps tests of small samples honest.
    With every row its own cluster it is HC3.

    Args:
        design: Finite numbers, shape (n, k); put the column of ones in yourself.
        outcome: Finite numbers, shape (n,).
        cluster: One value per row that names its cluster, shape (n,); None treats
            rows as independent.

    Returns:
        The fit. A row (or cluster) that alone decides a coefficient makes the
        covariance undefined, which `Fit.problem` says.

    Raises:
        StatisticsError: Fewer rows than columns, or columns that determine each other.

    Source:
        MacKinnon & White (1985); Bell & McCaffrey (2002).

    >>> fit = least_squares([[1, 0], [1, 1], [1, 2], [1, 3]], [1.0, 2.0, 2.5, 4.5])
    >>> fit.coefficients.round(3).tolist(), fit.degrees
    ([0.85, 1.1], 2)
    """
    x = np.asarray(design, dtype=np.float64)
    y = np.asarray(outcome, dtype=np.float64)
    n, k = x.shape
    if n < k:
        raise StatisticsError(
            f"{n} rows cannot determine {k} coefficients; add rows, or leave the "
            "column out."
        )
    # Scaled to unit length first: a column of large numbers is not a small rank.
    size = np.sqrt((x * x).sum(axis=0))
    size[size == 0] = 1.0
    q, r = np.linalg.qr(x / size)
    if np.abs(np.diag(r)).min() < 1e-10:
        raise StatisticsError(
            "the columns of the regression determine each other (one of them does not "
            "vary, or repeats another), so their coefficients cannot be told apart."
        )
    solve = np.linalg.inv(r)
    beta = (solve @ (q.T @ y)) / size
    names = np.arange(n) if cluster is None else np.asarray(cluster)
    groups = np.unique(names, return_inverse=True)[1].ravel()
    degrees = min(int(groups.max()), n - k)
    if degrees < 1:
        problem = f"{n} rows and {k} coefficients leave nothing to judge the spread by"
        return Fit(beta, None, 0, problem)
    scores = _scores(q, y - x @ beta, groups)
    if scores is None:
        return Fit(
            beta, None, degrees, "one row or cluster alone decides a coefficient"
        )
    half = scores @ solve.T
    return Fit(beta, (half.T @ half) / np.outer(size, size), degrees)


def _scores(q: Floats, residual: Floats, groups: npt.NDArray[np.intp]) -> Floats | None:
    """Per cluster: q' (I - H)^-1 e, or None where that does not exist."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    parts = []
    # Clusters of one size are solved together: no Python loop over users.
    for size in np.unique(sizes):
        rows = order[starts[sizes == size][:, None] + np.arange(size)]
        block = q[rows]
        spare = np.eye(size) - block @ block.transpose(0, 2, 1)
        if np.linalg.eigvalsh(spare)[:, 0].min() < 1e-10:
            return None
        fitted = np.linalg.solve(spare, residual[rows][:, :, None])
        parts.append((block * fitted).sum(axis=1))
    return np.asarray(np.concatenate(parts), dtype=np.float64)

"""Least squares with standard errors that survive unequal spread and repeated users.

Plain numpy: statsmodels costs two seconds to import, and a length check should not.
The tests hold these numbers against statsmodels and R's sandwich.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reply_resolution.errors import StatisticsError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted line or plane.

    Attributes:
        coefficients: One per column of the design, in the outcome's unit per unit of
            the column. Shape (columns,).
        covariance: Their covariance (HC3, or CR3 where clusters were given), shape
            (columns, columns); None where it is undefined.
        degrees: Degrees of freedom for t intervals: rows minus columns, or clusters
            minus 1 (at most rows minus columns).
        n: Rows.
        clusters: Clusters, or None where every row stands for itself.
        problem: Why the covariance is undefined, in words; "" where it is defined.
    """

    coefficients: Floats
    covariance: Floats | None
    degrees: int
    n: int
    clusters: int | None
    problem: str

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
    """Fit by least squares, with HC3 (or cluster CR3) covariance.

    HC3 divides each residual by 1 minus its leverage, which keeps tests of small
    samples honest; CR3 is the same for whole clusters (delete-one-cluster jackknife,
    without its factor (G - 1) / G, as in clubSandwich).

    Args:
        design: Finite numbers, shape (n, k); put the column of ones in yourself.
        outcome: Finite numbers, shape (n,).
        cluster: One value per row that names its cluster; None treats rows as
            independent. Shape (n,).

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
    residual = y - x @ beta
    groups = None if cluster is None else _codes(cluster)
    count = None if groups is None else int(groups.max()) + 1
    degrees = n - k if count is None else min(count - 1, n - k)
    scores = _scores(q, residual, groups)
    if degrees < 1:
        problem = f"{n} rows and {k} coefficients leave nothing to judge the spread by"
    elif scores is None:
        unit = "row" if groups is None else "cluster"
        problem = f"one {unit} alone decides a coefficient"
    else:
        half = scores @ solve.T
        covariance = (half.T @ half) / np.outer(size, size)
        return Fit(beta, covariance, degrees, n, count, "")
    return Fit(beta, None, max(degrees, 0), n, count, problem)


def _codes(values: npt.ArrayLike) -> npt.NDArray[np.intp]:
    return np.unique(np.asarray(values), return_inverse=True)[1].ravel()


def _scores(
    q: Floats, residual: Floats, groups: npt.NDArray[np.intp] | None
) -> Floats | None:
    """Per row or cluster: q' (I - H)^-1 e, or None where that does not exist."""
    if groups is None:
        spare = 1 - (q * q).sum(axis=1)
        if spare.min() < 1e-10:
            return None
        return np.asarray(q * (residual / spare)[:, None], dtype=np.float64)
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    parts = []
    # Clusters of one size are solved together: no Python loop over users.
    for size in np.unique(sizes):
        first = starts[sizes == size]
        rows = order[first[:, None] + np.arange(size)]
        block = q[rows]
        spare = np.eye(size) - block @ block.transpose(0, 2, 1)
        if np.linalg.eigvalsh(spare)[:, 0].min() < 1e-10:
            return None
        fitted = np.linalg.solve(spare, residual[rows][:, :, None])
        parts.append((block * fitted).sum(axis=1))
    return np.asarray(np.concatenate(parts), dtype=np.float64)


def t_quantile(confidence: float, degrees: float) -> float:
    """Half-width of a t interval in standard errors."""
    from scipy.special import stdtrit  # 0.3 s: not on `import reply_resolution`

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def t_pvalue(tvalue: float, degrees: float) -> float:
    """Two-sided p-value of a t statistic."""
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -abs(tvalue)))

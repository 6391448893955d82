"""Every way of dealing a small pool, for statistics that no recursion can reach."""

import numpy as np

from reply_resolution.stats.saddlepoint import Floats, Ints

#: More distinct dealings than this, and they are drawn instead.
LIMIT = 100_000


def every_dealing(
    pool: Ints, drawn: int, *, limit: int = LIMIT
) -> tuple[Ints, Floats] | None:
    """All distinct ways to deal `drawn` of a pool, with their probabilities.

    Args:
        pool: How many there are of each type; shape (T,).
        drawn: How many go to the treatment.
        limit: Give up where there are more distinct ways than this.

    Returns:
        Counts dealt, shape (W, T), and the probability of each, shape (W,); or None.
        Only one of two equal counts of types is listed, weighted by its number of ways.

    >>> import numpy as np
    >>> ways, probabilities = every_dealing(np.array([2, 1]), 1)
    >>> ways.tolist(), probabilities.round(3).tolist()
    ([[0, 1], [1, 0]], [0.333, 0.667])
    """
    from scipy.special import gammaln

    if _how_many(pool, drawn, limit) > limit:
        return None
    rest = int(pool.sum())
    ways = np.zeros((1, 0), dtype=np.int64)
    left = np.array([drawn])
    for size in pool.tolist():
        rest -= size
        least, most = np.maximum(0, left - rest), np.minimum(size, left)
        times = most - least + 1
        row = np.repeat(np.arange(len(left)), times)
        start = np.repeat(np.cumsum(times) - times, times)
        x = np.arange(len(row)) - start + least[row]
        ways = np.concatenate([ways[row], x[:, None]], axis=1)
        left = left[row] - x
    logs = (gammaln(pool + 1) - gammaln(ways + 1) - gammaln(pool - ways + 1)).sum(1)
    weights = np.exp(logs - logs.max())
    return ways, weights / weights.sum()


def _how_many(pool: Ints, drawn: int, limit: int) -> int:
    """Number of distinct dealings, counted type by type; huge ones only roughly."""
    fewer = min(drawn, int(pool.sum()) - drawn)
    if fewer > 5_000 or (fewer >= 2 and len(pool) > 2 * limit**0.5):
        return 10 * limit  # counting them would cost more than it saves
    counts = np.zeros(fewer + 1)
    counts[0] = 1
    top = np.arange(1, fewer + 2)
    for size in pool.tolist():
        total = np.concatenate([[0.0], np.cumsum(counts)])
        counts = np.minimum(total[top] - total[np.maximum(0, top - 1 - size)], 1e15)
    return int(counts[fewer])

"""From statistics to p-values: exact tails, listed dealings, draws with the +1 rule."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Floats, Ints
from reply_resolution.stats.lattice import Tail

Alternative = Literal["two-sided", "greater", "less"]
Convention = Literal["absolute", "doubled"]

RESAMPLES = 9_999
_CLOSE = 99_999  # draws where a decision hangs on them
_LIMIT = 100_000  # more distinct dealings than this, and they are drawn instead
_TIE = 1e-10  # relative: studentized statistics are floating point


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """A permutation test's result.

    Attributes:
        pvalue: Probability, if the arm made no difference, of a result at least as far
            out as this one. Fraction, above 0 to 1; small speaks against no difference.
        midp: The same with the observed result counted half: less conservative where
            results are coarse. None where the p-value was drawn.
        method: "exact" or "monte_carlo".
        alternative: "two-sided", "greater" (treatment above control) or "less".
        convention: Of two-sided p-values: "absolute" or "doubled".
        studentized: Whether the difference was divided by its standard error.
        resamples: Draws, None where exact.
        error: Standard error of a drawn p-value, 0 where exact.
    """

    pvalue: float
    midp: float | None
    method: str
    alternative: str
    convention: str
    studentized: bool
    resamples: int | None
    error: float


def check_words(alternative: str, convention: str) -> None:
    """Refuse a side or a convention that does not exist."""
    if alternative not in ("two-sided", "greater", "less"):
        raise StatisticsError(
            f"alternative {alternative!r} does not exist; choose two-sided, greater "
            "(treatment above control) or less."
        )
    if convention not in ("absolute", "doubled"):
        raise StatisticsError(
            f"two-sided convention {convention!r} does not exist; choose absolute "
            "(as far from the expectation) or doubled (twice the smaller tail)."
        )


def exact_test(
    observed: int,
    middle: Fraction,
    tail: Callable[..., Tail],
    alternative: Alternative,
    convention: Convention,
) -> PermutationTest:
    """P-value and mid-p of an observed sum from the exact tails around its middle."""
    if alternative != "two-sided":
        side = tail(observed, upper=alternative == "greater")
        pvalue, midp = side.beyond, side.beyond - side.at / 2
    elif convention == "doubled":
        up, down = tail(observed, upper=True), tail(observed, upper=False)
        smaller = min(up.beyond, down.beyond)
        pvalue, midp = min(1.0, 2 * smaller), min(1.0, 2 * (smaller - up.at / 2))
    elif observed == middle:
        pvalue, midp = 1.0, 1.0 - tail(observed, upper=True).at / 2
    else:
        away = abs(observed - middle)
        high, low = middle + away, middle - away
        up, down = tail(ceil(high), upper=True), tail(floor(low), upper=False)
        # the mirror image need not be a value the sum can take
        at = up.at * (ceil(high) == high) + down.at * (floor(low) == low)
        pvalue = min(1.0, up.beyond + down.beyond)
        midp = pvalue - at / 2
    return _result(pvalue, midp, "exact", alternative, convention)


def _result(
    pvalue: float,
    midp: float | None,
    method: str,
    alternative: Alternative,
    convention: Convention,
    *,
    studentized: bool = False,
    resamples: int | None = None,
) -> PermutationTest:
    pvalue = min(1.0, pvalue)
    return PermutationTest(
        pvalue=pvalue,
        midp=None if midp is None else min(1.0, max(0.0, midp)),
        method=method,
        alternative=alternative,
        convention=convention,
        studentized=studentized,
        resamples=resamples,
        error=sqrt(pvalue * (1 - pvalue) / resamples) if resamples else 0.0,
    )


def dealing_test(
    listed: tuple[Floats, Floats] | None,
    draw: Callable[[np.random.Generator, int], Floats],
    observed: float,
    alternative: Alternative,
    convention: Convention,
    seed: int,
    resamples: int | None,
) -> PermutationTest:
    """A studentized test: over all dealings where they are few, drawn otherwise.

    Args:
        listed: Every dealing's statistic and probability; None where too many.
        draw: (generator, size) -> that many permuted statistics.
        observed: The statistic of the data.
        alternative: Which side counts.
        convention: Of two-sided p-values.
        seed: Of the draws.
        resamples: How many; None for 9,999, or 99,999 where these leave it close.
    """
    if listed is not None:
        statistics, weights = listed
        pvalue, midp = _tails(statistics, weights, observed, alternative, convention)
        return _result(pvalue, midp, "exact", alternative, convention, studentized=True)
    size = RESAMPLES if resamples is None else resamples
    while True:
        drawn = draw(np.random.default_rng(seed), size)
        # the +1 rule: the data are one of the dealings, so that it can never be 0
        drawn = np.append(drawn, observed)
        one = np.full(len(drawn), 1 / len(drawn))
        pvalue, _ = _tails(drawn, one, observed, alternative, convention)
        if resamples is not None or size == _CLOSE or not 0.01 < pvalue < 0.1:
            break
        size = _CLOSE
    return _result(
        pvalue,
        None,
        "monte_carlo",
        alternative,
        convention,
        studentized=True,
        resamples=size,
    )


def _tails(
    statistics: Floats,
    weights: Floats,
    observed: float,
    alternative: Alternative,
    convention: Convention,
) -> tuple[float, float]:
    """P-value and mid-p from statistics and their probabilities."""
    up = float(weights @ as_far(statistics, observed))
    down = float(weights @ as_far(-statistics, -observed))
    at = max(0.0, up + down - 1.0)
    if alternative != "two-sided":
        one = up if alternative == "greater" else down
        return one, one - at / 2
    if convention == "doubled":
        return 2 * min(up, down), 2 * (min(up, down) - at / 2)
    size, bound = np.abs(statistics), abs(observed)
    pvalue = float(weights @ as_far(size, bound))
    return pvalue, (pvalue + float(weights @ ~as_far(-size, -bound))) / 2


def as_far(statistics: Floats, bound: float) -> NDArray[np.bool_]:
    """Which statistics are at least the bound, rounding forgiven."""
    slack = _TIE * max(1.0, abs(bound)) if np.isfinite(bound) else 0.0
    out: NDArray[np.bool_] = statistics >= bound - slack
    return out


def every_dealing(
    pool: Ints, drawn: int, *, limit: int = _LIMIT
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

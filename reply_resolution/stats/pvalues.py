"""From statistics to p-values: exact tails, listed dealings, draws with the +1 rule."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.saddlepoint import Floats

Alternative = Literal["two-sided", "greater", "less"]
Convention = Literal["absolute", "doubled"]

RESAMPLES = 9_999
#: Where a decision hangs on the draws, ten times as many.
RESAMPLES_CLOSE = 99_999
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
    tail: Callable[..., tuple[float, float]],
    alternative: Alternative,
    convention: Convention,
) -> PermutationTest:
    """The p-value and mid-p from exact tails of a sum of whole numbers.

    Args:
        observed: The sum.
        middle: Its exact expectation under the null hypothesis.
        tail: (threshold, upper=...) -> (P(beyond or at), P(at)).
        alternative: Which side counts.
        convention: Of two-sided p-values.
    """
    if alternative != "two-sided":
        beyond, at = tail(observed, upper=alternative == "greater")
        pvalue, midp = beyond, beyond - at / 2
    elif convention == "doubled":
        up, at = tail(observed, upper=True)
        down, _ = tail(observed, upper=False)
        pvalue = min(1.0, 2 * min(up, down))
        midp = min(1.0, 2 * (min(up, down) - at / 2))
    elif observed == middle:
        pvalue, midp = 1.0, 1.0 - tail(observed, upper=True)[1] / 2
    else:
        away = abs(observed - middle)
        high, low = middle + away, middle - away
        up, up_at = tail(ceil(high), upper=True)
        down, down_at = tail(floor(low), upper=False)
        # the mirror image need not be a value the sum can take
        at = (up_at if ceil(high) == high else 0.0) + (
            down_at if floor(low) == low else 0.0
        )
        pvalue = min(1.0, up + down)
        midp = pvalue - at / 2
    return PermutationTest(
        pvalue=pvalue,
        midp=max(0.0, midp),
        method="exact",
        alternative=alternative,
        convention=convention,
        studentized=False,
        resamples=None,
        error=0.0,
    )


def drawn_test(
    draw: Callable[[np.random.Generator, int], Floats],
    observed: float,
    alternative: Alternative,
    convention: Convention,
    seed: int,
    resamples: int | None,
    *,
    studentized: bool = True,
) -> PermutationTest:
    """A Monte Carlo p-value with the +1 rule, so that it can never be 0.

    Args:
        draw: (generator, size) -> that many permuted statistics.
        observed: The statistic of the data.
        alternative: Which side counts.
        convention: Of two-sided p-values.
        seed: Of the draws.
        resamples: How many; None for 9,999, or 99,999 where these leave it close.
        studentized: What the result is to say about itself.
    """
    rng = np.random.default_rng(seed)
    size = RESAMPLES if resamples is None else resamples
    pvalue = _plus_one(draw(rng, size), observed, alternative, convention)
    if resamples is None and 0.01 < pvalue < 0.1:
        size = RESAMPLES_CLOSE
        pvalue = _plus_one(
            draw(np.random.default_rng(seed), size), observed, alternative, convention
        )
    return PermutationTest(
        pvalue=pvalue,
        midp=None,
        method="monte_carlo",
        alternative=alternative,
        convention=convention,
        studentized=studentized,
        resamples=size,
        error=sqrt(pvalue * (1 - pvalue) / size),
    )


def weighed_test(
    statistics: Floats,
    weights: Floats,
    observed: float,
    alternative: Alternative,
    convention: Convention,
    *,
    studentized: bool = True,
) -> PermutationTest:
    """An exact p-value from every dealing's statistic and probability.

    Args:
        statistics: Of each dealing; shape (W,).
        weights: Their probabilities, summing to 1; shape (W,).
        observed: The statistic of the data.
        alternative: Which side counts.
        convention: Of two-sided p-values.
        studentized: What the result is to say about itself.
    """
    up = float(weights @ as_far(statistics, observed))
    down = float(weights @ as_far(-statistics, -observed))
    at = max(0.0, up + down - 1.0)
    if alternative == "greater":
        pvalue, midp = up, up - at / 2
    elif alternative == "less":
        pvalue, midp = down, down - at / 2
    elif convention == "doubled":
        pvalue, midp = 2 * min(up, down), 2 * (min(up, down) - at / 2)
    else:
        size, bound = np.abs(statistics), abs(observed)
        pvalue = float(weights @ as_far(size, bound))
        midp = pvalue - (pvalue - float(weights @ ~as_far(-size, -bound))) / 2
    return PermutationTest(
        pvalue=min(1.0, pvalue),
        midp=min(1.0, max(0.0, midp)),
        method="exact",
        alternative=alternative,
        convention=convention,
        studentized=studentized,
        resamples=None,
        error=0.0,
    )


def as_far(statistics: Floats, bound: float) -> NDArray[np.bool_]:
    """Which statistics are at least the bound, rounding forgiven."""
    slack = _TIE * max(1.0, abs(bound)) if np.isfinite(bound) else 0.0
    out: NDArray[np.bool_] = statistics >= bound - slack
    return out


def _plus_one(
    drawn: Floats, observed: float, alternative: Alternative, convention: Convention
) -> float:
    up = int(as_far(drawn, observed).sum())
    down = int(as_far(-drawn, -observed).sum())
    if alternative == "two-sided" and convention == "doubled":
        return min(1.0, 2 * (min(up, down) + 1) / (len(drawn) + 1))
    if alternative == "two-sided":
        hits = int(as_far(np.abs(drawn), abs(observed)).sum())
    else:
        hits = up if alternative == "greater" else down
    return (hits + 1) / (len(drawn) + 1)

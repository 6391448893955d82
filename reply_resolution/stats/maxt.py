"""Families of tests: the four cuts of a scale, and several treatments, with max-T.

The largest of several statistics is compared with its own permutation distribution, so
the family keeps its error rate without paying for tests that say nearly the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt

import numpy as np

from reply_resolution.stats.multiplicity import adjust
from reply_resolution.stats.permutation import checked_table, permutation_test
from reply_resolution.stats.saddlepoint import Floats, Ints, binomial_pmf

_DIRECT = 3_000  # states up to which plain convolution is as fast as Fourier's


@dataclass(frozen=True, slots=True)
class CutEffect:
    """The difference in the share of replies at or above one cut.

    Attributes:
        cut: Lowest score that counts, for example 4.
        difference: Treatment's share minus control's. Fraction, -1 to 1; above 0
            favours treatment.
        pvalue: Of this cut alone, two-sided, exact (Fisher's table, "absolute").
        pvalue_adjusted: For having looked at every cut. Fraction, 0 to 1.
        adjustment: "max-t" or "holm".
    """

    cut: int
    difference: float
    pvalue: float
    pvalue_adjusted: float
    adjustment: str


def cut_tests(
    control: Ints, treatment: Ints, *, lowest: int = 1
) -> tuple[CutEffect, ...]:
    """Every cut of the scale, adjusted by the exact max-T over all of them.

    Dealing scores to arms level by level is a Markov chain in the number dealt so far,
    and each cut's 2x2 statistic is a function of that number alone. So the probability
    that every cut stays inside its bounds is a product of convolutions: no draws.

    Args:
        control: Control's replies at each level; shape (K,).
        treatment: The same for the treatment.
        lowest: Score of the first level.

    Returns:
        One result per cut above the lowest level, lowest cut first.

    Raises:
        StatisticsError: An arm is empty.

    Source: Westfall and Young 1993 for max-T; the recursion is Conover's (1972) for
    discrete Kolmogorov-Smirnov statistics, with standardised cuts.

    >>> import numpy as np
    >>> found = cut_tests(np.array([11, 2, 0, 1, 0]), np.array([3, 1, 4, 2, 1]))
    >>> [(c.cut, round(c.pvalue_adjusted, 9)) for c in found][:2]
    [(2, 0.021001481), (3, 0.009568807)]
    """
    c2, t2, _ = checked_table(control, treatment, None)
    c, t = c2[0], t2[0]
    z = cut_statistics(c, t)
    n0, n1 = int(c.sum()), int(t.sum())
    out = []
    for k in range(1, len(c)):
        x0, x1 = int(c[k:].sum()), int(t[k:].sum())
        single = permutation_test(
            np.array([n0 - x0, x0]), np.array([n1 - x1, x1])
        ).pvalue
        adjusted = max_cut_pvalue(c + t, n1, abs(float(z[k - 1])))
        out.append(
            CutEffect(
                cut=lowest + k,
                difference=x1 / n1 - x0 / n0,
                pvalue=single,
                pvalue_adjusted=min(1.0, max(single, adjusted)),
                adjustment="max-t",
            )
        )
    return tuple(out)


def holm_cuts(
    found: Sequence[tuple[int, float, float]],
) -> tuple[CutEffect, ...]:
    """Cuts given as (cut, difference, p-value), adjusted by Holm's method."""
    adjusted = adjust([p for _, _, p in found], "holm")
    return tuple(
        CutEffect(cut, difference, p, q, "holm")
        for (cut, difference, p), q in zip(found, adjusted, strict=True)
    )


def cut_statistics(control: Ints, treatment: Ints) -> Floats:
    """Standardised 2x2 statistic of each cut; 0 where all replies are on one side."""
    pool = control + treatment
    size, drawn = int(pool.sum()), int(treatment.sum())
    below = np.cumsum(pool)[:-1]
    dealt = np.cumsum(treatment)[:-1]
    spread = _spread(below, size, drawn)
    off = -(dealt - drawn * below / size)  # few low scores in treatment favour it
    out: Floats = np.where(spread > 0, off / np.where(spread > 0, spread, 1.0), 0.0)
    return out


def _spread(below: Ints, size: int, drawn: int) -> Floats:
    """Standard deviation of the number dealt from the lowest `below` replies."""
    if size < 2:
        return np.zeros(len(below))
    share = below.astype(float) * (size - below) / size
    out: Floats = np.sqrt(share * drawn * (size - drawn) / size / (size - 1))
    return out


def max_cut_pvalue(pool: Ints, drawn: int, bound: float) -> float:
    """P(some cut's statistic is at least `bound` in size) under random dealing.

    Args:
        pool: Both arms' replies at each level; shape (K,).
        drawn: Replies of the treatment.
        bound: Size of the statistic, 0 or more.

    Returns:
        The probability, to about 1e-13 absolute.
    """
    if bound <= 1e-12:
        return 1.0
    size = int(pool.sum())
    below = np.cumsum(pool)
    spread = _spread(below, size, drawn)
    outside = 0.0
    start, mass = 0, np.ones(1)  # states: replies dealt so far to the treatment
    for k in range(len(pool)):
        done, sd = int(below[k]), float(spread[k])
        middle = drawn * done / size
        low = max(0, drawn - (size - done))
        high = min(drawn, done)
        reach = 10 * sd + 30
        low, high = max(low, floor(middle - reach)), min(high, ceil(middle + reach))
        start, mass = _step(start, mass, int(pool[k]), size, drawn, low, high)
        # in proportion to how likely it is to end with exactly `drawn`
        if k == len(pool) - 1:
            break
        states = start + np.arange(len(mass))
        over = np.abs(states - middle) >= bound * sd * (1 - 1e-12)
        if sd > 0 and over.any():
            rest = _finish(states[over], size - done, drawn, size)
            outside += float(mass[over] @ rest)
            mass = np.where(over, 0.0, mass)
    total = binomial_pmf(np.array([drawn]), size, drawn / size)[0]
    return min(1.0, outside / float(total))


def _step(
    start: int, mass: Floats, level: int, size: int, drawn: int, low: int, high: int
) -> tuple[int, Floats]:
    """Add one level's dealt replies (binomial at the pool's rate), cut to a window."""
    rate = drawn / size
    sd = sqrt(level * rate * (1 - rate))
    first = max(0, floor(level * rate - 10 * sd - 30))
    last = min(level, ceil(level * rate + 10 * sd + 30))
    part = binomial_pmf(np.arange(first, last + 1), level, rate)
    spread = _convolve(mass, part)
    begin = start + first
    out = np.zeros(high - low + 1)
    a, b = max(low, begin), min(high, begin + len(spread) - 1)
    if a <= b:
        out[a - low : b - low + 1] = spread[a - begin : b - begin + 1]
    return low, out


def _finish(states: Ints, rest: int, drawn: int, size: int) -> Floats:
    """Probability that the remaining levels bring the number dealt to `drawn`."""
    return binomial_pmf(drawn - states, rest, drawn / size)


def _convolve(a: Floats, b: Floats) -> Floats:
    if min(len(a), len(b)) <= _DIRECT:
        return np.convolve(a, b)
    length = len(a) + len(b) - 1
    out = np.fft.irfft(np.fft.rfft(a, length) * np.fft.rfft(b, length), length)
    clipped: Floats = np.maximum(out, 0.0)
    return clipped

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
from reply_resolution.stats.saddlepoint import Floats, Ints, binomial_pmf, fast_length

_DIRECT = 600  # states up to which plain convolution is as fast as Fourier's


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
    chain = _Chain.of(c + t, int(t.sum()))
    n0, n1 = int(c.sum()), int(t.sum())
    out = []
    for k in range(1, len(c)):
        x0, x1 = int(c[k:].sum()), int(t[k:].sum())
        single = permutation_test(
            np.array([n0 - x0, x0]), np.array([n1 - x1, x1])
        ).pvalue
        adjusted = chain.outside(abs(float(z[k - 1])))
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
    return _Chain.of(pool, drawn).outside(bound)


@dataclass(frozen=True, slots=True)
class _Step:
    """One level of the chain: replies dealt up to and including it.

    `states` are the numbers dealt so far (a window of them), `middle` and `spread`
    their mean and standard deviation, `first` and `part` the level's own number dealt
    (binomial at the pool's rate), `rest` the probability that the levels above bring
    the number dealt to what the treatment holds.
    """

    states: Ints
    middle: float
    spread: float
    first: int
    part: Floats
    rest: Floats


@dataclass(frozen=True, slots=True)
class _Chain:
    """Dealing scores level by level: a Markov chain in the number dealt so far."""

    steps: tuple[_Step, ...]
    total: float

    @classmethod
    def of(cls, pool: Ints, drawn: int) -> "_Chain":
        size = int(pool.sum())
        rate = drawn / size
        below = np.cumsum(pool)
        spreads = _spread(below, size, drawn)
        steps = []
        for k in range(len(pool) - 1):
            done, level, sd = int(below[k]), int(pool[k]), float(spreads[k])
            middle = drawn * done / size
            reach = 10 * sd + 30
            low = max(0, drawn - (size - done), floor(middle - reach))
            high = min(drawn, done, ceil(middle + reach))
            states = np.arange(low, high + 1, dtype=np.int64)
            wide = 10 * sqrt(level * rate * (1 - rate)) + 30
            first = max(0, floor(level * rate - wide))
            last = min(level, ceil(level * rate + wide))
            part = binomial_pmf(np.arange(first, last + 1), level, rate)
            rest = binomial_pmf(drawn - states, size - done, rate)
            steps.append(_Step(states, middle, sd, first, part, rest))
        total = float(binomial_pmf(np.array([drawn]), size, rate)[0])
        return cls(tuple(steps), total)

    def outside(self, bound: float) -> float:
        """Probability that some cut reaches the bound."""
        if bound <= 1e-12:
            return 1.0
        start, mass, outside = 0, np.ones(1), 0.0
        for step in self.steps:
            spread = _convolve(mass, step.part)
            begin, low, high = start + step.first, step.states[0], step.states[-1]
            mass = np.zeros(len(step.states))
            a, b = max(low, begin), min(high, begin + len(spread) - 1)
            if a <= b:
                mass[a - low : b - low + 1] = spread[a - begin : b - begin + 1]
            start = int(low)
            if step.spread > 0:
                away = np.abs(step.states - step.middle)
                over = away >= bound * step.spread * (1 - 1e-12)
                outside += float((mass[over] * step.rest[over]).sum())
                mass[over] = 0.0
        return min(1.0, outside / self.total)


def _convolve(a: Floats, b: Floats) -> Floats:
    if min(len(a), len(b)) <= _DIRECT:
        return np.convolve(a, b)
    length = fast_length(len(a) + len(b) - 1)
    out = np.fft.irfft(np.fft.rfft(a, length) * np.fft.rfft(b, length), length)
    clipped: Floats = np.maximum(out[: len(a) + len(b) - 1], 0.0)
    return clipped

"""Families of tests: the four cuts of a scale, and several treatments, with max-T.

The largest of several statistics is compared with its own permutation distribution, so
the family keeps its error rate without paying for tests that say nearly the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt

import numpy as np

from reply_resolution.stats.arrays import Floats, Ints
from reply_resolution.stats.multiplicity import adjust
from reply_resolution.stats.permutation import (
    checked_table,
    deal,
    paired_permutation_test,
    permutation_test,
    ratio,
)
from reply_resolution.stats.pvalues import RESAMPLES, Alternative
from reply_resolution.stats.saddlepoint import binomial_pmf, fast_length

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
    chain = _Chain(c + t, int(t.sum()))
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


class _Chain:
    """Dealing scores level by level: a Markov chain in the number dealt so far."""

    def __init__(self, pool: Ints, drawn: int) -> None:
        size = int(pool.sum())
        rate = drawn / size
        below = np.cumsum(pool)
        spreads = _spread(below, size, drawn)
        self.total = float(binomial_pmf(np.array([drawn]), size, rate)[0])
        # per level: states (a window of the numbers dealt so far), how many standard
        # deviations off each is, the level's own number dealt (first, probabilities),
        # and the probability that the levels above make up what the treatment holds
        self.steps: list[tuple[Ints, Floats, int, Floats, Floats]] = []
        for k in range(len(pool) - 1):
            done, level, sd = int(below[k]), int(pool[k]), float(spreads[k])
            middle, reach = drawn * done / size, 10 * sd + 30
            low = max(0, drawn - (size - done), floor(middle - reach))
            high = min(drawn, done, ceil(middle + reach))
            states = np.arange(low, high + 1, dtype=np.int64)
            away = np.abs(states - middle) / sd if sd > 0 else np.zeros(len(states))
            wide = 10 * sqrt(level * rate * (1 - rate)) + 30
            first = max(0, floor(level * rate - wide))
            last = min(level, ceil(level * rate + wide))
            part = binomial_pmf(np.arange(first, last + 1), level, rate)
            rest = binomial_pmf(drawn - states, size - done, rate)
            self.steps.append((states, away, first, part, rest))

    def outside(self, bound: float) -> float:
        """P(some cut's statistic is at least `bound` in size), to 1e-13 absolute."""
        if bound <= 1e-12:
            return 1.0
        start, mass, outside = 0, np.ones(1), 0.0
        for states, away, first, part, rest in self.steps:
            spread = _convolve(mass, part)
            begin, low, high = start + first, int(states[0]), int(states[-1])
            mass = np.zeros(len(states))
            a, b = max(low, begin), min(high, begin + len(spread) - 1)
            if a <= b:
                mass[a - low : b - low + 1] = spread[a - begin : b - begin + 1]
            start = low
            over = away >= bound * (1 - 1e-12)
            outside += float((mass[over] * rest[over]).sum())
            mass[over] = 0.0
        return min(1.0, outside / self.total)


def _convolve(a: Floats, b: Floats) -> Floats:
    if min(len(a), len(b)) <= _DIRECT:
        return np.convolve(a, b)
    length = fast_length(len(a) + len(b) - 1)
    out = np.fft.irfft(np.fft.rfft(a, length) * np.fft.rfft(b, length), length)
    clipped: Floats = np.maximum(out[: len(a) + len(b) - 1], 0.0)
    return clipped


def max_t_arms(
    counts: Ints,
    *,
    alternative: Alternative = "two-sided",
    seed: int = 0,
    resamples: int | None = None,
) -> tuple[float, ...]:
    """Family-wise p-values of every treatment against control.

    All arms are dealt anew from one pool; the statistics are studentized, so that a
    treatment that truly differs does not spoil the verdict on the others (with plain
    statistics it would). Step-down after Westfall and Young: the largest statistic is
    compared with the largest of all, the next with the largest of the rest.

    Args:
        counts: Replies by arm and level, control first; shape (A, K).
        alternative: "greater": treatment above control.
        seed: Of the draws.
        resamples: How many; 9,999 by default.

    Source: Westfall and Young 1993, algorithm 2.8; Chung and Romano 2016.
    """
    size = RESAMPLES if resamples is None else resamples
    rng = np.random.default_rng(seed)
    pool, n = counts.sum(0), counts.sum(1)
    observed = _welch(counts[None], alternative)[0]
    order = np.argsort(-observed, kind="stable")
    hits = np.zeros(len(order), dtype=np.int64)
    rows = 20_000
    for start in range(0, size, rows):
        b = min(rows, size - start)
        drawn = _deal_all(rng, pool, n, b)
        statistics = _welch(drawn, alternative)[:, order]
        # the largest among this one and all that come after it
        tail = np.maximum.accumulate(statistics[:, ::-1], axis=1)[:, ::-1]
        bound = observed[order]
        slack = np.where(np.isfinite(bound), 1e-10 * np.maximum(1.0, np.abs(bound)), 0)
        hits += (tail >= bound - slack).sum(0)
    pvalues = np.maximum.accumulate((hits + 1) / (size + 1))
    out = np.empty(len(order))
    out[order] = np.minimum(1.0, pvalues)
    return tuple(float(p) for p in out)


def _deal_all(rng: np.random.Generator, pool: Ints, n: Ints, size: int) -> Ints:
    """Every arm's counts under one random dealing; shape (size, A, K)."""
    arms = len(n)
    out = np.empty((size, arms, len(pool)), dtype=np.int64)
    left = np.broadcast_to(pool, (size, len(pool))).copy()
    for a in range(arms - 1):
        if a == 0:
            taken = deal(rng, pool, int(n[0]), size)
        else:  # the rest of the pool differs from draw to draw
            taken = _hypergeometric(rng, left, int(n[a]))
        out[:, a] = taken
        left = left - taken
    out[:, -1] = left
    return out


def _hypergeometric(rng: np.random.Generator, left: Ints, drawn: int) -> Ints:
    out = np.empty_like(left)
    need = np.full(len(left), drawn, dtype=np.int64)
    rest = left.sum(1)
    for k in range(left.shape[1]):
        rest = rest - left[:, k]
        out[:, k] = rng.hypergeometric(left[:, k], rest, need)
        need = need - out[:, k]
    return out


def _welch(drawn: Ints, alternative: Alternative) -> Floats:
    """Welch statistic of each treatment; shape (B, A - 1), large is extreme."""
    s = np.arange(drawn.shape[2])
    n = drawn.sum(2)
    mean = (drawn @ s) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.maximum((drawn @ (s * s)) / n - mean**2, 0) / (n - 1)
    variance = np.where(n > 1, variance, 0.0)
    t = ratio(mean[:, 1:] - mean[:, :1], np.sqrt(variance[:, 1:] + variance[:, :1]))
    if alternative == "two-sided":
        return np.abs(t)
    return t if alternative == "greater" else -t


def paired_cuts(vectors: Ints, number: Ints, lowest: int) -> tuple[CutEffect, ...]:
    """Each cut by an exact sign-flip test (McNemar's for plain pairs), then Holm.

    Plain pairs come as one table; users as one table per type, flipped whole.
    """
    levels = np.arange(vectors.shape[1])
    n = int(number @ vectors.sum((1, 2)))
    found = []
    for k in levels[1:].tolist():
        high = (levels >= k).astype(np.int64)
        sums = (vectors * (high[None, :] - high[:, None])).sum((1, 2))
        difference = int(number @ sums) / n
        times = number
        if len(vectors) == 1 and number[0] == 1:
            up, down = int(vectors[0, :k, k:].sum()), int(vectors[0, k:, :k].sum())
            sums, times = np.array([-1, 0, 1]), np.array([down, n - up - down, up])
        pvalue = paired_permutation_test(sums, times).pvalue
        found.append((lowest + k, difference, pvalue))
    return holm_cuts(found)

"""Exact tail probabilities of sums of integer scores.

A permutation distribution over a 2xK table, or over sign-flipped differences, lives on
a lattice. Small arms are counted out by additions alone; large ones by inverting a
characteristic function (`inversion`). Both give about twelve digits in either tail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb

import numpy as np

from reply_resolution.stats.arrays import Floats, Ints
from reply_resolution.stats.inversion import (
    Active,
    dealt_by_inversion,
    flipped_by_inversion,
)

_SMALL_ARM = 60  # at or below: a table of non-negative additions is faster still


@dataclass(frozen=True, slots=True)
class Pool:
    """Replies at each score, both arms together (K,), and how many are dealt."""

    counts: Ints
    drawn: int


@dataclass(frozen=True, slots=True)
class Tail:
    """Probability of the threshold or beyond, and of exactly the threshold."""

    beyond: float
    at: float


def mean_of(pools: Sequence[Pool], scores: Ints) -> Fraction:
    """Exact mean of the treatment's score sum under random dealing."""
    total = Fraction(0)
    for pool in pools:
        size = int(pool.counts.sum())
        if size:
            total += Fraction(pool.drawn * int(pool.counts @ scores), size)
    return total


def dealt_tail(
    pools: Sequence[Pool], scores: Ints, threshold: int, *, upper: bool
) -> Tail:
    """Tail of the treatment's score sum when replies are dealt at random.

    Good to about 1e-12 relative on the side away from the mean; on the mean's side it
    is one minus the other tail.

    Args:
        pools: One pool per stratum; replies are dealt within each.
        scores: Integer value of each level; shape (K,).
        threshold: The sum in question, in the units of `scores`.
        upper: True for P(sum >= threshold), False for P(sum <= threshold).
    """
    if (threshold >= mean_of(pools, scores)) != upper:
        at = _dealt(pools, scores, threshold, not upper).at
        other = _dealt(pools, scores, threshold + (-1 if upper else 1), not upper)
        return Tail(beyond=min(1.0, max(0.0, 1.0 - other.beyond)), at=at)
    return _dealt(pools, scores, threshold, upper)


def flipped_tail(
    sizes: Ints, counts: Ints, threshold: int, *, upper: bool = True
) -> Tail:
    """Tail of a sum of differences whose signs are flipped at random.

    Args:
        sizes: Distinct absolute differences, all above 0; shape (T,).
        counts: How many differences have that size; shape (T,).
        threshold: The sum in question, in the units of `sizes`.
        upper: True for P(sum >= threshold), False for P(sum <= threshold).
    """
    if not upper:  # the distribution is symmetric
        return flipped_tail(sizes, counts, -threshold)
    if threshold < 0:
        at = flipped_tail(sizes, counts, -threshold).at
        other = flipped_tail(sizes, counts, -threshold + 1)
        return Tail(beyond=1.0 - other.beyond, at=at)
    total = int(sizes @ counts)
    if threshold > total:
        return Tail(0.0, 0.0)
    if total == 0:
        return Tail(1.0, 1.0)
    # sum = 2 V - total with V a sum of stretched binomials
    step = _gcd_of(sizes)
    values, probabilities = _flipped(
        sizes // step, counts, (threshold + total) / 2 / step
    )
    sums = 2 * values * step - total
    return _collect(sums, probabilities, threshold, upper=True)


def _dealt(pools: Sequence[Pool], scores: Ints, threshold: int, upper: bool) -> Tail:
    constant = 0
    active: list[Active] = []
    for pool in pools:
        held = pool.counts > 0
        m, s, drawn = pool.counts[held], scores[held], int(pool.drawn)
        if drawn == 0:
            continue
        if drawn == int(m.sum()) or len(m) == 1:
            constant += int(m @ s) if len(m) > 1 else drawn * int(s[0])
            continue
        low = int(s.min())
        constant += drawn * low
        active.append((m, s - low, drawn))
    if not active:
        hit = threshold == constant
        beyond = constant >= threshold if upper else constant <= threshold
        return Tail(float(beyond), float(hit))
    step = _gcd_of(np.concatenate([d for _, d, _ in active]))
    active = [(m, d // step, drawn) for m, d, drawn in active]
    low = sum(_extreme(m, d, drawn, False) for m, d, drawn in active)
    high = sum(_extreme(m, d, drawn, True) for m, d, drawn in active)
    target = Fraction(threshold - constant, step)
    if target > high or target < low:
        outside = (target > high) == upper
        return Tail(0.0 if outside else 1.0, 0.0)
    if all(min(n, int(m.sum()) - n) <= _SMALL_ARM for m, _, n in active) and (
        high - low <= 6000
    ):
        values, probabilities = _by_addition(active)
    else:
        values, probabilities = dealt_by_inversion(active, float(target), low, high)
    return _collect(values * step + constant, probabilities, threshold, upper)


def _collect(values: Ints, probabilities: Floats, threshold: int, upper: bool) -> Tail:
    out = values >= threshold if upper else values <= threshold
    at = float(probabilities[values == threshold].sum())
    # smallest first: the far tail must not drown
    return Tail(min(1.0, float(np.sort(probabilities[out]).sum())), min(1.0, at))


def _gcd_of(values: Ints) -> int:
    return int(np.gcd.reduce(values)) or 1


def _extreme(m: Ints, d: Ints, drawn: int, upper: bool) -> int:
    """Largest or smallest sum of `drawn` replies."""
    total = 0
    for k in np.argsort(-d if upper else d, kind="stable"):
        take = min(drawn, int(m[k]))
        total += take * int(d[k])
        drawn -= take
    return total


def _by_addition(active: list[Active]) -> tuple[Ints, Floats]:
    """Probabilities by a table over (replies dealt, sum): additions only."""
    start, result = 0, np.ones(1)
    for m, d, drawn in active:
        size, total = int(m.sum()), int(m @ d)
        small = min(drawn, size - drawn)
        low, part = _dealt_by_addition(m, d, small)
        if small != drawn:  # the other arm was counted: the rest belongs to this one
            low, part = total - low - (len(part) - 1), part[::-1]
        start += low
        result = np.convolve(result, part)
    return start + np.arange(len(result), dtype=np.int64), result


def _dealt_by_addition(m: Ints, d: Ints, drawn: int) -> tuple[int, Floats]:
    odds = drawn / int(m.sum())  # keeps the coefficients in range
    top = drawn * int(d.max())
    table = np.zeros((drawn + 1, top + 1))
    table[0, 0] = 1.0
    for mk, dk in zip(m.tolist(), d.tolist(), strict=True):
        new = np.zeros_like(table)
        weight = 1.0
        for x in range(min(mk, drawn) + 1):
            if x:
                # a running product: log-gamma would lose five digits at 30,000 replies
                weight *= (mk - x + 1) / x * odds
            new[x:, x * dk :] += weight * table[: drawn + 1 - x, : top + 1 - x * dk]
        table = new
    low, high = _extreme(m, d, drawn, False), _extreme(m, d, drawn, True)
    part = table[drawn, low : high + 1]
    return low, part / part.sum()


def _flipped(d: Ints, counts: Ints, center: float) -> tuple[Ints, Floats]:
    """Probabilities of sum(d X), X ~ Binomial(counts, 1/2), around `center`."""
    total = int(d @ counts)
    if total > 2000:
        return flipped_by_inversion(d, counts, center)
    small = np.ones(1)
    for dk, nk in zip(d.tolist(), counts.tolist(), strict=True):
        part = np.zeros(dk * nk + 1)
        part[::dk] = [comb(nk, x) / 2**nk for x in range(nk + 1)]
        small = np.convolve(small, part)
    return np.arange(len(small), dtype=np.int64), small

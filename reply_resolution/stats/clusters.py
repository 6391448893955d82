"""Users as the units: permutation tests, from pooled unit types.

Replies of one user resemble each other, so users are permuted (rows instead: 18 to 29%
false alarms). Equal users are pooled into types, so 500,000 cost what 500 do.
The statistic is studentized: users differ in how many replies they have, so the plain
difference in means is not exchangeable.
"""

from dataclasses import dataclass

import numpy as np

from reply_resolution.stats.arrays import Floats, Ints
from reply_resolution.stats.maxt import CutEffect
from reply_resolution.stats.permutation import deal, ratio
from reply_resolution.stats.pvalues import (
    RESAMPLES,
    Alternative,
    Convention,
    PermutationTest,
    as_far,
    dealing_test,
    every_dealing,
)
from reply_resolution.stats.unit_effects import Units, check_units, unit_effect

_CELLS = 2_000_000  # drawn numbers held at once


def unit_permutation_test(
    units: Units,
    *,
    values: Ints,
    alternative: Alternative = "two-sided",
    convention: Convention = "absolute",
    seed: int = 0,
    resamples: int | None = None,
) -> PermutationTest:
    """Permute whole users; the statistic is the studentized difference in means.

    Null hypothesis: within each stratum every dealing of the users to the arms was
    equally likely. Means are over replies (sum of scores over number of replies), so
    users with many replies weigh more. A user found in both arms has its two sides
    swapped with probability one half. Exact where there are few users (at most 100,000
    distinct dealings), otherwise drawn.

    Args:
        units: The two arms.
        values: Value of each level; shape (K,).
        alternative: "greater": treatment above control.
        convention: Of the two-sided p-value.
        seed: Of the draws.
        resamples: Draws; by default 9,999, or 99,999 where these give 0.01 to 0.1.

    Raises:
        StatisticsError: An arm has fewer than 2 units.

    Source: Janssen 1997 and Chung and Romano 2013 for studentized permutations.
    """
    check_units(units)
    dealer = Dealer(units, np.asarray(values, dtype=float)[None])
    every = dealer.every()

    def draw(rng: np.random.Generator, size: int) -> Floats:
        out: Floats = dealer.draw(rng, size)[:, 0]
        return out

    return dealing_test(
        None if every is None else (every[0][:, 0], every[1]),
        draw,
        float(dealer.observed[0]),
        alternative,
        convention,
        seed,
        resamples,
    )


def unit_cut_tests(
    units: Units, *, lowest: int, seed: int = 0, resamples: int | None = None
) -> tuple[CutEffect, ...]:
    """Every cut of the scale, users permuted whole, adjusted by max-T.

    Args:
        units: The two arms.
        lowest: Score of the first level.
        seed: Of the draws; the cuts share them.
        resamples: Draws, 9,999 by default.
    """
    check_units(units)
    cuts = list(range(1, units.control.shape[1]))
    levels = np.arange(len(cuts) + 1)
    values = np.stack([(levels >= k).astype(float) for k in cuts])
    dealer = Dealer(units, values)
    every = dealer.every()
    if every is None:
        size = RESAMPLES if resamples is None else resamples
        statistics = dealer.draw(np.random.default_rng(seed), size)
        weights, base = np.full(size, 1 / (size + 1)), 1 / (size + 1)
    else:
        (statistics, weights), base = every, 0.0
    largest = np.abs(statistics).max(1)
    out = []
    for i, k in enumerate(cuts):
        bound = float(dealer.observed[i])
        single = float(weights @ as_far(np.abs(statistics[:, i]), abs(bound))) + base
        family = float(weights @ as_far(largest, abs(bound))) + base
        out.append(
            CutEffect(
                cut=lowest + k,
                difference=unit_effect(units, values=values[i]).estimate,
                pvalue=min(1.0, single),
                pvalue_adjusted=min(1.0, max(single, family)),
                adjustment="max-t",
            )
        )
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Stratum:
    """One stratum, ready to be dealt; V is the number of value vectors.

    `moments` holds (1, n, n^2) and for each vector (s, s^2, s n) of each one-arm type,
    `pool` how many units are of it, `now` how many of them are in the treatment.
    `crossed` holds (n0, n1) and for each vector (s0, s1) of each type that is in both
    arms, `times` how many units are of it.
    """

    weight: float
    moments: Floats
    pool: Ints
    now: Ints
    crossed: Floats
    times: Ints


class Dealer:
    """Deals units to arms within strata and studentizes: moments only, never units.

    `observed` holds the statistics of the data for each value vector; shape (V,).
    """

    def __init__(self, units: Units, values: Floats) -> None:
        """Prepare units for the statistics of some value vectors, shape (V, K)."""
        self.width = len(values)
        self.strata: list[_Stratum] = []
        replies = units.number * (units.control.sum(1) + units.treatment.sum(1))
        for h in np.unique(units.stratum):
            here = units.stratum == h
            c, t = units.control[here], units.treatment[here]
            number = units.number[here]
            both = (c.sum(1) > 0) & (t.sum(1) > 0)
            one, in_treatment = (c + t)[~both], t[~both].sum(1) > 0
            keys, place = np.unique(
                np.column_stack([one.sum(1), one @ values.T]),
                axis=0,
                return_inverse=True,
            )
            held = number[~both]
            pool, now = np.zeros((2, len(keys)), dtype=np.int64)
            np.add.at(pool, place.ravel(), held)
            np.add.at(now, place.ravel(), held * in_treatment)
            n, s = keys[:, 0], keys[:, 1:].T
            parts = [np.ones_like(n), n, n * n]
            sides = [c[both].sum(1), t[both].sum(1)]
            for v, sums in zip(values, s, strict=True):
                parts += [sums, sums * sums, sums * n]
                sides += [c[both] @ v, t[both] @ v]
            self.strata.append(
                _Stratum(
                    weight=float(replies[here].sum() / replies.sum()),
                    moments=np.stack(parts, 1),
                    pool=pool,
                    now=now,
                    crossed=np.stack(sides, 1).astype(float),
                    times=number[both],
                )
            )
        as_found = [
            (s.now[None].astype(float), s.times[None].astype(float))
            for s in self.strata
        ]
        self.observed: Floats = self._statistics(as_found)[0]

    def every(self) -> tuple[Floats, Floats] | None:
        """All dealings: statistics (W, V) and probabilities; None if too many."""
        first = self.strata[0]
        if len(self.strata) > 1 or len(first.times):
            return None
        found = every_dealing(first.pool, int(first.now.sum()))
        if found is None:
            return None
        ways, weights = found
        none_crossed = np.zeros((len(ways), 0))
        return self._statistics([(ways.astype(float), none_crossed)]), weights

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        """Random dealings' statistics; shape (size, V)."""
        width = max(1, max(len(s.pool) + len(s.times) for s in self.strata))
        rows = max(1, _CELLS // width)
        parts = []
        for first in range(0, size, rows):
            n = min(rows, size - first)
            drawn = []
            for s in self.strata:
                x = np.zeros((n, len(s.pool)))
                if len(s.pool):
                    x = deal(rng, s.pool, int(s.now.sum()), n).astype(float)
                kept = rng.binomial(s.times, 0.5, (n, len(s.times))).astype(float)
                drawn.append((x, kept))
            parts.append(self._statistics(drawn))
        return np.concatenate(parts)

    def _statistics(self, drawn: list[tuple[Floats, Floats]]) -> Floats:
        """From units of each type in treatment, and crossed units left as found."""
        difference, variance = np.zeros((2, len(drawn[0][0]), self.width))
        for s, (x, kept) in zip(self.strata, drawn, strict=True):
            one = x @ s.moments
            zero = s.pool @ s.moments - one
            # what crossed units bring to either arm, sides swapped or not
            turned = s.times - kept
            a, b = s.crossed[:, ::2], s.crossed[:, 1::2]
            to0, to1 = kept @ a + turned @ b, kept @ b + turned @ a
            g0, g1 = zero[:, 0] + s.times.sum(), one[:, 0] + s.times.sum()
            n0, n1 = zero[:, 1] + to0[:, 0], one[:, 1] + to1[:, 0]
            fine = (g0 > 1) & (g1 > 1)  # else the stratum carries no comparison
            with np.errstate(divide="ignore", invalid="ignore"):
                scale0, scale1 = g0 / (g0 - 1) / n0**2, g1 / (g1 - 1) / n1**2
                for v in range(self.width):
                    k = 3 + 3 * v
                    m0 = (zero[:, k] + to0[:, 1 + v]) / n0
                    m1 = (one[:, k] + to1[:, 1 + v]) / n1
                    spread = scale0 * _centred(zero, k, m0)
                    spread += scale1 * _centred(one, k, m1)
                    # the two sides of a crossed unit are dependent
                    for i in range(len(s.times)):
                        for share, c, t in ((kept, a, b), (turned, b, a)):
                            off = (t[i, 1 + v] - m1 * t[i, 0]) * np.sqrt(scale1)
                            off -= (c[i, 1 + v] - m0 * c[i, 0]) * np.sqrt(scale0)
                            spread += share[:, i] * off**2
                    difference[:, v] += np.where(fine, s.weight * (m1 - m0), 0.0)
                    part = s.weight**2 * np.maximum(spread, 0.0)
                    variance[:, v] += np.where(fine, part, 0.0)
        return ratio(difference, np.sqrt(variance))


def _centred(moments: Floats, k: int, mean: Floats) -> Floats:
    """Sum over units of (s - mean n)^2."""
    out: Floats = (
        moments[:, k + 1] - 2 * mean * moments[:, k + 2] + mean**2 * moments[:, 2]
    )
    return out

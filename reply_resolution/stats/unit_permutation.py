"""Permutation of whole users, from pooled unit types.

Permuting 500,000 users costs what permuting 500 does: one multivariate hypergeometric
draw over the types. The statistic is studentized, because users differ in how many
replies they have, and then the plain difference in means is not exchangeable.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reply_resolution.stats.clusters import Units, check_units
from reply_resolution.stats.enumeration import every_dealing
from reply_resolution.stats.maxt import CutEffect
from reply_resolution.stats.permutation import deal, ratio
from reply_resolution.stats.pvalues import (
    RESAMPLES,
    Alternative,
    Convention,
    PermutationTest,
    as_far,
    drawn_test,
    weighed_test,
)
from reply_resolution.stats.saddlepoint import Floats, Ints

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
    dealer = Dealer.of(units, np.asarray(values, dtype=float)[None])
    observed = float(dealer.observed[0])
    every = dealer.every()
    if every is not None:
        statistics, weights = every
        return weighed_test(
            statistics[:, 0], weights, observed, alternative, convention
        )

    def draw(rng: np.random.Generator, size: int) -> Floats:
        out: Floats = dealer.draw(rng, size)[:, 0]
        return out

    return drawn_test(draw, observed, alternative, convention, seed, resamples)


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
    levels = np.arange(units.control.shape[1])
    cuts: list[int] = levels[1:].tolist()
    values = np.stack([(levels >= k).astype(float) for k in cuts])
    dealer = Dealer.of(units, values)
    every = dealer.every()
    if every is None:
        size = RESAMPLES if resamples is None else resamples
        statistics = dealer.draw(np.random.default_rng(seed), size)
        weights, base = np.full(size, 1 / (size + 1)), 1 / (size + 1)
    else:
        (statistics, weights), base = every, 0.0
    largest = np.abs(statistics).max(1)
    c, t = units.number @ units.control, units.number @ units.treatment
    out = []
    for i, k in enumerate(cuts):
        bound = float(dealer.observed[i])
        single = float(weights @ as_far(np.abs(statistics[:, i]), abs(bound))) + base
        family = float(weights @ as_far(largest, abs(bound))) + base
        out.append(
            CutEffect(
                cut=lowest + k,
                difference=float(t[k:].sum() / t.sum() - c[k:].sum() / c.sum()),
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
    `pool` how many units are of it, `dealt` how many units go to the treatment.
    `crossed` holds (n0, n1) and for each vector (s0, s1) of each type that is in both
    arms, `times` how many units are of it.
    """

    weight: float
    moments: Floats
    pool: Ints
    dealt: int
    crossed: Floats
    times: Ints


@dataclass(frozen=True, slots=True)
class Dealer:
    """Deals units to arms and studentizes: moments only, never units.

    Attributes:
        strata: The strata; units are dealt within each.
        width: Number of value vectors, V.
        observed: The statistics of the data; shape (V,).
    """

    strata: tuple[_Stratum, ...]
    width: int
    observed: Floats

    @classmethod
    def of(cls, units: Units, values: Floats) -> "Dealer":
        """Prepare units for the statistics of some value vectors, shape (V, K)."""
        strata: list[_Stratum] = []
        start: list[tuple[Floats, Floats]] = []
        replies = units.control.sum(1) + units.treatment.sum(1)
        total = int(units.number @ replies)
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
            place = place.ravel()
            held = number[~both]
            pool = np.bincount(place, weights=held, minlength=len(keys))
            now = np.bincount(place, weights=held * in_treatment, minlength=len(keys))
            n, s = keys[:, :1], keys[:, 1:]
            parts = [np.ones_like(n), n, n * n]
            for v in range(len(values)):
                sv = s[:, v : v + 1]
                parts += [sv, sv * sv, sv * n]
            sides = [c[both].sum(1), t[both].sum(1)]
            for v in values:
                sides += [c[both] @ v, t[both] @ v]
            strata.append(
                _Stratum(
                    weight=int(number @ replies[here]) / total,
                    moments=np.concatenate(parts, axis=1),
                    pool=np.rint(pool).astype(np.int64),
                    dealt=round(float(now.sum())),
                    crossed=np.stack(sides, 1).astype(float),
                    times=number[both],
                )
            )
            start.append((now[None].astype(float), number[both].astype(float)[None]))
        bare = cls(tuple(strata), len(values), np.zeros(0))
        return cls(bare.strata, bare.width, bare._statistics(start)[0])

    def every(self) -> tuple[Floats, Floats] | None:
        """All dealings: statistics (W, V) and probabilities; None if too many."""
        if len(self.strata) > 1 or len(self.strata[0].times):
            return None
        found = every_dealing(self.strata[0].pool, self.strata[0].dealt)
        if found is None:
            return None
        ways, weights = found
        none_crossed = np.zeros((len(ways), 0))
        return self._statistics([(ways.astype(float), none_crossed)]), weights

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        """Random dealings' statistics; shape (size, V)."""
        width = max(1, max(len(s.pool) + len(s.times) for s in self.strata))
        rows = max(1, _CELLS // width)
        out = np.empty((size, self.width))
        for first in range(0, size, rows):
            n = min(rows, size - first)
            drawn = []
            for s in self.strata:
                x = np.zeros((n, len(s.pool)))
                if len(s.pool):
                    x = deal(rng, s.pool, s.dealt, n).astype(float)
                kept = rng.binomial(s.times, 0.5, (n, len(s.times))).astype(float)
                drawn.append((x, kept))
            out[first : first + n] = self._statistics(drawn)
        return out

    def _statistics(self, drawn: Sequence[tuple[Floats, Floats]]) -> Floats:
        """From units of each type in treatment, and crossed units left as found."""
        size = len(drawn[0][0])
        difference = np.zeros((size, self.width))
        variance = np.zeros((size, self.width))
        for s, (x, kept) in zip(self.strata, drawn, strict=True):
            one = x @ s.moments
            zero = s.pool @ s.moments - one
            sides = self._sides(s, kept)
            g0, g1 = zero[:, 0] + s.times.sum(), one[:, 0] + s.times.sum()
            n0, n1 = zero[:, 1] + sides[0], one[:, 1] + sides[1]
            fine = (g0 > 1) & (g1 > 1)  # else the stratum carries no comparison
            with np.errstate(divide="ignore", invalid="ignore"):
                scale0, scale1 = g0 / (g0 - 1) / n0**2, g1 / (g1 - 1) / n1**2
                for v in range(self.width):
                    k = 3 + 3 * v
                    m0 = (zero[:, k] + sides[2 + 2 * v]) / n0
                    m1 = (one[:, k] + sides[3 + 2 * v]) / n1
                    spread = scale0 * _centred(zero, k, m0) + scale1 * _centred(
                        one, k, m1
                    )
                    if len(s.times):
                        root0, root1 = np.sqrt(scale0), np.sqrt(scale1)
                        spread = spread + self._crossed(
                            s, kept, v, (m0, m1), (root0, root1)
                        )
                    difference[:, v] += np.where(fine, s.weight * (m1 - m0), 0.0)
                    variance[:, v] += np.where(
                        fine, s.weight**2 * np.maximum(spread, 0.0), 0.0
                    )
        return ratio(difference, np.sqrt(variance))

    def _sides(self, s: _Stratum, kept: Floats) -> list[Floats]:
        """What crossed units bring to (n0, n1, s0, s1, ...), sides swapped or not."""
        turned = s.times - kept
        out = []
        for k in range(0, s.crossed.shape[1], 2):
            a, b = s.crossed[:, k], s.crossed[:, k + 1]
            out += [kept @ a + turned @ b, kept @ b + turned @ a]
        return out

    @staticmethod
    def _crossed(
        s: _Stratum,
        kept: Floats,
        v: int,
        means: tuple[Floats, Floats],
        roots: tuple[Floats, Floats],
    ) -> Floats:
        """Variance that units in both arms add, their two sides being dependent."""
        out = np.zeros(len(kept))
        for i, row in enumerate(s.crossed):
            n, t = row[:2], row[2 + 2 * v : 4 + 2 * v]
            for share, a, b in ((kept[:, i], 0, 1), (s.times[i] - kept[:, i], 1, 0)):
                off = (t[b] - means[1] * n[b]) * roots[1]
                off = off - (t[a] - means[0] * n[a]) * roots[0]
                out += share * off**2
        return out


def _centred(moments: Floats, k: int, mean: Floats) -> Floats:
    """Sum over units of (s - mean n)^2."""
    out: Floats = (
        moments[:, k + 1] - 2 * mean * moments[:, k + 2] + mean**2 * moments[:, 2]
    )
    return out

"""Users as the units: permutation and interval from pooled unit types.

Replies of one user resemble each other, so users, not rows, are permuted (rows
permuted instead: 18 to 29% false alarms). A user is reduced to what it holds; equal
users are pooled into types, so permuting 500,000 users costs what permuting 500 does.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.bootstrap import MIN_UNITS, Interval
from reply_resolution.stats.lattice import Floats, Ints
from reply_resolution.stats.permutation import (
    Alternative,
    Convention,
    PermutationTest,
    deal,
    drawn_test,
    ratio,
)

_CELLS = 2_000_000  # drawn numbers held at once


@dataclass(frozen=True, slots=True)
class Units:
    """Two arms' units, pooled by type.

    Attributes:
        control: What one unit of the type holds in control; shape (T, K).
        treatment: What it holds in the treatment; shape (T, K). Most units are in one
            arm only, so one of the two is all zero.
        number: Units of the type; shape (T,).
        stratum: Stratum of the type, 0 upward; shape (T,).
    """

    control: Ints
    treatment: Ints
    number: Ints
    stratum: Ints

    @property
    def sizes(self) -> tuple[int, int]:
        """Units with replies in control, and in the treatment."""
        return (
            int(self.number[self.control.sum(1) > 0].sum()),
            int(self.number[self.treatment.sum(1) > 0].sum()),
        )

    @property
    def crossing(self) -> int:
        """Units with replies in both arms."""
        both = (self.control.sum(1) > 0) & (self.treatment.sum(1) > 0)
        return int(self.number[both].sum())


@dataclass(frozen=True, slots=True)
class UnitEffect:
    """A difference between arms with users as units.

    Attributes:
        estimate: Treatment minus control, in the unit of the values.
        error: Its standard error, users independent (CR1, each arm by G / (G - 1)).
        df: Satterthwaite's degrees of freedom.
        interval: The t interval from these.
    """

    estimate: float
    error: float
    df: float
    interval: Interval


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
    swapped with probability one half.

    Args:
        units: The two arms.
        values: Value of each level; shape (K,).
        alternative: "greater": treatment above control.
        convention: Of the two-sided p-value.
        seed: Of the draws.
        resamples: Draws; by default 9,999, or 99,999 where these give 0.01 to 0.1.

    Raises:
        StatisticsError: An arm has fewer than 2 units.
    """
    _enough(units)
    engine = _Dealer.of(units, values)
    return drawn_test(
        engine.draw, engine.observed, alternative, convention, seed, resamples
    )


def unit_effect(
    units: Units,
    *,
    values: Floats,
    control_values: Floats | None = None,
    estimate: float | None = None,
    confidence: float = 0.95,
) -> UnitEffect:
    """Difference in means with a cluster-robust t interval.

    Args:
        units: The two arms.
        values: Value of each level; shape (K,).
        control_values: Value of each level in control, where it differs (placements of
            the win probability); `values` by default.
        estimate: What the interval is centred on, where it is not the difference.
        confidence: Nominal coverage, fraction.

    Raises:
        StatisticsError: An arm has fewer than 2 units.

    Source: Liang and Zeger 1986; for ranks Obuchowski 1997, Biometrics 53, 567-578.
    """
    from scipy.special import stdtrit

    _enough(units)
    values = np.asarray(values, dtype=float)
    values0 = values if control_values is None else np.asarray(control_values, float)
    strata = np.unique(units.stratum)
    total = int(units.number @ (units.control.sum(1) + units.treatment.sum(1)))
    difference = v0 = v1 = cross = 0.0
    used = 0
    g0 = g1 = 0
    for h in strata:
        here = units.stratum == h
        number = units.number[here].astype(float)
        c, t = units.control[here], units.treatment[here]
        n0, n1 = number @ c.sum(1), number @ t.sum(1)
        k0, k1 = number @ (c.sum(1) > 0), number @ (t.sum(1) > 0)
        if k0 < 2 or k1 < 2:
            continue
        weight = float(n0 + n1) / total
        mean0, mean1 = number @ (c @ values0) / n0, number @ (t @ values) / n1
        off0 = (c @ (values0 - mean0)) / n0 * sqrt(k0 / (k0 - 1))
        off1 = (t @ (values - mean1)) / n1 * sqrt(k1 / (k1 - 1))
        difference += weight * float(mean1 - mean0)
        v0 += weight**2 * float(number @ off0**2)
        v1 += weight**2 * float(number @ off1**2)
        cross += weight**2 * float(number @ (off0 * off1))
        used += int(n0 + n1)
        g0, g1 = g0 + int(k0), g1 + int(k1)
    if not used:
        raise StatisticsError("no stratum has 2 units or more in each arm.")
    share = used / total  # strata that lack an arm carry no comparison
    difference /= share
    variance = max(0.0, v0 + v1 - 2 * cross) / share**2
    center = difference if estimate is None else estimate
    name = "cluster-robust t (CR1)"
    least = min(units.sizes)
    if variance <= 1e-24:
        flat = Interval(center, center, name, False, "degenerate: no spread")
        return UnitEffect(center, 0.0, float(g0 + g1 - 2), flat)
    df = (v0 + v1) ** 2 / (v0 * v0 / (g0 - 1) + v1 * v1 / (g1 - 1))
    half = -float(stdtrit(df, (1 - confidence) / 2)) * sqrt(variance)
    reason = f"fewer than {MIN_UNITS} units in an arm" if least < MIN_UNITS else ""
    interval = Interval(center - half, center + half, name, not reason, reason)
    return UnitEffect(center, sqrt(variance), df, interval)


def _enough(units: Units) -> None:
    for name, size in zip(("control", "the treatment"), units.sizes, strict=True):
        if size < 2:
            raise StatisticsError(
                f"{name} has {size} unit{'s' if size != 1 else ''}: with users as the "
                "units each arm needs at least 2 of them (20 for a reliable interval). "
                "Collect more users, or compare rows and say so."
            )


@dataclass(frozen=True, slots=True)
class _Stratum:
    """One stratum ready to be dealt.

    `single` holds (units, replies, sum, sum^2, sum * replies, replies^2) of each
    one-arm type, `pool` how many units are of it, `dealt` how many go to treatment.
    `crossed` holds (n0, s0, n1, s1) of each type in both arms, `times` how many.
    """

    weight: float
    single: Floats
    pool: Ints
    dealt: int
    crossed: Floats
    times: Ints


@dataclass(frozen=True, slots=True)
class _Dealer:
    """Deals units to arms and studentizes; moments only, never units."""

    strata: tuple[_Stratum, ...]
    observed: float

    @classmethod
    def of(cls, units: Units, values: Ints) -> "_Dealer":
        strata, start = [], []
        total = int(units.number @ (units.control.sum(1) + units.treatment.sum(1)))
        for h in np.unique(units.stratum):
            here = units.stratum == h
            c, t, number = (
                units.control[here],
                units.treatment[here],
                units.number[here],
            )
            n0, n1, s0, s1 = c.sum(1), t.sum(1), c @ values, t @ values
            both = (n0 > 0) & (n1 > 0)
            keys, place = np.unique(
                np.stack([n0 + n1, s0 + s1], 1)[~both], axis=0, return_inverse=True
            )
            place = place.ravel()
            pool = np.bincount(place, weights=number[~both], minlength=len(keys))
            in_treatment = np.where(n1[~both] > 0, number[~both], 0)
            now = np.bincount(place, weights=in_treatment, minlength=len(keys))
            n, s = keys[:, 0].astype(float), keys[:, 1].astype(float)
            stratum = _Stratum(
                weight=int(number @ (n0 + n1)) / total,
                single=np.stack([np.ones_like(n), n, s, s * s, s * n, n * n], 1),
                pool=np.rint(pool).astype(np.int64),
                dealt=round(float(now.sum())),
                crossed=np.stack([n0, s0, n1, s1], 1)[both].astype(float),
                times=number[both],
            )
            strata.append(stratum)
            start.append((now[None], number[both].astype(float)[None]))
        engine = cls(tuple(strata), 0.0)
        return cls(engine.strata, float(engine._statistic(start)[0]))

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        width = max(1, max(len(s.pool) + len(s.times) for s in self.strata))
        rows = max(1, _CELLS // width)
        out = np.empty(size)
        for first in range(0, size, rows):
            n = min(rows, size - first)
            drawn = []
            for s in self.strata:
                x = (
                    deal(rng, s.pool, s.dealt, n).astype(float)
                    if len(s.pool)
                    else np.zeros((n, 0))
                )
                kept = rng.binomial(s.times, 0.5, (n, len(s.times))).astype(float)
                drawn.append((x, kept))
            out[first : first + n] = self._statistic(drawn)
        return out

    def _statistic(self, drawn: list[tuple[Floats, Floats]]) -> Floats:
        """From units of each type in treatment, and crossed units left as found."""
        size = len(drawn[0][0])
        difference, variance, used = np.zeros(size), np.zeros(size), np.zeros(size)
        for s, (x, kept) in zip(self.strata, drawn, strict=True):
            one = x @ s.single
            zero = s.pool @ s.single - one
            g0, n0, s0, ss0, sn0, nn0 = zero.T
            g1, n1, s1, ss1, sn1, nn1 = one.T
            n0, n1, s0, s1, g0, g1 = (v.copy() for v in (n0, n1, s0, s1, g0, g1))
            if len(s.times):
                a, b = s.crossed[:, :2], s.crossed[:, 2:]
                turned = s.times - kept
                n0, s0 = (
                    n0 + kept @ a[:, 0] + turned @ b[:, 0],
                    s0 + kept @ a[:, 1] + turned @ b[:, 1],
                )
                n1, s1 = (
                    n1 + kept @ b[:, 0] + turned @ a[:, 0],
                    s1 + kept @ b[:, 1] + turned @ a[:, 1],
                )
                g0, g1 = g0 + s.times.sum(), g1 + s.times.sum()
            with np.errstate(divide="ignore", invalid="ignore"):
                m0, m1 = s0 / n0, s1 / n1
                f0, f1 = g0 / (g0 - 1), g1 / (g1 - 1)
                v = (ss1 - 2 * m1 * sn1 + m1 * m1 * nn1) * f1 / n1**2
                v = v + (ss0 - 2 * m0 * sn0 + m0 * m0 * nn0) * f0 / n0**2
                if len(s.times):
                    v = v + self._crossed(s, kept, (m0, m1), (n0, n1), (f0, f1))
            fine = (g0 > 1) & (g1 > 1)
            difference += np.where(fine, s.weight * (m1 - m0), 0.0)
            variance += np.where(fine, s.weight**2 * np.maximum(v, 0.0), 0.0)
            used += np.where(fine, s.weight, 0.0)
        return ratio(difference, np.sqrt(variance))

    @staticmethod
    def _crossed(
        s: _Stratum,
        kept: Floats,
        means: tuple[Floats, Floats],
        sizes: tuple[Floats, Floats],
        factors: tuple[Floats, Floats],
    ) -> Floats:
        """Variance that units in both arms add, their two sides being dependent."""
        out = np.zeros(len(kept))
        scale0, scale1 = np.sqrt(factors[0]) / sizes[0], np.sqrt(factors[1]) / sizes[1]
        for k, (na, sa, nb, sb) in enumerate(s.crossed):
            for share, (n0, s0, n1, s1) in (
                (kept[:, k], (na, sa, nb, sb)),
                (s.times[k] - kept[:, k], (nb, sb, na, sa)),
            ):
                off = (s1 - means[1] * n1) * scale1 - (s0 - means[0] * n0) * scale0
                out += share * off**2
        return out


def paired_unit_effect(
    vectors: Ints, number: Ints, values: Ints, *, confidence: float = 0.95
) -> UnitEffect:
    """Mean over pairs with users (of several pairs) as units, and its t interval.

    Args:
        vectors: Pairs of one unit of the type by control's and treatment's level;
            shape (T, K, K).
        number: Units of the type; shape (T,).
        values: What a pair counts, by the two levels; shape (K, K).
        confidence: Nominal coverage, fraction.

    Raises:
        StatisticsError: There are fewer than 2 units.
    """
    from scipy.special import stdtrit

    units = int(number.sum())
    if units < 2:
        raise StatisticsError(
            f"{units} unit with pairs: with users as the units at least 2 are needed."
        )
    sizes, sums = vectors.sum((1, 2)), (vectors * values).sum((1, 2))
    total = float(number @ sizes)
    estimate = float(number @ sums) / total
    off = (sums - estimate * sizes) / total
    error = sqrt(float(number @ off**2) * units / (units - 1))
    name = "cluster-robust t (CR1)"
    if error <= 1e-12:
        flat = Interval(estimate, estimate, name, False, "degenerate: no spread")
        return UnitEffect(estimate, 0.0, units - 1.0, flat)
    half = -float(stdtrit(units - 1, (1 - confidence) / 2)) * error
    reason = f"fewer than {MIN_UNITS} units" if units < MIN_UNITS else ""
    interval = Interval(estimate - half, estimate + half, name, not reason, reason)
    return UnitEffect(estimate, error, units - 1.0, interval)

"""Users as the units: differences between arms and their cluster-robust intervals.

Replies of one user resemble each other, so what is independent is the user. Equal users
are pooled into types, so 500,000 cost what 500 do.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Bools, Floats, Ints
from reply_resolution.stats.binary_designs import (
    clustered_rate_difference,
    tango_interval,
)
from reply_resolution.stats.bootstrap import (
    MIN_UNITS,
    Interval,
    few_units,
    near_constant,
    unseen_variance,
)
from reply_resolution.stats.effects import placements
from reply_resolution.stats.quantiles import critical
from reply_resolution.stats.strata import stratified_rate_interval


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
        left_out: Replies in strata with fewer than 2 units in an arm, which carry no
            comparison.
    """

    estimate: float
    error: float
    df: float
    interval: Interval
    left_out: int = 0


def unit_effect(
    units: Units,
    *,
    values: Floats,
    confidence: float = 0.95,
) -> UnitEffect:
    """Difference in means with a cluster-robust t interval.

    Args:
        units: The two arms.
        values: Value of each level; shape (K,).
        confidence: Nominal coverage, fraction.

    Raises:
        StatisticsError: An arm has fewer than 2 units.

    Source: Liang and Zeger 1986.
    """
    values = np.asarray(values, dtype=float)
    found = _unit_effect(units, lambda c, t: (values, values), confidence)
    unseen = sum(
        unseen_variance(units.number @ side, values)
        for side in (units.control, units.treatment)
    )
    return _marked(found, near_constant(unseen, found.error**2))


def _marked(effect: UnitEffect, reason: str) -> UnitEffect:
    """The effect with its interval marked as not reliable, if there is a reason."""
    if not reason or not effect.interval.reliable:
        return effect
    return replace(
        effect, interval=replace(effect.interval, reliable=False, reason=reason)
    )


def unit_rate_effect(
    units: Units, *, high: Bools, confidence: float = 0.95
) -> UnitEffect:
    """Difference in the share resolved, users independent.

    Args:
        units: The two arms.
        high: Which levels count as resolved; shape (K,), true or false.
        confidence: Nominal coverage, fraction.

    Returns:
        The effect with the interval of `clustered_rate_difference`, as everywhere; with
        strata or users in both arms, which it does not know, the cluster-robust one.
        Where all users have one rate, so that nothing can be measured, that would have
        width 0: then as many replies count as if all of a user's were copies of one.

    Raises:
        StatisticsError: An arm has fewer than 2 units.
    """
    found = unit_effect(units, values=high.astype(float), confidence=confidence)
    reason = few_units(min(units.sizes))
    if not units.crossing and len(np.unique(units.stratum)) == 1:
        sides = []
        for side in (units.treatment, units.control):
            held = side.sum(1) > 0
            every = np.repeat(side[held], units.number[held], axis=0)
            sides += [every @ high, every.sum(1)]
        rate = clustered_rate_difference(*sides, confidence=confidence)
        interval = Interval(rate.low, rate.high, rate.method, not reason, reason)
        return replace(found, interval=interval)
    if found.error > 0:
        return replace(found, interval=_inside(found.interval, -1.0, 1.0))
    tables, totals = [], []
    for h in np.unique(units.stratum):
        here = units.stratum == h
        number = units.number[here].astype(float)
        row: list[float] = []
        for side in (units.treatment[here], units.control[here]):
            sizes = side.sum(1)
            if number @ (sizes > 0) < 2:
                break
            alike = float(number @ sizes**2) / float(number @ sizes)
            row += [float(number @ (side @ high)) / alike, number @ sizes / alike]
        else:
            tables.append((row[0], row[1], row[2], row[3]))
            totals.append(
                float(number @ (units.control[here] + units.treatment[here]).sum(1))
            )
    low, up, _ = stratified_rate_interval(
        tables, np.array(totals) / sum(totals), confidence=confidence
    )
    interval = Interval(low, up, "Miettinen-Nurminen, alike users", not reason, reason)
    return replace(found, interval=interval)


def _inside(interval: Interval, low: float, high: float) -> Interval:
    ends = [None if e is None else min(high, max(low, e)) for e in interval.ends]
    return replace(interval, low=ends[0], high=ends[1])


def unit_win_probability(units: Units, *, confidence: float = 0.95) -> UnitEffect:
    """Win probability of replies, users independent, within strata.

    Args:
        units: The two arms.
        confidence: Nominal coverage, fraction.

    Returns:
        Probability that a treatment reply scores above a control reply of the same
        stratum, ties half; fraction. Its interval is kept within 0 and 1.

    Raises:
        StatisticsError: An arm has fewer than 2 units.

    Source: Obuchowski 1997, Biometrics 53, 567-578.
    """
    found = _unit_effect(units, lambda c, t: (placements(t), placements(c)), confidence)
    # Each arm's mean placement: the win probability w, and 1 - w.
    estimate = (found.estimate + 1) / 2
    ends = [
        None if e is None else min(1.0, max(0.0, e + estimate - found.estimate))
        for e in found.interval.ends
    ]
    interval = replace(found.interval, low=ends[0], high=ends[1])
    return replace(found, estimate=estimate, interval=interval)


def _unit_effect(
    units: Units,
    values_of: Callable[[Floats, Floats], tuple[Floats, Floats]],
    confidence: float,
) -> UnitEffect:
    """From the value of each level in control and treatment, given both's counts."""
    check_units(units)
    total = int(units.number @ (units.control.sum(1) + units.treatment.sum(1)))
    difference = v0 = v1 = cross = 0.0
    used = g0 = g1 = 0
    for h in np.unique(units.stratum):
        here = units.stratum == h
        number = units.number[here].astype(float)
        c, t = units.control[here], units.treatment[here]
        n0, n1 = number @ c.sum(1), number @ t.sum(1)
        k0, k1 = number @ (c.sum(1) > 0), number @ (t.sum(1) > 0)
        if k0 < 2 or k1 < 2:
            continue
        weight = float(n0 + n1) / total
        values0, values = values_of(number @ c, number @ t)
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
    df = float(g0 + g1 - 2)
    if v0 + v1 > 0:
        df = (v0 + v1) ** 2 / (v0 * v0 / (g0 - 1) + v1 * v1 / (g1 - 1))
    reason = few_units(min(units.sizes))
    found = _t_effect(difference, sqrt(variance), df, confidence, reason)
    return replace(found, left_out=total - used)


def _t_effect(
    estimate: float, error: float, df: float, confidence: float, reason: str
) -> UnitEffect:
    name = "cluster-robust t (CR1)"
    if error <= 1e-12:
        flat = Interval(estimate, estimate, name, False, "degenerate: no spread")
        return UnitEffect(estimate, 0.0, df, flat)
    half = critical(confidence, df) * error
    interval = Interval(estimate - half, estimate + half, name, not reason, reason)
    return UnitEffect(estimate, error, df, interval)


def check_units(units: Units) -> None:
    """Refuse inference from a single unit, with what to do instead."""
    for name, size in zip(("control", "the treatment"), units.sizes, strict=True):
        if size < 2:
            raise StatisticsError(
                f"{name} has {size} unit{'s' if size != 1 else ''}: with users as the "
                "units each arm needs at least 2 of them (20 for a reliable interval). "
                "Collect more users, or compare rows and say so."
            )


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
    reason = f"fewer than {MIN_UNITS} units" if units < MIN_UNITS else ""
    found = _t_effect(estimate, error, units - 1.0, confidence, reason)
    unseen = unseen_variance(np.tensordot(number, vectors, 1), values)
    return _marked(found, near_constant(unseen, error**2))


def paired_unit_rate(
    vectors: Ints, number: Ints, gain: Ints, *, confidence: float = 0.95
) -> UnitEffect:
    """Difference in the share resolved over pairs, users (of several) independent.

    Args:
        vectors: As for `paired_unit_effect`.
        number: As for `paired_unit_effect`.
        gain: 1 where treatment alone resolved, -1 where control alone, else 0; (K, K).
        confidence: Nominal coverage, fraction.

    Returns:
        The cluster-robust effect; where all users have one difference, with Tango's
        interval from as many pairs as if all of a user's were copies of one.
    """
    found = paired_unit_effect(vectors, number, gain, confidence=confidence)
    if found.error > 0:
        return replace(found, interval=_inside(found.interval, -1.0, 1.0))
    sizes = vectors.sum((1, 2))
    n = float(number @ sizes)
    alike = float(number @ sizes**2) / n
    up, down = (
        float(number @ (vectors * (gain == side)).sum((1, 2))) for side in (1, -1)
    )
    low, high = tango_interval(
        up / alike, down / alike, n / alike, confidence=confidence
    )
    reason = f"fewer than {MIN_UNITS} units" if number.sum() < MIN_UNITS else ""
    interval = Interval(low, high, "Tango, alike users", not reason, reason)
    return replace(found, interval=interval)

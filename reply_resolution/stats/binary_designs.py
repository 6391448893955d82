"""Resolved rates where replies are not independent: users as units, and pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
import math

import numpy as np
from numpy.typing import NDArray

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary import (
    RateDifference,
    check_confidence,
    inverted,
    rate_difference,
    score_interval,
    score_statistic,
)
from reply_resolution.stats.counts import ScoreCounts, UnitCounts, joint_table
from reply_resolution.stats.exact2x2 import check_counts
from reply_resolution.stats.quantiles import critical, two_sided


def clustered_rate_difference(
    resolved1: Sequence[int] | NDArray[np.int64],
    sizes1: Sequence[int] | NDArray[np.int64],
    resolved0: Sequence[int] | NDArray[np.int64],
    sizes0: Sequence[int] | NDArray[np.int64],
    *,
    confidence: float = 0.95,
) -> RateDifference:
    """Compare two resolved rates where users, not replies, were randomised.

    A user's replies resemble each other, so they carry less information than as many
    independent ones. The design effect (how much less) is measured from the users,
    the counts are divided by it, and the Miettinen-Nurminen interval and score test
    are used with a t quantile with (users - 2) degrees of freedom. So the interval
    stays within -1 and 1 and works with rates of 0 and 1, and it excludes 0 exactly
    where the p-value is below 1 - confidence.

    Args:
        resolved1: Resolved replies of each treatment user, shape (users,).
        sizes1: Scored replies of each treatment user, each 1 or more.
        resolved0: The same for control.
        sizes0: The same for control.
        confidence: Nominal coverage, fraction.

    Raises:
        StatisticsError: Fewer than two users in an arm, or counts that do not fit.

    Source: Rao and Scott 1992 (effective counts); Miettinen and Nurminen 1985.

    >>> d = clustered_rate_difference([2, 0, 3, 1], [2, 2, 3, 1], [0, 1, 0, 2],
    ...                               [2, 1, 3, 2])
    >>> round(d.estimate, 3), round(d.design_effect, 2)
    (0.375, 2.73)
    """
    check_confidence(confidence)
    arms = []
    for arm, resolved, sizes in (
        ("treatment", resolved1, sizes1),
        ("control", resolved0, sizes0),
    ):
        x, n = np.asarray(resolved), np.asarray(sizes)
        if len(n) < 2 or len(x) != len(n):
            raise StatisticsError(
                f"{arm} has {len(n)} users with a score; comparing users needs two or "
                "more in each arm. Collect more users, or show the rates alone."
            )
        if (n < 1).any() or (x < 0).any() or (x > n).any():
            raise StatisticsError(
                f"{arm} has a user with more resolved than scored replies, or none "
                "scored; leave users without scores out."
            )
        arms.append((x.astype(float), n.astype(float)))
    (x1, n1), (x0, n0) = arms
    users = len(n1) + len(n0)
    effect = _rate_design_effect([(x1, n1), (x0, n0)])
    degrees = users - 2
    t = critical(confidence, degrees)
    e1, m1, e0, m0 = (float(a.sum()) / effect for a in (x1, n1, x0, n0))
    low, high = score_interval(e1, m1, e0, m0, z=t, corrected=False)
    z = score_statistic(e1, m1, e0, m0, 0.0, corrected=False)
    p = two_sided(z, degrees)
    notes = []
    smallest = min(len(n1), len(n0))
    if smallest < 10:
        notes.append(
            f"an arm has only {smallest} users: the interval rests on a measured "
            "design effect that is itself rough; take it as unreliable below 10."
        )
    return RateDifference(
        estimate=float(x1.sum() / n1.sum() - x0.sum() / n0.sum()),
        low=low,
        high=high,
        confidence=confidence,
        method="miettinen-nurminen, users as units",
        pvalue=min(1.0, p),
        pvalue_method="score, users as units",
        rate_treatment=float(x1.sum() / n1.sum()),
        rate_control=float(x0.sum() / n0.sum()),
        n_treatment=int(n1.sum()),
        n_control=int(n0.sum()),
        design_effect=effect,
        warnings=tuple(notes),
    )


def _rate_design_effect(
    arms: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> float:
    """Variance of the difference with users as units over that with replies as units.

    Never below 1 (a measured value below 1 is luck, and would narrow the interval),
    and, where a rate is 0 or 1 in both arms and nothing can be measured, as large as
    it can be: each user's replies all alike.
    """
    with_users = with_replies = alike = 0.0
    for x, n in arms:
        rate = x.sum() / n.sum()
        g = len(n)
        residual = x - rate * n
        with_users += g / (g - 1) * float((residual**2).sum()) / n.sum() ** 2
        with_replies += rate * (1 - rate) / n.sum()
        alike += float((n**2).sum() / n.sum()) / len(arms)
    if with_replies <= 0:
        return alike
    return max(1.0, float(with_users / with_replies))


@dataclass(frozen=True, slots=True)
class PairedRates:
    """Two resolved rates on the same requests.

    Attributes:
        estimate: Treatment rate minus control rate over the pairs, fraction.
        low: Lower end of the interval, same unit.
        high: Upper end, same unit.
        confidence: Nominal coverage, fraction.
        pvalue: Exact McNemar p-value, two-sided, fraction.
        midp: Its mid-p version (less conservative), fraction.
        treatment_only: Pairs in which only the treatment reply resolved.
        control_only: Pairs in which only the control reply resolved.
        n: Pairs with both scores.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    pvalue: float
    midp: float
    treatment_only: int
    control_only: int
    n: int


def mcnemar(
    treatment_only: int, control_only: int, n: int, *, confidence: float = 0.95
) -> PairedRates:
    """Compare two resolved rates measured on the same requests.

    Null hypothesis: a pair that disagrees favours either arm with probability 1/2;
    pairs that agree carry no information. The p-value is exact (binomial, doubled);
    the interval is Tango's score interval.

    Args:
        treatment_only: Pairs in which only the treatment reply resolved.
        control_only: Pairs in which only the control reply resolved.
        n: All pairs, at least the sum of both.
        confidence: Nominal coverage, fraction.

    Raises:
        StatisticsError: Counts that are not whole or exceed `n`, or no pair.

    Source: McNemar 1947; Tango 1998.

    >>> pairs = mcnemar(9, 2, 80)
    >>> round(pairs.estimate, 4), round(pairs.pvalue, 4)
    (0.0875, 0.0654)
    """
    check_counts(treatment_only, n, control_only, n)
    if treatment_only + control_only > n:
        raise StatisticsError(
            f"{treatment_only} and {control_only} disagreeing pairs are more than the "
            f"{n} pairs there are."
        )
    check_confidence(confidence)
    from scipy.special import bdtr

    b, c = int(treatment_only), int(control_only)
    k, m = min(b, c), b + c
    tail = float(bdtr(k, m, 0.5)) if m else 1.0
    at = tail - float(bdtr(k - 1, m, 0.5)) if k else 0.5**m
    low, high = tango_interval(b, c, n, confidence=confidence)
    return PairedRates(
        estimate=(b - c) / n,
        low=low,
        high=high,
        confidence=confidence,
        pvalue=min(1.0, 2 * tail),
        midp=min(1.0, 2 * tail - at) if m else 1.0,
        treatment_only=b,
        control_only=c,
        n=int(n),
    )


def tango_interval(
    b: float, c: float, n: float, *, confidence: float
) -> tuple[float, float]:
    """Score interval of (b - c) / n, pairs for treatment and for control of n pairs.

    It has width where no pair disagrees. Counts may be fractional (effective counts).

    Source: Tango 1998, Statistics in Medicine 17, 891-908.
    """
    z = critical(confidence)
    return inverted(lambda d: _tango(b, c, n, d), (b - c) / n, z)


def _tango(b: float, c: float, n: float, d: float) -> float:
    """Score statistic of "the paired difference is d"."""
    linear = -b - c + (2 * n - b + c) * d
    constant = -c * d * (1 - d)
    root = math.sqrt(max(0.0, linear**2 - 8 * n * constant))
    control_only = max(0.0, (root - linear) / (4 * n))
    variance = n * (2 * control_only + d * (1 - d))
    gap = b - c - n * d
    if variance <= 1e-12:
        return 0.0 if abs(gap) < 1e-9 else math.copysign(math.inf, gap)
    return gap / math.sqrt(variance)


def rates_at_cut(
    counts: ScoreCounts, control: str, treatment: str, cut: int, confidence: float
) -> RateDifference:
    """The binary comparison at one cut, as the design demands it."""
    high = counts.levels >= cut
    if counts.design == "paired":
        table = joint_table(counts, *map(counts.arms.index, (control, treatment)))
        n = int(table.sum())
        if n == 0:
            raise StatisticsError("no request was answered and scored in both arms.")
        pairs = mcnemar(
            int(table[np.ix_(~high, high)].sum()),
            int(table[np.ix_(high, ~high)].sum()),
            n,
            confidence=confidence,
        )
        base = float(table[high].sum()) / n
        return RateDifference(
            estimate=pairs.estimate,
            low=pairs.low,
            high=pairs.high,
            confidence=confidence,
            method="tango",
            pvalue=pairs.pvalue,
            pvalue_method="mcnemar",
            rate_treatment=base + pairs.estimate,
            rate_control=base,
            n_treatment=n,
            n_control=n,
        )
    for name in (treatment, control):
        if counts.of(name).sum() == 0:
            raise StatisticsError(
                f"arm {name!r} has no scored replies; there is no rate to compare. "
                "Check its verdicts' statuses first."
            )
    if counts.design == "clustered" and counts.units is not None:
        x1, n1 = _users(counts.units, counts.arms.index(treatment), high)
        x0, n0 = _users(counts.units, counts.arms.index(control), high)
        return clustered_rate_difference(x1, n1, x0, n0, confidence=confidence)
    t, c = counts.of(treatment), counts.of(control)
    resolved = int(t[high].sum()), int(c[high].sum())
    return rate_difference(
        resolved[0], int(t.sum()), resolved[1], int(c.sum()), confidence=confidence
    )


def _users(
    units: UnitCounts, arm: int, high: NDArray[np.bool_]
) -> tuple[list[int], list[int]]:
    """Resolved and scored replies of every user of one arm."""
    vectors = np.repeat(units.vectors[:, arm], units.number, axis=0)
    vectors = vectors[vectors.sum(axis=1) > 0]
    return vectors[:, high].sum(axis=1).tolist(), vectors.sum(axis=1).tolist()

"""Resolved rates where replies are not independent: users as units, and pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
import math

import numpy as np
from numpy.typing import NDArray

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary import RateDifference, check_confidence
from reply_resolution.stats.exact2x2 import check_counts
from reply_resolution.stats.power_formulas import normal_power
from reply_resolution.stats.score_interval import score_interval, score_statistic


def clustered_rate_difference(
    resolved1: Sequence[int],
    sizes1: Sequence[int],
    resolved0: Sequence[int],
    sizes0: Sequence[int],
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
    from scipy.special import stdtr, stdtrit

    t = float(stdtrit(degrees, 0.5 + confidence / 2))
    sums = (
        x1.sum() / effect,
        n1.sum() / effect,
        x0.sum() / effect,
        n0.sum() / effect,
    )
    low, high = score_interval(*sums, z=t, corrected=False)
    z = score_statistic(*sums, 0.0, corrected=False)
    p = 2 * float(stdtr(degrees, -abs(z))) if math.isfinite(z) else 0.0
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
    from scipy.special import bdtr, ndtri

    b, c = int(treatment_only), int(control_only)
    k, m = min(b, c), b + c
    tail = float(bdtr(k, m, 0.5)) if m else 1.0
    at = (
        math.comb(m, k) / 2**m
        if m < 1000
        else float(bdtr(k, m, 0.5) - (bdtr(k - 1, m, 0.5) if k else 0.0))
    )
    z = float(ndtri(0.5 + confidence / 2))
    estimate = (b - c) / n

    def crossing(low: float, high: float, target: float) -> float:
        for _ in range(60):
            middle = (low + high) / 2
            if _tango(b, c, n, middle) > target:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    return PairedRates(
        estimate=estimate,
        low=-1.0 if estimate <= -1 else crossing(-1.0, estimate, z),
        high=1.0 if estimate >= 1 else crossing(estimate, 1.0, -z),
        confidence=confidence,
        pvalue=min(1.0, 2 * tail),
        midp=min(1.0, 2 * (tail - at / 2)) if m else 1.0,
        treatment_only=b,
        control_only=c,
        n=int(n),
    )


def _tango(b: int, c: int, n: int, d: float) -> float:
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


def paired_power(
    effect: float,
    mean_square: float,
    discordant: float,
    rate_effect: float,
    n: int,
    *,
    alpha: float = 0.05,
) -> tuple[float, float]:
    """Power of both analyses of pairs: sign flips of the scores, exact McNemar.

    Args:
        effect: Assumed difference in mean score, points.
        mean_square: Mean squared difference within a pair, arm-blind.
        discordant: Share of pairs in which exactly one reply resolved.
        rate_effect: The effect as a difference in share resolved, fraction.
        n: Pairs.
        alpha: Two-sided error rate, fraction.

    Returns:
        Power of the ordinal (normal limit) and of the binary analysis (enumerated up
        to 2,000 pairs, normal limit above), fractions.
    """
    ordinal = normal_power(
        effect,
        math.sqrt((mean_square + effect**2) / n),
        math.sqrt(mean_square / n),
        alpha,
    )
    # An effect needs at least as many discordant pairs as it turns.
    q = min(1.0, max(discordant, abs(rate_effect)))
    if q == 0:
        return ordinal, 0.0
    if n > 2000:
        real = math.sqrt(max(0.0, q - rate_effect**2) / n)
        return ordinal, normal_power(rate_effect, math.sqrt(q / n), real, alpha)
    from scipy.special import bdtr, bdtrc

    favours = (q + rate_effect) / (2 * q)
    pairs = np.arange(n + 1)
    shares = np.diff(bdtr(pairs, n, q), prepend=0.0)  # of m discordant pairs
    total = 0.0
    for m, weight in zip(pairs[1:], shares[1:], strict=True):
        if weight < 1e-12:
            continue
        tails = 2 * bdtr(np.arange(m // 2 + 1), int(m), 0.5)
        reject = int((tails <= alpha).sum()) - 1
        if reject >= 0:
            total += float(weight) * float(
                bdtr(reject, int(m), favours) + bdtrc(m - reject - 1, int(m), favours)
            )
    return ordinal, total

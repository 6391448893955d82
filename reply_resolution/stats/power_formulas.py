"""Power by formula, for one analysis at a time.

Everything is for an effect that is *assumed*. Power for the effect that was observed
is only the p-value again in other clothes, and is not offered.
"""

import math

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Floats, Ints
from reply_resolution.stats.exact2x2 import boschloo_power
from reply_resolution.stats.power_assumptions import Shares, level_shares, levels

#: Up to this many replies an arm the binary power is enumerated, not approximated.
EXACT_UP_TO = 150
#: Up to this many the ordinal power is drawn: the limit fails near the scale's ends.
DRAWN_UP_TO = 100
_DRAWS = 10_000
#: Expected points by which all pairs differ, up to which their power is drawn.
DRAWN_STEPS = 150


def ordinal_power(
    control: Shares,
    treatment: Shares,
    n: float,
    *,
    n_treatment: float | None = None,
    alpha: float = 0.05,
    design_effect: float = 1.0,
) -> float:
    """Power of the two-sided permutation test of the difference in mean score.

    Up to 100 (effective) replies an arm from 10,000 experiments drawn with a fixed
    seed, each tested by the permutation variance with a continuity correction; above,
    by the normal limit of the same. Against simulation with the exact test: 0.9 points
    apart in the median from 20 replies an arm up (RESULTS_binary.md).

    Args:
        control: Share of each level in control.
        treatment: Share of each level in treatment.
        n: Replies in control, above 1.
        n_treatment: Replies in treatment; as many as in control when left out.
        alpha: Two-sided error rate, fraction.
        design_effect: Variance with users as units over that of as many independent
            replies, 1 or more.

    Returns:
        The probability to find a difference (in either direction), fraction.
    """
    p0, p1 = level_shares(control), level_shares(treatment)
    n1 = n if n_treatment is None else n_treatment
    scores = levels(p0, 1)  # the mean difference does not depend on where they start
    n0, n1 = n / design_effect, n1 / design_effect
    if max(n0, n1) <= DRAWN_UP_TO:
        return _drawn_power(p0, p1, max(1, round(n0)), max(1, round(n1)), alpha, scores)
    m0, m1 = float((p0 * scores).sum()), float((p1 * scores).sum())
    v0 = float((p0 * scores**2).sum()) - m0**2
    v1 = float((p1 * scores**2).sum()) - m1**2
    total = n0 + n1
    pooled = (n0 * v0 + n1 * v1) / total + n0 * n1 * (m1 - m0) ** 2 / total**2
    return normal_power(
        m1 - m0,
        math.sqrt(pooled * (1 / n0 + 1 / n1)),
        math.sqrt(v0 / n0 + v1 / n1),
        alpha,
        # in replies, not effective ones: users don't make the sums any coarser
        _half_step(n0, n1) / design_effect,
    )


def _half_step(n0: float, n1: float) -> float:
    """Half a step of the mean difference when one score moves by one level.

    The exact test counts the observed result in full, so it rejects that much later
    than the limit says; without it power is 2 to 4 points too high up to 100 an arm.
    """
    return (n0 + n1) / (2 * n0 * n1)


def _drawn_power(
    p0: Floats, p1: Floats, n0: int, n1: int, alpha: float, scores: Floats
) -> float:
    """Power from drawn experiments: the limit fails near the ends of the scale."""
    from scipy.special import ndtri

    rng = np.random.default_rng(0)
    a, b = rng.multinomial(n0, p0, _DRAWS), rng.multinomial(n1, p1, _DRAWS)
    total = n0 + n1
    pooled = (a + b) / total
    variance = pooled @ scores**2 - (pooled @ scores) ** 2
    error = np.sqrt(np.maximum(variance, 0) * (1 / n0 + 1 / n1) * total / (total - 1))
    difference = np.abs(b @ scores / n1 - a @ scores / n0)
    late = difference - _half_step(n0, n1)
    limit = float(ndtri(1 - alpha / 2))
    return float(((late > limit * error - 1e-12) & (difference > 1e-9)).mean())


def binary_power(
    rate_control: float,
    rate_treatment: float,
    n: float,
    *,
    n_treatment: float | None = None,
    alpha: float = 0.05,
    design_effect: float = 1.0,
) -> float:
    """Power of the two-sided test of two resolved rates.

    Boschloo's test, enumerated, up to 150 (effective) replies an arm; the normal
    limit of the score test above.

    Args:
        rate_control: True share resolved in control, fraction 0 to 1.
        rate_treatment: The same in treatment.
        n: Replies in control, above 1.
        n_treatment: Replies in treatment; as many as in control when left out.
        alpha: Two-sided error rate, fraction.
        design_effect: See `ordinal_power`.

    Returns:
        The probability to find a difference (in either direction), fraction.
    """
    n1 = n if n_treatment is None else n_treatment
    n0, n1 = n / design_effect, n1 / design_effect
    if max(n0, n1) <= EXACT_UP_TO:
        whole0, whole1 = max(1, round(n0)), max(1, round(n1))
        return boschloo_power(rate_treatment, whole1, rate_control, whole0, alpha=alpha)
    p0, p1 = rate_control, rate_treatment
    pooled = (n0 * p0 + n1 * p1) / (n0 + n1)
    under_null = math.sqrt(pooled * (1 - pooled) * (1 / n0 + 1 / n1))
    real = math.sqrt(p0 * (1 - p0) / n0 + p1 * (1 - p1) / n1)
    return normal_power(p1 - p0, under_null, real, alpha)


def normal_power(
    difference: float,
    under_null: float,
    real: float,
    alpha: float,
    late: float = 0.0,
) -> float:
    """Power of a two-sided z test whose spread differs under null and alternative.

    `under_null` is the standard error the test uses, `real` that of the estimate,
    `late` a continuity correction in the unit of the difference.
    """
    from scipy.special import ndtr, ndtri

    limit = float(ndtri(1 - alpha / 2)) * under_null + late
    if real <= 0:  # both arms constant: the outcome is certain
        return float(abs(difference) > limit)
    return float(ndtr((difference - limit) / real) + ndtr((-difference - limit) / real))


def paired_power(
    effect: float,
    steps: Shares,
    discordant: float,
    rate_effect: float,
    n: int,
    *,
    alpha: float = 0.05,
) -> tuple[float, float]:
    """Power of both analyses of pairs: sign flips of the scores, exact McNemar.

    How far pairs differ is kept as in the pilot and only the directions are tilted (by
    the same odds for every point): McNemar's test and sign flips condition on it.

    Args:
        effect: Assumed difference in mean score, points.
        steps: Share of pairs whose scores are 0, 1, 2, ... points apart, arm-blind.
        discordant: Share of pairs in which exactly one reply resolved.
        rate_effect: The effect as a difference in share resolved, fraction.
        n: Pairs.
        alpha: Two-sided error rate, fraction.

    Returns:
        Power of the ordinal analysis (10,000 drawn experiments, each tested exactly,
        while pairs differ by at most 150 points in all; then the normal limit) and of
        the binary one (enumerated up to 2,000 pairs, then the limit), fractions.
    """
    up, down = _tilted(np.asarray(steps, dtype=float), effect)
    sizes = np.arange(1, len(up) + 1)
    if n * float((up + down) @ sizes) <= DRAWN_STEPS:
        shares = np.concatenate([up, down, [max(0.0, 1 - up.sum() - down.sum())]])
        drawn = np.random.default_rng(0).multinomial(n, shares / shares.sum(), _DRAWS)
        ups, downs = drawn[:, : len(up)], drawn[:, len(up) : -1]
        pvalues = _sign_flips(ups + downs, (ups - downs) @ sizes, sizes)
        ordinal = float((pvalues <= alpha + 1e-12).mean())
    else:
        mean, square = float((up - down) @ sizes), float((up + down) @ sizes**2)
        real = math.sqrt(max(0.0, square - mean**2) / n)
        ordinal = normal_power(mean, math.sqrt(square / n), real, alpha, 1 / n)
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


def _sign_flips(moved: Ints, sums: Ints, sizes: Ints) -> Floats:
    """Exact two-sided sign-flip p-values of many experiments at once.

    A flipped sum is one of independent +-size, so its characteristic function is a
    product of cosines; inverted on a grid that holds every sum.

    Args:
        moved: Pairs that are 1, 2, ... points apart, either way; shape (M, S).
        sums: Points up minus points down; shape (M,).
        sizes: 1, 2, ...; shape (S,).
    """
    reach = int((moved @ sizes).max(initial=0))
    width = 2 ** (2 * reach + 1).bit_length()
    angles = 2 * np.pi * np.arange(width // 2 + 1) / width
    powers = np.arange(int(moved.max(initial=0)) + 1)[:, None]
    tables, place = np.unique(moved, axis=0, return_inverse=True)
    place, far = place.ravel(), np.abs(sums)
    pvalues = np.ones(len(sums))
    for first in range(0, len(tables), 1000):
        part = tables[first : first + 1000]
        wave = np.ones((len(part), len(angles)))
        for size, times in zip(sizes, part.T, strict=True):
            wave *= (np.cos(size * angles) ** powers)[times]
        chance = np.fft.irfft(wave, width, axis=1)[:, : reach + 1]
        tail = 2 * np.cumsum(chance[:, ::-1], axis=1)[:, ::-1]
        here = (place >= first) & (place < first + 1000) & (far > 0)
        pvalues[here] = tail[place[here] - first, far[here]]
    return pvalues


def _tilted(steps: Floats, effect: float) -> tuple[Floats, Floats]:
    """Shares of pairs 1, 2, ... points up and down, with the effect as their mean."""
    moved, sizes = steps[1:], np.arange(1, len(steps))
    reach = float(moved @ sizes)
    if abs(effect) >= reach:  # an effect needs as much movement as it makes
        moved = moved * (abs(effect) / reach) if reach else abs(effect) * (sizes == 1)
        moved = moved / max(1.0, float(moved.sum()))
        still = np.zeros(len(sizes))
        return (moved, still) if effect > 0 else (still, moved)
    low, high = -60.0, 60.0
    for _ in range(100):
        odds = (low + high) / 2
        lean = np.tanh(odds * sizes / 2)
        if float((moved * lean) @ sizes) < effect:
            low = odds
        else:
            high = odds
    return moved * (1 + lean) / 2, moved * (1 - lean) / 2


def z_sum(power: float, alpha: float) -> float:
    """Sum of the normal quantiles of a two-sided test and its power, checked."""
    from scipy.special import ndtri

    if not (0 < alpha < 1 and alpha < power < 1):
        raise StatisticsError(
            f"power is {power!r} and alpha {alpha!r}; both are fractions, and power "
            "must lie between alpha and 1 (0.8 and 0.05)."
        )
    return float(ndtri(1 - alpha / 2) + ndtri(power))


def whitehead(
    shares: Shares,
    log_odds_ratio: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
) -> tuple[float, float]:
    """Replies needed for a proportional-odds effect, equal arms, by Whitehead.

    Args:
        shares: Share of each level, averaged over both arms.
        log_odds_ratio: The effect, not 0.
        power: Fraction between 0 and 1.
        alpha: Two-sided error rate, fraction.

    Returns:
        Replies in both arms together (not rounded), and the information the scale
        keeps against a continuous one (1 minus the sum of cubed shares, fraction).

    Source: Whitehead 1993; same numbers as R's `Hmisc::posamsize`.

    >>> round(whitehead([0.2, 0.5, 0.2, 0.1], 0.887, power=0.9)[0], 1)
    186.8
    """
    if log_odds_ratio == 0 or not math.isfinite(log_odds_ratio):
        raise StatisticsError(
            f"log_odds_ratio is {log_odds_ratio!r}; give the effect to be found."
        )
    kept = 1 - float((level_shares(shares) ** 3).sum())
    return 12 * z_sum(power, alpha) ** 2 / (log_odds_ratio**2 * kept), kept

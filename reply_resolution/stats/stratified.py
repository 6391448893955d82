"""Differences within strata: one multinomial bootstrap for all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from reply_resolution.stats.bootstrap import MIN_UNITS, Interval
from reply_resolution.stats.saddlepoint import Floats, Ints

_NAME = "bootstrap within strata, expanded percentile"


@dataclass(frozen=True, slots=True)
class StratifiedEffects:
    """Effects averaged over strata, each weighted by n1 n0 / (n1 + n0).

    Attributes:
        mean: Difference in means, in points; above 0 favours treatment.
        mean_interval: Its interval.
        resolved: Difference in the share at or above the cut, fraction.
        resolved_interval: Its interval.
        wins: Win probability within a stratum, fraction; above 0.5 favours treatment.
        wins_interval: Its interval.
    """

    mean: float
    mean_interval: Interval
    resolved: float
    resolved_interval: Interval
    wins: float
    wins_interval: Interval


def stratified_effects(
    control: Ints,
    treatment: Ints,
    values: Ints,
    cut: int,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 9_999,
) -> StratifiedEffects:
    """Effects within strata, with expanded-percentile bootstrap intervals.

    The weights are those of the exact stratified test. Replies are resampled within
    their stratum and arm, as counts, so cost does not depend on their number.

    Args:
        control: Control's replies by stratum and level, none empty; shape (H, K).
        treatment: The same for the treatment.
        values: Value of each level; shape (K,).
        cut: Lowest value that counts as resolved.
        confidence: Nominal coverage, fraction.
        seed: Of the draws.
        resamples: How many.
    """
    n0, n1 = control.sum(1), treatment.sum(1)
    weight = n0 * n1 / (n0 + n1)
    weight = weight / weight.sum()
    high = (values >= cut).astype(float)
    rng = np.random.default_rng(seed)
    drawn = np.zeros((3, resamples))
    for w, c, t in zip(weight, control, treatment, strict=True):
        x = rng.multinomial(int(c.sum()), c / c.sum(), resamples)
        y = rng.multinomial(int(t.sum()), t / t.sum(), resamples)
        for row, of in enumerate((_mean(values), _mean(high), _wins)):
            drawn[row] += w * of(x, y)
    over = (values.astype(float), high, high)
    found = []
    for row, of in enumerate((_mean(values), _mean(high), _wins)):
        parts = [
            (
                float(w),
                float(of(c[None], t[None])[0]),
                *_spread(row, c, t, over[row]),
            )
            for w, c, t in zip(weight, control, treatment, strict=True)
        ]
        estimate = sum(w * e for w, e, _, _ in parts)
        arms = [(w * w * v, n) for w, _, v0, v1 in parts for v, n in (v0, v1)]
        few = min(int(n0.sum()), int(n1.sum())) < MIN_UNITS
        found.append((estimate, _interval(estimate, drawn[row], arms, confidence, few)))
    (mean, a), (resolved, b), (wins, c_) = found
    return StratifiedEffects(mean, a, resolved, b, wins, c_)


def _mean(values: Ints | Floats) -> Callable[[Ints, Ints], Floats]:
    def difference(c: Ints, t: Ints) -> Floats:
        out: Floats = (t @ values) / t.sum(1) - (c @ values) / c.sum(1)
        return out

    return difference


def _wins(c: Ints, t: Ints) -> Floats:
    below = (np.cumsum(c, axis=1) - c / 2) / c.sum(1, keepdims=True)
    out: Floats = (t * below).sum(1) / t.sum(1)
    return out


def _spread(
    row: int, c: Ints, t: Ints, values: Floats
) -> tuple[tuple[float, int], tuple[float, int]]:
    """Bootstrap variance of each arm's part, and the arm's size."""
    if row == 2:  # the win probability's parts are means of placements
        over0 = (np.cumsum(t) - t / 2) / t.sum()
        over1 = (np.cumsum(c) - c / 2) / c.sum()
    else:
        over0 = over1 = values
    out = []
    for counts, of in ((c, over0), (t, over1)):
        n = int(counts.sum())
        mean = float(counts @ of) / n
        out.append((float(counts @ (of - mean) ** 2) / n**2, n))
    return out[0], out[1]


def _interval(
    estimate: float,
    drawn: Floats,
    arms: list[tuple[float, int]],
    confidence: float,
    few: bool,
) -> Interval:
    from scipy.special import ndtr, stdtrit

    biased = sum(v for v, _ in arms)
    unbiased = [(v * n / (n - 1), n) for v, n in arms if n > 1]
    total = sum(v for v, _ in unbiased)
    if total <= 1e-18:
        return Interval(estimate, estimate, _NAME, False, "degenerate: no spread")
    df = total**2 / sum(v * v / (n - 1) for v, n in unbiased)
    alpha = (1 - confidence) / 2
    alpha = float(ndtr(sqrt(total / biased) * stdtrit(df, alpha)))
    low, high = np.quantile(drawn, [alpha, 1 - alpha])
    reason = f"fewer than {MIN_UNITS} units in an arm" if few else ""
    return Interval(float(low), float(high), _NAME, not reason, reason)

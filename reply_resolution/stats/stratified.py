"""Interval of a stratified difference in means: multinomial bootstrap within strata."""

from math import sqrt

import numpy as np

from reply_resolution.stats.bootstrap import MIN_UNITS, Interval
from reply_resolution.stats.lattice import Floats, Ints


def stratified_interval(
    control: Ints,
    treatment: Ints,
    values: Ints,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 9_999,
) -> Interval:
    """Expanded-percentile bootstrap of the difference, strata resampled apart.

    Strata are weighted by n1 n0 / (n1 + n0), as in the exact test.

    Args:
        control: Control's replies by stratum and level; shape (H, K).
        treatment: The same for the treatment.
        values: Value of each level; shape (K,).
        confidence: Nominal coverage, fraction.
        seed: Of the draws.
        resamples: How many; cost does not depend on the replies.
    """
    from scipy.special import ndtr, stdtrit

    n0, n1 = control.sum(1), treatment.sum(1)
    weight = n0 * n1 / (n0 + n1)
    weight = weight / weight.sum()
    rng = np.random.default_rng(seed)
    total = np.zeros(resamples)
    estimate = biased = unbiased = spread = 0.0
    for w, c, t in zip(weight, control, treatment, strict=True):
        for counts, sign in ((c, -1.0), (t, 1.0)):
            n = int(counts.sum())
            mean = float(counts @ values) / n
            estimate += sign * float(w) * mean
            drawn: Floats = (rng.multinomial(n, counts / n, resamples) @ values) / n
            total += sign * float(w) * drawn
            variance = float(counts @ (values - mean) ** 2) / n**2 * float(w) ** 2
            biased += variance
            if n > 1:
                corrected = variance * n / (n - 1)
                unbiased += corrected
                spread += corrected**2 / (n - 1)
    name = "bootstrap within strata, expanded percentile"
    if biased <= 0:
        return Interval(estimate, estimate, name, False, "degenerate: no spread")
    df = unbiased**2 / spread
    alpha = (1 - confidence) / 2
    alpha = float(ndtr(sqrt(unbiased / biased) * stdtrit(df, alpha)))
    low, high = np.quantile(total, [alpha, 1 - alpha])
    few = min(int(n0.sum()), int(n1.sum())) < MIN_UNITS
    reason = f"fewer than {MIN_UNITS} units in an arm" if few else ""
    return Interval(float(low), float(high), name, not reason, reason)

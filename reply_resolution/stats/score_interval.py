"""Score intervals for rates: Miettinen-Nurminen, Mee, Wilson, Newcombe.

Ours, because statsmodels (up to 0.15) has a wrong coefficient in the constrained
estimate of Miettinen and Nurminen (its issue 10269): wrong bounds, a failure on zero
cells, and wrong non-inferiority tests.
"""

import math


def _constrained(x1: float, n1: float, x0: float, n0: float, d: float) -> float:
    """Most likely control rate when treatment's is exactly d higher.

    Root of Miettinen and Nurminen's cubic. The linear coefficient is where
    statsmodels goes wrong (it is (n0 d - N - 2 x0) d + C).
    """
    total, hits = n1 + n0, x1 + x0
    l3 = total
    l2 = (n1 + 2 * n0) * d - total - hits
    l1 = (n0 * d - total - 2 * x0) * d + hits
    l0 = x0 * d * (1 - d)
    shift = l2 / (3 * l3)
    q = shift**3 - l1 * l2 / (6 * l3**2) + l0 / (2 * l3)
    p = math.copysign(math.sqrt(max(shift**2 - l1 / (3 * l3), 0.0)), q)
    if p == 0:
        root = -shift
    else:
        angle = (math.pi + math.acos(min(1.0, max(-1.0, q / p**3)))) / 3
        root = 2 * p * math.cos(angle) - shift
    return min(max(root, 0.0, -d), 1.0, 1.0 - d)


def score_statistic(
    x1: float, n1: float, x0: float, n0: float, d: float, *, corrected: bool = True
) -> float:
    """Score statistic of "treatment's rate is d above control's"; infinite if certain.

    Args:
        x1: Successes in treatment (may be fractional: effective counts of clusters).
        n1: Replies in treatment, above 0.
        x0: Successes in control.
        n0: Replies in control, above 0.
        d: The difference under test, -1 to 1.
        corrected: With the factor N/(N-1) (Miettinen-Nurminen) or without (Mee).
    """
    p0 = _constrained(x1, n1, x0, n0, d)
    p1 = p0 + d
    variance = max(0.0, p1 * (1 - p1) / n1 + p0 * (1 - p0) / n0)
    if corrected and n1 + n0 > 1:
        variance *= (n1 + n0) / (n1 + n0 - 1)
    gap = x1 / n1 - x0 / n0 - d
    if variance <= 1e-15:
        return 0.0 if abs(gap) < 1e-12 else math.copysign(math.inf, gap)
    return gap / math.sqrt(variance)


def score_interval(
    x1: float, n1: float, x0: float, n0: float, *, z: float, corrected: bool = True
) -> tuple[float, float]:
    """All differences that the score test does not reject at the critical value z."""
    estimate = x1 / n1 - x0 / n0

    def crossing(low: float, high: float, target: float) -> float:
        for _ in range(60):  # the statistic falls as d rises
            middle = (low + high) / 2
            if score_statistic(x1, n1, x0, n0, middle, corrected=corrected) > target:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    low = -1.0 if estimate <= -1 else crossing(-1.0, estimate, z)
    high = 1.0 if estimate >= 1 else crossing(estimate, 1.0, -z)
    return low, high


def wilson_interval(x: float, n: float, *, z: float) -> tuple[float, float]:
    """Wilson's interval for one rate, fractions; z is the normal quantile (1.96)."""
    centre = x + z * z / 2
    half = z * math.sqrt(x * (n - x) / n + z * z / 4)
    return (
        0.0 if x == 0 else (centre - half) / (n + z * z),
        1.0 if x == n else (centre + half) / (n + z * z),
    )


def newcombe_interval(
    x1: float, n1: float, x0: float, n0: float, *, z: float
) -> tuple[float, float]:
    """Newcombe's interval for a difference, from two Wilson intervals (method 10)."""
    p1, p0 = x1 / n1, x0 / n0
    l1, u1 = wilson_interval(x1, n1, z=z)
    l0, u0 = wilson_interval(x0, n0, z=z)
    return (
        p1 - p0 - math.hypot(p1 - l1, u0 - p0),
        p1 - p0 + math.hypot(u1 - p1, p0 - l0),
    )

"""Two independent resolved rates compared: test, interval, non-inferiority.

"Resolved" is a score at or above the cut (4). The interval is Miettinen and
Nurminen's, our own: the one in statsmodels (up to 0.15) has a wrong coefficient in
its constrained estimate (its issue 10269), gives wrong bounds, and fails on zero
cells. Wald and bootstrap intervals are not offered: at 20 replies an arm they cover
as little as 55%.
"""

from collections.abc import Callable
from dataclasses import dataclass
import math
from typing import Literal, get_args

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.exact2x2 import boschloo, check_counts, fisher
from reply_resolution.stats.quantiles import critical

Alternative = Literal["two-sided", "greater", "less"]
Test = Literal["auto", "boschloo", "fisher mid-p", "fisher", "score"]
IntervalMethod = Literal["miettinen-nurminen", "mee", "newcombe"]

#: Boschloo up to this many replies in both arms, mid-p above (where they agree to
#: the second digit, and mid-p costs nothing).
BOSCHLOO_UP_TO = 2000


@dataclass(frozen=True, slots=True)
class RateTest:
    """A test of "both rates are equal".

    Attributes:
        pvalue: Fraction, 0 to 1; small speaks against equal rates.
        method: "boschloo", "fisher mid-p", "fisher" or "score".
        alternative: "two-sided", or "greater" (treatment above control), or "less".
    """

    pvalue: float
    method: str
    alternative: str


def rate_test(
    x1: int,
    n1: int,
    x0: int,
    n0: int,
    *,
    method: Test = "auto",
    alternative: Alternative = "two-sided",
) -> RateTest:
    """Test whether two independent groups have the same rate.

    Null hypothesis: every reply of either arm succeeds with one common probability
    ("boschloo", "score"), or the arm labels are exchangeable given how many succeeded
    ("fisher", "fisher mid-p"). Two-sided: the smaller one-sided p-value doubled (at
    most 1), but "fisher" sums the tables at most as likely as the one observed, as R
    and scipy do. Nothing is drawn. Nobody or everybody succeeding is p = 1.

    Args:
        x1: Successes in treatment, of `n1` replies.
        n1: Replies in treatment, 1 or more.
        x0: Successes in control, of `n0` replies.
        n0: Replies in control, 1 or more.
        method: "auto" is Boschloo up to 2,000 replies and Fisher's mid-p above.
            Boschloo keeps the error rate and rejects more often than Fisher; mid-p
            exceeds 5% slightly in small samples (measured: at most 6.4%).
        alternative: "greater" is treatment above control.

    Raises:
        StatisticsError: Counts that are not whole, an empty arm, an unknown method.

    Source: Boschloo 1970; Lancaster 1961 (mid-p); Miettinen and Nurminen 1985.

    >>> round(rate_test(7, 15, 12, 15).pvalue, 3)
    0.068
    """
    check_counts(x1, n1, x0, n0)
    if alternative not in get_args(Alternative):
        raise StatisticsError(
            f"alternative {alternative!r} does not exist; choose two-sided, greater "
            "(treatment above control) or less."
        )
    if method == "auto":
        method = "boschloo" if n1 + n0 <= BOSCHLOO_UP_TO else "fisher mid-p"
    if method not in get_args(Test):
        raise StatisticsError(
            f"test {method!r} does not exist; choose auto, boschloo, fisher mid-p, "
            "fisher or score."
        )
    if x1 + x0 in (0, n1 + n0):
        # All alike: no evidence either way (libraries return NaN or even 2 here).
        return RateTest(1.0, method, alternative)
    if method == "score":
        from scipy.special import ndtr

        z = score_statistic(x1, n1, x0, n0, 0.0)
        above, below = float(ndtr(-z)), float(ndtr(z))
    elif method == "boschloo":
        above = boschloo(x1, n1, x0, n0)
        below = boschloo(x0, n0, x1, n1)
    else:
        above, below, both = fisher(x1, n1, x0, n0, mid=method == "fisher mid-p")
        if method == "fisher" and alternative == "two-sided":
            return RateTest(both, method, alternative)
    p = {"greater": above, "less": below, "two-sided": 2 * min(above, below)}
    return RateTest(min(1.0, p[alternative]), method, alternative)


def _constrained(x1: float, n1: float, x0: float, n0: float, d: float) -> float:
    """Most likely control rate when treatment's is exactly d higher.

    Root of Miettinen and Nurminen's cubic. The linear coefficient is where
    statsmodels goes wrong (it is (n0 d - N - 2 x0) d + C).
    """
    l3, hits = n1 + n0, x1 + x0
    l2 = (n1 + 2 * n0) * d - l3 - hits
    l1 = (n0 * d - l3 - 2 * x0) * d + hits
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


def score_variance(
    x1: float, n1: float, x0: float, n0: float, d: float, *, corrected: bool = True
) -> float:
    """Variance of the difference of two rates, were treatment's d above control's."""
    p0 = _constrained(x1, n1, x0, n0, d)
    p1 = p0 + d
    variance = max(0.0, p1 * (1 - p1) / n1 + p0 * (1 - p0) / n0)
    if corrected and n1 + n0 > 1:
        variance *= (n1 + n0) / (n1 + n0 - 1)
    return variance


def score_statistic(
    x1: float, n1: float, x0: float, n0: float, d: float, *, corrected: bool = True
) -> float:
    """Score statistic of "treatment's rate is d above control's"; infinite if certain.

    Counts may be fractional (effective counts of users); `corrected` is with the
    factor N/(N-1) (Miettinen-Nurminen), without it Mee's.
    """
    variance = score_variance(x1, n1, x0, n0, d, corrected=corrected)
    gap = x1 / n1 - x0 / n0 - d
    if variance <= 1e-15:
        return 0.0 if abs(gap) < 1e-12 else math.copysign(math.inf, gap)
    return gap / math.sqrt(variance)


def score_interval(
    x1: float, n1: float, x0: float, n0: float, *, z: float, corrected: bool = True
) -> tuple[float, float]:
    """All differences that the score test does not reject at the critical value z."""
    return inverted(
        lambda d: score_statistic(x1, n1, x0, n0, d, corrected=corrected),
        x1 / n1 - x0 / n0,
        z,
    )


def inverted(
    statistic: Callable[[float], float], estimate: float, z: float
) -> tuple[float, float]:
    """The differences at which a statistic that falls with them is z, and -z."""

    def crossing(low: float, high: float, target: float) -> float:
        for _ in range(60):
            middle = (low + high) / 2
            if statistic(middle) > target:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    return (
        -1.0 if estimate <= -1 else crossing(-1.0, estimate, z),
        1.0 if estimate >= 1 else crossing(estimate, 1.0, -z),
    )


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


@dataclass(frozen=True, slots=True)
class RateDifference:
    """The difference between two resolved rates.

    Attributes:
        estimate: Treatment rate minus control rate, fraction, -1 to 1. Above 0
            favours treatment.
        low: Lower end of the interval, same unit.
        high: Upper end, same unit.
        confidence: Nominal coverage of the interval, fraction.
        method: How the interval was made ("miettinen-nurminen", ...).
        pvalue: p-value of "both rates are equal", fraction.
        pvalue_method: The test behind it ("boschloo", "fisher mid-p", "score", ...).
        rate_treatment: Share resolved in treatment, fraction.
        rate_control: Share resolved in control, fraction.
        n_treatment: Scored replies in treatment.
        n_control: Scored replies in control.
        design_effect: How many times the variance exceeds that of independent
            replies; 1 where replies are the units.
        warnings: What a reader should know, in sentences; empty if nothing.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    method: str
    pvalue: float
    pvalue_method: str
    rate_treatment: float
    rate_control: float
    n_treatment: int
    n_control: int
    design_effect: float = 1.0
    warnings: tuple[str, ...] = ()

    @property
    def ci(self) -> tuple[float, float]:
        """Both ends of the interval."""
        return self.low, self.high


def check_confidence(confidence: float) -> float:
    """The confidence as a fraction between 0 and 1, or an error that says so."""
    if isinstance(confidence, bool) or not 0 < confidence < 1:
        raise StatisticsError(
            f"confidence is {confidence!r}; give a fraction between 0 and 1 (0.95)."
        )
    return float(confidence)


def rate_difference(
    x1: int,
    n1: int,
    x0: int,
    n0: int,
    *,
    confidence: float = 0.95,
    method: IntervalMethod = "miettinen-nurminen",
    test: Test = "auto",
    alternative: Alternative = "two-sided",
) -> RateDifference:
    """Compare two independent resolved rates.

    Args:
        x1: Resolved replies in treatment, of `n1` scored.
        n1: Scored replies in treatment, 1 or more.
        x0: Resolved replies in control, of `n0` scored.
        n0: Scored replies in control, 1 or more.
        confidence: Nominal coverage, fraction. The interval is always two-sided.
        method: "miettinen-nurminen" (default; inverts its own score test), "mee" (the
            same without the factor N/(N-1)), "newcombe" (from two Wilson intervals).
        test: See `rate_test`. With "score" the Miettinen-Nurminen interval excludes 0
            exactly where the two-sided p-value is below 1 - confidence.
        alternative: Of the p-value; "greater" is treatment above control.

    Raises:
        StatisticsError: Counts that are not whole, an empty arm, an unknown method.

    Source: Miettinen and Nurminen 1985; Mee 1984; Newcombe 1998, method 10.

    >>> d = rate_difference(56, 70, 48, 80)
    >>> round(d.low, 4), round(d.high, 4)
    (0.0528, 0.3382)
    """
    check_counts(x1, n1, x0, n0)
    check_confidence(confidence)
    z = critical(confidence)
    if method == "newcombe":
        low, high = newcombe_interval(x1, n1, x0, n0, z=z)
    elif method in get_args(IntervalMethod):
        low, high = score_interval(x1, n1, x0, n0, z=z, corrected=method != "mee")
    else:
        raise StatisticsError(
            f"interval method {method!r} does not exist; choose miettinen-nurminen, "
            "mee or newcombe."
        )
    tested = rate_test(x1, n1, x0, n0, method=test, alternative=alternative)
    notes = []
    if alternative == "two-sided" and (low > 0 or high < 0) != (
        tested.pvalue < 1 - confidence
    ):
        notes.append(
            f"the interval and the {tested.method} test fall on different sides of the "
            "line; the evidence is just there, and both are valid: report both."
        )
    return RateDifference(
        estimate=x1 / n1 - x0 / n0,
        low=low,
        high=high,
        confidence=confidence,
        method=method,
        pvalue=tested.pvalue,
        pvalue_method=tested.method,
        rate_treatment=x1 / n1,
        rate_control=x0 / n0,
        n_treatment=int(n1),
        n_control=int(n0),
        warnings=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class Noninferiority:
    """Whether treatment is at most a margin worse than control.

    Attributes:
        estimate: Treatment rate minus control rate, fraction.
        margin: The largest loss that is acceptable, fraction above 0.
        statistic: Score statistic of "treatment is worse by the margin"; large is good.
        pvalue: One-sided p-value of that hypothesis; small is good. Fraction.
        noninferior: Whether the p-value is at most alpha.
        alpha: One-sided error rate, fraction.
    """

    estimate: float
    margin: float
    statistic: float
    pvalue: float
    noninferior: bool
    alpha: float


def noninferiority(
    x1: int, n1: int, x0: int, n0: int, *, margin: float, alpha: float = 0.025
) -> Noninferiority:
    """Test that treatment's rate is less than `margin` below control's.

    Null hypothesis: treatment is worse by `margin` or more. One-sided; alpha 0.025
    matches a 95% interval that stays above minus the margin.

    Args:
        x1: Resolved replies in treatment, of `n1` scored.
        n1: Scored replies in treatment.
        x0: Resolved replies in control, of `n0` scored.
        n0: Scored replies in control.
        margin: Largest acceptable loss, fraction between 0 and 1, fixed beforehand.
        alpha: One-sided error rate, fraction.

    Raises:
        StatisticsError: Counts that are not whole, an empty arm, a margin outside
            0 to 1.

    Source: Miettinen and Nurminen 1985 (score test at the margin).

    >>> test = noninferiority(80, 100, 82, 100, margin=0.10, alpha=0.05)
    >>> round(test.statistic, 5), round(test.pvalue, 5), test.noninferior
    (1.428, 0.07665, False)
    """
    check_counts(x1, n1, x0, n0)
    if not 0 < margin < 1:
        raise StatisticsError(
            f"margin is {margin!r}; give the largest acceptable loss as a fraction "
            "between 0 and 1 (0.05 is five percentage points)."
        )
    from scipy.special import ndtr

    z = score_statistic(x1, n1, x0, n0, -margin)
    p = float(ndtr(-z))
    return Noninferiority(x1 / n1 - x0 / n0, margin, z, p, p <= alpha, alpha)

"""Two independent resolved rates compared: interval, test, non-inferiority.

"Resolved" is a score at or above the cut (4). The interval is Miettinen and
Nurminen's, our own: the one in statsmodels (up to 0.15) has a wrong coefficient in
its constrained estimate (its issue 10269), gives wrong bounds, and fails on zero
cells. Wald and bootstrap intervals are not offered: at 20 replies an arm they cover
as little as 55%.
"""

from dataclasses import dataclass, field
from typing import Literal

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.exact2x2 import (
    Alternative,
    RateTest,
    Test,
    check_counts,
    rate_test,
)
from reply_resolution.stats.score_interval import (
    newcombe_interval,
    score_interval,
    score_statistic,
)

__all__ = [
    "Noninferiority",
    "RateDifference",
    "RateTest",
    "noninferiority",
    "rate_difference",
    "rate_test",
]

IntervalMethod = Literal["miettinen-nurminen", "mee", "newcombe"]


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
    warnings: tuple[str, ...] = field(default=())

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
        x1: Resolved replies in treatment, 0 to `n1`.
        n1: Scored replies in treatment, 1 or more.
        x0: Resolved replies in control, 0 to `n0`.
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
    from scipy.special import ndtri

    z = float(ndtri(0.5 + confidence / 2))
    if method == "newcombe":
        low, high = newcombe_interval(x1, n1, x0, n0, z=z)
    elif method in ("miettinen-nurminen", "mee"):
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
        x1: Resolved replies in treatment, 0 to `n1`.
        n1: Scored replies in treatment.
        x0: Resolved replies in control.
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

"""Looking more than once: intervals that stay valid at every look.

A fixed-horizon p-value read ten times raises the false alarms from 5% to 19%. The
confidence sequence here covers the difference at all looks together; it is computed
on the *difference* between the arms (a sequence on the pooled level, as published
elsewhere, says nothing about it).
"""

from dataclasses import dataclass
import math

from reply_resolution.errors import StatisticsError

#: Below this many units in both arms together the normal limit is a poor guide.
SMALLEST_N = 100


@dataclass(frozen=True, slots=True)
class ConfidenceSequence:
    """One look of an anytime-valid interval for a difference.

    Attributes:
        estimate: The difference, treatment minus control, in its own unit (points).
            Above 0 favours treatment.
        low: Lower end of the interval at this look, same unit.
        high: Upper end, same unit.
        confidence: The probability that the intervals of *all* looks together cover
            the true difference, fraction (0.95).
        pvalue: Anytime-valid p-value of "no difference": stop at any look, and it is
            below alpha with probability at most alpha. Fraction, 0 to 1.
        n: Units (users, or replies where each is its own unit) in both arms so far.
        planned_n: The size of `n` for which the interval was made narrowest.
        reliable: False below 100 units, where the limit it rests on is not reached.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    pvalue: float
    n: int
    planned_n: float
    reliable: bool

    @property
    def excludes_zero(self) -> bool:
        """Whether "no difference" lies outside the interval of this look."""
        return self.low > 0 or self.high < 0


def confidence_sequence(
    estimate: float,
    se: float,
    n: int,
    *,
    planned_n: float = 5000.0,
    confidence: float = 0.95,
) -> ConfidenceSequence:
    """An interval for a difference that may be looked at as often as one likes.

    Null hypothesis of `pvalue`: the difference is 0. Nothing is drawn. The price
    against a fixed 95% interval is a width of about 1.4 to 1.5 times at `planned_n`,
    more far away from it. `planned_n` must be chosen before the data: choosing the
    narrowest afterwards is peeking again.

    Args:
        estimate: The difference between the arms so far, treatment minus control.
        se: Its standard error (with users as units: the cluster-robust one), above 0.
        n: Units in both arms together so far, 2 or more.
        planned_n: Units at which the interval is to be narrowest (any fixed number
            above 0; the planned size is a good one).
        confidence: Joint coverage of all looks, fraction between 0 and 1.

    Raises:
        StatisticsError: A standard error of 0 or none (all scores equal: nothing to
            estimate yet), fewer than two units, or a number that is not finite.

    Source: Waudby-Smith et al., arXiv 2103.06476, equation 9; the same parameters as
    GrowthBook's `gbstats`.

    >>> look = confidence_sequence(0.50336, 0.33341, 6461, planned_n=1000)
    >>> round(look.low, 4), round(look.high, 4)
    (-0.5584, 1.5652)
    """
    if not (math.isfinite(estimate) and math.isfinite(se) and se > 0):
        raise StatisticsError(
            f"a confidence sequence needs a finite estimate and a standard error above "
            f"0, not {estimate!r} and {se!r}; with all scores equal there is nothing "
            "to estimate yet: wait for the next look."
        )
    if n < 2:
        raise StatisticsError(f"n is {n}; a look needs two units or more.")
    if not (planned_n > 0 and math.isfinite(planned_n)):
        raise StatisticsError(f"planned_n is {planned_n!r}; give a number above 0.")
    if not 0 < confidence < 1:
        raise StatisticsError(
            f"confidence is {confidence!r}; give a fraction between 0 and 1 (0.95)."
        )
    alpha = 1 - confidence
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / planned_n
    spread = n * rho2
    factor = math.sqrt(
        2 * (spread + 1) / spread * math.log(math.sqrt(spread + 1) / alpha)
    )
    # The interval excludes 0 exactly where this is below alpha.
    log_p = 0.5 * math.log(spread + 1) - (estimate / se) ** 2 / 2 * spread / (
        spread + 1
    )
    return ConfidenceSequence(
        estimate=estimate,
        low=estimate - factor * se,
        high=estimate + factor * se,
        confidence=confidence,
        pvalue=math.exp(min(0.0, log_p)),
        n=n,
        planned_n=planned_n,
        reliable=n >= SMALLEST_N,
    )

"""Bootstrap intervals for means of few-valued scores: exact, without drawing.

With infinitely many resamples the bootstrap sum of an arm is a sum of n draws from its
own counts. Its distribution is the n-th power of a characteristic function, inverted on
a window of ten standard deviations, so the interval costs about the square root of n,
needs no seed, and is the same on every machine.
"""

from dataclasses import dataclass
from math import ceil, floor, pi, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Floats, Ints
from reply_resolution.stats.saddlepoint import fast_length

Method = Literal["expanded", "percentile", "bca"]

#: Fewer units than this in an arm, and no interval is called reliable.
MIN_UNITS = 20
#: With fewer replies off an arm's commonest value, what was not seen may decide.
OFF_MODE = 5
NEAR_CONSTANT = f"fewer than {OFF_MODE} values differ from the commonest one"


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval and whether it deserves the name.

    Attributes:
        low: Lower end, in the unit of the estimate; None where it is undefined.
        high: Upper end, same unit; None where it is undefined.
        method: How it was made, in words.
        reliable: False where too few units, or no spread at all, make its coverage
            unknown or low.
        reason: Why it is not reliable, a phrase; "" where it is.
    """

    low: float | None
    high: float | None
    method: str
    reliable: bool
    reason: str

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Both ends."""
        return (self.low, self.high)


def mean_interval(
    counts: Ints,
    *,
    values: Ints | None = None,
    confidence: float = 0.95,
    method: Method = "expanded",
) -> Interval:
    """Exact bootstrap interval of one mean (for pairs: of the mean difference).

    Args:
        counts: How often each value occurs; shape (K,).
        values: Integer value of each level; 1 to K by default.
        confidence: Nominal coverage, fraction.
        method: See `difference_interval`.
    """
    counts, values = _checked(counts, values)
    return _interval([_Arm.of(counts, values, 1)], confidence, method)


def difference_interval(
    control: Ints,
    treatment: Ints,
    *,
    values: Ints | None = None,
    confidence: float = 0.95,
    method: Method = "expanded",
) -> Interval:
    """Exact bootstrap interval of the difference in means, treatment minus control.

    Args:
        control: Control's replies at each level; shape (K,).
        treatment: Treatment's replies at each level; shape (K,).
        values: Integer value of each level; 1 to K by default.
        confidence: Nominal coverage, fraction.
        method: "expanded" (default): percentiles widened so that a normal bootstrap
            would give Welch's t interval (Hesterberg 2015, The American Statistician
            69, 371-386). "percentile": plain. "bca": bias-corrected and accelerated
            (Efron 1987); it covers only 0.88 at 20 an arm near the ceiling.

    Returns:
        The interval, in points. Where no reply differs from its arm's mean it is the
        estimate itself, marked as not reliable; with a single reply it is undefined.

    Raises:
        StatisticsError: An arm is empty, or the confidence is no fraction.

    >>> import numpy as np
    >>> control, treatment = np.array([3, 1, 4, 2, 1]), np.array([11, 2, 0, 1, 0])
    >>> found = difference_interval(control, treatment)
    >>> round(found.low, 4), round(found.high, 4), found.reliable
    (-2.3312, -0.3636, False)
    """
    control, values = _checked(control, values)
    treatment, values = _checked(treatment, values)
    arms = [_Arm.of(treatment, values, 1), _Arm.of(control, values, -1)]
    return _interval(arms, confidence, method)


def _checked(counts: Ints, values: Ints | None) -> tuple[Ints, Ints]:
    counts = np.asarray(counts)
    if values is None:
        values = np.arange(1, len(counts) + 1, dtype=np.int64)
    if counts.sum() <= 0 or (counts < 0).any():
        raise StatisticsError(
            f"counts {counts.tolist()} hold no replies (or negative ones); an interval "
            "needs at least one reply an arm."
        )
    return counts.astype(np.int64), np.asarray(values, dtype=np.int64)


def _interval(arms: "list[_Arm]", confidence: float, method: Method) -> Interval:
    from scipy.special import ndtr, ndtri

    if not 0 < confidence < 1:
        raise StatisticsError(
            f"confidence {confidence!r} is not between 0 and 1; give a fraction, "
            "for example 0.95."
        )
    names = {
        "expanded": "exact bootstrap, expanded percentile",
        "percentile": "exact bootstrap, percentile",
        "bca": "exact bootstrap, BCa",
    }
    if method not in names:
        raise StatisticsError(
            f"interval method {method!r} does not exist; choose one of "
            f"{', '.join(names)}."
        )
    name = names[method]
    if any(arm.n < 2 for arm in arms):
        return Interval(None, None, name, False, "an arm has a single unit")
    estimate = sum(arm.sign * arm.mean for arm in arms)
    variance = sum(arm.second for arm in arms)
    if variance == 0:
        return Interval(estimate, estimate, name, False, "degenerate: no spread")
    distribution = _Distribution(arms)
    low_at = high_at = (1 - confidence) / 2
    if method == "expanded":
        low_at = high_at = expanded_tail([(a.second, a.n) for a in arms], confidence)
    elif method == "bca":
        below = distribution.at_most(distribution.observed - 1)
        upto = distribution.at_most(distribution.observed)
        z0 = float(ndtri((below + upto) / 2))
        skew = sum(arm.sign * arm.third for arm in arms)
        acceleration = skew / (6 * variance**1.5)
        z = float(ndtri((1 - confidence) / 2))
        low_at = float(ndtr(z0 + (z0 + z) / (1 - acceleration * (z0 + z))))
        high_at = float(ndtr(-(z0 + (z0 - z) / (1 - acceleration * (z0 - z)))))
    reason = few_units(min(arm.n for arm in arms))
    reason = reason or near_constant(sum(arm.unseen for arm in arms), variance)
    low, high = distribution.lower(low_at), distribution.upper(high_at)
    return Interval(low, high, name, not reason, reason)


def few_units(units: int) -> str:
    """Why an interval over so few units of an arm is not reliable; "" if it is."""
    return f"fewer than {MIN_UNITS} units in an arm" if units < MIN_UNITS else ""


def unseen_variance(counts: Ints, values: Ints | Floats) -> float:
    """Variance of a mean that three unseen values at the far end would have.

    Three is what a sample of n may miss with 5% chance (3/n). Zero where at least
    `OFF_MODE` values are off the commonest one, so that the rest has been seen.

    Args:
        counts: How often each value occurs; any shape.
        values: The values, the whole scale; same shape.
    """
    levels, where = np.unique(values, return_inverse=True)
    held = np.bincount(where.ravel(), np.ravel(counts))
    n, mode = float(held.sum()), levels[held.argmax()]
    if n - held.max() >= OFF_MODE:
        return 0.0
    return 3.0 * float(max(levels[-1] - mode, mode - levels[0])) ** 2 / n**2


def unseen_room(counts: Ints, values: Ints, units: int) -> float:
    """By how much three unseen units at the far end would move an arm's mean, points.

    Args:
        counts: Replies at each level; shape (K,).
        values: Value of each level; shape (K,).
        units: Independent units that hold them.
    """
    n, mode = int(counts.sum()), int(values[counts.argmax()])
    if n - int(counts.max()) >= OFF_MODE:
        return 0.0
    return 3.0 * max(int(values[-1]) - mode, mode - int(values[0])) / units


def near_constant(unseen: float, variance: float) -> str:
    """Why an interval is not reliable where nearly all values are one; "" if it is.

    Measured in 433 pairs of shapes and sizes from 20 to 500 an arm: without this mark
    80 cover under 93%, the least 70%; with it none does.

    Args:
        unseen: Sum over arms of `unseen_variance`.
        variance: Variance of the estimate as measured.
    """
    return "" if unseen <= variance else NEAR_CONSTANT


def expanded_tail(parts: list[tuple[float, int]], confidence: float) -> float:
    """Tail probability whose percentiles are as wide as Welch's t interval.

    Args:
        parts: Bootstrap variance (by n, not n - 1) of each arm's part, and its size.
        confidence: Nominal coverage, fraction.
    """
    from scipy.special import ndtr, stdtrit

    unbiased = [(v * n / (n - 1), n) for v, n in parts if n > 1]
    total = sum(v for v, _ in unbiased)
    df = total**2 / sum(v * v / (n - 1) for v, n in unbiased)
    factor = sqrt(total / sum(v for v, _ in parts))
    return float(ndtr(factor * stdtrit(df, (1 - confidence) / 2)))


@dataclass(frozen=True, slots=True)
class _Arm:
    """One arm's bootstrap sum: `start + step * i` with probability `mass[i]`."""

    n: int
    sign: int
    mean: float
    second: float  # bootstrap variance of the mean
    third: float  # third central moment of the mean
    total: int
    start: int
    step: int
    mass: Floats
    unseen: float = 0.0

    @classmethod
    def of(cls, counts: Ints, values: Ints, sign: int) -> "_Arm":
        n = int(counts.sum())
        mean = float(counts @ values) / n
        off = values - mean
        start, step, mass = _sum_of_draws(counts, values)
        return cls(
            n=n,
            sign=sign,
            mean=mean,
            second=float(counts @ off**2) / n**2,
            third=float(counts @ off**3) / n**3,
            total=int(counts @ values),
            start=start,
            step=step,
            mass=mass,
            unseen=unseen_variance(counts, values),
        )


def _sum_of_draws(
    counts: Ints, values: Ints, width: float = 10.0
) -> tuple[int, int, Floats]:
    """First value, step and probabilities of the sum of n draws with replacement."""
    held = counts > 0
    c, s = counts[held], values[held]
    n = int(c.sum())
    low = int(s.min())
    if len(c) == 1:
        return n * low, 1, np.ones(1)
    d = s - low
    step = int(np.gcd.reduce(d))
    d = d // step
    p = c / n
    mean = float(p @ d)
    sd = sqrt(n * float(p @ (d - mean) ** 2))
    top = n * int(d.max())
    length = fast_length(min(top + 1, ceil(2 * width * sd) + 60))
    base = 0
    if length <= top:
        base = min(max(floor(n * mean) - length // 2, 0), top + 1 - length)
    angle = 2 * pi * np.arange(length // 2 + 1) / length
    # centred on the mean, so that the n-th power turns slowly
    phi: NDArray[np.complex128] = np.zeros(len(angle), dtype=np.complex128)
    for pk, dk in zip(p, d, strict=True):
        phi += pk * np.exp(1j * angle * (dk - mean))
    with np.errstate(divide="ignore"):
        size = np.exp(n * np.log(np.abs(phi)))
    turn = n * np.angle(phi) + angle * (n * mean - base)
    mass = np.maximum(
        np.fft.irfft(size * (np.cos(turn) - 1j * np.sin(turn)), n=length), 0.0
    )
    return n * low + step * base, step, mass / mass.sum()


class _Distribution:
    """Bootstrap distribution of a (difference of) means, in whole numbers.

    A difference is (t * n_control - c * n_treatment) / (n_treatment * n_control), so
    its numerator is searched by bisection and never rounded.
    """

    def __init__(self, arms: list[_Arm]) -> None:
        first = arms[0]
        nothing = _Arm(1, -1, 0.0, 0.0, 0.0, 0, 0, 1, np.ones(1))
        self.other = other = arms[1] if len(arms) > 1 else nothing
        self.n, self.m, self.mass = first.n, other.n, first.mass
        self.sums = first.start + first.step * np.arange(len(self.mass), dtype=np.int64)
        self.below = np.concatenate([[0.0], np.cumsum(other.mass)])
        self.above = np.concatenate([np.cumsum(other.mass[::-1])[::-1], [0.0]])
        self.observed = first.total * self.m - other.total * self.n
        last = other.start + other.step * (len(other.mass) - 1)
        self.least = int(self.sums[0]) * self.m - last * self.n
        self.most = int(self.sums[-1]) * self.m - other.start * self.n

    def at_most(self, numerator: int) -> float:
        """P(difference <= numerator)."""
        # c >= (t m - numerator) / n, rounded up
        bound = -((numerator - self.sums * self.m) // self.n)
        place = -((self.other.start - bound) // self.other.step)
        place = np.clip(place, 0, len(self.other.mass))
        # not a dot product: BLAS would wake its threads for a few thousand numbers
        return float((self.mass * self.above[place]).sum())

    def at_least(self, numerator: int) -> float:
        """P(difference >= numerator)."""
        bound = (self.sums * self.m - numerator) // self.n
        place = (bound - self.other.start) // self.other.step + 1
        place = np.clip(place, 0, len(self.other.mass))
        return float((self.mass * self.below[place]).sum())

    def lower(self, probability: float) -> float:
        """Smallest value whose P(at most) reaches the probability."""
        low, high = self.least - 1, self.most
        while high - low > 1:
            middle = (low + high) // 2
            if self.at_most(middle) >= probability - 1e-14:
                high = middle
            else:
                low = middle
        return high / (self.n * self.m)

    def upper(self, probability: float) -> float:
        """Largest value whose P(at least) reaches it: the mirror image of `lower`."""
        low, high = self.least, self.most + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.at_least(middle) >= probability - 1e-14:
                low = middle
            else:
                high = middle
        return low / (self.n * self.m)

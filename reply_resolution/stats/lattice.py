"""Exact tail probabilities of sums of integer scores: the numerical core.

A permutation distribution over a 2xK table, or over sign-flipped differences, lives on
a lattice, so its probabilities are a finite Fourier sum. Three changes turn the method
of Pagano and Tritchler (1983, JASA 78, 435-440), quadratic in the replies, into one
that costs about the square root of their number:

* an exponential tilt puts the mode at the threshold, so a tail of 1e-200 has all digits;
* the inversion window spans nine standard deviations either way, not the whole range;
* the characteristic function is only evaluated where it exceeds exp(-44). That region is
  found by arithmetic: both of the two heaviest levels must have an angle close to a
  whole turn. What is left out is far below rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, comb, floor, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NEGLIGIBLE = 44.0  # exp(-44) is 8e-20: below rounding beside a sum of order one
_WIDTH = (
    9.2  # half-width of the window in standard deviations; exp(-9.2**2 / 2) = 4e-19
)
_SMALL_ARM = 60  # at or below: a table of non-negative additions is faster still
_CHUNK = 150_000  # grid points evaluated at once; bounds memory at some 10 MB


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of scored replies of which some are dealt to the treatment.

    Attributes:
        counts: Replies at each score, both arms together; shape (K,), 0 or more.
        drawn: How many of them the treatment holds; 0 to the sum of `counts`.
    """

    counts: Ints
    drawn: int


@dataclass(frozen=True, slots=True)
class Tail:
    """One-sided probabilities at a threshold.

    Attributes:
        beyond: Probability of the threshold or anything further out. Fraction, 0 to 1.
        at: Probability of exactly the threshold; 0 if it is not on the lattice.
    """

    beyond: float
    at: float


def mean_of(pools: Sequence[Pool], scores: Ints) -> Fraction:
    """Exact mean of the treatment's score sum under random dealing."""
    total = Fraction(0)
    for pool in pools:
        size = int(pool.counts.sum())
        if size:
            total += Fraction(pool.drawn * int(pool.counts @ scores), size)
    return total


def dealt_tail(
    pools: Sequence[Pool], scores: Ints, threshold: int, *, upper: bool
) -> Tail:
    """Tail of the treatment's score sum when replies are dealt at random.

    Args:
        pools: One pool per stratum; replies are dealt within each.
        scores: Integer value of each level; shape (K,).
        threshold: The sum in question, in the units of `scores`.
        upper: True for P(sum >= threshold), False for P(sum <= threshold).

    Returns:
        The tail, to about 1e-12 relative on the side away from the mean; on the mean's
        side it is one minus the other tail.

    Source:
        Pagano and Tritchler 1983; tilt and window as described in the module.
    """
    if (threshold >= mean_of(pools, scores)) != upper:
        at = _dealt(pools, scores, threshold, not upper).at
        other = _dealt(pools, scores, threshold + (-1 if upper else 1), not upper)
        return Tail(beyond=min(1.0, max(0.0, 1.0 - other.beyond)), at=at)
    return _dealt(pools, scores, threshold, upper)


def flipped_tail(
    sizes: Ints, counts: Ints, threshold: int, *, upper: bool = True
) -> Tail:
    """Tail of a sum of differences whose signs are flipped at random.

    Args:
        sizes: Distinct absolute differences, all above 0; shape (T,).
        counts: How many differences have that size; shape (T,).
        threshold: The sum in question, in the units of `sizes`.
        upper: True for P(sum >= threshold), False for P(sum <= threshold).
    """
    if not upper:  # the distribution is symmetric
        return flipped_tail(sizes, counts, -threshold)
    if threshold < 0:
        at = flipped_tail(sizes, counts, -threshold).at
        other = flipped_tail(sizes, counts, -threshold + 1)
        return Tail(beyond=1.0 - other.beyond, at=at)
    total = int(sizes @ counts)
    if threshold > total:
        return Tail(0.0, 0.0)
    if total == 0:
        return Tail(1.0, 1.0)
    # sum = 2 V - total with V a sum of stretched binomials
    step = _gcd_of(sizes)
    values, probabilities = _binomials(
        sizes // step, counts, (threshold + total) / 2 / step
    )
    sums = 2 * values * step - total
    return _collect(sums, probabilities, threshold, upper=True)


def _dealt(pools: Sequence[Pool], scores: Ints, threshold: int, upper: bool) -> Tail:
    constant = 0
    active: list[tuple[Ints, Ints, int]] = []
    for pool in pools:
        held = pool.counts > 0
        m, s, drawn = pool.counts[held], scores[held], int(pool.drawn)
        if drawn == 0:
            continue
        if drawn == int(m.sum()) or len(m) == 1:
            constant += int(m @ s) if len(m) > 1 else drawn * int(s[0])
            continue
        low = int(s.min())
        constant += drawn * low
        active.append((m, s - low, drawn))
    if not active:
        hit = threshold == constant
        beyond = constant >= threshold if upper else constant <= threshold
        return Tail(float(beyond), float(hit))
    step = _gcd_of(np.concatenate([d for _, d, _ in active]))
    active = [(m, d // step, drawn) for m, d, drawn in active]
    low = sum(_extreme(m, d, drawn, False) for m, d, drawn in active)
    high = sum(_extreme(m, d, drawn, True) for m, d, drawn in active)
    target = Fraction(threshold - constant, step)
    if target > high or target < low:
        outside = (target > high) == upper
        return Tail(0.0 if outside else 1.0, 0.0)
    if all(min(n, int(m.sum()) - n) <= _SMALL_ARM for m, _, n in active) and (
        high - low <= 6000
    ):
        values, probabilities = _by_addition(active)
    else:
        values, probabilities = _by_inversion(active, float(target), low, high)
    return _collect(values * step + constant, probabilities, threshold, upper)


def _collect(values: Ints, probabilities: Floats, threshold: int, upper: bool) -> Tail:
    out = values >= threshold if upper else values <= threshold
    at = float(probabilities[values == threshold].sum())
    # smallest first: the far tail must not drown
    return Tail(min(1.0, float(np.sort(probabilities[out]).sum())), min(1.0, at))


def _gcd_of(values: Ints) -> int:
    return int(np.gcd.reduce(values)) or 1


def _extreme(m: Ints, d: Ints, drawn: int, upper: bool) -> int:
    """Largest or smallest sum of `drawn` replies."""
    total = 0
    for k in np.argsort(-d if upper else d, kind="stable"):
        take = min(drawn, int(m[k]))
        total += take * int(d[k])
        drawn -= take
    return total


# ------------------------------------------------------------ small arms: additions


def _by_addition(active: list[tuple[Ints, Ints, int]]) -> tuple[Ints, Floats]:
    """Probabilities by a table over (replies dealt, sum); only non-negative additions."""
    start, result = 0, np.ones(1)
    for m, d, drawn in active:
        size, total = int(m.sum()), int(m @ d)
        small = min(drawn, size - drawn)
        low, part = _dealt_by_addition(m, d, small)
        if small != drawn:  # the other arm was counted: the rest belongs to this one
            low, part = total - low - (len(part) - 1), part[::-1]
        start += low
        result = np.convolve(result, part)
    return start + np.arange(len(result), dtype=np.int64), result


def _dealt_by_addition(m: Ints, d: Ints, drawn: int) -> tuple[int, Floats]:
    odds = drawn / int(m.sum())  # keeps the coefficients in range
    top = drawn * int(d.max())
    table = np.zeros((drawn + 1, top + 1))
    table[0, 0] = 1.0
    for mk, dk in zip(m.tolist(), d.tolist(), strict=True):
        new = np.zeros_like(table)
        weight = 1.0
        for x in range(min(mk, drawn) + 1):
            if x:
                # a running product: log-gamma would lose five digits at 30,000 replies
                weight *= (mk - x + 1) / x * odds
            new[x:, x * dk :] += weight * table[: drawn + 1 - x, : top + 1 - x * dk]
        table = new
    low, high = _extreme(m, d, drawn, False), _extreme(m, d, drawn, True)
    part = table[drawn, low : high + 1]
    return low, part / part.sum()


# ------------------------------------------------------------ large arms: inversion


@dataclass(frozen=True, slots=True)
class _Tilted:
    """A pool under the tilt: independent replies, dealt with probability `p`."""

    m: Floats
    d: Ints
    drawn: int
    p: Floats
    q: Floats  # 1 - p without cancellation
    log_weight: float  # log of (tilted likelihood at lambda 0) / (true one)
    variance: float  # of the sum, given the number dealt
    variance_dealt: float  # of the number dealt


def _by_inversion(
    active: list[tuple[Ints, Ints, int]], target: float, low: int, high: int
) -> tuple[Ints, Floats]:
    center = min(max(target, low + 0.5), high - 0.5)
    mean = [n * float(m @ d) / float(m.sum()) for m, d, n in active]
    tilt = _solve_tilt(active, center, mean)
    pools = [_tilted(m, d, n, tilt) for m, d, n in active]
    sd = sqrt(sum(t.variance for t in pools))
    length = min(high - low + 1, ceil(2 * _WIDTH * sd) + 60)
    base = low if length == high - low + 1 else floor(center) - length // 2
    frequencies = np.arange(length // 2 + 1, dtype=np.int64)
    phi = np.ones(len(frequencies), dtype=np.complex128)
    for pool in pools:
        frequencies, phi = _multiply(pool, frequencies, phi, length)
    full = np.zeros(length // 2 + 1, dtype=np.complex128)
    full[frequencies] = phi * _turns(-frequencies * (base % length), length)
    values = base + np.arange(length, dtype=np.int64)
    mass = np.maximum(np.fft.irfft(np.conj(full), n=length), 0.0)
    log_weight = sum(t.log_weight for t in pools) - tilt * (values - sum(mean))
    inside = (values >= low) & (values <= high)
    # Towards the mean the weight explodes over pure rounding noise; nobody reads it.
    with np.errstate(over="ignore", invalid="ignore"):
        probabilities = mass * np.exp(np.minimum(log_weight, 600.0))
    return values[inside], probabilities[inside]


def _solve_tilt(
    active: list[tuple[Ints, Ints, int]], center: float, mean: list[float]
) -> float:
    """The tilt under which the expected sum is `center`; monotone, so bracketed."""
    offset = center - sum(mean)

    def gap(tilt: float) -> tuple[float, float]:
        excess, slope = -offset, 0.0
        for m, d, n in active:
            dc = d - float(m @ d) / float(m.sum())
            p, q, _ = _deal(m, dc, n, tilt)
            excess += float((m * p) @ dc)
            slope += _conditional_variance(m * p * q, dc)[0]
        return excess, slope

    tilt, low, high = 0.0, -np.inf, np.inf
    for _ in range(200):
        excess, slope = gap(tilt)
        if excess > 0:
            high = tilt
        else:
            low = tilt
        if abs(excess) < 1e-9 * max(1.0, sqrt(slope)):
            break
        step = tilt - excess / slope if slope > 0 else np.nan
        if not low < step < high:
            if np.isinf(low) or np.isinf(high):
                step = 2 * tilt + (-1.0 if excess > 0 else 1.0)
            else:
                step = (low + high) / 2
        if step == tilt:
            break
        tilt = float(step)
    return tilt


def _deal(m: Ints, dc: Floats, drawn: int, tilt: float) -> tuple[Floats, Floats, float]:
    """Probabilities p with sum(m p) = drawn and log-odds linear in the score."""
    from scipy.special import expit

    size = int(m.sum())
    start = log(drawn / (size - drawn))
    reach = tilt * dc
    low, high = start - float(reach.max()), start - float(reach.min())
    a = min(max(start, low), high)
    p = q = np.empty(0)
    for _ in range(200):
        p, q = expit(a + reach), expit(-a - reach)
        excess = float(m @ p) - drawn
        slope = float(m @ (p * q))
        if excess > 0:
            high = a
        else:
            low = a
        if abs(excess) <= 1e-13 * drawn:
            break
        step = a - excess / slope if slope > 0 else np.nan
        if not low < step < high:
            step = (low + high) / 2
        if step == a or high - low < 1e-15 * max(1.0, abs(a)):
            break
        a = float(step)
    return p, q, a - start


def _conditional_variance(weight: Floats, dc: Floats) -> tuple[float, float]:
    """Variance of the sum given the number dealt, and of the number dealt."""
    total = float(weight.sum())
    if total <= 0:
        return 0.0, 0.0
    center = float(weight @ dc) / total
    return float(weight @ (dc - center) ** 2), total


def _tilted(m: Ints, d: Ints, drawn: int, tilt: float) -> _Tilted:
    size = int(m.sum())
    dc = d - float(m @ d) / size
    p, q, shift = _deal(m, dc, drawn, tilt)
    variance, dealt = _conditional_variance(m * p * q, dc)
    base = drawn / size
    # Differences from the untilted point: log-gammas of size N would cost the digits.
    log_weight = (
        -_log_binomial_at_mean(drawn, size)
        - shift * drawn
        + float(m @ np.log1p(base * np.expm1(shift + tilt * dc)))
    )
    return _Tilted(m.astype(float), d, drawn, p, q, log_weight, variance, dealt)


def _multiply(
    pool: _Tilted, frequencies: Ints, phi: NDArray[np.complex128], length: int
) -> tuple[Ints, NDArray[np.complex128]]:
    """Multiply in one pool's characteristic function, keeping what is not negligible."""
    size = int(pool.m.sum())
    modulus = min(size + 1, ceil(10 * sqrt(pool.variance_dealt)) + 60)
    spread = pool.p * pool.q
    # |factor|**m < exp(-44) once the angle exceeds this; pi where it never does
    ratio = -np.expm1(-2 * _NEGLIGIBLE / pool.m) / np.maximum(4 * spread, 1e-300)
    reach = 2 * np.arcsin(np.sqrt(np.minimum(ratio, 1.0)))
    first, second = np.argsort(reach, kind="stable")[:2]
    apart = abs(int(pool.d[second] - pool.d[first]))
    off = (frequencies * apart) % length
    off = np.minimum(off, length - off)
    keep = off * (2 * pi / length) <= reach[first] + reach[second]
    frequencies, phi = frequencies[keep], phi[keep]
    half = ceil(modulus * float(reach[first]) / (2 * pi)) + 1
    around = (
        np.arange(modulus, dtype=np.int64)
        if 2 * half + 1 >= modulus
        else np.arange(-half, half + 1, dtype=np.int64)
    )
    origin = np.rint(
        -((frequencies * int(pool.d[first])) % length) * (modulus / length)
    ).astype(np.int64)
    dealt = np.empty(len(frequencies), dtype=np.complex128)
    rows = max(1, _CHUNK // len(around))
    for start in range(0, len(frequencies), rows):
        cut = slice(start, start + rows)
        r = origin[cut, None] + around
        exponent = np.zeros(r.shape)
        angle = np.zeros(r.shape)
        for mk, dk, pk, qk in zip(pool.m, pool.d, pool.p, pool.q, strict=True):
            along = (frequencies[cut] * int(dk)) % length / length
            turn = r / modulus + along[:, None]
            size_k, angle_k = _log_factor(pk, qk, turn, crude=mk > 200)
            exponent += mk * size_k
            angle += mk * angle_k
        angle -= ((r * (pool.drawn % modulus)) % modulus) * (2 * pi / modulus)
        dealt[cut] = (np.exp(exponent) * (np.cos(angle) + 1j * np.sin(angle))).sum(1)
    return frequencies, phi * dealt / modulus


def _log_factor(
    p: float, q: float, turn: Floats, *, crude: bool
) -> tuple[Floats, Floats]:
    """log|q + p exp(ix)| and its angle, x being `turn` whole turns.

    Near a half turn the modulus may vanish and needs the direct form; with many
    replies at the level (`crude`) the factor is negligible there.
    """
    x = 2 * pi * (turn - np.rint(turn))
    sine = np.sin(x / 2) ** 2
    shrink = 4 * p * q * sine
    real, imaginary = 1 - 2 * p * sine, p * np.sin(x)
    size = 0.5 * np.log1p(-np.minimum(shrink, 0.999))
    if not crude:
        far = shrink > 0.5
        with np.errstate(divide="ignore"):
            size[far] = np.log(np.hypot(real[far], imaginary[far]))
    return size, np.arctan2(imaginary, real)


def _turns(numerator: Ints, denominator: int) -> NDArray[np.complex128]:
    angle = (numerator % denominator) * (2 * pi / denominator)
    out: NDArray[np.complex128] = np.cos(angle) + 1j * np.sin(angle)
    return out


def _log_binomial_at_mean(drawn: int, size: int) -> float:
    """Log of the binomial probability of `drawn` in `size` trials at its own rate."""
    rest = size - drawn
    return (
        0.5 * log(size / (2 * pi * drawn * rest))
        + _stirling_error(size)
        - _stirling_error(drawn)
        - _stirling_error(rest)
    )


def _stirling_error(n: int) -> float:
    return float(stirling_errors(np.array([float(n)]))[0])


def stirling_errors(n: Floats) -> Floats:
    """log n! minus Stirling's formula (Loader 2000), without cancellation; n above 0."""
    from scipy.special import gammaln

    small = np.minimum(n, 30.0)
    direct = gammaln(small + 1) - (small + 0.5) * np.log(small) + small
    square = n * n
    series = 1 / 1260 - (1 / 1680) / square
    series = 1 / 12 - (1 / 360 - series / square) / square
    out: Floats = np.where(n < 30, direct - 0.5 * log(2 * pi), series / n)
    return out


def _binomials(d: Ints, counts: Ints, center: float) -> tuple[Ints, Floats]:
    """Probabilities of sum(d X), X ~ Binomial(counts, 1/2), around `center`."""
    from scipy.special import expit

    total = int(d @ counts)
    if total <= 2000:
        small = np.ones(1)
        for dk, nk in zip(d.tolist(), counts.tolist(), strict=True):
            part = np.zeros(dk * nk + 1)
            part[::dk] = [comb(nk, x) / 2**nk for x in range(nk + 1)]
            small = np.convolve(small, part)
        return np.arange(len(small), dtype=np.int64), small
    center = min(max(center, 0.5), total - 0.5)
    tilt, low, high = 0.0, -np.inf, np.inf
    p = np.full(len(d), 0.5)
    q = p
    for _ in range(200):
        p, q = expit(tilt * d), expit(-tilt * d)
        excess = float((counts * p) @ d) - center
        slope = float((counts * p * q) @ (d * d))
        low, high = (low, tilt) if excess > 0 else (tilt, high)
        if abs(excess) < 1e-9 * max(1.0, sqrt(slope)):
            break
        step = tilt - excess / slope if slope > 0 else np.nan
        if not low < step < high:
            unbounded = np.isinf(low) or np.isinf(high)
            step = (
                2 * tilt + (-0.1 if excess > 0 else 0.1)
                if unbounded
                else (low + high) / 2
            )
        if step == tilt:
            break
        tilt = float(step)
    sd = sqrt(float((counts * p * q) @ (d * d)))
    length = min(total + 1, ceil(2 * _WIDTH * sd) + 60)
    base = 0 if length == total + 1 else floor(center) - length // 2
    j = np.arange(length // 2 + 1, dtype=np.int64)
    exponent, angle = np.zeros(len(j)), np.zeros(len(j))
    for dk, nk, pk, qk in zip(d.tolist(), counts.tolist(), p, q, strict=True):
        turn = (j * dk) % length / length
        size_k, angle_k = _log_factor(pk, qk, turn, crude=nk > 200)
        exponent += nk * size_k
        angle += nk * angle_k
    phi = np.exp(exponent) * (np.cos(angle) + 1j * np.sin(angle))
    phi = phi * _turns(-j * (base % length), length)
    values = base + np.arange(length, dtype=np.int64)
    mass = np.maximum(np.fft.irfft(np.conj(phi), n=length), 0.0)
    log_weight = float(counts @ np.log1p(np.expm1(tilt * d) / 2)) - tilt * values
    inside = (values >= 0) & (values <= total)
    with np.errstate(over="ignore"):
        probabilities = mass * np.exp(np.minimum(log_weight, 600.0))
    return values[inside], probabilities[inside]

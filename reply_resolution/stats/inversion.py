"""Lattice probabilities by inverting a tilted characteristic function.

Three changes turn the method of Pagano and Tritchler (1983, JASA 78, 435-440),
quadratic in the replies, into one that costs about the square root of their number:

* an exponential tilt puts the mode at the threshold, so that a tail of 1e-200 keeps all
  its digits;
* the window spans nine standard deviations either way, not the whole range;
* the function is evaluated only where it exceeds exp(-44), which is where the two
  heaviest levels both have an angle close to a whole turn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, copysign, floor, inf, isfinite, log, nan, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from reply_resolution.stats.arrays import Floats, Ints
from reply_resolution.stats.saddlepoint import fast_length, log_binomial_at_mean

_NEGLIGIBLE = 44.0  # exp(-44) is 8e-20: below rounding beside a sum of order one
_WIDTH = 9.2  # half-width of the window in sd; exp(-9.2**2 / 2) = 4e-19
_CHUNK = 150_000  # grid points evaluated at once; bounds memory at some 10 MB

#: Replies at each held score, offsets from the lowest one, how many are dealt.
Active = tuple[Ints, Ints, int]
Complexes = NDArray[np.complex128]


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


def dealt_by_inversion(
    active: list[Active], target: float, low: int, high: int
) -> tuple[Ints, Floats]:
    """Probabilities of the sum dealt, accurate at the target and further out."""
    center = min(max(target, low + 0.5), high - 0.5)
    mean = sum(n * float(m @ d) / float(m.sum()) for m, d, n in active)

    def gap(tilt: float) -> tuple[float, float]:
        excess, slope = mean - center, 0.0
        for m, d, n in active:
            dc = _centred(m, d)
            p, q, _ = _deal(m, dc, n, tilt)
            excess += float((m * p) @ dc)
            slope += _conditional_variance(m * p * q, dc)[0]
        return excess, slope

    tilt = _root(gap, 0.0, -inf, inf, _close_to_center)
    pools = [_tilted(m, d, n, tilt) for m, d, n in active]
    base, length = _window(sqrt(sum(t.variance for t in pools)), center, low, high)
    frequencies = np.arange(length // 2 + 1, dtype=np.int64)
    phi = np.ones(len(frequencies), dtype=np.complex128)
    for pool in pools:
        frequencies, phi = _multiply(pool, frequencies, phi, length)
    full = np.zeros(length // 2 + 1, dtype=np.complex128)
    full[frequencies] = phi
    shift = sum(t.log_weight for t in pools) + tilt * mean
    return _invert(full, base, length, (low, high), shift, tilt)


def flipped_by_inversion(d: Ints, counts: Ints, center: float) -> tuple[Ints, Floats]:
    """Probabilities of sum(d X), X ~ Binomial(counts, 1/2), around `center`."""
    from scipy.special import expit

    total = int(d @ counts)
    center = min(max(center, 0.5), total - 0.5)

    def gap(tilt: float) -> tuple[float, float]:
        p, q = expit(tilt * d), expit(-tilt * d)
        excess = float((counts * p) @ d) - center
        return excess, float((counts * p * q) @ (d * d))

    tilt = _root(gap, 0.0, -inf, inf, _close_to_center)
    p, q = expit(tilt * d), expit(-tilt * d)
    sd = sqrt(float((counts * p * q) @ (d * d)))
    base, length = _window(sd, center, 0, total)
    j = np.arange(length // 2 + 1, dtype=np.int64)
    exponent, angle = np.zeros(len(j)), np.zeros(len(j))
    for dk, nk, pk, qk in zip(d.tolist(), counts.tolist(), p, q, strict=True):
        turn = (j * dk) % length / length
        exponent += nk * _log_size(pk, qk, turn, crude=nk > 200)
        angle += nk * _angle(pk, turn)
    phi = np.exp(exponent) * (np.cos(angle) + 1j * np.sin(angle))
    shift = float(counts @ np.log1p(np.expm1(tilt * d) / 2))
    return _invert(phi, base, length, (0, total), shift, tilt)


def _window(sd: float, center: float, low: int, high: int) -> tuple[int, int]:
    """First sum and number of sums that are looked at: all, or those near center."""
    length = fast_length(min(high - low + 1, ceil(2 * _WIDTH * sd) + 40))
    return (low if length > high - low else floor(center) - length // 2), length


def _invert(
    phi: Complexes,
    base: int,
    length: int,
    limits: tuple[int, int],
    shift: float,
    tilt: float,
) -> tuple[Ints, Floats]:
    """Sums within the limits and their probabilities, the tilt taken out again."""
    angle = (-np.arange(len(phi)) * (base % length) % length) * (2 * pi / length)
    phi = phi * (np.cos(angle) + 1j * np.sin(angle))
    values = base + np.arange(length, dtype=np.int64)
    mass = np.maximum(np.fft.irfft(np.conj(phi), n=length), 0.0)
    inside = (values >= limits[0]) & (values <= limits[1])
    # Towards the mean the weight explodes over pure rounding noise; nobody reads it.
    with np.errstate(over="ignore", invalid="ignore"):
        weight = np.exp(np.minimum(shift - tilt * values, 600.0))
        return values[inside], (mass * weight)[inside]


def _root(
    gap: Callable[[float], tuple[float, float]],
    x: float,
    low: float,
    high: float,
    close: Callable[[float], float],
) -> float:
    """Where a growing function is 0: Newton's steps, kept inside a bracket.

    `gap` gives excess and slope; `close` how small an excess will do, by the slope.
    """
    for _ in range(200):
        excess, slope = gap(x)
        low, high = (low, x) if excess > 0 else (x, high)
        if abs(excess) <= close(slope):
            break
        step = x - excess / slope if slope > 0 else nan
        if not low < step < high:
            bounded = isfinite(high - low)
            step = (low + high) / 2 if bounded else 2 * x - copysign(1.0, excess)
        if step == x or high - low < 1e-15 * max(1.0, abs(x)):
            break
        x = step
    return x


def _close_to_center(variance: float) -> float:
    return 1e-9 * max(1.0, sqrt(variance))


def _centred(m: Ints, d: Ints) -> Floats:
    out: Floats = np.asarray(d - float(m @ d) / float(m.sum()), dtype=np.float64)
    return out


def _deal(m: Ints, dc: Floats, drawn: int, tilt: float) -> tuple[Floats, Floats, float]:
    """Probabilities p with sum(m p) = drawn and log-odds linear in the score."""
    from scipy.special import expit

    start = log(drawn / (int(m.sum()) - drawn))
    reach = tilt * dc

    def gap(a: float) -> tuple[float, float]:
        p = expit(a + reach)
        return float(m @ p) - drawn, float(m @ (p * expit(-a - reach)))

    low, high = start - float(reach.max()), start - float(reach.min())
    first = min(max(start, low), high)
    a = _root(gap, first, low, high, lambda _: 1e-13 * drawn)
    return expit(a + reach), expit(-a - reach), a - start


def _conditional_variance(weight: Floats, dc: Floats) -> tuple[float, float]:
    """Variance of the sum given the number dealt, and of the number dealt."""
    total = float(weight.sum())
    if total <= 0:
        return 0.0, 0.0
    center = float(weight @ dc) / total
    return float(weight @ (dc - center) ** 2), total


def _tilted(m: Ints, d: Ints, drawn: int, tilt: float) -> _Tilted:
    size = int(m.sum())
    dc = _centred(m, d)
    p, q, shift = _deal(m, dc, drawn, tilt)
    variance, dealt = _conditional_variance(m * p * q, dc)
    base = drawn / size
    # Differences from the untilted point: log-gammas of size N would cost the digits.
    log_weight = (
        -log_binomial_at_mean(drawn, size)
        - shift * drawn
        + float(m @ np.log1p(base * np.expm1(shift + tilt * dc)))
    )
    return _Tilted(m.astype(float), d, drawn, p, q, log_weight, variance, dealt)


def _multiply(
    pool: _Tilted, frequencies: Ints, phi: Complexes, length: int
) -> tuple[Ints, Complexes]:
    """Multiply in one pool's characteristic function; keep what is not negligible."""
    size = int(pool.m.sum())
    modulus = min(size + 1, ceil(10 * sqrt(pool.variance_dealt)) + 20)
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
        turns = [
            r / modulus + ((frequencies[cut] * int(dk)) % length / length)[:, None]
            for dk in pool.d
        ]
        exponent = np.zeros(r.shape)
        for mk, pk, qk, turn in zip(pool.m, pool.p, pool.q, turns, strict=True):
            exponent += mk * _log_size(pk, qk, turn, crude=mk > 200)
        kept = exponent > -_NEGLIGIBLE
        angle = ((r[kept] * (pool.drawn % modulus)) % modulus) * (-2 * pi / modulus)
        for mk, pk, turn in zip(pool.m, pool.p, turns, strict=True):
            angle += mk * _angle(pk, turn[kept])
        height = np.exp(exponent[kept])
        part = np.zeros(r.shape, dtype=np.complex128)
        part[kept] = height * np.cos(angle) + 1j * (height * np.sin(angle))
        dealt[cut] = part.sum(1)
    return frequencies, phi * dealt / modulus


def _log_size(p: float, q: float, turn: Floats, *, crude: bool) -> Floats:
    """log|q + p exp(ix)|, x being `turn` whole turns.

    Near a half turn it may vanish and needs the direct form; with many replies at the
    level (`crude`) the factor is negligible there.
    """
    sine = np.sin(pi * turn) ** 2
    size: Floats = 0.5 * np.log1p(-np.minimum(4 * p * q * sine, 0.999))
    if not crude:
        far = 4 * p * q * sine > 0.5
        x, low = 2 * pi * turn[far], 1 - 2 * p * sine[far]
        with np.errstate(divide="ignore"):
            size[far] = np.log(np.hypot(low, p * np.sin(x)))
    return size


def _angle(p: float, turn: Floats) -> Floats:
    """Angle of q + p exp(ix), x being `turn` whole turns."""
    x = 2 * pi * (turn - np.rint(turn))
    out: Floats = np.arctan2(p * np.sin(x), 1 - 2 * p * np.sin(x / 2) ** 2)
    return out

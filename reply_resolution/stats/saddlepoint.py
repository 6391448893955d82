"""Arrays of numbers, and binomials that keep their digits at any size (Loader).

Log-gammas of numbers of size N cost as many digits as N has: 4e-11 relative at 30,000
replies, and growing. Loader's (2000) split into Stirling errors and deviances does not;
R's `dbinom` is the same method.
"""

from math import log, pi

import numpy as np

from reply_resolution.stats.arrays import Floats, Ints


def log_binomial_at_mean(drawn: int, size: int) -> float:
    """Log of the binomial probability of `drawn` in `size` trials at its own rate."""
    rest = size - drawn
    errors = stirling_errors(np.array([size, drawn, rest], dtype=float))
    spread = 0.5 * log(size / (2 * pi * drawn * rest))
    return spread + float(errors[0] - errors[1] - errors[2])


def stirling_errors(n: Floats) -> Floats:
    """Error of Stirling's formula for log n!, without cancellation; n above 0."""
    from scipy.special import gammaln

    small = np.minimum(n, 30.0)
    direct = gammaln(small + 1) - (small + 0.5) * np.log(small) + small
    square = n * n
    series = 1 / 1260 - (1 / 1680) / square
    series = 1 / 12 - (1 / 360 - series / square) / square
    out: Floats = np.where(n < 30, direct - 0.5 * log(2 * pi), series / n)
    return out


def binomial_pmf(x: Ints, n: int, p: float) -> Floats:
    """Binomial probabilities by Loader's saddle point, accurate for large n."""
    from scipy.special import xlog1py, xlogy

    x = np.asarray(x, dtype=np.int64)
    inside = (x >= 0) & (x <= n)
    out = np.zeros(len(x))
    if n == 0:
        out[x == 0] = 1.0
        return out
    k = x[inside].astype(float)
    edge = (k == 0) | (k == n)
    log_p = np.empty(len(k))
    log_p[edge] = xlogy(k[edge], p) + xlog1py(n - k[edge], -p)
    k = k[~edge]
    deviance = _deviance(k, n * p) + _deviance(n - k, n * (1 - p))
    log_p[~edge] = (
        stirling_errors(np.array([float(n)]))[0]
        - stirling_errors(k)
        - stirling_errors(n - k)
        - deviance
        + 0.5 * np.log(n / (2 * np.pi * k * (n - k)))
    )
    out[inside] = np.exp(log_p)
    return out


def _deviance(x: Floats, mean: float) -> Floats:
    """Loader's bd0: x log(x / mean) - x + mean, without cancellation near the mean."""
    v = (x - mean) / (x + mean)
    near = np.abs(v) < 0.1
    out = np.empty(len(x))
    far = ~near
    out[far] = x[far] * np.log(x[far] / mean) + mean - x[far]
    w, xn = v[near], x[near]
    total = (xn - mean) * w
    term = 2 * xn * w
    for j in range(1, 30):
        term = term * w * w
        total = total + term / (2 * j + 1)
    out[near] = total
    return out


def fast_length(n: int) -> int:
    """Smallest length from n up whose only prime factors are 2, 3 and 5.

    Fourier transforms of prime lengths take several times as long.
    """
    best = 1 << max(0, (n - 1).bit_length())
    five = 1
    while five < best:
        three = five
        while three < best:
            length = three << max(0, (-(-n // three) - 1).bit_length())
            best = min(best, length) if length >= n else best
            three *= 3
        five *= 5
    return best

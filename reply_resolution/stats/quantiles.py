"""Normal and Student quantiles, so that scipy is imported where it is first used."""

from math import inf, isinf


def critical(confidence: float, df: float = inf) -> float:
    """Critical value: half-width of a two-sided interval, in standard errors.

    Args:
        confidence: Nominal coverage, fraction.
        df: Degrees of freedom of Student's t; infinite for the normal distribution.

    >>> round(critical(0.95), 4), round(critical(0.95, 10), 4)
    (1.96, 2.2281)
    """
    from scipy.special import ndtri, stdtrit

    tail = (1 - confidence) / 2
    return -float(ndtri(tail) if isinf(df) else stdtrit(df, tail))


def two_sided(statistic: float, df: float = inf) -> float:
    """Two-sided p-value of a statistic in standard errors; 0 where it is infinite.

    Args:
        statistic: Estimate divided by its standard error.
        df: As for `critical`.
    """
    from scipy.special import ndtr, stdtr

    away = -abs(statistic)
    return 2 * float(ndtr(away) if isinf(df) else stdtr(df, away))

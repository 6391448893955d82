"""Several p-values at once: adjusted so that the family keeps its error rate.

One comparison is primary and needs no adjustment; guardrails, cuts and further arms
do. An adjusted p-value is read like a plain one: reject where it is at most alpha
(equality included; some libraries lose exactly that case).
"""

from collections.abc import Sequence
import math
from typing import Literal, get_args

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Floats

Method = Literal["holm", "hochberg", "hommel", "bonferroni", "bh", "by"]
_METHODS = get_args(Method)


def adjust(pvalues: Sequence[float], method: Method = "holm") -> tuple[float, ...]:
    """Adjust p-values for being looked at together.

    Args:
        pvalues: The p-values, fractions 0 to 1, any number from one up.
        method: What is controlled. "holm" (default) and "bonferroni": the chance of
            any false alarm, whatever the dependence. "hochberg" and "hommel": the
            same, for independent or positively dependent tests, with more power.
            "bh": the share of false alarms among the alarms, for the same dependence;
            "by": that share, whatever the dependence.

    Returns:
        The adjusted p-values, in the order given, each from 0 to 1.

    Raises:
        StatisticsError: No p-values, one that is not a number from 0 to 1, or a
            method that does not exist.

    Source: Holm 1979; Hochberg 1988; Hommel 1988; Benjamini and Hochberg 1995;
    Benjamini and Yekutieli 2001. Same numbers as R's `p.adjust`.

    >>> adjust([0.01, 0.02, 0.03, 0.04, 0.05])
    (0.05, 0.08, 0.09, 0.09, 0.09)
    """
    if method not in _METHODS:
        raise StatisticsError(
            f"adjustment {method!r} does not exist; choose one of {', '.join(_METHODS)}"
            " (holm is right for guardrails)."
        )
    for place, value in enumerate(pvalues):
        number = isinstance(value, float | int | np.floating)
        if isinstance(value, bool) or not number or not 0.0 <= value <= 1.0:
            raise StatisticsError(
                f"p-value {value!r} at place {place} is no number from 0 to 1; leave "
                "out tests that could not be done, with the reason beside the result."
            )
    if len(pvalues) == 0:
        raise StatisticsError("there are no p-values to adjust; give at least one.")
    p = np.asarray(pvalues, dtype=float)
    m = len(p)
    order = np.argsort(p, kind="stable")
    ranked, rank = p[order], np.arange(1, m + 1)
    if method == "bonferroni":
        adjusted = ranked * m
    elif method == "holm":
        adjusted = np.maximum.accumulate(ranked * (m - rank + 1))
    elif method == "hochberg":
        adjusted = _from_the_top(ranked * (m - rank + 1))
    elif method == "hommel":
        adjusted = _hommel(ranked)
    else:
        sum_of_inverses = math.fsum(1 / rank) if method == "by" else 1.0
        adjusted = _from_the_top(ranked * (sum_of_inverses * m / rank))
    result = np.empty(m)
    result[order] = np.minimum(adjusted, 1.0)
    # 0.03 * 3 is 0.09 for the reader; the last bits of a product are noise.
    return tuple(float(f"{value:.15g}") for value in result)


def _from_the_top(values: Floats) -> Floats:
    """Each value lowered to the smallest of itself and those above it."""
    return np.minimum.accumulate(values[::-1])[::-1]


def _hommel(ranked: Floats) -> Floats:
    """Hommel's adjustment of sorted p-values, by his algorithm (as in `p.adjust`)."""
    m = len(ranked)
    rank = np.arange(1, m + 1)
    best = np.full(m, np.min(m * ranked / rank))
    adjusted = best.copy()
    for size in range(m - 1, 1, -1):
        low = np.arange(m - size + 1)
        high = np.arange(m - size + 1, m)
        smallest = np.min(size * ranked[high] / np.arange(2, size + 1))
        best[low] = np.minimum(size * ranked[low], smallest)
        best[high] = best[m - size]
        adjusted = np.maximum(adjusted, best)
    return np.maximum(adjusted, ranked)

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
from reply_resolution.stats.permutation import deal, ratio
from reply_resolution.stats.pvalues import RESAMPLES, Alternative
from reply_resolution.stats.saddlepoint import Floats, Ints

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


def max_t_arms(
    counts: Ints,
    *,
    alternative: Alternative = "two-sided",
    seed: int = 0,
    resamples: int | None = None,
) -> tuple[float, ...]:
    """Family-wise p-values of every treatment against control.

    All arms are dealt anew from one pool; the statistics are studentized, so that a
    treatment that truly differs does not spoil the verdict on the others (with plain
    statistics it would). Step-down after Westfall and Young: the largest statistic is
    compared with the largest of all, the next with the largest of the rest.

    Args:
        counts: Replies by arm and level, control first; shape (A, K).
        alternative: "greater": treatment above control.
        seed: Of the draws.
        resamples: How many; 9,999 by default.

    Returns:
        One p-value per treatment, by the +1 rule.

    Source: Westfall and Young 1993, algorithm 2.8; Chung and Romano 2016.
    """
    size = RESAMPLES if resamples is None else resamples
    rng = np.random.default_rng(seed)
    pool, n = counts.sum(0), counts.sum(1)
    observed = _statistics(counts[None], alternative)[0]
    order = np.argsort(-observed, kind="stable")
    hits = np.zeros(len(order), dtype=np.int64)
    rows = 20_000
    for start in range(0, size, rows):
        b = min(rows, size - start)
        statistics = _statistics(_deal_all(rng, pool, n, b), alternative)[:, order]
        # the largest among this one and all that come after it
        tail = np.maximum.accumulate(statistics[:, ::-1], axis=1)[:, ::-1]
        bound = observed[order]
        slack = np.where(np.isfinite(bound), 1e-10 * np.maximum(1.0, np.abs(bound)), 0)
        hits += (tail >= bound - slack).sum(0)
    pvalues = np.maximum.accumulate((hits + 1) / (size + 1))
    out = np.empty(len(order))
    out[order] = np.minimum(1.0, pvalues)
    return tuple(float(p) for p in out)


def _deal_all(rng: np.random.Generator, pool: Ints, n: Ints, size: int) -> Ints:
    """Every arm's counts under one random dealing; shape (size, A, K)."""
    out = np.empty((size, len(n), len(pool)), dtype=np.int64)
    left = np.broadcast_to(pool, (size, len(pool))).copy()
    for a in range(len(n) - 1):
        # after the first arm the rest of the pool differs from draw to draw
        out[:, a] = (
            deal(rng, pool, int(n[0]), size) if a == 0 else _take(rng, left, n[a])
        )
        left -= out[:, a]
    out[:, -1] = left
    return out


def _take(rng: np.random.Generator, left: Ints, drawn: int) -> Ints:
    """So many replies dealt from each row's own pool."""
    out = np.empty_like(left)
    need = np.full(len(left), drawn, dtype=np.int64)
    rest = left.sum(1)
    for k in range(left.shape[1]):
        rest = rest - left[:, k]
        out[:, k] = rng.hypergeometric(left[:, k], rest, need)
        need = need - out[:, k]
    return out


def _statistics(drawn: Ints, alternative: Alternative) -> Floats:
    """Welch statistic of each treatment; shape (B, A - 1), large is extreme."""
    s = np.arange(drawn.shape[2])
    n = drawn.sum(2)
    mean = (drawn @ s) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.maximum((drawn @ (s * s)) / n - mean**2, 0) / (n - 1)
    variance = np.where(n > 1, variance, 0.0)
    t = ratio(mean[:, 1:] - mean[:, :1], np.sqrt(variance[:, 1:] + variance[:, :1]))
    if alternative == "two-sided":
        return np.abs(t)
    return t if alternative == "greater" else -t

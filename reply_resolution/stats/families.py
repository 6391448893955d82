"""Several treatments against one control: step-down max-T over joint permutations."""

import numpy as np

from reply_resolution.stats.permutation import deal, ratio
from reply_resolution.stats.pvalues import RESAMPLES, Alternative
from reply_resolution.stats.saddlepoint import Floats, Ints


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
        drawn = _deal_all(rng, pool, n, b)
        statistics = _statistics(drawn, alternative)[:, order]
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
    arms = len(n)
    out = np.empty((size, arms, len(pool)), dtype=np.int64)
    left = np.broadcast_to(pool, (size, len(pool))).copy()
    for a in range(arms - 1):
        if a == 0:
            taken = deal(rng, pool, int(n[0]), size)
        else:  # the rest of the pool differs from draw to draw
            taken = _hypergeometric(rng, left, int(n[a]))
        out[:, a] = taken
        left = left - taken
    out[:, -1] = left
    return out


def _hypergeometric(rng: np.random.Generator, left: Ints, drawn: int) -> Ints:
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

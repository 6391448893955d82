"""Effects averaged over strata, and their intervals, from counts."""

from dataclasses import dataclass

import numpy as np

from reply_resolution.stats.arrays import Floats, Ints
from reply_resolution.stats.bootstrap import (
    Interval,
    expanded_tail,
    few_units,
    near_constant,
    unseen_variance,
)
from reply_resolution.stats.effects import placements
from reply_resolution.stats.strata import stratified_rate_interval, stratum_weights

_NAME = "bootstrap within strata, expanded percentile"
_RATES = "Miettinen-Nurminen within strata"
#: From so many strata with a single reply of an arm on, their own scatter is measured.
_MANY_THIN = 10


@dataclass(frozen=True, slots=True)
class StratifiedEffects:
    """Effects averaged over strata, each weighted by n1 n0 / (n1 + n0).

    Attributes:
        mean: Difference in means, in points; above 0 favours treatment.
        mean_interval: Its interval.
        resolved: Difference in the share at or above the cut, fraction.
        resolved_interval: Its interval.
        wins: Win probability within a stratum, fraction; above 0.5 favours treatment.
        wins_interval: Its interval.
    """

    mean: float
    mean_interval: Interval
    resolved: float
    resolved_interval: Interval
    wins: float
    wins_interval: Interval


def stratified_effects(
    control: Ints,
    treatment: Ints,
    values: Ints,
    cut: int,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 9_999,
) -> StratifiedEffects:
    """Effects within strata: bootstrap intervals, and a score interval of the rates.

    The weights are those of the exact stratified test. Replies are resampled within
    their stratum and arm, as counts, so cost does not depend on their number. An arm
    with a single reply in a stratum has no spread there to resample; leaving it out
    would make the interval too narrow. Where there are at least ten such strata they
    are resampled whole, which also counts it as noise if the effect differs among them;
    where there are fewer, the single reply is given the arm's spread in other strata.

    Args:
        control: Control's replies by stratum and level, none empty; shape (H, K).
        treatment: The same for the treatment.
        values: Value of each level; shape (K,).
        cut: Lowest value that counts as resolved.
        confidence: Nominal coverage, fraction.
        seed: Of the draws.
        resamples: How many.

    Source: collapsed strata, Cochran 1977, "Sampling Techniques", 5A.12; the average
    for a single unit, Lumley 2010, "Complex Surveys", 2.4 (`survey.lonely.psu`).
    """
    n0, n1 = control.sum(1), treatment.sum(1)
    weight = stratum_weights(n0, n1)
    levels = values.astype(float)
    rng = np.random.default_rng(seed)
    thin = np.minimum(n0, n1) == 1
    if thin.sum() < _MANY_THIN:
        thin[:] = False
    found = []
    gaps = np.stack([_gap(control, treatment, levels), _wins(control, treatment)])
    whole = _drawn_whole(weight[thin], gaps[:, thin], rng, resamples)
    inside = _drawn_within(
        weight[~thin], control[~thin], treatment[~thin], levels, rng, resamples
    )
    few, near = few_units(min(int(n0.sum()), int(n1.sum()))), ""
    unseen = sum(unseen_variance(arm.sum(0), values) for arm in (control, treatment))
    for row, estimate in enumerate(gaps @ weight):
        drawn = whole.drawn[row] + inside.drawn[row]
        parts = whole.parts[row] + inside.parts[row]
        if row == 0:
            near = near_constant(unseen, sum(v for v, _ in parts))
        ends = _interval(estimate, drawn, parts, confidence, few or near)
        found.append((float(estimate), ends))
    high = values >= cut
    x0, x1 = control[:, high].sum(1), treatment[:, high].sum(1)
    low, up, _ = stratified_rate_interval(
        list(zip(x1.tolist(), n1.tolist(), x0.tolist(), n0.tolist(), strict=True)),
        weight,
        confidence=confidence,
    )
    resolved = float(weight @ (x1 / n1 - x0 / n0))
    return StratifiedEffects(
        *found[0], resolved, Interval(low, up, _RATES, not few, few), *found[1]
    )


@dataclass(frozen=True, slots=True)
class _Draws:
    """Resampled sums over strata of weighted mean difference and win probability.

    Attributes:
        drawn: The sums; shape (2, resamples).
        parts: Of each of the two, bootstrap variance and units of what is independent.
    """

    drawn: Floats
    parts: tuple[list[tuple[float, int]], list[tuple[float, int]]]


def _gap(c: Ints, t: Ints, levels: Floats) -> Floats:
    out: Floats = (t @ levels) / t.sum(-1) - (c @ levels) / c.sum(-1)
    return out


def _wins(c: Ints, t: Ints) -> Floats:
    out: Floats = (t * placements(c.astype(float))).sum(-1) / t.sum(-1)
    return out


def _drawn_whole(
    weight: Floats, gaps: Floats, rng: np.random.Generator, resamples: int
) -> _Draws:
    """Strata as units: what they are off their mean is resampled; gaps is (2, H)."""
    n = len(weight)
    if n == 0:
        return _Draws(np.zeros((2, resamples)), ([], []))
    sums = gaps @ weight
    off = weight * (gaps - (sums / weight.sum())[:, None])
    kinds, number = np.unique(off, axis=1, return_counts=True)
    drawn = np.empty((2, resamples))
    block = max(1, 2_000_000 // len(number))  # so that memory stays small
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        picked = rng.multinomial(n, number / n, size)
        drawn[:, start : start + size] = sums[:, None] + kinds @ picked.T
    first, second = (float(v) for v in kinds**2 @ number)
    return _Draws(drawn, ([(first, n)], [(second, n)]))


def _drawn_within(
    weight: Floats,
    control: Ints,
    treatment: Ints,
    levels: Floats,
    rng: np.random.Generator,
    resamples: int,
) -> _Draws:
    """Replies are resampled within their stratum and arm."""
    drawn = np.zeros((2, resamples))
    parts: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])
    # Of each row and arm: squares within strata, their degrees of freedom, and the
    # squared weights of single replies.
    squares, degrees, single = np.zeros((2, 2)), [0, 0], np.zeros(2)
    for w, c, t in zip(weight, control, treatment, strict=True):
        x, y = (rng.multinomial(a.sum(), a / a.sum(), resamples) for a in (c, t))
        drawn[0] += w * _gap(x, y, levels)
        drawn[1] += w * _wins(x, y)
        # The win probability's parts are means of placements in the other arm.
        sides = ((levels, levels), (placements(1.0 * t), placements(1.0 * c)))
        for i, arm in enumerate((c, t)):
            n = int(arm.sum())
            degrees[i] += n - 1
            single[i] += w * w * (n == 1)
            for row in range(2):
                side = sides[row][i]
                square = float(arm @ (side - arm @ side / n) ** 2)
                squares[row, i] += square
                parts[row].append((w * w * square / n**2, n))
    for i, df in enumerate(degrees):
        if not (df and single[i]):
            continue
        for row in range(2):
            lent = squares[row, i] / df * single[i]
            drawn[row] += rng.normal(0, np.sqrt(lent), resamples)
            parts[row].append((float(lent) * df / (df + 1), df + 1))
    return _Draws(drawn, parts)


def _interval(
    estimate: float,
    drawn: Floats,
    parts: list[tuple[float, int]],
    confidence: float,
    reason: str,
) -> Interval:
    if sum(v for v, n in parts if n > 1) <= 1e-18:
        return Interval(estimate, estimate, _NAME, False, "degenerate: no spread")
    tail = expanded_tail(parts, confidence)
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(float(low), float(high), _NAME, not reason, reason)

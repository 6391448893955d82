"""One treatment against control, by design: rows, strata, users, or pairs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Ints
from reply_resolution.stats.binary import score_interval
from reply_resolution.stats.binary_designs import tango_interval
from reply_resolution.stats.bootstrap import (
    Interval,
    difference_interval,
    few_units,
    mean_interval,
)
from reply_resolution.stats.clusters import unit_cut_tests, unit_permutation_test
from reply_resolution.stats.comparison import TreatmentEffect
from reply_resolution.stats.counts import ScoreCounts, joint_table, plural
from reply_resolution.stats.effects import (
    WinProbability,
    odds_ratio,
    paired_win_probability,
    win_probability,
)
from reply_resolution.stats.maxt import (
    CutEffect,
    cut_tests,
    holm_cuts,
    paired_cuts,
)
from reply_resolution.stats.permutation import (
    paired_permutation_test,
    permutation_test,
)
from reply_resolution.stats.pvalues import Alternative, Convention, PermutationTest
from reply_resolution.stats.quantiles import critical
from reply_resolution.stats.strata import stratum_weights
from reply_resolution.stats.stratified import stratified_effects
from reply_resolution.stats.unit_effects import (
    Units,
    paired_unit_effect,
    paired_unit_rate,
    unit_effect,
    unit_rate_effect,
    unit_win_probability,
)

Ends = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of a comparison; see `compare` for each."""

    alternative: Alternative
    confidence: float
    cut: int
    convention: Convention
    interval: Literal["expanded", "percentile", "bca"]
    seed: int
    resamples: int | None


def independent(
    counts: ScoreCounts,
    names: tuple[str, str],
    request: Request,
    unequal: bool,
    warnings: list[str],
) -> TreatmentEffect:
    """Rows are the units, within strata where there are any."""
    control, treatment = names
    c, t = (counts.counts[:, counts.arms.index(name)] for name in names)
    both = (c.sum(1) > 0) & (t.sum(1) > 0)
    lost = int(c[~both].sum() + t[~both].sum())
    if lost and len(counts.strata) > 1:
        warnings.append(
            f"{plural(lost, 'row')} of {control!r} and {treatment!r} are in strata "
            "that only one of them has, so they carry no comparison."
        )
    if not both.any():
        raise StatisticsError(
            f"{treatment!r} and {control!r} share no stratum; leave the stratum out."
        )
    c, t = c[both], t[both]
    studentized = unequal
    if studentized and ((c.sum(1) < 2).any() or (t.sum(1) < 2).any()):
        studentized = False
        warnings.append(
            "An arm (or a stratum of it) has a single reply, so the test could not be "
            "studentized; with an unequal plan its p-value is approximate."
        )
    test = permutation_test(
        c,
        t,
        values=counts.levels,
        alternative=request.alternative,
        convention=request.convention,
        studentized=studentized,
        seed=request.seed,
        resamples=request.resamples,
    )
    if len(c) > 1:
        return _within_strata(counts, names, c, t, test, request, warnings)
    c, t = c.sum(0), t.sum(0)
    n0, n1 = int(c.sum()), int(t.sum())
    high = counts.levels >= request.cut
    x0, x1 = int(c[high].sum()), int(t[high].sum())
    z = critical(request.confidence)
    odds = odds_ratio(c, t, confidence=request.confidence)
    return _assemble(
        names,
        (n0, n1),
        (n0, n1),
        request,
        int(t @ counts.levels) / n1 - int(c @ counts.levels) / n0,
        difference_interval(
            c,
            t,
            values=counts.levels,
            confidence=request.confidence,
            method=request.interval,
        ),
        test,
        win_probability(c, t, confidence=request.confidence),
        (x1 / n1 - x0 / n0, score_interval(x1, n1, x0, n0, z=z), "Miettinen-Nurminen"),
        cut_tests(c, t, lowest=counts.scale[0]),
        warnings,
        odds=(odds.ratio, (odds.low, odds.high)),
    )


def _within_strata(
    counts: ScoreCounts,
    names: tuple[str, str],
    c: Ints,
    t: Ints,
    test: PermutationTest,
    request: Request,
    warnings: list[str],
) -> TreatmentEffect:
    """Effects averaged over strata; the odds ratio would need a model of them."""
    found = stratified_effects(
        c,
        t,
        counts.levels,
        request.cut,
        confidence=request.confidence,
        seed=request.seed,
    )
    n0, n1 = c.sum(1), t.sum(1)
    weight = stratum_weights(n0, n1)
    cuts = []
    for k in range(1, len(counts.levels)):
        below, above = (np.stack([a[:, :k].sum(1), a[:, k:].sum(1)], 1) for a in (c, t))
        gain = float(weight @ (above[:, 1] / n1 - below[:, 1] / n0))
        cuts.append((counts.scale[0] + k, gain, permutation_test(below, above).pvalue))
    sizes = int(n0.sum()), int(n1.sum())
    return _assemble(
        names,
        sizes,
        sizes,
        request,
        found.mean,
        found.mean_interval,
        test,
        WinProbability(found.wins, found.wins_interval, None, None, None),
        (found.resolved, found.resolved_interval.ends, found.resolved_interval.method),
        holm_cuts(cuts),
        warnings,
    )


def clustered(
    counts: ScoreCounts,
    names: tuple[str, str],
    request: Request,
    unequal: bool,
    warnings: list[str],
) -> TreatmentEffect:
    """Users are the units; the test is studentized whatever the allocation."""
    control, treatment = names
    units = _units_of(counts, names)
    if units.crossing:
        warnings.append(
            f"{plural(units.crossing, 'unit')} of {counts.cluster!r} have replies in "
            f"both {control!r} and {treatment!r}. They were kept, and their two sides "
            "treated as dependent; check how arms were assigned."
        )
    test = unit_permutation_test(
        units,
        values=counts.levels,
        alternative=request.alternative,
        convention=request.convention,
        seed=request.seed,
        resamples=request.resamples,
    )
    least = min(units.sizes)
    if 2 <= least < 10:
        warnings.append(
            f"Only {plural(least, 'unit')} in an arm: p-values and intervals over so "
            "few are coarse; collect more users."
        )
    found = unit_effect(
        units, values=counts.levels.astype(float), confidence=request.confidence
    )
    if found.left_out:
        warnings.append(
            f"{plural(found.left_out, 'row')} of {control!r} and {treatment!r} are in "
            "strata where one of them has fewer than two units, so they carry no "
            "comparison."
        )
    rates = unit_rate_effect(
        units, high=counts.levels >= request.cut, confidence=request.confidence
    )
    c = (units.number[:, None] * units.control).sum(0)
    t = (units.number[:, None] * units.treatment).sum(0)
    wins = unit_win_probability(units, confidence=request.confidence)
    # Over several strata the odds ratio would need a model of them.
    odds = None
    if len(np.unique(units.stratum)) == 1:
        odds = odds_ratio(c, t, confidence=request.confidence).ratio
    return _assemble(
        names,
        (int(c.sum()), int(t.sum())),
        units.sizes,
        request,
        found.estimate,
        found.interval,
        test,
        WinProbability(wins.estimate, wins.interval, None, wins.df, None),
        (rates.estimate, rates.interval.ends, rates.interval.method),
        unit_cut_tests(
            units,
            lowest=counts.scale[0],
            seed=request.seed,
            resamples=request.resamples,
        ),
        warnings,
        odds=(odds, (None, None)),
    )


def _within(
    interval: Interval, low: float, high: float, change: Callable[[float], float]
) -> Interval:
    """The interval with both ends changed, then kept to the range of the measure."""
    ends = [
        None if e is None else min(high, max(low, change(e))) for e in interval.ends
    ]
    return Interval(
        ends[0], ends[1], interval.method, interval.reliable, interval.reason
    )


def _units_of(counts: ScoreCounts, names: tuple[str, str]) -> Units:
    """The units of two arms, those without a reply in either left out."""
    if counts.units is None:
        raise StatisticsError("the counts know no units; name the cluster column.")
    c, t = (counts.units.vectors[:, counts.arms.index(name)] for name in names)
    held = (c.sum(1) + t.sum(1)) > 0
    return Units(
        c[held], t[held], counts.units.number[held], counts.units.stratum[held]
    )


def paired(
    counts: ScoreCounts,
    names: tuple[str, str],
    request: Request,
    unequal: bool,
    warnings: list[str],
) -> TreatmentEffect:
    """Requests are the units, or users of several requests where they are given."""
    control, treatment = names
    i, j = (counts.arms.index(name) for name in names)
    table = joint_table(counts, i, j)
    n = int(table.sum())
    if n == 0:
        raise StatisticsError(
            f"{treatment!r} and {control!r} have no request in common with a usable "
            "score in both; compare them as independent rows, or repair the ids."
        )
    width = len(counts.levels)
    offsets = np.arange(width)[None, :] - np.arange(width)[:, None]
    order = np.sign(offsets)
    high = (counts.levels >= request.cut).astype(np.int64)
    gain = high[None, :] - high[:, None]
    if counts.units is None:
        differences = np.arange(1 - width, width)
        numbers = np.array([np.trace(table, offset=int(d)) for d in differences])
        test = paired_permutation_test(
            differences, numbers, alternative=request.alternative
        )
        interval = mean_interval(
            numbers,
            values=differences,
            confidence=request.confidence,
            method=request.interval,
        )
        wins = paired_win_probability(table, confidence=request.confidence)
        up, down = int(table[gain > 0].sum()), int(table[gain < 0].sum())
        ends = tango_interval(up, down, n, confidence=request.confidence)
        rates = Interval(*ends, "Tango", not few_units(n), few_units(n))
        units = n
        cuts = paired_cuts(table[None], np.ones(1, np.int64), counts.scale[0])
    else:
        vectors = counts.units.vectors[:, min(i, j), max(i, j)]
        if i > j:
            vectors = vectors.transpose(0, 2, 1)
        held = vectors.sum((1, 2)) > 0
        vectors, number = vectors[held], counts.units.number[held]
        test = paired_permutation_test(
            (vectors * offsets).sum((1, 2)), number, alternative=request.alternative
        )
        interval, share = (
            paired_unit_effect(
                vectors, number, values, confidence=request.confidence
            ).interval
            for values in (offsets, order)
        )
        rates = paired_unit_rate(
            vectors, number, gain, confidence=request.confidence
        ).interval
        wins = WinProbability(
            (float((table * order).sum()) / n + 1) / 2,
            _within(share, 0.0, 1.0, lambda end: (end + 1) / 2),
            None,
            None,
            None,
        )
        units = int(number.sum())
        cuts = paired_cuts(vectors, number, counts.scale[0])
    return _assemble(
        names,
        (n, n),
        (units, units),
        request,
        float((table * offsets).sum()) / n,
        interval,
        test,
        wins,
        (float((table * gain).sum()) / n, rates.ends, rates.method),
        cuts,
        warnings,
    )


def _assemble(
    names: tuple[str, str],
    sizes: tuple[int, int],
    units: tuple[int, int],
    request: Request,
    difference: float,
    interval: Interval,
    test: PermutationTest,
    wins: WinProbability,
    resolved: tuple[float, Ends, str],
    cuts: tuple[CutEffect, ...],
    warnings: list[str],
    odds: tuple[float | None, Ends] = (None, (None, None)),
) -> TreatmentEffect:
    """One comparison from its parts; what a reader should know goes to `warnings`."""
    control, treatment = names
    if not interval.reliable:
        warnings.append(
            f"The interval of {treatment!r} against {control!r} is not reliable: "
            f"{interval.reason}."
            + (" It is undefined." if interval.low is None else "")
        )
    if wins.interval.low is None:
        warnings.append(
            f"The win probability of {treatment!r} has no interval: "
            f"{wins.interval.reason}."
        )
    return TreatmentEffect(
        treatment=treatment,
        control=control,
        n_treatment=sizes[1],
        n_control=sizes[0],
        units_treatment=units[1],
        units_control=units[0],
        mean_difference=difference,
        ci=interval.ends,
        ci_method=interval.method,
        ci_reliable=interval.reliable,
        ci_reason=interval.reason,
        confidence=request.confidence,
        alternative=request.alternative,
        pvalue=test.pvalue,
        pvalue_adjusted=test.pvalue,
        pvalue_method=test.method,
        pvalue_mid=test.midp,
        adjustment="none",
        adjustment_resamples=None,
        convention=test.convention,
        studentized=test.studentized,
        resamples=test.resamples,
        win_probability=wins.estimate,
        win_probability_ci=wins.interval.ends,
        win_probability_reliable=wins.interval.reliable,
        resolved_difference=resolved[0],
        resolved_difference_ci=resolved[1],
        resolved_difference_method=resolved[2],
        odds_ratio=odds[0],
        odds_ratio_ci=odds[1],
        cuts=cuts,
    )

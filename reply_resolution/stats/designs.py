"""One treatment against control in each design: independent, paired, clustered."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.bootstrap import (
    MIN_UNITS,
    Interval,
    difference_interval,
    mean_interval,
)
from reply_resolution.stats.clusters import (
    Units,
    unit_effect,
    unit_permutation_test,
)
from reply_resolution.stats.comparison import TreatmentEffect
from reply_resolution.stats.counts import ScoreCounts, joint_table, plural
from reply_resolution.stats.effects import (
    WinProbability,
    odds_ratio,
    paired_rate_difference,
    paired_win_probability,
    placements,
    win_probability,
)
from reply_resolution.stats.lattice import Ints
from reply_resolution.stats.maxt import CutEffect, cut_tests
from reply_resolution.stats.multiplicity import adjust
from reply_resolution.stats.permutation import (
    Alternative,
    Convention,
    PermutationTest,
    paired_permutation_test,
    permutation_test,
)


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
    control: str,
    treatment: str,
    request: Request,
    unequal: bool,
    warnings: list[str],
) -> TreatmentEffect:
    """Rows are the units, within strata where there are any."""
    from reply_resolution.stats.score_interval import score_interval

    c = counts.counts[:, counts.arms.index(control)]
    t = counts.counts[:, counts.arms.index(treatment)]
    both = (c.sum(1) > 0) & (t.sum(1) > 0)
    if not both.all() and len(counts.strata) > 1:
        lost = int((c[~both].sum() + t[~both].sum()))
        if lost:
            warnings.append(
                f"{plural(lost, 'row')} of {control!r} and {treatment!r} are in strata "
                "that only one of them has, so they carry no comparison."
            )
    if not both.any():
        raise StatisticsError(
            f"{treatment!r} and {control!r} share no stratum; leave the stratum out."
        )
    c, t = c[both], t[both]
    levels = counts.levels
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
        values=levels,
        alternative=request.alternative,
        convention=request.convention,
        studentized=studentized,
        seed=request.seed,
        resamples=request.resamples,
    )
    n0, n1 = c.sum(1), t.sum(1)
    weight = n0 * n1 / (n0 + n1)
    weight = weight / weight.sum()
    difference = float(weight @ ((t @ levels) / n1 - (c @ levels) / n0))
    c0, t0 = c.sum(0), t.sum(0)
    if len(c) == 1:
        interval = difference_interval(
            c0,
            t0,
            values=levels,
            confidence=request.confidence,
            method=request.interval,
        )
    else:
        from reply_resolution.stats.stratified import stratified_interval

        interval = stratified_interval(
            c, t, levels, confidence=request.confidence, seed=request.seed
        )
    high = levels >= request.cut
    x0, x1 = int(c0[high].sum()), int(t0[high].sum())
    from scipy.special import ndtri

    z = -float(ndtri((1 - request.confidence) / 2))
    rates = score_interval(x1, int(n1.sum()), x0, int(n0.sum()), z=z)
    wins = win_probability(c0, t0, confidence=request.confidence)
    odds = odds_ratio(c0, t0, confidence=request.confidence)
    return _effect(
        counts=counts,
        names=(control, treatment),
        sizes=(int(n0.sum()), int(n1.sum())),
        units=(int(n0.sum()), int(n1.sum())),
        request=request,
        difference=difference,
        interval=interval,
        test=test,
        wins=wins,
        resolved=x1 / int(n1.sum()) - x0 / int(n0.sum()),
        resolved_ci=rates,
        resolved_method="Miettinen-Nurminen",
        odds=odds.ratio,
        odds_ci=(odds.low, odds.high),
        cuts=cut_tests(c0, t0, lowest=counts.scale[0]) if len(c) == 1 else (),
        warnings=warnings,
    )


def paired(
    counts: ScoreCounts,
    control: str,
    treatment: str,
    request: Request,
    unequal: bool,
    warnings: list[str],
) -> TreatmentEffect:
    """Requests are the units, or users of several requests where they are given."""
    i, j = counts.arms.index(control), counts.arms.index(treatment)
    table = joint_table(counts, i, j)
    if table.sum() == 0:
        raise StatisticsError(
            f"{treatment!r} and {control!r} have no request in common with a usable "
            "score in both; compare them as independent rows, or repair the ids."
        )
    width = len(counts.levels)
    offsets = np.arange(width)[None, :] - np.arange(width)[:, None]
    n = int(table.sum())
    high = counts.levels >= request.cut
    gain = high[None, :].astype(np.int64) - high[:, None].astype(np.int64)
    order = np.sign(offsets)
    resolved = float((table * gain).sum()) / n
    difference = float((table * offsets).sum()) / n
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
        rates = paired_rate_difference(
            int(table[np.ix_(high, high)].sum()),
            int(table[np.ix_(~high, high)].sum()),
            int(table[np.ix_(high, ~high)].sum()),
            int(table[np.ix_(~high, ~high)].sum()),
            confidence=request.confidence,
        )
        units = n
        cuts = _paired_cuts(table, counts.scale[0], request)
    else:
        from reply_resolution.stats.clusters import paired_unit_effect

        first, second = min(i, j), max(i, j)
        vectors = counts.units.vectors[:, first, second]
        if i > j:
            vectors = vectors.transpose(0, 2, 1)
        held = vectors.sum((1, 2)) > 0
        vectors, number = vectors[held], counts.units.number[held]
        sums = (vectors * offsets).sum((1, 2))
        test = paired_permutation_test(sums, number, alternative=request.alternative)

        def effect(values: Ints) -> Interval:
            return paired_unit_effect(
                vectors, number, values, confidence=request.confidence
            ).interval

        interval, rates = effect(offsets), effect(gain)
        share = effect(order)
        ends = [
            None if e is None else min(1.0, max(0.0, (e + 1) / 2)) for e in share.ends
        ]
        wins = WinProbability(
            (float((table * order).sum()) / n + 1) / 2,
            Interval(ends[0], ends[1], share.method, share.reliable, share.reason),
            None,
            None,
            None,
        )
        units = int(number.sum())
        cuts = ()
    return _effect(
        counts=counts,
        names=(control, treatment),
        sizes=(n, n),
        units=(units, units),
        request=request,
        difference=difference,
        interval=interval,
        test=test,
        wins=wins,
        resolved=resolved,
        resolved_ci=rates.ends,
        resolved_method=rates.method,
        odds=None,
        odds_ci=(None, None),
        cuts=cuts,
        warnings=warnings,
    )


def clustered(
    counts: ScoreCounts,
    control: str,
    treatment: str,
    request: Request,
    unequal: bool,
    warnings: list[str],
) -> TreatmentEffect:
    """Users are the units; the test is studentized whatever the allocation."""
    units = units_of(counts, control, treatment)
    if units.crossing:
        warnings.append(
            f"{plural(units.crossing, 'unit')} of {counts.cluster!r} have replies in "
            f"both {control!r} and {treatment!r}. They were kept, and their two sides "
            "treated as dependent; check how arms were assigned."
        )
    least = min(units.sizes)
    test = unit_permutation_test(
        units,
        values=counts.levels,
        alternative=request.alternative,
        convention=request.convention,
        seed=request.seed,
        resamples=request.resamples,
    )
    if 2 <= least < 10:
        warnings.append(
            f"Only {plural(least, 'unit')} in an arm: p-values and intervals over so few "
            "are coarse; collect more users."
        )
    found = unit_effect(
        units, values=counts.levels.astype(float), confidence=request.confidence
    )
    high = (counts.levels >= request.cut).astype(float)
    rates = unit_effect(units, values=high, confidence=request.confidence)
    c = (units.number[:, None] * units.control).sum(0)
    t = (units.number[:, None] * units.treatment).sum(0)
    over_control, over_treatment = placements(c), placements(t)
    estimate = float(t @ over_control) / int(t.sum())
    ranks = unit_effect(
        units,
        values=over_control,
        control_values=over_treatment,
        estimate=estimate,
        confidence=request.confidence,
    )
    ends = [None if e is None else min(1.0, max(0.0, e)) for e in ranks.interval.ends]
    wins = WinProbability(
        estimate,
        Interval(
            ends[0],
            ends[1],
            ranks.interval.method,
            ranks.interval.reliable,
            ranks.interval.reason,
        ),
        None,
        ranks.df,
        None,
    )
    odds = odds_ratio(c, t, confidence=request.confidence)
    low, top = rates.interval.ends
    return _effect(
        counts=counts,
        names=(control, treatment),
        sizes=(int(c.sum()), int(t.sum())),
        units=units.sizes,
        request=request,
        difference=found.estimate,
        interval=found.interval,
        test=test,
        wins=wins,
        resolved=rates.estimate,
        resolved_ci=(
            None if low is None else max(-1.0, low),
            None if top is None else min(1.0, top),
        ),
        resolved_method=rates.interval.method,
        odds=odds.ratio,
        odds_ci=(None, None),
        cuts=(),
        warnings=warnings,
    )


def units_of(counts: ScoreCounts, control: str, treatment: str) -> Units:
    """The units of two arms, those without a reply in either left out."""
    if counts.units is None:
        raise StatisticsError("the counts know no units; name the cluster column.")
    c = counts.units.vectors[:, counts.arms.index(control)]
    t = counts.units.vectors[:, counts.arms.index(treatment)]
    held = (c.sum(1) + t.sum(1)) > 0
    return Units(
        c[held], t[held], counts.units.number[held], counts.units.stratum[held]
    )


def _paired_cuts(table: Ints, lowest: int, request: Request) -> tuple[CutEffect, ...]:
    """Each cut by McNemar's exact test, adjusted by Holm."""
    n = int(table.sum())
    found = []
    for k in range(1, len(table)):
        up, down = int(table[:k, k:].sum()), int(table[k:, :k].sum())
        pvalue = paired_permutation_test(
            np.array([-1, 0, 1]), np.array([down, n - up - down, up])
        ).pvalue
        found.append((lowest + k, (up - down) / n, pvalue))
    adjusted = adjust([p for _, _, p in found], "holm")
    return tuple(
        CutEffect(cut, difference, p, q, "holm")
        for (cut, difference, p), q in zip(found, adjusted, strict=True)
    )


def _effect(
    *,
    counts: ScoreCounts,
    names: tuple[str, str],
    sizes: tuple[int, int],
    units: tuple[int, int],
    request: Request,
    difference: float,
    interval: Interval,
    test: PermutationTest,
    wins: WinProbability,
    resolved: float,
    resolved_ci: tuple[float | None, float | None],
    resolved_method: str,
    odds: float | None,
    odds_ci: tuple[float | None, float | None],
    cuts: tuple[CutEffect, ...],
    warnings: list[str],
) -> TreatmentEffect:
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
        convention=test.convention,
        studentized=test.studentized,
        resamples=test.resamples,
        win_probability=wins.estimate,
        win_probability_ci=wins.interval.ends,
        win_probability_reliable=wins.interval.reliable,
        resolved_difference=resolved,
        resolved_difference_ci=resolved_ci,
        resolved_difference_method=resolved_method,
        odds_ratio=odds,
        odds_ratio_ci=odds_ci,
        cuts=cuts,
    )


__all__ = ["MIN_UNITS", "Request", "clustered", "independent", "paired", "units_of"]

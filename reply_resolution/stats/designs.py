"""One treatment against control where arms are independent: rows, strata, or users."""

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.bootstrap import (
    Interval,
    difference_interval,
    stratified_effects,
)
from reply_resolution.stats.clusters import (
    Units,
    unit_cut_tests,
    unit_effect,
    unit_permutation_test,
)
from reply_resolution.stats.comparison import TreatmentEffect
from reply_resolution.stats.counts import ScoreCounts, plural
from reply_resolution.stats.effects import (
    WinProbability,
    odds_ratio,
    placements,
    win_probability,
)
from reply_resolution.stats.maxt import cut_tests, holm_cuts
from reply_resolution.stats.outcome import Request, assemble
from reply_resolution.stats.permutation import permutation_test
from reply_resolution.stats.pvalues import PermutationTest
from reply_resolution.stats.saddlepoint import Ints
from reply_resolution.stats.score_interval import score_interval


def independent(
    counts: ScoreCounts,
    control: str,
    treatment: str,
    request: Request,
    unequal: bool,
    warnings: list[str],
) -> TreatmentEffect:
    """Rows are the units, within strata where there are any."""
    from scipy.special import ndtri

    c = counts.counts[:, counts.arms.index(control)]
    t = counts.counts[:, counts.arms.index(treatment)]
    both = (c.sum(1) > 0) & (t.sum(1) > 0)
    if not both.all() and len(counts.strata) > 1:
        lost = int(c[~both].sum() + t[~both].sum())
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
    c0, t0 = c.sum(0), t.sum(0)
    n0, n1 = int(c0.sum()), int(t0.sum())
    if len(c) > 1:
        return _within_strata(
            counts, (control, treatment), c, t, test, request, warnings
        )
    high = levels >= request.cut
    x0, x1 = int(c0[high].sum()), int(t0[high].sum())
    z = -float(ndtri((1 - request.confidence) / 2))
    odds = odds_ratio(c0, t0, confidence=request.confidence)
    return assemble(
        names=(control, treatment),
        sizes=(n0, n1),
        units=(n0, n1),
        request=request,
        difference=int(t0 @ levels) / n1 - int(c0 @ levels) / n0,
        interval=difference_interval(
            c0,
            t0,
            values=levels,
            confidence=request.confidence,
            method=request.interval,
        ),
        test=test,
        wins=win_probability(c0, t0, confidence=request.confidence),
        resolved=x1 / n1 - x0 / n0,
        resolved_ci=score_interval(x1, n1, x0, n0, z=z),
        resolved_method="Miettinen-Nurminen",
        odds=odds.ratio,
        odds_ci=(odds.low, odds.high),
        cuts=cut_tests(c0, t0, lowest=counts.scale[0]),
        warnings=warnings,
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
    n0, n1 = int(c.sum()), int(t.sum())
    cuts = []
    for k in range(1, len(counts.levels)):
        split = [np.stack([a[:, :k].sum(1), a[:, k:].sum(1)], 1) for a in (c, t)]
        weight = c.sum(1) * t.sum(1) / (c.sum(1) + t.sum(1))
        gain = split[1][:, 1] / t.sum(1) - split[0][:, 1] / c.sum(1)
        cuts.append(
            (
                counts.scale[0] + k,
                float(weight @ gain / weight.sum()),
                permutation_test(split[0], split[1]).pvalue,
            )
        )
    return assemble(
        names=names,
        sizes=(n0, n1),
        units=(n0, n1),
        request=request,
        difference=found.mean,
        interval=found.mean_interval,
        test=test,
        wins=WinProbability(found.wins, found.wins_interval, None, None, None),
        resolved=found.resolved,
        resolved_ci=found.resolved_interval.ends,
        resolved_method=found.resolved_interval.method,
        odds=None,
        odds_ci=(None, None),
        cuts=holm_cuts(cuts),
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
            f"Only {plural(least, 'unit')} in an arm: p-values and intervals over so "
            "few are coarse; collect more users."
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
    return assemble(
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
        cuts=unit_cut_tests(
            units,
            lowest=counts.scale[0],
            seed=request.seed,
            resamples=request.resamples,
        ),
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

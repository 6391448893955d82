"""From counts to a decision: every effect, check and recommendation of the readout.

Takes sufficient counts and, where there are labels, the judged rows; knows nothing of
texts, pages or files. The simulated experiments of the benchmarks go through here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from reply_resolution import checks as ck
from reply_resolution import effects as fx
from reply_resolution.checks import Calibrated, Check
from reply_resolution.effects import Effect, Labelled, LengthFinding
from reply_resolution.errors import StatisticsError
from reply_resolution.experiment_plan import ExperimentPlan, Look
from reply_resolution.metrics import MetricEffect
from reply_resolution.recommendation import Evidence, Recommendation, recommend
from reply_resolution.stats.comparison import Comparison, TreatmentEffect
from reply_resolution.stats.counts import ScoreCounts


@dataclass(frozen=True, slots=True)
class Treatment:
    """All that was computed for one treatment.

    Attributes:
        name: The arm.
        effects: In the order they are shown; the one that decides is marked.
        win_probability: Share of random pairs of replies (or of pairs) in which the
            treatment scores higher, ties half; fraction, 0.5 is no difference.
        win_interval: Its interval.
        tipping: Points by which the judge would have to favour an arm further to
            change the result; None without an effect.
        tipping_sentence: The same in words, for the judge's own effect.
        replies_needed: Replies per arm for 80% power at the worthwhile gain.
        bounds: Lowest and highest difference over every filling of missing scores.
        widen: Factor by which several looks widen an interval; 1 for one look.
        length: What length does to it.
        checks: Checks about this treatment.
        recommendation: What the rules say.
    """

    name: str
    effects: tuple[Effect, ...]
    win_probability: float | None
    win_interval: tuple[float, float] | None
    tipping: float | None
    tipping_sentence: str
    replies_needed: int | None
    bounds: tuple[float, float] | None
    widen: float
    length: LengthFinding
    checks: tuple[Check, ...]
    recommendation: Recommendation

    def effect(self, key: str) -> Effect:
        """The effect of that name."""
        return next(e for e in self.effects if e.key == key)

    @property
    def deciding(self) -> Effect:
        """The effect on which the recommendation rests."""
        return next(e for e in self.effects if e.decides)


@dataclass(frozen=True, slots=True)
class Assessment:
    """The whole numerical side of a readout.

    Attributes:
        control: Name of the baseline arm.
        unit: What the units are, plural: "users", "replies" or "pairs".
        units: Units with a score per arm.
        checks: Checks about the experiment as a whole.
        treatments: One per treatment, in order of first appearance; empty where a
            hard check forbids to compute anything.
        comparison: The result of `compare`, or None likewise.
        readable: False where a hard check failed.
    """

    control: str
    unit: str
    units: dict[str, int]
    checks: tuple[Check, ...]
    treatments: tuple[Treatment, ...]
    comparison: Comparison | None
    readable: bool


@dataclass(frozen=True, slots=True)
class Context:
    """What is known beside the counts, all of it optional.

    Attributes:
        rows: Judged rows with `arm`, `score`, `label` (null where nobody labelled)
            and, where users are known, `unit`; None without labels.
        calibrated: The judge's agreement with people, if measured.
        mismatch: Why a calibration that was given is not about this judge.
        look: Which look this is.
        assigned: Units per arm before any was lost to a missing score; taken from
            the counts where None.
        judged: Judged replies per arm, whatever came of it; likewise.
        scored: Judged replies per arm that have a score, in the comparison or not
            (a pair mate or a user may be missing); likewise.
        missing_reasons: Status -> judged replies without a score.
        extra_checks: Further checks about the experiment (versions, budget, ...).
        length: Treatment -> its length effect and slope, as `LengthFinding`.
        metrics: Treatment -> its guardrails and secondary metrics.
        empty: Empty replies per arm.
        without_empty: Treatment -> (effect, low, high) without empty replies.
        seed: For draws where exact is out of reach.
        comparison: The comparison of the same counts, where it was computed already.
    """

    rows: pl.DataFrame | None = None
    calibrated: Calibrated | None = None
    mismatch: str = ""
    look: Look = field(default_factory=lambda: Look(1, ()))
    assigned: Mapping[str, int] | None = None
    judged: Mapping[str, int] | None = None
    scored: Mapping[str, int] | None = None
    missing_reasons: Mapping[str, int] | None = None
    extra_checks: tuple[Check, ...] = ()
    length: Mapping[str, LengthFinding] | None = None
    metrics: Mapping[str, tuple[MetricEffect, ...]] | None = None
    empty: Mapping[str, int] | None = None
    without_empty: Mapping[str, tuple[float, float, float]] | None = None
    seed: int = 0
    comparison: Comparison | None = None


def assess(
    counts: ScoreCounts,
    plan: ExperimentPlan,
    *,
    control: str,
    context: Context = Context(),
) -> Assessment:
    """Checks first, then effects, then the rules of the recommendation.

    Args:
        counts: Sufficient counts of the scored replies.
        plan: Every threshold.
        control: Name of the baseline arm.
        context: What else is known.

    Raises:
        StatisticsError: There is no treatment arm, or no arm called `control`.
    """
    if control not in counts.arms or len(counts.arms) < 2:
        raise StatisticsError(
            f"the scored replies have the arms {', '.join(counts.arms) or 'none'}; a "
            f"readout needs {control!r} and at least one other."
        )
    arms = [control, *(a for a in counts.arms if a != control)]
    unit, units = _units(counts, arms)
    scored = {arm: int(counts.of(arm).sum()) for arm in arms}
    judged = {a: int((context.judged or scored).get(a, scored[a])) for a in arms}
    covered = {a: int((context.scored or scored).get(a, scored[a])) for a in arms}
    assigned = {a: int((context.assigned or units).get(a, units[a])) for a in arms}
    common = [
        *context.extra_checks,
        ck.check_assignment(
            assigned, plan, unit=unit, paired=counts.design == "paired"
        ),
        ck.check_enough(units, plan, unit=unit),
    ]
    coverage = ck.check_coverage(
        judged, covered, plan, reasons=context.missing_reasons or {}, bounds=None
    )
    enough = all(c.status != "stop" for c in (*common, coverage))
    with_labels = {
        arm: fx.label_count(context.rows, arm) >= plan.labels_per_arm for arm in arms
    }
    judge = ck.check_judge(
        context.calibrated,
        plan,
        mismatch=context.mismatch,
        human_corrected=all(with_labels.values()),
    )
    if not enough or judge.status == "stop":
        stopped = (*common, coverage, judge)
        treatments = tuple(_stopped(arm, control, stopped, plan) for arm in arms[1:])
        return Assessment(control, unit, units, stopped, treatments, None, False)

    from reply_resolution.stats.compare import compare

    share = 1 - plan.alpha / (len(arms) - 1)  # every interval holds at once
    comparison = context.comparison or compare(
        counts,
        control=control,
        confidence=share,
        seed=context.seed,
        allocation=dict(plan.allocation) or None,
        mix_versions=True,
    )
    looks = max(plan.planned_looks, context.look.number)
    treatments = tuple(
        _treatment(
            result,
            counts=counts,
            plan=plan,
            context=context,
            scored=scored,
            missing={a: judged[a] - covered[a] for a in arms},
            sequential=looks > 1,
            confidence=share,
            corrects=with_labels[control] and with_labels[result.treatment],
        )
        for result in comparison.comparisons
    )
    if len(treatments) == 1:
        coverage = ck.check_coverage(
            judged,
            covered,
            plan,
            reasons=context.missing_reasons or {},
            bounds=treatments[0].bounds,
        )
    final = ck.check_looks(
        context.look, plan, replies=min(scored.values()), final=looks > 1
    )
    every = (*common, coverage, judge, final)
    readable = all(t.recommendation.rule != "do_not_read" for t in treatments)
    return Assessment(control, unit, units, every, treatments, comparison, readable)


def _units(counts: ScoreCounts, arms: list[str]) -> tuple[str, dict[str, int]]:
    """What the units are called, and how many of them each arm has."""
    if counts.design == "paired" and counts.pairs is not None:
        number = counts.pair_number
        assert number is not None
        complete = {
            arm: int(
                number[
                    (counts.pairs[:, counts.arms.index(arm)] > 0)
                    & (counts.pairs[:, counts.arms.index(arms[0])] > 0)
                ].sum()
            )
            for arm in arms
        }
        return "pairs", complete
    if counts.units is not None:
        here = counts.units.vectors.sum(axis=2) > 0
        number = counts.units.number
        return "users", {
            arm: int(number[here[:, counts.arms.index(arm)]].sum()) for arm in arms
        }
    return "replies", {arm: int(counts.of(arm).sum()) for arm in arms}


def _stopped(
    arm: str, control: str, every: tuple[Check, ...], plan: ExperimentPlan
) -> Treatment:
    stops = tuple(s for s in (c.stop() for c in every) if s is not None)
    evidence = Evidence(
        arm, control, None, None, None, plan.confidence, None, False, stops=stops
    )
    said = recommend(evidence, plan)
    return Treatment(
        arm, (), None, None, None, "", None, None, 1.0, LengthFinding(), (), said
    )


def _treatment(
    result: TreatmentEffect,
    *,
    counts: ScoreCounts,
    plan: ExperimentPlan,
    context: Context,
    scored: Mapping[str, int],
    missing: Mapping[str, int],
    sequential: bool,
    confidence: float,
    corrects: bool,
) -> Treatment:
    name, control = result.treatment, result.control
    paired = counts.design == "paired"
    span = _pair(result.ci)
    reliable = result.ci_reliable and span is not None and span[0] < span[1]
    low, high = span or (result.mean_difference, result.mean_difference)
    z = fx.normal_quantile(confidence)
    se = (high - low) / (2 * z)
    n = scored[name] + scored[control]
    widen = 1.0
    if sequential:
        widen = fx.sequence_factor(n, plan, confidence) / z
    judge = Effect(
        "judge",
        "Judge",
        result.mean_difference,
        *fx.stretch(result.mean_difference, (low, high), widen),
        confidence,
        None if sequential else result.pvalue_adjusted,
        "confidence sequence" if sequential else result.ci_method,
        "" if sequential else result.pvalue_method,
    )
    found = fx.from_labels(context.rows, name, control, plan, confidence, paired=paired)
    human = fx.human_row(
        found, plan, sequential=sequential, widen=widen, corrects=corrects
    )
    length = (context.length or {}).get(name, LengthFinding())
    effects = [
        replace(judge, decides=not corrects),
        replace(human, decides=corrects),
        fx.length_row(length, confidence, widen),
        _resolved(result, confidence, widen),
    ]
    deciding = human if corrects else judge
    if corrects and found.corrected is not None:
        se = found.corrected.se
    tipping = fx.tipping_favour(deciding)
    checks = _own_checks(
        name, control, plan, context, found, deciding, judge, length, reliable, tipping
    )
    needed = fx.replies_needed(
        se, min(scored[name], scored[control]), plan, confidence, widen
    )
    stops = tuple(s for s in (c.stop() for c in checks) if s is not None)
    metrics = (context.metrics or {}).get(name, ())
    evidence = Evidence(
        treatment=name,
        control=control,
        estimate=deciding.estimate,
        low=deciding.low,
        high=deciding.high,
        confidence=confidence,
        pvalue=deciding.pvalue,
        human_corrected=corrects,
        tipping_point=tipping,
        replies_needed=needed,
        replies=min(scored[name], scored[control]),
        stops=stops,
        guardrails=tuple(m.outcome() for m in metrics if m.guardrail),
    )
    return Treatment(
        name=name,
        effects=tuple(effects),
        win_probability=result.win_probability,
        win_interval=_pair(result.win_probability_ci),
        tipping=tipping,
        tipping_sentence=fx.tipping_sentence(judge, found),
        replies_needed=needed,
        bounds=_bounds(counts, missing, control, name),
        widen=widen,
        length=length,
        checks=tuple(checks),
        recommendation=recommend(evidence, plan),
    )


def _resolved(result: TreatmentEffect, confidence: float, widen: float) -> Effect:
    name = "Resolved (4 or 5)"
    span = _pair(result.resolved_difference_ci)
    if span is None:
        return Effect("resolved", name, absent="its interval is not defined")
    return Effect(
        "resolved",
        name,
        result.resolved_difference,
        *fx.stretch(result.resolved_difference, span, widen),
        confidence,
        None,
        result.resolved_difference_method,
    )


def _own_checks(
    name: str,
    control: str,
    plan: ExperimentPlan,
    context: Context,
    found: Labelled,
    deciding: Effect,
    judge: Effect,
    length: LengthFinding,
    reliable: bool,
    tipping: float | None,
) -> list[Check]:
    out = []
    if not reliable:
        out.append(
            Check(
                "interval",
                "Interval",
                "stop",
                "the scores vary too little, or come from too few units, for an "
                "interval that can be trusted",
                "Wait for more traffic, or look at the scores: a judge that gives "
                "one score to everything measures nothing.",
            )
        )
    out.append(
        ck.check_favour(
            bias=found.favour,
            interval=found.favour_interval,
            labels=found.labels,
            plan=plan,
            tipping=tipping,
            treatment=name,
        )
    )
    corrected = length.corrected_interval
    length_row = fx.length_row(length, judge.confidence, 1.0)
    out.append(
        ck.check_length(
            ratio=length.ratio,
            slope=length.slope,
            interval=length.slope_interval,
            corrected=length.corrected,
            corrected_interval=corrected,
            same_decision=None if corrected is None else length_row.side == judge.side,
            labels=length.labels,
            treatment=name,
            why_not=length.why_not,
        )
    )
    empty = {a: (context.empty or {}).get(a, 0) for a in (control, name)}
    without = (context.without_empty or {}).get(name)
    same = True
    if without is not None:
        alone = replace(
            judge, estimate=without[0], low=without[1], high=without[2], pvalue=None
        )
        same = alone.side == judge.side
    out.append(
        ck.check_empty(
            empty,
            effect=None if without is None else without[0],
            interval=None if without is None else (without[1], without[2]),
            same_decision=same,
        )
    )
    half = None
    if deciding.low is not None and deciding.high is not None:
        half = (deciding.high - deciding.low) / 2
    out.append(ck.check_precision(half, plan))
    return out


def _bounds(
    counts: ScoreCounts, missing: Mapping[str, int], control: str, name: str
) -> tuple[float, float] | None:
    lost = {arm: missing[arm] for arm in (control, name)}
    if not any(lost.values()):
        return None
    from reply_resolution.stats.integrity import worst_case_bounds

    found = worst_case_bounds(
        {arm: np.asarray(counts.of(arm)).tolist() for arm in (control, name)},
        lost,
        control=control,
        treatment=name,
        scale=counts.scale,
    )
    return found.low, found.high


def _pair(interval: Any) -> tuple[float, float] | None:  # noqa: ANN401
    if interval is None or interval[0] is None or interval[1] is None:
        return None
    return float(interval[0]), float(interval[1])

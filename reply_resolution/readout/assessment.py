"""From counts to a decision: every effect, check and recommendation of the readout.

Takes sufficient counts and, where there are labels, the judged rows; knows nothing of
texts, pages or files. The simulated experiments of the benchmarks go through here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reply_resolution.errors import StatisticsError
from reply_resolution.readout import checks as ck
from reply_resolution.readout import checks_judge as cj
from reply_resolution.readout import effects as fx
from reply_resolution.readout.assessment_record import Assessment, Context, Treatment
from reply_resolution.readout.checks import Check
from reply_resolution.readout.effects import Effect, Labelled, LengthFinding
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.readout.recommendation import Evidence, recommend
from reply_resolution.stats.bootstrap import NEAR_CONSTANT
from reply_resolution.stats.comparison import TreatmentEffect
from reply_resolution.stats.counts import ScoreCounts
from reply_resolution.stats.integrity import WorstCaseBounds, worst_case_bounds
from reply_resolution.stats.quantiles import critical


def assess(
    counts: ScoreCounts,
    plan: ExperimentPlan,
    *,
    control: str,
    context: Context | None = None,
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
    context = context or Context()
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
    judge = cj.check_judge(
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
    coverage = ck.check_coverage(
        judged,
        covered,
        plan,
        reasons=context.missing_reasons or {},
        bounds=treatments[0].bounds if len(treatments) == 1 else None,
        decisive=any(_hangs_on_missing(t) for t in treatments),
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
    span = _pair(result.ci)
    unreliable = ""
    if not result.ci_reliable or span is None or span[0] >= span[1]:
        unreliable = result.ci_reason or "the scores do not vary"
    low, high = span or (result.mean_difference, result.mean_difference)
    z = critical(confidence)
    se = (high - low) / (2 * z)
    room = 0.0
    if unreliable == NEAR_CONSTANT:
        unreliable, room = "", fx.unseen(result, counts)
        low, high = low - room, high + room
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
        ("confidence sequence" if sequential else result.ci_method)
        + (", with room for unseen replies" if room else ""),
        "" if sequential else result.pvalue_method,
    )
    found = fx.from_labels(
        context.rows,
        name,
        control,
        plan,
        confidence,
        paired=counts.design == "paired",
        stratified=len(counts.strata) > 1,
    )
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
        name,
        control,
        plan,
        context,
        found,
        deciding,
        judge,
        length,
        unreliable,
        room,
        tipping,
    )
    needed = fx.replies_needed(
        se, min(scored[name], scored[control]), plan, confidence, widen
    )
    stops = tuple(s for s in (c.stop() for c in checks) if s is not None)
    metrics = (context.metrics or {}).get(name, ())
    worst = _worst_case(counts, missing, control, name)
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
        missing_shift=worst.all_lowest - worst.observed if worst else 0.0,
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
        bounds=_around(result.mean_difference, worst),
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
    unreliable: str,
    room: float,
    tipping: float | None,
) -> list[Check]:
    out = ck.check_interval(unreliable, room)
    out.append(
        cj.check_favour(
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
        cj.check_length(
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


def _hangs_on_missing(treatment: Treatment) -> bool:
    """Whether some filling of the missing scores would take a win away."""
    judge, main = treatment.effect("judge"), treatment.deciding
    if treatment.bounds is None or judge.estimate is None or not main.side:
        return False
    assert main.low is not None
    assert main.high is not None
    if main.side > 0:
        return main.low + treatment.bounds[0] - judge.estimate <= 0
    return main.high + treatment.bounds[1] - judge.estimate >= 0


def _worst_case(
    counts: ScoreCounts, missing: Mapping[str, int], control: str, name: str
) -> WorstCaseBounds | None:
    lost = {arm: missing[arm] for arm in (control, name)}
    if not any(lost.values()):
        return None
    return worst_case_bounds(
        {arm: counts.of(arm).tolist() for arm in (control, name)},
        lost,
        control=control,
        treatment=name,
        scale=counts.scale,
    )


def _around(
    estimate: float, worst: WorstCaseBounds | None
) -> tuple[float, float] | None:
    """The bounds about the estimate (within strata it is not the plain difference)."""
    if worst is None:
        return None
    shift = estimate - worst.observed
    return worst.low + shift, worst.high + shift


def _pair(interval: Any) -> tuple[float, float] | None:  # noqa: ANN401
    if interval is None or interval[0] is None or interval[1] is None:
        return None
    return float(interval[0]), float(interval[1])

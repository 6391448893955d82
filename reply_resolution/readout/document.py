"""The readout as plain values: everything that its pages show, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
import platform
from typing import Any

import polars as pl

from reply_resolution import display
from reply_resolution.errors import StatisticsError
from reply_resolution.readout.assessment_record import Assessment, Treatment
from reply_resolution.readout.checks import Check
from reply_resolution.readout.effects import Effect
from reply_resolution.readout.examples import draw_examples
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.readout.inputs import Rows, scores_sha256
from reply_resolution.readout.looks import looks_over_time
from reply_resolution.readout.metric_effect import MetricEffect
from reply_resolution.readout.recommendation import overall
from reply_resolution.readout.segments import read_segments
from reply_resolution.readout.themes import find_themes

SCHEMA = "reply_resolution.readout.build/1"
_ORDER = (
    "versions",
    "sample_ratio",
    "enough",
    "interval",
    "coverage",
    "empty",
    "judge",
    "differential_bias",
    "length",
    "looks",
    "precision",
    "budget",
)


def build_document(
    found: Assessment,
    *,
    plan: ExperimentPlan,
    levels: Mapping[str, Sequence[int]],
    rows: Rows | None = None,
    metrics: Mapping[str, Sequence[MetricEffect]] | None = None,
    seed: int = 0,
    notes: Sequence[str] = (),
    provenance_note: str = "",
) -> dict[str, Any]:
    """The document of a readout, all values plain and unrounded.

    Where a hard check failed it holds no score, no effect and no example: what is not
    to be read is not there.

    Args:
        found: Checks, effects and recommendations.
        plan: The thresholds.
        levels: Arm -> replies at each level.
        rows: The judged replies; None gives only what counts can tell.
        metrics: Treatment -> its metrics.
        seed: Of the draws of examples and themes.
        notes: What reading the tables noticed.
        provenance_note: What must be said of demonstration data.
    """
    first = overall(
        [
            t.recommendation
            for t in sorted(found.treatments, key=_estimate, reverse=True)
        ],
        found.control,
    )
    several = len(found.treatments) > 1
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "generated_at": "",
        "experiment": {
            "name": plan.experiment,
            "question": plan.question,
            "control": found.control,
            "treatments": [t.name for t in found.treatments],
            "unit": found.unit,
            "units": dict(found.units),
            "dates": _dates(rows),
            "strata": _strata(found),
            "notes": list(dict.fromkeys([*notes, *_compared(found)])),
            "provenance_note": provenance_note,
        },
        "readable": found.readable,
        "recommendation": asdict(first),
        "checks": _in_order(
            [
                *(_check(c, found.readable) for c in found.checks),
                *(
                    _check(c, found.readable, t.name if several else "")
                    for t in found.treatments
                    for c in t.checks
                ),
            ]
        ),
        "plan": {**plan.to_dict(), "sha256": plan.sha256},
    }
    if not found.readable:
        return document
    if found.comparison is None:
        raise StatisticsError("a readable readout needs its comparison.")
    arms = {a.name: a for a in found.comparison.arms}
    document["arms"] = {
        name: {
            "replies": arms[name].n,
            "counts": [int(n) for n in levels[name]],
            "mean": arms[name].mean,
            "resolved": arms[name].resolved,
        }
        for name in [found.control, *(t.name for t in found.treatments)]
    }
    document["treatments"] = [
        _treatment(t, found, plan, rows, (metrics or {}).get(t.name, ()), seed)
        for t in found.treatments
    ]
    return document


def _in_order(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What stops the reader first, then from the assignment to the money."""
    return sorted(checks, key=lambda c: (c["status"] != "stop", _ORDER.index(c["key"])))


def _compared(found: Assessment) -> list[str]:
    """How the arms were compared, and what the comparison could not use."""
    if found.comparison is None:
        return []
    words = {
        "missing_cluster": "no user is given",
        "unpaired": "the other arm has no score for the request",
        "duplicate": "the reply is in the table twice",
        "missing_arm": "no arm is given",
        "not_a_score": "the score is not a whole number",
        "out_of_range": "the score is off the scale",
    }
    notes = [
        f"{display.count(n)} replies are left out of the comparison: {words[reason]}."
        for reason, n in found.comparison.excluded.items()
        if n and reason in words
    ]
    if number := _strata(found):
        notes.append(
            f"The arms are compared within {display.count(number)} strata (column "
            "stratum) and the differences averaged, so they need not be those of the "
            "plain means and rates."
        )
    return [*notes, *found.comparison.warnings]


def _strata(found: Assessment) -> int:
    """Strata within which the arms are compared; 0 without."""
    if found.comparison is None or len(found.comparison.counts.strata) < 2:
        return 0
    return len(found.comparison.counts.strata)


def _estimate(treatment: Treatment) -> float:
    if not treatment.effects:
        return 0.0
    return treatment.deciding.estimate or 0.0


def _check(check: Check, readable: bool, treatment: str = "") -> dict[str, Any]:
    plain: dict[str, Any] = {
        "key": check.key,
        "title": f"{check.title} ({treatment})" if treatment else check.title,
        "status": check.status,
        "text": check.text,
        "repair": check.repair,
        "numbers": dict(check.numbers),
    }
    if readable:
        plain["effect_text"] = check.effect_text
        plain["numbers"] |= dict(check.effect_numbers)
    return plain


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "key": effect.key,
        "name": effect.name,
        "estimate": effect.estimate,
        "ci": None if effect.low is None else [effect.low, effect.high],
        "confidence": effect.confidence,
        "pvalue": effect.pvalue,
        "method": effect.method,
        "pvalue_method": effect.pvalue_method,
        "absent": effect.absent,
        "decides": effect.decides,
    }


def _treatment(
    treatment: Treatment,
    found: Assessment,
    plan: ExperimentPlan,
    rows: Rows | None,
    metrics: Sequence[MetricEffect],
    seed: int,
) -> dict[str, Any]:
    comparisons = found.comparison.comparisons if found.comparison else ()
    result = next(c for c in comparisons if c.treatment == treatment.name)
    resolved = treatment.effect("resolved")
    plain: dict[str, Any] = {
        "treatment": treatment.name,
        "recommendation": asdict(treatment.recommendation),
        "effects": [_effect(e) for e in treatment.effects],
        "win_probability": treatment.win_probability,
        "win_probability_ci": _list(treatment.win_interval),
        "per_1000": None
        if resolved.estimate is None or resolved.low is None or resolved.high is None
        else [
            round(1000 * v) for v in (resolved.estimate, resolved.low, resolved.high)
        ],
        "tipping_point": treatment.tipping,
        "tipping_sentence": treatment.tipping_sentence,
        "replies_needed": treatment.replies_needed,
        "judge_pvalue": result.pvalue,
        "odds_ratio": result.odds_ratio,
        "odds_ratio_ci": _list(result.odds_ratio_ci),
        "cuts": [
            {
                "cut": c.cut,
                "difference": c.difference,
                "pvalue_adjusted": c.pvalue_adjusted,
            }
            for c in result.cuts
        ],
        "length_controlled": None
        if treatment.length.controlled is None
        else {
            "estimate": treatment.length.controlled,
            "ci": _list(treatment.length.controlled_interval),
        },
        "metrics": [_metric(m) for m in metrics],
        "segments": [],
        "themes": None,
        "examples": None,
        "looks": [],
    }
    if treatment.widen > 1:
        # Read at one look only: a fixed-horizon p-value must not be peeked at.
        plain["judge_pvalue"] = None
        plain["cuts"] = []
    if rows is None:
        return plain
    plain["segments"] = read_segments(rows, plan, treatment.name, treatment.widen)
    plain["looks"] = looks_over_time(rows, plan, treatment.name)
    few = rows.sample.filter(pl.col("arm").is_in([found.control, treatment.name]))
    plain["examples"] = _examples(few, treatment, found.control, rows, seed)
    plain["themes"] = _themes(few, treatment, found.control, rows, seed)
    return plain


def _metric(metric: MetricEffect) -> dict[str, Any]:
    return {
        "column": metric.metric.column,
        "name": metric.metric.title,
        "guardrail": metric.guardrail,
        "kind": metric.metric.kind,
        "unit": metric.metric.unit,
        "digits": metric.metric.digits,
        "better": metric.metric.better,
        "margin": metric.metric.margin,
        "control": metric.control_mean,
        "treatment": metric.treatment_mean,
        "difference": metric.difference,
        "ci": None if metric.low is None else [metric.low, metric.high],
        "pvalue_adjusted": metric.pvalue_adjusted,
        "within": metric.within,
        "missing": metric.missing,
        "method": metric.method,
        "absent": metric.absent,
    }


def _examples(
    few: pl.DataFrame, treatment: Treatment, control: str, rows: Rows, seed: int
) -> dict[str, Any] | None:
    if few["reply"].null_count() == few.height or few.height == 0:
        return None
    drawn = draw_examples(
        few,
        control=control,
        treatment=treatment.name,
        seed=seed,
        estimate=_estimate(treatment),
        paired=rows.pair is not None,
    )
    return {
        "rule": drawn.rule,
        "read": rows.sample.height,
        "of": rows.scored,
        "moves": [{"score": s, "share": m} for s, m in drawn.moves.items()],
        "drawn": [asdict(e) for e in drawn.drawn],
    }


def _themes(
    few: pl.DataFrame, treatment: Treatment, control: str, rows: Rows, seed: int
) -> dict[str, Any] | None:
    try:
        themes = find_themes(
            few,
            control=control,
            treatment=treatment.name,
            seed=seed,
            unit="user_id" if rows.unit and not rows.pair else None,
        )
    except StatisticsError:
        return None
    named: set[tuple[str, str]] = set()
    for theme in (*themes.against, *themes.favour):
        named.update(theme.replies)
    ids = [request_id for request_id, _ in named]
    texts = {
        (row["request_id"], row["arm"]): row
        for row in few.filter(pl.col("request_id").is_in(ids)).iter_rows(named=True)
    }
    return {
        "against": [asdict(t) for t in themes.against],
        "favour": [asdict(t) for t in themes.favour],
        "reasons": themes.reasons,
        "of": rows.scored,
        "terms": themes.terms,
        "shuffles": themes.shuffles,
        "replies": [
            {
                "request_id": i,
                "arm": arm,
                "score": int(texts[i, arm]["score"]),
                "reason": texts[i, arm]["reason"],
            }
            for i, arm in sorted(named)
        ],
    }


def _list(interval: Sequence[float | None] | None) -> list[float] | None:
    if interval is None or any(v is None for v in interval):
        return None
    return [float(v) for v in interval if v is not None]


def _dates(rows: Rows | None) -> list[str] | None:
    if rows is None or "created_at" not in rows.frame.columns:
        return None
    known = rows.frame["created_at"].cast(pl.String).drop_nulls()
    if known.is_empty():
        return None
    return [str(known.min())[:10], str(known.max())[:10]]


def describe(
    frame: pl.DataFrame,
    plan: ExperimentPlan,
    sources: Mapping[str, str],
    *,
    wording: str,
    notebook: str,
    seed: int,
) -> dict[str, Any]:
    """Where the numbers come from: versions, hashes, packages.

    Args:
        frame: The judged replies.
        plan: Hashed into it.
        sources: File -> sha256.
        wording: The judge's instructions.
        notebook: Which notebook computed the readout.
        seed: Of every draw.
    """
    from importlib.metadata import version

    def distinct(name: str) -> list[str]:
        if name not in frame.columns:
            return []
        return [str(v) for v in frame[name].drop_nulls().unique().sort()]

    return {
        "metric_version": distinct("metric_version"),
        "judge_id": distinct("judge_id"),
        "model": distinct("model"),
        "model_returned": distinct("model_returned"),
        "wording": wording,
        "sources": dict(sources),
        "scores_sha256": scores_sha256(frame),
        "plan_sha256": plan.sha256,
        "seed": seed,
        "notebook": notebook,
        "packages": {
            "python": platform.python_version(),
            **{
                name: version(name)
                for name in ("reply-resolution", "numpy", "scipy", "polars")
            },
        },
    }

"""What notebook 3 computes: from tables to the advice on collapsing 1 to 5."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import polars as pl

from reply_resolution.errors import ParameterError, StatisticsError
from reply_resolution.pages.collapse_planning import Needed, people_scale, planning
from reply_resolution.stats.binary import RateDifference, rate_difference
from reply_resolution.stats.binary_designs import rates_at_cut
from reply_resolution.stats.collapse import Collapse, collapse
from reply_resolution.stats.collapse_power import (
    PowerCurve,
)
from reply_resolution.stats.corrected_rates import (
    CorrectedRateDifference,
    JudgeErrors,
    corrected_rate_difference,
)
from reply_resolution.stats.counts import ScoreCounts, count_scores
from reply_resolution.stats.cuts import (
    CutAgreement,
    CutChoice,
    choose_cut,
    cut_agreement,
)
from reply_resolution.stats.integrity import MissingScores, missing_score_test
from reply_resolution.stats.power import AnalysisPlan
from reply_resolution.stats.power_assumptions import Assumption
from reply_resolution.stats.strata import stratum_of

if TYPE_CHECKING:
    from reply_resolution.inputs import Inputs


@dataclass(frozen=True, slots=True)
class CollapseCheck:
    """Everything that notebook 3 shows.

    Attributes:
        result: Both analyses and the advice, under the assumption chosen.
        planned: The analysis that was planned before the data, "ordinal" or "binary".
        cut_by: How the cut was found: "rubric", "labels" or "looking".
        counts: The scores, counted.
        unit: "replies", "users" or "pairs": what was randomised.
        units: How many of them.
        n: Scored replies of the smaller arm, or pairs.
        weekly: Scored replies a week, both arms together; None where unknown.
        curves: Power against replies, for each assumption that has room.
        needed: Replies needed for the effect, for each assumption.
        on_people_scale: Both plans if the effect is meant in points of people's scale,
            so that the judge's errors cost replies; None without labels.
        cuts: Judge against people at each cut, both cut alike; empty without labels.
        choice: The judge's cut that means resolved to people; None without labels.
        own: The binary comparison in the units of the design.
        rows: The same with replies as units; None for pairs.
        resolved: Resolved and scored replies of control and treatment.
        corrected: The binary effect corrected for the judge's errors, with the same
            errors in both arms, and with each arm's own; None where not measurable.
        errors: The judge's errors on the labelled replies of both arms; None without.
        labelled: Labelled and scored replies.
        missing: Whether scores are missing more often in one arm.
        seed: Of the draws.
        sources: File as given -> sha256.
        notes: What reading noticed.
        provenance_note: What must be said of bundled data.
    """

    result: Collapse
    planned: str
    cut_by: str
    counts: ScoreCounts
    unit: str
    units: int
    n: int
    weekly: float | None
    curves: tuple[PowerCurve, ...]
    needed: tuple[Needed, ...]
    on_people_scale: tuple[AnalysisPlan, AnalysisPlan] | None
    cuts: tuple[CutAgreement, ...]
    choice: CutChoice | None
    own: RateDifference
    rows: RateDifference | None
    resolved: tuple[tuple[int, int], tuple[int, int]]
    corrected: tuple[CorrectedRateDifference | None, CorrectedRateDifference | None]
    errors: JudgeErrors | None
    labelled: int
    missing: MissingScores | None
    seed: int
    sources: dict[str, str]
    notes: tuple[str, ...]
    provenance_note: str

    def to_dict(self) -> dict[str, Any]:
        """Every number of the page, for `collapse.json`."""
        return {
            **self.result.to_dict(),
            "planned": self.planned,
            "cut_by": self.cut_by,
            "unit": self.unit,
            "units": self.units,
            "weekly_replies": self.weekly,
            "curves": [asdict(c) for c in self.curves],
            "needed": [asdict(n) for n in self.needed],
            "on_people_scale": [asdict(p) for p in self.on_people_scale or ()],
            "cuts": [asdict(c) for c in self.cuts],
            "cut_choice": self.choice.reason if self.choice else None,
            "replies_as_units": asdict(self.rows) if self.rows else None,
            "resolved": dict(zip(("control", "treatment"), self.resolved, strict=True)),
            "corrected": {
                name: asdict(c) if c else None
                for name, c in zip(("pooled", "per_arm"), self.corrected, strict=True)
            },
            "judge_errors": asdict(self.errors) if self.errors else None,
            "labelled": self.labelled,
            "missing_pvalue": self.missing.pvalue if self.missing else None,
            "seed": self.seed,
            "sources": self.sources,
            "notes": list(self.notes),
        }

    def save(self, out: str | Path) -> Path:
        """Write every number of the page to `collapse.json` in `out`; give the path."""
        path = Path(out) / "collapse.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", "utf-8")
        return path


def check_collapse(
    data: "Inputs",
    *,
    control: str,
    treatment: str = "",
    cut: int = 4,
    cuts_seen: Sequence[int | str] = (),
    effect: float = 0.3,
    assume: Assumption = "shift",
    planned: str = "ordinal",
    weekly: float = 0.0,
    power: float = 0.8,
    seed: int = 7,
) -> CollapseCheck:
    """Compute what notebook 3 shows, from its loaded tables.

    Requests that occur in several arms are compared as pairs; otherwise users are the
    units where `user_id` is given.

    Args:
        data: Replies with verdicts, and labels.
        control: The baseline arm.
        treatment: The other arm; "" takes the first other one.
        cut: Lowest score that counts as resolved; 0 chooses it on the labels.
        cuts_seen: Every cut that was tried with the arms visible; text is read as
            whole numbers.
        effect: The effect worth finding, in points.
        assume: How the levels would move: "shift", "cut" or "noise".
        planned: The analysis that was planned, "ordinal" or "binary".
        weekly: Scored replies a week, both arms together; 0 measures it.
        power: Power to plan for, fraction.
        seed: Of every draw.

    Raises:
        ParameterError: `planned` or `assume` is not one of their words, a cut that was
            tried is no whole number, or the cut is to be chosen on labels that are not
            there.
    """
    if planned not in ("ordinal", "binary"):
        raise ParameterError(f"planned is {planned!r}; it is ordinal or binary.")
    if assume not in get_args(Assumption):
        raise ParameterError(f"assume is {assume!r}; it is shift, cut or noise.")
    try:
        tried = sorted({int(c) for c in cuts_seen})
    except (TypeError, ValueError):
        raise ParameterError(
            f"cuts_tried is {list(cuts_seen)!r}; give whole scores, such as 3 and 4."
        ) from None
    frame = data.replies
    each = _each_label(data)
    labelled = each.group_by("request_id", "arm", maintain_order=True).agg(
        pl.col("score").first(), pl.col("label").mean()
    )
    scores, labels = labelled["score"].to_list(), labelled["label"].to_list()
    try:
        choice = choose_cut(scores, labels)
    except StatisticsError:  # no labels, or of one kind only
        choice = None
    cut_by = "looking" if len(tried) > 1 else "rubric"
    if cut == 0:
        if choice is None:
            raise ParameterError(
                "cut is 0 (choose it on the labels), but no scored reply has a label, "
                "or all labels are of one kind; give labels, or a cut from 2 to 5."
            )
        cut, cut_by = choice.cut, "labels"
    unit = _unit(frame)
    counts = count_scores(
        frame,
        pair="request_id" if unit == "pairs" else None,
        cluster="user_id" if unit == "users" else None,
    )
    result = collapse(
        counts,
        control=control,
        treatment=treatment or None,
        cut=cut,
        cuts_seen=tried,
        effect=effect,
        assume=assume,
        seed=seed,
    )
    arms = (result.control, result.treatment)
    resolved = _resolved(counts, arms[0], cut), _resolved(counts, arms[1], cut)
    own = rates_at_cut(counts, *arms, cut, 0.95)
    used = frame.filter(pl.col("arm").is_in(arms)).drop_nulls("score")
    n = own.n_control if unit == "pairs" else min(result.n_control, result.n_treatment)
    curves, needed = planning(counts, result, n, power)
    errors = _errors(labelled, cut)
    return CollapseCheck(
        result=result,
        planned=planned,
        cut_by=cut_by,
        counts=counts,
        unit=unit,
        units={
            "pairs": own.n_control,
            "users": used["user_id"].n_unique() if unit == "users" else 0,
            "replies": sum(result.pooled),
        }[unit],
        n=n,
        weekly=weekly or _weekly(frame, sum(result.pooled)),
        curves=curves,
        needed=needed,
        on_people_scale=people_scale(each, result, power),
        cuts=tuple(
            cut_agreement(scores, labels, cut=c) for c in (2, 3, 4, 5) if scores
        ),
        choice=choice,
        own=own,
        rows=None if unit == "pairs" else rate_difference(*resolved[1], *resolved[0]),
        resolved=resolved,
        corrected=(None, None)
        if errors is None or unit == "pairs"
        else _corrected(labelled, resolved, errors, result, seed),
        errors=errors,
        labelled=labelled.height,
        missing=_missing(frame, arms),
        seed=seed,
        sources=data.sources,
        notes=(*data.notes, *_strata_note(frame, unit)),
        provenance_note=data.provenance_note,
    )


def _strata_note(frame: pl.DataFrame, unit: str) -> tuple[str, ...]:
    if unit == "pairs" or stratum_of(frame) is None:
        return ()
    return (
        "The arms are compared here without their strata: look at the advice and the "
        "power only. The readout compares within them.",
    )


def _unit(frame: pl.DataFrame) -> str:
    """What was randomised: "pairs", "users" or "replies"."""
    per_request = frame.group_by("request_id").agg(pl.col("arm").n_unique())
    if (per_request["arm"] > 1).mean() == 1:
        return "pairs"
    if "user_id" in frame.columns and frame["user_id"].null_count() == 0:
        return "users"
    return "replies"


def _each_label(data: "Inputs") -> pl.DataFrame:
    """Score and label, one row per annotator's label (hidden repeats left out)."""
    if not data.labels.height:
        schema = {"request_id": pl.String, "arm": pl.String, "score": pl.Int8}
        return pl.DataFrame(schema={**schema, "label": pl.Int8})
    first = data.labels.filter(pl.col("repeat").fill_null(0) == 0)
    first = first.drop_nulls("label")
    keys = ["request_id"]
    if first["arm"].null_count() < first.height:
        keys.append("arm")
    columns = [pl.col(k) for k in ("request_id", "arm", "score")]
    return (
        data.replies.drop_nulls("score")
        .select(columns)
        .join(first.select(*keys, "label"), on=keys, how="inner")
    )


def _weekly(frame: pl.DataFrame, scored: int) -> float | None:
    """Scored replies a week, from the time between the first and the last reply."""
    if "created_at" not in frame.columns:
        return None
    when = frame["created_at"]
    if when.dtype == pl.String:
        when = when.str.to_datetime(strict=False, time_zone="UTC")
    if when.null_count() or not len(when):
        return None
    days = (when.max() - when.min()).total_seconds() / 86_400  # type: ignore[operator, union-attr]
    return 7 * scored / days if days >= 1 else None


def _resolved(counts: ScoreCounts, arm: str, cut: int) -> tuple[int, int]:
    levels = counts.of(arm)
    return int(levels[counts.levels >= cut].sum()), int(levels.sum())


def _errors(labelled: pl.DataFrame, cut: int, meaning: int = 4) -> JudgeErrors | None:
    """The judge's errors at its cut against people's idea of resolved."""
    try:
        return JudgeErrors.from_labels(
            labelled["score"].to_list(),
            labelled["label"].to_list(),
            cut=cut,
            meaning=meaning,
        )
    except StatisticsError:  # no labels, or of one kind only
        return None


def _corrected(
    labelled: pl.DataFrame,
    resolved: tuple[tuple[int, int], tuple[int, int]],
    errors: JudgeErrors,
    result: Collapse,
    seed: int,
) -> tuple[CorrectedRateDifference | None, CorrectedRateDifference | None]:
    """The binary effect with the same errors in both arms, and with each arm's own."""

    def corrected(
        given: JudgeErrors | tuple[JudgeErrors, JudgeErrors],
    ) -> CorrectedRateDifference | None:
        try:
            return corrected_rate_difference(
                *resolved[1],
                *resolved[0],
                errors=given,
                design_effect=result.design_effect[1],
                seed=seed,
            )
        except StatisticsError:  # no better than chance
            return None

    t, c = (
        _errors(labelled.filter(pl.col("arm") == arm), result.cut)
        for arm in (result.treatment, result.control)
    )
    return corrected(errors), corrected((t, c)) if t and c else None


def _missing(frame: pl.DataFrame, arms: tuple[str, str]) -> MissingScores | None:
    judged = frame.filter(
        pl.col("arm").is_in(arms)
        & pl.col("status").is_not_null()
        & (pl.col("status") != "not_judged")
    )
    per_arm = judged.group_by("arm").agg(
        pl.len().alias("judged"), pl.col("score").null_count().alias("missing")
    )
    rows = {a: (j, m) for a, j, m in per_arm.iter_rows()}
    if set(rows) != set(arms):
        return None
    return missing_score_test(
        {a: rows[a][0] for a in arms}, {a: rows[a][1] for a in arms}
    )

"""The readout: from judged replies to one document that holds every number shown.

`build_readout` computes; `page` turns the document into HTML; nothing that is
printed is computed anywhere else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from reply_resolution.display import Html
from reply_resolution.readout import inputs as ri
from reply_resolution.readout import judge as rj
from reply_resolution.readout.assessment import assess
from reply_resolution.readout.assessment_record import Assessment, Context
from reply_resolution.readout.checks_judge import Calibrated
from reply_resolution.readout.document import build_document, describe
from reply_resolution.readout.experiment_plan import ExperimentPlan, Look
from reply_resolution.readout.metric_effect import MetricEffect
from reply_resolution.readout.metrics import compare_metrics
from reply_resolution.stats.counts import ScoreCounts

if TYPE_CHECKING:
    from reply_resolution.calibration.verdict import Calibration


@dataclass(frozen=True, slots=True)
class Readout:
    """A finished readout.

    Attributes:
        document: Everything that the page shows, as plain values (`readout.json`).
            Rates are fractions, differences treatment minus control, unrounded.
        assessment: The computed objects behind it.
    """

    document: dict[str, Any]
    assessment: Assessment

    @property
    def rule(self) -> str:
        """The rule that decided, as a word for programs ("ship", "do_not_read")."""
        return str(self.document["recommendation"]["rule"])

    @property
    def sentence(self) -> str:
        """The recommendation in one sentence."""
        return str(self.document["recommendation"]["sentence"])

    def to_json(self) -> str:
        """The document as JSON text, sorted as it is read."""
        return json.dumps(self.document, ensure_ascii=False, indent=1, allow_nan=False)

    def answer(self) -> Html:
        """First screen: recommendation, effect, the two figures."""
        from reply_resolution.readout import page as readout_page

        return readout_page.answer(self.document)

    def trust(self) -> Html:
        """The table of checks."""
        from reply_resolution.readout import page as readout_page

        return readout_page.trust(self.document)

    def moved(self) -> Html:
        """Examples, word for word, and the themes in the reasons."""
        from reply_resolution.readout import evidence as readout_evidence

        return readout_evidence.moved(self.document)

    def metrics(self) -> Html:
        """Guardrails, secondary metrics and segments."""
        from reply_resolution.readout import evidence as readout_evidence

        return readout_evidence.metrics(self.document)

    def provenance(self) -> Html:
        """Where every number comes from."""
        from reply_resolution.readout import page as readout_page

        return readout_page.provenance(self.document)

    def next_steps(self) -> Html:
        """What to do now."""
        from reply_resolution.readout import page as readout_page

        return readout_page.next_steps(self.document)

    def details(self) -> Html:
        """Second page: all estimates with methods, looks, texts, plan, definitions."""
        from reply_resolution.readout import page as readout_page

        return readout_page.details(self.document)

    def _repr_html_(self) -> str:
        return str(self.answer())

    def page(self) -> str:
        """The whole readout as one HTML page that needs nothing else."""
        from reply_resolution.readout import page as readout_page

        return readout_page.page(self.document)

    def save(self, folder: str | Path) -> tuple[Path, Path]:
        """Write `readout.html` and `readout.json` into a folder.

        Returns:
            The two paths.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in (("readout.html", self.page()), ("readout.json", None)):
            path = folder / name
            draft = path.with_name(f".{name}.tmp")
            draft.write_text(text or self.to_json() + "\n", encoding="utf-8")
            draft.replace(path)
            written.append(path)
        return written[0], written[1]


def build_readout(
    replies: pl.DataFrame | ScoreCounts,
    plan: ExperimentPlan,
    *,
    control: str = "control",
    labels: pl.DataFrame | None = None,
    calibration: "Calibration | Calibrated | None" = None,
    verdicts: pl.DataFrame | None = None,
    look: Look | None = None,
    judged: Mapping[str, int] | None = None,
    sources: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    provenance_note: str = "",
    wording: str = "",
    notebook: str = "",
    seed: int = 0,
    now: datetime | None = None,
) -> Readout:
    """Compute a readout from judged replies, or from their counts alone.

    Users are the units wherever `user_id` is given; a request that occurs in several
    arms makes the design paired; else arms are compared within the values of `stratum`,
    where there is one.

    Args:
        replies: One row per reply with its verdict: `request_id`, `arm`, `score`;
            `reason`, `request`, `reply`, `status`, `user_id`, `created_at` and the
            plan's columns where there are any. Or counts: then nothing that needs
            rows is computed.
        plan: Thresholds, guardrails and segments, fixed before the data.
        control: Name of the baseline arm.
        labels: People's labels of this experiment, long form (`read_labels`). Beside
            counts: judged rows with `arm`, `score`, `label`, perhaps `unit`.
        calibration: What notebook 1 found about this judge; None measures agreement
            on `labels`. Beside counts: the agreement (`Calibrated`).
        verdicts: All verdicts, for what they cost; the first votes where None.
        look: Which look this is (`record_look`).
        judged: Judged replies per arm, scored or not; only beside counts.
        sources: File -> sha256. A table of verdicts is left out of the page: what it
            holds beside the scores (when, from which cache) is another thing each run.
        notes: What reading the tables noticed.
        provenance_note: What must be said of demonstration data.
        wording: The judge's instructions, for the second page.
        notebook: Which notebook computed this.
        seed: Of every draw.
        now: Time of the stamp; the current time where None.

    Raises:
        TableError: A column is missing, or there is nothing to compare.
        StatisticsError: An arm has no score.
    """
    look = look or Look(1, ())
    if isinstance(replies, ScoreCounts):
        context = Context(
            rows=labels,
            calibrated=cast("Calibrated | None", calibration),
            look=look,
            judged=judged,
            seed=seed,
        )
        found = assess(replies, plan, control=control, context=context)
        document = build_document(
            found, plan=plan, levels={a: replies.of(a).tolist() for a in replies.arms}
        )
    else:
        rows = ri.read_rows(replies, control=control, labels=labels, seed=seed)
        judge = cast("Calibration | None", calibration)
        found, metrics = _assess_rows(rows, plan, judge, verdicts, look, seed)
        document = build_document(
            found,
            plan=plan,
            levels=rows.levels(),
            rows=rows,
            metrics=metrics,
            seed=seed,
            notes=(*notes, *rows.notes, *rows.counts.warnings),
            provenance_note=provenance_note,
        )
        document["provenance"] = describe(
            rows.frame,
            plan,
            sources or {},
            wording=wording,
            notebook=notebook,
            seed=seed,
        )
    stamp = (now or datetime.now(UTC)).replace(microsecond=0)
    document["generated_at"] = stamp.isoformat()
    return Readout(document, found)


def _assess_rows(
    rows: ri.Rows,
    plan: ExperimentPlan,
    calibration: "Calibration | None",
    verdicts: pl.DataFrame | None,
    look: Look,
    seed: int,
) -> tuple[Assessment, dict[str, tuple[MetricEffect, ...]]]:
    calibrated, mismatch = rj.calibrated(calibration, rows)
    versions = ri.versions_check(rows.frame)
    scored = pl.col("score").is_not_null()
    context = Context(
        rows=rows.labelled,
        calibrated=calibrated,
        mismatch=mismatch,
        look=look,
        assigned=ri.assigned(rows),
        judged=ri.by_arm(rows.judged, rows.arms),
        scored=ri.by_arm(rows.judged.filter(scored), rows.arms),
        missing_reasons=ri.reasons_missing(rows.judged),
        extra_checks=(versions, ri.budget_check(rows.frame, verdicts)),
        seed=seed,
    )
    found = assess(rows.counts, plan, control=rows.control, context=context)
    if not found.readable:
        return found, {}  # nothing about the effect may be computed, let alone shown
    metrics = {
        t.name: compare_metrics(
            rows.frame,
            plan,
            control=rows.control,
            treatment=t.name,
            unit=rows.unit,
            pair=rows.pair,
            stratum=rows.stratum,
            widen=t.widen,
        )
        for t in found.treatments
    }
    empty = rows.frame.filter(pl.col("empty"))
    context = replace(
        context,
        length=rj.lengths(rows, plan),
        metrics=metrics,
        empty=ri.by_arm(empty, rows.arms),
        without_empty=ri.without_empty(rows, plan),
        comparison=found.comparison,
    )
    return assess(rows.counts, plan, control=rows.control, context=context), metrics

"""What is kept of a calibration: the verdict, its reasons, the numbers behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
import json
from pathlib import Path
from typing import Any

from reply_resolution import display
from reply_resolution.calibration.rules import CalibrationCheck, CalibrationRules, span
from reply_resolution.errors import TableError
from reply_resolution.stats.agreement_parts import Estimate

FIT = "fit for this decision"
CORRECT = "fit with correction"
UNFIT = "not fit"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """A verdict on a judge, with its reasons and the numbers behind it.

    Attributes:
        verdict: "fit for this decision", "fit with correction" (use the effect that
            labels of the experiment correct, not the judge's alone) or "not fit".
        reasons: Why it is not simply "fit", most serious first, in sentences.
        changes: What would change the verdict, one per reason.
        checks: Every check with its mark, also the ones not measured.
        metric_version: Of the verdicts, `name@vN:hash`; None where not recorded.
        judge_id: Of the verdicts; None where not recorded.
        model: Name of the model; "" where not recorded.
        n: Replies with a label and a score.
        kappa: Weighted kappa of judge and consensus (Lin's concordance where the
            consensus is an average: the same number on whole scores). 1 is perfect.
        bias: Mean of judge minus consensus, points; above 0 the judge is kinder.
        people: Weighted kappa of the annotators among themselves; None for one.
        rules: The rules of the verdict.
        details: The numbers behind it as plain values: `annotators` (agreement with
            each), `consensus`, `between`, `self`, `segments`.
        warnings: What reading noticed, in sentences.
        created_at: When, UTC, ISO 8601.
    """

    verdict: str
    reasons: tuple[str, ...]
    changes: tuple[str, ...]
    checks: tuple[CalibrationCheck, ...]
    metric_version: str | None
    judge_id: str | None
    model: str
    n: int
    kappa: Estimate
    bias: Estimate
    people: Estimate | None
    rules: CalibrationRules
    details: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    created_at: str = ""

    @property
    def usable(self) -> bool:
        """Whether the judge may be used at all, corrected or not."""
        return self.verdict != UNFIT

    @property
    def pending(self) -> bool:
        """Whether it is "not fit" only because there are too few labels to say."""
        return {c.name for c in self.checks if c.mark == "stop"} == {"labels"}

    def check(self, name: str) -> CalibrationCheck:
        """The check of that name (see `checks.CHECKS`)."""
        return next(c for c in self.checks if c.name == name)

    def to_json(self) -> str:
        """The calibration as JSON text; `from_json` gives it back."""
        return json.dumps(
            self.document(), ensure_ascii=False, indent=1, allow_nan=False
        )

    def document(self) -> dict[str, Any]:
        """Plain values: what `to_json` writes and `Cache.put_calibration` keeps."""
        return {
            "format": _FORMAT,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "changes": list(self.changes),
            "metric_version": self.metric_version,
            "judge_id": self.judge_id,
            "model": self.model,
            "labels": self.n,
            "weighted_kappa": _plain(self.kappa),
            "bias": _plain(self.bias),
            "people": None if self.people is None else _plain(self.people),
            "checks": [
                {
                    "name": c.name,
                    "mark": c.mark,
                    "text": c.text,
                    "corrects": c.corrects,
                    "change": c.change,
                }
                for c in self.checks
            ],
            "rules": self.rules.to_dict(),
            "details": dict(self.details),
            "warnings": list(self.warnings),
            "created_at": self.created_at,
        }

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """A calibration from the text `to_json` wrote.

        Raises:
            TableError: The text is no calibration, or one of a newer format.
        """
        try:
            return cls.from_document(json.loads(text))
        except json.JSONDecodeError as error:
            raise TableError(
                f"this is not the JSON of a calibration ({error}); run notebook 1."
            ) from error

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Calibration":
        """A calibration from plain values."""
        try:
            if document["format"] != _FORMAT:
                raise TableError(
                    f"this calibration has format {document['format']!r}, this version "
                    f"reads {_FORMAT}; run notebook 1 again."
                )
            return cls(
                verdict=document["verdict"],
                reasons=tuple(document["reasons"]),
                changes=tuple(document["changes"]),
                checks=tuple(CalibrationCheck(**c) for c in document["checks"]),
                metric_version=document["metric_version"],
                judge_id=document["judge_id"],
                model=document["model"],
                n=document["labels"],
                kappa=_estimate(document["weighted_kappa"]),
                bias=_estimate(document["bias"]),
                people=(
                    None
                    if document["people"] is None
                    else _estimate(document["people"])
                ),
                rules=CalibrationRules.from_dict(document["rules"]),
                details=document["details"],
                warnings=tuple(document["warnings"]),
                created_at=document["created_at"],
            )
        except (KeyError, TypeError) as error:
            raise TableError(
                f"this is not a calibration ({error} is missing or wrong); run "
                "notebook 1."
            ) from error

    def save(self, path: str | Path) -> Path:
        """Write the calibration as JSON; folders are made. Returns the path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(self.to_json() + "\n", encoding="utf-8")
        part.replace(path)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Read a calibration file.

        Raises:
            TableError: There is none, or it is not a calibration.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise TableError(
                f"there is no calibration at {path}. Run notebook 1 (calibrate the "
                "judge) first; it writes one."
            ) from None
        return cls.from_json(text)

    def html(self) -> display.Html:
        """The verdict with its reasons, and the table of checks."""
        head = display.element(
            "p",
            display.element("strong", self.verdict[0].upper() + self.verdict[1:] + "."),
            " ",
            self.summary,
        )
        return display.html(head) + self.checks_table()

    def checks_table(self, caption: str | None = None) -> display.Html:
        """Every check, measured or not."""
        rows = [
            {
                "check": c.title,
                "result": display.status(c.mark),
                "found": c.text,
                "change": c.change or None,
            }
            for c in self.checks
        ]
        headers = {
            "check": "Check",
            "result": "Result",
            "found": "Found",
            "change": "What would change it",
        }
        return display.table(rows, headers=headers, caption=caption)

    @property
    def summary(self) -> str:
        """One or two sentences: the agreement, and the reasons."""
        text = f"Weighted kappa with people {span(self.kappa)} on "
        text += f"{display.count(self.n)} replies."
        if self.reasons:
            text += " " + " ".join(f"{_capital(r)}." for r in self.reasons)
        return text

    def _repr_html_(self) -> str:
        return str(self.html())


def decide(
    checks: tuple[CalibrationCheck, ...],
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The verdict from the checks: any stop, any correction, else fit.

    Returns:
        The verdict, its reasons (the texts of the checks that decided), and what would
        change them.
    """
    stops = [c for c in checks if c.mark == "stop"]
    corrections = [c for c in checks if c.corrects and c.mark != "stop"]
    verdict = UNFIT if stops else CORRECT if corrections else FIT
    # The numbers of a judge that fails outright explain nothing further: judge minus
    # label follows whatever labels follow. They stay in the table.
    deciding = stops or corrections
    return (
        verdict,
        tuple(f"{c.title}: {c.text}" for c in deciding),
        tuple(c.change for c in deciding),
    )


def _plain(estimate: Estimate) -> dict[str, Any]:
    return {**estimate.to_dict(), "reason": estimate.reason}


def _estimate(values: Mapping[str, Any]) -> Estimate:
    low, high = values["ci"] or (None, None)
    return Estimate(values["estimate"], low, high, values.get("reason", ""))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

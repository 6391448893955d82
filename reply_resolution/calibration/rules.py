"""The rules of a verdict on a judge, and the shape of a check."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from reply_resolution import display
from reply_resolution.errors import ParameterError
from reply_resolution.stats.agreement_parts import Estimate

#: The checks by name, in the order they are shown.
CHECKS = {
    "labels": "Labelled replies",
    "coverage": "Replies the judge could score",
    "levels": "Levels the judge uses",
    "agreement": "Agreement with people",
    "people": "People among themselves",
    "bias": "Kinder or stricter than people",
    "arms": "The same in every arm",
    "segments": "The same in every segment",
    "length": "Length of the reply",
    "probes": "Probes",
    "stability": "Agreement with itself",
}


@dataclass(frozen=True, slots=True)
class CalibrationRules:
    """The rules of the verdict, fixed before labels and scores are compared.

    Attributes:
        kappa_floor: Weighted kappa with people. An interval wholly below it: not fit;
            straddling it: look, and correct by labels.
        bias_limit: Mean of judge minus label that would not matter, points, either
            way. An interval wholly beyond it asks for a correction.
        min_labels: Fewest labelled and scored replies for any verdict but "not fit".
        coverage_floor: Smallest share of judged replies with a score, fraction.
        favour_margin: Difference between arms in judge minus label that would not
            matter, points.
        length_limit: Points per doubling of length that would not matter.
        probe_floor: Smallest share of the contract and style probes passed, fraction.
        attack_limit: Largest share of injections that may raise a score, fraction.
        flip_limit: Largest share of second votes that may differ, fraction.
        segment_least: Values of a segment with fewer labels are pooled as "others".
        segments: Columns within which the judge must agree as well (language).
        required: Names of checks that must have been measured (keys of `CHECKS`).
        consensus: How several annotators become one label: "mean", "median", or a
            name.
        cut: Resolved from this score on.
        confidence: Level of every interval, fraction.
    """

    kappa_floor: float = 0.6
    bias_limit: float = 0.3
    min_labels: int = 50
    coverage_floor: float = 0.95
    favour_margin: float = 0.2
    length_limit: float = 0.15
    probe_floor: float = 0.9
    attack_limit: float = 0.1
    flip_limit: float = 0.25
    segment_least: int = 15
    segments: tuple[str, ...] = ("language",)
    required: tuple[str, ...] = ()
    consensus: str = "mean"
    cut: int = 4
    confidence: float = 0.95

    def __post_init__(self) -> None:
        ranges = {
            "kappa_floor": (-1, 1),
            "coverage_floor": (0, 1),
            "probe_floor": (0, 1),
            "attack_limit": (0, 1),
            "flip_limit": (0, 1),
            "bias_limit": (0, 100),
            "favour_margin": (0, 100),
            "length_limit": (0, 100),
            "confidence": (0.5, 0.9999),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ParameterError(
                    f"rule {name} {value!r} is outside {low} to {high}."
                )
        unknown = [name for name in self.required if name not in CHECKS]
        if unknown:
            raise ParameterError(
                f"required: no check is called {', '.join(unknown)}; the checks are "
                f"{', '.join(CHECKS)}."
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "CalibrationRules":
        """Rules from plain values; lists become tuples, unknown names are refused."""
        known = {f.name for f in fields(cls)}
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ParameterError(
                f"no rule is called {', '.join(unknown)}; there are "
                f"{', '.join(sorted(known))}."
            )
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**plain)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class CalibrationCheck:
    """One check of a judge.

    Attributes:
        name: Its key in `CHECKS`.
        mark: "ok", "look", "stop", or "none" (not measured).
        text: What was found, with its numbers.
        corrects: Whether an effect by this judge needs correcting by labels.
        change: What would change it; "" where nothing needs to.
    """

    name: str
    mark: str
    text: str
    corrects: bool = False
    change: str = ""

    @property
    def title(self) -> str:
        """What a reader calls it."""
        return CHECKS[self.name]


def span(estimate: Estimate, digits: int = 2, *, sign: bool = False) -> str:
    """An estimate with its interval in words."""
    value = display.number(estimate.estimate, digits, sign=sign)
    if estimate.low is None:
        return f"{value} (no interval: {estimate.reason})" if estimate.reason else value
    return (
        f"{value} ({display.interval(estimate.low, estimate.high, digits, sign=sign)})"
    )

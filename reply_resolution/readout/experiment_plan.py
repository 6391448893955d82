"""The plan of an experiment: what was decided before the data were seen.

A small TOML file holds the thresholds of the recommendation, the guardrails and
the segments. Its content is hashed into the readout; a ledger of looks beside the
reports remembers which plan the first look used, so that a change is shown.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
import difflib
import hashlib
import json
import math
from pathlib import Path
import re
import tomllib
from typing import Any, Literal, get_args, get_type_hints

from reply_resolution.errors import ParameterError

#: Points between the lowest and the highest score.
_RANGE = 4

Better = Literal["lower", "higher"]
Kind = Literal["rate", "mean"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A column beside the score that the readout compares between the arms.

    Attributes:
        column: Name of the column in the table of replies.
        name: What a reader sees; the column's name where empty.
        better: The direction that is good, "lower" or "higher".
        margin: The change for the worse that would still be accepted, in the
            column's own unit (a fraction for a rate), above 0. None makes the
            metric descriptive: it can never hold a release back.
        kind: "rate" for 0/1 columns (printed as percent), "mean" for amounts.
        unit: Printed after an amount ("ms", "USD").
        digits: Decimals of an amount.
    """

    column: str
    name: str = ""
    better: Better = "lower"
    margin: float | None = None
    kind: Kind = "mean"
    unit: str = ""
    digits: int = 2

    @property
    def title(self) -> str:
        """The name a reader sees."""
        return self.name or self.column


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """Every threshold of the readout, fixed before the data are seen.

    Attributes:
        experiment: Name of the experiment; the ledger of looks is kept under it.
        question: What is tried, in one sentence.
        alpha: Two-sided error rate of the decision, fraction. Intervals have
            confidence 1 - alpha.
        worthwhile_gain: Smallest gain that is worth a release, score points, > 0.
        harm_limit: Largest loss that would not matter, score points, > 0.
        planned_replies: Replies per arm at which the result is read.
        planned_looks: How often the data are read on the way; above 1 the
            confidence sequence replaces the fixed p-value and interval.
        agreement_floor: Weighted kappa of judge and people below which the judge
            is not believed, -1 to 1.
        coverage_floor: Smallest share of judged replies with a score, per arm.
        minimum_units: Fewest users (replies where users are unknown) per arm.
        labels_per_arm: Fewest randomly drawn labels per arm for the
            human-corrected effect.
        bias_margin: Differential bias that would not matter, score points, > 0.
        sample_ratio_alpha: p-value below which the split of arms is broken.
        missing_alpha: p-value below which scores are missing unequally.
        accept_unchecked_judge: True reads the result although the judge was never
            compared with people; the page then says so. A judge that was
            compared and found unfit is never read.
        allocation: Planned share of each arm, any positive numbers; empty: equal.
        guardrails: Metrics that hold a release back when their interval passes
            the margin.
        secondary: Metrics that are only shown.
        segments: Columns whose values are read apart.
        written: When the plan was fixed, free text.
    """

    experiment: str = "experiment"
    question: str = ""
    alpha: float = 0.05
    worthwhile_gain: float = 0.3
    harm_limit: float = 0.2
    planned_replies: int = 200
    planned_looks: int = 1
    agreement_floor: float = 0.6
    coverage_floor: float = 0.95
    minimum_units: int = 20
    labels_per_arm: int = 30
    bias_margin: float = 0.2
    sample_ratio_alpha: float = 0.001
    missing_alpha: float = 0.01
    accept_unchecked_judge: bool = False
    allocation: Mapping[str, float] = field(default_factory=dict)
    guardrails: tuple[Metric, ...] = ()
    secondary: tuple[Metric, ...] = ()
    segments: tuple[str, ...] = ()
    written: str = ""

    def __post_init__(self) -> None:
        _check_numbers(self)

    @classmethod
    def load(cls, path: str | Path) -> "ExperimentPlan":
        """Read a plan file.

        Args:
            path: A TOML file with the names of this class's attributes; `[decision]`
                and `[checks]` tables only group them.

        Raises:
            ParameterError: The file is missing, not TOML, or holds a name or value
                the plan does not know; the message says which.
        """
        path = Path(path)
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ParameterError(
                f"there is no plan file at {path}. Write the thresholds of the "
                "decision there before you look at the data; data/plan.toml is an "
                "example to copy."
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ParameterError(
                f"{path} is not a TOML file: {error}. Compare it with data/plan.toml."
            ) from None
        return cls.from_dict(document, source=str(path))

    @classmethod
    def from_dict(
        cls, document: Mapping[str, Any], *, source: str = "the plan"
    ) -> "ExperimentPlan":
        """A plan from the content of a plan file (see `load`)."""
        flat: dict[str, Any] = {}
        for key, value in document.items():
            inner = value if key in ("decision", "checks") else {key: value}
            if not isinstance(inner, Mapping):
                raise ParameterError(f"{source}: [{key}] must be a table of names.")
            for name, content in inner.items():
                if name in flat:
                    raise ParameterError(f"{source}: {name} is given twice.")
                flat[name] = content
        for name in ("guardrails", "secondary"):
            if name in flat:
                flat[name] = _metrics(flat[name], f"{source}: [[{name}]]")
        if "segments" in flat:
            flat["segments"] = _strings(flat["segments"], f"{source}: segments")
        if "written" in flat:
            flat["written"] = str(flat["written"])
        _check_names(cls, flat, source)
        return cls(**flat)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, every default filled in."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @property
    def sha256(self) -> str:
        """Hash of the content (64 hex digits); comments and layout do not enter."""
        text = json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def confidence(self) -> float:
        """Confidence of every interval, 1 - alpha."""
        return 1 - self.alpha


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two plans (`to_dict`), one sentence part per name.

    >>> changes({"alpha": 0.05, "looks": 1}, {"alpha": 0.1, "looks": 1})
    ['alpha 0.05 → 0.1']
    """
    names = list(dict.fromkeys([*before, *after]))
    parts = []
    for name in names:
        old, new = before.get(name), after.get(name)
        if old != new:
            simple = not isinstance(old, list | dict) and not isinstance(
                new, list | dict
            )
            parts.append(f"{name} {old} → {new}" if simple else f"{name} changed")
    return parts


@dataclass(frozen=True, slots=True)
class Look:
    """One reading of the data under a plan.

    Attributes:
        number: 1 for the first data set read, 2 for the next, ...
        plan_changes: What differs between the first look's plan and this one's,
            in words; empty where nothing does.
    """

    number: int
    plan_changes: tuple[str, ...]


def record_look(folder: str | Path, *, plan: ExperimentPlan, data_sha256: str) -> Look:
    """Note in `folder` that these data were read, and say which look that was.

    Reading the same data again is the same look, so that a rerun gives the same
    readout. The ledger is `looks_<experiment>-<hash of the name>.json`; it is written
    whole and moved into place, so that an interrupted run leaves the former one.

    Args:
        folder: Where reports are written; made if missing.
        plan: The plan in force.
        data_sha256: Hash of replies, verdicts and labels together.

    Raises:
        ParameterError: The ledger is there but cannot be read.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Readable, and of its own for every name: "A b" and "a-b", 日本 and 中国.
    slug = re.sub(r"[^a-z0-9]+", "-", plan.experiment.lower())[:40].strip("-")
    digest = hashlib.sha256(plan.experiment.encode()).hexdigest()[:8]
    path = folder / f"looks_{slug}-{digest}.json"
    looks: list[dict[str, Any]] = []
    if path.exists():
        try:
            looks = list(json.loads(path.read_text(encoding="utf-8"))["looks"])
            seen = [str(look["data_sha256"]) for look in looks]
            # Names that came into being since are as they were then: the default.
            first = {**ExperimentPlan().to_dict(), **_plan_of(looks[0])}
        except (ValueError, LookupError, TypeError) as error:
            raise ParameterError(
                f"{path} is not a ledger of looks ({error!r}). Restore it from a "
                "copy; deleting it would start counting looks at 1 again."
            ) from None
    else:
        seen, first = [], plan.to_dict()
    if data_sha256 in seen:
        number = seen.index(data_sha256) + 1
    else:
        looks.append({"data_sha256": data_sha256, "plan": plan.to_dict()})
        number = len(looks)
        text = json.dumps({"looks": looks}, indent=1, ensure_ascii=False)
        draft = path.with_suffix(".tmp")
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(path)
    return Look(number, tuple(changes(first, plan.to_dict())))


def _plan_of(look: Mapping[str, Any]) -> dict[str, Any]:
    plan = dict(look["plan"])
    if "alpha" not in plan:
        raise ValueError("a look without its plan")
    return plan


def _check_numbers(plan: ExperimentPlan) -> None:
    for name, low, high in (
        ("alpha", 0, 1),
        ("worthwhile_gain", 0, _RANGE),
        ("harm_limit", 0, _RANGE),
        ("bias_margin", 0, _RANGE),
        ("sample_ratio_alpha", 0, 1),
        ("missing_alpha", 0, 1),
    ):
        given = _number(plan, name)
        if not low < given < high:
            raise ParameterError(
                f"the plan's {name} is {given}; it must be between {low} and {high}"
                + (" (score points; scores go from 1 to 5)." if high == _RANGE else ".")
            )
    for name, floor in (("agreement_floor", -1), ("coverage_floor", 0)):
        if not floor <= _number(plan, name) <= 1:
            raise ParameterError(
                f"the plan's {name} is {getattr(plan, name)}; it must be from "
                f"{floor} to 1."
            )
    for name, least in (
        ("planned_replies", 1),
        ("planned_looks", 1),
        ("minimum_units", 2),
        ("labels_per_arm", 2),
    ):
        whole = getattr(plan, name)
        if isinstance(whole, bool) or not isinstance(whole, int) or whole < least:
            raise ParameterError(
                f"the plan's {name} is {whole!r}; it must be a whole number of at "
                f"least {least}."
            )
    if not isinstance(plan.accept_unchecked_judge, bool):
        raise ParameterError("the plan's accept_unchecked_judge must be true or false.")
    for name in ("experiment", "question"):
        if not isinstance(getattr(plan, name), str):
            raise ParameterError(f"the plan's {name} must be text, in quotes.")
    if not isinstance(plan.allocation, Mapping):
        raise ParameterError(
            f"the plan's allocation is {plan.allocation!r}; it must be a table with "
            "one number above 0 for each arm."
        )
    for arm, share in plan.allocation.items():
        if not _positive(share):
            raise ParameterError(
                f"the plan's allocation gives {arm!r} {share!r}; it must be a finite "
                "number above 0."
            )
    for metric in (*plan.guardrails, *plan.secondary):
        _check_metric(metric)


def _positive(value: object) -> bool:
    """Whether it is a finite number above 0 (an infinite margin guards nothing)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < math.inf


def _check_metric(metric: Metric) -> None:
    for name in ("column", "name", "unit"):
        if not isinstance(getattr(metric, name), str):
            raise ParameterError(
                f"the plan's metric {metric.column!r}: {name} must be text, in quotes."
            )
    hints = get_type_hints(Metric)
    for name in ("better", "kind"):
        given, allowed = getattr(metric, name), get_args(hints[name])
        if given not in allowed:
            raise ParameterError(
                f"the plan's metric {metric.column!r}: {name} is {given!r}; it must be "
                f"one of {', '.join(allowed)}."
            )
    digits = metric.digits
    if isinstance(digits, bool) or not isinstance(digits, int) or not 0 <= digits <= 9:
        raise ParameterError(
            f"the plan's metric {metric.column!r}: digits is {digits!r}; it must be a "
            "whole number from 0 to 9."
        )
    if metric.margin is not None and not _positive(metric.margin):
        raise ParameterError(
            f"the plan's metric {metric.column!r}: margin is {metric.margin!r}; it is "
            "the accepted change for the worse, a finite number above 0."
        )


def _number(plan: ExperimentPlan, name: str) -> float:
    value = getattr(plan, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParameterError(f"the plan's {name} is {value!r}; it must be a number.")
    return float(value)


def _check_names(cls: type[Any], given: Mapping[str, Any], source: str) -> None:
    known = [f.name for f in fields(cls)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ParameterError(
                f"{source}: {name!r} is not known.{hint} Known: {', '.join(known)}."
            )
    for f in fields(cls):
        required = f.default is MISSING and f.default_factory is MISSING
        if required and f.name not in given:
            raise ParameterError(f"{source}: {f.name!r} is missing.")


def _metrics(value: object, source: str) -> tuple[Metric, ...]:
    if not isinstance(value, list):
        raise ParameterError(f"{source}: write one table per metric.")
    metrics = []
    for entry in value:
        if not isinstance(entry, Mapping):
            raise ParameterError(f"{source}: write one table per metric.")
        _check_names(Metric, entry, source)
        metrics.append(Metric(**entry))
    if "guardrails" in source:
        for metric in metrics:
            if metric.margin is None:
                raise ParameterError(
                    f"{source}: {metric.column} has no margin; a guardrail needs "
                    "one (or list it under [[secondary]])."
                )
    return tuple(metrics)


def _strings(value: object, source: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ParameterError(f"{source}: write a list of column names.")
    return tuple(value)

"""The card of a judge: which probes it passed, and how often it was talked round."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reply_resolution.display import (
    Html,
    element,
    html,
    percent,
    shorten,
    status,
    table,
)

#: Families in the order in which a card shows them.
FAMILIES = ("contract", "injection", "style")
_WORDS = {
    "failed": "failed",
    "no_score": "without a score",
    "not_measured": "not measured",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one check: a probe, or both halves of a style pair.

    Attributes:
        check_id: Name of the probe or of the pair.
        family: Its family.
        kind: Its kind.
        language: Its language.
        expected: The right score in words.
        got: The score or scores given, in words; the status where there is none.
        result: "passed", "failed", "no_score" (judged, but without a score) or
            "not_measured" (no verdict).
        reason: The judge's reason, of the half with the higher score in a pair.
        why: Why the expected score is right.
    """

    check_id: str
    family: str
    kind: str
    language: str
    expected: str
    got: str
    result: str
    reason: str
    why: str


@dataclass(frozen=True)
class ProbeCard:
    """How a judge did on the probes; a style pair counts as one check.

    Attributes:
        judge: Name of the judge, as the verdicts give it; "" if they do not.
        outcomes: One per check, in the order of the probes.
        confidence: Of the interval of the attack success rate, fraction.
        warnings: What a reader should know, in sentences.
    """

    judge: str
    outcomes: tuple[Outcome, ...]
    confidence: float = 0.95
    warnings: tuple[str, ...] = field(default_factory=tuple)

    def count(self, result: str | None = None, *, family: str | None = None) -> int:
        """Number of checks with a result, in a family; None counts all."""
        return sum(
            (result is None or o.result == result)
            and (family is None or o.family == family)
            for o in self.outcomes
        )

    @property
    def passed(self) -> int:
        """Checks whose score was right."""
        return self.count("passed")

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The checks whose score was wrong, in the order of the probes."""
        return tuple(o for o in self.outcomes if o.result == "failed")

    @property
    def attack_success(self) -> float | None:
        """Injections that got a higher score than they deserve, over those scored.

        A fraction; 0 is best. None where no injection was scored. A judge that is
        lenient with vague replies also "succumbs" here: read it beside the contract.
        """
        wrong = self.count("failed", family="injection")
        n = self.attacks_scored
        return wrong / n if n else None

    @property
    def attacks_scored(self) -> int:
        """Injections that got a score: the denominator of the attack success rate."""
        wrong = self.count("failed", family="injection")
        return wrong + self.count("passed", family="injection")

    @property
    def attack_success_ci(self) -> tuple[float, float] | None:
        """Exact (Clopper-Pearson) interval of the attack success rate."""
        n = self.attacks_scored
        wrong = self.count("failed", family="injection")
        return clopper_pearson(wrong, n, confidence=self.confidence) if n else None

    def to_dict(self) -> dict[str, Any]:
        """The object that `probes --json` prints; undefined is None."""
        ci = self.attack_success_ci
        return {
            "judge": self.judge or None,
            "checks": len(self.outcomes),
            **_tally(self.outcomes),
            "families": {
                name: _tally(o for o in self.outcomes if o.family == name)
                for name in _families(self.outcomes)
            },
            "kinds": {
                f"{family}/{kind}": _tally(
                    o for o in self.outcomes if (o.family, o.kind) == (family, kind)
                )
                for family, kind in dict.fromkeys(
                    (o.family, o.kind) for o in self.outcomes
                )
            },
            "attack_success": {
                "estimate": self.attack_success,
                "ci": None if ci is None else list(ci),
                "n": self.attacks_scored,
                "confidence": self.confidence,
            },
            "failures": [
                {
                    "id": o.check_id,
                    "family": o.family,
                    "kind": o.kind,
                    "language": o.language,
                    "expected": o.expected,
                    "got": o.got,
                    "reason": o.reason,
                    "why": o.why,
                }
                for o in self.failed
            ],
            "no_score_ids": [
                o.check_id for o in self.outcomes if o.result == "no_score"
            ],
            "not_measured_ids": [
                o.check_id for o in self.outcomes if o.result == "not_measured"
            ],
            "warnings": list(self.warnings),
        }

    def _repr_html_(self) -> str:
        rows = [
            {"family": name, **_row([o for o in self.outcomes if o.family == name])}
            for name in _families(self.outcomes)
        ]
        rows.append({"family": "all", **_row(self.outcomes)})
        caption = "Probes with a known right score"
        if self.judge:
            caption += f", judge {self.judge}"
        parts = table(rows, caption=caption)
        parts += html(element("p", self.attack_sentence()))
        if self.failed:
            parts += _failures(self.failed)
        notes = (element("p", note, class_="muted") for note in self.warnings)
        return str(parts + html(*notes))

    def attack_sentence(self) -> str:
        """The attack success rate in a sentence."""
        ci = self.attack_success_ci
        if ci is None:
            return "Attack success rate: not measured (no injection was scored)."
        wrong = self.count("failed", family="injection")
        return (
            f"Attack success rate: {percent(self.attack_success)} ({wrong} of "
            f"{self.attacks_scored} scored injections got more than they deserve; "
            f"{percent(self.confidence)} interval {percent(ci[0])} to "
            f"{percent(ci[1])})."
        )

    def __str__(self) -> str:
        lines = [f"probe card{f' of {self.judge}' if self.judge else ''}"]
        for name in (*_families(self.outcomes), None):
            t = _tally(o for o in self.outcomes if name in (None, o.family))
            rest = ", ".join(
                f"{t[key]} {words}"
                for key, words in _WORDS.items()
                if t[key] or key == "failed"
            )
            lines.append(f"  {name or 'all':<10} {t['passed']:>4} passed, {rest}")
        lines.append(self.attack_sentence())
        lines += [
            f"  failed {o.check_id} ({o.kind}, {o.language}): expected {o.expected}, "
            f"got {o.got}: {shorten(o.reason, 120)}"
            for o in self.failed
        ]
        return "\n".join([*lines, *self.warnings])


def clopper_pearson(
    successes: int, n: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Exact interval of a share, as fractions; never narrower than it claims.

    >>> [round(x, 4) for x in clopper_pearson(0, 40)]
    [0.0, 0.0881]
    """
    from scipy.special import betaincinv  # 0.3 s: not on `import reply_resolution`

    tail = (1 - confidence) / 2
    k = successes
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, tail))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - tail))
    return low, high


def _tally(outcomes: Iterable[Outcome]) -> dict[str, int]:
    results = [o.result for o in outcomes]
    keys = ("passed", "failed", "no_score", "not_measured")
    return {key: results.count(key) for key in keys}


def _families(outcomes: Iterable[Outcome]) -> list[str]:
    present = dict.fromkeys(o.family for o in outcomes)
    return sorted(
        present, key=lambda f: FAMILIES.index(f) if f in FAMILIES else len(FAMILIES)
    )


def _row(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    t = _tally(outcomes)
    scored = t["passed"] + t["failed"]
    mark = "none" if not scored else "ok" if not t["failed"] else "look"
    return {
        "passed": f"{t['passed']} of {scored}",
        "without a score": str(t["no_score"]),
        "not measured": str(t["not_measured"]),
        "mark": element("span", status(mark), class_=mark),
    }


def _failures(failed: Sequence[Outcome]) -> Html:
    rows = [
        {
            "probe": o.check_id,
            "kind": f"{o.kind.replace('_', ' ')} ({o.language})",
            "expected": o.expected,
            "got": o.got,
            "judge's reason": f"“{shorten(o.reason)}”" if o.reason else None,
        }
        for o in failed
    ]
    return table(rows, caption="What failed")

"""How many replies an experiment needs, and what effect a number of them can show.

For the ordinal analysis (permutation test of the mean) and the binary one (share
resolved), side by side, so that one sees what collapsing the scale would cost or save.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
import math
from typing import Any

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.power_assumptions import (
    Assumption,
    Floats,
    judged_shares,
    largest_effect,
    level_shares,
    treatment_shares,
    true_shares_of,
)
from reply_resolution.stats.power_formulas import (
    binary_power,
    ordinal_power,
    whitehead,
    z_sum,
)

__all__ = [
    "AnalysisPlan",
    "Plan",
    "binary_power",
    "ordinal_power",
    "plan",
    "whitehead",
]

#: A plan beyond this many replies an arm is answered with "not reachable".
LARGEST_N = 50_000_000


@dataclass(frozen=True, slots=True)
class AnalysisPlan:
    """What one of the two analyses needs or can show.

    Attributes:
        n_per_arm: Replies needed per arm; None where no number is enough.
        effect: Effect in points that it finds with the planned power; None where no
            effect that the scale has room for is large enough.
        power: Its power at `n_per_arm` replies and `effect` points, fraction.
        rate_difference: The effect as a difference in share resolved, fraction.
    """

    n_per_arm: int | None
    effect: float | None
    power: float | None
    rate_difference: float | None

    def to_dict(self) -> dict[str, Any]:
        """The attributes as JSON has them."""
        return {
            "n_per_arm": self.n_per_arm,
            "effect": self.effect,
            "power": self.power,
            "rate_difference": self.rate_difference,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Replies needed for an effect, or the effect that a number of replies can show.

    Attributes:
        question: "n_per_arm" (an effect was given) or "effect" (replies were given).
        n_per_arm: Replies per arm, of the ordinal analysis (the primary one).
        effect: Points, treatment minus control, of the ordinal analysis.
        power: The power planned for, fraction.
        alpha: Two-sided error rate, fraction.
        per_100_moved: The effect in words people can picture: replies in 100 that
            move up one level (an effect of 0.3 points is 30).
        assume: How the levels move ("shift", "cut", "noise").
        cut: Lowest score that counts as resolved.
        ordinal: The plan of the ordinal analysis.
        binary: The plan of the binary analysis, for the same question.
        design_effect: Factor on the replies, of the scores and of resolved or not.
        warnings: What a reader should know, in sentences.
    """

    question: str
    n_per_arm: int | None
    effect: float | None
    power: float
    alpha: float
    per_100_moved: float | None
    assume: str
    cut: int
    ordinal: AnalysisPlan
    binary: AnalysisPlan
    design_effect: tuple[float, float]
    warnings: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The object that `plan --json` prints."""
        return {
            "question": self.question,
            "n_per_arm": self.n_per_arm,
            "effect": self.effect,
            "power": self.power,
            "alpha": self.alpha,
            "per_100_moved": self.per_100_moved,
            "assume": self.assume,
            "cut": self.cut,
            "design_effect": list(self.design_effect),
            "ordinal": self.ordinal.to_dict(),
            "binary": self.binary.to_dict(),
            "warnings": list(self.warnings),
        }


def plan(
    counts: Sequence[float],
    *,
    effect: float | None = None,
    n: int | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    assume: Assumption = "shift",
    cut: int = 4,
    scale: tuple[int, int] = (1, 5),
    design_effect: float | tuple[float, float] = 1.0,
    confusion: Sequence[Sequence[int]] | None = None,
) -> Plan:
    """Replies needed per arm for an effect, or the effect that `n` replies can show.

    Args:
        counts: Pilot scores per level in scale order; what control is like. With an
            experiment under way: both arms pooled, so that the plan stays blind.
        effect: The effect worth finding, in points, treatment minus control, not 0.
            Give either this or `n`.
        n: Scored replies per arm, 2 or more.
        power: Chance to find the effect, fraction between alpha and 1.
        alpha: Two-sided error rate, fraction.
        assume: How the levels move: "shift", "cut" or "noise" (see
            `treatment_shares`).
        cut: Lowest score that counts as resolved.
        scale: Lowest and highest score.
        design_effect: Factor on the replies where users have several of them (see
            `measure_design_effect`): 1 or more; below 1 for pairs that resemble each
            other. One number, or one for the scores and one for resolved or not.
        confusion: Calibration counts, rows the label, columns the judge's score. With
            it `effect` is in points of the people's scale, and the judge's errors
            cost replies; without it `effect` is in points of the judge's scale.

    Raises:
        StatisticsError: Both or neither of `effect` and `n`, an effect that the scale
            has no room for, pilot scores that are all equal.

    >>> p = plan([15, 15, 20, 25, 25], effect=0.3)
    >>> p.ordinal.n_per_arm < p.binary.n_per_arm
    True
    """
    if (effect is None) == (n is None):
        raise StatisticsError(
            "give either the effect (to learn how many replies it needs) or n (to "
            "learn what effect it can show), not both and not neither."
        )
    if scale[1] - scale[0] + 1 != len(counts):
        raise StatisticsError(
            f"{len(counts)} counts for the scale {scale[0]} to {scale[1]}; give "
            f"{scale[1] - scale[0] + 1}, in order, 0 for a level nobody got."
        )
    deff = design_effect if isinstance(design_effect, tuple) else (design_effect,) * 2
    if not all(d > 0 and math.isfinite(d) for d in deff):
        raise StatisticsError(f"design_effect is {design_effect!r}; it is above 0.")
    z_sum(power, alpha)  # refuses impossible fractions
    setting = _Setting(counts, assume, cut, scale[0], alpha, power, deff, confusion)
    if effect is not None:
        if effect == 0 or not math.isfinite(effect):
            raise StatisticsError(
                f"effect is {effect!r}; give the smallest difference worth finding, "
                "in points (0.3 is thirty replies in a hundred moved up one level)."
            )
        ordinal = setting.for_effect(effect, binary=False)
        binary = setting.for_effect(effect, binary=True)
    else:
        if isinstance(n, bool) or not isinstance(n, int) or n < 2:
            raise StatisticsError(f"n is {n!r}; give 2 or more replies per arm.")
        ordinal = setting.for_n(n, binary=False)
        binary = setting.for_n(n, binary=True)
    return Plan(
        question="n_per_arm" if n is None else "effect",
        n_per_arm=ordinal.n_per_arm,
        effect=ordinal.effect,
        power=power,
        alpha=alpha,
        per_100_moved=None if ordinal.effect is None else 100 * ordinal.effect,
        assume=assume,
        cut=cut,
        ordinal=ordinal,
        binary=binary,
        design_effect=deff,
        warnings=_plan_notes(ordinal, binary),
    )


def _plan_notes(ordinal: AnalysisPlan, binary: AnalysisPlan) -> tuple[str, ...]:
    notes = []
    for name, each in (("ordinal", ordinal), ("binary", binary)):
        if each.n_per_arm is None:
            notes.append(
                f"no number of replies is enough for the {name} analysis: under this "
                "assumption its measure does not move."
            )
        if each.effect is None:
            notes.append(
                f"at this size the {name} analysis cannot find even the largest effect "
                "that the scale has room for; collect more replies."
            )
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class _Setting:
    """What stays fixed while a plan is searched."""

    counts: Sequence[float]
    assume: Assumption
    cut: int
    lowest: int
    alpha: float
    power: float
    design_effect: tuple[float, float]
    confusion: Sequence[Sequence[int]] | None

    def arms(self, effect: float) -> tuple[Floats, Floats]:
        """Distributions of the judge's scores in control and treatment."""
        if self.confusion is None:
            control = level_shares(self.counts)
        else:
            control = true_shares_of(self.counts, self.confusion)
        treatment = treatment_shares(
            control, effect, assume=self.assume, cut=self.cut, lowest=self.lowest
        )
        if self.confusion is None:
            return control, treatment
        return (
            judged_shares(control, self.confusion),
            judged_shares(treatment, self.confusion),
        )

    def resolved(self, shares: Floats) -> float:
        return float(min(1.0, shares[self.cut - self.lowest :].sum()))

    def at(self, effect: float, n: float, *, binary: bool) -> float:
        """Power of one analysis."""
        control, treatment = self.arms(effect)
        if binary:
            return binary_power(
                self.resolved(control),
                self.resolved(treatment),
                n,
                alpha=self.alpha,
                design_effect=self.design_effect[1],
            )
        return ordinal_power(
            control,
            treatment,
            n,
            alpha=self.alpha,
            design_effect=self.design_effect[0],
            lowest=self.lowest,
        )

    def answer(self, effect: float | None, n: int | None, binary: bool) -> AnalysisPlan:
        rate = achieved = None
        if effect is not None:
            control, treatment = self.arms(effect)
            rate = self.resolved(treatment) - self.resolved(control)
            if n is not None:
                achieved = self.at(effect, n, binary=binary)
        return AnalysisPlan(n, effect, achieved, rate)

    def for_effect(self, effect: float, *, binary: bool) -> AnalysisPlan:
        """Fewest replies per arm with the planned power."""
        if self.at(effect, LARGEST_N, binary=binary) < self.power:
            return self.answer(effect, None, binary)

        def enough(n: int) -> bool:
            return self.at(effect, n, binary=binary) >= self.power

        return self.answer(effect, _smallest(enough, 2, LARGEST_N), binary)

    def for_n(self, n: int, *, binary: bool) -> AnalysisPlan:
        """Smallest upward effect found with the planned power."""
        room = self.room() * (1 - 1e-9)
        if self.at(room, n, binary=binary) < self.power:
            return self.answer(None, n, binary)
        low, high = 0.0, room
        for _ in range(40):
            middle = (low + high) / 2
            if self.at(middle, n, binary=binary) < self.power:
                low = middle
            else:
                high = middle
        return self.answer(high, n, binary)

    def room(self) -> float:
        base = (
            level_shares(self.counts)
            if self.confusion is None
            else true_shares_of(self.counts, self.confusion)
        )
        return largest_effect(
            base, assume=self.assume, cut=self.cut, lowest=self.lowest
        )


def _smallest(enough: Callable[[int], bool], low: int, high: int) -> int:
    """Smallest n that is enough, where more is never less (nearly: see below).

    Exact power of a discrete test rises in a sawtooth, so the n found is one from
    which the step below is not enough; a smaller lucky n may exist and is not wanted.
    """
    while low < high:
        middle = int(math.sqrt(low * high)) if high > 4 * low else (low + high) // 2
        middle = min(max(middle, low), high - 1)
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low

"""How many replies an experiment needs, and what effect a number of them can show.

For the ordinal analysis (permutation test of the mean) and the binary one (share
resolved), side by side, so that one sees what collapsing the scale would cost or save.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
import math
from typing import Any

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Floats
from reply_resolution.stats.power_assumptions import (
    Assumption,
    judged_shares,
    largest_effect,
    level_shares,
    treatment_shares,
    true_shares_of,
)
from reply_resolution.stats.power_formulas import binary_power, ordinal_power, z_sum

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
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The object that `plan --json` prints."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
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
    search = _Search(counts, assume, cut, scale[0], alpha, power, deff, confusion)
    if effect is not None:
        if effect == 0 or not math.isfinite(effect):
            raise StatisticsError(
                f"effect is {effect!r}; give the smallest difference worth finding, "
                "in points (0.3 is thirty replies in a hundred moved up one level)."
            )
        ordinal, binary = (search.for_effect(effect, b) for b in (False, True))
    else:
        if isinstance(n, bool) or not isinstance(n, int) or n < 2:
            raise StatisticsError(f"n is {n!r}; give 2 or more replies per arm.")
        ordinal, binary = (search.for_n(n, b) for b in (False, True))
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
        warnings=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """What stays fixed while a plan is searched."""

    counts: Sequence[float]
    assume: Assumption
    cut: int
    lowest: int
    alpha: float
    power: float
    design_effect: tuple[float, float]
    confusion: Sequence[Sequence[int]] | None

    def control(self) -> Floats:
        """True shares in control."""
        if self.confusion is None:
            return level_shares(self.counts)
        return true_shares_of(self.counts, self.confusion)

    def arms(self, effect: float) -> tuple[Floats, Floats]:
        """Shares of the judge's scores in control and treatment."""
        control = self.control()
        treatment = treatment_shares(
            control, effect, assume=self.assume, cut=self.cut, lowest=self.lowest
        )
        if self.confusion is None:
            return control, treatment
        return (
            judged_shares(control, self.confusion),
            judged_shares(treatment, self.confusion),
        )

    def rates(self, effect: float) -> tuple[float, float]:
        """Share resolved in control and treatment."""
        first = self.cut - self.lowest
        control, treatment = self.arms(effect)
        return (
            float(min(1.0, control[first:].sum())),
            float(min(1.0, treatment[first:].sum())),
        )

    def at(self, effect: float, n: int, binary: bool) -> float:
        """Power of one analysis."""
        deff = self.design_effect[binary]
        if binary:
            rates = self.rates(effect)
            return binary_power(*rates, n, alpha=self.alpha, design_effect=deff)
        return ordinal_power(
            *self.arms(effect), n, alpha=self.alpha, design_effect=deff
        )

    def answer(self, effect: float | None, n: int | None, binary: bool) -> AnalysisPlan:
        if effect is None:
            return AnalysisPlan(n, None, None, None)
        control, treatment = self.rates(effect)
        power = None if n is None else self.at(effect, n, binary)
        return AnalysisPlan(n, effect, power, treatment - control)

    def for_effect(self, effect: float, binary: bool) -> AnalysisPlan:
        """Fewest replies per arm with the planned power."""
        if self.at(effect, LARGEST_N, binary) < self.power:
            return self.answer(effect, None, binary)
        # Exact power of a discrete test rises in a sawtooth: the n found is one from
        # which the step below is not enough; a smaller lucky n is not wanted.
        low, high = 2, LARGEST_N
        while low < high:
            middle = int(math.sqrt(low * high)) if high > 4 * low else (low + high) // 2
            middle = min(max(middle, low), high - 1)
            if self.at(effect, middle, binary) >= self.power:
                high = middle
            else:
                low = middle + 1
        return self.answer(effect, low, binary)

    def for_n(self, n: int, binary: bool) -> AnalysisPlan:
        """Smallest upward effect found with the planned power."""
        room = largest_effect(
            self.control(), assume=self.assume, cut=self.cut, lowest=self.lowest
        )
        low, high = 0.0, room * (1 - 1e-9)
        if self.at(high, n, binary) < self.power:
            return self.answer(None, n, binary)
        for _ in range(40):
            middle = (low + high) / 2
            if self.at(middle, n, binary) < self.power:
                low = middle
            else:
                high = middle
        return self.answer(high, n, binary)

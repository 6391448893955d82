"""Should 1 to 5 be collapsed into resolved or not? Computed, not believed.

"Little traffic, so go binary" is false as a rule: under a shift of all levels the
binary analysis needs 1.1 to 1.9 times the replies. It is true where the effect sits at
the cut, or where the levels inside a class are noise. Which case holds is an
assumption that the user makes before the arms are compared; this module says what
follows from it, from the pooled, arm-blind scores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary import RateDifference
from reply_resolution.stats.binary_designs import rates_at_cut
from reply_resolution.stats.collapse_power import (
    Assumed,
    both_powers,
    unit_cost,
)
from reply_resolution.stats.counts import ScoreCounts, count_scores
from reply_resolution.stats.multiplicity import adjust
from reply_resolution.stats.power_assumptions import (
    ASSUMPTIONS,
    Assumption,
    check_assumption,
    check_cut,
)

if TYPE_CHECKING:
    from reply_resolution.stats.maxt import CutEffect

#: Powers closer than this (a fraction) are called equal; then nothing is collapsed.
EQUAL_POWER = 0.02


@dataclass(frozen=True, slots=True)
class Analysis:
    """One of the two analyses of the same replies.

    Attributes:
        estimate: Treatment minus control: points (ordinal) or a fraction (binary).
            Above 0 favours treatment.
        low: Lower end of the interval, same unit; None where it is not defined.
        high: Upper end, same unit.
        pvalue: p-value of "no difference", fraction; for a cut chosen among several
            after looking, the one that pays for the choice.
        power: Chance to find the *assumed* effect with this many replies, fraction;
            None where it could not be computed (the reason is in the warnings).
        method: How interval and p-value were made.
    """

    estimate: float
    low: float | None
    high: float | None
    pvalue: float
    power: float | None
    method: str

    def to_dict(self) -> dict[str, Any]:
        """The attributes as JSON has them."""
        return {
            "estimate": self.estimate,
            "ci": None if self.low is None else [self.low, self.high],
            "pvalue": self.pvalue,
            "power": self.power,
            "method": self.method,
        }


@dataclass(frozen=True, slots=True)
class Collapse:
    """Both analyses of one experiment, and which of them to plan for.

    Attributes:
        control: Name of the baseline arm.
        treatment: Name of the other.
        cut: Lowest score that counts as resolved.
        effect: The effect assumed for power, points.
        assume: How the levels were assumed to move ("shift", "cut", "noise").
        ordinal: The analysis of the mean score.
        binary: The analysis of the share resolved.
        recommended: "ordinal" or "binary": the one with more power for the assumed
            effect; ordinal where it makes no difference.
        reason: Why, in a sentence with the numbers.
        pooled: Scored replies at each level, both arms together; the power rests on
            these, not on which arm did better.
        n_control: Scored replies in control.
        n_treatment: Scored replies in treatment.
        design_effect: Variance over that of as many independent replies: of the
            scores, and of resolved or not; (1, 1) where replies are the units, above 1
            where users repeat themselves, below 1 where pairing helps.
        excluded: Rows that were not used: reason to rows (see `compare`).
        warnings: What a reader should know, in sentences.
    """

    control: str
    treatment: str
    cut: int
    effect: float
    assume: str
    ordinal: Analysis
    binary: Analysis
    recommended: str
    reason: str
    pooled: tuple[int, ...]
    n_control: int
    n_treatment: int
    design_effect: tuple[float, float]
    excluded: Mapping[str, int]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The object that `collapse --json` prints."""
        return {
            "control": self.control,
            "treatment": self.treatment,
            "cut": self.cut,
            "effect": self.effect,
            "assume": self.assume,
            "n": {self.control: self.n_control, self.treatment: self.n_treatment},
            "pooled": list(self.pooled),
            "design_effect": list(self.design_effect),
            "ordinal": self.ordinal.to_dict(),
            "binary": self.binary.to_dict(),
            "recommended": self.recommended,
            "reason": self.reason,
            "excluded": dict(self.excluded),
            "warnings": list(self.warnings),
        }


def collapse(
    frame: pl.DataFrame | ScoreCounts,
    *,
    control: str,
    treatment: str | None = None,
    cut: int = 4,
    cuts_seen: Sequence[int] = (),
    effect: float = 0.3,
    assume: Assumption = "shift",
    arm: str = "arm",
    score: str = "score",
    pair: str | None = None,
    cluster: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    mix_versions: bool = False,
) -> Collapse:
    """Analyse the same replies both ways, and say which way has more power.

    The power is for `effect` under `assume`, on the pooled scores without their arms:
    the effect that was observed plays no part, so the choice does not peek. The
    p-values are the exact permutation test of the means and Boschloo's test (users as
    units: cluster permutation, and a score test with the measured design effect;
    pairs: sign flips, and exact McNemar).

    Args:
        frame: One row per reply with `arm` and `score`, or the counts of one.
        control: Name of the baseline arm.
        treatment: The arm to compare; needed only where there are more than two (the
            first other arm is taken otherwise).
        cut: Lowest score that counts as resolved: 4 by the rubric's meaning, or one
            chosen on calibration labels (`choose_cut`), before the arms were compared.
        cuts_seen: Every cut that was looked at with the arms visible. With more than
            one, the binary p-value pays for the choice among them.
        effect: The effect worth finding, in points, not 0.
        assume: How the levels would move: "shift", "cut" or "noise".
        arm: Column with the arm.
        score: Column with the score, whole numbers 1 to 5.
        pair: Column that pairs replies to one request, if the design is paired.
        cluster: Column with the user, if users were randomised.
        confidence: Of both intervals, fraction.
        seed: Of the draws where exact computation is out of reach.
        mix_versions: Allow several metric versions or judges in one table.

    Raises:
        VersionMismatchError: Several metric versions or judges, unless allowed.
        StatisticsError: An arm that is missing or has no score, a cut that does not
            divide the scale or was not among `cuts_seen`, an effect of 0.
    """
    counts = (
        frame
        if isinstance(frame, ScoreCounts)
        else count_scores(
            frame,
            arm=arm,
            score=score,
            pair=pair,
            cluster=cluster,
            mix_versions=mix_versions,
        )
    )
    treatment, notes = _arms(counts, control, treatment)
    lowest, highest = counts.scale
    check_cut(cut, highest - lowest + 1, lowest)
    family = _family(cut, cuts_seen, highest - lowest + 1, lowest)
    check_assumption(assume)
    if effect == 0 or not np.isfinite(effect):
        raise StatisticsError(
            f"effect is {effect!r}; give the smallest difference worth finding, in "
            "points (0.3 is thirty replies in a hundred moved up one level)."
        )
    # Here, not above: the comparison loads the permutation and bootstrap machinery.
    from reply_resolution.stats.compare import compare

    compared = compare(
        counts, control=control, confidence=confidence, seed=seed, cut=cut
    )
    one = next(c for c in compared.comparisons if c.treatment == treatment)
    notes += [w for w in compared.warnings if w not in notes]
    rates = {c: rates_at_cut(counts, control, treatment, c, confidence) for c in family}
    binary = rates[cut]
    notes += list(binary.warnings)
    binary_p, method = _paid_for(cut, rates, one.cuts)
    if len(family) > 1:
        notes.append(
            f"the cut {cut} was chosen among {len(family)} that were looked at; its "
            f"p-value was {binary.pvalue:.3g} and is {binary_p:.3g} after paying for "
            "the choice. The interval is not adjusted."
        )
    assumed = Assumed(effect, assume, cut)
    cost = unit_cost(counts, (control, treatment), cut)
    pooled = counts.of(control) + counts.of(treatment)
    powers: tuple[float, float] | tuple[None, None] = (None, None)
    try:
        powers = both_powers(
            pooled.astype(float),
            assumed,
            (binary.n_control, binary.n_treatment),
            cost=cost,
            alpha=1 - confidence,
            lowest=lowest,
        )
    except StatisticsError as undefined:
        notes.append(f"power is not defined: {undefined}")
    sizes = int(counts.of(control).sum()), int(counts.of(treatment).sum())
    recommended, reason = _advice(powers, assumed, sizes)
    low, high = one.ci if one.ci is not None else (None, None)
    return Collapse(
        control=control,
        treatment=treatment,
        cut=cut,
        effect=effect,
        assume=assume,
        ordinal=Analysis(
            one.mean_difference, low, high, one.pvalue, powers[0], one.ci_method
        ),
        binary=Analysis(
            binary.estimate, binary.low, binary.high, binary_p, powers[1], method
        ),
        recommended=recommended,
        reason=reason,
        pooled=tuple(int(c) for c in pooled),
        n_control=sizes[0],
        n_treatment=sizes[1],
        design_effect=cost.design_effect,
        excluded=compared.excluded,
        warnings=tuple(notes),
    )


def _arms(
    counts: ScoreCounts, control: str, treatment: str | None
) -> tuple[str, list[str]]:
    others = [name for name in counts.arms if name != control]
    if control not in counts.arms or not others:
        raise StatisticsError(
            f"control is {control!r}; the arms with scores are "
            f"{', '.join(map(repr, counts.arms)) or 'none'}. Name the baseline arm, "
            "and give a table with at least one other."
        )
    if treatment is not None and treatment not in others:
        raise StatisticsError(
            f"treatment is {treatment!r}; choose one of {', '.join(map(repr, others))}."
        )
    notes = []
    if treatment is None and len(others) > 1:
        notes.append(
            f"compared {others[0]!r} with {control!r}; the arms "
            f"{', '.join(map(repr, others[1:]))} were left out (name another with "
            "--treatment, treatment=...)."
        )
    return treatment or others[0], notes


def _family(
    cut: int, cuts_seen: Sequence[int], n_levels: int, lowest: int
) -> tuple[int, ...]:
    for seen in cuts_seen:
        check_cut(seen, n_levels, lowest)
    if cuts_seen and cut not in cuts_seen:
        raise StatisticsError(
            f"cut {cut} is not among the cuts that were looked at, {list(cuts_seen)}; "
            "name every cut that was tried, the chosen one included."
        )
    return tuple(sorted(set(cuts_seen) | {cut}))


def _paid_for(
    cut: int, rates: dict[int, RateDifference], cuts: Sequence["CutEffect"]
) -> tuple[float, str]:
    """The p-value at the cut, paying for every cut that was looked at."""
    own = rates[cut]
    method = f"{own.method}; {own.pvalue_method}"
    if len(rates) == 1:
        return own.pvalue, method
    jointly = [c for c in cuts if c.cut == cut and c.adjustment == "max-t"]
    if jointly:  # over all cuts of the scale; little dearer than over some of them
        p = max(own.pvalue, jointly[0].pvalue_adjusted)
        return p, f"{own.method}; max-T over all cuts"
    # Users as units, pairs: the joint distribution is not at hand.
    adjusted = adjust([r.pvalue for r in rates.values()], "holm")
    p = dict(zip(rates, adjusted, strict=True))[cut]
    return p, f"{method}, holm over cuts {', '.join(map(str, rates))}"


def _advice(
    powers: tuple[float | None, float | None], assumed: Assumed, sizes: tuple[int, int]
) -> tuple[str, str]:
    ordinal, binary = powers
    if ordinal is None or binary is None:
        return "ordinal", (
            "The power could not be computed (see the warnings), so there is no reason "
            "to give up the five levels."
        )
    given = (
        f"If an effect of {assumed.effect:+.2f} points comes "
        f"{ASSUMPTIONS[assumed.assume]}, {' and '.join(f'{n:,}' for n in sizes)} "
        f"scored replies find it with a chance of {ordinal:.0%} by the ordinal "
        f"analysis and of {binary:.0%} by the binary one (resolved: {assumed.cut} or "
        "more)"
    )
    if binary > ordinal + EQUAL_POWER:
        return "binary", (
            f"{given}: then the levels beyond the cut add noise, not "
            "information, and collapsing pays."
        )
    if ordinal > binary + EQUAL_POWER:
        return "ordinal", (f"{given}: collapsing would throw information away.")
    return "ordinal", (
        f"{given}: it makes no difference, so keep the levels, and with them the size "
        "of the effect in points."
    )

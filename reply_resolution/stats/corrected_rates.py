"""The difference in share resolved as people would have counted it.

A judge that calls some unresolved replies resolved, and some resolved ones not,
shrinks every difference by the factor (TPR + TNR - 1). Dividing it out restores the
size, at the price of the calibration's own chance error. Both samples are resampled
here: with the calibration held fixed a "95%" interval covers as little as 57%.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary import check_confidence
from reply_resolution.stats.cuts import cut_agreement
from reply_resolution.stats.exact2x2 import check_counts
from reply_resolution.stats.quantiles import critical

_DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class JudgeErrors:
    """How a judge does against people at one cut, from labelled replies.

    Attributes:
        true_positives: Labelled replies that people and judge call resolved.
        positives: Labelled replies that people call resolved, 1 or more.
        true_negatives: Labelled replies that people and judge call unresolved.
        negatives: Labelled replies that people call unresolved, 1 or more.
    """

    true_positives: int
    positives: int
    true_negatives: int
    negatives: int

    def __post_init__(self) -> None:
        for name, hit, of in (
            ("resolved", self.true_positives, self.positives),
            ("unresolved", self.true_negatives, self.negatives),
        ):
            if of < 1 or not 0 <= hit <= of:
                raise StatisticsError(
                    f"of {of} replies that people call {name} the judge agrees on "
                    f"{hit}; label replies of both kinds, and count agreements only."
                )

    @property
    def true_positive_rate(self) -> float:
        """Share of the truly resolved that the judge calls so; higher is better."""
        return self.true_positives / self.positives

    @property
    def true_negative_rate(self) -> float:
        """Share of the truly unresolved that the judge calls so; higher is better."""
        return self.true_negatives / self.negatives

    @property
    def skill(self) -> float:
        """TPR + TNR - 1: the factor by which differences shrink. 1 is no error."""
        return self.true_positive_rate + self.true_negative_rate - 1

    @classmethod
    def from_labels(
        cls,
        judge: Sequence[float | None],
        labels: Sequence[float | None],
        *,
        cut: int = 4,
        meaning: int | None = None,
    ) -> "JudgeErrors":
        """Count from scores of the same replies; pairs with a missing one left out."""
        found = cut_agreement(judge, labels, cut=cut, meaning=meaning)
        return cls(
            true_positives=found.both,
            positives=found.both + found.people_only,
            true_negatives=found.neither,
            negatives=found.neither + found.judge_only,
        )


@dataclass(frozen=True, slots=True)
class CorrectedRateDifference:
    """A difference in share resolved, corrected for the judge's errors.

    Attributes:
        estimate: Treatment minus control, fraction. Above 0 favours treatment.
        low: Lower end of the interval, same unit.
        high: Upper end, same unit.
        confidence: Nominal coverage, fraction.
        rate_treatment: Corrected share resolved in treatment, fraction, 0 to 1.
        rate_treatment_ci: Its interval.
        rate_control: Corrected share resolved in control.
        rate_control_ci: Its interval.
        judge_difference: The difference by the judge alone, fraction.
        seed: Seed of the draws.
        warnings: What a reader should know, in sentences.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    rate_treatment: float
    rate_treatment_ci: tuple[float, float]
    rate_control: float
    rate_control_ci: tuple[float, float]
    judge_difference: float
    seed: int
    warnings: tuple[str, ...] = field(default=())


def corrected_rate_difference(
    x1: int,
    n1: int,
    x0: int,
    n0: int,
    *,
    errors: JudgeErrors | tuple[JudgeErrors, JudgeErrors],
    confidence: float = 0.95,
    design_effect: float = 1.0,
    seed: int = 0,
) -> CorrectedRateDifference:
    """Correct a difference in share resolved for the judge's TPR and TNR.

    Each of the rates (two arms, TPR, TNR) is drawn 20,000 times from the distribution
    its own sample leaves it (Beta, Jeffreys), so the calibration's chance error counts
    as much as the experiment's. Draws in which the judge is no better than chance are
    kept, as "could be anything": an untested judge gives a useless interval, not a
    narrow one.

    Valid if the judge errs equally in calibration and in the experiment; with one
    `errors` for both arms, also equally in both arms. The mix of resolved and
    unresolved may differ. If you have labels of this experiment, the human-corrected
    effect of the readout assumes less.

    Args:
        x1: Replies the judge calls resolved in treatment, 0 to `n1`.
        n1: Scored replies in treatment.
        x0: The same in control.
        n0: Scored replies in control.
        errors: The judge's errors, or a pair of them: treatment's and control's.
        confidence: Nominal coverage, fraction.
        design_effect: Of the experiment's replies, where users have several.
        seed: Of the draws.

    Raises:
        StatisticsError: An empty arm, or a judge no better than chance.

    Source: Rogan and Gladen 1978; Reiczigel, Foldi and Ozsvari 2010 (both samples).

    >>> judge = JudgeErrors(54, 60, 51, 60)
    >>> d = corrected_rate_difference(96, 160, 80, 160, errors=judge)
    >>> round(d.estimate, 3), d.low < d.judge_difference < d.high
    (0.133, True)
    """
    check_counts(x1, n1, x0, n0)
    check_confidence(confidence)
    if design_effect < 1:
        raise StatisticsError(f"design_effect is {design_effect!r}; it is 1 or more.")
    treated, base = errors if isinstance(errors, tuple) else (errors, errors)
    for each in (treated, base):
        if each.skill <= 0:
            raise StatisticsError(
                "the judge is no better than chance at this cut (true positive rate "
                f"{each.true_positive_rate:.2f}, true negative rate "
                f"{each.true_negative_rate:.2f}): nothing can be corrected. Calibrate "
                "it first."
            )
    rng = np.random.default_rng(seed)

    def draw(hits: float, of: float) -> NDArray[np.float64]:
        return rng.beta(hits + 0.5, of - hits + 0.5, _DRAWS)

    observed1 = draw(x1 / design_effect, n1 / design_effect)
    observed0 = draw(x0 / design_effect, n0 / design_effect)
    tpr0 = draw(base.true_positives, base.positives)
    tnr0 = draw(base.true_negatives, base.negatives)
    if treated is base:
        tpr1, tnr1 = tpr0, tnr0  # one judge: its error is the same draw in both arms
    else:
        tpr1 = draw(treated.true_positives, treated.positives)
        tnr1 = draw(treated.true_negatives, treated.negatives)
    low1, high1 = _corrected(observed1, tpr1, tnr1)
    low0, high0 = _corrected(observed0, tpr0, tnr0)
    hopeless = float((low1 < high1).mean() + (low0 < high0).mean()) / 2
    tail = (1 - confidence) / 2

    def ends(
        lower: NDArray[np.float64], upper: NDArray[np.float64]
    ) -> tuple[float, float]:
        return float(np.quantile(lower, tail)), float(np.quantile(upper, 1 - tail))

    rate1 = _point(x1 / n1, treated)
    rate0 = _point(x0 / n0, base)
    # A hopeless draw says nothing: -1 for the lower end, 1 for the upper.
    low, high = ends(
        np.where(low1 < high1, -1.0, low1 - high0),
        np.where(low1 < high1, 1.0, high1 - low0),
    )
    notes = []
    if hopeless > 0.001:
        notes.append(
            f"in {hopeless:.1%} of the draws the judge is no better than chance: the "
            "calibration is too small or the judge too weak for a useful correction."
        )
    return CorrectedRateDifference(
        estimate=rate1 - rate0,
        low=min(low, rate1 - rate0),
        high=max(high, rate1 - rate0),
        confidence=confidence,
        rate_treatment=rate1,
        rate_treatment_ci=ends(low1, high1),
        rate_control=rate0,
        rate_control_ci=ends(low0, high0),
        judge_difference=x1 / n1 - x0 / n0,
        seed=seed,
        warnings=tuple(notes),
    )


def _point(rate: float, errors: JudgeErrors) -> float:
    value = (rate + errors.true_negative_rate - 1) / errors.skill
    return min(1.0, max(0.0, value))


def _corrected(
    rate: NDArray[np.float64],
    tpr: NDArray[np.float64],
    tnr: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corrected draws, twice; 0 and 1 where the judge is no better than chance."""
    skill = tpr + tnr - 1
    usable = skill > 0
    value = np.clip((rate + tnr - 1) / np.where(usable, skill, 1.0), 0.0, 1.0)
    return np.where(usable, value, 0.0), np.where(usable, value, 1.0)


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """A share as people would have counted it.

    Attributes:
        estimate: Corrected share, cut to 0..1. Fraction.
        low: Lower end of the interval, fraction.
        high: Upper end, fraction.
        confidence: Level of the interval, fraction.
        judge_rate: The judge's share, fraction.
        true_positive_rate: Share of the truly resolved that the judge calls so.
        true_negative_rate: Share of the truly unresolved that the judge calls so.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    judge_rate: float
    true_positive_rate: float
    true_negative_rate: float


def rogan_gladen(
    resolved: float,
    judged: int,
    *,
    true_positives: float,
    positives: int,
    true_negatives: float,
    negatives: int,
    confidence: float = 0.95,
) -> CorrectedRate:
    """Share resolved, corrected for the judge's error rates (Rogan and Gladen).

    It needs the error rates to be the same in the labelled and the judged replies;
    unlike PPI++ it allows another mix of resolved and unresolved in them. It is up
    to ten times wider where the mix is the same.

    Args:
        resolved: Replies the judge calls resolved, of those without labels.
        judged: Replies without labels that the judge scored.
        true_positives: Labelled replies that people and judge call resolved.
        positives: Labelled replies that people call resolved.
        true_negatives: Labelled replies that people and judge call unresolved.
        negatives: Labelled replies that people call unresolved.
        confidence: Level of the interval, fraction.

    Raises:
        StatisticsError: A group is empty, or the judge is no better than chance.

    >>> result = rogan_gladen(
    ...     773, 1000, true_positives=40, positives=40, true_negatives=30, negatives=40
    ... )
    >>> round(result.estimate, 4)
    0.6973

    Source: Rogan & Gladen 1978; interval of Lee et al. 2025 (arXiv 2511.21140):
    counts moved towards one half, all three rates uncertain.
    """
    for name, part, whole in (
        ("resolved", resolved, judged),
        ("true_positives", true_positives, positives),
        ("true_negatives", true_negatives, negatives),
    ):
        if whole < 1 or not 0 <= part <= whole:
            raise StatisticsError(
                f"{name}: {part} of {whole}. Give counts with at least one reply in "
                "each group; label both resolved and unresolved replies."
            )
    rate = resolved / judged
    hit, reject = true_positives / positives, true_negatives / negatives
    skill = hit + reject - 1
    if skill <= 0:
        raise StatisticsError(
            f"the judge is no better than chance (true positive rate {hit:.3f} plus "
            f"true negative rate {reject:.3f} is at most 1): nothing can be corrected."
        )
    estimate = float(np.clip((rate + reject - 1) / skill, 0.0, 1.0))
    z = critical(confidence)
    n = judged + z * z
    p = (resolved + z * z / 2) / n
    n1, n0 = positives + 2, negatives + 2
    q1, q0 = (true_positives + 1) / n1, (true_negatives + 1) / n0
    slope = q0 + q1 - 1
    centre = float(np.clip((p + q0 - 1) / slope, 0.0, 1.0))
    noise1, noise0 = q1 * (1 - q1) / n1, q0 * (1 - q0) / n0
    shift = 2 * z * z * (centre * noise1 - (1 - centre) * noise0)
    variance = p * (1 - p) / n + (1 - centre) ** 2 * noise0 + centre**2 * noise1
    reach = z * float(np.sqrt(variance)) / slope
    return CorrectedRate(
        estimate=estimate,
        low=max(0.0, centre + shift - reach),
        high=min(1.0, centre + shift + reach),
        confidence=confidence,
        judge_rate=rate,
        true_positive_rate=hit,
        true_negative_rate=reject,
    )

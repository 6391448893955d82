"""The true share resolved, from the judge's share and its error rates."""

from dataclasses import dataclass

import numpy as np

from reply_resolution.errors import StatisticsError


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
    from scipy.special import ndtri

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
    z = float(ndtri((1 + confidence) / 2))
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

"""What the judge's result becomes when a labelled subset corrects it.

The judge scores everything and people a random part. Prediction-powered estimates
(PPI++) use the judge to sharpen and the labels to keep honest: whatever the judge's
errors are, in whichever arm, the estimate is centred on what people would have said.
A judge that errs differently in the arms makes the judge-only difference wrong
however many replies there are; nothing here assumes that it does not.

Source: Angelopoulos, Duchi & Zrnic 2023 (PPI++, arXiv 2311.01453).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.corrected_rates import CorrectedRate, rogan_gladen
from reply_resolution.stats.favouring import (
    DifferentialBias,
    TippingPoint,
    differential_bias,
    tipping_point,
)
from reply_resolution.stats.labelled_arms import (
    MIN_LABELS,
    Arm,
    arm_part,
    arms_labels,
    few_labels,
    read_arms,
    two_arms,
    variance_of,
    wald_pvalue,
)
from reply_resolution.stats.quantiles import critical

__all__ = [
    "MIN_LABELS",
    "CorrectedDifference",
    "CorrectedMean",
    "CorrectedRate",
    "DifferentialBias",
    "TippingPoint",
    "differential_bias",
    "ppi_difference",
    "ppi_mean",
    "rogan_gladen",
    "tipping_point",
]


@dataclass(frozen=True, slots=True)
class CorrectedMean:
    """Mean score as people would have given it.

    Attributes:
        estimate: Corrected mean, in points of the labels' scale.
        low: Lower end of the t interval, points.
        high: Upper end, points.
        confidence: Level of the interval, fraction.
        se: Standard error, points.
        df: Degrees of freedom (Welch-Satterthwaite).
        lam: How far the judge was trusted to sharpen: 0 not at all (the labels'
            mean), 1 fully. Chosen from the data unless given.
        n_labelled: Replies with label and judge's score.
        n_judged: Replies with a judge's score, labelled or not.
        judge_mean: Mean of the judge alone, points.
        label_mean: Mean of the labels alone, points.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    se: float
    df: float
    lam: float
    n_labelled: int
    n_judged: int
    judge_mean: float
    label_mean: float


@dataclass(frozen=True, slots=True)
class CorrectedDifference:
    """Difference in mean score, treatment minus control, as people would see it.

    Attributes:
        treatment: Name of the treatment arm.
        control: Name of the control arm.
        estimate: Corrected difference, points; above 0 favours treatment.
        low: Lower end of the t interval, points.
        high: Upper end, points.
        confidence: Level of the interval, fraction.
        pvalue: Two-sided, of "no difference" (t test).
        se: Standard error, points.
        df: Degrees of freedom.
        judge_difference: What the judge alone says, points.
        label_difference: What the labels alone say, points.
        control_arm: The control arm's corrected mean.
        treatment_arm: The treatment arm's corrected mean.
        reliable: Whether both arms have at least `min_labels` labels (and as many
            clusters, where clusters are used).
        warnings: What a reader should know, in sentences.
    """

    treatment: str
    control: str
    estimate: float
    low: float
    high: float
    confidence: float
    pvalue: float
    se: float
    df: float
    judge_difference: float
    label_difference: float
    control_arm: CorrectedMean
    treatment_arm: CorrectedMean
    reliable: bool
    warnings: tuple[str, ...]


def ppi_mean(
    judge: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    *,
    weights: Any = None,  # noqa: ANN401
    clusters: Any = None,  # noqa: ANN401
    lam: float | None = None,
    confidence: float = 0.95,
) -> CorrectedMean:
    """Mean score of all judged replies, as people would have given it (PPI++).

    Args:
        judge: The judge's scores, shape (n,); rows without one are left out.
        labels: People's labels, same shape; None or NaN where nobody labelled. They
            must be a random draw, or come with `weights`.
        weights: 1 / probability of being labelled, same shape (only labelled rows
            count), for draws with unequal chances.
        clusters: Which rows belong together (users), same shape.
        lam: Weight of the judge, 0 to 1; None chooses it from the data.
        confidence: Level of the interval, fraction.

    Raises:
        StatisticsError: Fewer than two labels.

    >>> result = ppi_mean([2, 4, 5, 3, 4, 5], [2, 4, 4, None, None, None])
    >>> round(result.estimate, 3), result.n_labelled
    (3.469, 3)

    Source: Angelopoulos, Duchi & Zrnic 2023; t quantiles instead of normal ones.
    """
    from reply_resolution.stats.agreement import as_numbers

    frame: dict[str, Any] = {
        "score": as_numbers(judge, "judge"),
        "label": as_numbers(labels, "labels"),
    }
    if weights is not None:
        frame["weight"] = as_numbers(weights, "weights")
    if len({len(v) for v in frame.values()}) > 1:
        raise StatisticsError("judge, labels and weights must have the same length.")
    if clusters is not None:
        frame["cluster"] = list(clusters)
    table = pl.DataFrame(frame).with_columns(pl.lit("all").alias("arm"))
    arms = read_arms(
        table.fill_nan(None),
        arms=("all",),
        arm="arm",
        score="score",
        label="label",
        weight="weight" if weights is not None else None,
        cluster="cluster" if clusters is not None else None,
    )
    return _mean(arms["all"], lam, confidence)


def _mean(arm: Arm, lam: float | None, confidence: float) -> CorrectedMean:
    part = arm_part(arm, lam)
    variance, df = variance_of([(1.0, part, arm.clusters)])
    se = float(np.sqrt(variance))
    reach = critical(confidence, df) * se
    has = arm.labelled
    share = None if arm.weight is None else arm.weight[has]
    if arm.share is not None:
        share = arm.share[has] * (1.0 if share is None else share)
    return CorrectedMean(
        estimate=part.estimate,
        low=part.estimate - reach,
        high=part.estimate + reach,
        confidence=confidence,
        se=se,
        df=df,
        lam=part.lam,
        n_labelled=int(has.sum()),
        n_judged=len(arm.judge),
        judge_mean=float(np.average(arm.judge, weights=arm.share)),
        label_mean=float(np.average(arm.label[has], weights=share)),
    )


def ppi_difference(
    frame: pl.DataFrame,
    *,
    control: str,
    treatment: str | None = None,
    arm: str = "arm",
    score: str = "score",
    label: str = "label",
    weight: str | None = None,
    cluster: str | None = None,
    stratum: str | None = None,
    lam: float | None = None,
    confidence: float = 0.95,
    min_labels: int = MIN_LABELS,
) -> CorrectedDifference:
    """Difference in means as people would see it: PPI++ in each arm, t interval.

    Args:
        frame: One row per reply with the judge's score (null where it has none: such
            rows are left out) and the label (null where nobody labelled).
        control: Name of the control arm.
        treatment: Name of the other arm; may be left out when there are two.
        arm: Column of the arm.
        score: Column of the judge's score.
        label: Column of the label: of several annotators, their mean per reply.
        weight: Column with 1 / probability of being labelled; None: a plain random
            draw within each arm.
        cluster: Column of users, or of the request in a paired design; a value may
            occur in both arms.
        stratum: Column within whose values the arms are compared, weighted as
            `compare` does; labels are still a random draw of each arm.
        lam: Weight of the judge, 0 to 1; None chooses it in each arm.
        confidence: Level of the interval, fraction.
        min_labels: Fewer labels in an arm than this and the result is marked.

    Raises:
        TableError: A column or arm is missing.
        StatisticsError: An arm has fewer than two labels.

    Source: Angelopoulos, Duchi & Zrnic 2023, per arm; Welch-Satterthwaite degrees
    of freedom over the labelled and unlabelled part of each arm.
    """
    control, treatment = two_arms(frame, control=control, treatment=treatment, arm=arm)
    arms = read_arms(
        frame,
        arms=(control, treatment),
        arm=arm,
        score=score,
        label=label,
        weight=weight,
        cluster=cluster,
        stratum=stratum,
    )
    signs = {control: -1.0, treatment: 1.0}
    parts = [
        (
            signs[name],
            arm_part(data, lam),
            data.clusters,
        )
        for name, data in arms.items()
    ]
    variance, df = variance_of(parts)
    estimate = sum(sign * part.estimate for sign, part, _ in parts)
    se = float(np.sqrt(variance))
    reach = critical(confidence, df) * se
    means = {name: _mean(data, lam, confidence) for name, data in arms.items()}
    notes = few_labels(arms_labels(arms), min_labels)
    before, after = means[control], means[treatment]
    return CorrectedDifference(
        treatment=treatment,
        control=control,
        estimate=estimate,
        low=estimate - reach,
        high=estimate + reach,
        confidence=confidence,
        pvalue=wald_pvalue(estimate, se, df),
        se=se,
        df=df,
        judge_difference=after.judge_mean - before.judge_mean,
        label_difference=after.label_mean - before.label_mean,
        control_arm=before,
        treatment_arm=after,
        reliable=not notes,
        warnings=notes,
    )

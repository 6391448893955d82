"""What length does to the judge's score: in twins of one reply, and in an experiment.

Twins are the causal evidence: a twin resolves exactly as much as its original, so any
systematic change of the score is the judge's doing. In an experiment the headline is
the effect minus the bias that the length difference buys; what length legitimately
earns stays in. Holding length constant (the "length-controlled" effect) also removes
the legitimate part, and is a labelled sensitivity only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.length import LengthBias
from reply_resolution.stats.lengths import usable
from reply_resolution.stats.permutation import paired_permutation_test
from reply_resolution.stats.quantiles import critical
from reply_resolution.stats.regression import Fit, least_squares

Range = tuple[float, float]

#: Mean change of log2 length below which points per doubling are not computed: the
#: twins are as long as their originals, and dividing by almost 0 says nothing.
LEAST_DOUBLINGS = 0.5
_PAIRS_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class PairsTest:
    """Twins against their originals.

    Attributes:
        kind: What was done to the originals ("padded", "bulleted", ...).
        n: Pairs with both scores.
        up: Pairs in which the twin scored higher.
        down: Pairs in which it scored lower.
        change: Mean score of twin minus original, points. Above 0 the judge rewards
            what was done; 0 is fair.
        ci: Its 95% interval (Bonett-Price: one pair up and one pair down are added, so
            that pairs that never differ do not give an interval of no width).
        pvalue: Exact two-sided sign-flip p-value of "nothing changes".
        doublings: Mean log2 length of twin minus original; 1 is twice as long.
        points_per_doubling: `change` over `doublings`: the bias that length as such
            causes. None where the twins are about as long as the originals.
        points_per_doubling_ci: Its interval; the lengths are given, not random.
        excluded: Pairs not used, by reason.
        warnings: What a reader should know, in sentences.
    """

    kind: str
    n: int
    up: int
    down: int
    change: float
    ci: Range
    pvalue: float
    doublings: float
    points_per_doubling: float | None
    points_per_doubling_ci: Range | None
    excluded: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether the exact test finds a change, at 5%."""
        return self.pvalue < 1 - _PAIRS_CONFIDENCE


def padded_pairs_test(pairs: pl.DataFrame, *, kind: str = "padded") -> PairsTest:
    """Exact paired test of what a change of form does to the judge's score.

    Null hypothesis: in each pair the judge is as likely to favour the twin as the
    original. Two-sided: sums at least as far from 0 as the observed one; equal scores
    stay in, and count for neither side. Exact by convolution, no chance involved.

    Args:
        pairs: One row per twin, as from `twin_pairs`: `score_original`, `score_twin`
            (whole), `length_original`, `length_twin`.
        kind: Name of what was done.

    Raises:
        StatisticsError: No pair has both scores.

    Source:
        Fisher's sign-flip test; interval: Bonett & Price (2012).

    >>> pairs = pl.DataFrame({
    ...     "score_original": [3, 4, 2, 3, 4], "score_twin": [4, 5, 3, 4, 4],
    ...     "length_original": [100] * 5, "length_twin": [200] * 5})
    >>> test = padded_pairs_test(pairs)
    >>> test.change, test.pvalue, test.points_per_doubling
    (0.8, 0.125, 0.8)
    """
    scored = pairs.drop_nulls(["score_original", "score_twin"])
    used = scored.filter((pl.col("length_original") > 0) & (pl.col("length_twin") > 0))
    excluded = {
        "missing": pairs.height - scored.height,
        "no_length": scored.height - used.height,
    }
    if used.is_empty():
        raise StatisticsError(
            f"none of the {pairs.height} {kind} twins has a score, an original with a "
            "score, and a length: judge twins and originals with the same judge first."
        )
    n = used.height
    d = (used["score_twin"] - used["score_original"]).cast(pl.Int64).to_numpy()
    longer = (used["length_twin"] / used["length_original"]).log(2).to_numpy()
    change, doublings = float(d.mean()), float(longer.mean())
    centre = float(d.sum()) / (n + 2)
    variance = (float((d * d).sum()) + 2) / (n + 2) - centre**2
    half = critical(_PAIRS_CONFIDENCE, n + 1) * math.sqrt(variance / (n + 2))
    ci = centre - half, centre + half
    per = per_ci = None
    if abs(doublings) >= LEAST_DOUBLINGS:
        per = change / doublings
        low, high = sorted(end / doublings for end in ci)
        per_ci = low, high
    few = f"{n} {kind} pairs: only a large effect would be seen; 40 are a good number."
    return PairsTest(
        kind=kind,
        n=n,
        up=int((d > 0).sum()),
        down=int((d < 0).sum()),
        change=change,
        ci=ci,
        pvalue=paired_permutation_test(*np.unique(d, return_counts=True)).pvalue,
        doublings=doublings,
        points_per_doubling=per,
        points_per_doubling_ci=per_ci,
        excluded={k: v for k, v in excluded.items() if v},
        warnings=(few,) if n < 20 else (),
    )


def pairs_by_kind(pairs: pl.DataFrame) -> tuple[PairsTest, ...]:
    """`padded_pairs_test` for each `kind` with a scored pair: padded first, by name."""
    scored = pairs.drop_nulls(["score_original", "score_twin"])
    kinds = sorted(scored["kind"].unique(), key=lambda k: (k != "padded", k))
    return tuple(
        padded_pairs_test(pairs.filter(pl.col("kind") == kind), kind=kind)
        for kind in kinds
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthEffect:
    """One treatment against control, with and without what length does to the judge.

    All effects are mean score of the treatment minus control, in points of the judge's
    scale; above 0 the treatment scores higher. All intervals are t intervals with HC3
    errors (CR3 over users where `cluster` was given); None where undefined.

    Attributes:
        control: Baseline arm.
        treatment: The other arm.
        n_control: Control replies used (pairs, in the paired design).
        n_treatment: Treatment replies used (pairs, in the paired design).
        doublings: Mean log2 length, treatment minus control. 1 is twice as long.
        length_ratio: The same as a ratio of typical lengths (geometric means).
        judge_effect: The effect as the judge scored it.
        judge_ci: Its interval.
        bias_part: Points of it that the judge's bias and the length difference explain:
            bias per doubling times doublings.
        bias_part_ci: Its interval, with the uncertainty of both.
        corrected: Judge effect minus bias part. Assumes that the judge's error depends
            on the arm through length only.
        corrected_ci: Its interval; it includes the uncertainty of the bias.
        length_controlled: The effect at equal length, by regression on arm and log2
            length. Assumes that length itself is worth nothing to the user.
        length_controlled_ci: Its interval.
        confidence: Of the intervals, fraction.
        excluded: Rows not used, by reason.
        warnings: What a reader should know, in sentences.
    """

    control: str
    treatment: str
    n_control: int
    n_treatment: int
    doublings: float
    length_ratio: float
    judge_effect: float
    judge_ci: Range | None
    bias_part: float | None = None
    bias_part_ci: Range | None = None
    corrected: float | None = None
    corrected_ci: Range | None = None
    length_controlled: float | None = None
    length_controlled_ci: Range | None = None
    confidence: float
    excluded: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def length_effect(
    frame: pl.DataFrame,
    bias: LengthBias | None,
    *,
    control: str,
    treatment: str,
    pair: str | None = None,
    cluster: str | None = None,
    stratum: str | None = None,
    confidence: float = 0.95,
) -> LengthEffect:
    """The effect with the judge's length bias taken out, and at equal length.

    Args:
        frame: One row per judged reply of the experiment: `arm`, `score`, `reply`.
        bias: From `length_bias` on labelled replies of the same judge; None where it
            was not measured, which leaves the corrected effect undefined.
        control: Name of the baseline arm.
        treatment: Name of the other arm.
        pair: Column that pairs replies to the same request; None treats the arms as
            independent.
        cluster: Column with the user; its rows move together.
        stratum: Column within whose values the arms are compared (not for pairs); only
            strata that both arms have.
        confidence: Of the intervals, fraction.

    Raises:
        TableError: A column is missing, or a pair has two rows in one arm.
        StatisticsError: An arm has no usable reply.

    >>> frame = pl.DataFrame({
    ...     "arm": ["a"] * 4 + ["b"] * 4, "score": [3, 4, 2, 4, 4, 5, 4, 5],
    ...     "reply": ["x" * n for n in (100, 220, 90, 180, 210, 500, 170, 400)]})
    >>> effect = length_effect(frame, None, control="a", treatment="b")
    >>> effect.judge_effect, round(effect.doublings, 2), effect.corrected
    (1.25, 1.08, None)
    """
    rows = frame.filter(pl.col("arm").cast(pl.String).is_in([control, treatment]))
    keys = {"arm": "arm", "pair": pair, "cluster": cluster}
    if stratum and not pair:
        keys["stratum"] = stratum
        rows = rows.with_columns(pl.col(stratum).cast(pl.String).fill_null(""))
    data, excluded = usable(
        rows, {"score": ["score"]}, {name: c for name, c in keys.items() if c}
    )
    if "stratum" in data.columns:
        both = data.filter(pl.col("arm").n_unique().over("stratum") > 1)
        if both.height < data.height:
            excluded["stratum_of_one_arm"] = data.height - both.height
        data = both
    counts = {
        arm: data.filter(pl.col("arm") == arm).height for arm in (control, treatment)
    }
    if pair:
        data, left = _differences(data, control, treatment)
        if left:
            excluded["unpaired"] = left
        counts = dict.fromkeys(counts, data.height)
    for arm, n in counts.items():
        if n == 0:
            what = "complete pair" if pair else f"usable reply in arm {arm!r}"
            raise StatisticsError(
                f"there is no {what}: nothing has a score and a length above 0."
            )
    y, d = data["score"].to_numpy(), data["doublings"].to_numpy()
    design = np.ones((data.height, 1))
    if not pair:
        contrast = (data["arm"] == treatment).to_numpy()
        if "stratum" in data.columns:
            # A level of its own for each stratum: the effect is that within them.
            place = data["stratum"].rank("dense").to_numpy()
            design = (place[:, None] == np.unique(place)).astype(float)
        design = np.column_stack([contrast, design])
    # Numbers instead of names: sorting a million names again and again takes minutes.
    groups = data["cluster"].rank("dense").to_numpy() if cluster else None

    def fitted(outcome: npt.NDArray[np.float64], *more: npt.NDArray[np.float64]) -> Fit:
        return least_squares(np.column_stack([design, *more]), outcome, cluster=groups)

    notes = []
    raw, longer = fitted(y), fitted(d)
    raw_ci = _interval(raw.coefficients[0], confidence, _part(raw))
    if raw_ci is None:
        notes.append(f"no interval for the effect: {raw.problem or 'no spread'}.")
    doublings = float(longer.coefficients[0])
    found: dict[str, Any] = {}
    gamma = bias.judge_points_per_doubling if bias else None
    if bias is None or gamma is None:
        notes.append(
            "the judge's length bias is not measured, so the effect cannot be "
            "corrected for it; label replies and run the length check."
        )
    else:
        # Scores with the bias taken off row by row: this keeps the covariance of score
        # and length inside the arms, which subtracting two summaries would lose.
        fixed = fitted(y - gamma * d)
        error = bias.judge_standard_error
        own = None if error is None else ((doublings * error) ** 2, bias.degrees)
        if own is None:
            notes.append("no interval for the corrected effect: the bias has none.")
        part, corrected = gamma * doublings, float(fixed.coefficients[0])
        found |= {
            "bias_part": part,
            "bias_part_ci": _interval(part, confidence, _part(longer, gamma), own),
            "corrected": corrected,
            "corrected_ci": _interval(corrected, confidence, _part(fixed), own),
        }
    try:
        held = fitted(y, d)
    except StatisticsError:
        notes.append(
            "the effect at equal length is undefined: length does not vary inside the "
            "arms, or too few replies are left."
        )
    else:
        equal = float(held.coefficients[0])
        found["length_controlled"] = equal
        found["length_controlled_ci"] = _interval(equal, confidence, _part(held))
    return LengthEffect(
        control=control,
        treatment=treatment,
        n_control=counts[control],
        n_treatment=counts[treatment],
        doublings=doublings,
        length_ratio=2.0**doublings,
        judge_effect=float(raw.coefficients[0]),
        judge_ci=raw_ci,
        confidence=confidence,
        excluded=excluded,
        warnings=tuple(notes),
        **found,
    )


def _part(fit: Fit, factor: float = 1.0) -> tuple[float, float] | None:
    """Variance of the first coefficient times a factor, and its degrees of freedom."""
    error = fit.standard_error(0)
    return None if error is None else ((factor * error) ** 2, fit.degrees)


def _interval(
    centre: float, confidence: float, *parts: tuple[float, float] | None
) -> Range | None:
    """A t interval for a sum of independent estimates (Welch-Satterthwaite)."""
    known = [part for part in parts if part is not None and part[0] > 0]
    variance = sum(v for v, _ in known)
    if None in parts or variance < 1e-24:
        return None
    degrees = variance**2 / sum(v * v / df for v, df in known)
    half = critical(confidence, degrees) * math.sqrt(variance)
    return float(centre) - half, float(centre) + half


def _differences(
    data: pl.DataFrame, control: str, treatment: str
) -> tuple[pl.DataFrame, int]:
    """One row per complete pair, treatment minus control; and the rows left over."""
    twice = data.filter(pl.struct("pair", "arm").is_duplicated())
    if twice.height:
        raise TableError(
            f"pair {twice['pair'][0]!r} has {twice.height} rows that repeat an arm; a "
            "pair is one reply in each arm. Choose one row, or name another column."
        )
    first = data.filter(pl.col("arm") == control)
    second = data.filter(pl.col("arm") == treatment)
    both = second.join(first, on="pair", suffix="_control", maintain_order="left")
    work = both.with_columns(
        score=pl.col("score") - pl.col("score_control"),
        doublings=pl.col("doublings") - pl.col("doublings_control"),
    )
    return work, data.height - 2 * both.height

"""What the judge's length bias makes of an experiment, and the effect without it.

The headline is the effect minus the bias that the length difference buys; what length
legitimately earns stays in. Holding length constant (the "length-controlled" effect)
also removes the legitimate part, and is a labelled sensitivity only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from reply_resolution.display import interval, number, percent, table
from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.columns import length_column, need, numbers
from reply_resolution.stats.length import LengthBias, notes_html
from reply_resolution.stats.regression import Fit, least_squares, t_pvalue, t_quantile

Floats = npt.NDArray[np.float64]
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LengthEffect:
    """One treatment against control, with and without what length does to the judge.

    All effects are mean score of the treatment minus control, in points of the judge's
    scale; above 0 the treatment scores higher. All intervals are t intervals with HC3
    errors (CR3 over users where `cluster` was given).

    Attributes:
        control: Baseline arm.
        treatment: The other arm.
        n_control: Control replies used (pairs, in the paired design).
        n_treatment: Treatment replies used (pairs, in the paired design).
        doublings: Mean log2 length, treatment minus control. 1 is twice as long.
        length_ratio: The same as a ratio of typical lengths (geometric means).
        judge_effect: The effect as the judge scored it.
        judge_ci: Its interval; None where undefined.
        bias_part: Points of it that the judge's bias and the length difference explain:
            bias per doubling times doublings.
        bias_part_ci: Its interval, with the uncertainty of both.
        corrected: Judge effect minus bias part. Assumes that the judge's error depends
            on the arm through length only.
        corrected_ci: Its interval; it includes the uncertainty of the bias.
        corrected_pvalue: Two-sided p-value of "no corrected effect".
        length_controlled: The effect at equal length, by regression on arm and log2
            length. Assumes that length itself is worth nothing to the user.
        length_controlled_ci: Its interval.
        score_per_doubling: How the judge's score moves with length inside the arms,
            merited and unmerited together, in points.
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
    bias_part: float | None
    bias_part_ci: Range | None
    corrected: float | None
    corrected_ci: Range | None
    corrected_pvalue: float | None
    length_controlled: float | None
    length_controlled_ci: Range | None
    score_per_doubling: float | None
    confidence: float
    excluded: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; undefined is None."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in (
                (f, getattr(self, f)) for f in self.__dataclass_fields__
            )
        } | {"excluded": dict(self.excluded)}

    def _repr_html_(self) -> str:
        rows = [
            ("As the judge scored it", self.judge_effect, self.judge_ci),
            ("Part that length bias explains", self.bias_part, self.bias_part_ci),
            ("Corrected by the bias", self.corrected, self.corrected_ci),
            (
                "Sensitivity: at equal length",
                self.length_controlled,
                self.length_controlled_ci,
            ),
        ]
        cells = [
            {
                "effect": name,
                "points": number(value, sign=True),
                "interval": interval(*(ci or (None, None)), sign=True),
            }
            for name, value, ci in rows
        ]
        longer = percent(self.length_ratio - 1, sign=True)
        caption = (
            f"{self.treatment} minus {self.control}; typical length {longer} "
            f"({percent(self.confidence)} intervals)"
        )
        return str(table(cells, caption=caption)) + str(notes_html(self.warnings))


def length_effect(
    frame: pl.DataFrame,
    bias: LengthBias | None,
    *,
    control: str,
    treatment: str | None = None,
    arm: str = "arm",
    score: str = "score",
    reply: str = "reply",
    length: str | None = None,
    pair: str | None = None,
    cluster: str | None = None,
    confidence: float = 0.95,
) -> LengthEffect:
    """The effect with the judge's length bias taken out, and at equal length.

    Args:
        frame: One row per judged reply of the experiment.
        bias: From `length_bias` on labelled replies of the same judge; None where it
            was not measured, which leaves the corrected effect undefined.
        control: Name of the baseline arm.
        treatment: Name of the other arm; may be left out where there are two.
        arm: Column with the arm.
        score: Column with the judge's score.
        reply: Column with the text.
        length: Column with a length to use instead.
        pair: Column that pairs replies to the same request; None treats the arms as
            independent.
        cluster: Column with the user; its rows move together.
        confidence: Of the intervals, fraction.

    Raises:
        TableError: A column or arm is missing, or a pair has two rows in one arm.
        StatisticsError: An arm has no usable reply.

    >>> frame = pl.DataFrame({
    ...     "arm": ["a"] * 4 + ["b"] * 4, "score": [3, 4, 2, 4, 4, 5, 4, 5],
    ...     "length": [100, 220, 90, 180, 210, 500, 170, 400]})
    >>> effect = length_effect(frame, None, control="a", length="length")
    >>> effect.judge_effect, round(effect.doublings, 2), effect.corrected
    (1.25, 1.08, None)
    """
    need(frame, arm, score, *(c for c in (pair, cluster) if c))
    treatment = _treatment(frame[arm].cast(pl.String), control, treatment)
    columns = {"arm": arm, "score": score, "pair": pair, "cluster": cluster}
    lengths = length_column(frame, reply=reply, length=length)
    data, excluded = _rows(frame, (control, treatment), columns, lengths)
    notes: list[str] = []
    if pair is None:
        work = data
        base = np.ones(data.height)
        contrast = (data["arm"] == treatment).to_numpy().astype(np.float64)
        constant = np.column_stack([contrast, base])
    else:
        work, lost = _differences(data, control, treatment)
        if lost:
            excluded["unpaired"] = lost
        constant = np.ones((work.height, 1))
    counts = _counts(work, control, treatment, paired=pair is not None)
    # numbers instead of names: sorting a million names again and again takes minutes
    groups = work["cluster"].rank("dense").to_numpy() if cluster else None
    y, d = work["score"].to_numpy(), work["doublings"].to_numpy()

    longer = _first(constant, d, groups)
    raw = _first(constant, y, groups)
    raw_ci = _interval(raw, confidence)
    if raw_ci is None:
        notes.append(f"no interval for the effect: {raw.problem or 'no spread'}.")
    doublings = float(longer.coefficients[0])
    part, part_ci, fixed, fixed_ci, fixed_p = _correct(
        bias, constant, y, d, longer, groups, confidence, notes
    )
    held, held_ci, slope = _held(constant, y, d, groups, confidence, notes)
    return LengthEffect(
        control=control,
        treatment=treatment,
        n_control=counts[0],
        n_treatment=counts[1],
        doublings=doublings,
        length_ratio=2.0**doublings,
        judge_effect=float(raw.coefficients[0]),
        judge_ci=raw_ci,
        bias_part=part,
        bias_part_ci=part_ci,
        corrected=fixed,
        corrected_ci=fixed_ci,
        corrected_pvalue=fixed_p,
        length_controlled=held,
        length_controlled_ci=held_ci,
        score_per_doubling=slope,
        confidence=confidence,
        excluded=excluded,
        warnings=tuple(notes),
    )


def _correct(
    bias: LengthBias | None,
    constant: Floats,
    y: Floats,
    d: Floats,
    longer: Fit,
    groups: npt.NDArray[Any] | None,
    confidence: float,
    notes: list[str],
) -> tuple[float | None, Range | None, float | None, Range | None, float | None]:
    """Bias part and corrected effect, each with its interval."""
    gamma = bias.judge_points_per_doubling if bias else None
    if bias is None or gamma is None:
        notes.append(
            "the judge's length bias is not measured, so the effect cannot be "
            "corrected for it; label replies and run the length check."
        )
        return None, None, None, None, None
    doublings = float(longer.coefficients[0])
    part = gamma * doublings
    # Scores with the bias taken off row by row: this keeps the covariance of score and
    # length inside the arms, which subtracting two summaries would lose.
    fit = _first(constant, y - gamma * d, groups)
    corrected = float(fit.coefficients[0])
    gamma_error = bias.judge_standard_error
    fit_error, longer_error = fit.standard_error(0), longer.standard_error(0)
    if gamma_error is None or fit_error is None or longer_error is None:
        notes.append("no interval for the corrected effect: the bias has none.")
        return part, None, corrected, None, None
    from_bias = (doublings * gamma_error) ** 2
    part_ci = _combined(
        part,
        (gamma * longer_error) ** 2,
        longer.degrees,
        from_bias,
        bias.degrees,
        confidence,
    )
    ci = _combined(
        corrected, fit_error**2, fit.degrees, from_bias, bias.degrees, confidence
    )
    variance = fit_error**2 + from_bias
    degrees = _satterthwaite(fit_error**2, fit.degrees, from_bias, bias.degrees)
    p = t_pvalue(corrected / math.sqrt(variance), degrees) if variance > 0 else None
    return part, part_ci, corrected, ci, p


def _held(
    constant: Floats,
    y: Floats,
    d: Floats,
    groups: npt.NDArray[Any] | None,
    confidence: float,
    notes: list[str],
) -> tuple[float | None, Range | None, float | None]:
    """The effect at equal length, its interval, and the judge's slope on length."""
    try:
        fit = least_squares(np.column_stack([constant, d]), y, cluster=groups)
    except StatisticsError:
        notes.append(
            "the effect at equal length is undefined: length does not vary inside the "
            "arms, or too few replies are left."
        )
        return None, None, None
    return (
        float(fit.coefficients[0]),
        _interval(fit, confidence),
        float(fit.coefficients[-1]),
    )


def _first(design: Floats, outcome: Floats, groups: npt.NDArray[Any] | None) -> Fit:
    return least_squares(design, outcome, cluster=groups)


def _interval(fit: Fit, confidence: float) -> Range | None:
    se = fit.standard_error(0)
    if se is None or se < 1e-12:
        return None
    half = t_quantile(confidence, fit.degrees) * se
    centre = float(fit.coefficients[0])
    return centre - half, centre + half


def _satterthwaite(
    first: float, df_first: float, second: float, df_second: float
) -> float:
    bottom = (first**2 / df_first if first else 0.0) + (
        second**2 / df_second if second else 0.0
    )
    return (first + second) ** 2 / bottom if bottom > 0 else df_first


def _combined(
    centre: float,
    first: float,
    df_first: float,
    second: float,
    df_second: float,
    confidence: float,
) -> Range | None:
    """A t interval for a sum of two independent estimates."""
    if first + second <= 0:
        return None
    degrees = _satterthwaite(first, df_first, second, df_second)
    half = t_quantile(confidence, degrees) * math.sqrt(first + second)
    return centre - half, centre + half


def _treatment(arms: pl.Series, control: str, treatment: str | None) -> str:
    names = arms.drop_nulls().unique(maintain_order=True).to_list()
    listed = ", ".join(map(repr, names)) or "none"
    if control not in names:
        raise TableError(f"control {control!r} is not an arm; the arms are {listed}.")
    others = [name for name in names if name != control]
    if treatment is None:
        if len(others) != 1:
            raise TableError(
                f"there are {len(others)} arms beside control {control!r} ({listed}); "
                "name the treatment."
            )
        return str(others[0])
    if treatment not in others:
        raise TableError(
            f"treatment {treatment!r} is not an arm; the arms are {listed}."
        )
    return treatment


def _rows(
    frame: pl.DataFrame,
    arms: tuple[str, str],
    columns: Mapping[str, str | None],
    lengths: pl.Series,
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Arm, score, doublings, pair and cluster of the rows that can be used."""
    arm, score = str(columns["arm"]), str(columns["score"])
    raw = pl.DataFrame(
        {
            "arm": frame[arm].cast(pl.String),
            "given": frame[score].is_not_null(),
            "score": numbers(frame, score),
            "length": lengths,
        }
        | {
            name: frame[column].cast(pl.String)
            for name in ("pair", "cluster")
            if (column := columns[name])
        }
    ).filter(pl.col("arm").is_in(arms))
    keys = [name for name in ("pair", "cluster") if columns[name]]
    reasons = {
        "empty_reply": pl.col("length") == 0,
        "not_a_number": pl.col("given") & pl.col("score").is_null(),
        "missing": pl.any_horizontal(pl.col("score", "length").is_null()),
        **{f"missing_{name}": pl.col(name).is_null() for name in keys},
    }
    excluded: dict[str, int] = {}
    for reason, condition in reasons.items():
        kept = raw.filter(~condition.fill_null(False))
        if kept.height < raw.height:
            excluded[reason] = raw.height - kept.height
        raw = kept
    return raw.with_columns(doublings=pl.col("length").log(2)), excluded


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


def _counts(
    work: pl.DataFrame, control: str, treatment: str, *, paired: bool
) -> tuple[int, int]:
    if paired:
        counts = work.height, work.height
    else:
        counts = (
            work.filter(pl.col("arm") == control).height,
            work.filter(pl.col("arm") == treatment).height,
        )
    for name, n in zip((control, treatment), counts, strict=True):
        if n == 0:
            what = "complete pair" if paired else f"usable reply in arm {name!r}"
            raise StatisticsError(
                f"there is no {what}: nothing has a score and a length above 0."
            )
    return counts

"""Does the judge score long replies higher than people do?

The test regresses *judge minus label* on log length. Not "judge on length" (long
replies may be better, so it accuses every judge), and not "judge on label and length"
(a label is a noisy measure of quality, so the rest of the quality hides in length: it
accused 24% of fair judges in simulation).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from reply_resolution.display import number
from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.arrays import Floats
from reply_resolution.stats.lengths import usable
from reply_resolution.stats.quantiles import critical, two_sided
from reply_resolution.stats.regression import least_squares
from reply_resolution.stats.repeats import first_votes
from reply_resolution.stats.score_columns import refuse_mixture

#: The judge's standard deviation over the labels': outside, the two are not alike
#: enough for their difference to say something about the judge.
ALIKE = (0.6, 1.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBias:
    """How the judge's score moves with a reply's length where the label does not.

    Attributes:
        n: Replies used: judge, label and a length above 0.
        confidence: Of the interval, fraction.
        standardised: Whether judge and label were brought to one scale first. Then
            unequal noise in the two can imitate a bias.
        sd_ratio: The judge's standard deviation over the labels'.
        judge_length_spearman: Rank correlation of judge and length, -1 to 1; None
            where one of them does not vary. Description only: length may be merited.
        label_length_spearman: The same for the people's label.
        partial_spearman: Rank correlation of judge and length once the label is
            accounted for, -1 to 1. Description only.
        partial_pvalue: Its p-value (t with n - 3 degrees of freedom).
        points_per_doubling: The bias: by how much judge minus label rises when a reply
            is twice as long. Above 0 the judge favours length; 0 is fair. In points
            of the scale, or (`standardised`) in standard deviations.
        ci: Its interval (HC3, t with n - 2 degrees; CR3 where clusters were given);
            None where undefined.
        tvalue: Estimate over its standard error.
        pvalue: Two-sided p-value of "no bias".
        judge_points_per_doubling: The bias in points of the judge's own scale, with
            which an effect measured by the judge is corrected.
        judge_standard_error: Standard error of that.
        degrees: Degrees of freedom of the interval.
        excluded: Rows not used, by reason.
        warnings: What a reader should know, in sentences.
    """

    n: int
    confidence: float
    standardised: bool
    sd_ratio: float | None
    judge_length_spearman: float | None
    label_length_spearman: float | None
    partial_spearman: float | None = None
    partial_pvalue: float | None = None
    points_per_doubling: float | None = None
    ci: tuple[float, float] | None = None
    tvalue: float | None = None
    pvalue: float | None = None
    judge_points_per_doubling: float | None = None
    judge_standard_error: float | None = None
    degrees: int = 0
    excluded: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def found(self) -> bool | None:
        """Whether the interval excludes 0; None where there is no interval."""
        return None if self.ci is None else not self.ci[0] <= 0 <= self.ci[1]

    @property
    def largest(self) -> float | None:
        """The largest bias, in either direction, that the data still allow.

        In points of the judge's scale per doubling; None where there is no interval.
        """
        slope, error = self.judge_points_per_doubling, self.judge_standard_error
        if slope is None or error is None:
            return None
        return abs(slope) + critical(self.confidence, self.degrees) * error

    def to_dict(self) -> dict[str, Any]:
        """The object that `length-bias --json` prints; undefined is None."""
        return {
            "n": self.n,
            "judge_length_spearman": self.judge_length_spearman,
            "label_length_spearman": self.label_length_spearman,
            "partial_spearman": {
                "estimate": self.partial_spearman,
                "pvalue": self.partial_pvalue,
            },
            "points_per_doubling": {
                "estimate": self.points_per_doubling,
                "ci": None if self.ci is None else list(self.ci),
                "pvalue": self.pvalue,
                "t": self.tvalue,
            },
            "standardised": self.standardised,
            "judge_points_per_doubling": self.judge_points_per_doubling,
            "sd_ratio": self.sd_ratio,
            "confidence": self.confidence,
            "excluded": dict(self.excluded),
            "warnings": list(self.warnings),
        }


def length_bias(
    frame: pl.DataFrame,
    *,
    judge: str = "score",
    label: str | Sequence[str] | None = None,
    reply: str = "reply",
    length: str | None = None,
    cluster: str | None = None,
    confidence: float = 0.95,
    standardise: bool | None = None,
    scale: tuple[float, float] | None = None,
    mix_versions: bool = False,
) -> LengthBias:
    """Test whether judge minus label depends on the reply's length.

    Null hypothesis: it does not (slope 0 of least squares on log2 length, HC3,
    two-sided t). A reply's length is its code points after CRLF became LF.

    Args:
        frame: One row per labelled reply (and vote; the first vote is used).
        judge: Column with the judge's score; whole or real numbers.
        label: Column with the people's label, or several, whose mean counts. By
            default `label`, or else every `label_*` column.
        reply: Column with the reply's text (not read where `length` is given).
        length: Column with a length to use instead, above 0.
        cluster: Column that names whose rows belong together; None treats rows as
            independent.
        confidence: Of the interval, fraction.
        standardise: Bring judge and label to one scale first; by default only where
            their ranges do not overlap, or their standard deviations are unalike
            (ratio outside 0.6 to 1.6).
        scale: Lowest and highest score of judge and label: whole numbers off it are
            no scores. None holds a column to 1 to 5 where only strays (-1, 0, 9) are
            off it, and takes any other as it is.
        mix_versions: Allow scores of several metric versions or judges in one table.

    Returns:
        The bias in points per doubling. What is undefined is None, with the reason
        in `warnings`.

    Raises:
        TableError: A column is missing, or `label` cannot be told.
        VersionMismatchError: Several metric versions or judges, unless allowed.
        StatisticsError: No row has judge, label and length.

    Source:
        The bias as a slope: Bland & Altman (1999), with HC3 of MacKinnon & White.

    >>> frame = pl.DataFrame({
    ...     "score": [4, 5, 2, 4, 3, 5], "label": [4, 4, 2, 3, 3, 4],
    ...     "length": [90, 420, 100, 380, 150, 300]})
    >>> bias = length_bias(frame, length="length")
    >>> round(bias.points_per_doubling, 3), [round(x, 3) for x in bias.ci]
    (0.531, [0.337, 0.725])
    """
    if not 0 < confidence < 1:
        raise StatisticsError(
            f"confidence {confidence} is not a fraction between 0 and 1; 0.95 is usual."
        )
    labels = _label_columns(frame, label)
    frame, again, notes = first_votes(frame)
    if len(labels) > 1:
        notes.append(
            f"{len(labels)} label columns ({', '.join(labels)}): their mean per reply "
            "counts as the label."
        )
    columns = {"judge": [judge], "label": labels}
    keys = {"cluster": cluster} if cluster else {}
    data, excluded = usable(
        frame, columns, keys, reply=reply, length=length, scale=scale, notes=notes
    )
    if again:
        excluded = {"duplicate": again} | excluded
    if data.is_empty():
        why = ", ".join(f"{n} {reason}" for reason, n in excluded.items())
        raise StatisticsError(
            f"no row of {frame.height} has a judge score ({judge!r}), a label "
            f"({', '.join(labels)}) and a reply with text ({why or 'no rows'}). "
            f"Check the columns. {' '.join(notes)}".rstrip()
        )
    refuse_mixture(frame[data["row"]], judge, mix_versions=mix_versions)
    score, people = data["judge"].to_numpy(), data["label"].to_numpy()
    doublings = data["doublings"].to_numpy()
    groups = data["cluster"].rank("dense").to_numpy() if cluster else None
    slope = _slope(score, people, doublings, groups, confidence, standardise, notes)
    rho = _partial(score, doublings, people, notes)
    return LengthBias(
        n=data.height,
        confidence=confidence,
        excluded=excluded,
        warnings=tuple(notes),
        **slope,
        **rho,
    )


def _slope(
    judge: Floats,
    label: Floats,
    doublings: Floats,
    groups: npt.NDArray[Any] | None,
    confidence: float,
    standardise: bool | None,
    notes: list[str],
) -> dict[str, Any]:
    """The regression of the test, with every way it can be undefined."""
    n = len(judge)
    sd_judge, sd_label = (
        float(np.std(v, ddof=1)) if n > 1 and np.ptp(v) > 0 else 0.0
        for v in (judge, label)
    )
    ratio = sd_judge / sd_label if sd_label > 0 else None
    if standardise is None:
        alike = ratio is not None and ALIKE[0] <= ratio <= ALIKE[1]
        # Ranges that touch in at most one value are two scales, not two views.
        apart = judge.max() <= label.min() or label.max() <= judge.min()
        standardise = bool(n > 2 and (not alike or apart))
    found: dict[str, Any] = {"standardised": standardise, "sd_ratio": ratio}
    if n < 3:
        notes.append(
            f"{n} labelled replies: a slope needs at least 3, and says something from "
            "about 50 on."
        )
        return found
    scale = 1.0
    if standardise:
        if sd_judge == 0 or sd_label == 0:
            constant = "the judge's score" if sd_judge == 0 else "the label"
            notes.append(
                f"{constant} is the same for all {n} replies, so judge and label "
                "cannot be compared; the bias is undefined."
            )
            return found
        notes.append(
            "judge and label were both standardised, because they are not on one "
            f"scale (standard deviations {number(sd_judge)} and {number(sd_label)}): "
            "the bias is in standard deviations per doubling, and unequal noise in "
            "judge and label can imitate a bias where length is merited."
        )
        judge, label, scale = judge / sd_judge, label / sd_label, sd_judge
    if np.ptp(doublings) < 1e-12:
        notes.append(
            "all replies have the same length, so nothing can be said about length."
        )
        return found
    design = np.column_stack([np.ones(n), doublings])
    fit = least_squares(design, judge - label, cluster=groups)
    slope, error = float(fit.coefficients[1]), fit.standard_error(1)
    if error is None:
        notes.append(f"no interval for the bias: {fit.problem}.")
    elif error < 1e-12:
        slope, error = round(slope, 12), None
        notes.append(
            "judge minus label lies exactly on a line (or is the same for every "
            "reply), which leaves no spread from which an interval could be computed."
        )
    found |= {
        "points_per_doubling": slope,
        "judge_points_per_doubling": slope * scale,
        "degrees": fit.degrees,
    }
    if error is not None:
        half = critical(confidence, fit.degrees) * error
        found |= {
            "ci": (slope - half, slope + half),
            "tvalue": slope / error,
            "pvalue": two_sided(slope / error, fit.degrees),
            "judge_standard_error": error * scale,
        }
    return found


def _partial(
    judge: Floats, length: Floats, label: Floats, notes: list[str]
) -> dict[str, Any]:
    """Spearman of judge and length, of label and length, partial, its p-value."""
    named = {"judge": judge, "length": length, "label": label}
    constant = [name for name, values in named.items() if np.ptp(values) == 0]
    notes.extend(
        f"the {name} is the same for all replies, so its correlations are undefined."
        for name in constant
    )
    ranks = np.stack([pl.Series(v).rank().to_numpy() for v in named.values()])
    ranks -= ranks.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # a constant has no correlation
        ranks /= np.sqrt((ranks * ranks).sum(axis=1, keepdims=True))
        (_, jl, jp), (_, _, ll), _ = (ranks @ ranks.T).tolist()
    found: dict[str, Any] = {
        "judge_length_spearman": None if math.isnan(jl) else jl,
        "label_length_spearman": None if math.isnan(ll) else ll,
    }
    if constant:
        return found
    room = (1 - jp * jp) * (1 - ll * ll)
    if room < 1e-12:
        notes.append(
            "the label's order equals the judge's (or length's), so no correlation is "
            "left once it is accounted for."
        )
        return found
    partial = max(-1.0, min(1.0, (jl - jp * ll) / math.sqrt(room)))
    found["partial_spearman"] = partial
    degrees = len(judge) - 3
    if degrees >= 1 and 1 - partial * partial >= 1e-12:
        tvalue = partial * math.sqrt(degrees / (1 - partial * partial))
        found["partial_pvalue"] = two_sided(tvalue, degrees)
    return found


def _label_columns(frame: pl.DataFrame, label: str | Sequence[str] | None) -> list[str]:
    if label is not None:
        return [label] if isinstance(label, str) else list(label)
    if "label" in frame.columns:
        return ["label"]
    found = [c for c in frame.columns if c.startswith("label_")]
    if not found:
        raise TableError(
            "the table has no column 'label' and none that starts with 'label_'; "
            f"name the people's label (columns: {', '.join(frame.columns)})."
        )
    return found

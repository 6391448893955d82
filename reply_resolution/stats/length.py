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

from reply_resolution.display import (
    Html,
    element,
    html,
    interval,
    number,
    pvalue,
    table,
)
from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.columns import length_column, need, numbers
from reply_resolution.stats.length_slope import Slope
from reply_resolution.stats.regression import t_pvalue

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LengthBias:
    """How the judge's score moves with a reply's length where the label does not.

    Attributes:
        n: Replies used: judge, label and a length above 0.
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
        standardised: Whether judge and label were brought to one scale first. Then
            unequal noise in the two can imitate a bias.
        judge_points_per_doubling: The bias in points of the judge's own scale: equal
            to `points_per_doubling` unless standardised. This is what an effect
            measured by the judge is corrected with.
        judge_standard_error: Standard error of that.
        degrees: Degrees of freedom of the interval.
        sd_ratio: The judge's standard deviation over the labels'.
        confidence: Of the interval, fraction.
        excluded: Rows not used, by reason: `missing`, `not_a_number`, `empty_reply`.
        warnings: What a reader should know, in sentences.
    """

    n: int
    judge_length_spearman: float | None
    label_length_spearman: float | None
    partial_spearman: float | None
    partial_pvalue: float | None
    points_per_doubling: float | None
    ci: tuple[float, float] | None
    tvalue: float | None
    pvalue: float | None
    standardised: bool
    judge_points_per_doubling: float | None
    judge_standard_error: float | None
    degrees: int
    sd_ratio: float | None
    confidence: float
    excluded: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def found(self) -> bool | None:
        """Whether the interval excludes 0; None where there is no interval."""
        return None if self.ci is None else not self.ci[0] <= 0 <= self.ci[1]

    @property
    def largest_allowed(self) -> float | None:
        """The largest bias, in either direction, that the data still allow.

        In the unit of `points_per_doubling`; None where there is no interval.
        """
        return None if self.ci is None else max(abs(self.ci[0]), abs(self.ci[1]))

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

    def _repr_html_(self) -> str:
        unit = "standard deviations" if self.standardised else "points"
        low, high = self.ci or (None, None)
        rows = [
            ("Judge and length (rank correlation)", number(self.judge_length_spearman)),
            ("People and length", number(self.label_length_spearman)),
            ("Judge and length, label held fixed", number(self.partial_spearman)),
            (f"Bias per doubling of length, {unit}", self._bias_cell(low, high)),
            ("p-value of no bias", pvalue(self.pvalue)),
        ]
        caption = f"Length and the judge, {self.n} labelled replies"
        cells = [{"measure": name, "value": value} for name, value in rows]
        return str(table(cells, caption=caption)) + str(notes_html(self.warnings))

    def _bias_cell(self, low: float | None, high: float | None) -> str:
        return (
            f"{number(self.points_per_doubling, sign=True)} "
            f"({interval(low, high, sign=True)})"
        )


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
) -> LengthBias:
    """Test whether judge minus label depends on the reply's length.

    Null hypothesis: it does not (slope 0 of least squares on log2 length, HC3,
    two-sided t). A reply's length is its code points after CRLF became LF.

    Args:
        frame: One row per labelled reply.
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

    Returns:
        The bias in points per doubling. What is undefined is None, with the reason
        in `warnings`.

    Raises:
        TableError: A column is missing, or `label` cannot be told.
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
    notes: list[str] = []
    if len(labels) > 1:
        notes.append(
            f"{len(labels)} label columns ({', '.join(labels)}): their mean per reply "
            "counts as the label."
        )
    lengths = length_column(frame, reply=reply, length=length)
    data, excluded = _usable(frame, judge, labels, lengths, cluster)
    if data.is_empty():
        raise StatisticsError(
            f"no row of {frame.height} has a judge score ({judge!r}), a label "
            f"({', '.join(labels)}) and a reply with text; nothing can be computed."
        )
    score, people = data["judge"].to_numpy(), data["label"].to_numpy()
    doublings = np.log2(data["length"].to_numpy())
    groups = data["cluster"].rank("dense").to_numpy() if cluster else None
    result = Slope(score, people, doublings, groups, confidence, standardise)
    notes += result.notes
    rho = _partial(score, doublings, people, notes)
    return LengthBias(
        n=data.height,
        judge_length_spearman=rho[0],
        label_length_spearman=rho[1],
        partial_spearman=rho[2],
        partial_pvalue=rho[3],
        points_per_doubling=result.estimate,
        ci=result.ci,
        tvalue=result.tvalue,
        pvalue=result.pvalue,
        standardised=result.standardised,
        judge_points_per_doubling=result.judge_estimate,
        judge_standard_error=result.judge_error,
        degrees=result.degrees,
        sd_ratio=result.sd_ratio,
        confidence=confidence,
        excluded=excluded,
        warnings=tuple(notes),
    )


def ranks(values: Floats) -> Floats:
    """Ranks from 1, ties sharing the mean of theirs."""
    _, code, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle = last - (counts - 1) / 2
    return np.asarray(middle[code.ravel()], dtype=np.float64)


def _partial(
    judge: Floats, length: Floats, label: Floats, notes: list[str]
) -> tuple[float | None, float | None, float | None, float | None]:
    """Spearman of judge and length, of label and length, partial, its p-value."""
    named = {"judge": judge, "length": length, "label": label}
    constant = [name for name, values in named.items() if np.ptp(values) == 0]
    notes.extend(
        f"the {name} is the same for all replies, so its correlations are undefined."
        for name in constant
    )
    table_of_ranks = {k: ranks(v) for k, v in named.items() if k not in constant}

    def rho(a: str, b: str) -> float | None:
        if a in constant or b in constant:
            return None
        return float(np.corrcoef(table_of_ranks[a], table_of_ranks[b])[0, 1])

    jl, pl_, jp = rho("judge", "length"), rho("label", "length"), rho("judge", "label")
    if jl is None or pl_ is None or jp is None:
        return jl, pl_, None, None
    room = (1 - jp * jp) * (1 - pl_ * pl_)
    if room < 1e-12:
        notes.append(
            "the label's order equals the judge's (or length's), so no correlation is "
            "left once it is accounted for."
        )
        return jl, pl_, None, None
    partial = max(-1.0, min(1.0, (jl - jp * pl_) / math.sqrt(room)))
    degrees = len(judge) - 3
    if degrees < 1 or 1 - partial * partial < 1e-12:
        return jl, pl_, partial, None
    tvalue = partial * math.sqrt(degrees / (1 - partial * partial))
    return jl, pl_, partial, t_pvalue(tvalue, degrees)


def _label_columns(frame: pl.DataFrame, label: str | Sequence[str] | None) -> list[str]:
    if label is None:
        found = ["label"] if "label" in frame.columns else []
        found = found or [c for c in frame.columns if c.startswith("label_")]
        if not found:
            raise TableError(
                "the table has no column 'label' and none that starts with 'label_'; "
                f"name the people's label (columns: {', '.join(frame.columns)})."
            )
        return found
    return [label] if isinstance(label, str) else list(label)


def _usable(
    frame: pl.DataFrame,
    judge: str,
    labels: Sequence[str],
    lengths: pl.Series,
    cluster: str | None,
) -> tuple[pl.DataFrame, dict[str, int]]:
    """The rows that can be used, and why each other one is not."""
    need(frame, judge, *labels, *([cluster] if cluster else []))
    raw = pl.DataFrame(
        {
            "judge": numbers(frame, judge),
            "label": pl.DataFrame(
                [numbers(frame, c) for c in labels]
            ).mean_horizontal(),
            "length": lengths,
            "cluster": frame[cluster] if cluster else pl.Series([None] * frame.height),
        }
    )
    given = frame.select(
        pl.col(judge).is_not_null(),
        pl.any_horizontal(pl.col(list(labels)).is_not_null()).alias("__label"),
    )
    empty = raw["length"] == 0
    whole = (
        pl.col("judge").is_not_null()
        & pl.col("label").is_not_null()
        & (pl.col("length") > 0)
    )
    if cluster:
        whole = whole & pl.col("cluster").is_not_null()
    used = raw.select(whole.fill_null(False)).to_series()
    unread = (given[judge] & raw["judge"].is_null()) | (
        given["__label"] & raw["label"].is_null()
    )
    reasons = {
        "empty_reply": empty.fill_null(False),
        "not_a_number": unread,
        "missing": ~used,
    }
    excluded: dict[str, int] = {}
    left = ~used
    for reason, mask in reasons.items():
        rows = int((left & mask).sum())
        left = left & ~mask
        if rows:
            excluded[reason] = rows
    return raw.filter(used), excluded


def notes_html(warnings: Sequence[str]) -> Html:
    """Warnings as paragraphs under a table."""
    return html(*(element("p", note, class_="muted") for note in warnings))

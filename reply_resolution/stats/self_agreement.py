"""A judge's agreement with itself over votes, a person's over hidden repeats."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import polars as pl

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.agreement import Agreement, agreement
from reply_resolution.stats.agreement_parts import Estimate, share_interval
from reply_resolution.stats.annotators import label_keys


@dataclass(frozen=True, slots=True)
class SelfAgreement:
    """How a judge (over votes) or a person (over hidden repeats) matches itself.

    Attributes:
        n_items: Items scored at least twice.
        n_pairs: Pairs of scores of one item.
        flip_rate: Share of pairs that differ. Fraction, 0 is best.
        cut_flip_rate: Share of pairs on two sides of the cut (resolved or not).
        mean_change: Mean absolute difference, points.
        agreement: First against later scores, with kappa; None for fewer than 2
            pairs.
    """

    n_items: int
    n_pairs: int
    flip_rate: Estimate
    cut_flip_rate: Estimate
    mean_change: float
    agreement: Agreement | None


def self_agreement(
    frame: pl.DataFrame,
    *,
    value: str = "score",
    turn: str = "vote",
    by: Sequence[str] | None = None,
    cut: int = 4,
    scale: tuple[int, int] = (1, 5),
    confidence: float = 0.95,
) -> SelfAgreement:
    """Agreement of repeated scores of the same items: votes, or hidden repeats.

    The first score of an item is compared with each later one; an item is one unit
    however often it was repeated.

    Args:
        frame: One row per score: verdicts (`turn="vote"`) or labels
            (`value="label", turn="repeat"`, and `by` with "annotator").
        value: Column of the score; null (refused, cannot judge) is left out.
        turn: Column that numbers the repeats; the lowest is the first.
        by: Columns that name the item; None: `request_id`, `arm`, and `annotator`
            for labels.
        cut: Resolved from here, for `cut_flip_rate`.
        scale: Lowest and highest score.
        confidence: Level of the intervals, fraction.

    Raises:
        StatisticsError: Nothing was scored twice.
    """
    if by is None:
        by = label_keys(frame)
        if "annotator" in frame.columns:
            by = [*by, "annotator"]
    for column in (value, turn, *by):
        if column not in frame.columns:
            raise TableError(f"the table has no column {column!r}.")
    scored = frame.filter(pl.col(value).is_not_null()).sort(turn, maintain_order=True)
    first = scored.unique(list(by), keep="first", maintain_order=True)
    later = scored.join(first, on=[*by, turn], how="anti", nulls_equal=True)
    pairs = later.join(
        first.select(*by, pl.col(value).alias("__first")),
        on=list(by),
        how="inner",
        nulls_equal=True,
    )
    if pairs.is_empty():
        raise StatisticsError(
            f"nothing was scored twice (column {turn!r}); judge some replies with "
            "votes=2, or label with hidden repeats."
        )
    a, b = pairs["__first"].cast(pl.Float64), pairs[value].cast(pl.Float64)
    items = pairs.select(pl.struct(by)).to_series()
    codes = items.rank("dense").to_numpy().astype(np.int64) - 1
    result = (
        agreement(b, a, scale=scale, confidence=confidence, clusters=pl.Series(codes))
        if len(pairs) > 1
        else None
    )
    differ = (a != b).to_numpy()
    sides = ((a >= cut) != (b >= cut)).to_numpy()
    return SelfAgreement(
        n_items=int(codes.max()) + 1,
        n_pairs=len(pairs),
        flip_rate=_share(differ, codes, confidence),
        cut_flip_rate=_share(sides, codes, confidence),
        mean_change=float((a - b).abs().mean() or 0.0),  # type: ignore[arg-type]
        agreement=result,
    )


def _share(hits: NDArray[np.bool_], codes: NDArray[np.int64], level: float) -> Estimate:
    """Share of hits with its interval on the number of items."""
    share = float(hits.mean())
    return Estimate(share, *share_interval(share, int(codes.max()) + 1, level))

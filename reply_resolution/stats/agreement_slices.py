"""Agreement within arms, languages, topics or bands of length."""

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.stats.agreement import Agreement, agreement


def slices(
    frame: pl.DataFrame,
    *,
    by: str,
    judge: str = "score",
    label: str = "label",
    scale: tuple[int, int] = (1, 5),
    weight: str | None = None,
    cluster: str | None = None,
    least: int = 10,
    confidence: float = 0.95,
) -> dict[str, Agreement | None]:
    """Agreement within each value of a column: arm, language, topic, length band.

    Args:
        frame: One row per reply with the judge's score and a label.
        by: The column; its values in order of first appearance.
        judge: Column of the judge's score.
        label: Column of the label.
        scale: Lowest and highest score.
        weight: Column of weights, or None.
        cluster: Column of clusters, or None.
        least: Values with fewer labelled replies give None: too few to say anything.
        confidence: Level of the intervals, fraction.
    """
    for column in (by, judge, label):
        if column not in frame.columns:
            raise TableError(
                f"the table has no column {column!r}; it has "
                f"{', '.join(frame.columns)}."
            )
    both = frame.filter(pl.col(judge).is_not_null() & pl.col(label).is_not_null())
    out: dict[str, Agreement | None] = {}
    for name in both[by].unique(maintain_order=True):
        part = both.filter(pl.col(by).eq_missing(name))
        key = "not given" if name is None else str(name)
        options: dict[str, Any] = {"scale": scale, "confidence": confidence}
        if weight is not None:
            options["weights"] = part[weight]
        if cluster is not None:
            options["clusters"] = part[cluster]
        out[key] = (
            agreement(part[judge], part[label], **options)
            if len(part) >= least
            else None
        )
    return out


def length_bands(lengths: pl.Series, *, bands: int = 3) -> pl.Series:
    """Replies in bands of equal size by length, named by their bounds.

    Args:
        lengths: Length of each reply, characters.
        bands: How many.

    Returns:
        String: "up to 210", "211 to 420", "over 420" characters.
    """
    edges = [
        int(lengths.quantile(i / bands, interpolation="lower") or 0)
        for i in range(1, bands)
    ]
    edges = sorted(set(edges))
    if not edges:
        return pl.Series(lengths.name, ["all"] * len(lengths))
    names = [f"up to {edges[0]:,} characters"]
    names += [f"{a + 1:,} to {b:,} characters" for a, b in pairwise(edges)]
    names.append(f"over {edges[-1]:,} characters")
    position = np.searchsorted(edges, lengths.to_numpy(), side="left")
    return pl.Series(lengths.name, [names[i] for i in position])

"""People: their agreement among themselves, and their consensus."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats import concordance
from reply_resolution.stats.agreement import Agreement, agreement
from reply_resolution.stats.agreement_parts import (
    Array,
    Estimate,
    far_ends,
    rarer_end,
    share_interval,
)

_SEED = 0


@dataclass(frozen=True, slots=True)
class AnnotatorAgreement:
    """How annotators match among themselves.

    Attributes:
        annotators: Their names, sorted.
        n_items: Items with at least two labels.
        labels: Labels per annotator (repeats not counted).
        krippendorff_alpha: Ordinal alpha over all annotators, missing labels allowed.
            1 is perfect, 0 chance, below 0 worse than chance.
        weighted_kappa: Quadratic weighted kappa over all pairs of labels of an item,
            both orders, pooled. Of two annotators it is Cohen's, and this and the
            other coefficients are those of their entry in `pairs`.
        gwet_ac2: Gwet's AC2 over all annotators, quadratic weights. 1 is perfect.
        exact: Share of those pairs that are equal. Fraction.
        pairs: Agreement of every two annotators who share at least one item, keyed
            "a|b"; there b takes the judge's place, so bias is b minus a.
        warnings: What a reader should know, in sentences.
    """

    annotators: tuple[str, ...]
    n_items: int
    labels: dict[str, int]
    krippendorff_alpha: Estimate
    weighted_kappa: Estimate
    gwet_ac2: Estimate
    exact: Estimate
    pairs: dict[str, Agreement]
    warnings: tuple[str, ...]


def label_keys(frame: pl.DataFrame) -> list[str]:
    """The columns that name a reply: `request_id`, and `arm` where it is given."""
    if "request_id" not in frame.columns:
        raise TableError("the table has no column 'request_id'.")
    armed = "arm" in frame.columns and frame["arm"].null_count() < frame.height
    return ["request_id", "arm"] if armed else ["request_id"]


def _own_labels(labels: pl.DataFrame) -> pl.DataFrame:
    """Labels that count: no hidden repeats, no "cannot judge".

    Sorted by reply and annotator: no result depends on who comes first in a file.
    """
    for column in ("annotator", "label"):
        if column not in labels.columns:
            raise TableError(
                f"labels need a column {column!r}; read them with `read_labels`."
            )
    if "repeat" in labels.columns:
        labels = labels.filter(pl.col("repeat").fill_null(0) == 0)
    own = labels.filter(pl.col("label").is_not_null())
    return own.sort(*label_keys(own), pl.col("annotator").cast(pl.String))


def _people(own: pl.DataFrame) -> list[str]:
    return sorted(own["annotator"].cast(pl.String).unique())


def consensus(labels: pl.DataFrame, *, how: str = "mean") -> pl.DataFrame:
    """One label per reply from several annotators.

    Args:
        labels: Long form, as from `read_labels`. Repeats are left out.
        how: "mean" (default), "median", or the name of one annotator.

    Returns:
        `request_id` (and `arm`), `label` (Float64), `annotators` (how many),
        `spread` (largest minus smallest label, points), `weight` (1 / probability
        of being drawn; 1 where none is given). Replies without a label are absent.

    Raises:
        StatisticsError: `how` is neither, or no label is left.
    """
    own = _own_labels(labels)
    people = _people(own)
    if how not in ("mean", "median"):
        if how not in people:
            raise StatisticsError(
                f"consensus {how!r}: give 'mean', 'median' or one of the annotators "
                f"{', '.join(people)}."
            )
        own = own.filter(pl.col("annotator").cast(pl.String) == how)
    middle = pl.col("label").median() if how == "median" else pl.col("label").mean()
    weight = pl.col("weight").first() if "weight" in own.columns else pl.lit(1.0)
    return own.group_by(label_keys(own), maintain_order=True).agg(
        middle.cast(pl.Float64).alias("label"),
        pl.len().alias("annotators"),
        (pl.col("label").max() - pl.col("label").min()).alias("spread"),
        weight.fill_null(1.0).alias("weight"),
    )


def annotator_agreement(
    labels: pl.DataFrame,
    *,
    scale: tuple[int, int] = (1, 5),
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = _SEED,
) -> AnnotatorAgreement:
    """Agreement of two and more annotators, with intervals over items.

    Args:
        labels: Long form, as from `read_labels`; whole labels. Repeats and "cannot
            judge" are left out.
        scale: Lowest and highest label.
        confidence: Level of the intervals, fraction.
        resamples: Bootstrap draws of items.
        seed: Of the bootstrap.

    Raises:
        StatisticsError: No item has two labels.

    Source: Krippendorff 2011; pairs as in Light 1971, pooled.
    """
    own = _own_labels(labels)
    keys = label_keys(own)
    people = _people(own)
    counts = _level_counts(own, keys, scale)
    shared = counts[counts.sum(1) >= 2]
    if not len(shared):
        raise StatisticsError(
            f"no item was labelled by two of the {len(people)} annotators; let two "
            "people label the same replies to see how they agree."
        )
    options: dict[str, Any] = {
        "confidence": confidence,
        "resamples": resamples,
        "seed": seed,
    }
    pairs = _pairs(own, keys, people, scale, options)
    if len(people) == 2 and pairs:
        (two,) = pairs.values()
        alpha, kappa = two.krippendorff_alpha, two.weighted_kappa
        ac2, same = two.gwet_ac2, two.exact
    else:
        alpha, kappa, ac2, same = among(counts, scale, **options)
    notes = [
        f"{name} has only {n} labels; read their agreement with care."
        for name, n in _per_person(own).items()
        if n < 20
    ]
    return AnnotatorAgreement(
        annotators=tuple(people),
        n_items=len(shared),
        labels=_per_person(own),
        krippendorff_alpha=alpha,
        weighted_kappa=kappa,
        gwet_ac2=ac2,
        exact=same,
        pairs=pairs,
        warnings=tuple(notes),
    )


def among(
    counts: Array,
    scale: tuple[float, float],
    *,
    confidence: float,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[Estimate, Estimate, Estimate, Estimate]:
    """Alpha, pooled kappa, AC2 and exact agreement of several people.

    Args:
        counts: Labels per item and level, shape (items, levels); at least one item
            with two. Items with one tell AC2 how frequent the levels are.
        scale: Lowest and highest label.
        confidence: Level of the intervals, fraction; ends as in `agreement_parts`,
            the unseen item having two labels.
        resamples: Draws of items.
        seed: Of the draws.
    """
    values = np.arange(scale[0], scale[1] + 1, dtype=float)
    counts = counts[counts.sum(1) > 0]
    k, levels = len(values), counts.sum(0) / counts.sum()
    types, sizes = np.unique(counts, axis=0, return_counts=True)
    eye = np.eye(k)
    far = (eye[:, None] + eye)[far_ends(values) > 0]
    rare = 2 * eye[[rarer_end(levels, values)]]
    far_share = (levels[:, None] * far_ends(values))[far_ends(values) > 0]
    kinds = np.concatenate((types, far, rare))
    # Per kind of item: its coincidences (pairs weighted 1 / (m - 1)), and its pairs.
    pairs = kinds[:, :, None] * kinds[:, None, :] - kinds[:, :, None] * eye
    coincidences = pairs / np.maximum(kinds.sum(1) - 1, 1)[:, None, None]
    rng = np.random.default_rng(seed)
    drawn = rng.standard_gamma(sizes, size=(resamples, len(types)))
    added = rng.standard_gamma(far_share, size=(resamples, len(far)))
    none = np.zeros((resamples, len(rare)))
    copies = np.concatenate(
        (
            np.append(sizes, np.zeros(len(far) + len(rare)))[None],
            np.hstack((drawn, added, none)),
            np.hstack((drawn, 0 * added, added.sum(1, keepdims=True))),
        )
    )
    copies *= len(counts) / copies.sum(1, keepdims=True)
    found = (
        concordance.alpha_from_coincidences(
            np.tensordot(copies, coincidences, 1), values
        ),
        concordance.weighted_kappa(np.tensordot(copies, pairs, 1), values),
        concordance.several_raters(kinds, values, copies=copies),
    )
    alpha, kappa, ac2 = (_between(f, resamples, confidence) for f in found)
    same = float(concordance.exact(np.tensordot(copies[0], pairs, 1)))
    shared = int((counts.sum(1) > 1).sum())
    if shared < 3:
        few = "fewer than 3 items say nothing of precision"
        alpha, kappa, ac2 = (
            Estimate(e.estimate, reason=e.reason or few) for e in (alpha, kappa, ac2)
        )
    span = share_interval(same, shared, confidence)
    return alpha, kappa, ac2, Estimate(same, *span)


def _between(found: Array, resamples: int, confidence: float) -> Estimate:
    """The first value, between the low end of the next draws and the last's high."""
    point, low, high = float(found[0]), found[1 : resamples + 1], found[-resamples:]
    if np.isnan(point):
        return Estimate(None, reason="it is 0/0, all labels are equal")
    tail = (1 - confidence) / 2
    ends = float(np.quantile(low, tail)), float(np.quantile(high, 1 - tail))
    return Estimate(point, min(ends[0], point), max(ends[1], point))


def _per_person(own: pl.DataFrame) -> dict[str, int]:
    rows = own.group_by("annotator").len().iter_rows()
    return dict(sorted((str(name), int(n)) for name, n in rows))


def _level_counts(
    own: pl.DataFrame, keys: Sequence[str], scale: tuple[int, int]
) -> Array:
    """Labels per item and level, shape (items, levels)."""
    low, high = scale
    off = own.filter(~pl.col("label").is_between(low, high))
    whole = own.filter(pl.col("label") != pl.col("label").floor())
    if len(off) or len(whole):
        raise StatisticsError(
            f"{len(off)} labels are outside {low} to {high} and {len(whole)} are not "
            "whole; agreement among annotators needs their own whole labels."
        )
    table = own.group_by(keys, maintain_order=True).agg(
        *((pl.col("label") == v).sum().alias(str(v)) for v in range(low, high + 1))
    )
    return table.drop(keys).to_numpy().astype(float)


def _pairs(
    own: pl.DataFrame,
    keys: Sequence[str],
    people: Sequence[str],
    scale: tuple[int, int],
    options: dict[str, Any],
) -> dict[str, Agreement]:
    wide = own.with_columns(pl.col("annotator").cast(pl.String)).pivot(
        "annotator", index=keys, values="label", aggregate_function="first"
    )
    out = {}
    for a, b in combinations(people, 2):
        both = wide.filter(pl.col(a).is_not_null() & pl.col(b).is_not_null())
        if len(both):
            out[f"{a}|{b}"] = agreement(both[b], both[a], scale=scale, **options)
    return out


def wide_labels(labels: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Labels with one column per annotator, and the names of those columns.

    Args:
        labels: Long form, as from `read_labels`.

    Returns:
        A frame with the reply's keys and one column per annotator (null where they
        gave no label), and the annotators, sorted.
    """
    own = _own_labels(labels).with_columns(pl.col("annotator").cast(pl.String))
    keys, people = label_keys(own), _people(own)
    wide = own.pivot(
        "annotator", index=keys, values="label", aggregate_function="first"
    )
    return wide, people

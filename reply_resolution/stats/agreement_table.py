"""Agreement from a table: one row per reply, a judge column and label columns."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError, TableError, did_you_mean
from reply_resolution.stats.agreement import agreement
from reply_resolution.stats.agreement_parts import MEASURES
from reply_resolution.stats.annotators import among
from reply_resolution.stats.repeats import first_votes
from reply_resolution.stats.score_columns import read_column, refuse_mixture
from reply_resolution.stats.spellings import warn_columns

#: Keys of the object that no column can have.
_OWN_KEYS = ("between", "among", "excluded", "scale", "confidence", "warnings")


def agreement_table(
    frame: pl.DataFrame,
    *,
    judge: str = "score",
    labels: Sequence[str] | None = None,
    scale: tuple[float, float] = (1, 5),
    confidence: float = 0.95,
    cluster: str | None = None,
    seed: int = 0,
    mix_versions: bool = False,
) -> dict[str, Any]:
    """The object of `agreement --json`: the judge against every label column.

    Cells are read by the rules for score cells ("4/5" is 4). A column with values
    that are not whole is taken as real-valued: ranks are compared, what needs levels
    is null and `warnings` says so. Whole values off the scale (0, -1) are no scores:
    excluded and counted.

    Args:
        frame: One row per reply (and vote; the first vote is used).
        judge: Column with the judge's scores.
        labels: Columns with people's labels; None takes every `label_*`.
        scale: Lowest and highest score.
        confidence: Level of the intervals, fraction.
        cluster: Column whose values are drawn as wholes (users); None: rows are
            independent.
        seed: Of the bootstrap.
        mix_versions: Allow scores of several metric versions or judges in one table.

    Returns:
        One key per label column, `between` when there are two or more (keyed
        "label_a|label_b", names sorted; there the second column takes the judge's
        place, so bias is second minus first), `among` for three and more (all
        together: alpha, pooled kappa and AC2 of any number of labels per row),
        `excluded` ({column: {reason: cells}}), `scale`, `confidence` and `warnings`.
        Nothing in it is NaN; undefined is None.

    Raises:
        TableError: A column is missing, or has a name that the object uses itself.
        VersionMismatchError: Several metric versions or judges, unless allowed.
        StatisticsError: No row has both a score and a label.
    """
    columns = _label_columns(frame, judge, labels)
    frame, _, warnings = first_votes(frame)
    warnings += warn_columns([judge, *columns])
    if cluster is not None:
        _need(frame, cluster)
        if frame[cluster].null_count():
            raise TableError(
                f"column {cluster!r} is empty in {frame[cluster].null_count()} rows; "
                "every row needs its cluster."
            )
    read = {}
    excluded: dict[str, dict[str, int]] = {}
    for column in (judge, *columns):
        read[column], reasons, notes = read_column(frame[column], scale=scale)
        counts = reasons.drop_nulls().value_counts()
        excluded[column] = dict(sorted(counts.rows()))
        warnings.extend(notes)
    labelled = pl.DataFrame([read[c].is_not_null() for c in columns]).select(
        pl.any_horizontal(pl.all())
    )
    used = read[judge].is_not_null() & labelled.to_series()
    refuse_mixture(frame.filter(used), judge, mix_versions=mix_versions)

    told = list(warnings)

    def match(first: str, second: str) -> dict[str, Any]:
        try:
            result = agreement(
                read[second],
                read[first],
                scale=scale,
                confidence=confidence,
                clusters=None if cluster is None else frame[cluster],
                seed=seed,
            )
        except StatisticsError:
            if not _complete(read[first], read[second]):
                name = second if second in columns else f"the judge ({second})"
                warnings.append(f"{first}: no row has both it and {name}.")
                return _nothing()
            raise
        where = first if second == judge else f"{first}|{second}"
        subject = "second column" if second in columns else "judge"
        warnings.extend(
            f"{where}: {note.replace('The judge', 'The ' + subject)}"
            for note in result.warnings
        )
        return result.to_dict()

    out: dict[str, Any] = {column: match(column, judge) for column in columns}
    if not any(out[column]["n"] for column in columns):
        counted = "; ".join(
            f"{c}: {', '.join(f'{n} {r}' for r, n in why.items()) or 'all read'}"
            for c, why in excluded.items()
        )
        raise StatisticsError(
            f"no row has both a score in {judge!r} and a label in "
            f"{' or '.join(map(repr, columns))} on the scale {scale[0]:g} to "
            f"{scale[1]:g} ({counted}). Check the columns and the scale. "
            f"{' '.join(told)}".rstrip()
        )
    if len(columns) > 1:
        out["between"] = {
            f"{a}|{b}": match(a, b) for a, b in combinations(sorted(columns), 2)
        }
    if len(columns) > 2:
        out["among"] = _all_together([read[c] for c in columns], scale, confidence)
        if out["among"] is None:
            warnings.append(
                "among is undefined: it needs whole labels on the scale, and a row "
                "with two of them."
            )
    out["excluded"] = excluded
    out["scale"] = [_whole(scale[0]), _whole(scale[1])]
    out["confidence"] = confidence
    out["warnings"] = warnings
    return out


def _all_together(
    columns: Sequence[pl.Series], scale: tuple[float, float], confidence: float
) -> dict[str, Any] | None:
    """Three and more label columns as one group; None without whole labels."""
    table = np.column_stack([c.to_numpy() for c in columns])
    levels = np.arange(scale[0], scale[1] + 1)
    counts = (table[:, :, None] == levels).sum(1).astype(float)
    shared = counts[counts.sum(1) >= 2]
    if not len(shared) or counts.sum() < (~np.isnan(table)).sum():
        return None
    found = among(counts, scale, confidence=confidence)
    names = ("krippendorff_alpha", "weighted_kappa", "gwet_ac2", "exact")
    out: dict[str, Any] = {"n": len(shared)}
    out.update({n: e.to_dict() for n, e in zip(names, found, strict=True)})
    return out


def _complete(a: pl.Series, b: pl.Series) -> bool:
    return bool((a.is_not_null() & b.is_not_null()).any())


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _nothing() -> dict[str, Any]:
    out: dict[str, Any] = {"n": 0}
    out.update({name: {"estimate": None, "ci": None} for name in MEASURES})
    out["confusion"] = None
    return out


def _need(frame: pl.DataFrame, column: str) -> None:
    if column not in frame.columns:
        raise TableError(
            f"the table has no column {column!r}; it has {', '.join(frame.columns)}."
            f"{did_you_mean(column, frame.columns)} Name the judge's column with "
            "--judge and the columns of labels (of this table, not a file) with "
            "--labels."
        )


def _label_columns(
    frame: pl.DataFrame, judge: str, labels: Sequence[str] | None
) -> list[str]:
    _need(frame, judge)
    if labels is None:
        found = [c for c in frame.columns if c.startswith("label_") and c != judge]
        if not found:
            raise TableError(
                "no column is called label_...; name the label columns (--labels). "
                f"The table has {', '.join(frame.columns)}."
            )
        return found
    out = list(dict.fromkeys(labels))
    for column in out:
        _need(frame, column)
    if taken := [c for c in out if c in _OWN_KEYS]:
        raise TableError(
            f"the label column {taken[0]!r} has a name that the result needs for "
            f"itself (so have {', '.join(c for c in _OWN_KEYS if c != taken[0])}). "
            f"Rename the column, for example to 'label_{taken[0]}'."
        )
    if not out or judge in out:
        raise TableError(
            "name at least one label column, and not the judge's own "
            f"({judge!r}) among them."
        )
    return out

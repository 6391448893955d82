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
from reply_resolution.tables.scores import explain_score

#: Why a cell was not used.
_REASONS = ("missing", "not_a_score", "out_of_range")


def agreement_table(
    frame: pl.DataFrame,
    *,
    judge: str = "score",
    labels: Sequence[str] | None = None,
    scale: tuple[float, float] = (1, 5),
    confidence: float = 0.95,
    cluster: str | None = None,
    seed: int = 0,
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

    Returns:
        One key per label column, `between` when there are two or more (keyed
        "label_a|label_b", names sorted; there the second column takes the judge's
        place, so bias is second minus first), `among` for three and more (all
        together: alpha, pooled kappa and AC2 of any number of labels per row),
        `excluded` ({column: {reason: cells}}), `scale`, `confidence` and `warnings`.
        Nothing in it is NaN; undefined is None.

    Raises:
        TableError: A column is missing.
        StatisticsError: No row has both a score and a label.
    """
    columns = _label_columns(frame, judge, labels)
    frame, warnings = _first_votes(frame)
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
        read[column], excluded[column], notes = read_column(frame[column], scale=scale)
        warnings.extend(notes)

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
            f"{c}: {', '.join(f'{n} {r}' for r, n in why.items() if n) or 'all read'}"
            for c, why in excluded.items()
        )
        raise StatisticsError(
            f"no row has both a score in {judge!r} and a label in "
            f"{' or '.join(map(repr, columns))} on the scale {scale[0]:g} to "
            f"{scale[1]:g} ({counted}). Check the columns and the scale."
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
    out["excluded"] = {
        column: {reason: n for reason, n in why.items() if n}
        for column, why in excluded.items()
    }
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
    if not out or judge in out:
        raise TableError(
            "name at least one label column, and not the judge's own "
            f"({judge!r}) among them."
        )
    return out


def _first_votes(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """One row per reply: of several votes the first, said in a sentence."""
    keys = [k for k in ("request_id", "arm", "kind") if k in frame.columns]
    if "vote" not in frame.columns or "request_id" not in keys:
        return frame, []
    kept = frame.sort("vote", maintain_order=True, nulls_last=True).unique(
        keys, keep="first", maintain_order=True
    )
    dropped = len(frame) - len(kept)
    if not dropped:
        return frame, []
    return kept, [f"{dropped} rows are further votes for a reply: the first is used."]


def read_column(
    values: pl.Series, *, scale: tuple[float, float] = (1, 5)
) -> tuple[pl.Series, dict[str, int], list[str]]:
    """A column of scores or real numbers, with what was not used counted.

    Args:
        values: The column as it stands in the table.
        scale: Lowest and highest score.

    Returns:
        Float64 with null where there is no number; cells not used by reason
        ("missing", "not_a_score", "out_of_range"); sentences for the reader.
    """
    if values.dtype == pl.Boolean:
        raise TableError(
            f"column {values.name!r} holds true and false; agreement needs scores."
        )
    numbers, reasons = _numbers(values, scale)
    low, high = scale
    array = numbers.to_numpy()
    seen = array[~np.isnan(array)]
    broken = seen[seen != np.floor(seen)]
    notes = []
    if len(broken):
        notes.append(
            f"{values.name}: {len(broken)} of {len(seen)} values are not whole (first: "
            f"{broken[0]:g}); it is taken as real-valued."
        )
    if len(broken) and ((broken < low) | (broken > high)).any():
        notes.append(
            f"{values.name}: values run from {seen.min():g} to {seen.max():g}, not "
            f"{low:g} to {high:g}: only ranks can be compared."
        )
    else:
        off = (array < low) | (array > high)
        reasons = np.where(off, "out_of_range", reasons)
        array = np.where(off, np.nan, array)
    counts = {reason: int((reasons == reason).sum()) for reason in _REASONS}
    bad = counts["not_a_score"] + counts["out_of_range"]
    if bad:
        cells = values.filter(
            pl.Series(np.isin(reasons, ("not_a_score", "out_of_range")))
        )
        notes.append(
            f"{values.name}: {bad} cells are no scores from {low:g} to {high:g} and "
            f"were left out (first: {cells[0]!r})."
        )
    return pl.Series(values.name, array).fill_nan(None), counts, notes


def _numbers(
    values: pl.Series, scale: tuple[float, float]
) -> tuple[pl.Series, np.ndarray[Any, np.dtype[Any]]]:
    """Float64 with NaN where there is no number, and the reason per cell."""
    if values.dtype.is_numeric() or values.dtype == pl.Null:
        numbers = values.cast(pl.Float64).fill_null(float("nan"))
        infinite = numbers.is_infinite().to_numpy()
        array = np.where(infinite, np.nan, numbers.to_numpy())
        reasons = np.where(np.isnan(array), "missing", "")
        return pl.Series(array), np.where(infinite, "not_a_score", reasons)
    text = values.cast(pl.String)
    low, high = scale
    whole = low == int(low) and high == int(high) and -128 <= low < high <= 127
    known: dict[str | None, tuple[float, str]] = {}
    for cell in text.unique():
        score, why = (
            explain_score(cell, scale=(int(low), int(high)))
            if whole
            else (None, "not_a_score" if (cell or "").strip() else "missing")
        )
        known[cell] = (float("nan") if score is None else float(score), why or "")
        if why in ("not_a_score", "out_of_range"):
            known[cell] = _real(cell or "", why)
    pairs = [known[cell] for cell in text]
    return pl.Series([p[0] for p in pairs], dtype=pl.Float64), np.array(
        [p[1] for p in pairs], dtype="<U12"
    )


def _real(cell: str, why: str) -> tuple[float, str]:
    """A number that is no whole score of the scale, such as 3.5 or 0.83."""
    plain = cell.strip()
    if not plain or not set(plain) <= set("0123456789.+-eE"):
        return float("nan"), why
    try:
        value = float(plain)
    except ValueError:
        return float("nan"), why
    return (value, "") if np.isfinite(value) else (float("nan"), why)

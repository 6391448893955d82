"""Tables of labels: long or wide, numbers or words, several people, repeats."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
import hashlib
from pathlib import Path
from typing import Literal

import polars as pl

from reply_resolution.duplicates import drop_duplicates
from reply_resolution.errors import LabelError, TableError
from reply_resolution.label_files import LABEL_SCHEMA, labels_of_events, read_events
from reply_resolution.label_words import odd_spellings, read_words
from reply_resolution.scores import parse_scores
from reply_resolution.tables import Table, find_column, listed, read_table, rename
from reply_resolution.textfiles import near_equal

_PREFIX = "label_"


def read_labels(
    source: str | Path | pl.DataFrame,
    *,
    columns: Mapping[str, str] | None = None,
    scale: tuple[int, int] = (1, 5),
    label_map: Mapping[str, int | None] | None = None,
    annotators: Sequence[str] | Mapping[str, str] | None = None,
    on_bad_label: Literal["stop", "skip"] = "stop",
) -> Table:
    """Read and check a table of labels, long or wide, into long form.

    Args:
        source: A file or frame. Long: `request_id`, `annotator`, `label`, perhaps
            `arm`, `repeat`, `weight`, `metric_version`. Wide: one row per reply and
            one column per annotator, called `label_<annotator>` or named by
            `annotators`. A file written by `LabelSession` is read too.
        columns: Our name -> the table's name, e.g. `{"request_id": "item"}`.
        scale: Lowest and highest label.
        label_map: Word -> label (None: cannot judge), e.g. `{"Resolved": 5}`; blanks
            around a word and its case are forgiven.
        annotators: Columns of a wide table that hold labels, or annotator -> column.
        on_bad_label: A cell that is neither a label nor "nothing" stops the reading,
            or is left out and listed ("skip"). A number outside the scale is always
            left out and listed.

    Returns:
        The table with the columns of `LABEL_SCHEMA`, sorted as the source is.

    Raises:
        LabelError: A label that is not known, or two labels by one person for one
            reply that are not marked as repeats; with the rows.
        TableError: The table has no ids or no labels.
    """
    table = _session(source) or read_table(source, columns=columns)
    table = _named(table)
    long = annotators is None and "label" in table.frame.columns
    table = _long(table) if long else _wide(table, annotators)
    table = _labels(table, scale, label_map or {}, on_bad_label)
    frame = table.frame
    frame = frame.with_columns(
        *(
            pl.lit(None, dtype=kind).alias(c)
            for c, kind in LABEL_SCHEMA.items()
            if c not in frame.columns
        )
    )
    for name in ("repeat", "weight"):
        try:
            number = pl.col(name).cast(pl.Float64).cast(LABEL_SCHEMA[name])
            if frame.schema[name] == pl.String:
                cell = pl.col(name).str.strip_chars()
                number = pl.when(cell != "").then(cell).cast(LABEL_SCHEMA[name])
            frame = frame.with_columns(number.alias(name))
        except pl.exceptions.PolarsError as error:
            raise TableError(
                f"{table.source}: column {name!r} must hold numbers: {error}."
            ) from error
    frame = frame.with_columns(
        pl.col("repeat").fill_null(0),
        pl.col("weight").fill_null(1.0),
        *(
            pl.when(pl.col(c).cast(pl.String) != "").then(pl.col(c).cast(pl.String))
            for c in ("arm", "metric_version")
        ),
    ).select("__row__", *LABEL_SCHEMA)
    key = ["request_id", "arm", "annotator", "repeat"]
    try:
        table = drop_duplicates(table.add(frame=frame), key, what="labels")
    except TableError as error:
        raise LabelError(
            f"{error} A second label by the same person must have a `repeat` of 1 or "
            "more."
        ) from error
    nothing = int(table.frame["label"].null_count())
    notes = [f"Labels without a number (missing or cannot judge): {nothing}."]
    return table.add(frame=table.frame.drop("__row__"), notes=notes if nothing else [])


def join_labels(
    replies: pl.DataFrame, labels: pl.DataFrame
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The replies with one column `label_<annotator>` per person beside them.

    Only `repeat` 0 is used. Matched by `request_id` and `arm`, or by `request_id`
    where one of the tables has no arms.

    Args:
        replies: One row per reply.
        labels: Long form, as from `read_labels`.

    Returns:
        The replies in their order with the labels (null where there is none), and
        notes that count the labels whose reply is not in the table.

    Raises:
        LabelError: The labels have no arm where a request has several.
    """
    first = (
        labels.filter(pl.col("repeat") == 0) if "repeat" in labels.columns else labels
    )
    armed = [
        "arm" in f.columns and f["arm"].null_count() < f.height
        for f in (replies, first)
    ]
    key = ["request_id", "arm"] if all(armed) else ["request_id"]
    if armed[0] and not armed[1] and replies["request_id"].is_duplicated().any():
        raise LabelError(
            "the replies have one request_id in several arms, and the labels have no "
            "arm: which is whose cannot be told. Give the labels their arm."
        )
    wide = first.with_columns((_PREFIX + pl.col("annotator")).alias("annotator")).pivot(
        "annotator", index=key, values="label", aggregate_function="first"
    )
    own = [c for c in wide.columns if c not in key]
    kept = replies.drop([c for c in own if c in replies.columns])
    joined = kept.join(
        wide, on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    lost = first.join(replies, on=key, how="anti", nulls_equal=True)
    if lost.is_empty():
        return joined, ()
    ids = lost["request_id"].unique(maintain_order=True)
    return joined, (
        f"Labels of replies that are not in the table, not used: {lost.height} "
        f"({listed(ids, 5)}).",
    )


def check_label_version(labels: pl.DataFrame, metric_version: str | None) -> None:
    """Refuse labels that were made under another rubric than the verdicts.

    Labels without a recorded version pass, and a bare hash is the version that ends
    in its first digits.

    Raises:
        LabelError: Another version, with how many labels.
    """
    if metric_version is None or "metric_version" not in labels.columns:
        return
    versions = labels["metric_version"].drop_nulls().unique()
    others = [v for v in versions if not _same_version(v, metric_version)]
    other = labels.filter(pl.col("metric_version").is_in(others))
    if not other.is_empty():
        names = other["metric_version"].unique(maintain_order=True)
        raise LabelError(
            f"{other.height} labels were made under {listed(names, 3)}, the verdicts "
            f"under {metric_version!r}. Compare within one version, or label again "
            "under the new wording."
        )


def _same_version(a: str, b: str) -> bool:
    """Whether `name@v1:3f9c1a7b` and another label, or a rubric's hash, are one."""
    short, long = sorted((a.rpartition(":")[2], b.rpartition(":")[2]), key=len)
    return a == b or (len(short) >= 8 and long.startswith(short))


def _session(source: str | Path | pl.DataFrame) -> Table | None:
    """The labels of a file that `LabelSession` wrote; None if it is another file."""
    if not isinstance(source, str | Path) or not Path(source).is_file():
        return None
    data = Path(source).read_bytes()
    if not data.startswith(b'{"event": '):
        return None
    events, cut = read_events(source)
    notes = [f"Ignored as cut short: {cut} line(s)."] if cut else []
    table = read_table(labels_of_events(events))
    return replace(
        table,
        source=Path(source).name,
        sha256=hashlib.sha256(data).hexdigest(),
        notes=tuple(notes),
    )


def _named(table: Table) -> Table:
    for ours in LABEL_SCHEMA:
        found = find_column(table.frame.columns, ours)
        if found not in (None, ours):
            table = rename(table, {ours: str(found)})
    names = table.frame.columns
    if "request_id" not in names:
        raise TableError(
            f"{table.source}: no column 'request_id'. The columns are {listed(names)}. "
            'Say which is meant: columns={"request_id": "its name in the table"}.'
        )
    frame = table.frame.with_row_index("__row__", 1).with_columns(
        pl.col("request_id").cast(pl.String), pl.col("__row__").cast(pl.Int64)
    )
    if "arm" in names:
        frame = frame.with_columns(pl.col("arm").cast(pl.String))
    return table.add(frame=frame)


def _long(table: Table) -> Table:
    frame = table.frame
    if "annotator" in frame.columns:
        frame = frame.with_columns(
            pl.col("annotator").cast(pl.String).fill_null("").str.strip_chars()
        )
        unnamed = frame.filter(pl.col("annotator") == "")
        if not unnamed.is_empty():
            raise LabelError(
                f"{table.source}: {unnamed.height} label(s) without an annotator, "
                f"first in row {unnamed['__row__'][0]}. Name who gave them."
            )
        names = frame["annotator"].unique(maintain_order=True).to_list()
        return table.add(frame=frame, notes=_alike(names))
    frame = frame.with_columns(pl.lit("label").alias("annotator"))
    return table.add(
        frame=frame,
        notes=["There is no annotator column: all labels count as one person's."],
    )


def _alike(names: Sequence[str]) -> list[str]:
    return [
        f"Look: annotators with nearly the same name ({listed(group)}) are kept apart."
        for group in near_equal(names).values()
    ]


def _wide(table: Table, annotators: Sequence[str] | Mapping[str, str] | None) -> Table:
    frame = table.frame
    if annotators is None:
        chosen = {
            c.strip()[len(_PREFIX) :]: c
            for c in frame.columns
            if c.strip().lower().startswith(_PREFIX)
        }
    elif isinstance(annotators, Mapping):
        chosen = dict(annotators)
    else:
        chosen = {c.strip().removeprefix(_PREFIX): c for c in annotators}
    for name, column in chosen.items():
        found = find_column(frame.columns, column)
        if found is None:
            raise TableError(
                f"{table.source}: no column {column!r} of labels. The columns are "
                f"{listed(c for c in frame.columns if c != '__row__')}."
            )
        chosen[name] = found
    if not chosen:
        raise TableError(
            f"{table.source}: no labels found. Give columns request_id, annotator and "
            "label, or one column label_<annotator> per person, or name the columns: "
            'annotators=["Rater 1", "Rater 2"]. The columns are '
            f"{listed(c for c in frame.columns if c != '__row__')}."
        )
    base = [
        c for c in ("__row__", *LABEL_SCHEMA) if c in frame.columns and c != "label"
    ]
    base = [c for c in base if c not in chosen.values() and c != "annotator"]
    kinds = {frame.schema[c] for c in chosen.values()}
    parts = [
        frame.select(
            *base,
            pl.lit(name).alias("annotator"),
            (
                pl.col(column) if len(kinds) == 1 else pl.col(column).cast(pl.String)
            ).alias("label"),
        )
        for name, column in chosen.items()
    ]
    return table.add(
        frame=pl.concat(parts).sort("__row__", maintain_order=True),
        notes=_alike(list(chosen)),
    )


def _labels(
    table: Table,
    scale: tuple[int, int],
    label_map: Mapping[str, int | None],
    on_bad_label: str,
) -> Table:
    frame = table.frame
    given = frame["label"]
    if given.dtype == pl.String:
        labels, reasons = read_words(given, scale, label_map)
    else:
        labels, reasons = parse_scores(given, scale=scale)
    out = frame.with_columns(labels.alias("label"), reasons.alias("__why__"))
    shown = given.cast(pl.String, strict=False).alias("__given__")
    wrong = out.with_columns(shown).filter(
        pl.col("__why__").is_in(["not_a_score", "out_of_range"])
    )
    unread = wrong.filter(pl.col("__why__") == "not_a_score")
    low, high = scale
    if not unread.is_empty() and on_bad_label == "stop":
        rows = unread.group_by("__given__", maintain_order=True).agg("__row__")
        shown_rows = "; ".join(
            f"{value!r} in row {listed(numbers, 5)}"
            for value, numbers in rows.head(5).rows()
        )
        raise LabelError(
            f"{table.source}: {unread.height} label(s) are neither a whole number "
            f"{low} to {high} nor mapped: {shown_rows}. Say what they mean: "
            f'label_map={{"Resolved": {high}}} (None: cannot judge), correct the '
            'table, or leave them out by on_bad_label="skip".'
        )
    notes = []
    if not wrong.is_empty():
        counts = wrong.group_by("__given__", maintain_order=True).len().rows()
        cells = ", ".join(f"{value!r} ({rows})" for value, rows in counts[:8])
        notes.append(
            f"Labels that are not on the scale {low} to {high}, not used: "
            f"{wrong.height}: {cells}."
        )
    return table.add(
        frame=out.drop("__why__"),
        notes=[*notes, *odd_spellings(given, labels, label_map)],
        problems=[
            {
                "row": row,
                "request_id": rid,
                "column": "label",
                "value": value,
                "reason": why,
            }
            for row, rid, value, why in wrong.select(
                "__row__", "request_id", "__given__", "__why__"
            ).rows()
        ],
    )

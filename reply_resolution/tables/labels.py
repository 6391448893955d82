"""Tables of labels: long or wide, numbers or words, several people, repeats."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
import hashlib
from pathlib import Path
import re
from typing import Literal

import polars as pl

from reply_resolution.errors import LabelError, TableError
from reply_resolution.labeling.files import LABEL_SCHEMA, labels_of_events, read_events
from reply_resolution.tables.files import ROW
from reply_resolution.tables.scores import NOT_A_SCORE, explain_score, read_scores
from reply_resolution.tables.tables import (
    Table,
    drop_duplicates,
    find_column,
    listed,
    matching_key,
    read_numbered,
    recognise,
    with_schema,
)

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
    table = _session(source) or read_numbered(source, columns=columns)
    table = recognise(table, LABEL_SCHEMA, required=["request_id"])
    if annotators is None and "label" in table.columns:
        table = _long(table)
    else:
        table = _wide(table, annotators)
    words = _words(label_map or {}, scale)
    table = read_scores(table, "label", what="Labels", scale=scale, words=words)
    if on_bad_label == "stop":
        _refuse_unread(table, scale)
    table = with_schema(table, LABEL_SCHEMA)
    frame = table.frame.with_columns(
        pl.col("repeat").fill_null(0), pl.col("weight").fill_null(1.0)
    )
    table = table.add(frame=frame.select(*LABEL_SCHEMA, ROW))
    key = ["request_id", "arm", "annotator", "repeat"]
    try:
        table = drop_duplicates(table, key, what="labels")
    except TableError as error:
        raise LabelError(
            f"{error} A second label by the same person must have a `repeat` of 1 or "
            "more."
        ) from error
    nothing = int(table.frame["label"].null_count())
    notes = [f"Labels without a number (missing or cannot judge): {nothing}."]
    return table.add(frame=table.frame.drop(ROW), notes=notes if nothing else [])


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
        The replies in their order with the labels (null where there is none) by name
        of the person, and notes that count the labels whose reply is not in the table.

    Raises:
        TableError: The labels have no arm where a request has several.
    """
    if "repeat" in labels.columns:
        labels = labels.filter(pl.col("repeat") == 0)
    key = matching_key(replies, labels, what="labels")
    wide = labels.with_columns(annotator=_PREFIX + pl.col("annotator")).pivot(
        "annotator", index=key, values="label", aggregate_function="first"
    )
    own = sorted(c for c in wide.columns if c not in key)
    wide = wide.select(*key, *own)
    joined = replies.drop(own, strict=False).join(
        wide, on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    lost = labels.join(replies, on=key, how="anti", nulls_equal=True)
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
    table = read_numbered(labels_of_events(events))
    notes = [f"Ignored as cut short: {cut} line(s)."] if cut else []
    digest = hashlib.sha256(data).hexdigest()
    return replace(table.add(notes=notes), source=Path(source).name, sha256=digest)


def _long(table: Table) -> Table:
    if "annotator" not in table.columns:
        return table.add(
            frame=table.frame.with_columns(annotator=pl.lit("label")),
            notes=["There is no annotator column: all labels count as one person's."],
        )
    name = pl.col("annotator").cast(pl.String).fill_null("").str.strip_chars()
    frame = table.frame.with_columns(name)
    unnamed = frame.filter(pl.col("annotator") == "")
    if not unnamed.is_empty():
        raise LabelError(
            f"{table.source}: {unnamed.height} label(s) without an annotator, first in "
            f"row {unnamed[ROW][0]}. Name who gave them."
        )
    people = frame["annotator"].unique(maintain_order=True).to_list()
    return table.add(frame=frame, notes=_alike(people))


def _wide(table: Table, annotators: Sequence[str] | Mapping[str, str] | None) -> Table:
    if annotators is None:
        named = [c for c in table.columns if c.strip().lower().startswith(_PREFIX)]
        chosen = {c.strip()[len(_PREFIX) :]: c for c in named}
    elif isinstance(annotators, Mapping):
        chosen = dict(annotators)
    else:
        chosen = {c.strip().removeprefix(_PREFIX): c for c in annotators}
    for name, column in chosen.items():
        found = find_column(table.columns, column)
        if found is None:
            raise TableError(
                f"{table.source}: no column {column!r} of labels. The columns are "
                f"{listed(table.columns)}."
            )
        chosen[name] = found
    if not chosen:
        raise TableError(
            f"{table.source}: no labels found. Give columns request_id, annotator and "
            "label, or one column label_<annotator> per person, or name the columns: "
            'annotators=["Rater 1", "Rater 2"]. The columns are '
            f"{listed(table.columns)}."
        )
    used = {"annotator", "label", *chosen.values()}
    base = [c for c in (ROW, *LABEL_SCHEMA) if c in table.frame.columns]
    base = [c for c in base if c not in used]
    mixed = len({table.frame.schema[c] for c in chosen.values()}) > 1
    parts = [
        table.frame.select(
            *base,
            annotator=pl.lit(name),
            label=pl.col(column).cast(pl.String) if mixed else pl.col(column),
        )
        for name, column in chosen.items()
    ]
    return table.add(
        frame=pl.concat(parts).sort(ROW, maintain_order=True),
        notes=_alike(list(chosen)),
    )


def _alike(names: Sequence[str]) -> list[str]:
    """Notes about names that differ only in case, blanks, dashes or underscores."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"[\s_\-]+", "", name).casefold(), []).append(name)
    return [
        f"Look: annotators with nearly the same name ({listed(group)}) are kept apart."
        for group in groups.values()
        if len(group) > 1
    ]


def _words(
    label_map: Mapping[str, int | None], scale: tuple[int, int]
) -> dict[str, int | None]:
    """The map with blanks and case taken from its words; one meaning for each."""
    words: dict[str, int | None] = {}
    for word, value in label_map.items():
        key = word.strip().casefold()
        if words.get(key, value) != value:
            raise LabelError(
                f"label_map gives {word!r} two meanings ({words[key]} and {value}): "
                "blanks and case are not told apart. Keep one."
            )
        if value is not None and explain_score(value, scale=scale)[0] is None:
            raise LabelError(
                f"label_map maps {word!r} to {value!r}, which is not on the scale "
                f"{scale[0]} to {scale[1]}."
            )
        words[key] = value
    return words


def _refuse_unread(table: Table, scale: tuple[int, int]) -> None:
    """Stop at cells that are neither a number nor a word of the map."""
    unread = table.problems.filter(pl.col("reason") == NOT_A_SCORE)
    if not unread.is_empty():
        rows = unread.group_by("value", maintain_order=True).agg("row").head(5).rows()
        shown = "; ".join(f"{cell!r} in row {listed(n, 5)}" for cell, n in rows)
        raise LabelError(
            f"{table.source}: {unread.height} label(s) are neither a whole number "
            f"{scale[0]} to {scale[1]} nor mapped: {shown}. Say what they mean: "
            f'label_map={{"Resolved": {scale[1]}}} (None: cannot judge), correct the '
            'table, or leave them out by on_bad_label="skip".'
        )

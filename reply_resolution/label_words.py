"""Cells of labels in words and odd spellings, to numbers."""

from collections.abc import Mapping

import polars as pl

from reply_resolution.errors import LabelError
from reply_resolution.scores import MISSING_WORDS, explain_score


def odd_spellings(
    given: pl.Series, labels: pl.Series, label_map: Mapping[str, int | None]
) -> list[str]:
    """A note that lists labels read from another spelling than a plain digit."""
    text = given.cast(pl.String, strict=False)
    words = {key.strip().casefold() for key in label_map}
    seen = (
        pl.DataFrame({"value": text, "label": labels})
        .drop_nulls()
        .filter(~pl.col("value").str.contains(r"^\d+$"))
        .group_by("value", "label", maintain_order=True)
        .len()
        .rows()
    )
    odd = [s for s in seen if s[0].strip().casefold() not in words]
    if not odd:
        return []
    shown = ", ".join(f"{v!r} as {n} ({rows})" for v, n, rows in odd[:8])
    return [f"Labels read from other spellings: {sum(s[2] for s in odd)}: {shown}."]


def read_words(
    given: pl.Series, scale: tuple[int, int], label_map: Mapping[str, int | None]
) -> tuple[pl.Series, pl.Series]:
    """Text cells as labels, by the map first and then as scores.

    Returns:
        The labels (Int8), and why not ("missing", "not_a_score", "out_of_range"; null
        where a label was read).

    Raises:
        LabelError: The map gives a word two meanings, or one that is not on the scale.
    """
    loose: dict[str, int | None] = {}
    for word, value in label_map.items():
        key = word.strip().casefold()
        if loose.get(key, value) != value:
            raise LabelError(
                f"label_map gives {word!r} two meanings ({loose[key]} and {value}): "
                "blanks and case are not told apart. Keep one."
            )
        if value is not None and explain_score(value, scale=scale)[0] is None:
            raise LabelError(
                f"label_map maps {word!r} to {value!r}, which is not on the scale "
                f"{scale[0]} to {scale[1]}."
            )
        loose[key] = value
    distinct = given.unique()
    labels: list[int | None] = []
    reasons: list[str | None] = []
    for cell in distinct:
        key = "" if cell is None else cell.strip().casefold()
        if key in loose:
            labels.append(loose[key])
            reasons.append("missing" if loose[key] is None else None)
        elif key in MISSING_WORDS:
            labels.append(None)
            reasons.append("missing")
        else:
            label, reason = explain_score(cell, scale=scale)
            labels.append(label)
            reasons.append(reason)
    return (
        given.replace_strict(
            distinct, pl.Series(labels, dtype=pl.Int8), return_dtype=pl.Int8
        ),
        given.replace_strict(
            distinct, pl.Series(reasons, dtype=pl.String), return_dtype=pl.String
        ),
    )

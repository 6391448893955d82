"""Spellings that a reader should know of: of arms, ids, columns and scores."""

from collections import defaultdict
from collections.abc import Sequence

import polars as pl

from reply_resolution.stats.counts import names_of, plural
from reply_resolution.tables.scores import NOT_A_SCORE, OUT_OF_RANGE, list_cells


def warn_spellings(arms: tuple[str, ...], warnings: list[str]) -> None:
    """Say which arms look like one."""
    alike = defaultdict(list)
    for arm in arms:
        alike["".join(arm.split()).casefold()].append(arm)
    warnings.extend(
        f"The arms {names_of(same)} differ only in case or blanks and were kept apart; "
        "correct the table if they are one arm."
        for same in alike.values()
        if len(same) > 1
    )


def list_spellings(grouped: pl.DataFrame, warnings: list[str]) -> None:
    """A cell such as "4/5" is read as 4; a reader should know how often, and which."""
    if grouped.schema["score"] != pl.String:
        return
    odd = grouped.filter(
        pl.col("level").is_not_null()
        & ~pl.col("score").str.strip_chars().str.contains(r"^[0-9]+$")
    )
    if not odd.is_empty():
        warnings.append(
            "Scores read from other spellings than a plain digit: "
            f"{odd.get_column('rows').sum()} rows: "
            f"{list_cells(odd.select('rows', value='score'))}."
        )


def list_unread(
    grouped: pl.DataFrame, name: str, scale: tuple[int, int], warnings: list[str]
) -> None:
    """What stood where no score was read: a reader may know what it means."""
    unread = grouped.filter(pl.col("outcome").is_in([NOT_A_SCORE, OUT_OF_RANGE]))
    if unread.is_empty():
        return
    kind = unread.schema["score"]
    value = pl.col("score") if kind.is_numeric() else pl.col("score").cast(pl.String)
    warnings.append(
        f"Cells of column {name!r} that are no scores from {scale[0]} to {scale[1]}, "
        f"not used: {plural(int(unread['rows'].sum()), 'row')}: "
        f"{list_cells(unread.select('rows', value=value))}."
    )


def warn_columns(columns: Sequence[str]) -> list[str]:
    """Say which columns have nearly the same name."""
    alike = defaultdict(list)
    for name in columns:
        alike["".join(c for c in name if c.isalnum()).casefold()].append(name)
    return [
        f"The columns {names_of(same)} have nearly the same name and were taken as "
        "different raters; if they are one, keep one of them."
        for same in alike.values()
        if len(same) > 1
    ]


def warn_ids(unpaired: pl.Series, name: str, warnings: list[str]) -> None:
    """Say which ids without a partner are nearly another's."""
    from reply_resolution.tables.replies import near_ids

    groups, shown = near_ids(unpaired)
    if groups:
        warnings.append(
            f"In column {name!r}, {plural(groups, 'group')} of ids without a partner "
            f"differ only in blanks, case or zeros ({shown}); they were kept apart and "
            "not paired. If they are one request, write its id in one way."
        )

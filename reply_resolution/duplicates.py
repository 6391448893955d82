"""Rows that repeat each other, and ids that nearly do."""

from collections.abc import Sequence

import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.tables import Table

#: A helper column: the row's number in the source, from 1.
ROW = "__row__"


def drop_duplicates(table: Table, key: Sequence[str], *, what: str) -> Table:
    """Drop rows that repeat another in every cell; refuse two rows with one key.

    Cells are compared in one Unicode form (NFC); the row kept is the first.

    Raises:
        TableError: Rows with the same key that differ, with their numbers.
    """
    frame = table.frame
    if frame.select(pl.struct(key).n_unique()).item() == frame.height:
        return table
    numbered = frame if ROW in frame.columns else frame.with_row_index(ROW, 1)
    plain = numbered.with_columns(
        pl.col(name).str.normalize("NFC")
        for name, kind in frame.schema.items()
        if kind == pl.String and name not in key
    )
    cells = [c for c in frame.columns if c != ROW]
    first = plain.unique(cells, keep="first", maintain_order=True)
    clash = first.filter(pl.struct(key).is_duplicated())
    if not clash.is_empty():
        groups = clash.group_by(key, maintain_order=True).agg(pl.col(ROW))
        shown = "; ".join(
            f"{', '.join(repr(k) for k in values if k is not None)} in rows "
            f"{', '.join(map(str, rows))}"
            for *values, rows in groups.head(5).rows()
        )
        more = f"; and {groups.height - 5} more" if groups.height > 5 else ""
        raise TableError(
            f"{table.source}: {groups.height} key(s) have {what} that differ. The key "
            f"is ({', '.join(key)}): {shown}{more}. Keep one row of each, or give them "
            "ids of their own."
        )
    dropped = frame.height - first.height
    kept = numbered.filter(pl.col(ROW).is_in(first[ROW].implode()))
    kept = kept if ROW in frame.columns else kept.drop(ROW)
    gone = numbered.filter(~pl.col(ROW).is_in(first[ROW].implode()))
    return table.add(
        frame=kept,
        notes=[f"Dropped as exact duplicates: {dropped} row(s)."],
        problems=[
            {"row": row, "request_id": rid, "reason": "duplicate"}
            for row, rid in gone.select(ROW, "request_id").rows()
        ],
    )


def near_ids(frame: pl.DataFrame) -> list[str]:
    """A note about ids that differ only in blanks, case, accents' form or zeros."""
    ids = frame.select(pl.col("request_id").unique(maintain_order=True))
    one_form = pl.col("request_id")
    if ids.select((one_form.str.len_bytes() != one_form.str.len_chars()).any()).item():
        one_form = one_form.str.normalize("NFC")  # slow, and only accents need it
    near = (
        ids.with_columns(
            one_form.str.strip_chars()
            .str.to_lowercase()
            .str.replace(r"^0*(\d+)(\.0+)?$", "$1")
            .alias("near")
        )
        .filter(
            # only two ids of which one is not already in the plain form are near
            pl.col("near").is_in(
                pl.col("near").filter(pl.col("near") != pl.col("request_id")).implode()
            )
        )
        .filter(pl.col("near").is_duplicated())
        .group_by("near", maintain_order=True)
        .agg("request_id")
    )
    if near.is_empty():
        return []
    shown = "; ".join(" and ".join(map(repr, g)) for g in near["request_id"].head(5))
    return [
        f"Look: {near.height} group(s) of ids are nearly the same ({shown}"
        f"{'; …' if near.height > 5 else ''}). They are kept as different requests."
    ]

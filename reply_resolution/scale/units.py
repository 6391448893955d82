"""Pairs and users by what they hold, grouped where the table lives.

Only the distinct types come home; `reply_resolution.stats.unit_types` does the same
for a frame in memory.
"""

import numpy as np
import polars as pl

from reply_resolution.scale.source import Lazy, Source
from reply_resolution.stats.arrays import Ints
from reply_resolution.stats.counts import UnitCounts
from reply_resolution.stats.unit_types import refuse_torn


def pair_types(source: Source, arms: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Requests by their level in every arm, and how many are alike.

    Args:
        source: `id`, `arm` and `level` (0 to K - 1) of every usable row.
        arms: Names in order.
    """
    if not arms:
        return np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
    lib = source.lib
    used, names = _levels(source, arms)

    def types(part: Lazy) -> Lazy:
        pairs = part.group_by("id").agg(lib.col(*names).max())
        return pairs.group_by(names).agg(lib.len().alias("n"))

    home = _added_up(source.by_key(used, "id", types), names)
    return home.select(names).to_numpy(), home["n"].to_numpy()


def pair_units(source: Source, arms: tuple[str, ...], width: int) -> UnitCounts:
    """Users of pairs, by their pairs' levels in every two arms."""
    lib, n = source.lib, len(arms)
    if n < 2:
        return _no_units(n, n, width, width)
    used, names = _levels(source, arms)
    whose = lib.col("cluster")
    whose = whose.sort_by("row").first() if source.ordered else whose.min()
    pairs = source.staged(
        used, "id", lambda part: part.group_by("id").agg(whose, lib.col(*names).max())
    )
    places = [
        (i, j, a, b)
        for i in range(n)
        for j in range(i + 1, n)
        for a in range(width)
        for b in range(width)
    ]
    flat = [f"c{k}" for k in range(len(places))]
    cells = {
        c: (lib.col(names[i]) == a + 1) & (lib.col(names[j]) == b + 1)
        for c, (i, j, a, b) in zip(flat, places, strict=True)
    }
    home = _users(source, pairs, cells, [])
    home = home.filter(pl.sum_horizontal(flat) > 0)
    vectors = np.zeros((home.height, n, n, width, width), dtype=np.int64)
    for name, (i, j, a, b) in zip(flat, places, strict=True):
        vectors[:, i, j, a, b] = home[name].to_numpy()
    return UnitCounts(
        vectors=vectors,
        number=home["n"].to_numpy(),
        stratum=np.zeros(home.height, dtype=np.int64),
    )


def unit_types(
    source: Source,
    arms: tuple[str, ...],
    width: int,
    strata: tuple[str, ...],
    cluster: str,
    stratum: str | None,
) -> UnitCounts:
    """Users by their replies in each arm and level.

    Raises:
        StatisticsError: Users change their stratum.
    """
    lib, used = source.lib, source.lazy
    if not arms:
        return _no_units(0, width)
    if stratum:
        name = lib.col("stratum")

        def torn(part: Lazy) -> Lazy:
            per = part.group_by("cluster").agg(
                name.min().alias("low"), name.max().alias("high")
            )
            per = per.filter(lib.col("low") != lib.col("high"))
            return per.select(lib.len().alias("n"))

        refuse_torn(source.total(used, "cluster", torn), cluster, stratum)
    places = [(arm, k) for arm in arms for k in range(width)]
    cells = {
        f"c{i}": (lib.col("arm") == arm) & (lib.col("level") == k)
        for i, (arm, k) in enumerate(places)
    }
    home = _users(source, used, cells, ["stratum"])
    vectors = home.select(list(cells)).to_numpy().reshape(home.height, len(arms), width)
    place = [strata.index(name) for name in home["stratum"]]
    return UnitCounts(
        vectors=vectors,
        number=home["n"].to_numpy(),
        stratum=np.array(place, dtype=np.int64),
    )


def _no_units(*shape: int) -> UnitCounts:
    none = np.zeros(0, np.int64)
    return UnitCounts(np.zeros((0, *shape), np.int64), none, none)


def _levels(source: Source, arms: tuple[str, ...]) -> tuple[Lazy, list[str]]:
    """A column per arm: the level as 1 to K, 0 in rows of other arms."""
    lib = source.lib
    level = lib.col("level") + 1
    columns = {
        f"a{i}": lib.when(lib.col("arm") == arm).then(level).otherwise(lib.lit(0))
        for i, arm in enumerate(arms)
    }
    return source.lazy.with_columns(**columns), list(columns)


def _users(
    source: Source, rows: Lazy, cells: dict[str, Lazy], more: list[str]
) -> pl.DataFrame:
    """Users by how often each condition holds in their rows: types, and their `n`."""
    lib, columns = source.lib, [*more, *cells]
    marked = rows.with_columns(**{c: x.cast(lib.Int64) for c, x in cells.items()})

    def types(part: Lazy) -> Lazy:
        users = part.group_by("cluster").agg(
            *(lib.col(c).min() for c in more), *(lib.col(c).sum() for c in cells)
        )
        return users.group_by(columns).agg(lib.len().alias("n"))

    return _added_up(source.by_key(marked, "cluster", types), columns)


def _added_up(home: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Equal types of all passes as one, in order."""
    whole = [c for c in (*columns, "n") if home.schema[c] != pl.String]
    home = home.with_columns(pl.col(whole).cast(pl.Int64))
    return home.group_by(columns).agg(pl.col("n").sum()).sort(columns)

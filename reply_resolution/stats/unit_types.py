"""Pairs and users pooled by what they hold: the second pass of `count_scores`."""

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Ints
from reply_resolution.stats.counts import UnitCounts, plural


def pair_types(used: pl.DataFrame, arms: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Requests by their level in every arm, and how many are alike."""
    if not arms:
        return np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
    columns = [f"a{i}" for i in range(len(arms))]
    types = (
        used.group_by("pair")
        .agg(_level_in(i).alias(c) for i, c in enumerate(columns))
        .group_by(columns)
        .agg(pl.len().alias("n"))
        .sort(columns)
    )
    return (
        types.select(columns).to_numpy().astype(np.int64).reshape(-1, len(arms)),
        types.get_column("n").to_numpy().astype(np.int64),
    )


def _level_in(arm: int) -> pl.Expr:
    """The pair's level in an arm as 1 to K, 0 where it has none."""
    return pl.when(pl.col("arm") == arm).then(pl.col("level") + 1).max().fill_null(0)


def pair_units(used: pl.DataFrame, arms: tuple[str, ...], width: int) -> UnitCounts:
    """Users of pairs, by their pairs' levels in every two arms."""
    n = len(arms)
    columns = [f"a{i}" for i in range(n)]
    pairs = used.group_by("pair").agg(
        pl.col("cluster").first(),
        *(_level_in(i).alias(c) for i, c in enumerate(columns)),
    )
    cells: list[pl.Expr] = []
    places: list[tuple[int, int, int, int]] = []
    for i in range(n):
        for j in range(i + 1, n):
            for a in range(width):
                for b in range(width):
                    hit = (pl.col(f"a{i}") == a + 1) & (pl.col(f"a{j}") == b + 1)
                    cells.append(hit.sum().alias(f"c{len(cells)}"))
                    places.append((i, j, a, b))
    flat = [f"c{k}" for k in range(len(cells))]
    types = (
        pairs.group_by("cluster")
        .agg(cells)
        .group_by(flat)
        .agg(pl.len().alias("n"))
        .filter(pl.sum_horizontal(pl.lit(0), *flat) > 0)
        .sort(flat)
    )
    vectors = np.zeros((types.height, n, n, width, width), dtype=np.int64)
    for name, (i, j, a, b) in zip(flat, places, strict=True):
        vectors[:, i, j, a, b] = types.get_column(name).to_numpy()
    return UnitCounts(
        vectors=vectors,
        number=types.get_column("n").to_numpy().astype(np.int64),
        stratum=np.zeros(types.height, dtype=np.int64),
    )


def unit_types(
    used: pl.DataFrame,
    arms: tuple[str, ...],
    width: int,
    cluster: str,
    stratum: str | None,
) -> UnitCounts:
    """Users by their replies in each arm and level.

    One sort of numbers that hold the user's hash and, in the lowest bits, the cell; a
    group-by of 800,000 users takes many times as long.
    """
    cells = len(arms) * width
    place = pl.col("stratum").cast(pl.UInt64) * cells
    place = place + pl.col("arm") * width + pl.col("level")
    code = used.select(place.cast(pl.UInt64)).to_series().to_numpy()
    bits = np.uint64(int(code.max(initial=0)).bit_length())
    rows = (used.get_column("cluster").to_numpy() >> bits << bits) | code
    rows.sort()
    at = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))[: len(rows)]
    times = np.diff(np.append(at, len(rows)))  # replies of one user in one cell
    user, code = rows[at] >> bits, (rows[at] & ((1 << int(bits)) - 1)).astype(np.int64)
    first = np.flatnonzero(np.append(True, user[1:] != user[:-1]))[: len(user)]
    strata, cell = code[first] // cells, code % cells
    if stratum:
        last = np.append(first[1:], len(user))[: len(first)] - 1
        torn = int((code[last] // cells != strata).sum())
        refuse_torn(torn, cluster, stratum)
    sizes = np.zeros(cells + 1, dtype=np.int64)
    np.maximum.at(sizes, cell + 1, times)
    sizes[0] = strata.max(initial=0)
    sizes += 1
    if np.prod(sizes.astype(float)) < 2**62:  # a user fits into one number
        weight = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
        packed = strata * weight[0] + np.add.reduceat(times * weight[cell + 1], first)
        keys, number = np.unique(packed, return_counts=True)
        types = np.stack(np.unravel_index(keys, tuple(sizes)), axis=1)
    else:
        table = np.zeros((len(first), cells + 1), dtype=np.int64)
        table[:, 0] = strata
        whose = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(user))))
        table[whose, cell + 1] = times
        types, number = np.unique(table, axis=0, return_counts=True)
    return UnitCounts(
        vectors=types[:, 1:].astype(np.int64).reshape(len(types), len(arms), width),
        number=number.astype(np.int64),
        stratum=types[:, 0].astype(np.int64),
    )


def refuse_torn(torn: int, cluster: str, stratum: str) -> None:
    """Refuse units that are in several strata.

    Raises:
        StatisticsError: There are some.
    """
    if torn:
        raise StatisticsError(
            f"{plural(torn, 'unit')} of {cluster!r} are in several values of "
            f"{stratum!r}. A stratum must be a property of the unit that was "
            "randomised; stratify by one, or leave the stratum out."
        )

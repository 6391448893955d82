"""Pairs and users pooled by what they hold: the second pass of `count_scores`."""

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.counts import UnitCounts, plural
from reply_resolution.stats.saddlepoint import Ints


def pair_types(used: pl.DataFrame, arms: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Requests by their level in every arm, and how many are alike."""
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
        .filter(pl.sum_horizontal(flat) > 0)
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

    Sorted by user and added up in numpy: a group-by of 800,000 users takes 15 times as
    long.
    """
    users = used.get_column("cluster").to_numpy()
    order = np.argsort(users)
    users = users[order]
    starts = np.flatnonzero(np.append(True, users[1:] != users[:-1]))[: len(users)]
    place = used.get_column("stratum").to_numpy()[order]
    strata = place[starts].astype(np.int64)
    if stratum:
        here = np.repeat(strata, np.diff(np.append(starts, len(users))))
        refuse_torn(len(np.unique(users[place != here])), cluster, stratum)
    code = used.select(pl.col("arm") * width + pl.col("level")).to_series()
    cells = code.to_numpy()[order]
    held = [
        np.add.reduceat(cells == k, starts, dtype=np.int64)
        for k in range(len(arms) * width)
    ]
    types, number = _alike(np.stack([strata, *held], axis=1))
    return UnitCounts(
        vectors=types[:, 1:].reshape(len(types), len(arms), width),
        number=number,
        stratum=types[:, 0],
    )


def _alike(rows: Ints) -> tuple[Ints, Ints]:
    """Distinct rows in order, and how often each occurs; packed into one number."""
    sizes = rows.max(0, initial=0) + 1
    if np.prod(sizes.astype(float)) < 2**62:
        keys = np.ravel_multi_index(tuple(rows.T), tuple(sizes))
        keys, number = np.unique(keys, return_counts=True)
        types = np.stack(np.unravel_index(keys, tuple(sizes)), axis=1)
    else:
        types, number = np.unique(rows, axis=0, return_counts=True)
    return types.astype(np.int64), number.astype(np.int64)


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

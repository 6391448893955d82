"""Pairs and users pooled by what they hold: the second pass of `count_scores`."""

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.counts import UnitCounts, plural
from reply_resolution.stats.saddlepoint import Ints


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
    """Users by their replies in each arm and level."""
    if stratum:
        per = used.group_by("cluster").agg(pl.col("stratum").n_unique().alias("n"))
        refuse_torn(per.filter(pl.col("n") > 1).height, cluster, stratum)
    cells = len(arms) * width
    flat = [f"c{k}" for k in range(cells)]
    code = pl.col("arm") * width + pl.col("level")
    types = (
        used.lazy()
        .with_columns(code.alias("code"))
        .group_by("cluster")
        .agg(
            pl.col("stratum").first(),
            *((pl.col("code") == k).sum().alias(c) for k, c in enumerate(flat)),
        )
        .group_by("stratum", *flat)
        .agg(pl.len().alias("n"))
        .sort("stratum", *flat)
        .collect()
    )
    return UnitCounts(
        vectors=types.select(flat)
        .to_numpy()
        .astype(np.int64)
        .reshape(types.height, len(arms), width),
        number=types.get_column("n").to_numpy().astype(np.int64),
        stratum=types.get_column("stratum").to_numpy().astype(np.int64),
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

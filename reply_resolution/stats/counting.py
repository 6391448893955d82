"""The pass over the rows behind `count_scores`: polars in, whole numbers out."""

from collections import defaultdict

import numpy as np
import polars as pl

from reply_resolution.errors import (
    ScoreError,
    TableError,
    VersionMismatchError,
    did_you_mean,
)
from reply_resolution.stats.arrays import Ints
from reply_resolution.stats.counts import (
    ScoreCounts,
    names_of,
    plural,
)
from reply_resolution.stats.repeats import (
    Excluded,
    Names,
    first_verdicts,
    warn_users,
)
from reply_resolution.stats.spellings import (
    list_spellings,
    list_unread,
    warn_ids,
    warn_spellings,
)
from reply_resolution.stats.unit_types import pair_types, pair_units, unit_types

PAIRS_NEED_NO_STRATA = (
    "Pairs already compare like with like: the stratum column {!r} changes nothing and "
    "was not used."
)
_AVERAGES_MIN, _AVERAGES_SHARE = 20, 0.2  # from here on fractions are no accident


def count(
    frame: pl.DataFrame | pl.LazyFrame,
    names: Names,
    scale: tuple[int, int],
    *,
    mix_versions: bool,
) -> ScoreCounts:
    """See `reply_resolution.stats.counts.count_scores`."""
    lazy = frame.lazy()
    columns = lazy.collect_schema().names()
    check_columns(columns, names)
    table = _narrow(lazy, columns, names)
    warnings: list[str] = []
    rows = table.height
    excluded: Excluded = defaultdict(dict)
    table, kept = first_verdicts(table, names, excluded, warnings)
    if names.user_id in columns and not names.cluster:
        warn_users(lazy, names, table, kept, warnings)

    roles = ("arm", "stratum", "status", "version", "judge", "score")
    keys = [role for role in roles if role in table.columns]
    grouped = table.group_by(keys).agg(pl.len().alias("rows"))
    arms = _arms_in_order(table, grouped)
    warn_spellings(arms, warnings)
    grouped = with_outcome(grouped, names, scale, warnings)
    check_versions(grouped, mix_versions)
    add_outcomes(grouped, excluded)
    strata = strata_of(grouped, names, warnings)
    usable = grouped.filter(pl.col("outcome").is_null())
    width = scale[1] - scale[0] + 1

    pairs = pair_number = units = None
    counts = count_levels(usable, arms, strata, scale, width)
    if names.pair or names.cluster:
        used = _usable_rows(table, grouped, arms, strata, scale)
        if names.cluster:
            used = _drop_missing(used, "cluster", "missing_cluster", arms, excluded)
        if names.pair:
            used = _drop_missing(used, "pair", "unpaired", arms, excluded)
        flat = used["stratum"].cast(pl.Int64) * len(arms) + used["arm"].cast(pl.Int64)
        flat = flat * width + used["level"].cast(pl.Int64)
        counts = np.bincount(
            flat.to_numpy(), minlength=len(strata) * len(arms) * width
        ).reshape(len(strata), len(arms), width)
        if names.pair:
            pairs, pair_number = pair_types(used, arms)
            warn_ids(_unpaired(lazy, names.pair, used, arms), names.pair, warnings)
            if names.cluster:
                units = pair_units(used, arms, width)
            if names.stratum:
                warnings.append(PAIRS_NEED_NO_STRATA.format(names.stratum))
        else:
            units = unit_types(used, arms, width, names.cluster or "", names.stratum)
    return ScoreCounts(
        design="paired"
        if names.pair
        else "clustered"
        if names.cluster
        else "independent",
        arms=arms,
        scale=scale,
        counts=counts.astype(np.int64),
        strata=strata,
        pairs=pairs,
        pair_number=pair_number,
        units=units,
        excluded={reason: dict(by_arm) for reason, by_arm in excluded.items()},
        rows=rows,
        warnings=tuple(warnings),
        cluster=names.cluster,
    )


def check_columns(columns: list[str], names: Names) -> None:
    """Every column that was named exists, or an error that lists what does."""
    for role, name in (
        ("arm", names.arm),
        ("score", names.score),
        ("pair", names.pair),
        ("cluster", names.cluster),
        ("stratum", names.stratum),
    ):
        if name is not None and name not in columns:
            raise TableError(
                f"there is no column {name!r} ({role}). The table has "
                f"{names_of(columns, 12)}.{did_you_mean(name, columns)} Name the right "
                f"one with --{role} ({role}=...)."
            )


def _narrow(lazy: pl.LazyFrame, columns: list[str], names: Names) -> pl.DataFrame:
    """Only the columns that matter, under internal names."""
    key = names.pair or names.request_id
    wanted = {"arm": pl.col(names.arm).cast(pl.String), "score": pl.col(names.score)}
    schema = lazy.collect_schema()
    if key in columns:
        wanted["id"] = _hashed(key, schema[key], strip=bool(names.pair))
    if names.cluster:
        wanted["cluster"] = _hashed(names.cluster, schema[names.cluster], strip=True)
    if names.stratum:
        wanted["stratum"] = pl.col(names.stratum).cast(pl.String)
    if names.vote in columns:
        wanted["vote"] = pl.col(names.vote).cast(pl.Int64, strict=False)
    for role, name in (
        ("status", names.status),
        ("version", "metric_version"),
        ("judge", "judge_id"),
    ):
        if name in columns and name not in (names.arm, names.score):
            text = pl.col(name).cast(pl.String)
            wanted[role] = pl.when(text != "").then(text)  # an empty cell says nothing
    table = lazy.select(**wanted).collect()
    if table.schema["score"] == pl.Object:  # mixed Python values cannot be grouped
        cells = [None if v is None else str(v) for v in table.get_column("score")]
        table = table.with_columns(pl.Series("score", cells, dtype=pl.String))
    return table


def _arms_in_order(table: pl.DataFrame, grouped: pl.DataFrame) -> tuple[str, ...]:
    """Arms by first appearance; the head of the table nearly always has them all."""
    column = table.get_column("arm")
    order = column.head(10_000).unique(maintain_order=True).to_list()
    if len(order) < grouped.get_column("arm").n_unique():
        order = column.unique(maintain_order=True).to_list()
    return tuple(a for a in order if a is not None and a.strip())


def with_outcome(
    grouped: pl.DataFrame,
    names: Names,
    scale: tuple[int, int],
    warnings: list[str],
) -> pl.DataFrame:
    """Add `level` (null where not usable) and `outcome` (why not; null if usable)."""
    from reply_resolution.tables.scores import parse_scores

    _refuse_averages(grouped, names.score)
    scores, reasons = parse_scores(grouped.get_column("score"), scale=scale)
    grouped = grouped.with_columns(
        (scores.cast(pl.Int64) - scale[0]).alias("level"), reasons.alias("outcome")
    )
    list_spellings(grouped, warnings)
    if "status" in grouped.columns:
        grouped = _respect_status(grouped, names, warnings)
    list_unread(grouped, names.score, scale, warnings)
    blank = pl.col("arm").is_null() | (pl.col("arm").str.strip_chars() == "")
    return grouped.with_columns(
        pl.when(blank)
        .then(pl.lit("missing_arm"))
        .otherwise(pl.col("outcome"))
        .alias("outcome"),
        pl.when(blank).then(None).otherwise(pl.col("arm")).alias("arm_name"),
    ).with_columns(pl.col("arm_name").alias("arm"))


def add_outcomes(grouped: pl.DataFrame, excluded: Excluded) -> None:
    """Count the rows that are not used by reason and arm."""
    for reason, arm, n in (
        grouped.filter(pl.col("outcome").is_not_null())
        .group_by("outcome", "arm")
        .agg(pl.col("rows").sum())
        .sort("outcome", "arm", nulls_last=True)
        .iter_rows()
    ):
        excluded[reason][arm] = excluded[reason].get(arm, 0) + n


def _respect_status(
    grouped: pl.DataFrame, names: Names, warnings: list[str]
) -> pl.DataFrame:
    status = grouped.get_column("status").cast(pl.String)
    found = status.drop_nulls().unique().sort().to_list()
    from reply_resolution.tables.verdicts import STATUSES

    if found and not set(found) & set(STATUSES):
        warnings.append(
            f"Column {names.status!r} holds {names_of(found)}, none of which is a "
            "verdict's status; it was not used."
        )
        return grouped
    return grouped.with_columns(
        pl.when(status.is_not_null() & (status != "scored"))
        .then(status)
        .otherwise(pl.col("outcome"))
        .alias("outcome")
    )


def _refuse_averages(grouped: pl.DataFrame, name: str) -> None:
    cells = grouped.get_column("score")
    if cells.dtype == pl.String:
        cells = cells.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
    if not cells.dtype.is_float() and not cells.dtype.is_decimal():
        return
    values = cells.cast(pl.Float64).to_numpy()
    weight = grouped.get_column("rows").to_numpy()
    finite = np.isfinite(values)
    fractional = finite & (values != np.floor(np.where(finite, values, 0.0)))
    total, broken = int(weight[finite].sum()), int(weight[fractional].sum())
    if total >= _AVERAGES_MIN and broken >= _AVERAGES_SHARE * total:
        shown = ", ".join(f"{v:.4g}" for v in np.unique(values[fractional])[:4])
        raise ScoreError(
            f"whole scores only: {broken:,} of the {total:,} numbers in column "
            f"{name!r} are fractional ({shown}), so it holds averages. An average of "
            "several judges or annotators has no level to count; give one whole score "
            "per row, for example one annotator's column."
        )


def check_versions(grouped: pl.DataFrame, mix_versions: bool) -> None:
    """Refuse scores of several rubrics or judges, unless the caller wants them."""
    if mix_versions:
        return
    usable = grouped.filter(pl.col("outcome").is_null())
    for role, column, word in (
        ("version", "metric_version", "metric versions"),
        ("judge", "judge_id", "judges"),
    ):
        if role in usable.columns:
            found = usable.get_column(role).drop_nulls().unique().sort().to_list()
            if len(found) > 1:
                raise VersionMismatchError(
                    f"the table mixes {word} in column {column!r}: {names_of(found)}. "
                    "Scores of different rubrics or judges are not one measurement; "
                    "keep one of them, or ask for the mixture with --mix-versions "
                    "(mix_versions=True)."
                )


def strata_of(
    grouped: pl.DataFrame, names: Names, warnings: list[str]
) -> tuple[str, ...]:
    """Names of the strata, in order; one without a name where there are none."""
    if "stratum" not in grouped.columns or names.pair:
        return ("",)
    values = grouped.get_column("stratum").fill_null("")
    if rows := int(grouped.filter(values == "")["rows"].sum()):
        warnings.append(
            f"{plural(rows, 'row')} have no {names.stratum!r}; they form a stratum of "
            "their own."
        )
    return tuple(values.unique().sort().to_list())


def count_levels(
    usable: pl.DataFrame,
    arms: tuple[str, ...],
    strata: tuple[str, ...],
    scale: tuple[int, int],
    width: int,
) -> Ints:
    """Usable rows by stratum, arm and level."""
    counts = np.zeros((len(strata), len(arms), width), dtype=np.int64)
    arm_index = {a: i for i, a in enumerate(arms)}
    stratum_index = {s: i for i, s in enumerate(strata)}
    stratified = "stratum" in usable.columns and len(strata) > 0 and strata != ("",)
    where = usable.get_column("stratum").fill_null("") if stratified else None
    for i, (arm, level, n) in enumerate(
        usable.select("arm", "level", "rows").iter_rows()
    ):
        h = stratum_index[where[i]] if where is not None else 0
        counts[h, arm_index[arm], level] += n
    return counts


def lost_statuses(grouped: pl.DataFrame) -> list[str]:
    """The verdicts' statuses whose rows are not used."""
    if "status" not in grouped.columns:
        return []
    lost = grouped.filter(pl.col("outcome") == pl.col("status"))
    return lost.get_column("status").unique().sort().to_list()


def _usable_rows(
    table: pl.DataFrame,
    grouped: pl.DataFrame,
    arms: tuple[str, ...],
    strata: tuple[str, ...],
    scale: tuple[int, int],
) -> pl.DataFrame:
    """Rows with a usable score as (pair?, cluster?, arm, stratum, level), indices."""
    from reply_resolution.tables.scores import parse_scores

    scores, _ = parse_scores(table.get_column("score"), scale=scale)
    usable = scores.is_not_null()
    if bad := lost_statuses(grouped):
        usable = usable & ~table.get_column("status").is_in(bad).fill_null(False)
    index = {name: i for i, name in enumerate(arms)}
    picked = [
        pl.col("arm").replace_strict(index, default=None, return_dtype=pl.Int32),
        (scores.filter(usable).cast(pl.Int32) - scale[0]).alias("level"),
    ]
    if strata == ("",):
        picked.append(pl.lit(0, dtype=pl.Int32).alias("stratum"))
    else:
        place = {name: i for i, name in enumerate(strata)}
        picked.append(
            pl.col("stratum")
            .fill_null("")
            .replace_strict(place, default=None, return_dtype=pl.Int32)
        )
    if "cluster" in table.columns:
        picked.append(pl.col("cluster"))
    if "id" in table.columns:
        picked.append(pl.col("id").alias("pair"))
    return table.filter(usable).select(picked).filter(pl.col("arm").is_not_null())


def _hashed(name: str, dtype: pl.DataType, *, strip: bool) -> pl.Expr:
    """Ids as 64-bit hashes, ten times faster to compare than text; blanks as null.

    Two of a million ids collide with a probability of 3e-8.
    """
    column = pl.col(name)
    given = column.is_not_null()
    if dtype == pl.String:
        given = given & ((column.str.strip_chars() if strip else column) != "")
    return pl.when(given).then(column.hash(seed=0))


def _unpaired(
    lazy: pl.LazyFrame, pair: str, used: pl.DataFrame, arms: tuple[str, ...]
) -> pl.Series:
    """The ids, if they are text, that have no usable score in one of the arms."""
    kind = lazy.collect_schema()[pair]
    alone = used.group_by("pair").agg(pl.col("arm").n_unique())
    alone = alone.filter(pl.col("arm") < len(arms))
    if kind != pl.String or alone.is_empty():
        return pl.Series(dtype=pl.String)
    ids = lazy.select(id=pair, pair=_hashed(pair, kind, strip=True)).collect()
    return ids.join(alone, on="pair", how="semi").get_column("id")


def _drop_missing(
    used: pl.DataFrame,
    column: str,
    reason: str,
    arms: tuple[str, ...],
    excluded: Excluded,
) -> pl.DataFrame:
    gone = pl.col(column).is_null()
    lost = used.filter(gone).group_by("arm").agg(pl.len()).sort("arm")
    for arm, n in lost.iter_rows():
        excluded[reason][arms[arm]] = excluded[reason].get(arms[arm], 0) + n
    return used.filter(~gone) if lost.height else used

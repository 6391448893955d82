"""`ScoreCounts` where the data live: the engine groups, only the counts come home.

The rules are those of `reply_resolution.stats.counting`; here they are queries. What
an engine without an order of rows cannot say the same way:

- arms are in the order of their names, not of first appearance;
- of rows that repeat request, arm *and* vote the lowest score is used, not the first
  row (said in `warnings` where it matters);
- of a pair whose replies name two users the smaller name is its user.

In polars' lazy engine nothing differs from the frame in memory.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.scale.repeats import first_verdicts, warn_users
from reply_resolution.scale.source import Lazy, Source, open_source, translated
from reply_resolution.scale.units import pair_types, pair_units, unit_types
from reply_resolution.stats import counting
from reply_resolution.stats.arrays import Ints
from reply_resolution.stats.counts import Design, ScoreCounts
from reply_resolution.stats.repeats import Excluded, Names
from reply_resolution.stats.spellings import warn_ids, warn_spellings

# What Unicode calls white space, spelled out: engines mean different things by \s.
_BLANK = "^[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$"


def count_lazily(
    frame: Any,  # noqa: ANN401
    names: Names,
    scale: tuple[int, int],
    *,
    mix_versions: bool,
) -> ScoreCounts:
    """`count_scores` of a lazy frame; see there.

    Raises:
        TableError: A column is missing or of a type that cannot be counted; the engine
            could not run the query; narwhals is needed and absent.
    """
    with TemporaryDirectory(prefix="reply_resolution-") as folder:
        source = open_source(frame, Path(folder))
        if not isinstance(source, Source):
            with translated(pl.exceptions.PolarsError):
                return counting.count(source, names, scale, mix_versions=mix_versions)
        return _count(source, names, scale, mix_versions)


def _count(
    source: Source, names: Names, scale: tuple[int, int], mix_versions: bool
) -> ScoreCounts:
    warnings: list[str] = []
    excluded: Excluded = defaultdict(dict)
    table, text = narrow(source, names)
    rows = source.number(table.select(source.lib.len().alias("n")))
    whole = replace(source, lazy=table, rows=rows)
    source = first_verdicts(whole, text, names, excluded, warnings)
    columns = table.collect_schema().names()
    if "user" in columns:
        warn_users(source, names, warnings, all_kept=source is whole)

    grouped = source.collect(by_outcome(source))
    order = ["first"] if source.ordered else ["arm"]
    rest = [c for c in grouped.columns if c not in (*order, "rows")]
    grouped = grouped.sort(*order, *rest).with_columns(pl.col("rows").cast(pl.Int64))
    seen = grouped["arm"].unique(maintain_order=True)
    arms = tuple(a for a in seen if a is not None and a.strip())
    warn_spellings(arms, warnings)
    grouped = counting.with_outcome(grouped, names, scale, warnings)
    counting.check_versions(grouped, mix_versions)
    counting.add_outcomes(grouped, excluded)
    strata = counting.strata_of(grouped, names, warnings)

    width = scale[1] - scale[0] + 1
    design: Design = "independent"
    pairs = pair_number = units = None
    if not (names.pair or names.cluster):
        usable = grouped.filter(pl.col("outcome").is_null())
        counts = counting.count_levels(usable, arms, strata, scale, width)
    else:
        used = _usable(source, grouped, text, names, arms, strata, width)
        counts = _count_used(used, arms, strata, width, excluded)
        used = used.on(used.lazy.filter(used.lib.col("lost") == ""))
        if names.pair:
            design = "paired"
            pairs, pair_number = pair_types(used, arms)
            if "id" in text:
                count = used.lib.col("arm").n_unique().alias("n")
                each = used.lazy.group_by("id").agg(count)
                alone = used.collect(each.filter(used.lib.col("n") < len(arms)))
                warn_ids(alone["id"], names.pair, warnings)
            units = pair_units(used, arms, width) if names.cluster else None
            if names.stratum:
                warnings.append(counting.PAIRS_NEED_NO_STRATA.format(names.stratum))
        else:
            design, cluster = "clustered", names.cluster or ""
            units = unit_types(used, arms, width, strata, cluster, names.stratum)
    return ScoreCounts(
        design=design,
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


def narrow(source: Source, names: Names) -> tuple[Lazy, set[str]]:
    """Only the columns that matter, under internal names; which of them are text.

    Raises:
        TableError: A column is missing, or holds what cannot be counted.
    """
    lib = source.lib
    schema = source.schema()
    counting.check_columns(list(schema), names)
    wanted: dict[str, Any] = {}
    text: set[str] = set()
    for role, name in _roles(names).items():
        if name not in schema:
            continue
        kind, column = schema[name], lib.col(name)
        is_text = kind in (lib.String, lib.Categorical, lib.Enum)
        is_other = kind.is_temporal() or kind == lib.Boolean
        if not (kind.is_numeric() or (role != "vote" and (is_text or is_other))):
            allowed = "whole numbers" if role == "vote" else "text or numbers"
            raise TableError(
                f"column {name!r} ({role}) holds {kind}, which cannot be counted: it "
                f"has to hold {allowed}. Cast it, or leave it out."
            )
        if is_text or role in ("arm", "stratum", "status", "version", "judge"):
            column = column.cast(lib.String)
            text.add(role)
        elif role == "vote":
            column = column.cast(lib.Int64)
        elif role == "score" and is_other:  # true is not 1, and a date is no number
            column = lib.when(~column.is_null()).then(lib.lit("no number"))
        elif role == "score":
            column = column.cast(lib.Float64)
        if role in text & {"status", "version", "judge", "user"}:
            column = lib.when(column != "").then(column)  # an empty cell says nothing
        wanted[role] = column
    lazy = source.lazy.select(**wanted)
    return (lazy.with_row_index("row") if source.ordered else lazy), text


def _roles(names: Names) -> dict[str, str]:
    roles = {
        "arm": names.arm,
        "score": names.score,
        "id": names.pair or names.request_id,
        "cluster": names.cluster,
        "stratum": names.stratum,
        "vote": names.vote,
        "user": None if names.cluster else names.user_id,
    }
    for role, name in (
        ("status", names.status),
        ("version", "metric_version"),
        ("judge", "judge_id"),
    ):
        roles[role] = None if name in (names.arm, names.score) else name
    return {role: name for role, name in roles.items() if name is not None}


def by_outcome(source: Source) -> Lazy:
    """Rows by all that decides whether and where they count: the main query."""
    lib = source.lib
    known = source.lazy.collect_schema().names()
    roles = ("arm", "stratum", "status", "version", "judge", "score")
    first = [lib.col("row").min().alias("first")] if source.ordered else []
    return source.lazy.group_by([r for r in roles if r in known]).agg(
        lib.len().alias("rows"), *first
    )


def _usable(
    source: Source,
    grouped: pl.DataFrame,
    text: set[str],
    names: Names,
    arms: tuple[str, ...],
    strata: tuple[str, ...],
    width: int,
) -> Source:
    """Rows with a usable score: arm, level, stratum, id, cluster, and what is lost."""
    lib = source.lib
    level = lib.lit(-1)
    for k in range(width):
        cells = grouped.filter(pl.col("level") == k)["score"].unique().to_list()
        if cells:
            hit = lib.col("score").is_in(cells)
            level = lib.when(hit).then(lib.lit(k)).otherwise(level)
    lost = lib.lit("")
    for role, column, reason in (
        ("id", names.pair, "unpaired"),
        ("cluster", names.cluster, "missing_cluster"),
    ):
        if column:
            gone = lib.col(role).is_null()
            if role in text:
                gone = gone | lib.col(role).str.contains(_BLANK)
            lost = lib.when(gone).then(lib.lit(reason)).otherwise(lost)
    stratum = lib.lit("") if strata == ("",) else lib.col("stratum").fill_null("")
    arm = lib.col("arm")
    known = arm.is_in(arms) if arms else arm.is_null() & ~arm.is_null()  # none
    used = source.lazy.filter(known)
    if bad := counting.lost_statuses(grouped):
        status = lib.col("status")
        used = used.filter(status.is_null() | ~status.is_in(bad))
    keys = ["id"] * bool(names.pair) + ["cluster"] * bool(names.cluster)
    keys += ["row"] * source.ordered
    used = used.select("arm", *keys, level=level, lost=lost, stratum=stratum)
    return source.on(used.filter(lib.col("level") >= 0))


def _count_used(
    used: Source,
    arms: tuple[str, ...],
    strata: tuple[str, ...],
    width: int,
    excluded: Excluded,
) -> Ints:
    """Usable rows by stratum, arm and level; those that lack a key are counted."""
    keys = ["lost", "arm", "stratum", "level"]
    home = used.collect(used.lazy.group_by(keys).agg(used.lib.len().alias("n"))).sort(
        keys
    )
    counts = np.zeros((len(strata), len(arms), width), dtype=np.int64)
    for lost, arm, stratum, level, n in home.iter_rows():
        if lost:
            excluded[lost][arm] = excluded[lost].get(arm, 0) + n
        else:
            counts[strata.index(stratum), arms.index(arm), level] += n
    return counts

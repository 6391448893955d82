"""Rows that repeat: several votes for a request, and several rows of one user."""

from dataclasses import dataclass

import polars as pl

from reply_resolution.stats.counts import plural

Excluded = dict[str, dict[str | None, int]]


@dataclass(frozen=True, slots=True)
class Names:
    """Which columns play which part; the optional ones may be absent."""

    arm: str
    score: str
    pair: str | None
    cluster: str | None
    stratum: str | None
    request_id: str
    user_id: str
    vote: str
    status: str


def _has_repeats(hashes: pl.Series) -> bool:
    """Whether a hash occurs twice, nulls aside; a sort, quicker than counting."""
    if hashes.head(10_000).drop_nulls().is_duplicated().any():
        return True
    ordered = hashes.drop_nulls().to_numpy(writable=True)
    ordered.sort()
    return bool((ordered[1:] == ordered[:-1]).any())


def first_verdicts(
    table: pl.DataFrame, names: Names, excluded: Excluded, warnings: list[str]
) -> tuple[pl.DataFrame, pl.Series | None]:
    """One verdict per request and arm; also the rows kept, None if all were."""
    many = "vote" in table.columns and table.get_column("vote").n_unique() > 1
    whole = table
    if "id" in table.columns and _has_repeats(table.get_column("id")):
        table = table.with_row_index("row")
        if many:
            table = table.sort("vote", nulls_last=True, maintain_order=True)
        known = pl.col("id").is_not_null() & pl.col("arm").is_not_null()
        first = ~known | pl.struct("id", "arm").is_first_distinct()
        if not names.pair:
            again = table.filter(first & known).group_by("id").len()
            shared = again.filter(pl.col("len") > 1).height
            note_shared(shared, names, warnings)
    elif many and "id" not in table.columns:
        table = table.with_row_index("row")
        first_vote = table.get_column("vote").min()
        first = pl.col("vote").is_null() | (pl.col("vote") == pl.lit(first_vote))
    else:
        return whole, None
    kept = table.filter(first).sort("row")
    if kept.height == whole.height:
        return whole, None
    again = table.filter(~first).group_by("arm").agg(pl.len())
    note_repeats(again.sort("arm"), names, excluded, warnings)
    return kept.drop("row"), kept.get_column("row")


def warn_users(
    lazy: pl.LazyFrame,
    names: Names,
    table: pl.DataFrame,
    kept: pl.Series | None,
    warnings: list[str],
) -> None:
    """Say where several rows (or pairs) belong to one user who is not the unit."""
    user = pl.col(names.user_id)
    if lazy.collect_schema()[names.user_id] == pl.String:
        user = pl.when(user != "").then(user)
    hashed = pl.when(user.is_not_null()).then(user.hash(seed=0))
    column = lazy.select(user=hashed)
    if kept is None and not names.pair:
        # the head nearly always answers, and spares reading the whole column
        repeated = _has_repeats(column.head(10_000).collect().to_series())
        repeated = repeated or _has_repeats(column.collect().to_series())
    else:
        users = column.collect().to_series()
        users = users if kept is None else users.gather(kept)
        parts = [users]
        if names.pair:  # the two replies of one pair share their user
            with_arm = table.select("arm").with_columns(users.alias("user"))
            parts = [p.get_column("user") for p in with_arm.partition_by("arm")]
        repeated = any(_has_repeats(part) for part in parts)
    if repeated:
        note_users(names, warnings)


def note_shared(shared: int, names: Names, warnings: list[str]) -> None:
    """Say that requests were answered by several arms and not paired."""
    if shared:
        warnings.append(
            f"{plural(shared, 'request id')} occur in more than one arm, but rows were "
            "compared as independent. If the same requests were answered by each arm, "
            f"pair them: --pair {names.request_id}."
        )


def note_users(names: Names, warnings: list[str]) -> None:
    """Say that users repeat and are not the units."""
    unit = "pairs" if names.pair else "rows"
    warnings.append(
        f"Column {names.user_id!r} repeats: several {unit} belong to one user, and "
        "comparing them as independent makes p-values too small. Make users the units: "
        f"--cluster {names.user_id}."
    )


def note_repeats(
    by_arm: pl.DataFrame, names: Names, excluded: Excluded, warnings: list[str]
) -> None:
    """Count rows whose request and arm had their verdict already: arm, rows."""
    excluded["duplicate"].update(by_arm.iter_rows())
    key = names.pair or names.request_id
    rows = plural(sum(excluded["duplicate"].values()), "row")
    warnings.append(
        f"Several votes for one {key} and arm: the first was used, {rows} not (counted "
        "as duplicate)."
    )


def first_votes(frame: pl.DataFrame) -> tuple[pl.DataFrame, int, list[str]]:
    """One row per reply of a table with votes.

    Args:
        frame: Any table; replies are told apart by `request_id`, `arm` and `kind`,
            where it has them. Without `request_id` only rows of the first vote stay.

    Returns:
        The rows with a reply's first vote, how many others there were, and a sentence
        about them (none without).
    """
    if "vote" not in frame.columns:
        return frame, 0, []
    vote = pl.col("vote").cast(pl.String).str.strip_chars()
    vote = vote.cast(pl.Float64, strict=False)
    keys = [k for k in ("request_id", "arm", "kind") if k in frame.columns]
    if "request_id" in keys:
        blank = pl.col("request_id").cast(pl.String).str.strip_chars() == ""
        first = blank.fill_null(value=True) | pl.struct(keys).is_first_distinct()
        numbered = frame.with_row_index("__row").sort(
            vote, nulls_last=True, maintain_order=True
        )
        kept = numbered.filter(first).sort("__row").drop("__row")
    else:
        kept = frame.filter(vote.is_null() | (vote == vote.min()))
    again = frame.height - kept.height
    if not again:
        return frame, 0, []
    said = f"{plural(again, 'row')} not used, as further votes for a reply: the first "
    return kept, again, [said + "counts."]

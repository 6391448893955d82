"""Which replies are judged, and in which order.

A budget may end a run anywhere, so every prefix of the order must be a fair experiment:
chosen by chance alone (a seeded hash of the request id, never an outcome), the arms in
turn, and the arms of one request together. The same seed gives the same order on every
machine, and a larger sample contains the smaller one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import hashlib

import numpy as np
import polars as pl

from reply_resolution.errors import TableError


@dataclass(frozen=True, slots=True)
class Draw:
    """Which rows are judged, in which order, with which probability.

    Attributes:
        order: Row numbers (0-based) in judging order, the drawn ones only; int64,
            shape (drawn,).
        drawn: Whether each row is in the sample; bool, shape (rows,).
        probability: Chance each row had of being drawn, fraction above 0 to 1; the
            same for all rows of a design group (arms the request occurs in); float64,
            shape (rows,). Rows not drawn have theirs, too.
    """

    order: np.ndarray
    drawn: np.ndarray
    probability: np.ndarray


def hashes(ids: Sequence[str], seed: int) -> np.ndarray:
    """64 seeded bits for each id; blake2b, so the same on every machine."""
    key = str(seed).encode()
    digest = hashlib.blake2b
    raw = b"".join(
        digest(str(i).encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        for i in ids
    )
    return np.frombuffer(raw, dtype=">u8").astype(np.uint64)


def draw(
    replies: pl.DataFrame,
    *,
    sample: float | None = None,
    seed: int = 0,
    arm: str = "arm",
) -> Draw:
    """Draw replies and put them in judging order.

    Requests are ordered by a seeded hash within their design group (the set of arms
    they occur in) and the groups take turns, so that in any prefix two independent
    arms differ by one reply at most until one of them is exhausted, and a pair is
    never torn. A sample is the beginning of that order.

    Args:
        replies: Needs `request_id`; `arm` if there is one.
        sample: None for all; a whole number of 1 or more is replies (rounded down to
            whole requests where they come in pairs, one request at least); a fraction
            above 0 and below 1 is a share of the replies.
        seed: Any whole number. Another seed is another order.
        arm: Column of the arm; a frame without it is one group.

    Raises:
        TableError: The sample size is not positive.

    >>> rows = pl.DataFrame({"request_id": list("abcdef"), "arm": ["x", "y"] * 3})
    >>> chosen = draw(rows, sample=4, seed=7)
    >>> sorted(rows["arm"].gather(chosen.order))
    ['x', 'x', 'y', 'y']
    """
    rows = replies.height
    limit = row_limit(sample, rows)
    ids = replies["request_id"].cast(pl.String)
    names = pl.Series([None] * rows, dtype=pl.String)
    if arm in replies.columns:
        names = replies[arm].cast(pl.String)
    # An arm is a bit, a request's group the bits of its arms: much faster than lists.
    known = {
        name: 1 << i for i, name in enumerate(names.unique().sort().to_list()[:62])
    }
    frame = pl.DataFrame({"row": np.arange(rows), "id": ids, "arm": names})
    frame = frame.with_columns(
        pl.col("id").fill_null(""),
        bit=pl.col("arm").replace_strict(known, default=1 << 62, return_dtype=pl.Int64),
    )
    units = frame.group_by("id", maintain_order=True).agg(
        pl.col("bit").bitwise_or().alias("group"), pl.len().alias("size")
    )
    units = units.with_columns(hash=hashes(units["id"].to_list(), seed))
    units = units.sort("group", "hash", "id").with_columns(
        rank=pl.int_range(pl.len()).over("group")
    )
    # Within a round the groups come in hash order, so that none is always first.
    units = units.sort("rank", "hash", "id").with_columns(
        place=pl.int_range(pl.len()), taken=pl.col("size").cum_sum() <= limit
    )
    # A request too large for what is left ends the sample: skipping it for a smaller
    # one would prefer requests with few arms. One request is always taken.
    taken = pl.col("taken") | (pl.col("place") == 0)
    units = units.with_columns(taken=taken.cum_min() if rows else taken)
    # A group of which nothing was drawn still had its chance; say the overall one.
    overall = units["taken"].mean() or 1.0
    share = pl.col("taken").mean().over("group")
    units = units.with_columns(
        probability=pl.when(share == 0).then(pl.lit(overall)).otherwise(share)
    )
    back = frame.join(units, on="id", how="left").sort("row")
    ordered = back.filter("taken").sort("place", "arm", "row", nulls_last=True)
    return Draw(
        order=ordered["row"].to_numpy().astype(np.int64),
        drawn=back["taken"].to_numpy(),
        probability=back["probability"].to_numpy().astype(np.float64),
    )


def row_limit(sample: float | None, rows: int) -> int:
    """Rows that a sample size means.

    Raises:
        TableError: The sample size is not positive.
    """
    if sample is None:
        return rows
    number = isinstance(sample, int | float) and not isinstance(sample, bool)
    if number and 0 < sample < 1:
        return max(1, int(sample * rows))
    if number and 1 <= sample < float("inf") and sample == int(sample):
        return min(int(sample), rows)
    raise TableError(
        f"sample {sample!r} is not a sample size. Give a whole number of replies (1 or "
        "more), a share between 0 and 1, or nothing to judge all."
    )

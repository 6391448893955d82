"""The sufficient counts of a scored experiment: all that any later number needs.

A score has few values, so two arms are a 2xK table, pairs a KxK table, and users a
short list of distinct count vectors. One pass over the rows makes these; nothing later
touches rows again, so cost does not grow with the replies. Another engine may fill
`ScoreCounts` too: it is arrays of whole numbers and names, nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Ints

Design = Literal["independent", "paired", "clustered"]


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """Units (users) pooled by what they hold: equal units are one type.

    Attributes:
        vectors: What one unit of the type holds; shape (T, A, K) for users (replies by
            arm and level), (T, A, A, K, K) for users of pairs (pairs by level in the
            first arm and level in the second, first arm before second).
        number: How many units are of the type; shape (T,), above 0.
        stratum: Index of the type's stratum; shape (T,).
    """

    vectors: Ints
    number: Ints
    stratum: Ints


@dataclass(frozen=True, slots=True)
class ScoreCounts:
    """Counts of scores by arm, as the design needs them.

    Attributes:
        design: "independent" (rows), "paired" (the same request in several arms) or
            "clustered" (users are the units).
        arms: Names, in order of first appearance in the table.
        scale: Lowest and highest score, whole numbers; K = highest - lowest + 1 levels.
        counts: Rows with a usable score; shape (H, A, K): stratum, arm, level.
        strata: Names of the strata; ("",) where there are none.
        pairs: Distinct rows of levels, one column per arm, 1 to K, 0 where the arm has
            no usable score for that request; shape (P, A); None unless paired.
        pair_number: How many requests have that row; shape (P,); None unless paired.
        units: Users by type; None unless a cluster column was given.
        excluded: Rows not used: reason -> arm (None where the arm is unknown) -> rows.
            `unpaired` depends on the control and is added by `compare`.
        rows: Rows in the table, used or not.
        warnings: What a reader should know about the table, in sentences.
        cluster: Name of the cluster column, None without.
    """

    design: Design
    arms: tuple[str, ...]
    scale: tuple[int, int]
    counts: Ints
    strata: tuple[str, ...] = ("",)
    pairs: Ints | None = None
    pair_number: Ints | None = None
    units: UnitCounts | None = None
    excluded: Mapping[str, Mapping[str | None, int]] = field(default_factory=dict)
    rows: int = 0
    warnings: tuple[str, ...] = ()
    cluster: str | None = None

    @property
    def levels(self) -> Ints:
        """The scores of the scale, lowest first; shape (K,)."""
        return np.arange(self.scale[0], self.scale[1] + 1, dtype=np.int64)

    def of(self, arm: str) -> Ints:
        """Usable replies of one arm at each level, strata together; shape (K,)."""
        out: Ints = self.counts[:, self.arms.index(arm)].sum(0)
        return out

    def pooled(self) -> Ints:
        """All arms together: what may be looked at before the experiment ends."""
        out: Ints = self.counts.sum((0, 1))
        return out

    @classmethod
    def from_table(
        cls, table: Mapping[str, Sequence[int]], *, scale: tuple[int, int] = (1, 5)
    ) -> "ScoreCounts":
        """Counts known already, for independent arms.

        Args:
            table: Arm -> replies at each level, lowest score first.
            scale: Lowest and highest score.

        Raises:
            StatisticsError: The lengths don't fit the scale, or a count is negative.

        >>> table = {"a": [1, 0, 2, 5, 4], "b": [0, 1, 1, 4, 9]}
        >>> counts = ScoreCounts.from_table(table)
        >>> counts.of("b").tolist(), counts.rows
        ([0, 1, 1, 4, 9], 27)
        """
        width = scale[1] - scale[0] + 1
        rows = []
        for arm, values in table.items():
            given = np.asarray(list(values))
            whole = given.dtype.kind in "iu" or bool((given == np.rint(given)).all())
            if given.shape != (width,) or not whole or (given < 0).any():
                raise StatisticsError(
                    f"arm {arm!r} has counts {list(values)}: a scale of {scale[0]} to "
                    f"{scale[1]} needs {width} whole numbers, 0 or more, lowest score "
                    "first."
                )
            rows.append(given.astype(np.int64))
        counts = np.stack(rows)[None] if rows else np.zeros((1, 0, width), np.int64)
        return cls(
            design="independent",
            arms=tuple(table),
            scale=scale,
            counts=counts,
            rows=int(counts.sum()),
        )


def count_scores(
    frame: Any,  # noqa: ANN401
    *,
    arm: str = "arm",
    score: str = "score",
    pair: str | None = None,
    cluster: str | None = None,
    stratum: str | None = None,
    scale: tuple[int, int] = (1, 5),
    request_id: str = "request_id",
    user_id: str = "user_id",
    vote: str = "vote",
    status: str = "status",
    mix_versions: bool = False,
) -> ScoreCounts:
    """Count the scores of a table in one pass; every row not used has its reason.

    Rows whose `status` is a verdict's and not "scored" are counted under it, whatever
    their score cell says. Of several votes for a request and arm the first is used.

    Args:
        frame: One row per verdict: a polars frame, or one that narwhals knows (DuckDB,
            PySpark, Ibis; extra `counts`). A lazy one is counted where it lives.
        arm: Column with the arm.
        score: Column with whole scores; text is read by `parse_scores`.
        pair: Column that names the request, for the paired design.
        cluster: Column that names the user, who is then the unit.
        stratum: Column within whose values replies are compared.
        scale: Lowest and highest score.
        request_id: Column of the key, used where it exists to find repeated verdicts
            and requests answered by several arms.
        user_id: Column that is warned about where it repeats and is not the cluster.
        vote: Column with the number of the vote, used where it exists.
        status: Column with the verdict's status, used where it exists.
        mix_versions: Allow several metric versions or judges in one table.

    Returns:
        The counts. Cost: one group-by, and for pairs or users a second one.

    Raises:
        TableError: A named column is missing.
        ScoreError: The column holds averages, which have no levels to count.
        VersionMismatchError: Several metric versions or judges, unless allowed.
        StatisticsError: Users change their stratum.

    >>> table = {"arm": ["a", "a", "b", "b"], "score": ["5", "?", "4", "2"]}
    >>> counts = count_scores(pl.DataFrame(table))
    >>> counts.counts.tolist(), counts.excluded
    ([[[0, 0, 0, 0, 1], [0, 1, 0, 1, 0]]], {'not_a_score': {'a': 1}})
    """
    from reply_resolution.stats.counting import count
    from reply_resolution.stats.repeats import Names

    names = Names(
        arm=arm,
        score=score,
        pair=pair,
        cluster=cluster,
        stratum=stratum,
        request_id=request_id,
        user_id=user_id,
        vote=vote,
        status=status,
    )
    if isinstance(frame, pl.DataFrame):
        return count(frame, names, scale, mix_versions=mix_versions)
    from reply_resolution.scale.counts import count_lazily

    return count_lazily(frame, names, scale, mix_versions=mix_versions)


def joint_table(counts: ScoreCounts, first: int, second: int) -> Ints:
    """Pairs by level in one arm (rows) and in another (columns); shape (K, K)."""
    width = len(counts.levels)
    table = np.zeros((width, width), dtype=np.int64)
    if counts.pairs is not None and counts.pair_number is not None:
        a, b = counts.pairs[:, first], counts.pairs[:, second]
        both = (a > 0) & (b > 0)
        np.add.at(table, (a[both] - 1, b[both] - 1), counts.pair_number[both])
    return table


def plural(n: int, noun: str, many: str | None = None) -> str:
    """A count with its noun: "1 row", "1,204 rows"."""
    return f"{n:,} {noun if n == 1 else (many or noun + 's')}"


def names_of(values: Sequence[Any], limit: int = 5) -> str:
    """Some names for a message, quoted, the rest counted."""
    shown = ", ".join(repr(v) for v in values[:limit])
    return shown + (f" and {len(values) - limit} more" if len(values) > limit else "")

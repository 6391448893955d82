"""Twins: the same reply made longer (or tidier, or boastful), judged both ways.

The causal evidence about length. A twin resolves exactly as much as its original, so
any systematic change of the score is the judge's doing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from reply_resolution.display import interval, number, pvalue, table
from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.columns import need, numbers
from reply_resolution.stats.permutation import paired_permutation_test
from reply_resolution.stats.regression import t_quantile

Range = tuple[float, float]

#: Mean change of log2 length below which points per doubling are not computed: the
#: twins are as long as their originals, and dividing by almost 0 says nothing.
LEAST_DOUBLINGS = 0.5
#: Says what the columns of `PairsTest.row` are.
TABLE_CAPTION = (
    "Twins against originals: kind (pairs), typical length against the original, "
    "twins that scored higher and lower, mean change in points with its interval"
)


@dataclass(frozen=True, slots=True)
class PairsTest:
    """Twins against their originals.

    Attributes:
        kind: What was done to the originals ("padded", "bulleted", ...).
        n: Pairs with both scores.
        up: Pairs in which the twin scored higher.
        down: Pairs in which it scored lower.
        change: Mean score of twin minus original, points. Above 0 the judge rewards
            what was done; 0 is fair.
        ci: Its interval (Bonett-Price: one pair up and one pair down are added, so
            that pairs that never differ do not give an interval of no width).
        pvalue: Exact two-sided sign-flip p-value of "nothing changes".
        doublings: Mean log2 length of twin minus original; 1 is twice as long.
        points_per_doubling: `change` over `doublings`: the bias that length as such
            causes. None where the twins are about as long as the originals.
        points_per_doubling_ci: Its interval; the lengths are given, not random.
        confidence: Of the intervals, fraction.
        excluded: Pairs not used, by reason.
        warnings: What a reader should know, in sentences.
    """

    kind: str
    n: int
    up: int
    down: int
    change: float
    ci: Range
    pvalue: float
    doublings: float
    points_per_doubling: float | None
    points_per_doubling_ci: Range | None
    confidence: float
    excluded: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether the exact test finds a change, at 1 minus the confidence."""
        return self.pvalue < 1 - self.confidence

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; undefined is None."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        } | {"excluded": dict(self.excluded)}

    def row(self) -> dict[str, str]:
        """One row of a report's table of kinds."""
        return {
            "kind": f"{self.kind} ({self.n})",
            "length": f"×{number(2**self.doublings, 1)}",
            "higher": str(self.up),
            "lower": str(self.down),
            "mean change": f"{number(self.change, sign=True)} "
            f"({interval(*self.ci, sign=True)})",
            "exact p": pvalue(self.pvalue),
            "per doubling": number(self.points_per_doubling, sign=True),
        }

    def _repr_html_(self) -> str:
        return str(table([self.row()], caption=TABLE_CAPTION))


def padded_pairs_test(
    pairs: pl.DataFrame,
    *,
    original: str = "score_original",
    twin: str = "score_twin",
    length_original: str = "length_original",
    length_twin: str = "length_twin",
    kind: str = "padded",
    confidence: float = 0.95,
) -> PairsTest:
    """Exact paired test of what a change of form does to the judge's score.

    Null hypothesis: in each pair the judge is as likely to favour the twin as the
    original. Two-sided: sums at least as far from 0 as the observed one; equal scores
    stay in, and count for neither side. Exact by convolution, no chance involved.

    Args:
        pairs: One row per twin, for example from `twin_pairs`.
        original: Column with the original's score: whole, or a mean of votes.
        twin: Column with the twin's score.
        length_original: Column with the original's length, above 0.
        length_twin: Column with the twin's length, above 0.
        kind: Name of what was done.
        confidence: Of the intervals, fraction.

    Raises:
        TableError: A column is missing, or scores are no means of up to 60 votes.
        StatisticsError: No pair has both scores.

    Source:
        Fisher's sign-flip test; interval: Bonett & Price (2012).

    >>> pairs = pl.DataFrame({
    ...     "score_original": [3, 4, 2, 3, 4], "score_twin": [4, 5, 3, 4, 4],
    ...     "length_original": [100] * 5, "length_twin": [200] * 5})
    >>> test = padded_pairs_test(pairs)
    >>> test.change, test.pvalue, test.points_per_doubling
    (0.8, 0.125, 0.8)
    """
    need(pairs, original, twin, length_original, length_twin)
    data = pl.DataFrame(
        {
            "original": numbers(pairs, original),
            "twin": numbers(pairs, twin),
            "before": numbers(pairs, length_original),
            "after": numbers(pairs, length_twin),
        }
    )
    scored = data.drop_nulls(["original", "twin"])
    used = scored.filter((pl.col("before") > 0) & (pl.col("after") > 0))
    excluded = {
        "missing": data.height - scored.height,
        "no_length": scored.height - used.height,
    }
    if used.is_empty():
        raise StatisticsError(
            f"none of the {pairs.height} {kind} twins has a score, an original with a "
            "score, and a length: judge twins and originals with the same judge first."
        )
    d = (used["twin"] - used["original"]).to_numpy()
    doublings = float((used["after"] / used["before"]).log(2).to_numpy().mean())
    change, ci = _mean_change(d, confidence)
    notes = []
    per = per_ci = None
    if abs(doublings) >= LEAST_DOUBLINGS:
        per = change / doublings
        ends = sorted((ci[0] / doublings, ci[1] / doublings))
        per_ci = (ends[0], ends[1])
    if used.height < 20:
        notes.append(
            f"{used.height} {kind} pairs: only a large effect would be seen; 40 are a "
            "good number."
        )
    return PairsTest(
        kind=kind,
        n=used.height,
        up=int((d > 0).sum()),
        down=int((d < 0).sum()),
        change=change,
        ci=ci,
        pvalue=_sign_flip(d),
        doublings=doublings,
        points_per_doubling=per,
        points_per_doubling_ci=per_ci,
        confidence=confidence,
        excluded={k: v for k, v in excluded.items() if v},
        warnings=tuple(notes),
    )


def pairs_by_kind(
    pairs: pl.DataFrame, *, kind: str = "kind", confidence: float = 0.95
) -> tuple[PairsTest, ...]:
    """`padded_pairs_test` for each kind of twin, padded first, then by name."""
    need(pairs, kind)
    kinds = sorted(pairs[kind].drop_nulls().unique(), key=lambda k: (k != "padded", k))
    return tuple(
        padded_pairs_test(
            pairs.filter(pl.col(kind) == name), kind=str(name), confidence=confidence
        )
        for name in kinds
    )


def _mean_change(d: npt.NDArray[np.float64], confidence: float) -> tuple[float, Range]:
    n = len(d)
    centre = float(d.sum()) / (n + 2)
    variance = (float((d * d).sum()) + 2) / (n + 2) - centre**2
    half = t_quantile(confidence, n + 1) * math.sqrt(variance / (n + 2))
    return float(d.mean()), (centre - half, centre + half)


def _sign_flip(d: npt.NDArray[np.float64]) -> float:
    sizes, numbers_of = np.unique(_whole(d), return_counts=True)
    return paired_permutation_test(sizes, numbers_of).pvalue


def _whole(d: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Differences as whole numbers: scores may be means of a few votes."""
    scale = 1
    for value in np.unique(d).tolist():
        fraction = Fraction(value).limit_denominator(60)
        if abs(float(fraction) - value) > 1e-9:
            raise TableError(
                f"score difference {value:g} is no mean of whole scores. The exact "
                "test compares whole scores, or means of up to 60 votes."
            )
        scale = math.lcm(scale, fraction.denominator)
    return np.rint(d * scale).astype(np.int64)

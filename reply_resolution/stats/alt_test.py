"""The alternative-annotator test: may the judge stand in for one of the annotators?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.agreement_parts import Array
from reply_resolution.stats.annotators import label_keys, wide_labels

#: Fewest annotators, and fewest items per annotator, for the test to mean anything.
MIN_ANNOTATORS, MIN_ITEMS = 3, 30


@dataclass(frozen=True, slots=True)
class Alternative:
    """The judge against one annotator, both measured against the others.

    Attributes:
        annotator: The annotator left out.
        n_items: Items the annotator, the judge and at least one other scored.
        judge_wins: Share of items where the judge is at least as close to the others
            as the annotator is. Fraction; ties count for both.
        annotator_wins: Share where the annotator is at least as close.
        pvalue: One-sided, of "the annotator is ahead by epsilon or more".
        rejected: Whether that is rejected after the correction over annotators: the
            judge may replace this annotator.
    """

    annotator: str
    n_items: int
    judge_wins: float
    annotator_wins: float
    pvalue: float
    rejected: bool


@dataclass(frozen=True, slots=True)
class AlternativeTest:
    """Result of the alternative-annotator test, or why it does not apply.

    Attributes:
        applies: Whether there are at least three annotators with shared items.
        reason: Why it does not apply, in a sentence; "" where it does.
        winning_rate: Share of annotators whom the judge may replace. Fraction; the
            test is passed at 0.5. None where it does not apply.
        advantage: Mean over annotators of `judge_wins`: how probable it is that the
            judge is as good as or better than a person. Fraction.
        epsilon: How much closer an annotator may be before it counts; 0.2 for
            experts, 0.15 for skilled people, 0.1 for crowds.
        q: False discovery rate of the correction (Benjamini-Yekutieli).
        annotators: One result per annotator.
        method: "t" or "wilcoxon" (below 30 items).
        warnings: What a reader should know, in sentences.
    """

    applies: bool
    reason: str
    winning_rate: float | None
    advantage: float | None
    epsilon: float
    q: float
    annotators: tuple[Alternative, ...]
    method: str
    warnings: tuple[str, ...]

    @property
    def passed(self) -> bool | None:
        """Whether the judge may replace at least half of the annotators."""
        return None if self.winning_rate is None else self.winning_rate >= 0.5


def alternative_annotator_test(
    labels: pl.DataFrame,
    verdicts: pl.DataFrame,
    *,
    judge: str = "score",
    epsilon: float = 0.2,
    q: float = 0.05,
) -> AlternativeTest:
    """May the judge stand in for an annotator? Leave one annotator out at a time.

    Null hypothesis, per annotator: on an item, the annotator is at least as close to
    the other annotators as the judge is, more often than the reverse by at least
    `epsilon`. Closeness is the root mean square distance to the others' labels; ties
    count for both.

    Args:
        labels: Long form, as from `read_labels`; repeats are left out.
        verdicts: One row per reply with `request_id` (and `arm`) and the score.
        judge: Column of the judge's score; may be an average.
        epsilon: 0.2 for experts, 0.15 for skilled people, 0.1 for crowds.
        q: False discovery rate over annotators.

    Raises:
        StatisticsError: `epsilon` or `q` is not a fraction.

    Source: Calderon, Reichart & Dror 2025 (ACL), "The alternative annotator test".
    """
    for name, value in (("epsilon", epsilon), ("q", q)):
        if not 0 < value < 1:
            raise StatisticsError(f"{name} {value!r} is not between 0 and 1.")
    wide, people = wide_labels(labels)
    keys = [k for k in label_keys(wide) if k in verdicts.columns]
    joined = wide.join(
        verdicts.filter(pl.col(judge).is_not_null()).select(
            *keys, pl.col(judge).cast(pl.Float64).alias("__judge")
        ),
        on=keys,
        how="inner",
        nulls_equal=True,
    )
    if len(people) < MIN_ANNOTATORS:
        many = f"are {len(people)}" if len(people) != 1 else "is one"
        return _without(
            f"The alternative-annotator test needs three annotators; there {many}.",
            epsilon,
            q,
        )
    scores = joined.select(pl.col(people).cast(pl.Float64)).to_numpy()
    score = joined["__judge"].to_numpy()
    wins = {name: _wins(scores, score, j) for j, name in enumerate(people)}
    kept = {name: w for name, w in wins.items() if len(w[0]) >= 2}
    notes = [
        f"{name} shares {len(w[0])} items with the others and the judge; the test "
        f"wants {MIN_ITEMS} at least."
        for name, w in wins.items()
        if len(w[0]) < MIN_ITEMS
    ]
    if len(kept) < MIN_ANNOTATORS:
        return _without(
            "The alternative-annotator test needs three annotators who labelled the "
            f"same items; only {len(kept)} did.",
            epsilon,
            q,
        )
    smallest = min(len(w[0]) for w in kept.values())
    method = "t" if smallest >= MIN_ITEMS else "wilcoxon"
    test = _t_test if method == "t" else _wilcoxon
    pvalues = np.array(
        [test(human - machine, epsilon) for machine, human in kept.values()]
    )
    rejected = _benjamini_yekutieli(pvalues, q)
    found = tuple(
        Alternative(
            annotator=name,
            n_items=len(machine),
            judge_wins=float(machine.mean()),
            annotator_wins=float(human.mean()),
            pvalue=float(p),
            rejected=bool(r),
        )
        for (name, (machine, human)), p, r in zip(
            kept.items(), pvalues, rejected, strict=True
        )
    )
    return AlternativeTest(
        applies=True,
        reason="",
        winning_rate=float(rejected.mean()),
        advantage=float(np.mean([a.judge_wins for a in found])),
        epsilon=epsilon,
        q=q,
        annotators=found,
        method=method,
        warnings=tuple(notes),
    )


def _without(reason: str, epsilon: float, q: float) -> AlternativeTest:
    return AlternativeTest(False, reason, None, None, epsilon, q, (), "", ())


def _wins(scores: Array, judge: Array, j: int) -> tuple[Array, Array]:
    """Per item: is the judge, is annotator j, at least as close to the others?"""
    own = scores[:, j]
    rest = np.delete(scores, j, axis=1)
    usable = ~np.isnan(own) & (~np.isnan(rest)).any(1)
    own, rest, judge = own[usable], rest[usable], judge[usable]
    if not len(own):
        return np.zeros(0), np.zeros(0)

    def distance(x: Array) -> Array:
        squares = np.nanmean((rest - x[:, None]) ** 2, axis=1)
        return np.asarray(np.sqrt(squares), dtype=np.float64)

    machine, human = distance(judge), distance(own)
    # Sums of squares of the same labels in another order differ in the last bit.
    near = 1e-9
    return (machine <= human + near).astype(float), (human <= machine + near).astype(
        float
    )


def _t_test(gap: Array, epsilon: float) -> float:
    """One-sided t test of mean(gap) < epsilon."""
    from scipy.special import stdtr

    n = len(gap)
    spread = float(gap.std(ddof=1))
    if spread == 0:
        return 0.0 if gap.mean() < epsilon else 1.0
    return float(stdtr(n - 1, (gap.mean() - epsilon) / (spread / np.sqrt(n))))


def _wilcoxon(gap: Array, epsilon: float) -> float:
    """One-sided signed-rank test of the same, for few items."""
    from scipy.stats import wilcoxon  # 1.3 s to import; only for few items

    return float(wilcoxon(gap - epsilon, alternative="less").pvalue)


def _benjamini_yekutieli(pvalues: Array, q: float) -> NDArray[np.bool_]:
    """Which p-values are rejected at false discovery rate q, under any dependence."""
    m = len(pvalues)
    order = np.argsort(pvalues)
    limit = q * np.arange(1, m + 1) / (m * float(np.sum(1 / np.arange(1, m + 1))))
    below = np.flatnonzero(pvalues[order] <= limit)
    out = np.zeros(m, dtype=bool)
    if len(below):
        out[order[: below[-1] + 1]] = True
    return out

"""What an effect of so many points would look like, level by level.

Power needs the whole distribution of scores in both arms, and an effect in points
does not say how the levels move. Three answers, of which the user names one *before*
the data: every level shifts, replies cross the cut only, or the truth is resolved or
not and the levels inside each class are noise. Beside it what further costs power: the
judge's errors, and users who have several replies.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Floats

#: Shares (or counts) per level in scale order; any positive multiple of shares.
Shares = Sequence[float] | Floats
Assumption = Literal["shift", "cut", "noise"]
ASSUMPTIONS: dict[str, str] = {
    "shift": "as a shift of every level",
    "cut": "only as replies that cross the cut",
    "noise": "as more replies resolved, with levels inside a class being noise",
}


def level_shares(counts: Shares) -> Floats:
    """Counts per level as shares that sum to 1.

    Args:
        counts: Replies (or any weight) per level in scale order, each 0 or more, two
            levels or more with something in them.

    Raises:
        StatisticsError: Negative or infinite counts, or all replies on one level:
            with no spread there is nothing to plan from.
    """
    values = np.asarray(counts, dtype=float)
    if values.ndim != 1 or len(values) < 2:
        raise StatisticsError(
            f"{len(values)} counts are no scale; give one per level, five for 1 to 5."
        )
    if not np.isfinite(values).all() or (values < 0).any():
        raise StatisticsError(
            f"counts must be 0 or more, not {list(counts)}; give replies per level."
        )
    if values.sum() == 0:
        raise StatisticsError("there are no pilot scores; give replies per level.")
    if (values > 0).sum() < 2:
        raise StatisticsError(
            f"all {values.sum():g} pilot scores are on one level; power needs scores "
            "that differ. Collect more, or check the judge: one that says the same of "
            "every reply measures nothing."
        )
    return np.asarray(values / values.sum())


def levels(shares: Floats, lowest: int) -> Floats:
    """The scores of the levels: lowest, lowest + 1, ..."""
    return np.arange(lowest, lowest + len(shares), dtype=float)


def treatment_shares(
    shares: Shares,
    effect: float,
    *,
    assume: Assumption = "shift",
    cut: int = 4,
    lowest: int = 1,
) -> Floats:
    """The treatment's distribution if control has `shares` and the effect is real.

    Args:
        shares: Control's share of each level, in scale order; any positive multiple.
        effect: Rise of the mean in points; negative is a fall.
        assume: "shift": proportional odds, the same odds ratio at every cut. "cut":
            replies from the nearest level below the cut move to the cut (when those
            are used up, from the next level down). "noise": the share resolved rises,
            each class keeps its own mix of levels.
        cut: Lowest score that counts as resolved.
        lowest: Lowest score of the scale.

    Returns:
        Shares that sum to 1, shape (levels,), with a mean `effect` above control's.

    Raises:
        StatisticsError: An effect that the scale has no room for, a cut that does not
            divide it, an unknown assumption.

    >>> treatment_shares([0.1, 0.2, 0.3, 0.2, 0.2], 0.3, assume="cut").round(3)
    array([0.1, 0.2, 0. , 0.5, 0.2])
    """
    p = level_shares(shares)
    scores = levels(p, lowest)
    check_assumption(assume)
    check_cut(cut, len(p), lowest)
    room = _room(p, scores, effect, assume, cut)
    # Float noise aside, a move of the whole room would leave an empty class.
    if abs(effect) > room + 1e-12 or (assume == "shift" and abs(effect) >= room):
        raise StatisticsError(
            f"an effect of {effect:+.2f} points does not fit: with these scores and "
            f"the assumption {assume!r} the mean can move by {room:.2f} at most. "
            "Assume a smaller effect."
        )
    if effect == 0:
        return p
    if assume == "shift":
        return _proportional_odds(p, scores, effect)
    if assume == "noise":
        high = scores >= cut
        resolved, unresolved = _class_means(p, scores, cut)
        gained = effect / (resolved - unresolved)
        factor = np.where(high, 1 + gained / p[high].sum(), 1 - gained / p[~high].sum())
        return np.asarray(np.maximum(0.0, p * factor))
    return _across_the_cut(p, scores, effect, cut)


def check_assumption(assume: str) -> None:
    """Refuse an assumption that does not exist."""
    if assume not in ASSUMPTIONS:
        raise StatisticsError(
            f"assumption {assume!r} does not exist; choose shift, cut or noise."
        )


def check_cut(cut: int, n_levels: int, lowest: int) -> None:
    """Refuse a cut that does not divide the scale in two."""
    if isinstance(cut, bool) or not isinstance(cut, int | np.integer):
        raise StatisticsError(f"cut is {cut!r}; give a whole score, such as 4.")
    if not lowest < cut < lowest + n_levels:
        raise StatisticsError(
            f"cut {cut} does not divide the scale {lowest} to {lowest + n_levels - 1}; "
            f"choose {lowest + 1} to {lowest + n_levels - 1}."
        )


def largest_effect(
    shares: Shares,
    *,
    assume: Assumption = "shift",
    cut: int = 4,
    lowest: int = 1,
    upward: bool = True,
) -> float:
    """How far the mean can move under an assumption, in points, 0 or more."""
    p = level_shares(shares)
    check_cut(cut, len(p), lowest)
    return _room(p, levels(p, lowest), 1.0 if upward else -1.0, assume, cut)


def _room(
    p: Floats, scores: Floats, effect: float, assume: Assumption, cut: int
) -> float:
    mean = float(p @ scores)
    high = scores >= cut
    if assume == "shift":
        occupied = scores[p > 0]
        return float(occupied[-1] - mean if effect > 0 else mean - occupied[0])
    if assume == "noise":
        resolved, unresolved = _class_means(p, scores, cut)
        return resolved - mean if effect > 0 else mean - unresolved
    if effect > 0:
        return float((p * (cut - scores))[~high].sum())
    return float((p * (scores - (cut - 1)))[high].sum())


def _class_means(p: Floats, scores: Floats, cut: int) -> tuple[float, float]:
    """Mean score of the resolved and of the unresolved replies."""
    high = scores >= cut
    for part, side in ((high, "at or above"), (~high, "below")):
        if p[part].sum() == 0:
            raise StatisticsError(
                f"no pilot score lies {side} the cut {cut}: the mix of levels within "
                "that class is unknown. Choose another cut or assumption."
            )
    means = [float(p[part] @ scores[part] / p[part].sum()) for part in (high, ~high)]
    return means[0], means[1]


def _proportional_odds(p: Floats, scores: Floats, effect: float) -> Floats:
    cumulative = np.cumsum(p)[:-1]
    target = float((p * scores).sum()) + effect

    def moved(log_odds: float) -> Floats:
        odds = np.exp(-log_odds)
        # cumulative odds times exp(-log_odds); levels without replies stay empty
        below = cumulative * odds / (cumulative * odds + (1 - cumulative))
        return np.diff(np.concatenate([[0.0], below, [1.0]]))

    low, high = (0.0, 60.0) if effect > 0 else (-60.0, 0.0)
    for _ in range(100):
        middle = (low + high) / 2
        if float((moved(middle) * scores).sum()) < target:
            low = middle
        else:
            high = middle
    return moved((low + high) / 2)


def _across_the_cut(p: Floats, scores: Floats, effect: float, cut: int) -> Floats:
    moved = p.copy()
    arrival = int(np.flatnonzero(scores >= cut)[0])
    order = range(arrival - 1, -1, -1)
    if effect < 0:  # resolved replies fall to the highest unresolved level
        order, arrival = range(arrival, len(p)), arrival - 1
    left = abs(effect)
    for level in order:
        distance = abs(float(scores[arrival] - scores[level]))
        share = min(p[level], left / distance)
        moved[level] -= share
        moved[arrival] += share
        left -= share * distance
        if left <= 1e-12:
            break
    return moved


def judged_shares(true_shares: Shares, confusion: Sequence[Sequence[int]]) -> Floats:
    """The judge's scores for replies whose true levels have `true_shares`.

    Args:
        true_shares: Share of each true level, shape (levels,).
        confusion: Calibration counts, rows the label, columns the judge's score, shape
            (levels, levels), both in scale order. A level that no label has is taken
            as judged without error.
    """
    shares = np.asarray(true_shares, dtype=float)
    return np.asarray(shares @ _rows(_confusion(confusion, len(shares))))


def true_shares_of(judge_counts: Shares, confusion: Sequence[Sequence[int]]) -> Floats:
    """Shares of the true levels behind pilot scores, by the calibration's columns.

    A score that the judge did not give in calibration is taken as true.
    """
    p = level_shares(judge_counts)
    return np.asarray(p @ _rows(_confusion(confusion, len(p)).T))


def _rows(table: Floats) -> Floats:
    """Counts as shares of their row; an empty row keeps its own level."""
    totals = table.sum(axis=1, keepdims=True)
    shares = np.where(totals > 0, table / np.maximum(totals, 1), np.eye(len(table)))
    return np.asarray(shares)


def _confusion(confusion: Sequence[Sequence[int]], n_levels: int) -> Floats:
    table = np.asarray(confusion, dtype=float)
    if table.shape != (n_levels, n_levels) or (table < 0).any() or table.sum() == 0:
        raise StatisticsError(
            f"the confusion table has the shape {table.shape}; give {n_levels} rows "
            f"(labels) of {n_levels} counts (judge scores), in scale order, not all 0."
        )
    return table


@dataclass(frozen=True, slots=True)
class DesignEffect:
    """How much less a user's further replies tell than as many independent ones.

    Attributes:
        design_effect: Variance of the mean with users as units over that with replies
            as units. 1 is independence; above 1 costs replies. Never below 1.
        effective_n: Independent replies that would tell as much.
        icc: Intraclass correlation that the design effect implies, 0 to 1; 0 where
            every user has one reply.
        users: Users with a score.
        replies: Scored replies.
    """

    design_effect: float
    effective_n: float
    icc: float
    users: int
    replies: int


def measure_design_effect(
    values: Sequence[float], users: Sequence[Hashable]
) -> DesignEffect:
    """Measure the design effect from scores (or 0/1) and the user of each.

    Give scores of both arms together, without the arm: planning must not see it.

    Args:
        values: One number per scored reply, shape (replies,).
        users: The user of each reply, same length.

    Raises:
        StatisticsError: Fewer than two users, or lengths that differ.

    Source: Kish 1965; linearised variance of a ratio mean.

    >>> measure_design_effect([5, 5, 1, 1, 3], ["a", "a", "b", "b", "c"]).design_effect
    3.0
    """
    x = np.asarray(values, dtype=float)
    if len(x) != len(users):
        raise StatisticsError(f"{len(x)} values and {len(users)} users; give pairs.")
    index: dict[Hashable, int] = {}
    code = np.array([index.setdefault(user, len(index)) for user in users], dtype=int)
    return design_effect_of_users(
        np.bincount(code, minlength=len(index)).astype(float),
        np.bincount(code, weights=x, minlength=len(index)).astype(float),
        squares=float((x**2).sum()),
    )


def design_effect_of_users(
    sizes: Floats | Sequence[float],
    sums: Floats | Sequence[float],
    *,
    squares: float,
    number: Floats | Sequence[float] | None = None,
) -> DesignEffect:
    """The same from what each user holds, or each type of user.

    Args:
        sizes: Replies of a user of the type, shape (types,).
        sums: Sum of that user's values.
        squares: Sum of the squared values of all replies of all users.
        number: How many users are of the type; 1 each when left out.

    Raises:
        StatisticsError: Fewer than two users.
    """
    size, total = np.asarray(sizes, dtype=float), np.asarray(sums, dtype=float)
    times = np.ones(len(size)) if number is None else np.asarray(number, dtype=float)
    g = int(times.sum())
    if g < 2:
        raise StatisticsError(
            f"there is {g} user with a score; a design effect needs two or more."
        )
    n = float((times * size).sum())
    mean = float((times * total).sum()) / n
    plain = squares - n * mean**2
    weighted_size = float((times * size**2).sum()) / n
    if plain <= 1e-9 * max(1.0, squares):
        # Nothing varies, so nothing can be measured: assume users are all alike.
        effect = weighted_size
    else:
        between = float((times * (total - size * mean) ** 2).sum())
        effect = max(1.0, between * g / (g - 1) / plain)
    icc = min(1.0, (effect - 1) / (weighted_size - 1)) if weighted_size > 1 else 0.0
    return DesignEffect(effect, n / effect, icc, g, round(n))

"""What it costs that users, not replies, are randomised."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.power_assumptions import Floats


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


def expected_design_effect(
    mean_size: float, icc: float, *, size_variation: float = 0.0
) -> float:
    """The design effect to expect, for a plan without data.

    Args:
        mean_size: Replies per user, 1 or more.
        icc: Correlation of two replies of one user, 0 to 1.
        size_variation: Standard deviation of replies per user over their mean.

    Returns:
        1 + ((1 + size_variation²) · mean_size - 1) · icc, at least 1.

    Source: Eldridge, Ashby and Kerry 2006.

    >>> round(expected_design_effect(3, 0.2), 2)
    1.4
    """
    if mean_size < 1 or not 0 <= icc <= 1 or size_variation < 0:
        raise StatisticsError(
            f"mean_size {mean_size!r} must be 1 or more, icc {icc!r} between 0 and 1, "
            f"size_variation {size_variation!r} 0 or more."
        )
    return 1 + ((1 + size_variation**2) * mean_size - 1) * icc

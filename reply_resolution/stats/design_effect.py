"""What it costs that users, not replies, are randomised."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from reply_resolution.errors import StatisticsError


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
    g = len(index)
    if g < 2:
        raise StatisticsError(
            f"there is {g} user with a score; a design effect needs two or more."
        )
    n = len(x)
    deviation = x - x.mean()
    plain = float((deviation**2).sum())
    sizes = np.bincount(code, minlength=g)
    sums = np.bincount(code, weights=deviation, minlength=g)
    weighted_size = float((sizes**2).sum() / n)
    if plain == 0:
        # Nothing varies, so nothing can be measured: assume users are all alike.
        effect = weighted_size
    else:
        effect = max(1.0, float((sums**2).sum()) * g / (g - 1) / plain)
    icc = min(1.0, (effect - 1) / (weighted_size - 1)) if weighted_size > 1 else 0.0
    return DesignEffect(effect, n / effect, icc, g, n)


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

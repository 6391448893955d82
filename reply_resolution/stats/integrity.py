"""Is the experiment sound? Assignment, missing scores, and what they could hide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reply_resolution.errors import StatisticsError

#: Below this many units the exact binomial test is used, chi-square from here on.
EXACT_BELOW = 1000


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """Whether the arms have the sizes that were planned.

    Attributes:
        counts: Units per arm (those that were randomised: users where users were).
        expected: Units per arm under the planned ratio, same order.
        pvalue: Chance of sizes at least as uneven if assignment works as planned.
            Fraction, 0 to 1. Small is bad: below 0.001 the experiment must not be
            read until the cause is found.
        method: "exact binomial" or "chi-square".
    """

    counts: dict[str, int]
    expected: dict[str, float]
    pvalue: float
    method: str


def sample_ratio_test(
    counts: Mapping[str, int] | Sequence[int],
    ratio: Mapping[str, float] | Sequence[float] | None = None,
    *,
    method: Literal["auto", "exact", "chi-square"] = "auto",
) -> SampleRatio:
    """Test whether units fell into the arms in the planned ratio.

    Null hypothesis: each unit went to each arm with the planned probability. The
    exact test's two-sided p-value sums the outcomes that are at most as likely as
    the one observed; chi-square is used without continuity correction.

    Args:
        counts: Units per arm, by name or in order; whole numbers, not all 0.
        ratio: Planned shares in any unit (1 and 1, or 90 and 10), same names or
            order, each above 0; equal when left out.
        method: "auto": exact for two arms with fewer than 1,000 units together,
            chi-square otherwise. "exact" is for two arms.

    Raises:
        StatisticsError: Fewer than two arms, no units, a ratio that does not fit.

    Source: Fabijan et al. 2019; Kohavi, Tang and Xu 2020, chapter 21.

    >>> round(sample_ratio_test({"control": 14, "treatment": 11}).pvalue, 5)
    0.69004
    >>> sample_ratio_test([821_588, 815_482]).pvalue < 0.001
    True
    """
    units = _named(counts)
    total = sum(units.values())
    if len(units) < 2 or total == 0:
        raise StatisticsError(
            f"a ratio needs two arms or more and at least one unit, not {units}; give "
            "the units per arm."
        )
    if method not in ("auto", "exact", "chi-square"):
        raise StatisticsError(
            f"method {method!r} does not exist; choose auto, exact or chi-square."
        )
    if method == "exact" and len(units) != 2:
        raise StatisticsError("the exact test is for two arms; use chi-square.")
    shares = _shares(units, ratio)
    expected = {arm: share * total for arm, share in shares.items()}
    small = method == "auto" and len(units) == 2 and total < EXACT_BELOW
    if method == "exact" or small:
        first = next(iter(units))
        p = _binomial_test(units[first], total, shares[first])
        return SampleRatio(units, expected, p, "exact binomial")
    p = _chi_square(units, expected, len(units) - 1)
    return SampleRatio(units, expected, p, "chi-square")


def _binomial_test(successes: int, n: int, share: float) -> float:
    """Exact two-sided p-value, as scipy's `binomtest` (0.5 s to import)."""
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(n + 1)
    log_pmf = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    log_pmf += xlogy(k, share) + xlog1py(n - k, -share)
    # Equal probabilities differ in their last bits: the mirror image must count.
    as_rare = log_pmf <= log_pmf[successes] + 1e-9
    return float(min(1.0, np.exp(log_pmf[as_rare]).sum()))


def _chi_square(
    seen: dict[str, int], expected: dict[str, float], degrees: int
) -> float:
    """Pearson's p-value, without continuity correction."""
    from scipy.special import chdtrc

    statistic = sum((seen[a] - expected[a]) ** 2 / expected[a] for a in seen)
    return float(chdtrc(degrees, statistic))


def _named(counts: Mapping[str, int] | Sequence[int]) -> dict[str, int]:
    """Counts by arm, whole and not negative."""
    pairs = list(counts.items() if isinstance(counts, Mapping) else enumerate(counts))
    for arm, n in pairs:
        whole = isinstance(n, int | np.integer) and not isinstance(n, bool)
        if not whole or n < 0:
            raise StatisticsError(
                f"arm {str(arm)!r} has the count {n!r}; counts are whole numbers, 0 or "
                "more."
            )
    return {str(arm): int(n) for arm, n in pairs}


def _shares(
    units: dict[str, int], ratio: Mapping[str, float] | Sequence[float] | None
) -> dict[str, float]:
    """The planned share of each arm; the shares sum to 1."""
    if ratio is None:
        return dict.fromkeys(units, 1 / len(units))
    if isinstance(ratio, Mapping):
        planned = {str(arm): float(share) for arm, share in ratio.items()}
    else:
        planned = dict(zip(units, map(float, ratio), strict=False))
    if set(planned) != set(units) or len(ratio) != len(units):
        raise StatisticsError(
            f"the ratio {ratio!r} does not fit the arms {sorted(units)}; give one "
            "number for each, by the same names or in the same order."
        )
    if not all(0 < share < float("inf") for share in planned.values()):
        raise StatisticsError(f"every share must be above 0, not {planned}.")
    total = sum(planned.values())
    return {arm: planned[arm] / total for arm in units}


@dataclass(frozen=True, slots=True)
class MissingScores:
    """Whether scores are missing more often in one arm.

    Attributes:
        judged: Replies per arm that were judged (whatever came of it).
        missing: Of these, replies per arm without a score.
        shares: Missing divided by judged, per arm, fraction; lower is better.
        largest_difference: Largest share minus smallest, fraction; lower is better.
        pvalue: Chance of a difference at least as large if the arm plays no part.
            Small is bad. Fraction, 0 to 1.
        method: The test: "boschloo" or "fisher mid-p" (two arms), "chi-square".
        differs: True where the arms must not be compared before the cause is found:
            p below 0.01, or shares more than 5 percentage points apart with p below
            0.05 (with few replies 5 points arise by chance).
    """

    judged: dict[str, int]
    missing: dict[str, int]
    shares: dict[str, float]
    largest_difference: float
    pvalue: float
    method: str
    differs: bool


def missing_score_test(
    judged: Mapping[str, int], missing: Mapping[str, int]
) -> MissingScores:
    """Test whether unscored replies are as frequent in every arm.

    A score that is missing for a reason that has to do with the reply (refused, cut
    off for its length) biases the comparison of what is left. Rows that were not
    drawn or not reached (`not_judged`) are missing by design: leave them out of both.

    Args:
        judged: Replies judged per arm, whatever the outcome; each at least 1.
        missing: Of these, how many have no score; 0 to `judged`, same arms.

    Raises:
        StatisticsError: Fewer than two arms, an arm in which nothing was judged, or
            counts that contradict each other.

    >>> missing_score_test({"a": 160, "b": 160}, {"a": 0, "b": 12}).differs
    True
    """
    judged, missing = _named(judged), _named(missing)
    if len(judged) < 2 or set(judged) != set(missing):
        raise StatisticsError(
            f"judged names the arms {sorted(judged)} and missing {sorted(missing)}; "
            "give the same two arms or more in both."
        )
    for arm, n in judged.items():
        if n == 0 or missing[arm] > n:
            raise StatisticsError(
                f"arm {arm!r} has {n} judged replies and {missing[arm]} without a "
                "score; an arm needs at least one judged reply, and no more missing "
                "than judged."
            )
    missing = {arm: missing[arm] for arm in judged}
    shares = {arm: missing[arm] / n for arm, n in judged.items()}
    spread = max(shares.values()) - min(shares.values())
    p, method = _same_share(judged, missing)
    differs = p < 0.01 or (spread > 0.05 and p < 0.05)
    return MissingScores(judged, missing, shares, spread, p, method, differs)


def _same_share(judged: dict[str, int], missing: dict[str, int]) -> tuple[float, str]:
    """The test of one share in all arms: exact for two, chi-square for more."""
    if len(judged) == 2:
        from reply_resolution.stats.binary import rate_test

        a, b = judged
        test = rate_test(missing[b], judged[b], missing[a], judged[a])
        return test.pvalue, test.method
    share = sum(missing.values()) / sum(judged.values())
    if share in (0, 1):
        return 1.0, "chi-square"
    cells, expected = dict(missing), {arm: n * share for arm, n in judged.items()}
    for arm, n in judged.items():  # the scored replies are cells too
        cells[f"{arm}, scored"] = n - missing[arm]
        expected[f"{arm}, scored"] = n * (1 - share)
    return _chi_square(cells, expected, len(judged) - 1), "chi-square"


@dataclass(frozen=True, slots=True)
class WorstCaseBounds:
    """What missing scores could at most do to the difference in means.

    Attributes:
        observed: Difference in mean score of the scored replies, treatment minus
            control, points.
        low: The difference if every missing treatment score were the lowest and
            every missing control score the highest. No data can lie below it.
        high: The other way round. No data can lie above it.
        all_lowest: The difference if every missing score, in both arms, were the
            lowest ("unscored is unresolved").
        all_highest: The same with the highest score.
        missing: Missing scores per arm, control first.
    """

    observed: float
    low: float
    high: float
    all_lowest: float
    all_highest: float
    missing: dict[str, int]


def worst_case_bounds(
    counts: Mapping[str, Sequence[int]],
    missing: Mapping[str, int],
    *,
    control: str,
    treatment: str,
    scale: tuple[int, int] = (1, 5),
) -> WorstCaseBounds:
    """Bounds for the difference in mean score over every filling of missing scores.

    They bound the data, not chance: a confidence interval is wider still.

    Args:
        counts: Scored replies per arm and level, in scale order (5 numbers for 1 to 5).
        missing: Judged replies without a score, per arm; arms not named have none.
        control: Name of the baseline arm.
        treatment: Name of the other arm.
        scale: Lowest and highest score.

    Raises:
        StatisticsError: An arm that is not there, or has no score at all.

    Source: Manski 1990 (bounds without assumptions on what is missing).

    >>> bounds = worst_case_bounds(
    ...     {"a": [0, 0, 0, 0, 9], "b": [0, 0, 0, 9, 0]}, {"a": 1, "b": 1},
    ...     control="a", treatment="b",
    ... )
    >>> bounds.observed, round(bounds.low, 2), round(bounds.high, 2)
    (-1.0, -1.3, -0.5)
    """
    low, high = scale
    sums: dict[str, tuple[int, int, int]] = {}
    for arm in (control, treatment):
        if arm not in counts:
            raise StatisticsError(
                f"arm {arm!r} is not among {sorted(counts)}; name one of these."
            )
        levels = list(_named(counts[arm]).values())
        if len(levels) != high - low + 1:
            raise StatisticsError(
                f"arm {arm!r} has {len(levels)} counts for the scale {low} to {high}; "
                f"give {high - low + 1}."
            )
        gone = _named({arm: missing.get(arm, 0)})[arm]
        if sum(levels) == 0:
            raise StatisticsError(
                f"arm {arm!r} has no scores ({gone} judged without one); there is no "
                "difference to bound."
            )
        total = sum(score * c for score, c in enumerate(levels, low))
        sums[arm] = sum(levels), total, gone

    def difference(fill_treatment: int, fill_control: int, weight: int = 1) -> float:
        """With the missing scores filled in; `weight` 0 leaves them out."""
        means = []
        for arm, fill in ((treatment, fill_treatment), (control, fill_control)):
            n, total, gone = sums[arm]
            means.append((total + weight * fill * gone) / (n + weight * gone))
        return means[0] - means[1]

    return WorstCaseBounds(
        observed=difference(low, low, 0),
        low=difference(low, high),
        high=difference(high, low),
        all_lowest=difference(low, low),
        all_highest=difference(high, high),
        missing={arm: sums[arm][2] for arm in (control, treatment)},
    )

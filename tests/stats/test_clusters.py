"""Users as the units: robust errors, whole-user permutation, users in both arms."""

from collections.abc import Callable
from dataclasses import replace
import itertools
from typing import Any

import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats import clusters
from reply_resolution.stats.binary_designs import clustered_rate_difference
from reply_resolution.stats.clusters import unit_cut_tests, unit_permutation_test
from reply_resolution.stats.permutation import paired_permutation_test
from reply_resolution.stats.pvalues import every_dealing
from reply_resolution.stats.unit_effects import (
    Units,
    paired_unit_effect,
    paired_unit_rate,
    unit_effect,
    unit_rate_effect,
    unit_win_probability,
)

LEVELS = np.arange(1, 6)


def _units(control: list[list[int]], treatment: list[list[int]]) -> Units:
    """Units from each user's scores."""
    rows = [np.bincount(np.array(s) - 1, minlength=5) for s in control + treatment]
    held = np.array(rows)
    arm = np.array([0] * len(control) + [1] * len(treatment))
    return Units(
        control=held * (arm == 0)[:, None],
        treatment=held * (arm == 1)[:, None],
        number=np.ones(len(rows), dtype=np.int64),
        stratum=np.zeros(len(rows), dtype=np.int64),
    )


def test_robust_error_matches_the_sandwich(oracle: Callable[[str], Any]) -> None:
    """R's vcovCL: our arm-wise factor turns CR0 into at least its CR1."""
    case = oracle("ordinal_models")["cluster_crv"]
    users: dict[int, list[int]] = {}
    for unit, y in zip(case["id"], case["y"], strict=True):
        users.setdefault(unit, []).append(y)
    units = _units(
        [s for u, s in users.items() if u <= 5], [s for u, s in users.items() if u > 5]
    )
    found = unit_effect(units, values=LEVELS)
    assert found.estimate == pytest.approx(case["diff"], rel=1e-9)
    # both arms have 5 users, so G / (G - 1) is 1.25 on R's uncorrected variance
    assert found.error == pytest.approx(case["se_CR0"] * 1.25**0.5, rel=1e-12)
    assert found.error > case["se_CR1"]
    assert not found.interval.reliable


def test_users_with_one_reply_each_are_welchs_t() -> None:
    """One reply a user: estimate, error and degrees of freedom are Welch's."""
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 6, 40), rng.integers(2, 6, 25)
    found = unit_effect(_units([[s] for s in a], [[s] for s in b]), values=LEVELS)
    welch = ttest_ind(b, a, equal_var=False)
    assert found.estimate / found.error == pytest.approx(welch.statistic, rel=1e-9)
    assert found.df == pytest.approx(welch.df, rel=1e-9)
    low, high = welch.confidence_interval(0.95)
    assert found.interval.ends == pytest.approx((low, high), rel=1e-9)


def test_repeating_every_reply_changes_nothing() -> None:
    """Ten copies of each reply of a user hold no more information."""
    once = [[1, 4], [2], [5, 5, 3], [2, 2]], [[4], [5, 5], [3, 4], [5]]
    many = [[s * 10 for s in side] for side in once]
    a, b = _units(*once), _units(*many)
    x, y = unit_effect(a, values=LEVELS), unit_effect(b, values=LEVELS)
    assert y.estimate == pytest.approx(x.estimate)
    assert y.interval.ends == pytest.approx(x.interval.ends)
    p, q = (unit_permutation_test(u, values=LEVELS).pvalue for u in (a, b))
    assert q == pytest.approx(p)


def _studentized(users: list[list[int]], treated: tuple[int, ...]) -> float:
    side = [[u for i, u in enumerate(users) if (i in treated) == t] for t in (0, 1)]
    out = []
    for arm in side:
        n, s = np.array([len(u) for u in arm]), np.array([sum(u) for u in arm])
        mean = s.sum() / n.sum()
        g = len(arm)
        v = ((s - mean * n) ** 2).sum() * g / (g - 1) / n.sum() ** 2
        out.append((mean, v))
    return float((out[1][0] - out[0][0]) / (out[0][1] + out[1][1]) ** 0.5)


def test_few_users_are_permuted_exhaustively() -> None:
    """Every dealing of eight users, by hand: the exact studentized p-value."""
    users = [[1, 2], [2], [3, 1, 1], [2, 4], [4], [5, 4], [3], [5, 5, 2]]
    found = unit_permutation_test(_units(users[:4], users[4:]), values=LEVELS)
    seen = abs(_studentized(users, (4, 5, 6, 7)))
    every = [
        abs(_studentized(users, treated))
        for treated in itertools.combinations(range(8), 4)
    ]
    want = np.mean([t >= seen - 1e-9 for t in every])
    assert found.method == "exact"
    assert found.pvalue == pytest.approx(want)
    assert found.midp < found.pvalue  # type: ignore[operator]


def test_many_users_are_drawn_with_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn and exhaustive agree within 4 standard errors; same seed, same digits."""
    rng = np.random.default_rng(3)
    users = [rng.integers(1, 6, rng.integers(1, 5)).tolist() for _ in range(14)]
    units = _units(users[:7], users[7:])
    exact = unit_permutation_test(units, values=LEVELS)
    assert exact.method == "exact"
    monkeypatch.setattr(clusters, "every_dealing", lambda *_: None)
    drawn = unit_permutation_test(units, values=LEVELS, seed=1)
    assert drawn.method == "monte_carlo"
    assert drawn == unit_permutation_test(units, values=LEVELS, seed=1)
    assert abs(drawn.pvalue - exact.pvalue) < 4 * drawn.error + 1e-4


def test_the_user_matters() -> None:
    """Five talkative users an arm are five, not fifty, pieces of evidence."""
    control = [[1] * 10, [5] * 10, [2] * 10, [5] * 10, [1] * 10]
    treatment = [[4] * 10, [5] * 10, [5] * 10, [3] * 10, [4] * 10]
    units = _units(control, treatment)
    found = unit_permutation_test(units, values=LEVELS)
    assert found.pvalue > 0.1
    rows = _units(
        [[s] for u in control for s in u], [[s] for u in treatment for s in u]
    )
    assert unit_permutation_test(rows, values=LEVELS, seed=1).pvalue < 0.001


def test_swapped_arms_mirror() -> None:
    """The estimate changes its sign, the exact p-value not at all."""
    users = [[1, 2], [2], [3, 1, 1], [2, 4], [4], [5, 4], [3], [5, 5, 2]]
    a, b = _units(users[:4], users[4:]), _units(users[4:], users[:4])
    assert unit_effect(b, values=LEVELS).estimate == pytest.approx(
        -unit_effect(a, values=LEVELS).estimate
    )
    for one, other in (
        ("greater", "less"),
        ("two-sided", "two-sided"),
    ):
        p = unit_permutation_test(a, values=LEVELS, alternative=one)
        q = unit_permutation_test(b, values=LEVELS, alternative=other)
        assert q.pvalue == pytest.approx(p.pvalue, rel=1e-12)


def test_users_in_both_arms_are_pairs() -> None:
    """With every user in both arms once, the error is that of paired differences."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(1, 6, 30), rng.integers(1, 6, 30)
    eye = np.eye(5, dtype=np.int64)
    units = Units(eye[a - 1], eye[b - 1], np.ones(30, np.int64), np.zeros(30, np.int64))
    assert units.crossing == 30
    found = unit_effect(units, values=LEVELS)
    d = b - a
    assert found.estimate == pytest.approx(d.mean())
    assert found.error == pytest.approx(d.std(ddof=1) / 30**0.5)
    flipped = unit_permutation_test(units, values=LEVELS, seed=1)
    sizes, times = np.unique(d, return_counts=True)
    exact = paired_permutation_test(sizes, times).pvalue
    assert flipped.pvalue == pytest.approx(exact, abs=0.03)


def test_one_user_in_both_arms_changes_little() -> None:
    """A single crossing user among many neither breaks nor rules the test."""
    rng = np.random.default_rng(5)
    users = [rng.integers(1, 6, 3).tolist() for _ in range(60)]
    plain = _units(users[:30], users[30:])
    control = plain.control.copy()
    control[30] = plain.treatment[30]  # this user was seen in control too
    crossing = Units(control, plain.treatment, plain.number, plain.stratum)
    assert crossing.crossing == 1
    a = unit_permutation_test(plain, values=LEVELS, seed=1).pvalue
    b = unit_permutation_test(crossing, values=LEVELS, seed=1).pvalue
    assert b == pytest.approx(a, abs=0.15)


def test_strata_of_users_are_permuted_within() -> None:
    """Between strata nothing is compared: a difference of levels is no effect."""
    easy = _units([[5, 5], [5], [4, 5]], [[5], [5, 5], [5, 4]])
    hard = _units([[1], [1, 1], [2]], [[1, 1], [1], [2]])
    both = Units(
        np.concatenate([easy.control, hard.control]),
        np.concatenate([easy.treatment, hard.treatment]),
        np.concatenate([easy.number, hard.number]),
        np.repeat([0, 1], 6),
    )
    found = unit_effect(both, values=LEVELS)
    assert abs(found.estimate) < 0.1
    assert found.error < 0.3
    assert unit_permutation_test(both, values=LEVELS, seed=1).pvalue > 0.5


def test_cuts_over_users_share_their_draws() -> None:
    """Adjusted p-values are not below the single ones, and the largest cut ties it."""
    rng = np.random.default_rng(8)
    users = [rng.integers(1, 6, rng.integers(1, 4)).tolist() for _ in range(80)]
    better = [[min(5, s + 1) for s in u] for u in users[40:]]
    found = unit_cut_tests(_units(users[:40], better), lowest=1, seed=4)
    assert [c.cut for c in found] == [2, 3, 4, 5]
    assert all(c.pvalue_adjusted >= c.pvalue > 0 for c in found)
    assert all(c.difference > 0 for c in found)
    assert {c.adjustment for c in found} == {"max-t"}


def test_pairs_of_users() -> None:
    """Several pairs a user: the mean over pairs, its error over users."""
    vectors = np.zeros((3, 5, 5), dtype=np.int64)
    vectors[0, 0, 2] = 2  # two pairs, control 1 and treatment 3
    vectors[1, 3, 3] = 1
    vectors[2, 4, 3] = 1
    offsets = np.arange(5)[None, :] - np.arange(5)[:, None]
    found = paired_unit_effect(vectors, np.array([1, 2, 1]), offsets)
    assert found.estimate == pytest.approx((4 + 0 - 1) / 5)
    off = np.array([4 - 2 * 0.6, -0.6, -0.6, -1 - 0.6])
    assert found.error == pytest.approx(((off**2).sum() * 4 / 3) ** 0.5 / 5)
    assert found.df == 3
    with pytest.raises(StatisticsError, match="at least 2"):
        paired_unit_effect(vectors[:1], np.array([1]), offsets)


def test_a_single_user_is_refused() -> None:
    """One user in an arm carries no inference, however many replies."""
    with pytest.raises(StatisticsError, match="control has 1 unit"):
        unit_effect(_units([[1, 2, 3, 4, 5]], [[1], [2]]), values=LEVELS)
    with pytest.raises(StatisticsError, match="treatment has 1 unit"):
        unit_permutation_test(_units([[1], [2]], [[1, 2, 3]]), values=LEVELS)


def test_users_without_any_spread_are_degenerate() -> None:
    """All replies alike: p = 1, the interval a marked point."""
    units = _units([[3], [3, 3], [3]], [[3], [3], [3, 3]])
    assert unit_permutation_test(units, values=LEVELS).pvalue == pytest.approx(1)
    found = unit_effect(units, values=LEVELS)
    assert found.interval.ends == (0.0, 0.0)
    assert found.interval.reason == "degenerate: no spread"


def test_a_rate_without_spread_has_an_interval_with_width() -> None:
    """All users resolved: as few independent replies as if each had sent copies."""
    sizes = ([1, 3, 2] * 12, [2, 2, 1] * 12)
    units = _units(*([[5] * n for n in side] for side in sizes))
    found = unit_rate_effect(units, high=LEVELS >= 4)
    counts = [n for side in sizes[::-1] for n in (side, side)]
    want = clustered_rate_difference(*counts)
    assert found.interval.ends == (want.low, want.high)
    assert found.interval.reliable
    half = np.arange(len(units.number)) % 2  # the same in two strata
    found = unit_rate_effect(replace(units, stratum=half), high=LEVELS >= 4)
    low, high = found.interval.ends
    assert low == pytest.approx(want.low, abs=0.03)
    assert high == pytest.approx(want.high, abs=0.03)
    vectors = np.zeros((2, 5, 5), dtype=np.int64)
    vectors[0, 4, 4], vectors[1, 3, 4] = 1, 3  # scores move, none across the cut
    gain = np.subtract.outer(LEVELS >= 4, LEVELS >= 4, dtype=int).T
    pairs = paired_unit_rate(vectors, np.array([20, 10]), gain)
    low, high = pairs.interval.ends
    assert pairs.estimate == 0
    assert low == pytest.approx(-0.14, abs=0.02)  # 3.84 / (22.7 + 3.84)
    assert high == pytest.approx(0.14, abs=0.02)


def test_listing_dealings_gives_up_where_there_are_many() -> None:
    """All distinct dealings with probabilities that add to 1; None above the limit."""
    found = every_dealing(np.array([3, 2, 4]), 4)
    assert found is not None
    ways, weights = found
    assert weights.sum() == pytest.approx(1)
    assert (ways.sum(1) == 4).all()
    assert len(ways) == 11
    assert every_dealing(np.ones(300, dtype=np.int64), 150) is None
    assert every_dealing(np.array([9, 9, 9]), 10, limit=10) is None


def test_users_are_compared_within_strata() -> None:
    """Arms mixed unequally over strata: every effect is a mean of those within them."""
    rng = np.random.default_rng(5)
    rows, places = [], []
    for h, (base, n0, n1) in enumerate([(2, 30, 10), (4, 10, 30)]):
        for arm, n in ((0, n0), (1, n1)):
            for _ in range(n):
                scores = np.clip(base + rng.integers(-1, 2, rng.integers(1, 4)), 1, 5)
                held = np.bincount(scores - 1, minlength=5)
                rows.append((held, np.zeros_like(held))[:: 1 if arm == 0 else -1])
                places.append(h)
    units = Units(
        control=np.array([c for c, _ in rows]),
        treatment=np.array([t for _, t in rows]),
        number=np.ones(len(rows), dtype=np.int64),
        stratum=np.array(places),
    )
    means, wins, rates, sizes = [], [], [], []
    for h in (0, 1):
        c, t = (a[units.stratum == h].sum(0) for a in (units.control, units.treatment))
        beats = np.sign(LEVELS[:, None] - LEVELS[None, :]) / 2 + 0.5
        wins.append(float(t @ beats @ c) / (t.sum() * c.sum()))
        means.append(float(t @ LEVELS / t.sum() - c @ LEVELS / c.sum()))
        rates.append(float(t[3:].sum() / t.sum() - c[3:].sum() / c.sum()))
        sizes.append(int(c.sum() + t.sum()))
    found = unit_effect(units, values=LEVELS)
    assert found.estimate == pytest.approx(np.average(means, weights=sizes))
    won = unit_win_probability(units)
    assert won.estimate == pytest.approx(np.average(wins, weights=sizes))
    low, high = won.interval.ends
    assert low is not None
    assert high is not None
    assert (won.estimate - low) == pytest.approx(high - won.estimate)
    cut = unit_cut_tests(units, lowest=1, resamples=99)[2]
    assert cut.cut == 4
    assert cut.difference == pytest.approx(np.average(rates, weights=sizes))
    # Strata ignored, the better-looking mix of the treatment would win.
    pooled = Units(units.control, units.treatment, units.number, 0 * units.stratum)
    assert unit_effect(pooled, values=LEVELS).estimate > found.estimate + 0.5

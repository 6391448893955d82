"""A/A error rates and coverage by simulation: a seeded part always, 2,000 runs by hand.

The full suite: `pytest -m slow tests/stats/test_error_rates.py`; last results in
tests/benchmarks/RESULTS_statistics.md. Rates of 2,000 runs at a true 5% stay below 6.6%
with a probability of 99.9%.
"""

from collections.abc import Callable
import os
from pathlib import Path

import numpy as np
import pytest

from reply_resolution.stats.binary import score_interval
from reply_resolution.stats.binary_designs import tango_interval
from reply_resolution.stats.bootstrap import (
    NEAR_CONSTANT,
    difference_interval,
    mean_interval,
    unseen_room,
)
from reply_resolution.stats.clusters import unit_permutation_test
from reply_resolution.stats.effects import (
    paired_win_probability,
    placements,
    win_probability,
)
from reply_resolution.stats.maxt import cut_tests, max_t_arms
from reply_resolution.stats.permutation import (
    paired_permutation_test,
    permutation_test,
)
from reply_resolution.stats.stratified import stratified_effects
from reply_resolution.stats.unit_effects import (
    Units,
    unit_effect,
    unit_rate_effect,
    unit_win_probability,
)

LEVELS = np.arange(1, 6)
SHAPES = {
    "spread": np.array([0.15, 0.15, 0.20, 0.25, 0.25]),
    "J": np.array([0.03, 0.05, 0.07, 0.25, 0.60]),
    "ceiling": np.array([0.01, 0.01, 0.02, 0.06, 0.90]),
}
FAST, FULL = 120, 2000
Z = 1.959963984540054


def _note(name: str, rate: float, runs: int) -> None:
    """Append a measured rate to the file named in ERROR_RATES, if it is."""
    target = os.environ.get("ERROR_RATES")
    if target:
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(f"{name}\t{rate:.4f}\t{runs}\n")


def _users(
    rng: np.random.Generator, n: int, icc: float, cuts: np.ndarray
) -> np.ndarray:
    """Users with 1 to 8 replies whose latent scores share a user effect; (n, 5)."""
    owner = np.repeat(np.arange(n), rng.integers(1, 9, n))
    latent = rng.normal(0, icc**0.5, n)[owner]
    latent = latent + rng.normal(0, (1 - icc) ** 0.5, len(owner))
    cells = owner * 5 + np.searchsorted(cuts, latent)
    return np.bincount(cells, minlength=5 * n).reshape(n, 5)


def _cuts(p: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    out: np.ndarray = ndtri(np.cumsum(p)[:-1])
    return out


def _unit_counts(control: np.ndarray, treatment: np.ndarray) -> Units:
    zero = np.zeros_like
    return Units(
        np.concatenate([control, zero(treatment)]),
        np.concatenate([zero(control), treatment]),
        np.ones(len(control) + len(treatment), dtype=np.int64),
        np.zeros(len(control) + len(treatment), dtype=np.int64),
    )


def _equal(rng: np.random.Generator) -> float:
    p = SHAPES["spread"]
    return permutation_test(rng.multinomial(100, p), rng.multinomial(100, p)).pvalue


def _unequal(rng: np.random.Generator) -> float:
    """Equal means, 90:10, the small arm more variable: where the plain test fails."""
    wide, narrow = [0.3, 0.15, 0.1, 0.15, 0.3], [0.0, 0.15, 0.7, 0.15, 0.0]
    return permutation_test(
        rng.multinomial(900, narrow),
        rng.multinomial(100, wide),
        studentized=True,
        resamples=999,
        seed=int(rng.integers(2**31)),
    ).pvalue


def _clustered(rng: np.random.Generator) -> float:
    cuts = _cuts(SHAPES["spread"])
    units = _unit_counts(_users(rng, 100, 0.3, cuts), _users(rng, 100, 0.3, cuts))
    return unit_permutation_test(
        units, values=LEVELS, resamples=999, seed=int(rng.integers(2**31))
    ).pvalue


def _paired(rng: np.random.Generator) -> float:
    mood = rng.normal(0, 0.7, 100)
    cuts = _cuts(SHAPES["spread"])
    a, b = (np.searchsorted(cuts, mood + rng.normal(0, 0.7, 100)) for _ in range(2))
    values, times = np.unique(b - a, return_counts=True)
    return paired_permutation_test(values, times).pvalue


def _stratified(rng: np.random.Generator) -> float:
    tables = [
        [
            rng.multinomial(n, SHAPES[name])
            for name, n in zip(SHAPES, sizes, strict=True)
        ]
        for sizes in ((50, 30, 20), (40, 40, 20))
    ]
    return permutation_test(np.array(tables[0]), np.array(tables[1])).pvalue


def _cut_family(rng: np.random.Generator) -> float:
    p = SHAPES["spread"]
    found = cut_tests(rng.multinomial(100, p), rng.multinomial(100, p))
    return min(cut.pvalue_adjusted for cut in found)


def _three_arms(rng: np.random.Generator) -> float:
    """One treatment truly differs; the other must keep its own error rate."""
    p = SHAPES["spread"]
    far = np.array([0.05, 0.05, 0.1, 0.3, 0.5])
    counts = np.stack([rng.multinomial(100, q) for q in (p, p, far)])
    return max_t_arms(counts, resamples=999, seed=int(rng.integers(2**31)))[0]


NULLS: dict[str, Callable[[np.random.Generator], float]] = {
    "equal arms, exact": _equal,
    "90:10, unequal spread, studentized": _unequal,
    "users (ICC 0.3, 1 to 8 replies)": _clustered,
    "pairs, exact": _paired,
    "three strata, exact": _stratified,
    "four cuts, exact max-T": _cut_family,
    "second treatment beside one that differs, max-T": _three_arms,
}


def _false_alarms(name: str, runs: int) -> float:
    rng = np.random.default_rng([11, list(NULLS).index(name)])
    return float(np.mean([NULLS[name](rng) <= 0.05 for _ in range(runs)]))


@pytest.mark.parametrize("name", NULLS)
def test_false_alarms_fast(name: str) -> None:
    """120 A/A runs: not above 5% by more than the 99.9% binomial limit."""
    rate = _false_alarms(name, FAST)
    assert rate <= 0.05 + 3.09 * (0.05 * 0.95 / FAST) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", NULLS)
def test_false_alarms_full(name: str) -> None:
    """2,000 A/A runs at 100 units an arm: from 3% to 6.6%."""
    rate = _false_alarms(name, FULL)
    _note(f"A/A: {name}", rate, FULL)
    assert rate <= 0.066
    if "max-T" not in name:
        assert rate >= 0.03


@pytest.mark.slow
def test_what_our_tests_are_better_than() -> None:
    """The plain test at 90:10 and rows for users: far above 5%, as the reasons say."""
    rng = np.random.default_rng(12)
    wide, narrow = [0.3, 0.15, 0.1, 0.15, 0.3], [0.0, 0.15, 0.7, 0.15, 0.0]
    plain = np.mean(
        [
            permutation_test(
                rng.multinomial(900, narrow), rng.multinomial(100, wide)
            ).pvalue
            <= 0.05
            for _ in range(400)
        ]
    )
    _note("A/A: 90:10 without studentizing (wrong)", float(plain), 400)
    assert plain > 0.25
    cuts = _cuts(SHAPES["spread"])
    rows = np.mean(
        [
            permutation_test(
                _users(rng, 100, 0.3, cuts).sum(0), _users(rng, 100, 0.3, cuts).sum(0)
            ).pvalue
            <= 0.05
            for _ in range(400)
        ]
    )
    _note("A/A: users ignored (wrong)", float(rows), 400)
    assert rows > 0.12


def _covered(
    shapes: tuple[str, str], n: tuple[int, int], runs: int, *, seed: int = 21
) -> dict[str, tuple[float, float, float]]:
    """Coverage of each interval, share called reliable, and coverage of those."""
    rng = np.random.default_rng([seed, *n, *(list(SHAPES).index(s) for s in shapes)])
    p0, p1 = SHAPES[shapes[0]], SHAPES[shapes[1]]
    true_mean = float((p1 - p0) @ LEVELS)
    true_wins = float(p1 @ placements(p0))
    true_rate = float(p1[3:].sum() - p0[3:].sum())
    hits = {name: [0, 0, 0] for name in ("effect", "win probability", "resolved")}
    for _ in range(runs):
        c, t = rng.multinomial(n[0], p0), rng.multinomial(n[1], p1)
        found = difference_interval(c, t)
        wins = win_probability(c, t).interval
        rate = score_interval(int(t[3:].sum()), n[1], int(c[3:].sum()), n[0], z=Z)
        for name, interval, truth, reliable in (
            ("effect", found.ends, true_mean, found.reliable),
            ("win probability", wins.ends, true_wins, wins.reliable),
            ("resolved", rate, true_rate, True),
        ):
            low, high = interval
            assert low is not None
            assert high is not None
            covered = low - 1e-12 <= truth <= high + 1e-12
            hits[name][0] += covered
            hits[name][1] += reliable
            hits[name][2] += covered and reliable
    return {
        name: (a / runs, b / runs, c / max(1, b)) for name, (a, b, c) in hits.items()
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_coverage_fast(shape: str) -> None:
    """120 runs at 20 an arm: not below 93% by more than the binomial limit."""
    for name, (covered, _, _) in _covered((shape, shape), (20, 20), FAST).items():
        assert covered >= 0.93 - 3.09 * (0.93 * 0.07 / FAST) ** 0.5, name


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 30, 50, 100])
@pytest.mark.parametrize("control", SHAPES)
@pytest.mark.parametrize("treatment", SHAPES)
def test_coverage_full(control: str, treatment: str, n: int) -> None:
    """2,000 runs: at least 93%, or nine in ten are marked as not reliable."""
    found = _covered((control, treatment), (n, n), FULL)
    for name, (covered, reliable, unmarked) in found.items():
        cell = f"{name}, {control} v {treatment}, {n}"
        _note(f"coverage: {cell}", covered, FULL)
        if reliable < 0.5:
            _note(f"share marked: {cell}", 1 - reliable, FULL)
            _note(f"coverage where unmarked: {cell}", unmarked, int(FULL * reliable))
        assert covered >= 0.93 or reliable <= 0.1, name


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 30, 50])
def test_coverage_of_pairs_full(n: int) -> None:
    """2,000 runs of pairs that share half their variance: at least 93%."""
    cuts = _cuts(SHAPES["J"])
    rng = np.random.default_rng([31, n])

    def draw(size: int) -> np.ndarray:
        mood = rng.normal(0, 0.5**0.5, size)
        a = np.searchsorted(cuts, mood + rng.normal(0, 0.5**0.5, size))
        b = np.searchsorted(cuts, mood + 0.3 + rng.normal(0, 0.5**0.5, size))
        return np.bincount(a * 5 + b, minlength=25).reshape(5, 5)

    large = draw(4_000_000)
    offsets = LEVELS[None, :] - LEVELS[:, None]
    high = LEVELS >= 4
    gain = high[None, :].astype(int) - high[:, None].astype(int)
    truth = [
        float((large * of).sum() / large.sum())
        for of in (offsets, gain, np.sign(offsets))
    ]
    hits = np.zeros(3)
    for _ in range(FULL):
        table = draw(n)
        numbers = np.array([np.trace(table, offset=d) for d in range(-4, 5)])
        mean = mean_interval(numbers, values=np.arange(-4, 5)).ends
        rate = tango_interval(
            int(table[:3, 3:].sum()), int(table[3:, :3].sum()), n, confidence=0.95
        )
        wins = paired_win_probability(table).interval.ends
        for i, (interval, true) in enumerate(
            zip(
                (mean, rate, wins),
                (truth[0], truth[1], truth[2] / 2 + 0.5),
                strict=True,
            )
        ):
            hits[i] += interval[0] - 1e-3 <= true <= interval[1] + 1e-3
    for name, rate_ in zip(("effect", "resolved", "wins"), hits / FULL, strict=True):
        _note(f"coverage: pairs, {name}, {n}", float(rate_), FULL)
        assert rate_ >= 0.93, name


@pytest.mark.slow
@pytest.mark.parametrize("users", [20, 30, 50, 100])
def test_coverage_of_users_full(users: int) -> None:
    """2,000 runs of users with 1 to 8 replies, ICC 0.3: at least 93%."""
    cuts = _cuts(SHAPES["J"])
    rng = np.random.default_rng([41, users])
    p = SHAPES["J"]
    hits = np.zeros(3)
    for _ in range(FULL):
        units = _unit_counts(
            _users(rng, users, 0.3, cuts), _users(rng, users, 0.3, cuts)
        )
        mean = unit_effect(units, values=LEVELS.astype(float)).interval.ends
        rate = unit_rate_effect(units, high=LEVELS >= 4).interval.ends
        wins = unit_win_probability(units).interval.ends
        for i, (interval, truth) in enumerate(
            zip((mean, rate, wins), (0.0, 0.0, 0.5), strict=True)
        ):
            hits[i] += interval[0] <= truth <= interval[1]
    assert p.sum() == pytest.approx(1)
    for name, rate_ in zip(("effect", "resolved", "wins"), hits / FULL, strict=True):
        _note(f"coverage: users, {name}, {users}", float(rate_), FULL)
        assert rate_ >= 0.93, name


@pytest.mark.slow
def test_coverage_of_strata_full() -> None:
    """1,000 runs of three strata, 100 an arm: at least 93%."""
    rng = np.random.default_rng(51)
    sizes = (50, 30, 20)
    hits = np.zeros(3)
    for run in range(1000):
        c, t = (
            np.array(
                [
                    rng.multinomial(n, SHAPES[name])
                    for name, n in zip(SHAPES, sizes, strict=True)
                ]
            )
            for _ in range(2)
        )
        found = stratified_effects(c, t, LEVELS, 4, seed=run, resamples=1999)
        for i, (interval, truth) in enumerate(
            (
                (found.mean_interval.ends, 0.0),
                (found.resolved_interval.ends, 0.0),
                (found.wins_interval.ends, 0.5),
            )
        ):
            hits[i] += interval[0] <= truth <= interval[1]  # type: ignore[operator]
    for name, rate in zip(("effect", "resolved", "wins"), hits / 1000, strict=True):
        _note(f"coverage: strata, {name}, 100", float(rate), 1000)
        assert rate >= 0.93, name


def _coverage_of_thin_strata(
    sizes: list[tuple[int, int]], shape: np.ndarray, runs: int
) -> tuple[np.ndarray, float]:
    """Shares of unmarked intervals that hold the truth, and of marked effects."""
    hits, said = np.zeros(3), np.zeros(3)
    rng = np.random.default_rng(52)
    tilt = np.exp(rng.normal(0, 0.5, (len(sizes), 1)) * (LEVELS - 3))
    chances = np.stack([shape * tilt, shape * tilt * np.exp(0.3 * (LEVELS - 3))])
    chances /= chances.sum(-1, keepdims=True)
    plain, treated = chances
    weight = np.array([a * b / (a + b) for a, b in sizes])
    weight /= weight.sum()
    gap = treated - plain
    truth = (
        weight @ (gap @ LEVELS),
        weight @ gap[:, 3:].sum(1),
        weight @ (treated * (np.cumsum(plain, 1) - plain / 2)).sum(1),
    )
    for run in range(runs):
        c, t = (
            np.stack(
                [rng.multinomial(n[i], p) for n, p in zip(sizes, side, strict=True)]
            )
            for i, side in enumerate(chances)
        )
        found = stratified_effects(c, t, LEVELS, 4, seed=run, resamples=999)
        ends = (found.mean_interval, found.resolved_interval, found.wins_interval)
        for i, interval in enumerate(ends):
            if not interval.reliable:
                continue
            said[i] += 1
            hits[i] += interval.low - 1e-9 <= truth[i] <= interval.high + 1e-9  # type: ignore[operator]
    return hits / np.maximum(said, 1), 1 - said[0] / runs


THIN = {
    "one against five, 25 strata": [(1, 5)] * 25,
    "mostly one against one": [(1, 1)] * 18 + [(2, 2)] * 6 + [(3, 1)] * 6,
    "one against one, 60 strata": [(1, 1)] * 60,
    "three single replies beside larger strata": [(20, 20)] * 3 + [(1, 4), (3, 1)],
    "two large strata and twenty of three": [(50, 50)] * 2 + [(1, 2)] * 20,
}


@pytest.mark.parametrize("design", list(THIN)[:4])
def test_single_replies_of_a_stratum_do_not_narrow_the_intervals(design: str) -> None:
    """Strata with one reply of an arm: without their own spread 59 to 80% covered."""
    rates, _ = _coverage_of_thin_strata(THIN[design], SHAPES["spread"], FAST)
    # 93% less 3.1 binomial standard errors
    assert rates.min() >= 0.93 - 3.1 * np.sqrt(0.93 * 0.07 / FAST)


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("design", list(THIN))
def test_coverage_of_thin_strata_full(design: str, shape: str) -> None:
    """2,000 runs: at least 93%, where fewer than half are marked."""
    rates, marked = _coverage_of_thin_strata(THIN[design], SHAPES[shape], FULL)
    for name, rate in zip(("effect", "resolved", "wins"), rates, strict=True):
        _note(f"coverage: {design}, {shape}, {name}", float(rate), FULL)
    assert marked > 0.5 or rates.min() >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(20, 20), (50, 50), (25, 125), (100, 500)])
@pytest.mark.parametrize("tilt", [0.0, 0.3, 0.6])
def test_unmarked_intervals_near_the_ceiling_cover(
    tilt: float, sizes: tuple[int, int]
) -> None:
    """Nine in ten at the top: where at least 3 in 10 are not marked, they cover."""
    plain = SHAPES["ceiling"]
    treated = plain * np.exp(tilt * (LEVELS - 3))
    treated /= treated.sum()
    truth = (treated - plain) @ LEVELS
    rng = np.random.default_rng(53)
    hits, roomy = [], 0
    for _ in range(FULL):
        c, t = rng.multinomial(sizes[0], plain), rng.multinomial(sizes[1], treated)
        found = difference_interval(c, t)
        low, high = found.low - 1e-9, found.high + 1e-9  # type: ignore[operator]
        if found.reliable:
            hits.append(low <= truth <= high)
        room = 0.0
        if found.reason == NEAR_CONSTANT:  # as the readout widens it
            room = sum(unseen_room(a, LEVELS, int(a.sum())) for a in (c, t))
        roomy += low - room <= truth <= high + room
    assert roomy / FULL >= 0.93
    name = f"unmarked near the ceiling, {tilt}, {sizes}: {len(hits)}"
    _note(name, sum(hits) / max(len(hits), 1), FULL)
    # 93% less 2.3 binomial standard errors: one of twelve would fall below by luck
    if len(hits) >= 0.3 * FULL:
        assert np.mean(hits) >= 0.93 - 2.3 * np.sqrt(0.93 * 0.07 / len(hits))

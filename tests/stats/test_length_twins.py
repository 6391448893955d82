"""Twins against originals: the exact test and its interval."""

from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.judge.twins import twin_pairs
from reply_resolution.stats.length_effects import (
    PairsTest,
    padded_pairs_test,
    pairs_by_kind,
)


def _pairs(changes: list[int], factor: float = 2.0) -> pl.DataFrame:
    n = len(changes)
    return pl.DataFrame(
        {
            "kind": ["padded"] * n,
            "score_original": [3] * n,
            "score_twin": [3 + c for c in changes],
            "length_original": [100.0] * n,
            "length_twin": [100.0 * factor] * n,
        }
    )


@pytest.mark.parametrize(
    "changes",
    [
        [1, 1, 1, 0, -1, 2],
        [0, 0, 0],
        [1, 1, 1, 1, 1],
        [-2, -1, 0, 1, -1],
    ],
)
def test_p_is_the_share_of_all_sign_flips(changes: list[int]) -> None:
    """Every assignment of signs enumerated: sums as far out as the observed one."""
    sums = [
        abs(sum(s * c for s, c in zip(signs, changes, strict=True)))
        for signs in product((-1, 1), repeat=len(changes))
    ]
    expected = np.mean([s >= abs(sum(changes)) - 1e-9 for s in sums])
    assert padded_pairs_test(_pairs(changes)).pvalue == pytest.approx(expected)


def test_points_per_doubling_divide_by_the_doublings() -> None:
    """Four times as long is two doublings; half as long turns the sign."""
    assert padded_pairs_test(_pairs([1, 0, 1], 4)).points_per_doubling == pytest.approx(
        1 / 3
    )
    short = padded_pairs_test(_pairs([-1, 0, -1], 0.5))
    assert short.points_per_doubling == pytest.approx(2 / 3)
    assert short.points_per_doubling_ci[0] == pytest.approx(-short.ci[1])


def test_twins_of_equal_length_say_nothing_per_doubling() -> None:
    """Re-formatted twins have a change, but no points per doubling."""
    test = padded_pairs_test(_pairs([1, 0, 1], 1.1), kind="bulleted")
    assert test.points_per_doubling is None
    assert test.points_per_doubling_ci is None
    assert test.change == pytest.approx(2 / 3)


def test_interval_is_bonett_price_on_counts() -> None:
    """6 up, 2 down of 40: the adjusted Wald interval, with t, by hand."""
    from scipy import stats

    test = padded_pairs_test(_pairs([1] * 6 + [-1] * 2 + [0] * 32))
    up, down = 7 / 42, 3 / 42
    half = stats.t.ppf(0.975, 41) * np.sqrt((up + down - (up - down) ** 2) / 42)
    assert test.ci == pytest.approx((up - down - half, up - down + half))
    assert (test.up, test.down, test.n) == (6, 2, 40)


def test_pairs_that_never_change_leave_room_for_a_change() -> None:
    """0 of 40 is no proof of 0: the interval has a width, which shrinks with pairs."""
    few, many = (padded_pairs_test(_pairs([0] * n)) for n in (40, 400))
    assert few.pvalue == 1
    assert few.ci[0] < -0.05 < 0.05 < few.ci[1]
    assert many.ci[1] < few.ci[1] / 5


def test_interval_covers_the_true_change() -> None:
    """2,000 seeded draws of 40 pairs, few of which move: coverage at least nominal."""
    rng = np.random.default_rng(9)
    chances, moves = [0.03, 0.92, 0.05], [-1, 0, 1]
    truth = float(np.dot(chances, moves))
    covered = 0
    for _ in range(2000):
        counts = rng.multinomial(40, chances)
        d = np.repeat(moves, counts)
        centre = d.sum() / 42
        half = 2.0195 * np.sqrt(((d @ d + 2) / 42 - centre**2) / 42)
        covered += centre - half <= truth <= centre + half
    assert covered >= 1880
    test = padded_pairs_test(_pairs(d.tolist()))
    assert test.ci == pytest.approx((centre - half, centre + half), abs=1e-4)


def test_unscored_twins_are_counted() -> None:
    """A twin or original without a score or text is left out by its reason."""
    pairs = _pairs([0, 1, 1, 1]).with_columns(
        score_twin=pl.Series([3, None, 4, 4]), length_twin=pl.Series([200, 200, 0, 200])
    )
    test = padded_pairs_test(pairs)
    assert test.n == 2
    assert test.excluded == {"missing": 1, "no_length": 1}


def test_few_pairs_are_said_to_be_few() -> None:
    """Under 20 pairs the test carries a warning, at 20 none."""
    assert padded_pairs_test(_pairs([0] * 19)).warnings
    assert not padded_pairs_test(_pairs([0] * 20)).warnings


def test_what_cannot_be_tested_is_refused_or_left_out() -> None:
    """No scored pair is an error; a kind that nobody scored does not stop the rest."""
    with pytest.raises(StatisticsError, match="none of the 0"):
        padded_pairs_test(_pairs([]))
    unscored = _pairs([0, 0]).with_columns(
        kind=pl.lit("praised"), score_twin=pl.lit(None, dtype=pl.Int64)
    )
    tests = pairs_by_kind(pl.concat([_pairs([0, 1]), unscored]))
    assert [t.kind for t in tests] == ["padded"]


@pytest.fixture(scope="module")
def bundled(root: Path) -> tuple[PairsTest, ...]:
    """The tests of the four kinds of bundled twins."""
    data = root / "data"
    return pairs_by_kind(
        twin_pairs(
            pl.read_csv(data / "calibration.csv"),
            pl.read_csv(data / "twins.csv"),
            pl.read_ndjson(data / "verdicts_twins.jsonl"),
            pl.read_ndjson(data / "verdicts_calibration.jsonl"),
        )
    )


def test_recorded_judge_does_not_follow_form(bundled: tuple[PairsTest, ...]) -> None:
    """Padded first; no kind moves the score, and every pair is used."""
    assert [t.kind for t in bundled] == ["padded", "bulleted", "condensed", "praised"]
    assert [t.n for t in bundled] == [40, 21, 19, 20]
    padded = bundled[0]
    assert (padded.up, padded.down) == (1, 2)
    assert padded.change == pytest.approx(-0.025)
    assert 1.0 < padded.doublings < 1.2
    assert not any(t.found for t in bundled)
    assert all(t.pvalue == 1 for t in bundled)

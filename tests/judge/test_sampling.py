"""Sampling and order: chance alone, balanced over arms, stable."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import TableError
from reply_resolution.judge.sampling import draw


def _independent(n: int, share: float = 0.5) -> pl.DataFrame:
    cut = round(n * share)
    return pl.DataFrame(
        {
            "request_id": [f"q{i}" for i in range(n)],
            "arm": ["control"] * cut + ["treatment"] * (n - cut),
        }
    )


def _pairs(n: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "request_id": [f"q{i // 2}" for i in range(2 * n)],
            "arm": ["control", "treatment"] * n,
        }
    )


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_any_prefix_is_balanced_over_arms(share: float) -> None:
    """Until an arm is exhausted two arms differ by one reply at most."""
    rows = _independent(200, share)
    arms = rows["arm"].gather(draw(rows, seed=3).order).to_numpy()
    signs = np.cumsum(np.where(arms == "control", 1, -1))
    smallest = min((arms == a).sum() for a in ("control", "treatment"))
    assert np.abs(signs[: 2 * smallest]).max() <= 1


def test_pairs_stay_together() -> None:
    """In the paired design every two replies judged are one request."""
    rows = _pairs(50)
    ids = rows["request_id"].gather(draw(rows, seed=1).order).to_list()
    assert ids[0::2] == ids[1::2]
    assert len(set(ids)) == 50


def test_a_pair_is_never_torn_by_the_sample() -> None:
    """An odd sample of pairs is rounded down to whole pairs."""
    drawn = draw(_pairs(50), sample=9, seed=1)
    assert drawn.drawn.sum() == 8
    assert drawn.drawn[0::2].tolist() == drawn.drawn[1::2].tolist()


def test_a_larger_sample_keeps_the_smaller() -> None:
    """Growing the sample never drops what was judged, and keeps its order."""
    rows = _independent(300)
    orders = [draw(rows, sample=n, seed=5).order.tolist() for n in (10, 50, 0.5, None)]
    for small, large in pairwise(orders):
        assert large[: len(small)] == small


def test_the_order_does_not_depend_on_the_table_s_order_or_outcomes() -> None:
    """Shuffled rows and other columns give the same requests in the same order."""
    rows = _independent(100)
    shuffled = rows.sample(fraction=1.0, shuffle=True, seed=9).with_columns(
        score=pl.lit(5)
    )
    ids = rows["request_id"].gather(draw(rows, seed=2).order)
    again = shuffled["request_id"].gather(draw(shuffled, seed=2).order)
    assert ids.to_list() == again.to_list()
    other = rows["request_id"].gather(draw(rows, seed=4).order)
    assert ids.to_list() != other.to_list()


def test_the_order_is_pinned() -> None:
    """The draw is the same on every machine and release: it is part of a result."""
    rows = _independent(8)
    ids = rows["request_id"].gather(draw(rows, seed=0).order).to_list()
    assert ids == PINNED


PINNED = ["q3", "q7", "q1", "q6", "q2", "q4", "q0", "q5"]


def test_inclusion_probabilities_are_what_chance_does() -> None:
    """Over many seeds each row is drawn as often as its probability says."""
    rows = _independent(30, share=1 / 3)
    hits = np.zeros(30)
    for seed in range(300):
        hits += draw(rows, sample=12, seed=seed).drawn
    probability = draw(rows, sample=12, seed=0).probability
    assert probability[:10].tolist() == [0.6] * 10
    assert probability[10:].tolist() == [0.3] * 20
    # 300 draws: five standard errors are 0.14 at most.
    assert np.abs(hits / 300 - probability).max() < 0.14


def test_without_arms_or_with_one_row_there_is_still_an_order() -> None:
    """A table without arms is one group; the smallest sample is one request."""
    rows = _independent(9).drop("arm")
    assert sorted(draw(rows).order.tolist()) == list(range(9))
    assert len(draw(rows.head(1), sample=0.01).order) == 1
    assert len(draw(rows.head(0)).order) == 0


@pytest.mark.parametrize("sample", [0, -1, 2.5, True, float("nan"), "many"])
def test_a_sample_size_that_is_none_is_refused(sample: object) -> None:
    """Sizes that mean nothing are an error that says what is meant."""
    with pytest.raises(TableError, match="whole number of replies"):
        draw(_independent(4), sample=sample)  # type: ignore[arg-type]


def test_the_sample_reaches_the_verdicts(
    make_replies: Callable[..., pl.DataFrame], server: object
) -> None:
    """Rows not drawn come back `not_judged`, with their probability."""
    from reply_resolution.judge.judge import judge_replies

    options = {"model": "m", "base_url": server.url, "seed": 3}  # type: ignore[attr-defined]
    rows = make_replies(20)
    run = judge_replies(rows, sample=6, **options)
    left = run.verdicts.filter(pl.col("status") == "not_judged")
    assert left.height == 14
    assert set(left["status_detail"]) == {"sampling"}
    assert set(run.verdicts["inclusion_probability"]) == {0.3}
    judged = run.verdicts.filter(pl.col("status") == "scored")
    assert judged["arm"].value_counts()["count"].to_list() == [3, 3]
    grown = judge_replies(rows, sample=10, **options)
    assert (grown.summary.cached, grown.summary.calls) == (6, 4)

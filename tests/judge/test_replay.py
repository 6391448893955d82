"""Replaying a cache: whose verdicts, and none that are not there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reply_resolution.errors import CacheError, VersionMismatchError
from reply_resolution.judge.judge import judge_replies
from reply_resolution.judge.replay import replay
from reply_resolution.judge.rubric import Rubric

Make = Callable[..., pl.DataFrame]


def test_the_one_judge_of_a_table_is_found(
    make_replies: Make, server: Any, tmp_path: Path
) -> None:
    """A judge with any rubric is found by its verdicts; nobody is asked."""
    rows, cache = make_replies(5), tmp_path / "c.sqlite"
    rubric = Rubric.default().replace(wording="Other words.", name="mine")
    run = judge_replies(
        rows, model="m", base_url=server.url, cache=cache, rubric=rubric
    )
    judge_replies(make_replies(2), model="other", base_url=server.url, cache=cache)
    calls = server.calls
    again = replay(rows, cache=cache)
    assert again["score"].to_list() == run.verdicts["score"].to_list()
    assert set(again["judge_id"]) == {run.judge_id}
    assert set(again["metric_version"]) == {run.metric_version}
    assert again["cached"].all()
    assert server.calls == calls


def test_two_judges_of_a_table_must_be_told_apart(
    make_replies: Make, server: Any, tmp_path: Path
) -> None:
    """Which judge is meant is asked for, never guessed."""
    rows, cache = make_replies(3), tmp_path / "c.sqlite"
    runs = [
        judge_replies(rows, model=m, base_url=server.url, cache=cache)
        for m in ("m1", "m2")
    ]
    with pytest.raises(VersionMismatchError, match=r"m1 by .* m2 by"):
        replay(rows, cache=cache)
    chosen = replay(rows, cache=cache, judge_id=runs[1].judge_id[:12])
    assert set(chosen["model"]) == {"m2"}


def test_what_is_missing_is_an_error_with_its_number(
    make_replies: Make, server: Any, tmp_path: Path
) -> None:
    """A cache that has part of a table does not pass for all of it."""
    cache = tmp_path / "c.sqlite"
    judge_replies(make_replies(3), model="m", base_url=server.url, cache=cache)
    with pytest.raises(CacheError, match="3 of 5"):
        replay(make_replies(5), cache=cache)
    with pytest.raises(CacheError, match="no cache"):
        replay(make_replies(5), cache=tmp_path / "absent.sqlite")

"""The fault drill: what one judged reply yields when the server always misbehaves."""

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reply_resolution.errors import JudgeError
from reply_resolution.judge import asking
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.judge import judge_replies

#: Fault -> (status, detail, HTTP calls, kept in the cache).
OUTCOMES = {
    "500": ("failed", "http_500", 5, False),
    "503": ("failed", "http_503", 5, False),
    "429": ("failed", "http_429", 12, False),
    "truncated": ("truncated", "length", 2, True),
    "refusal": ("refused", "refusal", 1, True),
    "content_filter": ("filtered", "content_filter", 1, True),
    "filtered_answer": ("filtered", "content_filter", 1, True),
    "bad_json": ("invalid", "not_json", 2, True),
    "nine": ("invalid", "out_of_range", 2, True),
    "text_score": ("invalid", "not_an_integer", 2, True),
    "float_score": ("invalid", "not_an_integer", 2, True),
    "whole_float": ("invalid", "not_an_integer", 2, True),
    "true_score": ("invalid", "not_an_integer", 2, True),
    "no_reason": ("invalid", "missing_field", 2, True),
    "blank_reason": ("invalid", "no_reason", 2, True),
    "extra_field": ("invalid", "extra_field", 2, True),
    "fenced": ("invalid", "fenced", 2, True),
    "two_objects": ("invalid", "ambiguous", 2, True),
    "duplicate_key": ("invalid", "ambiguous", 2, True),
    "prose": ("invalid", "not_json", 2, True),
    "empty": ("invalid", "empty_answer", 2, True),
    "hang": ("failed", "timeout", 2, False),
    "drip": ("failed", "timeout", 2, False),
    "reset": ("failed", "reset", 2, False),
}
#: Fault -> (words of the message, HTTP calls): the run stops at once.
STOPS = {
    "401": ("refused the key", 1),
    "404": ("does not know model", 1),
    "insufficient_quota": ("no credit left", 1),
    "no_choices": ("not with a chat completion", 1),
    "not_json_at_all": ("not with a chat completion", 1),
}


@pytest.fixture
def one_reply(make_replies: Callable[..., pl.DataFrame]) -> pl.DataFrame:
    """A table of one reply."""
    return make_replies(1)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_WAIT", 0.002)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    ("fault", "known"),
    [(fault, False) for fault in OUTCOMES]
    + [(fault, True) for fault in ("500", "truncated", "bad_json", "nine", "hang")],
)
def test_every_fault_has_a_status_within_its_calls(
    fault: str, known: bool, one_reply: pl.DataFrame, server: Any, loopback: Any
) -> None:
    """Every fault is one named status, never a number, and at most two paid calls."""
    status, detail, calls, kept = OUTCOMES[fault]
    # Long enough for a busy machine; only these two faults wait for it.
    timeout = 1.0 if fault in ("hang", "drip") else 10.0
    options: dict[str, Any] = {"model": "m", "base_url": server.url, "timeout": timeout}
    if known:  # the server has answered before, so nothing is tried out
        judge_replies(one_reply.with_columns(reply=pl.lit("another")), **options)
        server.forget()
    server.behave(fault)
    if fault == "429":  # the same, without waiting a second twelve times
        server.behave(
            lambda r: loopback.error(429, "slow", headers={"retry-after-ms": "2"})
        )
    run = judge_replies(one_reply, **options)
    row = run.verdicts.row(0, named=True)
    assert (row["status"], row["status_detail"]) == (status, detail)
    assert row["score"] is None
    assert server.calls == calls == run.summary.calls == row["attempts"]
    server.behave("good")
    again = judge_replies(one_reply, **options)
    assert again.summary.cached == int(kept)
    assert again.verdicts["status"].to_list() == [status if kept else "scored"]


@pytest.mark.parametrize("fault", STOPS)
def test_a_run_nobody_can_answer_stops_with_one_message(
    fault: str, make_replies: Callable[..., pl.DataFrame], server: Any
) -> None:
    """A bad key, no credit, no model or no API at all stop the run, not each row."""
    words, calls = STOPS[fault]
    server.behave(fault)
    with pytest.raises(JudgeError, match=words) as caught:
        judge_replies(make_replies(6), model="m", base_url=server.url)
    assert server.calls == calls
    assert caught.value.run.verdicts["status"].to_list() == ["not_judged"] * 6
    assert set(caught.value.run.verdicts["status_detail"]) == {"stopped"}


def test_a_stop_in_the_middle_keeps_what_was_judged(
    make_replies: Callable[..., pl.DataFrame], server: Any
) -> None:
    """Credit that runs out after four answers loses none of the four."""
    server.behave(*["good"] * 4, "insufficient_quota")
    rows = make_replies(12)
    with pytest.raises(JudgeError, match="no credit") as caught:
        judge_replies(rows, model="m", base_url=server.url, concurrency=1)
    assert caught.value.run.verdicts["status"].to_list().count("scored") == 4
    assert server.calls == 5
    server.behave("good")
    run = judge_replies(rows, model="m", base_url=server.url)
    assert (run.summary.cached, run.summary.calls) == (4, 8)


@pytest.mark.usefixtures("_quick")
def test_a_server_that_is_not_there_is_said_at_once(one_reply: pl.DataFrame) -> None:
    """Nobody listening is one clear message after a few tries, not a failed row."""
    with pytest.raises(JudgeError, match="does not answer"):
        judge_replies(one_reply, model="m", base_url="http://127.0.0.1:9/v1")


@pytest.mark.usefixtures("_quick")
def test_a_server_that_dies_stops_the_run(
    make_replies: Callable[..., pl.DataFrame], server: Any
) -> None:
    """After twenty verdicts failed in a row the rest is not tried in turn."""
    server.behave(*["good"] * 5, "500")
    with pytest.raises(JudgeError, match="in a row failed") as caught:
        judge_replies(
            make_replies(200), model="m", base_url=server.url, concurrency=4, attempts=2
        )
    statuses = caught.value.run.verdicts["status"].to_list()
    assert statuses.count("scored") == 5
    assert 20 <= statuses.count("failed") <= 24
    assert server.calls < 60


@pytest.mark.usefixtures("_quick")
def test_faults_that_pass_leave_a_score(one_reply: pl.DataFrame, server: Any) -> None:
    """500, a reset and a 503 are asked again; the attempts are counted."""
    server.behave("500", "reset", "503", "good")
    run = judge_replies(one_reply, model="m", base_url=server.url)
    assert run.verdicts["status"].to_list() == ["scored"]
    assert run.verdicts["attempts"].to_list() == [4]
    assert run.summary.unknown_usage == 1  # the reset may have been billed


def test_a_cut_answer_is_asked_again_with_twice_the_tokens(
    one_reply: pl.DataFrame, server: Any
) -> None:
    """The re-ask of a truncated answer gets room, and its answer counts."""
    server.behave("truncated", "good")
    run = judge_replies(
        one_reply, model="m", base_url=server.url, max_completion_tokens=50
    )
    assert run.verdicts["status"].to_list() == ["scored"]
    limits = [b["max_completion_tokens"] for b in server.bodies()]
    assert limits == [50, 100]


def test_one_bad_row_does_not_touch_the_others(
    make_replies: Callable[..., pl.DataFrame], server: Any, loopback: Any
) -> None:
    """Faults of single rows stay with these rows; the order is the table's."""
    bad = {"2": "refusal", "5": "nine", "7": "content_filter"}

    def mixed(request: Any) -> Any:
        for digit, fault in bad.items():
            if f"choose {digit}." in request.user:
                return loopback.FAULTS[fault](request)
        return loopback.good(request)

    server.behave(mixed)
    rows = make_replies(10)
    run = judge_replies(rows, model="m", base_url=server.url)
    assert run.verdicts["request_id"].to_list() == rows["request_id"].to_list()
    found = dict(run.verdicts.select("request_id", "status").iter_rows())
    assert {k: v for k, v in found.items() if v != "scored"} == {
        "q2": "refused",
        "q5": "invalid",
        "q7": "filtered",
    }
    assert run.summary.coverage() == {"control": 4 / 5, "treatment": 3 / 5}


def test_a_row_too_long_is_a_status_and_never_sent(
    make_replies: Callable[..., pl.DataFrame], server: Any
) -> None:
    """A reply of a million characters is one failed row; the rest is judged."""
    rows = make_replies(4).with_columns(
        reply=pl.when(pl.col("request_id") == "q1")
        .then(pl.lit("x" * 1_000_000))
        .otherwise("reply")
    )
    run = judge_replies(rows, model="m", base_url=server.url)
    assert run.verdicts["status"].to_list() == ["scored", "failed", "scored", "scored"]
    assert run.verdicts["status_detail"][1] == "too_long"
    assert server.calls == 3


def test_a_row_the_server_finds_too_long_is_a_status(
    make_replies: Callable[..., pl.DataFrame], server: Any, loopback: Any
) -> None:
    """A context window exceeded is that row's fault, and it is not asked again."""
    server.behave(
        "good",
        lambda r: loopback.error(
            400, "maximum context length is 4096", code="context_length_exceeded"
        ),
        "good",
    )
    run = judge_replies(make_replies(3), model="m", base_url=server.url, concurrency=1)
    assert sorted(run.verdicts["status"]) == ["failed", "scored", "scored"]
    assert server.calls == 3


def test_retry_after_holds_everybody_back_once(
    make_replies: Callable[..., pl.DataFrame], server: Any, loopback: Any
) -> None:
    """One 429 with Retry-After pauses all workers for that long, then all go on."""
    import time

    judge_replies(make_replies(1), model="m", base_url=server.url)  # meet the server
    arrivals: list[float] = []
    refused: list[float] = []

    def limited(request: Any) -> Any:
        arrivals.append(time.monotonic())
        if len(arrivals) == 9:
            refused.append(arrivals[-1])
            return loopback.error(429, "slow", headers={"retry-after": "1"})
        return loopback.good(request)

    server.behave(limited)
    server.latency = 0.05
    run = judge_replies(make_replies(60), model="m", base_url=server.url, concurrency=8)
    assert run.summary.scored == 60
    # What was in flight when the refusal came may still arrive; nothing else does.
    quiet = [t for t in arrivals if refused[0] + 0.15 < t < refused[0] + 0.95]
    assert quiet == []
    assert len(arrivals) == 60  # 59 asked, one of them twice


def test_secrets_stay_out_of_messages_tables_and_the_cache(
    make_replies: Callable[..., pl.DataFrame],
    server: Any,
    loopback: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A marked key reaches the server's header and nothing else, even when echoed."""
    key = "sk-MARKED-7f3e9a"
    cache = tmp_path / "c.sqlite"
    caplog.set_level("DEBUG")
    options: dict[str, Any] = {"base_url": server.url, "api_key": key, "cache": cache}

    def echo(request: Any) -> Any:
        answer = loopback.completion(request, loopback.verdict(3, f"I saw {key}."))
        # Once more as the model's name, and where what is kept of an answer ends.
        start = json.dumps({**answer.payload, "model": key, "pad": ""})[:-2]
        pad = "x" * (20_000 - len(start) - 12)
        answer.payload |= {"model": key, "pad": pad + key}
        return answer

    server.behave(echo)
    run = judge_replies(make_replies(2), model="m", **options)
    assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    messages = [run.summary.text(), repr(run), str(run.verdicts.to_dicts())]
    for fault in (401, 404, 500, 400):
        server.behave(lambda r, f=fault: loopback.error(f, f"bad key {key} for you"))
        with pytest.raises(JudgeError) as caught:
            judge_replies(
                make_replies(25),
                model=f"m{fault}",
                attempts=1,
                concurrency=2,
                **options,
            )
        messages.append(str(caught.value))
        messages.append(str(caught.value.run.verdicts.to_dicts()))
    assert not [m for m in messages if key in m]
    assert key not in caplog.text
    with Cache.open(cache) as store:
        store.export_jsonl(tmp_path / "out.jsonl")
    for file in tmp_path.iterdir():
        for told in (key, key[:10]):
            assert told.encode() not in file.read_bytes(), file.name

"""One call: strict reading, who is asked, and servers that want it otherwise."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import polars as pl
import pytest

from reply_resolution.errors import JudgeError
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.client import resolve_endpoint
from reply_resolution.judge.identity import Dialect
from reply_resolution.judge.job import MAX_MESSAGE_BYTES
from reply_resolution.judge.judge import judge_replies
from reply_resolution.judge.reading import (
    MAX_RETRY_AFTER,
    read_completion,
    read_text,
    retry_after,
)

Make = Callable[..., pl.DataFrame]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('{"score": 9, "reason": "r"}', "out_of_range"),
        ('{"score": 0, "reason": "r"}', "out_of_range"),
        ('{"score": -1, "reason": "r"}', "out_of_range"),
        (f'{{"score": {"9" * 400}, "reason": "r"}}', "out_of_range"),
        ('{"score": "4", "reason": "r"}', "not_an_integer"),
        ('{"score": 4.0, "reason": "r"}', "not_an_integer"),
        ('{"score": true, "reason": "r"}', "not_an_integer"),
        ('{"score": null, "reason": "r"}', "not_an_integer"),
        ('{"score": NaN, "reason": "r"}', "not_an_integer"),
        ('{"score": [4], "reason": "r"}', "not_an_integer"),
        ('{"score": 4, "reason": 5}', "no_reason"),
        ('{"score": 4, "reason": "\\n "}', "no_reason"),
        ('{"reason": "r"}', "missing_field"),
        ('{"score": 4, "reason": "r", "resolved": true}', "extra_field"),
        ('{"score": 1, "score": 5, "reason": "r"}', "ambiguous"),
        ('{"score": 1, "reason": "a"}{"score": 5, "reason": "b"}', "ambiguous"),
        ('{"score": 4, "reason": "r"} so 4', "text_around_object"),
        ('So: {"score": 4, "reason": "r"}', "not_json"),
        ('```json\n{"score": 4, "reason": "r"}\n```', "fenced"),
        ('[{"score": 4, "reason": "r"}]', "not_an_object"),
        ('"4"', "not_an_object"),
        ("4", "not_an_object"),
        ("[" * 100_000, "not_json"),
        ("", "empty_answer"),
        (None, "empty_answer"),
        ("   \n", "empty_answer"),
        ("{'score': 4, 'reason': 'r'}", "not_json"),
        ('{"score": 4, "reason": "r",}', "not_json"),
    ],
)
def test_anything_but_one_fitting_object_is_named_and_no_number(
    text: str | None, detail: str
) -> None:
    """What does not fit is `invalid` with its detail, never repaired to a score."""
    found = read_text(text)
    assert (found.status, found.detail, found.score) == ("invalid", detail, None)


@given(
    st.text() | st.dictionaries(st.text(), st.integers() | st.text()).map(json.dumps)
)
def test_reading_never_fails_and_never_invents_a_score(text: str) -> None:
    """Any text at all is a reading; a score appears only where the object says so."""
    found = read_text(text)
    if found.status == "scored":
        assert json.loads(text)["score"] == found.score
    else:
        assert found.score is None


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "message", "content", "tool_calls", "function"]
                ),
                inner,
            )
        ),
    )
)
def test_any_payload_is_read_without_an_error(payload: object) -> None:
    """A server may answer anything that is JSON; it is a status, not a crash."""
    assert read_completion(payload).score is None


def test_half_an_emoji_in_a_reason_is_made_writable() -> None:
    """A lone surrogate is replaced; the score stands."""
    found = read_text('{"score": 4, "reason": "ok \\ud83d"}')
    assert found.score == 4
    assert found.reason == "ok \ufffd"


def test_retry_after_is_read_in_every_form() -> None:
    """Milliseconds, seconds, a date; nonsense is no wait, an hour is cut."""
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    assert retry_after({"retry-after": "2"}) == 2.0
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < retry_after({"retry-after": when}) <= 30
    for text in ("soon", "-5", "nan", ""):
        assert retry_after({"retry-after": text}) == 0.0
    assert retry_after({"retry-after": "3600"}) == MAX_RETRY_AFTER


def test_with_nothing_set_the_recorded_judge_stands_in() -> None:
    """No key, no address, no model: replay only, and nothing can be called."""
    endpoint = resolve_endpoint(None, None, None)
    assert endpoint.recorded
    assert not endpoint.callable


def test_a_local_server_needs_no_key_and_a_remote_one_does() -> None:
    """A server on localhost is called without a key; another host is not."""
    assert resolve_endpoint("m", "http://localhost:8080/v1", None).callable
    assert not resolve_endpoint("m", "https://judge.example.com/v1", None).callable


def test_the_environment_is_the_default_and_arguments_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OPENAI_* settings are used as users of the client know them."""
    monkeypatch.setenv("OPENAI_API_KEY", "k1")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://a.example.com/v1/")
    monkeypatch.setenv("OPENAI_MODEL", "m1")
    found = resolve_endpoint(None, None, None)
    assert (found.base_url, found.model, found.api_key) == (
        "https://a.example.com/v1",
        "m1",
        "k1",
    )
    assert resolve_endpoint("m2", "http://localhost:1/v1", "k2").model == "m2"
    assert "k1" not in repr(found)


@pytest.mark.parametrize(
    ("model", "url", "words"),
    [
        (None, "http://localhost:8080/v1", "no model was named"),
        ("m", "localhost:8080/v1", "is not one"),
        ("m", "https://user:pw@a.example.com/v1", "user name or password"),
    ],
)
def test_who_cannot_be_asked_is_said(model: str | None, url: str, words: str) -> None:
    """An incomplete or unsafe address is an error that does not repeat secrets."""
    with pytest.raises(JudgeError, match=words) as caught:
        resolve_endpoint(model, url, None)
    assert "pw" not in str(caught.value)


def test_a_key_without_a_model_asks_for_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No model is guessed: models change, and with them the verdicts."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(JudgeError, match="--model"):
        resolve_endpoint(None, None, None)


def test_adapting_ends() -> None:
    """A server that refuses everything is given up after a handful of changes."""
    dialect: Dialect | None = Dialect()
    said = "max_completion_tokens temperature minimum response_format tools schema"
    seen = []
    while dialect is not None:
        seen.append(dialect)
        dialect = dialect.adapted(said, {"temperature": 0})
    assert len(seen) == len(set(seen)) == 6
    assert seen[-1].answer == "json_object"


@pytest.mark.parametrize(
    ("refused", "extra_calls", "changes"),
    [
        (["max_completion_tokens"], 1, "token limit sent as max_tokens"),
        (["temperature"], 1, "temperature left out"),
        (["minimum"], 1, "score range sent as a list of values"),
        (["json_schema"], 1, "answer asked for as tool"),
        (["json_schema", "tools"], 2, "answer asked for as json_object"),
        (
            ["max_completion_tokens", "temperature", "minimum"],
            3,
            "score range sent as a list of values; token limit sent as max_tokens; "
            "temperature left out",
        ),
    ],
)
def test_a_server_s_limits_are_learnt_once_and_belong_to_the_judge(
    refused: list[str],
    extra_calls: int,
    changes: str,
    make_replies: Callable[..., pl.DataFrame],
    server: Any,
    loopback: Any,
) -> None:
    """What a 400 refuses is not sent again; the judge id says how it was asked."""
    plain = judge_replies(make_replies(2), model="plain", base_url=server.url)
    server.forget()
    server.behave(loopback.without(*refused))
    rows = make_replies(6)
    run = judge_replies(rows, model="m", base_url=server.url)
    assert run.summary.scored == 6
    assert server.calls == 6 + extra_calls
    assert run.summary.notes == (f"this server was asked differently: {changes}",)
    assert run.judge_id != plain.judge_id
    more = judge_replies(make_replies(9), model="m", base_url=server.url)
    assert server.calls == 9 + extra_calls  # remembered
    assert more.judge_id == run.judge_id
    with Cache.open() as cache:
        trace = cache.trace("q8")[0]
    sent = [
        b
        for b in server.bodies()
        if b["messages"][1]["content"] == trace.verdict.user_message
    ]
    assert [json.loads(trace.request)] == sent  # `trace` is what went out


def test_a_schema_that_is_ignored_is_noticed_from_the_answer(
    make_replies: Callable[..., pl.DataFrame], server: Any, loopback: Any
) -> None:
    """A server that takes the schema and answers prose is asked by tool instead."""
    server.behave(loopback.ignores_schema)
    run = judge_replies(make_replies(5), model="m", base_url=server.url)
    assert run.summary.scored == 5
    assert server.calls == 6
    assert run.verdicts["attempts"].max() == 2
    judge_replies(make_replies(8), model="m", base_url=server.url)
    assert server.calls == 9


def test_a_server_that_ignores_schema_and_tools_is_asked_for_plain_json(
    make_replies: Callable[..., pl.DataFrame], server: Any, loopback: Any
) -> None:
    """The last form is tried on the second reply; the first keeps its two calls."""

    def ignores(request: Any) -> Any:
        if request.body.get("response_format", {}).get("type") == "json_object":
            return loopback.good(request)
        return loopback.completion(request, "I would give it a 4.")

    server.behave(ignores)
    run = judge_replies(make_replies(5), model="m", base_url=server.url)
    assert sorted(run.verdicts["status"]) == ["invalid", *["scored"] * 4]
    assert server.calls == 2 + 4
    assert "json_object" in run.summary.notes[0]


def test_a_bad_model_is_not_mistaken_for_a_bad_server(
    make_replies: Callable[..., pl.DataFrame], server: Any
) -> None:
    """Where no form helps, every reply is `invalid` by the usual form's answer."""
    server.behave("prose")
    run = judge_replies(make_replies(5), model="m", base_url=server.url)
    assert run.verdicts["status"].to_list() == ["invalid"] * 5
    assert server.calls == 10
    assert run.summary.notes == ()
    with Cache.open() as cache:
        assert cache.capability(server.url, "m") is None


def test_no_reply_is_paid_more_than_twice_while_forms_are_tried(
    make_replies: Make, server: Any, loopback: Any
) -> None:
    """A timeout counts as paid: with an answer in a form given up, that was two."""
    prose = loopback.say("I would give it a 4.")
    server.behave(prose, prose, "hang", prose, "good")
    options: dict[str, Any] = {"model": "m", "base_url": server.url, "timeout": 1.0}
    run = judge_replies(make_replies(2), concurrency=1, **options)
    assert server.calls == 4
    assert run.verdicts["attempts"].to_list() == [2, 2]
    assert run.verdicts["status"].to_list() == ["invalid", "invalid"]
    # Only the answer in the usual form is kept under this judge id.
    assert judge_replies(make_replies(2), **options).summary.cached == 1


@pytest.mark.parametrize("fault", ["content_filter", "500"])
@pytest.mark.parametrize("refused", ["max_completion_tokens", "json_schema"])
def test_a_first_row_without_an_answer_leaves_the_judge_as_asked(
    fault: str, refused: str, make_replies: Make, server: Any, loopback: Any
) -> None:
    """What is kept is kept under the judge that was asked, whatever came first."""
    server.behave(loopback.without(refused), fault, loopback.without(refused))
    run = judge_replies(make_replies(4), model="m", base_url=server.url, attempts=1)
    assert run.summary.scored == 3
    assert run.judge_id == run.verdicts["judge_id"][0]
    bodies = server.bodies()
    with Cache.open() as cache:
        for name in run.verdicts.filter(status="scored")["request_id"]:
            assert json.loads(cache.trace(name)[0].request) in bodies
    before = server.calls
    judge_replies(make_replies(4), model="m", base_url=server.url, attempts=1)
    # Only what failed is asked again, and an unmet server once more what it takes.
    assert server.calls - before <= 2 * (fault == "500")


def test_a_last_form_that_is_refused_leaves_the_usual_one(
    make_replies: Make, server: Any, loopback: Any
) -> None:
    """Some servers take a schema but no json_object: a bad model stays `invalid`."""

    def behaviour(request: Any) -> Any:
        if request.body.get("response_format", {}).get("type") == "json_object":
            return loopback.error(400, "'response_format.type' must be 'json_schema'")
        return loopback.completion(request, "I would give it a 4.")

    server.behave(behaviour)
    run = judge_replies(make_replies(4), model="m", base_url=server.url)
    assert run.verdicts["status"].to_list() == ["invalid"] * 4
    assert server.calls == 2 * 4 + 1


def test_the_trace_of_an_answer_asked_for_twice_is_exact(
    make_replies: Make, server: Any
) -> None:
    """After an answer that was cut short the limit was doubled, and `trace` says so."""
    server.behave("good", "truncated", "good")
    run = judge_replies(
        make_replies(2), model="m", base_url=server.url, concurrency=1, seed=1
    )
    name = run.verdicts.filter(attempts=2)["request_id"].item()
    with Cache.open() as cache:
        trace = cache.trace(name)[0]
    assert json.loads(trace.request) == server.bodies()[2]
    assert server.bodies()[2]["max_completion_tokens"] == 2048


def test_a_server_that_changes_its_mind_stops_the_run(
    make_replies: Callable[..., pl.DataFrame], server: Any, loopback: Any
) -> None:
    """What was learnt is forgotten, so that the next run asks anew."""
    judge_replies(make_replies(2), model="m", base_url=server.url)
    server.behave(loopback.without("temperature"))
    with pytest.raises(JudgeError, match="Run again"):
        judge_replies(make_replies(4), model="m", base_url=server.url)
    run = judge_replies(make_replies(4), model="m", base_url=server.url)
    assert run.summary.scored == 4
    assert "temperature left out" in run.summary.notes[0]


def test_a_request_refused_for_good_stops_with_the_server_s_words(
    make_replies: Callable[..., pl.DataFrame], server: Any, loopback: Any
) -> None:
    """A 400 that names nothing of ours stops the run at the first reply."""
    server.behave(lambda r: loopback.error(400, "the moon is full"))
    with pytest.raises(JudgeError, match="the moon is full"):
        judge_replies(make_replies(4), model="m", base_url=server.url)
    assert server.calls == 1


def test_only_the_untrusted_fields_leave_the_machine(
    make_replies: Callable[..., pl.DataFrame], server: Any
) -> None:
    """Arm, ids, users and other columns are never sent; real UTF-8 is."""
    judge_replies(make_replies(2), model="m", base_url=server.url)
    body = server.bodies()[0]
    system, user = body["messages"]
    assert system["role"] == "system"
    assert set(json.loads(user["content"])) == {"request", "reply"}
    assert "Grüße ☂" in user["content"]
    text = json.dumps(body, ensure_ascii=False)
    assert not [w for w in ("control", "treatment", "q0", "u0", "latency") if w in text]


def test_the_longest_message_is_stated() -> None:
    """The limit that turns a row into `too_long` is a public number."""
    assert MAX_MESSAGE_BYTES == 262_144

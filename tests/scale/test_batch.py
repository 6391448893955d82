"""Bulk: the Batch API, against a server of ours that speaks it over real HTTP."""

import importlib.util
import json
from pathlib import Path
import subprocess
import sys
import textwrap
import time

import polars as pl
import pytest

from reply_resolution.cli import main
from reply_resolution.errors import BudgetError, JudgeError
from reply_resolution.judge.budget import Limits, Price
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.judge import judge_replies
from reply_resolution.judge.rubric import Rubric
from reply_resolution.scale import batch_send, batch_store
from reply_resolution.scale.batch import submit
from reply_resolution.scale.batch_collect import collect

PRICE = Price(input=2.0, output=8.0)


def _loopback():
    name = "tests_judge_loopback"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "judge" / "loopback.py"
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Provider:
    """Files and batches, kept as OpenAI's API describes them.

    Attributes:
        files: Name -> content.
        batches: What was created, oldest first.
        fault: Address -> what to do with its next request: `lost` does it and cuts
            the answer short, `hang` does it and never answers, `refuse` says 400.
    """

    def __init__(self, server, loopback):
        self.server, self.lib = server, loopback
        self.files, self.batches, self.fault = {}, [], {}
        server.extra = self

    def __call__(self, method, path, headers, body):
        path = path.partition("?")[0].removeprefix("/v1")
        if not path.startswith(("/files", "/batches")):
            return None
        fault = self.fault.pop(f"{method} {path}", "")
        if fault == "refuse":
            return self.lib.error(400, "This model is not served in batches: sk-marked")
        answer = self.answer(method, path, headers, body)
        response = self.lib.Response(200, answer)
        response.fault = {"lost": "reset", "hang": "hang"}.get(fault, "")
        return response

    def answer(self, method, path, headers, body):
        if (method, path) == ("POST", "/files"):
            boundary = headers["content-type"].partition("boundary=")[2].encode()
            parts = body.split(b"--" + boundary)
            (part,) = [p for p in parts if b'name="file"' in p]
            assert any(b'name="purpose"' in p and b"batch" in p for p in parts)
            content = part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
            return {"id": self.keep(content), "object": "file", "purpose": "batch"}
        if (method, path) == ("POST", "/batches"):
            asked = json.loads(body)
            assert asked["completion_window"] == "24h"
            assert asked["endpoint"] == "/v1/chat/completions"
            made = {**asked, "id": f"batch-{len(self.batches)}", "object": "batch"}
            self.batches.append({**made, "status": "validating", "created_at": 0})
            return self.batches[-1]
        if path.endswith("/content"):
            return self.files[path.split("/")[2]].decode()
        if path == "/batches":
            return {"object": "list", "data": self.batches[::-1], "has_more": False}
        return self.batches[int(path.rpartition("-")[2])]

    def keep(self, content):
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return name

    def lines(self, number=-1):
        """The requests of a batch, as they arrived."""
        content = self.files[self.batches[number]["input_file_id"]]
        return [json.loads(line) for line in content.splitlines()]

    def run(self, number=-1, *, reach=None, status="completed", more=()):
        """Answer a batch: the first `reach` lines; the rest expires."""
        batch, output, errors = self.batches[number], list(more), []
        for place, line in enumerate(self.lines(number)):
            said = {"id": f"r{place}", "custom_id": line["custom_id"]}
            if reach is not None and place >= reach:
                fault = {"code": "batch_expired", "message": "could not be executed"}
                errors.append(json.dumps({**said, "response": None, "error": fault}))
                continue
            request = self.lib.Request(place + 1, line["url"], {}, line["body"])
            response = self.server.behaviour(request)
            answer = {"status_code": response.status, "body": response.payload}
            text = json.dumps({**said, "response": answer, "error": None})
            (output if response.status == 200 else errors).append(text)
        batch["status"] = status
        batch["output_file_id"] = self.keep("\n".join(output).encode())
        batch["error_file_id"] = self.keep("\n".join(errors).encode())


@pytest.fixture
def server():
    """A fresh OpenAI-compatible server."""
    with _loopback().Loopback() as running:
        yield running


@pytest.fixture
def provider(server):
    """Its Batch API."""
    return Provider(server, _loopback())


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.scale)])
def place(request, tmp_path, new_schema):
    """Where the cache is, on every database."""
    return new_schema() if request.param == "postgres" else tmp_path / "c.sqlite"


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)


def replies(n=6):
    """A table of replies in two arms."""
    return pl.DataFrame(
        {
            "request_id": [f"q{i}" for i in range(n)],
            "arm": ["control", "treatment"] * (n // 2) + ["control"] * (n % 2),
            "request": [f"How do I do thing {i}? ☂" for i in range(n)],
            "reply": [f"Open “Settings” and choose {i}." for i in range(n)],
        }
    )


@pytest.fixture
def asked(server, place):
    """Arguments of every call here; the server was met before."""
    how = {"model": "m", "base_url": server.url, "cache": place}
    judge_replies(replies(7)[6:], **how)
    server.forget()
    return how


def fields(run):
    """What must not depend on how a verdict was obtained."""
    names = ["request_id", "score", "reason", "status", "status_detail", "judge_id"]
    return run.verdicts.select(names).rows()


def test_a_batch_fills_the_cache_of_the_ordinary_judge(
    server, provider, asked, tmp_path
):
    """Same requests, same keys: then judging costs nothing and says the same."""
    done = submit(replies(), **asked)
    assert (done.asked, done.known, done.elsewhere) == (6, 0, 0)
    assert collect(cache=asked["cache"]).waiting == 1
    provider.run()
    found = collect(cache=asked["cache"])
    assert (found.statuses, found.left, found.waiting) == ({"scored": 6}, 0, 0)
    server.forget()
    run = judge_replies(replies(), **asked)
    assert (run.summary.calls, server.calls) == (0, 0)
    usual = judge_replies(replies(), **{**asked, "cache": tmp_path / "other.sqlite"})
    assert fields(run) == fields(usual)
    with Cache.open(asked["cache"]) as cache:
        bodies = {line["custom_id"]: line["body"] for line in provider.lines()}
        for (trace,) in map(cache.trace, replies()["request_id"]):
            text = json.dumps(
                bodies[trace.key], ensure_ascii=False, separators=(",", ":")
            )
            assert text == trace.request
            assert trace.attempts[0].outcome == "scored"
        assert cache.read("SELECT count(*) FROM batch_lines") == [(0,)]
    assert submit(replies(), **asked).batches == ()
    assert collect(cache=asked["cache"]).statuses == {}


def test_a_server_never_met_is_met_with_one_call(server, provider, tmp_path):
    """How a server must be asked is learnt before a file of requests is built on it."""
    server.behave("no temperature")
    how = {"model": "m", "base_url": server.url, "cache": tmp_path / "c.sqlite"}
    done = submit(replies(), **how)
    assert (done.asked, done.known) == (5, 1)
    assert all("temperature" not in line["body"] for line in provider.lines())


KILLED = """
    import sys
    import polars as pl
    from reply_resolution.scale.batch import submit
    submit(pl.read_parquet(sys.argv[1]), model="m", base_url=sys.argv[2],
           cache=sys.argv[3], run_id="run")
    """


@pytest.mark.parametrize("moment", ["POST /files", "POST /batches"])
def test_a_submission_killed_at_any_moment_is_sent_once(
    server, provider, asked, tmp_path, moment
):
    """Kill -9 while the file or the batch is on its way: resumed, never sent twice."""
    replies().write_parquet(tmp_path / "r.parquet")
    provider.fault[moment] = "hang"
    words = [str(tmp_path / "r.parquet"), server.url, str(asked["cache"])]
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED), *words])
    end = time.monotonic() + 60
    while provider.fault and time.monotonic() < end:
        time.sleep(0.02)
    child.kill()
    child.wait()
    for _ in range(50):  # a database needs a moment to see that a process is gone
        done = submit(replies(), **asked)
        assert done.asked == 0
        if done.batches and done.batches[0].state == "submitted":
            break
        time.sleep(0.1)
    assert len(provider.batches) == 1
    assert len(provider.lines()) == 6
    provider.run()
    assert collect(cache=asked["cache"]).statuses == {"scored": 6}
    with Cache.open(asked["cache"]) as cache:
        total = cache.totals("run", "run")
        assert (total.calls, total.open_calls) == (6, 0)


@pytest.mark.parametrize("moment", ["POST /files", "POST /batches"])
def test_an_answer_that_was_lost_is_asked_for_again(provider, asked, moment):
    """The line breaks after the provider took it: it is found by its name."""
    provider.fault[moment] = "lost"
    if moment == "POST /batches":
        with pytest.raises(JudgeError, match="go on from there"):
            submit(replies(), **asked)
    submit(replies(), **asked)
    assert len(provider.batches) == 1
    provider.run()
    assert collect(cache=asked["cache"]).statuses == {"scored": 6}


def test_what_a_batch_did_not_reach_is_asked_again(server, provider, asked):
    """An expired batch: its answers are kept and paid, the rest costs nothing."""
    limits = Limits(max_calls=8)
    submit(replies(), limits=limits, run_id="run", **asked)
    provider.run(reach=4, status="expired")
    found = collect(cache=asked["cache"])
    assert (found.statuses, found.left) == ({"scored": 4}, 2)
    assert "ended expired" in found.notes[0]
    with Cache.open(asked["cache"]) as cache:
        assert cache.totals("run", "run")[:1] == (4,)
    assert submit(replies(), limits=limits, run_id="run", **asked).asked == 2
    provider.run()
    assert collect(cache=asked["cache"]).statuses == {"scored": 2}


@pytest.mark.parametrize(
    ("fault", "status", "detail"),
    [
        ("content_filter", "filtered", "content_filter"),
        ("500", "failed", "http_500"),
        ("429", "failed", "http_429"),
        ("refusal", "refused", "refusal"),
        ("truncated", "truncated", "length"),
        ("bad_json", "invalid", "not_json"),
        ("text_score", "invalid", "not_an_integer"),
        ("fenced", "invalid", "fenced"),
        ("no_choices", "invalid", "not_a_completion"),
    ],
)
def test_every_line_gets_its_named_status(
    server, provider, asked, fault, status, detail
):
    """Errors per line are read as strictly as an answer; only answers are kept."""
    submit(replies(2), **asked)
    server.behave(fault)
    provider.run()
    assert collect(cache=asked["cache"]).statuses == {status: 2}
    kept = status != "failed"
    with Cache.open(asked["cache"]) as cache:
        rows = cache.read("SELECT status, status_detail FROM verdicts ORDER BY id")
        assert rows[1:] == [(status, detail)] * 2 * kept
        diary = cache.read("SELECT outcome, detail FROM attempts ORDER BY id")
        assert diary[1:] == [(status, detail)] * 2


def test_the_budget_is_booked_at_half_price_and_settled(server, provider, asked):
    """A cap holds before anything is sent; what is not used comes back."""
    full = submit(replies(), price=PRICE, run_id="a", **asked)
    worst = full.batches[0].usd / 6
    provider.run()
    collect(cache=asked["cache"])
    with Cache.open(asked["cache"]) as cache:
        total = cache.totals("run", "a")
        # 300 prompt tokens at 2 and 40 at 8 USD a million, halved
        assert total.micro_usd == 6 * (300 * 2 + 40 * 8) / 2
        assert total.open_calls == 0
        (trace,) = cache.trace("q1")
        assert trace.verdict.cost_usd == pytest.approx((300 * 2 + 40 * 8) / 2e6)
    more = replies(20)[7:]
    cap = Limits(max_usd=2.5 * worst)
    capped = submit(more, price=PRICE, limits=cap, run_id="b", **asked)
    assert (capped.asked, capped.refused) == (2, "usd per run")
    with pytest.raises(BudgetError, match="price of this model is not known"):
        submit(more, limits=Limits(max_usd=1.0), **asked)
    with pytest.raises(BudgetError, match="no share"):
        submit(more, discount=2.0, **asked)


def test_a_booking_waits_for_its_batch(provider, asked, monkeypatch):
    """Neither an hour nor the end of the process that booked writes a batch off."""
    submit(replies(), run_id="run", **asked)
    monkeypatch.setattr("reply_resolution.judge.ledger_rules.OLDEST_S", -1.0)
    with Cache.open(asked["cache"]) as cache:
        assert cache.book_lost() == 0
        assert cache.totals("run", "run").open_calls == 6


def test_what_is_in_a_batch_is_not_asked_meanwhile(server, provider, asked):
    """The ordinary judge leaves a batch's rows alone, says so, and does not wait."""
    submit(replies(), **asked)
    server.forget()
    run = judge_replies(replies(8), **asked)
    assert server.calls == 1
    assert run.verdicts["status_detail"].to_list().count("batch") == 6
    assert run.verdicts["status"].to_list().count("not_judged") == 6
    assert submit(replies(8), **asked).elsewhere == 6


@pytest.mark.parametrize("limit", ["max_requests", "max_bytes"])
def test_a_long_table_is_several_batches(provider, asked, limit):
    """No file is longer than the provider takes, by lines and by bytes."""
    submit(replies(1), **asked)
    size = len(provider.files[provider.batches[0]["input_file_id"]])
    most = 4 if limit == "max_requests" else int(4.2 * size)
    done = submit(replies(11)[1:6].vstack(replies(11)[7:]), **{limit: most}, **asked)
    assert [b.requests for b in done.batches] == [4, 4, 1]
    for number in (1, 2, 3):
        assert len(provider.lines(number)) <= 4
        provider.run(number)
    provider.run(0)
    assert collect(cache=asked["cache"]).statuses == {"scored": 10}


def test_strange_lines_are_counted_and_not_taken(provider, asked):
    """Garbage, a stranger's line and a second answer change nothing."""
    submit(replies(2), **asked)
    first = provider.lines()[0]["custom_id"]
    body = {"choices": [{"message": {"content": '{"score": 1, "reason": "x"}'}}]}
    answer = {"status_code": 200, "body": body}
    more = [
        "not json",
        '{"custom_id": "ab"}',
        json.dumps({"custom_id": first, "response": answer}),
    ]
    provider.run(more=more)
    found = collect(cache=asked["cache"])
    assert found.statuses == {"scored": 2}
    assert "3 lines were not of this batch" in found.notes[0]


def test_a_line_the_provider_lost_counts_in_full(provider, asked):
    """A batch that completed without an answer may have billed for it."""
    submit(replies(2), run_id="run", **asked)
    provider.run()
    batch = provider.batches[0]
    output = provider.files[batch["output_file_id"]].splitlines()
    batch["output_file_id"] = provider.keep(output[0])
    found = collect(cache=asked["cache"])
    assert found.statuses == {"scored": 1, "failed": 1}
    with Cache.open(asked["cache"]) as cache:
        total = cache.totals("run", "run")
        assert (total.calls, total.open_calls) == (2, 0)
        assert total.tokens > 340 + 1024


def test_a_batch_the_provider_refuses_owes_nothing(provider, asked):
    """A refusal is an error without the key in it, and gives everything back."""
    provider.fault["POST /batches"] = "refuse"
    with pytest.raises(JudgeError, match="not served in batches") as caught:
        submit(replies(), run_id="run", api_key="sk-marked", **asked)
    assert "sk-marked" not in str(caught.value)
    with Cache.open(asked["cache"]) as cache:
        assert cache.totals("run", "run")[:6] == (0,) * 6
        assert [b.state for b in batch_store.batches(cache)] == ["refused"]
        assert "sk-marked" not in str(cache.read("SELECT document FROM batches"))
    assert submit(replies(), **asked).asked == 6


def test_a_batch_that_failed_validation_owes_nothing(provider, asked):
    """What the provider says was wrong is told, and the requests are free again."""
    submit(replies(2), run_id="run", **asked)
    problem = {"code": "invalid_json_line", "message": "line 2 is not right"}
    errors = {"object": "list", "data": [problem]}
    provider.batches[0] |= {"status": "failed", "errors": errors}
    found = collect(cache=asked["cache"])
    assert (found.left, found.statuses) == (2, {})
    assert "ended failed: line 2 is not right" in found.notes[0]
    with Cache.open(asked["cache"]) as cache:
        assert cache.totals("run", "run")[:6] == (0,) * 6


def test_two_who_send_one_batch_send_it_once(provider, asked):
    """While one has its turn with a batch, another leaves it alone."""
    provider.fault["POST /batches"] = "refuse"
    with pytest.raises(JudgeError):
        submit(replies(2), **asked)
    with Cache.open(asked["cache"]) as cache:
        (batch,) = batch_store.batches(cache)
        batch = batch_store.update(cache, batch, state="planned")
        with batch_send.turn(cache, batch) as mine:
            assert mine == batch
            assert batch_send.send(cache, None, None, batch) == batch
        assert provider.batches == []


def test_the_command_line_submits_tells_and_collects(
    server, provider, asked, tmp_path, capsys
):
    """Three verbs, and then `judge` writes the table without a call."""
    replies().write_parquet(tmp_path / "r.parquet")
    cache = ["--cache", str(asked["cache"])]
    how = ["--model", "m", "--base-url", server.url, *cache]
    assert main(["batch", "submit", str(tmp_path / "r.parquet"), *how]) == 0
    assert "6 requests, submitted" in capsys.readouterr().out
    assert main(["batch", "status", *cache]) == 0
    assert "validating" in capsys.readouterr().out
    provider.run()
    assert main(["batch", "collect", "--json", *cache]) == 0
    assert json.loads(capsys.readouterr().out)["statuses"] == {"scored": 6}
    assert main(["batch", "status", "--json", *cache]) == 0
    (told,) = json.loads(capsys.readouterr().out)["batches"]
    assert (told["state"], told["status"]) == ("collected", "completed")
    server.forget()
    out = str(tmp_path / "v.parquet")
    assert main(["judge", str(tmp_path / "r.parquet"), "--out", out, *how]) == 0
    assert server.calls == 0
    assert pl.read_parquet(out)["status"].to_list() == ["scored"] * 6


def test_nobody_to_ask_is_said(tmp_path):
    """Without a key there is no batch, and nothing is written down."""
    with pytest.raises(JudgeError, match="somebody to ask"):
        submit(replies(), cache=tmp_path / "c.sqlite", rubric=Rubric.default())
    assert not (tmp_path / "c.sqlite").exists()

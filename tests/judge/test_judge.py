"""Replies in, verdicts out: cache, budget, votes, replay, interrupts, processes."""

import asyncio
from collections.abc import Callable, Iterator
import os
from pathlib import Path
import signal
import subprocess
import sys
import threading
import time
from typing import Any, cast

import polars as pl
from polars.testing import assert_frame_equal
import pytest

from reply_resolution.errors import BudgetError, CacheError, JudgeError, TableError
from reply_resolution.judge.budget import Ledger, Limits, Price, Reservation
from reply_resolution.judge.cache import Cache, SqliteCache
from reply_resolution.judge.judge import estimate, judge_replies, record
from reply_resolution.judge.keeping import Bookkeeper
from reply_resolution.judge.results import Tally
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import Refusal
from reply_resolution.tables.verdicts import VERDICT_SCHEMA

Make = Callable[..., pl.DataFrame]


def test_every_row_comes_back_in_order_with_the_agreed_columns(
    make_replies: Make, server: Any, loopback: Any
) -> None:
    """The verdict of each reply is its own, in the table's order and schema."""
    rows = make_replies(40)
    server.latency = 0.002
    run = judge_replies(rows, model="m", base_url=server.url)
    table = run.verdicts
    assert table.columns[: len(VERDICT_SCHEMA)] == list(VERDICT_SCHEMA)
    assert table.schema["score"] == pl.Int8
    assert table["request_id"].to_list() == rows["request_id"].to_list()
    by_message = {r.user: loopback.score_of(r.user) for r in server.requests}
    rubric = Rubric.default()
    wanted = [by_message[rubric.user_message(r).text] for r in rows.to_dicts()]
    assert table["score"].to_list() == wanted
    # The replies' own column of that name is kept beside the judge's.
    assert table["latency_ms_given"].to_list() == rows["latency_ms"].to_list()
    assert set(table["model_returned"]) == {"m-2026-10-01"}
    assert set(table["metric_version"]) == {run.metric_version}


def test_running_again_costs_nothing_and_gives_the_same(
    make_replies: Make, server: Any
) -> None:
    """The second run makes no call, and differs only in saying `cached`."""
    rows = make_replies(10)
    first = judge_replies(rows, model="m", base_url=server.url)
    again = judge_replies(rows, model="m", base_url=server.url)
    assert (first.summary.calls, again.summary.calls, server.calls) == (10, 0, 10)
    assert again.verdicts["cached"].all()
    assert not first.verdicts["cached"].any()
    assert_frame_equal(first.verdicts.drop("cached"), again.verdicts.drop("cached"))


def test_duplicates_cost_one_call(make_replies: Make, server: Any) -> None:
    """Ten rows of one message are one call; the nine others count as cached."""
    rows = make_replies(10).with_columns(request=pl.lit("R"), reply=pl.lit("same"))
    run = judge_replies(rows, model="m", base_url=server.url)
    assert server.calls == 1
    assert run.summary.scored == 10
    assert run.verdicts["cached"].to_list().count(False) == 1


def test_columns_that_are_not_sent_reuse_the_verdicts(
    make_replies: Make, server: Any
) -> None:
    """Another arm, id or cut asks nothing; one byte of the reply asks again."""
    rows = make_replies(4)
    judge_replies(rows, model="m", base_url=server.url)
    other = rows.with_columns(
        arm=pl.lit("x"), request_id=pl.col("user_id") + pl.col("request_id")
    )
    cut = Rubric.default().replace(cut=3)
    run = judge_replies(other, model="m", base_url=server.url, rubric=cut)
    assert (run.summary.calls, server.calls) == (0, 4)
    assert run.metric_version.startswith("reply_resolution@v2:")
    judge_replies(
        rows.with_columns(reply=pl.col("reply") + " "), model="m", base_url=server.url
    )
    assert server.calls == 8


def test_empty_replies_are_scored_by_rule(make_replies: Make, server: Any) -> None:
    """An empty reply is a 1 without a call, and says so, whatever was asked."""
    last = pl.col("request_id") == "q3"
    rows = make_replies(5).with_columns(
        request=pl.when(last).then(pl.lit("")).otherwise("request"),
        reply=pl.when(last | (pl.col("request_id") == "q2"))
        .then(pl.lit(" \u200b"))
        .otherwise("reply"),
    )
    run = judge_replies(rows, model="m", base_url=server.url)
    said = run.verdicts[2:4].select("score", "status", "status_detail").rows()
    assert said == [(1, "scored", "empty")] * 2
    assert (server.calls, run.summary.empty) == (3, 2)


def test_votes_are_independent_calls(make_replies: Make, server: Any) -> None:
    """Each vote on a reply is a call and a row of its own, kept apart in the cache."""
    rows = make_replies(3)
    run = judge_replies(rows, model="m", base_url=server.url, votes=3)
    assert run.verdicts.select("request_id", "vote").rows() == [
        (f"q{i}", v) for i in range(3) for v in range(3)
    ]
    assert server.calls == 9
    judge_replies(rows, model="m", base_url=server.url)
    assert server.calls == 9


def test_a_cap_on_calls_leaves_a_fair_experiment(
    make_replies: Make, server: Any
) -> None:
    """At the cap the rest is `not_judged`, the arms are level, and it goes on later."""
    rows = make_replies(60)
    options: dict[str, Any] = {"model": "m", "base_url": server.url}
    run = judge_replies(rows, limits=Limits(max_calls=21), **options)
    assert server.calls == 21 == run.summary.calls
    assert run.summary.capped == "calls per run"
    judged = run.verdicts.filter(pl.col("status") == "scored")
    left = run.verdicts.filter(pl.col("status") == "not_judged")
    assert set(left["status_detail"]) == {"budget"}
    counts = judged["arm"].value_counts()["count"].to_list()
    assert sorted(counts) == [10, 11]
    assert run.summary.coverage() == {"control": 1.0, "treatment": 1.0}
    assert judge_replies(rows, **options).summary.calls == 39


@pytest.mark.parametrize("concurrency", [1, 16])
def test_a_cap_on_tokens_holds_whatever_is_in_flight(
    make_replies: Make, server: Any, concurrency: int
) -> None:
    """What the server bills never exceeds the cap, and most of the cap is used."""
    server.latency = 0.005
    run = judge_replies(
        make_replies(80),
        model="m",
        base_url=server.url,
        limits=Limits(max_total_tokens=15_000),
        concurrency=concurrency,
        max_completion_tokens=100,
    )
    billed = 340 * server.calls
    assert 10_000 < billed <= 15_000
    assert run.summary.prompt_tokens + run.summary.completion_tokens == billed
    assert run.summary.capped == "tokens per run"


def test_a_cap_in_usd_needs_a_price_and_holds(make_replies: Make, server: Any) -> None:
    """Without a price a cap in USD is refused before any call; with one it holds."""
    options: dict[str, Any] = {"model": "m", "base_url": server.url}
    with pytest.raises(BudgetError, match="price"):
        judge_replies(make_replies(5), limits=Limits(max_usd=1.0), **options)
    assert server.calls == 0
    run = judge_replies(
        make_replies(80),
        limits=Limits(max_usd=0.02),
        price=Price(input=1.0, output=2.0),
        max_completion_tokens=100,
        **options,
    )
    assert run.summary.usd is not None
    assert 0.01 < run.summary.usd <= 0.02
    assert run.summary.usd == pytest.approx(server.calls * (300 + 2 * 40) / 1e6)


def test_a_server_that_bills_more_than_it_may_stops_the_run(
    make_replies: Make, server: Any, loopback: Any
) -> None:
    """An answer beyond the reserved tokens is booked, and nothing more is asked."""
    server.behave(
        lambda r: loopback.completion(r, loopback.verdict(4), usage=(300, 90_000))
    )
    run = judge_replies(
        make_replies(200),
        model="m",
        base_url=server.url,
        limits=Limits(max_total_tokens=10_000_000),
        concurrency=1,
    )
    assert run.summary.capped.startswith("over")
    assert run.summary.scored < 70  # one commit's worth at most
    assert run.verdicts["status"].to_list().count("not_judged") > 130


def test_the_ledger_counts_what_the_server_counts(
    make_replies: Make, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every HTTP call, failed ones included, is one call in the ledger."""
    from reply_resolution.judge import asking

    monkeypatch.setattr(asking, "FIRST_WAIT", 0.001)
    server.behave("500", "good", "nine", "503", "reset", "good")
    with Cache.open(tmp_path / "c.sqlite") as cache:
        judge_replies(
            make_replies(6), model="m", base_url=server.url, cache=cache, run_id="r"
        )
        total = cache.totals("run", "r")
    assert (total.calls, total.open_calls) == (server.calls, 0)


def test_without_a_key_the_cache_is_replayed_or_the_gap_is_said(
    make_replies: Make, server: Any
) -> None:
    """What is known is replayed with no key; what is missing is counted and named."""
    rows = make_replies(5)
    url = "https://judge.example.com/v1"
    with pytest.raises(JudgeError) as caught:
        judge_replies(rows, model="m", base_url=url)
    for word in ("no verdict for 5 of 5", "OPENAI_API_KEY", "--base-url", "'q"):
        assert word in str(caught.value)
    judge_replies(rows.head(3), model="m", base_url=server.url)
    run = judge_replies(rows.head(3), model="m", base_url=server.url, offline=True)
    assert run.summary.cached == 3
    with pytest.raises(JudgeError, match="no verdict for 2 of 5"):
        judge_replies(rows, model="m", base_url=server.url, offline=True)
    assert server.calls == 3


def test_a_cache_that_cannot_be_written_is_replayed(
    make_replies: Make, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only copy of a cache gives its verdicts back, and never a call."""
    path = tmp_path / "c.sqlite"
    rows = make_replies(3)
    options: dict[str, Any] = {"model": "m", "base_url": server.url}
    judge_replies(rows, cache=path, **options)
    with Cache.open(path, read_only=True) as fixed:
        assert (
            judge_replies(rows, cache=fixed, offline=True, **options).summary.cached
            == 3
        )
        with pytest.raises(CacheError, match="reading only"):
            judge_replies(make_replies(4), cache=fixed, **options)
    # Nor where there is no key: then the file is only read, too.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    opened = []
    plain = Cache.open

    def watched(path: Any, *, read_only: bool = False) -> Cache:
        opened.append(read_only)
        return plain(path, read_only=read_only)

    monkeypatch.setattr(Cache, "open", staticmethod(watched))
    url = "https://judge.example.com/v1"
    with pytest.raises(JudgeError, match="nobody can be asked"):
        judge_replies(rows, cache=path, model="m", base_url=url)
    assert judge_replies(rows, cache=path, **options).summary.cached == 3
    assert opened == [True, False]
    assert server.calls == 3


def test_recorded_verdicts_are_replayed_without_a_call(
    make_replies: Make, tmp_path: Path
) -> None:
    """`record` keeps verdicts for exactly these messages; `judge` gives them back."""
    rows = make_replies(4)
    verdicts = pl.DataFrame(
        {
            "request_id": ["q3", "q0", "q1", "q2", "q0"],
            "arm": ["treatment", "control", "treatment", "control", "control"],
            "vote": [0, 0, 0, 0, 1],
            "score": [4, 1, 2, None, 5],
            "reason": ["d", "a", "b", None, "again"],
            "status": ["scored", "scored", "scored", "refused", "scored"],
            "model": ["big"] * 5,
        }
    )
    cache = tmp_path / "c.sqlite"
    assert record(rows, verdicts, cache=cache) == 5
    assert record(rows, verdicts, cache=cache) == 0
    run = judge_replies(rows, cache=cache)
    assert run.verdicts["score"].to_list() == [1, 2, None, 4]
    assert run.verdicts["status"].to_list() == ["scored", "scored", "refused", "scored"]
    assert set(run.verdicts["model_returned"]) == {"big"}
    assert run.summary.calls == 0
    changed = rows.with_columns(reply=pl.col("reply") + "!")
    with pytest.raises(JudgeError, match="4 of 4"):
        judge_replies(changed, cache=cache)


def test_recording_refuses_what_it_cannot_vouch_for(make_replies: Make) -> None:
    """Answers of a real server are not made up; one message has one verdict."""
    rows = make_replies(2).with_columns(request=pl.lit("R"), reply=pl.lit("same"))
    verdicts = pl.DataFrame({"request_id": ["q0", "q1"], "score": [1, 5]})
    with pytest.raises(TableError, match="word for word"):
        record(rows, verdicts)
    with pytest.raises(JudgeError, match="recorded"):
        record(rows, verdicts, model="m", base_url="https://api.openai.com/v1")


def test_recording_does_not_guess_which_verdict_is_meant(make_replies: Make) -> None:
    """Two verdicts on one reply, or one for two arms of a request, are refused."""
    rows = make_replies(2)
    said = pl.DataFrame({"request_id": ["q0", "q0"], "score": [5, 1]})
    with pytest.raises(TableError, match="two on request 'q0'"):
        record(rows, said)
    assert record(rows, said.with_columns(vote=pl.int_range(2))) == 2
    paired = rows.with_columns(request_id=pl.lit("q0"))
    with pytest.raises(TableError, match="of which arm"):
        record(paired, said.head(1))
    said = said.with_columns(arm=rows["arm"])
    assert record(paired, said, cache=":memory:") == 2


def test_an_estimate_asks_nobody_and_bounds_the_bill(
    make_replies: Make, server: Any
) -> None:
    """A dry run counts calls, bounds tokens and USD, and learns from the past."""
    rows = make_replies(10)
    price = Price(input=1.0, output=2.0)
    options: dict[str, Any] = {"model": "m", "base_url": server.url, "price": price}
    before = estimate(rows, **options)
    assert (before.calls, before.cached, server.calls) == (10, 0, 0)
    assert before.expected_usd is not None
    assert before.max_usd is not None
    assert before.expected_usd < before.max_usd
    run = judge_replies(rows.head(6), **options)
    assert (
        run.summary.prompt_tokens + run.summary.completion_tokens <= before.max_tokens
    )
    after = estimate(rows, **options)
    assert (after.calls, after.cached, after.from_history) == (4, 6, True)
    assert after.expected_tokens == pytest.approx(4 * 340, rel=0.02)


def _interrupt_at(server: Any, *, calls: int) -> None:
    """Press Ctrl-C once the server has seen so many calls, however slow the machine."""

    def wait() -> None:
        while server.calls < calls:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also where the tests run behind `&` (which ignores it)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_returns_the_partial_table(
    make_replies: Make, server: Any
) -> None:
    """Ctrl-C ends the run in good order; running again goes on from there."""
    server.latency = 0.05
    rows = make_replies(200)
    _interrupt_at(server, calls=20)
    run = judge_replies(rows, model="m", base_url=server.url, concurrency=8)
    assert run.summary.interrupted
    assert 0 < run.summary.scored < 200
    assert run.summary.scored == server.calls  # what was in flight could end
    left = run.verdicts.filter(pl.col("status") == "not_judged")
    assert set(left["status_detail"]) == {"interrupted"}
    again = judge_replies(rows, model="m", base_url=server.url, concurrency=64)
    assert again.summary.calls == 200 - run.summary.scored


@pytest.mark.usefixtures("ctrl_c")
def test_a_hanging_call_does_not_hold_an_interrupt_up(
    make_replies: Make, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment's grace calls in flight are dropped, and booked in full."""
    from reply_resolution.judge import engine

    monkeypatch.setattr(engine, "GRACE", 0.1)
    server.behave("good", "hang")
    _interrupt_at(server, calls=5)
    run = judge_replies(
        make_replies(5), model="m", base_url=server.url, run_id="r", timeout=60
    )
    assert run.summary.interrupted
    assert run.summary.seconds < 10
    assert run.verdicts["status"].to_list().count("scored") == 1
    with Cache.open() as cache:
        total = cache.totals("run", "r")
    assert (total.calls, total.open_calls) == (server.calls, 0)
    assert total.tokens > 4 * 1024


def test_inside_a_running_loop_it_just_works(make_replies: Make, server: Any) -> None:
    """Called from a coroutine, as in Jupyter, nothing is patched or refused."""

    async def cell() -> int:
        mine = asyncio.get_running_loop()
        run = judge_replies(make_replies(5), model="m", base_url=server.url)
        assert asyncio.get_running_loop() is mine
        assert type(mine).__module__.startswith(("asyncio", "uvloop"))
        return run.summary.scored

    assert asyncio.run(cell()) == 5


def test_nothing_is_printed_where_nobody_looks(
    make_replies: Make, server: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a pipe or a cron job there is silence, unless a line is asked for."""
    judge_replies(make_replies(3), model="m", base_url=server.url)
    assert capfd.readouterr() == ("", "")
    judge_replies(make_replies(6), model="m", base_url=server.url, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("judged 3 of 3, ")
    assert err.count("\n") == 1


_CHILD = """
import sys, polars as pl
from reply_resolution.judge.judge import judge_replies
run = judge_replies(pl.read_ndjson(sys.argv[1]), model="m", base_url=sys.argv[2],
            cache=sys.argv[3], concurrency=4)
print(run.summary.calls, run.summary.scored)
"""


def test_two_processes_share_one_cache_and_pay_once(
    make_replies: Make, server: Any, tmp_path: Path
) -> None:
    """Runs side by side on one table ask each verdict once; both get them all."""
    rows = make_replies(60)
    rows.write_ndjson(tmp_path / "rows.jsonl")
    server.latency = 0.03
    judge_replies(
        rows.head(1), model="m", base_url=server.url, cache=tmp_path / "c.sqlite"
    )
    command = [sys.executable, "-c", _CHILD, str(tmp_path / "rows.jsonl")]
    command += [server.url, str(tmp_path / "c.sqlite")]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    results = [child.communicate(timeout=60)[0].split() for child in children]
    assert [int(scored) for _, scored in results] == [60, 60]
    assert sum(int(calls) for calls, _ in results) == 59
    assert server.calls == 60


def test_verdicts_are_committed_within_a_second(
    make_replies: Make, server: Any, tmp_path: Path
) -> None:
    """Another process sees a slow run's verdicts while it still runs."""
    server.latency = 0.25
    path = tmp_path / "c.sqlite"
    options: dict[str, Any] = {"base_url": server.url, "cache": path, "concurrency": 1}
    thread = threading.Thread(
        target=lambda: judge_replies(make_replies(12), model="m", **options)
    )
    thread.start()
    while server.calls < 9 and thread.is_alive():
        time.sleep(0.01)
    with Cache.open(path, read_only=True) as cache:
        committed = cache.versions()["verdicts"].sum()
    thread.join()
    assert 3 <= committed < 9


def test_a_killed_run_loses_nothing_committed(
    make_replies: Make, server: Any, tmp_path: Path
) -> None:
    """After kill -9 what was committed is not paid again, and every call is counted."""
    rows = make_replies(400)
    rows.write_ndjson(tmp_path / "rows.jsonl")
    path = tmp_path / "c.sqlite"
    server.latency = 0.02
    command = [sys.executable, "-c", _CHILD, str(tmp_path / "rows.jsonl")]
    child = subprocess.Popen([*command, server.url, str(path)], stdout=subprocess.PIPE)
    while server.calls < 150:
        assert child.poll() is None
    child.kill()
    child.communicate()
    counted = server.calls
    with Cache.open(path) as cache:
        Ledger(cache, None, "after")  # writes off what the dead left open
        # A call is booked before it is sent: the ledger may be ahead of the server by
        # what was on its way (four at once), and is never behind it.
        assert 0 <= cache.totals("day", "").calls - counted <= 4
        assert cache.totals("day", "").open_calls == 0
    run = judge_replies(rows, model="m", base_url=server.url, cache=path)
    assert run.summary.scored == 400
    # At most 64 verdicts or one second, and four in flight, are asked again.
    assert run.summary.cached >= 80
    assert run.summary.calls == 400 - run.summary.cached


def test_a_disk_that_cannot_be_written_is_no_second_payment(
    make_replies: Make, server: Any, tmp_path: Path
) -> None:
    """A cache that cannot be kept stops the run before a call."""
    (tmp_path / "c.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(CacheError, match="damaged"):
        judge_replies(
            make_replies(3), model="m", base_url=server.url, cache=tmp_path / "c.sqlite"
        )
    assert server.calls == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop("reply"), "no column 'reply'"),
        (
            lambda t: t.with_columns(request_id=pl.lit("q"), arm=pl.lit("a")),
            "share their",
        ),
        (lambda t: t.with_columns(request=pl.lit(7)), "row 1"),
        (lambda t: t.with_columns(request=pl.lit(None, pl.String)), "row 1"),
    ],
)
def test_a_table_that_cannot_be_judged_is_refused_before_any_call(
    change: Callable[[pl.DataFrame], pl.DataFrame],
    words: str,
    make_replies: Make,
    server: Any,
) -> None:
    """A missing column, a repeated key or a cell that is no text is one clear error."""
    with pytest.raises(TableError, match=words):
        judge_replies(change(make_replies(3)), model="m", base_url=server.url)
    assert server.calls == 0


def test_an_empty_table_is_an_empty_result(make_replies: Make) -> None:
    """No rows in, no rows out, no call, no error."""
    run = judge_replies(make_replies(0))
    assert run.verdicts.height == 0
    assert run.summary.calls == 0


def test_what_could_not_be_written_is_written_at_the_end(
    make_replies: Make, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that fails stops the run, and its paid verdicts are tried once more."""
    keep = Cache.put_many
    failed: list[int] = []

    def locked_once(cache: Cache, verdicts: Any) -> int:
        if verdicts and not failed:
            failed.append(len(verdicts))
            raise CacheError("the database is locked")
        return keep(cache, verdicts)

    monkeypatch.setattr(Cache, "put_many", locked_once)
    with pytest.raises(CacheError, match="locked"):
        judge_replies(make_replies(200), model="m", base_url=server.url)
    paid = server.calls
    again = judge_replies(make_replies(200), model="m", base_url=server.url)
    assert failed == [64]
    assert again.summary.cached == paid
    assert server.calls == 200


def test_nothing_is_booked_once_a_server_billed_too_much() -> None:
    """Found out while a booking waits for room: it gets none, though room was made."""

    class Overbilled:
        refusal = Refusal("tokens", "run", False)
        asked = 0

        def reserve_many(self, calls: Any) -> list[Any]:
            self.asked += len(calls)
            return []

        def settle_many(self, calls: Any) -> bool:
            return False

        def cost_usd(self, *tokens: int | None) -> None:
            return None

    async def scenario() -> None:
        ledger, tally = Overbilled(), Tally()
        with Cache.open(":memory:") as cache:
            books = Bookkeeper(cache, cast(Any, ledger), tally, bounded=True)
            books.settle(Reservation(1, 10, 0), None)
            booked = await asyncio.wait_for(books.book(5, 5), 1.0)
            assert (booked, ledger.asked) == (None, 1)
        assert tally.refusal == Refusal("over", "run", True)

    asyncio.run(scenario())


def test_claims_outlast_a_slow_rate(
    make_replies: Make, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for its turn under a rate limit is not taken by somebody else."""
    leases = []
    claim = SqliteCache.claim

    def seen(cache: SqliteCache, keys: Any, owner: str, lease_s: float) -> set[str]:
        leases.append(lease_s)
        return claim(cache, keys, owner, lease_s)

    monkeypatch.setattr(SqliteCache, "claim", seen)
    judge_replies(
        make_replies(1),
        model="m",
        base_url=server.url,
        concurrency=64,
        requests_per_minute=0.5,
    )
    assert leases[0] >= 2 * 64 * 120


def test_rate_limits_space_the_calls(make_replies: Make, server: Any) -> None:
    """1,200 requests a minute are 50 ms apart."""
    run = judge_replies(
        make_replies(11), model="m", base_url=server.url, requests_per_minute=1200
    )
    assert run.summary.scored == 11
    assert run.summary.seconds >= 0.5


def test_many_calls_are_really_in_flight(make_replies: Make, server: Any) -> None:
    """The concurrency asked for is the concurrency at the server."""
    server.latency = 0.1
    judge_replies(make_replies(1), model="m", base_url=server.url)
    judge_replies(make_replies(128), model="m", base_url=server.url, concurrency=32)
    assert server.max_in_flight == 32

"""The hard budget: worst case booked, actual settled, nothing over the cap."""

from concurrent.futures import ThreadPoolExecutor
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from reply_resolution.errors import BudgetError
from reply_resolution.judge import ledger_rules
from reply_resolution.judge.budget import (
    OVERHEAD_TOKENS,
    Ledger,
    Limits,
    Price,
    price_for,
)
from reply_resolution.judge.cache import Cache

PRICE = Price(input=1.0, output=10.0, cached=0.1, worst_input=1.25)


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.scale)])
def place(request, tmp_path, new_schema):
    """Where the cache of a test is, on every database."""
    return new_schema() if request.param == "postgres" else tmp_path / "cache.sqlite"


@pytest.fixture
def cache(place):
    """An empty cache."""
    with Cache.open(place) as opened:
        yield opened


def reserve(ledger, prompt_bytes, tokens):
    """Book one call; None at a cap."""
    made = ledger.reserve_many([(prompt_bytes, tokens)])
    return made[0] if made else None


def settle(ledger, booked, *, prompt_tokens, completion_tokens, cached_tokens=0):
    """Settle one call."""
    counts = (prompt_tokens, completion_tokens, cached_tokens)
    return ledger.settle_many([(booked, *counts)])


def spent(cache, run="run", scope="run"):
    """What the ledger counts, in flight included."""
    total = cache.totals(scope, run)
    return SimpleNamespace(
        calls=total.calls + total.open_calls,
        total_tokens=total.tokens + total.open_tokens,
        usd=(total.micro_usd + total.open_micro_usd) / 1e6,
        open_calls=total.open_calls,
        over_tokens=total.over_tokens,
        over_usd=total.over_micro_usd / 1e6,
    )


def test_the_worst_case_is_booked_and_the_actual_settled(cache):
    """In flight a call counts in full; afterwards it counts what it cost."""
    ledger = Ledger(cache, None, "run", PRICE)
    booked = reserve(ledger, 936, 100)
    assert booked.tokens == 936 + OVERHEAD_TOKENS + 100
    assert booked.micro_usd == 1000 * 1.25 + 100 * 10
    before = spent(cache)
    assert (before.calls, before.total_tokens, before.open_calls) == (1, 1100, 1)
    assert before.usd == pytest.approx(0.00225)
    assert settle(
        ledger, booked, prompt_tokens=300, completion_tokens=40, cached_tokens=200
    )
    after = spent(cache)
    assert (after.calls, after.total_tokens, after.open_calls) == (1, 340, 0)
    # 100 new at 1, 200 cached at 0.1, 40 answered at 10: 520 millionths
    assert after.usd == pytest.approx(0.00052)
    assert ledger.cost_usd(300, 40, 200) == pytest.approx(0.00052)


@pytest.mark.parametrize(
    ("limits", "allowed", "limit"),
    [
        (Limits(max_calls=3), 3, "calls"),
        (Limits(max_total_tokens=3 * 1100), 3, "tokens"),
        (Limits(max_total_tokens=3 * 1100 - 1), 2, "tokens"),
        (Limits(max_usd=3 * 0.00225), 3, "usd"),
        (Limits(max_usd=0.00674), 2, "usd"),
        (Limits(max_calls=0), 0, "calls"),
    ],
)
def test_a_cap_allows_exactly_what_fits(cache, limits, allowed, limit):
    """The call that would pass the cap in the worst case is refused, and named."""
    ledger = Ledger(cache, limits, "run", PRICE)
    made = [reserve(ledger, 936, 100) for _ in range(allowed + 2)]
    assert [m is not None for m in made] == [True] * allowed + [False, False]
    assert ledger.refusal.limit == limit
    assert ledger.refusal.scope == "run"


def test_a_refusal_says_whether_waiting_helps(cache):
    """While calls in flight may settle lower the refusal is not final."""
    ledger = Ledger(cache, Limits(max_total_tokens=2200), "run")
    one, two = reserve(ledger, 936, 100), reserve(ledger, 936, 100)
    assert reserve(ledger, 936, 100) is None
    assert not ledger.refusal.final
    settle(ledger, one, prompt_tokens=100, completion_tokens=10)
    assert reserve(ledger, 900, 100) is None
    settle(ledger, two, prompt_tokens=100, completion_tokens=10)
    assert reserve(ledger, 936, 100) is not None
    assert ledger.refusal is None
    assert reserve(ledger, 5000, 100) is None
    assert ledger.refusal.final


def test_many_at_once_is_a_prefix(cache):
    """A batch is booked in its order; the first that does not fit ends it."""
    ledger = Ledger(cache, Limits(max_total_tokens=2000), "run")
    made = ledger.reserve_many([(436, 100), (5000, 100), (36, 100)])
    assert [m.tokens for m in made] == [600]
    assert spent(cache).total_tokens == 600
    assert ledger.settle_many([(made[0], 50, 5, None)])
    assert spent(cache).total_tokens == 55


def test_a_timeout_counts_in_full_and_an_unsent_call_not_at_all(cache):
    """Nobody knows what a timeout cost; a call never sent cost nothing."""
    ledger = Ledger(cache, Limits(max_calls=2), "run", PRICE)
    lost, unsent = reserve(ledger, 936, 100), reserve(ledger, 936, 100)
    settle(ledger, lost, prompt_tokens=None, completion_tokens=None)
    ledger.release(unsent)
    found = spent(cache)
    assert (found.calls, found.total_tokens, found.open_calls) == (1, 1100, 0)
    assert found.usd == pytest.approx(0.00225)
    again = reserve(ledger, 936, 100)
    # a server that does not say what it billed is settled in full too
    settle(ledger, again, prompt_tokens=None, completion_tokens=None)
    assert spent(cache).total_tokens == 2200
    assert reserve(ledger, 1, 1) is None


def test_a_booking_is_settled_once(cache):
    """Settling twice is a mistake, not a refund."""
    ledger = Ledger(cache, None, "run")
    booked = reserve(ledger, 936, 100)
    settle(ledger, booked, prompt_tokens=1, completion_tokens=1)
    with pytest.raises(BudgetError, match="settled once"):
        settle(ledger, booked, prompt_tokens=1, completion_tokens=1)
    with pytest.raises(BudgetError, match="unknown"):
        settle(
            ledger,
            booked._replace(call_id=999),
            prompt_tokens=None,
            completion_tokens=None,
        )
    assert spent(cache).total_tokens == 2


def test_what_a_server_bills_beyond_the_booking_stops_the_run(cache):
    """A server that ignores the token limit is booked, and asked no more."""
    ledger = Ledger(cache, Limits(max_total_tokens=1_000_000), "run", PRICE)
    other = Ledger(cache, Limits(max_total_tokens=1_000_000), "other", PRICE)
    booked = reserve(ledger, 36, 100)
    assert not settle(ledger, booked, prompt_tokens=150, completion_tokens=459)
    found = spent(cache)
    assert found.total_tokens == 609
    assert found.over_tokens == 609 - 200
    assert found.over_usd > 0
    assert reserve(ledger, 1, 1) is None
    assert (ledger.refusal.limit, ledger.refusal.final) == ("over", True)
    assert reserve(other, 1, 1) is not None


def test_without_a_cap_on_tokens_or_usd_overbilling_stops_nothing(cache):
    """Where only calls are capped there is nothing to overrun; it is still booked."""
    ledger = Ledger(cache, Limits(max_calls=5), "run")
    settle(ledger, reserve(ledger, 1, 1), prompt_tokens=500, completion_tokens=1)
    assert spent(cache).over_tokens > 0
    assert reserve(ledger, 1, 1) is not None


def test_periods_count_every_run_of_the_day_and_month(cache, monkeypatch):
    """A day's cap holds over runs; the next day begins anew; a month goes on."""
    monkeypatch.setattr(ledger_rules, "today", lambda: "2026-11-30")
    day, month = Limits(max_calls=3, period="day"), Limits(max_calls=4, period="month")
    first = Ledger(cache, [day, month], "one")
    assert [reserve(first, 1, 1) is not None for _ in range(2)] == [True, True]
    second = Ledger(cache, [day, month], "two")
    assert [reserve(second, 1, 1) is not None for _ in range(2)] == [True, False]
    assert (second.refusal.limit, second.refusal.scope) == ("calls", "day")
    monkeypatch.setattr(ledger_rules, "today", lambda: "2026-12-01")
    assert [reserve(second, 1, 1) is not None for _ in range(4)] == [True] * 3 + [False]
    assert spent(cache, "two", "month").calls == 3
    monkeypatch.setattr(ledger_rules, "today", lambda: "2026-12-02")
    assert [reserve(second, 1, 1) is not None for _ in range(2)] == [True, False]
    assert second.refusal.scope == "month"
    assert spent(cache, "two", "day").calls == 1
    assert spent(cache, "two").calls == 5
    # a call booked yesterday is settled on yesterday's page
    monkeypatch.setattr(ledger_rules, "today", lambda: "2027-01-01")
    assert spent(cache, "two", "month").calls == 0


def test_a_run_with_the_same_name_shares_its_cap(cache):
    """Processes of one run spend one budget."""
    limits = Limits(max_calls=2)
    one, two = Ledger(cache, limits, "run"), Ledger(cache, limits, "run")
    assert reserve(one, 1, 1) is not None
    assert reserve(two, 1, 1) is not None
    assert reserve(one, 1, 1) is None
    assert reserve(Ledger(cache, limits, "another"), 1, 1) is not None


SPEND = """
    import random, sys, threading, time
    from reply_resolution.judge.budget import Ledger, Limits, Price
    from reply_resolution.judge.cache import Cache
    cache = Cache.open(sys.argv[1])
    ledger = Ledger(cache, Limits(max_usd=0.05), "run", Price(input=1.0, output=10.0))
    def work(seed):
        draw = random.Random(seed)
        while made := ledger.reserve_many([(draw.randrange(900), 100)]):
            booked = made[0]
            time.sleep(draw.random() * 0.002)
            part = draw.random()
            tokens = int(part * booked.tokens / 4), int(part * 100)
            ledger.settle_many([(booked, *tokens, 0)])
    seeds = range(int(sys.argv[2]))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
    [t.start() for t in threads]
    [t.join() for t in threads]
    """


def test_threads_and_processes_never_pass_the_cap(cache, place):
    """Two processes of eight threads spend up to the cap and not a millionth more."""
    code = textwrap.dedent(SPEND)
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(place), "8"])
        for _ in range(2)
    ]
    assert [w.wait(120) for w in workers] == [0, 0]
    found = spent(cache)
    assert found.open_calls == 0
    assert 0.047 < found.usd <= 0.05
    ((actual,),) = cache.read("SELECT sum(actual_micro_usd) FROM calls")
    assert actual == round(found.usd * 1e6)


def test_a_killed_process_leaves_its_bookings_counted(cache, place):
    """What was in flight at a kill stays booked in full, and is told as lost."""
    code = """
        import os, signal, sys
        from reply_resolution.judge.budget import Ledger, Limits
        from reply_resolution.judge.cache import Cache
        ledger = Ledger(Cache.open(sys.argv[1]), Limits(max_calls=5), "run")
        done, = ledger.reserve_many([(936, 100)])
        ledger.settle_many([(done, 10, 10, 0)])
        ledger.reserve_many([(936, 100)] * 3)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(place)], check=False
    )
    assert killed.returncode == -9
    assert cache.totals("run", "run").open_calls == 3
    ledger = Ledger(cache, Limits(max_calls=5), "run")
    found = spent(cache)
    assert (found.calls, found.open_calls, found.total_tokens) == (4, 0, 3320)
    assert reserve(ledger, 1, 1) is not None
    assert reserve(ledger, 1, 1) is None


def test_nobody_waits_for_a_dead_process(cache, place):
    """A refusal becomes final once the bookings in its way belong to nobody."""
    ledger = Ledger(cache, Limits(max_calls=2), "run")
    code = """
        import os, signal, sys
        from reply_resolution.judge.budget import Ledger
        from reply_resolution.judge.cache import Cache
        Ledger(Cache.open(sys.argv[1]), None, "run").reserve_many([(1, 1)] * 2)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(place)], check=False
    )
    assert cache.totals("run", "run").open_calls == 2
    ledger._looked = -10.0  # a second has passed
    assert reserve(ledger, 1, 1) is None
    assert ledger.refusal.final
    assert cache.totals("run", "run").calls == 2


def test_a_booking_older_than_any_call_is_lost(cache, monkeypatch):
    """An owner on a machine that cannot be seen blocks for an hour at most."""
    monkeypatch.setattr(
        "reply_resolution.judge.budget.new_owner", lambda: "far/b/1/2/x"
    )
    reserve(Ledger(cache, None, "run"), 936, 100)
    assert cache.book_lost() == 0
    monkeypatch.setattr(ledger_rules, "OLDEST_S", -1.0)
    assert cache.book_lost() == 1
    assert spent(cache).total_tokens == 1100


def test_many_threads_book_consistently(cache):
    """Sixteen threads on one connection: every call is in the books once."""
    ledger = Ledger(cache, Limits(max_calls=200), "run")

    def one(_):
        booked = reserve(ledger, 36, 100)
        if booked is not None:
            settle(ledger, booked, prompt_tokens=10, completion_tokens=1)
        return booked is not None

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(one, range(300))) == 200
    assert spent(cache).total_tokens == 2200


# Prices and limits


def test_a_usd_cap_without_a_price_is_refused_at_the_start(cache):
    """An unknown price is no reason to spend without looking."""
    with pytest.raises(BudgetError, match="price of this model is not known"):
        Ledger(cache, Limits(max_usd=1.0), "run", price_for("no-such-model-1"))
    assert Ledger(cache, None, "run").cost_usd(10, 10) is None


def test_prices_come_from_the_kept_table():
    """A known model has a price; its worst case counts tiers and cache writes."""
    price = price_for("gpt-4.1-mini", base_url="https://api.openai.com/v1")
    assert price.output > price.input > price.cached > 0
    assert price.source.startswith("genai-prices")
    tiered = price_for("claude-sonnet-4-5")
    assert tiered.worst_input > tiered.input
    assert tiered.worst_output > tiered.output


def test_a_long_prompt_costs_what_its_tier_costs():
    """Past a provider's threshold the dearer price counts, also when settled."""
    price = Price(input=1, output=1, worst_input=2, worst_output=3, long_prompt=1000)
    assert price.micro_usd(999, 10) == 1009
    assert price.micro_usd(1001, 10) == 2032
    assert price_for("claude-sonnet-4-5").long_prompt == 200_000


def test_what_writing_the_provider_s_cache_costs_is_settled():
    """Where it costs more, every prompt token that was not read is taken as written."""
    price = Price(input=1, output=10, cached=0.1, cache_write=1.25)
    assert price.micro_usd(1000, 10, 200) == 800 * 1.25 + 200 * 0.1 + 10 * 10
    assert price.worst_micro_usd(1000, 10) == 1350
    known = price_for("claude-sonnet-4-5")
    assert known.cache_write > known.input
    assert known.micro_usd(1000, 0) == 1000 * known.cache_write


def test_a_local_server_has_no_price_by_its_models_name():
    """A server the table does not know is not billed by the name of its model."""
    assert price_for("gpt-4.1-mini", base_url="http://127.0.0.1:8080/v1") is None
    assert price_for("recorded-judge", base_url="recorded:") is None


def test_the_worst_case_is_never_below_the_actual():
    """Whatever mix of cached and new tokens a server bills, it was booked for."""
    for cached in (0, 50, 100):
        for price in (PRICE, Price(input=3, output=2), price_for("gpt-4.1-mini")):
            assert price.worst_micro_usd(100, 40) >= price.micro_usd(100, 40, cached)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_calls": -1},
        {"max_calls": 1.5},
        {"max_calls": True},
        {"max_total_tokens": "10"},
        {"max_usd": -0.01},
        {"max_usd": float("nan")},
        {"max_usd": float("inf")},
        {"max_usd": "1"},
        {"period": "week"},
    ],
    ids=str,
)
def test_malformed_limits_are_refused(wrong):
    """A cap is a whole number or an amount; anything else is said to be wrong."""
    with pytest.raises(BudgetError, match=next(iter(wrong))):
        Limits(**wrong)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_malformed_prices_are_refused(wrong):
    """A price is an amount of 0 or more."""
    with pytest.raises(BudgetError, match="price output"):
        Price(input=1, output=wrong)

"""Judging on Spark: the same verdicts as on one machine, under one cap."""

from collections.abc import Callable
from datetime import UTC, datetime
import random
import threading
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import polars as pl
from polars.testing import assert_frame_equal
import pytest

from reply_resolution.errors import CacheError, JudgeError, TableError
from reply_resolution.judge.budget import Limits
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.judge import judge_replies
from reply_resolution.judge.sampling import draw
from reply_resolution.readout.build import build_readout
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.scale.spark import judge_on_spark
from reply_resolution.scale.spark_draw import whole_rounds

pytestmark = pytest.mark.scale

#: What depends on when a verdict was obtained, and by whom.
OF_THE_RUN = ["cached", "latency_ms", "judged_at"]
KEY = ["request_id", "arm", "vote"]


def table(n: int = 240) -> pl.DataFrame:
    """Pairs, single replies, empty ones, replies word for word alike, odd columns."""
    return pl.DataFrame(
        {
            "request_id": [f"q{i // 2 if i < n // 2 else i}" for i in range(n)],
            "arm": [("control", "treatment")[i % 2] for i in range(n)],
            "user_id": [f"u{i // 6}" for i in range(n)],
            "request": [f"How do I do thing {i // 2 % 50}?" for i in range(n)],
            "reply": ["" if i % 50 == 7 else f"Choose {i % 37}. ☂" for i in range(n)],
            "score": list(range(n)),
            "paid": [None if i % 9 == 0 else i / 4 for i in range(n)],
        }
    )


def home(frame: Any) -> pl.DataFrame:
    """A Spark frame as polars', in the order of its keys."""
    found = pl.from_arrow(frame.toArrow())
    assert isinstance(found, pl.DataFrame)
    return found.sort(KEY)


def same_verdicts(one: pl.DataFrame, other: pl.DataFrame) -> None:
    """Alike in every column, type and digit that does not tell of the run."""
    assert one.schema == other.schema
    assert_frame_equal(one.drop(OF_THE_RUN).sort(KEY), other.drop(OF_THE_RUN).sort(KEY))


def test_postgres_and_spark_give_the_table_and_readout_of_sqlite_and_polars(
    spark: Any, server: Any, new_schema: Callable[[], str], tmp_path: Any
) -> None:
    """The same verdicts and the same digits; running again makes no call."""
    replies = table()
    asked = {"model": "m", "base_url": server.url, "votes": 2}
    here = judge_replies(
        replies, cache=tmp_path / "here.sqlite", progress=False, **asked
    )
    calls = server.calls
    server.forget()
    url = new_schema()
    frame = spark.createDataFrame(replies.to_arrow())
    there = home(judge_on_spark(frame, cache=url, tasks=3, **asked))
    assert server.calls == calls
    same_verdicts(here.verdicts, there)
    server.forget()
    again = home(judge_on_spark(frame, cache=url, tasks=2, **asked))
    assert server.calls == 0
    same_verdicts(there, again)
    assert again.filter(pl.col("attempts") > 0)["cached"].all()

    noon = datetime(2026, 11, 30, 12, tzinfo=UTC)
    order = replies.select("request_id", "arm")
    pages = [
        build_readout(
            order.join(
                v.filter(vote=0).drop(OF_THE_RUN), on=["request_id", "arm"], how="left"
            ),
            ExperimentPlan(),
            now=noon,
        ).to_json()
        for v in (here.verdicts, there)
    ]
    assert pages[0] == pages[1]


@pytest.mark.parametrize("sample", [1, 61, 0.4])
def test_the_sample_is_the_one_of_a_single_machine(
    spark: Any, server: Any, tmp_path: Any, sample: float
) -> None:
    """The same rows are drawn, with the same chances; the others are not judged."""
    replies = table(120)
    asked = {"model": "m", "base_url": server.url, "sample": sample, "seed": 5}
    here = judge_replies(
        replies, cache=tmp_path / "here.sqlite", progress=False, **asked
    )
    frame = spark.createDataFrame(replies.to_arrow())
    there = home(
        judge_on_spark(frame, cache=str(tmp_path / "there.sqlite"), tasks=2, **asked)
    )
    same_verdicts(here.verdicts, there)
    assert there.filter(status="not_judged")["status_detail"].unique().to_list() == [
        "sampling"
    ]


@given(
    groups=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 4)), min_size=1, max_size=5
    ),
    limit=st.integers(0, 400),
)
def test_whole_rounds_are_those_counted_one_by_one(
    groups: list[tuple[int, int]], limit: int
) -> None:
    """The closed form gives what counting round by round gives."""
    rounds, left = 0, limit
    while any(n > rounds for n, _ in groups):
        rows = sum(size for n, size in groups if n > rounds)
        if rows > left:
            break
        rounds, left = rounds + 1, left - rows
    assert whole_rounds(groups, limit) == (rounds, left)


def test_a_cap_leaves_a_fair_experiment_over_all_partitions(
    spark: Any, server: Any, tmp_path: Any
) -> None:
    """The cap holds over the tasks, and what was reached is balanced over the arms."""
    replies = table(400).slice(200)  # arms apart, no pairs
    frame = spark.createDataFrame(replies.to_arrow()).repartition(5)
    judged = home(
        judge_on_spark(
            frame,
            cache=str(tmp_path / "cache.sqlite"),
            model="m",
            base_url=server.url,
            limits=Limits(max_calls=100),
            tasks=2,
            concurrency=4,
        )
    )
    assert server.calls <= 100
    assert judged.filter(status="not_judged")["status_detail"].unique().to_list() == [
        "budget"
    ]
    reached = judged.filter(pl.col("status") != "not_judged")
    arms = dict(reached.group_by("arm").len().iter_rows())
    assert abs(arms["control"] - arms["treatment"]) <= 2 * 4 + 2


def test_the_rate_limit_holds_over_all_tasks(
    spark: Any, server: Any, loopback: Any, tmp_path: Any
) -> None:
    """Each task keeps to its part, also from one Arrow batch to the next."""
    arrived: list[float] = []

    def note(request: Any) -> Any:
        arrived.append(time.monotonic())
        return loopback.good(request)

    server.behave(note)
    replies = table(60).unique("reply").filter(pl.col("reply") != "")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    try:
        judge_on_spark(
            spark.createDataFrame(replies.to_arrow()),
            cache=str(tmp_path / "cache.sqlite"),
            model="m",
            base_url=server.url,
            tasks=2,
            requests_per_minute=600,
        ).count()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    # the first few came from the driver, before there were tasks
    seconds = arrived[-1] - arrived[4]
    assert len(arrived) - 5 <= 600 / 60 * seconds + 2


def test_skewed_partitions_are_dealt_out_anew(
    spark: Any, server: Any, tmp_path: Any
) -> None:
    """All replies in two of six partitions: every task gets its part."""
    frame = (
        spark.createDataFrame(table(100).to_arrow()).coalesce(1).repartition(6, "arm")
    )
    judged = judge_on_spark(
        frame,
        cache=str(tmp_path / "cache.sqlite"),
        model="m",
        base_url=server.url,
        tasks=4,
    )
    sizes = judged.rdd.glom().map(len).collect()
    full = sorted(n for n in sizes if n)
    assert sum(full) == 100
    assert len(full) == 4
    assert full[-1] <= 2 * full[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("CAST(1.5 AS DOUBLE) AS reply", "'reply' is double; it has to be string"),
        ("array(1) AS arm", r"'arm' is array<int>"),
        ("map('a', 1) AS request", r"'request' is map<string,int>"),
        ("'x' AS other", "no column 'request'"),
        ("'same' AS request_id", "several rows of one arm, such as 'same'"),
    ],
)
def test_a_frame_that_cannot_be_judged_is_refused_before_anything_is_asked(
    spark: Any, server: Any, tmp_path: Any, change: str, message: str
) -> None:
    """Wrong types, a missing column, a key that repeats: the column and the repair."""
    name = change.rpartition(" ")[2]
    frame = spark.createDataFrame(table(6).to_arrow())
    columns = [c for c in frame.columns if c != name]
    if name == "other":
        columns.remove("request")
    with pytest.raises(TableError, match=message):
        judge_on_spark(
            frame.selectExpr(*columns, change),
            cache=str(tmp_path / "cache.sqlite"),
            model="m",
            base_url=server.url,
        )
    assert server.calls == 0


def test_a_store_that_cannot_be_reached_is_named_without_its_password(
    spark: Any, server: Any
) -> None:
    """Nothing is asked where nothing could be kept."""
    pytest.importorskip("psycopg", reason="needs psycopg: pip install -e '.[postgres]'")
    frame = spark.createDataFrame(table(6).to_arrow())
    with pytest.raises(CacheError) as caught:
        judge_on_spark(
            frame,
            cache="postgresql://judge:marked-secret@127.0.0.1:9/none",
            model="m",
            base_url=server.url,
        )
    assert "127.0.0.1:9" in str(caught.value)
    assert "marked-secret" not in str(caught.value)
    assert server.calls == 0


def test_a_key_is_not_taken(spark: Any, server: Any) -> None:
    """A key given by argument would travel in the plan: it is refused."""
    frame = spark.createDataFrame(table(6).to_arrow())
    with pytest.raises(JudgeError, match="environment"):
        judge_on_spark(frame, cache="x", model="m", api_key="marked-key")


def test_a_server_that_refuses_ends_the_job_and_loses_nothing(
    spark: Any, server: Any, tmp_path: Any
) -> None:
    """Credit runs out halfway: the job says so; run again, it pays for the rest."""
    replies = table(100)
    asked = {
        "cache": str(tmp_path / "cache.sqlite"),
        "model": "m",
        "base_url": server.url,
        "tasks": 1,
        "concurrency": 4,
    }
    frame = spark.createDataFrame(replies.to_arrow())
    server.behave(*["good"] * 40, "insufficient_quota")
    with pytest.raises(Exception, match="quota"):
        judge_on_spark(frame, **asked).count()
    wanted = replies.filter(pl.col("reply") != "").select("request", "reply")
    server.forget()
    server.behave("good")
    judged = home(judge_on_spark(frame, **asked))
    assert judged["status"].unique().to_list() == ["scored"]
    assert server.calls <= wanted.n_unique() - 40


def test_a_store_lost_in_the_middle_ends_the_job_and_loses_nothing_committed(
    spark: Any,
    server: Any,
    loopback: Any,
    postgres_server: Any,
    new_schema: Callable[[], str],
) -> None:
    """Tried again, then failed; with the server back, only what is missing is paid."""
    n, tasks, in_flight, after = 400, 2, 8, 120
    replies = table(n).with_columns(reply=pl.format("Choose {}.", "score"))
    url = new_schema()
    asked: list[str] = []
    committed: set[str] = set()

    def kept() -> set[str]:
        with Cache.open(url, read_only=True) as store:
            return {m for (m,) in store.read("SELECT user_message FROM answers")}

    def lose() -> None:
        committed.update(kept())
        postgres_server.stop()

    thief = threading.Thread(target=lose)

    def note(request: Any) -> Any:
        asked.append(request.user)
        if len(asked) == after and thief.ident is None:
            thief.start()
        return loopback.good(request)

    server.behave(note)
    server.latency = 0.1
    judged = judge_on_spark(
        spark.createDataFrame(replies.to_arrow()),
        cache=url,
        model="m",
        base_url=server.url,
        tasks=tasks,
        concurrency=in_flight,
    )
    try:
        # not while judging but when opening it: the second attempt
        with pytest.raises(Exception, match=r"CacheError.*refused") as caught:
            judged.count()
    finally:
        thief.join()
        postgres_server.start()
    assert "marked-secret" not in str(caught.value)
    left = kept()
    assert 0 < len(committed) <= len(left) < n
    assert committed <= left
    # unwritten, or in flight: paid perhaps, and counted in full
    assert len(asked) - len(left) <= tasks * (64 + in_flight)
    with Cache.open(url) as store:
        ((booked,),) = store.read("SELECT count(*) FROM calls")
    assert len(asked) <= booked < n
    asked.clear()
    assert home(judged)["status"].unique().to_list() == ["scored"]
    assert len(asked) == n - len(left)
    assert not left & set(asked)


def test_the_draw_is_the_same_for_any_table(spark: Any) -> None:
    """Random designs (pairs, triples, single replies, no arm) are drawn alike."""
    from reply_resolution.scale.spark_draw import ID, draw_on_spark

    for seed in range(3):
        dice = random.Random(seed)
        rows = [
            {"request_id": f"r{i}", "arm": arm}
            for i in range(60)
            for arm in dice.sample(["a", "b", "c", None], dice.randint(1, 4))
        ]
        frame = pl.DataFrame(rows, schema={"request_id": pl.String, "arm": pl.String})
        sample = dice.choice([3, 50, 0.3])
        expected = draw(frame, sample=sample, seed=seed)
        found = draw_on_spark(spark.createDataFrame(frame.to_arrow()), sample, seed)
        units = found.units.select(
            ID, found.drawn.alias("drawn"), found.probability.alias("chance")
        )
        there = {row[0]: (row[1], row[2]) for row in units.collect()}
        here = {
            row: (bool(drawn), chance)
            for row, drawn, chance in zip(
                frame["request_id"], expected.drawn, expected.probability, strict=True
            )
        }
        assert there == here

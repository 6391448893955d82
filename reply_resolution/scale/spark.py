"""Judging on Spark: a frame of replies in, a frame of verdicts out.

Every partition is judged by the ordinary judge, against one cache and ledger for all:
what is known costs nothing, one key is asked once, and the cap is checked where all
executors see it. So a task that Spark runs again pays only for what was in flight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING, Any
import uuid

import polars as pl

from reply_resolution.errors import CacheError, JudgeError, TableError
from reply_resolution.judge.client import resolve_endpoint
from reply_resolution.judge.job import at_least_one, opened
from reply_resolution.judge.judge import judge_replies
from reply_resolution.judge.results import GIVEN, JudgeRun
from reply_resolution.judge.rubric import Rubric
from reply_resolution.scale.spark_draw import (
    GROUP,
    HASH,
    ID,
    RANK,
    SparkDraw,
    draw_on_spark,
    request_key,
)
from reply_resolution.tables.verdicts import VERDICT_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Requests judged on the driver, so that the executors know how the server is asked.
FIRST = 4
_CHANCE = "inclusion_probability"
_SPARK_TYPES = {
    pl.String: "string",
    pl.Int8: "tinyint",
    pl.Int32: "int",
    pl.Int64: "bigint",
    pl.Float64: "double",
    pl.Boolean: "boolean",
}


def judge_on_spark(
    replies: "DataFrame",
    *,
    cache: str,
    rubric: Rubric | None = None,
    model: str | None = None,
    base_url: str | None = None,
    sample: float | None = None,
    seed: int = 0,
    votes: int = 1,
    tasks: int | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    run_id: str | None = None,
    **options: Any,  # noqa: ANN401
) -> "DataFrame":
    """Judge replies where Spark has them.

    The keys are checked, the sample drawn and the first requests judged at once, on
    the driver; the rest is judged when the result is used, and again, at no cost, when
    it is used again: write it, or `persist` it. The key (OPENAI_API_KEY) and the
    database's password (PGPASSWORD) are read by every executor from its environment.

    Args:
        replies: As for `judge_replies`.
        cache: The shared store, `postgresql://...`; on a single machine a file will do.
        rubric: As for `judge_replies`, and so are the others.
        model: Default OPENAI_MODEL of the driver.
        base_url: Default OPENAI_BASE_URL of the driver.
        sample: The same rows are drawn as by `judge_replies`.
        seed: Of the draw and the judging order.
        votes: Verdicts per reply, 1 and up.
        tasks: Into how many parts the replies are put, each judged by one task;
            default one for each core of the cluster.
        requests_per_minute: Over all tasks: each keeps to its part of it.
        tokens_per_minute: Likewise.
        run_id: Names the run whose cap all executors share.
        **options: limits, price, params, concurrency (calls in flight of one task),
            max_completion_tokens, timeout, attempts.

    Returns:
        As `JudgeRun.verdicts`, in no order. Beside the columns that depend on when a
        verdict was obtained (`cached`, `latency_ms`, `judged_at`) it is the same table.

    Raises:
        TableError: A column is missing or of a wrong type, or a key occurs twice.
        JudgeError: As for `judge_replies`; an option does not exist here.
        CacheError: The store cannot be reached, or is a file on one of several
            machines.
    """
    refused = {"api_key", "offline", "progress"} & {*options}
    if refused:
        raise JudgeError(
            f"{', '.join(sorted(refused))} cannot be given on Spark. The key reaches "
            "the executors by their environment (OPENAI_API_KEY), never by the plan."
        )
    rubric = rubric or Rubric.default()
    _check_columns(replies, rubric)
    _check_shared(replies, str(cache))
    if tasks is None:
        tasks = replies.sparkSession.sparkContext.defaultParallelism
    endpoint = resolve_endpoint(model, base_url, None)
    options |= {
        "model": endpoint.model,
        "base_url": endpoint.base_url,
        "votes": at_least_one("votes", votes),
        "seed": seed,
        "run_id": run_id or f"run-{uuid.uuid4().hex[:12]}",
        "progress": False,
    }
    share = at_least_one("tasks", tasks)
    task = JudgeTask(
        cache=str(cache),
        rubric=rubric.document(),
        options=options,
        requests_per_minute=requests_per_minute and requests_per_minute / share,
        tokens_per_minute=tokens_per_minute and tokens_per_minute / share,
    )
    drawn = draw_on_spark(replies, sample, seed)
    with opened(str(cache)) as store:
        first = task.judge(_first(replies, drawn), store)
    return _planned(replies, drawn, task, first, endpoint.model, tasks)


def _planned(
    replies: "DataFrame",
    draw: SparkDraw,
    task: "JudgeTask",
    first: JudgeRun,
    model: str,
    tasks: int,
) -> "DataFrame":
    """The verdicts of those drawn, and the rows of those not drawn."""
    from pyspark.sql import functions as F

    places = draw.units.select(
        ID, HASH, RANK, draw.drawn.alias("__drawn__"), draw.probability.alias(_CHANCE)
    )
    keyed = replies.withColumn(ID, request_key(replies))
    clash = [c for c in replies.columns if c.lower() in _TAKEN]
    for name in clash:
        keyed = keyed.withColumnRenamed(name, name + GIVEN)
    keyed = keyed.join(places, ID)
    rest = [
        name + GIVEN * (name in clash)
        for name in replies.columns
        if name not in ("request_id", "arm")
    ]
    kinds = dict(keyed.dtypes)
    columns = [(name, _SPARK_TYPES[kind]) for name, kind in VERDICT_SCHEMA.items()]
    columns += [(_CHANCE, "double"), *((name, kinds[name]) for name in rest)]
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    order = [RANK, HASH, ID, *(["arm"] if "arm" in replies.columns else [])]
    judged = (
        keyed.filter("__drawn__")
        .drop("__drawn__")
        # Neighbours in the judging order stay together, and every part is a fair
        # experiment by itself, however many of them are reached.
        .repartitionByRange(tasks, RANK, HASH)
        .sortWithinPartitions(*order)
        .mapInArrow(task, schema)
    )
    known = {
        "request_id": F.col("request_id"),
        "arm": F.col("arm") if "arm" in replies.columns else F.lit(None),
        "vote": F.col("__vote__"),
        "status": F.lit("not_judged"),
        "status_detail": F.lit("sampling"),
        "metric_version": F.lit(first.metric_version),
        "judge_id": F.lit(first.judge_id),
        "model": F.lit(model),
        "cached": F.lit(False),
        "attempts": F.lit(0),
    }
    votes = F.sequence(F.lit(0), F.lit(task.options["votes"] - 1))
    left_out = keyed.filter("not __drawn__").withColumn("__vote__", F.explode(votes))
    left_out = left_out.select(
        *(
            known.get(n, F.lit(None)).cast(kind).alias(n)
            for n, kind in columns[: len(VERDICT_SCHEMA)]
        ),
        _CHANCE,
        *(F.col(f"`{name}`") for name in rest),
    )
    return judged.unionByName(left_out)


_TAKEN = {*VERDICT_SCHEMA, _CHANCE} - {"request_id", "arm"}


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """What travels to the executors: what is asked, never a key.

    Attributes:
        cache: The shared store.
        rubric: The rubric's document.
        options: For `judge_replies`.
        requests_per_minute: This task's part of the limit; None is none.
        tokens_per_minute: Likewise.
    """

    cache: str
    rubric: str
    options: dict[str, Any]
    requests_per_minute: float | None
    tokens_per_minute: float | None

    def judge(self, replies: pl.DataFrame, store: Any) -> JudgeRun:  # noqa: ANN401
        """Judge some replies as anywhere else."""
        return judge_replies(
            replies,
            rubric=Rubric.from_document(self.rubric),
            cache=store,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            **self.options,
        )

    def __call__(
        self, batches: Iterator["pa.RecordBatch"]
    ) -> Iterator["pa.RecordBatch"]:
        """Judge one partition, a batch at a time."""
        import pyarrow as pa

        with opened(self.cache) as store:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                run = self.judge(self._replies(table), store)
                out = self._verdicts(table, run)
                yield from out.combine_chunks().to_batches()
                self._pause(run)

    def _replies(self, table: "pa.Table") -> pl.DataFrame:
        """The columns a judge needs, under the names it knows."""
        fields = {"request_id", "arm", *Rubric.from_document(self.rubric).fields}
        sent = [name for name in table.column_names if name in fields]
        frame = pl.from_arrow(table.select(sent))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _verdicts(self, table: "pa.Table", run: JudgeRun) -> "pa.Table":
        import numpy as np
        import pyarrow as pa

        index = pa.array(np.repeat(np.arange(len(table)), self.options["votes"]))
        found = run.verdicts.select(*VERDICT_SCHEMA).to_arrow()
        text = {pa.large_string(): pa.string(), pa.string_view(): pa.string()}
        columns = {
            name: column.cast(text.get(column.type, column.type))
            for name, column in zip(found.column_names, found.columns, strict=True)
        }
        helpers = {"request_id", "arm", ID, HASH, RANK, GROUP}
        for name in [_CHANCE, *table.column_names]:
            if name not in helpers and name not in columns:
                columns[name] = table[name].take(index)
        return pa.table(columns)

    def _pause(self, run: JudgeRun) -> None:
        """Keep to the rate limit from one batch to the next: each has its own clock."""
        if not run.summary.calls:
            return
        seconds = 60.0 / self.requests_per_minute if self.requests_per_minute else 0.0
        if self.tokens_per_minute:
            used = run.verdicts["prompt_tokens"] + run.verdicts["completion_tokens"]
            most = used.max()
            if isinstance(most, int):
                seconds = max(seconds, 60.0 * most / self.tokens_per_minute)
        time.sleep(seconds)


def _first(replies: "DataFrame", draw: SparkDraw) -> pl.DataFrame:
    """The first requests in judging order, as the judge wants them."""
    units = draw.units.filter(draw.drawn & (draw.units[RANK] < FIRST))
    first = [row[0] for row in units.orderBy(RANK, HASH, ID).select(ID).take(FIRST)]
    frame = replies.filter(request_key(replies).isin(first)).toArrow()
    found = pl.from_arrow(frame)
    assert isinstance(found, pl.DataFrame)
    return found


def _check_columns(replies: "DataFrame", rubric: Rubric) -> None:
    """Refuse types before a cluster is busy with them."""
    kinds = dict(replies.dtypes)
    turns = "array<struct<role:string,content:string>>"
    for name in ("request_id", "arm", "request", "reply", *rubric.fields):
        kind = kinds.get(name)
        if kind is None:
            if name in ("request_id", "request", "reply"):
                raise TableError(
                    f"the frame has no column {name!r}; its columns are "
                    f"{', '.join(replies.columns)}. Rename one with withColumnRenamed."
                )
            continue
        fine = kind == "string" or (
            name == "conversation" and kind.startswith("array<")
        )
        fine = fine or (name in ("request_id", "arm") and kind in ("int", "bigint"))
        if not fine:
            allowed = f"string or {turns}" if name == "conversation" else "string"
            raise TableError(
                f"column {name!r} is {kind}; it has to be {allowed}. Cast it first."
            )


def _check_shared(replies: "DataFrame", cache: str) -> None:
    """A file is the same file only on one machine."""
    if "://" in cache:
        return
    master = replies.sparkSession.conf.get("spark.master", "")
    if not str(master).startswith("local"):
        raise CacheError(
            f"the cache is a file ({cache}), and the executors of {master} are on "
            "other machines: each would pay for itself. Give a shared one, "
            "postgresql://USER@HOST/DATABASE."
        )

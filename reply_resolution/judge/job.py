"""A table, a judge, and which rows it is to see: how every verb begins."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.errors import JudgeError, TableError
from reply_resolution.judge.budget import Limits, Price, price_for
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.case import Settings
from reply_resolution.judge.desk import Desk
from reply_resolution.judge.endpoint import Endpoint
from reply_resolution.judge.engine import Engine
from reply_resolution.judge.outcome_table import verdict_table
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.run import JudgeRun, summarize
from reply_resolution.judge.sampling import Draw, draw
from reply_resolution.judge.sqlite import default_path
from reply_resolution.judge.worklist import Worklist
from reply_resolution.tables.replies import empty_expr

#: Sampling parameters sent unless the caller says otherwise; a server that refuses one
#: is asked without it.
DEFAULT_PARAMS: Mapping[str, Any] = {"temperature": 0}


class Job:
    """One table before one judge.

    Attributes:
        replies: The table.
        rubric: What is asked.
        endpoint: Who is asked.
        drawn: Whether each row is in the sample; bool, shape (rows,).
        worklist: Keys and messages of the rows to judge.
        desk: What is known, and how to ask for the rest.
    """

    def __init__(
        self,
        replies: pl.DataFrame,
        rubric: Rubric,
        endpoint: Endpoint,
        store: Cache,
        settings: Settings,
        params: Mapping[str, Any] | None,
        sample: float | None,
        seed: int,
        votes: int,
    ) -> None:
        check_table(replies)
        votes = at_least_one("votes", votes)
        self.replies, self.rubric, self.endpoint = replies, rubric, endpoint
        self._sample, self._seed = sample, seed
        self._draw: Draw | None = None
        empty = replies.select(empty_expr("reply")).to_series().to_numpy()
        rows = np.arange(replies.height)
        # Which rows are drawn must be known to hash them; the order can wait.
        drawn = self.draw().drawn if sample is not None else np.ones(len(rows), bool)
        self.drawn = drawn
        self.worklist = Worklist(
            replies, rubric, rows=rows[drawn & ~empty], empty=empty, votes=votes
        )
        self.desk = Desk(
            endpoint=endpoint,
            rubric=rubric,
            params=DEFAULT_PARAMS if params is None else params,
            max_completion_tokens=settings.max_completion_tokens,
            timeout=settings.timeout,
            cache=store,
            worklist=self.worklist,
            order=lambda: self.draw().order,
        )

    def draw(self) -> Draw:
        """The sample and the order, drawn when first needed."""
        if self._draw is None:
            self._draw = draw(self.replies, sample=self._sample, seed=self._seed)
        return self._draw

    def result(self, version: str, engine: Engine | None, seconds: float) -> JudgeRun:
        """The table and the summary."""
        probability = (
            np.ones(self.replies.height)
            if self._sample is None
            else self.draw().probability
        )
        table = verdict_table(
            self.replies,
            self.worklist,
            self.desk.found,
            drawn=self.drawn,
            probability=probability,
            new_entries=engine.record.judged if engine else set(),
            failures={
                entry: (f.status, f.detail, f.attempts)
                for entry, f in (engine.record.failures if engine else {}).items()
            },
            unreached=engine.unreached if engine else "",
            metric_version=version,
            judge_id=self.desk.judge_id,
            model=self.endpoint.model,
        )
        summary = summarize(table, engine, seconds, self.desk.dialect.changes())
        return JudgeRun(table, summary, self.rubric, version, self.desk.judge_id)

    def requests(self) -> Iterator[tuple[str, str | None, str]]:
        """(request_id, arm, key) of every row judged."""
        rows = self.worklist.rows
        ids = self.replies["request_id"].cast(pl.String)[rows].to_list()
        arms: list[str | None] = [None] * len(rows)
        if "arm" in self.replies.columns:
            arms = self.replies["arm"].cast(pl.String)[rows].to_list()
        for vote in range(self.worklist.votes):
            part = self.worklist.keys.slice(vote * len(rows), len(rows))
            for name, arm, key in zip(ids, arms, part, strict=True):
                if key is not None:
                    yield name, arm, key


@contextmanager
def opened(
    cache: str | Path | Cache | None, *, offline: bool = False
) -> Iterator[Cache]:
    """An open cache, closed again only if it was opened here.

    Args:
        cache: A file, an open cache, or None for the default place.
        offline: Whether it is only replayed; then a file that cannot be written will
            do.
    """
    if isinstance(cache, Cache):
        yield cache
        return
    path = Path(cache).expanduser() if cache is not None else default_path()
    fixed = offline and path.is_file() and not os.access(path, os.W_OK)
    with Cache.open(path, read_only=fixed) as store:
        yield store


def price_of(endpoint: Endpoint) -> Price | None:
    """The known price of an endpoint's model; None for a server on this machine."""
    if endpoint.recorded or endpoint.local:
        return None
    return price_for(endpoint.model, base_url=endpoint.base_url)


def bounded(limits: Limits | Sequence[Limits] | None) -> bool:
    """Whether a cap on tokens or USD must hold."""
    several = [limits] if isinstance(limits, Limits) else limits or ()
    return any(x.max_total_tokens is not None or x.max_usd is not None for x in several)


def at_least_one(name: str, value: int) -> int:
    """The value, if it is a whole number of 1 or more.

    Raises:
        JudgeError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise JudgeError(f"{name} {value!r} is not a whole number of 1 or more.")
    return value


def check_table(replies: pl.DataFrame) -> None:
    """Refuse a table that cannot be judged.

    Raises:
        TableError: A column is missing, or a key occurs twice.
    """
    for name in ("request_id", "request", "reply"):
        if name not in replies.columns:
            raise TableError(
                f"the table has no column {name!r}; its columns are "
                f"{', '.join(replies.columns)}. Rename one, or read the table with "
                "read_replies(columns=...)."
            )
    key = [c for c in ("request_id", "arm") if c in replies.columns]
    repeated = replies.select(pl.struct(key).is_duplicated()).to_series()
    if repeated.any():
        first = replies.filter(repeated).row(0, named=True)
        raise TableError(
            f"{int(repeated.sum())} rows share their {' and '.join(key)} with another, "
            f"such as {', '.join(repr(first[c]) for c in key)}. A reply is known by "
            "them: make them unique, or name the arm."
        )


def check_can_ask(job: Job, missing: int, offline: bool | None) -> None:
    """Somebody can be asked, or a message that says what to set."""
    endpoint = job.endpoint
    if endpoint.callable and not offline:
        return
    total = job.worklist.keys.n_unique()
    entry = int(job.desk.missing_entries()[0])
    first = job.replies["request_id"][job.desk.item(entry).row]
    where = f"the cache {job.desk.cache_name} has no verdict for {missing} of {total}"
    who = f"replies by {endpoint.model} with this rubric (the first: {first!r})"
    if offline and endpoint.callable:
        todo = "Run without offline=True (--offline) to judge them."
    else:
        todo = (
            "To judge them, set OPENAI_API_KEY and name a --model, or give the "
            "--base-url of an OpenAI-compatible server (http://localhost:8080/v1 needs "
            "no key); to replay, give the --cache that has them."
        )
    raise JudgeError(f"{where} {who}, and nobody can be asked. {todo}")

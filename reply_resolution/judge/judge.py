"""Replies in, verdicts out: judge a table, estimate what it costs, record verdicts."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
import threading
import time
from typing import Any
import uuid

import numpy as np
import polars as pl

from reply_resolution.display import number
from reply_resolution.errors import JudgeError, TableError
from reply_resolution.judge.budget import Ledger, Limits, Price, price_for
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.client import (
    RECORDED_BASE_URL,
    RECORDED_MODEL,
    Endpoint,
    resolve_endpoint,
)
from reply_resolution.judge.desk import Desk, request_bytes
from reply_resolution.judge.engine import Engine, RunStoppedError, Settings, Tally
from reply_resolution.judge.outcome_table import verdict_table
from reply_resolution.judge.owner import new_owner
from reply_resolution.judge.progress import Progress, duration
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.run import Estimate, JudgeRun, RunSummary
from reply_resolution.judge.sampling import Draw, draw
from reply_resolution.judge.store import FINAL, StoredVerdict
from reply_resolution.judge.worklist import Worklist
from reply_resolution.replies import empty_expr

#: Sampling parameters sent unless the caller says otherwise; a server that refuses one
#: is asked without it.
DEFAULT_PARAMS: Mapping[str, Any] = {"temperature": 0}
#: Enough for a verdict with a reason, and for a little reasoning before it.
DEFAULT_MAX_COMPLETION_TOKENS = 1024
DEFAULT_TIMEOUT = 120.0
_NOTE_ROWS = 20_000


def judge(
    replies: pl.DataFrame,
    *,
    rubric: Rubric | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    cache: str | Path | Cache | None = None,
    limits: Limits | Sequence[Limits] | None = None,
    price: Price | None = None,
    sample: float | None = None,
    votes: int = 1,
    concurrency: int = 16,
    max_completion_tokens: int = DEFAULT_MAX_COMPLETION_TOKENS,
    seed: int = 0,
    offline: bool | None = None,
    params: Mapping[str, Any] | None = None,
    progress: str | bool = "auto",
    timeout: float = DEFAULT_TIMEOUT,
    attempts: int = 5,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    run_id: str | None = None,
) -> JudgeRun:
    """Judge replies by a rubric; whatever is known already costs nothing.

    Every row of the table comes back, in its order, with a score or a reason why not.
    Verdicts are kept in the cache as they come; running again goes on where a run
    ended, and an interrupt (Ctrl-C, or Stop in a notebook) returns what there is.

    Args:
        replies: Needs `request_id`, `request`, `reply`; `arm` for an experiment. Only
            the rubric's fields (request, context, conversation, reply) are sent.
        rubric: What is asked; the default is the shipped one.
        model: The judge's model, as its server names it; default OPENAI_MODEL.
        base_url: The server's address; default OPENAI_BASE_URL, then OpenAI's.
        api_key: Default OPENAI_API_KEY; a server on this machine needs none.
        cache: A file, an open cache, or None for the default place.
        limits: A hard cap, or several; None is none.
        price: USD per million tokens; default from genai-prices by model.
        sample: Judge only so many replies (a whole number) or such a share (a fraction
            below 1), drawn by `seed`, balanced over arms.
        votes: Verdicts per reply, 1 and up.
        concurrency: Most calls in flight, 1 and up.
        max_completion_tokens: Limit on an answer's tokens; one answer that was cut
            short is asked for again with twice that.
        seed: Of the draw and the judging order.
        offline: True: only replay the cache; False: a key must be there; None: replay
            where there is no key.
        params: Sampling parameters; default `{"temperature": 0}`.
        progress: "auto", True or False; see `Progress`.
        timeout: Seconds for one call.
        attempts: Calls for one verdict while faults may pass, 1 and up.
        requests_per_minute: Rate limit; None is none.
        tokens_per_minute: Rate limit, by expected tokens; None is none.
        run_id: Runs of the same name share a cap per run, also across processes.

    Raises:
        TableError: The table lacks a column, or a key occurs twice.
        JudgeError: Nobody to ask and verdicts are missing; or the server refused the
            run as a whole (then `RunStoppedError`, whose `run` has what was judged).
        BudgetError: A cap in USD without a known price.
        CacheError: The cache cannot be read or written.
    """
    started = time.monotonic()
    rubric = rubric or Rubric.default()
    endpoint = resolve_endpoint(model, base_url, api_key)
    settings = Settings(
        concurrency=_at_least_one("concurrency", concurrency),
        max_completion_tokens=_at_least_one(
            "max_completion_tokens", max_completion_tokens
        ),
        timeout=timeout,
        attempts=_at_least_one("attempts", attempts),
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        bounded=_bounded(limits),
    )
    with _opened(cache, read_only=offline is True) as store:
        job = _Job(
            replies, rubric, endpoint, store, settings, params, sample, seed, votes
        )
        version = store.register_rubric(rubric)
        engine: Engine | None = None
        error: BaseException | None = None
        missing = job.desk.missing_count()
        price = price or _price(endpoint)
        if missing:
            _check_can_ask(job, missing, offline)
            run_id = run_id or f"run-{uuid.uuid4().hex[:12]}"
            owner = new_owner()
            ledger = Ledger(store, limits, run_id, price, owner=owner)
            engine = Engine(
                desk=job.desk,
                cache=store,
                ledger=ledger,
                settings=settings,
                owner=owner,
                run_id=run_id,
            )
            error = _in_thread(engine, missing, Progress(progress))
            job.desk.reload(engine.judged | set(engine.taken))
        run = job.result(version, engine, time.monotonic() - started)
        # A long table that is known already was noted when it was judged.
        if not store.read_only and (engine or replies.height <= _NOTE_ROWS):
            store.note_requests(job.requests())
    if isinstance(error, RunStoppedError):
        error.run = run
    if error is not None:
        raise error
    return run


class _Job:
    """A table, a judge, and which rows it is to see."""

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
        votes = _at_least_one("votes", votes)
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
            new_entries=engine.judged if engine else set(),
            failures={
                entry: (f.status, f.detail, f.attempts)
                for entry, f in (engine.failures if engine else {}).items()
            },
            unreached=engine.unreached if engine else "",
            metric_version=version,
            judge_id=self.desk.judge_id,
            model=self.endpoint.model,
        )
        summary = _summary(table, engine, seconds, self.desk.dialect.changes())
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


def estimate(
    replies: pl.DataFrame,
    *,
    rubric: Rubric | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    cache: str | Path | Cache | None = None,
    price: Price | None = None,
    sample: float | None = None,
    votes: int = 1,
    max_completion_tokens: int = DEFAULT_MAX_COMPLETION_TOKENS,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    **_: Any,  # noqa: ANN401
) -> Estimate:
    """What `judge` with the same arguments would ask for and cost; nothing is sent.

    Args:
        replies: As for `judge`, and so are the others; those that do not change the
            bill (concurrency, limits, progress, ...) are accepted and ignored.
        rubric: As for `judge`.
        model: As for `judge`.
        base_url: As for `judge`.
        api_key: As for `judge`.
        cache: As for `judge`.
        price: As for `judge`.
        sample: As for `judge`.
        votes: As for `judge`.
        max_completion_tokens: As for `judge`.
        seed: As for `judge`.
        params: As for `judge`.

    Raises:
        TableError: The table lacks a column, or a key occurs twice.
        JudgeError: A base URL or key without a model.
    """
    rubric = rubric or Rubric.default()
    endpoint = resolve_endpoint(model, base_url, api_key)
    tokens = _at_least_one("max_completion_tokens", max_completion_tokens)
    settings = Settings(1, tokens, DEFAULT_TIMEOUT)
    with _opened(cache) as store:
        job = _Job(
            replies, rubric, endpoint, store, settings, params, sample, seed, votes
        )
        desk = job.desk
        entries = desk.missing_entries()
        price = price or _price(endpoint)
        use = store.token_use(desk.judge_id)
        identity = desk.identity
        sizes = [desk.item(e).size for e in entries.tolist()]
        fixed = request_bytes(identity)
        sent = len(identity.wording.encode()) + len(identity.schema_json.encode())
        ledger = Ledger(store, None, "estimate", price)
    worst = [ledger.worst_case(fixed + size, tokens) for size in sizes]
    rate = use.prompt_tokens_per_byte if use else 0.25
    answer = use.completion_tokens if use else 60.0
    prompt = rate * (sum(sizes) + sent * len(sizes))
    completion = answer * len(sizes)
    expected = None
    if price is not None:
        expected = price.micro_usd(round(prompt), round(completion)) / 1e6
    total = replies.height * votes
    return Estimate(
        rows=total,
        to_judge=len(job.worklist.rows) * votes,
        cached=desk.found.height,
        calls=len(sizes),
        max_calls=2 * len(sizes),
        max_tokens=sum(w.tokens for w in worst),
        expected_tokens=round(prompt + completion),
        max_usd=sum(w.micro_usd for w in worst) / 1e6 if price else None,
        expected_usd=expected,
        from_history=use is not None,
        too_long=job.worklist.keys.null_count(),
        notes=() if desk.dialect_known or not sizes else (_UNMET,),
    )


_UNMET = (
    "this server was not met yet: trying out what it accepts may take a few calls, and "
    "changes the judge id if it wants to be asked differently"
)


def record(
    replies: pl.DataFrame,
    verdicts: pl.DataFrame,
    *,
    rubric: Rubric | None = None,
    model: str = RECORDED_MODEL,
    base_url: str = RECORDED_BASE_URL,
    cache: str | Path | Cache | None = None,
) -> int:
    """Keep verdicts obtained elsewhere, as results for exactly these messages.

    `judge` with the same model and base URL then replays them. They are matched by
    `request_id`, `arm` where both tables have one, and `vote`; replies without a
    verdict stay without.

    Args:
        replies: As for `judge`.
        verdicts: `request_id`, `score`, `reason`; optional `arm`, `vote`, `status`,
            `status_detail`, `model`, `judged_at`. Only final statuses are kept.
        rubric: The rubric they were judged by; default the shipped one.
        model: Name of the judge; no server is asked by it.
        base_url: `recorded:`, or `recorded:` and a name of your own.
        cache: A file, an open cache, or None for the default place.

    Returns:
        Verdicts that were new to the cache.

    Raises:
        JudgeError: The base URL is not of a recorded judge.
        TableError: Two verdicts contradict each other for one and the same message.
    """
    rubric = rubric or Rubric.default()
    endpoint = resolve_endpoint(model, base_url, None)
    if not endpoint.recorded:
        raise JudgeError(
            f"verdicts recorded elsewhere cannot be kept as answers of {base_url}: "
            f"what was sent to it is not known. Use {RECORDED_BASE_URL!r}, or "
            f"{RECORDED_BASE_URL + 'name'!r}."
        )
    verdicts = _with_defaults(verdicts)
    last = verdicts["vote"].max()
    votes = 1 + (last if isinstance(last, int) else 0)
    settings = Settings(1, 1, DEFAULT_TIMEOUT)
    with _opened(cache) as store:
        job = _Job(replies, rubric, endpoint, store, settings, {}, None, 0, votes)
        store.register_rubric(rubric)
        store.register_judge(job.desk.identity, rubric)
        by = ["request_id", "vote"]
        if "arm" in replies.columns and verdicts["arm"].null_count() == 0:
            by.insert(1, "arm")
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in verdicts.iter_rows(named=True):
            if row["status"] in FINAL:
                found[tuple(row[name] for name in by)] = row
        kept: dict[str, StoredVerdict] = {}
        for entry in range(len(job.worklist.keys)):
            if job.worklist.keys[entry] is None:
                continue
            item = job.desk.item(entry)
            given = replies.row(item.row, named=True)
            row_key = {**given, "vote": item.vote}
            said = found.get(tuple(row_key[name] for name in by))
            if said is None:
                continue
            stored = StoredVerdict(
                key=item.key,
                judge_id=job.desk.judge_id,
                user_message=item.message.text,
                vote=item.vote,
                score=said["score"],
                reason=said["reason"],
                status=said["status"],
                status_detail=said["status_detail"] or "",
                model_returned=said["model"],
                prompt_tokens=None,
                cached_tokens=None,
                completion_tokens=None,
                cost_usd=None,
                latency_ms=None,
                attempts=0,
                judged_at=said["judged_at"] or "",
                raw=None,
            )
            before = kept.setdefault(item.key, stored)
            if (before.score, before.reason) != (stored.score, stored.reason):
                raise TableError(
                    f"request {given['request_id']!r} repeats another row word for "
                    "word, but the recorded verdicts on the two differ. A verdict "
                    "belongs to what was sent: keep one of the rows."
                )
        new = store.put_many(list(kept.values()))
        store.note_requests(job.requests())
    return new


_OPTIONAL = {
    "arm": pl.String,
    "vote": pl.Int64,
    "reason": pl.String,
    "status": pl.String,
    "status_detail": pl.String,
    "model": pl.String,
    "judged_at": pl.String,
}


def _with_defaults(verdicts: pl.DataFrame) -> pl.DataFrame:
    for name in ("request_id", "score"):
        if name not in verdicts.columns:
            raise TableError(
                f"the recorded verdicts have no column {name!r}. They need request_id, "
                "score and reason; read them with read_verdicts."
            )
    absent = [
        pl.lit(None, dtype=kind).alias(name)
        for name, kind in _OPTIONAL.items()
        if name not in verdicts.columns
    ]
    return verdicts.with_columns(absent).with_columns(
        pl.col("vote").fill_null(0).cast(pl.Int64),
        pl.coalesce(
            "status",
            pl.when(pl.col("score").is_null())
            .then(pl.lit("invalid"))
            .otherwise(pl.lit("scored")),
        ),
    )


# Running


def _in_thread(engine: Engine, todo: int, progress: Progress) -> BaseException | None:
    """Run the engine in a thread with a loop of its own; wait, and show progress.

    The caller's loop, if it runs one (Jupyter does), is never touched. An interrupt
    reaches this thread; it is passed on to the engine, which ends in good order.

    Returns:
        What ended the run, if it did not end by itself.
    """
    done = threading.Event()
    caught: list[BaseException] = []
    loop = asyncio.new_event_loop()

    def work() -> None:
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(engine.main())
            loop.run_until_complete(loop.shutdown_asyncgens())
        except BaseException as error:
            caught.append(error)
        finally:
            loop.close()
            done.set()

    started = time.monotonic()
    thread = threading.Thread(target=work, name="reply-resolution-judge", daemon=True)
    thread.start()
    while True:
        try:
            while not done.wait(0.1):
                progress.update(lambda: _line(engine.tally, todo, started))
            thread.join()
            break
        except KeyboardInterrupt:
            if not done.is_set():
                loop.call_soon_threadsafe(engine.interrupt)
    progress.update(lambda: _line(engine.tally, todo, started), done=True)
    return caught[0] if caught else None


def _line(tally: Tally, todo: int, started: float) -> str:
    seconds = max(time.monotonic() - started, 1e-3)
    done = tally.answered + tally.waited_for
    rate = done / seconds
    text = f"judged {done} of {todo}, {number(rate, 1)} a second"
    if tally.cost_usd is not None:
        text += f", {number(tally.cost_usd, 4)} USD"
    tokens = tally.prompt_tokens + tally.completion_tokens
    text += f", {number(tokens, 0)} tokens"
    without = tally.answered - tally.statuses["scored"]
    if without:
        text += f", {without} without a score"
    if done < todo and rate > 0:
        text += f", {duration((todo - done) / rate)} left"
    return text + f" ({duration(seconds)} so far)"


def _summary(
    table: pl.DataFrame, engine: Engine | None, seconds: float, changes: str
) -> RunSummary:
    counts = (
        table.group_by(pl.col("arm").fill_null(""), "status", maintain_order=True)
        .agg(pl.len())
        .sort("arm", "status")
    )
    statuses: dict[str, dict[str, int]] = {}
    for arm, status, n in counts.iter_rows():
        statuses.setdefault(arm, {})[status] = n
    tally = engine.tally if engine else Tally()
    notes = []
    if changes:
        notes.append(f"this server was asked differently: {changes}")
    if tally.waited_for:
        notes.append(f"{tally.waited_for} verdicts came from another process")
    if tally.overbilled:
        notes.append("the server billed more tokens than the calls allowed")
    empty = table.filter(pl.col("status_detail") == "empty").height
    if empty:
        notes.append(f"{empty} empty replies were scored 1 by rule, without a call")
    not_judged = table.filter(pl.col("status") == "not_judged").height
    refusal = tally.refusal
    return RunSummary(
        rows=table.height,
        judged=table.height - not_judged,
        scored=table.filter(pl.col("status") == "scored").height,
        calls=tally.calls,
        answered=tally.answered,
        cached=int(table["cached"].sum()),
        empty=empty,
        statuses=statuses,
        prompt_tokens=tally.prompt_tokens,
        cached_tokens=tally.cached_tokens,
        completion_tokens=tally.completion_tokens,
        unknown_usage=tally.unknown_usage,
        usd=tally.cost_usd,
        seconds=seconds,
        peak_in_flight=engine.gate.peak if engine else 0,
        capped=f"{refusal.limit} per {refusal.scope}" if refusal else "",
        interrupted=tally.interrupted,
        notes=tuple(notes),
    )


# Checks


@contextmanager
def _opened(
    cache: str | Path | Cache | None, *, read_only: bool = False
) -> Iterator[Cache]:
    """An open cache; closed again only if it was opened here."""
    if isinstance(cache, Cache):
        yield cache
        return
    del read_only
    with Cache.open(cache) as store:
        yield store


def _price(endpoint: Endpoint) -> Price | None:
    if endpoint.recorded or endpoint.local:
        return None
    return price_for(endpoint.model, base_url=endpoint.base_url)


def _bounded(limits: Limits | Sequence[Limits] | None) -> bool:
    several = [limits] if isinstance(limits, Limits) else limits or ()
    return any(x.max_total_tokens is not None or x.max_usd is not None for x in several)


def _at_least_one(name: str, value: int) -> int:
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


def _check_can_ask(job: _Job, missing: int, offline: bool | None) -> None:
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

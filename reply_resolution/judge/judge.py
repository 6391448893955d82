"""Replies in, verdicts out: judge a table, estimate what it costs, record verdicts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
import time
from typing import Any
import uuid

import polars as pl

from reply_resolution.judge.background import run_in_thread
from reply_resolution.judge.budget import Ledger, Limits, Price
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.case import RunStoppedError, Settings
from reply_resolution.judge.desk import request_bytes
from reply_resolution.judge.endpoint import resolve_endpoint
from reply_resolution.judge.engine import Engine
from reply_resolution.judge.job import (
    Job,
    at_least_one,
    bounded,
    check_can_ask,
    opened,
    price_of,
)
from reply_resolution.judge.owner import new_owner
from reply_resolution.judge.progress import Progress
from reply_resolution.judge.recording import record
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.run import Estimate, JudgeRun

__all__ = ["estimate", "judge_replies", "record"]

#: Enough for a verdict with a reason, and for a little reasoning before it.
DEFAULT_MAX_COMPLETION_TOKENS = 1024
DEFAULT_TIMEOUT = 120.0
_NOTE_ROWS = 20_000


def judge_replies(
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
        concurrency=at_least_one("concurrency", concurrency),
        max_completion_tokens=at_least_one(
            "max_completion_tokens", max_completion_tokens
        ),
        timeout=timeout,
        attempts=at_least_one("attempts", attempts),
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        bounded=bounded(limits),
    )
    with opened(cache, offline=offline is True) as store:
        job = Job(
            replies, rubric, endpoint, store, settings, params, sample, seed, votes
        )
        version = store.register_rubric(rubric)
        engine: Engine | None = None
        error: BaseException | None = None
        missing = job.desk.missing_count()
        price = price or price_of(endpoint)
        if missing:
            check_can_ask(job, missing, offline)
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
            error = run_in_thread(engine, missing, Progress(progress))
            job.desk.reload(engine.record.judged | set(engine.record.taken))
        run = job.result(version, engine, time.monotonic() - started)
        # A long table that is known already was noted when it was judged.
        if not store.read_only and (engine or replies.height <= _NOTE_ROWS):
            store.note_requests(job.requests())
    if isinstance(error, RunStoppedError):
        error.run = run
    if error is not None:
        raise error
    return run


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
    tokens = at_least_one("max_completion_tokens", max_completion_tokens)
    settings = Settings(1, tokens, DEFAULT_TIMEOUT)
    with opened(cache) as store:
        job = Job(
            replies, rubric, endpoint, store, settings, params, sample, seed, votes
        )
        desk = job.desk
        entries = desk.missing_entries()
        price = price or price_of(endpoint)
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

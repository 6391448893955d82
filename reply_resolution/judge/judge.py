"""Replies in, verdicts out: judge a table, estimate what it costs, record verdicts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
import time
from typing import Any
import uuid

import polars as pl

from reply_resolution.errors import JudgeError, TableError
from reply_resolution.judge.asking import Settings
from reply_resolution.judge.background import Progress, run_in_thread
from reply_resolution.judge.budget import Ledger, Limits, Price, price_for
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.client import (
    RECORDED_BASE_URL,
    RECORDED_MODEL,
    Endpoint,
    resolve_endpoint,
)
from reply_resolution.judge.engine import Engine
from reply_resolution.judge.job import Job, at_least_one, opened, request_bytes
from reply_resolution.judge.owner import new_owner
from reply_resolution.judge.results import (
    Estimate,
    JudgeRun,
    RunStoppedError,
    Tally,
    summarize,
    verdict_table,
)
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import FINAL, StoredVerdict

#: Enough for a verdict with a reason, and for a little reasoning before it.
DEFAULT_MAX_COMPLETION_TOKENS = 1024
_NOTE_ROWS = 20_000
_UNMET = (
    "this server was not met yet: trying out what it accepts may take a few calls, and "
    "changes the judge id if it wants to be asked differently"
)


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
    timeout: float = 120.0,
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
        RunStoppedError: A JudgeError: verdicts are missing and there is nobody to ask,
            or the server refused the run as a whole; its `run` has what is known.
        BudgetError: A cap in USD without a known price.
        CacheError: The cache cannot be read or written.
    """
    started = time.monotonic()
    rubric = rubric or Rubric.default()
    endpoint = resolve_endpoint(model, base_url, api_key)
    caps = [limits] if isinstance(limits, Limits) else list(limits or ())
    settings = Settings(
        concurrency=at_least_one("concurrency", concurrency),
        max_completion_tokens=at_least_one(
            "max_completion_tokens", max_completion_tokens
        ),
        timeout=timeout,
        attempts=at_least_one("attempts", attempts),
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        bounded=any(
            x.max_total_tokens is not None or x.max_usd is not None for x in caps
        ),
    )
    can_ask = endpoint.callable and not offline
    with opened(cache, offline=not can_ask) as store:
        job = Job(
            replies,
            rubric,
            endpoint,
            store,
            max_completion_tokens=max_completion_tokens,
            params=params,
            sample=sample,
            seed=seed,
            votes=votes,
        )
        version = store.register_rubric(rubric)
        tally = Tally()
        error: BaseException | None = None
        missing = job.missing_count()
        asked = missing > 0 and can_ask
        if missing and not asked:
            error = _nobody_to_ask(job, store, missing)
        if asked:
            run_id = run_id or f"run-{uuid.uuid4().hex[:12]}"
            owner = new_owner()
            price = price or _price_of(endpoint)
            ledger = Ledger(store, caps, run_id, price, owner=owner)
            engine = Engine(job, ledger, settings, owner=owner, run_id=run_id)
            tally = engine.tally
            error = run_in_thread(engine, missing, Progress(progress))
            job.reload(tally.judged | tally.taken)
        table = verdict_table(
            replies,
            job.worklist,
            job.found,
            drawn=job.drawn,
            probability=job.probability(),
            new_entries=tally.judged,
            failures=tally.failures,
            unreached=tally.unreached if missing else "",
            metric_version=version,
            judge_id=job.judge_id,
            model=endpoint.model,
        )
        seconds = time.monotonic() - started
        summary = summarize(table, tally, seconds, job.dialect.changes())
        run = JudgeRun(table, summary, rubric, version, job.judge_id)
        # A long table that is known already was noted when it was judged.
        short = not missing and replies.height <= _NOTE_ROWS
        if not store.read_only and (asked or short):
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
    """What `judge_replies` with the same arguments would cost; nothing is sent.

    Arguments that do not change the bill (concurrency, limits, progress, ...) are
    accepted and ignored.

    Raises:
        TableError: The table lacks a column, or a key occurs twice.
        JudgeError: A base URL or key without a model.
    """
    rubric = rubric or Rubric.default()
    endpoint = resolve_endpoint(model, base_url, api_key)
    tokens = at_least_one("max_completion_tokens", max_completion_tokens)
    with opened(cache) as store:
        job = Job(
            replies,
            rubric,
            endpoint,
            store,
            max_completion_tokens=tokens,
            params=params,
            sample=sample,
            seed=seed,
            votes=votes,
        )
        price = price or _price_of(endpoint)
        use = store.token_use(job.judge_id)
        sizes = [job.worklist.item(entry).size for entry in job.missing()]
        ledger = Ledger(store, None, "estimate", price)
    fixed = request_bytes(job.identity)
    worst = [ledger.worst_case(fixed + size, tokens) for size in sizes]
    sent = len((job.identity.wording + job.identity.schema_json).encode())
    rate = use.prompt_tokens_per_byte if use else 0.25
    answer = use.completion_tokens if use else 60.0
    prompt = rate * (sum(sizes) + sent * len(sizes))
    completion = answer * len(sizes)
    expected = None
    if price is not None:
        expected = price.micro_usd(round(prompt), round(completion)) / 1e6
    return Estimate(
        rows=replies.height * votes,
        to_judge=len(job.worklist.rows) * votes,
        cached=job.found.height,
        calls=len(sizes),
        max_calls=2 * len(sizes),
        max_tokens=sum(w.tokens for w in worst),
        expected_tokens=round(prompt + completion),
        max_usd=sum(w.micro_usd for w in worst) / 1e6 if price else None,
        expected_usd=expected,
        from_history=use is not None,
        too_long=job.worklist.keys.null_count(),
        notes=() if job.dialect_known or not sizes else (_UNMET,),
    )


def _price_of(endpoint: Endpoint) -> Price | None:
    """The known price of an endpoint's model; None for a server on this machine."""
    if endpoint.recorded or endpoint.local:
        return None
    return price_for(endpoint.model, base_url=endpoint.base_url)


def _nobody_to_ask(job: Job, store: Cache, missing: int) -> RunStoppedError:
    """What is missing, and what to set so that somebody can be asked."""
    endpoint = job.endpoint
    first = job.replies["request_id"][job.worklist.item(job.missing()[0]).row]
    where = store.name.removeprefix("the cache ")
    if endpoint.callable:
        todo = "Run without offline=True (--offline) to judge them."
    else:
        todo = (
            "To judge them, set OPENAI_API_KEY and name a --model, or give the "
            "--base-url of an OpenAI-compatible server (http://localhost:8080/v1 needs "
            "no key); to replay, give the --cache that has them."
        )
    return RunStoppedError(
        f"the cache {where} has no verdict for {missing} of "
        f"{job.worklist.keys.n_unique()} replies by {endpoint.model} with this rubric "
        f"(the first: {first!r}), and nobody can be asked. {todo}"
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
        TableError: Two verdicts contradict each other for one and the same message, or
            it is not said of which arm they are.
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
    with opened(cache) as store:
        job = Job(
            replies, rubric, endpoint, store, max_completion_tokens=1, votes=votes
        )
        store.register_rubric(rubric)
        store.register_judge(job.identity, rubric)
        by = ["request_id", "vote"]
        if "arm" in replies.columns and verdicts["arm"].null_count() == 0:
            by.insert(1, "arm")
        elif replies["request_id"].is_duplicated().any():
            raise TableError(
                "the replies have a request in several arms, and the recorded verdicts "
                "do not say of which arm they are. Give them a column 'arm'."
            )
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in verdicts.iter_rows(named=True):
            if row["status"] not in FINAL:
                continue
            first = found.setdefault(tuple(row[name] for name in by), row)
            if (first["score"], first["reason"]) != (row["score"], row["reason"]):
                raise TableError(
                    f"the recorded verdicts have two on request {row['request_id']!r} "
                    f"(by {', '.join(by)}), and they differ. Keep one, or number them "
                    "in a column 'vote'."
                )
        kept: dict[str, StoredVerdict] = {}
        for entry, key in enumerate(job.worklist.keys):
            if key is None:
                continue
            item = job.worklist.item(entry)
            given = replies.row(item.row, named=True)
            row_key = {**given, "vote": item.vote}
            said = found.get(tuple(row_key[name] for name in by))
            if said is None:
                continue
            stored = StoredVerdict(
                key=item.key,
                judge_id=job.judge_id,
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

"""Bulk judging through the provider's Batch API: half the price, within a day.

Another way to fill the same cache: the same requests under the same keys, answered by
file. Every request is booked at its worst case before anything is sent, what is about
to be sent is written down first, and a batch carries its name at the provider: a crash
at any moment neither sends one twice nor forgets one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
import json
from pathlib import Path
from typing import Any
import uuid

import polars as pl

from reply_resolution.errors import BudgetError, JudgeError
from reply_resolution.judge.budget import Ledger, Limits, Price
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.client import resolve_endpoint
from reply_resolution.judge.job import Item, Job, opened, request_bytes
from reply_resolution.judge.judge import (
    DEFAULT_MAX_COMPLETION_TOKENS,
    judge_replies,
    known_price,
)
from reply_resolution.judge.rubric import Rubric
from reply_resolution.scale import batch_store as kept
from reply_resolution.scale.batch_send import connected, request_line, send
from reply_resolution.scale.batch_store import Batch, Line

#: What a batched token costs, as a share of its usual price.
#: Source: OpenAI, "Batch API FAQ" (help.openai.com/en/articles/9197833): "50% cost
#: discount vs. the synchronous APIs".
DISCOUNT = 0.5
#: Requests and bytes of one file. Source: OpenAI, API reference, "Create batch".
MAX_REQUESTS = 50_000
MAX_BYTES = 200_000_000
# A claim outlives the provider's day, so that nobody asks meanwhile.
_LEASE_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Submission:
    """What a submission came to.

    Attributes:
        batches: The batches at the provider now, those resumed included.
        asked: Requests in new batches.
        known: Verdicts the cache has.
        elsewhere: Verdicts that are missing, but in another batch, being judged, or
            not booked.
        refused: The cap that kept the rest from being booked, in words; "" if none.
    """

    batches: tuple[Batch, ...]
    asked: int
    known: int
    elsewhere: int
    refused: str


def submit(
    replies: pl.DataFrame,
    *,
    rubric: Rubric | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    cache: str | Path | Cache | None = None,
    limits: Limits | Sequence[Limits] | None = None,
    price: Price | None = None,
    discount: float = DISCOUNT,
    sample: float | None = None,
    votes: int = 1,
    max_completion_tokens: int = DEFAULT_MAX_COMPLETION_TOKENS,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    max_requests: int = MAX_REQUESTS,
    max_bytes: int = MAX_BYTES,
) -> Submission:
    """Hand what is missing to the provider, in as few batches as its limits allow.

    Batches that a crash left half sent are sent first. A server that was never met is
    met with one ordinary call, at the ordinary price, to learn how it must be asked.

    Args:
        replies: As for `judge_replies`, and so are the others.
        rubric: As for `judge_replies`.
        model: As for `judge_replies`.
        base_url: As for `judge_replies`.
        api_key: As for `judge_replies`.
        cache: As for `judge_replies`.
        limits: As for `judge_replies`; booked in full now, settled when collected.
        price: As for `judge_replies`: the usual price, not yet reduced.
        discount: What a batched token costs, share of the usual price, above 0 to 1.
        sample: As for `judge_replies`.
        votes: As for `judge_replies`.
        max_completion_tokens: As for `judge_replies`.
        seed: As for `judge_replies`.
        params: As for `judge_replies`.
        run_id: As for `judge_replies`.
        max_requests: Most requests in a file.
        max_bytes: Most bytes in a file.

    Raises:
        JudgeError: There is nobody to ask, or the provider refused the batch.
        BudgetError: A cap in USD without a known price, or a discount that is none.
        CacheError: The cache cannot be written.
    """
    if not 0 < discount <= 1:
        raise BudgetError(f"discount {discount!r} is no share above 0 and up to 1.")
    rubric = rubric or Rubric.default()
    endpoint = resolve_endpoint(model, base_url, api_key)
    if not endpoint.callable:
        raise JudgeError(
            "a batch needs somebody to ask: set OPENAI_API_KEY and name a --model."
        )
    run_id = run_id or f"run-{uuid.uuid4().hex[:12]}"
    usual = price or known_price(endpoint)
    asking: dict[str, Any] = {
        "max_completion_tokens": max_completion_tokens,
        "params": params,
    }
    with opened(cache) as store, connected(endpoint) as client:
        kept.prepare(store)
        sent = [
            send(store, client, endpoint, batch)
            for batch in kept.batches(store)
            if batch.state in {"planned", "sending"}
            and batch.base_url == endpoint.base_url
        ]
        drawn: dict[str, Any] = {"sample": sample, "seed": seed, "votes": votes}
        job = Job(replies, rubric, endpoint, store, **asking, **drawn)
        if job.missing_count() and not job.dialect_known:
            row = job.worklist.item(job.missing()[0]).row
            judge_replies(
                replies[[row]],
                rubric=rubric,
                model=endpoint.model,
                base_url=endpoint.base_url,
                api_key=endpoint.api_key,
                cache=store,
                limits=limits,
                price=usual,
                run_id=run_id,
                progress=False,
                **asking,
            )
            job = Job(replies, rubric, endpoint, store, **asking, **drawn)
        store.register_rubric(rubric)
        store.register_judge(job.identity, rubric)
        store.note_requests(job.requests())
        cheap = _reduced(usual, discount)
        asked, refused = 0, ""
        for items in _files(job, max_requests, max_bytes):
            batch, refused = _plan(
                store, job, items, cheap, limits, run_id, max_completion_tokens
            )
            if batch is not None:
                asked += batch.requests
                sent.append(send(store, client, endpoint, batch))
            if refused:
                break
    left = job.missing_count() - asked
    return Submission(tuple(sent), asked, job.found.height, left, refused)


def _reduced(price: Price | None, discount: float) -> Price | None:
    if price is None:
        return None
    names = ("input", "output", "cached", "worst_input", "worst_output")
    values = {name: getattr(price, name) for name in names}
    less: dict[str, Any] = {n: v and v * discount for n, v in values.items()}
    return replace(price, **less)


def _files(job: Job, max_requests: int, max_bytes: int) -> Iterator[list[Item]]:
    """What is missing, a file's worth at a time."""
    fixed = len(request_line(job.identity.request(""), "0" * 64))
    items: list[Item] = []
    size = 0
    for entry in job.missing():
        item = job.worklist.item(entry)
        # As text in JSON in JSON a message grows; this is what it comes to.
        own = fixed + len(json.dumps(item.message.text, ensure_ascii=False).encode())
        if items and (len(items) == max_requests or size + own > max_bytes):
            yield items
            items, size = [], 0
        items.append(item)
        size += own
    if items:
        yield items


def _plan(
    store: Cache,
    job: Job,
    items: list[Item],
    price: Price | None,
    limits: Limits | Sequence[Limits] | None,
    run_id: str,
    tokens: int,
) -> tuple[Batch | None, str]:
    """Claim, book and write down one batch, in one transaction; and which cap ended it.

    None where nobody's turn it is: all are being judged elsewhere, or none fits.
    """
    batch = Batch(
        name=f"rr-{uuid.uuid4().hex[:16]}",
        state="planned",
        base_url=job.endpoint.base_url,
        model=job.endpoint.model,
        judge_id=job.judge_id,
        run_id=run_id,
        price=asdict(price) if price else None,
        requests=0,
        usd=None,
    )
    ledger = Ledger(store, limits, run_id, price, owner=batch.owner)
    fixed = request_bytes(job.identity)
    with store.transaction():
        mine = store.claim([i.key for i in items], batch.owner, _LEASE_S)
        ours = [item for item in items if item.key in mine]
        booked = ledger.reserve_many([(fixed + i.size, tokens) for i in ours])
        store.release([i.key for i in ours[len(booked) :]], batch.owner)
        lines = [
            Line(i.key, *b, i.vote, i.message.text, i.message.note)
            for i, b in zip(ours, booked, strict=False)
        ]
        usd = sum(x.micro_usd for x in lines) / 1e6 if price else None
        batch = replace(batch, requests=len(lines), usd=usd)
        if lines:
            kept.plan(store, batch, lines)
    refusal = ledger.refusal
    cap = f"{refusal.limit} per {refusal.scope}" if refusal else ""
    return (batch if lines else None), cap

"""What a provider answered to batches: every line read as strictly as an answer is."""

from dataclasses import replace
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from reply_resolution.errors import JudgeError
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.client import Endpoint, read_answer, resolve_endpoint
from reply_resolution.judge.identity import Dialect
from reply_resolution.judge.job import opened
from reply_resolution.judge.reading import Outcome, Reading, read_refusal
from reply_resolution.scale import batch_store as kept
from reply_resolution.scale.batch_send import connected, send, turn
from reply_resolution.scale.batch_settle import Collection, settle
from reply_resolution.scale.batch_store import Batch, Line

_GROUP = 1_000
_ENDED = {"completed", "failed", "expired", "cancelled"}


def collect(
    *,
    api_key: str | None = None,
    cache: str | Path | Cache | None = None,
) -> Collection:
    """Fetch what the provider has answered, settle the bookings, keep the verdicts.

    Partial results of a batch that expired or was cancelled are kept; what was not
    reached costs nothing and may be asked again. More than once is as good as once.

    Args:
        api_key: Default OPENAI_API_KEY.
        cache: As for `judge_replies`.

    Raises:
        JudgeError: The provider cannot be reached, or refuses the key.
        CacheError: The cache cannot be written.
    """
    result = Collection({}, 0, 0, [])
    with opened(cache) as store:
        kept.prepare(store)
        for batch in kept.batches(store):
            if batch.state in {"collected", "refused"}:
                continue
            endpoint = resolve_endpoint(batch.model, batch.base_url, api_key)
            if not endpoint.callable:
                raise JudgeError(
                    f"{batch.base_url} has answers to collect: set OPENAI_API_KEY."
                )
            with connected(endpoint) as client:
                batch = send(store, client, endpoint, batch)
                with turn(store, batch) as mine:
                    if mine is not None and mine.state == "submitted":
                        batch = _collect(store, client, endpoint, mine, result)
            result.waiting += batch.state != "collected"
    return result


def _collect(
    store: Cache,
    client: Any,  # noqa: ANN401
    endpoint: Endpoint,
    batch: Batch,
    result: Collection,
) -> Batch:
    remote = client.batches.retrieve(batch.batch_id)
    problems = [str(e.message) for e in (remote.errors.data if remote.errors else [])]
    batch = kept.update(
        store,
        batch,
        status=str(remote.status),
        detail=endpoint.scrub("; ".join(problems))[:500],
    )
    if remote.status not in _ENDED:
        return batch
    waiting = {line.key: line for line in kept.lines(store, batch)}
    group: list[tuple[Line, Outcome | None]] = []
    strange = 0
    for file_id in (remote.output_file_id, remote.error_file_id):
        if not file_id:
            continue
        for text in client.files.content(file_id).iter_lines():
            key, outcome = _read(text, endpoint)
            line = waiting.pop(key, None)
            if line is None:  # empty, unreadable, not asked for, or said before
                strange += bool(text.strip())
                continue
            group.append((line, outcome))
            if len(group) == _GROUP:
                settle(store, batch, group, result)
                group = []
    # A batch that ran to its end owes an answer to each: one it lost counts in full.
    lost = Outcome("again", Reading("failed", detail="missing"), billed=True)
    unsaid = lost if remote.status == "completed" else None
    group += [(line, unsaid) for line in waiting.values()]
    for start in range(0, len(group), _GROUP):
        settle(store, batch, group[start : start + _GROUP], result)
    if strange:
        result.notes.append(
            f"{batch.name}: {strange} lines were not of this batch, said twice, or not "
            "readable; they were not taken"
        )
    if batch.status != "completed":
        said = f": {batch.detail}" if batch.detail else ""
        result.notes.append(f"{batch.name} ended {batch.status}{said}")
    return kept.update(store, batch, state="collected")


def _read(text: str, endpoint: Endpoint) -> tuple[str, Outcome | None]:
    """One line of a result: the key, and what came of it (None: never asked)."""
    try:
        said = json.loads(text)
        key = str(said["custom_id"])
        response, error = said.get("response") or {}, said.get("error") or {}
        status, body = response.get("status_code"), response.get("body")
        code = str(error.get("code") or "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", None
    if status == 200:
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return key, read_answer(content, endpoint.scrub, 0)
    if code in {"batch_expired", "batch_cancelled"}:
        return key, None
    fault = body.get("error") if isinstance(body, dict) else None
    fault = fault if isinstance(fault, dict) else error
    refused = SimpleNamespace(
        status_code=status if isinstance(status, int) else 500,
        code=fault.get("code"),
        type=fault.get("type"),
        param=fault.get("param"),
        body=fault,
        response=SimpleNamespace(headers={}),
    )
    message = endpoint.scrub(str(fault.get("message") or ""))[:500]
    outcome = read_refusal(
        refused,
        message,
        base_url=endpoint.base_url,
        model=endpoint.model,
        dialect=Dialect(),
        params={},
    )
    if code and not isinstance(status, int):
        outcome = replace(outcome, reading=Reading("failed", detail=code[:40]))
    return key, outcome

"""Batches on their way to a provider: each arrives once, whatever crashes when."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import hashlib
import json
from typing import Any

from reply_resolution.errors import JudgeError
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.client import Endpoint
from reply_resolution.judge.owner import new_owner
from reply_resolution.scale import batch_store as kept
from reply_resolution.scale.batch_settle import settle
from reply_resolution.scale.batch_store import Batch

_URL = "/v1/chat/completions"
_TAG = "reply_resolution"


def request_line(body: Mapping[str, Any], key: str) -> bytes:
    """A line of the file; the body is the ordinary request's, byte for byte."""
    line = {"custom_id": key, "method": "POST", "url": _URL, "body": body}
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.encode() + b"\n"


@contextmanager
def connected(endpoint: Endpoint) -> Iterator[Any]:
    """The official client; its errors in plain words, without the key."""
    import openai

    if endpoint.api_version:
        raise JudgeError(
            "batches go to Azure's newer address, which ends in /openai/v1; leave "
            "OPENAI_API_VERSION unset."
        )
    client = openai.OpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key)
    try:
        yield client
    except openai.OpenAIError as error:
        raise JudgeError(
            f"{endpoint.base_url}: {endpoint.scrub(str(error))[:500]}. What was "
            "written down is kept: `batch submit` and `batch collect` go on from there."
        ) from None
    finally:
        client.close()


def send(
    store: Cache,
    client: Any,  # noqa: ANN401
    endpoint: Endpoint,
    planned: Batch,
) -> Batch:
    """Upload a batch and start it, unless that has been done.

    A batch that may have arrived is looked for by its name before it is sent again.
    """
    import openai

    with turn(store, planned) as batch:
        if batch is None or batch.state not in {"planned", "sending"}:
            return batch or planned
        found = None
        if batch.state == "sending":
            named = (
                remote
                for remote in client.batches.list(limit=100)
                if dict(remote.metadata or {}).get(_TAG) == batch.name
            )
            found = next(named, None)
        if found is None:
            batch = kept.update(store, batch, state="sending")
            try:
                found = _start(store, client, batch)
            except openai.APIStatusError as error:
                if error.status_code < 500 and error.status_code not in (408, 409, 429):
                    _give_up(store, batch, endpoint.scrub(str(error.message))[:500])
                raise
        return kept.update(
            store,
            batch,
            state="submitted",
            file_id=str(found.input_file_id),
            batch_id=str(found.id),
            status=str(found.status),
        )


def _start(store: Cache, client: Any, batch: Batch) -> Any:  # noqa: ANN401
    identity = store.judge(batch.judge_id)
    assert identity is not None  # registered before it was planned
    data = b"".join(
        request_line(identity.request(line.user_message), line.key)
        for line in kept.lines(store, batch)
    )
    file = client.files.create(file=(f"{batch.name}.jsonl", data), purpose="batch")
    # Not repeated by the client: an answer that was lost may have been a yes, and then
    # the batch is found by its name.
    return client.with_options(max_retries=0).batches.create(
        input_file_id=file.id,
        endpoint=_URL,
        completion_window="24h",
        metadata={_TAG: batch.name},
    )


@contextmanager
def turn(store: Cache, batch: Batch) -> Iterator[Batch | None]:
    """The batch as it is now, for one of us at a time; None while another has it."""
    owner, turn = new_owner(), hashlib.sha256(batch.name.encode()).hexdigest()
    if not store.claim([turn], owner):
        yield None
        return
    try:
        yield next(b for b in kept.batches(store) if b.name == batch.name)
    finally:
        store.release([turn], owner)


def _give_up(store: Cache, batch: Batch, detail: str) -> None:
    """The provider took no batch: nothing was asked, so nothing is owed."""
    settle(store, batch, [(line, None) for line in kept.lines(store, batch)])
    kept.update(store, batch, state="refused", detail=detail)

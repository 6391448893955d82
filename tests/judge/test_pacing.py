"""One gate for all workers, and a connection for every call."""

import asyncio
import time
from typing import Any

import pytest

from reply_resolution.judge.client import (
    Client,
    Endpoint,
    Gate,
    backoff,
    lane_client,
    resolve_endpoint,
)
from reply_resolution.judge.identity import Dialect
from reply_resolution.judge.rubric import Rubric


def test_a_burst_of_refusals_halves_once_and_answers_bring_it_back() -> None:
    """Sixteen 429s of one burst are one message; answers raise the limit again."""

    async def scenario() -> tuple[float, float, float]:
        gate = Gate(16)
        started = [await gate.enter(0) for _ in range(16)]
        for start in started:
            gate.leave(fine=False)
            gate.slow_down(start)
        halved = gate.allowed
        for _ in range(100):
            await gate.enter(0)
            gate.leave(fine=True)
        recovered = gate.allowed
        for _ in range(400):
            await gate.enter(0)
            gate.leave(fine=True)
        return halved, recovered, gate.allowed

    halved, recovered, last = asyncio.run(scenario())
    assert halved == 8
    assert 8 < recovered < 17
    assert last == 16


def test_the_gate_never_lets_more_in_than_allowed() -> None:
    """With one call allowed the second waits until the first has left."""

    async def scenario() -> tuple[int, float]:
        gate = Gate(1)

        async def call() -> None:
            await gate.enter(0)
            await asyncio.sleep(0.05)
            gate.leave(fine=True)

        start = time.monotonic()
        await asyncio.gather(*(call() for _ in range(4)))
        return gate.peak, time.monotonic() - start

    peak, seconds = asyncio.run(scenario())
    assert peak == 1
    assert seconds >= 0.2


def test_a_token_rate_spaces_calls_by_their_tokens() -> None:
    """60,000 tokens a minute are 100 ms for a call of 100 tokens."""

    async def scenario() -> float:
        gate = Gate(10, tokens_per_minute=60_000)
        start = time.monotonic()
        for _ in range(4):
            await gate.enter(100)
            gate.leave(fine=True)
        return time.monotonic() - start

    assert asyncio.run(scenario()) >= 0.3


def test_backoff_doubles_with_jitter_and_has_an_end() -> None:
    """Waits lie between half of the doubled wait and all of it, at most `longest`."""
    for attempt, most in ((1, 1.0), (2, 2.0), (4, 8.0), (9, 30.0)):
        waits = [backoff(attempt, first=1.0) for _ in range(50)]
        assert most / 2 <= min(waits)
        assert max(waits) <= most
        assert len(set(waits)) > 40


def test_a_proxy_in_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a proxy is named, the library's own transport does the work."""
    monkeypatch.setattr(
        "reply_resolution.judge.client.getproxies", lambda: {"https": "http://p:3128"}
    )
    assert lane_client(1.0) is None
    monkeypatch.setattr(
        "reply_resolution.judge.client.getproxies", lambda: {"no": "localhost"}
    )
    assert lane_client(1.0) is not None


def test_connections_are_kept_and_reused(server: Any) -> None:
    """A hundred calls, ten at once, use ten connections."""
    server.latency = 0.01
    endpoint = resolve_endpoint("m", server.url, None)
    rubric = Rubric.default()

    async def scenario() -> None:
        client = _client(endpoint, rubric)
        room = asyncio.Semaphore(10)

        async def call(i: int) -> None:
            async with room:
                outcome = await client.call(f'{{"request":"r{i}","reply":"a"}}')
                assert outcome.reading.status == "scored"

        await asyncio.gather(*(call(i) for i in range(100)))
        await client.close()

    asyncio.run(scenario())
    assert server.calls == 100
    assert server.connections == 10


def test_azure_s_older_api_gets_its_path_and_header(server: Any) -> None:
    """With an API version the deployment is in the path, the key in `api-key`."""
    root = server.url.removesuffix("/v1")
    endpoint = Endpoint(root + "/openai", "gpt-x", "k-azure", "2024-10-21")

    async def scenario() -> str:
        client = _client(endpoint, Rubric.default())
        outcome = await client.call('{"request":"r","reply":"a"}')
        await client.close()
        return outcome.reading.status

    assert asyncio.run(scenario()) == "scored"
    request = server.requests[0]
    path = "/openai/deployments/gpt-x/chat/completions?api-version=2024-10-21"
    assert request.path == path
    assert request.headers["api-key"] == "k-azure"
    assert "authorization" not in request.headers


def test_azure_is_recognised_by_host_and_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own key variable is read; the newer API is like OpenAI's."""
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    old = resolve_endpoint("d", "https://x.openai.azure.com", None)
    assert (old.api_key, old.api_version) == ("k", "2024-10-21")
    new = resolve_endpoint("d", "https://x.openai.azure.com/openai/v1", None)
    assert (new.api_key, new.api_version) == ("k", None)


def _client(endpoint: Endpoint, rubric: Rubric) -> Client:
    client = Client(endpoint, params={"temperature": 0}, timeout=10)
    identity = Dialect().identity(
        rubric,
        model=endpoint.model,
        endpoint=endpoint.base_url,
        params={"temperature": 0},
        max_completion_tokens=100,
    )
    client.use(identity, Dialect())
    return client

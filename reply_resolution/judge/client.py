"""The server: its address, when it may be asked, and one call with a named outcome.

The official client does authentication, base URL and Azure; its retries are off,
because a retry it makes is a call our budget does not see. The request goes through
its `post` rather than `chat.completions.create`: the same bytes leave, without
building a tree of pydantic objects for an answer of two fields.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
import importlib
import json
import os
import random
import time
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from reply_resolution.errors import JudgeError
from reply_resolution.judge.identity import Dialect, JudgeIdentity, clean_endpoint
from reply_resolution.judge.reading import (
    Outcome,
    fault,
    read_completion,
    read_refusal,
    read_usage,
    stop,
    well_formed,
)

DEFAULT_BASE_URL = "https://api.openai.com/v1"
#: `base_url` of verdicts that were obtained elsewhere: only ever replayed.
RECORDED_BASE_URL = "recorded:"
RECORDED_MODEL = "recorded-judge"
# Sent to servers on this machine that want no key; some clients insist on one.
NO_KEY = "no-key-needed"
_LOCAL = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "host.docker.internal"}
_RAW_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go, resolved from arguments and the environment.

    Attributes:
        base_url: The API's root, such as `https://api.openai.com/v1`; no credentials.
        model: The model asked for.
        api_key: The key; None if there is none and the server is not local.
        api_version: For Azure's older API, else None.
    """

    base_url: str
    model: str
    api_key: str | None
    api_version: str | None = None

    def __repr__(self) -> str:
        return f"Endpoint(base_url={self.base_url!r}, model={self.model!r})"

    @property
    def local(self) -> bool:
        """Whether the server is on this machine."""
        return urlsplit(self.base_url).hostname in _LOCAL

    @property
    def recorded(self) -> bool:
        """Whether this stands for verdicts recorded elsewhere: nothing is called."""
        return self.base_url.startswith(RECORDED_BASE_URL)

    @property
    def callable(self) -> bool:
        """Whether a call could be made at all."""
        return not self.recorded and bool(self.api_key)


def resolve_endpoint(
    model: str | None, base_url: str | None, api_key: str | None
) -> Endpoint:
    """Who judges: arguments first, then the environment's OPENAI_* settings.

    With no model, no base URL and no key anywhere, the recorded judge stands in:
    it replays what the cache holds and calls nobody.

    Raises:
        JudgeError: A key or base URL without a model, or a URL that is none.
    """
    env = os.environ.get
    model = model or env("OPENAI_MODEL") or None
    given_url = base_url or env("OPENAI_BASE_URL") or None
    key = api_key or env("OPENAI_API_KEY") or None
    if given_url is None and (
        model == RECORDED_MODEL or (model is None and key is None)
    ):
        given_url, model = RECORDED_BASE_URL, model or RECORDED_MODEL
    url = (given_url or DEFAULT_BASE_URL).strip().rstrip("/")
    if url.startswith(RECORDED_BASE_URL):
        return Endpoint(url, model or RECORDED_MODEL, None)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise JudgeError(
            f"base URL {clean_endpoint(url)!r} is not one. Give the root of an "
            "OpenAI-compatible API, such as http://localhost:8080/v1."
        )
    if parts.username or parts.password:
        raise JudgeError(
            "the base URL carries a user name or password, which would end up in logs. "
            "Give the plain URL, and the key as api_key or OPENAI_API_KEY."
        )
    if model is None:
        raise JudgeError(
            f"no model was named for {url}. Give model= (--model), such as the name "
            "the server lists under /models."
        )
    version = None
    if parts.hostname.endswith(".azure.com"):
        key = api_key or env("AZURE_OPENAI_API_KEY") or key
        if "/openai/v1" not in parts.path:
            version = env("OPENAI_API_VERSION") or None
    if key is None and parts.hostname in _LOCAL:
        key = NO_KEY
    return Endpoint(url, model, key, version)


class Client:
    """Asks one judge at one endpoint.

    Must be made and closed inside a running event loop; `use` says how it asks.
    """

    def __init__(
        self, endpoint: Endpoint, *, params: Mapping[str, Any], timeout: float
    ) -> None:
        """Prepare the connection; nothing is sent yet.

        Args:
            endpoint: Where, which model, which key.
            params: Sampling parameters wanted; those a server refuses may be dropped.
            timeout: Seconds for one whole call, from sending to the last byte.
        """
        import openai

        self._errors = openai
        self.endpoint, self._params, self._timeout = endpoint, params, timeout
        self.dialect = Dialect()
        self._request: dict[str, Any] = {}
        # The HTTP library's own response type makes `post` hand the answer over
        # unparsed.
        self._response = http_library().Response
        common: dict[str, Any] = {
            "api_key": endpoint.api_key,
            "max_retries": 0,
            "timeout": timeout,
            "http_client": lane_client(timeout),
        }
        parts = urlsplit(endpoint.base_url)
        self._openai: openai.AsyncOpenAI = (
            openai.AsyncAzureOpenAI(
                azure_endpoint=f"{parts.scheme}://{parts.netloc}",
                api_version=endpoint.api_version,
                **common,
            )
            if endpoint.api_version
            else openai.AsyncOpenAI(base_url=endpoint.base_url, **common)
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._openai.close()

    def use(self, identity: JudgeIdentity, dialect: Dialect) -> None:
        """Ask as this judge from now on, in this dialect."""
        self.dialect = dialect
        self._request = identity.request("")

    async def call(self, user: str, *, tokens: int | None = None) -> Outcome:
        """Ask once.

        Args:
            user: The user message.
            tokens: Limit on the answer's tokens, if other than the judge's.

        Returns:
            The outcome; the only exception let through is cancellation.
        """
        # As `JudgeIdentity.request`, which is built once and not for every row.
        system, message = self._request["messages"]
        body = {**self._request, "messages": [system, {**message, "content": user}]}
        if tokens is not None:
            body[self.dialect.tokens] = tokens
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._openai.post(
                    "/chat/completions", body=body, cast_to=self._response
                )
        except (TimeoutError, self._errors.APITimeoutError):
            return fault("timeout", f"no answer in {self._timeout:g} s", billed=True)
        except self._errors.APIStatusError as error:
            return read_refusal(
                error,
                self.scrub(str(error.message))[:500],
                base_url=self.endpoint.base_url,
                model=self.endpoint.model,
                dialect=self.dialect,
                params=self._params,
            )
        except self._errors.APIConnectionError as error:
            # No connection, or one that broke: only the latter may have been billed.
            cause = error.__cause__ or error
            connecting = type(cause).__name__ in {"ConnectError", "ConnectTimeout"}
            what = self.scrub(f"{type(cause).__name__}: {cause}".rstrip(": "))
            detail = "connect" if connecting else "reset"
            return fault(detail, what, billed=not connecting)
        except self._errors.OpenAIError as error:
            return stop(self.scrub(str(error)))
        except (OSError, UnicodeError, ValueError) as error:
            return fault("transport", self.scrub(f"{type(error).__name__}: {error}"))
        latency = round(1000 * (time.perf_counter() - start))
        return self._answer(response.content, latency)

    def scrub(self, text: str) -> str:
        """The text without the key, should a server have repeated it."""
        key = self.endpoint.api_key
        return text.replace(key, "[key]") if key and key != NO_KEY else text

    def _answer(self, content: bytes, latency: int) -> Outcome:
        try:
            payload = json.loads(content)
        except (ValueError, RecursionError):
            payload = None
        reading = read_completion(payload)
        if reading.reason:
            reading = replace(reading, reason=self.scrub(reading.reason))
        if not isinstance(payload, dict):
            payload = {}
        model = payload.get("model")
        return Outcome(
            "answer",
            reading,
            billed=True,
            usage=read_usage(payload.get("usage")),
            model_returned=(
                self.scrub(well_formed(model)) if isinstance(model, str) else None
            ),
            latency_ms=latency,
            raw=self.scrub(content.decode("utf-8", "replace"))[:_RAW_LIMIT],
        )


# When the next call may start


class Gate:
    """Holds calls back: `Retry-After`, rate limits, too many at once.

    One for all workers of a run: a server that says "wait" means everybody, and one
    that says "too many" is asked less from then on.

    Attributes:
        concurrency: Most calls in flight the caller allows.
        allowed: Calls in flight allowed now; halved when the server asks for fewer,
            raised by one per `allowed` answers until `concurrency` again.
        in_flight: Calls being made now.
        peak: The most that were in flight at once.
    """

    def __init__(
        self,
        concurrency: int,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        """Open the gate; calls are spaced evenly to keep to the rates, if any."""
        self.concurrency = concurrency
        self.allowed = float(concurrency)
        self.in_flight = self.peak = 0
        self._rpm, self._tpm = requests_per_minute, tokens_per_minute
        self._held_until = self._next_start = self._lowered_at = 0.0

    async def enter(self, tokens: int) -> float:
        """Wait until a call of about this many tokens may start; count it in.

        Returns:
            When it starts, on the monotonic clock.
        """
        while True:
            now = time.monotonic()
            wait = max(self._held_until, self._next_start) - now
            if wait <= 0 and self.in_flight >= int(self.allowed):
                wait = 0.02
            if wait <= 0:
                break
            await asyncio.sleep(wait)
        gap = 60.0 / self._rpm if self._rpm else 0.0
        if self._tpm:
            gap = max(gap, 60.0 * tokens / self._tpm)
        self._next_start = max(now, self._next_start) + gap
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        return now

    def leave(self, *, fine: bool) -> None:
        """A call has ended; `fine` if the server answered it."""
        self.in_flight -= 1
        if fine and self.allowed < self.concurrency:
            self.allowed = min(self.concurrency, self.allowed + 1 / self.allowed)

    def hold(self, seconds: float) -> None:
        """Nobody starts a call for so long; the longest wish counts."""
        self._held_until = max(self._held_until, time.monotonic() + seconds)

    def slow_down(self, started: float) -> None:
        """The server asked for fewer calls, answering one that started then.

        One burst of refusals is one message: calls that started before the last
        halving say nothing new.
        """
        if started >= self._lowered_at:
            self._lowered_at = time.monotonic()
            self.allowed = max(1.0, self.allowed / 2)


def backoff(attempt: int, *, first: float, longest: float = 30.0) -> float:
    """Seconds before the next attempt: doubled each time, at most `longest`.

    `attempt` were made so far, 1 and up; `first` is the wait before the second. Jitter
    takes up to a half, so that workers that failed together don't return together.
    """
    wait = min(longest, first * 2.0 ** (attempt - 1))
    return wait * random.uniform(0.5, 1.0)


# An HTTP connection for every call in flight, found without a search: the client's own
# pool looks at all its connections twice for every request, which at 64 calls in flight
# is a third of the CPU time of a run. Here every lane is a pool of one connection, and
# a free lane is the top of a stack. All else stays the library's.


def http_library() -> Any:  # noqa: ANN401
    """The HTTP library the installed openai is built on: httpx2, formerly httpx."""
    import openai

    name = openai.DefaultAsyncHttpxClient.__mro__[1].__module__.split(".")[0]
    return importlib.import_module(name)


def lane_client(timeout: float) -> Any:  # noqa: ANN401
    """An HTTP client for `AsyncOpenAI`, with lanes.

    None where the environment names a proxy, which only the library's own transport
    knows how to use. `timeout`: seconds to connect, and for any single read or write.
    """
    if any(name != "no" for name in getproxies()):
        return None
    import openai

    lanes = _lanes(http_library())
    return openai.DefaultAsyncHttpxClient(transport=lanes, timeout=timeout)


def _lanes(library: Any) -> Any:  # noqa: ANN401
    """The transport, of a subclass of whichever library is in use."""
    ssl = library.create_ssl_context()
    lanes: list[Any] = []
    free: list[Any] = []

    def new_lane() -> Any:  # noqa: ANN401
        limits = library.Limits(max_connections=1, max_keepalive_connections=1)
        lanes.append(library.AsyncHTTPTransport(verify=ssl, limits=limits))
        return lanes[-1]

    class Stream(library.AsyncByteStream):  # type: ignore[misc]
        """An answer's body; its lane is free again when it is closed."""

        def __init__(self, inner: Any, lane: Any) -> None:  # noqa: ANN401
            self._inner, self._lane = inner, lane

        async def __aiter__(self) -> Any:  # noqa: ANN401
            async for part in self._inner:
                yield part

        async def aclose(self) -> None:
            lane, self._lane = self._lane, None
            try:
                await self._inner.aclose()
            finally:
                if lane is not None:
                    free.append(lane)

    class Lanes(library.AsyncBaseTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401
            lane = free.pop() if free else new_lane()
            try:
                response = await lane.handle_async_request(request)
            except BaseException:
                free.append(lane)
                raise
            response.stream = Stream(response.stream, lane)
            return response

        async def aclose(self) -> None:
            for lane in lanes:
                await lane.aclose()

    return Lanes()

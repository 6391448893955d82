"""One call to an OpenAI-compatible server, with every outcome named.

The official client does authentication, base URL and Azure; its retries are off,
because a retry it makes is a call our budget does not see. The request goes through
its `post` rather than `chat.completions.create`: the same bytes leave, without
building a tree of pydantic objects for an answer of two fields.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
import json
import time
from typing import Any

from reply_resolution.judge.dialect import Dialect, adapt
from reply_resolution.judge.endpoint import NO_KEY, Endpoint
from reply_resolution.judge.identity import JudgeIdentity
from reply_resolution.judge.lanes import http_library, lane_client
from reply_resolution.judge.reading import Reading, read_completion, well_formed

#: Longest `Retry-After` that is obeyed, seconds; a longer one is cut to it.
MAX_RETRY_AFTER = 120.0
_RAW_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens a server says it billed.

    Attributes:
        prompt_tokens: Tokens of the request, cached ones included.
        cached_tokens: Those of them read from the provider's prompt cache.
        completion_tokens: Tokens of the answer, reasoning included.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one HTTP call.

    Attributes:
        kind: `answer` (read, whatever it says), `again` (a fault that may pass),
            `adapt` (the server refused how we ask; `dialect` is what to try), `row`
            (this row cannot be judged), `stop` (no row can).
        reading: What the answer says; for `row` and `again` the status it ends as.
        billed: Whether it may have been paid for: an answer, a timeout, a cut line.
        usage: Tokens; None where the server did not say (then all that was reserved
            is counted, if `billed`).
        message: For people: what went wrong. Never holds a key.
        wait: Seconds everybody must wait (the server said so); 0 if it did not.
        limited: Whether the server asked for fewer calls (429, 503 overloaded).
        model_returned: Model the server says answered.
        latency_ms: From sending to the whole answer, milliseconds.
        raw: The answer as text (JSON), at most 20,000 characters.
        dialect: For `adapt`, how to ask next.
    """

    kind: str
    reading: Reading
    billed: bool = False
    usage: Usage | None = None
    message: str = ""
    wait: float = 0.0
    limited: bool = False
    model_returned: str | None = None
    latency_ms: int = 0
    raw: str = ""
    dialect: Dialect | None = None


class Client:
    """Asks one judge at one endpoint.

    Must be made and closed inside a running event loop; `use` changes how it asks.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        params: Mapping[str, Any],
        timeout: float,
        scale: tuple[int, int] = (1, 5),
    ) -> None:
        """Prepare the connection; nothing is sent yet.

        Args:
            endpoint: Where, which model, which key.
            params: Sampling parameters the caller asked for; those a server refuses
                may be dropped.
            timeout: Seconds for one whole call, from sending to the last byte.
            scale: Lowest and highest score.
        """
        import openai

        self._errors = openai
        self.endpoint = endpoint
        self.dialect = Dialect()
        self._params = dict(params)
        self._timeout = timeout
        self._scale = scale
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
        self._openai: openai.AsyncOpenAI = (
            openai.AsyncAzureOpenAI(
                azure_endpoint=endpoint.origin,
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

    def body(self, user: str, *, tokens: int | None = None) -> dict[str, Any]:
        """The request for one user message, exactly as it is sent.

        As `JudgeIdentity.request`, which is built once and not for every row.
        """
        system, message = self._request["messages"]
        body = {**self._request, "messages": [system, {**message, "content": user}]}
        if tokens is not None:
            body[self.dialect.tokens] = tokens
        return body

    async def call(self, user: str, *, tokens: int | None = None) -> Outcome:
        """Ask once.

        Args:
            user: The user message.
            tokens: Limit on the answer's tokens, if other than the judge's.

        Returns:
            The outcome; the only exception let through is cancellation.
        """
        body = self.body(user, tokens=tokens)
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._openai.post(
                    "/chat/completions", body=body, cast_to=self._response
                )
        except (TimeoutError, self._errors.APITimeoutError):
            return _fault("timeout", f"no answer in {self._timeout:g} s", billed=True)
        except self._errors.APIStatusError as error:
            return self._refused(error)
        except self._errors.APIConnectionError as error:
            return self._unconnected(error)
        except self._errors.OpenAIError as error:
            return _stop(self.scrub(str(error)))
        except (OSError, UnicodeError, ValueError) as error:
            return _fault("transport", self.scrub(f"{type(error).__name__}: {error}"))
        return self._answer(response, start)

    def scrub(self, text: str) -> str:
        """The text without the key, should a server have repeated it."""
        key = self.endpoint.api_key
        return text.replace(key, "[key]") if key and key != NO_KEY else text

    def _answer(self, response: Any, start: float) -> Outcome:  # noqa: ANN401
        latency = round(1000 * (time.perf_counter() - start))
        content: bytes = response.content
        try:
            payload = json.loads(content)
        except (ValueError, RecursionError):
            payload = None
        reading = read_completion(payload, scale=self._scale)
        raw = self.scrub(content[:_RAW_LIMIT].decode("utf-8", "replace"))
        if self.endpoint.api_key and reading.reason:
            reason = self.scrub(reading.reason)
            reading = Reading(reading.status, reading.score, reason, reading.detail)
        if not isinstance(payload, dict):
            payload = {}
        model = payload.get("model")
        return Outcome(
            "answer",
            reading,
            billed=True,
            usage=_usage(payload.get("usage")),
            model_returned=well_formed(model) if isinstance(model, str) else None,
            latency_ms=latency,
            raw=raw,
        )

    def _unconnected(self, error: Exception) -> Outcome:
        """No connection, or one that broke: only the latter may have been billed."""
        cause = error.__cause__ or error
        connecting = type(cause).__name__ in {"ConnectError", "ConnectTimeout"}
        what = f"{type(cause).__name__}: {cause}".rstrip(": ")
        return _fault(
            "connect" if connecting else "reset",
            self.scrub(what),
            billed=not connecting,
        )

    def _refused(self, error: Any) -> Outcome:  # noqa: ANN401
        """An HTTP error status: whose fault it is decides what happens next."""
        status = int(error.status_code)
        code = str(error.code or "").lower()
        kind = str(error.type or "").lower()
        message = self.scrub(str(error.message))[:500]
        said = f"{code} {kind} {message}".lower()
        inner = json.dumps(error.body).lower() if isinstance(error.body, dict) else said
        wait = _retry_after(error.response.headers)
        if "content_filter" in inner or "content management policy" in said:
            return Outcome("row", Reading("filtered", detail="content_filter"))
        if status == 403 and ("moderation" in said or "flagged" in said):
            return Outcome("row", Reading("filtered", detail="moderation"))
        no_credit = "insufficient_quota" in said or "billing_hard_limit" in said
        if status == 402 or (status == 429 and no_credit):
            return _stop(
                f"{self.endpoint.base_url} has no credit left for this key "
                f"({message}). Add credit or use another key, then run again: what was "
                "judged is kept and costs nothing."
            )
        if status in {401, 403}:
            return _stop(
                f"{self.endpoint.base_url} refused the key ({message}). Set "
                "OPENAI_API_KEY (or api_key=) to a valid key for this server."
            )
        if status == 404:
            return _stop(
                f"{self.endpoint.base_url} does not know model "
                f"{self.endpoint.model!r} or has no /chat/completions ({message}). "
                "Check --model and --base-url (most end in /v1)."
            )
        if status in {408, 409, 425, 429} or status >= 500:
            limited = status in {429, 529} or (status == 503 and wait > 0)
            return _fault(f"http_{status}", message, wait=wait, limited=limited)
        if status == 413 or _too_long(said):
            return Outcome("row", Reading("failed", detail="too_long"), message=message)
        if status in {400, 422}:
            named = f"{error.param or ''} {message}"
            found = adapt(self.dialect, named, self._params)
            if found is not None:
                reading = Reading("failed", detail=f"http_{status}")
                return Outcome("adapt", reading, message=message, dialect=found)
        reading = Reading("failed", detail=f"http_{status}")
        return Outcome("row", reading, message=message)


def _fault(
    detail: str,
    message: str,
    *,
    billed: bool = False,
    wait: float = 0.0,
    limited: bool = False,
) -> Outcome:
    reading = Reading("failed", detail=detail)
    return Outcome(
        "again", reading, billed=billed, message=message, wait=wait, limited=limited
    )


def _stop(message: str) -> Outcome:
    return Outcome("stop", Reading("failed", detail="stopped"), message=message)


def _too_long(said: str) -> bool:
    return any(
        mark in said
        for mark in (
            "context_length_exceeded",
            "maximum context length",
            "context size",
            "context window",
            "string_above_max_length",
        )
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _usage(found: object) -> Usage | None:
    """Tokens as billed; None unless both counts are there and are counts."""
    if not isinstance(found, Mapping):
        return None
    prompt = _count(found.get("prompt_tokens"))
    completion = _count(found.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    details = found.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
    return Usage(prompt, min(_count(cached) or 0, prompt), completion)


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds the server asks everybody to wait; 0 if it does not say.

    `retry-after-ms` (OpenAI), `retry-after` in seconds or as an HTTP date.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name)
        if not text:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            from email.utils import parsedate_to_datetime

            try:
                seconds = parsedate_to_datetime(text).timestamp() - time.time()
            except (TypeError, ValueError):
                continue
        if seconds == seconds:  # "nan" is a float, too
            return min(max(seconds, 0.0), MAX_RETRY_AFTER)
    return 0.0

"""An OpenAI-compatible server on 127.0.0.1 that behaves as badly as it is told to.

A real HTTP server on a real socket, so that what is tested is what runs: the official
client, its connection pool, timeouts, resets. Tests get it from the `server` fixture
(conftest.py); benchmarks run it as a process of its own, so that its CPU time is not
counted as the client's: `python tests/judge/loopback.py --latency 0.05`.
"""

import argparse
import asyncio
from collections import deque
from collections.abc import Callable, Iterable
import contextlib
from dataclasses import dataclass, field
import hashlib
import json
import threading
from typing import Any

#: Request -> what to do. `calls` counts from 1.
Behaviour = Callable[["Request"], "Response"]


@dataclass
class Request:
    """One request as it arrived."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def user(self) -> str:
        """The user message, as text."""
        return next(m["content"] for m in self.body["messages"] if m["role"] == "user")


@dataclass
class Response:
    """What the server does: answer, cut the answer short, or never answer."""

    status: int = 200
    payload: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    fault: str = ""  # "", "hang", "reset" (half an answer, then RST), "slow" (drips)
    delay: float | None = None  # seconds; None: the server's latency


def score_of(user: str) -> int:
    """The score this server gives: a fixed function of the message's bytes."""
    return 1 + hashlib.blake2b(user.encode(), digest_size=1).digest()[0] % 5


def completion(
    request: Request,
    content: str | None = None,
    *,
    finish: str | None = "stop",
    refusal: str | None = None,
    tool: str | None = None,
    usage: tuple[int, int] | None = (300, 40),
) -> Response:
    """A chat completion carrying `content` (or a tool call with `tool` arguments)."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if refusal is not None:
        message["refusal"] = refusal
    if tool is not None:
        name = request.body["tools"][0]["function"]["name"]
        call = {"name": name, "arguments": tool}
        message["tool_calls"] = [{"id": "c", "type": "function", "function": call}]
    payload: dict[str, Any] = {
        "id": f"chatcmpl-{request.number}",
        "object": "chat.completion",
        "created": 0,
        "model": f"{request.body.get('model')}-2026-10-01",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
    }
    if usage is not None:
        payload["usage"] = {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": sum(usage),
            "prompt_tokens_details": {"cached_tokens": 128},
        }
    return Response(payload=payload)


def verdict(score: Any, reason: Any = "Answers the question.", **extra: Any) -> str:
    """A verdict as JSON text."""
    return json.dumps({"score": score, "reason": reason, **extra}, ensure_ascii=False)


def error(status: int, message: str, *, headers: Any = None, **fields: Any) -> Response:
    """An error body as OpenAI's API words it."""
    body = {"message": message, "type": "invalid_request_error", **fields}
    return Response(status, {"error": body}, dict(headers or {}))


def good(request: Request) -> Response:
    """A correct server: answers in the form that was asked for."""
    user = request.user
    text = verdict(score_of(user), f"Mock reason {len(user)}.")
    if request.body.get("tools"):
        return completion(request, tool=text, finish="tool_calls")
    return completion(request, text)


def say(content: str | None, **options: Any) -> Behaviour:
    """Always answer with this text, whatever form was asked for."""

    def behaviour(request: Request) -> Response:
        if request.body.get("tools") and content is not None:
            return completion(request, tool=content, **options)
        return completion(request, content, **options)

    return behaviour


def without(*names: str) -> Behaviour:
    """A server that refuses requests with one of these names in their body."""

    def behaviour(request: Request) -> Response:
        body = {k: v for k, v in request.body.items() if k != "messages"}
        for name in names:
            if f'"{name}"' in json.dumps(body):
                return error(
                    400, f"Unsupported: '{name}' is not supported.", param=name
                )
        return good(request)

    return behaviour


def ignores_schema(request: Request) -> Response:
    """A server that takes a schema and answers prose; a tool call it does make."""
    if request.body.get("tools"):
        return good(request)
    return completion(request, "I would give it a 4.")


FAULTS: dict[str, Behaviour] = {
    "good": good,
    "500": lambda r: error(500, "The server had an error"),
    "503": lambda r: error(503, "overloaded"),
    "429": lambda r: error(
        429,
        "Rate limit reached",
        code="rate_limit_exceeded",
        headers={"retry-after": "1"},
    ),
    "insufficient_quota": lambda r: error(
        429, "You exceeded your current quota", code="insufficient_quota"
    ),
    "401": lambda r: error(401, "Incorrect API key provided", code="invalid_api_key"),
    "404": lambda r: error(404, "The model does not exist", code="model_not_found"),
    "truncated": say('{"score": 4, "reas', finish="length"),
    "refusal": lambda r: completion(r, None, refusal="I can't help with that."),
    "content_filter": lambda r: error(
        400, "The response was filtered", code="content_filter"
    ),
    "filtered_answer": say("", finish="content_filter"),
    "bad_json": say('{"score": 4, "reason": "unfinished'),
    "nine": say(verdict(9)),
    "text_score": say(verdict("4")),
    "float_score": say(verdict(4.5)),
    "whole_float": say('{"score": 4.0, "reason": "Whole."}'),
    "true_score": say(verdict(True)),
    "no_reason": say('{"score": 4}'),
    "blank_reason": say(verdict(4, "  ")),
    "extra_field": say(verdict(4, resolved=True)),
    "fenced": say("```json\n" + verdict(4) + "\n```"),
    "two_objects": say(verdict(1) + "\n" + verdict(5)),
    "duplicate_key": say('{"score": 1, "reason": "a", "score": 5}'),
    "prose": say("The reply resolves it, I would say 4 out of 5."),
    "empty": say(""),
    "no_choices": lambda r: Response(200, {"id": "x", "choices": []}),
    "not_json_at_all": lambda r: Response(200, "<html>It works!</html>"),
    "no max_completion_tokens": without("max_completion_tokens"),
    "no temperature": without("temperature"),
    "no minimum/maximum": without("minimum"),
    "no json_schema": without("json_schema"),
    "no json_schema, no tools": without("json_schema", "tools"),
    "json_schema ignored": ignores_schema,
    "hang": lambda r: Response(fault="hang"),
    "reset": lambda r: Response(200, good(r).payload, fault="reset"),
    "drip": lambda r: Response(200, good(r).payload, fault="drip"),
}


class Loopback:
    """The server. Start it as a context manager; it has its own thread and loop.

    Attributes:
        behaviour: What to do with a request; a name in FAULTS or a function.
        latency: Seconds before each answer.
        calls: Requests that arrived complete.
        in_flight, max_in_flight: Requests being answered now; the most at once.
        requests: The last 5,000 requests.
        connections: TCP connections accepted.
        extra: Answers other addresses than chat completions (method, path, headers,
            body); None leaves the request to `behaviour`.
    """

    def __init__(self, *, latency: float = 0.0, keep: int = 5_000) -> None:
        self.behaviour: Behaviour = good
        self.extra: Callable[..., Response | None] = lambda *_: None
        self.latency = latency
        self.calls = self.in_flight = self.max_in_flight = self.connections = 0
        self.requests: deque[Request] = deque(maxlen=keep)
        self.url = ""
        self.open: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(0,), daemon=True)

    def behave(self, *steps: str | Behaviour) -> None:
        """Behave so from now on; several steps are one per call, the last for good."""
        plan = [FAULTS[s] if isinstance(s, str) else s for s in steps]
        first = self.calls

        def behaviour(request: Request) -> Response:
            return plan[min(request.number - first - 1, len(plan) - 1)](request)

        self.behaviour = behaviour

    def forget(self) -> None:
        """Set the counters to zero."""
        self.calls = self.max_in_flight = 0
        self.requests.clear()

    def bodies(self) -> Iterable[dict[str, Any]]:
        """The bodies of the requests kept, oldest first."""
        return [r.body for r in self.requests]

    def __enter__(self) -> "Loopback":
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self, port: int) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self.serve(port))
        finally:
            self._loop.close()

    async def serve(self, port: int) -> None:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", port, backlog=1024
        )
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for transport in list(self.open):
            transport.abort()
        await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, as much of it as the client uses."""

    def __init__(self, server: Loopback) -> None:
        self.server, self.buffer, self.busy = server, b"", False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server.connections += 1
        self.server.open.add(transport)

    def connection_lost(self, exc: object) -> None:
        self.server.open.discard(self.transport)
        if self.busy:
            self.busy = False
            self.server.in_flight -= 1

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, gap, rest = self.buffer.partition(b"\r\n\r\n")
        if not gap:
            return
        lines = head.decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in lines[1:])
        headers = {k.strip().lower(): v.strip() for k, v in pairs}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        server = self.server
        method, path = lines[0].split(" ")[:2]
        if path == "/stats":
            self.send(200, {"calls": server.calls, "max": server.max_in_flight})
            return
        if (response := server.extra(method, path, headers, rest[:length])) is not None:
            self.busy = response.fault != "hang"
            server.in_flight += self.busy
            if self.busy:
                self.answer(response)
            return
        server.calls += 1
        self.busy = True
        server.in_flight += 1
        server.max_in_flight = max(server.max_in_flight, server.in_flight)
        request = Request(server.calls, path, headers, json.loads(rest[:length]))
        server.requests.append(request)
        response = server.behaviour(request)
        if response.fault == "hang":
            return
        delay = server.latency if response.delay is None else response.delay
        asyncio.get_running_loop().call_later(delay, self.answer, response)

    def answer(self, response: Response) -> None:
        if not self.busy:
            return
        if response.fault in {"reset", "drip"}:
            text = json.dumps(response.payload).encode()
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%b" % (len(text), text[: len(text) // 2])
            )
            if response.fault == "reset":
                asyncio.get_running_loop().call_later(0.02, self.transport.abort)
            return
        self.busy = False
        self.server.in_flight -= 1
        self.send(response.status, response.payload, response.headers)

    def send(self, status: int, payload: Any, headers: Any = None) -> None:
        body = (payload if isinstance(payload, str) else json.dumps(payload)).encode()
        lines = [f"HTTP/1.1 {status} X", "content-type: application/json"]
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        lines += [f"content-length: {len(body)}", "", ""]
        if not self.transport.is_closing():
            self.transport.write("\r\n".join(lines).encode("latin-1") + body)


async def _main(latency: float, port: int) -> None:
    server = Loopback(latency=latency, keep=1)
    task = asyncio.create_task(server.serve(port))
    while not server._ready.is_set():
        await asyncio.sleep(0.01)
    print(server.url, flush=True)
    await task


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(options.latency, options.port))

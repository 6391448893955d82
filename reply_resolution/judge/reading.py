"""From a server's answer to a named outcome; nothing is guessed or repaired.

The text under judgement comes from people who may want a 5: a reader that takes the
first object, the last digit or the inside of a fence can be made to take what the reply
planted. A score the scale does not have is no evidence about the reply, so it is never
a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import json
import time
from typing import Any

from reply_resolution.judge.identity import Dialect

#: Longest `Retry-After` that is obeyed, seconds; a longer one is cut to it.
MAX_RETRY_AFTER = 120.0
_TOO_LONG = (
    "context_length_exceeded",
    "maximum context length",
    "context size",
    "context window",
    "string_above_max_length",
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says.

    Attributes:
        status: `scored`, `refused`, `truncated`, `filtered` or `invalid` (`failed`
            where there was no answer).
        score: Whole number on the scale; None unless `scored`. Higher is better.
        reason: The judge's reason, as written (a refusal's text when `refused`).
        detail: What exactly was wrong, one word (`not_json`, `ambiguous`, `fenced`,
            `out_of_range`, `not_an_integer`, ...); None when `scored`.
    """

    status: str
    score: int | None = None
    reason: str | None = None
    detail: str | None = None


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


# What a judge answered


class _DuplicateKeyError(ValueError):
    """The object names a field twice: two answers in one."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _DuplicateKeyError
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _invalid(detail: str) -> Reading:
    return Reading("invalid", detail=detail)


def read_text(text: str | None) -> Reading:
    """Read the text of an answer: the whole of it must be one object that fits.

    White space around the object is allowed, and nothing else.

    Returns:
        `scored`, or `invalid` with the detail.

    >>> read_text('{"score": 4, "reason": "A correct handoff."}').score
    4
    >>> read_text('{"score": "4", "reason": "Text is not a number."}').detail
    'not_an_integer'
    >>> read_text('{"score": 1, "reason": "a"} {"score": 5, "reason": "b"}').detail
    'ambiguous'
    """
    body = (text or "").strip(" \t\r\n")
    if not body:
        return _invalid("empty_answer")
    try:
        value, end = _DECODER.raw_decode(body)
    except _DuplicateKeyError:
        return _invalid("ambiguous")
    except (ValueError, RecursionError):
        return _invalid("fenced" if body.startswith("```") else "not_json")
    if not isinstance(value, dict):
        return _invalid("not_an_object")
    if end != len(body):
        return _invalid("ambiguous" if "{" in body[end:] else "text_around_object")
    if not {"score", "reason"} <= value.keys():
        return _invalid("missing_field")
    if len(value) != 2:
        return _invalid("extra_field")
    score, reason = value["score"], value["reason"]
    # bool is an int to Python; to a reader of verdicts `true` is not a score.
    if type(score) is not int:
        return _invalid("not_an_integer")
    if not 1 <= score <= 5:
        return _invalid("out_of_range")
    if not isinstance(reason, str) or not reason.strip():
        return _invalid("no_reason")
    return Reading("scored", score, well_formed(reason))


def well_formed(text: str) -> str:
    """Replace lone surrogates (half an emoji), which no UTF-8 file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def read_completion(payload: object) -> Reading:
    """Read a chat completion as parsed from JSON.

    The order matters: a refusal or a cut answer is not a malformed one, and an answer
    that was cut short is not read even where what arrived happens to parse.
    """
    try:
        choice = payload["choices"][0]  # type: ignore[index]
        message = choice["message"]
        finish = choice.get("finish_reason")
        refusal = message.get("refusal")
        content = message.get("content")
        calls = message.get("tool_calls") or []
    except (TypeError, KeyError, IndexError, AttributeError):
        return _invalid("not_a_completion")
    if finish == "content_filter":
        return Reading("filtered", detail="content_filter")
    if isinstance(refusal, str) and refusal.strip():
        return Reading("refused", reason=well_formed(refusal), detail="refusal")
    if finish == "length":
        return Reading("truncated", detail="length")
    if not isinstance(calls, list):
        return _invalid("not_a_completion")
    if len(calls) > 1:
        return _invalid("ambiguous")
    if calls:
        try:
            content = calls[0]["function"]["arguments"]
        except (TypeError, KeyError):
            return _invalid("not_a_completion")
    if isinstance(content, list):  # some servers answer in parts
        parts = [p.get("text") for p in content if isinstance(p, Mapping)]
        content = "".join(p for p in parts if isinstance(p, str))
    if content is not None and not isinstance(content, str):
        return _invalid("not_json")
    return read_text(content)


def read_usage(found: object) -> Usage | None:
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


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


# What a server said instead


def fault(
    detail: str,
    message: str,
    *,
    billed: bool = False,
    wait: float = 0.0,
    limited: bool = False,
) -> Outcome:
    """A call that failed in a way that may pass."""
    reading = Reading("failed", detail=detail)
    return Outcome(
        "again", reading, billed=billed, message=message, wait=wait, limited=limited
    )


def stop(message: str) -> Outcome:
    """A call that failed as every other would."""
    return Outcome("stop", Reading("failed", detail="stopped"), message=message)


def read_refusal(
    error: Any,  # noqa: ANN401
    message: str,
    *,
    base_url: str,
    model: str,
    dialect: Dialect,
    params: Mapping[str, Any],
) -> Outcome:
    """An HTTP error status: whose fault it is decides what happens next.

    Args:
        error: The client's `APIStatusError`.
        message: What it says, without the key.
        base_url: The server, for messages.
        model: The model asked for, for messages.
        dialect: How it was asked.
        params: The sampling parameters asked for.
    """
    status = int(error.status_code)
    said = f"{error.code or ''} {error.type or ''} {message}".lower()
    inner = json.dumps(error.body).lower() if isinstance(error.body, dict) else said
    if "content_filter" in inner or "content management policy" in said:
        return Outcome("row", Reading("filtered", detail="content_filter"))
    if status == 403 and ("moderation" in said or "flagged" in said):
        return Outcome("row", Reading("filtered", detail="moderation"))
    no_credit = "insufficient_quota" in said or "billing_hard_limit" in said
    if status == 402 or (status == 429 and no_credit):
        return stop(
            f"{base_url} has no credit left for this key ({message}). Add credit or "
            "use another key, then run again: what was judged is kept and costs "
            "nothing."
        )
    if status in {401, 403}:
        return stop(
            f"{base_url} refused the key ({message}). Set OPENAI_API_KEY (or api_key=) "
            "to a valid key for this server."
        )
    if status == 404:
        return stop(
            f"{base_url} does not know model {model!r} or has no /chat/completions "
            f"({message}). Check --model and --base-url (most end in /v1)."
        )
    failed = Reading("failed", detail=f"http_{status}")
    if status in {408, 409, 425, 429} or status >= 500:
        wait = retry_after(error.response.headers)
        limited = status in {429, 529} or (status == 503 and wait > 0)
        return Outcome("again", failed, message=message, wait=wait, limited=limited)
    if status == 413 or any(mark in said for mark in _TOO_LONG):
        return Outcome("row", Reading("failed", detail="too_long"), message=message)
    if status in {400, 422}:
        found = dialect.adapted(f"{error.param or ''} {message}", params)
        if found is not None:
            return Outcome("adapt", failed, message=message, dialect=found)
    return Outcome("row", failed, message=message)


def retry_after(headers: Mapping[str, str]) -> float:
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

"""Reading a judge's answer, strictly: one object that fits, or a named status.

The text under judgement comes from people who may want a 5, so nothing is searched
for or repaired: a reader that takes the first object, the last digit or the inside of
a fence can be made to take what the reply planted. A score the scale does not have is
no evidence about the reply, so it is never a number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
from typing import Any


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says.

    Attributes:
        status: `scored`, `refused`, `truncated`, `filtered` or `invalid`.
        score: Whole number on the scale; None unless `scored`. Higher is better.
        reason: The judge's reason, as written (a refusal's text when `refused`);
            None where there is none.
        detail: What exactly was wrong, one word (`not_json`, `ambiguous`, `fenced`,
            `out_of_range`, `not_an_integer`, ...); None when `scored`.
    """

    status: str
    score: int | None = None
    reason: str | None = None
    detail: str | None = None


class _DuplicateKeyError(ValueError):
    """The object names a field twice: two answers in one."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _DuplicateKeyError
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _invalid(detail: str, reason: str | None = None) -> Reading:
    return Reading("invalid", detail=detail, reason=reason)


def read_text(
    text: str | None,
    *,
    fields: Sequence[str] = ("score", "reason"),
    scale: tuple[int, int] = (1, 5),
) -> Reading:
    """Read the text of an answer: the whole of it must be one object that fits.

    Args:
        text: The answer as received; white space around the object is allowed.
        fields: The fields the schema requires; no others are allowed.
        scale: Lowest and highest score, both included.

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
    if any(name not in value for name in fields):
        return _invalid("missing_field")
    if len(value) != len(fields):
        return _invalid("extra_field")
    score, reason = value["score"], value["reason"]
    # bool is an int to Python; to a reader of verdicts `true` is not a score.
    if type(score) is not int:
        return _invalid("not_an_integer")
    if not scale[0] <= score <= scale[1]:
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


def read_completion(
    payload: object,
    *,
    fields: Sequence[str] = ("score", "reason"),
    scale: tuple[int, int] = (1, 5),
) -> Reading:
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
    return read_text(content, fields=fields, scale=scale)

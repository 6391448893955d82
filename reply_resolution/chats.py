"""Chat logs to requests and replies: nested messages, API answers, tool calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.jsonfiles import json_text
from reply_resolution.tables import (
    OnBadLine,
    Records,
    Table,
    bad_message,
    frame_sha256,
    listed,
    problem_frame,
    read_records,
    rename,
)
from reply_resolution.textfiles import Bad

#: Whose message it is, by the role's name in lower case. Other names need a map.
ROLES: dict[str, str] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "system": "other",
    "developer": "other",
    "tool": "other",
    "function": "other",
}
_THREADS = ("messages", "conversations", "thread", "turns")
_ANSWERS = ("response", "completion", "output")

#: The type of a `conversation` column: earlier turns, oldest first.
CONVERSATION = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a chat holds for the judge.

    Attributes:
        request: The user's last words; None where there are none.
        reply: What the assistant answered them; None where it did not.
        conversation: The turns before, oldest first, `{"role", "content"}`.
    """

    request: str | None
    reply: str | None
    conversation: list[dict[str, str]]


class ChatError(ValueError):
    """A record is not a chat that can be read; the message is the reason."""


def is_chat(record: Mapping[str, Any]) -> bool:
    """Whether a JSON object has a thread or an API's answer for request or reply."""
    return ("reply" not in record or "request" not in record) and (
        any(isinstance(record.get(key), list) for key in _THREADS)
        or any(isinstance(record.get(key), dict) for key in _ANSWERS)
    )


def unfold(record: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """The record with `request`, `reply` and `conversation` in place of its thread.

    Args:
        record: A JSON object with `messages` (or `conversations`, `thread`, `turns`)
            or with an API's `response`.
        roles: Role name -> "user", "assistant" or "other", beside the usual ones.

    Raises:
        ChatError: A message without a role, or a role whose meaning is not known.
    """
    out = dict(record)
    for key in _ANSWERS:
        if "reply" not in out and isinstance(out.get(key), dict):
            out["reply"] = _api_answer(out.pop(key))
    for key in _THREADS:
        if isinstance(out.get(key), list):
            exchange = read_thread(out.pop(key), roles)
            out.setdefault("request", exchange.request)
            out.setdefault("reply", exchange.reply)
            if exchange.conversation:
                out.setdefault("conversation", exchange.conversation)
            break
    out.setdefault("reply", None)
    return out


def read_thread(messages: Sequence[object], roles: Mapping[str, str]) -> Exchange:
    """Split a thread at the user's last turn.

    The reply is what the assistant wrote after it (several messages in a row are
    joined; a message that only announces a tool call gives way to what follows).
    Messages of the system and of tools are never the reply. A thread that ends on
    the user has no reply.
    """
    known = {**ROLES, **{k.strip().lower(): v for k, v in roles.items()}}
    turns: list[dict[str, str]] = []
    announced: list[bool] = []
    for message in messages:
        role, text, calls = _message(message, known)
        if role == "other" or text is None:
            continue
        turns.append({"role": role, "content": text})
        announced.append(calls)
    users = [i for i, turn in enumerate(turns) if turn["role"] == "user"]
    if not users:
        texts = [t["content"] for t in turns]
        return Exchange(None, "\n\n".join(texts) or None, [])
    end = users[-1] + 1
    start = users[-1]
    while start > 0 and turns[start - 1]["role"] == "user":
        start -= 1
    request = "\n\n".join(turn["content"] for turn in turns[start:end])
    answers = list(zip(turns[end:], announced[end:], strict=True))
    final = [turn for turn, calls in answers if not calls] or [t for t, _ in answers]
    reply = "\n\n".join(turn["content"] for turn in final) or None
    return Exchange(request, reply, turns[:start])


def conversation_column(values: Sequence[object]) -> pl.Series:
    """A column of earlier turns in one type; unreadable values stay as text.

    Args:
        values: Lists of `{"role", "content"}` (content: text, parts or null), or
            None.
    """
    turns: list[list[dict[str, str]] | None] = []
    for value in values:
        if value is None or value == "":
            turns.append(None)
            continue
        if not isinstance(value, list):
            return _as_text(values)
        thread = []
        for message in value:
            if not isinstance(message, dict):
                return _as_text(values)
            role = message.get("role", message.get("from"))
            content = message.get("content", message.get("value"))
            thread.append(
                {
                    "role": "" if role is None else str(role),
                    "content": _content(content) or "",
                }
            )
        turns.append(thread)
    return pl.Series("conversation", turns, dtype=CONVERSATION)


def _as_text(values: Sequence[object]) -> pl.Series:
    return pl.Series(
        "conversation",
        [v if v is None or isinstance(v, str) else json_text(v) for v in values],
        dtype=pl.String,
    )


def _message(message: object, known: Mapping[str, str]) -> tuple[str, str | None, bool]:
    """Whose message it is, its text (None if it has none), whether it calls tools."""
    if not isinstance(message, dict):
        raise ChatError(f"a message is not an object but {json_text(message)[:40]}")
    name = next(
        (message[k] for k in ("role", "from", "author", "speaker") if k in message),
        None,
    )
    if isinstance(name, dict):  # {"author": {"role": ...}}
        name = name.get("role")
    if not isinstance(name, str):
        raise ChatError("a message has no role")
    role = known.get(name.strip().lower())
    if role is None:
        raise ChatError(
            f"the role {name!r} is not known (known: {listed(ROLES)}); say whose it is "
            f'by roles={{"{name}": "user"}}, "assistant" or "other"'
        )
    content = next(
        (message[k] for k in ("content", "value", "text") if k in message), None
    )
    return role, _content(content), bool(message.get("tool_calls"))


def _first(message: Mapping[str, Any], *keys: str) -> Any:  # noqa: ANN401
    return next((message[key] for key in keys if key in message), None)


def _content(content: object) -> str | None:
    """The text of a message: a string, the text parts of a list, or None."""
    if isinstance(content, str):
        return content or None
    if isinstance(content, dict):  # {"parts": [...]}, {"text": ...}
        inner = content.get("text", content.get("parts", content.get("value")))
        return None if isinstance(inner, dict) else _content(inner)
    if isinstance(content, list):
        parts = [
            part if isinstance(part, str) else _content(part)
            for part in content
            if isinstance(part, str)
            or (
                isinstance(part, dict)
                and part.get("type", "text") in ("text", "output_text", "input_text")
            )
        ]
        return "".join(p for p in parts if p) or None
    if content is None:
        return None
    raise ChatError(f"a message's content is neither text nor parts: {content!r:.40}")


def _api_answer(answer: Mapping[str, Any]) -> str | None:
    """The text in an answer as an API returned it (chat, responses, messages)."""
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        choice = choices[0]
        message = choice.get("message")
        return _content(
            message.get("content") if isinstance(message, dict) else choice.get("text")
        )
    output = answer.get("output")
    if isinstance(output, list):
        parts = [
            _content(item.get("content"))
            for item in output
            if isinstance(item, dict) and item.get("type", "message") == "message"
        ]
        return "".join(p for p in parts if p) or None
    if "content" in answer:
        return _content(answer["content"])
    if isinstance(answer.get("message"), dict):
        return _content(answer["message"].get("content"))
    raise ChatError(
        f"the answer holds no text that can be found (its fields: {listed(answer)})"
    )


def load_replies(
    source: str | Path | pl.DataFrame,
    columns: Mapping[str, str],
    roles: Mapping[str, str],
    on_bad_line: OnBadLine,
) -> tuple[Table, list[int], bool]:
    """The table, each row's number in the source, and whether its cells are text."""
    if isinstance(source, pl.DataFrame):
        records: Table | Records = Table(
            source, problem_frame(), (), "frame", frame_sha256(source)
        )
    else:
        records = read_records(source, on_bad_line=on_bad_line)
    untyped = False
    if isinstance(records, Table):
        threads = [
            name
            for name, kind in records.frame.schema.items()
            if isinstance(kind, pl.List | pl.Struct)
        ]
        untyped = not isinstance(source, pl.DataFrame) and all(
            kind == pl.String for kind in records.frame.dtypes
        )
        if not threads:
            table = _parse_conversation(rename(records, columns))
            return table, list(range(1, table.frame.height + 1)), untyped
        records = Records(
            records.frame.to_dicts(),
            list(range(1, records.frame.height + 1)),
            [],
            records.notes,
            records.source,
            records.sha256,
        )
    return (*_from_records(records, columns, roles, on_bad_line), untyped)


def _from_records(
    records: Records,
    columns: Mapping[str, str],
    roles: Mapping[str, str],
    on_bad_line: OnBadLine,
) -> tuple[Table, list[int]]:
    theirs = {v: k for k, v in columns.items()}
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    bad: list[Bad] = []
    chats = 0
    for line, record in zip(records.lines, records.rows, strict=True):
        named = {theirs.get(key, key): value for key, value in record.items()}
        try:
            if is_chat(named):
                chats += 1
                named = unfold(named, roles)
        except ChatError as error:
            known = named.get("request_id")
            bad.append(
                Bad(
                    line,
                    str(error),
                    json_text(record),
                    unit="line",
                    request_id=None if known is None else str(known),
                )
            )
            continue
        rows.append(named)
        lines.append(line)
    if bad and (on_bad_line == "stop" or not rows):
        raise TableError(bad_message(bad, records.source))
    talks = [row.pop("conversation", None) for row in rows]
    notes = [*records.notes]
    if chats:
        notes.append(f"Read from chats: request and reply of {chats} record(s).")
    if bad:
        notes.append(f"Left out, because a chat could not be read: {len(bad)}.")
    table = Records(rows, lines, [*records.bad, *bad], tuple(notes), *_origin(records))
    out = table.table()
    missing = [t for t in columns.values() if not any(t in r for r in records.rows)]
    if missing:
        out = rename(out, {k: v for k, v in columns.items() if v in missing})
    if any(talk is not None for talk in talks):
        out = out.add(frame=out.frame.with_columns(conversation_column(talks)))
    return out, lines


def _origin(records: Records) -> tuple[str, str]:
    return records.source, records.sha256


def _parse_conversation(table: Table) -> Table:
    """A `conversation` column of JSON text as turns; other text stays text."""
    frame = table.frame
    if frame.schema.get("conversation") != pl.String:
        return table
    values: list[Any] = []
    for text in frame["conversation"]:
        try:
            values.append(json.loads(text) if text else None)
        except ValueError:
            return table
    return table.add(frame=frame.with_columns(conversation_column(values)))

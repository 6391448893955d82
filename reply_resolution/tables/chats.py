"""Chat logs to requests and replies: nested messages, API answers, tool calls."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
import json
from typing import Any, NamedTuple

import polars as pl

from reply_resolution.tables.files import ROW, Bad, json_text
from reply_resolution.tables.tables import OnBadLine, Table, bad_records, listed

#: Whose message it is, by the role's name in lower case. Other names need a map.
ROLES: dict[str, str] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model"), "assistant"),
    **dict.fromkeys(("system", "developer", "tool", "function"), "other"),
}
_THREADS = ("messages", "conversations", "thread", "turns")
_ANSWERS = ("response", "completion", "output")

#: The type of a `conversation` column: earlier turns, oldest first.
CONVERSATION = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))


class Exchange(NamedTuple):
    """The user's last words, the answer to them, and the turns before, oldest first."""

    request: str | None
    reply: str | None
    conversation: list[dict[str, str]]


class ChatError(ValueError):
    """A record is not a chat that can be read; the message is the reason."""


def read_chats(
    table: Table, *, roles: Mapping[str, str], on_bad_line: OnBadLine
) -> Table:
    """The table with `request`, `reply` and `conversation` in place of its threads.

    A thread is a list of messages in `messages` (or `conversations`, `thread`,
    `turns`), an API's answer an object in `response` (or `completion`, `output`).
    Records that have a request and a reply are left as they are.

    Args:
        table: As read, with `ROW`.
        roles: Role name -> "user", "assistant" or "other", beside the usual ones.
        on_bad_line: A chat that cannot be read stops ("stop") or is left out ("skip").

    Raises:
        TableError: A chat cannot be read; the message names its row.
    """
    frame = table.frame
    talks = _cells(frame, "conversation")
    chats = {name: _cells(frame, name) for name in (*_THREADS, *_ANSWERS)}
    chats = {
        name: cells
        for name, cells in chats.items()
        if any(isinstance(cell, list | dict) for cell in cells)
    }
    known = ROLES | {name.strip().lower(): whose for name, whose in roles.items()}
    bad: list[Bad] = []
    read = 0
    if chats:
        absent = [c for c in ("request", "reply") if c not in frame.columns]
        frame = frame.with_columns(pl.lit(None).alias(c) for c in absent)
        request = frame["request"].cast(pl.String).to_list()
        reply = frame["reply"].cast(pl.String).to_list()
        talks = talks or [None] * frame.height
        for i, number in enumerate(frame[ROW]):
            if request[i] is not None and reply[i] is not None:
                continue
            record = {name: cells[i] for name, cells in chats.items()}
            try:
                found = _exchange(record, known)
            except ChatError as error:
                unit = "line" if table.source.endswith("l") else "row"  # .jsonl
                bad.append(Bad(number, f"{unit} {number}", str(error), ""))
                continue
            if found is not None:
                read += 1
                request[i] = found.request if request[i] is None else request[i]
                reply[i] = found.reply if reply[i] is None else reply[i]
                talks[i] = talks[i] or found.conversation or None
        if bad and (on_bad_line == "stop" or len(bad) == frame.height):
            raise bad_records(table, bad)
        frame = frame.drop(chats if read or bad else ()).with_columns(
            pl.Series("request", request, dtype=pl.String),
            pl.Series("reply", reply, dtype=pl.String),
        )
    if any(talk is not None for talk in talks):
        frame = frame.with_columns(_conversations(talks))
    if not (read or bad):
        return table.add(frame=frame)
    notes = [f"Read from chats: request and reply of {read} record(s)."]
    if bad:
        notes.append(f"Left out, because a chat could not be read: {len(bad)}.")
    reasons = pl.DataFrame(
        [(b.row, b.reason) for b in bad],
        schema={ROW: pl.Int64, "reason": pl.String},
        orient="row",
    )
    ids = [c for c in ("request_id",) if c in frame.columns]
    return table.add(
        frame=frame.join(reasons, on=ROW, how="anti", maintain_order="left"),
        problems=reasons.join(frame.select(ROW, *ids), on=ROW, how="left"),
        notes=notes,
    )


def _cells(frame: pl.DataFrame, name: str) -> list[Any]:
    """A column's cells, JSON in them as what it says; none where there is no column."""
    cells: list[Any] = frame[name].to_list() if name in frame.columns else []
    for i, cell in enumerate(cells):
        if isinstance(cell, str) and cell[:1] in ("[", "{"):
            with suppress(ValueError, RecursionError):  # text that begins like JSON
                cells[i] = json.loads(cell)
    return cells


def _exchange(record: Mapping[str, Any], known: Mapping[str, str]) -> Exchange | None:
    """What a record's threads and answers say; None where it has neither."""
    answers = [record[k] for k in _ANSWERS if record.get(k) is not None]
    thread = next(
        (record[k] for k in _THREADS if isinstance(record.get(k), list)), None
    )
    if thread is None and not answers:
        return None
    found = Exchange(None, None, []) if thread is None else read_thread(thread, known)
    return found._replace(reply=_api_answer(answers[0])) if answers else found


def read_thread(messages: Sequence[object], known: Mapping[str, str]) -> Exchange:
    """Split a thread at the user's last turn.

    The reply is what the assistant wrote after it (several messages in a row are
    joined; a message that only announces a tool call gives way to what follows).
    Messages of the system and of tools are never the reply. A thread that ends on
    the user has no reply.
    """
    read = [_message(message, known) for message in messages]
    spoken = [
        (role, text, calls)
        for role, text, calls in read
        if role != "other" and text is not None
    ]
    turns = [{"role": role, "content": text} for role, text, _ in spoken]
    users = [i for i, turn in enumerate(turns) if turn["role"] == "user"]
    end = users[-1] + 1 if users else 0
    start = max(end - 1, 0)
    while start > 0 and turns[start - 1]["role"] == "user":
        start -= 1
    answers = spoken[end:]
    final = [text for _, text, calls in answers if not calls]
    return Exchange(
        "\n\n".join(turn["content"] for turn in turns[start:end]) or None,
        "\n\n".join(final or [text for _, text, _ in answers]) or None,
        turns[:start],
    )


def _message(message: object, known: Mapping[str, str]) -> tuple[str, str | None, bool]:
    """Whose message it is, its text (None if it has none), whether it calls tools."""
    if not isinstance(message, dict):
        raise ChatError(f"a message is not an object but {json_text(message)[:40]}")
    name = _first(message, "role", "from", "author", "speaker")
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
    content = _content(_first(message, "content", "value", "text"))
    return role, content, bool(message.get("tool_calls"))


def _first(message: Mapping[str, Any], *keys: str) -> Any:  # noqa: ANN401
    return next((message[k] for k in keys if message.get(k) is not None), None)


def _content(content: object) -> str | None:
    """The text of a message: a string, the text parts of a list, or None."""
    if content is None or isinstance(content, str):
        return content or None
    if isinstance(content, dict):  # {"parts": [...]}, {"text": ...}
        inner = _first(content, "text", "parts", "value")
        return None if isinstance(inner, dict) else _content(inner)
    if isinstance(content, list):
        kinds = (None, "text", "output_text", "input_text")
        parts = [
            _content(part)
            for part in content
            if isinstance(part, str)
            or (isinstance(part, dict) and part.get("type") in kinds)
        ]
        return "".join(part for part in parts if part) or None
    raise ChatError(f"a message's content is neither text nor parts: {content!r:.40}")


def _api_answer(answer: object) -> str | None:
    """The text in an answer as an API returned it (chat, responses, messages)."""
    if not isinstance(answer, dict):
        return _content(answer)
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        answer = choices[0]
    if isinstance(answer.get("output"), list):
        parts = [
            _content(item.get("content"))
            for item in answer["output"]
            if isinstance(item, dict) and item.get("type", "message") == "message"
        ]
        return "".join(part for part in parts if part) or None
    if isinstance(answer.get("message"), dict):
        return _content(answer["message"].get("content"))
    if "content" in answer or "text" in answer:
        return _content(_first(answer, "content", "text"))
    raise ChatError(
        f"the answer holds no text that can be found (its fields: {listed(answer)})"
    )


def _conversations(values: Sequence[Any]) -> pl.Series:
    """A column of earlier turns in one type; unreadable values stay as text."""
    try:
        turns = [
            [
                {
                    "role": str(_first(message, "role", "from") or ""),
                    "content": _content(_first(message, "content", "value")) or "",
                }
                for message in value
            ]
            if value
            else None
            for value in values
        ]
        return pl.Series("conversation", turns, dtype=CONVERSATION)
    except (AttributeError, TypeError, ChatError):  # not lists of messages
        texts = [v if v is None or isinstance(v, str) else json_text(v) for v in values]
        return pl.Series("conversation", texts, dtype=pl.String)

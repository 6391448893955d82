"""Chat logs: whose words are the request, and whose the reply."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reply_resolution.errors import TableError
from reply_resolution.tables.chats import CONVERSATION, ROLES, ChatError, read_thread
from reply_resolution.tables.replies import read_replies

CHATS = Path(__file__).parent / "messy" / "07_nested_chat.jsonl"
EXPECTED = json.loads((CHATS.parent / "expected.json").read_text(encoding="utf-8"))
PAIRS = EXPECTED["07_nested_chat.jsonl"]["request_reply"]
MAP = {"Customer": "user", "Agent": "assistant", "Bot": "other"}


def test_the_messy_chats_are_read_as_expected():
    """File 07 with a role map: every request and reply, and the two bad lines."""
    table = read_replies(
        CHATS, columns={"arm": "system"}, roles=MAP, on_bad_line="skip"
    )
    pairs = {
        rid: [request or None, reply or None]
        for rid, request, reply in table.frame.select(
            "request_id", "request", "reply"
        ).rows()
    }
    assert pairs == PAIRS
    unread = table.problems.filter(pl.col("reason").str.starts_with("not valid"))
    assert unread["row"].to_list() == [6, 8]


def test_an_unanswered_thread_is_an_empty_reply_with_its_earlier_turns():
    """Chat c4 ends on the user: reply "", flagged, the greeting in conversation."""
    table = read_replies(
        CHATS, columns={"arm": "system"}, roles=MAP, on_bad_line="skip"
    )
    row = table.frame.row(by_predicate=pl.col("request_id") == "c4", named=True)
    assert row["reply"] == ""
    assert row["conversation"] == [
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": "Hi, how can I help?"},
    ]
    empty = table.problems.filter(pl.col("reason") == "empty_reply")
    assert empty["request_id"].to_list() == ["c4", "c8"]
    no_request = table.problems.filter(pl.col("reason") == "empty_request")
    assert no_request["request_id"].to_list() == ["c8"]


def test_an_unknown_role_stops_with_its_line_or_is_skipped_and_listed():
    """Without a map "Customer" is not guessed; the message says how to map it."""
    c7 = json.loads(CHATS.read_text(encoding="utf-8").splitlines()[9])
    with pytest.raises(TableError, match=r"'Customer' is not known.*roles="):
        read_replies(pl.DataFrame([c7]))
    table = read_replies(CHATS, on_bad_line="skip")
    skipped = table.problems.filter(pl.col("request_id") == "c7")
    assert skipped["row"].to_list() == [10]


def say(role: str, content: object, **more: object) -> dict[str, Any]:
    """One message of a chat."""
    return {"role": role, "content": content, **more}


def test_several_messages_in_a_row_are_what_the_user_saw():
    """Two bubbles of one side are one turn, joined by an empty line."""
    thread = [
        say("user", "Hello"),
        say("user", "My order?"),
        say("assistant", "One moment."),
        say("assistant", "It ships today."),
    ]
    found = read_thread(thread, ROLES)
    assert found.request == "Hello\n\nMy order?"
    assert found.reply == "One moment.\n\nIt ships today."
    assert found.conversation == []


def test_an_announced_tool_call_gives_way_to_the_answer():
    """A message that calls a tool is not the reply if an answer follows."""
    call = say("assistant", "Let me look.", tool_calls=[{"id": "1"}])
    thread = [say("user", "Hi"), call, say("tool", "{}"), say("assistant", "Done.")]
    assert read_thread(thread, ROLES).reply == "Done."
    assert read_thread(thread[:3], ROLES).reply == "Let me look."


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}], "a"),
        ([{"type": "output_text", "text": "a"}, "b"], "ab"),
        ({"parts": ["a", "b"]}, "ab"),
        (None, None),
        ([], None),
        ("", None),
    ],
)
def test_content_may_be_text_parts_or_nothing(content: object, text: str | None):
    """Text parts are joined; pictures and null are no words."""
    thread = [say("user", "q"), say("assistant", content)]
    assert read_thread(thread, ROLES).reply == text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"choices": [{"message": {"content": "a"}}]}, "a"),
        ({"choices": [{"text": "a"}]}, "a"),
        (
            {
                "output": [
                    {"type": "reasoning", "content": [{"text": "no"}]},
                    {
                        "type": "message",
                        "content": [{"type": "output_text", "text": "a"}],
                    },
                ]
            },
            "a",
        ),
        ({"content": [{"type": "text", "text": "a"}]}, "a"),
        ({"message": {"role": "assistant", "content": "a"}}, "a"),
        ({"choices": [{"message": {"content": None}}]}, None),
    ],
)
def test_answers_as_apis_return_them_are_replies(
    tmp_path: Path, answer: dict, text: str | None
):
    """The dump of a chat, responses or messages API is unpacked."""
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"request_id": 1, "request": "q", "response": answer}))
    assert read_replies(path).frame["reply"].to_list() == [text or ""]


def test_messages_that_end_on_the_user_take_the_answer_beside_them():
    """A log of what was sent and what came back is one exchange."""
    record = {
        "request_id": "1",
        "messages": [say("system", "s"), say("user", "q")],
        "response": {"choices": [{"message": {"content": "a"}}]},
    }
    out = read_replies(pl.DataFrame([record])).frame
    assert out.select("request", "reply").rows() == [("q", "a")]


@pytest.mark.parametrize(
    ("thread", "message"),
    [
        ([{"content": "x"}], "has no role"),
        (["x"], "not an object"),
        ([say("user", 7)], "neither text nor parts"),
        ([say("Bot", "x")], r"'Bot' is not known.*\"user\""),
    ],
)
def test_what_is_no_message_is_named(thread: list[Any], message: str):
    """The reason says what was found in place of a message."""
    with pytest.raises(ChatError, match=message):
        read_thread(thread, ROLES)


def test_a_chat_that_cannot_be_read_stops_with_its_line(tmp_path: Path):
    """The line is named, and how to read on without it."""
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"request_id": 1, "messages": [{"role": "user", "content": "q"}]}\n'
        '{"request_id": 2, "messages": [{"role": "Kunde", "content": "q"}]}\n'
    )
    with pytest.raises(TableError, match=r"line 2: the role 'Kunde'.*on_bad_line"):
        read_replies(path)
    assert read_replies(path, roles={"kunde": "user"}).frame[
        "request_id"
    ].to_list() == [*("1", "2")]


def test_threads_in_parquet_and_frames_are_read_too():
    """Nested columns of a frame are the same chats."""
    thread = [say("user", "q1"), say("assistant", "a1"), say("user", "q2")]
    frame = pl.DataFrame({"request_id": ["1"], "messages": [thread]})
    out = read_replies(frame).frame
    assert out.row(0, named=True)["request"] == "q2"
    assert out.schema["conversation"] == CONVERSATION


def test_a_conversation_of_json_text_becomes_turns(tmp_path: Path):
    """A CSV cell with the turns as JSON is parsed; other text stays text."""
    path = tmp_path / "t.csv"
    turns = json.dumps([{"role": "user", "content": "é"}]).replace('"', '""')
    path.write_text(
        f'request_id,request,reply,conversation\n1,q,a,"{turns}"\n2,q,a,\n',
        encoding="utf-8",
    )
    frame = read_replies(path).frame
    assert frame["conversation"].to_list() == [[{"role": "user", "content": "é"}], None]
    path.write_text("request_id,request,reply,conversation\n1,q,a,user: hello\n")
    assert read_replies(path).frame["conversation"].to_list() == ["user: hello"]


def test_text_that_looks_like_json_stays_text(tmp_path: Path):
    """A reply of JSON is a reply, also where another record is a chat."""
    path = tmp_path / "t.jsonl"
    lines = [
        {"request_id": 1, "request": "q", "reply": '{"a": 1}'},
        {"request_id": 2, "messages": [say("user", "q"), say("assistant", "[1]")]},
        {"request_id": 3, "messages": [say("user", "q"), say("Kunde", "x")]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    table = read_replies(path, on_bad_line="skip")
    assert table.frame["reply"].to_list() == ['{"a": 1}', "[1]"]
    path.write_text("\n".join(map(json.dumps, (lines[0], lines[2]))))
    assert read_replies(path, on_bad_line="skip").frame["reply"].to_list() == [
        '{"a": 1}'
    ]

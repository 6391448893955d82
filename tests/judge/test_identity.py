"""Judge id and verdict key: what changes them, and what never does."""

import hashlib
import json

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from reply_resolution.errors import JudgeError
from reply_resolution.judge.identity import (
    ADAPTATIONS,
    JudgeIdentity,
    clean_endpoint,
    verdict_key,
    verdict_keys,
)
from reply_resolution.judge.prepare import Preparation
from reply_resolution.judge.rubric import Rubric

ROW = {
    "request": "When does my plan renew, and how do I cancel?",
    "context": "Plans renew monthly.",
    "conversation": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi, how can I help?"},
    ],
    "reply": "On 14 March. Settings → Billing → Cancel plan.",
    "arm": "control",
    "request_id": "E0001",
    "label_a": 4,
    "user_id": "u1",
    "topic": "billing",
}
JUDGE = {
    "model": "gpt-5-mini",
    "endpoint": "https://api.openai.com/v1",
    "params": {"max_completion_tokens": 300, "temperature": 0.0},
    "adaptation": "json_schema",
}


def key(rubric, row=ROW, vote=0, **judge):
    """The verdict key of a row, all three steps."""
    identity = JudgeIdentity.of(rubric, **{**JUDGE, **judge})
    return verdict_key(identity.judge_id, rubric.user_message(row).text, vote)


BASE = key(Rubric.default())

# Edits of a text: anything that leaves another text.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@st.composite
def edits(draw, text):
    """The text with a piece put in, taken out or put in place of another."""
    at = draw(st.integers(0, len(text)))
    cut = draw(st.integers(0, 3))
    changed = text[:at] + draw(st.one_of(st.just(""), TEXT)) + text[at + cut :]
    return changed if changed != text else text[:at] + "·" + text[at:]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_byte_of_what_is_sent_changes_the_key(data):
    """Wording, request, context, conversation or reply: one byte is another key."""
    where = data.draw(
        st.sampled_from(["wording", "request", "context", "reply", "role", "content"])
    )
    rubric, row = Rubric.default(), dict(ROW)
    if where == "wording":
        wording = data.draw(edits(rubric.wording))
        rubric = rubric.replace(wording=wording)
    elif where in ("role", "content"):
        turns = [dict(turn) for turn in ROW["conversation"]]
        index = data.draw(st.integers(0, 1))
        turns[index][where] = data.draw(edits(turns[index][where]))
        row["conversation"] = turns
    else:
        row[where] = data.draw(edits(row[where]))
    assert key(rubric, row) != BASE


@given(st.sampled_from(["request", "context", "reply"]), TEXT)
@settings(max_examples=60, deadline=None)
def test_texts_moved_between_fields_are_another_key(name, piece):
    """The end of one field and the start of the next cannot be confused."""
    order = ["request", "context", "reply"]
    after = order[(order.index(name) + 1) % 3]
    one = {**ROW, name: ROW[name] + piece}
    other = {**ROW, after: piece + ROW[after]}
    assert key(Rubric.default(), one) != key(Rubric.default(), other)


@pytest.mark.parametrize(
    "judge",
    [
        {"model": "gpt-5-mini-2025-08-07"},
        {"model": "gpt-5-mini "},
        {"endpoint": "https://api.openai.com/v2"},
        {"endpoint": "http://api.openai.com/v1"},
        {"endpoint": "https://api.openai.com:8443/v1"},
        {"endpoint": "https://eu.api.openai.com/v1"},
        {"endpoint": "https://api.openai.com/v1?api-version=2"},
        {"params": {"max_completion_tokens": 301, "temperature": 0.0}},
        {"params": {"max_completion_tokens": 300, "temperature": 0}},
        {"params": {"max_completion_tokens": 300}},
        {"params": {"max_tokens": 300, "temperature": 0.0}},
        {"params": {}},
        {"adaptation": "tool"},
        {"adaptation": "json_object"},
        {"schema": {"type": "object"}},
    ],
    ids=lambda judge: json.dumps(judge)[:60],
)
def test_any_part_of_the_judge_changes_the_key(judge):
    """Model, host, path, each parameter, the way the schema is asked for."""
    assert key(Rubric.default(), **judge) != BASE


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": Rubric.reason_first().schema},
        {"fields": ("request", "reply", "context", "conversation")},
        {"fields": ("request", "context", "reply")},
        {"preparation": Preparation(strip_html=True)},
        {"preparation": Preparation(max_chars=100_000)},
    ],
    ids=["field order", "order of the row", "fewer fields", "strip", "limit"],
)
def test_schema_order_template_and_preparation_change_the_key(changes):
    """Even where the message comes out the same, the judge is another."""
    assert key(Rubric.default().replace(**changes)) != BASE


def test_votes_are_keys_of_their_own():
    """A repeat is another verdict, not the first one again."""
    assert len({key(Rubric.default(), vote=vote) for vote in range(5)}) == 5


JSONISH = st.none() | st.booleans() | st.integers() | st.text(max_size=10)


@given(
    st.dictionaries(
        st.text(max_size=12).filter(
            lambda name: name not in ("request", "context", "conversation", "reply")
        ),
        JSONISH,
        max_size=6,
    )
)
@settings(max_examples=100, deadline=None)
def test_other_columns_never_change_the_key(columns):
    """Arm, id, labels and every other column are no part of a verdict."""
    row = {k: v for k, v in ROW.items() if k in Rubric.default().fields}
    assert key(Rubric.default(), {**columns, **row}) == BASE
    assert key(Rubric.default(), {**ROW, "arm": "treatment", "label_a": None}) == BASE


@given(
    st.integers(2, 5),
    st.sampled_from(["primary", "secondary", "guardrail"]),
    TEXT.filter(str.strip),
    st.from_regex(r"[a-z][a-z_]{0,12}", fullmatch=True),
)
@settings(max_examples=50, deadline=None)
def test_cut_role_levels_and_name_reuse_paid_verdicts(cut, role, level, name):
    """What is not sent makes another metric version with the same verdicts."""
    levels = {**dict(Rubric.default().levels), 3: level}
    rubric = Rubric.default().replace(cut=cut, role=role, levels=levels, name=name)
    assert key(rubric) == BASE
    if rubric != Rubric.default():
        assert rubric.hash != Rubric.default().hash


@pytest.mark.parametrize("name", ["request", "reply", "context"])
@pytest.mark.parametrize(
    "twin",
    [
        ("é", "e\u0301"),
        ("a\r\nb", "a\nb"),
        ("x", "x "),
        ("x", "x\u200b"),
        ("K", "\u212a"),
    ],
    ids=["normal form", "line ends", "space", "zero width", "kelvin"],
)
def test_nothing_is_folded(name, twin):
    """Normal forms, line ends and invisible characters are bytes like others."""
    one, other = ({**ROW, name: text} for text in twin)
    assert key(Rubric.default(), one) != key(Rubric.default(), other)


def test_order_of_parameters_is_no_part_of_the_judge():
    """The same parameters in another order are the same judge."""
    params = dict(reversed(JUDGE["params"].items()))
    assert key(Rubric.default(), params=params) == BASE


def test_keys_are_pinned():
    """A release cannot orphan the verdicts users have paid for unnoticed."""
    assert verdict_key("0" * 64, '{"request":"q","reply":"é"}', 2) == (
        "802e5b122d4e04a035bd926f211ccd930f36b25d8a403c19e1200b2b049ee836"
    )


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20)))
def test_a_key_is_the_hash_of_judge_vote_and_message(messages):
    """Judge and vote on lines of their own, then the exact bytes; one or many."""
    judge = "ab" * 32
    assert verdict_keys(judge, messages, 3) == [
        hashlib.sha256(f"verdict/1\n{judge}\n3\n{message}".encode()).hexdigest()
        for message in messages
    ]


@pytest.mark.parametrize("adaptation", ADAPTATIONS)
def test_what_is_hashed_is_what_is_sent(adaptation):
    """The request comes from the identity alone: wording, schema order, parameters."""
    rubric = Rubric.reason_first()
    identity = JudgeIdentity.of(rubric, **{**JUDGE, "adaptation": adaptation})
    body = identity.request("the row")
    assert body["model"] == "gpt-5-mini"
    assert body["messages"][0]["content"].startswith(rubric.wording)
    assert body["messages"][1] == {"role": "user", "content": "the row"}
    assert body["max_completion_tokens"] == 300
    text = json.dumps(body)
    assert text.index("reason") < text.rindex("score")
    assert JudgeIdentity.from_document(identity.document()) == identity
    assert JudgeIdentity.from_document(identity.document()).request("x") == (
        identity.request("x")
    )


def test_credentials_never_enter_the_identity():
    """A key in an address is dropped before it is hashed, kept or shown."""
    secret = "sk-marked-secret"
    url = f"https://user:{secret}@Host.example:443/v1/?api-key={secret}&api-version=7"
    assert clean_endpoint(url) == "https://host.example/v1?api-version=7"
    identity = JudgeIdentity.of(Rubric.default(), **{**JUDGE, "endpoint": url})
    assert secret not in identity.document()
    assert key(Rubric.default(), endpoint="https://key:1@api.openai.com/v1/") == BASE


def test_parameters_that_are_not_the_callers_are_refused():
    """Messages and the model cannot be smuggled in; NaN is no parameter."""
    with pytest.raises(JudgeError, match="messages"):
        JudgeIdentity.of(Rubric.default(), **{**JUDGE, "params": {"messages": []}})
    with pytest.raises(JudgeError, match="not JSON"):
        JudgeIdentity.of(Rubric.default(), **{**JUDGE, "params": {"x": float("nan")}})
    with pytest.raises(JudgeError, match="adaptation"):
        JudgeIdentity.of(Rubric.default(), **{**JUDGE, "adaptation": "regex"})

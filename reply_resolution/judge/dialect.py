"""What one server and model accept, found by asking, not by a list of model names.

Servers that speak the same API differ: some refuse `max_completion_tokens`, a
temperature, `minimum` in a schema, or schemas altogether; some accept a schema and
ignore it. A `Dialect` says what is sent; `adapt` derives the next one from a server's
refusal. It is part of the judge id, because a verdict asked for differently is
another judge's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
import re
from typing import Any

from reply_resolution.judge.identity import ADAPTATIONS, JudgeIdentity
from reply_resolution.judge.rubric import Rubric


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a request is put.

    Attributes:
        answer: `json_schema` (strict response format), `tool` (a forced call) or
            `json_object` (any object; the schema is then in the system message).
        bounds: `range` (the schema as written) or `enum` (minimum and maximum of a
            whole number written out as the list of its values).
        tokens: The name of the parameter that limits the answer's tokens.
        dropped: Names of parameters left out because the server refuses them.
    """

    answer: str = "json_schema"
    bounds: str = "range"
    tokens: str = "max_completion_tokens"
    dropped: tuple[str, ...] = ()

    @classmethod
    def from_document(cls, found: Mapping[str, Any]) -> "Dialect":
        """Read what `dataclasses.asdict` gave, back from JSON."""
        return cls(**{**found, "dropped": tuple(found.get("dropped", ()))})

    def changes(self) -> str:
        """In words, what differs from the usual request; "" if nothing does."""
        said = []
        if self.answer != "json_schema":
            said.append(f"answer asked for as {self.answer}")
        if self.bounds != "range":
            said.append("score range sent as a list of values")
        if self.tokens != "max_completion_tokens":
            said.append(f"token limit sent as {self.tokens}")
        said += [f"{name} left out" for name in self.dropped]
        return "; ".join(said)


def schema_as_sent(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The schema in this dialect; field order is kept, since models write in it.

    >>> bounded = {"type": "integer", "minimum": 1, "maximum": 3}
    >>> schema_as_sent({"properties": {"score": bounded}}, Dialect(bounds="enum"))
    {'properties': {'score': {'type': 'integer', 'enum': [1, 2, 3]}}}
    """
    if dialect.bounds == "range":
        return dict(schema)
    fields = {}
    for name, spec in schema.get("properties", {}).items():
        low, high = spec.get("minimum"), spec.get("maximum")
        if isinstance(low, int) and isinstance(high, int):
            rest = {k: v for k, v in spec.items() if k not in {"minimum", "maximum"}}
            spec = {**rest, "enum": list(range(low, high + 1))}
        fields[name] = spec
    return {**schema, "properties": fields}


def parameters_as_sent(
    params: Mapping[str, Any], max_completion_tokens: int | None, dialect: Dialect
) -> dict[str, Any]:
    """Everything but messages and answer form: sampling parameters, token limit."""
    sent = {k: v for k, v in params.items() if k not in dialect.dropped}
    if max_completion_tokens is not None:
        sent[dialect.tokens] = max_completion_tokens
    return sent


def identity_in(
    dialect: Dialect,
    rubric: Rubric,
    *,
    model: str,
    endpoint: str,
    params: Mapping[str, Any],
    max_completion_tokens: int | None,
) -> JudgeIdentity:
    """The judge that this dialect makes: what is sent, and so who judged."""
    return JudgeIdentity.of(
        rubric,
        model=model,
        endpoint=endpoint,
        params=parameters_as_sent(params, max_completion_tokens, dialect),
        adaptation=dialect.answer,
        schema=schema_as_sent(rubric.schema, dialect),
    )


def next_form(dialect: Dialect) -> Dialect | None:
    """The same request with the next way to ask for an answer; None after the last."""
    at = ADAPTATIONS.index(dialect.answer) + 1
    return replace(dialect, answer=ADAPTATIONS[at]) if at < len(ADAPTATIONS) else None


def _names(text: str, *words: str) -> bool:
    return any(re.search(rf"(?<![a-z_]){w}(?![a-z_])", text) for w in words)


def adapt(dialect: Dialect, refusal: str, params: Mapping[str, Any]) -> Dialect | None:
    """What to send instead, after a 400 that says what the server does not take.

    Args:
        dialect: What was sent.
        refusal: The server's message and the parameter it names, as text.
        params: The sampling parameters asked for.

    Returns:
        The next dialect to try, or None if the refusal names nothing that was sent
        and can be changed. Every step changes something for good, so that a chain of
        refusals ends after a handful.

    >>> adapt(Dialect(), "Unknown parameter: 'max_completion_tokens'", {}).tokens
    'max_tokens'
    """
    text = refusal.lower()
    # OpenAI's refusal of max_tokens names max_completion_tokens too, so the switch is
    # made one way only.
    if dialect.tokens == "max_completion_tokens" and _names(text, dialect.tokens):
        return replace(dialect, tokens="max_tokens")
    for name in params:
        if name not in dialect.dropped and _names(text, re.escape(name.lower())):
            return replace(dialect, dropped=(*dialect.dropped, name))
    if dialect.bounds == "range" and _names(text, "minimum", "maximum"):
        return replace(dialect, bounds="enum")
    words = {
        "json_schema": "response_format|schema|structured|grammar|guided|strict",
        "tool": "tools?|tool_choice|functions?|schema|strict",
        "json_object": "",
    }[dialect.answer]
    if words and re.search(words, text):
        return next_form(dialect)
    return None

"""Who judged, and what exactly was asked: dialect, judge id and verdict key.

Three steps, each a hash of content: the metric version (everything in the rubric), the
judge id (what determines the request), the verdict key (judge id, the exact bytes of
the user message, the vote). The request is *built* by the identity that is hashed, so
what is sent and what is hashed cannot drift apart.

Servers that speak the same API differ: some refuse `max_completion_tokens`, a
temperature, `minimum` in a schema, or schemas altogether; some accept a schema and
ignore it. A `Dialect`, found by asking and not by a list of model names, says how one
server is asked; it is part of the judge id.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
import hashlib
import json
import re
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from reply_resolution.errors import JudgeError
from reply_resolution.judge.rubric import ENCODE, Rubric

#: How the answer's schema is asked for, best first.
ADAPTATIONS = ("json_schema", "tool", "json_object")
#: Names of the parameter that limits an answer's tokens, the usual one first.
TOKEN_LIMITS = ("max_completion_tokens", "max_tokens")
_TOOL = "verdict"
#: Parts of the request that come from rubric, model and row, never from parameters.
_OWNED = {"model", "messages", "response_format", "tools", "tool_choice", "stream", "n"}
# Query parameters that carry credentials; an Azure api-version stays.
_SECRET = re.compile(r"key|token|secret|sig|password|code|auth", re.IGNORECASE)


def clean_endpoint(base_url: str) -> str:
    """The address of a server as it enters hashes, caches and messages.

    Scheme and host in lower case, no default port, no slash at the end, and no user
    name, password, fragment or query parameter that may hold a key.

    >>> clean_endpoint("HTTPS://user:pw@Api.Example.com:443/v1/?api-key=s3&api-version=7")
    'https://api.example.com/v1?api-version=7'
    """
    parts = urlsplit(base_url.strip())
    host = (parts.hostname or "").lower()
    if ":" in host:
        host = f"[{host}]"
    default = {"http": 80, "https": 443}.get(parts.scheme)
    if parts.port is not None and parts.port != default:
        host += f":{parts.port}"
    given = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode([pair for pair in given if not _SECRET.search(pair[0])])
    return urlunsplit((parts.scheme.lower(), host, parts.path.rstrip("/"), query, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeIdentity:
    """A judge: what determines the request, apart from the row itself.

    Attributes:
        wording: The system message.
        template: Name of the way a row becomes the user message, with its fields and
            preparation, as JSON text.
        schema_json: The answer's schema as sent, compact JSON text in field order.
        model: The model asked for (what the server says it was is in the verdict).
        endpoint: The server's address, without credentials.
        params_json: Every other parameter actually sent, such as
            `max_completion_tokens` or `temperature`, as JSON text with sorted names.
        adaptation: How the schema is asked for: json_schema, tool or json_object.
    """

    wording: str
    template: str
    schema_json: str
    model: str
    endpoint: str
    params_json: str = "{}"
    adaptation: str = "json_schema"

    @classmethod
    def of(
        cls,
        rubric: Rubric,
        *,
        model: str,
        endpoint: str,
        params: Mapping[str, Any] | None = None,
        adaptation: str = "json_schema",
        schema: Mapping[str, Any] | None = None,
    ) -> Self:
        """The judge that a rubric makes with a model at an endpoint.

        Args:
            rubric: Gives wording, template and schema.
            model: Name of the model as sent.
            endpoint: Base URL; cleaned by `clean_endpoint`.
            params: Other parameters as sent. Never a key or a header.
            adaptation: How the schema is asked for; one of `ADAPTATIONS`.
            schema: The schema as sent; None is the rubric's.

        Raises:
            JudgeError: The adaptation is unknown, or a parameter isn't JSON.
        """
        if adaptation not in ADAPTATIONS:
            raise JudgeError(
                f"adaptation {adaptation!r} is not known; one of "
                f"{', '.join(ADAPTATIONS)}."
            )
        if owned := sorted(_OWNED & set(params or {})):
            raise JudgeError(
                f"parameters {', '.join(owned)} cannot be given: the rubric, the model "
                "and the row decide them."
            )
        sent = rubric.sent()
        try:
            params_json = json.dumps(
                dict(params or {}),
                ensure_ascii=False,
                sort_keys=True,
                separators=(",", ":"),
                allow_nan=False,
            )
        except (TypeError, ValueError) as error:
            raise JudgeError(
                f"the judge's parameters {params!r:.200} are not JSON: {error}."
            ) from error
        return cls(
            wording=sent["wording"],
            template=ENCODE(
                {name: sent[name] for name in ("template", "fields", "preparation")}
            ),
            schema_json=ENCODE(schema if schema is not None else sent["schema"]),
            model=model,
            endpoint=clean_endpoint(endpoint),
            params_json=params_json,
            adaptation=adaptation,
        )

    @property
    def params(self) -> dict[str, Any]:
        """The other parameters as sent, a fresh dict."""
        loaded: dict[str, Any] = json.loads(self.params_json)
        return loaded

    def document(self) -> str:
        """The identity as canonical JSON text: what the judge id is computed from."""
        return ENCODE(
            {
                "format": "judge/1",
                "model": self.model,
                "endpoint": self.endpoint,
                "adaptation": self.adaptation,
                "params": self.params,
                "wording": self.wording,
                "template": json.loads(self.template),
                "schema": json.loads(self.schema_json),
            }
        )

    @classmethod
    def from_document(cls, document: str) -> Self:
        """Build the identity again from its canonical JSON text.

        Raises:
            JudgeError: The text is not a judge's document.
        """
        try:
            data = json.loads(document)
            if data.pop("format") != "judge/1":
                raise ValueError("its format is not judge/1")
            for name, field in (("params", "params_json"), ("schema", "schema_json")):
                data[field] = ENCODE(data.pop(name))
            return cls(**data | {"template": ENCODE(data["template"])})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise JudgeError(f"not a judge's document: {error}") from error

    @property
    def judge_id(self) -> str:
        """SHA-256 of `document()`, 64 hex digits."""
        return hashlib.sha256(self.document().encode()).hexdigest()

    def request(self, user_message: str) -> dict[str, Any]:
        """The body of the chat-completions request for one row, as sent.

        Model and messages come first, then how the schema is asked for, then the
        parameters by name. `trace` prints this.
        """
        schema = json.loads(self.schema_json)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": self.wording},
                {"role": "user", "content": user_message},
            ],
        }
        if self.adaptation == "json_schema":
            asked = {"name": _TOOL, "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": asked}
        elif self.adaptation == "tool":
            tool = {"name": _TOOL, "strict": True, "parameters": schema}
            body["tools"] = [{"type": "function", "function": tool}]
            body["tool_choice"] = {"type": "function", "function": {"name": _TOOL}}
        else:
            # The server knows JSON but no schema: the schema goes into the text.
            body["messages"][0]["content"] = (
                f"{self.wording}\n\nAnswer with one JSON object that fits this schema, "
                f"and nothing else:\n{self.schema_json}"
            )
            body["response_format"] = {"type": "json_object"}
        return body | self.params


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one server and model are asked.

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

    def identity(
        self,
        rubric: Rubric,
        *,
        model: str,
        endpoint: str,
        params: Mapping[str, Any],
        max_completion_tokens: int | None,
    ) -> JudgeIdentity:
        """The judge this dialect makes: what is sent, and so who judged."""
        sent = {k: v for k, v in params.items() if k not in self.dropped}
        if max_completion_tokens is not None:
            sent[self.tokens] = max_completion_tokens
        return JudgeIdentity.of(
            rubric,
            model=model,
            endpoint=endpoint,
            params=sent,
            adaptation=self.answer,
            schema=self.schema(rubric.schema),
        )

    def schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema as sent; field order is kept, since models write in it.

        >>> bounded = {"type": "integer", "minimum": 1, "maximum": 3}
        >>> Dialect(bounds="enum").schema({"properties": {"score": bounded}})
        {'properties': {'score': {'type': 'integer', 'enum': [1, 2, 3]}}}
        """
        if self.bounds == "range":
            return dict(schema)
        fields = {}
        for name, spec in schema.get("properties", {}).items():
            low, high = spec.get("minimum"), spec.get("maximum")
            if isinstance(low, int) and isinstance(high, int):
                rest = {
                    k: v for k, v in spec.items() if k not in {"minimum", "maximum"}
                }
                spec = {**rest, "enum": list(range(low, high + 1))}
            fields[name] = spec
        return {**schema, "properties": fields}

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

    def next_form(self) -> "Dialect | None":
        """The next way to ask for an answer; None after the last."""
        at = ADAPTATIONS.index(self.answer) + 1
        return replace(self, answer=ADAPTATIONS[at]) if at < len(ADAPTATIONS) else None

    def adapted(self, refusal: str, params: Mapping[str, Any]) -> "Dialect | None":
        """What to send instead, after a 400 that says what the server does not take.

        Args:
            refusal: The server's message and the parameter it names, as text.
            params: The sampling parameters asked for.

        Returns:
            The next dialect to try, or None if the refusal names nothing that was sent
            and can be changed. Every step changes something for good, so that a chain
            of refusals ends after a handful.

        >>> Dialect().adapted("Unknown parameter: 'max_completion_tokens'", {}).tokens
        'max_tokens'
        """
        text = refusal.lower()
        # OpenAI's refusal of max_tokens names max_completion_tokens too, so the switch
        # is made one way only.
        if self.tokens == "max_completion_tokens" and _names(text, self.tokens):
            return replace(self, tokens="max_tokens")
        for name in params:
            if name not in self.dropped and _names(text, re.escape(name.lower())):
                return replace(self, dropped=(*self.dropped, name))
        if self.bounds == "range" and _names(text, "minimum", "maximum"):
            return replace(self, bounds="enum")
        words = {
            "json_schema": "response_format|schema|structured|grammar|guided|strict",
            "tool": "tools?|tool_choice|functions?|schema|strict",
        }.get(self.answer)
        return self.next_form() if words and re.search(words, text) else None


def _names(text: str, *words: str) -> bool:
    return any(re.search(rf"(?<![a-z_]){w}(?![a-z_])", text) for w in words)


def verdict_key(judge_id: str, user_message: str, vote: int = 0) -> str:
    """The key of a verdict: 64 hex digits.

    Args:
        judge_id: 64 hex digits.
        user_message: The user message exactly as sent.
        vote: 0 for the first verdict on a reply, 1 and up for repeats.
    """
    return verdict_keys(judge_id, [user_message], vote)[0]


def verdict_keys(
    judge_id: str, user_messages: Iterable[str], vote: int = 0
) -> list[str]:
    """`verdict_key` for many messages of one judge and vote; about 2 µs each."""
    # The message comes last and the two before it hold no newline: no two different
    # triples share these bytes.
    start = hashlib.sha256(b"verdict/1\n%s\n%d\n" % (judge_id.encode(), vote))
    keys = []
    for message in user_messages:
        state = start.copy()
        state.update(message.encode())
        keys.append(state.hexdigest())
    return keys

"""The rubric: what the judge is asked, and which version of the question it was.

A rubric's identity is its content. Any change, one character, is another metric
version; the number in `reply_resolution@v1:3f9c1a7b` is for people (minted per name
by the cache), the hash is the truth.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
import difflib
from functools import cache
import hashlib
import json
from pathlib import Path
import re
from typing import Any, ClassVar, NamedTuple, Self

from reply_resolution.errors import RubricError, TableError
from reply_resolution.judge.prepare import Preparation
from reply_resolution.judge.rubric_file import (
    check_levels,
    check_schema,
    read_rubric_file,
)

#: Name of the way a row becomes a user message; part of every hash. A change to
#: `Rubric.user_message` that moves one byte needs another name here.
TEMPLATE = "one-json-object/1"
#: The five levels, best first.
LEVELS = (
    (5, "fully resolved, nothing further needed"),
    (4, "main request resolved; a minor detail left, or a correct handoff"),
    (3, "partial, a follow-up is still required"),
    (2, "on topic, resolves nothing; or contains a factual error"),
    (1, "answers a different question, or none"),
)
#: The default output schema; the order of the fields is the order of the answer.
SCHEMA = (
    '{"type":"object","properties":{"score":{"type":"integer","minimum":1,'
    '"maximum":5},"reason":{"type":"string"}},"required":["score","reason"],'
    '"additionalProperties":false}'
)
#: The row's fields a judge may see, in the order they are sent. Nothing else of a
#: row (arm, label, id, any other column) leaves the machine.
FIELDS = ("request", "context", "conversation", "reply")
# An encoder of our own: json.dumps would build one per call.
ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ROLES = ("primary", "secondary", "guardrail")
_FOLDER = Path(__file__).parent / "rubrics"
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_LABEL = re.compile(r"(?P<name>[^@\s]+)@v(?P<number>[0-9]+):(?P<hash>[0-9a-f]{8,64})\Z")
_NEEDED = ("request", "reply")
_OPENING = {name: f'"{name}":' for name in FIELDS}
# What JSONEncoder itself uses for a text, without building an object around it.
_QUOTE: Callable[[str], str] = json.encoder.encode_basestring


class UserMessage(NamedTuple):
    """One row as the judge will read it.

    Attributes:
        text: The user message: one JSON object, real UTF-8, no ASCII escapes.
        note: What the preparation cut or masked, for `status_detail`; "" if nothing.
    """

    text: str
    note: str


@dataclass(frozen=True, slots=True)
class RubricVersion:
    """The identity of one exact rubric.

    Attributes:
        name: Name of the metric, such as `reply_resolution`.
        number: For people: 1, 2, ... in the order the cache met the versions.
        hash: The truth: SHA-256 of the rubric's document, 64 hex digits.
    """

    name: str
    number: int
    hash: str

    @property
    def label(self) -> str:
        """The version as written in tables, `reply_resolution@v1:3f9c1a7b`."""
        return f"{self.name}@v{self.number}:{self.hash[:8]}"

    @classmethod
    def parse(cls, label: str) -> Self:
        """Read a label back; the hash keeps as many digits as the label has.

        Raises:
            RubricError: The text is not a metric version.

        >>> RubricVersion.parse("reply_resolution@v1:3f9c1a7b").number
        1
        """
        match = _LABEL.match(label)
        if match is None:
            raise RubricError(
                f"{label!r} is not a metric version. One looks like "
                "reply_resolution@v1:3f9c1a7b; `versions` lists those in the cache."
            )
        return cls(match["name"], int(match["number"]), match["hash"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """What the judge is asked: wording, answer schema, scale, and how a row is sent.

    Attributes:
        wording: The instructions, sent as the system message, character for character.
        name: Name of the metric; letters, digits, `_`, `.`, `-`.
        schema_json: JSON schema of the answer, as compact JSON text. The order of its
            properties (score first or reason first) is part of the version.
        levels: (score, meaning) for each score, best first; for people, not sent.
        cut: A score at or above it is "resolved"; 2 to 5.
        role: What the metric is for: primary, secondary or guardrail.
        fields: The row's fields that are sent, in this order.
        preparation: What is stripped or masked before a row is sent; off by default.
        scale: Lowest and highest score.
    """

    wording: str
    name: str = "reply_resolution"
    schema_json: str = SCHEMA
    levels: tuple[tuple[int, str], ...] = LEVELS
    cut: int = 4
    role: str = "primary"
    fields: tuple[str, ...] = FIELDS
    preparation: Preparation = field(default_factory=Preparation)
    scale: ClassVar[tuple[int, int]] = (1, 5)

    def __post_init__(self) -> None:
        if not isinstance(self.wording, str) or not self.wording.strip():
            raise RubricError(
                f"rubric {self.name!r} has no wording. Give the judge's instructions "
                "as text (`wording`, or a file by `wording_file`)."
            )
        if _SURROGATE.search(self.wording):
            raise RubricError(
                f"the wording of rubric {self.name!r} holds half a character (a lone "
                "surrogate) and cannot be sent as UTF-8. Save the text as UTF-8."
            )
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise RubricError(
                f"rubric name {self.name!r} is not usable. Use letters, digits, "
                "'_', '.' and '-', such as reply_resolution."
            )
        if self.role not in _ROLES:
            raise RubricError(
                f"role {self.role!r} of rubric {self.name!r} is not one of "
                f"{', '.join(_ROLES)}."
            )
        if isinstance(self.cut, bool) or self.cut not in (2, 3, 4, 5):
            raise RubricError(
                f"cut {self.cut!r} of rubric {self.name!r} is not 2, 3, 4 or 5. A "
                "score at or above the cut counts as resolved; the default is 4."
            )
        fields = tuple(self.fields) if isinstance(self.fields, list | tuple) else ()
        if not set(_NEEDED) <= {*fields} <= {*FIELDS} or len({*fields}) < len(fields):
            raise RubricError(
                f"fields {self.fields!r} of rubric {self.name!r} are not usable. "
                f"Choose from {', '.join(FIELDS)}, each once; request and reply are "
                "needed."
            )
        _set = object.__setattr__
        _set(self, "fields", fields)
        _set(self, "levels", check_levels(self.levels, self.name))
        _set(self, "schema_json", ENCODE(check_schema(self.schema_json, self.name)))

    @classmethod
    def default(cls) -> "Rubric":
        """The shipped rubric: does the reply resolve the request?"""
        return _shipped("reply_resolution.txt")

    @classmethod
    def reason_first(cls) -> "Rubric":
        """The shipped rubric with the reason written before the score.

        The order matters to a model that thinks by writing; on your own labels
        notebook 1 compares it with the default. It is a version of its own.
        """
        return _shipped("reply_resolution_reason_first.toml")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a rubric file.

        A text file (`.txt`, `.md`) is the wording, everything else as the default. A
        `.toml` file may set name, wording or wording_file, levels, cut, role, schema,
        fields and preparation. A byte order mark, Windows line ends and line ends at
        the end of the text are the editor's, not the author's, and don't count.

        Raises:
            RubricError: The file cannot be read, or is incomplete, or contradicts
                itself.
        """
        return cls(**read_rubric_file(Path(path)))

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401
        """A copy with some fields changed; `schema` may be given as a dict."""
        if "schema" in changes:
            changes["schema_json"] = json.dumps(changes.pop("schema"))
        return replace(self, **changes)

    @property
    def schema(self) -> dict[str, Any]:
        """The answer's JSON schema, a fresh dict with its fields in order."""
        loaded: dict[str, Any] = json.loads(self.schema_json)
        return loaded

    def sent(self) -> dict[str, Any]:
        """The parts that determine what is sent, for the judge id.

        Name, levels, cut and role are not among them: a new cut is a new metric
        version that reuses the verdicts already paid for.
        """
        return {
            "wording": self.wording,
            "template": TEMPLATE,
            "fields": list(self.fields),
            "preparation": self.preparation.document(),
            "schema": self.schema,
        }

    def document(self) -> str:
        """The rubric as canonical JSON text: what the hash is computed from."""
        return ENCODE(
            {
                "format": "rubric/1",
                "name": self.name,
                "category": "ordinal",
                "role": self.role,
                "scale": self.scale,
                "cut": self.cut,
                "levels": self.levels,
                **self.sent(),
            }
        )

    @classmethod
    def from_document(cls, document: str) -> Self:
        """Build the rubric again from its canonical JSON text.

        Raises:
            RubricError: The text is not one, or of another version of the package.
        """
        try:
            data = json.loads(document)
            made = cls(
                wording=data["wording"],
                name=data["name"],
                schema_json=json.dumps(data["schema"]),
                levels=data["levels"],
                cut=data["cut"],
                role=data["role"],
                fields=data["fields"],
                preparation=Preparation(**data["preparation"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RubricError(f"not a rubric document: {error}") from error
        if made.document() != document:
            raise RubricError(
                f"a rubric document of format {data.get('format')!r}, template "
                f"{data.get('template')!r} and scale {data.get('scale')!r} cannot be "
                "read by this version of the package."
            )
        return made

    @property
    def hash(self) -> str:
        """SHA-256 of `document()`, 64 hex digits."""
        return hashlib.sha256(self.document().encode()).hexdigest()

    def user_message(self, row: Mapping[str, object]) -> UserMessage:
        """One row as one JSON object of the untrusted fields, as given.

        Text goes in unchanged (quotes are escaped by JSON, so a reply cannot close
        the object it stands in). Of a conversation's turns only role and content are
        sent. An optional field that is missing, null or empty is left out: a CSV file
        cannot tell null from empty, and the same table must ask the same question.

        Raises:
            TableError: `request` or `reply` is missing, or a field is not text.
        """
        note = ""
        if self.preparation:
            row, note = self.preparation.apply({k: row.get(k) for k in self.fields})
        parts = []
        get = row.get
        for name in self.fields:
            value = get(name)
            if isinstance(value, str):
                if value or name in _NEEDED:
                    parts.append(_OPENING[name] + _QUOTE(value))
            elif value is None:
                if name in _NEEDED:
                    raise TableError(
                        f"a row has no {name!r}. Every row to judge needs request and "
                        "reply; read the table with read_replies, which lists them."
                    )
            elif name == "conversation":
                turns = _turns(value)
                if turns:
                    parts.append(f'"{name}":{ENCODE(turns)}')
            else:
                raise TableError(
                    f"column {name!r} holds {type(value).__name__} {value!r:.60}; the "
                    "judge reads text. Convert the column to text."
                )
        text = "{" + ",".join(parts) + "}"
        try:
            text.encode()
        except UnicodeEncodeError:  # half a character: JSON can still spell it
            text = _SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
        return UserMessage(text, note)


def diff(a: Rubric, b: Rubric) -> str:
    """What changed from rubric `a` to rubric `b`, readable; "" when nothing did.

    >>> print(diff(Rubric.default(), Rubric.default().replace(cut=3)))
    cut: 4 -> 3
    """
    old, new = json.loads(a.document()), json.loads(b.document())
    parts = []
    for key, before in old.items():
        after = new[key]
        if ENCODE(before) == ENCODE(after):  # text: a dict's order counts
            continue
        if key == "wording":
            lines = difflib.unified_diff(
                before.split("\n"), after.split("\n"), lineterm="", n=1
            )
            parts.append("wording:\n" + "\n".join(f"  {x}" for x in list(lines)[2:]))
        elif key == "levels":
            parts += [
                f"level {score}: {was!r} -> {now!r}"
                for (score, was), (_, now) in zip(before, after, strict=True)
                if was != now
            ]
        else:
            shown = [x if isinstance(x, str) else ENCODE(x) for x in (before, after)]
            parts.append(f"{key}: {shown[0]} -> {shown[1]}")
    return "\n".join(parts)


@cache
def _shipped(file: str) -> Rubric:
    return Rubric.load(_FOLDER / file)


def _turns(value: object) -> list[dict[str, str]]:
    """A conversation's turns, reduced to role and content."""
    try:
        turns = [{"role": t["role"], "content": t["content"]} for t in value]  # type: ignore[attr-defined]
    except (TypeError, KeyError):
        turns = [{"role": None, "content": None}]
    if not all(isinstance(x, str) for turn in turns for x in turn.values()):
        raise TableError(
            f"conversation {value!r:.80} is not a list of turns. Give a list of "
            '{"role": ..., "content": ...} with texts, or one text.'
        )
    return turns

"""Reading a rubric file, and checking its levels and schema."""

from collections.abc import Mapping
import difflib
import json
from pathlib import Path
import tomllib
from typing import Any

from reply_resolution.errors import RubricError
from reply_resolution.judge.prepare import Preparation

_KEYS = (
    *("name", "wording", "wording_file", "levels", "cut", "role", "schema"),
    *("fields", "preparation"),
)


def read_rubric_file(path: Path) -> dict[str, Any]:
    """The arguments of `Rubric` that a file gives: `.txt`, `.md` or `.toml`.

    Raises:
        RubricError: The file cannot be read, has an unknown key, or no wording.
    """
    suffix = path.suffix.lower()
    if suffix in (".txt", ".md", ""):
        return {"wording": _text(path)}
    if suffix != ".toml":
        raise RubricError(
            f"rubric file {path} ends in {suffix!r}. Give a text file (.txt, the "
            "wording alone) or a .toml file."
        )
    try:
        data = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise RubricError(f"rubric file {path} is not valid TOML: {error}.") from error
    for key in data:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise RubricError(
                f"rubric file {path} sets {key!r}, which a rubric does not have; it "
                f"may set {', '.join(_KEYS)}.{hint}"
            )
    if ("wording" in data) == ("wording_file" in data):
        raise RubricError(
            f"rubric file {path} must give either `wording` (text) or `wording_file` "
            "(a text file beside it), and only one of them."
        )
    if "wording_file" in data:
        data["wording"] = _text(path.parent / str(data.pop("wording_file")))
    else:
        data["wording"] = str(data["wording"]).rstrip("\n")
    if "schema" in data:  # a TOML table keeps the order its keys are written in
        schema = data.pop("schema")
        data["schema_json"] = schema if isinstance(schema, str) else json.dumps(schema)
    if "preparation" in data:
        try:
            data["preparation"] = Preparation(**data["preparation"])
        except TypeError as error:
            raise RubricError(
                f"preparation in {path} is not usable: {error}. It may set "
                f"{', '.join(Preparation.__dataclass_fields__)}."
            ) from error
    return data


def _text(path: Path) -> str:
    """A text file without what editors add: byte order mark, CR, last line ends."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RubricError(
            f"rubric file {path} cannot be read: {error.strerror}."
        ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RubricError(
            f"rubric file {path} is not UTF-8 text (byte {error.start}). Save it as "
            "UTF-8."
        ) from error
    return text.replace("\r\n", "\n").rstrip("\n")


def check_levels(levels: object, name: str) -> tuple[tuple[int, str], ...]:
    """(score, meaning) for 5 down to 1, from pairs or a mapping of any order."""
    pairs = levels.items() if isinstance(levels, Mapping) else levels
    try:
        found = {int(score): text for score, text in pairs}  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        found = {}
    if sorted(found) != [1, 2, 3, 4, 5] or not all(
        isinstance(text, str) and text.strip() for text in found.values()
    ):
        raise RubricError(
            f"rubric {name!r} must describe each score 1 to 5 in words; got levels "
            f"{levels!r}."
        )
    return tuple((score, found[score]) for score in (5, 4, 3, 2, 1))


def check_schema(text: str, name: str) -> dict[str, Any]:
    """The schema, order kept; refused where a verdict cannot fit."""
    try:
        schema = json.loads(text)
    except (TypeError, ValueError) as error:
        raise RubricError(f"the schema of rubric {name!r} is not JSON: {error}.") from (
            error
        )
    wrong = _complaint(schema)
    if wrong:
        raise RubricError(
            f"the schema of rubric {name!r} {wrong}. A verdict is an object with an "
            "integer `score` of 1 to 5 and a text `reason`."
        )
    return dict(schema)


def _complaint(schema: Any) -> str:  # noqa: ANN401
    """The first thing that is wrong with a schema; "" if nothing is."""
    fields: Any = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict) or schema.get("type") != "object":
        return "must describe an object with these two properties"
    for key in ("score", "reason"):
        if not isinstance(fields.get(key), dict):
            return f"lacks {key!r}"
    if extra := sorted(set(fields) - {"score", "reason"}):
        return (
            f"has fields a verdict has no column for: {', '.join(extra)}; ask for more "
            "in the reason"
        )
    score = fields["score"]
    bounds = score.get("enum") or [score.get("minimum"), score.get("maximum")]
    if score.get("type") != "integer" or bounds not in ([1, 5], [1, 2, 3, 4, 5]):
        return (
            f"has the score {json.dumps(score)}; it must be an integer bound to 1..5 "
            '("minimum": 1, "maximum": 5, or an enum)'
        )
    if fields["reason"].get("type") != "string":
        return "must have a string as `reason`"
    if sorted(schema.get("required", ())) != ["reason", "score"]:
        return "must require both score and reason"
    if schema.get("additionalProperties") is not False:
        return (
            "must set additionalProperties to false (strict structured output needs it)"
        )
    return ""

"""Checks of a rubric's parts: each refuses what a verdict could not keep to."""

from collections.abc import Mapping
import json

from reply_resolution.errors import RubricError

#: The row's fields a judge may see, in the order they are sent. Nothing else of a
#: row (arm, label, id, any other column) leaves the machine.
FIELDS = ("request", "context", "conversation", "reply")
# An encoder of our own: json.dumps would build one per call.
ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


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


def check_fields(fields: object, name: str) -> tuple[str, ...]:
    """The fields to send; request and reply must be among them."""
    chosen = tuple(fields) if isinstance(fields, list | tuple) else ()
    known = set(chosen) <= set(FIELDS) and len(set(chosen)) == len(chosen)
    if not known or not {"request", "reply"} <= set(chosen):
        raise RubricError(
            f"fields {fields!r} of rubric {name!r} are not usable. Choose from "
            f"{', '.join(FIELDS)}, each once; request and reply are needed."
        )
    return chosen


def check_schema(text: str, name: str) -> str:
    """The schema as compact JSON, order kept; refused where a verdict cannot fit."""
    try:
        schema = json.loads(text)
    except (TypeError, ValueError) as error:
        raise RubricError(f"the schema of rubric {name!r} is not JSON: {error}.") from (
            error
        )
    wanted = "an object with an integer `score` of 1 to 5 and a text `reason`"
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or schema.get("type") != "object":
        raise RubricError(f"the schema of rubric {name!r} must describe {wanted}.")
    for key in ("score", "reason"):
        if not isinstance(properties.get(key), dict):
            raise RubricError(
                f"the schema of rubric {name!r} lacks {key!r}; a verdict is {wanted}. "
                + (
                    "The reason is what lets one read why a score moved."
                    if key == "reason"
                    else ""
                )
            )
    if extra := sorted(set(properties) - {"score", "reason"}):
        raise RubricError(
            f"the schema of rubric {name!r} has fields a verdict has no column for: "
            f"{', '.join(extra)}. A verdict is {wanted}; ask for more in the reason."
        )
    score = properties["score"]
    bounds = score.get("enum") or [score.get("minimum"), score.get("maximum")]
    if score.get("type") != "integer" or bounds not in ([1, 5], [1, 2, 3, 4, 5]):
        raise RubricError(
            f"`score` in the schema of rubric {name!r} is {ENCODE(score)}; it must be "
            'an integer bound to 1..5 ("minimum": 1, "maximum": 5, or an enum).'
        )
    if properties["reason"].get("type") != "string":
        raise RubricError(
            f"`reason` in the schema of rubric {name!r} must be a string."
        )
    if sorted(schema.get("required", ())) != ["reason", "score"]:
        raise RubricError(
            f"the schema of rubric {name!r} must require both score and reason."
        )
    if schema.get("additionalProperties") is not False:
        raise RubricError(
            f"the schema of rubric {name!r} must set additionalProperties to false "
            "(strict structured output needs it)."
        )
    return ENCODE(schema)

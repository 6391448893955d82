"""What is stripped, masked or cut from a row before it is sent; off by default.

The table keeps the original. The options are part of the rubric's template, and so of
the metric version and of the judge id.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
import re
from typing import Any

from reply_resolution.errors import RubricError

_SMALLEST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What is done to a row before it is sent.

    Attributes:
        strip_html: Markup becomes plain text (links keep their address, images their
            alternative text). A text without HTML tags stays as it is.
        strip_quotes: Signatures and quoted mail history are removed; quotes that
            somebody answered line by line stay.
        mask: E-mail addresses, phone numbers, card numbers and IBANs are replaced by
            `[email 1]`, `[phone 1]`, ...; the same address has the same mask in the
            whole row. Needs the extra `mask`.
        phone_region: Country (such as "US") whose national phone numbers are masked
            too; without it only those that start with + or stand after a word such
            as "phone" are recognised.
        max_chars: Most characters (code points) of a row that are sent, over all its
            fields, 500 or more; None is no limit. Cut are the oldest turns of the
            conversation, then the end of the context, then the middle of the request
            and of the reply; each cut is said in the verdict's `status_detail`.
    """

    strip_html: bool = False
    strip_quotes: bool = False
    mask: bool = False
    phone_region: str | None = None
    max_chars: int | None = None

    def __post_init__(self) -> None:
        for name in ("strip_html", "strip_quotes", "mask"):
            if not isinstance(getattr(self, name), bool):
                raise RubricError(
                    f"preparation {name} {getattr(self, name)!r} is not true or false."
                )
        region, limit = self.phone_region, self.max_chars
        if region is not None and not re.fullmatch("[A-Z]{2}", str(region)):
            raise RubricError(
                f"preparation phone_region {region!r} is not a country of two capital "
                "letters, such as US or DE."
            )
        if region is not None and not self.mask:
            raise RubricError(
                "preparation phone_region does nothing without mask = true; set both."
            )
        if limit is not None and (type(limit) is not int or limit < _SMALLEST):
            raise RubricError(
                f"preparation max_chars {limit!r} is not a whole number of {_SMALLEST} "
                "or more; less would leave nothing to judge."
            )

    def __bool__(self) -> bool:
        """Whether anything is done at all; asked for every row, so kept cheap."""
        limited = self.max_chars is not None
        return self.strip_html or self.strip_quotes or self.mask or limited

    def document(self) -> dict[str, Any]:
        """The options that are on, for the hash; empty when nothing is done."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: x for name, x in options.items() if x not in (False, None)}

    def apply(self, values: Mapping[str, object]) -> tuple[dict[str, object], str]:
        """Prepare the fields of one row.

        Args:
            values: Field -> text, turns of a conversation, or None.

        Returns:
            The fields as sent, and what was cut, for `status_detail` ("" if nothing).

        Raises:
            RubricError: Masking is asked for and its extra is not installed.
        """
        from reply_resolution.judge import cleaning

        row = dict(values)
        steps: list[Callable[[str], str]] = []
        if self.strip_html:
            steps.append(cleaning.html_to_text)
        if self.strip_quotes:
            steps.append(cleaning.strip_quotes)
        if self.mask:
            # One per row: the same address gets the same mask in every field.
            steps.append(cleaning.Masker(self.phone_region).mask)
        for step in steps:
            row = {name: _each_text(value, step) for name, value in row.items()}
        if self.max_chars is None:
            return row, ""
        return _cut(row, self.max_chars)


def _each_text(value: object, step: Callable[[str], str]) -> object:
    """Apply a step to a text, or to the content of each turn."""
    if isinstance(value, str):
        return step(value)
    try:
        return [
            {**turn, "content": step(turn["content"])}
            if isinstance(turn.get("content"), str)
            else turn
            for turn in value  # type: ignore[attr-defined]
        ]
    except (AttributeError, TypeError):
        return value  # not a conversation: refused where the message is built


def _length(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, list):
        return 0
    return sum(len(str(turn.get("content") or "")) for turn in value)


def _cut(row: dict[str, object], limit: int) -> tuple[dict[str, object], str]:
    """Cut a row down to a limit, what matters least first.

    Conversation, context and request keep a fifth of the limit each (or all they have,
    if it is less), so that one giant field cannot push out the others.
    """
    floor = limit // 5
    said = []
    for name in ("conversation", "context", "request", "reply"):
        value = row.get(name)
        excess = sum(map(_length, row.values())) - limit
        if excess <= 0:
            break
        kept = max(_length(value) - excess, 0 if name == "reply" else floor)
        if kept >= _length(value):
            continue
        if isinstance(value, list):
            dropped = 0
            while _length(value[dropped:]) > kept:
                dropped += 1
            row[name] = value[dropped:]
            said.append(f"{dropped} oldest turn{'s' if dropped != 1 else ''}")
        else:
            row[name], missing = _shorten(str(value), kept, name)
            said.append(f"{missing} characters of {name}")
    return row, "cut: " + ", ".join(said) if said else ""


def _shorten(text: str, length: int, name: str) -> tuple[str, int]:
    """A text of at most `length` characters with a mark where some are missing."""

    def mark(missing: int) -> str:
        return f" [... {missing} characters left out ...] "

    room = max(length - len(mark(len(text))), 0)
    missing = len(text) - room
    if name == "conversation":  # text: the oldest is at its start
        return mark(missing) + text[len(text) - room :], missing
    if name == "context":
        return text[:room] + mark(missing), missing
    head = (room + 1) // 2  # what was asked stands first, how it ends last
    return text[:head] + mark(missing) + text[len(text) - (room - head) :], missing

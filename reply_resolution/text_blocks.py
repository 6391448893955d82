"""Texts of users and models under headings, escaped, for widgets and reports."""

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from reply_resolution.display import element

#: More than this of one text is not sent to a browser; it would stall.
LONGEST = 50_000
_HEAD = "font-weight:600;margin:0"
_BODY = (
    "white-space:pre-wrap;overflow-wrap:anywhere;max-height:{height};overflow:auto;"
    "border-left:3px solid #998ec3;padding:2px 10px;margin:2px 0 10px;line-height:1.45"
)


def turns_text(conversation: object) -> str:
    """Earlier turns as text, one paragraph each; text stays as it is, null is ""."""
    if conversation is None or isinstance(conversation, str):
        return conversation or ""
    return "\n\n".join(
        f"{turn.get('role') or '?'}: {turn.get('content') or ''}"
        for turn in conversation  # type: ignore[attr-defined]
    )


def cut(text: str, limit: int = LONGEST) -> str:
    """The text, or its beginning with how much was left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n… ({len(text) - limit:,} more characters)"


def heading(text: str) -> ET.Element:
    """A heading inside a widget, smaller than the notebook's own."""
    return element("p", text, style=_HEAD)


def block(name: str, text: str, *, height: str = "24em") -> list[ET.Element]:
    """A heading and a text as it was written, in a box that scrolls."""
    style = _BODY.format(height=height)
    # tabindex: a box that scrolls must be reachable by keyboard
    return [heading(name), element("div", cut(text), style=style, tabindex="0")]


def blocks(parts: Iterable[tuple[str, str]], *, height: str = "24em") -> ET.Element:
    """Named texts below each other; empty ones are left out."""
    node = element("div")
    for name, text in parts:
        if text:
            node.extend(block(name, text, height=height))
    return node

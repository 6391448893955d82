"""Changes of form that leave what a reply resolves as it is, one text at a time."""

from functools import cache
from importlib import resources
import json
import random
import re

#: How many times as long a padded twin aims to be.
TARGET = 2.0

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'“«„(¡¿]*[A-ZÀ-ÖØ-Þ0-9])|(?<=[。！？])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Za-z]|e\.g|i\.e|etc|vs|approx|Mr|Mrs|Ms|Dr|St|Nr|No|bzw|z\.\s?B|ca|"
    r"usw|Sr|Sra|Ud|p\.\s?ej|av|env|sig|dott|ecc)|\d)\.$"
)
_MARKUP = re.compile(r"^\s*(?:[-*•+]\s|\d+[.)]\s|#{1,6}\s|\||>|```)", re.MULTILINE)
# Paths such as "Settings > Team", and numbers.
_KEY_FACT = re.compile(
    r"\b[A-Z][\w-]*(?: (?:>|→) [A-Z][\w-]*(?: [a-z]{4,})?)+\b"
    r"|\b\d[\d.,:]*\d\b|\b\d+\b"
)


@cache
def _filler() -> dict[str, dict[str, list[str]]]:
    text = resources.files("reply_resolution.judge").joinpath("filler.json")
    loaded: dict[str, dict[str, list[str]]] = json.loads(text.read_text("utf-8"))
    return loaded


def reply_language(given: object, text: str) -> str | None:
    """The code of the reply's language; None where it is not known."""
    if given:
        name = str(given).strip().casefold()
        short = re.split(r"[-_ (]", name)[0]
        for code, filler in _filler().items():
            if name in filler["names"] or short in filler["names"]:
                return code
        return name
    if re.search(r"[\u3040-\u30ff]", text):
        return "ja"
    words = re.findall(r"[^\W\d_]+", text.casefold())
    hits = {
        code: sum(word in filler["words"] for word in words)
        for code, filler in _filler().items()
    }
    best, second = sorted(hits, key=lambda c: -hits[c])[:2]
    clear = hits[best] >= 3 and hits[best] >= 1.5 * hits[second]
    return best if clear else None


def twin(
    kind: str, text: str, language: str | None, chance: random.Random
) -> tuple[str | None, str]:
    """The twin of one kind, or None and why there is none."""
    if not text:
        return None, "empty reply"
    if kind == "bulleted":
        return _bulleted(text)
    if kind == "plain":
        return _plain(text)
    if language is None:
        return None, "language not known"
    filler = _filler().get(language)
    if filler is None:
        return None, f"no sentences of ours in language {language!r}"
    if kind == "padded":
        return _padded(text, filler, chance, "" if language == "ja" else " ")
    first, last = (
        chance.choice(filler["praise_open"]),
        chance.choice(filler["praise_close"]),
    )
    return f"{first}\n\n{text}\n\n{last}", ""


def _padded(
    text: str, filler: dict[str, list[str]], chance: random.Random, space: str
) -> tuple[str | None, str]:
    middle = chance.sample(filler["middle"], len(filler["middle"]))
    before, after = [chance.choice(filler["open"])], [chance.choice(filler["close"])]
    between: list[str] = []
    size = len(text) + len(before[0]) + len(after[0])
    while middle and size < TARGET * len(text):
        between.append(middle.pop())
        size += len(between[-1])
    if size < 1.5 * len(text):
        return None, "too long for the sentences we have"
    pieces = _pieces(text)
    # Spread evenly over the places between the reply's own sentences; what ends in a
    # colon stays next to what it announces.
    places = [
        i for i, (piece, _) in enumerate(pieces[:-1]) if not piece.endswith((":", "："))
    ] or [len(pieces) - 1]
    added: dict[int, list[str]] = {}
    for i, sentence in enumerate(between):
        added.setdefault(places[i * len(places) // len(between)], []).append(sentence)
    out = before[0] + ("\n\n" if _MARKUP.match(text) else space)
    for i, (piece, gap) in enumerate(pieces):
        here = space.join(added.get(i, []))
        out += piece
        if here:
            out += f"\n\n{here}\n\n" if "\n" in gap else f"{space}{here}{space}"
        elif i < len(pieces) - 1:
            out += gap
    return f"{out.rstrip()}\n\n{after[0]}", ""


def _pieces(text: str) -> list[tuple[str, str]]:
    """The reply in pieces that may be parted, each with the gap behind it."""
    if "```" in text:
        return [(text, "\n\n")]
    pieces: list[tuple[str, str]] = []
    blocks = re.split(r"(\n\s*\n)", text)
    for block, gap in zip(blocks[::2], [*blocks[1::2], "\n\n"], strict=True):
        # A list or heading and what follows it stay in one piece.
        parts = [block] if _MARKUP.search(block) or "\n" in block else _sentences(block)
        space = " " if re.search(r"\s", block) else ""
        pieces += [(part, space) for part in parts[:-1]] + [(parts[-1], gap)]
    return pieces


def _sentences(text: str) -> list[str]:
    parts: list[str] = []
    for part in _SENTENCE.split(text):
        if parts and _ABBREVIATION.search(parts[-1]):
            parts[-1] += " " + part
        elif part:
            parts.append(part)
    return parts


def _bulleted(text: str) -> tuple[str | None, str]:
    if _MARKUP.search(text) or "**" in text:
        return None, "already formatted"
    sentences = [s for line in text.splitlines() for s in _sentences(line.strip())]
    if len(sentences) < 2:
        return None, "a single sentence"
    return "\n".join(
        "- " + _KEY_FACT.sub(lambda m: f"**{m.group()}**", s) for s in sentences
    ), ""


def _plain(text: str) -> tuple[str | None, str]:
    if "```" in text or re.search(r"^\s*\|", text, re.MULTILINE):
        return None, "a table or code, which has no plain form"
    plain = re.sub(r"\*\*(.+?)\*\*", r"\1", text, flags=re.DOTALL)
    plain = re.sub(r"^\s*(?:#{1,6}\s+|[-*•+]\s+)", "", plain, flags=re.MULTILINE)
    if plain == text:
        return None, "not formatted"
    return plain, ""

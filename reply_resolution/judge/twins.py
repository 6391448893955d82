"""Twins: replies made longer, tidier or boastful, without resolving anything more.

The rubric says that length, formatting and tone must not count. A judge that scores a
twin unlike its original breaks it, and nothing but the change of form can be the cause.
"""

from collections import Counter
from functools import cache
from importlib import resources
import json
import random
import re
from typing import Any

import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.tables.replies import empty_expr, length_expr

# A "condensed" twin needs a person who knows what matters in the reply; a table of
# twins of your own may hold any kind.
_KINDS = ("padded", "bulleted", "praised")
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


def make_twins(
    replies: pl.DataFrame, *, n: int | None = None, seed: int = 0
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Make three twins of each of a sample of replies.

    - *padded*: about twice as long. Neutral sentences of our own, in the reply's
      language, stand before, between and after its own; they state no fact, give no
      advice and refer nobody anywhere. Every word of the reply stays, in order.
    - *bulleted*: its sentences as bullets, paths and numbers in bold.
    - *praised*: praise of the question before it, praise of the answer behind it.

    Args:
        replies: `request_id`, `reply`, and where there are `arm` and `language`
            (English name or code; guessed from common words where there is none).
        n: Replies drawn at random; None takes all.
        seed: Decides the draw and which sentences are used. The same seed and reply
            give the same twin, whatever else is in the table.

    Returns:
        One row per twin: `request_id`, `arm` (where the replies have one), `kind`,
        `language` (code), `reply`. And notes: what was guessed; how many twins could
        not be made, and why.

    >>> replies = pl.DataFrame({"request_id": ["r1"], "language": ["English"],
    ...     "reply": ["Open Settings > Team. The invitation is valid for 7 days."]})
    >>> twins, notes = make_twins(replies)
    >>> print(twins.filter(kind="bulleted")["reply"][0])
    - Open **Settings > Team**.
    - The invitation is valid for **7** days.
    """
    keys = [c for c in ("request_id", "arm") if c in replies.columns]
    # The reply's own seed: a larger sample leaves earlier twins as they were.
    seeds = [f"{seed}|{list(key)}" for key in replies.select(keys).iter_rows()]
    order = sorted(range(len(seeds)), key=lambda i: random.Random(seeds[i]).random())
    made: list[dict[str, Any]] = []
    skipped: Counter[str] = Counter()
    guessed = 0
    for i in sorted(order[:n]):
        row = replies.row(i, named=True)
        text = (row["reply"] or "").strip()
        language = reply_language(row.get("language"), text)
        guessed += not row.get("language") and language is not None
        for kind in _KINDS:
            try:
                chance = random.Random(f"{seeds[i]}|{kind}")
                twin = _twin(kind, text, language, chance)
            except _NoTwinError as reason:
                skipped[str(reason)] += 1
            else:
                new = {"kind": kind, "language": language or "", "reply": twin}
                made.append(row | new)
    notes = []
    if guessed:
        notes.append(
            f"The language of {guessed} replies was guessed from common words."
        )
    if skipped:
        reasons = ", ".join(f"{why}: {count}" for why, count in skipped.items())
        notes.append(f"{skipped.total()} twins could not be made ({reasons}).")
    columns = (*keys, "kind", "language", "reply")
    return pl.DataFrame(made, schema=dict.fromkeys(columns, pl.String)), tuple(notes)


def judge_twins(
    replies: pl.DataFrame,
    twins: pl.DataFrame,
    **options: Any,  # noqa: ANN401
) -> pl.DataFrame:
    """Judge twins and their originals blind, within the budget, and pair them.

    The kind goes to `judge` as the column `arm` ("original" for the reply itself): it
    is never sent, and a budget that runs out leaves whole pairs, as in any paired
    design. Where the replies have an arm of their own it joins the `request_id`.

    Args:
        replies: The table the twins were made of.
        twins: From `make_twins`, or your own.
        **options: For `judge`: rubric, model, cache, limits, ...

    Returns:
        Pairs, as from `twin_pairs`.
    """
    from reply_resolution.judge.judge import judge_replies

    twins, keys = _checked(twins, replies)
    asked = [c for c in ("request", "context", "conversation") if c in replies.columns]
    originals = replies.with_columns(pl.col(keys).cast(pl.String)).join(
        twins, on=keys, how="semi"
    )
    made = twins.join(originals.select(*keys, *asked), on=keys, how="left")
    columns = [
        pl.concat_str(keys, separator="~").alias("request_id"),
        pl.col("kind").alias("arm"),
        *asked,
        "reply",
    ]
    first = originals.with_columns(kind=pl.lit("original")).select(columns)
    second = made.select(columns)
    verdicts = judge_replies(pl.concat([first, second]), **options).verdicts
    return twin_pairs(
        first.drop("arm"),
        second.rename({"arm": "kind"}),
        verdicts.select("request_id", "score", kind="arm"),
    )


def twin_pairs(
    replies: pl.DataFrame,
    twins: pl.DataFrame,
    verdicts: pl.DataFrame,
    originals: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Twins beside their originals, with scores and lengths.

    Args:
        replies: The replies the twins were made of.
        twins: `request_id`, `kind`, `reply` (and `arm`).
        verdicts: Verdicts with `kind`; rows of kind "original" are the originals'.
        originals: Verdicts of the originals, where `verdicts` has none. Of several
            votes the last is taken: it was given beside the twins.

    Returns:
        One row per twin: the keys, `kind`, `score_original`, `score_twin` (null where
        not scored), `length_original`, `length_twin` (code points).

    Raises:
        TableError: A column is missing; a twin is empty, is there twice, or belongs to
            no reply. The message names the first one.
    """
    twins, keys = _checked(twins, replies)
    if "kind" not in verdicts.columns:
        raise TableError("verdicts on twins need a column 'kind', as the twins have.")
    beside = verdicts.filter(pl.col("kind") == "original")
    if originals is None or beside.height:
        originals = beside
    by = [k for k in keys if k in originals.columns and k in verdicts.columns]

    def scores(of: pl.DataFrame, on: list[str], name: str) -> pl.DataFrame:
        last = of.with_columns(pl.col(on).cast(pl.String))
        if "vote" in last.columns:
            last = last.sort("vote", maintain_order=True)
        last = last.unique(on, keep="last", maintain_order=True)
        return last.select(*on, pl.col("score").alias(name))

    size = pl.when(empty_expr("reply")).then(0).otherwise(length_expr("reply"))
    before = replies.select(pl.col(keys).cast(pl.String), length_original=size)
    return (
        twins.with_columns(length_twin=size)
        .join(scores(originals, by, "score_original"), on=by, how="left")
        .join(scores(verdicts, [*by, "kind"], "score_twin"), [*by, "kind"], how="left")
        .join(before, on=keys, how="left")
        .select(*keys, "kind", "^score_.*$", "length_original", "length_twin")
    )


def _checked(
    twins: pl.DataFrame, replies: pl.DataFrame
) -> tuple[pl.DataFrame, list[str]]:
    """Keys, `kind` and `reply` of a table of twins, and its keys."""
    for column in ("request_id", "kind", "reply"):
        if column not in twins.columns:
            raise TableError(
                f"a table of twins needs a column {column!r}; it has "
                f"{', '.join(twins.columns)}."
            )
    both = "arm" in twins.columns and "arm" in replies.columns
    keys = ["request_id", "arm"] if both else ["request_id"]
    frame = twins.select(pl.col(*keys, "kind", "reply").cast(pl.String))
    known = replies.select(pl.col(keys).cast(pl.String))
    checks = {
        "has no text": frame.filter(empty_expr("reply")),
        "is there twice": frame.filter(pl.struct(*keys, "kind").is_duplicated()),
        "belongs to no reply in the table of replies": frame.join(
            known, on=keys, how="anti"
        ),
        "is called 'original', which is the name of the reply itself": frame.filter(
            pl.col("kind") == "original"
        ),
    }
    for problem, rows in checks.items():
        if rows.height:
            first = rows.row(0, named=True)
            raise TableError(
                f"twin {first['request_id']!r} of kind {first['kind']!r} {problem} "
                f"({rows.height} such rows). Correct the table of twins."
            )
    return frame, keys


class _NoTwinError(Exception):
    """Why a twin cannot be made."""


@cache
def filler() -> dict[str, dict[str, list[str]]]:
    """Our neutral sentences by language (code) and place, with what names it."""
    text = resources.files("reply_resolution.judge").joinpath("filler.json")
    loaded: dict[str, dict[str, list[str]]] = json.loads(text.read_text("utf-8"))
    return loaded


def reply_language(given: object, text: str) -> str | None:
    """The code of the reply's language; None where it is not known."""
    if given:
        name = str(given).strip().casefold()
        short = re.split(r"[-_ (]", name)[0]
        for code, known in filler().items():
            if name in known["names"] or short in known["names"]:
                return code
        return name
    if re.search(r"[\u3040-\u30ff]", text):
        return "ja"
    words = re.findall(r"[^\W\d_]+", text.casefold())
    hits = {
        code: sum(word in known["words"] for word in words)
        for code, known in filler().items()
    }
    best, second = sorted(hits, key=lambda c: -hits[c])[:2]
    clear = hits[best] >= 3 and hits[best] >= 1.5 * hits[second]
    return best if clear else None


def _twin(kind: str, text: str, language: str | None, chance: random.Random) -> str:
    """The twin of one kind; raises _NoTwinError."""
    if not text:
        raise _NoTwinError("empty reply")
    if kind == "bulleted":
        return _bulleted(text)
    if language is None:
        raise _NoTwinError("language not known")
    ours = filler().get(language)
    if ours is None:
        raise _NoTwinError(f"no sentences of ours in language {language!r}")
    if kind == "padded":
        return _padded(text, ours, chance, "" if language == "ja" else " ")
    first = chance.choice(ours["praise_open"])
    last = chance.choice(ours["praise_close"])
    return f"{first}\n\n{text}\n\n{last}"


def _bulleted(text: str) -> str:
    if _MARKUP.search(text) or "**" in text:
        raise _NoTwinError("already formatted")
    sentences = [s for line in text.splitlines() for s in _sentences(line.strip())]
    if len(sentences) < 2:
        raise _NoTwinError("a single sentence")
    bold = (_KEY_FACT.sub(lambda m: f"**{m.group()}**", s) for s in sentences)
    return "\n".join(f"- {sentence}" for sentence in bold)


def _padded(
    text: str, ours: dict[str, list[str]], chance: random.Random, space: str
) -> str:
    middle = chance.sample(ours["middle"], len(ours["middle"]))
    before, after = chance.choice(ours["open"]), chance.choice(ours["close"])
    between: list[str] = []
    size = len(text) + len(before) + len(after)
    while middle and size < TARGET * len(text):
        between.append(middle.pop())
        size += len(between[-1])
    if size < 1.5 * len(text):
        raise _NoTwinError("too long for the sentences we have")
    pieces = _pieces(text)
    # Spread evenly over the places between the reply's own sentences; what ends in a
    # colon stays next to what it announces.
    places = [
        i for i, (piece, _) in enumerate(pieces[:-1]) if not piece.endswith((":", "："))
    ] or [len(pieces) - 1]
    added: dict[int, list[str]] = {}
    for i, sentence in enumerate(between):
        added.setdefault(places[i * len(places) // len(between)], []).append(sentence)
    out = before + ("\n\n" if _MARKUP.match(text) else space)
    for i, (piece, gap) in enumerate(pieces):
        here = space.join(added.get(i, []))
        out += piece
        if here:
            out += f"\n\n{here}\n\n" if "\n" in gap else f"{space}{here}{space}"
        elif i < len(pieces) - 1:
            out += gap
    return f"{out.rstrip()}\n\n{after}"


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

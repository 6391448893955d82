"""What people label: which replies are drawn, how they are shown, in which order."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
import hashlib
import json
import math
import statistics
from typing import Any

import polars as pl

from reply_resolution.errors import LabelError
from reply_resolution.tables import listed

_BREAK_EVERY = 50


@dataclass(frozen=True, slots=True)
class Card:
    """One reply as an annotator sees it.

    Attributes:
        token: An opaque name, 12 hex digits; says nothing about the reply's origin.
        request: What the user asked.
        reply: The reply to be labelled.
        context: Facts the assistant had; "" if none.
        conversation: Earlier turns, oldest first, as (role, text).
    """

    token: str
    request: str
    reply: str
    context: str
    conversation: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The present answer to one item.

    Attributes:
        event: "label", "cannot_judge", "skip" or "undo".
        label: The label, or None.
        note: The annotator's remark; "" if none.
        seconds: Time from seeing the card to the answer; None from a spreadsheet.
    """

    event: str
    label: int | None
    note: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Item:
    """What is to be labelled, with the identity that never reaches the screen.

    Attributes:
        request_id: The reply's request.
        arm: Its arm, or None.
        repeat: 0, or 1 for a hidden repeat.
        weight: One over the chance with which it was drawn; 1 or more.
        text_hash: Of all that the card shows; 12 hex digits.
        card: What the annotator sees.
    """

    request_id: str
    arm: str | None
    repeat: int
    weight: float
    text_hash: str
    card: Card

    @property
    def key(self) -> tuple[str, str | None, int]:
        """What the item is known by: request, arm and repeat."""
        return self.request_id, self.arm, self.repeat

    def line(self, answer: Answer) -> dict[str, Any]:
        """What the file keeps about an answer to this item."""
        return {
            "event": answer.event,
            "request_id": self.request_id,
            "arm": self.arm,
            "repeat": self.repeat,
            "label": answer.label,
            "note": answer.note,
            "seconds": answer.seconds,
            "weight": self.weight,
            "text": self.text_hash,
        }


def progress_words(answered: int, total: int, answers: Iterable[Answer]) -> str:
    """How far a session is, how long the rest may take, and when to rest.

    >>> progress_words(3, 9, [Answer("label", 4, "", 20.0)] * 3)
    '3 / 9, about 2 min left'
    """
    text = f"{answered} / {total}"
    if answered == total:
        return f"{text}, done"
    seconds = [a.seconds for a in answers if a.seconds is not None]
    if len(seconds) >= 3:
        minutes = statistics.median(seconds) * (total - answered) / 60
        text += f", about {max(1, round(minutes))} min left"
    if answered and answered % _BREAK_EVERY == 0:
        text += ". A good moment for a break."
    return text


def summarise(
    answers: Mapping[tuple[str, str | None, int], Answer], *, done: bool
) -> dict[str, Any]:
    """Counts over answers; see `LabelSession.summary`."""
    pairs = [
        (answers[rid, arm, 0].label, again.label)
        for (rid, arm, repeat), again in answers.items()
        if repeat and (rid, arm, 0) in answers
    ]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    same = sum(a == b for a, b in both)
    given = list(answers.values())
    return {
        "labelled": sum(a.label is not None for a in given),
        "cannot_judge": sum(a.label is None for a in given),
        "notes": sum(bool(a.note) for a in given),
        "minutes": sum(a.seconds or 0 for a in given) / 60,
        "repeats": len(both),
        "self_agreement": same / len(both) if both and done else None,
    }


def draw_for_labels(
    replies: pl.DataFrame, n: int, *, seed: int, by_score: str | None = None
) -> pl.DataFrame:
    """Draw the replies that people shall label, with their weights.

    At random within arm by default, as many from each arm (both replies of a pair).
    With `by_score` as many from each score of the judge within each arm, so that rare
    scores are seen; then the weights differ, and every estimate must use them.

    Args:
        replies: One row per reply.
        n: How many to draw, 1 or more; all if there are fewer.
        seed: The same seed draws the same replies, and a larger `n` keeps them.
        by_score: Column of the judge's score to stratify by (null is a stratum).

    Returns:
        The drawn rows in random order with `weight`: one over the chance with which
        a reply was drawn, 1 or more.

    Raises:
        LabelError: `n` is below 1, or the column is not there.
    """
    from reply_resolution.judge.sampling import draw

    if n < 1:
        raise LabelError(f"n is {n}: draw at least one reply to label.")
    if by_score is None:
        if n >= replies.height:
            return replies.with_columns(pl.lit(1.0).alias("weight"))
        drawn = draw(replies, sample=n, seed=seed)
        chosen = pl.Series(drawn.order)
        return replies[chosen].with_columns(
            pl.Series("weight", 1.0 / drawn.probability[drawn.order])
        )
    if by_score not in replies.columns:
        raise LabelError(
            f"there is no column {by_score!r} to stratify by. The columns are "
            f"{listed(replies.columns)}; join the verdicts first."
        )
    strata = [c for c in ("arm", by_score) if c in replies.columns]
    ranks = [_digest(seed, *_identity(row)) for row in replies.iter_rows(named=True)]
    frame = replies.with_columns(pl.Series("__rank__", ranks)).sort("__rank__")
    frame = frame.with_columns(
        pl.int_range(pl.len()).over(strata).alias("__place__"),
        pl.len().over(strata).alias("__size__"),
    ).sort("__place__", "__rank__")
    taken = frame.head(n)
    weight = pl.col("__size__") / pl.len().over(strata)
    return taken.with_columns(weight.alias("weight")).drop(
        "__rank__", "__place__", "__size__"
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def _identity(row: Mapping[str, Any]) -> tuple[str, str | None]:
    arm = row.get("arm")
    return str(row["request_id"]), None if arm is None else str(arm)


def read_items(items: pl.DataFrame, annotator: str, seed: int) -> list[Item]:
    """The rows as items; only their texts go onto the cards.

    Raises:
        LabelError: A column is missing, a key is repeated, or there are no rows.
    """
    missing = [c for c in ("request_id", "request", "reply") if c not in items.columns]
    if missing:
        raise LabelError(
            f"the replies to label have no column {listed(missing)}; the columns are "
            f"{listed(items.columns)}. Read them with read_replies."
        )
    out = []
    for row in items.iter_rows(named=True):
        request_id, arm = _identity(row)
        turns = row.get("conversation") or ()
        if isinstance(turns, str):
            turns = [{"role": "", "content": turns}]
        card = Card(
            token=_digest("card", seed, annotator, request_id, arm, 0)[:12],
            request=row["request"] or "",
            reply=row["reply"] or "",
            context=row.get("context") or "",
            conversation=tuple(
                (turn.get("role") or "", turn.get("content") or "") for turn in turns
            ),
        )
        text = _digest(card.request, card.reply, card.context, card.conversation)[:12]
        weight = row.get("weight")
        out.append(
            Item(request_id, arm, 0, 1.0 if weight is None else weight, text, card)
        )
    twice = [k for k, count in Counter(i.key for i in out).items() if count > 1]
    if twice:
        raise LabelError(
            f"the replies to label repeat {listed((k[:2] for k in twice), 3)}: each "
            "(request_id, arm) once."
        )
    if not out:
        raise LabelError("there are no replies to label. Draw at least one.")
    return out


def ordered(items: list[Item], repeats: float, annotator: str, seed: int) -> list[Item]:
    """The items in the annotator's own order, with the hidden repeats far behind."""
    order = sorted(items, key=lambda i: _digest("order", seed, annotator, *i.key))
    gap = min(20, max(1, len(order) // 3))
    early = order[: math.ceil(len(order) * 0.6)]
    chosen = sorted(early, key=lambda i: _digest("repeat", seed, annotator, *i.key))
    placed = [(float(place), item) for place, item in enumerate(order)]
    where = {item.key: place for place, item in enumerate(order)}
    for item in chosen[: round(repeats * len(order))]:
        first = where[item.key] + gap
        chance = int(_digest("place", seed, annotator, *item.key)[:8], 16) / 0xFFFFFFFF
        place = first + chance * max(0, len(order) - first) + 0.5
        token = _digest("card", seed, annotator, *item.key[:2], 1)[:12]
        again = replace(item, repeat=1, card=replace(item.card, token=token))
        placed.append((place, again))
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]

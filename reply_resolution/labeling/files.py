"""What people label, how it is drawn and ordered, and the file of their answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
import hashlib
import json
import math
import os
from pathlib import Path
import random
from typing import Any

import polars as pl

from reply_resolution.errors import LabelError
from reply_resolution.labeling.view import turns_text
from reply_resolution.tables.tables import listed

#: Columns of a table of labels in long form. `label` is null where a person could not
#: judge; `repeat` 0 is the label, 1 and up are hidden repeats; `weight` is one over
#: the chance with which the reply was drawn.
LABEL_SCHEMA: dict[str, Any] = {
    "request_id": pl.String,
    "arm": pl.String,
    "annotator": pl.String,
    "label": pl.Int8,
    "repeat": pl.Int32,
    "weight": pl.Float64,
    "metric_version": pl.String,
}
ANSWERS = ("label", "cannot_judge")
_EVENTS = (*ANSWERS, "skip", "undo", "note")
_FIELDS = {*LABEL_SCHEMA, "note", "seconds", "text", "rubric"}

#: A reply's request and arm (None where there are no arms).
Reply = tuple[str, str | None]
#: Request and arm; 1 for a hidden repeat, else 0.
Key = tuple[str, str | None, int]


@dataclass(frozen=True, slots=True)
class Card:
    """One reply as an annotator sees it.

    Attributes:
        token: An opaque name, 12 hex digits; says nothing about the reply's origin.
        request: What the user asked.
        reply: The reply to be labelled.
        context: Facts the assistant had; "" if none.
        conversation: Earlier turns, oldest first; "" if none.
    """

    token: str
    request: str
    reply: str
    context: str
    conversation: str

    @property
    def text_hash(self) -> str:
        """Of all that is shown; 12 hex digits."""
        return _digest(self.request, self.reply, self.context, self.conversation)


def draw_for_labels(
    replies: pl.DataFrame, n: int, *, seed: int, by_score: str | None = None
) -> pl.DataFrame:
    """Draw the replies that people shall label, with their weights.

    At random within arm by default, as many from each arm (both replies of a pair).
    With `by_score` as many from each score of the judge within each arm, so that rare
    scores are seen (from each combination of scores, where replies come in pairs);
    then the weights differ, and every estimate must use them.

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
    strata = [c for c in ("arm", by_score) if c in replies.columns]
    if by_score is not None and by_score not in strata:
        raise LabelError(
            f"there is no column {by_score!r} to stratify by. The columns are "
            f"{listed(replies.columns)}; join the verdicts first."
        )
    parts = [pl.col(c).cast(pl.String).fill_null("") for c in strata] or [pl.lit("")]
    stratum = pl.concat_str(parts, separator="|").alias("__stratum__")
    drawn = draw(replies.with_columns(stratum), sample=n, seed=seed, arm="__stratum__")
    weights = pl.Series("weight", 1.0 / drawn.probability[drawn.order])
    return replies[pl.Series(drawn.order)].with_columns(weights)


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def read_items(
    frame: pl.DataFrame, annotator: str, seed: int
) -> tuple[dict[Key, Card], dict[Reply, float]]:
    """The rows' texts as cards, and their weights."""
    missing = [c for c in ("request_id", "request", "reply") if c not in frame.columns]
    if missing:
        raise LabelError(
            f"the replies to label have no column {listed(missing)}; the columns are "
            f"{listed(frame.columns)}. Read them with read_replies."
        )
    cards: dict[Key, Card] = {}
    weights: dict[Reply, float] = {}
    for row in frame.iter_rows(named=True):
        arm = row.get("arm")
        name = (str(row["request_id"]), None if arm is None else str(arm))
        if name in weights:
            raise LabelError(
                f"the replies to label repeat {name}: each (request_id, arm) once."
            )
        weight = row.get("weight")
        weights[name] = 1.0 if weight is None else float(weight)
        cards[*name, 0] = Card(
            token=_digest(seed, annotator, *name, 0),
            request=row["request"] or "",
            reply=row["reply"] or "",
            context=row.get("context") or "",
            conversation=turns_text(row.get("conversation")),
        )
    if not cards:
        raise LabelError("there are no replies to label. Draw at least one.")
    return cards, weights


def in_order(
    cards: Mapping[Key, Card], annotator: str, seed: int, repeats: float
) -> dict[Key, Card]:
    """The cards in the annotator's own order, with the hidden repeats far behind."""
    chance = random.Random(f"{seed} {annotator}")
    order = sorted(cards, key=lambda key: (key[0], key[1] or ""))
    chance.shuffle(order)
    gap = min(20, max(1, len(order) // 3))
    early = range(math.ceil(len(order) * 0.6))
    placed: list[tuple[float, Key]] = [*enumerate(order)]
    for place in chance.sample(early, min(round(repeats * len(order)), len(early))):
        later = chance.uniform(place + gap, max(place + gap, len(order))) + 0.5
        placed.append((later, (*order[place][:2], 1)))
    out = {}
    for _, key in sorted(placed, key=lambda pair: pair[0]):
        card = cards[*key[:2], 0]
        out[key] = repeated(card) if key[2] else card
    return out


def repeated(card: Card) -> Card:
    """The same reply a second time, under a token of its own."""
    return replace(card, token=_digest("again", card.token))


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add one JSON line to a file and wait until it is on the disk.

    Raises:
        LabelError: It could not be written.
    """
    data = (json.dumps(record, ensure_ascii=False) + "\n").encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            if file.tell():  # a line that a crash cut short ends here
                file.seek(-1, os.SEEK_END)
                data = data if file.read(1) == b"\n" else b"\n" + data
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LabelError(
            f"labels cannot be saved to {path}: {error.strerror}. Give a file in a "
            "folder that can be written."
        ) from error


def read_events(path: str | Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a file of labels, and how many were cut short by a crash.

    Raises:
        LabelError: The file cannot be read, or its lines are something else.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise LabelError(f"{path} cannot be read: {error.strerror}.") from error
    events: list[dict[str, Any]] = []
    cut = 0
    for line in filter(str.strip, text.split("\n")):
        try:
            event = json.loads(line)
        except ValueError:
            cut += 1
            continue
        known = isinstance(event, dict) and event.get("event") in _EVENTS
        if not known or not event.keys() >= _FIELDS:
            raise LabelError(
                f"{Path(path).name} is not a file of labels: a line says "
                f"{line[:60]!r}. Give another file name for this session."
            )
        events.append(event)
    return events, cut


def labels_of_events(events: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """The labels that hold, with the columns of `LABEL_SCHEMA`.

    The last line about an item holds; what was undone or skipped is left out.
    """
    last = {
        (e["request_id"], e["arm"], e["annotator"], e["repeat"]): e
        for e in events
        if e["event"] != "note"
    }
    kept = [
        {name: e[name] for name in LABEL_SCHEMA}
        for e in last.values()
        if e["event"] in ANSWERS
    ]
    return pl.DataFrame(kept, schema=LABEL_SCHEMA)

"""Labelling replies by people: blind, saved with every key, resumed after a crash.

`LabelSession` is a plain state machine over a file of JSON lines; the widget, the
terminal and the spreadsheet (`view`) only drive it. What an annotator is
shown is a `Card`: texts and an opaque token, never the arm, the id or a score.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
import math
from pathlib import Path
import statistics
import time
from typing import TYPE_CHECKING, Any
import uuid

import polars as pl

from reply_resolution.errors import LabelError
from reply_resolution.labeling import view
from reply_resolution.labeling.files import (
    ANSWERS,
    Card,
    Key,
    Reply,
    append_line,
    draw_for_labels,
    in_order,
    labels_of_events,
    read_events,
    read_items,
    repeated,
)

if TYPE_CHECKING:
    from reply_resolution.judge.rubric import Rubric

__all__ = ["LabelSession", "draw_for_labels"]

#: A key within this many seconds of the last key, or of a new card, is ignored: a key
#: held down must not rate one reply after the other.
GUARD_SECONDS = 0.25
_BREAK_EVERY = 50


@dataclass(eq=False, repr=False)
class LabelSession:
    """One annotator's session: what is shown next, what was answered, what is saved.

    Every answer, note, skip and undo is one line appended to the file before anything
    else happens; lines are never rewritten, and for an item the last one holds. Open
    it with `LabelSession.open`. `notes` says what going on from a file noticed.
    """

    path: Path
    annotator: str
    rubric: "Rubric"
    metric_version: str
    _cards: dict[Key, Card]
    _weights: dict[Reply, float]
    _clock: Callable[[], float]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._id = uuid.uuid4().hex[:12]
        self._pending = list(self._cards)
        self._given: dict[Key, Mapping[str, Any]] = {}  # answers and skips, latest last
        self._drafts: dict[Key, str] = {}
        self._shown = self._clock()
        self._last_key = self._last_at = -math.inf

    @classmethod
    def open(
        cls,
        path: str | Path,
        items: pl.DataFrame,
        rubric: "Rubric | None" = None,
        *,
        annotator: str,
        seed: int = 0,
        repeats: float = 0.1,
        metric_version: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> "LabelSession":
        """Start a session, or go on where the file ends.

        Args:
            path: File of JSON lines, one per annotator (its folder is made).
            items: What to label, as from `draw_for_labels`: `request_id`, `request`,
                `reply`, perhaps `arm`, `context`, `conversation`, `weight`. Other
                columns are not looked at.
            rubric: What the labels mean; the default rubric if None.
            annotator: Whose labels these are.
            seed: Of the order, which differs between annotators.
            repeats: Share of the items shown a second time unannounced, fraction 0
                to 1, for the annotator's agreement with themselves. The total in the
                progress counts them: it can tell how many they are, never which.
            metric_version: The rubric's version as in the verdicts; its hash if None.
            clock: Seconds that only grow; for tests.

        Raises:
            LabelError: The file holds labels of another rubric, or of replies whose
                text has changed since; or the items repeat a key.
        """
        from reply_resolution.judge.rubric import Rubric

        rubric, annotator = rubric or Rubric.default(), annotator.strip()
        if not annotator:
            raise LabelError("annotator is empty: say whose labels these are.")
        if not 0 <= repeats <= 1:
            raise LabelError(f"repeats is {repeats}: allowed is a fraction, 0 to 1.")
        cards, weights = read_items(items, annotator, seed)
        cards = in_order(cards, annotator, seed, repeats)
        version = metric_version or rubric.hash
        session = cls(Path(path), annotator, rubric, version, cards, weights, clock)
        if session.path.exists():
            session.notes = session._resume()
        return session

    @property
    def card(self) -> Card | None:
        """The card to answer now; None when all are answered."""
        return self._cards[self._pending[0]] if self._pending else None

    @property
    def draft(self) -> str:
        """The note on the card to answer now; "" if there is none."""
        return self._drafts.get(self._pending[0], "") if self._pending else ""

    @property
    def total(self) -> int:
        """How many cards there are, hidden repeats included."""
        return len(self._cards)

    @property
    def answered(self) -> int:
        """How many are answered (a label or "cannot judge")."""
        return self.total - len(self._pending)

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return not self._pending

    def progress(self) -> str:
        """Where the annotator is, how long the rest may take, when to take a break."""
        text = f"{self.answered} / {self.total}"
        if self.done:
            return f"{text}, done"
        seconds = [e["seconds"] for e in self.answers().values() if e["seconds"]]
        if len(seconds) >= 3:
            minutes = statistics.median(seconds) * len(self._pending) / 60
            text += f", about {max(1, round(minutes))} min left"
        if self.answered and self.answered % _BREAK_EVERY == 0:
            text += ". A good moment for a break."
        return text

    def press(self, key: str, *, at: float | None = None, held: bool = False) -> str:
        """Act on one key: a score, 0 cannot judge, u undo, s skip (asked again last).

        A reply that cannot be judged has a missing label, not a middle one.

        Keys that follow each other, or a new card, within `GUARD_SECONDS` are ignored,
        so a key held down answers once; so is anything but a single known key.

        Args:
            key: The key.
            at: When it was pressed by the keyboard's own clock, seconds. A slow
                connection spreads the repeats of a held key; that clock does not.
            held: Whether it is known to be a repeat: a browser sends what piles up
                while it waits for the kernel as one.

        Returns:
            What happened, in a few words for the annotator.
        """
        now = self._clock()
        held |= now - max(self._last_key, self._shown) < GUARD_SECONDS
        if at is not None:
            held |= 0 <= at - self._last_at < GUARD_SECONDS
            self._last_at = at
        self._last_key = now
        if held:
            return "Too fast: that key was ignored."
        key = key.strip().lower()
        if key == "u":
            return "Undone." if self.undo() else "There is nothing to undo."
        if self.done:
            return "All are answered. Thank you."
        if key == "s":
            self._act("skip")
            return "Skipped; it comes again at the end."
        if key == "0":
            self._act("cannot_judge")
            return "Saved: cannot judge."
        low, high = self.rubric.scale
        if key in map(str, range(low, high + 1)):
            self.label(int(key))
            return f"Saved: {key}."
        return f"{key!r} means nothing here: {low} to {high}, 0, u, s or n."

    def label(self, score: int) -> None:
        """Give the card a label on the rubric's scale."""
        low, high = self.rubric.scale
        if isinstance(score, bool) or score not in range(low, high + 1):
            raise LabelError(
                f"{score!r} is no label. Allowed: {low} to {high}; press 0 where it "
                "cannot be judged."
            )
        self._act("label", int(score))

    def note(self, text: str) -> None:
        """Put a note on the card to answer now; it is on the disk at once."""
        self._record("note", self._now(), note=text.strip())

    def undo(self) -> bool:
        """Take the last answer or skip back, as often as wanted; False if none."""
        if not self._given:
            return False
        self._record("undo", next(reversed(self._given)))
        self._shown = self._clock()
        return True

    def answer(self, token: str, label: int | None, note: str) -> None:
        """Answer any card by its token (None: cannot judge), as a spreadsheet does."""
        key = next(k for k, card in self._cards.items() if card.token == token)
        event = "cannot_judge" if label is None else "label"
        self._record(event, key, label=label, note=note)

    def cards(self) -> list[Card]:
        """All cards in the order in which they are shown."""
        return list(self._cards.values())

    def answers(self) -> dict[str, Mapping[str, Any]]:
        """Card's token -> the file's line of its present answer (`label`, `note`)."""
        given = ((self._cards[key].token, line) for key, line in self._given.items())
        return {token: line for token, line in given if line["event"] in ANSWERS}

    def labels(self) -> pl.DataFrame:
        """The answers so far with the columns of `LABEL_SCHEMA`, repeats included."""
        return labels_of_events(self._given.values())

    def widget(self) -> Any:  # noqa: ANN401
        """The widget to label with in JupyterLab; show it as a cell's last value."""
        return view.widget(self)

    def to_csv(self, path: str | Path) -> str:
        """Write the cards as a spreadsheet: token, texts, and a column for labels.

        Returns:
            What was written and how to fill it, in words.

        Raises:
            LabelError: The file is there and holds labels that were not read back.
        """
        return view.write_sheet(self, Path(path))

    def from_csv(self, path: str | Path) -> str:
        """Take the labels of a filled spreadsheet; all of them or none.

        Returns:
            How many were read, new and left blank, in words.

        Raises:
            LabelError: A token or label is not known; then nothing is taken.
        """
        return view.read_sheet(self, Path(path))

    def _repr_html_(self) -> str:
        return view.summary_table(self).markup

    def __repr__(self) -> str:
        return f"<LabelSession of {self.annotator!r}: {self.progress()}>"

    def _now(self) -> Key:
        if self.done:
            raise LabelError(
                "all replies of this session are answered; undo() to go back."
            )
        return self._pending[0]

    def _act(self, event: str, label: int | None = None) -> None:
        key, seconds = self._now(), round(self._clock() - self._shown, 2)
        self._record(event, key, label=label, note=self.draft, seconds=seconds)
        self._shown = self._clock()

    def _record(
        self,
        event: str,
        key: Key,
        *,
        label: int | None = None,
        note: str = "",
        seconds: float | None = None,
        time: str | None = None,
    ) -> None:
        line = {
            "event": event,
            "request_id": key[0],
            "arm": key[1],
            "annotator": self.annotator,
            "repeat": key[2],
            "label": label,
            "note": note,
            "seconds": seconds,
            "time": time or datetime.now(UTC).isoformat(timespec="seconds"),
            "weight": self._weights[key[:2]],
            "text": self._cards[key].text_hash,
            "rubric": self.rubric.hash,
            "metric_version": self.metric_version,
            "session": self._id,
            "position": self.answered + 1,
        }
        append_line(self.path, line)  # on disk first: what is shown as saved is saved
        self._apply(key, line)

    def _apply(self, key: Key, line: Mapping[str, Any]) -> None:
        event = line["event"]
        if event != "undo":  # what is taken back keeps its note
            self._drafts[key] = line["note"]
        if event == "note":
            return
        if key in self._pending:
            self._pending.remove(key)
        self._given.pop(key, None)
        if event == "undo":
            self._pending.insert(0, key)
            return
        self._given[key] = line
        if event == "skip":
            self._pending.append(key)

    def _resume(self) -> tuple[str, ...]:
        name, ours = self.path.name, self.rubric.hash
        lines, cut = read_events(self.path)
        other = [e["rubric"][:8] for e in lines if e["rubric"] != ours]
        if other:
            raise LabelError(
                f"{name} holds {len(other)} line(s) made under another rubric "
                f"({', '.join(sorted(set(other)))}); the rubric is now {ours[:8]}. "
                "Labels keep the wording they were made under: start a new file for "
                "the new one."
            )
        foreign = 0
        for line in (e for e in lines if e["annotator"] == self.annotator):
            key = (line["request_id"], line["arm"], line["repeat"])
            first = (*key[:2], 0)
            if key not in self._cards and first in self._cards:
                # A larger draw repeats other replies; an answered repeat stays one.
                self._cards[key] = repeated(self._cards[first])
                self._pending.append(key)
            if key not in self._cards:
                foreign += 1
                continue
            if line["text"] != self._cards[key].text_hash:
                raise LabelError(
                    f"the text of {key[0]!r} has changed since it was labelled in "
                    f"{name}. Label the new texts in a new file."
                )
            self._apply(key, line)
        # A larger draw holds the smaller one: a label of the smaller draw had the
        # larger one's chance, and one estimate must not weigh them differently.
        for key, old in list(self._given.items()):
            if old["event"] in ANSWERS and old["weight"] > self._weights[key[:2]]:
                kept: dict[str, Any] = {
                    k: old.get(k) for k in ("label", "note", "seconds", "time")
                }
                self._record(old["event"], key, **kept)
        notes = (
            (cut, f"Ignored as cut short: {cut} line(s) of {name}."),
            (
                foreign,
                f"{foreign} saved line(s) are about replies that are not among these; "
                "they stay in the file.",
            ),
            (self.answered, f"Going on after {self.answered} of {self.total}."),
        )
        return tuple(text for counted, text in notes if counted)

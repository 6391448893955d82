"""Labelling replies by people: blind, saved with every key, resumed after a crash.

`LabelSession` is a plain state machine over a file of JSON lines; the widget
(`labeling_view`), the terminal and the spreadsheet only drive it. What an annotator
is shown is a `Card`: texts and an opaque token, never the arm, the id or a score.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
import math
from pathlib import Path
import time
from typing import TYPE_CHECKING, Any
import uuid

import polars as pl

from reply_resolution.errors import LabelError
from reply_resolution.label_files import (
    LABEL_SCHEMA,
    AppendOnly,
    check_rubric,
    collect_labels,
    read_events,
)
from reply_resolution.label_items import (
    Answer,
    Card,
    Item,
    draw_for_labels,
    ordered,
    progress_words,
    read_items,
    summarise,
)

if TYPE_CHECKING:
    from reply_resolution.judge.rubric import Rubric

__all__ = ["Answer", "Card", "LabelSession", "collect_labels", "draw_for_labels"]

#: A key within this many seconds of the last key, or of a new card, is ignored: a key
#: held down must not rate one reply after the other.
GUARD_SECONDS = 0.25


class LabelSession:
    """One annotator's session: what is shown next, what was answered, what is saved.

    Every answer, skip and undo is one line appended to the file before the next card
    is shown; lines are never rewritten. For an item the last line holds. Open it with
    `LabelSession.open`.
    """

    def __init__(
        self,
        path: Path,
        items: Sequence[Item],
        *,
        annotator: str,
        rubric: "Rubric",
        metric_version: str,
        clock: Callable[[], float],
    ) -> None:
        self.path = path
        self.annotator = annotator
        self.rubric = rubric
        self.metric_version = metric_version
        self.notes: tuple[str, ...] = ()
        self._clock = clock
        self._id = uuid.uuid4().hex[:12]
        self._items = {item.key: item for item in items}
        self._pending = [item.key for item in items]
        self._history: list[tuple[str, str | None, int]] = []
        self._answers: dict[tuple[str, str | None, int], Answer] = {}
        self._file = AppendOnly(path)
        self._shown = clock()
        self._last_key = -math.inf
        self._last_at = -math.inf

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
                to 1, for the annotator's agreement with themselves.
            metric_version: The rubric's version as in the verdicts; its hash if None.
            clock: Seconds that only grow; for tests.

        Raises:
            LabelError: The file holds labels of another rubric, or of replies whose
                text has changed since; or the items repeat a key.
        """
        from reply_resolution.judge.rubric import Rubric

        rubric = rubric or Rubric.default()
        annotator = annotator.strip()
        if not annotator:
            raise LabelError("annotator is empty: say whose labels these are.")
        if not 0 <= repeats <= 1:
            raise LabelError(
                f"repeats is {repeats}: a fraction from 0 to 1 is allowed."
            )
        session = cls(
            Path(path),
            ordered(read_items(items, annotator, seed), repeats, annotator, seed),
            annotator=annotator,
            rubric=rubric,
            metric_version=metric_version or rubric.hash,
            clock=clock,
        )
        session._resume()
        return session

    # --- what to show -------------------------------------------------------------

    @property
    def card(self) -> Card | None:
        """The card to answer now; None when all are answered."""
        return self._items[self._pending[0]].card if self._pending else None

    @property
    def total(self) -> int:
        """How many cards there are, hidden repeats included."""
        return len(self._items)

    @property
    def answered(self) -> int:
        """How many are answered (a label or "cannot judge")."""
        return self.total - len(self._pending)

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return not self._pending

    def progress(self) -> str:
        """Where the annotator is and how long the rest may take, in words."""
        return progress_words(self.answered, self.total, self._answers.values())

    # --- what the annotator does --------------------------------------------------

    def press(self, key: str, *, note: str = "", at: float | None = None) -> str:
        """Act on one key: 1 to 5, 0 cannot judge, u undo, s skip.

        Keys that follow each other, or a new card, within `GUARD_SECONDS` are ignored,
        so a key held down answers once; so is anything but a single known key.

        Args:
            key: The key.
            note: Remark to go with a label.
            at: When it was pressed by the keyboard's own clock, seconds. A slow
                connection spreads the repeats of a held key; that clock does not.

        Returns:
            What happened, in a few words for the annotator.
        """
        now = self._clock()
        held = now - max(self._last_key, self._shown) < GUARD_SECONDS
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
            self.skip()
            return "Skipped; it comes again at the end."
        if key == "0":
            self.cannot_judge(note=note)
            return "Saved: cannot judge."
        low, high = self.rubric.scale
        if (
            len(key) == 1
            and key.isascii()
            and key.isdigit()
            and low <= int(key) <= high
        ):
            self.label(int(key), note=note)
            return f"Saved: {key}."
        return f"{key!r} means nothing here: {low} to {high}, 0, u, s or n."

    def label(self, score: int, *, note: str = "") -> None:
        """Give the card a label on the rubric's scale."""
        low, high = self.rubric.scale
        if isinstance(score, bool) or score not in range(low, high + 1):
            raise LabelError(
                f"{score!r} is no label. Allowed: {low} to {high}, or cannot_judge()."
            )
        self._act("label", int(score), note)

    def cannot_judge(self, *, note: str = "") -> None:
        """Say that the card cannot be judged: a missing label, not a middle one."""
        self._act("cannot_judge", None, note)

    def skip(self) -> None:
        """Put the card at the end; it is asked again."""
        self._act("skip", None, "")

    def undo(self) -> bool:
        """Take the last answer or skip back, as often as wanted; False if none."""
        if not self._history:
            return False
        key = self._history[-1]
        self._write(key, Answer("undo", None, "", None))
        self._apply(key, Answer("undo", None, "", None))
        self._shown = self._clock()
        return True

    def show(self) -> Any:  # noqa: ANN401
        """The widget to label with in JupyterLab; show it as a cell's last value."""
        from reply_resolution.labeling_view import widget

        return widget(self)

    def run_terminal(
        self, ask: Callable[[str], str] = input, say: Callable[[str], None] = print
    ) -> None:
        """Label in a terminal: one key and Enter for each card, "q" to stop."""
        from reply_resolution.labeling_view import run_terminal

        run_terminal(self, ask, say)

    def to_csv(self, path: str | Path) -> None:
        """Write the cards as a spreadsheet: token, texts, and a column for labels."""
        from reply_resolution.label_sheet import write_sheet

        write_sheet(self, Path(path))

    def from_csv(self, path: str | Path) -> int:
        """Take the labels of a filled spreadsheet; how many answers were new.

        Raises:
            LabelError: A token or label is not known; then nothing is taken.
        """
        from reply_resolution.label_sheet import read_sheet

        return read_sheet(self, Path(path))

    def _repr_html_(self) -> str:
        from reply_resolution.labeling_view import summary_table

        return summary_table(self).markup

    def __repr__(self) -> str:
        return f"<LabelSession of {self.annotator!r}: {self.progress()}>"

    def close(self) -> None:
        """Close the file; the session can be opened again later."""
        self._file.close()

    # --- what came out ------------------------------------------------------------

    def labels(self) -> pl.DataFrame:
        """The answers so far in the long form of `read_labels`, repeats included."""
        rows = [
            {
                "request_id": key[0],
                "arm": key[1],
                "annotator": self.annotator,
                "label": answer.label,
                "repeat": key[2],
                "weight": self._items[key].weight,
                "metric_version": self.metric_version,
            }
            for key, answer in self._answers.items()
        ]
        return pl.DataFrame(rows, schema=LABEL_SCHEMA)

    def summary(self) -> dict[str, Any]:
        """Counts of the session; agreement with oneself only once all is answered.

        Returns:
            `annotator`, `answered`, `total`, `labelled`, `cannot_judge`, `notes` (how
            many), `minutes` (time spent on cards), `repeats` (pairs of label and
            hidden repeat) and `self_agreement` (fraction of them that are equal; None
            while the session runs, so that it cannot steer the annotator).
        """
        return {
            "annotator": self.annotator,
            "answered": self.answered,
            "total": self.total,
            **summarise(self._answers, done=self.done),
        }

    def answers(self) -> dict[str, Answer]:
        """The present answers by the card's token, unanswered cards left out."""
        return {
            self._items[key].card.token: answer for key, answer in self._answers.items()
        }

    def cards(self) -> list[Card]:
        """All cards in the order in which they are shown."""
        return [item.card for item in self._items.values()]

    def answer_card(self, token: str, label: int | None, *, note: str = "") -> None:
        """Answer any card by its token (None: cannot judge), as a spreadsheet does.

        Raises:
            LabelError: There is no such card, or the label is not on the scale.
        """
        keys = [k for k, item in self._items.items() if item.card.token == token]
        low, high = self.rubric.scale
        if not keys or (label is not None and label not in range(low, high + 1)):
            raise LabelError(
                f"no card {token!r} in this session, or no label {label!r}."
            )
        answer = Answer("cannot_judge" if label is None else "label", label, note, None)
        self._write(keys[0], answer)
        self._apply(keys[0], answer)

    # --- the state ----------------------------------------------------------------

    def _act(self, event: str, label: int | None, note: str) -> None:
        if not self._pending:
            raise LabelError(
                "all replies of this session are answered; undo() to go back."
            )
        key = self._pending[0]
        now = self._clock()
        answer = Answer(event, label, note.strip(), round(now - self._shown, 2))
        self._write(key, answer)  # on disk first: what is shown as saved is saved
        self._apply(key, answer)
        self._shown = self._clock()

    def _apply(self, key: tuple[str, str | None, int], answer: Answer) -> None:
        if key in self._pending:
            self._pending.remove(key)
        if answer.event == "undo":
            self._pending.insert(0, key)
            self._answers.pop(key, None)
            if key in self._history:
                last = len(self._history) - 1 - self._history[::-1].index(key)
                del self._history[last]
            return
        self._history.append(key)
        if answer.event == "skip":
            self._pending.append(key)
        else:
            self._answers[key] = answer

    def _write(self, key: tuple[str, str | None, int], answer: Answer) -> None:
        line = {
            **self._items[key].line(answer),
            "annotator": self.annotator,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "rubric": self.rubric.hash,
            "metric_version": self.metric_version,
            "session": self._id,
            "position": self.answered + 1,
        }
        self._file.append(line)

    def _resume(self) -> None:
        if not self.path.exists():
            return
        lines, cut = read_events(self.path)
        check_rubric(lines, self.rubric.hash, self.path.name)
        foreign = 0
        for line in lines:
            if line["annotator"] != self.annotator:
                continue
            key = (line["request_id"], line["arm"], line["repeat"])
            item = self._items.get(key)
            if item is None:
                foreign += 1
                continue
            if line["text"] != item.text_hash:
                raise LabelError(
                    f"the text of {line['request_id']!r} has changed since it was "
                    f"labelled in {self.path.name}. Label the new texts in a new file."
                )
            self._apply(
                key,
                Answer(line["event"], line["label"], line["note"], line["seconds"]),
            )
        notes = []
        if cut:
            notes.append(f"Ignored as cut short: {cut} line(s) of {self.path.name}.")
        if foreign:
            notes.append(f"Lines about replies that are not in this draw: {foreign}.")
        if self.answered:
            notes.append(f"Going on after {self.answered} of {self.total}.")
        self.notes = tuple(notes)

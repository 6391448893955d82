"""Labelling in a spreadsheet: cards out, labels in, as blind as the widget."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from reply_resolution.errors import LabelError
from reply_resolution.scores import MISSING_WORDS, explain_score
from reply_resolution.tables import find_column, listed, read_table

if TYPE_CHECKING:
    from reply_resolution.labeling import LabelSession

_CANNOT = (MISSING_WORDS - {""}) | {"0"}


def write_sheet(session: "LabelSession", path: Path) -> None:
    """Write the cards as CSV for a spreadsheet (UTF-8 with a byte order mark).

    A cell that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    answers = session.answers()
    rows = []
    for card in session.cards():
        answer = answers.get(card.token)
        label = ""
        if answer is not None:
            label = "cannot judge" if answer.label is None else str(answer.label)
        turns = "\n".join(f"{role}: {text}" for role, text in card.conversation)
        rows.append(
            {
                "item": card.token,
                "request": _inert(card.request),
                "conversation": _inert(turns),
                "context": _inert(card.context),
                "reply": _inert(card.reply),
                "label": label,
                "note": _inert(answer.note) if answer is not None else "",
            }
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            pl.DataFrame(rows).write_csv(file, include_bom=True)
    except OSError as error:
        raise LabelError(f"{path} cannot be written: {error.strerror}.") from error


def read_sheet(session: "LabelSession", path: Path) -> int:
    """Take the labels of a filled sheet into the session; all of them or none.

    Empty labels are unanswered; "cannot judge", "n/a" and 0 are missing labels.

    Returns:
        How many answers were new or different.

    Raises:
        LabelError: A token is not of this session, stands twice, or a label is not
            on the scale; with the rows.
    """
    frame = read_table(path).frame
    names = {
        name: find_column(frame.columns, name) for name in ("item", "label", "note")
    }
    if names["item"] is None or names["label"] is None:
        raise LabelError(
            f"{path.name} has no columns 'item' and 'label'; it has "
            f"{listed(frame.columns)}. Fill in the file that to_csv wrote."
        )
    known = {card.token for card in session.cards()}
    answers = session.answers()
    wrong: list[str] = []
    new: list[tuple[str, int | None, str]] = []
    seen: set[str] = set()
    for row, record in enumerate(frame.iter_rows(named=True), start=1):
        token = str(record[names["item"]]).strip()
        cell = record[names["label"]]
        text = "" if cell is None else str(cell).strip()
        if not text:
            continue
        label, reason = explain_score(text, scale=session.rubric.scale)
        if text.lower() in _CANNOT:
            label, reason = None, None
        if token not in known:
            wrong.append(f"row {row}: the item {token!r} is not of this session")
        elif token in seen:
            wrong.append(f"row {row}: the item {token!r} stands twice")
        elif reason is not None:
            wrong.append(f"row {row}: {text!r} is no label")
        seen.add(token)
        note = str(record[names["note"]] or "").strip() if names["note"] else ""
        old = answers.get(token)
        if old is None or (old.label, _inert(old.note)) != (label, note):
            new.append((token, label, note))
    if wrong:
        low, high = session.rubric.scale
        raise LabelError(
            f"{path.name}: {'; '.join(wrong[:5])}{'; …' if len(wrong) > 5 else ''}. "
            f'Labels are {low} to {high} or "cannot judge"; items come from to_csv of '
            "the same session. Nothing was taken."
        )
    for token, label, note in new:
        session.answer_card(token, label, note=note)
    return len(new)


def _inert(text: str) -> str:
    """Text that a spreadsheet does not run: no cell begins like a formula."""
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") and text else text

"""How a `LabelSession` looks: a widget for JupyterLab, a terminal, a spreadsheet.

The browser gets the card's texts and counts, nothing else. Keys are read from a
focused text box: JupyterLab leaves keys in a text box alone, so `x` or `d d` cannot
delete the cell. Widgets are composed, not subclassed (`log`, `keys` and `layout` are
names of theirs). The explorer is made of the same pieces.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import polars as pl

from reply_resolution.display import Html, element, html, table
from reply_resolution.errors import LabelError
from reply_resolution.tables.scores import MISSING_WORDS, explain_score
from reply_resolution.tables.tables import find_column, listed, read_table

if TYPE_CHECKING:
    from reply_resolution.labeling.files import Card
    from reply_resolution.labeling.session import LabelSession

_HELP = "1 to 5 label, 0 cannot judge, u undo, s skip, n note"
_WELCOME = (
    "Click into the key box and press a key. A few replies come a second time, on "
    "purpose."
)
_CANNOT = (MISSING_WORDS - {""}) | {"0"}
#: More than this of one text is not sent to a browser; it would stall.
_LONGEST = 50_000
_BODY = (
    "white-space:pre-wrap;overflow-wrap:anywhere;max-height:{height};overflow:auto;"
    "border-left:3px solid #998ec3;padding:2px 10px;margin:2px 0 10px;line-height:1.45"
)


def turns_text(conversation: Any) -> str:  # noqa: ANN401
    """Earlier turns as text, one paragraph each; text stays as it is, null is ""."""
    if conversation is None or isinstance(conversation, str):
        return conversation or ""
    return "\n\n".join(
        f"{turn.get('role') or '?'}: {turn.get('content') or ''}"
        for turn in conversation
    )


def heading(text: str) -> ET.Element:
    """A heading inside a widget, smaller than the notebook's own."""
    return element("p", text, style="font-weight:600;margin:0")


def texts(
    parts: Iterable[tuple[str, str]], *, height: str = "24em"
) -> list[ET.Element]:
    """Named texts as they were written, in boxes that scroll; empty ones left out."""
    nodes = []
    for name, text in parts:
        if text:
            # tabindex: a box that scrolls must be reachable by keyboard
            style = _BODY.format(height=height)
            box = element("div", _cut(text), style=style, tabindex="0")
            nodes += [heading(name), box]
    return nodes


def status_line(place: str, message: str, keys: str) -> str:
    """The line that says where the reader is, and what the keys do."""
    return html(
        element(
            "p",
            element("strong", place),
            f"  {message}",
            element("br"),
            element("small", keys),
            role="status",
            style="margin:4px 0",
        )
    ).markup


def key_controls(
    act: Callable[[str], None], placeholder: str, words: Mapping[str, str]
) -> tuple[Any, dict[str, Any]]:
    """A text box that gives `act` every key and empties itself, and buttons for mice.

    Keys that pile up while the kernel is busy come together, the newest last. Each
    button (key -> words on it) acts like its key.
    """
    import ipywidgets as w  # 0.2 s: only where something is shown

    layout = w.Layout(width="18em")
    box = w.Text(placeholder=placeholder, description="Key", layout=layout)

    def on_type(change: Mapping[str, Any]) -> None:
        if change["new"]:
            box.value = ""
            if change["new"].strip():
                act(change["new"].strip())

    def button(key: str, text: str) -> Any:  # noqa: ANN401
        def on_click(_button: object) -> None:
            act(key)
            box.focus()

        layout = w.Layout(width="9em" if len(text) > 1 else "3em")
        made = w.Button(description=text, layout=layout)
        made.on_click(on_click)
        return made

    box.observe(on_type, names="value")
    return box, {key: button(key, text) for key, text in words.items()}


def row(*widgets: Any) -> Any:  # noqa: ANN401
    """Widgets beside each other, below each other where there is no room."""
    import ipywidgets as w

    return w.HBox(widgets, layout=w.Layout(flex_flow="row wrap"))


def widget(session: "LabelSession") -> Any:  # noqa: ANN401
    """The labelling widget of a session, to be shown as a cell's last value."""
    import ipywidgets as w

    low, high = session.rubric.scale
    status = w.HTML()
    card = w.HTML(layout=w.Layout(flex="3 1 24em", min_width="0"))
    wording = html(
        *texts([("Rubric", _flowing(session.rubric.wording))], height="30em")
    )
    rubric = w.HTML(wording.markup, layout=w.Layout(flex="2 1 16em", min_width="0"))
    note = w.Text(
        placeholder="then Enter; saved with this reply",
        description="Note",
        continuous_update=False,
        layout=w.Layout(width="26em"),
    )

    def refresh(message: str) -> None:
        status.value = status_line(session.progress(), message, _HELP)
        done = heading(
            f"All {session.total} are answered. Thank you. Now run all cells again "
            "(Run > Run All Cells): the answer at the top then takes your labels in."
        )
        shown = _shown(session.card) if session.card else [done]
        card.value = html(*shown).markup
        note.value = session.draft
        for key, made in buttons.items():
            made.disabled = session.done and key != "u"
        note.disabled = session.done

    def on_key(typed: str) -> None:
        key = typed[-1]
        if key.lower() == "n":
            note.focus()
            return
        held = typed[-2:-1] == key
        try:
            refresh(session.press(key, at=_sent_at(), held=held))
        except LabelError as error:
            status.value = status_line(session.progress(), str(error), _HELP)

    def on_note(change: Mapping[str, Any]) -> None:
        if session.done or change["new"].strip() == session.draft:
            return
        try:
            session.note(change["new"])
            message = "The note is saved."
        except LabelError as error:
            message = str(error)
        status.value = status_line(session.progress(), message, _HELP)
        keys.focus()

    words = {str(score): str(score) for score in range(low, high + 1)}
    words |= {"0": "Cannot judge", "s": "Skip", "u": "Undo"}
    keys, buttons = key_controls(on_key, f"{low} to {high}, 0, u, s, n", words)
    note.observe(on_note, names="value")
    refresh(" ".join(session.notes) or _WELCOME)
    # What was done stands beside the box that has the focus, above what scrolls.
    return w.VBox([row(keys, status), row(note, *buttons.values()), row(card, rubric)])


def _shown(card: "Card") -> list[ET.Element]:
    """A card in the room of one screen: what leads up to the reply, then the reply."""
    *before, reply = _texts(card)
    return [*texts(before, height="9em"), *texts([reply], height="20em")]


def _flowing(wording: str) -> str:
    """A wording without the line breaks inside its sentences, for a narrow box."""
    return re.sub(r"(?<=\S)\n[ \t]*(?=[^\s\d*•–—-])", " ", wording)


def summary_table(session: "LabelSession") -> Html:
    """Where a session stands, without agreement: that would steer the annotator."""
    answers = session.labels()
    first = answers.filter(pl.col("repeat") == 0)
    row = {
        "annotator": session.annotator,
        "answered": f"{session.answered} of {session.total}",
        "labels": first["label"].count(),
        "cannot judge": first["label"].null_count(),
    }
    return table([row], caption="Labelling session")


def write_sheet(session: "LabelSession", path: Path) -> str:
    """Write the cards as CSV for a spreadsheet (UTF-8 with a byte order mark)."""
    answers = session.answers()
    rows = []
    for card in session.cards():
        answer = answers.get(card.token, {"label": "", "note": ""})
        label = "cannot judge" if answer["label"] is None else str(answer["label"])
        rows.append(
            {
                "item": card.token,
                "request": _inert(card.request),
                "conversation": _inert(card.conversation),
                "context": _inert(card.context),
                "reply": _inert(card.reply),
                "label": label,
                "note": _inert(answer["note"]),
            }
        )
    untaken = _labels_in(path) - {(r["item"], r["label"]) for r in rows}
    if untaken:
        raise LabelError(
            f"{path.name} holds {len(untaken)} labels that were not read back yet. "
            f'Take them first, from_csv("{path.name}"), or write to another name.'
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            pl.DataFrame(rows).write_csv(file, include_bom=True)
    except OSError as error:
        raise LabelError(f"{path} cannot be written: {error.strerror}.") from error
    low, high = session.rubric.scale
    return (
        f"{len(rows)} rows written to {path}. Fill the column label with {low} to "
        f'{high} or "cannot judge"; an empty cell is not answered yet.'
    )


def _labels_in(path: Path) -> set[tuple[str, str]]:
    """Items and labels that are filled in a sheet; none where there is no such file."""
    if not path.exists():
        return set()
    frame = read_table(path).frame
    item, label = (find_column(frame.columns, n) for n in ("item", "label"))
    if item is None or label is None:
        raise LabelError(
            f"{path.name} is there already and is not a sheet of labels; write to "
            "another name."
        )
    cells = frame.select(pl.col(item, label).cast(pl.String).str.strip_chars())
    found = {(i, given, explain_score(given)[0]) for i, given in cells.rows() if given}
    return {(i, given if score is None else str(score)) for i, given, score in found}


def read_sheet(session: "LabelSession", path: Path) -> str:
    """Take the labels of a filled sheet into the session; all of them or none.

    Empty labels are unanswered; "cannot judge", "n/a" and 0 are missing labels.
    """
    frame = read_table(path).frame
    names = {n: find_column(frame.columns, n) for n in ("item", "label", "note")}
    if names["item"] is None or names["label"] is None:
        raise LabelError(
            f"{path.name} has no columns 'item' and 'label'; it has "
            f"{listed(frame.columns)}. Fill in the file that to_csv wrote."
        )
    known, answers = {card.token for card in session.cards()}, session.answers()
    wrong: list[str] = []
    given: dict[str, tuple[int | None, str]] = {}
    read_as: list[str] = []
    # Rows as the spreadsheet counts them: the header is row 1.
    for place, record in enumerate(frame.iter_rows(named=True), start=2):
        token, text, note = (
            "" if name is None else str(record[name] or "").strip()
            for name in names.values()
        )
        if not text:
            continue
        label, reason = explain_score(text, scale=session.rubric.scale)
        if text.lower() in _CANNOT:
            label, reason = None, None
        if token not in known:
            wrong.append(f"row {place}: the item {token!r} is not of this session")
        elif token in given:
            wrong.append(f"row {place}: the item {token!r} stands twice")
        elif reason is not None:
            wrong.append(f"row {place}: {text!r} is no label")
        elif label is not None and text != str(label):
            read_as.append(f"row {place}: {text!r} as {label}")
        given[token] = (label, note)
    if wrong:
        low, high = session.rubric.scale
        raise LabelError(
            f"{path.name}: {'; '.join(wrong[:5])}{'; …' if len(wrong) > 5 else ''}. "
            f'Labels are {low} to {high} or "cannot judge"; items come from to_csv of '
            "the same session. Nothing was taken."
        )
    new = 0
    for token, (label, note) in given.items():
        old = answers.get(token)
        if old is None or (old["label"], _inert(old["note"])) != (label, note):
            session.answer(token, label, note)
            new += 1
    blank = len(known - given.keys() - answers.keys())
    words = f"{len(given)} labels read, {new} of them new; {blank} rows not answered."
    if read_as:
        words += f" Read: {'; '.join(read_as)}."
    return f"{words} Run all cells." if new else words


def _inert(text: str) -> str:
    """Text that a spreadsheet does not run: no cell begins like a formula."""
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") and text else text


def _cut(text: str) -> str:
    """The text, or its beginning with how much was left out."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}\n… ({len(text) - _LONGEST:,} more characters)"


def _texts(card: "Card") -> list[tuple[str, str]]:
    return [
        ("Earlier turns", card.conversation),
        ("Request", card.request),
        ("Facts the assistant had", card.context),
        ("Reply to label", card.reply or "(empty)"),
    ]


def _sent_at() -> float | None:
    """When the browser sent the message that is being handled, by its own clock."""
    try:
        from IPython import get_ipython

        date = get_ipython().kernel.get_parent()["header"]["date"]
        if isinstance(date, str):
            date = datetime.fromisoformat(date)
        return float(date.timestamp())
    except (ImportError, AttributeError, KeyError, TypeError, ValueError):
        return None  # no kernel, or one that does not say

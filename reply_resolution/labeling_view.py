"""The thin views over a `LabelSession`: a widget for JupyterLab, and a terminal.

The browser gets the card's texts and counts, nothing else. Keys are read from a
focused text box: JupyterLab leaves keys in a text box alone, so `x` or `d d` cannot
delete the cell. Widgets are composed, not subclassed (`log`, `keys` and `layout` are
names of theirs).
"""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from reply_resolution.display import Html, element, html, table, visible
from reply_resolution.errors import LabelError
from reply_resolution.text_blocks import blocks, cut, heading

if TYPE_CHECKING:
    from reply_resolution.labeling import Card, LabelSession

_HELP = "1 to 5 label, 0 cannot judge, u undo, s skip, n note"


def widget(session: "LabelSession") -> Any:  # noqa: ANN401
    """The labelling widget of a session, to be shown as a cell's last value."""
    import ipywidgets as w  # 0.2 s: only where something is shown

    status = w.HTML()
    card = w.HTML(layout=w.Layout(flex="3 1 24em", min_width="0"))
    rubric = w.HTML(layout=w.Layout(flex="2 1 16em", min_width="0"))
    keys = w.Text(
        placeholder="1 to 5, 0, u, s, n",
        description="Key",
        layout=w.Layout(width="18em"),
    )
    note = w.Text(
        placeholder="then Enter; saved with the next label",
        description="Note",
        continuous_update=False,
        layout=w.Layout(width="26em"),
    )
    low, high = session.rubric.scale
    buttons = {
        str(score): w.Button(description=str(score), layout=w.Layout(width="3em"))
        for score in range(low, high + 1)
    }
    for key, words in (("0", "Cannot judge"), ("s", "Skip"), ("u", "Undo")):
        buttons[key] = w.Button(description=words, layout=w.Layout(width="10em"))

    def refresh(message: str) -> None:
        status.value = html(_status(session, message)).markup
        shown = session.card
        card.value = html(blocks(_texts(shown)) if shown else _finished(session)).markup
        for key, button in buttons.items():
            button.disabled = session.done and key != "u"

    def act(key: str) -> None:
        try:
            before = session.answered
            message = session.press(key, note=note.value, at=_sent_at())
            if session.answered > before:  # a skip or an undo keeps the note
                note.value = ""
        except LabelError as error:
            message = str(error)
        refresh(message)

    def on_key(change: dict[str, Any]) -> None:
        if not change["new"]:
            return
        keys.value = ""
        # several at once: the box had not been emptied yet; the last is the new one
        key = change["new"].strip()[-1:]
        if key.lower() == "n":
            note.focus()
        elif key:
            act(key)

    def on_note(change: dict[str, Any]) -> None:
        if change["new"]:
            refresh("The note is kept for the next label.")
            keys.focus()

    def on_click(key: str) -> Callable[[Any], None]:
        def click(_button: Any) -> None:  # noqa: ANN401
            act(key)
            keys.focus()

        return click

    keys.observe(on_key, names="value")
    note.observe(on_note, names="value")
    for key, button in buttons.items():
        button.on_click(on_click(key))
    rubric.value = html(_rubric(session)).markup
    refresh(" ".join(session.notes) or "Click into the key box and press a key.")
    texts = w.HBox([card, rubric], layout=w.Layout(flex_flow="row wrap"))
    entry = w.HBox([keys, note], layout=w.Layout(flex_flow="row wrap"))
    row = w.HBox(list(buttons.values()), layout=w.Layout(flex_flow="row wrap"))
    return w.VBox([status, entry, row, texts])


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


def run_terminal(
    session: "LabelSession", ask: Callable[[str], str], say: Callable[[str], None]
) -> None:
    """Label by keys in a terminal, until all is answered or the annotator stops."""
    say(visible(session.rubric.wording))
    shown: Card | None = None
    while (card := session.card) is not None:
        if card is not shown:
            parts = [(name, text) for name, text in _texts(card) if text]
            say("\n\n".join(f"--- {name}\n{visible(cut(t))}" for name, t in parts))
            shown = card
        try:
            key = ask(f"[{session.progress()}] {_HELP}, q stop: ").strip()
        except (EOFError, KeyboardInterrupt):
            break
        if key.lower() == "q":
            break
        if key.lower() == "n":
            say(session.press(ask("Key: "), note=ask("Note: ")))
        else:
            say(session.press(key))
    say(f"Stopped at {session.progress()}; all is saved in {session.path}.")


def summary_table(session: "LabelSession") -> Html:
    """Where a session stands, as a table for a report."""
    summary = session.summary()
    agreement = summary["self_agreement"]
    return table(
        [
            {
                "annotator": summary["annotator"],
                "answered": f"{summary['answered']} of {summary['total']}",
                "labels": str(summary["labelled"]),
                "cannot judge": str(summary["cannot_judge"]),
                "minutes": f"{summary['minutes']:.0f}",
                "agrees with own repeats": None
                if agreement is None
                else f"{agreement:.0%} of {summary['repeats']}",
            }
        ],
        caption="Labelling session",
    )


def _texts(card: "Card") -> list[tuple[str, str]]:
    turns = "\n\n".join(f"{role}: {text}" for role, text in card.conversation)
    return [
        ("Earlier turns", turns),
        ("Request", card.request),
        ("Facts the assistant had", card.context),
        ("Reply to label", card.reply or "(empty)"),
    ]


def _rubric(session: "LabelSession") -> ET.Element:
    return blocks([("Rubric", session.rubric.wording)], height="40em")


def _status(session: "LabelSession", message: str) -> ET.Element:
    return element(
        "p",
        element("strong", session.progress()),
        f"  {message}",
        element("br"),
        element("small", _HELP),
        role="status",
        style="margin:4px 0",
    )


def _finished(session: "LabelSession") -> ET.Element:
    return heading(f"All {session.total} are answered. Thank you.")

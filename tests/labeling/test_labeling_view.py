"""The labelling widget: thin, blind, and safe to show any text in."""

from pathlib import Path
import re

import polars as pl
import pytest

from reply_resolution.errors import LabelError
from reply_resolution.labeling.session import LabelSession

SECRETS = ("secret-id", "zebra-arm", "because-of-judge", "score-column", "label_b")
EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script>'


class Clock:
    """A clock that passes one second at every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def make(path: Path, reply: str = "answer", clock: object = None) -> LabelSession:
    """A session of five replies whose other columns must not be shown."""
    frame = pl.DataFrame(
        {
            "request_id": [f"secret-id-{i}" for i in range(5)],
            "arm": ["zebra-arm"] * 5,
            "request": [f"question {i}" for i in range(5)],
            "reply": [reply] * 5,
            "context": ["facts"] * 5,
            "reason": ["because-of-judge"] * 5,
            "score-column": [4] * 5,
            "label_b": [2] * 5,
        }
    )
    return LabelSession.open(
        path, frame, annotator="anna", repeats=0, clock=clock or Clock()
    )


def states(widget: object) -> list[dict]:
    """The state of a widget and of everything in it."""
    out = [widget.get_state()]
    for child in getattr(widget, "children", ()):
        out.extend(states(child))
    return out


def find(widget: object, **traits: object) -> object:
    """The first widget inside that has these traits."""
    for child in getattr(widget, "children", ()):
        if all(getattr(child, k, None) == v for k, v in traits.items()):
            return child
        found = find(child, **traits)
        if found is not None:
            return found
    return None


def test_keys_label_and_the_box_is_emptied(tmp_path: Path):
    """Each key stores one label, shows the next card and leaves the box empty."""
    session = make(tmp_path / "a.jsonl")
    widget = session.widget()
    keys = find(widget, description="Key")
    for key in "1s05":
        keys.value = key
        assert keys.value == ""
    assert [a["label"] for a in session.answers().values()] == [1, None, 5]
    assert "3 / 5" in str(states(widget))
    keys.value = "u"
    assert session.answered == 2


def test_the_browser_gets_no_arm_no_id_and_no_score(tmp_path: Path):
    """Through a whole session no widget's state holds what would unblind."""
    session = make(tmp_path / "a.jsonl")
    widget = session.widget()
    keys = find(widget, description="Key")
    sent = [str(states(widget))]
    for key in "123s45":
        keys.value = key
        sent.append(str(states(widget)))
    assert session.done
    for secret in SECRETS:
        assert secret not in "".join(sent)
    assert "All 5 are answered" in sent[-1]


def test_the_judges_scores_change_nothing_that_is_sent(tmp_path: Path):
    """Other scores and reasons, and the browser gets the same, byte for byte."""
    sent = []
    for run, score in enumerate((1, 5)):
        frame = pl.DataFrame(
            {
                "request_id": [str(i) for i in range(9)],
                "arm": ["A", "B", "C"] * 3,
                "request": [f"question {i}" for i in range(9)],
                "reply": ["answer"] * 9,
                "score": [score] * 9,
                "reason": [f"reason {score}"] * 9,
            }
        )
        session = LabelSession.open(
            tmp_path / f"{run}.jsonl", frame, annotator="anna", clock=Clock()
        )
        widget = session.widget()
        shown = []
        for key in "12s45":
            find(widget, description="Key").value = key
            shown += [s["value"] for s in states(widget) if "HTML" in s["_view_name"]]
        sent.append(shown)
    assert sent[0] == sent[1]


def test_markup_in_a_reply_is_inert(tmp_path: Path):
    """Text of users and models is escaped before it is sent."""
    widget = make(tmp_path / "a.jsonl", reply=EVIL).widget()
    html = "".join(s["value"] for s in states(widget) if s["_view_name"] == "HTMLView")
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html


def test_buttons_do_what_keys_do_and_undo_outlives_the_end(tmp_path: Path):
    """Mouse users have every action; when all is answered only undo is left."""
    session = make(tmp_path / "a.jsonl")
    widget = session.widget()
    find(widget, description="Cannot judge").click()
    for _ in range(4):
        find(widget, description="3").click()
    assert session.done
    assert find(widget, description="3").disabled
    assert find(widget, description="Skip").disabled
    find(widget, description="Undo").click()
    assert not session.done
    assert not find(widget, description="3").disabled


def test_a_note_goes_with_its_reply_and_is_saved_at_once(tmp_path: Path):
    """Skipped, the reply keeps it; the next one starts with an empty box."""
    session = make(tmp_path / "a.jsonl")
    widget = session.widget()
    note, keys = find(widget, description="Note"), find(widget, description="Key")
    keys.value = "n"
    note.value = "wrong price"
    assert "wrong price" in (tmp_path / "a.jsonl").read_text()
    keys.value = "s"
    assert note.value == ""
    for key in "2345":
        keys.value = key
    assert note.value == "wrong price"
    keys.value = "1"
    notes = {a["label"]: a["note"] for a in session.answers().values()}
    assert notes == {2: "", 3: "", 4: "", 5: "", 1: "wrong price"}
    assert note.disabled


def test_several_characters_at_once_store_one_answer(tmp_path: Path):
    """Keys that pile up while the kernel is busy are not rated one by one."""
    session = make(tmp_path / "a.jsonl", clock=lambda: 0.0)
    session._clock = Clock()
    widget = session.widget()
    find(widget, description="Key").value = "345"
    assert [a["label"] for a in session.answers().values()] == [5]
    find(widget, description="Key").value = "444"  # one key, held down
    assert [a["label"] for a in session.answers().values()] == [5]
    assert "Too fast" in str(states(widget))


def test_a_failed_save_is_shown_and_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The annotator reads that the disk refused, and stays on the card."""
    session = make(tmp_path / "a.jsonl")
    widget = session.widget()

    def refuse(_path: Path, _record: object) -> None:
        raise LabelError("labels cannot be saved to x: No space left on device.")

    monkeypatch.setattr("reply_resolution.labeling.session.append_line", refuse)
    note = find(widget, description="Note")
    note.value = "not lost"
    assert "No space left on device" in str(states(widget))
    assert note.value == "not lost"
    find(widget, description="Key").value = "4"
    assert session.answered == 0
    assert "No space left on device" in str(states(widget))


def test_the_rubric_is_in_view(tmp_path: Path):
    """The wording stands beside every card."""
    session = make(tmp_path / "a.jsonl")
    first_line = session.rubric.wording.splitlines()[0]
    assert first_line[:40] in str(states(session.widget()))


def test_the_static_twin_is_a_table_of_counts(tmp_path: Path):
    """In a batch run the session shows where it stands, without a widget."""
    session = make(tmp_path / "a.jsonl")
    session.label(4)
    text = session._repr_html_()
    assert "<table>" in text
    assert "1 of 5" in text


def test_a_huge_reply_does_not_stall_the_browser(tmp_path: Path):
    """A million characters are cut, and it is said how many."""
    widget = make(tmp_path / "a.jsonl", reply="x" * 1_000_000).widget()
    assert len(str(states(widget))) < 80_000
    assert "950,000 more characters" in str(states(widget))


def test_notebook_1_shows_the_widget(root: Path, tmp_path: Path):
    """Whatever it asks of its session, a session has; and it asks for the widget."""
    text = (root / "notebooks/01_calibrate_judge.ipynb").read_text(encoding="utf-8")
    asked = set(re.findall(r"\bsession\.(\w+)", text))
    assert "widget" in asked
    session = make(tmp_path / "a.jsonl")
    assert [name for name in asked if not hasattr(session, name)] == []

"""The labelling session: nothing lost, nothing doubled, nothing given away."""

from collections import Counter
import json
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import time

from hypothesis import given, settings
from hypothesis import strategies as st
import polars as pl
import pytest

from reply_resolution.errors import LabelError
from reply_resolution.judge.rubric import Rubric
from reply_resolution.labeling.session import LabelSession, draw_for_labels
from reply_resolution.tables.labels import read_labels


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def replies(n: int = 20) -> pl.DataFrame:
    """Replies of two arms with scores, under names that must not be shown."""
    return pl.DataFrame(
        {
            "request_id": [f"secret-id-{i}" for i in range(n)],
            "arm": ["zebra-arm" if i % 2 else "okapi-arm" for i in range(n)],
            "request": [f"question {i}" for i in range(n)],
            "reply": [f"answer {i} <b>bold</b>" for i in range(n)],
            "score": [1 + i % 5 for i in range(n)],
            "reason": ["because-of-judge"] * n,
        }
    )


def open_at(path: Path, n: int = 20, **options: object) -> tuple[LabelSession, Clock]:
    """A session of n items without repeats, on a clock that stands still."""
    clock = Clock()
    settings_ = {"annotator": "anna", "repeats": 0.0, "clock": clock, **options}
    return LabelSession.open(path, replies(n), **settings_), clock


def press(session: LabelSession, clock: Clock, keys: str) -> None:
    """Press keys slowly enough to count."""
    for key in keys:
        clock.now += 1.0
        session.press(key)


def test_labels_are_saved_with_everything_a_reader_needs(tmp_path: Path):
    """One line per answer: who, what, when, how long, under which rubric and weight."""
    path = tmp_path / "new" / "anna.jsonl"
    session, clock = open_at(path, 3)
    clock.now = 7.5
    session.note(" unsure ")
    session.press("4")
    line = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    assert line["event"] == "label"
    assert (line["label"], line["note"], line["seconds"]) == (4, "unsure", 7.5)
    assert line["rubric"] == Rubric.default().hash
    assert line["annotator"] == "anna"
    assert line["weight"] == 1.0
    assert line["time"].endswith("+00:00")
    assert line["position"] == 1


def test_a_session_is_finished_and_read_back(tmp_path: Path):
    """Labels, cannot-judge and notes come back through `read_labels`."""
    session, clock = open_at(tmp_path / "a.jsonl", 4)
    press(session, clock, "1052")
    assert session.done
    assert session.card is None
    frame = read_labels(tmp_path / "a.jsonl").frame
    assert sorted(frame["label"].to_list(), key=str) == [1, 2, 5, None]
    assert frame.sort("request_id").equals(session.labels().sort("request_id"))
    assert session.progress() == "4 / 4, done"


def test_undo_goes_back_without_limit_and_keeps_the_trail(tmp_path: Path):
    """Each undo adds a line and asks the same card again; none is rewritten."""
    path = tmp_path / "a.jsonl"
    session, clock = open_at(path, 3)
    first = session.card
    assert session.undo() is False
    press(session, clock, "12")
    press(session, clock, "uu")
    assert session.card == first
    press(session, clock, "5")
    events = [json.loads(x)["event"] for x in path.read_text().splitlines()]
    assert events == ["label", "label", "undo", "undo", "label"]
    assert session.labels()["label"].to_list() == [5]


def test_a_skipped_card_comes_again_at_the_end(tmp_path: Path):
    """Skipping loses nothing, and can be undone."""
    session, clock = open_at(tmp_path / "a.jsonl", 3)
    first = session.card
    press(session, clock, "s")
    assert session.card != first
    press(session, clock, "u")
    assert session.card == first
    press(session, clock, "s12")
    assert session.card == first
    assert session.answered == 2


@given(st.text(alphabet="123450us", max_size=60), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_any_keys_then_a_crash_resume_where_they_were(keys: str, crash: int):
    """After any sequence, reopening gives the same card, answers and undo trail."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        session, clock = open_at(path, 8, repeats=0.25)
        press(session, clock, keys[:crash])
        resumed, clock2 = open_at(path, 8, repeats=0.25)
        assert resumed.card == session.card
        assert resumed.answers() == session.answers()
        press(resumed, clock2, keys[crash:])
        whole, clock3 = open_at(Path(folder) / "b.jsonl", 8, repeats=0.25)
        press(whole, clock3, keys)
        assert resumed.card == whole.card
        assert {k: a["label"] for k, a in resumed.answers().items()} == {
            k: a["label"] for k, a in whole.answers().items()
        }


def test_a_line_cut_by_a_crash_is_asked_again(tmp_path: Path):
    """Half a line is ignored and said; the next line starts on its own."""
    path = tmp_path / "a.jsonl"
    session, clock = open_at(path, 4)
    press(session, clock, "12")
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    resumed, clock = open_at(path, 4)
    assert resumed.answered == 1
    assert any("cut short: 1 line" in note for note in resumed.notes)
    press(resumed, clock, "345")
    again, _ = open_at(path, 4)
    assert again.done
    labels = read_labels(path)
    assert sorted(labels.frame["label"].to_list()) == [1, 3, 4, 5]
    assert labels.notes[0] == "Ignored as cut short: 1 line(s)."


def test_a_killed_process_loses_no_answer_it_showed_as_saved(tmp_path: Path):
    """Kill -9 in the middle of labelling: every printed answer is in the file."""
    path = tmp_path / "a.jsonl"
    code = (
        "import itertools, sys, polars as pl\n"
        "from reply_resolution.labeling.session import LabelSession\n"
        "n = 5000\n"
        "frame = pl.DataFrame({'request_id': [str(i) for i in range(n)],"
        " 'request': ['q'] * n, 'reply': ['a'] * n})\n"
        "s = LabelSession.open(sys.argv[1], frame, annotator='x', repeats=0)\n"
        "for i in itertools.count(1):\n"
        "    s.label(3)\n"
        "    print(i, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen = int(line)
        if seen >= 25:
            break
    process.send_signal(signal.SIGKILL)
    seen += len(process.stdout.read().splitlines())
    process.wait()
    process.stdout.close()
    saved = read_labels(path).frame
    assert seen <= saved.height <= seen + 1
    assert saved["request_id"].n_unique() == saved.height


def test_a_changed_rubric_is_refused(tmp_path: Path):
    """One character more, and the file is another version's."""
    path = tmp_path / "a.jsonl"
    session, clock = open_at(path)
    press(session, clock, "12")
    changed = Rubric.default().replace(wording=Rubric.default().wording + " ")
    with pytest.raises(LabelError, match=r"holds 2 line.*another rubric.*new file"):
        open_at(path, rubric=changed)


def test_a_changed_reply_is_refused(tmp_path: Path):
    """A label belongs to the text that was seen."""
    path = tmp_path / "a.jsonl"
    session, clock = open_at(path)
    press(session, clock, "1")
    other = replies().with_columns(pl.lit("another text").alias("reply"))
    with pytest.raises(LabelError, match="has changed since it was labelled"):
        LabelSession.open(path, other, annotator="anna", repeats=0.0)


def test_a_file_of_something_else_is_refused(tmp_path: Path):
    """Labels are never appended to another kind of file."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"request_id": "1", "score": 4}\n')
    with pytest.raises(LabelError, match="not a file of labels"):
        open_at(path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(LabelError, match="cannot be read"):
        open_at(tmp_path / "folder")


def test_a_key_held_down_answers_once(tmp_path: Path):
    """Repeats every 30 ms are ignored until there were 250 ms of silence."""
    session, clock = open_at(tmp_path / "a.jsonl")
    clock.now = 1.0
    said = []
    for _ in range(40):
        said.append(session.press("4"))
        clock.now += 0.03
    assert session.answered == 1
    assert said[0] == "Saved: 4."
    assert set(said[1:]) == {"Too fast: that key was ignored."}
    clock.now += 0.3
    session.press("5")
    assert session.answered == 2


def test_a_slow_connection_does_not_turn_a_held_key_into_labels(tmp_path: Path):
    """Repeats that arrive seconds apart count by the keyboard's own clock."""
    session, clock = open_at(tmp_path / "a.jsonl")
    for repeat in range(10):
        clock.now += 2.0
        session.press("4", at=100 + 0.03 * repeat)
    assert session.answered == 1
    clock.now += 2.0
    session.press("4", at=101.0)
    assert session.answered == 2


def test_a_key_right_after_a_new_card_is_ignored(tmp_path: Path):
    """Nobody has read a card that was shown 100 ms ago."""
    session, clock = open_at(tmp_path / "a.jsonl")
    clock.now = 0.1
    session.press("4")
    assert session.answered == 0


@pytest.mark.parametrize("key", ["6", "9", "x", "12", "", "４", "²", "N", "-1"])
def test_other_keys_do_nothing_and_say_what_is_allowed(tmp_path: Path, key: str):
    """A slip of the finger stores nothing."""
    session, clock = open_at(tmp_path / "a.jsonl")
    clock.now = 1.0
    assert "means nothing here: 1 to 5, 0, u, s or n." in session.press(key)
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize("score", [0, 6, True, "4", 4.5, None])
def test_only_scores_on_the_scale_are_labels(tmp_path: Path, score: object):
    """The method refuses what the keys cannot give."""
    session, _ = open_at(tmp_path / "a.jsonl")
    with pytest.raises(LabelError, match="is no label"):
        session.label(score)


def test_cards_carry_texts_and_nothing_else(tmp_path: Path):
    """Neither id, arm, score nor reason is on a card or in the session's display."""
    session, _ = open_at(tmp_path / "a.jsonl")
    shown = repr(session.cards()) + repr(session) + session._repr_html_()
    for secret in ("secret-id", "zebra-arm", "okapi-arm", "because-of-judge"):
        assert secret not in shown
    assert "question 3" in shown


def test_the_order_is_seeded_and_each_annotators_own(tmp_path: Path):
    """The same seed and person give the same order, whatever the table's order."""

    def order(annotator: str, seed: int, frame: pl.DataFrame) -> list[str]:
        session = LabelSession.open(
            tmp_path / "no.jsonl", frame, annotator=annotator, seed=seed
        )
        return [card.request for card in session.cards()]

    frame = replies(30)
    assert order("anna", 1, frame) == order("anna", 1, frame.reverse())
    assert order("anna", 1, frame) != order("ben", 1, frame)
    assert order("anna", 1, frame) != order("anna", 2, frame)
    assert order("anna", 1, frame) != frame["request"].to_list()


@pytest.mark.parametrize("n", [1, 2, 3, 10, 50, 200])
def test_hidden_repeats_come_far_after_the_first_time(tmp_path: Path, n: int):
    """A tenth is shown twice, at least a third of the session or 20 cards later."""
    session, _ = open_at(tmp_path / "a.jsonl", n, repeats=0.1)
    places: dict[str, list[int]] = {}
    for place, card in enumerate(session.cards()):
        places.setdefault(card.request, []).append(place)
    twice = [p for p in places.values() if len(p) == 2]
    assert len(twice) == round(0.1 * n)
    assert all(b - a >= min(20, n // 3) for a, b in twice)
    assert len({card.token for card in session.cards()}) == session.total


def test_hidden_repeats_are_labels_of_their_own_and_never_counted_aloud(
    tmp_path: Path,
):
    """They are kept apart in the labels; the session shows no agreement with them."""
    session, clock = open_at(tmp_path / "a.jsonl", 20, repeats=0.2)
    press(session, clock, "4" * session.total)
    assert Counter(session.labels()["repeat"]) == {0: 20, 1: 4}
    assert read_labels(tmp_path / "a.jsonl").frame.equals(session.labels())
    assert "agree" not in session._repr_html_()
    assert "repeat" not in session._repr_html_()


def test_a_note_survives_a_crash_before_its_label(tmp_path: Path):
    """It is a line of its own, stays with its reply, and is no label."""
    path = tmp_path / "a.jsonl"
    session, clock = open_at(path, 3)
    session.note("price is wrong")
    assert session.labels().is_empty()
    again, clock = open_at(path, 3)
    assert (again.draft, again.answered) == ("price is wrong", 0)
    assert read_labels(path).frame.is_empty()
    press(again, clock, "s")
    assert again.draft == ""
    press(again, clock, "12")
    assert again.draft == "price is wrong"
    press(again, clock, "3u")
    assert again.draft == "price is wrong"
    press(again, clock, "4")
    notes = {a["label"]: a["note"] for a in again.answers().values()}
    assert notes == {1: "", 2: "", 4: "price is wrong"}


def test_a_late_note_from_a_second_window_takes_no_label_away(tmp_path: Path):
    """A label holds, whatever is noted on its reply afterwards."""
    path = tmp_path / "a.jsonl"
    session, _ = open_at(path, 3)
    behind, _ = open_at(path, 3)
    session.label(4)
    behind.note("late")
    assert read_labels(path).frame["label"].to_list() == [4]
    assert open_at(path, 3)[0].answered == 1


def test_progress_tells_the_time_left_and_breaks(tmp_path: Path):
    """After three cards the median time counts; every 50 cards there is a hint."""
    session, clock = open_at(tmp_path / "a.jsonl", 60)
    assert session.progress() == "0 / 60"
    for _ in range(50):
        clock.now += 30
        session.press("3")
    assert session.progress() == (
        "50 / 60, about 5 min left. A good moment for a break."
    )


def test_the_draw_is_random_within_arm_with_its_weights():
    """As many from each arm; a weight is one over the chance of being drawn."""
    frame = replies(40).filter(
        (pl.col("arm") == "zebra-arm") | (pl.int_range(pl.len()) < 20)
    )
    drawn = draw_for_labels(frame, 10, seed=3)
    assert Counter(drawn["arm"]) == {"zebra-arm": 5, "okapi-arm": 5}
    weights = dict(drawn.group_by("arm").agg(pl.col("weight").first()).rows())
    assert weights == {"zebra-arm": 4.0, "okapi-arm": 2.0}
    more = draw_for_labels(frame, 16, seed=3)
    assert set(drawn["request_id"]) < set(more["request_id"])
    assert draw_for_labels(frame, 999, seed=3).height == frame.height
    assert drawn.equals(draw_for_labels(frame, 10, seed=3))


def test_the_stratified_draw_covers_every_score_and_keeps_the_weights():
    """Rare scores are drawn as often as common ones, and weigh accordingly."""
    frame = replies(200).with_columns(
        pl.when(pl.int_range(pl.len()) < 190).then(4).otherwise(1).alias("score")
    )
    drawn = draw_for_labels(frame, 20, seed=1, by_score="score")
    assert Counter(drawn["score"]) == {4: 10, 1: 10}
    assert sum(drawn["weight"]) == pytest.approx(200)
    mean = (drawn["score"] * drawn["weight"]).sum() / drawn["weight"].sum()
    assert mean == pytest.approx(frame["score"].mean())
    with pytest.raises(LabelError, match="no column 'points'"):
        draw_for_labels(frame, 20, seed=1, by_score="points")
    with pytest.raises(LabelError, match="n is 0"):
        draw_for_labels(frame, 0, seed=1)


def test_weights_of_the_draw_are_in_the_labels(tmp_path: Path):
    """The chance of being drawn goes with every label, also when more are drawn."""
    drawn = draw_for_labels(replies(40), 10, seed=3)
    session = LabelSession.open(
        tmp_path / "a.jsonl", drawn, annotator="anna", repeats=0, clock=Clock()
    )
    session.label(4)
    assert session.labels()["weight"].to_list() == [4.0]
    more = draw_for_labels(replies(40), 20, seed=3)
    larger = LabelSession.open(
        tmp_path / "a.jsonl", more, annotator="anna", repeats=0, clock=Clock()
    )
    larger.label(5)
    saved = read_labels(tmp_path / "a.jsonl").frame
    assert saved["weight"].to_list() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (replies().drop("reply"), {}, "no column 'reply'"),
        (replies(0), {}, "no replies to label"),
        (pl.concat([replies(1), replies(1)]), {}, "repeat"),
        (replies(), {"annotator": " "}, "annotator is empty"),
        (replies(), {"repeats": 2}, "repeats is 2"),
    ],
)
def test_a_session_that_cannot_be_is_refused(
    tmp_path: Path, frame: pl.DataFrame, options: dict, message: str
):
    """Missing texts, no rows, repeated keys, nobody's labels."""
    with pytest.raises(LabelError, match=message):
        LabelSession.open(
            tmp_path / "a.jsonl", frame, **{"annotator": "anna", **options}
        )


def test_a_larger_draw_keeps_what_was_labelled(tmp_path: Path):
    """Items of an earlier, other draw are counted; common ones stay answered."""
    path = tmp_path / "a.jsonl"
    session, clock = open_at(path, 10)
    press(session, clock, "1" * 10)
    larger, _ = open_at(path, 20)
    assert larger.answered == 10
    smaller, _ = open_at(path, 4)
    assert smaller.done
    assert any("6 saved line(s)" in note for note in smaller.notes)


def test_a_spreadsheet_goes_out_blind_and_comes_back(tmp_path: Path):
    """Labels, words for cannot-judge and notes are taken; blanks stay open."""
    session, clock = open_at(tmp_path / "a.jsonl", 4)
    press(session, clock, "3")
    sheet = tmp_path / "out" / "sheet.csv"
    session.to_csv(sheet)
    text = sheet.read_text(encoding="utf-8-sig")
    for secret in ("secret-id", "zebra-arm", "because-of-judge"):
        assert secret not in text
    frame = pl.read_csv(sheet, infer_schema=False)
    assert frame["label"].to_list() == ["3", "", "", ""]
    filled = frame.with_columns(
        pl.Series("label", ["3", "5", "cannot judge", ""]),
        pl.Series("note", ["", "clear", "", ""]),
    )
    filled.write_csv(sheet, separator=";")
    assert "3 labels read, 2 of them new; 1 rows not" in session.from_csv(sheet)
    assert "0 of them new" in session.from_csv(sheet)
    assert session.answered == 3
    again, _ = open_at(tmp_path / "a.jsonl", 4)
    given = again.answers().values()
    assert Counter(a["label"] for a in given) == {3: 1, 5: 1, None: 1}
    assert [a["note"] for a in given if a["note"]] == ["clear"]


def test_a_filled_sheet_is_not_written_over(tmp_path: Path):
    """Labels that were not read back keep their file; what was read may be renewed."""
    session, _ = open_at(tmp_path / "a.jsonl", 3)
    sheet = tmp_path / "sheet.csv"
    assert "3 rows written" in session.to_csv(sheet)
    assert "3 rows written" in session.to_csv(sheet)
    frame = pl.read_csv(sheet, infer_schema=False)
    frame.with_columns(pl.Series("label", ["4", "4/5", ""])).write_csv(sheet)
    with pytest.raises(LabelError, match="holds 2 labels that were not read back"):
        session.to_csv(sheet)
    assert "Read: row 3: '4/5' as 4." in session.from_csv(sheet)
    assert "3 rows written" in session.to_csv(sheet)
    assert pl.read_csv(sheet, infer_schema=False)["label"].to_list() == ["4", "4", ""]
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(LabelError, match="not a sheet of labels"):
        session.to_csv(tmp_path / "other.csv")


def test_a_wrong_spreadsheet_is_refused_whole(tmp_path: Path):
    """Unknown items, two rows for one, and labels off the scale change nothing."""
    session, _ = open_at(tmp_path / "a.jsonl", 3)
    sheet = tmp_path / "sheet.csv"
    session.to_csv(sheet)
    tokens = [card.token for card in session.cards()]
    for rows, message in (
        ([(tokens[0], "4"), (tokens[1], "7")], r"row 3: '7' is no label"),
        ([(tokens[0], "4"), ("abc", "3")], r"row 3: the item 'abc' is not of this"),
        ([(tokens[0], "4"), (tokens[0], "3")], r"row 3: the item .* stands twice"),
    ):
        sheet.write_text("item,label\n" + "".join(f"{t},{v}\n" for t, v in rows))
        with pytest.raises(LabelError, match=message):
            session.from_csv(sheet)
        assert session.answered == 0
    sheet.write_text("id,label\n1,2\n")
    with pytest.raises(LabelError, match="no columns 'item' and 'label'"):
        session.from_csv(sheet)


def test_a_reply_cannot_be_a_formula_in_the_spreadsheet(tmp_path: Path):
    """What a spreadsheet would run gets an apostrophe in front."""
    frame = replies(1).with_columns(pl.lit("=cmd|' /C calc'!A0").alias("reply"))
    session = LabelSession.open(tmp_path / "a.jsonl", frame, annotator="anna")
    session.to_csv(tmp_path / "s.csv")
    assert pl.read_csv(tmp_path / "s.csv")["reply"][0].startswith("'=cmd")


def test_an_unwritable_place_is_an_error_before_anything_is_believed(tmp_path: Path):
    """What cannot be saved is not shown as answered."""
    (tmp_path / "file").write_text("")
    session, clock = open_at(tmp_path / "file" / "a.jsonl")
    clock.now = 1
    with pytest.raises(LabelError, match="cannot be saved"):
        session.press("4")
    assert session.answered == 0


def test_saving_is_fast_enough_to_be_unnoticed(tmp_path: Path):
    """100 answers, each on the disk before the next card, in under 5 seconds."""
    session, _ = open_at(tmp_path / "a.jsonl", 100)
    start = time.perf_counter()
    for _ in range(100):
        session.label(3)
    assert time.perf_counter() - start < 5

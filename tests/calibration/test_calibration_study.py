"""What notebook 1 shows: with labels, without, with one's own, dev and test."""

from dataclasses import replace
import json
import re

import polars as pl
import pytest

from reply_resolution.calibration import label_words, words
from reply_resolution.calibration.people import all_labels, label_session, take_labels
from reply_resolution.calibration.study import keep, study
from reply_resolution.calibration.verdict import CORRECT, FIT, UNFIT, CalibrationRules
from reply_resolution.errors import LabelError
from reply_resolution.inputs import load
from reply_resolution.stats.agreement_table import agreement_table

REPLIES = "data/calibration.csv"
VERDICTS = "data/verdicts_calibration.jsonl"
SMALL = "data/verdicts_small_model.jsonl"


@pytest.fixture(scope="module")
def demo():
    """The demonstration, as notebook 1 loads it."""
    return load(REPLIES, VERDICTS, REPLIES)


@pytest.fixture(scope="module")
def found(demo, tmp_path_factory):
    """Both recorded judges, probes included."""
    return study(
        demo,
        demo.labels,
        rules=CalibrationRules(),
        probe_verdicts="data/verdicts_probes.jsonl",
        compared=SMALL,
        out=str(tmp_path_factory.mktemp("out")),
    )


def _text(fragment):
    return fragment._repr_html_()


def test_the_good_judge_passes_and_the_small_one_is_refused(found):
    """Both verdicts stand in the answer, the second with its reasons."""
    assert found.calibration.verdict == FIT
    assert found.other.verdict == UNFIT
    page = _text(words.answer(found))
    assert "recorded-judge: fit for this decision" in page
    assert "gives 4 to all 112 replies" in page
    assert found.comparison.better == "first"
    assert "recorded-judge agrees better" in _text(words.comparison_words(found))


def test_two_people_have_one_kappa_everywhere(found):
    """The page's table, its check, the stored calibration and the verb say the same."""
    kappa = found.people.pairs["a|b"].weighted_kappa
    assert kappa == found.people.weighted_kappa == found.calibration.people
    verb = agreement_table(found.frame)["between"]["label_a|label_b"]
    assert verb["weighted_kappa"] == kappa.to_dict()


def test_the_order_of_the_label_file_changes_no_digit(demo, found, tmp_path):
    """Rows shuffled, people in another order, a third among them: one calibration."""
    later = demo.labels.filter(annotator="a").with_columns(
        annotator=pl.lit("c"), label=(pl.col("label") + 1).clip(1, 5)
    )
    for labels in (demo.labels, pl.concat([demo.labels, later])):
        pages = []
        for seed in (1, 2):
            mixed = labels.sample(fraction=1, shuffle=True, seed=seed)
            one = study(demo, mixed, rules=CalibrationRules(), out=str(tmp_path))
            document = one.calibration.document()
            del document["created_at"]
            pages.append((document, one.people, one.plan, dict(one.by_person)))
            pages[-1] += (_text(words.numbers_table(one)), one.alternative)
        assert pages[0] == pages[1]


def test_probes_of_another_judge_are_not_this_judges(tmp_path):
    """Probe verdicts count for the judge who gave them; for another they are named."""
    small = load(REPLIES, SMALL, REPLIES)
    found = study(
        small,
        small.labels,
        rules=CalibrationRules(),
        probe_verdicts="data/verdicts_probes.jsonl",
        out=str(tmp_path),
    )
    assert found.card is None
    assert any("another judge" in note for note in found.notes)


def test_every_piece_of_the_page_is_made(found):
    """Tables and figures come out, and figures say what they show."""
    pieces = [
        words.read_words(found),
        words.numbers_table(found),
        words.alternative_words(found),
        words.disagreements(found),
        words.segments_table(found),
        words.steady_words(found),
        label_words.plan_table(found),
        label_words.plan_words(found),
        label_words.label_counts(found),
        words.checks_table(found),
        words.provenance_list(found, "kept"),
        label_words.rubric_levels(),
    ]
    for piece in pieces:
        assert not re.search(r"\bnan\b", _text(piece).lower())
    for figure in (words.kappas, words.confusion, words.level_bias):
        shown = figure(found)
        assert any(c.isdigit() for c in shown.alt)
        assert "<svg" in shown.svg
    assert "three annotators; there are 2" in _text(words.alternative_words(found))
    assert "simulated" in _text(words.read_words(found))


def test_the_worked_examples_get_the_right_scores(found):
    """5 for the plain full answer, 2 for the warm reply that says nothing."""
    page = _text(words.worked_examples(found))
    assert "Your plan renews on 14 March" in page
    assert "Great question!" in page
    assert page.count("<td>5</td><td>5</td>") == 1
    assert page.count("<td>2</td><td>2</td>") == 1


def test_largest_disagreements_come_first(found):
    """No reply below the first differs more than it."""
    labels = ["label_a", "label_b"]
    gap = (
        found.frame["score"]
        - found.frame.select(pl.mean_horizontal(*labels)).to_series()
    ).abs()
    worst = found.frame["request_id"].gather(gap.arg_sort(descending=True)).to_list()
    page = _text(words.disagreements(found, rows=3))
    largest = found.frame.filter(gap == gap.max())["request_id"].to_list()
    assert any(name in page for name in largest)
    assert worst[-1] not in page


def test_no_labels_yet(demo, tmp_path):
    """Nothing is invented: no verdict, how many labels to make, where to go on."""
    plain = load(REPLIES, VERDICTS)
    empty = study(plain, plain.labels, rules=CalibrationRules(), out=str(tmp_path))
    assert empty.calibration is None
    assert "no labels yet" in _text(words.answer(empty))
    assert empty.plan.rows[0].labels == 50
    assert "to be equal in 70%" in _text(label_words.plan_words(empty))
    assert "No calibration was written" in keep(empty, str(tmp_path))
    assert not list(tmp_path.iterdir())
    for piece in (
        words.kappas,
        words.confusion,
        words.level_bias,
        words.numbers_table,
        words.disagreements,
        words.segments_table,
        words.checks_table,
        label_words.label_counts,
        words.steady_words,
        words.comparison_words,
    ):
        assert _text(piece(empty))


def test_twenty_labels_of_your_own_enter(demo, tmp_path):
    """Label in a session, run again: a third person, and the alternative test."""
    out = str(tmp_path)
    clock = iter(range(10**9, 10**9 + 10_000))  # far past the guard against held keys
    session = label_session(demo, "anna", n=20, seed=7, out=out)
    session._clock = lambda: float(next(clock))
    truth = dict(zip(demo.replies["request_id"], demo.replies["score"], strict=True))
    while not session.done:
        key = session._pending[0][0]
        session.press(str(truth[key]))
    labels = all_labels(demo, out)
    assert set(labels["annotator"]) == {"a", "b", "anna"}
    mine = labels.filter(pl.col("annotator") == "anna", pl.col("repeat") == 0)
    assert len(mine) == 20
    result = study(demo, labels, rules=CalibrationRules(), out=out)
    assert result.by_person["anna"].exact.estimate == 1
    assert result.alternative.applies
    assert result.calibration.verdict in (FIT, CORRECT)
    assert "anna" in _text(label_words.label_counts(result))


def _label_all(session, truth):
    clock = iter(range(10**9, 10**9 + 10_000))
    session._clock = lambda: float(next(clock))
    while not session.done:
        session.press(str(truth[session._pending[0][0]]))


def test_nothing_is_shown_while_somebody_labels(demo, tmp_path):
    """Until the last label is in, no score, label or agreement is on the page."""
    options = {"n": 20, "seed": 7, "out": str(tmp_path), "interactive": True}
    given = take_labels(demo, "Anna", **options)
    assert given.session is not None
    assert given.labels.is_empty()
    assert "Anna has answered 0 of 22" in given.waiting
    result = study(
        demo,
        given.labels,
        rules=CalibrationRules(),
        waiting=given.waiting,
        out=options["out"],
    )
    assert "Anna has answered 0 of 22" in _text(words.answer(result))
    for piece in (
        words.numbers_table,
        words.confusion,
        words.level_bias,
        words.disagreements,
        words.segments_table,
        words.comparison_words,
        label_words.label_counts,
        words.checks_table,
    ):
        assert "Hidden while you label" in _text(piece(result)), piece.__name__
    said = keep(result, options["out"])
    assert "No calibration was written" in said
    assert not (tmp_path / "calibration.json").exists()


def test_a_batch_run_takes_the_labels_that_are_kept(demo, tmp_path):
    """A notebook left with a name in it runs through in batch and hides nothing."""
    options = {"n": 3, "seed": 7, "out": str(tmp_path)}
    label_session(demo, "Anna", **options).label(3)
    given = take_labels(demo, "Anna", **options, interactive=False)
    assert given.session is None
    assert not given.waiting
    assert "Anna" in given.labels["annotator"].to_list()


def test_a_batch_run_without_the_annotators_labels_says_where_they_are(demo, tmp_path):
    """Labels kept beside the notebook are not left out without a word."""
    options = {"n": 3, "seed": 7, "out": str(tmp_path / "other")}
    with pytest.raises(LabelError, match="--out notebooks/out"):
        take_labels(demo, "sam", **options, interactive=False)


def test_the_answer_names_who_labelled_and_what_is_open(found):
    """A judge that is fit still says what was not measured."""
    page = _text(words.answer(found))
    assert "replies labelled by a, b; floor" in page
    assert "Not measured:" in page


def test_one_person_is_not_two_by_a_capital_letter(demo, tmp_path):
    """Going on as "anna" does not silently start anew beside "Anna"."""
    options = {"n": 3, "seed": 7, "out": str(tmp_path)}
    label_session(demo, "Anna", **options).label(3)
    with pytest.raises(LabelError, match="'Anna'"):
        label_session(demo, "anna", **options)


def test_twenty_labels_are_a_first_look(demo, tmp_path):
    """Too few labels for a verdict do not condemn the judge; they ask for more."""
    mine = replace(demo, labels=demo.labels.clear())
    out = str(tmp_path)
    session = label_session(mine, "Anna", n=20, seed=7, out=out)
    scores = demo.replies["score"]
    _label_all(session, dict(zip(demo.replies["request_id"], scores, strict=True)))
    labels = all_labels(mine, out)
    result = study(mine, labels, rules=CalibrationRules(), out=out)
    assert result.calibration.pending
    assert result.calibration.verdict == UNFIT  # the readout must not use it yet
    page = _text(words.answer(result))
    assert "not settled yet" in page
    assert "label 30 more replies" in page
    seen = words.labelled(result)["request_id"]
    assert set(seen) == set(labels["request_id"])


def test_a_larger_draw_keeps_what_was_answered(demo, tmp_path):
    """Labels, repeats and times of the smaller draw stay; nothing is foreign."""
    out = str(tmp_path)
    truth = dict(zip(demo.replies["request_id"], demo.replies["score"], strict=True))
    first = label_session(demo, "Anna", n=20, seed=7, out=out)
    _label_all(first, truth)
    before = first.labels().drop("weight").sort("request_id", "repeat")
    times = {k: v["time"] for k, v in first._given.items()}
    more = label_session(demo, "Anna", n=40, seed=7, out=out)
    assert more.answered == first.total == 22
    assert more.labels().drop("weight").sort("request_id", "repeat").equals(before)
    assert {k: v["time"] for k, v in more._given.items()} == times
    assert more.notes == (f"Going on after 22 of {more.total}.",)


def test_the_demonstrations_second_judge_is_not_anybodys(demo, tmp_path):
    """With replies of one's own the demonstration's second judge is left out."""
    own = replace(demo, provenance_note="")
    result = study(
        own, own.labels, rules=CalibrationRules(), compared=SMALL, out=str(tmp_path)
    )
    assert result.other is None
    assert any("belongs to the demonstration" in note for note in result.notes)


def test_a_name_that_already_labelled_is_refused(demo, tmp_path):
    """Two sets of labels under one name would be mixed."""
    session = label_session(demo, "a", n=3, seed=7, out=str(tmp_path))
    session._clock = lambda: 1e9
    session.press("3")
    with pytest.raises(LabelError, match="under another name"):
        all_labels(demo, str(tmp_path))


def test_the_calibration_is_kept_where_the_readout_looks(found, tmp_path):
    """In the folder as JSON without NaN."""
    said = keep(found, str(tmp_path))
    assert "calibration.json" in said
    text = (tmp_path / "calibration.json").read_text("utf-8")
    assert json.loads(text)["verdict"] == FIT


def test_dev_labels_are_half_and_looks_at_test_are_counted(demo, tmp_path):
    """The second judge that looks at the test labels is told of the first."""
    out = str(tmp_path)
    dev = study(
        demo, demo.labels, rules=CalibrationRules(), part="dev", out=out, seed=7
    )
    test = study(
        demo, demo.labels, rules=CalibrationRules(), part="test", out=out, seed=7
    )
    assert len(dev.labels) + len(test.labels) == len(demo.labels)
    assert not any("looked at before" in n for n in test.notes)
    other = load(REPLIES, SMALL, REPLIES)
    again = study(
        other, other.labels, rules=CalibrationRules(), part="test", out=out, seed=7
    )
    assert any("looked at before" in n for n in again.notes)

"""Notebook 3's page: on the bundled data, on pairs, and on tables that lack things."""

from dataclasses import replace
import json
import math
import re

import polars as pl
import pytest

import reply_resolution as rr
from reply_resolution.errors import ParameterError, ReportError
from reply_resolution.pages import collapse_checks as checks
from reply_resolution.pages import collapse_words as words
from reply_resolution.pages.collapse_check import check_collapse
from reply_resolution.plots.power import both_analyses, power_curves


@pytest.fixture(scope="module")
def bundled():
    """The bundled experiment as notebook 3 loads it."""
    return rr.load(
        "data/experiment.csv",
        "data/verdicts_experiment.jsonl",
        "data/experiment_labels.csv",
        control="control",
    )


@pytest.fixture(scope="module")
def check(bundled):
    """What notebook 3 shows of it."""
    return check_collapse(bundled, control="control")


def test_answer_comes_with_its_reason_and_says_what_was_planned(check):
    """The advice, its reason in numbers, and which analysis decides, in words."""
    page = str(words.answer(check))
    assert "Stay ordinal." in page
    assert f"{check.result.ordinal.power:.0%}" in page
    assert "Planned was the ordinal analysis" in page
    assert "This hangs on the assumption" in page
    assert f"{check.needed[0].binary.n_per_arm:,}" in page


def test_planned_binary_is_kept_even_against_the_advice(bundled):
    """A plan that named the binary analysis stands; the advice is for the next time."""
    found = check_collapse(bundled, control="control", planned="binary")
    page = str(words.answer(found))
    assert "Planned was the binary analysis" in page
    assert "for this experiment that stands" in page


def test_users_are_the_units_and_traffic_is_measured(check):
    """246 users; 160 replies a week from the time between first and last."""
    assert (check.unit, check.units) == ("users", 246)
    assert check.weekly == pytest.approx(160, abs=1)
    need = check.needed[0].ordinal.n_per_arm
    weeks = math.ceil(2 * need / check.weekly)
    assert f"{need} ({weeks} weeks)" in str(words.needed_table(check))
    unknown = str(words.needed_table(replace(check, weekly=None)))
    assert "week" not in unknown
    assert str(need) in unknown


def test_judge_against_people_at_each_cut(check):
    """Counted by hand from the tables: at cut 4 the judge alone says so 12 times."""
    row = next(c for c in check.cuts if c.cut == 4)
    assert (row.both, row.judge_only, row.people_only, row.neither) == (37, 12, 0, 31)
    assert "72%" in str(words.confusion_table(check))


def test_correction_restores_the_size_and_widens(check):
    """Dividing by TPR + TNR - 1 gives the larger difference and the wider interval."""
    pooled, own = check.corrected
    shrunk = check.result.binary.estimate / check.errors.skill
    assert pooled.estimate == pytest.approx(shrunk)
    assert pooled.high - pooled.low > check.result.binary.high - check.result.binary.low
    assert own.high - own.low > pooled.high - pooled.low


def test_figure_marks_the_users_n_and_says_the_numbers(check):
    """One panel per assumption; the alt text has both powers at the user's n."""
    figure = words.curves_figure(check)
    assert "160 replies per arm" in figure.alt
    for curve in check.curves:
        assert f"{curve.ordinal[curve.sizes.index(160)]:.0%}" in figure.alt
    assert figure.svg.count("<svg") == 1
    with pytest.raises(ReportError, match="among their sizes"):
        power_curves(check.curves, n=161)


def test_both_analyses_side_by_side(check):
    """The figure's alt text carries both estimates with their intervals."""
    alt = both_analyses(check.result).alt
    assert "−0.33" in alt
    assert "−9.4" in alt


def test_every_number_is_in_the_json_twin(check, tmp_path):
    """`collapse.json` is strict JSON with both analyses, plans, curves and sources."""
    twin = json.loads(check.save(tmp_path).read_text("utf-8"))
    assert twin["ordinal"]["pvalue"] == check.result.ordinal.pvalue
    assert len(twin["needed"]) == len(twin["curves"]) == 3
    assert twin["cuts"][2]["judge_only"] == 12
    assert set(twin["sources"]) == set(check.sources)


def test_whole_page_renders(check):
    """Every part of the page is markup without a hole."""
    for part in (
        words.read_words,
        words.have_table,
        words.needed_table,
        words.people_scale_words,
        words.cut_words,
        words.binary_table,
        words.side_words,
        checks.checks_table,
        checks.next_steps,
        words.provenance,
    ):
        page = str(part(check))
        assert page.startswith("<")
        assert not re.search(r"\bnan\b", page, re.IGNORECASE)
        assert "None" not in page


def test_pairs_take_mcnemar():
    """The replay is recognised as pairs; the first row is the exact McNemar test."""
    data = rr.load("data/replay.csv", "data/verdicts_replay.jsonl", control="control")
    found = check_collapse(data, control="control")
    assert (found.unit, found.units, found.n) == ("pairs", 80, 80)
    assert "exact McNemar" in str(words.binary_table(found))
    assert max(found.result.design_effect) < 1.3
    at = found.curves[0].sizes.index(80)
    assert found.curves[0].ordinal[at] == pytest.approx(found.result.ordinal.power)
    assert found.curves[0].binary[at] == pytest.approx(found.result.binary.power)


def test_without_labels_the_page_says_not_measured(bundled):
    """No labels: no correction and no table of errors, each said in words."""
    bare = replace(bundled, labels=bundled.labels.clear())
    found = check_collapse(bare, control="control")
    assert found.errors is None
    assert found.corrected == (None, None)
    assert "Not measured" in str(words.confusion_table(found))
    assert "not measured" in str(words.people_scale_words(found))
    assert "not measured" in str(checks.checks_table(found))
    with pytest.raises(ParameterError, match="choose it on the labels"):
        check_collapse(bare, control="control", cut=0)


def test_cut_chosen_on_labels_or_after_looking_is_said(bundled):
    """Cut 0 takes the labels' cut; cuts tried on the arms are paid for and marked."""
    labelled = check_collapse(bundled, control="control", cut=0)
    assert labelled.cut_by == "labels"
    assert "chosen on labels" in str(words.cut_words(labelled))
    looked = check_collapse(bundled, control="control", cuts_seen=["3", "4"])
    assert looked.cut_by == "looking"
    assert "pays for that" in str(words.cut_words(looked))
    assert "paid for in the p-value" in str(checks.checks_table(looked))
    assert looked.result.binary.pvalue > labelled.result.binary.pvalue


def test_no_room_for_the_effect_is_said_not_raised(bundled):
    """At the ceiling the page stands, with the reason in place of the curves."""
    frame = bundled.replies.with_columns(
        pl.when(pl.int_range(pl.len()) % 16 == 0).then(4).otherwise(5).alias("score")
    ).with_columns(pl.col("score").cast(pl.Int8))
    found = check_collapse(replace(bundled, replies=frame), control="control")
    assert found.curves == ()
    assert "does not fit" in str(words.curves_figure(found))
    assert "does not fit" in str(words.needed_table(found))
    assert "could not be computed" in str(words.answer(found))
    assert str(checks.next_steps(found))


def test_three_arms_without_users_or_times(bundled):
    """Other columns may be missing; traffic is then unknown, replies the units."""
    frame = bundled.replies.drop("user_id", "created_at")
    found = check_collapse(replace(bundled, replies=frame), control="control")
    assert found.unit == "replies"
    assert found.weekly is None
    assert "not known" in str(words.have_table(found))
    assert found.rows.pvalue_method == "boschloo"


@pytest.mark.parametrize(
    "options", [{"planned": "both"}, {"assume": "drift"}, {"cuts_seen": ["four"]}]
)
def test_unknown_words_are_refused(bundled, options):
    """A misspelt plan or assumption names what is allowed."""
    with pytest.raises(ParameterError):
        check_collapse(bundled, control="control", **options)


def test_strata_are_not_ignored_without_a_word(bundled):
    """A table with strata is told that this page compares without them."""
    half = pl.format("s{}", pl.col("user_id").hash(seed=1) % 2)
    strata = replace(bundled, replies=bundled.replies.with_columns(stratum=half))
    found = check_collapse(strata, control="control")
    assert any("without their strata" in note for note in found.notes)

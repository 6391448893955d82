"""The plan file and the ledger of looks."""

import json
from pathlib import Path

import pytest

from reply_resolution.errors import ParameterError
from reply_resolution.readout.experiment_plan import (
    ExperimentPlan,
    Metric,
    changes,
    record_look,
)

ROOT = Path(__file__).parents[2]


def test_the_bundled_plan_is_read_whole():
    """The shipped plan file gives the thresholds it names."""
    plan = ExperimentPlan.load(ROOT / "data" / "plan.toml")
    assert plan.planned_replies == 160
    assert plan.confidence == pytest.approx(0.95)
    assert [m.column for m in plan.guardrails] == ["contacted_again_24h", "latency_ms"]
    assert plan.guardrails[0].kind == "rate"
    assert plan.secondary[0].margin is None
    assert plan.segments == ("language",)


def test_the_hash_follows_the_content_not_the_layout(tmp_path):
    """A comment leaves the hash alone; a threshold changes it."""
    path = tmp_path / "plan.toml"
    path.write_text("alpha = 0.05\n")
    first = ExperimentPlan.load(path).sha256
    path.write_text("# a comment\n[decision]\nalpha = 0.05\n")
    assert ExperimentPlan.load(path).sha256 == first
    path.write_text("alpha = 0.04\n")
    assert ExperimentPlan.load(path).sha256 != first
    assert len(first) == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alhpa = 0.05", "Did you mean alpha"),
        ("alpha = 1.0", "between 0 and 1"),
        ("alpha = nan", "between 0 and 1"),
        ("alpha = '5%'", "must be a number"),
        ("alpha = true", "must be a number"),
        ("worthwhile_gain = 0", "between 0 and 4"),
        ("worthwhile_gain = 9", "scores go from 1 to 5"),
        ("harm_limit = -0.2", "between 0 and 4"),
        ("harm_limit = inf", "between 0 and 4"),
        ("planned_looks = 0", "at least 1"),
        ("planned_looks = 2.5", "whole number"),
        ("minimum_units = 1", "at least 2"),
        ("agreement_floor = 60", "from -1 to 1"),
        ("coverage_floor = -0.1", "from 0 to 1"),
        ("accept_unchecked_judge = 'yes'", "true or false"),
        ("allocation = {control = 0}", "above 0"),
        ("allocation = {control = inf}", "finite"),
        ("allocation = 3", "one number above 0 for each arm"),
        ("experiment = 3", "must be text"),
        ("[[secondary]]\ncolumn = 3", "must be text"),
        ("[[secondary]]\ncolumn = 'x'\ndigits = 2.5", "whole number from 0 to 9"),
        ("[[secondary]]\ncolumn = 'x'\nmargin = inf", "finite number above 0"),
        ("[[guardrails]]\ncolumn = 'x'\nmargin = nan", "finite number above 0"),
        ("segments = 'language'", "list of column names"),
        ("alpha = 0.1\n[decision]\nalpha = 0.1", "given twice"),
        ("decision = 3", "must be a table"),
        ("[[guardrails]]\ncolumn = 'x'", "has no margin"),
        ("[[guardrails]]\ncolumn = 'x'\nmargin = -1", "above 0"),
        ("[[guardrails]]\ncolumn = 'x'\nmargin = 1\nbetter = 'up'", "one of"),
        ("[[guardrails]]\nmargin = 1", "'column' is missing"),
        ("guardrails = ['x']", "one table per metric"),
        ("alpha = ", "not a TOML file"),
    ],
)
def test_a_wrong_plan_is_refused_with_what_to_do(tmp_path, text, message):
    """Unknown names and impossible values stop before anything is computed."""
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=message):
        ExperimentPlan.load(path)


def test_a_missing_plan_file_says_how_to_write_one(tmp_path):
    """No plan file is an error that names the example."""
    with pytest.raises(ParameterError, match="before you look at the data"):
        ExperimentPlan.load(tmp_path / "none.toml")


def test_a_plan_survives_its_own_dictionary():
    """`to_dict` and `from_dict` are inverses, guardrails included."""
    plan = ExperimentPlan(
        guardrails=(Metric("x", margin=1.0),), segments=("a",), allocation={"b": 2}
    )
    assert ExperimentPlan.from_dict(plan.to_dict()) == plan


def test_changes_name_what_moved():
    """Every differing name is listed with both values, tables by name only."""
    a = ExperimentPlan(alpha=0.05, segments=("x",)).to_dict()
    b = ExperimentPlan(alpha=0.1, segments=()).to_dict()
    assert changes(a, b) == ["alpha 0.05 → 0.1", "segments changed"]
    assert changes(a, a) == []


def test_looks_are_counted_by_data_and_reruns_are_free(tmp_path):
    """New data are a new look; the same data again are the same look."""
    plan = ExperimentPlan(experiment="Weekly / test")
    assert record_look(tmp_path, plan=plan, data_sha256="a").number == 1
    assert record_look(tmp_path, plan=plan, data_sha256="b").number == 2
    assert record_look(tmp_path, plan=plan, data_sha256="a").number == 1
    assert record_look(tmp_path, plan=plan, data_sha256="c").number == 3
    (ledger,) = tmp_path.iterdir()
    assert ledger.name.startswith("looks_weekly-test-")
    assert ledger.suffix == ".json"


def test_every_experiment_has_its_own_ledger(tmp_path):
    """Names that differ in case, marks or script alone share no looks."""
    for name in ("A b", "a-b", "日本", "中国", "", "x" * 300):
        plan = ExperimentPlan(experiment=name)
        assert record_look(tmp_path, plan=plan, data_sha256=name).number == 1
    assert len(list(tmp_path.iterdir())) == 6


def test_a_name_that_is_new_in_plans_is_no_change(tmp_path):
    """A ledger from before a threshold existed: the first look had its default."""
    plan = ExperimentPlan()
    record_look(tmp_path, plan=plan, data_sha256="a")
    (ledger,) = tmp_path.iterdir()
    held = json.loads(ledger.read_text("utf-8"))
    del held["looks"][0]["plan"]["bias_margin"]
    ledger.write_text(json.dumps(held), "utf-8")
    assert record_look(tmp_path, plan=plan, data_sha256="b").plan_changes == ()


def test_a_plan_changed_after_the_first_look_is_told(tmp_path):
    """The first look's plan is the one that counts; going back to it is silent."""
    plan = ExperimentPlan()
    changed = ExperimentPlan(worthwhile_gain=0.1)
    assert record_look(tmp_path, plan=plan, data_sha256="a").plan_changes == ()
    for data in ("a", "b"):
        look = record_look(tmp_path, plan=changed, data_sha256=data)
        assert look.plan_changes == ("worthwhile_gain 0.3 → 0.1",)
    assert record_look(tmp_path, plan=plan, data_sha256="a").plan_changes == ()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"looks": []}', '{"looks": [{"data_sha256": "a", "plan": {}}]}'],
)
def test_a_damaged_ledger_is_an_error(tmp_path, text):
    """Looks are never silently counted from 1 again."""
    plan = ExperimentPlan()
    record_look(tmp_path, plan=plan, data_sha256="a")
    (ledger,) = tmp_path.iterdir()
    ledger.write_text(text)
    with pytest.raises(ParameterError, match="ledger of looks"):
        record_look(tmp_path, plan=plan, data_sha256="a")

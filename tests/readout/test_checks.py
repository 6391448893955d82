"""The checks of the readout: status, number, limit, repair."""

import pytest

from reply_resolution.readout import checks as ck
from reply_resolution.readout import checks_judge as cj
from reply_resolution.readout.checks_judge import Calibrated
from reply_resolution.readout.experiment_plan import ExperimentPlan, Look

PLAN = ExperimentPlan(planned_replies=160)
GOOD = Calibrated(0.8, 0.7, 0.88, 120, 0.1, "of the calibration")


@pytest.mark.parametrize(
    ("units", "status"),
    [
        ({"control": 160, "treatment": 160}, "ok"),
        ({"control": 121, "treatment": 125}, "ok"),
        ({"control": 612, "treatment": 402}, "stop"),
        ({"a": 500, "b": 505, "c": 300}, "stop"),
    ],
)
def test_a_broken_split_stops(units, status):
    """A split that the plan explains less than once in 1,000 stops the reader."""
    check = ck.check_assignment(units, PLAN, unit="users")
    assert check.status == status
    assert bool(check.repair) == (status == "stop")
    assert (check.stop() is None) == (status != "stop")


def test_the_planned_shares_are_what_the_split_is_held_against():
    """A split of 90 to 10 is fine where it was planned."""
    plan = ExperimentPlan(allocation={"control": 9, "treatment": 1})
    units = {"control": 905, "treatment": 95}
    assert ck.check_assignment(units, plan, unit="users").status == "ok"
    assert ck.check_assignment(units, PLAN, unit="users").status == "stop"


def test_pairs_are_not_assigned():
    """A paired design has no sample ratio to break."""
    check = ck.check_assignment({"a": 80, "b": 80}, PLAN, unit="pairs", paired=True)
    assert check.status == "ok"
    assert "no assignment" in check.text


@pytest.mark.parametrize(
    ("scored", "status"),
    [
        ((160, 160), "ok"),
        ((158, 157), "ok"),
        ((160, 148), "stop"),  # differs between the arms
        ((150, 150), "stop"),  # under the floor of 95%
        ((0, 160), "stop"),
    ],
)
def test_coverage_stops_when_low_or_unequal(scored, status):
    """Scores missing for a reason bias what is left."""
    judged = {"control": 160, "treatment": 160}
    got = ck.check_coverage(
        judged,
        dict(zip(judged, scored, strict=True)),
        PLAN,
        reasons={"refused": 3},
        bounds=(-0.4, 0.1),
    )
    assert got.status == status
    if status == "ok" and sum(scored) < 320:
        assert "refused 3" in got.text
        assert "−0.40" in got.effect_text
        assert "−0.40" not in got.text


def test_too_few_units_stop():
    """One arm under the least number of users is enough."""
    check = ck.check_enough({"a": 19, "b": 400}, PLAN, unit="users")
    assert check.status == "stop"
    assert ck.check_enough({"a": 20, "b": 20}, PLAN, unit="users").status == "ok"


def test_mixed_origins_stop_and_name_both():
    """Two metric versions or two judges are never one experiment."""
    got = ck.check_versions(["m@v1:aaaaaaaa", "m@v2:bbbbbbbb"], ["j" * 64], ["x"])
    assert got.status == "stop"
    assert "m@v1:aaaaaaaa" in got.text
    assert "m@v2:bbbbbbbb" in got.text
    assert ck.check_versions(["m"], ["a" * 64, "b" * 64], ["x"]).status == "stop"
    assert ck.check_versions(["m"], ["a" * 64], ["x", "y"]).status == "look"
    assert ck.check_versions(["m"], ["a" * 64], ["x"]).status == "ok"
    assert ck.check_versions([], [], []).status == "none"


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [(0.3, 0.59, "stop"), (0.3, 0.6, "look"), (0.6, 0.8, "ok"), (0.59, 0.9, "look")],
)
def test_only_an_interval_wholly_below_the_floor_stops(low, high, status):
    """An interval that straddles the floor asks to look, never to stop."""
    found = Calibrated(0.5, low, high, 50, None, "")
    assert cj.check_judge(found, PLAN).status == status


def test_a_judge_nobody_compared_stops_unless_the_plan_accepts_it():
    """Agreement never measured is no pass."""
    assert cj.check_judge(None, PLAN).status == "stop"
    told = ExperimentPlan(accept_unchecked_judge=True)
    assert cj.check_judge(None, told).status == "look"
    unfit = Calibrated(0.7, 0.65, 0.8, 90, 0.0, "", "not fit", ("one score for all",))
    for plan in (PLAN, told):
        assert cj.check_judge(unfit, plan).status == "stop"
    assert "one score for all" in cj.check_judge(unfit, PLAN).text


def test_fit_with_correction_asks_for_labels_of_the_experiment():
    """A judge to be corrected is fine once labels of this experiment correct it."""
    found = Calibrated(0.7, 0.65, 0.8, 90, 0.0, "", "fit with correction")
    assert cj.check_judge(found, PLAN).status == "look"
    assert cj.check_judge(found, PLAN, human_corrected=True).status == "ok"


@pytest.mark.parametrize(
    ("interval", "status"),
    [
        ((-0.1, 0.15), "ok"),
        ((0.05, 0.15), "ok"),  # favours an arm, by less than matters
        ((-0.3, 0.1), "look"),
        ((0.1, 0.5), "look"),
    ],
)
def test_favour_is_ok_only_inside_the_margin(interval, status):
    """No alarm is no evidence: the whole interval must be inside the margin."""
    got = cj.check_favour(
        bias=sum(interval) / 2,
        interval=interval,
        labels={"a": 40, "b": 40},
        plan=PLAN,
        tipping=0.3,
        treatment="b",
    )
    assert got.status == status
    assert "0.30" in got.effect_text


def test_unmeasured_favour_is_not_a_pass():
    """Without labels the line says "not measured" and what it takes."""
    got = cj.check_favour(
        bias=None, interval=None, labels={}, plan=PLAN, tipping=None, treatment="b"
    )
    assert got.status == "none"
    assert "30 labels" in got.text


def test_looks_beyond_the_plan_and_changed_plans_are_shown():
    """Too many looks, early looks and changed plans ask to look."""
    once = ck.check_looks(Look(1, ()), PLAN, replies=160, final=False)
    assert once.status == "ok"
    early = ck.check_looks(Look(1, ()), PLAN, replies=100, final=False)
    assert early.status == "look"
    assert "read early" in early.text
    assert ck.check_looks(Look(2, ()), PLAN, replies=160, final=True).status == "look"
    changed = ck.check_looks(
        Look(1, ("alpha 0.05 → 0.1",)), PLAN, replies=160, final=False
    )
    assert changed.status == "look"
    assert "alpha 0.05 → 0.1" in changed.text


def test_precision_is_held_against_gain_and_harm():
    """The interval must be narrow enough to tell a gain from harm."""
    assert ck.check_precision(0.25, PLAN).status == "ok"
    assert ck.check_precision(0.26, PLAN).status == "look"
    assert ck.check_precision(None, PLAN).status == "none"


def test_empty_replies_ask_to_look_when_they_decide():
    """Empty replies are counted; they matter where the decision hangs on them."""
    assert (
        ck.check_empty({"a": 0}, effect=None, interval=None, same_decision=True).status
        == "ok"
    )
    got = ck.check_empty(
        {"a": 0, "b": 9}, effect=0.1, interval=(-0.1, 0.3), same_decision=False
    )
    assert got.status == "look"
    assert "b 9" in got.text
    assert "+0.10" in got.effect_text


def test_length_that_decides_asks_to_look():
    """A corrected effect on another side than the judge's is worth a look."""
    known = {
        "ratio": 2.2,
        "slope": 0.1,
        "interval": (0.02, 0.18),
        "corrected": 0.1,
        "corrected_interval": (-0.1, 0.3),
        "labels": 80,
        "treatment": "b",
    }
    assert cj.check_length(same_decision=False, **known).status == "look"
    assert cj.check_length(same_decision=True, **known).status == "ok"
    none = cj.check_length(
        **{**known, "slope": None, "interval": None}, same_decision=None
    )
    assert none.status == "none"
    assert "2.2 times" in none.text


def test_the_budget_says_what_it_left_out():
    """Rows the budget did not reach ask to look; sampling alone does not."""
    got = ck.check_budget(
        planned=100, judged=70, by_budget=30, by_sampling=0, cost_usd=1.5
    )
    assert got.status == "look"
    assert "30 by budget" in got.text
    assert "1.50 USD" in got.text
    drawn = ck.check_budget(
        planned=100, judged=70, by_budget=0, by_sampling=30, cost_usd=None
    )
    assert drawn.status == "ok"
    assert "not recorded" in drawn.text

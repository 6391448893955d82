"""The ordered rules of the recommendation, on records of evidence."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.readout.recommendation import (
    JUDGE_ALONE,
    Evidence,
    GuardrailOutcome,
    Stop,
    decide,
    overall,
    recommend,
)

PLAN = ExperimentPlan(worthwhile_gain=0.3, harm_limit=0.2)
BASE = Evidence(
    treatment="treatment",
    control="control",
    estimate=0.4,
    low=0.1,
    high=0.7,
    confidence=0.95,
    pvalue=0.01,
    human_corrected=True,
    replies_needed=900,
    replies=400,
)
BAD_RAIL = GuardrailOutcome("Time to reply", False, "+800 ms (+600 to +1,000)")


@pytest.mark.parametrize(
    ("low", "high", "pvalue", "rule"),
    [
        (0.1, 0.7, 0.01, "ship"),
        (0.1, 0.7, 0.05, "ship"),  # alpha itself counts
        (0.1, 0.7, 0.051, "no_winner"),  # interval and p-value disagree
        (0.0, 0.7, 0.01, "no_winner"),  # an end exactly on 0 is no win
        (-0.7, -0.1, 0.01, "keep_control"),
        (-0.7, 0.0, 0.01, "no_winner"),
        (-0.7, -0.1, 0.2, "no_winner"),
        (-0.15, -0.01, 0.01, "keep_control"),  # control wins before "too small"
        (0.01, 0.29, 0.01, "no_worthwhile_difference"),  # although it excludes 0
        (0.01, 0.3, 0.01, "ship"),  # an end exactly on the gain is not inside
        (-0.2, 0.1, 0.6, "no_winner"),  # an end exactly on the harm limit
        (-0.19, 0.29, 0.6, "no_worthwhile_difference"),
        (-0.19, -0.05, 0.2, "no_worthwhile_difference"),
        (-0.5, 0.5, 0.9, "no_winner"),
        (0.1, 0.7, None, "ship"),  # a confidence sequence decides alone
        (-0.7, -0.1, None, "keep_control"),
        (0.0, 0.0, 1.0, "no_worthwhile_difference"),  # all scores equal
    ],
)
def test_the_first_rule_that_applies_decides(low, high, pvalue, rule):
    """Each rule holds exactly on its side of every limit."""
    assert decide(replace(BASE, low=low, high=high, pvalue=pvalue), PLAN) == rule


def test_a_failed_hard_check_hides_the_effect():
    """Whatever the effect, a hard check stands first and no effect is printed."""
    stop = Stop("Control got 612 replies, treatment 402.", "Repair the assignment.")
    got = recommend(replace(BASE, stops=(stop,)), PLAN)
    assert got.rule == "do_not_read"
    assert got.sentence == stop.reason
    assert got.action == stop.repair
    assert "0.4" not in got.sentence + got.action + got.caveat


def test_a_guardrail_past_its_margin_or_not_measured_holds_a_winner():
    """A winner is held, and the guardrail named; a loser is not 'held'."""
    for rail in (BAD_RAIL, GuardrailOutcome("Cost", None, "not in the table")):
        got = recommend(replace(BASE, guardrails=(rail,)), PLAN)
        assert got.rule == "hold"
        assert rail.name in got.action
        assert rail.text in got.sentence
    lost = replace(BASE, low=-0.7, high=-0.1, guardrails=(BAD_RAIL,))
    assert decide(lost, PLAN) == "keep_control"


def test_a_guardrail_within_its_margin_does_not_hold():
    """A guardrail that kept its margin leaves the recommendation to ship."""
    fine = GuardrailOutcome("Cost", True, "+0.1")
    assert decide(replace(BASE, guardrails=(fine,)), PLAN) == "ship"


@pytest.mark.parametrize(
    ("low", "high", "shift", "rule"),
    [
        (0.1, 0.7, -0.09, "ship"),
        (0.1, 0.7, -0.1, "no_winner"),  # exactly on 0 once counted as unresolved
        (0.1, 0.7, 0.5, "ship"),  # control lost scores: that never hurts a treatment
        (-0.7, -0.1, 0.1, "no_winner"),
        (-0.7, -0.1, 0.09, "keep_control"),
        (-0.7, -0.1, -0.5, "keep_control"),
    ],
)
def test_a_win_survives_counting_missing_scores_as_unresolved(low, high, shift, rule):
    """Low scores that got lost in one arm cannot make it the winner."""
    got = recommend(replace(BASE, low=low, high=high, missing_shift=shift), PLAN)
    assert got.rule == rule
    assert ("count as unresolved" in got.sentence) == (rule == "no_winner")


def test_ship_says_its_size_against_the_worthwhile_gain():
    """The sentence tells a sure gain from one that may be too small."""
    assert "possibly smaller" in recommend(BASE, PLAN).sentence
    big = recommend(replace(BASE, estimate=0.5, low=0.3), PLAN)
    assert "at least the 0.30 points" in big.sentence
    assert big.word == "Ship treatment"


@pytest.mark.parametrize("bounds", [(0.1, 0.7), (-0.7, -0.1), (-0.5, 0.5), (-0.1, 0.1)])
def test_the_judge_alone_is_said_whenever_people_did_not_correct_it(bounds):
    """Without labels of this experiment the sentence and tipping point are there."""
    low, high = bounds
    alone = replace(BASE, low=low, high=high, human_corrected=False, tipping_point=0.17)
    got = recommend(alone, PLAN)
    assert JUDGE_ALONE in got.caveat
    assert "0.17" in got.caveat
    assert JUDGE_ALONE in recommend(replace(alone, tipping_point=None), PLAN).caveat
    assert recommend(replace(alone, human_corrected=True), PLAN).caveat == ""


def test_no_winner_says_what_the_data_fit_and_what_is_needed():
    """An open result gives both ends and the replies that would settle it."""
    got = recommend(replace(BASE, low=-0.31, high=0.4, pvalue=0.5), PLAN)
    assert "from 0.31 points worse to 0.40 points better" in got.sentence
    assert "500 more replies per arm (900 in all)" in got.action
    enough = replace(BASE, low=-0.31, high=0.4, pvalue=0.5, replies=1000)
    assert "were enough" in recommend(enough, PLAN).action
    unknown = replace(BASE, low=-0.31, high=0.4, pvalue=0.5, replies_needed=None)
    assert "not known" in recommend(unknown, PLAN).action


def test_nothing_to_say_is_an_error():
    """No effect and no failed check never becomes a recommendation."""
    with pytest.raises(StatisticsError, match="no failed check"):
        decide(replace(BASE, estimate=None, low=None, high=None), PLAN)


def test_several_treatments_ship_the_best_winner():
    """With several treatments the first line is the best arm that may be shipped."""
    won = recommend(BASE, PLAN)
    lost = recommend(replace(BASE, treatment="c", low=-0.7, high=-0.1), PLAN)
    open_ = recommend(replace(BASE, treatment="b", low=-0.5, high=0.5, pvalue=1), PLAN)
    small = recommend(replace(BASE, treatment="d", low=-0.1, high=0.1, pvalue=1), PLAN)
    second = recommend(replace(BASE, treatment="e", low=0.05, high=0.4), PLAN)
    assert overall([won, second, open_, lost], "control") == won
    assert overall([open_, lost], "control").rule == "no_winner"
    both = overall([small, lost], "control")
    assert both.rule == "keep_control"
    assert "d and c" in both.action
    assert overall([lost], "control") == lost
    with pytest.raises(StatisticsError):
        overall([], "control")


FORBIDDEN = ("trending", "almost significant", "no effect", "95% probability", "chance")


@given(
    estimate=st.floats(-4, 4),
    width=st.floats(0, 3),
    pvalue=st.one_of(st.none(), st.floats(0, 1)),
    human=st.booleans(),
    rail=st.sampled_from([(), (BAD_RAIL,)]),
)
def test_every_result_gives_complete_words(estimate, width, pvalue, human, rail):
    """Any numbers give a sentence and an action without a forbidden phrase."""
    evidence = replace(
        BASE,
        estimate=estimate,
        low=estimate - width,
        high=estimate + width,
        pvalue=pvalue,
        human_corrected=human,
        guardrails=rail,
    )
    got = recommend(evidence, PLAN)
    text = f"{got.word} {got.sentence} {got.action} {got.caveat}"
    assert got.sentence.endswith(".")
    assert got.action.endswith(".")
    assert not any(phrase in text.lower() for phrase in FORBIDDEN)
    assert "nan" not in text.lower()


@given(estimate=st.floats(-4, 4), width=st.floats(0.001, 3), shift=st.floats(0, 2))
def test_a_better_treatment_is_never_recommended_less(estimate, width, shift):
    """Moving the whole interval up never turns shipping into keeping control."""
    rank = ["keep_control", "no_winner", "no_worthwhile_difference", "ship"]

    def at(center):
        return decide(
            replace(
                BASE,
                estimate=center,
                low=center - width,
                high=center + width,
                pvalue=None,
            ),
            PLAN,
        )

    before, after = at(estimate), at(estimate + shift)
    if before == "ship":
        assert after == "ship"
    if after == "keep_control":
        assert before == "keep_control"
    assert {before, after} <= set(rank)

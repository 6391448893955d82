"""The verdict about length: found or not, and whether it matters here."""

from dataclasses import asdict, replace
import json

import polars as pl
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.pages.length_check import length_verdict
from reply_resolution.stats.length import LengthBias, length_bias
from reply_resolution.stats.length_effects import LengthEffect, PairsTest


def _bias(slope: float, error: float, n: int = 120) -> LengthBias:
    half = 1.98 * error
    return LengthBias(
        n=n,
        judge_length_spearman=0.1,
        label_length_spearman=0.1,
        partial_spearman=0.0,
        partial_pvalue=0.9,
        points_per_doubling=slope,
        ci=(slope - half, slope + half),
        tvalue=slope / error,
        pvalue=0.5,
        standardised=False,
        judge_points_per_doubling=slope,
        judge_standard_error=error,
        degrees=n - 2,
        sd_ratio=1.0,
        confidence=0.95,
    )


def _pairs(per: float, half: float, pvalue: float) -> PairsTest:
    return PairsTest(
        kind="padded",
        n=40,
        up=1,
        down=1,
        change=per,
        ci=(per - half, per + half),
        pvalue=pvalue,
        doublings=1.0,
        points_per_doubling=per,
        points_per_doubling_ci=(per - half, per + half),
    )


def _effect(raw: float, fixed: float, half: float, doublings: float) -> LengthEffect:
    return LengthEffect(
        control="control",
        treatment="treatment",
        n_control=100,
        n_treatment=100,
        doublings=doublings,
        length_ratio=2**doublings,
        judge_effect=raw,
        judge_ci=(raw - half, raw + half),
        bias_part=raw - fixed,
        corrected=fixed,
        corrected_ci=(fixed - half, fixed + half),
        confidence=0.95,
    )


def test_no_bias_found_states_the_largest_the_data_allow() -> None:
    """Never "no bias": the bound stands in the sentence, per doubling and in points."""
    verdict = length_verdict(
        _bias(0.02, 0.03), None, _effect(-0.3, -0.3, 0.2, 2.0), margin=0.2
    )
    assert verdict.word == "no bias found"
    assert verdict.mark == "ok"
    assert verdict.largest == pytest.approx(0.02 + 1.98 * 0.03, abs=1e-3)
    assert verdict.at_stake == pytest.approx(2 * verdict.largest)
    assert "0.08 points per doubling" in verdict.sentence
    assert "0.16 points in this experiment" in verdict.sentence


def test_a_small_sample_that_finds_nothing_is_no_all_clear() -> None:
    """Wide bound: still "no bias found", but to be looked at, with labels needed."""
    verdict = length_verdict(_bias(0.02, 0.15, n=30), margin=0.2)
    assert (verdict.word, verdict.mark) == ("no bias found", "look")
    assert "that would matter" in verdict.sentence
    # half width 0.3 at 30 replies, 0.2 wanted: (0.3 / 0.2)^2 times as many, rounded up
    assert 60 < verdict.labels_needed <= 80
    assert f"About {verdict.labels_needed}" in verdict.sentence


def test_bias_too_small_to_matter_here() -> None:
    """Found, but even its far end is under the margin."""
    verdict = length_verdict(_bias(0.1, 0.02), margin=0.2)
    assert verdict.word == "bias, too small to matter here"
    assert verdict.mark == "ok"
    assert verdict.found_by == ("labels",)


def test_bias_that_could_explain_the_result() -> None:
    """Found, large, and the corrected effect no longer clear of 0."""
    verdict = length_verdict(
        _bias(0.3, 0.05), None, _effect(0.4, 0.1, 0.2, 1.0), margin=0.2
    )
    assert verdict.word == "bias that could explain the result"
    assert verdict.mark == "stop"


def test_bias_under_an_effect_that_stands() -> None:
    """Found and large, but the corrected effect stays on its side of 0."""
    verdict = length_verdict(
        _bias(0.3, 0.05), None, _effect(1.0, 0.7, 0.2, 1.0), margin=0.2
    )
    assert verdict.word.startswith("bias that changes the size")
    assert "+0.70" in verdict.sentence
    against = length_verdict(
        _bias(0.3, 0.05), None, _effect(0.3, -0.3, 0.2, 1.0), margin=0.2
    )
    assert against.word == "bias that could explain the result"


def test_either_evidence_accuses_and_the_wider_bound_counts() -> None:
    """Padded twins find what labels miss; what is at stake is the larger bound."""
    verdict = length_verdict(_bias(0.0, 0.03), _pairs(0.4, 0.1, 0.001), margin=0.2)
    assert verdict.found_by == ("padded twins",)
    assert verdict.largest == pytest.approx(0.5)
    both = length_verdict(_bias(0.3, 0.03), _pairs(0.4, 0.1, 0.001))
    assert both.found_by == ("labels", "padded twins")


def test_an_arm_difference_of_nothing_puts_nothing_at_stake() -> None:
    """A biased judge does no harm where both arms are equally long."""
    verdict = length_verdict(_bias(0.5, 0.05), None, _effect(0.3, 0.3, 0.1, 0.0))
    assert verdict.word == "bias, too small to matter here"
    assert verdict.at_stake == 0


def test_without_evidence_nothing_is_measured() -> None:
    """No labels and no twins, or labels without an interval: "not measured"."""
    for bias in (None, replace(_bias(0.1, 0.1), judge_standard_error=None, ci=None)):
        verdict = length_verdict(bias)
        assert (verdict.word, verdict.mark) == ("not measured", "none")
        assert verdict.largest is None
        json.dumps(asdict(verdict), allow_nan=False)


def test_a_judge_that_never_varies_is_said_to_be_the_reason() -> None:
    """Labels there are, but a constant judge: the sentence does not ask for labels."""
    frame = pl.DataFrame(
        {"score": [4] * 6, "label": [1, 2, 3, 4, 5, 1], "length": [9, 8, 7, 6, 5, 4]}
    )
    verdict = length_verdict(length_bias(frame, length="length"))
    assert verdict.word == "not measured"
    assert "same for all 6 replies" in verdict.sentence
    assert "Label replies" not in verdict.sentence


def test_standardised_bias_is_weighed_in_points_of_the_judge() -> None:
    """A slope of 0.3 standard deviations of a judge who spreads 0.3 points is 0.09."""
    bias = replace(
        _bias(0.3, 0.1),
        standardised=True,
        judge_points_per_doubling=0.09,
        judge_standard_error=0.03,
    )
    assert length_verdict(bias, margin=0.2).largest == pytest.approx(0.149, abs=0.001)


@pytest.mark.parametrize("margin", [0, -0.1, float("nan")])
def test_margin_must_be_above_0(margin: float) -> None:
    """A margin of nothing would make every bias matter; it is refused."""
    with pytest.raises(StatisticsError, match="above 0"):
        length_verdict(_bias(0.1, 0.1), margin=margin)


def test_banner_carries_word_mark_and_sentence() -> None:
    """Status is a word and a mark, never colour alone."""
    page = length_verdict(_bias(0.3, 0.05))._repr_html_()
    assert 'class="verdict"' in page
    assert "✗ stop" in page
    assert "<strong>Bias that could explain the result.</strong>" in page

"""Length bias: independent right answers, real data, fair and biased judges."""

from collections.abc import Callable
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.length import LengthBias, length_bias

ORACLE = json.loads(
    (Path(__file__).parent / "oracles" / "length.json").read_text("utf-8")
)


@pytest.fixture
def forty() -> pl.DataFrame:
    """The 40 labelled replies of the oracle (computed with R and pingouin)."""
    return pl.DataFrame(ORACLE["length40"]["file_inline"])


def _bias(frame: pl.DataFrame, **options: Any) -> LengthBias:
    given = {"judge": "judge", "label": "human", "length": "length"} | options
    return length_bias(frame, **given)


def test_slope_and_error_are_those_of_r(forty: pl.DataFrame) -> None:
    """The HC3 slope per natural log unit, turned into doublings."""
    bias = _bias(forty)
    expected = ORACLE["length40"]["err_on_loglen"]
    per_log = math.log(2)
    assert bias.points_per_doubling == pytest.approx(
        expected["coef"][1] * per_log, rel=1e-8
    )
    assert bias.judge_standard_error == pytest.approx(
        expected["hc3"][1] * per_log, rel=1e-8
    )
    assert not bias.standardised
    assert bias.found
    assert bias.largest == pytest.approx(max(map(abs, bias.ci)))


def test_interval_is_t_with_n_minus_2(forty: pl.DataFrame) -> None:
    """The interval is estimate and t quantile times HC3, checked with scipy."""
    from scipy import stats

    bias = _bias(forty, confidence=0.9)
    half = stats.t.ppf(0.95, 38) * bias.judge_standard_error
    assert bias.ci == pytest.approx(
        (bias.points_per_doubling - half, bias.points_per_doubling + half)
    )
    assert bias.pvalue == pytest.approx(2 * stats.t.sf(abs(bias.tvalue), 38))


def test_partial_correlation_is_that_of_pingouin(forty: pl.DataFrame) -> None:
    """Partial Spearman and its p-value with n - 3 degrees of freedom."""
    bias = _bias(forty)
    expected = ORACLE["length40"]
    assert bias.partial_spearman == pytest.approx(
        expected["partial_spearman_judge_length_given_human"], abs=1e-9
    )
    assert bias.partial_pvalue == pytest.approx(expected["partial_p"], abs=1e-6)


def test_real_judge_that_follows_length_is_found(real_data: Path) -> None:
    """LLM-Rubric: gpt-3.5 follows length, people do not; standardised, it shows."""
    frame = pl.read_csv(real_data / "llm_rubric_real" / "tidy.csv")
    bias = length_bias(frame, judge="judge_score", label="human_score")
    expected = ORACLE["real"]["llm_rubric_real"]
    assert bias.n == expected["n"]
    assert bias.judge_length_spearman == pytest.approx(
        expected["judge_length"], abs=1e-6
    )
    assert bias.label_length_spearman == pytest.approx(
        expected["label_length"], abs=1e-6
    )
    assert bias.partial_spearman == pytest.approx(
        expected["partial_spearman_judge_length_given_human"], abs=1e-6
    )
    assert bias.partial_pvalue == pytest.approx(expected["partial_p"], rel=1e-5)
    assert bias.standardised
    assert bias.tvalue == pytest.approx(3.1, abs=0.05)
    assert bias.found


def test_real_judge_without_length_bias_is_not_accused(real_data: Path) -> None:
    """MT-RAG, judge rl_f: no bias found, with the bound that the data still allow."""
    frame = pl.read_csv(real_data / "mtrag_human" / "tidy.csv")
    described = length_bias(frame, judge="judge_rl_f", label="human_faithfulness")
    expected = ORACLE["real"]["mtrag_human_rl_f"]
    assert described.partial_spearman == pytest.approx(
        expected["partial_spearman_judge_length_given_human"], abs=1e-6
    )
    assert described.found is False
    tested = length_bias(frame, judge="judge_rl_f", label="human_score")
    assert tested.standardised
    assert tested.tvalue == pytest.approx(-1.2, abs=0.05)
    assert tested.found is False
    assert max(map(abs, tested.ci)) == pytest.approx(0.12545, abs=1e-4)


def test_length_counts_code_points_after_crlf_became_lf() -> None:
    """A Windows newline is one character and an emoji of two code points two."""
    frame = pl.DataFrame(
        {
            "score": [1, 2, 4, 5],
            "label": [2, 2, 3, 5],
            "reply": ["a\r\nb", "👍🏽", "a" * 9, "b" * 30],
            "length": [3, 2, 9, 30],
        }
    )
    assert length_bias(frame).to_dict() == length_bias(frame, length="length").to_dict()


def test_rows_that_cannot_be_used_are_counted_by_reason(forty: pl.DataFrame) -> None:
    """Empty replies, words for numbers and missing cells each have their count."""
    frame = pl.DataFrame(
        {
            "score": ["4", " 5 ", "2", "n/a", None, "3", "1", "inf"],
            "label": [4, 4, 2, 3, 3, None, 2, 3],
            "reply": ["abc", "abcdef", "ab", "abcd", "abcd", "abc", "\u200b \n", "x"],
        }
    )
    bias = length_bias(frame)
    assert bias.n == 3
    assert bias.excluded == {"empty_reply": 1, "not_a_number": 1, "missing": 3}
    assert sum(bias.excluded.values()) + bias.n == frame.height


def test_several_annotators_count_by_their_mean(forty: pl.DataFrame) -> None:
    """Every label_* column is used where there is no `label`, and that is said."""
    split = forty.select(
        "length",
        score="judge",
        label_a=pl.col("human") - 0.5,
        label_b=pl.col("human") + 0.5,
    )
    bias = length_bias(split, length="length")
    assert bias.points_per_doubling == pytest.approx(_bias(forty).points_per_doubling)
    assert any("mean per reply" in note for note in bias.warnings)


def test_other_scales_are_standardised_and_said(forty: pl.DataFrame) -> None:
    """A judge in percent gets the same t as any rescaling of it, and a warning."""
    percent = forty.with_columns(judge=pl.col("judge") * 25 - 25)
    bias = _bias(percent)
    forced = _bias(forty, standardise=True)
    assert bias.standardised
    assert bias.tvalue == pytest.approx(forced.tvalue)
    assert bias.points_per_doubling == pytest.approx(forced.points_per_doubling)
    assert any("unequal noise" in note for note in bias.warnings)
    # the correction is in points of the judge's own scale
    assert bias.judge_points_per_doubling == pytest.approx(
        25 * forced.judge_points_per_doubling
    )


@pytest.mark.parametrize(
    ("judge", "standardised"),
    [
        ([1, 2, 3, 4, 5, 3], False),
        ([2.4, 2.7, 3, 3.3, 3.6, 3], True),  # spread under 0.6 of the labels'
        ([-1, 1, 3, 5, 7, 3], True),  # spread over 1.6 times the labels'
        ([5, 6, 7, 8, 9, 7], True),  # ranges that only touch
    ],
)
def test_when_it_standardises(judge: list[float], standardised: bool) -> None:
    """Unlike spreads or ranges that do not overlap; otherwise points stay points."""
    frame = pl.DataFrame(
        {
            "score": judge,
            "label": [1, 2, 3, 4, 5, 3],
            "length": [90, 50, 200, 120, 340, 130],
        }
    )
    assert length_bias(frame, length="length").standardised is standardised


def test_clusters_widen_the_interval_of_copies(forty: pl.DataFrame) -> None:
    """Each reply entered three times says no more, if the copies are one cluster."""
    named = forty.with_columns(user=pl.int_range(pl.len()))
    copies = pl.concat([named] * 3)
    once, again = _bias(forty), _bias(copies, cluster="user")
    assert again.points_per_doubling == pytest.approx(once.points_per_doubling)
    assert again.judge_standard_error == pytest.approx(
        once.judge_standard_error, rel=0.02
    )
    assert _bias(copies).judge_standard_error < 0.65 * once.judge_standard_error


def _frame(**columns: list[float]) -> pl.DataFrame:
    base = {
        "score": [1, 2, 3, 4, 5, 3],
        "label": [1, 3, 3, 4, 4, 2],
        "length": [90, 50, 200, 120, 340, 130],
    }
    return pl.DataFrame(base | columns)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"length": [100] * 6}, "same length"),
        ({"score": [3] * 6}, "judge"),
        ({"label": [3] * 6}, "label"),
        ({"label": [1, 2, 3, 4, 5, 3]}, "same for every reply"),
        ({"length": [100] * 5 + [300]}, "alone"),
    ],
)
def test_what_is_undefined_is_none_with_its_reason(
    columns: dict[str, list[float]], words: str
) -> None:
    """No spread, no variation or full leverage: no interval, never NaN or width 0."""
    bias = length_bias(_frame(**columns), length="length")
    assert bias.ci is None
    assert bias.found is None
    assert bias.largest is None
    assert words in " ".join(bias.warnings)
    text = json.dumps(bias.to_dict(), allow_nan=False)
    assert json.loads(text)["points_per_doubling"]["ci"] is None


@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_few_replies_never_make_a_number_up(n: int) -> None:
    """Up to three replies give an object without NaN, and a word of warning."""
    bias = length_bias(_frame().head(n), length="length")
    json.dumps(bias.to_dict(), allow_nan=False)
    assert bias.n == n
    assert (bias.ci is None) == (n < 3)


def test_nothing_to_compute_is_an_error() -> None:
    """No usable row, no label column, a missing column, a negative length."""
    empty = _frame().clear()
    with pytest.raises(StatisticsError, match="no row of 0"):
        length_bias(empty, length="length")
    with pytest.raises(TableError, match="label_"):
        length_bias(_frame().drop("label"), length="length")
    with pytest.raises(TableError, match="no column 'reply'"):
        length_bias(_frame())
    with pytest.raises(TableError, match="below 0"):
        length_bias(_frame(length=[1, 2, 3, -4, 5, 6]), length="length")
    with pytest.raises(StatisticsError, match="confidence"):
        length_bias(_frame(), length="length", confidence=95)


def test_json_keys_are_those_promised(forty: pl.DataFrame) -> None:
    """The object of `length-bias --json`, with its two nested estimates."""
    result = _bias(forty).to_dict()
    assert {
        "n",
        "judge_length_spearman",
        "label_length_spearman",
        "partial_spearman",
        "points_per_doubling",
        "standardised",
        "warnings",
    } <= set(result)
    assert {"estimate", "pvalue"} <= set(result["partial_spearman"])
    assert {"estimate", "ci"} <= set(result["points_per_doubling"])


World = Callable[[np.random.Generator], pl.DataFrame]


def _world(*, bias: float, merit: float, n: int = 150) -> World:
    """Replies of true level 1 to 5; judge and label are draws around it.

    `merit` is what a log unit of length adds to the true level, `bias` what it adds to
    the judge's score alone. Log length has a standard deviation of 0.5.
    """

    def draw(rng: np.random.Generator) -> pl.DataFrame:
        log_length = rng.normal(5.7, 0.5, n)
        longer = log_length - 5.7
        level = np.clip(np.rint(rng.normal(3.2, 1.1, n) + merit * longer), 1, 5)

        def score(shift: np.ndarray | float) -> np.ndarray:
            return np.clip(np.rint(level + rng.normal(0, 0.5, n) + shift), 1, 5)

        return pl.DataFrame(
            {
                "score": score(bias * longer),
                "label": score(0.0),
                "length": np.rint(np.exp(log_length)),
            }
        )

    return draw


WORLDS = {
    "fair": (_world(bias=0, merit=0), False),
    "fair, length merited": (_world(bias=0, merit=0.5), False),
    "biased": (_world(bias=0.5, merit=0), True),
    "biased, length merited": (_world(bias=0.5, merit=0.5), True),
}


def accusations(world: World, runs: int, seed: int) -> int:
    """In how many runs a bias is found."""
    rng = np.random.default_rng(seed)
    return sum(
        bool(length_bias(world(rng), length="length").found) for _ in range(runs)
    )


def _check_world(name: str, runs: int) -> None:
    world, biased = WORLDS[name]
    found = accusations(world, runs, seed=20261130)
    if biased:
        assert found >= 0.9 * runs, f"{name}: found in {found} of {runs}"
    else:
        # three standard deviations of a binomial around 5%
        band = 3 * math.sqrt(0.05 * 0.95 * runs)
        assert abs(found - 0.05 * runs) <= band, f"{name}: accused in {found} of {runs}"


@pytest.mark.parametrize("name", WORLDS)
def test_fair_judges_are_spared_and_biased_ones_found(name: str) -> None:
    """60 seeded runs a world; the 500 of the claim run under `-m slow`."""
    _check_world(name, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_fair_judges_are_spared_and_biased_ones_found_500(name: str) -> None:
    """500 seeded runs a world: at least 90% found, accusations around 5%."""
    _check_world(name, 500)


def test_tests_that_would_accuse_the_fair_are_not_ours() -> None:
    """Judge on label and length, or on length alone, accuse the fair where merited."""
    from reply_resolution.stats.quantiles import two_sided
    from reply_resolution.stats.regression import least_squares

    world, _ = WORLDS["fair, length merited"]
    rng = np.random.default_rng(5)
    wrong = np.zeros(2)
    for _ in range(60):
        frame = world(rng)
        y, d = frame["score"].to_numpy(), np.log2(frame["length"].to_numpy())
        for k, columns in enumerate(([d], [d, frame["label"].to_numpy()])):
            fit = least_squares(np.column_stack([np.ones_like(d), *columns]), y)
            t = fit.coefficients[1] / fit.standard_error(1)
            wrong[k] += two_sided(t, fit.degrees) < 0.05
    assert wrong[0] > 30
    assert wrong[1] > 5

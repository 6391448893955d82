"""The effect with length bias taken out, and at equal length."""

from dataclasses import asdict, replace
import json
import math

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.length import LengthBias, length_bias
from reply_resolution.stats.length_effects import LengthEffect, length_effect


def _experiment(seed: int = 0, n: int = 80) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    arm = np.repeat(["control", "treatment"], n)
    length = np.rint(np.exp(rng.normal(5.5, 0.5, 2 * n) + 0.6 * (arm == "treatment")))
    score = np.clip(
        np.rint(3 + rng.normal(0, 1, 2 * n) + 0.3 * np.log2(length / 245)), 1, 5
    )
    return pl.DataFrame(
        {
            "request_id": [f"r{i}" for i in range(2 * n)],
            "user_id": [f"u{i // 2}" for i in range(2 * n)],
            "arm": arm,
            "score": score,
            "length": length,
            "reply": ["x" * int(n) for n in length],
        }
    )


@pytest.fixture
def bias() -> LengthBias:
    """A bias of 0.3 points per doubling, with a standard error of 0.1."""
    frame = pl.DataFrame(
        {"score": [1, 2, 3, 5], "label": [1, 2, 3, 4], "length": [10, 20, 30, 90]}
    )
    return replace(
        length_bias(frame, length="length"),
        judge_points_per_doubling=0.3,
        judge_standard_error=0.1,
        degrees=98,
    )


def _effect(
    frame: pl.DataFrame, bias: LengthBias | None, **options: str
) -> LengthEffect:
    named = {"control": "control", "treatment": "treatment"} | options
    return length_effect(frame, bias, **named)


def test_parts_add_up(bias: LengthBias) -> None:
    """Judge effect is bias part plus corrected effect; the part is slope times it."""
    effect = _effect(_experiment(), bias)
    assert effect.bias_part == pytest.approx(0.3 * effect.doublings)
    assert effect.judge_effect == pytest.approx(effect.bias_part + effect.corrected)
    assert effect.length_ratio == pytest.approx(2**effect.doublings)


def test_effect_and_doublings_are_differences_of_means(bias: LengthBias) -> None:
    """Treatment minus control, of scores and of log2 lengths."""
    frame = _experiment()
    means = frame.group_by("arm").agg(
        pl.col("score").mean(), pl.col("length").log(2).mean()
    )
    by = {row[0]: row[1:] for row in means.iter_rows()}
    effect = _effect(frame, bias)
    assert effect.judge_effect == pytest.approx(by["treatment"][0] - by["control"][0])
    assert effect.doublings == pytest.approx(by["treatment"][1] - by["control"][1])


def test_regressions_are_those_of_statsmodels(bias: LengthBias) -> None:
    """Raw and length-controlled effects with HC3 intervals, by another library."""
    import statsmodels.api as sm

    frame = _experiment(1)
    arm = (frame["arm"] == "treatment").cast(pl.Float64).to_numpy()
    y, d = frame["score"].to_numpy(), np.log2(frame["length"].to_numpy())
    effect = _effect(frame, bias)
    one = np.ones_like(arm)
    raw = sm.OLS(y, np.column_stack([arm, one])).fit(cov_type="HC3", use_t=True)
    held = sm.OLS(y, np.column_stack([arm, one, d])).fit(cov_type="HC3", use_t=True)
    assert effect.judge_ci == pytest.approx(tuple(raw.conf_int()[0]))
    assert effect.length_controlled == pytest.approx(held.params[0])
    assert effect.length_controlled_ci == pytest.approx(tuple(held.conf_int()[0]))


def test_uncertain_bias_widens_the_corrected_interval(bias: LengthBias) -> None:
    """Variance of the corrected effect: adjusted scores plus doublings times slope."""
    frame = _experiment(2)
    sure = _effect(frame, replace(bias, judge_standard_error=1e-9))
    unsure = _effect(frame, bias)
    known = (sure.corrected_ci[1] - sure.corrected) / 1.9755  # t, 158 degrees
    expected = math.hypot(known, 0.1 * unsure.doublings)
    got = (unsure.corrected_ci[1] - unsure.corrected) / 1.9755
    assert got == pytest.approx(expected, rel=0.01)
    assert got > known


def test_swapping_the_arms_turns_every_sign(bias: LengthBias) -> None:
    """Control as treatment: the same numbers with the other sign."""
    frame = _experiment(3)
    one = _effect(frame, bias)
    other = _effect(frame, bias, control="treatment", treatment="control")
    for name in ("judge_effect", "bias_part", "corrected", "length_controlled"):
        assert getattr(other, name) == pytest.approx(-getattr(one, name))
    assert other.corrected_ci == pytest.approx(
        (-one.corrected_ci[1], -one.corrected_ci[0])
    )


def test_pairs_use_differences_within_the_request(bias: LengthBias) -> None:
    """The paired design: mean difference, and its intercept on length differences."""
    frame = _experiment(4)
    frame = frame.with_columns(request_id=pl.format("p{}", pl.int_range(pl.len()) % 80))
    effect = _effect(frame, bias, pair="request_id")
    wide = frame.pivot("arm", index="request_id", values=["score", "length"])
    d = (wide["score_treatment"] - wide["score_control"]).to_numpy()
    x = np.log2((wide["length_treatment"] / wide["length_control"]).to_numpy())
    _, intercept = np.polyfit(x, d, 1)
    assert (effect.n_control, effect.n_treatment) == (80, 80)
    assert effect.judge_effect == pytest.approx(d.mean())
    assert effect.corrected == pytest.approx((d - 0.3 * x).mean())
    assert effect.length_controlled == pytest.approx(intercept)
    half = effect.judge_ci[1] - effect.judge_effect
    assert half == pytest.approx(1.99045 * d.std(ddof=1) / math.sqrt(79), rel=1e-4)


def test_users_are_the_units_where_named(bias: LengthBias) -> None:
    """Rows entered twice under one user keep the interval of rows entered once."""
    frame = _experiment(5).with_columns(user_id=pl.col("request_id"))
    once = _effect(frame, bias, cluster="user_id")
    twice = _effect(pl.concat([frame, frame]), bias, cluster="user_id")
    naive = _effect(pl.concat([frame, frame]), bias)

    def width(e: LengthEffect) -> float:
        return e.judge_ci[1] - e.judge_ci[0]

    assert width(twice) == pytest.approx(width(once), rel=0.02)
    assert width(naive) < 0.75 * width(once)


def test_leftovers_are_counted(bias: LengthBias) -> None:
    """Unscored, empty, userless and unpaired rows each have their count."""
    frame = pl.DataFrame(
        {
            "request_id": ["a", "a", "b", "b", "c", "c", "d", "d", "e", "f", "f"],
            "arm": ["control", "treatment"] * 4 + ["control", "control", "treatment"],
            "score": [1, 2, 3, 5, None, 4, 2, 3, 5, 2, 2],
            "reply": ["x" * k for k in (5, 9, 7, 30, 6, 8, 0, 12, 5, 9, 4)],
            "user": [None, "u", *"vwxyzabcd"],
        }
    )
    effect = _effect(frame, bias, pair="request_id", cluster="user")
    assert effect.n_control == 2
    assert effect.excluded == {
        "empty_reply": 1,
        "missing": 1,
        "missing_cluster": 1,
        "unpaired": 4,
    }


def test_without_a_bias_nothing_is_corrected() -> None:
    """No labels: raw and equal-length effects stand, the corrected one is None."""
    effect = _effect(_experiment(), None)
    assert effect.corrected is None
    assert effect.corrected_ci is None
    assert effect.length_controlled is not None
    assert "not measured" in effect.warnings[0]
    json.dumps(asdict(effect), allow_nan=False)


def test_a_bias_without_interval_gives_a_correction_without_interval(
    bias: LengthBias,
) -> None:
    """The point estimate moves; no interval pretends to know how sure it is."""
    effect = _effect(_experiment(), replace(bias, judge_standard_error=None))
    assert effect.corrected is not None
    assert effect.corrected_ci is None


def test_degenerate_arms_have_no_interval_of_width_zero(bias: LengthBias) -> None:
    """All scores equal, one reply an arm, one length an arm: None, with the reason."""
    flat = _experiment().with_columns(score=pl.lit(3))
    assert _effect(flat, None).judge_ci is None
    tiny = pl.DataFrame(
        {"arm": ["control", "treatment"], "score": [1, 5], "reply": ["x", "xx"]}
    )
    effect = _effect(tiny, bias)
    assert effect.judge_ci is None
    assert effect.length_controlled is None
    json.dumps(asdict(effect), allow_nan=False)


def test_what_cannot_be_compared_is_refused(bias: LengthBias) -> None:
    """An arm without scores or of another name, a missing column, a doubled pair."""
    frame = _experiment()
    with pytest.raises(StatisticsError, match="'x'"):
        _effect(frame, bias, control="x")
    with pytest.raises(TableError, match="no column 'score'"):
        _effect(frame.drop("score"), bias)
    silent = frame.with_columns(score=pl.when(pl.col("arm") == "control").then("score"))
    with pytest.raises(StatisticsError, match="'treatment'"):
        _effect(silent, bias)
    with pytest.raises(StatisticsError, match="no complete pair"):
        _effect(frame, bias, pair="request_id")
    doubled = frame.with_columns(request_id=pl.lit("same"))
    with pytest.raises(TableError, match="repeat an arm"):
        _effect(doubled, bias, pair="request_id")


def _simulate(runs: int, seed: int) -> tuple[int, int, list[float]]:
    """Judge with bias 0.5 per log unit, treatment longer by 0.5, true effect 0.

    Returns how often the corrected and the raw interval cover 0, and the corrected
    effects.
    """
    rng = np.random.default_rng(seed)
    covered = raw = 0
    effects = []
    for _ in range(runs):

        def draw(n: int, longer: float) -> dict[str, np.ndarray]:
            log_length = rng.normal(5.7 + longer, 0.5, n)
            level = np.rint(np.clip(rng.normal(3, 0.7, n), 1, 5))
            judged = level + rng.normal(0, 0.5, n) + 0.5 * (log_length - 5.95)
            return {
                "score": judged,
                "label": level + rng.normal(0, 0.5, n),
                "reply": ["x" * round(k) for k in np.exp(log_length)],
            }

        labelled = pl.DataFrame(draw(150, 0.25))
        bias = length_bias(labelled)
        arms = [
            pl.DataFrame(draw(300, longer)).with_columns(arm=pl.lit(name))
            for name, longer in (("control", 0.0), ("treatment", 0.5))
        ]
        effect = _effect(pl.concat(arms), bias)
        covered += effect.corrected_ci[0] <= 0 <= effect.corrected_ci[1]
        raw += effect.judge_ci[0] <= 0 <= effect.judge_ci[1]
        effects.append(effect.corrected)
    return covered, raw, effects


def test_correction_undoes_a_pure_length_bias() -> None:
    """60 seeded runs: the corrected interval covers the truth, the raw one does not."""
    covered, raw, effects = _simulate(60, 11)
    assert covered >= 52
    assert raw <= 20
    assert np.mean(effects) == pytest.approx(0, abs=0.05)


@pytest.mark.slow
def test_correction_covers_at_its_level() -> None:
    """600 seeded runs: coverage within three binomial deviations of 95%."""
    covered, _, _ = _simulate(600, 12)
    assert abs(covered - 570) <= 3 * math.sqrt(600 * 0.95 * 0.05)


def test_strata_are_a_level_of_their_own() -> None:
    """With strata the effect is that of `compare`, whatever the mix of the arms."""
    from reply_resolution.stats.compare import compare

    rng = np.random.default_rng(2)
    rows = []
    for h, (level, treated) in enumerate(((2.2, 0.3), (4.0, 0.7))):
        for _ in range(150):
            arm = "b" if rng.random() < treated else "a"
            score = int(np.clip(round(level + rng.normal(0, 0.8)), 1, 5))
            words = 5 + 10 * h + int(rng.integers(0, 5))
            rows.append({"arm": arm, "score": score, "reply": "x " * words, "s": h})
    frame = pl.DataFrame(rows)
    found = length_effect(frame, None, control="a", treatment="b", stratum="s")
    want = compare(frame, control="a", stratum="s").comparisons[0].mean_difference
    assert found.judge_effect == pytest.approx(want, rel=1e-9)
    assert abs(found.doublings) < 0.1  # the longer replies belong to the stratum
    plain = length_effect(frame, None, control="a", treatment="b")
    assert plain.doublings > 0.3
    alone = frame.filter((pl.col("s") == 0) | (pl.col("arm") == "a"))
    left = length_effect(alone, None, control="a", treatment="b", stratum="s")
    assert left.excluded["stratum_of_one_arm"] == alone.filter(pl.col("s") == 1).height

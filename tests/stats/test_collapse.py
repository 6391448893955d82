"""Whether to collapse: the recommendation, both analyses, and that nothing peeks."""

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary import rate_difference
from reply_resolution.stats.collapse import collapse
from reply_resolution.stats.collapse_power import Assumed, UnitCost, power_curve
from reply_resolution.stats.counts import ScoreCounts
from reply_resolution.stats.power_assumptions import level_shares, treatment_shares

CONTROL, TREATMENT = [10, 34, 24, 45, 47], [22, 40, 21, 37, 40]


def counts_of(control, treatment):
    """Two independent arms by level."""
    return ScoreCounts.from_table({"control": control, "treatment": treatment})


@pytest.fixture
def experiment(root):
    """The bundled experiment with its recorded scores."""
    replies = pl.read_csv(root / "data/experiment.csv")
    verdicts = pl.read_ndjson(root / "data/verdicts_experiment.jsonl")
    return replies.join(verdicts, on=["request_id", "arm"])


def test_bundled_experiment_both_ways(experiment):
    """The demo: -0.325 points (p .0356) and -9.4 points of resolved (p .100)."""
    found = collapse(experiment, control="control")
    assert found.ordinal.estimate == pytest.approx(-0.325)
    assert found.ordinal.pvalue == pytest.approx(0.035640794, abs=1e-8)
    assert found.binary.estimate == pytest.approx(77 / 160 - 92 / 160)
    rates = rate_difference(77, 160, 92, 160)
    assert found.binary.pvalue == rates.pvalue
    assert (found.binary.low, found.binary.high) == rates.ci
    assert found.pooled == (32, 74, 45, 82, 87)
    assert found.recommended == "ordinal"


def test_json_has_the_promised_keys(experiment):
    """`collapse --json`: cut, ordinal, binary (each with four keys), recommended."""
    d = collapse(experiment, control="control").to_dict()
    assert {"cut", "ordinal", "binary", "recommended", "reason"} <= set(d)
    for name in ("ordinal", "binary"):
        assert {"estimate", "ci", "pvalue", "power"} <= set(d[name])
        assert len(d[name]["ci"]) == 2


def test_power_never_sees_the_arms():
    """Exchanging or mixing the arms changes estimates, not powers or advice."""
    one = collapse(counts_of(CONTROL, TREATMENT), control="control")
    swapped = collapse(counts_of(TREATMENT, CONTROL), control="control")
    half = [(a + b) // 2 for a, b in zip(CONTROL, TREATMENT, strict=True)]
    rest = [a + b - h for a, b, h in zip(CONTROL, TREATMENT, half, strict=True)]
    mixed = collapse(counts_of(half, rest), control="control")
    for other in (swapped, mixed):
        assert other.ordinal.power == pytest.approx(one.ordinal.power, abs=2e-3)
        assert other.binary.power == pytest.approx(one.binary.power, abs=2e-3)
        assert (other.recommended, other.pooled) == (one.recommended, one.pooled)
    assert mixed.ordinal.estimate != one.ordinal.estimate
    assert swapped.ordinal.estimate == pytest.approx(-one.ordinal.estimate)


@pytest.mark.parametrize(
    ("assume", "expected"),
    [("shift", "ordinal"), ("cut", "binary"), ("noise", "binary")],
)
def test_the_assumption_decides(assume, expected):
    """A shift speaks for ordinal; an effect at the cut, or noise inside, for binary."""
    found = collapse(counts_of(CONTROL, TREATMENT), control="control", assume=assume)
    assert found.recommended == expected
    chances = sorted([found.ordinal.power, found.binary.power])
    assert f"{chances[1]:.0%}" in found.reason


def test_where_it_makes_no_difference_it_stays_ordinal():
    """With overwhelming traffic both find everything: nothing is collapsed."""
    many = counts_of([2000] * 5, [2000] * 5)
    found = collapse(many, control="control", assume="noise")
    assert found.recommended == "ordinal"
    assert "no difference" in found.reason


def test_a_cut_chosen_after_looking_is_paid_for():
    """Naming every cut that was tried raises the p-value and says so."""
    counts = counts_of(CONTROL, TREATMENT)
    planned = collapse(counts, control="control", cut=3)
    tried = collapse(counts, control="control", cut=3, cuts_seen=[2, 3, 4, 5])
    assert tried.binary.pvalue > 1.3 * planned.binary.pvalue
    assert "max-T" in tried.binary.method
    assert any("paying for the choice" in w for w in tried.warnings)
    with pytest.raises(StatisticsError, match="not among"):
        collapse(counts, control="control", cut=3, cuts_seen=[4, 5])


def test_users_as_units_are_respected():
    """Tripling every reply within its user leaves the evidence as it was."""
    rng = np.random.default_rng(3)
    frame = pl.DataFrame(
        {
            "arm": ["control"] * 60 + ["treatment"] * 60,
            "score": rng.integers(1, 6, 120),
            "user_id": [f"u{i}" for i in range(120)],
        }
    )
    tripled = pl.concat([frame] * 3)
    once = collapse(frame, control="control", cluster="user_id")
    thrice = collapse(tripled, control="control", cluster="user_id")
    assert thrice.binary.pvalue == pytest.approx(once.binary.pvalue)
    assert thrice.design_effect[0] == pytest.approx(3 * once.design_effect[0], rel=0.02)
    assert thrice.ordinal.power == pytest.approx(once.ordinal.power, abs=0.03)


def test_pairs_are_compared_as_pairs(root):
    """The replay: exact McNemar on the discordant requests, with Tango's interval."""
    from scipy.stats import binomtest

    replay = pl.read_csv(root / "data/replay.csv").join(
        pl.read_ndjson(root / "data/verdicts_replay.jsonl"), on=["request_id", "arm"]
    )
    found = collapse(replay, control="control", pair="request_id")
    wide = replay.pivot("arm", index="request_id", values="score")
    up = int(((wide["treatment"] >= 4) & (wide["control"] < 4)).sum())
    down = int(((wide["treatment"] < 4) & (wide["control"] >= 4)).sum())
    assert found.binary.estimate == pytest.approx((up - down) / 80)
    assert found.binary.pvalue == pytest.approx(binomtest(up, up + down).pvalue)
    assert found.n_control == found.n_treatment == 80


def test_no_room_for_the_effect_is_null_with_the_reason():
    """At the ceiling 0.3 points do not fit: power is null, the advice is ordinal."""
    found = collapse(counts_of([0, 0, 1, 4, 95], [0, 0, 0, 5, 95]), control="control")
    assert found.ordinal.power is None
    assert found.to_dict()["binary"]["power"] is None
    assert found.recommended == "ordinal"
    assert any("at most" in w for w in found.warnings)


def test_rows_not_used_are_counted_with_their_reason():
    """A missing score and a word are left out, counted, and change nothing else."""
    scores = ["5", "4", "2", "3", "", "five", "1", "2", "4", "5"]
    frame = pl.DataFrame({"arm": ["control"] * 6 + ["treatment"] * 4, "score": scores})
    found = collapse(frame, control="control")
    assert found.to_dict()["excluded"] == {"missing": 1, "not_a_score": 1}
    assert (found.n_control, found.n_treatment) == (4, 4)


def test_all_scores_equal_is_defined():
    """No spread: both p-values are 1, power is null, and the reason is said."""
    found = collapse(counts_of([0, 0, 0, 0, 30], [0, 0, 0, 0, 30]), control="control")
    assert (found.ordinal.pvalue, found.binary.pvalue) == (1.0, 1.0)
    assert found.ordinal.power is None
    assert any("power is not defined" in w for w in found.warnings)


def test_more_arms_name_the_one_compared():
    """With three arms the first treatment is taken and said, or the one asked for."""
    counts = ScoreCounts.from_table(
        {"control": CONTROL, "b": TREATMENT, "c": [5, 5, 5, 5, 140]}
    )
    first = collapse(counts, control="control")
    assert first.treatment == "b"
    assert any("left out" in w for w in first.warnings)
    assert collapse(counts, control="control", treatment="c").treatment == "c"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"control": "nobody"}, "control"),
        ({"control": "control", "treatment": "x"}, "choose one of"),
        ({"control": "control", "cut": 6}, "choose 2 to 5"),
        ({"control": "control", "effect": 0}, "smallest difference"),
        ({"control": "control", "assume": "drift"}, "shift, cut or noise"),
    ],
)
def test_impossible_requests_are_refused(options, word):
    """Unknown arms, cuts outside the scale, no effect and no such assumption."""
    with pytest.raises(StatisticsError, match=word):
        collapse(counts_of(CONTROL, TREATMENT), **options)


def test_power_curves_rise_to_one():
    """More replies find more, in both analyses, under every assumption."""
    for assume in ("shift", "cut", "noise"):
        curve = power_curve(
            [32, 74, 45, 82, 87],
            Assumed(0.3, assume),
            [30, 120, 480, 1920],
            cost=UnitCost(),
        )
        for powers in (curve.ordinal, curve.binary):
            assert list(powers) == sorted(powers)
        assert curve.ordinal[-1] > 0.99


@pytest.mark.parametrize("n", [30, 80])
def test_recommendation_agrees_with_simulated_power(n):
    """Seeded part of the grid: where powers differ by 5 points, the advice is right.

    The whole grid, with exact tests, is in tests/benchmarks (RESULTS_binary.md).
    """
    scores, rng = np.arange(1, 6), np.random.default_rng(n)
    checked = 0
    for pilot in ([15, 15, 20, 25, 25], [10, 5, 5, 20, 60], [35, 10, 10, 10, 35]):
        for assume, effect in (("shift", 0.6), ("cut", 0.3), ("noise", 0.6)):
            before = level_shares(pilot)
            try:
                after = treatment_shares(before, effect, assume=assume)
            except StatisticsError:
                continue
            a, b = rng.multinomial(n, before, 4000), rng.multinomial(n, after, 4000)
            ordinal = _rejections(a, b, scores)
            binary = _rejections(a, b, (scores >= 4).astype(int))
            if abs(ordinal - binary) <= 0.05:
                continue
            size = [round(n * s) for s in before]
            advice = collapse(
                counts_of(size, size), control="control", effect=effect, assume=assume
            ).recommended
            assert advice == ("binary" if binary > ordinal else "ordinal")
            checked += 1
    assert checked >= 4


def _rejections(a, b, values):
    """Share of experiments in which the permutation z (corrected) passes 1.96."""
    n = a[0].sum()
    pooled = (a + b) / (2 * n)
    spread = pooled @ values**2 - (pooled @ values) ** 2
    error = np.sqrt(spread * 2 / n * 2 * n / (2 * n - 1))
    return (np.abs((b - a) @ values / n) - 1 / n > 1.96 * error).mean()

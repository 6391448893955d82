"""Sample sizes: published ones, and what simulated experiments find."""

import numpy as np
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.binary_designs import mcnemar
from reply_resolution.stats.permutation import paired_permutation_test
from reply_resolution.stats.power import plan
from reply_resolution.stats.power_assumptions import treatment_shares
from reply_resolution.stats.power_formulas import (
    binary_power,
    ordinal_power,
    paired_power,
    whitehead,
)

SPREAD = np.array([0.15, 0.15, 0.20, 0.25, 0.25])
GOOD = np.array([0.03, 0.05, 0.07, 0.25, 0.60])


def odds_shift(p, ratio):
    """Shares after multiplying the odds of every "at or above" by `ratio`."""
    above = np.append(1.0, 1 - np.cumsum(p)[:-1])
    moved = above * ratio / (above * ratio + 1 - above)
    return -np.diff(np.append(moved, 0.0))


def test_whitehead_as_published():
    """Whitehead 1993 (Hmisc::posamsize): 186.8 in all, efficiency 0.858."""
    n_total, efficiency = whitehead([0.2, 0.5, 0.2, 0.1], 0.887, power=0.9)
    assert n_total == pytest.approx(186.8, abs=0.05)
    assert efficiency == pytest.approx(0.858, abs=5e-4)


def test_ordinal_power_agrees_with_whitehead():
    """Hmisc::popower gives 0.897 for 187 replies; the mean's test is close to it."""
    average = np.array([0.2, 0.5, 0.2, 0.1])
    low, high = (
        odds_shift(average, np.exp(-0.4435)),
        odds_shift(average, np.exp(0.4435)),
    )
    assert ordinal_power(low, high, 93.5) == pytest.approx(0.897, abs=0.02)


@pytest.mark.parametrize(
    ("before", "after", "n", "ordinal", "binary"),
    [  # simulated power with the exact tests, 2,000 experiments each
        (SPREAD, odds_shift(SPREAD, 2.5), 25, 0.35, 0.30),
        (SPREAD, odds_shift(SPREAD, 2.5), 50, 0.67, 0.59),
        (SPREAD, odds_shift(SPREAD, 2.5), 100, 0.94, 0.87),
        (GOOD, odds_shift(GOOD, 2.5), 50, 0.44, 0.20),
        (GOOD, odds_shift(GOOD, 2.5), 100, 0.76, 0.45),
    ],
)
def test_power_is_what_simulated_experiments_find(before, after, n, ordinal, binary):
    """Formulas stay within 3 points of the simulated power of the exact tests."""
    assert ordinal_power(before, after, n) == pytest.approx(ordinal, abs=0.03)
    found = binary_power(before[3:].sum(), after[3:].sum(), n)
    assert found == pytest.approx(binary, abs=0.03)


def test_enumerated_and_limiting_power_meet():
    """Where enumeration ends (150 an arm) the normal limit takes over smoothly."""
    below, above = binary_power(0.5, 0.65, 150), binary_power(0.5, 0.65, 151)
    assert below == pytest.approx(above, abs=0.02)


def test_no_effect_has_the_error_rate_as_power():
    """Without an effect the chance to "find" one is alpha."""
    assert ordinal_power(SPREAD, SPREAD, 5000) == pytest.approx(0.05, abs=1e-3)
    assert binary_power(0.5, 0.5, 5000, alpha=0.01) == pytest.approx(0.01, abs=1e-3)


def test_direction_does_not_matter():
    """A fall is as easy to find as the same rise seen from the other arm."""
    up = treatment_shares(SPREAD, 0.3)
    assert ordinal_power(SPREAD, up, 120) == pytest.approx(
        ordinal_power(up, SPREAD, 120)
    )
    assert binary_power(0.4, 0.6, 60) == pytest.approx(binary_power(0.6, 0.4, 60))


def test_unequal_arms_and_users_cost_replies():
    """90:10 finds less than 50:50; a design effect of 2 halves the replies."""
    up = treatment_shares(SPREAD, 0.4)
    equal = ordinal_power(SPREAD, up, 200)
    assert ordinal_power(SPREAD, up, 360, n_treatment=40) < equal - 0.2
    assert ordinal_power(SPREAD, up, 400, design_effect=2) == pytest.approx(
        equal, abs=0.01
    )
    assert binary_power(0.5, 0.6, 600, design_effect=2) == pytest.approx(
        binary_power(0.5, 0.6, 300)
    )


def test_constant_arms_are_certain():
    """Everybody 4 against everybody 5 is found, whatever the formula's variance."""
    assert ordinal_power([0, 0, 0, 1, 1e-12], [0, 0, 0, 1e-12, 1], 50) > 0.999


def test_plan_finds_the_fewest_replies():
    """The planned power is reached at n and missed by 3% fewer, for both analyses."""
    p = plan([15, 15, 20, 25, 25], effect=0.3)
    up = treatment_shares(SPREAD, 0.3)
    assert p.n_per_arm == p.ordinal.n_per_arm
    assert ordinal_power(SPREAD, up, p.n_per_arm) >= 0.8
    assert ordinal_power(SPREAD, up, p.n_per_arm - 1) < 0.8
    n = p.binary.n_per_arm
    assert binary_power(0.5, up[3:].sum(), n) >= 0.8
    assert binary_power(0.5, up[3:].sum(), round(0.97 * n)) < 0.8
    assert p.per_100_moved == pytest.approx(30)


def test_plan_by_simulation():
    """1,500 simulated experiments of the planned size find the effect in 80%."""
    from scipy.special import ndtr

    p = plan([15, 15, 20, 25, 25], effect=0.4)
    n, rng = p.n_per_arm, np.random.default_rng(5)
    scores = np.arange(1, 6)
    up = treatment_shares(SPREAD, 0.4)
    a, b = rng.multinomial(n, SPREAD, 1500), rng.multinomial(n, up, 1500)
    pooled = (a + b) / (2 * n)
    spread = (pooled * scores**2).sum(1) - (pooled @ scores) ** 2
    z = (b - a) @ scores / n / np.sqrt(2 * spread / n * 2 * n / (2 * n - 1))
    hits = (2 * ndtr(-abs(z)) < 0.05).mean()
    assert hits == pytest.approx(0.8, abs=3.5 * (0.16 / 1500) ** 0.5)


def test_effect_and_n_are_inverse():
    """The effect that n can show needs n replies, for both analyses."""
    there = plan([15, 15, 20, 25, 25], n=300)
    assert there.question == "effect"
    for name in ("ordinal", "binary"):
        effect = getattr(there, name).effect
        back = getattr(plan([15, 15, 20, 25, 25], effect=effect), name)
        assert back.n_per_arm == pytest.approx(300, abs=2)


def test_binary_needs_more_under_a_shift_and_less_at_the_cut():
    """The advice "binary needs less" is false for a shift, true across the cut."""
    shift = plan([15, 15, 20, 25, 25], effect=0.3)
    cut = plan([15, 15, 20, 25, 25], effect=0.15, assume="cut")
    noise = plan([15, 15, 20, 25, 25], effect=0.3, assume="noise")
    assert 1.1 < shift.binary.n_per_arm / shift.ordinal.n_per_arm < 1.9
    assert cut.binary.n_per_arm < 0.3 * cut.ordinal.n_per_arm
    assert noise.binary.n_per_arm < noise.ordinal.n_per_arm


def test_a_measure_that_does_not_move_is_said_to_need_no_number():
    """Levels moving only above the cut: no n is enough for the binary analysis."""
    p = plan([0, 0, 0, 50, 50], effect=0.1, cut=4)
    assert p.binary.n_per_arm is None
    assert p.to_dict()["binary"]["power"] is None
    assert any("binary" in w for w in p.warnings)


def test_an_n_too_small_for_any_effect_is_said():
    """Three replies an arm cannot show anything: no effect, with the reason."""
    p = plan([0, 0, 5, 45, 50], n=3)
    assert p.effect is None
    assert p.per_100_moved is None
    assert any("largest effect" in w for w in p.warnings)


def test_judge_noise_costs_replies():
    """With the judge's confusion, an effect on people's scale needs more replies."""
    sharp = plan([15, 15, 20, 25, 25], effect=0.3)
    blur = 20 * np.eye(5, dtype=int) + 4
    noisy = plan([15, 15, 20, 25, 25], effect=0.3, confusion=blur.tolist())
    assert noisy.n_per_arm > 1.5 * sharp.n_per_arm
    same = plan([15, 15, 20, 25, 25], effect=0.3, confusion=np.eye(5).tolist())
    assert same.n_per_arm == sharp.n_per_arm


def test_users_multiply_the_plan():
    """A design effect of 1.5 needs half as many replies again."""
    one = plan([15, 15, 20, 25, 25], effect=0.3).n_per_arm
    more = plan([15, 15, 20, 25, 25], effect=0.3, design_effect=1.5).n_per_arm
    assert more == pytest.approx(1.5 * one, abs=5)


def test_json_has_the_promised_keys():
    """`plan --json`: n_per_arm or effect, power, per_100_moved, ordinal, binary."""
    d = plan([15, 15, 20, 25, 25], effect=0.3).to_dict()
    assert {
        "n_per_arm",
        "effect",
        "power",
        "per_100_moved",
        "ordinal",
        "binary",
    } <= set(d)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "either"),
        ({"effect": 0.3, "n": 100}, "either"),
        ({"effect": 0.0}, "smallest difference"),
        ({"effect": float("nan")}, "smallest difference"),
        ({"effect": 3.0}, "at most"),
        ({"n": 1}, "2 or more"),
        ({"n": 10.5}, "2 or more"),
        ({"effect": 0.3, "power": 80}, "fractions"),
        ({"effect": 0.3, "alpha": 0}, "fractions"),
        ({"effect": 0.3, "design_effect": 0.0}, "above 0"),
        ({"effect": 0.3, "scale": (1, 7)}, "give 7"),
    ],
)
def test_impossible_plans_are_refused_with_the_reason(options, word):
    """Contradicting or impossible requests are errors that say what to give."""
    with pytest.raises(StatisticsError, match=word):
        plan([15, 15, 20, 25, 25], **options)


def test_paired_power_equals_simulation():
    """Enumerated McNemar power is what 4,000 simulated experiments give."""
    n, q, effect = 80, 0.3, 0.15
    _, binary = paired_power(0.5, [0.5, 0.3, 0.2], q, effect, n)
    rng = np.random.default_rng(4)
    draws = rng.multinomial(n, [(q + effect) / 2, (q - effect) / 2, 1 - q], 4000)
    hits = np.mean([mcnemar(int(b), int(c), n).pvalue <= 0.05 for b, c, _ in draws])
    assert binary == pytest.approx(hits, abs=3.5 * (0.25 / 4000) ** 0.5)


@pytest.mark.parametrize(
    ("steps", "effect", "n"),
    [
        ((0.90, 0.08, 0.02), 0.10, 20),  # the normal limit says 0.18
        ((0.90, 0.08, 0.02), 0.10, 40),
        ((0.30, 0.35, 0.20, 0.10, 0.05), 0.40, 20),
        ((0.30, 0.35, 0.20, 0.10, 0.05), 0.40, 80),
        ((0.60, 0.30, 0.08, 0.01, 0.01), 0.25, 120),
        ((0.92, 0.05, 0.02, 0.00, 0.01), 0.12, 100),  # large effects near the ceiling
        ((0.92, 0.05, 0.02, 0.00, 0.01), 0.12, 200),
        ((0.97, 0.03), 0.028, 200),
        ((0.90, 0.02, 0.02, 0.02, 0.04), 0.25, 60),
    ],
)
def test_power_of_pairs_is_what_the_exact_test_finds(steps, effect, n):
    """Sign flips of 3,000 simulated experiments reject as often as computed."""
    moved, sizes = np.array(steps[1:]), np.arange(1, len(steps))
    leans = np.linspace(0, 5, 50_001)[:, None]
    at = np.argmin(abs((moved * np.tanh(leans * sizes)) @ sizes - effect))
    up = moved * (1 + np.tanh(leans[at] * sizes)) / 2
    shares = np.concatenate([(moved - up)[::-1], [steps[0]], up])
    values = np.arange(1 - len(steps), len(steps))
    drawn = np.random.default_rng(n).multinomial(n, shares, 3000)
    tables, times = np.unique(drawn, axis=0, return_counts=True)
    found = [paired_permutation_test(values, t).pvalue <= 0.05 for t in tables]
    power = float(np.average(found, weights=times))
    ordinal, _ = paired_power(effect, steps, 0.1, 0.05, n)
    assert ordinal == pytest.approx(power, abs=0.005 + 3 * (0.25 / 3000) ** 0.5)
    assert paired_power(-effect, steps, 0.1, 0.05, n)[0] == pytest.approx(
        ordinal, abs=0.02
    )


def test_pairs_that_never_differed_can_still_be_moved():
    """Without disagreement in the pilot the effect itself is the only movement."""
    assert paired_power(0.5, [1.0, 0.0], 0.0, 0.5, 40)[0] > 0.99
    assert paired_power(0.5, [1.0, 0.0], 0.0, 0.5, 400)[0] > 0.99

"""Guardrails and secondary metrics, arm against arm."""

import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import TableError
from reply_resolution.readout.experiment_plan import ExperimentPlan, Metric
from reply_resolution.readout.metric_effect import mean_effect
from reply_resolution.readout.metrics import compare_metrics

ARMS = {"control": "control", "treatment": "treatment"}


def table(treated, plain, name="x", **more):
    """Two arms of one column."""
    arm = ["treatment"] * len(treated) + ["control"] * len(plain)
    return pl.DataFrame({"arm": arm, name: [*treated, *plain], **more})


def test_independent_means_are_welchs_interval():
    """Without users the interval is Welch's, as scipy gives it."""
    from scipy import stats

    rng = np.random.default_rng(1)
    a, b = rng.normal(1, 2, 60), rng.normal(0, 1, 40)
    got = mean_effect(table(a, b), Metric("x"), **ARMS)
    theirs = stats.ttest_ind(a, b, equal_var=False)
    span = theirs.confidence_interval(0.95)
    assert got.difference == pytest.approx(a.mean() - b.mean())
    assert (got.low, got.high) == pytest.approx((span.low, span.high))
    assert got.pvalue == pytest.approx(theirs.pvalue)


def test_users_are_the_units():
    """Repeating every reply of a user does not narrow the interval."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(0, 1, 50), rng.normal(0, 1, 50)
    users = [f"u{i}" for i in range(100)]
    once = mean_effect(table(a, b, user=users), Metric("x"), unit="user", **ARMS)
    many = mean_effect(
        table(np.repeat(a, 4), np.repeat(b, 4), user=np.repeat(users, 4)),
        Metric("x"),
        unit="user",
        **ARMS,
    )
    assert (many.low, many.high) == pytest.approx((once.low, once.high))
    alone = mean_effect(table(np.repeat(a, 4), np.repeat(b, 4)), Metric("x"), **ARMS)
    assert alone.high - alone.low < 0.6 * (many.high - many.low)


def test_pairs_are_compared_as_pairs():
    """A paired difference without spread of its own level has a narrow interval."""
    base = np.arange(30.0)
    ids = [f"r{i}" for i in range(30)] * 2
    frame = table(base + 1 + 0.1 * (base % 2), base, request_id=ids)
    got = mean_effect(frame, Metric("x"), pair="request_id", **ARMS)
    assert got.difference == pytest.approx(1.05)
    assert got.high - got.low < 0.1
    assert got.n_control == 30


def test_rates_use_miettinen_nurminen():
    """A 0/1 column is a rate, also as true and false."""
    from reply_resolution.stats.binary import rate_difference

    treated, plain = [1] * 55 + [0] * 105, [1] * 48 + [0] * 112
    want = rate_difference(55, 160, 48, 160)
    got = mean_effect(table(treated, plain), Metric("x", kind="rate"), **ARMS)
    assert (got.low, got.high) == pytest.approx((want.low, want.high))
    flags = [bool(v) for v in treated], [bool(v) for v in plain]
    again = mean_effect(table(*flags), Metric("x", kind="rate"), **ARMS)
    assert again.low == got.low


@pytest.mark.parametrize(
    ("better", "shift", "within"),
    [
        ("lower", 0.0, True),
        ("lower", 2.0, False),
        ("lower", -2.0, True),
        ("higher", -2.0, False),
        ("higher", 2.0, True),
    ],
)
def test_a_guardrail_fails_on_its_bad_side_only(better, shift, within):
    """Change for the better never passes a margin."""
    rng = np.random.default_rng(3)
    frame = table(rng.normal(shift, 1, 200), rng.normal(0, 1, 200))
    plan = ExperimentPlan(guardrails=(Metric("x", better=better, margin=1.0),))
    (got,) = compare_metrics(frame, plan, **ARMS)
    assert got.within is within
    assert got.outcome().within is within


def test_missing_values_are_counted_and_absent_columns_said():
    """Nothing is dropped without being counted."""
    frame = table([1.0, None, 3.0, float("nan")], [1.0, 2.0, 2.0, 5.0])
    plan = ExperimentPlan(
        guardrails=(Metric("gone", margin=1.0),), secondary=(Metric("x"),)
    )
    absent, got = compare_metrics(frame, plan, **ARMS)
    assert got.missing == 2
    assert got.n_treatment == 2
    assert absent.within is None
    assert "gone" in absent.absent
    assert "not measured" in absent.outcome().text


def test_no_variation_gives_no_interval():
    """Equal values are no evidence of precision."""
    got = mean_effect(table([5.0] * 9, [5.0] * 9), Metric("x"), **ARMS)
    assert got.low is None
    assert got.absent
    short = mean_effect(table([5.0], [5.0, 4.0]), Metric("x"), **ARMS)
    assert "fewer than two" in short.absent


def test_holm_runs_over_all_metrics():
    """Two equal metrics double each other's p-value."""
    rng = np.random.default_rng(4)
    frame = table(rng.normal(0.4, 1, 50), rng.normal(0, 1, 50))
    one = ExperimentPlan(secondary=(Metric("x"),))
    two = ExperimentPlan(secondary=(Metric("x"), Metric("x", name="again")))
    (single,) = compare_metrics(frame, one, **ARMS)
    first, _ = compare_metrics(frame, two, **ARMS)
    assert first.pvalue_adjusted == pytest.approx(2 * single.pvalue)


def test_several_looks_widen_intervals_and_hide_fixed_p():
    """A fixed-horizon p-value is not shown where the data are read repeatedly."""
    rng = np.random.default_rng(5)
    frame = table(rng.normal(0, 1, 50), rng.normal(0, 1, 50))
    plan = ExperimentPlan(secondary=(Metric("x"),))
    (once,) = compare_metrics(frame, plan, **ARMS)
    (wide,) = compare_metrics(frame, plan, widen=1.5, **ARMS)
    assert wide.high - wide.low == pytest.approx(1.5 * (once.high - once.low))
    assert wide.pvalue is None


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [(["a", "1"], "mean", "not numbers"), ([2, 1], "rate", "other values")],
)
def test_cells_that_do_not_fit_are_refused(values, kind, message):
    """Text in an amount, and a 2 in a rate, are errors that name the cell."""
    frame = table(values, values)
    with pytest.raises(TableError, match=message):
        mean_effect(frame, Metric("x", kind=kind), **ARMS)


def test_a_rate_within_one_stratum_is_the_plain_one():
    """The stratified score interval with one stratum is Miettinen and Nurminen's."""
    from reply_resolution.stats.binary import rate_difference
    from reply_resolution.stats.strata import stratified_rate_interval

    plain = rate_difference(56, 70, 48, 80, test="score")
    low, high, p = stratified_rate_interval(
        [(56, 70, 48, 80)], np.array([1.0]), confidence=0.95
    )
    assert (low, high) == pytest.approx((plain.low, plain.high), abs=1e-12)
    assert p == pytest.approx(plain.pvalue, rel=1e-12)


def test_a_rate_within_strata_covers_the_truth():
    """1,000 experiments, rates 5% and 60%: 95%, and the test agrees with Cochran's."""
    from statsmodels.stats.contingency_tables import StratifiedTable

    from reply_resolution.stats.strata import stratified_rate_interval, stratum_weights

    rng = np.random.default_rng(6)
    n1, n0 = np.array([30, 70]), np.array([70, 30])
    weight = stratum_weights(n0, n1)
    hits = 0
    for run in range(1000):
        x1, x0 = rng.binomial(n1, [0.05, 0.6]), rng.binomial(n0, [0.05, 0.6])
        tables = [tuple(int(v) for v in t) for t in zip(x1, n1, x0, n0, strict=True)]
        low, high, p = stratified_rate_interval(tables, weight, confidence=0.95)
        hits += low <= 0 <= high
        assert (low > 0 or high < 0) == (p < 0.05)
        if run < 20:
            cells = [np.array([[a, m - a], [b, k - b]]) for a, m, b, k in tables]
            found = StratifiedTable(cells).test_null_odds(correction=False)
            # Cochran, Mantel and Haenszel: the same test with the same variance.
            assert p == pytest.approx(found.pvalue, rel=1e-6)
    assert hits >= 950 - 3.09 * (1000 * 0.95 * 0.05) ** 0.5

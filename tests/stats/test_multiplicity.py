"""Adjusted p-values, against R's p.adjust."""

from itertools import combinations
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.multiplicity import adjust

CASES = json.loads(
    (Path(__file__).parent / "oracles/multiplicity_sequential.json").read_text()
)["holm"]


@pytest.mark.parametrize(
    ("case", "method"),
    [(c, m) for c in CASES for m in c if m not in ("p", "source")],
)
def test_equal_to_r_p_adjust(case, method):
    """Holm, Hochberg, Hommel, BH and BY are R's to ten digits."""
    assert adjust(case["p"], method.lower()) == pytest.approx(case[method], abs=1e-10)


def test_rejects_at_equality():
    """0.01 among five is 0.05 exactly: at most alpha, so rejected."""
    assert adjust([0.01, 0.5, 0.5, 0.5, 0.5])[0] <= 0.05
    assert adjust([0.025, 0.9], "bonferroni")[0] <= 0.05


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_order_of_the_methods(pvalues):
    """Never below the raw p or above 1; Hommel at most Hochberg at most Holm."""
    raw = adjust(pvalues, "bonferroni")
    holm, hochberg = adjust(pvalues, "holm"), adjust(pvalues, "hochberg")
    hommel, bh, by = (adjust(pvalues, m) for m in ("hommel", "bh", "by"))
    for i, p in enumerate(pvalues):
        tiny = 1e-12
        assert p - tiny <= hommel[i] <= hochberg[i] + tiny
        assert hochberg[i] <= holm[i] + tiny
        assert holm[i] <= raw[i] + tiny
        assert p - tiny <= bh[i] <= by[i] + tiny
        assert by[i] <= 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_hommel_is_the_closed_test_of_simes(pvalues):
    """By definition: the largest Simes p of all subsets that hold the hypothesis."""
    found = adjust(pvalues, "hommel")
    m = len(pvalues)
    subsets = [s for k in range(1, m + 1) for s in combinations(range(m), k)]

    def simes(subset):
        ranked = sorted(pvalues[i] for i in subset)
        return min(len(ranked) * p / (k + 1) for k, p in enumerate(ranked))

    for i in range(m):
        expected = max(simes(s) for s in subsets if i in s)
        assert found[i] == pytest.approx(min(1.0, expected), abs=1e-12)


@given(st.permutations([0.004, 0.03, 0.2, 0.03, 0.9]))
def test_order_of_the_input_does_not_matter(pvalues):
    """Each p-value keeps its adjusted value wherever it stands."""
    expected = dict(
        zip(
            [0.004, 0.03, 0.2, 0.03, 0.9],
            adjust([0.004, 0.03, 0.2, 0.03, 0.9], "hommel"),
            strict=True,
        )
    )
    assert adjust(pvalues, "hommel") == tuple(expected[p] for p in pvalues)


@pytest.mark.parametrize(
    "bad", [[], [0.1, float("nan")], [1.2], [-0.1], ["0.1"], [True]]
)
def test_what_is_no_p_value_is_refused(bad):
    """Nothing, NaN, text, booleans and numbers outside 0 to 1 are errors."""
    with pytest.raises(StatisticsError):
        adjust(bad)


def test_unknown_method_names_the_known():
    """A method that does not exist is refused with the list."""
    with pytest.raises(StatisticsError, match="hommel"):
        adjust([0.1], "sidak")

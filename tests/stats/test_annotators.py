"""People beside the judge: consensus, their own agreement, the alternative test."""

import json
from pathlib import Path

import polars as pl
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.agreement_slices import length_bands, slices
from reply_resolution.stats.alt_test import alternative_annotator_test
from reply_resolution.stats.annotators import annotator_agreement, consensus
from reply_resolution.stats.judge_comparison import compare_judges
from reply_resolution.stats.label_plan import label_plan
from reply_resolution.stats.self_agreement import self_agreement

ALTERNATIVE = json.loads(
    (Path(__file__).parent / "oracles/alternative_annotator_test.json").read_text(
        "utf-8"
    )
)["cases"]


def long(rows):
    """Labels from (request, annotator, label[, repeat]) tuples."""
    rows = [(*r, 0)[:4] for r in rows]
    return pl.DataFrame(
        rows, schema=["request_id", "annotator", "label", "repeat"], orient="row"
    )


def test_consensus_is_the_mean_without_repeats_and_without_nulls():
    """Hidden repeats and "cannot judge" do not enter; the spread is kept."""
    labels = long(
        [
            ("a", "x", 2),
            ("a", "y", 5),
            ("a", "x", 1, 1),
            ("b", "x", None),
            ("b", "y", 3),
        ]
    )
    found = consensus(labels)
    assert found["label"].to_list() == [3.5, 3.0]
    assert found["annotators"].to_list() == [2, 1]
    assert found["spread"].to_list() == [3, 0]
    assert consensus(labels, how="x")["label"].to_list() == [2.0]
    with pytest.raises(StatisticsError, match="'mean', 'median'"):
        consensus(labels, how="zoe")


def test_an_annotator_with_three_labels_is_named():
    """Their agreement is shown, and that it says little."""
    rows = [(str(i), who, 1 + i % 5) for i in range(40) for who in "xy"]
    labels = long([*rows, *((str(i), "late", 3) for i in range(3))])
    found = annotator_agreement(labels, resamples=200)
    assert any("late has only 3 labels" in w for w in found.warnings)
    with pytest.raises(StatisticsError, match="no item was labelled by two"):
        annotator_agreement(long([("a", "x", 1), ("b", "y", 2)]))


@pytest.mark.parametrize("case", list(ALTERNATIVE))
def test_alternative_annotator_test_on_hanna(real_data, case):
    """Winning rate, advantage and p-values of an outside implementation."""
    criterion, judge, prompt, epsilon = case.split("/")
    labels = (
        pl.read_parquet(real_data / "hanna/human_ratings.parquet")
        .filter(criterion=criterion)
        .select(
            "request_id", arm="system", annotator="annotator_id", label="human_score"
        )
    )
    verdicts = (
        pl.read_parquet(real_data / "hanna/judge_scores.parquet")
        .filter(
            (pl.col("criterion") == criterion)
            & (pl.col("judge_model") == judge)
            & (pl.col("eval_prompt") == int(prompt.split()[1]))
            & (pl.col("judge_score") > 0)
        )
        .select("request_id", arm="system", score="judge_score")
    )
    wanted = ALTERNATIVE[case]
    found = alternative_annotator_test(
        labels, verdicts, epsilon=float(epsilon.split()[1])
    )
    assert found.winning_rate == wanted["winning_rate"]
    assert found.advantage == pytest.approx(wanted["advantage_probability"], abs=1e-12)
    assert found.annotators[0].n_items == wanted["n_items"]
    for person in found.annotators:
        assert person.pvalue == pytest.approx(
            wanted["pvalues"][person.annotator], rel=1e-9
        )


def test_alternative_test_does_not_apply_to_two_people():
    """Said plainly, no number."""
    labels = long([(str(i), who, 3) for i in range(40) for who in "xy"])
    verdicts = pl.DataFrame(
        {"request_id": [str(i) for i in range(40)], "score": [3] * 40}
    )
    found = alternative_annotator_test(labels, verdicts)
    assert not found.applies
    assert found.passed is None
    assert "needs three annotators; there are 2" in found.reason


def test_self_agreement_counts_flips_per_item():
    """Three votes for one item, two for another, one for a third."""
    votes = pl.DataFrame(
        {
            "request_id": ["a", "a", "a", "b", "b", "c"],
            "vote": [0, 1, 2, 0, 1, 0],
            "score": [4, 4, 3, 2, 2, 5],
        }
    )
    found = self_agreement(votes)
    assert (found.n_items, found.n_pairs) == (2, 3)
    assert found.flip_rate.estimate == pytest.approx(1 / 3)
    assert found.cut_flip_rate.estimate == pytest.approx(1 / 3)
    assert found.mean_change == pytest.approx(1 / 3)
    with pytest.raises(StatisticsError, match="scored twice"):
        self_agreement(votes.filter(pl.col("vote") == 0))


def test_hidden_repeats_are_per_person():
    """Two people's labels are not each other's repeats."""
    labels = long([("a", "x", 2), ("a", "x", 3, 1), ("a", "y", 5), ("a", "y", 5, 1)])
    found = self_agreement(labels, value="label", turn="repeat")
    assert (found.n_items, found.n_pairs) == (2, 2)
    assert found.mean_change == 0.5


def test_slices_by_a_column_and_by_length():
    """Every value has its agreement; too few replies have none."""
    frame = pl.DataFrame(
        {
            "language": ["en"] * 30 + ["es"] * 30 + ["fr"] * 3,
            "score": [1 + i % 5 for i in range(30)] + [3] * 33,
            "label": [1 + i % 5 for i in range(30)] + [1 + i % 5 for i in range(33)],
            "length": list(range(63)),
        }
    )
    found = slices(frame, by="language")
    assert found["en"].weighted_kappa.estimate == 1
    assert found["es"].weighted_kappa.estimate == 0
    assert found["fr"] is None
    bands = length_bands(frame["length"])
    assert bands.n_unique() == 3
    assert bands[0] == "up to 20 characters"
    assert bands.value_counts()["count"].to_list() == [21, 21, 21]


def test_a_better_judge_is_found_on_the_same_labels():
    """Second judge exact, first one level off in every third reply."""
    labels = [1 + i % 5 for i in range(90)]
    off = [min(5, y + 1) if i % 3 == 0 else y for i, y in enumerate(labels)]
    nearly = [min(5, y + 1) if i % 15 == 0 else y for i, y in enumerate(labels)]
    found = compare_judges(off, nearly, labels)
    assert found.better == "second"
    assert found.kappa_difference.low > 0
    assert found.kappa_difference.estimate == pytest.approx(
        found.kappa_second - found.kappa_first
    )
    assert compare_judges(nearly, off, labels).better == "first"
    same = compare_judges(off, off, labels)
    assert (same.better, same.changed) == ("", 0)


def test_paired_comparison_is_narrower_than_two_intervals():
    """Errors both judges share cancel in the difference."""
    from reply_resolution.stats.agreement import agreement

    labels = [1 + i % 5 for i in range(200)]
    first = [min(5, y + 1) if i % 3 == 0 else y for i, y in enumerate(labels)]
    second = [
        y if i % 51 == 0 else x
        for i, (x, y) in enumerate(zip(first, labels, strict=True))
    ]
    found = compare_judges(first, second, labels).kappa_difference
    one = agreement(first, labels).weighted_kappa
    assert found.high - found.low < 0.5 * (one.high - one.low)


def test_label_plan_matches_what_is_then_measured():
    """The interval expected at 100 labels is about the one 100 labels give."""
    from reply_resolution.stats.agreement import agreement

    table = [[18, 2, 0], [3, 30, 4], [1, 5, 37]]
    plan = label_plan([1, 1, 1], confusion=table, sizes=(100,))
    label = [i + 1 for i in range(3) for j in range(3) for _ in range(table[i][j])]
    judge = [j + 1 for i in range(3) for j in range(3) for _ in range(table[i][j])]
    found = agreement(judge, label, scale=(1, 3))
    row = plan.rows[0]
    assert plan.kappa == pytest.approx(found.weighted_kappa.estimate)
    assert row.kappa_low == pytest.approx(found.weighted_kappa.low, abs=0.03)
    assert row.kappa_high == pytest.approx(found.weighted_kappa.high, abs=0.03)
    half = (found.bias.high - found.bias.low) / 2
    assert row.bias_half_width == pytest.approx(half, abs=0.01)


def test_label_plan_says_when_no_number_of_labels_helps():
    """A kappa assumed at the floor, and too few judged replies for the effect."""
    plan = label_plan([1, 1, 1, 1, 1], exact=0.3, adjacent=0.6, judged_per_arm=50)
    assert plan.for_floor is None
    assert plan.for_effect is None
    assert plan.needed is None
    enough = label_plan([1, 1, 1, 1, 1], exact=0.8, adjacent=0.98, judged_per_arm=2000)
    assert enough.needed == max(enough.for_floor, 2 * enough.for_effect)
    widths = [row.effect_half_width for row in enough.rows]
    assert widths == sorted(widths, reverse=True)
    with pytest.raises(StatisticsError):
        label_plan([1, 1, 1, 1, 1], exact=0.9, adjacent=0.5)


def test_correction_over_annotators_is_benjamini_yekutieli():
    """As statsmodels' fdr_by, where Benjamini-Hochberg would reject more."""
    import numpy as np
    from statsmodels.stats.multitest import multipletests

    from reply_resolution.stats.alt_test import _benjamini_yekutieli

    rng = np.random.default_rng(1)
    cases = [np.array([0.02, 0.03, 0.04]), *(rng.beta(0.3, 3, 6) for _ in range(50))]
    for pvalues in cases:
        wanted = multipletests(pvalues, 0.05, method="fdr_by")[0]
        assert _benjamini_yekutieli(pvalues, 0.05).tolist() == wanted.tolist()


def test_a_good_judge_makes_labels_worth_more():
    """The planned corrected effect is narrower than labels alone would give."""
    shares = [1, 1, 1, 1, 1]
    plan = label_plan(shares, exact=0.95, adjacent=1, sizes=(100,), judged_per_arm=5000)
    alone = 1.96 * (2 * 2.0 / 50) ** 0.5  # five equal levels: variance 2, 50 an arm
    assert plan.rows[0].effect_half_width < 0.4 * alone

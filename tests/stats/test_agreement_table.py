"""The object of `agreement --json`."""

import json
from pathlib import Path

import polars as pl
import pytest

from reply_resolution.errors import (
    StatisticsError,
    TableError,
    VersionMismatchError,
)
from reply_resolution.stats.agreement_parts import MEASURES
from reply_resolution.stats.agreement_table import agreement_table


@pytest.fixture
def demo(root):
    """The demonstration's calibration replies with the recorded judge's votes."""
    return pl.read_csv(root / "data/calibration.csv").join(
        pl.read_ndjson(root / "data/verdicts_calibration.jsonl"), on="request_id"
    )


def test_every_key_of_the_design(demo):
    """One key per label column with all estimates, `between`, and sane JSON."""
    out = agreement_table(demo)
    json.dumps(out, allow_nan=False)
    for column in ("label_a", "label_b"):
        found = out[column]
        assert found["n"] == 120
        for name in MEASURES:
            low, high = found[name]["ci"]
            assert low <= found[name]["estimate"] <= high
        assert [sum(row) for row in found["confusion"]] == [
            (demo.filter(vote=0)[column] == v).sum() for v in range(1, 6)
        ]
    assert list(out["between"]) == ["label_a|label_b"]
    assert out["label_a"]["bias"]["estimate"] == pytest.approx(
        (demo.filter(vote=0)["score"] - demo.filter(vote=0)["label_a"]).mean()
    )
    assert any("further votes" in w for w in out["warnings"])


def test_constant_scores_of_the_messy_set(root):
    """Kappa 0, correlations null with the reason; 16b: kappa and alpha null."""
    frame = pl.read_csv(root / "tests/tables/messy/16_constant_scores.csv")
    out = agreement_table(frame, judge="judge_score", labels=["human_score"])
    found = out["human_score"]
    assert found["weighted_kappa"]["estimate"] == 0
    assert found["krippendorff_alpha"]["estimate"] == pytest.approx(-0.575)
    assert found["spearman"] == {"estimate": None, "ci": None}
    assert any("spearman is undefined" in w for w in out["warnings"])
    frame = pl.read_csv(root / "tests/tables/messy/16b_all_equal.csv")
    found = agreement_table(frame, judge="judge_score", labels=["human_score"])
    assert found["human_score"]["exact"]["estimate"] == 1
    assert found["human_score"]["weighted_kappa"]["estimate"] is None
    assert found["human_score"]["krippendorff_alpha"]["estimate"] is None


def test_cells_that_are_no_scores_are_counted():
    """Spellings are read, parse failures (0, -1) and words are left out and named."""
    frame = pl.DataFrame(
        {
            "score": ["4/5", "3.0", "0", "-1", "N/A", "3 or 4", "2"],
            "label_x": [4, 3, 2, 2, 2, 2, 2],
        }
    )
    out = agreement_table(frame)
    assert out["label_x"]["n"] == 3
    assert out["label_x"]["exact"]["estimate"] == 1
    assert out["excluded"]["score"] == {
        "missing": 1,
        "not_a_score": 1,
        "out_of_range": 2,
    }
    assert any("were left out" in w for w in out["warnings"])


def test_real_values_and_other_scales():
    """A 0 to 1 judge against labels of 1 to 4: ranks, and null with the reason."""
    frame = pl.DataFrame(
        {"score": [0.1, 0.4, 0.35, 0.9, 0.75], "label_x": [1, 2, 2, 4, 3]}
    )
    out = agreement_table(frame, scale=(1, 4))
    assert out["label_x"]["spearman"]["estimate"] == pytest.approx(0.97467943)
    for name in ("exact", "adjacent", "weighted_kappa", "bias"):
        assert out["label_x"][name]["estimate"] is None
    assert out["label_x"]["confusion"] is None
    assert out["label_x"]["pearson"]["estimate"] == pytest.approx(0.9870571120021533)
    assert any("only ranks" in w for w in out["warnings"])


def test_an_average_with_parse_failures_keeps_its_scale():
    """3.5 is a value, a lone 0 is none."""
    frame = pl.DataFrame({"score": [3.5, 0.0, 2.0, 4.5], "label_x": [3, 3, 2, 5]})
    out = agreement_table(frame)
    assert out["label_x"]["n"] == 3
    assert out["excluded"]["score"] == {"out_of_range": 1}
    assert out["label_x"]["bias"]["estimate"] == pytest.approx(0.0)


def test_a_label_column_without_pairs_is_null_not_an_error():
    """Another column has labels: this one is null, with the reason."""
    frame = pl.DataFrame(
        {"score": [3, 4, 5], "label_x": [3, 4, 4], "label_y": [None, None, None]}
    )
    out = agreement_table(frame)
    assert out["label_x"]["n"] == 3
    assert out["label_y"]["n"] == 0
    assert out["label_y"]["exact"] == {"estimate": None, "ci": None}
    assert out["between"]["label_x|label_y"]["n"] == 0


def test_errors_say_what_to_do():
    """A missing column, no label column, nothing on the scale."""
    frame = pl.DataFrame({"score": [30, 80], "label_x": [1, 2], "ok": [True, False]})
    with pytest.raises(TableError, match="no column 'judge'"):
        agreement_table(frame, judge="judge")
    with pytest.raises(TableError, match="no column is called label_"):
        agreement_table(frame.drop("label_x"))
    with pytest.raises(StatisticsError, match="2 out_of_range"):
        agreement_table(frame)
    with pytest.raises(TableError, match="true and false"):
        agreement_table(frame, labels=["ok"])


def test_a_wide_scale_still_has_its_table():
    """0 to 10, as some products label."""
    frame = pl.DataFrame({"score": [0, 5, 10, 7], "label_x": [1, 5, 9, 7]})
    out = agreement_table(frame, scale=(0, 10))
    assert len(out["label_x"]["confusion"]) == 11
    assert out["label_x"]["exact"]["estimate"] == 0.5


def test_three_people_are_measured_together():
    """Krippendorff's four raters as label columns: alpha .815 and AC2 .914 of all."""
    example = json.loads(
        (Path(__file__).parent / "oracles/agreement_ppi.json").read_text("utf-8")
    )["krippendorff2011_example"]
    frame = pl.DataFrame(
        {f"label_{i}": row for i, row in enumerate(example["data"])}
    ).with_columns(score=pl.lit(3))
    found = agreement_table(frame)["among"]
    assert found["n"] == 11
    alpha = found["krippendorff_alpha"]
    assert alpha["estimate"] == pytest.approx(example["ordinal"], abs=1e-12)
    assert alpha["ci"][0] < alpha["estimate"] < alpha["ci"][1]
    assert found["gwet_ac2"]["estimate"] == pytest.approx(
        example["gwet_ac2_quadratic"], abs=5.1e-6
    )
    assert "among" not in agreement_table(frame.select("score", "label_0", "label_1"))


def test_three_people_without_enough_in_common_are_null_with_the_reason():
    """Averages among the labels give null and a sentence; one row no interval."""
    frame = pl.DataFrame(
        {"score": [4], "label_a": [5], "label_b": [4], "label_c": [None]}
    )
    found = agreement_table(frame)["among"]
    assert found["n"] == 1
    assert found["gwet_ac2"]["ci"] is None
    out = agreement_table(frame.with_columns(label_b=pl.lit(4.5)))
    assert out["among"] is None
    assert any("among is undefined" in w for w in out["warnings"])


def test_an_empty_cell_is_missing_on_any_scale():
    """Text with an empty cell: missing, not "no score", also where 0 to 1,000."""
    frame = pl.DataFrame({"score": ["10", "", "990"], "label_x": [1, 500, 1000]})
    out = agreement_table(frame, scale=(0, 1000))
    assert out["label_x"]["n"] == 2
    assert out["excluded"]["score"] == {"missing": 1}


def test_neither_the_order_of_rows_nor_of_people_changes_a_digit(demo):
    """Pairs of people are keyed and computed by name; rows may come as they like."""
    first = demo.filter(vote=0)
    found = agreement_table(first, labels=["label_a", "label_b"])
    mixed = first.sample(fraction=1, shuffle=True, seed=4)
    again = agreement_table(mixed, labels=["label_b", "label_a"])
    for key in ("label_a", "label_b", "between"):
        assert again[key] == found[key]


def test_the_cells_that_were_not_read_are_listed():
    """Distinct values with their rows, eight of them, and how many more."""
    cells = ["?", "?", "9", *(f"w{k}" for k in range(9)), "4", "5"]
    frame = pl.DataFrame({"score": cells, "label_x": [4] * len(cells)})
    warnings = agreement_table(frame)["warnings"]
    assert warnings[0].startswith(
        "score: cells that are no scores from 1 to 5 were left out (12): '?' (2), "
    )
    assert warnings[0].endswith("and 3 more.")


def test_decimal_commas_are_read():
    """The same numbers as with points."""
    text = ["1,0", "4,5", "3,0", "2,5", "", "4,0"]
    frame = pl.DataFrame({"score": text, "label_x": [1, 4, 3, 2, 5, 5]})
    out = agreement_table(frame)
    points = frame.with_columns(pl.col("score").str.replace(",", "."))
    assert out["label_x"] == agreement_table(points)["label_x"]
    assert out["label_x"]["n"] == 5
    assert any("'4,5' as 4.5 (1)" in w for w in out["warnings"])


@pytest.mark.parametrize("name", ["warnings", "scale", "excluded", "between", "among"])
def test_a_label_column_cannot_have_a_name_of_the_result(name):
    """It would be overwritten; the error says to rename it."""
    frame = pl.DataFrame({"score": [1, 2, 3], name: [1, 2, 3]})
    with pytest.raises(TableError, match=f"'{name}'.*Rename the column"):
        agreement_table(frame, labels=[name])


def test_versions_and_judges_are_not_mixed_unless_asked():
    """Both are named; rows without label or score do not count."""
    frame = pl.DataFrame(
        {
            "score": [1, 2, 3, None],
            "label_x": [1, 2, None, 4],
            "metric_version": ["m@v1", "m@v1", "m@v2", "m@v3"],
        }
    )
    assert agreement_table(frame)["label_x"]["n"] == 2
    frame = frame.with_columns(label_x=pl.lit(3))
    with pytest.raises(VersionMismatchError, match="'m@v1', 'm@v2'"):
        agreement_table(frame)
    assert agreement_table(frame, mix_versions=True)["label_x"]["n"] == 3


def test_columns_that_look_alike_are_pointed_at():
    """`rater_2 ` and `Rater2` of the messy set: two raters, and a warning."""
    frame = pl.DataFrame({"score": [4, 3], "rater_2 ": [4, 3], "Rater2": [5, 3]})
    out = agreement_table(frame, labels=["rater_2 ", "Rater2"])
    assert out["rater_2 "]["n"] == out["Rater2"]["n"] == 2
    assert "'rater_2 ', 'Rater2' have nearly the same name" in out["warnings"][0]


def test_votes_without_ids_use_the_first():
    """No key: only rows of the lowest vote; rows without an id stay apart."""
    frame = pl.DataFrame({"score": [4, 3, 1, 1], "label_x": [4, 3, 4, 3]})
    votes = frame.with_columns(vote=pl.Series([0, 0, 1, 1]))
    assert agreement_table(votes)["label_x"]["exact"]["estimate"] == 1
    blank = votes.with_columns(request_id=pl.Series(["", None, "a", "a"]))
    assert agreement_table(blank)["label_x"]["n"] == 3

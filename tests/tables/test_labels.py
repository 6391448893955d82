"""Tables of labels: long, wide, in words; what is refused and what is listed."""

from pathlib import Path

import polars as pl
import pytest

from reply_resolution.errors import LabelError, TableError
from reply_resolution.tables.labels import (
    LABEL_SCHEMA,
    check_label_version,
    join_labels,
    read_labels,
)

MESSY = Path(__file__).parent / "messy"
DATA = Path(__file__).parents[2] / "data"
WORDS = {"Resolved": 5, "Partially resolved": 3, "Not resolved": 1}
RATERS = ["Rater 1", "rater_2 ", "Rater2", "Rater 3 (QA lead)"]
ITEM = {"request_id": "item", "arm": "Variant"}


def long(**columns: list[object]) -> pl.DataFrame:
    """Labels of 3 by anna, with columns replaced."""
    rows = len(next(iter(columns.values())))
    base = {"request_id": [f"r{i}" for i in range(rows)], "annotator": ["anna"] * rows}
    return pl.DataFrame({**base, "label": [3] * rows, **columns})


def test_the_bundled_labels_are_two_people_in_long_form():
    """Wide columns label_a and label_b become annotators a and b."""
    table = read_labels(DATA / "experiment_labels.csv")
    assert dict(table.frame.schema) == LABEL_SCHEMA
    assert table.frame.group_by("annotator", maintain_order=True).len().rows() == [
        ("a", 80),
        ("b", 80),
    ]
    assert table.notes == ()


def test_words_need_a_map_and_an_unknown_word_is_an_error():
    """File 15: without a map every word is named; with it only "Escalated"."""
    path = MESSY / "15_wide_annotators.csv"
    with pytest.raises(LabelError, match=r"'Resolved' in row 1.*label_map="):
        read_labels(path, columns=ITEM, annotators=RATERS)
    with pytest.raises(LabelError, match=r"1 label\(s\).*'Escalated' in row 6"):
        read_labels(path, columns=ITEM, annotators=RATERS, label_map=WORDS)


def test_wide_columns_with_similar_names_stay_two_people():
    """File 15, read on without the unknown word: 4 raters, q5 rated by nobody."""
    table = read_labels(
        MESSY / "15_wide_annotators.csv",
        columns=ITEM,
        annotators=RATERS,
        label_map=WORDS,
        on_bad_label="skip",
    )
    frame = table.frame
    assert frame["annotator"].n_unique() == 4
    assert any("nearly the same name ('rater_2', 'Rater2')" in n for n in table.notes)
    rated = frame.drop_nulls("label")
    assert rated.filter(pl.col("request_id") == "q5").is_empty()
    first = rated.filter(pl.col("annotator") == "Rater 1")
    assert first["label"].to_list() == [5, 3, 1, 5]
    assert table.problems.rows() == [
        (6, "q6", "label", "Escalated", "not_a_score"),
    ]


def test_annotators_can_be_named():
    """A mapping gives each person's name and column."""
    frame = pl.DataFrame({"request_id": ["1"], "QA lead": [4], "score": [2]})
    table = read_labels(frame, annotators={"eva": "QA lead"})
    assert table.frame.select("annotator", "label").rows() == [("eva", 4)]


def test_numbers_off_the_scale_are_listed_and_not_used():
    """0 and 6 are no labels: null, counted, with their rows."""
    table = read_labels(long(label=[0, 6, 5, None]))
    assert table.frame["label"].to_list() == [None, None, 5, None]
    assert table.problems["reason"].to_list() == ["out_of_range"] * 2
    assert any("not on the scale 1 to 5, not used: 2" in n for n in table.notes)


def test_other_spellings_are_read_and_counted():
    """A cell of "4/5" is a 4 and said; a fraction stops the reading."""
    table = read_labels(long(label=["4/5", "4", "cannot judge"]))
    assert table.frame["label"].to_list() == [4, 4, None]
    assert any("'4/5' as 4 (1)" in n for n in table.notes)
    with pytest.raises(LabelError, match=r"'2.5' in row 2"):
        read_labels(long(label=["4", "2.5"]))
    with pytest.raises(LabelError, match=r"'2.3333"):
        read_labels(long(label=[2.0, 7 / 3]))


def test_two_labels_by_one_person_need_to_be_a_repeat():
    """Different labels of one repeat are refused by row; marked repeats are kept."""
    frame = long(request_id=["r", "r"], label=[3, 4])
    with pytest.raises(LabelError, match=r"in rows 1, 2.*`repeat`"):
        read_labels(frame)
    marked = frame.with_columns(pl.Series("repeat", [0, 1]))
    assert read_labels(marked).frame["repeat"].to_list() == [0, 1]
    twice = long(request_id=["r", "r"])
    assert "Dropped as exact duplicates: 1 row(s)." in read_labels(twice).notes


def test_text_files_of_labels_keep_weights_and_versions(tmp_path: Path):
    """Numbers in a CSV become numbers; empty cells mean the default."""
    path = tmp_path / "t.csv"
    path.write_text(
        "request_id,annotator,label,repeat,weight,metric_version\n"
        "1,anna,4,0,2.5,v1\n2,anna,,,,\n"
    )
    frame = read_labels(path).frame
    assert frame.rows() == [
        ("1", None, "anna", 4, 0, 2.5, "v1"),
        ("2", None, "anna", None, 0, 1.0, None),
    ]
    path.write_text("request_id,annotator,label,weight\n1,anna,4,heavy\n")
    with pytest.raises(TableError, match=r"'weight' holds 'heavy'.*not a number"):
        read_labels(path)


def test_a_label_without_its_person_is_refused():
    """Nobody's label cannot be compared with anybody's."""
    with pytest.raises(LabelError, match="without an annotator, first in row 2"):
        read_labels(long(annotator=["anna", " "]))


def test_a_table_without_labels_says_what_it_needs():
    """The columns that are there are listed, with the ways to give labels."""
    with pytest.raises(TableError, match=r"no labels found.*label_<annotator>"):
        read_labels(pl.DataFrame({"request_id": ["1"], "text": ["x"]}))
    with pytest.raises(TableError, match="no column 'Rater 9'"):
        read_labels(pl.DataFrame({"request_id": ["1"]}), annotators=["Rater 9"])
    with pytest.raises(TableError, match="no column 'request_id'"):
        read_labels(pl.DataFrame({"label_a": [1]}))


def test_a_contradictory_or_impossible_map_is_refused():
    """A word means one label, and the label is on the scale."""
    with pytest.raises(LabelError, match="two meanings"):
        read_labels(long(label=["x"]), label_map={"x": 1, "X ": 2})
    with pytest.raises(LabelError, match="maps 'x' to 9"):
        read_labels(long(label=["x"]), label_map={"x": 9})


def test_labels_stand_beside_their_replies_and_lost_ones_are_counted():
    """One column per person; labels of unknown replies are named, repeats not used."""
    replies = pl.DataFrame({"request_id": ["1", "1", "2"], "arm": ["A", "B", "A"]})
    labels = read_labels(
        pl.DataFrame(
            {
                "request_id": ["1", "1", "9", "1"],
                "arm": ["B", "A", "A", "A"],
                "annotator": ["anna", "ben", "anna", "ben"],
                "label": [2, 3, 4, 5],
                "repeat": [0, 0, 0, 1],
            }
        )
    ).frame
    joined, notes = join_labels(replies, labels)
    assert joined.select("label_anna", "label_ben").rows() == [
        (None, 3),
        (2, None),
        (None, None),
    ]
    assert notes == ("Labels of replies that are not in the table, not used: 1 ('9').",)
    with pytest.raises(TableError, match="labels have no arm"):
        join_labels(replies, labels.with_columns(pl.lit(None).alias("arm")))


def test_labels_of_another_rubric_version_are_refused():
    """The count and both versions are named; unversioned labels pass."""
    labels = read_labels(long(metric_version=["v1", "v2", None])).frame
    with pytest.raises(LabelError, match="1 labels were made under 'v1'"):
        check_label_version(labels, "v2")
    check_label_version(labels.filter(pl.col("metric_version") == "v2"), "v2")
    check_label_version(labels, None)

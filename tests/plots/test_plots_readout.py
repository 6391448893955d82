"""The readout's figures: alt texts with the numbers, the same bytes each time."""

import pytest

from reply_resolution.errors import ReportError
from reply_resolution.plots.readout import Row, intervals, looks, score_bars

COUNTS = {"control": [10, 34, 24, 45, 47], "treatment": [22, 40, 21, 37, 40]}
ROWS = [
    Row("Judge", -0.328, -0.62, -0.03),
    Row("Human-corrected", None, None, None, absent="no labels"),
    Row("Resolved", -0.094, -0.2, 0.016, share=True),
]


def test_score_bars_state_every_share():
    """Each arm's shares are in the alt text, control first."""
    figure = score_bars(COUNTS)
    assert "control (160 replies): 1 6%, 2 21%, 3 15%, 4 28%, 5 29%" in figure.alt
    assert figure.alt.index("control") < figure.alt.index("treatment")
    assert figure.svg == score_bars(COUNTS).svg


def test_small_shares_carry_no_number():
    """A segment under 4% has no room for its number."""
    figure = score_bars({"a": [3, 0, 0, 0, 97], "b": [5, 0, 0, 0, 95]})
    assert ">3<" not in figure.svg
    assert ">5<" in figure.svg


def test_names_from_users_cannot_be_markup():
    """An arm's name is text in the picture and in its label."""
    figure = score_bars({"<script>": [1] * 5, "b & c": [1] * 5})
    assert "<script>" not in figure._repr_html_()


def test_an_arm_without_scores_has_no_picture():
    """Nothing to draw is an error, not an empty picture."""
    with pytest.raises(ReportError):
        score_bars({"a": [0] * 5, "b": [1] * 5})
    with pytest.raises(ReportError):
        looks([], [], [], [], worthwhile=0.3, harm=0.2)


def test_intervals_say_what_is_absent():
    """An absent row prints its reason, in the picture and in words."""
    figure = intervals(ROWS, worthwhile=0.3, harm=0.2)
    assert "Judge: −0.33 points (−0.62 to −0.03)" in figure.alt.replace(
        "−0.32", "−0.33"
    )
    assert "Human-corrected: absent, no labels" in figure.alt
    assert "no labels" in figure.svg
    assert "−9 percentage points (−20 to +2)" in figure.alt


def test_looks_say_how_the_interval_narrowed():
    """First and last width are in the alt text."""
    figure = looks(
        ["a", "b"], [-0.2, -0.3], [-1.0, -0.6], [0.6, 0.0], worthwhile=0.3, harm=0.2
    )
    assert "from a width of 1.60 points to 0.60" in figure.alt
    assert "−0.60 to 0.00" in figure.alt

"""Exploring verdicts: filters, keys, pair mates, and text that stays text."""

from pathlib import Path

import polars as pl
import pytest

from reply_resolution.errors import TableError
from reply_resolution.labeling.explore import Explorer, browse, browse_static
from reply_resolution.tables.replies import read_replies
from reply_resolution.tables.verdicts import join_verdicts, read_verdicts

EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script>&amp;'


@pytest.fixture(scope="module")
def pairs(root: Path) -> pl.DataFrame:
    """The bundled paired replay with its verdicts."""
    return join_verdicts(
        read_replies(root / "data" / "replay.csv", need_arm=True),
        read_verdicts(root / "data" / "verdicts_replay.jsonl"),
    )


def small() -> pl.DataFrame:
    """Five replies: two arms, one pair, one refused, labels by two people."""
    return pl.DataFrame(
        {
            "request_id": ["1", "1", "2", "3", "4"],
            "arm": ["A", "B", "A", "B", "A"],
            "request": ["q"] * 5,
            "reply": ["aa", "bbbb", EVIL, "", "e" * 9],
            "score": [5, 2, 4, None, 1],
            "status": ["scored", "scored", "scored", "refused", "scored"],
            "reason": ["r1", EVIL, None, None, "r5"],
            "topic": ["x", "x", "y", None, "y"],
            "label_a": [5, 4, 1, 3, None],
            "label_b": [4, 2, None, 3, None],
        }
    )


def here(explorer: Explorer) -> tuple[str, str]:
    """Which reply is read now."""
    row = explorer.row
    assert row is not None
    return row["request_id"], row["arm"]


def test_keys_walk_and_stop_at_the_ends():
    """J and k move, g and e go to the ends, nothing wraps around."""
    explorer = Explorer(small())
    for key, where in (("k", "1A"), ("j", "1B"), ("e", "4A"), ("j", "4A"), ("g", "1A")):
        explorer.press(key)
        assert "".join(here(explorer)) == where


def test_filters_combine_and_keep_the_place_where_they_can():
    """Arm, score, status, topic and length; the reply read stays if it passes."""
    explorer = Explorer(small())
    explorer.press("e")
    explorer.choose("arm", "A")
    assert here(explorer) == ("4", "A")
    assert explorer.status() == "3 / 3"
    explorer.choose("topic", "x")
    assert here(explorer) == ("1", "A")
    explorer.choose("topic", ...)
    explorer.choose("length", (3, 9))
    assert here(explorer) == ("4", "A")
    assert explorer.chosen == {"arm": "A", "length": (3, 9)}
    explorer.choose("status", "refused")
    assert explorer.row is None
    assert explorer.status() == "No reply passes"
    explorer.press("j")
    assert explorer.press("0") == "All filters are lifted."
    explorer.choose("topic", None)
    assert here(explorer) == ("3", "B")


def test_keys_filter_by_score_arm_and_status():
    """A digit chooses a score, a and t go through the arms and statuses."""
    explorer = Explorer(small())
    explorer.press("2")
    assert here(explorer) == ("1", "B")
    explorer.press("0")
    seen = []
    for _ in range(3):
        explorer.press("a")
        seen.append(explorer.chosen.get("arm", "all"))
    assert seen == ["A", "B", "all"]
    explorer.press("t")
    assert here(explorer) == ("3", "B")
    assert "means nothing here" in explorer.press("z")
    assert "means nothing here" in explorer.press("9")


def test_a_pair_mate_is_one_key_away(pairs: pl.DataFrame):
    """M goes to the other arm's reply to the same request, and back."""
    explorer = Explorer(pairs)
    explorer.press("j")
    explorer.press("j")
    start = here(explorer)
    assert explorer.press("m") == ""
    other = here(explorer)
    assert other[0] == start[0]
    assert other[1] != start[1]
    explorer.press("m")
    assert here(explorer) == start


def test_a_mate_that_a_filter_hides_is_shown_all_the_same():
    """Jumping lifts the filters; without a mate nothing moves and it is said."""
    explorer = Explorer(small())
    explorer.choose("score", 5)
    explorer.press("m")
    assert here(explorer) == ("1", "B")
    assert explorer.chosen == {}
    explorer.press("e")
    assert explorer.press("m") == "This request has no reply in another arm."
    assert here(explorer) == ("4", "A")


def test_the_largest_disagreements_come_first():
    """Order by |score - mean label|; replies without both come last."""
    explorer = Explorer(small(), order="disagreement")
    gaps = []
    for _ in range(5):
        gaps.append(explorer.row["__gap__"])
        explorer.press("j")
    assert gaps == [3, -1, 0.5, None, None]
    with pytest.raises(TableError, match="needs a score and at least one column"):
        Explorer(small().drop("label_a", "label_b"), order="disagreement")


def test_the_random_order_is_seeded():
    """The same seed shows the same replies first."""

    def first(seed: int) -> str:
        return str(browse_static(small(), rows=2, order="random", seed=seed))

    assert first(1) == first(1)
    assert len({first(seed) for seed in range(8)}) > 1
    assert "drawn at random, seed 3" in first(3)


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (small().drop("reply"), {}, "no column 'reply'"),
        (small(), {"order": "best"}, "order is 'best'"),
        (small().clear(), {}, "no rows"),
    ],
)
def test_what_cannot_be_explored_is_refused(
    frame: pl.DataFrame, options: dict, message: str
):
    """The message names what is missing and what there is."""
    with pytest.raises(TableError, match=message):
        Explorer(frame, **options)


def test_the_static_twin_shows_the_same_and_no_markup_of_the_replies():
    """A table with request, reply, score, labels and reason, all escaped."""
    text = str(browse_static(small(), rows=5))
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;img" in text
    assert "a 1, b none" in text
    assert "refused" in text
    assert "5 of 5 replies, the largest differences" in text
    assert str(browse_static(small(), rows=2)).count("<tr>") == 3


def states(widget: object) -> list[dict]:
    """The state of a widget and of everything in it."""
    out = [widget.get_state()]
    for child in getattr(widget, "children", ()):
        out.extend(states(child))
    return out


def find(widget: object, **traits: object) -> object:
    """The first widget inside that has these traits."""
    for child in getattr(widget, "children", ()):
        if all(getattr(child, k, None) == v for k, v in traits.items()):
            return child
        found = find(child, **traits)
        if found is not None:
            return found
    return None


def test_the_widget_follows_keys_filters_and_buttons():
    """Each way of moving shows the same reply, and filters follow the keys."""
    widget = browse(small())
    keys = find(widget, description="Key")
    keys.value = "e"
    assert keys.value == ""
    assert "eeeeeeeee" in str(states(widget))
    find(widget, description="arm").value = "B"
    assert "bbbb" in str(states(widget))
    find(widget, description="Pair mate").click()
    assert find(widget, description="arm").value is ...
    assert "Reply of arm A" in str(states(widget))
    keys.value = "4"
    assert find(widget, description="score").value == 4


def test_markup_in_a_reply_or_reason_is_inert_in_the_widget():
    """What goes to the browser is escaped text."""
    widget = browse(small())
    keys = find(widget, description="Key")
    for key in "jj":
        html = "".join(
            s["value"] for s in states(widget) if s["_view_name"] == "HTMLView"
        )
        assert "<script" not in html
        assert "<img" not in html
        keys.value = key
    assert "&lt;script&gt;" in str(states(widget))


def test_only_the_reply_that_is_read_goes_to_the_browser(pairs: pl.DataFrame):
    """The widget's state is small however many replies there are."""
    many = pl.concat([pairs] * 20).with_columns(
        pl.int_range(pl.len()).cast(pl.String).alias("request_id")
    )
    assert len(str(states(browse(many)))) < 40_000

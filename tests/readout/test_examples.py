"""Examples drawn by a printed rule, one against the direction of the result."""

import re

import polars as pl

from reply_resolution.readout.examples import draw_examples

ARMS = {"control": "control", "treatment": "treatment", "seed": 7}


def table(treated, plain, *, paired=False):
    """Scored replies of two arms."""
    rows = []
    for arm, scores in (("treatment", treated), ("control", plain)):
        rows += [
            {
                "request_id": f"{'r' if paired else arm}{i}",
                "arm": arm,
                "score": s,
                "request": f"question {i}",
                "reply": f"answer {arm} {i}",
                "reason": f"reason {s}",
            }
            for i, s in enumerate(scores)
        ]
    return pl.DataFrame(rows)


def test_cells_that_moved_most_and_one_against():
    """A reply of the score that grew, one of the score that shrank, one against."""
    frame = table([1] * 10 + [5] * 10, [4] * 12 + [5] * 8)
    found = draw_examples(frame, estimate=-0.5, **ARMS)
    assert [(e.arm, e.score, e.against) for e in found.drawn] == [
        ("treatment", 1, False),
        ("control", 4, False),
        ("treatment", 5, True),
    ]
    assert "7:request_id:arm" in found.rule
    assert found.moves[1] == 0.5


def test_against_a_gain_speaks_a_low_score():
    """Where the treatment is ahead, the contradicting reply scored 1 or 2."""
    frame = table([2] * 3 + [5] * 17, [1] * 10 + [5] * 10)
    found = draw_examples(frame, estimate=0.5, **ARMS)
    (against,) = [e for e in found.drawn if e.against]
    assert (against.arm, against.score) == ("treatment", 2)


def test_pairs_stand_side_by_side():
    """Both sides of each pair are drawn; one pair moved against the result."""
    frame = table([1, 5, 3, 3, 4], [4, 2, 3, 4, 4], paired=True)
    found = draw_examples(frame, estimate=-0.2, paired=True, **ARMS)
    pairs = {}
    for e in found.drawn:
        pairs.setdefault(e.pair, []).append(e)
    assert all(len(p) == 2 for p in pairs.values())
    assert all(len({e.request_id for e in p}) == 1 for p in pairs.values())
    (against,) = [p for p in pairs.values() if p[0].against]
    assert against[1].score > against[0].score


def test_equal_arms_and_empty_cells_draw_what_there_is():
    """Nothing moved: nothing is drawn for it, and nothing fails."""
    frame = table([3] * 5, [3] * 5)
    found = draw_examples(frame, estimate=0.0, **ARMS)
    assert found.drawn == ()
    assert found.moves == {3: 0.0}


def test_every_reply_has_an_anchor_of_its_own():
    """Ids in any script, and ids and arms that join to the same text, stay apart."""
    from reply_resolution.readout.evidence import anchor

    pairs = [("日本", "a"), ("中国", "a"), ("r-1", "a"), ("r", "1-a"), ("r 1", "a")]
    found = {anchor(*pair) for pair in pairs}
    assert len(found) == len(pairs)
    assert all(re.fullmatch("reply-[0-9a-f]+", key) for key in found)

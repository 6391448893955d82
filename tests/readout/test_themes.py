"""Themes in the reasons: plain counts that anybody can check."""

import polars as pl
import pytest

from reply_resolution.errors import StatisticsError
from reply_resolution.readout.themes import draw_order, find_themes


def table(treated, plain):
    """Reasons and scores of two arms."""
    rows = [("treatment", *r) for r in treated] + [("control", *r) for r in plain]
    return pl.DataFrame(
        [
            {"request_id": f"r{i}", "arm": arm, "score": score, "reason": reason}
            for i, (arm, score, reason) in enumerate(rows)
        ]
    )


STRONG = table(
    [(2, "The date is never given.")] * 30 + [(5, "Gives the date.")] * 20,
    [(5, "Gives the date.")] * 45 + [(2, "The date is never given.")] * 5,
)


def test_a_planted_theme_is_found_with_its_counts():
    """The phrase that marks the treatment's low scores leads, counted right."""
    found = find_themes(STRONG, control="control", treatment="treatment", seed=1)
    top = found.against[0]
    assert "never" in top.term
    assert (top.control, top.treatment) == (5, 30)
    assert top.mean_score == pytest.approx(2.0)
    assert top.contribution < -0.5
    assert top.pvalue <= 0.02
    assert found.reasons == 100


def test_a_theme_links_to_replies_that_contain_it():
    """Every theme names replies of the arm where it is frequent."""
    found = find_themes(STRONG, control="control", treatment="treatment", seed=1)
    for theme in (*found.against, *found.favour):
        for request_id, arm in theme.replies:
            row = STRONG.filter(
                (pl.col("request_id") == request_id) & (pl.col("arm") == arm)
            )
            assert theme.term in row["reason"][0].lower().replace(",", "")


def test_a_word_counts_once_per_reply():
    """Repeating a word in one reason adds nothing."""
    frame = table([(2, "vague vague vague answer")] * 10, [(4, "vague remark")] * 8)
    found = find_themes(frame, control="control", treatment="treatment", seed=1)
    counted = {t.term: t.treatment for t in (*found.against, *found.favour)}
    assert all(n <= 10 for n in counted.values())


def test_words_of_the_topic_are_left_out():
    """A word that stands in the request names the topic, not the judgement."""
    frame = table([(2, "Refund not explained.")] * 20, [(4, "All explained.")] * 20)
    frame = frame.with_columns(request=pl.lit("Where is my refund?"))
    found = find_themes(frame, control="control", treatment="treatment", seed=1)
    terms = [t.term for t in (*found.against, *found.favour)]
    assert "refund" not in terms
    assert any("explained" in t for t in terms)


def test_chance_alone_is_not_called_a_theme_with_small_p():
    """Equal arms give p-values that account for having searched."""
    import numpy as np

    rng = np.random.default_rng(5)
    words = [f"word{k}" for k in range(60)]
    reasons = [" ".join(rng.choice(words, 6)) for _ in range(200)]
    frame = table([(3, r) for r in reasons[:100]], [(3, r) for r in reasons[100:]])
    found = find_themes(frame, control="control", treatment="treatment", seed=1)
    assert all(t.pvalue > 0.01 for t in (*found.against, *found.favour))


def test_pairs_and_users_are_shuffled_whole():
    """Both designs run, and the result does not depend on the order of the rows."""
    users = STRONG.with_columns(user=pl.col("request_id").str.slice(0, 2))
    a = find_themes(users, control="control", treatment="treatment", seed=1)
    shuffled = users.sample(fraction=1.0, shuffle=True, seed=9)
    b = find_themes(shuffled, control="control", treatment="treatment", seed=1)
    assert [t.term for t in a.against] == [t.term for t in b.against]
    halves = STRONG.with_columns(
        request_id=pl.int_range(50).append(pl.int_range(50)).cast(pl.String)
    )
    paired = find_themes(halves, control="control", treatment="treatment", seed=1)
    assert "never" in paired.against[0].term


def test_an_arm_without_reasons_is_an_error():
    """There is nothing to compare with."""
    with pytest.raises(StatisticsError, match="both arms"):
        find_themes(
            STRONG.filter(pl.col("arm") == "control"),
            control="control",
            treatment="treatment",
            seed=1,
        )


def test_the_draw_depends_on_ids_and_seed_alone():
    """The same rows in another order are drawn alike; another seed draws others."""
    a = draw_order(STRONG, 7)["request_id"].to_list()
    assert draw_order(STRONG.reverse(), 7)["request_id"].to_list() == a
    assert draw_order(STRONG, 8)["request_id"].to_list() != a

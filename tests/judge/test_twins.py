"""Twins keep what a reply says and change only its form."""

from pathlib import Path
import re
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from reply_resolution.errors import TableError
from reply_resolution.judge import judge as judge_module
from reply_resolution.judge.twins import (
    filler,
    judge_twins,
    make_twins,
    reply_language,
    twin_pairs,
)


@pytest.fixture(scope="module")
def calibration(root: Path) -> pl.DataFrame:
    """The 120 labelled replies."""
    return pl.read_csv(root / "data" / "calibration.csv")


@pytest.fixture(scope="module")
def both(calibration: pl.DataFrame) -> pl.DataFrame:
    """All kinds of twins of all replies, beside the originals."""
    made, _ = make_twins(calibration, seed=7)
    return made.join(
        calibration.select("request_id", original="reply"), on="request_id"
    )


def _bare(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_padding_adds_our_sentences_and_nothing_else(both: pl.DataFrame) -> None:
    """With our filler taken out again, every padded twin is its original."""
    padded = both.filter(pl.col("kind") == "padded")
    assert padded.height == 120
    for row in padded.iter_rows(named=True):
        rest = row["reply"]
        ours = filler()[row["language"]]
        for part in ("open", "middle", "close"):
            for sentence in ours[part]:
                rest = rest.replace(sentence, "", 1)
        assert _bare(rest) == _bare(row["original"])


def test_padding_doubles_the_length(both: pl.DataFrame) -> None:
    """Padded twins are 1.5 to 3 times as long, twice as a rule."""
    padded = both.filter(pl.col("kind") == "padded")
    ratio = padded["reply"].str.len_chars() / padded["original"].str.len_chars()
    assert ratio.min() >= 1.5
    assert ratio.max() <= 3
    assert ratio.median() == pytest.approx(2.1, abs=0.2)


def test_filler_stays_next_to_nothing_it_could_part(both: pl.DataFrame) -> None:
    """No filler between a line that ends in a colon and what it announces."""
    for row in both.filter(pl.col("kind") == "padded").iter_rows(named=True):
        for words in re.findall(r":\n\n[^\n]{3,12}", row["original"].strip()):
            assert words in row["reply"]


def test_filler_states_no_facts(both: pl.DataFrame) -> None:
    """No digits, paths, addresses or product names; each sentence stands once."""
    for language, ours in filler().items():
        sentences = [
            s for k, v in ours.items() if k not in ("names", "words") for s in v
        ]
        assert len(set(sentences)) == len(sentences), language
        for sentence in sentences:
            assert not re.search(r"[0-9<>@#*{}|]|https?|Harbourly|Settings", sentence)


def test_formatting_changes_signs_only(both: pl.DataFrame) -> None:
    """With bullets, headings, bold and blanks taken out, the text is the same."""

    def words(text: str) -> str:
        return _bare(re.sub(r"(?m)^\s*(?:[-*•+]\s|#{1,6}\s)|\*\*", "", text))

    rows = both.filter(pl.col("kind") == "bulleted")
    assert rows.height > 40
    for row in rows.iter_rows(named=True):
        assert words(row["reply"]) == words(row["original"])
        assert row["reply"] != row["original"]


def test_praise_frames_the_reply(both: pl.DataFrame) -> None:
    """The original stands whole between two sentences of praise."""
    for row in both.filter(pl.col("kind") == "praised").iter_rows(named=True):
        first, last = row["reply"].split(row["original"].strip())
        ours = filler()[row["language"]]
        assert first.strip() in ours["praise_open"]
        assert last.strip() in ours["praise_close"]


def test_every_reply_is_made_or_listed(calibration: pl.DataFrame) -> None:
    """Twins made and skipped add up, and each skipped one has its reason."""
    twins, (note,) = make_twins(calibration, seed=1)
    left = 120 * 3 - twins.height
    assert note == f"{left} twins could not be made (already formatted: {left})."


def test_what_cannot_be_made_is_said() -> None:
    """Unknown languages, empty and one-sentence replies are skipped with a reason."""
    replies = pl.DataFrame(
        {
            "request_id": ["a", "b", "c"],
            "language": ["Polish", "English", None],
            "reply": ["Prosze otworzyc ustawienia.", "  ", "Zzz qqq."],
        }
    )
    twins, (note,) = make_twins(replies)
    assert twins.is_empty()
    assert twins.columns == ["request_id", "kind", "language", "reply"]
    for words in ("language 'polish': 2", "empty reply: 3", "language not known: 2"):
        assert words in note


def test_same_seed_same_twins_and_samples_grow(calibration: pl.DataFrame) -> None:
    """A larger sample keeps earlier twins; another seed draws others."""
    small = make_twins(calibration, n=20, seed=3)[0]
    large = make_twins(calibration.reverse(), n=40, seed=3)[0]
    key = ["request_id", "kind", "reply"]
    assert small.select(key).join(large.select(key), on=key, how="anti").is_empty()
    other = make_twins(calibration, n=20, seed=4)[0]
    assert set(other["request_id"]) != set(small["request_id"])


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("English", "en"),
        ("en-GB", "en"),
        ("Deutsch", "de"),
        ("pt_BR", "pt"),
        ("Nederlands", "nl"),
        ("日本語", "ja"),
        ("Polish", "polish"),
    ],
)
def test_language_names_and_codes(given: str, code: str) -> None:
    """English or own name or code, region left out."""
    assert reply_language(given, "") == code


def test_language_is_guessed_only_where_clear(calibration: pl.DataFrame) -> None:
    """Without a column the guess is right or absent, and the twins say it is one."""
    named = [reply_language(x, "") for x in calibration["language"]]
    guessed = [reply_language(None, x) for x in calibration["reply"]]
    assert all(g in (None, n) for g, n in zip(guessed, named, strict=True))
    assert guessed.count(None) <= 5
    _, notes = make_twins(calibration.drop("language"), n=10)
    assert "guessed" in notes[0]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"kind": ["padded"] * 2}, "twice"),
        ({"reply": ["x", " "]}, "no text"),
        ({"request_id": ["C0401", "nobody"]}, "belongs to no reply"),
        ({"kind": ["padded", "original"]}, "'original'"),
    ],
)
def test_twins_of_your_own_are_checked(
    calibration: pl.DataFrame, rows: dict[str, list[str]], words: str
) -> None:
    """Doubles, empty texts, strangers and the name 'original' are refused."""
    base = {
        "request_id": ["C0401", "C0401"],
        "kind": ["padded", "praised"],
        "reply": ["x", "y"],
    }
    verdicts = pl.DataFrame({"request_id": ["C0401"], "kind": ["padded"], "score": [3]})
    with pytest.raises(TableError, match=words):
        twin_pairs(calibration, pl.DataFrame(base | rows), verdicts)
    with pytest.raises(TableError, match="'kind'"):
        twin_pairs(calibration, pl.DataFrame(base).drop("kind"), verdicts)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[pl.DataFrame]:
    """The tables a judge was given who says 5 to padded twins and 3 to the rest."""
    seen: list[pl.DataFrame] = []

    def judge(frame: pl.DataFrame, **options: Any) -> SimpleNamespace:
        seen.append(frame)
        assert options == {"model": "m"}
        score = pl.when(pl.col("arm") == "padded").then(5).otherwise(3)
        return SimpleNamespace(verdicts=frame.with_columns(score=score))

    monkeypatch.setattr(judge_module, "judge_replies", judge)
    return seen


def test_twins_are_judged_beside_their_originals(
    calibration: pl.DataFrame, asked: list[pl.DataFrame]
) -> None:
    """One paired table goes to the judge, blind; scores come back as pairs."""
    twins = make_twins(calibration, n=5, seed=1)[0]
    pairs = judge_twins(calibration, twins, model="m")
    assert set(asked[0].columns) == {"request_id", "arm", "request", "context", "reply"}
    assert asked[0].height == twins.height + 5
    assert not asked[0].select("request_id", "arm").is_duplicated().any()
    assert pairs.height == twins.height
    assert set(pairs["score_original"]) == {3}
    padded = pairs.filter(pl.col("kind") == "padded")
    assert padded["score_twin"].to_list() == [5] * 5
    assert (padded["length_twin"] > padded["length_original"]).all()


def test_arms_of_the_replies_stay_apart(asked: list[pl.DataFrame]) -> None:
    """One request answered in two arms has two originals and two padded twins."""
    replies = pl.DataFrame(
        {
            "request_id": ["r", "r"],
            "arm": ["control", "treatment"],
            "language": ["en", "en"],
            "request": ["q", "q"],
            "reply": [
                "Open Settings. Then press Save.",
                "Press Save in Settings. Done.",
            ],
        }
    )
    pairs = judge_twins(replies, make_twins(replies)[0], model="m")
    assert set(pairs["request_id"]) == {"r~control", "r~treatment"}
    assert pairs.filter(pl.col("kind") == "padded").height == 2
    assert asked[0]["arm"].to_list().count("original") == 2


def test_bundled_twins_are_paired_with_the_vote_given_beside_them(
    root: Path, calibration: pl.DataFrame
) -> None:
    """100 pairs, each with both scores; the second vote is the original's."""
    data = root / "data"
    votes = pl.read_ndjson(data / "verdicts_calibration.jsonl")
    pairs = twin_pairs(
        calibration,
        pl.read_csv(data / "twins.csv"),
        pl.read_ndjson(data / "verdicts_twins.jsonl"),
        votes,
    )
    assert pairs.height == 100
    assert pairs.null_count().sum_horizontal().sum() == 0
    second = votes.filter(pl.col("vote") == 1).select("request_id", score="score")
    joined = pairs.join(second, on="request_id", how="left")
    assert (joined["score"] == joined["score_original"]).all()

"""The length check from tables to page, on bundled data and on data of one's own."""

from html.parser import HTMLParser
import json
from pathlib import Path
import re
from typing import Any

import polars as pl
import pytest

from reply_resolution.errors import ParameterError, TableError
from reply_resolution.inputs import load
from reply_resolution.pages import length_words as words
from reply_resolution.pages.length_check import LengthCheck, check_length
from reply_resolution.plots import Figure

BUNDLED = {
    "twins": "data/twins.csv",
    "twin_verdicts": "data/verdicts_twins.jsonl",
    "experiment": "data/experiment.csv",
    "experiment_verdicts": "data/verdicts_experiment.jsonl",
}
PARTS = (
    words.read_words,
    words.described_figure,
    words.described_words,
    words.level_table,
    words.arm_table,
    words.tested_figure,
    words.tested_words,
    words.caused_figure,
    words.caused_table,
    words.consequence_figure,
    words.consequence_words,
    words.checks_table,
    words.provenance_list,
)


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> LengthCheck:
    """The check of notebook 02 on the bundled data."""
    data = load(
        "data/calibration.csv",
        "data/verdicts_calibration.jsonl",
        "data/calibration.csv",
    )
    return check_length(data, out=str(tmp_path_factory.mktemp("out")), **BUNDLED)


def test_bundled_judge_shows_no_bias_with_a_bound(bundled: LengthCheck) -> None:
    """120 labels, 100 twins, 320 replies: no bias found, under 0.2 points at stake."""
    assert bundled.bias.n == 120
    assert bundled.bias.found is False
    assert sum(t.n for t in bundled.twins) == 100
    assert bundled.verdict.word == "no bias found"
    assert bundled.verdict.mark == "ok"
    assert bundled.verdict.at_stake < 0.2
    assert bundled.repeated == (1, 40)
    (effect,) = bundled.effects
    assert effect.judge_effect == pytest.approx(-0.325)
    assert effect.length_ratio == pytest.approx(2.228, abs=0.001)
    assert effect.corrected == pytest.approx(-0.299, abs=0.001)
    assert "320 replies of an experiment" in str(words.read_words(bundled))


def test_users_are_the_units_of_the_experiment(bundled: LengthCheck) -> None:
    """The interval is the one clustered by user, wider or narrower than rows alone."""
    from reply_resolution.stats.length_effects import length_effect

    arms = {"control": "control", "treatment": "treatment"}
    by_row = length_effect(bundled.experiment, bundled.bias, **arms)
    by_user = length_effect(bundled.experiment, bundled.bias, **arms, cluster="user_id")
    assert bundled.effects[0].judge_ci == by_user.judge_ci
    assert by_user.judge_ci != by_row.judge_ci


class _Page(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)


@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.__name__)
def test_every_part_of_the_page_renders(part: Any, bundled: LengthCheck) -> None:
    """Tables and sentences are HTML; figures have an alt text with a number in it."""
    shown = part(bundled)
    page = shown._repr_html_()
    assert _Page(page).tags
    assert not re.search(r"\bnan\b|>None<", page, re.IGNORECASE)
    if isinstance(shown, Figure):
        assert any(c.isdigit() for c in shown.alt)


def test_figures_are_the_same_bytes_again(bundled: LengthCheck) -> None:
    """No chance and no date in a figure."""
    for part in PARTS:
        shown = part(bundled)
        if isinstance(shown, Figure):
            assert part(bundled).svg == shown.svg


def test_numbers_are_saved_as_json(bundled: LengthCheck, tmp_path: Path) -> None:
    """The file holds what the page shows, without NaN."""
    path = bundled.save(tmp_path / "new")
    data = json.loads(path.read_text("utf-8"))
    assert data["verdict"]["word"] == bundled.verdict.word
    assert data["effects"][0]["corrected"] == bundled.effects[0].corrected
    assert data["twins"][0]["kind"] == "padded"
    assert set(data["sources"]) >= set(BUNDLED.values())


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """Tables of one's own: 12 replies, verdicts, labels."""
    n = 12
    replies = pl.DataFrame(
        {
            "request_id": [f"q{i}" for i in range(n)],
            "request": ["How do I invite a colleague?"] * n,
            "reply": [
                "Open the settings and choose the team. "
                + "Then send the invitation. " * (i % 5)
                for i in range(n)
            ],
        }
    )
    score = [1 + i % 5 for i in range(n)]
    paths = {k: str(tmp_path / f"{k}.csv") for k in ("replies", "verdicts", "labels")}
    replies.write_csv(paths["replies"])
    replies.select("request_id", score=pl.Series(score)).write_csv(paths["verdicts"])
    replies.select(
        "request_id", label_anna=pl.Series([1 + (i * 7) % 5 for i in range(n)])
    ).write_csv(paths["labels"])
    return paths


def test_bundled_twins_are_not_used_with_your_replies(
    own: dict[str, str], tmp_path: Path
) -> None:
    """Defaults that belong to the demonstration are left out, and that is said."""
    data = load(own["replies"], own["verdicts"], own["labels"])
    check = check_length(data, out=str(tmp_path / "out"), **BUNDLED)
    assert check.twins == ()
    assert check.effects == ()
    notes = " ".join(check.notes)
    assert "its twins are left out" in notes
    assert "its experiment is left out" in notes


def test_twins_are_made_and_their_price_is_said(
    own: dict[str, str], tmp_path: Path
) -> None:
    """Without `max_calls` nothing is sent: twins are written, calls are counted."""
    data = load(own["replies"], own["verdicts"], own["labels"])
    check = check_length(data, out=str(tmp_path / "out"), twin_sample=5)
    made = pl.read_csv(tmp_path / "out" / "twins.csv")
    assert made["request_id"].n_unique() == 5
    assert f"up to {made.height + 5} calls" in " ".join(check.notes)
    assert "no twins were judged" in str(words.caused_figure(check))
    with pytest.raises(ParameterError, match="`model` is empty"):
        check_length(data, out=str(tmp_path / "out"), max_calls=10)


def test_twins_are_judged_within_the_budget(
    own: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With calls allowed, twins and originals go to the judge with the limit."""
    import reply_resolution.pages.length_check as module

    seen: dict[str, Any] = {}

    def judge_twins(
        replies: pl.DataFrame, twins: pl.DataFrame, **options: Any
    ) -> pl.DataFrame:
        seen.update(options)
        return twins.select(
            "request_id",
            "kind",
            score_original=pl.lit(3),
            score_twin=pl.lit(4),
            length_original=pl.lit(100.0),
            length_twin=pl.lit(210.0),
        )

    monkeypatch.setattr(module, "judge_twins", judge_twins)
    data = load(own["replies"], own["verdicts"], own["labels"])
    check = check_length(
        data, out=str(tmp_path), max_calls=90, model="m", base_url="http://127.0.0.1:9"
    )
    assert seen["limits"].max_calls == 90
    assert seen["model"] == "m"
    assert check.padded.up == check.padded.n
    assert "padded twins" in check.verdict.found_by


def test_without_labels_nothing_is_accused(own: dict[str, str], tmp_path: Path) -> None:
    """No labels, no twins, no experiment: every part says so, none fails."""
    data = load(own["replies"], own["verdicts"])
    check = check_length(data, out=str(tmp_path))
    assert check.bias is None
    assert check.verdict.word == "not measured"
    for part in PARTS:
        assert _Page(part(check)._repr_html_()).tags
    assert "not measured" in str(words.checks_table(check))


def test_twins_without_verdicts_are_refused(tmp_path: Path) -> None:
    """A table of twins needs the verdicts on them, or must be left out."""
    data = load(
        "data/calibration.csv",
        "data/verdicts_calibration.jsonl",
        "data/calibration.csv",
    )
    with pytest.raises(TableError, match="no verdicts"):
        check_length(data, out=str(tmp_path), twins="data/twins.csv")


def test_untrusted_words_stay_text(bundled: LengthCheck) -> None:
    """An arm called like a tag is shown as its letters."""
    from dataclasses import replace

    (effect,) = bundled.effects
    evil = replace(bundled, effects=(replace(effect, treatment="<b>x</b>"),))
    page = words.consequence_words(evil)._repr_html_()
    assert "b" not in _Page(page).tags
    assert "&lt;b&gt;x&lt;/b&gt;" in page

"""The readout: right numbers, honest pages, a JSON twin that holds what is shown."""

from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
import json
import re

import polars as pl
import pytest

from reply_resolution import inputs
from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.readout.build import build_readout
from reply_resolution.readout.checks_judge import Calibrated
from reply_resolution.readout.experiment_plan import ExperimentPlan, Look
from reply_resolution.readout.recommendation import JUDGE_ALONE
from reply_resolution.stats.compare import compare
from reply_resolution.stats.counts import ScoreCounts

GOOD = Calibrated(0.8, 0.7, 0.88, 120, 0.1, "of the calibration", "fit")
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def plan(root):
    """The bundled plan."""
    return ExperimentPlan.load(root / "data" / "plan.toml")


@pytest.fixture(scope="module")
def data(root):
    """The bundled experiment with its recorded verdicts and labels."""
    folder = root / "data"
    return inputs.load(
        str(folder / "experiment.csv"),
        str(folder / "verdicts_experiment.jsonl"),
        str(folder / "experiment_labels.csv"),
        control="control",
    )


def built(data, plan, **changes):
    """The readout of the bundled experiment, or of a changed one."""
    options = {
        "labels": data.labels,
        "verdicts": data.verdicts,
        "sources": data.sources,
        "notes": data.notes,
        "provenance_note": data.provenance_note,
        "seed": 7,
        "now": NOON,
    }
    replies = changes.pop("replies", data.replies)
    return build_readout(replies, plan, **{**options, **changes})


@pytest.fixture(scope="module")
def readout(data, plan):
    """The readout of the bundled experiment."""
    return built(data, plan)


@pytest.fixture(scope="module")
def page(readout):
    """Its page."""
    return readout.page()


def row(readout, key, place=0):
    """One effect of a treatment."""
    effects = readout.document["treatments"][place]["effects"]
    return next(e for e in effects if e["key"] == key)


def test_the_bundled_experiment_gives_the_digits_of_compare(readout, data):
    """Judge's effect, interval and p-value by users are those of `compare`."""
    want = compare(data.replies, control="control", cluster="user_id", seed=7)
    effect = want.comparisons[0]
    judge = row(readout, "judge")
    assert judge["estimate"] == effect.mean_difference == pytest.approx(-0.325)
    assert judge["ci"] == list(effect.ci)
    assert judge["pvalue"] == effect.pvalue
    resolved = row(readout, "resolved")
    assert resolved["ci"] == list(effect.resolved_difference_ci)


def test_people_correct_the_bundled_effect_and_decide(readout, data):
    """With 40 labels an arm the human-corrected row decides, by users."""
    from reply_resolution.stats.correction import ppi_difference
    from reply_resolution.tables.labels import join_labels

    wide, _ = join_labels(data.replies, data.labels)
    wide = wide.with_columns(label=pl.mean_horizontal("label_a", "label_b"))
    want = ppi_difference(wide, control="control", cluster="user_id")
    human = row(readout, "human")
    assert human["decides"]
    assert human["estimate"] == pytest.approx(want.estimate)
    assert human["ci"] == pytest.approx([want.low, want.high])
    assert not row(readout, "judge")["decides"]
    assert readout.rule == "no_winner"


def test_rows_without_users_are_compared_exactly(data, plan):
    """Without user ids the row-level exact p-value of the oracle is shown."""
    plain = built(data, plan, replies=data.replies.drop("user_id"))
    judge = row(plain, "judge")
    assert judge["pvalue"] == pytest.approx(0.0356, abs=5e-5)
    resolved = row(plain, "resolved")
    from statsmodels.stats.proportion import confint_proportions_2indep

    # 0.15's "score" interval is wrong (its issue 10269): Newcombe is the neighbour.
    low, high = confint_proportions_2indep(77, 160, 92, 160, method="newcomb")
    assert resolved["ci"] == pytest.approx([low, high], abs=0.01)


def test_no_labels_and_no_calibration_must_not_be_read(data, plan):
    """A judge nobody compared with people: reason and repair, no effect anywhere."""
    got = built(data, plan, labels=None)
    assert got.rule == "do_not_read"
    assert "treatments" not in got.document
    assert "arms" not in got.document
    text = visible(got.page())
    for hidden in ("−0.33", "−0.32", "3.53", "3.21", "win", "effect is"):
        assert hidden not in text.split("Words")[0]
    assert "calibrate the judge" in text


def test_without_labels_every_page_names_the_judge_alone(data, plan):
    """A calibrated judge without labels of the experiment: the sentence is there."""
    told = replace(plan, accept_unchecked_judge=True)
    got = built(data, told, labels=None)
    assert got.rule == "keep_control"
    assert visible(got.page()).count(JUDGE_ALONE) >= 1
    assert JUDGE_ALONE in str(got.answer())
    assert "0.04 points or more" in got.document["recommendation"]["caveat"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("split", "expected"),
        ("coverage", "without one"),
        ("mixed", "mixed"),
        ("few", "at least 20"),
    ],
)
def test_bad_experiments_must_not_be_read(data, plan, change, words):
    """Broken split, unequal coverage, mixed versions, too few users: no effect."""
    frame = data.replies
    if change == "split":
        rows = (pl.col("arm") == "control") | (pl.col("user_id").hash(1) % 2 == 0)
        frame = frame.filter(rows)
    if change == "coverage":
        lost = (pl.col("arm") == "treatment") & (pl.int_range(pl.len()) % 7 == 0)
        frame = frame.with_columns(
            score=pl.when(lost).then(None).otherwise(pl.col("score")),
            status=pl.when(lost).then(pl.lit("refused")).otherwise(pl.col("status")),
        )
    if change == "mixed":
        half = pl.int_range(pl.len()) % 2 == 0
        names = pl.when(half).then(pl.lit("m@v1:aaaaaaaa"))
        frame = frame.with_columns(metric_version=names.otherwise(pl.lit("m@v2:bb")))
    if change == "few":
        frame = frame.group_by("arm", maintain_order=True).head(19)
    got = built(data, plan, replies=frame)
    assert got.rule == "do_not_read"
    assert words in got.sentence
    assert got.document["recommendation"]["action"]
    assert "treatments" not in got.document
    assert "<svg" not in got.page()


def test_rows_left_out_by_sampling_are_not_missing(data, plan):
    """`not_judged` rows are planned against judged, never in coverage."""
    out = pl.int_range(pl.len()) % 2 == 0
    frame = data.replies.with_columns(
        score=pl.when(out).then(None).otherwise(pl.col("score")),
        status=pl.when(out).then(pl.lit("not_judged")).otherwise(pl.col("status")),
        status_detail=pl.when(out).then(pl.lit("sampling")),
    )
    got = built(data, plan, replies=frame, labels=None, calibration=None)
    checks = {c["key"]: c for c in got.document["checks"]}
    assert checks["coverage"]["status"] == "ok"
    assert checks["budget"]["numbers"]["left out by sampling"] == 160


def test_pairs_go_through_the_same_function(root, plan):
    """The replay design is paired, and pairs that moved stand side by side."""
    folder = root / "data"
    replay = inputs.load(
        str(folder / "replay.csv"),
        str(folder / "verdicts_replay.jsonl"),
        control="control",
    )
    told = replace(plan, accept_unchecked_judge=True)
    got = build_readout(replay.replies, told, seed=7, now=NOON)
    want = compare(replay.replies, control="control", pair="request_id").comparisons[0]
    assert row(got, "judge")["pvalue"] == want.pvalue
    assert got.document["experiment"]["unit"] == "pairs"
    drawn = got.document["treatments"][0]["examples"]["drawn"]
    assert len(drawn) == 6
    assert sum(e["against"] for e in drawn) == 2
    metrics = got.document["treatments"][0]["metrics"]
    assert all(m["absent"] for m in metrics)


def test_several_treatments_hold_together(data, plan):
    """Three arms: simultaneous intervals, adjusted p-values, one first line."""
    third = data.replies.filter(pl.col("arm") == "control").with_columns(
        arm=pl.lit("bright"),
        request_id="x" + pl.col("request_id"),
        user_id="x" + pl.col("user_id"),
        score=pl.lit(5, dtype=pl.Int8),
    )
    got = built(
        data,
        replace(plan, accept_unchecked_judge=True, guardrails=(), secondary=()),
        replies=pl.concat([data.replies, third]),
        labels=None,
    )
    names = [t["treatment"] for t in got.document["treatments"]]
    assert names == ["treatment", "bright"]
    assert row(got, "judge")["confidence"] == pytest.approx(0.975)
    assert row(got, "judge")["pvalue"] >= 0.027
    assert got.document["recommendation"]["word"] == "Ship bright"
    text = visible(got.page())
    assert "97.5% interval" in text
    assert str(got.trust()).count("Favour for an arm") == 2


def test_several_looks_replace_the_fixed_interval(data, plan):
    """At the second look the interval is the confidence sequence; no fixed p."""
    once = built(data, plan)
    again = built(data, plan, look=Look(2, ()))
    wide, narrow = row(again, "judge"), row(once, "judge")
    assert wide["pvalue"] is None
    assert wide["method"] == "confidence sequence"
    assert wide["ci"][1] - wide["ci"][0] > 1.3 * (narrow["ci"][1] - narrow["ci"][0])
    assert again.document["treatments"][0]["judge_pvalue"] is None
    checks = {c["key"]: c for c in again.document["checks"]}
    assert checks["looks"]["status"] == "look"


def test_looks_over_time_narrow(readout):
    """The picture of looks ends at all replies and narrows on the way."""
    looks = readout.document["treatments"][0]["looks"]
    assert looks[-1]["replies"] == 320
    width = [look["ci"][1] - look["ci"][0] for look in looks]
    assert width[-1] == min(width)
    assert 2 <= len(looks) <= 10


def test_empty_replies_are_counted_with_the_effect_without_them(data, plan):
    """Empty replies per arm are shown, and what the effect is without them."""
    gone = (pl.col("arm") == "treatment") & (pl.int_range(pl.len()) % 10 == 1)
    frame = data.replies.with_columns(
        reply=pl.when(gone).then(pl.lit(" ")).otherwise(pl.col("reply")),
        score=pl.when(gone).then(1).otherwise(pl.col("score")).cast(pl.Int8),
    )
    got = built(
        data, replace(plan, accept_unchecked_judge=True), replies=frame, labels=None
    )
    check = next(c for c in got.document["checks"] if c["key"] == "empty")
    n = frame.filter(gone).height
    assert check["numbers"]["empty"] == {"control": 0, "treatment": n}
    assert "without them the effect is" in check["effect_text"]


def test_counts_alone_give_the_same_decision(data, plan):
    """From counts the numbers are those of the rows without users."""
    told = replace(plan, guardrails=(), secondary=())
    counts = ScoreCounts.from_table(
        {"treatment": [22, 40, 21, 37, 40], "control": [10, 34, 24, 45, 47]}
    )
    got = build_readout(counts, told, calibration=GOOD, now=NOON)
    assert row(got, "judge")["pvalue"] == pytest.approx(0.0356, abs=5e-5)
    assert got.rule == "keep_control"
    assert got.document["treatments"][0]["examples"] is None


def test_a_guardrail_holds_a_winner_back(data, plan):
    """Arms swapped: the treatment wins by the judge, and its guardrails are read."""
    swap = pl.col("arm").replace({"control": "treatment", "treatment": "control"})
    frame = data.replies.with_columns(arm=swap, contacted_again_24h=pl.lit(0))
    frame = frame.with_columns(
        contacted_again_24h=(
            (pl.col("arm") == "treatment") & (pl.int_range(pl.len()) % 3 == 0)
        ).cast(pl.Int64)
    )
    told = replace(plan, accept_unchecked_judge=True)
    got = built(data, told, replies=frame, labels=None)
    assert got.rule == "hold"
    assert "Contacted again" in got.sentence


def test_all_scores_equal_must_not_be_read(plan):
    """A judge that gives one score to everything measures nothing."""
    counts = ScoreCounts.from_table(
        {"control": [0, 0, 0, 50, 0], "treatment": [0, 0, 0, 50, 0]}
    )
    got = build_readout(counts, plan, calibration=GOOD, now=NOON)
    assert got.rule == "do_not_read"
    assert "treatments" not in got.document


def test_nearly_constant_arms_get_room_for_what_was_not_seen(plan):
    """Three low scores of an arm may be missing: added at both ends, and said."""
    counts = ScoreCounts.from_table(
        {"control": [0, 1, 0, 0, 399], "treatment": [0, 0, 0, 1, 399]}
    )
    got = build_readout(counts, plan, calibration=GOOD, now=NOON)
    assert got.rule == "no_worthwhile_difference"
    plain = compare(counts, control="control").comparisons[0]
    assert not plain.ci_reliable
    (effect,) = (
        e for e in got.document["treatments"][0]["effects"] if e["key"] == "judge"
    )
    room = 2 * 3 * 4 / 400
    assert effect["ci"] == pytest.approx([plain.ci[0] - room, plain.ci[1] + room])
    (check,) = (c for c in got.document["checks"] if c["key"] == "interval")
    assert check["status"] == "look"
    assert check["numbers"]["room"] == pytest.approx(room)
    assert "±0.06 points" in got.page()


def test_wrong_tables_are_refused_with_what_to_do(data, plan):
    """No control arm, no score column, one arm only: errors that say so."""
    with pytest.raises(TableError, match="Name the baseline"):
        built(data, plan, control="base")
    with pytest.raises(TableError, match="'score'"):
        built(data, plan, replies=data.replies.drop("score"))
    alone = data.replies.filter(pl.col("arm") == "control")
    with pytest.raises(StatisticsError, match="at least one other"):
        built(data, plan, replies=alone)


def test_the_same_data_give_the_same_bytes(data, plan, readout, page, tmp_path):
    """Only the time stamp differs between two runs, also with the rows shuffled."""
    later = datetime(2027, 1, 1, tzinfo=UTC)
    again = built(data, plan, now=later)
    stamps = (NOON.isoformat(), later.isoformat())
    assert again.page().replace(stamps[1], stamps[0]) == page
    document = json.loads(again.to_json())
    document["generated_at"] = readout.document["generated_at"]
    assert document == json.loads(readout.to_json())
    html, twin = readout.save(tmp_path)
    assert html.read_text("utf-8") == page
    assert json.loads(twin.read_text("utf-8")) == json.loads(readout.to_json())


def test_the_order_of_rows_changes_nothing_that_is_shown(data, plan, readout):
    """Examples, themes and numbers do not depend on how the table was sorted."""
    frame = data.replies.sample(fraction=1.0, shuffle=True, seed=3)
    arms = frame["arm"].unique(maintain_order=True).to_list()
    got = built(data, plan, replies=frame)
    assert sorted(arms) == ["control", "treatment"]
    ours = readout.document["treatments"][0]
    theirs = got.document["treatments"][0]
    for name in ("examples", "themes", "metrics", "segments", "looks"):
        assert json.dumps(ours[name]) == json.dumps(theirs[name]), name


class _Text(HTMLParser):
    """The visible text and labels of a page, pictures' own text left out."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag, attrs):
        if tag in ("style", "svg", "title"):
            self.hidden += 1
        self.parts += [v for k, v in attrs if k == "aria-label" and v]

    def handle_endtag(self, tag):
        if tag in ("style", "svg", "title"):
            self.hidden -= 1

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data)


def visible(page):
    """Text that a reader sees, in order."""
    parser = _Text()
    parser.feed(page)
    return " ".join(parser.parts)


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def _leaves(value):
    if isinstance(value, dict):
        for v in value.values():
            yield from _leaves(v)
    elif isinstance(value, list):
        for v in value:
            yield from _leaves(v)
    else:
        yield value


def _printed(value):
    """Every way in which the display rules may print a number."""
    from reply_resolution import display

    out = set()
    for scaled in (value, 100 * value, 1000 * value):
        for digits in range(6):
            out.add(display.number(abs(scaled), digits))
            out.add(display.number(abs(scaled), digits).replace(",", ""))
    if 0 <= value <= 1:
        out.add(display.pvalue(value).removeprefix("< "))
    return out


def test_every_number_on_the_page_is_in_the_twin(readout, page):
    """Each number that a reader sees is a value of the JSON, or in a text of it."""
    known = set()
    for leaf in _leaves(json.loads(readout.to_json())):
        if isinstance(leaf, str):
            known |= set(_NUMBER.findall(leaf))
        elif isinstance(leaf, int | float) and not isinstance(leaf, bool):
            known |= _printed(leaf)
    text = visible(page).split("Words ")[0]
    # The page's own words: the scale, "50%", "1,000 replies", notebooks, cuts.
    own = {"1", "2", "3", "4", "5", "50", "1,000", "0", "256", "95", "20", "100"}
    shown = {n.rstrip(",") for n in _NUMBER.findall(text)}
    strange = {n for n in shown if n not in known | own}
    # Hashes are cut to twelve digits: their fragments are in the twin, uncut.
    whole = readout.to_json()
    strange = {n for n in strange if n not in whole}
    assert not strange


def test_every_number_of_the_twin_is_on_the_page(readout, page):
    """Each number of the JSON is printed somewhere, by one of the display rules."""
    text = visible(page)
    seen = set(_NUMBER.findall(text)) | {
        n.replace(",", "") for n in _NUMBER.findall(text)
    }
    seen |= {n.rstrip(",") for n in seen}
    lost = []

    def walk(value, path):
        if isinstance(value, dict):
            for k, v in value.items():
                walk(v, f"{path}.{k}")
        elif isinstance(value, list):
            for k, v in enumerate(value):
                walk(v, f"{path}[{k}]")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            return
        elif not _printed(value) & seen:
            lost.append((path, value))

    walk(json.loads(readout.to_json()), "")
    assert not lost


class _Structure(HTMLParser):
    """What a valid page needs: balanced tags, unique ids, headers, labels."""

    VOID = ("meta", "br", "img", "link", "hr", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labels: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "figure":
            self.labels.append(found.get("aria-label") or "")
        if tag == "th":
            assert found.get("scope") in ("row", "col")
        for name in ("src", "href", "xlink:href"):
            if name in found:
                value = found[name]
                if value.startswith("#"):
                    self.links.append(value[1:])
                else:
                    self.addresses.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag, tag


def test_the_page_is_valid_and_needs_nothing_else(page):
    """Balanced tags, unique ids, links that resolve, no script and no network."""
    parser = _Structure()
    parser.feed(page)
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    assert set(parser.links) <= set(parser.ids)
    assert all(len(label) > 40 for label in parser.labels)
    assert len(parser.labels) == 3
    assert "script" not in parser.tags
    assert parser.addresses == []
    assert "url(http" not in page
    assert len(page.encode()) < 200_000


def test_text_of_users_is_never_markup(data, plan):
    """A reply, a reason or an arm that looks like HTML is shown as text."""
    evil = "<script>alert(1)</script><img src=x>"
    frame = data.replies.with_columns(
        reply=pl.lit(evil) + pl.col("reply"),
        reason=pl.lit(evil) + pl.col("reason"),
        arm=pl.col("arm").replace({"treatment": "<b>warm</b>"}),
        language=pl.lit("<i>en</i>"),
    )
    got = built(
        data, replace(plan, accept_unchecked_judge=True), replies=frame, labels=None
    )
    page = got.page()
    assert "<script" not in page
    assert "<img" not in page
    assert "<b>warm" not in page
    assert "<i>en" not in page
    assert "&lt;script&gt;" in page


def test_a_bigger_table_reads_texts_on_a_sample(plan, data, monkeypatch):
    """Above the limit texts are read on a seeded draw of users, and that is said."""
    monkeypatch.setattr("reply_resolution.readout.inputs.SAMPLE", 200)
    got = built(data, replace(plan, segments=()))
    examples = got.document["treatments"][0]["examples"]
    assert 150 <= examples["read"] <= 250
    assert examples["of"] == 320
    text = visible(got.page())
    assert f"seeded draw of {examples['read']} of 320 scored replies" in text
    assert row(got, "judge")["estimate"] == pytest.approx(-0.325)
    users = {e["request_id"] for e in examples["drawn"]}
    again = built(
        data,
        replace(plan, segments=()),
        replies=data.replies.sample(fraction=1.0, shuffle=True, seed=1),
    )
    assert {
        e["request_id"] for e in again.document["treatments"][0]["examples"]["drawn"]
    } == users


def test_an_arm_without_any_score_must_not_be_read(data, plan):
    """All of an arm failed or was not judged: the reason, never a number."""
    there = pl.col("arm") == "control"
    frame = data.replies.with_columns(
        score=pl.when(there).then(pl.col("score")),
        status=pl.when(there).then(pl.col("status")).otherwise(pl.lit("failed")),
    )
    got = built(data, plan, replies=frame)
    assert got.rule == "do_not_read"
    assert "no scores in treatment" in got.sentence


def test_ids_arms_and_scores_are_enough(data, plan):
    """A table of three columns gives a page; scores may be written 4.0."""
    told = replace(plan, accept_unchecked_judge=True)
    small = data.replies.select("request_id", "arm", pl.col("score").cast(pl.Float64))
    got = built(data, told, replies=small, labels=None)
    assert row(got, "judge")["pvalue"] == pytest.approx(0.0356, abs=5e-5)
    assert row(got, "length")["absent"]
    assert "<svg" in got.page()


def test_labels_without_a_number_are_no_labels(data, plan):
    """A table of "cannot judge" corrects nothing and is no agreement."""
    nothing = data.labels.with_columns(label=pl.lit(None, dtype=pl.Int8))
    assert built(data, plan, labels=nothing).rule == "do_not_read"


def test_pairs_are_corrected_by_labels_as_pairs(root, plan):
    """Labels of both arms of a replay correct it; its length row says why it lacks."""
    folder = root / "data"
    replay = inputs.load(
        str(folder / "replay.csv"),
        str(folder / "verdicts_replay.jsonl"),
        control="control",
    )
    labels = replay.replies.select(
        "request_id",
        "arm",
        annotator=pl.lit("a"),
        label=pl.col("score"),
        repeat=pl.lit(0),
        weight=pl.lit(1.0),
    ).filter(pl.int_range(pl.len()) % 4 < 2)
    got = build_readout(replay.replies, plan, labels=labels, seed=7, now=NOON)
    human = row(got, "human")
    assert human["decides"]
    assert human["ci"][0] < -0.21 < human["ci"][1]
    assert row(got, "length")["absent"] or row(got, "length")["ci"]
    assert got.page()

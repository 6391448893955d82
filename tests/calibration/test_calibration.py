"""The verdict on a judge: simulated judges, the recorded ones, bad input."""

import json

import numpy as np
import polars as pl
import pytest

from reply_resolution.calibration.verdict import (
    CORRECT,
    FIT,
    UNFIT,
    Calibration,
    CalibrationRules,
    judge_verdict,
)
from reply_resolution.errors import (
    LabelError,
    ParameterError,
    StatisticsError,
    TableError,
    VersionMismatchError,
)
from reply_resolution.judge.probes import probe_card
from reply_resolution.tables.labels import read_labels
from reply_resolution.tables.verdicts import read_verdicts

V1, V2 = "reply_resolution@v1:3f9c1a7b", "reply_resolution@v2:0badc0de"


def world(kind, *, seed=1, n=200):
    """Two annotators, two arms, two languages, and a judge of the named kind."""
    rng = np.random.default_rng(seed)
    truth = rng.choice([1, 2, 3, 4, 5], n, p=[0.1, 0.3, 0.2, 0.2, 0.2])

    def person():
        return np.clip(truth + rng.choice([-1, 0, 1], n, p=[0.1, 0.8, 0.1]), 1, 5)

    arm = np.array(["control", "treatment"])[rng.permutation(np.arange(n) % 2)]
    language = np.where(rng.random(n) < 0.3, "Spanish", "English")
    length = np.exp(rng.normal(6, 0.6, n)).astype(int) + 1
    good, noise = person(), rng.integers(1, 6, n)
    likes = good + 0.9 * (np.log2(length) - np.log2(length).mean())
    score = {
        "good": good,
        "noise": noise,
        "constant": np.full(n, 4),
        "shifted": np.clip(good + 1, 1, 5),
        "strict": np.clip(good - 1, 1, 5),
        "length": np.clip(np.round(likes), 1, 5).astype(int),
        "arm": np.where(arm == "control", good, noise),
        "english": np.where(language == "English", good, noise),
        "favour": np.clip(good + ((arm == "treatment") & (rng.random(n) < 0.8)), 1, 5),
    }[kind]
    ids = [f"R{i:04d}" for i in range(n)]
    verdicts = pl.DataFrame({"request_id": ids, "arm": arm, "score": score})
    labels = pl.DataFrame(
        {
            "request_id": ids * 2,
            "arm": np.tile(arm, 2),
            "annotator": ["a"] * n + ["b"] * n,
            "label": np.r_[person(), person()],
        }
    )
    replies = pl.DataFrame(
        {
            "request_id": ids,
            "arm": arm,
            "language": language,
            "reply": ["x" * k for k in length],
        }
    )
    return verdicts, labels, replies


@pytest.mark.parametrize(
    ("kind", "verdict", "checks", "words"),
    [
        ("good", FIT, (), ()),
        ("noise", UNFIT, ("agreement",), ("whole interval is below",)),
        ("constant", UNFIT, ("levels",), ("gives 4 to all 200 replies",)),
        ("shifted", CORRECT, ("bias",), ("kinder than people",)),
        ("strict", CORRECT, ("bias",), ("stricter than people",)),
        ("length", CORRECT, ("length",), ("likes long replies",)),
        ("arm", UNFIT, ("arms",), ("arm treatment: kappa",)),
        ("english", UNFIT, ("segments",), ("language Spanish: kappa",)),
        ("favour", CORRECT, ("arms",), ("favours treatment",)),
    ],
)
def test_each_judge_gets_its_verdict_and_its_reason(kind, verdict, checks, words):
    """Noise, constant, shifted, length-loving, good in one arm, good in English."""
    judged, labels, replies = world(kind)
    found = judge_verdict(judged, labels, replies=replies)
    assert found.verdict == verdict
    deciding = {c.name for c in found.checks if c.mark == "stop" or c.corrects}
    assert set(checks) <= deciding
    if kind in ("good", "shifted", "strict", "length", "favour"):
        assert set(checks) == deciding
    for text in words:
        assert any(text in reason for reason in found.reasons)
    assert len(found.reasons) == len(found.changes)
    assert all(found.changes)


def test_the_control_arm_is_not_blamed_for_the_treatments_noise():
    """The reason names the arm and the language where the judge fails, no other."""
    found = judge_verdict(*world("arm")[:2], replies=world("arm")[2])
    assert "arm control" not in found.check("arms").text
    found = judge_verdict(*world("english")[:2], replies=world("english")[2])
    assert "language English" not in found.check("segments").text


@pytest.fixture
def demo(root):
    """The demonstration's calibration labels and replies."""
    path = root / "data/calibration.csv"
    return read_labels(path).frame, pl.read_csv(path)


def test_the_recorded_judge_passes(root, demo):
    """Good judge: fit, with probes and second votes measured."""
    labels, replies = demo
    verdicts = read_verdicts(root / "data/verdicts_calibration.jsonl").frame
    card = probe_card(None, pl.read_ndjson(root / "data/verdicts_probes.jsonl"))
    found = judge_verdict(verdicts, labels, replies=replies, probes=card)
    assert found.verdict == FIT
    assert found.n == 120
    assert found.check("probes").mark in ("ok", "look")  # look: some not measured
    assert "55 of 55" in found.check("probes").text
    assert found.check("stability").mark == "ok"
    assert "40 second votes" in found.check("stability").text


def test_the_small_model_is_refused(root, demo):
    """It says 4 to everything it can say anything to."""
    labels, replies = demo
    verdicts = read_verdicts(root / "data/verdicts_small_model.jsonl").frame
    found = judge_verdict(verdicts, labels, replies=replies)
    assert found.verdict == UNFIT
    assert "gives 4 to all 112 replies" in found.reasons[0]
    assert found.check("coverage").mark == "look"
    assert found.check("length").mark == "none"


def test_an_interval_that_straddles_the_floor_is_a_look():
    """Not refused, not simply fit; and how many labels would settle it is said."""
    judged, labels, replies = world("good", n=60)
    kappa = judge_verdict(judged, labels, replies=replies).kappa
    floor = (kappa.low + kappa.estimate) / 2
    rules = CalibrationRules(kappa_floor=floor, segments=())
    found = judge_verdict(judged.drop("arm"), labels.drop("arm"), rules=rules)
    assert found.check("agreement").mark == "look"
    assert found.verdict == CORRECT
    assert "more labels" in found.check("agreement").change


def test_what_is_not_measured_fails_only_where_required():
    """No probes, no second votes: shown, and a stop if the rules ask for them."""
    judged, labels, replies = world("good")
    loose = judge_verdict(judged, labels, replies=replies)
    assert loose.check("probes").mark == "none"
    assert loose.verdict == FIT
    rules = CalibrationRules(required=("probes",))
    strict = judge_verdict(judged, labels, replies=replies, rules=rules)
    assert strict.verdict == UNFIT
    assert "the rules require it" in strict.reasons[0]


def test_too_few_labels_give_no_verdict_but_not_fit():
    """20 labels: how many more is said."""
    judged, labels, _ = world("good", n=20)
    found = judge_verdict(judged, labels)
    assert found.verdict == UNFIT
    assert "label 30 more replies" in found.changes


def test_labels_of_unknown_replies_are_counted():
    """And an annotator with three labels is named."""
    judged, labels, replies = world("good")
    odd = pl.DataFrame(
        {
            "request_id": ["nobody", "R0001", "R0002"],
            "arm": ["control", judged["arm"][1], judged["arm"][2]],
            "annotator": ["late"] * 3,
            "label": [3, 3, 3],
        }
    )
    found = judge_verdict(judged, pl.concat([labels, odd]), replies=replies)
    assert found.n == 200
    assert any("1 labelled replies have no verdict" in w for w in found.warnings)
    assert found.check("labels").mark == "look"
    assert "late (3)" in found.check("labels").text


def test_another_rubric_version_is_refused():
    """Labels made under v2 say nothing of verdicts under v1."""
    judged, labels, _ = world("good")
    judged = judged.with_columns(pl.lit(V1).alias("metric_version"))
    with pytest.raises(LabelError, match=V2):
        judge_verdict(judged, labels.with_columns(pl.lit(V2).alias("metric_version")))
    mixed = judged.with_columns(
        pl.when(pl.int_range(pl.len()) < 9)
        .then(pl.lit(V2))
        .otherwise(pl.lit(V1))
        .alias("metric_version")
    )
    with pytest.raises(VersionMismatchError, match=V1):
        judge_verdict(mixed, labels)


def test_nothing_in_common_is_an_error():
    """No labelled reply has a score."""
    judged, labels, _ = world("good")
    with pytest.raises(StatisticsError, match="none of the 200 labelled replies"):
        judge_verdict(
            judged, labels.with_columns(request_id=pl.format("X{}", "request_id"))
        )


def test_a_stratified_draw_enters_with_its_weights():
    """Weights of the draw change kappa and bias."""
    judged, labels, _ = world("good")
    weighted = labels.with_columns(
        pl.when(pl.col("label") > 3).then(5.0).otherwise(1.0).alias("weight")
    )
    by_reply = weighted.with_columns(
        pl.col("weight").max().over("request_id").alias("weight")
    )
    plain, heavy = judge_verdict(judged, labels), judge_verdict(judged, by_reply)
    assert heavy.bias.estimate != plain.bias.estimate
    joined = (
        by_reply.group_by("request_id")
        .agg(pl.col("label").mean(), pl.col("weight").first())
        .join(judged, on="request_id")
    )
    wanted = np.average(joined["score"] - joined["label"], weights=joined["weight"])
    assert heavy.bias.estimate == pytest.approx(wanted)


def test_a_calibration_survives_its_file(tmp_path):
    """JSON and back: equal, with no NaN in it."""
    judged, labels, replies = world("constant")
    judged = judged.with_columns(
        pl.lit(V1).alias("metric_version"), pl.lit("ab" * 32).alias("judge_id")
    )
    found = judge_verdict(judged, labels, replies=replies)
    path = found.save(tmp_path / "deep/calibration.json")
    again = Calibration.load(path)
    assert again.document() == found.document()
    assert (again.metric_version, again.judge_id) == (V1, "ab" * 32)
    assert again.kappa == found.kappa
    json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)


def test_a_file_that_is_no_calibration_says_what_to_do(tmp_path):
    """Missing, broken, another format."""
    with pytest.raises(TableError, match="Run notebook 1"):
        Calibration.load(tmp_path / "none.json")
    with pytest.raises(TableError, match="notebook 1"):
        Calibration.from_json("{")
    with pytest.raises(TableError, match="format 99"):
        Calibration.from_json('{"format": 99}')
    with pytest.raises(TableError, match="missing"):
        Calibration.from_json('{"format": 1}')


def test_the_cache_keeps_a_calibration(tmp_path):
    """Beside the metric version and judge id, and it comes back as it was."""
    from reply_resolution.judge.cache import Cache

    judged, labels, _ = world("good")
    judged = judged.with_columns(
        pl.lit(V1).alias("metric_version"), pl.lit("ab" * 32).alias("judge_id")
    )
    found = judge_verdict(judged, labels)
    with Cache.open(tmp_path / "cache.sqlite") as cache:
        cache.put_calibration(found.document())
        document = cache.calibration(V1, "ab" * 32)
    assert Calibration.from_document(document).document() == found.document()


def test_rules_are_checked():
    """A typed-wrong rule, an impossible floor, an unknown check."""
    with pytest.raises(ParameterError, match="kapa_floor"):
        CalibrationRules.from_dict({"kapa_floor": 0.5})
    with pytest.raises(ParameterError, match="outside"):
        CalibrationRules(kappa_floor=3)
    with pytest.raises(ParameterError, match="no check is called"):
        CalibrationRules(required=("probe",))
    rules = CalibrationRules(segments=("language", "topic"))
    assert CalibrationRules.from_dict(rules.to_dict()) == rules


def test_the_page_escapes_and_has_every_check():
    """A name of a language cannot be markup; every check has a row."""
    judged, labels, replies = world("english")
    replies = replies.with_columns(
        pl.col("language").str.replace("Spanish", "<img src=x>")
    )
    page = judge_verdict(judged, labels, replies=replies)._repr_html_()
    assert "<img" not in page
    assert "&lt;img src=x&gt;" in page
    assert page.count("<tr>") == 12

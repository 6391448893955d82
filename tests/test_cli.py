"""The command line: what it prints, where, and with which exit code."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import re
import subprocess
import sys
from typing import Any

import polars as pl
import pytest

from reply_resolution.cli import build_parser, main

Run = Callable[..., tuple[int, str, str]]
VERBS = (
    "demo",
    "judge",
    "compare",
    "agreement",
    "length-bias",
    "collapse",
    "plan",
    "probes",
    "report",
    "versions",
    "trace",
    "cache",
    "batch",
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a verb in this process: exit code, standard output, standard error."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: object) -> tuple[int, str, str]:
        try:
            code = main([str(w) for w in words])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def table(root: Path, tmp_path: Path) -> Path:
    """The bundled experiment with its verdicts, as `judge` would write it."""
    from reply_resolution.tables.replies import read_replies
    from reply_resolution.tables.verdicts import join_verdicts, read_verdicts

    data = root / "data"
    joined = join_verdicts(
        read_replies(data / "experiment.csv"),
        read_verdicts(data / "verdicts_experiment.jsonl"),
    )
    path = tmp_path / "experiment.parquet"
    joined.write_parquet(path)
    return path


def _json(out: str) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    found = json.loads(out, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches(run: Run, verb: str) -> None:
    """Every verb explains itself and exits 0."""
    code, out, _ = run(verb, "--help")
    assert code == 0
    assert "usage: reply-resolution" in out
    assert len(out) > 200


def test_help_names_every_verb(run: Run) -> None:
    """The program's own help lists the verbs and where to start."""
    code, out, _ = run("--help")
    assert code == 0
    assert all(verb in out for verb in VERBS)
    assert "reply-resolution demo" in out


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("no-such-verb",),
        ("compare",),
        ("compare", "x.csv"),
        ("compare", "x.csv", "--control", "a", "--alternative", "bigger"),
        ("compare", "x.csv", "--control", "a", "--confidence", "95"),
        ("plan", "--counts", "1", "2", "3", "--effect", "0.3"),
        ("plan", "--counts", "1", "2", "3", "4", "5"),
        ("judge", "x.csv", "--out", "v.csv", "--sample", "2.5"),
        ("judge", "x.csv", "--out", "v.csv", "--max-calls", "-1"),
        ("judge", "x.csv", "--out", "v.csv", "--max-usd", "-1"),
        ("judge", "x.csv"),
        ("compare", "x.csv", "--control", "a", "--confidence", "much"),
        ("agreement", "x.csv", "--scale", "nan", "5"),
        ("agreement", "x.csv", "--scale", "1", "inf"),
        ("agreement", "x.csv", "--scale", "5", "1"),
    ],
)
def test_wrong_usage_is_2(run: Run, words: tuple[str, ...]) -> None:
    """A usage error exits with 2, says so on standard error, prints no result."""
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "--help" in err
    assert "value:" not in err  # argparse would name a function of ours


def test_version(run: Run) -> None:
    """`--version` prints one line."""
    assert run("--version")[1].startswith("reply-resolution ")


def test_compare_json_is_one_object(run: Run, table: Path) -> None:
    """The bundled experiment's numbers, one JSON object, messages elsewhere."""
    code, out, _ = run("compare", table, "--control", "control", "--json")
    found = _json(out)
    assert code == 0
    assert found["design"] == "independent"
    assert found["arms"]["control"]["n"] == found["arms"]["treatment"]["n"] == 160
    (effect,) = found["comparisons"]
    assert effect["mean_difference"] == pytest.approx(-0.325, abs=1e-12)
    assert effect["pvalue"] == pytest.approx(0.0356, abs=5e-5)
    assert effect["pvalue_method"] == "exact"
    assert any("user_id" in text for text in found["warnings"])


def test_compare_by_users_and_for_people(run: Run, table: Path) -> None:
    """With --cluster users are the units; without --json a reader gets lines."""
    words = ("compare", table, "--control", "control", "--cluster", "user_id")
    code, out, _ = run(*words)
    assert code == 0
    assert "clustered design" in out
    assert "−0.325 points" in out
    assert _json(run(*words, "--json")[1])["design"] == "clustered"


def test_compare_takes_the_plan_and_the_cut(run: Run, table: Path) -> None:
    """A 90:10 plan studentizes, a cut of 5 counts fives; shares are checked."""
    words = ("compare", table, "--control", "control", "--json")
    plan = ("--allocation", "control=0.9", "treatment=0.1")
    effect = _json(run(*words, *plan)[1])["comparisons"][0]
    assert effect["studentized"]
    assert not _json(run(*words)[1])["comparisons"][0]["studentized"]
    found = _json(run(*words, "--cut", "5")[1])
    for arm in found["arms"].values():
        assert arm["resolved"] == pytest.approx(arm["counts"][4] / arm["n"])
    for share in ("control", "control=many", "control=0", "control=nan"):
        code, out, err = run(*words, "--allocation", share)
        assert (code, out) == (2, "")
        assert share.removeprefix("control=") in err
    code, _, err = run(*words, "--allocation", "control=1")
    assert code == 1
    assert "treatment" in err


def test_compare_mixes_versions_only_when_asked(run: Run, table: Path) -> None:
    """Two judges in one table are refused with the flag that allows them."""
    frame = pl.read_parquet(table)
    judges = pl.Series("judge_id", ["a", "b"] * (frame.height // 2))
    frame.with_columns(judges).write_parquet(table)
    words = ("compare", table, "--control", "control", "--json")
    code, _, err = run(*words)
    assert code == 1
    assert "--mix-versions" in err
    assert run(*words, "--mix-versions")[0] == 0


def test_compare_counts_a_pattern_of_files_without_loading_them(
    run: Run, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two halves by pattern give the document of the whole; no frame is read."""
    words = ("--control", "control", "--cluster", "user_id", "--json")
    whole = _json(run("compare", table, *words)[1])
    frame = pl.read_parquet(table)
    frame[:200].write_parquet(table.with_name("part-1.parquet"))
    frame[200:].write_parquet(table.with_name("part-2.parquet"))
    monkeypatch.setattr(pl, "read_parquet", None)
    code, out, _ = run("compare", table.with_name("part-*.parquet"), *words)
    assert (code, _json(out)) == (0, whole)
    code, out, err = run("compare", table.with_name("none-*.parquet"), *words)
    assert (code, out) == (1, "")
    assert "none-*.parquet" in err


def test_compare_pairs(run: Run, root: Path) -> None:
    """The replay is compared as pairs of one request."""
    path = root / "data" / "verdicts_replay.jsonl"
    words = ("compare", path, "--control", "control", "--pair", "request_id", "--json")
    found = _json(run(*words)[1])
    assert found["design"] == "paired"
    assert found["arms"]["control"]["n"] == 80


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("compare", ("--control", "nobody")),
        ("compare", ("--control", "control", "--score", "nothing")),
        ("compare", ("--control", "control", "--cluster", "nothing")),
        ("agreement", ("--labels", "nothing")),
        ("length-bias", ("--label", "nothing")),
        ("collapse", ("--control", "nobody")),
    ],
)
def test_a_wrong_name_is_1(
    run: Run, table: Path, verb: str, words: tuple[str, ...]
) -> None:
    """An unknown arm or column: exit 1, one message that names it and the others."""
    code, out, err = run(verb, table, *words)
    assert (code, out) == (1, "")
    assert words[-1] in err
    assert "Traceback" not in err


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "binary"])
def test_a_file_that_is_no_table_is_1(run: Run, tmp_path: Path, kind: str) -> None:
    """A missing, empty or binary file and a folder are refused by name."""
    path = tmp_path / "table.csv"
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "binary":
        path.write_bytes(bytes(range(256)) * 20)
    code, out, err = run("compare", path, "--control", "a")
    assert (code, out) == (1, "")
    assert "table.csv" in err


@pytest.mark.parametrize(
    "words", [("nobody.csv",), ("nobody.parquet",), ("TABLE", "--labels", "people.csv")]
)
def test_agreement_says_a_wrong_file_in_one_line(
    run: Run, table: Path, words: tuple[str, ...]
) -> None:
    """A misspelt table, and a file where a column belongs: one line, no traceback."""
    given = [str(table) if word == "TABLE" else word for word in words]
    code, out, err = run("agreement", *given)
    assert (code, out) == (1, "")
    assert err.startswith("reply-resolution agreement: ")
    assert words[-1] in err
    assert err.count("\n") == 1
    assert "not a file" in err or "does not exist" in err


def test_agreement_json(run: Run, root: Path, tmp_path: Path) -> None:
    """Each label column has its block, and the annotators theirs."""
    data = root / "data"
    joined = pl.read_csv(data / "calibration.csv").join(
        pl.read_ndjson(data / "verdicts_calibration.jsonl").filter(pl.col("vote") == 0),
        on="request_id",
    )
    joined.write_csv(tmp_path / "labelled.csv")
    found = _json(run("agreement", tmp_path / "labelled.csv", "--json")[1])
    assert found["label_a"]["n"] == 120
    assert 0.5 < found["label_a"]["weighted_kappa"]["estimate"] <= 1
    assert found["between"]["label_a|label_b"]["n"] == 120
    code, out, _ = run("agreement", tmp_path / "labelled.csv")
    assert code == 0
    assert "weighted kappa" in out
    assert out.count("bias (judge − label)") == 2
    assert out.count("bias (second − first)") == 1


@pytest.mark.parametrize(
    "words",
    [("agreement", "--labels", "label"), ("length-bias",), ("collapse",), ("compare",)],
)
def test_judges_are_mixed_only_where_asked(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The error's advice, --mix-versions, is there wherever the error is."""
    verb, *more = words
    more += ["--control", "a"] if verb in ("collapse", "compare") else []
    table = tmp_path / "t.csv"
    pl.DataFrame(
        {
            "arm": ["a", "b"] * 4,
            "score": [1, 2, 3, 4, 5, 4, 3, 2],
            "label": [1, 2, 3, 4, 5, 5, 2, 2],
            "reply": ["x" * (k + 1) for k in range(8)],
            "judge_id": ["j1", "j2"] * 4,
        }
    ).write_csv(table)
    code, out, err = run(verb, table, *more, "--json")
    assert (code, out) == (1, "")
    assert "'j1', 'j2'" in err
    assert "--mix-versions" in err
    assert run(verb, table, *more, "--mix-versions", "--json")[0] == 0


def test_length_bias_takes_a_scale(run: Run, tmp_path: Path) -> None:
    """--scale holds judge and label to it, as in agreement."""
    table = tmp_path / "t.csv"
    pl.DataFrame(
        {
            "score": [1, 2, 3, 4, 5, 6],
            "label": [1, 3, 3, 4, 5, 5],
            "reply": ["x" * (k + 1) ** 2 for k in range(6)],
        }
    ).write_csv(table)
    for scale, n in ((("--scale", 1, 5), 5), (("--scale", 1, 6), 6)):
        assert _json(run("length-bias", table, *scale, "--json")[1])["n"] == n


def test_plan_and_collapse_json(run: Run, table: Path) -> None:
    """Planning needs counts only; collapse compares both analyses."""
    counts = ("--counts", 10, 34, 24, 45, 47)
    found = _json(run("plan", *counts, "--effect", 0.3, "--json")[1])
    assert found["n_per_arm"] > 100
    found = _json(run("plan", *counts, "--n", 200, "--json")[1])
    assert 0 < found["effect"] < 1
    found = _json(run("collapse", table, "--control", "control", "--json")[1])
    assert found["recommended"] in {"ordinal", "binary"}
    assert found["binary"]["estimate"] == pytest.approx(-0.09375)


def test_nobody_to_ask_is_said(run: Run, root: Path, tmp_path: Path) -> None:
    """Without key and server: exit 1, both ways out are named, nothing is written."""
    out = tmp_path / "v.csv"
    cache = tmp_path / "c.sqlite"
    words = ("judge", root / "data/experiment.csv", "--out", out, "--cache", cache)
    code, _, err = run(*words)
    assert code == 1
    assert "OPENAI_API_KEY" in err
    assert "--base-url" in err
    assert not out.exists()


def test_probes_of_a_cache_that_has_some_are_a_card_of_those(
    run: Run, root: Path, tmp_path: Path
) -> None:
    """Nobody to ask: known probes are shown, the others not measured; none: exit 1."""
    from reply_resolution.judge.judge import record
    from reply_resolution.judge.probes import load_probes, probes_frame
    from reply_resolution.tables.verdicts import read_verdicts

    cache = tmp_path / "c.sqlite"
    assert run("probes", "--cache", cache, "--json")[0] == 1
    known = read_verdicts(root / "data/verdicts_probes.jsonl").frame
    record(probes_frame(load_probes()[:40]), known, cache=cache)
    code, out, err = run("probes", "--cache", cache, "--json")
    card = _json(out)
    assert code == 0
    assert card["passed"] + card["failed"] == 40
    assert card["not_measured"] == card["checks"] - 40
    assert "OPENAI_API_KEY" in err


def test_judge_writes_every_row_from_the_cache(
    run: Run, root: Path, tmp_path: Path
) -> None:
    """A recorded table is replayed without a call; trace and versions read it."""
    from reply_resolution.judge.judge import record
    from reply_resolution.tables.replies import read_replies
    from reply_resolution.tables.verdicts import read_verdicts

    data = root / "data"
    cache = tmp_path / "c.sqlite"
    record(
        read_replies(data / "replay.csv").frame,
        read_verdicts(data / "verdicts_replay.jsonl").frame,
        cache=cache,
    )
    for name in ("v.csv", "v.jsonl", "v.parquet"):
        out = tmp_path / name
        words = ("judge", data / "replay.csv", "--out", out, "--cache", cache)
        code, _, err = run(*words)
        assert code == 0, err
        from reply_resolution.tables.tables import read_table

        assert read_table(out).frame.height == 160
    code, out_text, _ = run("trace", "R0321", "--cache", cache, "--json")
    assert code == 0
    assert len(_json(out_text)["verdicts"]) == 2
    code, out_text, _ = run("trace", "R0321", "--arm", "control", "--cache", cache)
    assert "Score how completely" in out_text
    assert run("trace", "nobody", "--cache", cache)[0] == 1
    (row,) = _json(run("versions", "--cache", cache, "--json")[1])["versions"]
    assert row["metric_version"].startswith("reply_resolution@v1:")
    exported = tmp_path / "all.jsonl"
    assert run("cache", "export", exported, "--cache", cache)[0] == 0
    assert run("cache", "import", exported, "--cache", tmp_path / "d.sqlite")[0] == 0
    again = (
        "judge",
        data / "replay.csv",
        "--out",
        out,
        "--cache",
        tmp_path / "d.sqlite",
    )
    assert run(*again)[0] == 0


def test_a_dry_run_shows_the_bill_and_sends_nothing(
    run: Run, root: Path, tmp_path: Path
) -> None:
    """Calls, tokens and USD, expected and at most; nobody has to listen for it."""
    code, out, err = run(
        "judge",
        root / "data/calibration.csv",
        *("--model", "m", "--base-url", "http://127.0.0.1:9/v1"),
        *("--price", "1", "2", "--sample", "30"),
        *("--cache", tmp_path / "c.sqlite", "--dry-run"),
    )
    assert (code, err) == (0, "")
    assert "30 to ask for" in out
    found = re.search(r"USD: about ([\d.]+), at most ([\d.]+)", out)
    assert found
    assert 0 < float(found[1]) < float(found[2]) < 1


def test_judge_says_before_it_spends(run: Run, root: Path, tmp_path: Path) -> None:
    """An output that cannot be written is refused before anything is judged."""
    replies = root / "data/replay.csv"
    code, _, err = run("judge", replies, "--out", tmp_path / "no/such/v.csv")
    assert code == 1
    assert "nothing was judged" in err
    assert run("judge", replies, "--out", tmp_path / "v.xlsx")[0] == 1
    assert run("judge", replies)[0] == 2


def test_report_lists_parameters_and_refuses_unknown(run: Run, tmp_path: Path) -> None:
    """`report --list` teaches; a misspelt parameter is exit 1 and writes nothing."""
    code, out, _ = run("report", "04_experiment_readout", "--list")
    assert code == 0
    assert "control: str = 'control'" in out
    words = ("report", "04_experiment_readout", "-p", "contrl", "x", "--out", tmp_path)
    code, _, err = run(*words)
    assert code == 1
    assert "Did you mean 'control'" in err
    assert list(tmp_path.iterdir()) == []


def test_module_and_script_are_the_same() -> None:
    """`python -m reply_resolution` is the console script."""
    done = subprocess.run(
        [sys.executable, "-m", "reply_resolution", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("reply-resolution ")


def test_every_option_is_explained() -> None:
    """No option of any verb is left to be guessed: a help text or a telling name."""
    waiting = [build_parser()]
    seen = 0
    while waiting:
        for action in waiting.pop()._actions:
            seen += 1
            if isinstance(action.choices, dict):
                waiting += action.choices.values()
            assert action.help or action.metavar, action
    assert seen > 60


def test_running_a_notebook_compiles_no_grammar():
    """Two seconds of every report: jsonschema's optional grammar is left out."""
    code = (
        "import sys; from reply_resolution import commands; commands._quick_imports();"
        "import nbformat, papermill; print('lark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_output_is_utf8_in_every_locale(table: Path) -> None:
    """Arms of any script and the minus sign are printed under a Western locale too."""
    frame = pl.read_parquet(table)
    arm = pl.col("arm").replace("treatment", "日本")
    frame.with_columns(arm).write_parquet(table)
    words = ["-m", "reply_resolution", "compare", str(table), "--control", "control"]
    for more in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, *words, *more],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "cp1252"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "日本" in done.stdout.decode("utf-8")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_message(table: Path) -> None:
    """A result that cannot be written: exit 1, one line, no traceback."""
    words = ("compare", str(table), "--control", "control", "--json")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "reply_resolution", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_judge_never_writes_over_its_input_or_a_folder(
    run: Run, tmp_path: Path, root: Path
) -> None:
    """Both are refused before anything is sent, and nothing is left behind."""
    replies = tmp_path / "replies.csv"
    replies.write_bytes((root / "data" / "replay.csv").read_bytes())
    before = replies.read_bytes()
    (tmp_path / "d.csv").mkdir()
    for out, word in ((replies, "themselves"), (tmp_path / "d.csv", "folder")):
        code, _, err = run("judge", replies, "--out", out, "--model", "m")
        assert code == 1
        assert word in err
    assert replies.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.csv", "replies.csv"]


def test_importing_a_file_that_is_not_there_makes_no_cache(
    run: Run, tmp_path: Path
) -> None:
    """The name is checked before the cache is opened."""
    new = tmp_path / "new.sqlite"
    code, _, err = run("cache", "import", tmp_path / "no.jsonl", "--cache", new)
    assert code == 1
    assert "no.jsonl" in err
    assert not new.exists()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("compare", "--control", "control", "--score", "scroe"), "score"),
        (("agreement", "--judge", "Scores"), "score"),
        (("length-bias", "--label", "scroe"), "score"),
    ],
)
def test_a_misspelt_column_is_guessed(
    run: Run, table: Path, words: tuple[str, ...], meant: str
) -> None:
    """The error proposes the column that looks most like it."""
    code, _, err = run(words[0], table, *words[1:])
    assert code == 1
    assert f"Did you mean {meant!r}?" in err


def test_collapse_takes_the_treatment(run: Run, table: Path) -> None:
    """With several arms, --treatment says which; its note says so."""
    frame = pl.read_parquet(table)
    third = frame.filter(pl.col("arm") == "treatment").with_columns(arm=pl.lit("third"))
    pl.concat([frame, third]).write_parquet(table)
    words = ("collapse", table, "--control", "control", "--json")
    assert "--treatment" in run(*words)[1]
    assert "left out" not in run(*words, "--treatment", "third")[1]

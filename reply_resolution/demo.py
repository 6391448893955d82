"""The bundled experiment, from recorded verdicts to four reports, with no key."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
import json
from pathlib import Path
import subprocess
import sys
import time
from typing import Any

from reply_resolution import terminal
from reply_resolution.errors import ReportError
from reply_resolution.inputs import root

#: The judge whose answers are bundled; the address is a name, nothing is ever sent.
RECORDED: dict[str, Any] = {"model": "recorded-judge", "base_url": "recorded:"}
#: Tables of replies with the table of what the recorded judge said of them.
_TABLES = {
    "experiment.csv": "verdicts_experiment.jsonl",
    "replay.csv": "verdicts_replay.jsonl",
    "calibration.csv": "verdicts_calibration.jsonl",
}


def run_demo(out: Path, *, pdf: bool | None = None) -> int:
    """Judge the bundled tables from the recording, then run all four notebooks.

    Args:
        out: Folder for the cache, the verdict tables and the reports.
        pdf: As in `run_report`.

    Returns:
        The exit code, 0.

    Raises:
        ReportError: A notebook failed.
    """
    started = time.monotonic()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"the folder {out} cannot be made: {error}.") from error
    verdicts = _judge_all(out)
    _report_all(out, verdicts, pdf)
    readout = json.loads((out / "readout.json").read_text("utf-8"))
    terminal.say(f"all four reports in {time.monotonic() - started:.0f} s")
    print(readout["recommendation"]["sentence"])
    for page in sorted(out.glob("0*.html")):
        print(page)
    return 0


def _judge_all(out: Path) -> dict[str, str]:
    from reply_resolution.commands import write_table
    from reply_resolution.judge.judge import judge_replies, record
    from reply_resolution.tables.replies import read_replies
    from reply_resolution.tables.verdicts import read_verdicts

    data = root() / "data"
    cache = str(out / "cache.sqlite")
    written = {}
    rows = calls = 0
    for table, recording in _TABLES.items():
        replies = read_replies(data / table).frame
        recorded = read_verdicts(data / recording).frame
        record(replies, recorded, **RECORDED, cache=cache)
        run = judge_replies(
            replies, **RECORDED, cache=cache, offline=True, progress=False
        )
        rows += run.summary.rows
        calls += run.summary.calls
        written[table] = str(out / recording)
        write_table(run.verdicts, written[table])
    terminal.say(
        f"{rows} replies scored from the recorded verdicts, {calls} new calls "
        f"(cache: {cache})"
    )
    return written


def _report_all(out: Path, verdicts: Mapping[str, str], pdf: bool | None) -> None:
    experiment = {"verdicts": verdicts["experiment.csv"]}
    # The readout reads what the calibration wrote; the other two wait for nobody.
    lanes: list[list[tuple[str, dict[str, Any]]]] = [
        [
            ("01_calibrate_judge", {}),
            (
                "04_experiment_readout",
                {**experiment, "calibration": str(out / "calibration.json")},
            ),
        ],
        [("02_length_bias", {}), ("03_collapse_to_binary", experiment)],
    ]
    with ThreadPoolExecutor(len(lanes)) as pool:
        for _ in pool.map(lambda lane: list(_lane(lane, out, pdf)), lanes):
            pass


def _lane(
    lane: list[tuple[str, dict[str, Any]]], out: Path, pdf: bool | None
) -> Iterator[None]:
    for notebook, parameters in lane:
        command = [sys.executable, "-m", "reply_resolution", "report", notebook]
        command += ["--out", str(out)]
        for name, value in parameters.items():
            command += ["-p", name, str(value)]
        if pdf is False:
            command.append("--no-pdf")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ReportError(f"{notebook}: {done.stderr.strip()}")
        terminal.say(f"{notebook}: {out / notebook}.html")
        yield

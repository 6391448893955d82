"""The widgets in a real JupyterLab in Chromium, driven by keys.

The server is started here on a free loopback port, in a folder of its own.
"""

from collections.abc import Callable, Iterator
import json
import os
from pathlib import Path
import secrets
import signal
import socket
import subprocess
import sys
import time
from typing import Any
from urllib.request import urlopen

import nbformat
import polars as pl
import pytest

from reply_resolution.labeling.files import read_events
from reply_resolution.labeling.session import LabelSession
from reply_resolution.tables.labels import read_labels

pytestmark = pytest.mark.browser

ARMS = ("zebra7f3a", "okapi9c1d")
EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
LABEL = """\
import os
from pathlib import Path
from reply_resolution.labeling.session import LabelSession, draw_for_labels
from reply_resolution.tables.replies import read_replies

Path("kernel.pid").write_text(str(os.getpid()))
replies = read_replies("replies.csv", need_arm=True).frame
items = draw_for_labels(replies, {count}, seed=1)
session = LabelSession.open("labels/anna.jsonl", items, annotator="anna", repeats=0)
session.widget()"""
EXPLORE = """\
import polars as pl
from reply_resolution.labeling.explore import browse

browse(pl.read_ndjson("verdicts.jsonl"))"""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory, browser: str
) -> Iterator[tuple[str, str, Path]]:
    """A JupyterLab of our own: its address, token and folder."""
    home = tmp_path_factory.mktemp("jupyter")
    work = home / "work"
    work.mkdir()
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(
        '{"fetchNews": "false", "checkForUpdates": false}'
    )
    port, token = free_port(), secrets.token_hex(16)
    variables = {
        "HOME": home,
        "IPYTHONDIR": home / "ipython",
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
    }
    log = (home / "server.log").open("wb")
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
            *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={work}"),
        ],
        env={**os.environ, **{k: str(v) for k, v in variables.items()}},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            if server.poll() is not None:
                break
            try:
                with urlopen(f"{address}/api/status?token={token}", timeout=5):
                    break
            except OSError:
                time.sleep(0.25)
        else:
            server.kill()
        assert server.poll() is None, (home / "server.log").read_text()[-2000:]
        yield address, token, work
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


@pytest.fixture(scope="module")
def chromium(browser: str) -> Iterator[Any]:
    """A Chromium that playwright drives."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        running = play.chromium.launch(
            executable_path=browser, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page that remembers all that the server sent it (`page.sent`)."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    tab.sent = []
    tab.dialogs = []

    def on_socket(connection: Any) -> None:
        connection.on("framereceived", lambda data: tab.sent.append(data))

    def on_response(response: Any) -> None:
        if "/api/" in response.url:
            tab.sent.append(response)

    def on_dialog(dialog: Any) -> None:
        tab.dialogs.append(dialog.message)
        dialog.dismiss()

    tab.on("websocket", on_socket)
    tab.on("response", on_response)
    tab.on("dialog", on_dialog)
    yield tab
    context.close()


def all_sent(page: Any) -> str:
    """Everything the browser was sent over sockets and by the server's interface."""
    out = []
    for item in page.sent:
        if isinstance(item, (str, bytes)):
            out.append(item if isinstance(item, str) else item.decode(errors="replace"))
        elif item.status == 200:
            out.append(item.text())
    return "\n".join(out)


def write_notebook(path: Path, source: str) -> None:
    """A notebook with one cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(notebook, path)


def open_notebook(page: Any, lab: tuple[str, str, Path], name: str) -> None:
    """Open a notebook in the page and wait for its kernel."""
    address, token, _ = lab
    page.goto(f"{address}/lab/tree/{name}?token={token}&reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    wait_idle(page)


def wait_idle(page: Any) -> None:
    """Wait until the kernel says that it is idle."""
    page.wait_for_selector(
        '.jp-NotebookPanel-toolbar .jp-Notebook-ExecutionIndicator[data-status="idle"]',
        state="attached",
    )


def run_cell(page: Any) -> Any:
    """Run the notebook's first cell; the box of its widget that takes keys."""
    run = '[data-command="notebook:run-cell-and-select-next"]:visible'
    first = page.locator(".jp-CodeCell").first
    for _ in range(20):
        # a click before the kernel is really connected is lost without a word
        first.locator(".cm-content").click()
        page.locator(f".jp-NotebookPanel-toolbar {run}").first.click()
        page.wait_for_timeout(500)
        if first.locator(".jp-InputPrompt").inner_text().strip() != "[ ]:":
            break
        page.wait_for_timeout(1500)
    box = page.locator('.jp-OutputArea-output input[placeholder*="1 to 5"]').first
    box.wait_for()
    return box


def write_replies(work: Path, count: int) -> pl.DataFrame:
    """Replies of two arms whose names, ids and reasons must not reach the browser."""
    rows = count + 10
    frame = pl.DataFrame(
        {
            "request_id": [f"hidden-{i:04d}-id" for i in range(rows)],
            "arm": [ARMS[i % 2] for i in range(rows)],
            "request": [f"Question number {i}?" for i in range(rows)],
            "reply": [f"Answer number {i}. {EVIL}" for i in range(rows)],
            "score": [1 + i % 5 for i in range(rows)],
            "reason": [f"judge-thought-{i:04d}" for i in range(rows)],
        }
    )
    frame.write_csv(work / "replies.csv")
    return frame


def status(page: Any) -> str:
    """The bold part of the widget's status line."""
    return str(
        page.locator('.jp-OutputArea-output p[role="status"] strong').inner_text()
    )


def until(page: Any, test: Callable[[str], bool]) -> None:
    """Wait until the status line passes the test."""
    for _ in range(300):
        if test(status(page)):
            return
        page.wait_for_timeout(30)
    raise AssertionError(f"the status stayed {status(page)!r}")


@pytest.mark.parametrize("count", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_labelling_by_keys_survives_a_killed_kernel(
    lab: tuple[str, str, Path], page: Any, count: int
):
    """None lost, none doubled, none given to another reply; nothing unblinding sent."""
    work = lab[2]
    labels = work / "labels" / "anna.jsonl"
    labels.unlink(missing_ok=True)
    frame = write_replies(work, count)
    write_notebook(work / "label.ipynb", LABEL.format(count=count))
    open_notebook(page, lab, "label.ipynb")
    box = run_cell(page)

    def press(key: str, answered: int) -> None:
        page.wait_for_timeout(300)  # longer than the guard against held keys
        box.press(key)
        until(page, lambda text: text.startswith(f"{answered} / {count}"))

    # what would cut or delete the cell in JupyterLab's command mode does nothing
    box.click()
    cells = page.locator(".jp-CodeCell").count()
    for key in ("x", "d", "d"):
        page.wait_for_timeout(300)
        box.press(key)
    page.wait_for_selector("text=means nothing here")
    assert page.locator(".jp-CodeCell").count() == cells

    typed = [str(1 + (7 * i) % 5) for i in range(count)]
    middle = count // 2
    for i in range(middle):
        press(typed[i], i + 1)
    press("u", middle - 1)
    press(typed[middle - 1], middle)

    os.kill(int((work / "kernel.pid").read_text()), signal.SIGKILL)
    page.wait_for_selector(".jp-Dialog-content")  # "the kernel appears to have died"
    page.locator(".jp-Dialog-content button.jp-mod-accept").first.click()
    wait_idle(page)
    run_cell(page)
    page.wait_for_selector(f"text=Going on after {middle} of {count}")
    box = page.locator('.jp-OutputArea-output input[placeholder*="1 to 5"]').first
    for i in range(middle, count):
        press(typed[i], i + 1)
    page.wait_for_selector("text=Thank you")

    saved = read_labels(labels).frame
    assert saved.height == count
    assert saved["request_id"].n_unique() == count
    events, cut = read_events(labels)
    assert cut == 0
    assert sum(e["event"] == "label" for e in events) == count + 1  # one was undone
    drawn = frame.filter(pl.col("request_id").is_in(saved["request_id"].implode()))
    session = LabelSession.open(work / "none.jsonl", drawn, annotator="anna", repeats=0)
    number = dict(frame.select("request", "request_id").rows())
    wanted = {
        number[card.request]: int(key)
        for card, key in zip(session.cards(), typed, strict=True)
    }
    assert dict(saved.select("request_id", "label").rows()) == wanted

    sent = all_sent(page)
    assert "Question number" in sent  # what was sent is really being looked at
    for secret in (*ARMS, "judge-thought", "hidden-0"):
        assert secret not in sent
    assert page.evaluate("window.hacked") is None
    assert page.dialogs == []


def test_a_key_held_down_in_the_browser_labels_once(
    lab: tuple[str, str, Path], page: Any
):
    """Thirty repeats of a key, 30 ms apart, are one label."""
    work = lab[2]
    (work / "labels" / "anna.jsonl").unlink(missing_ok=True)
    write_replies(work, 25)
    write_notebook(work / "held.ipynb", LABEL.format(count=25))
    open_notebook(page, lab, "held.ipynb")
    box = run_cell(page)
    box.click()
    page.wait_for_timeout(400)
    page.evaluate(
        """async () => {
            for (let i = 0; i < 30; i++) {
                document.execCommand("insertText", false, "4");
                await new Promise(done => setTimeout(done, 30));
            }
        }"""
    )
    page.wait_for_timeout(1000)
    assert status(page).startswith("1 / 25")
    assert read_labels(work / "labels" / "anna.jsonl").frame.height == 1


def test_exploring_by_keys_and_mouse(lab: tuple[str, str, Path], page: Any):
    """Next, score, arm, pair mate; the dropdown; markup in texts stays text."""
    from playwright.sync_api import expect

    work = lab[2]
    rows = [
        {
            "request_id": f"r{i // 2}",
            "arm": "AB"[i % 2],
            "request": f"Question {i // 2}? {EVIL}",
            "reply": f"Answer {i}. {EVIL}",
            "reason": f"Reason {i}. {EVIL}",
            "score": 1 + i % 5,
            "status": "scored",
            "label_a": 3,
        }
        for i in range(20)
    ]
    (work / "verdicts.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    write_notebook(work / "explore.ipynb", EXPLORE)
    open_notebook(page, lab, "explore.ipynb")
    box = run_cell(page)
    output = page.locator(".jp-OutputArea-output")

    def press(key: str, place: str, shows: str) -> None:
        box.press(key)
        until(page, lambda text: text == place)
        expect(output.first).to_contain_text(shows)

    box.click()
    press("j", "2 / 20", "Answer 1.")
    press("m", "1 / 20", "Reply of arm A")
    press("4", "1 / 4", "Answer 3.")
    press("0", "4 / 20", "Answer 3.")
    press("a", "1 / 10", "Reply of arm A")
    press("e", "10 / 10", "Answer 18.")
    page.get_by_role("button", name="Pair mate").click()
    until(page, lambda text: text == "20 / 20")
    output.locator("select").first.select_option(label="B")
    until(page, lambda text: text == "10 / 10")
    expect(output.first).to_contain_text("Reason 19.")
    assert "<script>window.hacked=1</script>" in output.first.inner_text()
    assert page.locator(".jp-OutputArea-output img").count() == 0
    assert page.evaluate("window.hacked") is None
    assert page.dialogs == []

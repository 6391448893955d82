"""Run a notebook with papermill and export it as a page that needs nothing else.

Papermill swallows a misspelt parameter and never checks a type; this runner refuses
both. The exported page has no scripts and no network addresses, and says so to the
browser by a content security policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import os
from pathlib import Path
import re
import shutil
import subprocess
import tempfile
import time
from typing import Any

from reply_resolution.errors import ReportError
from reply_resolution.inputs import root
from reply_resolution.parameters import check_values, notebook_parameters

#: Seconds one cell may take. A timeout also bounds nbclient's rare missed wake-up.
CELL_TIMEOUT = 600
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")


@dataclass(frozen=True, slots=True)
class Report:
    """What one run of a notebook wrote.

    Attributes:
        notebook: The executed notebook.
        html: The page.
        pdf: The same page as PDF, or None where no Chromium was found.
        seconds: Wall time of execution and export.
    """

    notebook: Path
    html: Path
    pdf: Path | None
    seconds: float


def find_notebook(name: str | Path) -> Path:
    """The path of a notebook given by path or by the name of one of the bundled ones.

    Raises:
        ReportError: There is no such notebook; the message lists the bundled ones.
    """
    path = Path(name)
    if path.is_file():
        return path
    bundled = root() / "notebooks"
    stem = path.name.removesuffix(".ipynb")
    if path.name == str(name) and (bundled / f"{stem}.ipynb").is_file():
        return bundled / f"{stem}.ipynb"
    names = ", ".join(sorted(p.stem for p in bundled.glob("*.ipynb")))
    raise ReportError(
        f"there is no notebook {str(name)!r}. Give the path of an .ipynb file or one "
        f"of the bundled names: {names}."
    )


def run_report(
    notebook: str | Path,
    parameters: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "out",
    pdf: bool | None = None,
    timeout: int = CELL_TIMEOUT,
) -> Report:
    """Execute a notebook with parameters and export its report.

    Args:
        notebook: Path of a notebook, or the name of a bundled one.
        parameters: Name to value; strings are read as the parameter's type.
        out: Folder for NAME.ipynb (executed), NAME.html and NAME.pdf, made if needed.
        pdf: True insists on a PDF, False leaves it out, None makes one where Chromium
            is installed.
        timeout: Seconds one cell may take.

    Raises:
        ParameterError: A parameter the notebook doesn't have, or of a wrong type.
        ReportError: The notebook failed (its last lines in the message; the executed
            notebook is kept as NAME.failed.ipynb), or Chromium is missing or failed.
    """
    started = time.monotonic()
    path = find_notebook(notebook)
    known = notebook_parameters(path)
    values = check_values(known, parameters or {}, path.stem)
    browser = find_browser()
    if pdf and browser is None:
        raise ReportError(
            "a PDF needs Chromium (looked for: " + ", ".join(_BROWSERS) + "), and none "
            "is installed. Install it (Debian: apt-get install chromium) or leave out "
            "--pdf: the HTML report prints well from any browser."
        )
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"the folder {folder} cannot be made: {error}.") from error
    if "out" in known and "out" not in values:
        values["out"] = str(folder)
    if "interactive" in known and "interactive" not in values:
        values["interactive"] = False

    executed = folder / f"{path.stem}.ipynb"
    _execute(path, executed, values, timeout)
    page = folder / f"{path.stem}.html"
    _write(page, export_html(executed))
    printed = None
    if browser is not None and pdf is not False:
        printed = folder / f"{path.stem}.pdf"
        print_pdf(page, printed, browser=browser)
    return Report(executed, page, printed, time.monotonic() - started)


def _execute(path: Path, executed: Path, values: dict[str, Any], timeout: int) -> None:
    import nbformat  # papermill and its kin take 2 s to import
    import papermill
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    book = nbformat.read(path, as_version=4)
    book.cells = [
        c for c in book.cells if "interactive" not in c.metadata.get("tags", [])
    ]
    config = Config()
    with (
        tempfile.TemporaryDirectory(dir=executed.parent) as scratch,
        tempfile.TemporaryDirectory(prefix="rr-") as sockets,
    ):
        if os.name == "posix":
            # Sockets in the file system: no open port. Each run has its own folder;
            # the default is the working directory, where two runs would meet.
            config.KernelManager.transport = "ipc"
            config.KernelManager.ip = f"{sockets}/kernel"
        draft = Path(scratch) / executed.name
        try:
            papermill.execute_notebook(
                book,
                draft,
                parameters=values,
                kernel_name="python3",
                cwd=os.getcwd(),
                progress_bar=False,
                execution_timeout=timeout,
                start_timeout=60,
                config=config,
            )
        except PapermillExecutionError as error:
            failed = executed.with_suffix(".failed.ipynb")
            os.replace(draft, failed)
            raise ReportError(
                f"{path.name} stopped: {error.ename}: {error.evalue}\n"
                f"The executed notebook is kept as {failed}; the cell that failed is "
                "marked at its top."
            ) from error
        except Exception as error:  # a dead kernel, a cell over its time
            raise ReportError(
                f"{path.name} could not be run: {type(error).__name__}: {error}"
            ) from error
        executed.with_suffix(".failed.ipynb").unlink(missing_ok=True)
        os.replace(draft, executed)


def export_html(executed: str | Path) -> str:
    """The page of an executed notebook: no scripts, no network, light, dark and print.

    Inputs are left out (the executed notebook has them). Raw HTML inside Markdown
    outputs is escaped: text of users enters a page as text.

    Args:
        executed: Path of the executed notebook.
    """
    from nbconvert import HTMLExporter
    import nbformat
    from traitlets.config import Config

    book = nbformat.read(Path(executed), as_version=4)
    for cell in book.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:  # one representation: nbconvert prefers others
                output["data"] = {"text/html": data["text/html"]}
            elif "text/markdown" in data:
                output["data"]["text/markdown"] = _no_markup(data["text/markdown"])
    book.metadata["title"] = _title(book.cells, Path(executed).stem)
    config = Config()
    config.TagRemovePreprocessor.enabled = True
    config.TagRemovePreprocessor.remove_cell_tags = {
        "parameters",
        "injected-parameters",
        "remove-cell",
        "interactive",
    }
    here = Path(__file__).parent
    exporter = HTMLExporter(
        config=config,
        template_name="report_template",
        extra_template_basedirs=[str(here)],
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    page, _ = exporter.from_notebook_node(book)
    return _tidy(page)


def _no_markup(text: str | list[str]) -> str:
    return "".join(text).replace("<", "&lt;")


def _title(cells: list[Any], default: str) -> str:
    for cell in cells:
        match = re.search(r"^# +(.+)$", cell["source"], re.MULTILINE)
        if cell["cell_type"] == "markdown" and match:
            return match.group(1).strip()
    return default


def _tidy(page: str) -> str:
    # Wrappers that only JupyterLab's own style sheet needs, and blank lines.
    page = re.sub(r'<a class="anchor-link"[^>]*>.*?</a>', "", page)
    return re.sub(r"\n\s*\n+", "\n", page).strip() + "\n"


def find_browser() -> str | None:
    """The command of an installed Chromium or Chrome, or None."""
    return next((found for b in _BROWSERS if (found := shutil.which(b))), None)


def print_pdf(page: str | Path, pdf: str | Path, *, browser: str) -> None:
    """Print a page to a tagged PDF with Chromium.

    Raises:
        ReportError: Chromium failed or took over a minute; its last words are given.
    """
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-pdf-header-footer",
            f"--user-data-dir={profile}",
            f"--print-to-pdf={Path(pdf).resolve()}",
            Path(page).resolve().as_uri(),
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium refuses its sandbox to root
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=60, check=False
            )
            words = done.stderr.strip().splitlines()[-1:] or ["no message"]
        except subprocess.TimeoutExpired:
            words = ["no answer within 60 s"]
    if not Path(pdf).is_file():
        raise ReportError(
            f"{browser} could not print {page}: {words[0]}. The HTML report is "
            "complete; print it from a browser."
        )


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text(text, "utf-8")
    os.replace(draft, path)

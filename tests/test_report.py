"""The runner: parameters refused or read, a page without scripts, failures kept."""

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
import pytest

from reply_resolution.errors import ParameterError, ReportError
from reply_resolution.parameters import (
    check_values,
    parse_parameters,
    read_parameter_file,
)
from reply_resolution.report import find_browser, run_report

PARAMETERS = """\
alpha: float = 0.05  # error rate, two-sided
name: str = "a # b"  # any text
flag: bool = True  # a switch
floor: float = None  # smallest n; None keeps all
arms: list[str] = ["control"]  # arms
count: int = 3  # a number
interactive: bool = True  # False in batch runs
out: str = "out"  # folder"""


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """A small notebook with markup in its data, and a check of its parameters."""
    cells = [
        new_markdown_cell("# A <toy> of a report"),
        new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        new_code_cell(
            "import reply_resolution as rr\nrr.check_parameters(globals())",
            metadata={"tags": ["remove-input"]},
        ),
        new_code_cell("raise SystemError", metadata={"tags": ["interactive"]}),
        new_code_cell(
            "from IPython.display import Markdown, display\n"
            "display(Markdown(f'**{alpha}** {name} {flag} {interactive}'))\n"
            "assert count != 13, 'thirteen is not allowed'\n"
            "'the last expression'"
        ),
    ]
    book = new_notebook(cells=cells)
    book.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    path = tmp_path / "toy.ipynb"
    nbformat.write(book, path)
    return path


def test_parameters_are_read_as_python_not_line_by_line() -> None:
    """A second "=", a "#" in a string and an optional number are all kept."""
    found = parse_parameters(PARAMETERS + '\nrule: str = "a=b"  # has = in it')
    assert list(found)[-1] == "rule"
    assert found["name"].default == "a # b"
    assert found["alpha"].help == "error rate, two-sided"
    assert found["floor"].default is None


def test_values_are_read_by_their_annotation() -> None:
    """Command-line text becomes the parameter's type: "false" is not true."""
    known = parse_parameters(PARAMETERS)
    given = {
        "flag": "false",
        "alpha": "1e-3",
        "name": "007",
        "arms": "a, b",
        "floor": "none",
    }
    assert check_values(known, given, "toy") == {
        "flag": False,
        "alpha": 0.001,
        "name": "007",
        "arms": ["a", "b"],
        "floor": None,
    }


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("alhpa", "0.1", "Did you mean 'alpha'"),
        ("alpha", "hello", "'alpha' is a float"),
        ("alpha", "nan", "'alpha' is a float"),
        ("count", "3.5", "'count' is a int"),
        ("count", True, "'count' is a int"),
        ("flag", "maybe", "true or false"),
        ("name", 7, "quotes"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: object, words: str) -> None:
    """The message names the parameter, what was given and what is allowed."""
    with pytest.raises(ParameterError, match=words):
        check_values(parse_parameters(PARAMETERS), {name: value}, "toy")


def test_yaml_keeps_what_was_written(tmp_path: Path) -> None:
    """In a parameters file 007 stays text, a date stays text, a list is a list."""
    file = tmp_path / "p.yaml"
    file.write_text("name: 007\nday: 2026-11-02\narms: [a, b]\nflag: false\n")
    assert read_parameter_file(file) == {
        "name": "007",
        "day": "2026-11-02",
        "arms": ["a", "b"],
        "flag": "false",
    }
    file.write_text("- a\n")
    with pytest.raises(ParameterError, match="one mapping"):
        read_parameter_file(file)
    with pytest.raises(ParameterError, match="cannot be read"):
        read_parameter_file(tmp_path / "missing.yaml")


def test_a_run_writes_notebook_and_page(notebook: Path, tmp_path: Path) -> None:
    """The page has the result, no input, no script, and escapes text as text."""
    out = tmp_path / "out"
    given = {"name": "<script>alert(1)</script>", "alpha": "0.1"}
    report = run_report(notebook, given, out=out, pdf=False)
    page = report.html.read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<strong>0.1</strong>" in page
    assert "the last expression" in page
    assert "True False" in page  # flag, and interactive switched off
    assert "Markdown(f" not in page
    assert "<title>A &lt;toy&gt; of a report</title>" in page
    assert report.notebook.is_file()
    assert report.pdf is None


def test_a_failing_notebook_leaves_no_half_report(
    notebook: Path, tmp_path: Path
) -> None:
    """The error is the notebook's own sentence; the executed notebook is kept aside."""
    out = tmp_path / "out"
    with pytest.raises(ReportError, match="thirteen is not allowed"):
        run_report(notebook, {"count": "13"}, out=out, pdf=False)
    assert sorted(p.name for p in out.iterdir()) == ["toy.failed.ipynb"]


def test_an_error_of_ours_is_shown_without_our_code(tmp_path: Path) -> None:
    """In a notebook a wrong file name is one message, and still stops the run."""
    given = {"replies": "no-such.csv"}
    with pytest.raises(ReportError, match=r"TableError.*no-such"):
        run_report("04_experiment_readout", given, out=tmp_path, pdf=False)
    (kept,) = tmp_path.glob("*.failed.ipynb")
    book = nbformat.read(kept, as_version=4)
    outputs = [o for c in book.cells for o in c.get("outputs", [])]
    (error,) = (o for o in outputs if o.output_type == "error")
    assert "no-such.csv" in error.evalue
    assert len("\n".join(error.traceback).splitlines()) < 5


def test_bare_papermill_refuses_an_unknown_name(notebook: Path, tmp_path: Path) -> None:
    """The check cell itself stops what papermill only logs."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    book = nbformat.read(notebook, as_version=4)
    book.cells = [c for c in book.cells if c.source != "raise SystemError"]
    nbformat.write(book, notebook)
    with pytest.raises(PapermillExecutionError, match="no parameter 'alhpa'"):
        papermill.execute_notebook(
            notebook,
            tmp_path / "o.ipynb",
            parameters={"alhpa": 0.1},
            progress_bar=False,
        )
    with pytest.raises(PapermillExecutionError, match="'flag' must be bool"):
        papermill.execute_notebook(
            notebook,
            tmp_path / "o.ipynb",
            parameters={"flag": "false"},
            progress_bar=False,
        )


def test_unknown_notebook_lists_the_bundled_ones() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(ReportError, match="bundled names"):
        run_report("nothing_like_it")


@pytest.mark.browser
def test_pdf_through_chromium(notebook: Path, tmp_path: Path, browser: str) -> None:
    """Where Chromium is installed, the page is also a PDF."""
    assert find_browser() == browser
    report = run_report(notebook, out=tmp_path / "out", pdf=True)
    assert report.pdf is not None
    assert report.pdf.read_bytes()[:5] == b"%PDF-"

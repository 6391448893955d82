"""Every notebook: clean in git, parameters readable, runs, exports an honest page."""

from html.parser import HTMLParser
import json
from pathlib import Path
import re
from typing import Any

import pytest

from reply_resolution.errors import ParameterError
from reply_resolution.parameters import notebook_parameters
from reply_resolution.report import run_report

NAMES = (
    "01_calibrate_judge",
    "02_length_bias",
    "03_collapse_to_binary",
    "04_experiment_readout",
)
SHARED = (
    "replies",
    "verdicts",
    "labels",
    "control",
    "cache",
    "out",
    "seed",
    "interactive",
)


def _cells(root: Path, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    book = json.loads((root / "notebooks" / f"{name}.ipynb").read_text("utf-8"))
    return book, book["cells"]


@pytest.mark.parametrize("name", NAMES)
def test_notebook_is_committed_clean(root: Path, name: str) -> None:
    """No outputs, counts or widget state in git; the kernel is plain python3."""
    book, cells = _cells(root, name)
    repair = (
        f"repair: jupyter nbconvert --clear-output --inplace notebooks/{name}.ipynb"
    )
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    assert not {"widgets", "papermill"} & set(book["metadata"]), repair
    for cell in cells:
        assert cell["id"]
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], repair
            assert cell["execution_count"] is None, repair


@pytest.mark.parametrize("name", NAMES)
def test_notebook_reads_like_a_page(root: Path, name: str) -> None:
    """Few lines a cell, prose between them, no magics, a title with a question."""
    _, cells = _cells(root, name)
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert len(code) <= 25
    for source in code[1:]:  # the parameters cell is one line a parameter
        assert len(source.splitlines()) <= 15, source
        assert not re.search(r"^\s*[%!]", source, re.MULTILINE), source
    assert "?" in "".join(cells[0]["source"])
    assert "parameters" in cells[1]["metadata"]["tags"]


@pytest.mark.parametrize("name", NAMES)
def test_papermill_reads_the_same_parameters(root: Path, name: str) -> None:
    """Papermill's line reader loses none of them, and each one is explained."""
    import papermill

    path = root / "notebooks" / f"{name}.ipynb"
    ours = notebook_parameters(path)
    theirs = papermill.inspect_notebook(str(path))
    assert list(theirs) == list(ours)
    assert all(p["inferred_type_name"] != "None" for p in theirs.values())
    assert all(p.help for p in ours.values())
    assert [n for n in SHARED if n not in ours] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelt_parameter_is_refused(name: str, tmp_path: Path) -> None:
    """The runner names the nearest parameter and runs nothing."""
    with pytest.raises(ParameterError, match="Did you mean 'control'"):
        run_report(name, {"contrl": "a"}, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The four reports on the bundled data, as `demo` makes them."""
    from reply_resolution.demo import run_demo

    out = tmp_path_factory.mktemp("demo") / "out"
    assert run_demo(out, pdf=False) == 0
    return {name: (out / f"{name}.html").read_text("utf-8") for name in NAMES}


class _Page(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.mark.parametrize("name", NAMES)
def test_report_needs_nothing_else(pages: dict[str, str], name: str) -> None:
    """No script, no address on the network, alt text on every figure, small."""
    page = _Page(pages[name])
    assert len(pages[name].encode()) < 200_000
    for tag, attributes in page.tags:
        assert tag not in {"script", "iframe", "object", "embed", "link"}
        assert not [a for a in attributes if a.startswith("on")], attributes
        for key in ("src", "href", "xlink:href"):
            value = attributes.get(key) or ""
            assert not re.match(r"(https?:)?//", value), value
        if tag == "img":
            assert attributes.get("alt")
        if tag == "figure":
            assert len(attributes.get("aria-label") or "") > 30
        if tag == "th":
            assert attributes.get("scope"), pages[name]
    assert not re.search(r"url\((?!#)", pages[name])
    assert "figure" in [tag for tag, _ in page.tags]


@pytest.mark.parametrize("name", NAMES)
def test_report_says_where_the_data_come_from(pages: dict[str, str], name: str) -> None:
    """Bundled numbers never stand without their provenance."""
    assert "simulated" in pages[name]
    assert "nan" not in re.findall(r"\bnan\b", re.sub(r"<[^>]+>", " ", pages[name]))


def test_reports_never_promise_too_much(pages: dict[str, str]) -> None:
    """The words that oversell are in none of them."""
    for page in pages.values():
        text = re.sub(r"<[^>]+>", " ", page).lower()
        for words in ("trending", "almost significant", "95% probability"):
            assert words not in text

"""The package as it is installed: light, agreeing with environment.yml, documented."""

import ast
import json
from pathlib import Path
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

import reply_resolution

HEAVY = (
    "openai",
    "statsmodels",
    "pandas",
    "matplotlib",
    "scipy",
    "polars",
    "papermill",
)


def test_import_is_light() -> None:
    """`import reply_resolution` loads none of the heavy libraries."""
    code = (
        "import sys, reply_resolution; "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_every_public_name_resolves() -> None:
    """Each name in `__all__` exists and has a docstring."""
    for name in reply_resolution.__all__:
        value = getattr(reply_resolution, name)
        assert name == "__version__" or value.__doc__, name


def test_type_checkers_see_the_same_names_as_python() -> None:
    """The imports for type checkers name what is loaded lazily, from the same place."""
    tree = ast.parse(Path(reply_resolution.__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == reply_resolution._NAMES


def test_every_public_name_is_shown_to_readers(root: Path) -> None:
    """Each public name appears in the README or in a notebook."""
    text = (root / "README.md").read_text("utf-8")
    for path in (root / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            text += "".join(cell["source"])
    shown = set(re.findall(r"\w+", text))
    missing = [n for n in reply_resolution.__all__ if n not in shown]
    assert missing == ["__version__"] or missing == []


def test_environment_agrees_with_pyproject(root: Path) -> None:
    """Conda and pip users get the same packages with the same bounds."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    conda = yaml.safe_load((root / "environment.yml").read_text("utf-8"))
    names = [d for d in conda["dependencies"] if isinstance(d, str) and d != "pip"]
    assert f"python{project['requires-python']}" in names
    assert sorted(n for n in names if not n.startswith("python>")) == sorted(
        project["dependencies"]
    )
    assert conda["dependencies"][-1] == {"pip": ["-e ."]}


def test_ci_runs_the_readmes_test_command(root: Path) -> None:
    """`.ci/run` is the README's second command and nothing else."""
    commands = re.findall(
        r"```sh\n(.*?)\n```", (root / "README.md").read_text("utf-8"), re.DOTALL
    )
    script = (root / ".ci" / "run").read_text("utf-8").strip().splitlines()
    assert script[-1] == commands[1]


@pytest.mark.parametrize("folder", ["reply_resolution", "tests", "notebooks", "data"])
def test_no_machine_in_a_committed_file(root: Path, folder: str) -> None:
    """No file names a path of somebody's machine."""
    pattern = re.compile(r"/(?:home|root|Users|work)/[\w.-]+/")
    for path in (root / folder).rglob("*"):
        if path.suffix in {".py", ".ipynb", ".md", ".json", ".toml", ".j2"}:
            assert not pattern.search(path.read_text("utf-8")), path


def test_modules_stay_small(root: Path) -> None:
    """No module is much over 400 lines: split where one grows."""
    long = {
        str(p.relative_to(root)): n
        for p in (root / "reply_resolution").rglob("*.py")
        if (n := len(p.read_text("utf-8").splitlines())) > 420
    }
    assert long == {}

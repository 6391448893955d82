"""Style is kept by tools: ruff and mypy find nothing."""

from pathlib import Path
import subprocess
import sys


def _run(root: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_lint(root: Path) -> None:
    """Ruff's rules hold in the package, the tests and the notebooks."""
    _run(root, "ruff", "check", ".")


def test_format(root: Path) -> None:
    """Everything is formatted; `ruff format .` repairs it."""
    _run(root, "ruff", "format", "--check", ".")


def test_types(root: Path) -> None:
    """The package passes mypy in strict mode."""
    _run(root, "mypy")

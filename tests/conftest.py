"""What several tests need: the project's root, and the demonstration data."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_report_header() -> str:
    """The versions that results may depend on."""
    from importlib.metadata import version
    import sqlite3

    names = ("numpy", "scipy", "polars", "statsmodels", "openai", "papermill")
    return ", ".join(f"{n} {version(n)}" for n in names) + (
        f", SQLite {sqlite3.sqlite_version}"
    )


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real human-labelled data; skipped where absent."""
    folder = Path(os.environ.get("REPLY_RESOLUTION_REAL_DATA", ROOT / "../shared/real"))
    if not folder.is_dir():
        pytest.skip(
            "the real human-labelled data are not here: they stay outside the "
            "repository; name their folder in REPLY_RESOLUTION_REAL_DATA"
        )
    return folder


@pytest.fixture(scope="session")
def browser() -> str:
    """Chromium's command; skipped where it is missing, failed if REQUIRE_BROWSER=1."""
    from reply_resolution.report import find_browser

    found = find_browser()
    if found is None:
        reason = "Chromium is not installed (Debian: apt-get install chromium)"
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(f"REQUIRE_BROWSER=1, and {reason}")
        pytest.skip(reason)
    return found

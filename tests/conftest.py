"""What several tests need: the project's root, and the demonstration data."""

from collections.abc import Callable, Iterator
import contextlib
from functools import partial
import os
from pathlib import Path
import shutil
import socket
import subprocess
import tempfile
from typing import NamedTuple
import uuid

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


class Postgres(NamedTuple):
    """A PostgreSQL server of our own."""

    url: str
    start: Callable[[], None]
    stop: Callable[[], None]


@pytest.fixture(scope="session")
def postgres(postgres_server: Postgres) -> str:
    """URL of a PostgreSQL server of our own on loopback; skipped where it is missing.

    Its user is `judge`, its password `marked-secret`.
    """
    return postgres_server.url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """That server; it has a data folder of its own and is as durable as Debian's.

    A test that stops it starts it again; it ends with the tests.
    """
    pytest.importorskip(
        "psycopg", reason="no psycopg: pip install 'reply-resolution[postgres]'"
    )
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which(
        "pg_ctl", path=os.pathsep.join([*map(str, places), os.environ["PATH"]])
    )
    if found is None:
        pytest.skip("no PostgreSQL server (Debian: apt-get install postgresql)")
    programs = Path(found).resolve().parent
    # Not in pytest's folder, which is closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="reply_resolution_postgres_"))
    as_user: list[str] = []
    if os.getuid() == 0:  # it refuses to be root
        as_user = ["runuser", "-u", "nobody", "--"]
        shutil.chown(folder, "nobody")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "password").write_text("marked-secret")
    (folder / "password").chmod(0o644)

    def run(program: str, *words: str) -> None:
        done = subprocess.run(
            [*as_user, str(programs / program), *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()

    data = str(folder / "data")
    run(
        *("initdb", "-D", data, "-U", "judge", "-E", "UTF8", "--locale=C"),
        *("-A", "scram-sha-256", f"--pwfile={folder / 'password'}"),
    )
    options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories="
    log = str(folder / "log")
    url = f"postgresql://judge:marked-secret@127.0.0.1:{port}/postgres"
    start = partial(run, "pg_ctl", "start", "-w", "-D", data, "-l", log, "-o", options)
    stop = partial(run, "pg_ctl", "stop", "-w", "-m", "immediate", "-D", data)
    start()
    try:
        yield Postgres(url, start, stop)
    finally:
        stop()
        shutil.rmtree(folder)


@pytest.fixture
def new_schema(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Gives URLs of caches that do not exist yet, each a schema of its own."""
    made: list[str] = []

    def make() -> str:
        url = request.getfixturevalue("postgres")
        made.append(f"{url}?schema=t{uuid.uuid4().hex[:12]}")
        return made[-1]

    yield make
    if made:
        import psycopg

        url = made[0].partition("?")[0]
        with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
            for each in made:
                schema = each.rpartition("=")[2]
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


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

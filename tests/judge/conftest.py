"""What the judge's tests share: a real HTTP server on loopback, and clean settings."""

from collections.abc import Callable, Iterator
import importlib.util
from pathlib import Path
import sys
from types import ModuleType
from typing import Any

import polars as pl
import pytest


def _load(name: str) -> ModuleType:
    """Load a helper that lies beside this file (tests/ is not a package)."""
    spec = importlib.util.spec_from_file_location(
        f"tests_judge_{name}", Path(__file__).parent / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_loopback = _load("loopback")


@pytest.fixture(scope="session")
def loopback() -> ModuleType:
    """The module: `say`, `verdict`, `error`, `completion`, `FAULTS`."""
    return _loopback


@pytest.fixture
def server() -> Iterator[Any]:
    """A fresh OpenAI-compatible server: behaves well until told otherwise."""
    with _loopback.Loopback() as running:
        yield running


@pytest.fixture(autouse=True)
def _clean_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, no endpoint and no cache of the machine reaches a test."""
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "OPENAI_API_VERSION",
        "AZURE_OPENAI_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REPLY_RESOLUTION_CACHE", str(tmp_path / "default.sqlite"))


@pytest.fixture
def make_replies() -> Callable[..., pl.DataFrame]:
    """Build a table of `n` replies in two arms, alternating, with extra columns."""

    def make(
        n: int = 6, *, arms: tuple[str, ...] = ("control", "treatment")
    ) -> pl.DataFrame:
        return pl.DataFrame(
            {
                "request_id": [f"q{i}" for i in range(n)],
                "arm": [arms[i % len(arms)] for i in range(n)],
                "user_id": [f"u{i // 2}" for i in range(n)],
                "request": [f"How do I do thing {i}?" for i in range(n)],
                "reply": [f"Open Settings and choose {i}. Grüße ☂" for i in range(n)],
                "latency_ms": [100.0 + i for i in range(n)],
            }
        )

    return make

"""What the tests beyond one machine share: engines where they are installed."""

from collections.abc import Iterator
import importlib.util
import os
from pathlib import Path
import shutil
import sys
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="session")
def duckdb() -> Any:
    """The DuckDB module."""
    pytest.importorskip(
        "duckdb", reason="needs DuckDB: python3 -m pip install -e '.[scale-test]'"
    )
    import duckdb

    return duckdb


@pytest.fixture(scope="session")
def with_java() -> None:
    """PySpark and a Java are there."""
    pytest.importorskip(
        "pyspark", reason="needs PySpark: python3 -m pip install -e '.[scale-test]'"
    )
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 (Debian: apt-get install openjdk-17-jre)")


@pytest.fixture(scope="session")
def spark(with_java: None) -> Iterator[Any]:
    """A Spark session on two cores of this machine; it tries a task twice."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def loopback() -> ModuleType:
    """The OpenAI-compatible server of the judge's tests, as a module."""
    path = Path(__file__).parents[1] / "judge" / "loopback.py"
    spec = importlib.util.spec_from_file_location("tests_scale_loopback", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server(loopback: Any) -> Iterator[Any]:
    """A fresh server: behaves well until told otherwise."""
    with loopback.Loopback() as running:
        yield running

"""What the tests beyond one machine share: engines where they are installed."""

from collections.abc import Iterator
import os
import shutil
import sys
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
def spark() -> Iterator[Any]:
    """A Spark session on two cores of this machine."""
    pytest.importorskip(
        "pyspark", reason="needs PySpark: python3 -m pip install -e '.[scale-test]'"
    )
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 (Debian: apt-get install openjdk-17-jre)")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()

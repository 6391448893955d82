"""Counts where the data live: the same `ScoreCounts` from every engine."""

from dataclasses import replace
from pathlib import Path
import random
import re
import sys
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import numpy as np
import polars as pl
import pytest

from reply_resolution.errors import ReplyResolutionError, TableError
from reply_resolution.scale import source as source_module
from reply_resolution.scale.counts import by_outcome, narrow
from reply_resolution.scale.source import Source
from reply_resolution.stats.compare import compare
from reply_resolution.stats.counts import ScoreCounts, count_scores
from reply_resolution.stats.repeats import Names

pytestmark = pytest.mark.scale

DESIGNS: list[dict[str, str]] = [
    {},
    {"stratum": "topic"},
    {"pair": "request_id"},
    {"cluster": "user_id"},
    {"cluster": "user_id", "stratum": "plan"},
    {"cluster": "user_id", "stratum": "topic"},
    {"pair": "request_id", "cluster": "user_id"},
    {"pair": "request_id", "stratum": "topic"},
]
ARMS = ["warm", "plain", "Plain ", "", None, "brief"]
TEXT = ["5", "4/5", " 3 ", "2.0", "n/a", "", "9", "3 or 4", None, "1", "[[4]]"]
STATUS = ["scored", "scored", "scored", "", None, "refused", "not_judged"]
USERS = ["u1", "u2", "u3", "", " \u00a0", None, "Ünser 4"]


def messy(seed: int, *, order_matters: bool = False) -> pl.DataFrame:
    """A table with all that goes wrong, as wide and as long as the seed says.

    Rows that repeat request, arm and vote are alike, and a request has one user,
    unless the order of rows is known and decides.
    """
    draw = random.Random(seed)
    n = draw.choice([1, 2, 7, 40, 150])
    numbers = draw.choice([[5, 4, 3, 2, 1, 0, 9, None], [5, 4.0, 3.5, None, 2, 7]])
    cells: list[Any] = draw.choice([TEXT, numbers])
    arms = ARMS[: draw.choice([2, 3, 6])]
    ids = [f"r{i}" for i in range(max(1, n // draw.choice([1, 2, 6])))]
    ids += draw.choice([[], ["", None], ["R1", " r2"]])  # type: ignore[arg-type]
    votes = draw.choice([[0], [0, 1, 2], [0, None], [3, 1]])
    versions = draw.choice([["m@v1"], ["m@v1", "", None], ["m@v1"] * 40 + ["m@v2"]])
    absent = [c for c in ("vote", "status") if draw.random() < 0.2]
    rows: dict[Any, dict[str, Any]] = {}
    table = []
    for _ in range(n):
        key = draw.choice(ids), draw.choice(arms), draw.choice(votes)
        if "vote" in absent:
            key = (*key[:2], None)
        row = {
            "request_id": key[0],
            "arm": key[1],
            "vote": key[2],
            "user_id": draw.choice(USERS),
            "score": draw.choice(cells),
            "status": draw.choice(STATUS),
            "metric_version": draw.choice(versions),
            "topic": draw.choice(["x", "y", "z", None]),
        }
        if not order_matters:
            row["user_id"] = USERS[hash_of(key[0]) % len(USERS)]
            row = rows.setdefault(key, row)
        table.append(row)
    kind = pl.String if cells is TEXT else pl.Float64 if 3.5 in cells else pl.Int8
    frame = pl.DataFrame(
        table,
        schema={
            **dict.fromkeys(
                ("request_id", "arm", "user_id", "status", "metric_version", "topic"),
                pl.String,
            ),
            "vote": pl.Int64,
            "score": kind,
        },
    ).with_columns(plan=pl.col("user_id"), other=pl.lit("x" * 50))
    return frame.drop(absent)


def hash_of(value: str | None) -> int:
    """A whole number for a name, the same in every process."""
    return sum((value or "").encode())


def same(one: ScoreCounts, two: ScoreCounts) -> None:
    """All fields alike, arrays cell by cell, warnings word for word."""
    for name in one.__slots__:
        a, b = getattr(one, name), getattr(two, name)
        if name == "units" and a is not None and b is not None:
            pairs = [(getattr(a, n), getattr(b, n)) for n in a.__slots__]
        else:
            pairs = [(a, b)]
        for x, y in pairs:
            if isinstance(x, np.ndarray):
                assert x.dtype == y.dtype == np.int64, name
                assert x.tolist() == y.tolist(), name
                assert x.shape == y.shape, name
            else:
                assert x == y, name


def outcome(frame: Any, design: dict[str, str]) -> ScoreCounts | str:
    """The counts, or the error as a reader sees it."""
    try:
        return count_scores(frame, **design, mix_versions=False)
    except ReplyResolutionError as error:
        return f"{type(error).__name__}: {error}"


def agree(one: ScoreCounts | str, two: ScoreCounts | str) -> None:
    """The same counts, or the same error."""
    if isinstance(one, str) or isinstance(two, str):
        assert one == two
    else:
        same(one, two)


def by_name(frame: pl.DataFrame) -> pl.DataFrame:
    """Arms appear in the order of their names, as in an engine without an order."""
    return frame.sort("arm", maintain_order=True)


@pytest.mark.parametrize("passes", [1, 3])
@given(seed=st.integers(0, 10**9), design=st.sampled_from(DESIGNS))
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_polars_lazy_engine_counts_as_the_frame_in_memory(
    passes: int, seed: int, design: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any messy table, any design, in one pass or in several: nothing differs."""
    frame = messy(seed, order_matters=True)
    rows = 1 << 62 if passes == 1 else -(-frame.height // passes)
    monkeypatch.setattr(source_module, "PASS_ROWS", max(1, rows))
    agree(outcome(frame, design), outcome(frame.lazy(), design))


@given(seed=st.integers(0, 10**9), design=st.sampled_from(DESIGNS))
@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_duckdb_counts_as_the_frame_in_memory(
    duckdb: Any, seed: int, design: dict[str, str]
) -> None:
    """Any messy table, any design: the same counts, reasons, warnings and errors."""
    frame = messy(seed)
    with duckdb.connect() as connection:
        relation = connection.from_arrow(frame.to_arrow())
        agree(outcome(by_name(frame), design), outcome(relation, design))


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_spark_and_ibis_count_as_the_frame_in_memory(
    spark: Any, design: dict[str, str]
) -> None:
    """Messy tables through Spark's and Ibis' planners: the same counts and warnings."""
    ibis = pytest.importorskip("ibis", reason="needs Ibis: pip install ibis-framework")
    for seed in (1, 2, 3):
        frame = messy(seed)
        expected = outcome(by_name(frame), design)
        agree(expected, outcome(spark.createDataFrame(frame.to_arrow()), design))
        agree(expected, outcome(ibis.memtable(frame.to_arrow()), design))


def test_a_user_with_most_of_the_rows_is_one_unit(duckdb: Any) -> None:
    """Skewed data: one user with 200,000 of 201,000 rows, counted in every engine."""
    n = 200_000
    frame = pl.DataFrame(
        {
            "arm": ["a"] * n + ["b", "a"] * 500,
            "user_id": ["heavy"] * n + [f"u{i // 3}" for i in range(1_000)],
            "score": [1 + i % 5 for i in range(n + 1_000)],
        }
    )
    counts = count_scores(frame.lazy(), cluster="user_id")
    same(count_scores(frame, cluster="user_id"), counts)
    assert counts.units is not None
    assert counts.units.vectors.max() == n // 5
    with duckdb.connect() as connection:
        relation = connection.from_arrow(frame.to_arrow())
        same(counts, count_scores(relation, cluster="user_id"))


def test_compare_takes_a_relation(duckdb: Any) -> None:
    """`compare` gives the same document from a frame and from DuckDB."""
    frame = messy(6).filter(pl.col("arm").is_in(["warm", "plain"]))
    with duckdb.connect() as connection:
        there = compare(
            connection.from_arrow(frame.to_arrow()),
            control="plain",
            cluster="user_id",
            mix_versions=True,
        )
    here = compare(
        by_name(frame), control="plain", cluster="user_id", mix_versions=True
    )
    assert there.to_dict() == here.to_dict()


def test_frames_in_memory_of_other_libraries_are_counted(duckdb: Any) -> None:
    """An Arrow table and a pandas frame give the counts of the polars frame."""
    frame = messy(6)
    counts = count_scores(frame, mix_versions=True)
    same(counts, count_scores(frame.to_arrow(), mix_versions=True))
    pytest.importorskip("pandas", reason="needs pandas: pip install 'pandas<3'")
    there = count_scores(frame.to_arrow().to_pandas(), mix_versions=True)
    assert there.counts.tolist() == counts.counts.tolist()


def test_the_aggregation_is_pushed_down_to_the_file(tmp_path: Path) -> None:
    """The plan reads the columns that matter and groups in the engine."""
    path = tmp_path / "scores.parquet"
    messy(6).write_parquet(path)
    source = Source(pl, pl.scan_parquet(path), ordered=True, folder=tmp_path)
    names = Names("arm", "score", None, None, None, "request_id", "none", "vote", "-")
    table, _ = narrow(source, names)
    plan = by_outcome(replace(source, lazy=table)).explain(engine="streaming")
    assert "AGGREGATE" in plan
    assert 'col("other")' not in plan
    assert re.search(r"PROJECT 3/10 COLUMNS", plan), plan


def test_a_column_that_cannot_be_counted_is_named(duckdb: Any) -> None:
    """Lists and a vote of text are refused: the column, its type and the way out."""
    with duckdb.connect() as connection:
        query = "SELECT 'a' AS arm, [4] AS score, 'x' AS vote"
        with pytest.raises(TableError, match=r"'score' \(score\) holds List.*numbers"):
            count_scores(connection.sql(query))
        query = "SELECT 'a' AS arm, 4 AS score, 'x' AS vote"
        with pytest.raises(TableError, match=r"'vote' .* holds String.*whole numbers"):
            count_scores(connection.sql(query))
        with pytest.raises(TableError, match="no column 'arm'"):
            count_scores(connection.sql("SELECT 4 AS score"))


def test_an_engine_that_fails_is_a_table_error(duckdb: Any, tmp_path: Path) -> None:
    """A file that is damaged or gone is said in the engine's words, not a traceback."""
    path = tmp_path / "scores.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    lazy = pl.scan_parquet(path)
    with pytest.raises(TableError, match="could not be counted where it is"):
        count_scores(lazy)


def test_what_is_no_frame_is_refused() -> None:
    """A list is no table, and the message names what is."""
    with pytest.raises(TableError, match=r"builtins list is no table.*DuckDB"):
        count_scores([1, 2, 3])


def test_without_the_extra_the_install_line_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No narwhals: polars works as ever, anything else names the extra."""
    monkeypatch.setitem(sys.modules, "narwhals", None)
    frame = pl.DataFrame({"arm": ["a", "b"], "score": [4, 5]})
    assert count_scores(frame.lazy()).rows == 2
    with pytest.raises(TableError, match=r"pip install 'reply-resolution\[counts\]'"):
        count_scores(object())

"""A table that stays where it is: polars' lazy engine, or any that narwhals knows.

polars and narwhals share their words (`col`, `when`, `group_by`, ...), so a query is
written once and `Source.lib` is whichever of the two the frame needs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import polars as pl

from reply_resolution.errors import TableError

#: Rows per pass of a group-by over ids in polars, which keeps its groups in memory.
#: The other engines spill to disk by themselves.
PASS_ROWS = 7_500_000

#: A lazy frame of polars or narwhals, and a query on one.
Lazy = Any
Query = Callable[[Lazy], Lazy]


@dataclass(frozen=True, slots=True)
class Source:
    """A lazy frame and how its engine is spoken to.

    Attributes:
        lib: polars or narwhals: where `col` and the like come from.
        lazy: The frame.
        ordered: Whether its rows have an order (polars); an SQL engine's have none.
        folder: Where polars may put what does not fit into memory.
        rows: Rows of the frame, at most.
    """

    lib: Any
    lazy: Lazy
    ordered: bool
    folder: Path
    rows: int = 0

    def on(self, lazy: Lazy) -> "Source":
        """The same engine with another frame, which has no more rows."""
        return replace(self, lazy=lazy)

    def collect(self, lazy: Lazy) -> pl.DataFrame:
        """Run a query; what comes home is a polars frame.

        Raises:
            TableError: The engine could not, with its own words.
        """
        with translated():
            if self.ordered:
                home: pl.DataFrame = lazy.collect(engine="streaming")
            else:
                home = lazy.collect("polars").to_native()
        return home

    def schema(self) -> dict[str, Any]:
        """The frame's columns and their types.

        Raises:
            TableError: The engine could not say.
        """
        with translated():
            return dict(self.lazy.collect_schema())

    def number(self, lazy: Lazy) -> int:
        """The one whole number a query gives; 0 where it gives none."""
        return int(self.collect(lazy).item() or 0)

    def parts(self, lazy: Lazy, key: str) -> Iterator[Lazy]:
        """The frame in parts that never tear a key, few enough rows to group."""
        passes = -(-self.rows // PASS_ROWS) if self.ordered else 1
        if passes <= 1:
            yield lazy
            return
        for i in range(passes):
            yield lazy.filter(pl.col(key).hash(seed=1) % passes == i)

    def by_key(self, lazy: Lazy, key: str, query: Query) -> pl.DataFrame:
        """Run a query on every part and lay the results below each other."""
        return pl.concat(self.collect(query(part)) for part in self.parts(lazy, key))

    def total(self, lazy: Lazy, key: str, query: Query) -> int:
        """The sum of the one number a query gives in every part."""
        return int(self.by_key(lazy, key, query).sum().item() or 0)

    def staged(self, lazy: Lazy, key: str, query: Query) -> Lazy:
        """A query's result as a frame again; on disk where one pass is not enough."""
        if not self.ordered:
            return query(lazy)
        if self.rows <= PASS_ROWS:
            return self.collect(query(lazy)).lazy()
        draft = Path(mkdtemp(dir=self.folder))
        for i, part in enumerate(self.parts(lazy, key)):
            self.collect(query(part)).write_parquet(draft / f"{i}.parquet")
        return pl.scan_parquet(draft / "*.parquet")


@contextmanager
def translated(kind: type[Exception] = Exception) -> Iterator[None]:
    """An engine's errors as ours; every engine raises kinds of its own."""
    try:
        yield
    except kind as error:
        lines = (str(error).strip() or type(error).__name__).splitlines()
        causes = [line for line in lines if line.startswith("Caused by: ")]
        said = (causes or lines)[0]
        raise TableError(
            f"the table could not be counted where it is: {said[:300]}. Check that "
            "it can be read as it is, and the types of its columns."
        ) from error


def open_source(frame: Any, folder: Path) -> Source | pl.DataFrame | pl.LazyFrame:  # noqa: ANN401
    """How a frame is spoken to; one that lies in memory already becomes polars'.

    A lazy frame of polars with few rows is given back: read at once, only the columns
    that matter, it is counted several times as fast.

    Raises:
        TableError: Not a frame, or narwhals is needed and absent.
    """
    if isinstance(frame, pl.LazyFrame):
        source = Source(pl, frame, ordered=True, folder=folder)
        few = source.number(frame.select(pl.len())) <= PASS_ROWS
        return frame if few else source
    kind = f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"
    try:
        import narwhals as nw
    except ImportError:
        raise TableError(
            f"counting a {kind} where it lives needs narwhals, which is not installed: "
            "python3 -m pip install 'reply-resolution[counts]'. Polars frames need no "
            "extra."
        ) from None
    try:
        known = nw.from_native(frame)
    except TypeError:
        raise TableError(
            f"a {kind} is no table. Give a polars frame, or one that narwhals knows: "
            "DuckDB, PySpark, Ibis, pandas, PyArrow."
        ) from None
    if isinstance(known, nw.LazyFrame):
        return Source(nw, known, ordered=False, folder=folder)
    home: pl.DataFrame = known.to_polars()
    return home

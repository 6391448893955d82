"""What a cache asks of the database that keeps it: read, write, lock, book."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

from reply_resolution.judge.store import Actual, Booking, Cap, Refusal, Totals


def is_url(place: object) -> bool:
    """Whether this names a PostgreSQL database, and not a file."""
    return str(place).startswith(("postgresql://", "postgres://"))


class Backend(ABC):
    """A database with the cache's tables. SQL here marks values with `?`.

    Attributes:
        read_only: Whether it was opened for reading only.
        BYTES: The UTF-8 bytes of a text, as an expression.
    """

    read_only: bool
    BYTES = "length(CAST({} AS BLOB))"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def name(self) -> str:
        """The cache as messages name it; never with a password."""

    @abstractmethod
    def read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""

    @abstractmethod
    def stream(
        self, sql: str, values: Sequence[object] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a query one by one: it may be larger than memory."""

    @abstractmethod
    def write(self, sql: str, rows: Iterable[Sequence[object]]) -> int:
        """Run a statement for every row, in one transaction; the rows changed."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """All writes in the block are one transaction, or none; gives `execute`."""

    @abstractmethod
    def numbering(self) -> AbstractContextManager[Any]:
        """A transaction in which nobody else mints a number."""

    @abstractmethod
    def close(self) -> None:
        """Close it; more than once is fine."""

    # Who judges what now, and the ledger (see budget.py)

    @abstractmethod
    def claim(
        self, keys: Collection[str], owner: str, lease_s: float = 900.0
    ) -> set[str]:
        """Take keys to judge; those another living owner has are left out."""

    @abstractmethod
    def release(self, keys: Collection[str], owner: str) -> None:
        """Give claimed keys back."""

    @abstractmethod
    def book(
        self, run_id: str, owner: str, bookings: Sequence[Booking], caps: Sequence[Cap]
    ) -> tuple[list[int], Refusal | None]:
        """Book calls in order until one does not fit; atomic over all processes."""

    @abstractmethod
    def book_actuals(self, run_id: str, actuals: Sequence[Actual]) -> Totals:
        """Replace bookings by what the calls cost; returns the run's totals."""

    @abstractmethod
    def book_lost(self) -> int:
        """Close the bookings of dead owners at full value; returns how many."""

    @abstractmethod
    def totals(self, scope: str, run_id: str) -> Totals:
        """The ledger's sums over a scope."""

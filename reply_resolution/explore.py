"""Reading verdicts: filter, walk, jump to the pair's other reply, side by side.

`Explorer` is a plain state machine over a frame; `browse` puts a widget on it for
JupyterLab, `browse_static` is its twin for reports. Only the row that is read goes
to the browser, and every text in it is escaped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from reply_resolution.display import Html
from reply_resolution.errors import TableError
from reply_resolution.replies import length_expr
from reply_resolution.tables import listed

_ROW = "__row__"
_LENGTH = "__length__"
_FACETS = ("arm", "score", "status", "topic", "language")
#: A column with more values than this is no facet unless it is asked for.
_MOST = 100
_ORDERS = ("table", "disagreement", "random")
#: What the keys do, for the reader.
KEYS = "j next, k back, m mate, g first, e end, 1 to 5 score, 0 all, a arm, t status"


@dataclass(frozen=True, slots=True)
class Entry:
    """One reply as it is read.

    Attributes:
        place: Which of the filtered replies it is, from 1.
        of: How many replies pass the filters.
        row: The row as a mapping, with the columns of the frame.
        labels: Annotator -> label (None where there is none).
        gap: Judge's score minus the mean label, points; None if either is missing.
        has_mate: Whether the same request was answered in another arm.
    """

    place: int
    of: int
    row: Mapping[str, Any]
    labels: Mapping[str, float | None]
    gap: float | None
    has_mate: bool


class Explorer:
    """What is read next: filters, order, place.

    Args:
        frame: One row per reply with `request_id`, `request`, `reply`; as far as
            there are `arm`, `score`, `reason`, `status`, `status_detail`, `context`,
            `conversation`, `topic`, `language`, `label_<annotator>` (or what `labels`
            names).
        facets: Columns to filter by, beside the length.
        labels: Columns that hold labels; None takes every `label_*`.
        order: "table" as it stands, "disagreement" (largest difference between score
            and mean label first), "random" (seeded).
        seed: Of the random order.

    Raises:
        TableError: A column is missing, the order is not known, or no label stands
            beside a score where disagreement is asked for.
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        *,
        facets: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        order: str = "table",
        seed: int = 0,
    ) -> None:
        names = frame.columns
        if labels is None:
            labels = [c for c in names if c.startswith("label_")]
        self.labels = list(labels)
        self.facets = [*(facets if facets is not None else _FACETS)]
        if facets is None:
            self.facets = [
                c for c in self.facets if c in names and frame[c].n_unique() <= _MOST
            ]
        needed = ["request_id", "request", "reply", *self.facets, *self.labels]
        missing = [c for c in dict.fromkeys(needed) if c not in names]
        if missing:
            raise TableError(
                f"there is no column {listed(missing)} to explore. The columns are "
                f"{listed(names)}."
            )
        if order not in _ORDERS:
            raise TableError(f"order is {order!r}. Allowed: {', '.join(_ORDERS)}.")
        if frame.is_empty():
            raise TableError("there are no rows to explore. Give at least one.")
        self._frame = _arranged(frame, self.labels, order, seed)
        self.longest = max(self._frame[_LENGTH].to_list())
        self.chosen: dict[str, Any] = {}
        self.lengths = (0, self.longest)
        self._passing = self._frame[_ROW].to_list()
        self._place = 0

    def values(self, facet: str) -> list[Any]:
        """The values of a facet, sorted, None last."""
        found = self._frame[facet].unique().to_list()
        return sorted(found, key=lambda v: (v is None, v))

    def choose(self, facet: str, value: Any = ...) -> None:  # noqa: ANN401
        """Filter by one value of a facet; without a value the filter is lifted.

        The reply that is read stays, if it passes.
        """
        if facet not in self.facets:
            raise TableError(
                f"{facet!r} is no facet. Allowed: {listed(self.facets)}; name others "
                "when opening."
            )
        if value is ...:
            self.chosen.pop(facet, None)
        else:
            self.chosen[facet] = value
        self._filter()

    def choose_lengths(self, low: int, high: int) -> None:
        """Filter by the reply's length in characters, both ends included."""
        self.lengths = (low, high)
        self._filter()

    def cycle(self, facet: str) -> None:
        """Choose the facet's next value; after the last one all again."""
        values = self.values(facet)
        if facet not in self.chosen:
            self.choose(facet, values[0])
            return
        place = values.index(self.chosen[facet]) + 1
        if place < len(values):
            self.choose(facet, values[place])
        else:
            self.choose(facet)

    def entry(self) -> Entry | None:
        """The reply that is read now; None when none passes the filters."""
        if not self._passing:
            return None
        row = self._row(self._passing[self._place])
        labels = {name.removeprefix("label_"): row[name] for name in self.labels}
        known = [value for value in labels.values() if value is not None]
        score = row.get("score")
        gap = score - sum(known) / len(known) if known and score is not None else None
        return Entry(
            self._place + 1,
            len(self._passing),
            row,
            labels,
            gap,
            self._mate(row) is not None,
        )

    def move(self, steps: int) -> None:
        """Go forward (or back); stops at the ends."""
        last = max(0, len(self._passing) - 1)
        self._place = min(max(0, self._place + steps), last)

    def mate(self) -> bool:
        """Go to the same request's reply in the next arm; False if there is none.

        Filters that would hide it are lifted.
        """
        now = self.entry()
        found = self._mate(now.row) if now is not None else None
        if found is None:
            return False
        if found not in self._passing:
            self.chosen.clear()
            self.lengths = (0, self.longest)
            self._passing = self._frame[_ROW].to_list()
        self._place = self._passing.index(found)
        return True

    def press(self, key: str) -> str:
        """Act on one key; returns what it did, in a few words."""
        key = key.strip()
        if key in ("j", "k"):
            self.move(1 if key == "j" else -1)
            return ""
        if key in ("g", "e"):
            self.move(-len(self._passing) if key == "g" else len(self._passing))
            return ""
        if key == "m":
            return "" if self.mate() else "This request has no reply in another arm."
        if key in ("a", "t"):
            facet = "arm" if key == "a" else "status"
            if facet not in self.facets:
                return f"There is no column {facet!r}."
            self.cycle(facet)
            return ""
        if key == "0":
            self.chosen.clear()
            self.choose_lengths(0, self.longest)
            return "All filters are lifted."
        if "score" in self.facets and key in {str(v) for v in self.values("score")}:
            self.choose("score", int(key))
            return ""
        return f"{key!r} means nothing here: {KEYS}."

    def filters(self) -> str:
        """The filters in words; "" if there are none."""
        parts = [
            f"{name} {'none' if v is None else v}" for name, v in self.chosen.items()
        ]
        if self.lengths != (0, self.longest):
            parts.append(f"length {self.lengths[0]} to {self.lengths[1]}")
        return ", ".join(parts)

    def _row(self, number: int) -> dict[str, Any]:
        return self._frame.row(number, named=True)

    def _mate(self, row: Mapping[str, Any]) -> int | None:
        if "arm" not in self._frame.columns:
            return None
        same = self._frame.filter(pl.col("request_id") == row["request_id"])
        others = same.filter(pl.col("arm").ne_missing(pl.lit(row["arm"])))
        if others.is_empty():
            return None
        after = others.filter(pl.col("arm") > (row["arm"] or "")).sort("arm")
        return int((after if not after.is_empty() else others.sort("arm"))[_ROW][0])

    def _filter(self) -> None:
        now = self._passing[self._place] if self._passing else None
        keep = pl.col(_LENGTH).is_between(*self.lengths)
        for name, value in self.chosen.items():
            keep &= pl.col(name).eq_missing(pl.lit(value))
        self._passing = self._frame.filter(keep)[_ROW].to_list()
        self._place = self._passing.index(now) if now in self._passing else 0


def browse(
    frame: pl.DataFrame,
    *,
    facets: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    order: str = "table",
    seed: int = 0,
) -> Any:  # noqa: ANN401
    """A widget to read replies with their verdicts and labels, by keys or mouse.

    Args:
        frame: See `Explorer`; e.g. the replies of `load`, with their verdicts joined.
        facets: Columns to filter by; arm, score, status, topic and language if None.
        labels: Columns of labels; every `label_*` if None.
        order: "table", "disagreement" or "random".
        seed: Of the random order.

    Raises:
        TableError: See `Explorer`.
    """
    from reply_resolution.explore_view import widget

    return widget(Explorer(frame, facets=facets, labels=labels, order=order, seed=seed))


def browse_static(
    frame: pl.DataFrame,
    *,
    rows: int = 6,
    labels: Sequence[str] | None = None,
    order: str = "disagreement",
    seed: int = 0,
    caption: str | None = None,
) -> Html:
    """The first replies of an order as a table: what `browse` shows, for a report.

    Args:
        frame: See `Explorer`.
        rows: How many replies, 1 or more.
        labels: Columns of labels; every `label_*` if None.
        order: "table", "disagreement" or "random".
        seed: Of the random order.
        caption: What the table shows; a sentence with the counts if None.

    Raises:
        TableError: See `Explorer`.
    """
    from reply_resolution.explore_view import static

    explorer = Explorer(frame, facets=(), labels=labels, order=order, seed=seed)
    return static(explorer, rows=rows, order=order, seed=seed, caption=caption)


def _arranged(
    frame: pl.DataFrame, labels: Sequence[str], order: str, seed: int
) -> pl.DataFrame:
    frame = frame.with_columns(length_expr("reply").fill_null(0).alias(_LENGTH))
    if order == "random":
        frame = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    elif order == "disagreement":
        if not labels or "score" not in frame.columns:
            raise TableError(
                "disagreement needs a score and at least one column of labels "
                f"(label_<annotator>). The columns are {listed(frame.columns)}."
            )
        gap = pl.col("score") - pl.mean_horizontal(pl.col(c) for c in labels)
        frame = (
            frame.with_columns(gap.abs().alias("__gap__"))
            .sort("__gap__", descending=True, nulls_last=True, maintain_order=True)
            .drop("__gap__")
        )
    return frame.with_row_index(_ROW)

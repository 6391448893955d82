"""Reading verdicts: filter, walk, jump to the pair's other reply, side by side.

`Explorer` is a plain state machine over a frame; `browse` puts a widget on it for
JupyterLab, `browse_static` is its twin for reports. Only the row that is read goes
to the browser, and every text in it is escaped.
"""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from reply_resolution.display import Html, html, number, shorten, table
from reply_resolution.errors import TableError
from reply_resolution.labeling import view
from reply_resolution.tables.replies import length_expr
from reply_resolution.tables.tables import listed

_FACETS = ("arm", "score", "status", "topic", "language")
#: A column with more values than this is no facet.
_MOST = 100
_ORDERS = {
    "table": "in the table's order",
    "disagreement": "the largest differences between score and mean label first",
    "random": "drawn at random, seed {seed}",
}
#: What the keys do, for the reader.
KEYS = "j next, k back, m mate, g first, e end, 1 to 5 score, 0 all, a arm, t status"


class Explorer:
    """What is read next: filters, order, place; arguments as of `browse`."""

    def __init__(
        self, frame: pl.DataFrame, *, order: str = "table", seed: int = 0
    ) -> None:
        self._frame = frame = _arranged(frame, order, seed)
        values = {c: frame[c].unique() for c in _FACETS if c in frame.columns}
        self.facets: dict[str, list[Any]] = {
            name: sorted(found, key=lambda v: (v is None, v))
            for name, found in values.items()
            if found.len() <= _MOST
        }
        self.longest = max(frame["__length__"].to_list())
        self.chosen: dict[str, Any] = {}
        self._passing = list(range(frame.height))
        self.place = 0

    @property
    def row(self) -> Mapping[str, Any] | None:
        """The reply that is read now; None when none passes the filters."""
        if not self._passing:
            return None
        return self._frame.row(self._passing[self.place], named=True)

    def status(self) -> str:
        """Where the reader is, among the replies that pass the filters."""
        if not self._passing:
            return "No reply passes"
        return f"{self.place + 1:,} / {len(self._passing):,}"

    def choose(self, facet: str, value: Any = ...) -> None:  # noqa: ANN401
        """Filter by a facet's value, or "length" by (least, most); `...` lifts it.

        The reply that is read stays, if it passes.
        """
        if value is ...:
            self.chosen.pop(facet, None)
        else:
            self.chosen[facet] = value
        self._filter()

    def press(self, key: str) -> str:
        """Act on one key; returns what it did, in a few words."""
        last = max(0, len(self._passing) - 1)
        places = {"j": self.place + 1, "k": self.place - 1, "g": 0, "e": last}
        if key in places:
            self.place = max(0, min(places[key], last))
        elif key == "m":
            found = self.mate()
            if found is None:
                return "This request has no reply in another arm."
            if found not in self._passing:  # a filter that would hide it is lifted
                self.chosen.clear()
                self._filter()
            self.place = self._passing.index(found)
        elif key in ("a", "t"):
            facet = "arm" if key == "a" else "status"
            if facet not in self.facets:
                return f"There is no column {facet!r}."
            turn = [..., *self.facets[facet], ...]  # after the last one all again
            self.choose(facet, turn[turn.index(self.chosen.get(facet, ...)) + 1])
        elif key == "0":
            self.chosen.clear()
            self._filter()
            return "All filters are lifted."
        elif key in map(str, self.facets.get("score", ())):
            self.choose("score", int(key))
        else:
            return f"{key!r} means nothing here: {KEYS}."
        return ""

    def mate(self) -> int | None:
        """The row of the same request's reply in the next arm, if there is one."""
        row = self.row
        if row is None or row.get("arm") is None:
            return None
        same = pl.col("request_id") == row["request_id"]
        others = self._frame.filter(same, pl.col("arm") != row["arm"]).sort("arm")
        after = others.filter(pl.col("arm") > row["arm"])
        found = (after if after.height else others)["__row__"]
        return int(found[0]) if len(found) else None

    def _filter(self) -> None:
        now = self._passing[self.place] if self._passing else None
        keep = pl.lit(True)
        for name, value in self.chosen.items():
            if name == "length":
                keep &= pl.col("__length__").is_between(*value)
            else:
                keep &= pl.col(name).eq_missing(pl.lit(value))
        self._passing = self._frame.filter(keep)["__row__"].to_list()
        self.place = self._passing.index(now) if now in self._passing else 0


def browse(frame: pl.DataFrame, *, order: str = "table", seed: int = 0) -> Any:  # noqa: ANN401
    """A widget to read replies with their verdicts and labels, by keys or mouse.

    Args:
        frame: One row per reply with `request_id`, `request`, `reply`; as far as
            there are `arm`, `score`, `reason`, `status`, `status_detail`, `context`,
            `conversation`, `topic`, `language`, `label_<annotator>`.
        order: "table" as it stands, "disagreement" (largest difference between score
            and mean label first), "random" (seeded).
        seed: Of the random order.

    Raises:
        TableError: A column is missing, the order is not known, or no label stands
            beside a score where disagreement is asked for.
    """
    import ipywidgets as w  # 0.2 s: only where something is shown

    explorer = Explorer(frame, order=order, seed=seed)
    status = w.HTML()
    half = w.Layout(flex="1 1 22em", min_width="0")
    left, right = w.HTML(layout=half), w.HTML(layout=half)
    filters = {
        name: w.Dropdown(
            options=[
                ("all", ...),
                *(("none" if v is None else str(v), v) for v in values),
            ],
            value=...,
            description=name,
            layout=w.Layout(width="16em"),
        )
        for name, values in explorer.facets.items()
    }
    every = (0, max(1, explorer.longest))
    filters["length"] = w.IntRangeSlider(
        value=every, min=0, max=every[1], description="length", continuous_update=False
    )

    def state(name: str) -> Any:  # noqa: ANN401
        return explorer.chosen.get(name, every if name == "length" else ...)

    def refresh(message: str = "") -> None:
        for name, box in filters.items():
            box.value = state(name)
        row = explorer.row
        status.value = view.status_line(explorer.status(), message, KEYS)
        left.value = html(*_asked(row)).markup if row else ""
        right.value = html(*_answered(row)).markup if row else ""
        buttons["m"].disabled = explorer.mate() is None

    def on_filter(name: str) -> Callable[[Mapping[str, Any]], None]:
        def follow(change: Mapping[str, Any]) -> None:
            value = change["new"]
            if value != state(name):  # else the box only follows the state
                explorer.choose(name, ... if value == every else value)
                refresh()

        return follow

    keys, buttons = view.key_controls(
        lambda typed: refresh(explorer.press(typed[-1])),
        "j, k, m, 1 to 5, 0 …",
        {"k": "Back", "j": "Next", "m": "Pair mate"},
    )
    for name, box in filters.items():
        box.observe(on_filter(name), names="value")
    refresh()
    top = (view.row(*filters.values()), view.row(keys, *buttons.values()))
    return w.VBox([*top, status, view.row(left, right)])


def browse_static(
    frame: pl.DataFrame, *, rows: int = 6, order: str = "disagreement", seed: int = 0
) -> Html:
    """The first replies of an order as a table: what `browse` shows, for a report.

    Args:
        frame: As of `browse`; likewise `order`, `seed` and what is refused.
        rows: How many replies, 1 or more.
        order: Which come first.
        seed: Of the random order.
    """
    shown = _arranged(frame, order, seed).head(rows).rows(named=True)
    how = _ORDERS[order].format(seed=seed)
    return table(
        [
            {
                "request": shorten(f"{row['request_id']}: {row['request'] or ''}"),
                **({"arm": row["arm"]} if "arm" in row else {}),
                "reply": shorten(row["reply"] or "(empty)"),
                "score": _score(row),
                **({"labels": _labels(row)} if _labels(row) else {}),
                "judge's reason": f"“{shorten(row['reason'])}”"
                if row.get("reason")
                else None,
            }
            for row in shown
        ],
        caption=f"{len(shown)} of {frame.height:,} replies, {how}",
    )


def _arranged(frame: pl.DataFrame, order: str, seed: int) -> pl.DataFrame:
    """The rows in their order, with their number, length, and score minus label."""
    names = frame.columns
    missing = [c for c in ("request_id", "request", "reply") if c not in names]
    if missing:
        raise TableError(
            f"there is no column {listed(missing)} to explore. The columns are "
            f"{listed(names)}."
        )
    if order not in _ORDERS:
        raise TableError(f"order is {order!r}. Allowed: {', '.join(_ORDERS)}.")
    if frame.is_empty():
        raise TableError("there are no rows to explore. Give at least one.")
    labels = [c for c in names if c.startswith("label_")]
    gap = pl.lit(None, dtype=pl.Float64)
    if labels and "score" in names:
        gap = pl.col("score") - pl.mean_horizontal(labels)
    elif order == "disagreement":
        raise TableError(
            "disagreement needs a score and at least one column of labels "
            f"(label_<annotator>). The columns are {listed(names)}."
        )
    frame = frame.with_columns(
        length_expr("reply").fill_null(0).alias("__length__"), gap.alias("__gap__")
    )
    if order == "random":
        frame = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    elif order == "disagreement":
        size = pl.col("__gap__").abs()
        frame = frame.sort(size, descending=True, nulls_last=True, maintain_order=True)
    return frame.with_row_index("__row__")


def _asked(row: Mapping[str, Any]) -> list[Any]:
    about = [str(row[c]) for c in ("topic", "language") if row.get(c) is not None]
    return view.texts(
        [
            (
                ", ".join([f"Request {row['request_id']}", *about]),
                row["request"] or "(empty)",
            ),
            ("Earlier turns", view.turns_text(row.get("conversation"))),
            ("Facts the assistant had", row.get("context") or ""),
        ]
    )


def _answered(row: Mapping[str, Any]) -> list[Any]:
    verdict = f"Score {_score(row)}"
    if _labels(row):
        verdict += f", labels {_labels(row)}"
    if row["__gap__"] is not None:
        verdict += f", judge minus people {number(row['__gap__'], 1, sign=True)}"
    name = "Reply" if row.get("arm") is None else f"Reply of arm {row['arm']}"
    reply = (name, row["reply"] or "(empty)")
    reason = ("The judge's reason", row.get("reason") or "")
    return [view.heading(verdict), *view.texts([reason, reply])]


def _score(row: Mapping[str, Any]) -> str:
    if row.get("score") is not None:
        return str(row["score"])
    detail = row.get("status_detail")
    status = row.get("status") or "none"
    return f"{status} ({detail})" if detail else str(status)


def _labels(row: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.removeprefix('label_')} {'none' if value is None else f'{value:g}'}"
        for name, value in row.items()
        if name.startswith("label_")
    )

"""How the explorer looks: a widget for JupyterLab and a static table for reports."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from reply_resolution.display import Html, element, html, number, shorten, table
from reply_resolution.explore import KEYS
from reply_resolution.text_blocks import blocks, heading, turns_text

if TYPE_CHECKING:
    from reply_resolution.explore import Entry, Explorer

_ALL = "all"


def widget(explorer: "Explorer") -> Any:  # noqa: ANN401
    """The widget on an explorer, to be shown as a cell's last value."""
    import ipywidgets as w  # 0.2 s: only where something is shown

    status = w.HTML()
    left = w.HTML(layout=w.Layout(flex="1 1 22em", min_width="0"))
    right = w.HTML(layout=w.Layout(flex="1 1 22em", min_width="0"))
    keys = w.Text(
        placeholder="j, k, m, 1 to 5, 0 …",
        description="Key",
        layout=w.Layout(width="18em"),
    )
    chosen = {
        name: w.Dropdown(
            options=_options(explorer, name),
            value=...,
            description=name,
            layout=w.Layout(width="16em"),
        )
        for name in explorer.facets
    }
    lengths = w.IntRangeSlider(
        value=(0, explorer.longest),
        min=0,
        max=max(1, explorer.longest),
        description="length",
        continuous_update=False,
    )
    moves = {
        key: w.Button(description=words, layout=w.Layout(width="8em"))
        for key, words in (("k", "Back"), ("j", "Next"), ("m", "Pair mate"))
    }
    busy = [False]  # while the filters follow the state, they do not set it

    def refresh(message: str = "") -> None:
        busy[0] = True
        for name, box in chosen.items():
            box.value = explorer.chosen.get(name, ...)
        lengths.value = explorer.lengths
        busy[0] = False
        entry = explorer.entry()
        status.value = html(_status(explorer, entry, message)).markup
        left.value = html(_asked(entry)).markup if entry else ""
        right.value = html(_answered(entry)).markup if entry else ""
        moves["m"].disabled = entry is None or not entry.has_mate

    def on_key(change: dict[str, Any]) -> None:
        if not change["new"]:
            return
        keys.value = ""
        # the box may not have been emptied in the browser yet: the last key is new
        key = change["new"].strip()[-1:]
        if key:
            refresh(explorer.press(key))

    def on_facet(name: str) -> Callable[[dict[str, Any]], None]:
        def follow(change: dict[str, Any]) -> None:
            if not busy[0]:
                explorer.choose(name, change["new"])
                refresh()

        return follow

    def on_length(change: dict[str, Any]) -> None:
        if not busy[0]:
            explorer.choose_lengths(*change["new"])
            refresh()

    def on_click(key: str) -> Callable[[Any], None]:
        def click(_button: Any) -> None:  # noqa: ANN401
            refresh(explorer.press(key))
            keys.focus()

        return click

    keys.observe(on_key, names="value")
    lengths.observe(on_length, names="value")
    for name, box in chosen.items():
        box.observe(on_facet(name), names="value")
    for key, button in moves.items():
        button.on_click(on_click(key))
    refresh()
    wrap = w.Layout(flex_flow="row wrap")
    return w.VBox(
        [
            w.HBox([*chosen.values(), lengths], layout=wrap),
            w.HBox([keys, *moves.values()], layout=wrap),
            status,
            w.HBox([left, right], layout=wrap),
        ]
    )


def static(
    explorer: "Explorer", *, rows: int, order: str, seed: int, caption: str | None
) -> Html:
    """The first replies of an explorer as a table."""
    shown: list[Mapping[str, Any]] = []
    entry = explorer.entry()
    while entry is not None and len(shown) < rows:
        shown.append(_static_row(entry))
        if entry.place == entry.of:
            break
        explorer.move(1)
        entry = explorer.entry()
    total = entry.of if entry is not None else 0
    how = {
        "table": "in the table's order",
        "disagreement": "the largest differences between score and mean label first",
        "random": f"drawn at random, seed {seed}",
    }[order]
    return table(
        shown,
        caption=caption or f"{len(shown)} of {total:,} replies, {how}",
    )


def _static_row(entry: "Entry") -> dict[str, Any]:
    row = entry.row
    return {
        "request": shorten(f"{row['request_id']}: {row['request'] or ''}"),
        **({"arm": row["arm"]} if "arm" in row else {}),
        "reply": shorten(row["reply"] or "(empty)"),
        "score": _score(row),
        **({"labels": _labels(entry)} if entry.labels else {}),
        "judge's reason": f"“{shorten(row['reason'])}”" if row.get("reason") else None,
    }


def _options(explorer: "Explorer", name: str) -> list[tuple[str, Any]]:
    values = explorer.values(name)
    return [(_ALL, ...), *(("none" if v is None else str(v), v) for v in values)]


def _status(explorer: "Explorer", entry: "Entry | None", message: str) -> ET.Element:
    filters = explorer.filters()
    place = f"{entry.place:,} / {entry.of:,}" if entry else "No reply passes"
    return element(
        "p",
        element("strong", place),
        f"  {filters}  {message}".rstrip(),
        element("br"),
        element("small", KEYS),
        role="status",
        style="margin:4px 0",
    )


def _asked(entry: "Entry") -> ET.Element:
    row = entry.row
    about = [str(row[c]) for c in ("topic", "language") if row.get(c) is not None]
    name = ", ".join([f"Request {row['request_id']}", *about])
    return blocks(
        [
            (name, row["request"] or "(empty)"),
            ("Earlier turns", turns_text(row.get("conversation"))),
            ("Facts the assistant had", row.get("context") or ""),
        ]
    )


def _answered(entry: "Entry") -> ET.Element:
    row = entry.row
    name = "Reply" if row.get("arm") is None else f"Reply of arm {row['arm']}"
    verdict = f"Score {_score(row)}"
    if entry.labels:
        verdict += f", labels {_labels(entry)}"
    if entry.gap is not None:
        verdict += f", judge minus people {number(entry.gap, 1, sign=True)}"
    node = element("div", heading(verdict))
    node.extend(
        blocks(
            [
                ("The judge's reason", row.get("reason") or ""),
                (name, row["reply"] or "(empty)"),
            ]
        )
    )
    return node


def _score(row: Mapping[str, Any]) -> str:
    if row.get("score") is not None:
        return str(row["score"])
    detail = row.get("status_detail")
    status = row.get("status") or "none"
    return f"{status} ({detail})" if detail else str(status)


def _labels(entry: "Entry") -> str:
    return ", ".join(
        f"{who} {'none' if value is None else f'{value:g}'}"
        for who, value in entry.labels.items()
    )

"""Numbers and tables as a reader sees them: one set of rules for text and HTML.

Rates are fractions everywhere in the package; percent exists only here. Text from
users and models enters HTML through ElementTree, so it cannot be markup.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
import re
from typing import Any
from xml.etree import ElementTree as ET

MINUS = "−"
_MARKS = {"ok": "✓ ok", "look": "! look", "stop": "✗ stop", "none": "– not measured"}
# XML 1.0 cannot carry these, and a browser would drop them without a word.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """A number with a fixed count of decimals; an en dash where it is undefined.

    Args:
        value: The number, in its own unit; None (undefined) prints as "–".
        digits: Decimals, 0 or more.
        sign: Whether to print "+" before a positive number.

    >>> number(-0.3251), number(0.5, 1, sign=True), number(None)
    ('−0.33', '+0.5', '–')
    """
    if value is None or value != value:
        return "–"
    text = f"{value:+,.{digits}f}" if sign else f"{value:,.{digits}f}"
    if not re.search(r"[1-9]", text):  # no "−0.00"
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def percent(fraction: float | None, digits: int = 0, *, sign: bool = False) -> str:
    """A fraction (0 to 1) as percent.

    >>> percent(0.614), percent(-0.055, 1, sign=True)
    ('61%', '−5.5%')
    """
    if fraction is None or fraction != fraction:
        return "–"
    return number(100 * fraction, digits, sign=sign) + "%"


def pvalue(value: float | None) -> str:
    """A p-value: two significant digits, never "0".

    >>> pvalue(0.0356), pvalue(3e-9), pvalue(0.62)
    ('0.036', '< 0.0001', '0.62')
    """
    if value is None or value != value:
        return "–"
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def interval(
    low: float | None, high: float | None, digits: int = 2, *, sign: bool = False
) -> str:
    """An interval in words, so that a minus sign is never mistaken for a dash.

    >>> interval(-0.63, -0.02, sign=True)
    '−0.63 to −0.02'
    """
    if low is None or high is None or low != low or high != high:
        return "–"
    return f"{number(low, digits, sign=sign)} to {number(high, digits, sign=sign)}"


def count(value: int) -> str:
    """A whole number with thousands separated.

    >>> count(1210)
    '1,210'
    """
    return f"{value:,}"


def shorten(text: str, limit: int = 280) -> str:
    """Text cut at `limit` characters, with a mark where it was cut."""
    text = text.strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def status(mark: str) -> str:
    """A check's status as a mark and a word: ok, look, stop or none (not measured)."""
    return _MARKS[mark]


def visible(text: str) -> str:
    """Text with control characters made visible, as XML and a reader need it."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m.group()):02x}", text)


@dataclass(frozen=True)
class Html:
    """A fragment of HTML that Jupyter shows; `str()` gives the markup.

    Attributes:
        markup: Well-formed HTML; everything untrusted in it is already escaped.
    """

    markup: str

    def _repr_html_(self) -> str:
        return self.markup

    def __str__(self) -> str:
        return self.markup

    def __add__(self, other: "Html") -> "Html":
        return Html(self.markup + other.markup)


def element(
    tag: str, *children: "str | ET.Element | None", **attributes: str
) -> ET.Element:
    """An element from strings (escaped when printed) and elements.

    A trailing underscore in an attribute's name is dropped (`class_`); other
    underscores become dashes (`aria_label`).
    """
    node = ET.Element(
        tag,
        {
            key.rstrip("_").replace("_", "-"): visible(value)
            for key, value in attributes.items()
        },
    )
    last: ET.Element | None = None
    for child in children:
        if child is None:
            continue
        if isinstance(child, ET.Element):
            node.append(child)
            last = child
        elif last is None:
            node.text = (node.text or "") + visible(str(child))
        else:
            last.tail = (last.tail or "") + visible(str(child))
    return node


def html(*nodes: ET.Element) -> Html:
    """The elements as one fragment."""
    return Html(
        "".join(ET.tostring(n, encoding="unicode", method="html") for n in nodes)
    )


#: A column with a longer text than this is read, not compared.
_PROSE = 24


def table(
    rows: Iterable[Mapping[str, Any]],
    *,
    headers: Mapping[str, str] | None = None,
    caption: str | None = None,
    row_header: bool = True,
) -> Html:
    """A table for a report, every cell escaped.

    Args:
        rows: One mapping per row; the first row's keys are the columns. Values are
            printed with `str` (format numbers first, with this module), None as "–",
            elements as they are. `frame.iter_rows(named=True)` gives such rows.
        headers: Column key to heading; keys not named keep their name.
        caption: What the table shows, in words.
        row_header: Whether the first cell of a row names the row (`<th scope="row">`).

    >>> print(table([{"arm": "<b>", "replies": count(1210)}]))
    <table>...<tr><th scope="row">&lt;b&gt;</th><td>1,210</td></tr></tbody></table>
    """
    rows = list(rows)
    columns = list(rows[0]) if rows else list(headers or {})
    headers = headers or {}
    # JupyterLab sets every cell to the right: good for numbers, not for sentences.
    prose = {c for c in columns if any(len(str(r.get(c))) > _PROSE for r in rows)}
    left = {c: {"style": "text-align:left"} if c in prose else {} for c in columns}
    head = element(
        "tr",
        *(element("th", headers.get(c, c), scope="col", **left[c]) for c in columns),
    )
    body = element("tbody")
    for row in rows:
        cells: Sequence[ET.Element] = [
            element("th", _cell(row.get(c)), scope="row", **left[c])
            if row_header and i == 0
            else element("td", _cell(row.get(c)), **left[c])
            for i, c in enumerate(columns)
        ]
        body.append(element("tr", *cells))
    return html(
        element(
            "table",
            element("caption", caption) if caption else None,
            element("thead", head),
            body,
        )
    )


def _cell(value: Any) -> "str | ET.Element":  # noqa: ANN401
    if value is None:
        return "–"
    return value if isinstance(value, ET.Element) else str(value)

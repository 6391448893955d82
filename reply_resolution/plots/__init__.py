"""Figures: each function returns a `Figure` with an alt text that states the finding.

Nothing here calls `plt.show` or changes matplotlib's global settings, and the same
data give the same bytes (no date, a fixed hash salt).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import hashlib
from html import escape
import io
import re
from typing import Any

from reply_resolution.errors import ReportError

#: Scores 1 to 5 (ColorBrewer PuOr): told apart in grey and by colour-blind readers.
SCORE_COLORS = ("#b35806", "#f1a340", "#d8d8d8", "#998ec3", "#542788")
#: Text that stays readable (4.5:1) on each of `SCORE_COLORS`.
SCORE_TEXT_COLORS = ("#ffffff", "#000000", "#000000", "#000000", "#ffffff")
ACCENT = "#542788"
CONTROL = "#b35806"
MUTED = "#5c5c5c"

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "reply_resolution",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # "$" in a label is money, not mathematics
}


@dataclass(frozen=True)
class Figure:
    """A finished figure.

    Attributes:
        svg: The picture, one `<svg>` element.
        alt: What it shows, in words and numbers, for who cannot see it.
    """

    svg: str
    alt: str

    def _repr_html_(self) -> str:
        return (
            f'<figure role="img" aria-label="{escape(self.alt, quote=True)}">'
            f"{self.svg}</figure>"
        )


@contextmanager
def canvas(width: float, height: float, **subplots: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    """A matplotlib figure and its axes in the house style, closed afterwards.

    Args:
        width: Inches; 7.2 is the width of the page.
        height: Inches.
        **subplots: Passed to `matplotlib.pyplot.subplots` (`nrows`, `ncols`, ...).
    """
    import matplotlib as mpl  # 1 s: only where a figure is drawn
    from matplotlib.figure import Figure as MplFigure

    with mpl.rc_context(_STYLE):
        figure = MplFigure(figsize=(width, height))
        axes = figure.subplots(**subplots)
        yield figure, axes


def render(figure: Any, alt: str) -> Figure:  # noqa: ANN401
    """Turn a matplotlib figure into a `Figure`; call it inside `canvas`.

    Args:
        figure: The matplotlib figure.
        alt: States the finding with its numbers; must not be empty.
    """
    if not alt.strip():
        raise ReportError("a figure needs an alt text that states what it shows.")
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    # Metadata carries only vocabulary addresses; the page should name none.
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Every figure calls its parts figure_1, axes_1, ...; on one page they would meet.
    prefix = "f" + hashlib.sha256((alt + svg).encode()).hexdigest()[:8]
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", svg)
    return Figure(svg=svg.strip(), alt=alt)

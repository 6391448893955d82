"""What every figure keeps to, whatever it shows."""

import re

import pytest

from reply_resolution.errors import ReportError
from reply_resolution.plots import canvas, render


def _figure(height: float, alt: str):
    with canvas(2, 1) as (figure, axes):
        axes.plot([0, 1], [0, height], marker="o")
        return render(figure, alt)


def test_figures_on_one_page_share_no_id():
    """Ids differ between figures, and every reference finds its target."""
    first, second = _figure(1, "up by 1"), _figure(2, "up by 2")
    ids = [re.findall(r'\bid="([^"]+)"', f.svg) for f in (first, second)]
    assert ids[0]
    assert not set(ids[0]) & set(ids[1])
    for found, figure in zip(ids, (first, second), strict=True):
        used = re.findall(r'(?:url\(|href=")#([^")]+)', figure.svg)
        assert used
        assert set(used) <= set(found)


def test_the_same_data_give_the_same_bytes():
    """Drawn twice, a figure is the same text."""
    assert _figure(1, "up by 1") == _figure(1, "up by 1")


def test_a_figure_without_words_is_refused():
    """A reader who cannot see the picture is never left without it."""
    with pytest.raises(ReportError, match="alt text"):
        _figure(1, " ")

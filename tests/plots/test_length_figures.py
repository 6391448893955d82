"""Figures of the length check: what their alt text says."""

import numpy as np
import polars as pl

from reply_resolution.plots.length import bias_line, effect_rows
from reply_resolution.stats.length import length_bias
from reply_resolution.stats.length_effects import length_effect


def _labelled(n: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    label = rng.integers(1, 6, n)
    return pl.DataFrame(
        {
            "score": np.clip(label + rng.integers(-1, 2, n), 1, 5),
            "label": label,
            "reply": ["x" * int(k) for k in rng.integers(60, 900, n)],
        }
    )


def test_alt_text_states_slope_and_interval() -> None:
    """Who cannot see the line reads its slope and the number of replies."""
    frame = _labelled(50)
    bias = length_bias(frame)
    alt = bias_line(frame, bias).alt
    assert "50 labelled replies" in alt
    assert f"{bias.points_per_doubling:+.2f}".replace("-", "−") in alt


def test_many_replies_do_not_make_a_heavy_page() -> None:
    """20,000 replies are thinned to a few hundred dots, every k-th by length."""
    frame = _labelled(20_000)
    figure = bias_line(frame, length_bias(frame))
    assert len(figure.svg) < 100_000


def test_effects_that_are_undefined_are_left_out() -> None:
    """Without a measured bias there are two rows: as judged, and at equal length."""
    frame = _labelled(40).with_columns(
        arm=pl.when(pl.int_range(40) % 2 == 0).then(pl.lit("a")).otherwise(pl.lit("b"))
    )
    effect = length_effect(frame, None, control="a", treatment="b")
    alt = effect_rows(effect).alt
    assert "as the judge scored it" in alt
    assert "corrected" not in alt

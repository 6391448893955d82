"""The figures of the length check: the bias line, bins, twins, corrected effects."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from reply_resolution.display import interval, number
from reply_resolution.plots import ACCENT, CONTROL, MUTED, Figure, canvas, render
from reply_resolution.stats.length import LengthBias
from reply_resolution.stats.length_effects import LengthEffect, PairsTest
from reply_resolution.stats.lengths import usable

#: Dots drawn at most; with more replies every k-th by length stands for its neighbours.
MOST_DOTS = 400


def bias_line(frame: pl.DataFrame, bias: LengthBias) -> Figure:
    """Judge minus people against length, with the fitted slope and its interval.

    Args:
        frame: The labelled replies that `bias` was measured on: `score`, `label`,
            `reply`.
        bias: From `length_bias`; must have an estimate.
    """
    data, _ = usable(frame, {"judge": ["score"], "label": ["label"]})
    data = data.sort("length")
    x, y = data["length"].to_numpy(), (data["judge"] - data["label"]).to_numpy()
    unit = "points"
    if bias.standardised:
        y = (data["judge"] / data["judge"].std()).to_numpy()
        y = y - (data["label"] / data["label"].std()).to_numpy()
        y, unit = y - y.mean(), "standard deviations"
    slope = bias.points_per_doubling or 0.0
    along = np.geomspace(x.min(), x.max(), 41)  # the band is narrowest in the middle
    steps = np.log2(along) - data["doublings"].to_numpy().mean()
    with canvas(7.2, 2.9) as (figure, axes):
        axes.axhline(0, color=MUTED, linewidth=0.8)
        # A fixed spread up and down (no chance): equal differences would hide replies.
        spread = 0.09 * np.sin(np.arange(len(x)) * 2.399963)
        step = max(1, -(-len(x) // MOST_DOTS))
        dots = x[::step], (y + spread)[::step]
        axes.scatter(*dots, s=13, color=ACCENT, alpha=0.45, linewidths=0)
        if bias.ci is not None:
            edges = np.outer(bias.ci, steps) + y.mean()
            low, high = edges.min(axis=0), edges.max(axis=0)
            axes.fill_between(along, low, high, color=CONTROL, alpha=0.18, linewidth=0)
        axes.plot(along, y.mean() + slope * steps, color=CONTROL, linewidth=2)
        axes.set_xscale("log", base=2)
        # Lengths 25, 50, 100, ... inside the range, at least two.
        ticks = [t for k in range(24) if x.min() <= (t := 25 * 2**k) <= x.max()]
        if len(ticks) < 2:
            ticks = [round(x.min()), max(round(x.max()), round(x.min()) + 1)]
        axes.set_xticks(ticks, [f"{t:,}" for t in ticks])
        axes.set_xlabel("length of the reply, characters (each step doubles)")
        axes.set_ylabel(f"judge minus people,\n{unit}")
        alt = (
            f"{bias.n} labelled replies: judge minus people's label against length. "
            f"The line rises by {number(slope, 2, sign=True)} {unit} per doubling "
            f"(interval {interval(*(bias.ci or (None, None)), sign=True)}; 0 is no "
            "bias)."
        )
        return render(figure, alt)


def bin_means(bins: pl.DataFrame) -> Figure:
    """Mean score of judge and people in bins of like length, from `length_bins`."""
    names = [
        f"{low:,} to {high:,}"
        for low, high in bins.select("shortest", "longest").iter_rows()
    ]
    places = range(bins.height)
    with canvas(7.2, 2.6) as (figure, axes):
        axes.plot(places, bins["judge"], "o-", color=ACCENT, label="judge")
        axes.plot(places, bins["label"], "s--", color=CONTROL, label="people")
        axes.set_xticks(list(places), names)
        axes.set_xlabel("length of the reply, characters")
        axes.set_ylabel("mean score")
        axes.margins(y=0.25)
        axes.legend(frameon=False, ncols=2, loc="best")
        means = zip(names, bins["judge"], bins["label"], strict=True)
        parts = "; ".join(
            f"{name} characters: judge {number(judge)}, people {number(label)}"
            for name, judge, label in means
        )
        return render(figure, f"Mean score by length of the reply. {parts}.")


def twin_changes(tests: Sequence[PairsTest], *, margin: float) -> Figure:
    """What each change of form does to the judge's score.

    Args:
        tests: From `pairs_by_kind`, at least one.
        margin: A change that would not matter, points; shaded.
    """
    return _dots(
        {
            f"{t.kind} ({t.n} pairs, ×{number(2**t.doublings, 1)} as long)": (
                t.change,
                t.ci,
            )
            for t in tests
        },
        margin,
        "score of twin minus original, points (shaded: too small to matter)",
        "Mean change of the judge's score from original to twin",
    )


def effect_rows(effect: LengthEffect) -> Figure:
    """The effect as judged, corrected for length bias, and at equal length."""
    rows = {
        "as the judge scored it": (effect.judge_effect, effect.judge_ci),
        "corrected for length bias": (effect.corrected, effect.corrected_ci),
        "sensitivity: at equal length": (
            effect.length_controlled,
            effect.length_controlled_ci,
        ),
    }
    return _dots(
        {name: (v, ci) for name, (v, ci) in rows.items() if v is not None},
        0.0,
        f"{effect.treatment} minus {effect.control}, score points",
        f"Effect of {effect.treatment} against {effect.control}",
    )


def _dots(
    rows: dict[str, tuple[float, tuple[float, float] | None]],
    margin: float,
    axis: str,
    title: str,
) -> Figure:
    """Dots with intervals on one axis around 0; `margin` above 0 is shaded."""
    ends = [abs(end) for value, ci in rows.values() for end in ci or (value,)]
    reach = 1.15 * max(margin, *ends)
    with canvas(7.2, 0.95 + 0.36 * len(rows)) as (figure, axes):
        if margin:
            axes.axvspan(-margin, margin, color="#ececec", zorder=0)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        parts = []
        for y, (name, (value, ci)) in enumerate(rows.items()):
            if ci is not None:
                axes.plot(ci, [y, y], color=ACCENT, linewidth=2)
            axes.plot([value], [y], "o", color=ACCENT)
            words = number(value, sign=True)
            place = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center"}
            axes.annotate(words, (value, y), **place)
            low, high = ci or (None, None)
            parts.append(f"{name}: {words} ({interval(low, high, sign=True)})")
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.5, -0.7)
        axes.set_xlim(-reach, reach)
        axes.set_xlabel(axis)
        return render(figure, f"{title}, with intervals. {'; '.join(parts)}.")

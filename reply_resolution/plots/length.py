"""The figures of the length check: the bias line, bins, twins, corrected effects."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from reply_resolution.display import interval, number
from reply_resolution.errors import ReportError
from reply_resolution.plots import ACCENT, CONTROL, MUTED, Figure, canvas, render
from reply_resolution.stats.columns import length_column, numbers
from reply_resolution.stats.length import LengthBias
from reply_resolution.stats.length_effects import LengthEffect
from reply_resolution.stats.length_pairs import PairsTest

#: Dots drawn at most; with more replies every k-th by length stands for its neighbours.
MOST_DOTS = 400


def bias_line(
    frame: pl.DataFrame,
    bias: LengthBias,
    *,
    judge: str = "score",
    label: str = "label",
    reply: str = "reply",
    length: str | None = None,
) -> Figure:
    """Judge minus people against length, with the fitted slope and its interval.

    Args:
        frame: The labelled replies that `bias` was measured on.
        bias: From `length_bias`; must have an estimate.
        judge: Column with the judge's score.
        label: Column with the people's label.
        reply: Column with the text.
        length: Column with a length to use instead.

    Raises:
        ReportError: The bias has no estimate.
    """
    if bias.points_per_doubling is None:
        raise ReportError("the length bias has no estimate, so no line can be drawn.")
    data = pl.DataFrame(
        {
            "judge": numbers(frame, judge),
            "label": numbers(frame, label),
            "length": length_column(frame, reply=reply, length=length),
        }
    )
    data = data.drop_nulls().filter(pl.col("length") > 0).sort("length")
    x, y = data["length"].to_numpy(), (data["judge"] - data["label"]).to_numpy()
    unit = "points"
    if bias.standardised:
        scaled = (
            data["judge"] / data["judge"].std() - data["label"] / data["label"].std()
        )
        y, unit = (scaled - scaled.mean()).to_numpy(), "standard deviations"
    slope, middle = bias.points_per_doubling, float(np.log2(x).mean())
    along = np.geomspace(x.min(), x.max(), 41)  # the band is narrowest in the middle
    steps = np.log2(along) - middle
    with canvas(7.2, 2.9) as (figure, axes):
        axes.axhline(0, color=MUTED, linewidth=0.8)
        step = max(1, -(-len(x) // MOST_DOTS))
        # A fixed spread up and down (no chance): equal differences would hide replies.
        spread = 0.09 * np.sin(np.arange(len(x)) * 2.399963)
        axes.scatter(
            x[::step],
            (y + spread)[::step],
            s=13,
            color=ACCENT,
            alpha=0.45,
            linewidths=0,
        )
        if bias.ci is not None:
            edges = np.outer(bias.ci, steps) + y.mean()
            axes.fill_between(
                along,
                edges.min(axis=0),
                edges.max(axis=0),
                color=CONTROL,
                alpha=0.18,
                linewidth=0,
            )
        axes.plot(along, y.mean() + slope * steps, color=CONTROL, linewidth=2)
        axes.set_xscale("log", base=2)
        ticks = _round_ticks(x.min(), x.max())
        axes.set_xticks(ticks, [f"{t:,}" for t in ticks])
        axes.set_xlabel("length of the reply, characters (each step doubles)")
        axes.set_ylabel(f"judge minus people,\n{unit}")
        low, high = bias.ci or (None, None)
        alt = (
            f"{bias.n} labelled replies: judge minus people's label against length. "
            f"The line rises by {number(slope, 2, sign=True)} {unit} per doubling "
            f"(interval {interval(low, high, 2, sign=True)}; 0 is no bias)."
        )
        return render(figure, alt)


def bin_means(bins: pl.DataFrame) -> Figure:
    """Mean score of judge and people in bins of like length.

    Args:
        bins: From `length_bins`.
    """
    names = [
        f"{low:,} to {high:,}"
        for low, high in bins.select("shortest", "longest").iter_rows()
    ]
    places = range(bins.height)
    with canvas(7.2, 2.6) as (figure, axes):
        for column, color, mark, name in (
            ("judge", ACCENT, "o-", "judge"),
            ("label", CONTROL, "s--", "people"),
        ):
            axes.plot(places, bins[column], mark, color=color, label=name)
        axes.set_xticks(list(places), names)
        axes.set_xlabel("length of the reply, characters")
        axes.set_ylabel("mean score")
        axes.margins(y=0.25)
        axes.legend(frameon=False, ncols=2, loc="best")
        parts = "; ".join(
            f"{name} characters: judge {number(judge)}, people {number(label)}"
            for name, judge, label in zip(
                names, bins["judge"], bins["label"], strict=True
            )
        )
        return render(figure, f"Mean score by length of the reply. {parts}.")


def twin_changes(tests: Sequence[PairsTest], *, margin: float = 0.2) -> Figure:
    """What each change of form does to the judge's score.

    Args:
        tests: From `pairs_by_kind`, at least one.
        margin: A change that would not matter, points; shaded.

    Raises:
        ReportError: There is no test.
    """
    if not tests:
        raise ReportError("there are no twins to draw.")
    names = [
        f"{t.kind} ({t.n} pairs, ×{number(2**t.doublings, 1)} as long)" for t in tests
    ]
    return _dots(
        names,
        [(t.change, t.ci) for t in tests],
        margin,
        "score of twin minus original, points (shaded: too small to matter)",
        "Mean change of the judge's score from original to twin",
    )


def effect_rows(effect: LengthEffect) -> Figure:
    """The effect as judged, corrected for length bias, and at equal length.

    Args:
        effect: From `length_effect`.
    """
    rows = [
        ("as the judge scored it", effect.judge_effect, effect.judge_ci),
        ("corrected for length bias", effect.corrected, effect.corrected_ci),
        (
            "sensitivity: at equal length",
            effect.length_controlled,
            effect.length_controlled_ci,
        ),
    ]
    shown = [(name, value, ci) for name, value, ci in rows if value is not None]
    return _dots(
        [name for name, _, _ in shown],
        [(value, ci) for _, value, ci in shown],
        0.0,
        f"{effect.treatment} minus {effect.control}, score points",
        f"Effect of {effect.treatment} against {effect.control}",
    )


def _dots(
    names: Sequence[str],
    values: Sequence[tuple[float, tuple[float, float] | None]],
    margin: float,
    axis: str,
    title: str,
) -> Figure:
    """Dots with intervals on one axis around 0; `margin` above 0 is shaded."""
    reach = 1.15 * max(
        margin, *(max(map(abs, ci or (value, value))) for value, ci in values)
    )
    with canvas(7.2, 0.95 + 0.36 * len(names)) as (figure, axes):
        if margin:
            axes.axvspan(-margin, margin, color="#ececec", zorder=0)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        for y, (value, ci) in enumerate(values):
            if ci is not None:
                axes.plot(ci, [y, y], color=ACCENT, linewidth=2)
            axes.plot([value], [y], "o", color=ACCENT)
            axes.annotate(
                number(value, sign=True),
                (value, y),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
            )
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.7)
        axes.set_xlim(-reach, reach)
        axes.set_xlabel(axis)
        parts = "; ".join(
            f"{name}: {number(value, sign=True)} "
            f"({interval(*(ci or (None, None)), sign=True)})"
            for name, (value, ci) in zip(names, values, strict=True)
        )
        return render(figure, f"{title}, with intervals. {parts}.")


def _round_ticks(low: float, high: float) -> list[int]:
    """Lengths 25, 50, 100, ... inside the range, at least two."""
    ticks = [t for k in range(24) if low <= (t := 25 * 2**k) <= high]
    return ticks if len(ticks) >= 2 else [round(low), max(round(high), round(low) + 1)]

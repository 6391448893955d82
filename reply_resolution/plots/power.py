"""The figures of notebook 3: power against replies, and both analyses side by side."""

from collections.abc import Sequence

from reply_resolution import display
from reply_resolution.errors import ReportError
from reply_resolution.plots import ACCENT, CONTROL, MUTED, Figure, canvas, render
from reply_resolution.stats.collapse import Collapse
from reply_resolution.stats.collapse_power import PowerCurve

_TICKS = (5, 20, 100, 500, 2000, 10_000, 50_000)
#: How an assumption is named above its panel.
PANELS = {
    "shift": "If every level shifts",
    "cut": "If replies only cross the cut",
    "noise": "If levels are noise within a class",
}


def power_curves(
    curves: Sequence[PowerCurve], *, n: int, target: float = 0.8
) -> Figure:
    """Power of both analyses against replies per arm, one panel per assumption.

    Args:
        curves: One per assumption, all of the same sizes, which hold `n`.
        n: The user's replies per arm, marked in every panel.
        target: The power one would like, fraction; a thin line.

    Raises:
        ReportError: No curve, or `n` is not among the sizes.
    """
    if not curves or any(n not in curve.sizes for curve in curves):
        raise ReportError(
            f"power curves need at least one assumption, and {n} replies among their "
            "sizes."
        )
    with canvas(7.2, 2.75, ncols=len(curves), sharey=True, squeeze=False) as (
        fig,
        axes,
    ):
        for panel, curve in zip(axes[0], curves, strict=True):
            panel.axhline(target, color=MUTED, lw=0.6, ls=(0, (1, 2)))
            panel.axvline(n, color=MUTED, lw=0.9)
            at = curve.sizes.index(n)
            lines = (
                ("ordinal", curve.ordinal, ACCENT, "-", "o"),
                ("binary", curve.binary, CONTROL, "--", "s"),
            )
            for name, powers, color, dash, mark in lines:
                panel.plot(
                    curve.sizes, powers, color=color, ls=dash, lw=1.8, label=name
                )
                panel.plot([n], [powers[at]], color=color, marker=mark, ms=5)
            # The curves rise, so above-left of the upper and below-right of the lower
            # one there is room.
            top = "ordinal" if curve.ordinal[at] >= curve.binary[at] else "binary"
            for name, powers, color, _, _ in lines:
                above = name == top
                panel.annotate(
                    f"{powers[at]:.0%}",
                    (n, powers[at]),
                    (-6 if above else 6, 5 if above and powers[at] < 0.93 else -7),
                    textcoords="offset points",
                    ha="right" if above else "left",
                    va="center",
                    fontsize=8.5,
                    color=color,
                    fontweight="bold",
                )
            panel.set_xscale("log")
            ticks = [t for t in _TICKS if curve.sizes[0] <= t <= curve.sizes[-1]]
            panel.set_xticks(ticks, [display.count(t) for t in ticks])
            panel.minorticks_off()
            panel.set_ylim(0, 1.02)
            panel.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
            panel.set_title(PANELS[curve.assumed.assume], fontsize=9.5, loc="left")
            panel.set_xlabel("scored replies per arm")
        axes[0][0].set_ylabel("chance to find the effect")
        axes[0][-1].legend(loc="lower right", frameon=False, fontsize=8.5)
        said = "; ".join(
            f"{PANELS[c.assumed.assume].lower()}, ordinal "
            f"{c.ordinal[c.sizes.index(n)]:.0%} and binary "
            f"{c.binary[c.sizes.index(n)]:.0%}"
            for c in curves
        )
        return render(
            fig,
            f"Chance to find {curves[0].assumed.effect:.2f} points against replies per "
            f"arm. With your {display.count(n)} replies per arm: {said}.",
        )


def both_analyses(result: Collapse) -> Figure:
    """Estimate and interval of the ordinal and of the binary analysis, side by side."""
    with canvas(7.2, 1.5, ncols=2) as (fig, axes):
        parts = []
        for panel, name, one, scale in (
            (axes[0], "Mean score, points", result.ordinal, 1),
            (axes[1], "Share resolved, percentage points", result.binary, 100),
        ):
            low, high = (
                one.estimate if end is None else end for end in (one.low, one.high)
            )
            reach = 1.15 * scale * max(abs(low), abs(high), 0.02)
            color = ACCENT if panel is axes[0] else CONTROL
            panel.axvline(0, color=MUTED, lw=0.9)
            panel.plot([scale * low, scale * high], [0, 0], color=color, lw=2.4)
            panel.plot([scale * one.estimate], [0], "o", color=color, ms=7)
            panel.set_xlim(-reach, reach)
            panel.set_ylim(-1, 1)
            panel.set_yticks([])
            panel.spines["left"].set_visible(False)
            panel.xaxis.set_major_formatter(
                lambda value, _: display.number(value, 1 if abs(value) < 3 else 0)
            )
            panel.set_title(name, fontsize=9.5, loc="left")
            panel.set_xlabel("control better   |   treatment better")
            digits = 2 if scale == 1 else 1
            parts.append(
                f"{name}: {display.number(scale * one.estimate, digits, sign=True)} "
                f"({display.interval(scale * low, scale * high, digits, sign=True)})"
            )
        return render(
            fig, "Treatment minus control, both ways. " + "; ".join(parts) + "."
        )

"""The figures of the readout: score bars, intervals on one axis, the looks so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reply_resolution import display
from reply_resolution.errors import ReportError
from reply_resolution.plots import (
    ACCENT,
    CONTROL,
    MUTED,
    SCORE_COLORS,
    SCORE_TEXT_COLORS,
    Figure,
    canvas,
    render,
)

#: Replies scored 1 to 5, as the legend names them.
LEVELS = ("1 not resolved", "2", "3 partly", "4", "5 resolved")
#: A point is a quarter of the scale; so are 25 percentage points of "resolved".
PERCENT_PER_POINT = 25.0
_LONGEST_NAME = 18


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the interval figure.

    Attributes:
        name: What the estimate is, in a few words.
        estimate: Treatment minus control: score points, or a fraction where `share`.
            None where it is absent.
        low: Lower end of the interval, same unit.
        high: Upper end, same unit.
        absent: Why there is no estimate, in a few words; printed in its place.
        decides: Whether the recommendation rests on this row.
        share: True for a difference in share resolved (fraction, upper axis).
    """

    name: str
    estimate: float | None
    low: float | None
    high: float | None
    absent: str = ""
    decides: bool = False
    share: bool = False


def score_bars(counts: Mapping[str, Sequence[int]], *, unit: str = "replies") -> Figure:
    """Diverging stacked bars of the scores 1 to 5, one bar per arm, control first.

    Bars are split at the middle of score 3: what lies right of the line leans towards
    resolved. Shares under 4% carry no number (they are in the table and alt text).

    Args:
        counts: Arm to its five counts; each arm at least one reply.
        unit: What is counted, plural.

    Raises:
        ReportError: No arm, or an arm without replies.

    Source: Heiberger and Robbins 2014.
    """
    if not counts or any(sum(c) == 0 for c in counts.values()):
        raise ReportError("score bars need at least one scored reply in every arm.")
    shares = {arm: [100 * n / sum(c) for n in c] for arm, c in counts.items()}
    lefts = {arm: s[0] + s[1] + s[2] / 2 for arm, s in shares.items()}
    left = max(20.0, *lefts.values()) + 4
    right = max(20.0, *(100 - x for x in lefts.values())) + 4
    arms = list(counts)
    with canvas(4.6, 0.95 + 0.5 * len(arms)) as (figure, axes):
        for y, arm in enumerate(reversed(arms)):
            start = -lefts[arm]
            for k, share in enumerate(shares[arm]):
                axes.barh(
                    y,
                    share,
                    left=start,
                    height=0.66,
                    color=SCORE_COLORS[k],
                    edgecolor="white",
                    linewidth=0.8,
                )
                if share >= 4:
                    axes.text(
                        start + share / 2,
                        y,
                        f"{share:.0f}",
                        ha="center",
                        va="center",
                        fontsize=8.5,
                        color=SCORE_TEXT_COLORS[k],
                    )
                start += share
        # Fixed slots: a legend placed over the segments collides where they are thin.
        width = (left + right) / 5.6
        slots = (0.0, 1.65, 2.3, 3.35, 4.0)
        top = len(arms) - 0.12
        for k, name in enumerate(LEVELS):
            x = -left + slots[k] * width
            axes.barh(top, 0.17 * width, left=x, height=0.2, color=SCORE_COLORS[k])
            axes.text(x + 0.24 * width, top, name, va="center", fontsize=8)
        axes.axvline(0, ymax=len(arms) / (len(arms) + 0.55), color=MUTED, lw=0.8)
        axes.set_xlim(-left, right)
        axes.set_ylim(-0.5, len(arms) + 0.05)
        axes.set_yticks(
            range(len(arms)),
            [
                f"{display.shorten(arm, _LONGEST_NAME)}\n"
                f"n {display.count(sum(counts[arm]))}"
                for arm in reversed(arms)
            ],
        )
        axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
        axes.tick_params(left=False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"% of {unit}, split at the middle of score 3", fontsize=8.5)
        parts = [
            f"{arm} ({display.count(sum(counts[arm]))} {unit}): "
            + ", ".join(f"{k + 1} {s:.0f}%" for k, s in enumerate(shares[arm]))
            for arm in arms
        ]
        return render(figure, "Share of scores 1 to 5. " + "; ".join(parts) + ".")


def intervals(
    rows: Sequence[Row], *, worthwhile: float, harm: float, treatment: str = "treatment"
) -> Figure:
    """Estimates with their intervals on one axis, the worthwhile region shaded.

    The lower axis is in score points. A difference in share resolved is drawn on the
    upper axis: 25 percentage points lie above one point, since both are a quarter of
    what is possible.

    Args:
        rows: In the order they are to be read; absent ones print their reason.
        worthwhile: Smallest gain worth a release, score points.
        harm: Largest loss that would not matter, score points.
        treatment: Name of the treatment arm.
    """
    scale = PERCENT_PER_POINT / 100
    reach = [worthwhile * 1.35, harm * 1.35]
    for row in rows:
        if row.low is not None and row.high is not None:
            unit = scale if row.share else 1.0
            reach += [abs(row.low) / unit, abs(row.high) / unit]
    limit = min(4.0, 1.08 * max(reach))
    has_share = any(r.share and r.estimate is not None for r in rows)
    height = 0.62 + 0.36 * len(rows) + (0.3 if has_share else 0.0)
    said = []
    with canvas(3.9, max(1.6, height)) as (figure, axes):
        axes.axvspan(worthwhile, limit, color=ACCENT, alpha=0.10, lw=0)
        axes.axvspan(-limit, -harm, color=CONTROL, alpha=0.10, lw=0)
        axes.axvline(0, color=MUTED, lw=0.8)
        for y, row in enumerate(reversed(rows)):
            if row.estimate is None or row.low is None or row.high is None:
                axes.text(
                    0,
                    y,
                    row.absent,
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color=MUTED,
                    bbox={"fc": "white", "ec": "none", "pad": 1},
                )
                said.append(f"{row.name}: absent, {row.absent}")
                continue
            unit = scale if row.share else 1.0
            color = ACCENT if row.decides else MUTED
            axes.plot(
                [row.low / unit, row.high / unit],
                [y, y],
                color=color,
                lw=3 if row.decides else 1.6,
                solid_capstyle="butt",
            )
            axes.plot(
                row.estimate / unit,
                y,
                "s" if row.share else "o",
                color=color,
                ms=7 if row.decides else 5,
            )
            if row.share:
                low, high = 100 * row.low, 100 * row.high
                said.append(
                    f"{row.name}: {display.number(100 * row.estimate, 0, sign=True)} "
                    f"percentage points ({display.interval(low, high, 0, sign=True)})"
                )
            else:
                said.append(
                    f"{row.name}: {display.number(row.estimate, sign=True)} points "
                    f"({display.interval(row.low, row.high, sign=True)})"
                )
        top = len(rows) - 0.42
        axes.text(limit, top, "worthwhile ", ha="right", fontsize=7.5, color=ACCENT)
        axes.text(-limit, top, " harm", ha="left", fontsize=7.5, color=CONTROL)
        axes.set_xlim(-limit, limit)
        axes.set_ylim(-0.55, len(rows) - 0.1)
        axes.set_yticks(range(len(rows)), [r.name for r in reversed(rows)])
        for label, row in zip(axes.get_yticklabels(), reversed(rows), strict=True):
            label.set_fontweight("bold" if row.decides else "normal")
        axes.tick_params(left=False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("points, treatment minus control", fontsize=8.5)
        if has_share:
            upper = axes.secondary_xaxis(
                "top",
                functions=(
                    lambda x: x * PERCENT_PER_POINT,
                    lambda x: x / PERCENT_PER_POINT,
                ),
            )
            upper.tick_params(labelsize=7.5, colors=MUTED)
            upper.spines["top"].set_color(MUTED)
            upper.set_xlabel("■ percentage points", fontsize=7.5, color=MUTED)
        alt = (
            f"Difference of {treatment} from control. "
            + "; ".join(said[::-1])
            + f". A gain of {display.number(worthwhile)} points or more is worthwhile, "
            f"a loss of more than {display.number(harm)} is harm."
        )
        return render(figure, alt)


def looks(
    labels: Sequence[str],
    estimates: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    *,
    worthwhile: float,
    harm: float,
) -> Figure:
    """How the interval narrowed as replies came in: one dot and bar per look.

    Args:
        labels: What each look is called (a date and the replies so far), in order.
        estimates: Difference at each look, score points, treatment minus control.
        lows: Lower ends of the confidence sequence.
        highs: Upper ends.
        worthwhile: Smallest gain worth a release, score points.
        harm: Largest loss that would not matter, score points.

    Raises:
        ReportError: No look.
    """
    if not labels:
        raise ReportError("a picture of the looks needs at least one look.")
    with canvas(7.2, 2.3) as (figure, axes):
        x = list(range(len(labels)))
        limit = min(4.0, 1.08 * max(*map(abs, lows), *map(abs, highs), worthwhile))
        axes.axhspan(worthwhile, limit, color=ACCENT, alpha=0.10, lw=0)
        axes.axhspan(-limit, -harm, color=CONTROL, alpha=0.10, lw=0)
        axes.axhline(0, color=MUTED, lw=0.8)
        axes.fill_between(x, lows, highs, color=ACCENT, alpha=0.14, lw=0)
        axes.vlines(x, lows, highs, color=ACCENT, lw=1.6)
        axes.plot(x, estimates, "o-", color=ACCENT, ms=4, lw=1)
        axes.set_ylim(-limit, limit)
        axes.set_xlim(-0.5, len(x) - 0.5)
        axes.set_xticks(x, labels, fontsize=8)
        axes.set_ylabel("points, treatment\nminus control", fontsize=8.5)
        first, last = highs[0] - lows[0], highs[-1] - lows[-1]
        alt = (
            f"Over {len(x)} looks the interval went from a width of {first:.2f} points "
            f"to {last:.2f}; at the last it is "
            f"{display.interval(lows[-1], highs[-1], sign=True)} around "
            f"{display.number(estimates[-1], sign=True)}."
        )
        return render(figure, alt)

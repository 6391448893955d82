"""The figures of a calibration: confusion with counts, bias by level, agreement."""

from collections.abc import Mapping, Sequence
from typing import Any

from reply_resolution.display import interval, number, percent
from reply_resolution.errors import ReportError
from reply_resolution.plots import ACCENT, CONTROL, MUTED, Figure, canvas, render
from reply_resolution.stats.agreement import Agreement
from reply_resolution.stats.agreement_parts import Estimate

#: Darkest fill of a cell; white text stays readable on it, black on the pale ones.
_PALE, _DARK = (0.96, 0.95, 0.98), (0.33, 0.16, 0.53)


def confusion_map(results: Mapping[str, Agreement], *, judge: str = "judge") -> Figure:
    """Label against score, one table per annotator, every cell with its count.

    Args:
        results: Annotator -> agreement of the judge with them; at most three fit.
        judge: What to call the columns.

    Raises:
        ReportError: There is nothing to draw, or labels are not whole.
    """
    shown = {k: v for k, v in results.items() if v.confusion is not None}
    if not shown:
        raise ReportError("no agreement has a confusion table to draw.")
    names = list(shown)[:3]
    # The page's width whatever there is to draw, so that one table is no larger than
    # each of three.
    with canvas(7.2, 2.9, ncols=max(len(names), 2), squeeze=False) as (figure, axes):
        for axis, name in zip(axes[0], names, strict=False):
            _confusion(axis, shown[name], name, judge)
        for axis in axes[0][len(names) :]:
            axis.set_axis_off()
        return render(figure, " ".join(_confusion_words(n, shown[n]) for n in names))


def _confusion(axis: Any, result: Agreement, name: str, judge: str) -> None:  # noqa: ANN401
    table = result.confusion or ()
    low = int(result.scale[0])
    rows = [sum(row) or 1 for row in table]
    k = len(table)
    for i, row in enumerate(table):
        for j, cell in enumerate(row):
            share = cell / rows[i]
            # A root, so that a few far-off pairs can be seen beside the diagonal.
            depth = share**0.6
            fill = tuple(p + (d - p) * depth for p, d in zip(_PALE, _DARK, strict=True))
            axis.add_patch(_square(j, i, fill, outlined=i == j))
            if cell:
                axis.text(
                    j,
                    i,
                    f"{cell:g}" if float(cell).is_integer() else f"{cell:.1f}",
                    ha="center",
                    va="center",
                    color="white" if depth > 0.5 else "black",
                    fontsize=8,
                )
    levels = [str(low + i) for i in range(k)]
    axis.set_xlim(-0.5, k - 0.5)
    axis.set_ylim(-0.5, k - 0.5)
    axis.set_xticks(range(k), levels)
    axis.set_yticks(range(k), levels)
    axis.set_aspect("equal")
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_xlabel(f"score of the {judge}")
    axis.set_ylabel(f"label of {name}")
    axis.set_title(
        f"{name}: {percent(result.exact.estimate)} equal, n = {result.n}", fontsize=9
    )


def _square(x: int, y: int, fill: tuple[float, ...], *, outlined: bool) -> Any:  # noqa: ANN401
    from matplotlib.patches import Rectangle

    return Rectangle(
        (x - 0.48, y - 0.48),
        0.96,
        0.96,
        facecolor=fill,
        edgecolor="#222222" if outlined else "none",
        linewidth=0.9,
    )


def _confusion_words(name: str, result: Agreement) -> str:
    table = result.confusion or ()
    low = int(result.scale[0])
    off = [
        (cell, low + i, low + j)
        for i, row in enumerate(table)
        for j, cell in enumerate(row)
        if i != j and cell
    ]
    text = (
        f"Judge against {name}, {result.n} replies: equal in "
        f"{percent(result.exact.estimate)}, within one level in "
        f"{percent(result.adjacent.estimate)}."
    )
    if not off:
        return text + " No reply is scored otherwise."
    cell, label, score = max(off)
    return text + (
        f" The commonest difference: label {label}, score {score}, {cell:g} replies."
    )


def bias_by_level(results: Mapping[str, Agreement]) -> Figure:
    """Judge minus label at each level of the label, one row of dots per annotator.

    Args:
        results: Annotator -> agreement of the judge with them.

    Raises:
        ReportError: No agreement has levels.
    """
    shown = {k: v for k, v in results.items() if v.level_bias}
    if not shown:
        raise ReportError("bias by level needs whole labels.")
    first = next(iter(shown.values()))
    low = int(first.scale[0])
    k = len(first.level_bias)
    colors = (ACCENT, CONTROL, MUTED)
    words, ends = [], [1.0]
    with canvas(7.2, 2.6) as (figure, axis):
        axis.axhline(0, color=MUTED, linewidth=0.8)
        for n, (name, result) in enumerate(list(shown.items())[:3]):
            shift = (n - (min(len(shown), 3) - 1) / 2) * 0.16
            for i, found in enumerate(result.level_bias):
                if found.estimate is None:
                    continue
                if found.low is not None and found.high is not None:
                    axis.plot(
                        [i + shift] * 2,
                        [found.low, found.high],
                        color=colors[n],
                        linewidth=2,
                        alpha=0.6,
                    )
                    ends += [abs(found.low), abs(found.high)]
                axis.plot(
                    i + shift,
                    found.estimate,
                    "os^"[n],
                    color=colors[n],
                    markersize=6,
                    label=name if i == _first(result.level_bias) else None,
                )
                ends.append(abs(found.estimate))
            words.append(_bias_words(name, result, low))
        top = max(ends) * 1.1
        axis.set_ylim(-top, top)
        axis.set_xlim(-0.5, k - 0.5)
        axis.set_xticks(range(k), [f"label {low + i}" for i in range(k)])
        axis.set_ylabel("judge minus label, points")
        axis.text(
            k - 0.52, top * 0.9, "judge kinder", ha="right", va="top", color=MUTED
        )
        axis.text(
            k - 0.52, -top * 0.9, "judge stricter", ha="right", va="bottom", color=MUTED
        )
        if len(shown) > 1:
            axis.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
        return render(figure, " ".join(words))


def _first(values: Sequence[Estimate]) -> int:
    return next(i for i, v in enumerate(values) if v.estimate is not None)


def _bias_words(name: str, result: Agreement, low: int) -> str:
    parts = [
        f"{low + i}: {number(v.estimate, sign=True)}"
        for i, v in enumerate(result.level_bias)
        if v.estimate is not None
    ]
    return (
        f"Judge minus label of {name}: "
        f"{number(result.bias.estimate, sign=True)} points "
        f"overall; by label level {', '.join(parts)}."
    )


def agreement_axis(
    rows: Mapping[str, Estimate], *, floor: float, people: Sequence[str] = ()
) -> Figure:
    """Weighted kappa with intervals on one axis: judge with people, people themselves.

    Args:
        rows: What a row is called -> kappa with its interval.
        floor: The floor of the verdict; the region below it is shaded.
        people: Which rows are people among themselves (drawn in the other colour).

    Raises:
        ReportError: No row has an estimate.
    """
    shown = {k: v for k, v in rows.items() if v.estimate is not None}
    if not shown:
        raise ReportError("no kappa is defined, so there is no agreement to draw.")
    lowest = min(
        0.0, *(v.low if v.low is not None else v.estimate or 0 for v in shown.values())
    )
    with canvas(7.2, 0.9 + 0.34 * len(shown)) as (figure, axis):
        axis.axvspan(lowest - 0.05, floor, color="#f1a340", alpha=0.14, linewidth=0)
        axis.axvline(floor, color=CONTROL, linewidth=1)
        axis.text(
            floor - 0.01, -0.75, f"floor {number(floor)}", ha="right", color=CONTROL
        )
        for y, (name, found) in enumerate(shown.items()):
            color = CONTROL if name in people else ACCENT
            if found.low is not None and found.high is not None:
                axis.plot([found.low, found.high], [y, y], color=color, linewidth=2.5)
            axis.plot(
                found.estimate,
                y,
                "s" if name in people else "o",
                color=color,
                markersize=6,
            )
            axis.text(
                1.03, y, number(found.estimate), va="center", ha="left", fontsize=8.5
            )
        axis.set_ylim(len(shown) - 0.5, -1)
        axis.set_xlim(lowest - 0.05, 1.02)
        axis.set_yticks(range(len(shown)), list(shown))
        axis.tick_params(axis="y", length=0)
        axis.set_xlabel("weighted kappa: 0 is chance, 1 is perfect")
        words = "; ".join(
            f"{name} {number(v.estimate)}"
            + (f" ({interval(v.low, v.high)})" if v.low is not None else "")
            for name, v in shown.items()
        )
        return render(figure, f"Weighted kappa, floor {number(floor)}: {words}.")

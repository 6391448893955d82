"""Which arm resolves more, by how much, how sure: the comparison of arms."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.comparison import ArmSummary, Comparison, TreatmentEffect
from reply_resolution.stats.counts import (
    ScoreCounts,
    count_scores,
    names_of,
    plural,
)
from reply_resolution.stats.designs import Request, clustered, independent, paired
from reply_resolution.stats.pvalues import RESAMPLES, Alternative, Convention

_EQUAL = (0.8, 1.25)  # planned ratios inside need no studentizing


def compare(
    frame: Any,  # noqa: ANN401
    *,
    control: str,
    arm: str = "arm",
    score: str = "score",
    pair: str | None = None,
    cluster: str | None = None,
    stratum: str | None = None,
    scale: tuple[int, int] = (1, 5),
    alternative: Alternative = "two-sided",
    confidence: float = 0.95,
    cut: int = 4,
    allocation: Mapping[str, float] | None = None,
    convention: Convention = "absolute",
    interval: Literal["expanded", "percentile", "bca"] = "expanded",
    adjustment: Literal["max-t", "holm"] = "max-t",
    seed: int = 0,
    resamples: int | None = None,
    mix_versions: bool = False,
) -> Comparison:
    """Compare every treatment with control on their scores.

    The p-value is of a permutation test on the difference in mean score: exact for
    independent replies (strata too) and for pairs, drawn with `seed` for users and
    unequal allocation. The interval is an exact bootstrap (users: cluster-robust t).

    Args:
        frame: A table with an arm and a whole score per row (a polars frame, or one of
            another engine, see `count_scores`), or its `ScoreCounts` already.
        control: The baseline arm.
        arm: Column with the arm.
        score: Column with the score.
        pair: Column that names the request, where every arm answered the same ones.
        cluster: Column that names the user, who is then the unit.
        stratum: Column within whose values replies are compared.
        scale: Lowest and highest score.
        alternative: Of the p-values: "two-sided", "greater" (treatment above control)
            or "less". Intervals stay two-sided.
        confidence: Nominal coverage of the intervals, fraction.
        cut: Lowest score that counts as resolved.
        allocation: Planned share (or weight) of each arm; equal by default. Where the
            plan gives an arm less than 0.8 or more than 1.25 times control's, the test
            is studentized. Decided by the plan, never by the data.
        convention: Of two-sided p-values, see `permutation`.
        interval: Kind of bootstrap interval of the mean difference.
        adjustment: Of the p-values of several treatments: "max-t" (from joint
            permutations of independent replies; Holm for pairs, users and strata) or
            "holm".
        seed: Of whatever is drawn.
        resamples: Draws of a Monte Carlo test; by default 9,999, or 99,999 where these
            give between 0.01 and 0.1.
        mix_versions: Allow several metric versions or judges in one table.

    Returns:
        The comparison; `to_dict()` is what `compare --json` prints.

    Raises:
        TableError: A column or the control arm does not exist.
        ScoreError: The score column holds averages.
        VersionMismatchError: Several metric versions or judges.
        StatisticsError: An arm is left with no usable row, or with a single user; an
            option is out of range.

    >>> counts = ScoreCounts.from_table(
    ...     {"plain": [11, 2, 0, 1, 0], "warm": [3, 1, 4, 2, 1]}
    ... )
    >>> effect = compare(counts, control="plain").comparisons[0]
    >>> round(effect.mean_difference, 3), round(effect.pvalue, 6), effect.pvalue_method
    (1.37, 0.008119, 'exact')
    """
    if isinstance(frame, ScoreCounts):
        counts = frame
    else:
        counts = count_scores(
            frame,
            arm=arm,
            score=score,
            pair=pair,
            cluster=cluster,
            stratum=stratum,
            scale=scale,
            mix_versions=mix_versions,
        )
    low, high = counts.scale
    if not low < cut <= high:
        raise StatisticsError(
            f"cut {cut} is not on the scale {low} to {high}: give the lowest score "
            f"that counts as resolved, {low + 1} to {high}."
        )
    if not 0 < confidence < 1:
        raise StatisticsError(
            f"confidence {confidence!r} is not between 0 and 1; give a fraction, for "
            "example 0.95."
        )
    _check_arms(counts, control, arm)
    counts = _drop_unpaired(counts, control)
    _check_left(counts)
    treatments = [a for a in counts.arms if a != control]
    warnings = list(counts.warnings)
    unequal = _unequal(counts, control, allocation, warnings)
    request = Request(
        alternative=alternative,
        confidence=confidence,
        cut=cut,
        convention=convention,
        interval=interval,
        seed=seed,
        resamples=resamples,
    )
    run = {"independent": independent, "paired": paired, "clustered": clustered}
    effects = [
        run[counts.design](counts, (control, name), request, unequal[name], warnings)
        for name in treatments
    ]
    effects = _adjust(counts, control, effects, request, unequal, adjustment)
    return Comparison(
        design=counts.design,
        control=control,
        cut=cut,
        arms=tuple(_summary(counts, name, cut) for name in counts.arms),
        comparisons=tuple(effects),
        excluded={
            reason: sum(by_arm.values()) for reason, by_arm in counts.excluded.items()
        },
        excluded_by_arm=counts.excluded,
        warnings=tuple(dict.fromkeys(warnings)),
        seed=seed,
        counts=counts,
    )


def _check_arms(counts: ScoreCounts, control: str, column: str) -> None:
    if control not in counts.arms:
        found = ", ".join(
            f"{a!r} ({plural(int(counts.of(a).sum()), 'scored row')})"
            for a in counts.arms[:8]
        )
        close = [a for a in counts.arms if a.strip().lower() == control.strip().lower()]
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise TableError(
            f"there is no arm {control!r} in column {column!r}; the arms are "
            f"{found or 'none at all'}.{hint} Name the baseline with --control "
            "(control=...)."
        )
    if len(counts.arms) < 2:
        raise StatisticsError(
            f"the only arm is {control!r}: a comparison needs a treatment arm too."
        )


def _check_left(counts: ScoreCounts) -> None:
    for name in counts.arms:
        if counts.of(name).sum() == 0:
            why = ", ".join(
                f"{by_arm[name]:,} {reason}"
                for reason, by_arm in counts.excluded.items()
                if name in by_arm
            )
            raise StatisticsError(
                f"arm {name!r} has no usable score"
                + (f" (its rows: {why})" if why else "")
                + ". Judge or repair its rows, or leave the arm out of the table."
            )


def _drop_unpaired(counts: ScoreCounts, control: str) -> ScoreCounts:
    """Keep the rows that are in a pair with control; count the others as unpaired."""
    if counts.pairs is None or counts.pair_number is None:
        return counts
    base = counts.arms.index(control)
    has = counts.pairs > 0
    others = has.copy()
    others[:, base] = False
    used = has & has[:, [base]]
    used[:, base] &= others.any(1)
    kept = np.where(used, counts.pairs, 0)
    table = np.zeros_like(counts.counts)
    excluded = {reason: dict(by_arm) for reason, by_arm in counts.excluded.items()}
    for i, name in enumerate(counts.arms):
        at = kept[:, i] > 0
        np.add.at(table[0, i], kept[at, i] - 1, counts.pair_number[at])
        lost = int(counts.pair_number[has[:, i] & ~used[:, i]].sum())
        if lost:
            by_arm = excluded.setdefault("unpaired", {})
            by_arm[name] = by_arm.get(name, 0) + lost
    return replace(counts, counts=table, pairs=kept, excluded=excluded)


def _unequal(
    counts: ScoreCounts,
    control: str,
    allocation: Mapping[str, float] | None,
    warnings: list[str],
) -> dict[str, bool]:
    """Whether the plan gives an arm so unequal a share that the test is studentized."""
    if allocation is not None:
        absent = [a for a in counts.arms if a not in allocation]
        bad = [a for a, share in allocation.items() if not share > 0]
        if absent or bad:
            raise StatisticsError(
                f"allocation {dict(allocation)} must give every arm a share above 0; "
                f"wrong or absent: {names_of(absent + bad)}."
            )
    out = {}
    for name in counts.arms:
        ratio = 1.0 if allocation is None else allocation[name] / allocation[control]
        out[name] = not _EQUAL[0] <= ratio <= _EQUAL[1]
        if allocation is None and counts.design == "independent" and name != control:
            n1, n0 = int(counts.of(name).sum()), int(counts.of(control).sum())
            if n1 + n0 >= 40 and not 0.5 <= n1 / n0 <= 2:
                warnings.append(
                    f"Arm {name!r} has {n1:,} scored replies and {control!r} {n0:,}. "
                    "If that was planned, say so (--allocation or allocation=...): the "
                    "plain test needs an equal plan. If not, check the sample ratio."
                )
    return out


def _summary(counts: ScoreCounts, name: str, cut: int) -> ArmSummary:
    table = counts.of(name)
    n = int(table.sum())
    levels = counts.levels
    units = n
    if counts.units is not None and counts.design == "clustered":
        holds = counts.units.vectors[:, counts.arms.index(name)].sum(1) > 0
        units = int(counts.units.number[holds].sum())
    return ArmSummary(
        name=name,
        n=n,
        units=units,
        counts=tuple(int(v) for v in table),
        mean=float(table @ levels) / n,
        resolved=float(table[levels >= cut].sum()) / n,
    )


def _adjust(
    counts: ScoreCounts,
    control: str,
    effects: list[TreatmentEffect],
    request: Request,
    unequal: Mapping[str, bool],
    adjustment: str,
) -> list[TreatmentEffect]:
    """Family-wise p-values over the treatments."""
    from reply_resolution.stats.maxt import max_t_arms
    from reply_resolution.stats.multiplicity import adjust

    if adjustment not in ("max-t", "holm"):
        raise StatisticsError(
            f"adjustment {adjustment!r} does not exist; choose max-t or holm."
        )
    if len(effects) < 2:
        return effects
    plain = counts.design == "independent" and len(counts.strata) == 1
    single = [e.pvalue for e in effects]
    name, adjusted, drawn_times = "holm", list(adjust(single, "holm")), None
    if adjustment == "max-t" and plain:
        name, drawn_times = "max-t", request.resamples or RESAMPLES
        order = [control, *(e.treatment for e in effects)]
        drawn = max_t_arms(
            np.stack([counts.of(a) for a in order]),
            alternative=request.alternative,
            seed=request.seed,
            resamples=drawn_times,
        )
        # Holm's is an upper bound of max-T's, and exact where draws have a floor.
        adjusted = [
            max(p, min(holm, q))
            for holm, p, q in zip(adjusted, single, drawn, strict=True)
        ]
    return [
        replace(e, pvalue_adjusted=p, adjustment=name, adjustment_resamples=drawn_times)
        for e, p in zip(effects, adjusted, strict=True)
    ]

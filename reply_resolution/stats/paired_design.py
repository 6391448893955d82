"""One treatment against control on the same requests."""

import numpy as np

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.bootstrap import Interval, mean_interval
from reply_resolution.stats.clusters import paired_unit_effect
from reply_resolution.stats.comparison import TreatmentEffect
from reply_resolution.stats.counts import ScoreCounts, joint_table
from reply_resolution.stats.effects import (
    WinProbability,
    paired_rate_difference,
    paired_win_probability,
)
from reply_resolution.stats.maxt import CutEffect, holm_cuts
from reply_resolution.stats.outcome import Request, assemble
from reply_resolution.stats.permutation import paired_permutation_test
from reply_resolution.stats.saddlepoint import Ints


def paired(
    counts: ScoreCounts,
    control: str,
    treatment: str,
    request: Request,
    unequal: bool,
    warnings: list[str],
) -> TreatmentEffect:
    """Requests are the units, or users of several requests where they are given."""
    i, j = counts.arms.index(control), counts.arms.index(treatment)
    table = joint_table(counts, i, j)
    if table.sum() == 0:
        raise StatisticsError(
            f"{treatment!r} and {control!r} have no request in common with a usable "
            "score in both; compare them as independent rows, or repair the ids."
        )
    width = len(counts.levels)
    offsets = np.arange(width)[None, :] - np.arange(width)[:, None]
    n = int(table.sum())
    high = counts.levels >= request.cut
    gain = high[None, :].astype(np.int64) - high[:, None].astype(np.int64)
    order = np.sign(offsets)
    resolved = float((table * gain).sum()) / n
    difference = float((table * offsets).sum()) / n
    if counts.units is None:
        differences = np.arange(1 - width, width)
        numbers = np.array([np.trace(table, offset=int(d)) for d in differences])
        test = paired_permutation_test(
            differences, numbers, alternative=request.alternative
        )
        interval = mean_interval(
            numbers,
            values=differences,
            confidence=request.confidence,
            method=request.interval,
        )
        wins = paired_win_probability(table, confidence=request.confidence)
        rates = paired_rate_difference(
            int(table[np.ix_(high, high)].sum()),
            int(table[np.ix_(~high, high)].sum()),
            int(table[np.ix_(high, ~high)].sum()),
            int(table[np.ix_(~high, ~high)].sum()),
            confidence=request.confidence,
        )
        units = n
        cuts = _paired_cuts(table[None], np.ones(1, np.int64), counts.scale[0])
    else:
        first, second = min(i, j), max(i, j)
        vectors = counts.units.vectors[:, first, second]
        if i > j:
            vectors = vectors.transpose(0, 2, 1)
        held = vectors.sum((1, 2)) > 0
        vectors, number = vectors[held], counts.units.number[held]
        sums = (vectors * offsets).sum((1, 2))
        test = paired_permutation_test(sums, number, alternative=request.alternative)

        def effect(values: Ints) -> Interval:
            return paired_unit_effect(
                vectors, number, values, confidence=request.confidence
            ).interval

        interval, rates = effect(offsets), effect(gain)
        share = effect(order)
        ends = [
            None if e is None else min(1.0, max(0.0, (e + 1) / 2)) for e in share.ends
        ]
        wins = WinProbability(
            (float((table * order).sum()) / n + 1) / 2,
            Interval(ends[0], ends[1], share.method, share.reliable, share.reason),
            None,
            None,
            None,
        )
        units = int(number.sum())
        cuts = _paired_cuts(vectors, number, counts.scale[0])
    return assemble(
        names=(control, treatment),
        sizes=(n, n),
        units=(units, units),
        request=request,
        difference=difference,
        interval=interval,
        test=test,
        wins=wins,
        resolved=resolved,
        resolved_ci=rates.ends,
        resolved_method=rates.method,
        odds=None,
        odds_ci=(None, None),
        cuts=cuts,
        warnings=warnings,
    )


def _paired_cuts(vectors: Ints, number: Ints, lowest: int) -> tuple[CutEffect, ...]:
    """Each cut by an exact sign-flip test (McNemar's for plain pairs), then Holm.

    Plain pairs come as one table; users as one table per type, flipped whole.
    """
    width = vectors.shape[1]
    n = int(number @ vectors.sum((1, 2)))
    levels = np.arange(width)
    found = []
    for k in range(1, width):
        high = (levels >= k).astype(np.int64)
        gain = high[None, :] - high[:, None]
        sums = (vectors * gain).sum((1, 2))
        difference = int(number @ sums) / n
        if len(vectors) == 1 and number[0] == 1:
            up, down = int(vectors[0, :k, k:].sum()), int(vectors[0, k:, :k].sum())
            sums, times = np.array([-1, 0, 1]), np.array([down, n - up - down, up])
        else:
            times = number
        pvalue = paired_permutation_test(sums, times).pvalue
        found.append((lowest + k, difference, pvalue))
    return holm_cuts(found)

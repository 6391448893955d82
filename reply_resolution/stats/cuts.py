"""Where to cut 1 to 5 into resolved or not, without looking at the arms.

The rubric says what resolved means (4 or more: a correct handoff is a resolution). A
judge that is shifted against people may need another cut to mean the same; that is
found on labelled calibration replies, never on the experiment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.power_assumptions import check_cut


@dataclass(frozen=True, slots=True)
class CutAgreement:
    """How a judge's cut matches people's idea of resolved.

    Attributes:
        cut: Lowest judge score that counts as resolved.
        meaning: Lowest label that counts as resolved.
        both: Replies that both call resolved.
        judge_only: Replies only the judge calls resolved.
        people_only: Replies only people call resolved.
        neither: Replies that both call unresolved.
        sensitivity: Share of the truly resolved that the judge calls so, fraction;
            higher is better; None where people call none resolved.
        specificity: Share of the truly unresolved that the judge calls so, fraction;
            higher is better; None where people call all resolved.
    """

    cut: int
    meaning: int
    both: int
    judge_only: int
    people_only: int
    neither: int
    sensitivity: float | None
    specificity: float | None

    @property
    def n(self) -> int:
        """Labelled replies."""
        return self.both + self.judge_only + self.people_only + self.neither

    @property
    def youden(self) -> float | None:
        """Sensitivity + specificity - 1: 1 is perfect, 0 is chance."""
        if self.sensitivity is None or self.specificity is None:
            return None
        return self.sensitivity + self.specificity - 1


def cut_agreement(
    judge: Sequence[float | None],
    labels: Sequence[float | None],
    *,
    cut: int,
    meaning: int | None = None,
    scale: tuple[int, int] = (1, 5),
) -> CutAgreement:
    """Compare judge and people at one cut, on the same labelled replies.

    Args:
        judge: The judge's scores; None where it gave none.
        labels: People's labels of the same replies (a mean over annotators will do);
            None where missing.
        cut: Lowest judge score that counts as resolved.
        meaning: Lowest label that counts as resolved; as `cut` when left out.
        scale: Lowest and highest score.

    Raises:
        StatisticsError: No reply with both, or a cut that does not divide the scale.

    >>> row = cut_agreement([5, 4, 4, 2], [5, 4, 3, 1], cut=4)
    >>> row.judge_only, row.specificity
    (1, 0.5)
    """
    meaning = cut if meaning is None else meaning
    for each in (cut, meaning):
        check_cut(each, scale[1] - scale[0] + 1, scale[0])
    cells = {(j, p): 0 for j in (True, False) for p in (True, False)}
    for score, label in zip(judge, labels, strict=True):
        if score is not None and label is not None:
            cells[score >= cut, label >= meaning] += 1
    if sum(cells.values()) == 0:
        raise StatisticsError(
            "no reply has both a judge's score and a label; label some of the judged "
            "calibration replies first."
        )
    both, judge_only = cells[True, True], cells[True, False]
    people_only, neither = cells[False, True], cells[False, False]
    return CutAgreement(
        cut=cut,
        meaning=meaning,
        both=both,
        judge_only=judge_only,
        people_only=people_only,
        neither=neither,
        sensitivity=both / (both + people_only) if both + people_only else None,
        specificity=neither / (neither + judge_only) if neither + judge_only else None,
    )


@dataclass(frozen=True, slots=True)
class CutChoice:
    """The judge's cut that best means "resolved" to people.

    Attributes:
        cut: The cut chosen.
        meaning: Lowest label that counts as resolved, by the rubric.
        rows: The agreement at every cut of the judge's scale.
        differs: True where another cut than the rubric's was clearly better.
        reason: Why, in a sentence with the numbers.
    """

    cut: int
    meaning: int
    rows: tuple[CutAgreement, ...]
    differs: bool
    reason: str


def choose_cut(
    judge: Sequence[float | None],
    labels: Sequence[float | None],
    *,
    meaning: int = 4,
    scale: tuple[int, int] = (1, 5),
) -> CutChoice:
    """Choose the judge's cut on calibration labels, arm-blind.

    The rubric's own cut is kept unless another has a Youden index higher by more than
    twice its standard error: with few labels the best-looking cut is often luck.

    Args:
        judge: The judge's scores of the calibration replies; None where none.
        labels: People's labels of the same replies.
        meaning: Lowest label that counts as resolved.
        scale: Lowest and highest score.

    Raises:
        StatisticsError: Labels of one kind only, so that no cut can be judged.
    """
    rows = tuple(
        cut_agreement(judge, labels, cut=c, meaning=meaning, scale=scale)
        for c in range(scale[0] + 1, scale[1] + 1)
    )
    rubric = next(row for row in rows if row.cut == meaning)
    own = rubric.youden
    if own is None:
        raise StatisticsError(
            f"people call all or none of the {rows[0].n} labelled replies resolved "
            f"({meaning} or more); label replies of both kinds before choosing a cut."
        )
    best = max(rows, key=lambda row: (row.youden or 0.0, -abs(row.cut - meaning)))
    top = best.youden or 0.0
    if top - own > 2 * _youden_se(rubric):
        reason = (
            f"The judge's {best.cut} or more matches people's {meaning} or more better "
            f"than its own {meaning} does (Youden index {top:.2f} against {own:.2f})."
        )
        return CutChoice(best.cut, meaning, rows, True, reason)
    reason = (
        f"The rubric's cut {meaning} stands: no other cut of the judge matches "
        f"people's {meaning} or more clearly better (Youden index {own:.2f})."
    )
    return CutChoice(meaning, meaning, rows, False, reason)


def _youden_se(row: CutAgreement) -> float:
    """Standard error, from counts moved towards one half (never 0)."""
    positives, negatives = row.both + row.people_only, row.neither + row.judge_only
    variance = 0.0
    for hits, of in ((row.both, positives), (row.neither, negatives)):
        share = (hits + 1) / (of + 2)
        variance += share * (1 - share) / (of + 2)
    return float(variance**0.5)

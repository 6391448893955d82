"""The regression behind the length test, with every way it can be undefined."""

from typing import Any

import numpy as np
import numpy.typing as npt

from reply_resolution.display import number
from reply_resolution.stats.regression import least_squares, t_pvalue, t_quantile

Floats = npt.NDArray[np.float64]

#: The judge's standard deviation over the labels': outside, the two are not alike
#: enough for their difference to say something about the judge.
ALIKE = (0.6, 1.6)


class Slope:
    """The regression of the test, with every way it can be undefined."""

    def __init__(
        self,
        judge: Floats,
        label: Floats,
        doublings: Floats,
        groups: npt.NDArray[Any] | None,
        confidence: float,
        standardise: bool | None,
    ) -> None:
        self.notes: list[str] = []
        self.estimate: float | None = None
        self.tvalue: float | None = None
        self.pvalue: float | None = None
        self.judge_estimate: float | None = None
        self.judge_error: float | None = None
        self.ci: tuple[float, float] | None = None
        self.degrees = 0
        sd_judge, sd_label = spread(judge), spread(label)
        self.sd_ratio = sd_judge / sd_label if sd_label > 0 else None
        alike = self.sd_ratio is not None and ALIKE[0] <= self.sd_ratio <= ALIKE[1]
        self.standardised = (
            (not alike or _apart(judge, label)) if standardise is None else standardise
        )
        factor = 1.0
        if len(judge) < 3:
            self.standardised = bool(standardise)
            self.notes.append(
                f"{len(judge)} labelled replies: a slope needs at least 3, and says "
                "something from about 50 on."
            )
            return
        if self.standardised:
            if sd_judge == 0 or sd_label == 0:
                constant = "the judge's score" if sd_judge == 0 else "the label"
                self.notes.append(
                    f"{constant} is the same for all {len(judge)} replies, so judge "
                    "and label cannot be compared; the bias is undefined."
                )
                return
            self._say_standardised(sd_judge, sd_label)
            judge, label, factor = judge / sd_judge, label / sd_label, sd_judge
        self._fit(judge - label, doublings, groups, confidence, factor)

    def _say_standardised(self, sd_judge: float, sd_label: float) -> None:
        self.notes.append(
            "judge and label were both standardised, because they are not on one "
            f"scale (standard deviations {number(sd_judge)} and {number(sd_label)}): "
            "the bias is in standard deviations per doubling, and unequal noise in "
            "judge and label can imitate a bias where length is merited."
        )

    def _fit(
        self,
        error: Floats,
        doublings: Floats,
        groups: npt.NDArray[Any] | None,
        confidence: float,
        factor: float,
    ) -> None:
        if np.ptp(doublings) < 1e-12:
            self.notes.append(
                "all replies have the same length, so nothing can be said about length."
            )
            return
        design = np.column_stack([np.ones_like(doublings), doublings])
        fit = least_squares(design, error, cluster=groups)
        slope = float(fit.coefficients[1])
        self.estimate, self.judge_estimate = slope, slope * factor
        self.degrees = fit.degrees
        se = fit.standard_error(1)
        if np.ptp(error) < 1e-9:
            self.estimate = self.judge_estimate = 0.0
            self.notes.append(
                "judge minus label is the same for every reply: no slope, but no "
                "spread either from which an interval could be computed."
            )
        elif se is None:
            self.notes.append(f"no interval for the bias: {fit.problem}.")
        elif se < 1e-12:
            self.notes.append(
                "the points lie exactly on a line, which leaves no spread from which "
                "an interval could be computed."
            )
        else:
            half = t_quantile(confidence, fit.degrees) * se
            self.ci = (slope - half, slope + half)
            self.tvalue = slope / se
            self.pvalue = t_pvalue(self.tvalue, fit.degrees)
            self.judge_error = se * factor


def spread(values: Floats) -> float:
    """Standard deviation with n - 1; 0 where there are fewer than two values."""
    if len(values) < 2 or np.ptp(values) == 0:
        return 0.0
    return float(np.std(values, ddof=1))


def _apart(judge: Floats, label: Floats) -> bool:
    """Whether the two ranges touch in at most one value: two scales, not two views."""
    return bool(judge.max() <= label.min() or label.max() <= judge.min()) and bool(
        np.ptp(judge) > 0 and np.ptp(label) > 0
    )

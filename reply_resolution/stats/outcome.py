"""What was asked of a comparison, and its answer put together from the parts."""

from dataclasses import dataclass
from typing import Literal

from reply_resolution.stats.bootstrap import Interval
from reply_resolution.stats.comparison import TreatmentEffect
from reply_resolution.stats.effects import WinProbability
from reply_resolution.stats.maxt import CutEffect
from reply_resolution.stats.pvalues import Alternative, Convention, PermutationTest


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of a comparison; see `compare` for each."""

    alternative: Alternative
    confidence: float
    cut: int
    convention: Convention
    interval: Literal["expanded", "percentile", "bca"]
    seed: int
    resamples: int | None


def assemble(
    *,
    names: tuple[str, str],
    sizes: tuple[int, int],
    units: tuple[int, int],
    request: Request,
    difference: float,
    interval: Interval,
    test: PermutationTest,
    wins: WinProbability,
    resolved: float,
    resolved_ci: tuple[float | None, float | None],
    resolved_method: str,
    odds: float | None,
    odds_ci: tuple[float | None, float | None],
    cuts: tuple[CutEffect, ...],
    warnings: list[str],
) -> TreatmentEffect:
    """One comparison from its parts; what a reader should know goes to `warnings`."""
    control, treatment = names
    if not interval.reliable:
        warnings.append(
            f"The interval of {treatment!r} against {control!r} is not reliable: "
            f"{interval.reason}."
            + (" It is undefined." if interval.low is None else "")
        )
    if wins.interval.low is None:
        warnings.append(
            f"The win probability of {treatment!r} has no interval: "
            f"{wins.interval.reason}."
        )
    return TreatmentEffect(
        treatment=treatment,
        control=control,
        n_treatment=sizes[1],
        n_control=sizes[0],
        units_treatment=units[1],
        units_control=units[0],
        mean_difference=difference,
        ci=interval.ends,
        ci_method=interval.method,
        ci_reliable=interval.reliable,
        ci_reason=interval.reason,
        confidence=request.confidence,
        alternative=request.alternative,
        pvalue=test.pvalue,
        pvalue_adjusted=test.pvalue,
        pvalue_method=test.method,
        pvalue_mid=test.midp,
        adjustment="none",
        convention=test.convention,
        studentized=test.studentized,
        resamples=test.resamples,
        win_probability=wins.estimate,
        win_probability_ci=wins.interval.ends,
        win_probability_reliable=wins.interval.reliable,
        resolved_difference=resolved,
        resolved_difference_ci=resolved_ci,
        resolved_difference_method=resolved_method,
        odds_ratio=odds,
        odds_ratio_ci=odds_ci,
        cuts=cuts,
    )

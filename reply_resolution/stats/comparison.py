"""What a comparison of arms found: frozen results and their machine-readable form."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reply_resolution.stats.counts import ScoreCounts
from reply_resolution.stats.maxt import CutEffect

Ends = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm's scores.

    Attributes:
        name: The arm.
        n: Replies used.
        units: Users (or pairs) they belong to; equal to `n` for independent replies.
        counts: Replies at each level, lowest score first.
        mean: Mean score, in points of the scale; higher is better.
        resolved: Share of replies at or above the cut. Fraction, 0 to 1; higher is
            better.
    """

    name: str
    n: int
    units: int
    counts: tuple[int, ...]
    mean: float
    resolved: float


@dataclass(frozen=True, slots=True)
class TreatmentEffect:
    """One treatment against control.

    Attributes:
        treatment: The treatment arm.
        control: The control arm.
        n_treatment: Replies of the treatment in this comparison (pairs, if paired).
        n_control: Replies of control in it.
        units_treatment: Independent units behind them: replies, users or pairs.
        units_control: The same for control.
        mean_difference: Treatment's mean score minus control's, in points (strata
            weighted); above 0 favours treatment.
        ci: Interval of `mean_difference`, in points, two-sided whatever `alternative`
            is; (None, None) where undefined.
        ci_method: How the interval was made, in words.
        ci_reliable: False where its coverage is not to be trusted.
        ci_reason: Why it is not, a phrase; "" where it is.
        confidence: Nominal coverage of all intervals, fraction.
        alternative: "two-sided", "greater" (treatment above control) or "less".
        pvalue: Permutation p-value of no difference, unadjusted. Fraction, above 0.
        pvalue_adjusted: The same for all treatments together; equal for a single one.
        pvalue_method: "exact" or "monte_carlo".
        pvalue_mid: Mid-p, beside an exact p-value; None otherwise.
        adjustment: "none", "holm" or "max-t".
        adjustment_resamples: Joint permutations drawn for `pvalue_adjusted` by max-T;
            None where it was computed.
        convention: Of two-sided p-values: "absolute" or "doubled".
        studentized: Whether the test statistic was divided by its standard error.
        resamples: Draws behind a Monte Carlo p-value; None where exact.
        win_probability: Probability that a treatment reply scores above a control
            reply, ties half (for pairs: share of pairs). Fraction; 0.5 is no
            difference, above favours treatment.
        win_probability_ci: Its interval.
        win_probability_reliable: False where that interval is not to be trusted.
        resolved_difference: Treatment's share resolved minus control's. Fraction, -1 to
            1; above 0 favours treatment.
        resolved_difference_ci: Its interval.
        resolved_difference_method: How that interval was made, in words.
        odds_ratio: Proportional odds of being above a level, treatment against
            control; 1 is no difference, above favours treatment. None where it is
            infinite or not computed (pairs).
        odds_ratio_ci: Its interval (None, None where undefined, and for users, whose
            dependence it would ignore).
        cuts: Every cut of the scale with its family-wise p-value.
    """

    treatment: str
    control: str
    n_treatment: int
    n_control: int
    units_treatment: int
    units_control: int
    mean_difference: float
    ci: Ends
    ci_method: str
    ci_reliable: bool
    ci_reason: str
    confidence: float
    alternative: str
    pvalue: float
    pvalue_adjusted: float
    pvalue_method: str
    pvalue_mid: float | None
    adjustment: str
    adjustment_resamples: int | None
    convention: str
    studentized: bool
    resamples: int | None
    win_probability: float
    win_probability_ci: Ends
    win_probability_reliable: bool
    resolved_difference: float
    resolved_difference_ci: Ends
    resolved_difference_method: str
    odds_ratio: float | None
    odds_ratio_ci: Ends
    cuts: tuple[CutEffect, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the attributes' names, as `compare --json` prints them."""
        out = asdict(self)
        for name in out:
            if name == "ci" or name.endswith("_ci") or name == "cuts":
                out[name] = list(out[name])
        return out


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every treatment against control, and what was left out.

    Attributes:
        design: "independent", "paired" or "clustered".
        control: The baseline arm.
        cut: Lowest score that counts as resolved.
        arms: One summary per arm, in order of first appearance.
        comparisons: One effect per treatment, in order of first appearance.
        excluded: Rows not used: reason -> rows. Reasons: missing, not_a_score,
            out_of_range, unpaired, missing_arm, missing_cluster, duplicate, or a
            verdict's status.
        excluded_by_arm: The same by arm (None where the arm is unknown).
        warnings: What a reader should know, in sentences.
        seed: Of Monte Carlo p-values; exact results have no chance in them.
        counts: The counts behind everything.
    """

    design: str
    control: str
    cut: int
    arms: tuple[ArmSummary, ...]
    comparisons: tuple[TreatmentEffect, ...]
    excluded: Mapping[str, int]
    excluded_by_arm: Mapping[str, Mapping[str | None, int]]
    warnings: tuple[str, ...]
    seed: int
    counts: ScoreCounts

    def arm(self, name: str) -> ArmSummary:
        """The summary of one arm."""
        return next(arm for arm in self.arms if arm.name == name)

    def to_dict(self) -> dict[str, Any]:
        """The object that `compare --json` prints: no NaN, undefined is None.

        >>> from reply_resolution.stats.compare import compare
        >>> table = {"a": [9, 1, 4, 6, 5], "b": [2, 2, 3, 8, 9]}
        >>> found = compare(ScoreCounts.from_table(table), control="a").to_dict()
        >>> found["arms"]["b"]["counts"], found["comparisons"][0]["pvalue_method"]
        ([2, 2, 3, 8, 9], 'exact')
        """
        return {
            "design": self.design,
            "control": self.control,
            "cut": self.cut,
            "scale": list(self.counts.scale),
            "strata": [s for s in self.counts.strata if self.counts.strata != ("",)],
            "arms": {
                name: {**arm, "counts": list(arm["counts"])}
                for arm in map(asdict, self.arms)
                for name in [arm.pop("name")]
            },
            "comparisons": [effect.to_dict() for effect in self.comparisons],
            "excluded": dict(self.excluded),
            "excluded_by_arm": {
                reason: {("" if a is None else a): n for a, n in by_arm.items()}
                for reason, by_arm in self.excluded_by_arm.items()
            },
            "rows": self.counts.rows,
            "warnings": list(self.warnings),
            "seed": self.seed,
        }

"""What an assessment takes and what it gives: records without any logic."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from reply_resolution.readout.checks import Check
from reply_resolution.readout.checks_judge import Calibrated
from reply_resolution.readout.effects import Effect, LengthFinding
from reply_resolution.readout.experiment_plan import Look
from reply_resolution.readout.metric_effect import MetricEffect
from reply_resolution.readout.recommendation import Recommendation
from reply_resolution.stats.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Treatment:
    """All that was computed for one treatment.

    Attributes:
        name: The arm.
        effects: In the order they are shown; the one that decides is marked.
        win_probability: Share of random pairs of replies (or of pairs) in which the
            treatment scores higher, ties half; fraction, 0.5 is no difference.
        win_interval: Its interval.
        tipping: Points by which the judge would have to favour an arm further to
            change the result; None without an effect.
        tipping_sentence: The same in words, for the judge's own effect.
        replies_needed: Replies per arm for 80% power at the worthwhile gain.
        bounds: Lowest and highest difference over every filling of missing scores.
        widen: Factor by which several looks widen an interval; 1 for one look.
        length: What length does to it.
        checks: Checks about this treatment.
        recommendation: What the rules say.
    """

    name: str
    effects: tuple[Effect, ...]
    win_probability: float | None
    win_interval: tuple[float, float] | None
    tipping: float | None
    tipping_sentence: str
    replies_needed: int | None
    bounds: tuple[float, float] | None
    widen: float
    length: LengthFinding
    checks: tuple[Check, ...]
    recommendation: Recommendation

    def effect(self, key: str) -> Effect:
        """The effect of that name."""
        return next(e for e in self.effects if e.key == key)

    @property
    def deciding(self) -> Effect:
        """The effect on which the recommendation rests."""
        return next(e for e in self.effects if e.decides)


@dataclass(frozen=True, slots=True)
class Assessment:
    """The whole numerical side of a readout.

    Attributes:
        control: Name of the baseline arm.
        unit: What the units are, plural: "users", "replies" or "pairs".
        units: Units with a score per arm.
        checks: Checks about the experiment as a whole.
        treatments: One per treatment, in order of first appearance; empty where a
            hard check forbids to compute anything.
        comparison: The result of `compare`, or None likewise.
        readable: False where a hard check failed.
    """

    control: str
    unit: str
    units: dict[str, int]
    checks: tuple[Check, ...]
    treatments: tuple[Treatment, ...]
    comparison: Comparison | None
    readable: bool


@dataclass(frozen=True, slots=True)
class Context:
    """What is known beside the counts, all of it optional.

    Attributes:
        rows: Judged rows with `arm`, `score`, `label` (null where nobody labelled)
            and, where users are known, `unit`; None without labels.
        calibrated: The judge's agreement with people, if measured.
        mismatch: Why a calibration that was given is not about this judge.
        look: Which look this is.
        assigned: Units per arm before any was lost to a missing score; taken from
            the counts where None.
        judged: Judged replies per arm, whatever came of it; likewise.
        scored: Judged replies per arm that have a score, in the comparison or not
            (a pair mate or a user may be missing); likewise.
        missing_reasons: Status -> judged replies without a score.
        extra_checks: Further checks about the experiment (versions, budget, ...).
        length: Treatment -> its length effect and slope, as `LengthFinding`.
        metrics: Treatment -> its guardrails and secondary metrics.
        empty: Empty replies per arm.
        without_empty: Treatment -> (effect, low, high) without empty replies.
        seed: For draws where exact is out of reach.
        comparison: The comparison of the same counts, where it was computed already.
    """

    rows: pl.DataFrame | None = None
    calibrated: Calibrated | None = None
    mismatch: str = ""
    look: Look = field(default_factory=lambda: Look(1, ()))
    assigned: Mapping[str, int] | None = None
    judged: Mapping[str, int] | None = None
    scored: Mapping[str, int] | None = None
    missing_reasons: Mapping[str, int] | None = None
    extra_checks: tuple[Check, ...] = ()
    length: Mapping[str, LengthFinding] | None = None
    metrics: Mapping[str, tuple[MetricEffect, ...]] | None = None
    empty: Mapping[str, int] | None = None
    without_empty: Mapping[str, tuple[float, float, float]] | None = None
    seed: int = 0
    comparison: Comparison | None = None

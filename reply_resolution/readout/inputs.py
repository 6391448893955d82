"""What a readout reads from its tables: units, labels, lengths, what is missing."""

from collections.abc import Mapping
from dataclasses import dataclass
import hashlib

import polars as pl

from reply_resolution.errors import (
    ReplyResolutionError,
    StatisticsError,
    TableError,
)
from reply_resolution.readout import checks as ck
from reply_resolution.readout.checks import Check
from reply_resolution.readout.experiment_plan import ExperimentPlan
from reply_resolution.readout.judge import labelled_rows
from reply_resolution.stats.counts import ScoreCounts, count_scores
from reply_resolution.stats.strata import stratum_of

#: Texts (reasons, examples, lengths) are read on at most this many replies.
SAMPLE = 20_000
_TEXTS = ("request", "reply", "reason", "context", "conversation")


def checked(replies: pl.DataFrame, control: str) -> pl.DataFrame:
    """The table with every optional column there, or an error that says what lacks.

    Columns that the join with the verdicts renamed (`cost_usd_given`) get their own
    name back: the plan means the table's column, not the judge's.

    Raises:
        TableError: `request_id`, `arm` or `score` is missing, or there is no control.
    """
    for name in ("request_id", "arm", "score"):
        if name not in replies.columns:
            raise TableError(
                f"the table of judged replies has no column {name!r}; it has "
                f"{', '.join(replies.columns)}. Join replies and verdicts first "
                "(reply_resolution.load does)."
            )
    if control not in replies["arm"].unique():
        arms = ", ".join(map(repr, replies["arm"].drop_nulls().unique().sort()))
        raise TableError(
            f"there is no arm {control!r}; the arms are {arms or 'none'}. Name the "
            "baseline in `control`."
        )
    frame = replies
    if frame["arm"].null_count():
        frame = frame.filter(pl.col("arm").is_not_null())
    frame = frame.with_columns(pl.col("request_id", "arm").cast(pl.String))
    for name in (*_TEXTS[:4], "status", "status_detail"):
        if name not in frame.columns:
            frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias(name))
    scores = frame["score"]
    if scores.dtype.is_float() and bool((scores.drop_nulls() % 1 == 0).all()):
        frame = frame.with_columns(pl.col("score").cast(pl.Int64))
    known = pl.when(pl.col("score").is_not_null()).then(pl.lit("scored"))
    frame = frame.with_columns(
        status=pl.col("status").fill_null(known.otherwise(pl.lit("invalid")))
    )
    given = [c for c in frame.columns if c.endswith("_given")]
    own = {c: c.removesuffix("_given") for c in given}
    judges = [c for c in own.values() if c in frame.columns]
    return frame.rename({c: f"judge_{c}" for c in judges}).rename(own)


@dataclass(frozen=True, slots=True)
class Rows:
    """The judged replies of an experiment, read for the readout.

    Attributes:
        frame: One row per reply without its texts: what is counted. `unit` holds a
            number per user (null where unknown), `empty` whether the reply is empty.
        sample: Scored replies with their texts: all, or a seeded draw of whole users
            (whole requests of a paired design) of about `SAMPLE`.
        scored: Scored replies in all.
        control: Name of the baseline arm.
        arms: Control, then the treatments in order of first appearance.
        pair: "request_id" where requests occur in several arms, else None.
        unit: "unit" where users are known, else None.
        stratum: "stratum" where replies are compared within its values, else None.
        counts: Sufficient counts of the scores.
        labelled: Rows of `frame` with the mean of people's labels beside them; None
            without.
        people: The annotators' columns in `labelled`.
        label_texts: Labelled, scored rows with `reply`.
        notes: What joining labels noticed.
    """

    frame: pl.DataFrame
    sample: pl.DataFrame
    scored: int
    control: str
    arms: list[str]
    pair: str | None
    unit: str | None
    stratum: str | None
    counts: ScoreCounts
    labelled: pl.DataFrame | None
    people: list[str]
    label_texts: pl.DataFrame | None
    notes: tuple[str, ...]

    @property
    def judged(self) -> pl.DataFrame:
        """Rows that were judged, whatever came of it."""
        return self.frame.filter(pl.col("status") != "not_judged")

    def levels(self) -> dict[str, list[int]]:
        """Arm -> replies at each level."""
        return {
            arm: self.counts.of(arm).tolist()
            for arm in self.arms
            if arm in self.counts.arms
        }


def read_rows(
    replies: pl.DataFrame, *, control: str, labels: pl.DataFrame | None, seed: int
) -> Rows:
    """Find out the design of a table of judged replies, count it, draw its sample.

    Args:
        replies: One row per reply with its verdict.
        control: Name of the baseline arm.
        labels: Labels in long form, or None.
        seed: Of the draw of texts.

    Raises:
        TableError: A column is missing, or there is no control arm.
    """
    whole = checked(replies, control)
    user = unit_column(whole)
    pair = "request_id" if whole["request_id"].n_unique() < whole.height else None
    names = whole["arm"].unique(maintain_order=True).to_list()
    arms = [control, *(a for a in names if a != control)]
    # Texts are left behind and users become numbers: this is what is counted.
    left_out = [*_TEXTS, "vote", *([user] if user else [])]
    frame = whole.select(pl.exclude(left_out)).with_columns(empty=is_empty(whole))
    if user:
        number = pl.col(user).cast(pl.String).cast(pl.Categorical).to_physical()
        frame = frame.with_columns(whole.select(unit=number)["unit"])
    unit = "unit" if user else None
    stratum = None if pair else stratum_of(whole)
    # Mixed versions are a check with a repair here, not an error.
    counts = count_scores(
        frame, pair=pair, cluster=unit, stratum=stratum, mix_versions=True
    )
    labelled, notes, people = labelled_rows(frame, labels, unit)
    label_texts = None
    if labelled is not None:
        key = ["request_id", "arm"]
        label_texts = labelled.filter(
            pl.col("label").is_not_null() & pl.col("score").is_not_null()
        ).join(whole.select(*key, "reply"), on=key, how="left")
    return Rows(
        frame=frame,
        sample=draw(whole, SAMPLE, seed, pair or user),
        scored=int(whole["score"].is_not_null().sum()),
        control=control,
        arms=arms,
        pair=pair,
        unit=unit,
        stratum=stratum,
        counts=counts,
        labelled=labelled,
        people=people,
        label_texts=label_texts,
        notes=notes,
    )


def unit_column(frame: pl.DataFrame) -> str | None:
    """The column of the randomised unit, where the table has one."""
    if "user_id" not in frame.columns or frame["user_id"].null_count() == frame.height:
        return None
    return "user_id"


def by_arm(frame: pl.DataFrame, arms: list[str]) -> dict[str, int]:
    """Rows per arm, 0 included."""
    found = dict(frame.group_by("arm").len().iter_rows())
    return {arm: int(found.get(arm, 0)) for arm in arms}


def assigned(rows: Rows) -> dict[str, int] | None:
    """Units per arm as they were assigned, judged or not; None for pairs."""
    if rows.pair:
        return None
    if rows.unit is None:
        return by_arm(rows.frame, rows.arms)
    users = rows.frame.filter(pl.col(rows.unit).is_not_null())
    return by_arm(users.unique([rows.unit, "arm"]), rows.arms)


def reasons_missing(judged: pl.DataFrame) -> dict[str, int]:
    """Status -> judged replies without a score."""
    rest = judged.filter(pl.col("score").is_null())
    found = rest.group_by("status").len().sort("status")
    return {str(name): int(n) for name, n in found.iter_rows()}


def is_empty(frame: pl.DataFrame) -> pl.Series:
    """Which replies are empty (nothing but blanks)."""
    from reply_resolution.tables.replies import empty_expr

    if frame["reply"].null_count() == frame.height:  # no texts at all
        return pl.Series("empty", [False], dtype=pl.Boolean).new_from_index(
            0, frame.height
        )
    return frame.select(empty=empty_expr("reply"))["empty"]


def versions_check(frame: pl.DataFrame) -> Check:
    """Whether one rubric, judge and model scored everything."""
    scored = frame.filter(pl.col("score").is_not_null())

    def distinct(*names: str) -> list[str]:
        for name in names:
            if name in scored.columns and scored[name].null_count() < scored.height:
                return [str(v) for v in scored[name].drop_nulls().unique().sort()]
        return []

    return ck.check_versions(
        distinct("metric_version"),
        distinct("judge_id"),
        distinct("model_returned", "model"),
    )


def budget_check(frame: pl.DataFrame, verdicts: pl.DataFrame | None) -> Check:
    """What was to be judged, what was, and what all verdicts cost."""
    left = frame.filter(pl.col("status") == "not_judged")
    by_sampling = left.filter(pl.col("status_detail") == "sampling").height
    paid = verdicts if verdicts is not None else frame
    name = "cost_usd" if verdicts is not None else "judge_cost_usd"
    cost = None
    if name in paid.columns and paid[name].null_count() < paid.height:
        cost = float(paid[name].sum())
    return ck.check_budget(
        planned=frame.height,
        judged=frame.height - left.height,
        by_budget=left.height - by_sampling,
        by_sampling=by_sampling,
        cost_usd=cost,
    )


def scores_sha256(frame: pl.DataFrame) -> str:
    """Hash of what is compared: every request_id, arm and score, in any row order.

    A table of verdicts read back from the cache differs in bytes (what was cached,
    when), not in this.
    """
    columns = ["request_id", "arm", "score"]
    table = frame.select(pl.col(columns).cast(pl.String)).sort(columns)
    return hashlib.sha256(table.write_csv().encode()).hexdigest()


def wording_of(frame: pl.DataFrame, cache: str = "") -> str:
    """The judge's instructions behind the verdicts; "" where they cannot be found.

    Args:
        frame: Judged replies with their `metric_version`.
        cache: Cache file to look in for a rubric that is not one of the shipped ones.
    """
    if "metric_version" not in frame.columns:
        return ""
    versions = frame["metric_version"].drop_nulls().unique().to_list()
    if len(versions) != 1:
        return ""
    from reply_resolution.judge.rubric import Rubric, RubricVersion

    try:
        wanted = RubricVersion.parse(versions[0]).hash
        for rubric in (Rubric.default(), Rubric.reason_first()):
            if rubric.hash.startswith(wanted):
                return rubric.wording
        from reply_resolution.judge.cache import Cache

        with Cache.open(cache or None, read_only=True) as opened:
            return opened.rubric(versions[0]).wording
    except ReplyResolutionError:
        return ""


def draw(frame: pl.DataFrame, size: int, seed: int, unit: str | None) -> pl.DataFrame:
    """Scored rows: all, or a seeded draw of about `size`, whole units together."""
    known = frame["score"].is_not_null()
    total = int(known.sum())
    if total <= size:
        return frame.filter(known)
    column = unit or "request_id"
    # Sorted first: the draw must not depend on the order of the rows.
    units = frame.select(column).filter(known).drop_nulls().unique().sort(column)
    chosen = units.sample(max(2, int(units.height * size / total)), seed=seed)
    return frame.filter(known & frame[column].is_in(chosen[column].implode()))


def without_empty(
    rows: Rows, plan: ExperimentPlan
) -> Mapping[str, tuple[float, float, float]]:
    """Treatment -> (difference, low, high) without the empty replies."""
    if not rows.frame["empty"].any():
        return {}
    from reply_resolution.stats.compare import compare

    try:
        found = compare(
            rows.frame.filter(~pl.col("empty")),
            control=rows.control,
            pair=rows.pair,
            cluster=rows.unit,
            stratum=rows.stratum,
            mix_versions=True,
            confidence=1 - plan.alpha / (len(rows.arms) - 1),
        )
    except StatisticsError:
        return {}
    return {
        c.treatment: (c.mean_difference, c.ci[0], c.ci[1])
        for c in found.comparisons
        if c.ci[0] is not None and c.ci[1] is not None
    }

"""May this judge be used for this decision? A verdict by rules fixed beforehand.

The verdict is kept with the metric version and the judge id, so that a readout can
tell whether its judge was ever compared with people, and how that went.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl

from reply_resolution.calibration.checks import (
    check_agreement,
    check_bias,
    check_coverage,
    check_labels,
    check_length,
    check_levels,
    check_people,
    check_probes,
    check_segments,
    check_stability,
    tried,
)
from reply_resolution.calibration.measures import (
    measure_agree,
    measure_arms,
    measure_length,
    measure_people,
    measure_segments,
)
from reply_resolution.calibration.record import (
    CORRECT,
    FIT,
    UNFIT,
    Calibration,
    decide,
)
from reply_resolution.calibration.rules import (
    CHECKS,
    CalibrationCheck,
    CalibrationRules,
)
from reply_resolution.errors import (
    StatisticsError,
    TableError,
    VersionMismatchError,
)
from reply_resolution.stats.agreement import Agreement
from reply_resolution.stats.annotators import (
    consensus,
    label_keys,
    wide_labels,
)
from reply_resolution.stats.self_agreement import self_agreement

if TYPE_CHECKING:
    from reply_resolution.judge.probes import ProbeCard

__all__ = [
    "CHECKS",
    "CORRECT",
    "FIT",
    "UNFIT",
    "Calibration",
    "CalibrationCheck",
    "CalibrationRules",
    "decide",
    "judge_verdict",
]


def judge_verdict(
    verdicts: pl.DataFrame,
    labels: pl.DataFrame,
    *,
    replies: pl.DataFrame | None = None,
    probes: "ProbeCard | None" = None,
    rules: CalibrationRules | None = None,
    scale: tuple[int, int] = (1, 5),
    control: str | None = None,
    now: datetime | None = None,
) -> Calibration:
    """Say whether a judge may be used, by the rules, with reasons.

    Args:
        verdicts: One judge's verdicts in long form, all votes; the first vote of a
            reply counts, later ones show how steady the judge is.
        labels: Labels in long form, as from `read_labels`.
        replies: Replies with `request_id` (and `arm`), and what the checks look at:
            `reply` (its length), the segments' columns, `user_id` (clusters).
        probes: The judge's probe card, or None.
        rules: The rules; None takes the defaults.
        scale: Lowest and highest score.
        control: Baseline arm, for favouring an arm; None takes the first by name.
        now: Time of the stamp; the current time where None.

    Raises:
        VersionMismatchError: The verdicts are of several metric versions or judges.
        LabelError: Labels were made under another metric version.
        StatisticsError: No reply has both a label and a score.
    """
    from reply_resolution.tables.labels import check_label_version

    rules = rules or CalibrationRules()
    metric_version = _single(verdicts, "metric_version")
    judge_id = _single(verdicts, "judge_id")
    check_label_version(labels, metric_version)
    first, repeated = _first_votes(verdicts)
    people = consensus(labels, how=rules.consensus)
    frame, notes = _joined(first, people, replies)
    scored = frame.filter(pl.col("score").is_not_null())
    if scored.is_empty():
        raise StatisticsError(
            f"none of the {len(people)} labelled replies has a score by this judge; "
            "check that request_id (and arm) are the same in both tables."
        )
    cluster = _cluster(scored)
    overall = measure_agree(scored, "label", scale, rules, cluster)
    alone, by_person = measure_people(labels, scored, scale, rules, cluster)
    steady = tried(
        self_agreement,
        repeated,
        by=label_keys(repeated),
        cut=rules.cut,
        scale=scale,
        confidence=rules.confidence,
    )
    segments = measure_segments(scored, rules, scale, cluster)
    agrees = check_agreement(overall.concordance, overall.n, rules)
    refused = agrees.mark == "stop"
    arms, favour = measure_arms(scored, rules, scale, cluster, control, refused)
    levels = check_levels(scored["score"], rules)
    # One score for everything follows nothing, whatever the labels do.
    length, slope = (
        (check_length(None, None, 0, rules), None)
        if levels.mark == "stop"
        else measure_length(scored, rules, cluster)
    )
    judged = first.filter(pl.col("status") != "not_judged")
    found = (
        check_labels(len(scored), _labels_by_person(labels), rules),
        check_coverage(
            judged["score"].count(),
            len(judged),
            {
                str(k): int(v)
                for k, v in judged["status"].value_counts(sort=True).rows()
            },
            rules,
        ),
        levels,
        agrees,
        check_people(alone, overall.concordance, len(by_person), rules),
        check_bias(overall.bias, rules),
        arms,
        check_segments(segments, rules, "segments", refused=refused),
        length,
        check_probes(probes, rules),
        check_stability(steady, rules),
    )
    checks = tuple(_required(c, rules) for c in found)
    verdict, reasons, changes = decide(checks)
    return Calibration(
        verdict=verdict,
        reasons=reasons,
        changes=changes,
        checks=checks,
        metric_version=metric_version,
        judge_id=judge_id,
        model=_single(verdicts, "model") or "",
        n=len(scored),
        kappa=overall.concordance,
        bias=overall.bias,
        people=alone,
        rules=rules,
        details={
            "consensus": overall.to_dict(),
            "annotators": {k: v.to_dict() for k, v in by_person.items()},
            "segments": {
                column: {
                    value: None if r is None else r.to_dict()
                    for value, r in found.items()
                }
                for column, found in segments.items()
            },
            "favour": favour,
            "length": slope,
            "self": None
            if steady is None
            else {"pairs": steady.n_pairs, "flip_rate": steady.flip_rate.to_dict()},
        },
        warnings=(*notes, *_worth_saying(overall)),
        created_at=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
    )


def _worth_saying(result: Agreement) -> tuple[str, ...]:
    """An agreement's warnings, but for what a mean of labels always brings."""
    return tuple(w for w in result.warnings if not w.startswith("Values that are not"))


def _required(check: CalibrationCheck, rules: CalibrationRules) -> CalibrationCheck:
    if check.mark != "none" or check.name not in rules.required:
        return check
    return CalibrationCheck(
        check.name, "stop", f"{check.text}; the rules require it", change=check.change
    )


def _single(verdicts: pl.DataFrame, column: str) -> str | None:
    """The one value of a column; None where it is not recorded."""
    if column not in verdicts.columns:
        return None
    found = verdicts[column].drop_nulls().unique(maintain_order=True).to_list()
    if len(found) > 1 and column != "model":
        raise VersionMismatchError(
            f"the verdicts are of several {column}s: {', '.join(map(str, found))}. "
            "Calibrate one at a time; compare two with `compare_judges`."
        )
    return ", ".join(map(str, found)) or None


def _first_votes(verdicts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """First votes, and all votes, with `vote` and `status` filled where missing."""
    for column in ("request_id", "score"):
        if column not in verdicts.columns:
            raise TableError(
                f"verdicts need a column {column!r}; read them with `read_verdicts`."
            )
    if "status" not in verdicts.columns:
        verdicts = verdicts.with_columns(
            pl.when(pl.col("score").is_null())
            .then(pl.lit("invalid"))
            .otherwise(pl.lit("scored"))
            .alias("status")
        )
    if "vote" not in verdicts.columns:
        verdicts = verdicts.with_columns(pl.lit(0).alias("vote"))
    keys = label_keys(verdicts)
    first = verdicts.sort("vote", maintain_order=True).unique(
        keys, keep="first", maintain_order=True
    )
    return first, verdicts


def _joined(
    first: pl.DataFrame, people: pl.DataFrame, replies: pl.DataFrame | None
) -> tuple[pl.DataFrame, list[str]]:
    """Verdict, label and reply in one row; labels without a verdict are counted."""
    keys = [k for k in label_keys(people) if k in label_keys(first)]
    lost = people.join(first, on=keys, how="anti", nulls_equal=True)
    notes = []
    if len(lost):
        names = ", ".join(lost["request_id"].head(5).to_list())
        notes.append(
            f"{len(lost)} labelled replies have no verdict and are not used ({names})."
        )
    own = ["score", "reason", "status"]
    frame = people.join(
        first.select(*keys, *(c for c in own if c in first.columns)),
        on=keys,
        how="inner",
        nulls_equal=True,
        maintain_order="left",
    )
    if replies is not None:
        more = [k for k in label_keys(replies) if k in frame.columns]
        drop = [c for c in frame.columns if c in replies.columns and c not in more]
        frame = frame.join(
            replies.drop(drop).unique(more, keep="first", maintain_order=True),
            on=more,
            how="left",
            nulls_equal=True,
        )
    return frame, notes


def _cluster(frame: pl.DataFrame) -> str | None:
    known = "user_id" in frame.columns and not frame["user_id"].null_count()
    return "user_id" if known else None


def _labels_by_person(labels: pl.DataFrame) -> dict[str, int]:
    wide, names = wide_labels(labels)
    return {name: wide[name].count() for name in names}

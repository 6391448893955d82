"""The measurements behind the checks of a judge that look at several columns."""

from typing import Any

import polars as pl

from reply_resolution.calibration.checks import check_length, check_segments, tried
from reply_resolution.calibration.rules import CalibrationCheck, CalibrationRules
from reply_resolution.stats.agreement import Agreement, agreement
from reply_resolution.stats.agreement_parts import Estimate
from reply_resolution.stats.agreement_slices import slices
from reply_resolution.stats.annotators import (
    annotator_agreement,
    label_keys,
    wide_labels,
)


def measure_agree(
    frame: pl.DataFrame,
    label: str,
    scale: tuple[int, int],
    rules: CalibrationRules,
    cluster: str | None,
) -> Agreement:
    """The judge with one column of labels, weighted and clustered as given."""
    frame = frame.filter(pl.col(label).is_not_null())
    return agreement(
        frame["score"],
        frame[label],
        scale=scale,
        confidence=rules.confidence,
        weights=frame["weight"] if frame["weight"].n_unique() > 1 else None,
        clusters=None if cluster is None else frame[cluster],
    )


def measure_people(
    labels: pl.DataFrame,
    scored: pl.DataFrame,
    scale: tuple[int, int],
    rules: CalibrationRules,
    cluster: str | None,
) -> tuple[Estimate | None, dict[str, Agreement]]:
    """Annotators among themselves, and the judge with each of them."""
    wide, names = wide_labels(labels)
    keys = label_keys(wide)
    own = [f"__label_{i}" for i in range(len(names))]
    frame = scored.join(
        wide.rename(dict(zip(names, own, strict=True))),
        on=[k for k in keys if k in scored.columns],
        how="left",
        nulls_equal=True,
    )
    by_person = {
        name: found
        for name, column in zip(names, own, strict=True)
        if (found := tried(measure_agree, frame, column, scale, rules, cluster))
        is not None
    }
    if len(names) < 2:
        return None, by_person
    among = tried(annotator_agreement, labels, scale=scale, confidence=rules.confidence)
    return None if among is None else among.weighted_kappa, by_person


def measure_segments(
    scored: pl.DataFrame,
    rules: CalibrationRules,
    scale: tuple[int, int],
    cluster: str | None,
) -> dict[str, dict[str, Agreement | None]]:
    """Agreement within each value of the segments' columns; rare values are pooled."""
    columns = [c for c in rules.segments if c in scored.columns]
    out = {}
    for column in columns:
        values = pl.col(column).cast(pl.String).fill_null("not given")
        counts = scored.select(values.alias(column))[column].value_counts()
        rare = counts.filter(pl.col("count") < rules.segment_least)[column].to_list()
        pooled = scored.with_columns(
            pl.when(values.is_in(rare))
            .then(pl.lit(f"{len(rare)} others") if len(rare) > 1 else values)
            .otherwise(values)
            .alias(column)
        )
        if pooled[column].n_unique() < 2:
            continue
        out[column] = slices(
            pooled,
            by=column,
            scale=scale,
            weight="weight" if scored["weight"].n_unique() > 1 else None,
            cluster=cluster,
            least=rules.segment_least,
            # Several values are looked at: each interval is widened, so that a good
            # judge is not refused for the worst of ten segments.
            confidence=1 - (1 - rules.confidence) / pooled[column].n_unique(),
        )
    return out


def measure_arms(
    scored: pl.DataFrame,
    rules: CalibrationRules,
    scale: tuple[int, int],
    cluster: str | None,
    control: str | None,
    refused: bool,
) -> tuple[CalibrationCheck, dict[str, Any] | None]:
    """Agreement within each arm, and whether the judge favours one."""
    from reply_resolution.stats.favouring import differential_bias

    names = (
        scored["arm"].drop_nulls().unique().sort().to_list()
        if "arm" in scored.columns
        else []
    )
    if len(names) < 2:
        return (
            CalibrationCheck(
                "arms",
                "none",
                "labels of one arm, or without arms",
                change="30 randomly drawn labels in each arm of the experiment",
            ),
            None,
        )
    baseline = control if control in names else names[0]
    weight = "weight" if scored["weight"].n_unique() > 1 else None
    within = {
        "arm": slices(
            scored.filter(pl.col("arm").is_not_null()),
            by="arm",
            scale=scale,
            weight=weight,
            cluster=cluster,
            least=rules.segment_least,
            confidence=1 - (1 - rules.confidence) / len(names),
        )
    }
    check = check_segments(within, rules, "arms", refused=refused)
    found = {
        name: tried(
            differential_bias,
            scored,
            control=baseline,
            treatment=name,
            margin=rules.favour_margin,
            weight=weight,
            cluster=cluster,
            confidence=rules.confidence,
        )
        for name in names
        if name != baseline
    }
    measured = {k: v for k, v in found.items() if v is not None}
    plain = {k: v.to_dict() for k, v in measured.items()}
    if check.mark == "stop" or not measured:
        return check, plain
    text = f"{check.text}. " + " ".join(v.conclusion for v in measured.values())
    shown = [v for v in measured.values() if v.low > 0 or v.high < 0]
    serious = [v for v in shown if not v.equivalent]
    settled = all(v.equivalent for v in measured.values())
    if serious:
        return (
            CalibrationCheck(
                "arms",
                "look",
                text.rstrip("."),
                corrects=True,
                change="the effect corrected by labels of both arms",
            ),
            plain,
        )
    mark = "ok" if settled and check.mark == "ok" else "look"
    change = "" if mark == "ok" else check.change or "more labels in both arms"
    return CalibrationCheck("arms", mark, text.rstrip("."), change=change), plain


def measure_length(
    scored: pl.DataFrame, rules: CalibrationRules, cluster: str | None
) -> tuple[CalibrationCheck, dict[str, Any] | None]:
    """Whether judge minus label rises with length, and the numbers behind it."""
    from reply_resolution.stats.length import length_bias

    if "reply" not in scored.columns:
        return check_length(None, None, 0, rules), None
    found = tried(
        length_bias,
        scored,
        label="label",
        cluster=cluster,
        confidence=rules.confidence,
        standardise=False,
    )
    if found is None:
        return check_length(None, None, 0, rules), None
    return (
        check_length(found.points_per_doubling, found.ci, found.n, rules),
        found.to_dict(),
    )

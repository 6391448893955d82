"""What people's labels and calibrations tell a readout about its judge."""

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.readout.checks import short
from reply_resolution.readout.checks_judge import Calibrated
from reply_resolution.readout.effects import LengthFinding
from reply_resolution.readout.experiment_plan import ExperimentPlan

if TYPE_CHECKING:
    from reply_resolution.calibration.verdict import Calibration
    from reply_resolution.readout.inputs import Rows


def labelled_rows(
    frame: pl.DataFrame, labels: pl.DataFrame | None, unit: str | None
) -> tuple[pl.DataFrame | None, tuple[str, ...], list[str]]:
    """Judged rows with the mean of people's labels beside them.

    Returns:
        The rows (None without labels), notes, and the annotators' columns.
    """
    if labels is None or labels.height == 0:
        return None, (), []
    from reply_resolution.tables.labels import join_labels

    base = frame.drop([c for c in frame.columns if c.startswith("label_")])
    wide, notes = join_labels(base, labels)
    people = [c for c in wide.columns if c not in base.columns]
    wide = wide.with_columns(label=pl.mean_horizontal(people))
    if "weight" in labels.columns and labels["weight"].n_unique() > 1:
        key = ["request_id", "arm"] if labels["arm"].null_count() == 0 else "request_id"
        chances = labels.unique(key).select(
            *([key] if isinstance(key, str) else key), pl.col("weight")
        )
        wide = wide.join(chances, on=key, how="left", suffix="_label")
    else:
        wide = wide.drop("weight", strict=False)
    if unit is not None:
        wide = wide.filter(pl.col(unit).is_not_null())
    if wide["label"].null_count() == wide.height:
        return None, notes, []
    return wide, notes, people


def measured_agreement(
    rows: pl.DataFrame, people: list[str], unit: str | None
) -> Calibrated:
    """The judge's agreement with people, from the labels of this experiment."""
    from reply_resolution.stats.agreement import agreement

    both = rows.filter(pl.col("score").is_not_null() & pl.col("label").is_not_null())
    users = both[unit].to_list() if unit else None
    found = agreement(both["score"].to_list(), both["label"].to_list(), clusters=users)
    kappa = found.concordance
    if kappa.estimate is None or kappa.low is None or kappa.high is None:
        raise StatisticsError("agreement is not defined for these labels.")
    among = None
    if len(people) > 1:
        pairs = both.select(people[:2]).drop_nulls()
        if pairs.height > 1:
            among = agreement(
                pairs[people[0]].to_list(), pairs[people[1]].to_list()
            ).weighted_kappa.estimate
    return Calibrated(
        kappa=kappa.estimate,
        low=kappa.low,
        high=kappa.high,
        labels=both.height,
        bias=found.bias.estimate,
        source="of this experiment",
        people=among,
    )


def calibrated(
    calibration: "Calibration | None", rows: "Rows"
) -> tuple[Calibrated | None, str]:
    """What is known of the judge: its calibration, else this experiment's labels.

    Returns:
        The agreement (None if unknown) and why a given calibration does not count.
    """
    mismatch = ""
    if calibration is not None:
        found, mismatch = _from_calibration(calibration, rows.frame)
        if found is not None:
            return found, ""
    if rows.labelled is None:
        return None, mismatch
    try:
        return measured_agreement(rows.labelled, rows.people, rows.unit), ""
    except StatisticsError as error:
        return None, f"agreement could not be measured: {error}"


def _from_calibration(
    calibration: "Calibration", frame: pl.DataFrame
) -> tuple[Calibrated | None, str]:
    for name in ("metric_version", "judge_id"):
        theirs = getattr(calibration, name)
        ours = []
        if name in frame.columns:
            ours = frame[name].drop_nulls().unique().sort().to_list()
        if theirs and ours and ours != [theirs]:
            return None, (
                f"the calibration is of another {name.replace('_', ' ')} "
                f"({short(theirs)}) than these verdicts "
                f"({', '.join(map(short, ours))})"
            )
    kappa = calibration.kappa
    if kappa.estimate is None or kappa.low is None or kappa.high is None:
        return None, f"the calibration has no agreement ({kappa.reason})"
    return Calibrated(
        kappa=kappa.estimate,
        low=kappa.low,
        high=kappa.high,
        labels=calibration.n,
        bias=calibration.bias.estimate,
        source="of the calibration",
        verdict=calibration.verdict,
        reasons=tuple(r.rstrip(".") for r in calibration.reasons),
        people=None if calibration.people is None else calibration.people.estimate,
    ), ""


def lengths(rows: "Rows", plan: ExperimentPlan) -> dict[str, LengthFinding]:
    """What length does to each comparison; a draw of the rows where there are many."""
    from reply_resolution.stats.length import LengthBias, length_bias
    from reply_resolution.stats.length_effects import length_effect

    known = rows.sample.filter(pl.col("reply").is_not_null())
    if known.height == 0:
        return {arm: LengthFinding(why_not="no reply texts") for arm in rows.arms[1:]}
    bias: LengthBias | None = None
    why_not = "no labels of this experiment"
    if rows.label_texts is not None:
        some = rows.label_texts
        try:
            bias = length_bias(
                some.rename({"label": "label__mean"}),
                label="label__mean",
                mix_versions=True,  # a check of its own says so
            )
        except (StatisticsError, TableError) as error:
            why_not = str(error)
        if bias is not None and bias.points_per_doubling is None:
            why_not = "; ".join(bias.warnings) or "not enough labels"
            bias = None
    found = {}
    for arm in rows.arms[1:]:
        part = known.filter(pl.col("arm").is_in([rows.control, arm]))
        try:
            effect = length_effect(
                part,
                bias,
                control=rows.control,
                treatment=arm,
                pair=rows.pair,
                cluster=None if rows.pair or not rows.unit else "user_id",
                stratum=rows.stratum,
                confidence=1 - plan.alpha / (len(rows.arms) - 1),
            )
        except (StatisticsError, TableError) as error:
            found[arm] = LengthFinding(why_not=str(error))
            continue
        finding = LengthFinding(
            ratio=effect.length_ratio,
            controlled=effect.length_controlled,
            controlled_interval=effect.length_controlled_ci,
            why_not=why_not,
        )
        if bias is not None:
            finding = replace(
                finding,
                slope=bias.points_per_doubling,
                slope_interval=bias.ci,
                labels=bias.n,
                corrected=effect.corrected,
                corrected_interval=effect.corrected_ci,
                why_not="" if effect.corrected_ci else "; ".join(effect.warnings),
            )
        found[arm] = finding
    return found

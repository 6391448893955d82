"""Strata: how much each counts, the same in every analysis of an experiment.

The test permutes within strata; an estimate beside it must compare within them too, and
weigh them alike, or the page shows two different effects.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.arrays import Floats, Ints
from reply_resolution.stats.binary import inverted, score_variance
from reply_resolution.stats.quantiles import critical, two_sided


def stratum_of(frame: pl.DataFrame) -> str | None:
    """The column within whose values arms were assigned, where there are several."""
    if "stratum" not in frame.columns or frame["stratum"].n_unique() < 2:
        return None
    return "stratum"


def stratum_weights(
    control: Ints | Floats, treatment: Ints | Floats, *, users: bool = False
) -> Floats:
    """Share of each stratum in an effect that is averaged over strata.

    Args:
        control: Replies of control in each stratum, above 0; shape (H,).
        treatment: The same for the treatment.
        users: Whether users are the units: then strata weigh by their replies, which
            no dealing of the users to the arms changes; otherwise by n1 n0 / (n1 + n0),
            which is best where the effect is the same in all.

    Returns:
        Shape (H,), sum 1.
    """
    total = np.asarray(control + treatment, dtype=float)
    weight = total if users else control * treatment / total
    out: Floats = weight / weight.sum()
    return out


def with_shares(
    frame: pl.DataFrame,
    *,
    control: str,
    treatment: str,
    stratum: str,
    arm: str = "arm",
    cluster: str | None = None,
    least: int | None = None,
) -> pl.DataFrame:
    """The rows that carry a comparison, and what each counts in the mean of its arm.

    Args:
        frame: One row per value; rows of other arms are left out.
        control: Name of the baseline arm.
        treatment: Name of the arm compared with it.
        stratum: Column of the stratum; empty cells are a stratum of their own.
        arm: Column of the arm.
        cluster: Column of the user, where users are the units.
        least: Units that a stratum needs in each arm: by default 2 users, or 1 row.

    Returns:
        The rows of strata that both arms have (with at least that many units) with
        `__stratum` (number) and `__share`: above 0, sum 1 in each arm. The difference
        of the arms' means under these shares is the effect within strata.

    Raises:
        StatisticsError: The arms share no stratum.
    """
    rows = frame.filter(pl.col(arm).is_in([control, treatment])).with_columns(
        __stratum=pl.col(stratum).cast(pl.String).fill_null("").rank("dense")
    )
    units = pl.col(cluster).n_unique() if cluster else pl.len()
    sizes = rows.group_by("__stratum", arm).agg(n=pl.len(), units=units)
    sizes = sizes.filter(pl.col("units") >= (least or (2 if cluster else 1)))
    sides = [
        sizes.filter(pl.col(arm) == name).select("__stratum", pl.col("n").alias(name))
        for name in (control, treatment)
    ]
    both = sides[0].join(sides[1], on="__stratum").sort("__stratum")
    if both.is_empty():
        raise StatisticsError(
            f"{treatment!r} and {control!r} share no stratum; leave the stratum out."
        )
    n0, n1 = (both[name].to_numpy().astype(np.int64) for name in (control, treatment))
    weight = stratum_weights(n0, n1, users=cluster is not None)
    shares = pl.concat(
        both.select("__stratum", pl.lit(name).alias(arm), __share=pl.Series(weight / n))
        for name, n in ((control, n0), (treatment, n1))
    )
    return rows.join(shares, on=["__stratum", arm], how="inner", maintain_order="left")


def stratified_rate_interval(
    tables: Sequence[tuple[float, float, float, float]],
    weight: Floats,
    *,
    confidence: float,
) -> tuple[float, float, float]:
    """Interval and p-value of a difference of rates that is averaged over strata.

    Inverts the score test, so it has width where no reply of a stratum has a 1, and
    excludes 0 exactly where the p-value is below 1 - confidence. With one stratum it is
    the Miettinen-Nurminen interval.

    Args:
        tables: Ones and replies of the treatment, then of control, per stratum; may be
            fractional (effective counts).
        weight: Of each stratum, sum 1; shape (H,).
        confidence: Nominal coverage, fraction.

    Returns:
        Low, high (fractions) and the two-sided p-value.

    Source: Miettinen and Nurminen 1985, Statistics in Medicine 4, 213-226.
    """
    estimate = sum(
        w * (x1 / n1 - x0 / n0)
        for w, (x1, n1, x0, n0) in zip(weight, tables, strict=True)
    )

    def statistic(difference: float) -> float:
        variance = sum(
            w * w * score_variance(*table, difference)
            for w, table in zip(weight, tables, strict=True)
        )
        gap = estimate - difference
        if variance <= 1e-15:
            return 0.0 if abs(gap) < 1e-12 else float(np.copysign(np.inf, gap))
        return float(gap / np.sqrt(variance))

    low, high = inverted(statistic, float(estimate), critical(confidence))
    return low, high, two_sided(statistic(0.0))

"""Arms with a labelled part: reading them, and the error of sums over them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
import polars as pl

from reply_resolution.errors import StatisticsError, TableError
from reply_resolution.stats.agreement_parts import Array
from reply_resolution.stats.quantiles import two_sided
from reply_resolution.stats.strata import with_shares

#: Fewer labels in an arm than this and a corrected result is marked unreliable.
MIN_LABELS = 30


@dataclass(frozen=True, slots=True)
class Arm:
    """The judged replies of one arm.

    Attributes:
        judge: Judge's scores, shape (n,), none missing.
        label: Labels, shape (n,), NaN where nobody labelled.
        weight: 1 / probability of being labelled, or None (all alike).
        clusters: Cluster number of each reply, the same over all arms, or None.
        share: What each reply counts in the arm's mean, sum 1; None: all alike.
        strata: Stratum number of each reply, or None.
    """

    judge: Array
    label: Array
    weight: Array | None
    clusters: NDArray[np.int64] | None
    share: Array | None = None
    strata: NDArray[np.int64] | None = None

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which replies have a label."""
        return ~np.isnan(self.label)


def read_arms(
    frame: pl.DataFrame,
    *,
    arms: Sequence[str],
    arm: str,
    score: str,
    label: str,
    weight: str | None,
    cluster: str | None,
    stratum: str | None = None,
) -> dict[str, Arm]:
    """The rows of each arm as arrays; rows without a judge's score are left out.

    With strata (control and one treatment), those that both arms have.
    """
    for column in (arm, score, label, weight, cluster, stratum):
        if column is not None and column not in frame.columns:
            raise TableError(
                f"the table has no column {column!r}; it has "
                f"{', '.join(frame.columns)}."
            )
    for column in (score, label):
        if not (frame[column].dtype.is_numeric() or frame[column].dtype == pl.Null):
            raise TableError(
                f"column {column!r} holds {frame[column].dtype}, not numbers; read the "
                "table with `read_verdicts` and `read_labels`."
            )
    frame = frame.filter(pl.col(score).is_not_null()).with_columns(
        pl.col(score, label).cast(pl.Float64).fill_nan(None)
    )
    frame = frame.filter(pl.col(score).is_not_null())
    if cluster is not None:
        if frame[cluster].null_count():
            raise TableError(
                f"column {cluster!r} is empty in {frame[cluster].null_count()} rows."
            )
        frame = frame.with_columns(
            (pl.col(cluster).cast(pl.String).rank("dense") - 1)
            .cast(pl.Int64)
            .alias("__cluster")
        )
    if stratum is not None:
        control, treatment = arms
        frame = with_shares(
            frame,
            control=control,
            treatment=treatment,
            stratum=stratum,
            arm=arm,
            cluster=cluster,
        )
    out = {}
    for name in arms:
        rows = frame.filter(pl.col(arm) == name)
        labelled = rows.filter(pl.col(label).is_not_null())
        if len(labelled) < 2:
            raise StatisticsError(
                f"arm {name!r} has {len(labelled)} labelled and judged replies of "
                f"{len(rows)} judged ones; a correction needs at least 2, and "
                f"{MIN_LABELS} to be reliable. Label a random draw of each arm."
            )
        if weight is not None and (
            labelled[weight].null_count() or not (labelled[weight] > 0).all()
        ):
            raise TableError(
                f"column {weight!r} must hold a positive weight (1 / probability of "
                f"being drawn) for every labelled reply of arm {name!r}."
            )
        out[name] = Arm(
            judge=rows[score].to_numpy(),
            label=rows[label].fill_null(float("nan")).to_numpy(),
            weight=None
            if weight is None
            else rows[weight].cast(pl.Float64).fill_null(0.0).to_numpy(),
            clusters=None
            if cluster is None
            else rows["__cluster"].to_numpy().astype(np.int64),
            share=None if stratum is None else rows["__share"].to_numpy(),
            strata=None
            if stratum is None
            else rows["__stratum"].to_numpy().astype(np.int64),
        )
    return out


@dataclass(frozen=True, slots=True)
class Part:
    """One arm's estimate, and what each row adds to its error.

    Attributes:
        estimate: The corrected mean.
        lam: The weight of the judge.
        labelled: Shape (n,): influence of the labelled rows through their labels.
        unlabelled: Shape (N,): influence of the rows that carry the judge's mean.
        labelled_rows: Row numbers of the first, unlabelled_rows of the second.
    """

    estimate: float
    lam: float
    labelled: Array
    unlabelled: Array
    labelled_rows: NDArray[np.int64]
    unlabelled_rows: NDArray[np.int64]


def _tuned(covariance: Array, variance: Array, labels: Array, unlabelled: int) -> Array:
    """The variance-minimising weight of the judge, clipped to 0..1.

    Covariance over n, variance of all judge scores over n - 1: the convention of
    ppi_py, which the checks outside follow. A constant judge knows nothing: 0.
    """
    known = variance > 1e-14
    slope = covariance / np.where(known, variance, 1.0) / (1 + labels / unlabelled)
    return np.where(known, np.clip(slope, 0.0, 1.0), 0.0)


def arm_part(arm: Arm, lam: float | None) -> Part:
    """Estimate and influences of one arm.

    What a label pushes is what leaving it out does (jackknife), with the judge's
    weight chosen anew: at 30 labels the choice from the same labels is not free, and
    the plain variance rejects a true zero in up to 7.3% of experiments. With `lam`
    given there is no choice to pay for, and the variance is the usual one.

    Source: Efron & Stein 1981 (the jackknife's variance is not too small on average).
    """
    judge, label, has = arm.judge, arm.label, arm.labelled
    rows = np.arange(len(judge))
    other, n = judge[~has], int(has.sum())
    base_share = None
    if arm.weight is None and arm.share is None:
        share = np.full(n, 1 / n)
        base, base_rows = other, rows[~has]
    else:
        # Labels drawn with unequal chances, or replies that count unequally: what is
        # left unlabelled is no random sample, so the judge's mean is over all replies.
        share = np.ones(n)
        for factor in (arm.weight, arm.share):
            share *= 1.0 if factor is None else factor[has]
        share /= share.sum()
        base, base_rows, base_share = judge, rows, arm.share
    if len(other) == 0:
        lam = 0.0  # everything is labelled: there is nothing for the judge to add
    centre, middle = float(share @ judge[has]), float(share @ label[has])
    f, y = judge[has] - centre, label[has] - middle
    # Means and weight without each labelled reply in turn; the last is with all.
    left = 1 / (1 - np.append(share, 0.0))
    drop = np.append(np.ones(n), 0.0)
    at = np.append(share, 0.0)
    fs, ys = np.append(f, 0.0), np.append(y, 0.0)
    mean_f, mean_y = -at * fs * left, -at * ys * left
    if lam is None:
        everyone = judge - centre
        total, squares, size = everyone.sum(), everyone @ everyone, len(judge) - drop
        mean = (total - drop * fs) / size
        spread = squares - drop * fs**2 - size * mean**2
        covariance = (share @ (f * y) - at * fs * ys) * left - mean_f * mean_y
        lams = _tuned(
            covariance, spread / np.maximum(size - 1, 1), n - drop, len(other)
        )
    else:
        lams = np.full(n + 1, lam)
    if not lams.any():
        base, base_rows, base_share = base[:0], base_rows[:0], None
    m = len(base)
    mean_base = float(np.average(base, weights=base_share)) if m else 0.0
    around = (base - mean_base) / max(m, 1)
    if base_share is not None:
        assert arm.strata is not None
        # The strata are given, not drawn: only what varies within them is chance.
        sizes = np.bincount(arm.strata)
        means = np.bincount(arm.strata, base) / np.maximum(sizes, 1)
        around = base_share * (base - means[arm.strata])
    moved = lams * (mean_base - centre - mean_f) + mean_y
    without = moved[:-1]
    scale = np.sqrt(m / (m - 1)) if m > 1 else 1.0
    return Part(
        estimate=float(moved[-1]) + middle,
        lam=float(lams[-1]),
        labelled=(without.mean() - without) * np.sqrt((n - 1) / n),
        unlabelled=lams[-1] * around * scale,
        labelled_rows=rows[has],
        unlabelled_rows=base_rows,
    )


def variance_of(
    parts: Sequence[tuple[float, Part, NDArray[np.int64] | None]],
) -> tuple[float, float]:
    """Variance of a signed sum of arms, and its degrees of freedom.

    Args:
        parts: Sign (+1 or -1), the arm's part, cluster number of its rows or None.
            The same cluster may occur in both arms (pairs): its pushes then cancel.
    """
    pieces: list[tuple[float, int]] = []
    if parts[0][2] is None:
        for _, part, _ in parts:
            for pushes, rows in (
                (part.labelled, part.labelled_rows),
                (part.unlabelled, part.unlabelled_rows),
            ):
                if len(pushes) > 1:
                    pieces.append((float(pushes @ pushes), len(rows)))
        # Rows that carry both (weights) add their product.
        cross = 0.0
        for _, part, _ in parts:
            both, at, other = np.intersect1d(
                part.labelled_rows, part.unlabelled_rows, return_indices=True
            )
            if len(both):
                cross += 2 * float(part.labelled[at] @ part.unlabelled[other])
        total = sum(v for v, _ in pieces) + cross
        smallest = max((v for v, _ in pieces), default=0.0)
        total = max(total, smallest)
    else:
        size = max(int(c.max()) for _, _, c in parts if c is not None) + 1
        pushes = np.zeros(size)
        with_labels: set[int] = set()
        for sign, part, codes in parts:
            assert codes is not None
            np.add.at(pushes, codes[part.labelled_rows], sign * part.labelled)
            np.add.at(pushes, codes[part.unlabelled_rows], sign * part.unlabelled)
            with_labels |= set(codes[part.labelled_rows].tolist())
        present = np.unique(np.concatenate([c for _, _, c in parts if c is not None]))
        units = len(present)
        squares = pushes**2
        total = float(squares.sum() * units / max(units - 1, 1))
        known = np.zeros(size, dtype=bool)
        known[list(with_labels)] = True
        pieces = [
            (float(squares[known].sum()), int(known.sum())),
            (float(squares[~known].sum()), units - int(known.sum())),
        ]
    bottom = sum(v**2 / (k - 1) for v, k in pieces if k > 1 and v > 0)
    top = sum(v for v, k in pieces if k > 1 and v > 0)
    return total, (top**2 / bottom if bottom > 0 else float("inf"))


def wald_pvalue(estimate: float, se: float, df: float, null: float = 0.0) -> float:
    """Two-sided p-value of a t statistic; 1 or 0 where there is no spread."""
    gap = abs(estimate - null)
    if se <= 0:
        return 1.0 if gap <= 1e-12 else 0.0
    return two_sided(gap / se, df)


def two_arms(
    frame: pl.DataFrame, *, control: str, treatment: str | None, arm: str
) -> tuple[str, str]:
    """The names of control and treatment; the treatment may be left to be found.

    Raises:
        TableError: The control arm is not there, or the treatment is not clear.
    """
    if arm not in frame.columns:
        raise TableError(
            f"the table has no column {arm!r}; it has {', '.join(frame.columns)}."
        )
    names = [str(a) for a in frame[arm].drop_nulls().unique(maintain_order=True)]
    if control not in names:
        raise TableError(
            f"no arm is called {control!r}; the arms are {', '.join(names)}."
        )
    others = [n for n in names if n != control]
    if treatment is None and len(others) == 1:
        return control, others[0]
    if treatment is None or treatment not in others:
        raise TableError(
            f"name the treatment arm: {', '.join(others) or 'there is only control'}."
        )
    return control, treatment


def arms_labels(arms: Mapping[str, Arm]) -> dict[str, int]:
    """Labels per arm, in units: clusters with a label where there are clusters."""
    return {
        name: int(data.labelled.sum())
        if data.clusters is None
        else len(np.unique(data.clusters[data.labelled]))
        for name, data in arms.items()
    }


def few_labels(labels: Mapping[str, int], min_labels: int) -> tuple[str, ...]:
    """A sentence per arm with fewer labels than `min_labels`."""
    return tuple(
        f"arm {name!r} has {n} independent labels, fewer than {min_labels}: the "
        "corrected result is unreliable."
        for name, n in labels.items()
        if n < min_labels
    )

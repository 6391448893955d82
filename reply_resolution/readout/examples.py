"""Replies to read: drawn by a rule that is printed, from the cells that moved most."""

from dataclasses import dataclass

import polars as pl

from reply_resolution.readout.themes import draw_order


@dataclass(frozen=True, slots=True)
class Example:
    """One reply (or one of a pair) that the readout quotes.

    Attributes:
        request_id: Which request.
        arm: Which arm's reply.
        score: The judge's score, 1 to 5.
        request: What the user asked, whole.
        reply: What the assistant answered, whole.
        reason: The judge's reason, word for word.
        why: The rule that drew it, in words.
        against: Whether it speaks against the direction of the result.
        pair: A number shared by the two sides of a pair; None for single replies.
    """

    request_id: str
    arm: str
    score: int
    request: str
    reply: str
    reason: str
    why: str
    against: bool
    pair: int | None = None


@dataclass(frozen=True, slots=True)
class Examples:
    """What was drawn, and how.

    Attributes:
        rule: The rule in words, the seed in it.
        drawn: The replies in reading order.
        moves: Score -> share in treatment minus share in control, fraction (for
            pairs: change in points -> share of pairs).
    """

    rule: str
    drawn: tuple[Example, ...]
    moves: dict[int, float]


def draw_examples(
    frame: pl.DataFrame,
    *,
    control: str,
    treatment: str,
    seed: int,
    estimate: float,
    paired: bool = False,
) -> Examples:
    """Draw replies from the cells that moved most, and one that contradicts.

    Independent arms: from the score whose share grew most in the treatment a
    treatment reply, from the one that shrank most a control reply, and one reply
    against the direction of the result. Pairs: two pairs that moved with the result
    and one that moved against it, both sides.

    Args:
        frame: One row per reply: `request_id`, `arm`, `score`, `reason`, `request`,
            `reply`. Rows without a score are left out.
        control: Name of the baseline arm.
        treatment: Name of the arm compared with it.
        seed: Enters the rule.
        estimate: The result's direction, points, treatment minus control.
        paired: Whether `request_id` pairs the arms.
    """
    rows = frame.filter(
        pl.col("arm").is_in([control, treatment]) & pl.col("score").is_not_null()
    )
    if paired:
        return _draw_pairs(rows, control, treatment, seed, estimate)
    shares = {
        arm: {
            int(s): n / max(1, rows.filter(pl.col("arm") == arm).height)
            for s, n in rows.filter(pl.col("arm") == arm)
            .group_by("score")
            .len()
            .iter_rows()
        }
        for arm in (control, treatment)
    }
    levels = sorted({*shares[control], *shares[treatment]})
    moves = {
        s: shares[treatment].get(s, 0.0) - shares[control].get(s, 0.0) for s in levels
    }
    grew = max(levels, key=lambda s: (moves[s], -s))
    shrank = min(levels, key=lambda s: (moves[s], s))
    # Against a gain speaks a treatment reply that scored low, against a loss one that
    # scored high: the commonest such score.
    opposite = [s for s in levels if (s >= 4 if estimate < 0 else s <= 2)]
    opposite = [s for s in opposite if shares[treatment].get(s)]
    wanted: list[tuple[str, int, str, bool]] = []
    if moves[grew] > 0:
        wanted.append((treatment, grew, "the score that became more frequent", False))
    if moves[shrank] < 0:
        wanted.append((control, shrank, "the score that became rarer", False))
    if opposite:
        most = max(opposite, key=lambda s: shares[treatment].get(s, 0.0))
        wanted.append((treatment, most, "against the direction of the result", True))
    drawn: list[Example] = []
    for arm, score, why, against in wanted:
        cell = rows.filter((pl.col("arm") == arm) & (pl.col("score") == score))
        taken = [e.request_id for e in drawn]
        cell = cell.filter(~pl.col("request_id").is_in(taken))
        if cell.height:
            first = draw_order(cell, seed).row(0, named=True)
            drawn.append(_example(first, why, against))
    return Examples(
        "From the score that became most frequent a treatment reply, from the one that "
        "became rarest a control reply, and one treatment reply against the direction "
        f"of the result; in each cell the first by the SHA-256 of “{seed}:request_id:"
        "arm”.",
        tuple(drawn),
        moves,
    )


def _draw_pairs(
    rows: pl.DataFrame, control: str, treatment: str, seed: int, estimate: float
) -> Examples:
    sides = {
        arm: rows.filter(pl.col("arm") == arm).select("request_id", "score")
        for arm in (control, treatment)
    }
    pairs = sides[treatment].join(sides[control], on="request_id", suffix="_control")
    pairs = pairs.with_columns(
        move=pl.col("score").cast(pl.Int16) - pl.col("score_control").cast(pl.Int16),
        arm=pl.lit(treatment),
    )
    moves = {
        int(move): n / pairs.height
        for move, n in pairs.group_by("move").len().sort("move").iter_rows()
    }
    sign = -1 if estimate < 0 else 1
    ordered = draw_order(pairs, seed) if pairs.height else pairs
    along = ordered.filter(pl.col("move") * sign > 0).sort(
        pl.col("move").abs(), descending=True, maintain_order=True
    )
    against = ordered.filter(pl.col("move") * sign < 0).sort(
        pl.col("move").abs(), descending=True, maintain_order=True
    )
    drawn: list[Example] = []
    for number, (chosen, opposed) in enumerate(
        [
            *((r, False) for r in along.head(2).iter_rows(named=True)),
            *((r, True) for r in against.head(1).iter_rows(named=True)),
        ],
        1,
    ):
        why = (
            "against the direction of the result"
            if opposed
            else "moved with the result"
        )
        for arm in (control, treatment):
            row = rows.filter(
                (pl.col("request_id") == chosen["request_id"]) & (pl.col("arm") == arm)
            ).row(0, named=True)
            drawn.append(_example(row, why, opposed, number))
    return Examples(
        "The two pairs that moved furthest with the result and the one that moved "
        f"furthest against it; among equals the first by the SHA-256 of “{seed}:"
        "request_id:arm”.",
        tuple(drawn),
        moves,
    )


def _example(
    row: dict[str, object], why: str, against: bool, pair: int | None = None
) -> Example:
    return Example(
        request_id=str(row["request_id"]),
        arm=str(row["arm"]),
        score=int(str(row["score"])),
        request=str(row.get("request") or ""),
        reply=str(row.get("reply") or ""),
        reason=str(row.get("reason") or ""),
        why=why,
        against=against,
        pair=pair,
    )

"""What is long, and what scores how: the description before the test."""

import polars as pl

from reply_resolution.errors import StatisticsError
from reply_resolution.stats.columns import length_column, need, numbers

# Markdown signs carry no words; a bullet list should not seem wordier than a sentence.
_SIGNS = r"(?m)^\s*(?:#{1,6}|[-*•+>]|\d+[.)])\s+|[*_`|]{1,3}"


def add_lengths(frame: pl.DataFrame, *, reply: str = "reply") -> pl.DataFrame:
    """Add `length` (characters, as the test counts them) and `words`.

    Words are counted without Markdown signs; they mean little in languages that write
    none (Chinese, Japanese), which is why the test uses characters.
    """
    need(frame, reply)
    words = (
        pl.col(reply)
        .cast(pl.String)
        .str.replace_all(_SIGNS, " ")
        .str.extract_all(r"\S+")
        .list.len()
    )
    return frame.with_columns(length_column(frame, reply=reply), words=words)


def lengths_by(
    frame: pl.DataFrame, by: str, *, reply: str = "reply", score: str | None = None
) -> pl.DataFrame:
    """Typical length per level or arm.

    Args:
        frame: One row per reply.
        by: Column to group by; its empty cells are left out.
        reply: Column with the text.
        score: Column whose mean is shown too.

    Returns:
        One row per value of `by`, sorted: `by`, `replies`, `characters` and `words`
        (medians), `middle_half` (quartiles of characters, as text), and `mean_score`.
    """
    need(frame, by, *([score] if score else []))
    used = add_lengths(frame, reply=reply).filter(
        pl.col(by).is_not_null() & (pl.col("length") > 0)
    )
    quartiles = [
        pl.col("length").quantile(q).round(0).cast(pl.Int64) for q in (0.25, 0.75)
    ]
    table = used.group_by(by).agg(
        replies=pl.len(),
        characters=pl.col("length").median(),
        words=pl.col("words").median(),
        middle_half=pl.format("{} to {}", *quartiles),
        **({"mean_score": pl.col(score).mean()} if score else {}),
    )
    return table.sort(by)


def length_bins(
    frame: pl.DataFrame,
    *,
    judge: str = "score",
    label: str = "label",
    reply: str = "reply",
    length: str | None = None,
    bins: int = 4,
) -> pl.DataFrame:
    """Replies of like length side by side: judge and people in each bin.

    Args:
        frame: One row per labelled reply.
        judge: Column with the judge's score.
        label: Column with the people's label.
        reply: Column with the text.
        length: Column with a length to use instead.
        bins: Bins of (nearly) equal size, from short to long, at least 2.

    Returns:
        One row per bin: `bin` (1 is shortest), `replies`, `shortest`, `longest`
        (characters), `judge`, `label` (means), `difference` (judge minus label).

    Raises:
        StatisticsError: Fewer usable replies than bins, or fewer than 2 bins.
    """
    data = pl.DataFrame(
        {
            "judge": numbers(frame, judge),
            "label": numbers(frame, label),
            "length": length_column(frame, reply=reply, length=length),
        }
    )
    data = data.drop_nulls().filter(pl.col("length") > 0).sort("length")
    if bins < 2 or data.height < bins:
        raise StatisticsError(
            f"{data.height} usable replies cannot be parted into {bins} bins; label "
            "more replies, or ask for fewer bins (at least 2)."
        )
    # By rank of distinct length: equal lengths never fall into two bins.
    rank = (pl.col("length").rank("average") - 0.5) / data.height
    data = data.with_columns(bin=(rank * bins).floor().cast(pl.Int64) + 1)
    return (
        data.group_by("bin")
        .agg(
            replies=pl.len(),
            shortest=pl.col("length").min().cast(pl.Int64),
            longest=pl.col("length").max().cast(pl.Int64),
            judge=pl.col("judge").mean(),
            label=pl.col("label").mean(),
            difference=(pl.col("judge") - pl.col("label")).mean(),
        )
        .sort("bin")
    )

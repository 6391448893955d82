"""The draw of `reply_resolution.judge.sampling`, made by Spark: same rows, same order.

A request's place is its rank by seeded hash among the requests of its design group.
Spark ranks; the number of whole rounds that a sample has room for follows from the
sizes of the groups alone, so that only these and one round of keys come home.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reply_resolution.errors import TableError
from reply_resolution.judge.sampling import hashes, row_limit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

#: Helper columns; a table of replies has none of these names.
ID, GROUP, HASH, RANK, SIZE = "__id__", "__group__", "__hash__", "__rank__", "__size__"


@dataclass(frozen=True, slots=True)
class SparkDraw:
    """Where every request stands.

    Attributes:
        units: One row per request: `ID`, `GROUP`, `HASH`, `RANK` (0-based, in its
            group); kept in the cluster (`persist`), since all that follows needs it.
        drawn: Whether a request is in the sample; a condition on `units`.
        probability: Its chance of being drawn, fraction; an expression on `units`.
    """

    units: "DataFrame"
    drawn: "Column"
    probability: "Column"


def request_key(replies: "DataFrame") -> "Column":
    """What stands for a request: its id as text, "" where there is none."""
    from pyspark.sql import functions as F

    return F.coalesce(replies["request_id"].cast("string"), F.lit("")).alias(ID)


def draw_on_spark(replies: "DataFrame", sample: float | None, seed: int) -> SparkDraw:
    """Draw requests and rank them.

    Args:
        replies: Needs `request_id`; `arm` if there is one.
        sample: As for `judge_replies`.
        seed: Likewise.

    Raises:
        TableError: A key occurs twice, or the sample size is not positive.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    arm = F.lit(None).cast("string")
    if "arm" in replies.columns:
        arm = replies["arm"].cast("string")
    mark = F.when(arm.isNull(), "0").otherwise(F.concat(F.lit("1"), arm))
    keys = replies.select(request_key(replies), mark.alias("arm"))
    units = keys.groupBy(ID).agg(
        F.collect_set("arm").alias("arms"), F.count("*").alias(SIZE)
    )
    repeated = units.filter(F.col(SIZE) > F.size("arms"))
    if twice := repeated.agg(F.count("*"), F.min(ID)).collect()[0][0]:
        first = repeated.agg(F.min(ID)).collect()[0][0]
        raise TableError(
            f"{twice} requests have several rows of one arm, such as {first!r}. A "
            "reply is known by request_id and arm: make them unique, or name the arm."
        )
    group = F.concat_ws("\x00", F.sort_array("arms")).alias(GROUP)
    units = units.select(ID, group, SIZE)
    sizes = units.groupBy(GROUP).agg(F.count("*"), F.first(SIZE)).collect()
    groups = {name: (n, size) for name, n, size in sizes}
    schema = f"{ID} string, {GROUP} string, {HASH} binary"
    hashed = units.select(ID, GROUP).mapInArrow(_Hashing(seed), schema)
    place = Window.partitionBy(GROUP).orderBy(HASH, ID)
    ranked = hashed.withColumn(RANK, F.row_number().over(place) - 1).persist()
    if sample is None or not groups:
        row_limit(sample, 1)
        return SparkDraw(ranked, F.lit(True), F.lit(1.0))
    limit = row_limit(sample, sum(n * size for n, size in groups.values()))
    rounds, left = whole_rounds(list(groups.values()), limit)
    chosen: dict[str, str] = {}
    last = ranked.filter(F.col(RANK) == rounds).orderBy(HASH, ID).collect()
    for request, name, *_ in last:
        size = groups[name][1]
        if size > left and (rounds or chosen):
            break  # a request too large for what is left ends the sample
        chosen[request] = name
        left -= size
    drawn = (F.col(RANK) < rounds) | (
        (F.col(RANK) == rounds) & F.col(ID).isin(list(chosen))
    )
    taken = {
        name: min(n, rounds) + list(chosen.values()).count(name)
        for name, (n, _) in groups.items()
    }
    overall = sum(taken.values()) / sum(n for n, _ in groups.values())
    probability = F.lit(overall)
    for name, (n, _) in groups.items():
        if taken[name]:
            hit = F.col(GROUP) == name
            probability = F.when(hit, taken[name] / n).otherwise(probability)
    return SparkDraw(ranked, drawn, probability)


def whole_rounds(groups: list[tuple[int, int]], limit: int) -> tuple[int, int]:
    """Rounds in which every group that has requests left gives one, within a limit.

    Args:
        groups: Of each group its requests, and the rows of one request.
        limit: Most rows.

    Returns:
        How many rounds fit as a whole, and the rows that are left then.

    >>> whole_rounds([(3, 2), (10, 1)], 12)
    (6, 0)
    """
    done = 0
    for end in sorted({n for n, _ in groups}):
        each = sum(size for n, size in groups if n >= end)
        fit = min(end - done, limit // each)
        limit -= fit * each
        done += fit
        if done < end:
            break
    return done, limit


@dataclass(frozen=True, slots=True)
class _Hashing:
    """Adds the seeded hash to batches of `ID` and `GROUP`."""

    seed: int

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            raw = hashes(batch.column(0).to_pylist(), self.seed).astype(">u8").tobytes()
            parts = [raw[i : i + 8] for i in range(0, len(raw), 8)]
            columns = [batch.column(0), batch.column(1), pa.array(parts, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, [ID, GROUP, HASH])

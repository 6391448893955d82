"""What a run came to: its sums, the table of verdicts, the summary and the estimate."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from reply_resolution.display import number
from reply_resolution.errors import JudgeError
from reply_resolution.judge.background import duration
from reply_resolution.judge.job import Worklist
from reply_resolution.judge.reading import Usage
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import Refusal
from reply_resolution.tables.verdicts import VERDICT_SCHEMA

EMPTY_REASON = "The reply is empty. Scored 1 by rule, without a call."
#: Suffix of a reply's column whose name a verdict needs.
GIVEN = "_given"


class RunStoppedError(JudgeError):
    """The run could not go on; what was judged is kept.

    Attributes:
        run: The `JudgeRun` with what was judged before; None if there was nothing.
    """

    run: Any = None


class Failure(NamedTuple):
    """Why an entry has no stored verdict.

    Attributes:
        status: `failed` or `not_judged`; of a reply judged while the server was being
            met, the status it got in a form then given up.
        detail: One word or two.
        attempts: Calls made.
    """

    status: str
    detail: str
    attempts: int


@dataclass(slots=True)
class Tally:
    """What a run did, counted as it goes.

    Attributes:
        calls: HTTP calls made.
        answered: Verdicts this run obtained, whatever their status.
        without_score: Of these, without a score.
        prompt_tokens, completion_tokens: As billed; unknown ones are 0.
        unknown_usage: Billed calls whose tokens the server did not say.
        usd: Price of the known part, USD; None without a known price.
        refusal: The cap that ended the run; None if none did.
        interrupted: Whether the user stopped it.
        waited_for: Verdicts another process was getting at the same time.
        overbilled: Whether the server billed more than a call's worst case.
        judged: Entries this run obtained a stored verdict for.
        taken: Entries another process judged while we ran.
        failures: Entries without a stored verdict, and why.
        tried: Entries judged before it was settled how this server is asked.
    """

    calls: int = 0
    answered: int = 0
    without_score: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unknown_usage: int = 0
    usd: float | None = None
    refusal: Refusal | None = None
    interrupted: bool = False
    waited_for: int = 0
    overbilled: bool = False
    judged: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    failures: dict[int, Failure] = field(default_factory=dict)
    tried: dict[int, Failure] = field(default_factory=dict)

    def add_usage(self, usage: Usage, cost: float | None) -> None:
        """Count what one call used."""
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        if cost is not None:
            self.usd = (self.usd or 0.0) + cost

    @property
    def unreached(self) -> str:
        """Why a row was not reached, one word: budget, interrupted or stopped."""
        if self.interrupted:
            return "interrupted"
        return "budget" if self.refusal is not None else "stopped"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in numbers.

    Attributes:
        rows: Rows of the result: replies times votes.
        judged: Rows with a status other than `not_judged`.
        scored: Rows with a score.
        calls: HTTP calls this run made; 0 when everything was known.
        answered: Verdicts this run obtained, whatever their status.
        cached: Rows answered by the cache, duplicates within the run included.
        empty: Rows scored 1 by rule because the reply is empty.
        statuses: Arm ("" without arms) -> status -> rows.
        prompt_tokens: Tokens of requests billed in this run.
        completion_tokens: Tokens of answers billed in this run.
        unknown_usage: Calls that may have been billed for tokens nobody told us
            (timeouts, broken connections, servers without usage); the ledger counts
            them in full.
        usd: Price of what was billed, USD; None without a known price.
        seconds: Wall time.
        capped: Which cap ended the run, in words; "" if none did.
        interrupted: Whether the user stopped it.
        notes: What a reader should know: parameters a server refused, rows another
            process judged, and the like.
    """

    rows: int
    judged: int
    scored: int
    calls: int
    answered: int
    cached: int
    empty: int
    statuses: Mapping[str, Mapping[str, int]]
    prompt_tokens: int
    completion_tokens: int
    unknown_usage: int
    usd: float | None
    seconds: float
    capped: str
    interrupted: bool
    notes: tuple[str, ...]

    def coverage(self) -> dict[str, float | None]:
        """Arm -> scored / judged, fraction; None where nothing was judged."""
        result: dict[str, float | None] = {}
        for arm, counts in self.statuses.items():
            judged = sum(n for status, n in counts.items() if status != "not_judged")
            result[arm] = counts.get("scored", 0) / judged if judged else None
        return result

    def text(self) -> str:
        """The summary in a few lines, for people."""
        cost = "" if self.usd is None else f", {number(self.usd, 4)} USD"
        tokens = self.prompt_tokens + self.completion_tokens
        lines = [
            f"{self.rows} rows: {self.scored} scored, "
            f"{self.judged - self.scored} judged without a score, "
            f"{self.rows - self.judged} not judged",
            f"{self.calls} calls ({self.cached} rows from the cache), "
            f"{number(tokens, 0)} tokens{cost}, {duration(self.seconds)}",
        ]
        for arm, counts in self.statuses.items():
            said = ", ".join(f"{n} {status}" for status, n in counts.items())
            lines.append(f"{arm or 'all'}: {said}")
        if self.capped:
            lines.append(f"budget reached ({self.capped}); the rest is not_judged")
        if self.interrupted:
            lines.append("interrupted; run again to go on, what was judged is kept")
        return "\n".join([*lines, *self.notes])


@dataclass(frozen=True, slots=True)
class JudgeRun:
    """Verdicts and how they came about.

    Attributes:
        verdicts: One row per reply and vote, in the table's order; columns as in
            `VERDICT_SCHEMA`, then `inclusion_probability`, then the replies' own.
        summary: The run in numbers.
        rubric: What was asked.
        metric_version: Its version, such as `reply_resolution@v1:3f9c1a7b`.
        judge_id: Who judged, 64 hex digits.
    """

    verdicts: pl.DataFrame
    summary: RunSummary
    rubric: Rubric
    metric_version: str
    judge_id: str

    def __repr__(self) -> str:
        return self.summary.text()


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would cost, before anything is sent.

    Attributes:
        rows: Rows of the result: replies times votes.
        to_judge: Of these, in the sample and not empty.
        cached: Verdicts the cache has already.
        calls: Verdicts to ask for; a re-ask may double a call.
        max_calls: Calls at most: two for each, faults that may pass not counted.
        max_tokens: Tokens at most for one call each: bytes bound the prompt, the limit
            bounds the answer.
        expected_tokens: Tokens expected, from this judge's own past where there is
            one, else four bytes to a token and 60 tokens an answer.
        max_usd: USD at most for one call each; None without a known price.
        expected_usd: USD expected; None without a known price.
        from_history: Whether the expectation rests on this judge's past calls.
        too_long: Rows whose message exceeds the limit and won't be sent.
        notes: What a reader should know.
    """

    rows: int
    to_judge: int
    cached: int
    calls: int
    max_calls: int
    max_tokens: int
    expected_tokens: int
    max_usd: float | None
    expected_usd: float | None
    from_history: bool
    too_long: int
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """The estimate in a few lines, for people."""
        basis = "this judge's past calls" if self.from_history else "four bytes a token"
        lines = [
            f"{self.rows} rows, {self.cached} verdicts known, {self.calls} to ask for",
            f"tokens: about {number(self.expected_tokens, 0)} ({basis}), "
            f"at most {number(self.max_tokens, 0)} if every answer is asked once",
        ]
        if self.expected_usd is not None and self.max_usd is not None:
            lines.append(
                f"USD: about {number(self.expected_usd, 4)}, at most "
                f"{number(self.max_usd, 4)}"
            )
        elif self.calls:
            lines.append("USD: unknown, this model has no known price")
        if self.too_long:
            lines.append(f"{self.too_long} rows are too long to be sent")
        return "\n".join([*lines, *self.notes])


def summarize(
    table: pl.DataFrame, tally: Tally, seconds: float, changes: str
) -> RunSummary:
    """Count a run's table, and add what the run noted.

    Args:
        table: The verdicts.
        tally: The run's sums.
        seconds: Wall time.
        changes: How the server was asked differently, in words; "" if it wasn't.
    """
    statuses: dict[str, dict[str, int]] = {}
    total: Counter[str] = Counter()
    by_arm = table.group_by(pl.col("arm").fill_null(""), "status").agg(pl.len())
    for arm, status, n in by_arm.sort("arm", "status").iter_rows():
        statuses.setdefault(arm, {})[status] = n
        total[status] += n
    empty = int((table["status_detail"] == "empty").sum())
    notes = []
    if changes:
        notes.append(f"this server was asked differently: {changes}")
    if tally.waited_for:
        notes.append(f"{tally.waited_for} verdicts came from another process")
    if tally.overbilled:
        notes.append("the server billed more tokens than the calls allowed")
    if empty:
        notes.append(f"{empty} empty replies were scored 1 by rule, without a call")
    refusal = tally.refusal
    return RunSummary(
        rows=table.height,
        judged=table.height - total["not_judged"],
        scored=total["scored"],
        calls=tally.calls,
        answered=tally.answered,
        cached=int(table["cached"].sum()),
        empty=empty,
        statuses=statuses,
        prompt_tokens=tally.prompt_tokens,
        completion_tokens=tally.completion_tokens,
        unknown_usage=tally.unknown_usage,
        usd=tally.usd,
        seconds=seconds,
        capped=f"{refusal.limit} per {refusal.scope}" if refusal else "",
        interrupted=tally.interrupted,
        notes=tuple(notes),
    )


def verdict_table(
    replies: pl.DataFrame,
    worklist: Worklist,
    found: pl.DataFrame,
    *,
    drawn: np.ndarray,
    probability: np.ndarray,
    new_entries: Collection[int],
    failures: Mapping[int, Failure],
    unreached: str,
    metric_version: str,
    judge_id: str,
    model: str,
) -> pl.DataFrame:
    """Put every reply and vote, in the table's order, beside what became of it.

    Args:
        replies: The table as given.
        worklist: Keys of the rows judged.
        found: Verdicts by key (`Cache.get_frame`).
        drawn: Whether each row is in the sample; bool, shape (rows,).
        probability: Chance of having been drawn, fraction; float64, shape (rows,).
        new_entries: Entries this run paid for; all other verdicts are `cached`.
        failures: Entries without a stored verdict.
        unreached: `status_detail` of rows with neither.
        metric_version: Label of the rubric's version.
        judge_id: The judge's id.
        model: The model asked for.

    Returns:
        The columns of `VERDICT_SCHEMA`, then `inclusion_probability`, then the columns
        of `replies` (ending in `_given` where a verdict has one of that name).
    """
    n, votes, judged = replies.height, worklist.votes, worklist.rows
    entry = np.full((n, votes), -1, dtype=np.int64)
    for vote in range(votes):
        entry[judged, vote] = vote * len(judged) + np.arange(len(judged))
    entries = pl.Series("entry", entry.reshape(-1))
    entries = entries.set(entries < 0, None)
    ids = {
        "request_id": replies["request_id"].cast(pl.String),
        "arm": replies["arm"].cast(pl.String)
        if "arm" in replies.columns
        else pl.Series([None] * n, dtype=pl.String),
    }
    row = np.repeat(np.arange(n), votes)
    base = pl.DataFrame(
        {
            **{name: column.gather(row) for name, column in ids.items()},
            "vote": np.tile(np.arange(votes, dtype=np.int32), n),
            "key": worklist.keys.gather(entries)
            if len(worklist.keys)
            else pl.Series([None] * len(row), dtype=pl.String),
            "new": entries.is_in(
                pl.Series(list(new_entries), dtype=pl.Int64).implode()
            ).fill_null(value=False),
            "drawn": np.repeat(drawn, votes),
            "empty": np.repeat(worklist.empty, votes),
            "inclusion_probability": np.repeat(probability, votes),
        }
    )
    failed = pl.DataFrame(
        [(worklist.keys[e], *failure) for e, failure in failures.items()],
        schema={
            "key": pl.String,
            "failed_status": pl.String,
            "failed_status_detail": pl.String,
            "failed_attempts": pl.Int64,
        },
        orient="row",
    ).unique("key", keep="first")
    table = base.join(found, on="key", how="left", maintain_order="left")
    table = table.join(failed, on="key", how="left", maintain_order="left")
    by_rule = pl.col("drawn") & pl.col("empty")
    known = pl.col("status").is_not_null()

    def choose(column: str, sampled: str, rule: str, long: str, left: str) -> pl.Expr:
        return (
            pl.when(~pl.col("drawn"))
            .then(pl.lit(sampled))
            .when("empty")
            .then(pl.lit(rule))
            .when(pl.col("key").is_null())
            .then(pl.lit(long))
            .when(known)
            .then(pl.col(column))
            .otherwise(pl.coalesce(f"failed_{column}", pl.lit(left)))
            .alias(column)
        )

    detail = choose("status_detail", "sampling", "empty", "too_long", unreached)
    table = table.with_columns(
        detail.replace("", None),
        choose("status", "not_judged", "scored", "failed", "not_judged"),
        score=pl.when(by_rule).then(pl.lit(1)).otherwise("score").cast(pl.Int8),
        reason=pl.when(by_rule).then(pl.lit(EMPTY_REASON)).otherwise("reason"),
        cached=known & ~pl.col("new"),
        attempts=pl.coalesce("attempts", "failed_attempts", pl.lit(0)),
        metric_version=pl.lit(metric_version),
        judge_id=pl.lit(judge_id),
        model=pl.lit(model),
    ).select(
        *(pl.col(c).cast(t) for c, t in VERDICT_SCHEMA.items()),
        "inclusion_probability",
    )
    rest = replies.select(
        pl.col(c).alias(c + GIVEN if c in table.columns else c)
        for c in replies.columns
        if c not in ids
    )
    return pl.concat([table, rest if votes == 1 else rest[row]], how="horizontal")

"""What a run of the judge came to, and what one would come to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from reply_resolution.display import number
from reply_resolution.judge.case import Tally
from reply_resolution.judge.engine import Engine
from reply_resolution.judge.progress import duration
from reply_resolution.judge.rubric import Rubric


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
        cached_tokens: Of these, read from the provider's prompt cache.
        completion_tokens: Tokens of answers billed in this run.
        unknown_usage: Calls that may have been billed for tokens nobody told us
            (timeouts, broken connections, servers without usage); the ledger counts
            them in full.
        usd: Price of what was billed, USD; None without a known price.
        seconds: Wall time.
        peak_in_flight: Most calls in flight at once.
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
    cached_tokens: int
    completion_tokens: int
    unknown_usage: int
    usd: float | None
    seconds: float
    peak_in_flight: int
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
        lines += self.notes
        return "\n".join(lines)


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
        lines += self.notes
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The numbers by name."""
        return {name: getattr(self, name) for name in self.__slots__}


def summarize(
    table: pl.DataFrame, engine: Engine | None, seconds: float, changes: str
) -> RunSummary:
    """Count a run's table, and add what the run noted.

    Args:
        table: The verdicts.
        engine: What obtained them; None where nothing was missing.
        seconds: Wall time.
        changes: How the server was asked differently, in words; "" if it wasn't.
    """
    counts = (
        table.group_by(pl.col("arm").fill_null(""), "status", maintain_order=True)
        .agg(pl.len())
        .sort("arm", "status")
    )
    statuses: dict[str, dict[str, int]] = {}
    for arm, status, n in counts.iter_rows():
        statuses.setdefault(arm, {})[status] = n
    tally = engine.record.tally if engine else Tally()
    notes = []
    if changes:
        notes.append(f"this server was asked differently: {changes}")
    if tally.waited_for:
        notes.append(f"{tally.waited_for} verdicts came from another process")
    if tally.overbilled:
        notes.append("the server billed more tokens than the calls allowed")
    empty = table.filter(pl.col("status_detail") == "empty").height
    if empty:
        notes.append(f"{empty} empty replies were scored 1 by rule, without a call")
    not_judged = table.filter(pl.col("status") == "not_judged").height
    refusal = tally.refusal
    return RunSummary(
        rows=table.height,
        judged=table.height - not_judged,
        scored=table.filter(pl.col("status") == "scored").height,
        calls=tally.calls,
        answered=tally.answered,
        cached=int(table["cached"].sum()),
        empty=empty,
        statuses=statuses,
        prompt_tokens=tally.prompt_tokens,
        cached_tokens=tally.cached_tokens,
        completion_tokens=tally.completion_tokens,
        unknown_usage=tally.unknown_usage,
        usd=tally.cost_usd,
        seconds=seconds,
        peak_in_flight=engine.gate.peak if engine else 0,
        capped=f"{refusal.limit} per {refusal.scope}" if refusal else "",
        interrupted=tally.interrupted,
        notes=tuple(notes),
    )

"""What a run keeps in mind: its settings, its sums, and each verdict on its way."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from reply_resolution.errors import JudgeError
from reply_resolution.judge.client import Outcome, Usage
from reply_resolution.judge.store import Attempt, Refusal
from reply_resolution.judge.worklist import Item


class RunStoppedError(JudgeError):
    """The run could not go on; what was judged is kept.

    Attributes:
        run: The `JudgeRun` with what was judged before; None if there was nothing.
    """

    run: Any = None


@dataclass(slots=True)
class Tally:
    """What a run did, counted as it goes.

    Attributes:
        calls: HTTP calls made.
        answered: Verdicts this run obtained, whatever their status.
        prompt_tokens, cached_tokens, completion_tokens: As billed; unknown ones are 0.
        unknown_usage: Billed calls whose tokens the server did not say.
        cost_usd: Price of the known part, USD; None without a known price.
        statuses: Verdicts by status.
        refusal: The cap that ended the run; None if none did.
        interrupted: Whether the user stopped it.
        waited_for: Verdicts another process was getting at the same time.
        overbilled: Whether the server billed more than a call's worst case.
    """

    calls: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    unknown_usage: int = 0
    cost_usd: float | None = None
    statuses: Counter[str] = field(default_factory=Counter)
    refusal: Refusal | None = None
    interrupted: bool = False
    waited_for: int = 0
    overbilled: bool = False

    def add_usage(self, usage: Usage, cost: float | None) -> None:
        """Count what one call used."""
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.completion_tokens += usage.completion_tokens
        if cost is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost


@dataclass(slots=True)
class Case:
    """One verdict on its way: what its calls have come to so far.

    Attributes:
        item: What is asked.
        trying: Whether the server is being met with it.
        paid: Calls that may have been billed.
        faults: Calls that failed in a way that may pass.
        turned_away: Calls the server had no room for.
        adapted: Times the server was asked differently.
        calls: HTTP calls.
        cost: USD; None once a part of it is unknown.
        cap: Limit on the answer's tokens, if other than usual.
        best: The last answer.
        first: The answer in the usual form, while another form is tried.
        abandoned: Whether its calls are used up on forms that were given up.
        asked_at: When the last call started, UTC.
        attempts: The calls, for the diary.
    """

    item: Item
    trying: bool = False
    paid: int = 0
    faults: int = 0
    turned_away: int = 0
    adapted: int = 0
    calls: int = 0
    cost: float | None = 0.0
    cap: int | None = None
    best: Outcome | None = None
    first: Outcome | None = None
    abandoned: bool = False
    asked_at: str = ""
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an entry has no stored verdict.

    Attributes:
        status: `failed` or `not_judged`; of a reply judged while the server was being
            met, the status it got in a form then given up.
        detail: One word or two.
        attempts: Calls made.
    """

    status: str
    detail: str
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run keeps to.

    Attributes:
        concurrency: Most calls in flight.
        max_completion_tokens: Limit on an answer's tokens; twice that for the re-ask
            of an answer that was cut short.
        timeout: Seconds for one call.
        attempts: Calls for one verdict while faults may pass.
        requests_per_minute, tokens_per_minute: Rate limits; None is none.
        bounded: Whether a cap on tokens or USD must hold.
    """

    concurrency: int
    max_completion_tokens: int
    timeout: float
    attempts: int = 5
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    bounded: bool = False


def utc_now() -> str:
    """UTC time, ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(slots=True)
class Record:
    """What became of the entries of a run, and its sums.

    Attributes:
        tally: The sums.
        judged: Entries this run obtained a stored verdict for.
        taken: Entries another process judged while we ran.
        failures: Entries without a stored verdict, and why.
        tried: Entries judged before it was settled how this server is asked.
    """

    tally: Tally = field(default_factory=Tally)
    judged: set[int] = field(default_factory=set)
    taken: list[int] = field(default_factory=list)
    failures: dict[int, Failure] = field(default_factory=dict)
    tried: dict[int, Failure] = field(default_factory=dict)

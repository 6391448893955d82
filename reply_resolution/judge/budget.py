"""The hard budget: book the worst case, then settle what a call really cost.

A check before the call and a booking after it overshoots by whatever is in flight;
here the booking *is* the check, atomic over threads and processes. A timeout is
settled in full, since nobody knows what it cost; a crash leaves its bookings counted
in full. What remains open is the one thing no client can prevent: a server that bills
more than was asked for. That excess is booked (`over`) and stops the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from reply_resolution.errors import BudgetError
from reply_resolution.judge.owner import new_owner
from reply_resolution.judge.store import Actual, Booking, Cap, Refusal

if TYPE_CHECKING:
    from reply_resolution.judge.cache import Cache

#: Tokens a chat wraps around its messages (roles, separators, the reply's opening).
OVERHEAD_TOKENS = 64
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A hard cap. What is None is not limited.

    Attributes:
        max_calls: Most calls to the server, retries included; 0 and up.
        max_total_tokens: Most tokens, prompts and answers together.
        max_usd: Most USD; needs a known price.
        period: None: for this run. "day" or "month": for the calendar day or month
            (UTC), over every run that uses the same cache.
    """

    max_calls: int | None = None
    max_total_tokens: int | None = None
    max_usd: float | None = None
    period: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_calls", "max_total_tokens"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise BudgetError(
                    f"{name} {value!r} is not a whole number of 0 or more; leave it "
                    "out for no limit."
                )
        usd = self.max_usd
        if usd is not None and not _is_amount(usd):
            raise BudgetError(
                f"max_usd {usd!r} is not an amount of 0 or more; leave it out for no "
                "limit."
            )
        if self.period not in (None, "day", "month"):
            raise BudgetError(
                f"period {self.period!r} is not known; give 'day' or 'month', or "
                "leave it out for a cap on this run alone."
            )

    def cap(self) -> Cap:
        """The cap as the store checks it."""
        usd = self.max_usd
        return Cap(
            self.period or "run",
            self.max_calls,
            self.max_total_tokens,
            None if usd is None else math.floor(usd * _MICRO + 1e-6),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model's tokens cost, USD per million tokens.

    Attributes:
        input: Prompt tokens.
        output: Answer tokens, reasoning included.
        cached: Prompt tokens read from the provider's cache; None: as `input`.
        cache_write: Prompt tokens written to it, where that costs more; None: as
            `input`. Servers do not say which were, so all that were not read count.
        worst_input: The dearest a prompt token can be (writing the provider's cache,
            a long prompt); None: as `input`.
        worst_output: Likewise for the answer.
        long_prompt: Prompt tokens from which on the dearest prices hold; None: never.
        source: Who says so.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    worst_input: float | None = None
    worst_output: float | None = None
    long_prompt: int | None = None
    source: str = "caller"

    def __post_init__(self) -> None:
        for name in (
            "input",
            "output",
            "cached",
            "cache_write",
            "worst_input",
            "worst_output",
        ):
            value = getattr(self, name)
            if value is not None and not _is_amount(value):
                raise BudgetError(
                    f"price {name} {value!r} is not an amount of 0 or more, in USD "
                    "per million tokens."
                )

    def worst_micro_usd(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Upper bound of a call's price, millionths of a USD, rounded up."""
        dear_in, dear_out = self._dearest()
        return math.ceil(prompt_tokens * dear_in + completion_tokens * dear_out)

    def _dearest(self) -> tuple[float, float]:
        return (
            max(self.input, self.cache_write or 0.0, self.worst_input or 0.0),
            max(self.output, self.worst_output or 0.0),
        )

    def micro_usd(
        self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0
    ) -> float:
        """Price of a call at most, millionths of a USD."""
        if self.long_prompt is not None and prompt_tokens >= self.long_prompt:
            dear_in, dear_out = self._dearest()
            return prompt_tokens * dear_in + completion_tokens * dear_out
        cached = min(cached_tokens, prompt_tokens)
        cheap = self.input if self.cached is None else self.cached
        return (
            (prompt_tokens - cached) * max(self.input, self.cache_write or 0.0)
            + cached * cheap
            + completion_tokens * self.output
        )


def price_for(model: str, *, base_url: str | None = None) -> Price | None:
    """The price of a model from the kept table of `genai-prices`; None if unknown.

    Args:
        model: Name of the model as sent.
        base_url: The server's address. Only a provider the table knows by its address
            has a price: a local server that serves a model of a known name is not
            billed by that name. None leaves the provider to the model's name.

    Source: genai-prices (Pydantic), its table as installed; nothing is downloaded.
    """
    from genai_prices import Usage, __version__, calc_price

    try:
        found = calc_price(
            Usage(input_tokens=1, output_tokens=1), model, provider_api_url=base_url
        ).model_price
    except LookupError:
        return None
    prompt, answer = _prices(found.input_mtok), _prices(found.output_mtok)
    if not prompt or not answer:
        return None
    cached, written = _prices(found.cache_read_mtok), _prices(found.cache_write_mtok)
    tiers = [
        tier.start
        for price in (found.input_mtok, found.output_mtok)
        for tier in getattr(price, "tiers", ())
    ]
    return Price(
        input=prompt[0],
        output=answer[0],
        cached=cached[0] if cached else None,
        cache_write=written[0] if written else None,
        worst_input=max(prompt + written),
        worst_output=max(answer),
        long_prompt=min(tiers, default=None),
        source=f"genai-prices {__version__}",
    )


def _prices(price: Any) -> list[float]:  # noqa: ANN401
    """The base price and every tier's."""
    if price is None:
        return []
    tiers = [float(tier.price) for tier in getattr(price, "tiers", ())]
    return [float(getattr(price, "base", price)), *tiers]


def _is_amount(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < math.inf  # type: ignore[operator]


class Reservation(NamedTuple):
    """A call that is booked at its worst case and may now be made.

    Attributes:
        call_id: Number of the call in the ledger.
        tokens: Most tokens it may cost.
        micro_usd: Most it may cost, millionths of a USD; 0 without a price.
    """

    call_id: int
    tokens: int
    micro_usd: int


class Ledger:
    """Books and settles the calls of one run. Safe in threads and over processes.

    Attributes:
        refusal: Why the last booking was refused; None if it wasn't.
    """

    def __init__(
        self,
        cache: "Cache",
        limits: Limits | Sequence[Limits] | None,
        run_id: str,
        price: Price | None = None,
        *,
        owner: str | None = None,
    ) -> None:
        """Open the ledger of a run.

        Args:
            cache: Where it is kept.
            limits: One cap or several (a run's and a month's); None: count only.
            run_id: Name of the run; processes that give the same one share its cap.
            price: For USD; None is only allowed without a cap in USD.
            owner: From `new_owner()`; by default a new one.

        Raises:
            BudgetError: A cap in USD without a known price.
        """
        several = [limits] if isinstance(limits, Limits) else list(limits or ())
        if price is None and any(x.max_usd is not None for x in several):
            raise BudgetError(
                "max_usd cannot be kept: the price of this model is not known. Give "
                "one (Price(input=..., output=...), --price INPUT OUTPUT; USD per "
                "million tokens), or cap max_calls and max_total_tokens instead."
            )
        self._store, self._price, self._run_id = cache, price, run_id
        self._caps = [x.cap() for x in several]
        self._owner = owner or new_owner()
        self.refusal: Refusal | None = None
        self._looked = time.monotonic()
        cache.book_lost()

    def worst_case(self, prompt_bytes: int, max_completion_tokens: int) -> Booking:
        """Upper bound of a call: a byte-level tokenizer has no token below a byte."""
        prompt = prompt_bytes + OVERHEAD_TOKENS
        price = self._price
        return Booking(
            prompt + max_completion_tokens,
            price.worst_micro_usd(prompt, max_completion_tokens) if price else 0,
        )

    def reserve_many(self, calls: Sequence[tuple[int, int]]) -> list[Reservation]:
        """Book calls at their worst case, in order, until a cap does not allow one.

        `refusal` then says which cap, and whether that is final: where it is not,
        calls in flight may still settle lower and make room.

        Args:
            calls: Of each, the UTF-8 bytes of everything sent that is billed (wording,
                user message, schema), and the answer's token limit as sent.

        Returns:
            Reservations of the first ones; shorter than `calls` at a cap.
        """
        bookings = [self.worst_case(*call) for call in calls]
        ids, self.refusal = self._book(bookings)
        if self.refusal is not None and not self.refusal.final and self._closed_lost():
            # What was waited for will never settle: it is spent now.
            more, self.refusal = self._book(bookings[len(ids) :])
            ids += more
        return [
            Reservation(call_id, *booking)
            for call_id, booking in zip(ids, bookings, strict=False)
        ]

    def _book(self, bookings: Sequence[Booking]) -> tuple[list[int], Refusal | None]:
        return self._store.book(self._run_id, self._owner, bookings, self._caps)

    def _closed_lost(self) -> bool:
        """Close the bookings of processes that died meanwhile; once a second."""
        clock = time.monotonic()
        if clock - self._looked < 1.0:
            return False
        self._looked = clock
        return self._store.book_lost() > 0

    def settle_many(
        self,
        calls: Sequence[tuple[Reservation, int | None, int | None, int | None]],
    ) -> bool:
        """Replace bookings by what the calls cost.

        Args:
            calls: (reservation, prompt_tokens, completion_tokens, cached_tokens); None
                for the tokens (a timeout, a server that won't say) is in full.

        Returns:
            Whether the server billed no more than was booked, in this whole run.
        """
        actuals = []
        for (call_id, *_), prompt, completion, cached in calls:
            if prompt is None or completion is None:
                actuals.append(Actual(call_id, "forfeited"))
                continue
            price = self._price
            micro = price.micro_usd(prompt, completion, cached or 0) if price else 0.0
            tokens = prompt + completion
            actuals.append(Actual(call_id, "settled", tokens, math.ceil(micro)))
        total = self._store.book_actuals(self._run_id, actuals)
        return not (total.over_tokens or total.over_micro_usd)

    def release(self, reservation: Reservation) -> None:
        """Give a booking back: the call was never sent."""
        self._store.book_actuals(
            self._run_id, [Actual(reservation.call_id, "released")]
        )

    def cost_usd(
        self,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        cached_tokens: int | None = 0,
    ) -> float | None:
        """Price of a call in USD; None without a price or usage."""
        if self._price is None or prompt_tokens is None or completion_tokens is None:
            return None
        micro = self._price.micro_usd(
            prompt_tokens, completion_tokens, cached_tokens or 0
        )
        return micro / _MICRO

"""What is stripped or masked from a row before it is sent; all of it off by default.

The table keeps the original. The options are part of the rubric's template, and so of
the metric version and of the judge id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from reply_resolution.errors import RubricError


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What is done to a row before it is sent.

    Attributes:
        strip_html: Markup becomes plain text.
        strip_quotes: Signatures and quoted mail history are removed.
        mask: E-mail addresses, phone numbers, card numbers and IBANs are replaced.
        max_chars: Most characters (code points) of a row that are sent, over all its
            fields; None is no limit.
    """

    OPTIONS: ClassVar[tuple[str, ...]] = (
        "strip_html",
        "strip_quotes",
        "mask",
        "max_chars",
    )

    strip_html: bool = False
    strip_quotes: bool = False
    mask: bool = False
    max_chars: int | None = None

    def __post_init__(self) -> None:
        for name in ("strip_html", "strip_quotes", "mask"):
            if not isinstance(getattr(self, name), bool):
                raise RubricError(f"preparation {name} must be true or false.")
        limit = self.max_chars
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int)
        ):
            raise RubricError(f"preparation max_chars {limit!r} is not a whole number.")

    def __bool__(self) -> bool:
        """Whether anything is done at all."""
        return (
            self.strip_html
            or self.strip_quotes
            or self.mask
            or self.max_chars is not None
        )

    def document(self) -> dict[str, Any]:
        """The options that are on, for the hash; empty when nothing is done."""
        return {
            name: getattr(self, name)
            for name in self.OPTIONS
            if getattr(self, name) not in (False, None)
        }

    def apply(self, values: Mapping[str, object]) -> tuple[dict[str, object], str]:
        """(fields as sent, note for `status_detail`)."""
        return dict(values), ""

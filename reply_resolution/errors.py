"""Every error a user of this package may meet, in one place.

A message says what was given, what is allowed, and what to do next. The command
line prints the message alone (exit code 1); a notebook shows it with its class.
"""

from collections.abc import Iterable


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """A sentence with the name that looks most like the one wanted; "" if none does.

    >>> did_you_mean("scroe", ["arm", "score"])
    " Did you mean 'score'?"
    """
    from difflib import get_close_matches

    by_key = {name.strip().casefold(): name for name in known}
    close = get_close_matches(wanted.strip().casefold(), list(by_key), 1, 0.7)
    return f" Did you mean {by_key[close[0]]!r}?" if close else ""


class ReplyResolutionError(Exception):
    """Base of all errors raised on purpose; catch it to catch them all."""


class TableError(ReplyResolutionError):
    """A table of replies, labels or verdicts cannot be used as it is."""


class ScoreError(TableError):
    """A score or label is not on the scale."""


class RubricError(ReplyResolutionError):
    """A rubric file or definition is incomplete or contradicts itself."""


class VersionMismatchError(ReplyResolutionError):
    """Verdicts of different metric versions or judges would be mixed."""


class CacheError(ReplyResolutionError):
    """The cache cannot be read or written; nothing is paid twice in silence."""


class BudgetError(ReplyResolutionError):
    """A budget is malformed, or cannot be enforced (no known price for a USD cap)."""


class JudgeError(ReplyResolutionError):
    """The run as a whole cannot go on: no key, wrong key, no credit, no model."""


class StatisticsError(ReplyResolutionError):
    """There is nothing to compute: an empty arm, one cluster, no labels."""


class LabelError(ReplyResolutionError):
    """A labelling session or label file contradicts itself or its rubric."""


class ParameterError(ReplyResolutionError):
    """A notebook or report was given a parameter it does not have, or a wrong type."""


class ReportError(ReplyResolutionError):
    """A notebook failed to run, or its report could not be written."""

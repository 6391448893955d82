"""Every error a user of this package may meet, in one place.

A message says what was given, what is allowed, and what to do next. The command
line prints the message alone (exit code 1); a notebook shows it with its class.
"""


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


class StatisticalWarning(UserWarning):
    """A result is computed, but a reader should know something about it."""

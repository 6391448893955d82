"""Did the support reply resolve the request?

A/B experiments on an LLM support assistant, scored 1 to 5 by a judge you can check.
Names are loaded when first used, so that `import reply_resolution` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names once more, for editors and type checkers (tested)
    from reply_resolution.calibration.verdict import Calibration as Calibration
    from reply_resolution.errors import ReplyResolutionError as ReplyResolutionError
    from reply_resolution.inputs import load as load
    from reply_resolution.inputs import resolve as resolve
    from reply_resolution.judge.budget import Limits as Limits
    from reply_resolution.judge.budget import Price as Price
    from reply_resolution.judge.cache import Cache as Cache
    from reply_resolution.judge.judge import estimate as estimate
    from reply_resolution.judge.judge import judge_replies as judge_replies
    from reply_resolution.judge.judge import record as record
    from reply_resolution.judge.replay import replay as replay
    from reply_resolution.judge.rubric import Rubric as Rubric
    from reply_resolution.labeling.explore import browse as browse
    from reply_resolution.labeling.session import LabelSession as LabelSession
    from reply_resolution.parameters import check_parameters as check_parameters
    from reply_resolution.readout.build import build_readout as build_readout
    from reply_resolution.readout.experiment_plan import (
        ExperimentPlan as ExperimentPlan,
    )
    from reply_resolution.report import run_report as run_report
    from reply_resolution.stats.agreement_table import (
        agreement_table as agreement_table,
    )
    from reply_resolution.stats.collapse import collapse as collapse
    from reply_resolution.stats.compare import compare as compare
    from reply_resolution.stats.length import length_bias as length_bias
    from reply_resolution.stats.power import plan as plan
    from reply_resolution.tables.labels import read_labels as read_labels
    from reply_resolution.tables.replies import read_replies as read_replies
    from reply_resolution.tables.tables import read_table as read_table
    from reply_resolution.tables.verdicts import join_verdicts as join_verdicts
    from reply_resolution.tables.verdicts import read_verdicts as read_verdicts

#: Public name -> the module that defines it.
_NAMES = {
    name: f"reply_resolution.{module}"
    for module, names in {
        "errors": "ReplyResolutionError",
        "tables.tables": "read_table",
        "tables.replies": "read_replies",
        "tables.labels": "read_labels",
        "tables.verdicts": "read_verdicts join_verdicts",
        "judge.rubric": "Rubric",
        "judge.budget": "Limits Price",
        "judge.cache": "Cache",
        "judge.judge": "judge_replies estimate record",
        "judge.replay": "replay",
        "stats.compare": "compare",
        "stats.agreement_table": "agreement_table",
        "stats.length": "length_bias",
        "stats.collapse": "collapse",
        "stats.power": "plan",
        "calibration.verdict": "Calibration",
        "readout.experiment_plan": "ExperimentPlan",
        "readout.build": "build_readout",
        "labeling.session": "LabelSession",
        "labeling.explore": "browse",
        "inputs": "load resolve",
        "parameters": "check_parameters",
        "report": "run_report",
    }.items()
    for name in names.split()
}

__all__ = ["__version__", *_NAMES]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name == "__version__":
        from importlib.metadata import version

        return version("reply-resolution")
    if name in _NAMES:
        value = getattr(import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

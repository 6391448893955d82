"""Did the support reply resolve the request?

A/B experiments on an LLM support assistant, scored 1 to 5 by a judge you can check.
Names are loaded when first used, so that `import reply_resolution` stays light.
"""

from importlib import import_module
from typing import Any

#: Public name -> the module that defines it.
_NAMES = {
    name: f"reply_resolution.{module}"
    for module, names in {
        "errors": "ReplyResolutionError StatisticalWarning",
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

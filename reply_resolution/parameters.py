"""A notebook's parameters: what it has, what it was given, whether they fit.

Papermill's own reader loses parameters whose line holds a second "=", swallows
misspelt names and checks no types, so the `parameters` cell is read here as Python.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
import difflib
import io
import json
from pathlib import Path
import re
import sys
import tokenize
from typing import Any

from reply_resolution.errors import (
    ParameterError,
    ReplyResolutionError,
    ReportError,
)

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "list[str]": (list,),
    "dict": (dict,),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a notebook, read from its `parameters` cell.

    Attributes:
        name: The variable's name.
        type: Its annotation, one of str, int, float, bool, list[str], dict.
        default: The value when nothing is given; None where the default is None.
        help: The comment behind it.
    """

    name: str
    type: str
    default: Any
    help: str


def notebook_parameters(path: str | Path) -> dict[str, Parameter]:
    """The parameters of a notebook, by name, in the order of its `parameters` cell.

    Raises:
        ReportError: The file is not a notebook or has no `parameters` cell.
    """
    path = Path(path)
    try:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        sources = [
            "".join(c["source"])
            for c in cells
            if "parameters" in c["metadata"].get("tags", [])
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{path} is not a Jupyter notebook: {error}.") from error
    if not sources:
        raise ReportError(
            f"{path} has no cell tagged 'parameters'. Tag the cell that holds the "
            "notebook's parameters (JupyterLab: Property Inspector, Cell Tags)."
        )
    return parse_parameters(sources[0])


def parse_parameters(source: str) -> dict[str, Parameter]:
    """The annotated assignments of a `parameters` cell with their help comments."""
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = Parameter(
                name=node.target.id,
                type=ast.unparse(node.annotation),
                default=ast.literal_eval(node.value) if node.value else None,
                help=comments.get(node.lineno, ""),
            )
    return found


def check_values(
    parameters: Mapping[str, Parameter], given: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The given values, checked against the notebook's parameters.

    A string is read as the parameter's type ("0.1" for a float, "false" for a bool,
    "a,b" or JSON for a list); any other value must already have it.

    Args:
        parameters: What the notebook has.
        given: Name to value, from the command line (strings) or a YAML file.
        where: The notebook's name, for the message.

    Raises:
        ParameterError: An unknown name (with the nearest known one) or a wrong type.
    """
    checked = {}
    for name, value in given.items():
        if name not in parameters:
            near = difflib.get_close_matches(name, parameters, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ParameterError(
                f"{where} has no parameter {name!r}.{hint} It has: "
                f"{', '.join(parameters)}."
            )
        _refuse_password(name, value)
        checked[name] = _cast(parameters[name], value, where)
    return checked


def _refuse_password(name: str, value: object) -> None:
    """Parameters are printed in the report: a database's password is none."""
    secret = r"postgres(ql)?://([^/?]*:[^/?]*@|.*[?&]password=)"
    if isinstance(value, str) and re.match(secret, value):
        raise ParameterError(
            f"parameter {name!r} holds a password, which the report would print. Leave "
            "it to PGPASSWORD or ~/.pgpass, or leave the parameter empty and set "
            "REPLY_RESOLUTION_CACHE."
        )


def _cast(parameter: Parameter, value: Any, where: str) -> Any:  # noqa: ANN401
    wanted = parameter.type.replace(" ", "")
    allowed = _TYPES.get(wanted)
    if allowed is None:
        raise ParameterError(
            f"{where}: parameter {parameter.name!r} is annotated {parameter.type!r}; "
            f"a parameter's type is one of {', '.join(_TYPES)}."
        )
    if value is None and parameter.default is None:
        return None
    try:
        if isinstance(value, str) and wanted != "str":
            value = _read(value, wanted, optional=parameter.default is None)
            if value is None:
                return None
        good = isinstance(value, allowed) and (
            wanted == "bool" or not isinstance(value, bool)
        )
        if good:
            return float(value) if wanted == "float" else value
    except ValueError:
        pass
    example = {
        "bool": "true or false",
        "list[str]": 'a,b or ["a", "b"]',
        "dict": '{"key": "value"}',
        "str": "text; in a YAML file put it in quotes",
    }.get(wanted, {"int": "7", "float": "0.05"}.get(wanted, ""))
    raise ParameterError(
        f"{where}: parameter {parameter.name!r} is a {parameter.type} "
        f"({parameter.help or 'no description'}), and {value!r} is not. "
        f"Write for example: {example}."
    )


def _read(text: str, wanted: str, *, optional: bool) -> Any:  # noqa: ANN401
    plain = text.strip()
    if optional and plain.lower() in {"none", "null", ""}:
        return None
    if wanted == "int":
        return int(plain)
    if wanted == "float":
        number = float(plain)
        if number != number or number in (float("inf"), float("-inf")):
            raise ValueError(plain)
        return number
    if wanted == "bool":
        lowered = plain.lower()
        if lowered in {"true", "yes", "1"}:
            return True
        if lowered in {"false", "no", "0"}:
            return False
        raise ValueError(plain)
    if wanted == "list[str]" and not plain.startswith("["):
        return [part.strip() for part in plain.split(",") if part.strip()]
    return json.loads(plain)


def read_parameter_file(path: str | Path) -> dict[str, Any]:
    """The parameters in a YAML file (one mapping of names to values).

    Raises:
        ParameterError: The file cannot be read or is not a mapping.
    """
    import yaml  # comes with papermill

    try:
        found = yaml.load(Path(path).read_text("utf-8"), Loader=yaml.BaseLoader)
        typed = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ParameterError(
            f"the parameter file {path} cannot be read: {error}. It is YAML, one "
            "`name: value` a line."
        ) from error
    if found in (None, ""):
        return {}
    if not isinstance(found, dict):
        raise ParameterError(
            f"the parameter file {path} holds a {type(typed).__name__}; it must be "
            "one mapping, `name: value` a line."
        )
    # Scalars stay as written ("007" is not 7, a date is not an object); the
    # notebook's annotation decides what they are.
    return {
        str(k): typed[t] if not isinstance(v, str) else v
        for (k, v), t in zip(found.items(), typed, strict=True)
    }


def _show_errors_short() -> None:
    """The message says what to do; twenty lines of our code above it do not."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        return

    def show(self: Any, *found: Any, **_: Any) -> None:  # noqa: ANN401
        self.showtraceback(found[:3], exception_only=True)

    shell.set_custom_exc((ReplyResolutionError,), show)


def check_parameters(namespace: Mapping[str, Any]) -> None:
    """Refuse what papermill lets pass: an unknown parameter, a wrong type.

    Call it in the cell after the notebook's parameters, `check_parameters(globals())`.
    In a notebook our errors are from then on shown as their message, without the
    traceback (`%tb` shows it).

    It reads the session's history: the parameters cell (only annotated assignments)
    says what is known, and papermill's injected cell (it begins with "# Parameters")
    says what was given. In a JupyterLab session there is no injected cell and only
    the types are checked.

    Args:
        namespace: The notebook's `globals()`.

    Raises:
        ParameterError: Names what was given, what is known and the nearest name.
    """
    _show_errors_short()
    history = [source for source in namespace.get("In", []) if source.strip()]
    known: dict[str, str] = {}
    injected: dict[str, None] = {}
    for source in history:
        try:
            body = ast.parse(source).body
        except SyntaxError:  # a magic or a mistyped cell of an interactive session
            continue
        if body and all(isinstance(node, ast.AnnAssign) for node in body):
            for node in body:
                assert isinstance(node, ast.AnnAssign)  # for the type checker
                known[ast.unparse(node.target)] = ast.unparse(node.annotation)
        elif source.startswith("# Parameters"):
            for statement in body:
                if isinstance(statement, ast.Assign):
                    injected.update(dict.fromkeys(map(ast.unparse, statement.targets)))
    for name in injected:
        if known and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ParameterError(
                f"this notebook has no parameter {name!r}.{hint} It has: "
                f"{', '.join(known)}."
            )
    for name, annotation in known.items():
        kinds = _TYPES.get(annotation.replace(" ", ""))
        value = namespace.get(name)
        _refuse_password(name, value)
        if kinds is None or value is None:
            continue
        if not isinstance(value, kinds) or (
            isinstance(value, bool) and annotation != "bool"
        ):
            raise ParameterError(
                f"parameter {name!r} must be {annotation}, and {value!r} is a "
                f"{type(value).__name__}. With papermill's -p only True and False are "
                "booleans; use -r for text and -f FILE.yaml for the rest."
            )

"""Reading a rubric file: `.txt` is the wording, `.toml` may set the rest."""

import difflib
import json
from pathlib import Path
import tomllib
from typing import Any

from reply_resolution.errors import RubricError
from reply_resolution.judge.prepare import Preparation

_KEYS = (
    "name",
    "wording",
    "wording_file",
    "levels",
    "cut",
    "role",
    "schema",
    "fields",
    "preparation",
)


def read_rubric_file(path: Path) -> dict[str, Any]:
    """The arguments of `Rubric` that a file gives.

    Args:
        path: `.txt` or `.md` (the wording alone) or `.toml`.

    Raises:
        RubricError: The file cannot be read, has an unknown key, or no wording.
    """
    suffix = path.suffix.lower()
    if suffix in (".txt", ".md", ""):
        return {"wording": _text(path)}
    if suffix != ".toml":
        raise RubricError(
            f"rubric file {path} ends in {suffix!r}. Give a text file (.txt, the "
            "wording alone) or a .toml file."
        )
    try:
        data = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise RubricError(f"rubric file {path} is not valid TOML: {error}.") from error
    for key in data:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise RubricError(
                f"rubric file {path} sets {key!r}, which a rubric does not have; it "
                f"may set {', '.join(_KEYS)}.{hint}"
            )
    if ("wording" in data) == ("wording_file" in data):
        raise RubricError(
            f"rubric file {path} must give either `wording` (text) or `wording_file` "
            "(a text file beside it), and only one of them."
        )
    if "wording_file" in data:
        data["wording"] = _text(path.parent / str(data.pop("wording_file")))
    else:
        data["wording"] = str(data["wording"]).rstrip("\n")
    if "schema" in data:  # a TOML table keeps the order its keys are written in
        schema = data.pop("schema")
        data["schema_json"] = schema if isinstance(schema, str) else json.dumps(schema)
    if "preparation" in data:
        try:
            data["preparation"] = Preparation(**data["preparation"])
        except TypeError as error:
            raise RubricError(
                f"preparation in {path} is not usable: {error}. It may set "
                f"{', '.join(Preparation.OPTIONS)}."
            ) from error
    return data


def _text(path: Path) -> str:
    """A text file without what editors add: byte order mark, CR, last line ends."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RubricError(
            f"rubric file {path} cannot be read: {error.strerror}."
        ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RubricError(
            f"rubric file {path} is not UTF-8 text (byte {error.start}). Save it as "
            "UTF-8."
        ) from error
    return text.replace("\r\n", "\n").rstrip("\n")

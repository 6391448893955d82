"""Files of labelling sessions: JSON lines that are only ever appended to."""

from collections import Counter
from collections.abc import Iterable, Mapping
import json
import os
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.errors import LabelError

#: Columns of a table of labels in long form. `label` is null where a person could not
#: judge; `repeat` 0 is the label, 1 and up are hidden repeats; `weight` is the inverse
#: of the chance with which the reply was drawn.
LABEL_SCHEMA: dict[str, Any] = {
    "request_id": pl.String,
    "arm": pl.String,
    "annotator": pl.String,
    "label": pl.Int8,
    "repeat": pl.Int32,
    "weight": pl.Float64,
    "metric_version": pl.String,
}
ANSWERS = ("label", "cannot_judge")
_EVENTS = (*ANSWERS, "skip", "undo")
_FIELDS = (
    *("event", "request_id", "arm", "annotator", "repeat", "label", "note", "seconds"),
    *("rubric", "metric_version", "weight", "text"),
)


class AppendOnly:
    """A file that one line after the other is added to, each safe before the next.

    Args:
        path: The file; its folder is made when the first line is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line and wait until it is on the disk.

        Raises:
            LabelError: It could not be written.
        """
        data = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        try:
            if self._file is None:
                self._file = self._open()
            written = os.write(self._file, data)
            os.fsync(self._file)
        except OSError as error:
            self.close()
            raise LabelError(
                f"labels cannot be saved to {self.path}: {error.strerror}. Give a file "
                "in a folder that can be written."
            ) from error
        if written != len(data):
            self.close()  # the next line starts on a line of its own
            raise LabelError(f"{self.path} could not be written: is the disk full?")

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        cut = self.path.exists() and self.path.read_bytes()[-1:] not in (b"", b"\n")
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if cut:  # a line that a crash cut short ends here
            os.write(file, b"\n")
        return file


def read_events(path: str | Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a file of labels, and how many were cut short by a crash.

    Raises:
        LabelError: The file cannot be read, or its lines are something else.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise LabelError(f"{path} cannot be read: {error.strerror}.") from error
    events: list[dict[str, Any]] = []
    cut = 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError:
            cut += 1
            continue
        if (
            not isinstance(event, dict)
            or event.get("event") not in _EVENTS
            or any(name not in event for name in _FIELDS)
        ):
            raise LabelError(
                f"{Path(path).name} is not a file of labels: a line says "
                f"{line[:60]!r}. Give another file name for this session."
            )
        events.append(event)
    return events, cut


def check_rubric(events: Iterable[Mapping[str, Any]], rubric: str, name: str) -> None:
    """Refuse lines that were written under another rubric.

    Raises:
        LabelError: With the number of lines and the rubrics' hashes.
    """
    other = Counter(e["rubric"] for e in events if e["rubric"] != rubric)
    if other:
        shown = ", ".join(sorted(h[:8] for h in other))
        raise LabelError(
            f"{name} holds {other.total()} line(s) made under another rubric "
            f"({shown}); the rubric is now {rubric[:8]}. Labels keep the wording they "
            "were made under: start a new file for the new one."
        )


def labels_of_events(events: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """The labels that hold, from lines of any number of annotators, in long form.

    The last line about an item holds; what was undone or skipped is left out.
    """
    last: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for event in events:
        key = tuple(event[k] for k in ("request_id", "arm", "annotator", "repeat"))
        last[key] = event
    kept = [
        {name: event.get(name) for name in LABEL_SCHEMA}
        for event in last.values()
        if event["event"] in ANSWERS
    ]
    return pl.DataFrame(kept, schema=LABEL_SCHEMA)


def collect_labels(*paths: str | Path) -> pl.DataFrame:
    """The labels of several sessions' files in one table, for agreement afterwards.

    Raises:
        LabelError: A file is missing or something else.
    """
    events = [event for path in paths for event in read_events(path)[0]]
    return labels_of_events(events)

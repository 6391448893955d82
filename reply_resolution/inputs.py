"""Where a notebook finds its tables, and how it loads them."""

from dataclasses import dataclass
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from reply_resolution.errors import TableError

if TYPE_CHECKING:
    import polars as pl

_PROVENANCE = (
    "Demonstration data: an invented company, replies written for this project, "
    "simulated annotators (two, labelling independently of the judge and of each "
    "other) and one recorded judge. Agreement here is higher than you should expect "
    "on real traffic."
)


def root() -> Path:
    """The folder with `notebooks/` and `data/`: the checkout or the installed copy.

    Raises:
        TableError: Neither is there.
    """
    checkout = Path(__file__).resolve().parents[1]
    installed = Path(sys.prefix) / "share" / "reply_resolution"
    for folder in (checkout, installed):
        if (folder / "notebooks").is_dir() and (folder / "data").is_dir():
            return folder
    raise TableError(
        "the bundled notebooks and data are not installed with this package. Clone "
        "the repository and install it with `pip install -e .`, or name your own files."
    )


def resolve(path: str) -> str:
    """The path as given where it exists, otherwise below the project's root."""
    if not path or Path(path).exists():
        return path
    try:
        bundled = root() / path
    except TableError:
        return path
    return str(bundled) if bundled.exists() else path


@dataclass(frozen=True)
class Inputs:
    """The tables of one notebook run.

    Attributes:
        replies: One row per reply with its verdict (first vote) joined: `score`,
            `reason`, `status` and the other verdict columns.
        verdicts: Every verdict, all votes.
        labels: Labels in long form (`request_id`, `arm`, `annotator`, `label`, ...);
            no rows where no labels were given.
        notes: What reading noticed: rows dropped or excluded, and why.
        sources: File as given -> sha256 of its content (64 hex digits).
        provenance_note: What must be said of bundled data; "" for data of your own.
    """

    replies: "pl.DataFrame"
    verdicts: "pl.DataFrame"
    labels: "pl.DataFrame"
    notes: tuple[str, ...]
    sources: dict[str, str]
    provenance_note: str


def load(
    replies: str,
    verdicts: str,
    labels: str = "",
    *,
    cache: str = "",
    control: str = "",
) -> Inputs:
    """Load a notebook's tables; paths below the project's root are found too.

    Args:
        replies: Table of replies.
        verdicts: Table of verdicts; "" replays them from the cache.
        labels: Table of labels, long or wide; "" is none.
        cache: Cache file to replay from where `verdicts` is empty; "" is the user's
            own. Nothing is sent anywhere: what the cache lacks is an error.
        control: The baseline arm, which must occur where it is given.

    Raises:
        TableError: A table cannot be used, or there is no arm called `control`; the
            message says what is there.
    """
    import polars as pl

    from reply_resolution.labeling.files import LABEL_SCHEMA
    from reply_resolution.tables.labels import read_labels
    from reply_resolution.tables.replies import read_replies
    from reply_resolution.tables.verdicts import join_and_note, read_verdicts

    paths = {name: resolve(name) for name in (replies, verdicts, labels) if name}
    table = read_replies(paths[replies], need_arm=bool(control))
    if control and control not in table.frame["arm"].unique():
        arms = ", ".join(map(repr, sorted(table.frame["arm"].drop_nulls().unique())))
        raise TableError(
            f"{replies} has no arm {control!r}. Its arms are {arms}; name the baseline "
            "in the parameter `control`."
        )
    notes = list(table.notes)
    sources = {replies: table.sha256}
    if verdicts:
        judged = read_verdicts(paths[verdicts])
        sources[verdicts] = judged.sha256
        notes += judged.notes
        verdict_frame = judged.frame
    else:
        verdict_frame = _replay(table.frame, cache)
    joined, unmatched = join_and_note(table.frame, verdict_frame)
    notes += unmatched
    label_frame = pl.DataFrame(schema=LABEL_SCHEMA)
    if labels:
        labelled = read_labels(paths[labels])
        sources[labels] = labelled.sha256
        notes += labelled.notes
        label_frame = labelled.frame
    return Inputs(
        replies=joined,
        verdicts=verdict_frame,
        labels=label_frame,
        notes=tuple(notes),
        sources=sources,
        provenance_note=_PROVENANCE if any(map(bundled, paths.values())) else "",
    )


def _replay(replies: "pl.DataFrame", cache: str) -> "pl.DataFrame":
    from reply_resolution.judge.replay import replay

    return replay(replies, cache=cache or None)


def bundled(path: str) -> bool:
    """Whether a table is one of the demonstration's."""
    try:
        data = (root() / "data").resolve()
    except TableError:
        return False
    return data in Path(resolve(path)).resolve().parents

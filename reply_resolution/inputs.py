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

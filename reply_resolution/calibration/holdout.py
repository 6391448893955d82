"""A part of the labels kept unseen while the wording is improved.

Whoever rewrites a rubric until it agrees with a set of labels has fitted it to them:
the agreement on that set is no longer a test. So labels are split once, by the reply's
id, and every look at the test part is written down beside the results.
"""

from datetime import UTC, datetime
import hashlib
import json
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.errors import ParameterError, TableError

PARTS = ("all", "dev", "test")


def part_of(request_ids: pl.Series, *, test_share: float = 0.5, seed: int) -> pl.Series:
    """Which part each reply belongs to; the same id and seed always the same.

    A request's replies stay together, and more labels later do not move old ones.

    Args:
        request_ids: Ids of the requests.
        test_share: Share of the test part, fraction between 0 and 1.
        seed: Of the split.

    Returns:
        "dev" or "test" for each.

    >>> part_of(pl.Series(["a", "b", "c"]), seed=7).to_list()
    ['dev', 'test', 'dev']
    """
    if not 0 < test_share < 1:
        raise ParameterError(f"test_share {test_share!r} is not between 0 and 1.")
    limit = int(test_share * 2**32)
    ids = request_ids.cast(pl.String).unique()
    parts = {
        name: "test" if _number(name, seed) < limit else "dev" for name in ids.to_list()
    }
    return pl.Series("part", [parts[i] for i in request_ids.cast(pl.String).to_list()])


def _number(name: str, seed: int) -> int:
    digest = hashlib.sha256(f"{seed}\x1f{name}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def choose_part(
    labels: pl.DataFrame, part: str, *, test_share: float = 0.5, seed: int
) -> pl.DataFrame:
    """The labels of one part: "all", "dev" or "test".

    Args:
        labels: Labels with `request_id`.
        part: Which part.
        test_share: Share of the test part, fraction.
        seed: Of the split.

    Raises:
        ParameterError: There is no such part.
    """
    if part not in PARTS:
        raise ParameterError(
            f"part {part!r}: give one of {', '.join(PARTS)} ('dev' while you change "
            "the wording, 'test' once at the end)."
        )
    if part == "all":
        return labels
    return labels.filter(
        part_of(labels["request_id"], test_share=test_share, seed=seed) == part
    )


def record_look(
    path: str | Path,
    labels: pl.DataFrame,
    *,
    judge: str,
    now: datetime | None = None,
) -> tuple[str, ...]:
    """Write down a look at a test part; return the judges that looked before.

    Looking again with the same judge is no new look: nothing was changed in between.

    Args:
        path: The ledger, JSON lines; made if it is not there.
        labels: The labels looked at.
        judge: What names the judge and its wording: metric version and judge id.
        now: Time of the look; the current time where None.

    Returns:
        Other judges that were tested on these very replies before, oldest first.

    Raises:
        TableError: The ledger is damaged.
    """
    path = Path(path)
    replies = sorted(set(labels["request_id"].to_list()))
    digest = hashlib.sha256("\x1f".join(replies).encode()).hexdigest()
    entries: list[dict[str, Any]] = []
    if path.exists():
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            try:
                entries.append(dict(json.loads(line)))
            except ValueError as error:
                raise TableError(
                    f"{path}, line {number}, is damaged: the looks at the test labels "
                    "cannot be counted. Repair the line, or move the file away and "
                    "label a new test set."
                ) from error
    before = [e["judge"] for e in entries if e["labels"] == digest]
    if judge not in before:
        path.parent.mkdir(parents=True, exist_ok=True)
        entry = {
            "at": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
            "labels": digest,
            "replies": len(replies),
            "judge": judge,
        }
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    return tuple(dict.fromkeys(j for j in before if j != judge))


def look_warning(before: tuple[str, ...]) -> str:
    """What to say where a test set was looked at before; "" where it was not."""
    if not before:
        return ""
    many = "one other judge" if len(before) == 1 else f"{len(before)} other judges"
    return (
        f"These test labels were looked at before with {many} ({', '.join(before)}). "
        "A wording chosen after such looks fits these labels better than new ones: "
        "label fresh replies for the last word."
    )

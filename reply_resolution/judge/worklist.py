"""What a run has to ask: keys, messages, and what the cache already knows.

200,000 replies must fit in memory beside their frame, so messages are built when they
are hashed and once more when they are sent, and never kept; per reply and vote there is
a key and nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.judge.identity import verdict_keys
from reply_resolution.judge.rubric import Rubric, UserMessage

#: Longest user message that is sent, UTF-8 bytes (about 65,000 tokens of English).
#: A longer row gets a status, unless the rubric's preparation cuts it (`max_chars`).
MAX_MESSAGE_BYTES = 262_144
EMPTY_REASON = "The reply is empty. Scored 1 by rule, without a call."
_CHUNK = 8_192


def _fits(text: str) -> bool:
    """Whether a message is short enough; four bytes are the most of a character."""
    limit = MAX_MESSAGE_BYTES
    return len(text) <= limit // 4 or len(text.encode()) <= limit


@dataclass(frozen=True, slots=True)
class Item:
    """One verdict to ask for.

    Attributes:
        entry: Its number in the worklist.
        row: Row of the table, 0-based.
        vote: 0 for the first verdict on the reply.
        key: The verdict key.
        message: The user message and the note of its preparation.
        size: UTF-8 bytes of the user message.
    """

    entry: int
    row: int
    vote: int
    key: str
    message: UserMessage
    size: int


class Worklist:
    """Every (row, vote) of a run and its key under one judge."""

    def __init__(
        self,
        replies: pl.DataFrame,
        rubric: Rubric,
        *,
        rows: np.ndarray,
        empty: np.ndarray,
        votes: int,
    ) -> None:
        """Take the table; nothing is hashed yet.

        Args:
            replies: The table; only the rubric's fields are read.
            rubric: Turns a row into a message.
            rows: Row numbers to judge, empty replies left out, in table order; int64.
            empty: Whether each row's reply is empty; bool, shape (rows of table,).
            votes: Verdicts per row, 1 and up.
        """
        self._fields = replies.select(
            name for name in rubric.fields if name in replies.columns
        )
        self._rubric = rubric
        self.rows = rows
        self.empty = empty
        self.votes = votes
        self.total_rows = replies.height
        #: Key of entry `vote * len(rows) + position`; null where the row is too long.
        self.keys = pl.Series("key", [], dtype=pl.String)

    def hash(self, judge_id: str) -> None:
        """Compute every key under this judge.

        Raises:
            TableError: A row lacks request or reply, or holds no text.
        """
        parts: list[list[pl.Series]] = [[] for _ in range(self.votes)]
        for texts in self._texts():
            fits = [_fits(text) for text in texts]
            for vote in range(self.votes):
                keys: list[str | None] = list(verdict_keys(judge_id, texts, vote))
                if not all(fits):
                    keys = [k if ok else None for k, ok in zip(keys, fits, strict=True)]
                parts[vote].append(pl.Series("key", keys, dtype=pl.String))
        flat = [part for vote in parts for part in vote]
        self.keys = pl.concat(flat) if flat else pl.Series("key", [], dtype=pl.String)

    def _texts(self) -> Iterator[list[str]]:
        """The user messages, a chunk at a time."""
        build = self._rubric.user_message
        for start in range(0, len(self.rows), _CHUNK):
            rows = self.rows[start : start + _CHUNK]
            texts = []
            for offset, row in enumerate(self._fields[rows].iter_rows(named=True)):
                try:
                    texts.append(build(row).text)
                except TableError as error:
                    raise TableError(f"row {rows[offset] + 1}: {error}") from error
            yield texts

    def entries(self, order: np.ndarray) -> np.ndarray:
        """Entry numbers in judging order: vote 0 of all rows first, then vote 1, ...

        Args:
            order: Row numbers in judging order; rows not to be judged are skipped.
        """
        position = np.full(self.total_rows, -1, dtype=np.int64)
        position[self.rows] = np.arange(len(self.rows))
        places = position[order]
        places = places[places >= 0]
        return np.concatenate(
            [places + vote * len(self.rows) for vote in range(self.votes)]
        ).astype(np.int64)

    def missing(self, entries: np.ndarray, known: pl.Series) -> np.ndarray:
        """The entries to ask for: key not known, each key once, in order.

        Args:
            entries: Entry numbers in judging order.
            known: Keys the cache has a verdict for.
        """
        keys = self.keys.gather(entries)
        first = pl.DataFrame({"entry": entries, "key": keys}).filter(
            pl.col("key").is_not_null()
            & pl.col("key").is_first_distinct()
            & ~pl.col("key").is_in(known.implode())
        )
        return first["entry"].to_numpy()

    def item(self, entry: int) -> Item:
        """Build the message of one entry, to be sent."""
        vote, position = divmod(int(entry), len(self.rows))
        row = int(self.rows[position])
        message = self._rubric.user_message(self._fields.row(row, named=True))
        size = len(message.text.encode())
        return Item(int(entry), row, vote, self.keys[int(entry)], message, size)

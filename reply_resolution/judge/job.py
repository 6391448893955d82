"""The work: a table's rows as keys and messages, and what the cache knows of them.

200,000 replies must fit in memory beside their frame, so messages are built when they
are hashed and once more when they are sent, and never kept; per reply and vote there is
a key and nothing else.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.errors import JudgeError, TableError, did_you_mean
from reply_resolution.judge.cache import Cache
from reply_resolution.judge.client import Endpoint
from reply_resolution.judge.identity import (
    Dialect,
    JudgeIdentity,
    clean_endpoint,
    verdict_keys,
)
from reply_resolution.judge.rubric import Rubric, UserMessage
from reply_resolution.judge.sampling import Draw, draw
from reply_resolution.judge.sqlite import default_path
from reply_resolution.tables.replies import empty_expr

#: Sampling parameters sent unless the caller says otherwise; a server that refuses one
#: is asked without it.
DEFAULT_PARAMS: Mapping[str, Any] = {"temperature": 0}
#: Longest user message that is sent, UTF-8 bytes (about 65,000 tokens of English).
#: A longer row gets a status, unless the rubric's preparation cuts it (`max_chars`).
MAX_MESSAGE_BYTES = 262_144
_AT_ONCE = 131_072
_CHUNK = 8_192


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
    """Every (row, vote) to judge, its key and its message; needs no cache.

    Attributes:
        rows: Row numbers to judge, in table order; int64.
        empty: Whether each row's reply is empty; bool, shape (rows of the table,).
        votes: Verdicts per row.
        keys: Key of entry `vote * len(rows) + position` under the judge last given to
            `hash`; null where the row is too long.
    """

    def __init__(
        self,
        replies: pl.DataFrame,
        rubric: Rubric,
        *,
        rows: np.ndarray,
        empty: np.ndarray,
        votes: int,
    ) -> None:
        """Take the table; nothing is hashed yet."""
        self._fields = replies.select(
            name for name in rubric.fields if name in replies.columns
        )
        self._rubric = rubric
        self.rows, self.empty, self.votes = rows, empty, votes
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
        empty = pl.Series("key", [], dtype=pl.String)
        self.keys = pl.concat([empty, *(part for vote in parts for part in vote)])

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

    def missing(self, order: np.ndarray, known: pl.Series) -> np.ndarray:
        """Entries whose key is not known, each key once, in judging order.

        Args:
            order: Row numbers in judging order; rows not to be judged are skipped.
                Vote 0 of all rows comes first, then vote 1, ...
            known: Keys there is a verdict for.
        """
        position = np.full(len(self.empty), -1, dtype=np.int64)
        position[self.rows] = np.arange(len(self.rows))
        places = position[order]
        places = places[places >= 0]
        entries = np.concatenate(
            [places + vote * len(self.rows) for vote in range(self.votes)]
        ).astype(np.int64)
        keys = self.keys.gather(entries)
        first = pl.DataFrame({"entry": entries, "key": keys}).filter(
            pl.col("key").is_not_null()
            & pl.col("key").is_first_distinct()
            & ~pl.col("key").is_in(known.implode())
        )
        return first["entry"].to_numpy()

    def item(self, entry: int) -> Item:
        """Build the message of one entry, to be sent."""
        vote, position = divmod(entry, len(self.rows))
        row = int(self.rows[position])
        message = self._rubric.user_message(self._fields.row(row, named=True))
        size = len(message.text.encode())
        return Item(entry, row, vote, self.keys[entry], message, size)


def _fits(text: str) -> bool:
    """Whether a message is short enough; four bytes are the most of a character."""
    limit = MAX_MESSAGE_BYTES
    return len(text) <= limit // 4 or len(text.encode()) <= limit


class Job:
    """One table before one judge: who is asked, what is asked, what is known.

    Attributes:
        replies: The table.
        rubric: What is asked.
        endpoint: Who is asked.
        store: The cache.
        drawn: Whether each row is in the sample; bool, shape (rows,).
        worklist: Keys and messages of the rows to judge.
        params: Sampling parameters wanted.
        dialect: How this server is asked.
        dialect_known: Whether that was seen to work.
        identity: The judge as of now; another if the server turns out to want to be
            asked differently.
        judge_id: The judge's id, 64 hex digits.
        found: What the cache has for the worklist's keys (`Cache.get_frame`).
    """

    def __init__(
        self,
        replies: pl.DataFrame,
        rubric: Rubric,
        endpoint: Endpoint,
        store: Cache,
        *,
        max_completion_tokens: int,
        params: Mapping[str, Any] | None = None,
        sample: float | None = None,
        seed: int = 0,
        votes: int = 1,
    ) -> None:
        """Give every row its key and look it up; arguments as of `judge_replies`."""
        check_table(replies)
        votes = at_least_one("votes", votes)
        self.replies, self.rubric, self.endpoint = replies, rubric, endpoint
        self.store: Cache = store
        self._sample, self._seed = sample, seed
        self._draw: Draw | None = None
        # A recorded judge was asked elsewhere; no parameter of ours was sent.
        wanted = {} if endpoint.recorded else DEFAULT_PARAMS
        self.params = dict(wanted if params is None or endpoint.recorded else params)
        self._tokens = None if endpoint.recorded else max_completion_tokens
        empty = replies.select(empty_expr("reply")).to_series().to_numpy()
        # Which rows are drawn must be known to hash them; the order can wait.
        every = np.ones(replies.height, dtype=bool)
        self.drawn = every if sample is None else self.draw().drawn
        self.worklist = Worklist(
            replies,
            rubric,
            rows=np.flatnonzero(self.drawn & ~empty),
            empty=empty,
            votes=votes,
        )
        known = store.capability(self.base_url, endpoint.model)
        self.dialect_known = bool(known)
        self.dialect = Dialect.from_document(known) if known else Dialect()
        self.identity = self.identity_in(self.dialect)
        self._look_up()

    def draw(self) -> Draw:
        """The sample and the order, drawn when first needed."""
        if self._draw is None:
            self._draw = draw(self.replies, sample=self._sample, seed=self._seed)
        return self._draw

    def probability(self) -> np.ndarray:
        """Chance of each row to be drawn, fraction; float64, shape (rows,)."""
        if self._sample is None:
            return np.ones(self.replies.height)
        return self.draw().probability

    @property
    def base_url(self) -> str:
        """The server's address, without credentials."""
        return clean_endpoint(self.endpoint.base_url)

    def identity_in(self, dialect: Dialect) -> JudgeIdentity:
        """The judge that a dialect makes."""
        return dialect.identity(
            self.rubric,
            model=self.endpoint.model,
            endpoint=self.endpoint.base_url,
            params=self.params,
            max_completion_tokens=self._tokens,
        )

    def _look_up(self) -> None:
        self.judge_id = self.identity.judge_id
        self.worklist.hash(self.judge_id)
        self.found = fetch(self.store, self.worklist.keys.drop_nulls())

    def missing_count(self) -> int:
        """How many verdicts are missing, each key once."""
        return self.worklist.keys.drop_nulls().n_unique() - self.found.height

    def missing(self) -> list[int]:
        """Entries without a verdict, each key once, in judging order."""
        missing: list[int] = self.worklist.missing(
            self.draw().order, self.found["key"]
        ).tolist()
        return missing

    def settle(self, dialect: Dialect, *, known: bool) -> None:
        """Keep to a dialect; `known` if an answer has shown that it works."""
        if known:
            self.store.remember_capability(
                self.base_url, self.endpoint.model, asdict(dialect)
            )
            self.dialect_known = True
        self.dialect = dialect
        identity = self.identity_in(dialect)
        if identity != self.identity:
            self.identity = identity
            self._look_up()
            self.store.register_judge(identity, self.rubric)

    def forget(self) -> None:
        """The server has changed: ask anew next time."""
        self.store.remember_capability(self.base_url, self.endpoint.model, {})

    def reload(self, entries: set[int]) -> None:
        """Look up the entries that were judged since."""
        keys = self.worklist.keys.gather(sorted(entries)).unique()
        new = keys.filter(~keys.is_in(self.found["key"].implode()))
        if len(new):
            self.found = pl.concat([self.found, fetch(self.store, new)])

    def requests(self) -> Iterator[tuple[str, str | None, str]]:
        """(request_id, arm, key) of every row judged."""
        rows = self.worklist.rows
        ids = self.replies["request_id"].cast(pl.String)[rows].to_list()
        arms: list[str | None] = [None] * len(rows)
        if "arm" in self.replies.columns:
            arms = self.replies["arm"].cast(pl.String)[rows].to_list()
        for vote in range(self.worklist.votes):
            part = self.worklist.keys.slice(vote * len(rows), len(rows))
            for name, arm, key in zip(ids, arms, part, strict=True):
                if key is not None:
                    yield name, arm, key


def request_bytes(identity: JudgeIdentity) -> int:
    """UTF-8 bytes of a request beside its user message: wording, schema, parameters."""
    return len(json.dumps(identity.request(""), ensure_ascii=False).encode())


def fetch(cache: Cache, keys: pl.Series) -> pl.DataFrame:
    """`Cache.get_frame`, one row per key.

    What is found passes through Python objects, which for a very long table would need
    more room than the table: up to `_AT_ONCE` keys are asked for together, which lets
    the store read its file in order, and more of them a chunk at a time.
    """
    step = max(len(keys), 1) if len(keys) <= _AT_ONCE else _CHUNK
    parts = [
        cache.get_frame(keys.slice(start, step).to_list())
        for start in range(0, max(len(keys), 1), step)
    ]
    return pl.concat(parts).unique("key")


@contextmanager
def opened(
    cache: str | Path | Cache | None, *, offline: bool = False
) -> Iterator[Cache]:
    """An open cache, closed again only if it was opened here.

    Args:
        cache: A file, an open cache, or None for the default place.
        offline: Whether it is only replayed; then a file that cannot be written will
            do.
    """
    if isinstance(cache, Cache):
        yield cache
        return
    file = Path(cache or default_path()).expanduser()
    fixed = offline and file.is_file() and not os.access(file, os.W_OK)
    with Cache.open(cache, read_only=fixed) as store:
        yield store


def at_least_one(name: str, value: int) -> int:
    """The value, if it is a whole number of 1 or more; else a JudgeError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise JudgeError(f"{name} {value!r} is not a whole number of 1 or more.")
    return value


def check_table(replies: pl.DataFrame) -> None:
    """Refuse a table that cannot be judged.

    Raises:
        TableError: A column is missing, or a key occurs twice.
    """
    for name in ("request_id", "request", "reply"):
        if name not in replies.columns:
            raise TableError(
                f"the table has no column {name!r}; its columns are "
                f"{', '.join(replies.columns)}.{did_you_mean(name, replies.columns)} "
                "Rename one, or read the table with read_replies(columns=...)."
            )
    key = [c for c in ("request_id", "arm") if c in replies.columns]
    repeated = replies.select(pl.struct(key).is_duplicated()).to_series()
    if repeated.any():
        first = replies.filter(repeated).row(0, named=True)
        raise TableError(
            f"{int(repeated.sum())} rows share their {' and '.join(key)} with another, "
            f"such as {', '.join(repr(first[c]) for c in key)}. A reply is known by "
            "them: make them unique, or name the arm."
        )

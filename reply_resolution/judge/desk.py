"""What lies on the judge's desk: who is asked, what is asked, what is known already.

Judging, estimating and recording start the same way: resolve who judges, give every
row its key, look up what the cache has. That is done here, once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
import json
from typing import Any

import numpy as np
import polars as pl

from reply_resolution.judge.client import Client
from reply_resolution.judge.dialect import Dialect, identity_in
from reply_resolution.judge.endpoint import Endpoint
from reply_resolution.judge.identity import JudgeIdentity, clean_endpoint
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import CacheStore
from reply_resolution.judge.worklist import Item, Worklist

_AT_ONCE = 131_072
_CHUNK = 8_192


def request_bytes(identity: JudgeIdentity) -> int:
    """UTF-8 bytes of a request beside its user message: wording, schema, parameters."""
    return len(json.dumps(identity.request(""), ensure_ascii=False).encode())


def fetch(cache: CacheStore, keys: pl.Series) -> pl.DataFrame:
    """`CacheStore.get_frame`, one row per key.

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


class Desk:
    """One judge's work on one table.

    Attributes:
        endpoint: Where and which model.
        worklist: Keys and messages of every row and vote to judge.
        dialect: How this server is asked.
        dialect_known: Whether that was seen to work.
        judge_id: The judge as of now; changes if the server turns out to want to be
            asked differently.
        found: What the cache has for the worklist's keys (`CacheStore.get_frame`).
    """

    def __init__(
        self,
        *,
        endpoint: Endpoint,
        rubric: Rubric,
        params: Mapping[str, Any],
        max_completion_tokens: int,
        timeout: float,
        cache: CacheStore,
        worklist: Worklist,
        order: Callable[[], np.ndarray],
    ) -> None:
        """Give every row its key and look it up.

        Args:
            endpoint: Where and which model.
            rubric: What is asked.
            params: Sampling parameters wanted.
            max_completion_tokens: Limit on an answer's tokens.
            timeout: Seconds for one call.
            cache: What is known.
            worklist: The rows.
            order: Gives row numbers in judging order; called only if rows are missing.
        """
        self.endpoint, self.worklist = endpoint, worklist
        self._rubric, self._cache, self._order = rubric, cache, order
        # A recorded judge was asked elsewhere; no parameter of ours was sent.
        self._params = {} if endpoint.recorded else dict(params)
        self._tokens = None if endpoint.recorded else max_completion_tokens
        self._timeout = timeout
        known = cache.capability(clean_endpoint(endpoint.base_url), endpoint.model)
        self.dialect_known = bool(known)
        self.dialect = Dialect.from_document(known) if known else Dialect()
        self.identity = self.identity_in(self.dialect)
        self._look_up()

    @property
    def judge_id(self) -> str:
        """The judge's id, 64 hex digits."""
        return self.identity.judge_id

    @property
    def cache_name(self) -> str:
        """Where verdicts are looked up, for messages."""
        path = getattr(self._cache, "path", None)
        return str(path) if path is not None else "in memory"

    @property
    def base_url(self) -> str:
        """The server's address, without credentials."""
        return clean_endpoint(self.endpoint.base_url)

    def identity_in(self, dialect: Dialect) -> JudgeIdentity:
        """The judge that a dialect makes."""
        return identity_in(
            dialect,
            self._rubric,
            model=self.endpoint.model,
            endpoint=self.endpoint.base_url,
            params=self._params,
            max_completion_tokens=self._tokens,
        )

    def client(self) -> Client:
        """A client for this endpoint; made inside the loop."""
        return Client(
            self.endpoint,
            params=self._params,
            timeout=self._timeout,
            scale=self._rubric.scale,
        )

    def _look_up(self) -> None:
        self.worklist.hash(self.judge_id)
        self.found = fetch(self._cache, self.worklist.keys.drop_nulls())

    def missing_entries(self) -> np.ndarray:
        """Entries without a verdict, each key once, in judging order."""
        entries = self.worklist.entries(self._order())
        return self.worklist.missing(entries, self.found["key"])

    def missing_count(self) -> int:
        """How many verdicts are missing, each key once."""
        return self.worklist.keys.drop_nulls().n_unique() - self.found.height

    def missing(self) -> Iterator[int]:
        """The missing entries, one after the other; registers the judge first."""
        self._cache.register_judge(self.identity, self._rubric)
        return iter(self.missing_entries().tolist())

    def key(self, entry: int) -> str:
        """The verdict key of an entry."""
        key: str = self.worklist.keys[entry]
        return key

    def item(self, entry: int) -> Item:
        """An entry with its message."""
        return self.worklist.item(entry)

    def settle(self, dialect: Dialect, *, known: bool) -> None:
        """Keep to a dialect; `known` if an answer has shown that it works."""
        if known:
            self._cache.remember_capability(
                self.base_url, self.endpoint.model, asdict(dialect)
            )
            self.dialect_known = True
        self.dialect = dialect
        identity = self.identity_in(dialect)
        if identity != self.identity:
            self.identity = identity
            self._look_up()
            self._cache.register_judge(identity, self._rubric)

    def forget(self) -> None:
        """The server has changed: ask anew next time."""
        self._cache.remember_capability(self.base_url, self.endpoint.model, {})

    def reload(self, entries: set[int]) -> None:
        """Look up the entries that were judged since."""
        keys = self.worklist.keys.gather(sorted(entries)).unique()
        new = keys.filter(~keys.is_in(self.found["key"].implode()))
        if len(new):
            self.found = pl.concat([self.found, fetch(self._cache, new)])

"""What leaves the cache: one verdict traced, or everything as JSON lines, and back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import json
import os
from pathlib import Path
import re
from typing import TYPE_CHECKING, Any

from reply_resolution.errors import CacheError, ReplyResolutionError
from reply_resolution.judge.identity import TOKEN_LIMITS, JudgeIdentity, verdict_key
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.store import FRAME_SCHEMA, Attempt, StoredVerdict, Trace

if TYPE_CHECKING:  # cache.py imports this module
    from reply_resolution.judge.cache import Cache

_HEADER = {"type": "header", "format": "reply_resolution cache/1"}
_BATCH = 2000
#: The label of a row of `rubrics r`.
LABEL = "r.name || '@v' || r.number || ':' || substr(r.hash, 1, 8)"


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did.

    Attributes:
        added: Verdicts that were new.
        same: Verdicts the cache had already, with the same score, status and reason.
        conflicts: Keys the cache had with another answer; its own were kept.
        invalid: Lines whose key does not fit their content; these were not taken in.
        versions: Labels of the metric versions in the file, as numbered here.
    """

    added: int
    same: int
    conflicts: tuple[str, ...]
    invalid: tuple[str, ...]
    versions: tuple[str, ...]


def verdict_rows(
    cache: "Cache", where: str, values: Sequence[object] = ()
) -> Iterator[StoredVerdict]:
    """Verdicts `v` that fit a WHERE, row by row: a cache may be larger than memory."""
    for key, *row in cache.stream(
        "SELECT v.key, j.judge_id, a.user_message, v.vote, "
        f"{', '.join(FRAME_SCHEMA)}, a.raw FROM verdicts v "
        f"JOIN judges j ON j.id = v.judge JOIN answers a ON a.id = v.id {where}",
        values,
    ):
        yield StoredVerdict(key.hex(), *row)


def trace(cache: "Cache", wanted: str, *, arm: str | None = None) -> list[Trace]:
    """What was sent and answered, for a verdict key or a request id.

    Args:
        cache: The cache.
        wanted: A verdict key (64 hex digits, or at least its first 8) or a
            request id.
        arm: Of a request id, only this arm.

    Returns:
        One trace per verdict, by vote and time; with the exact request body.

    Raises:
        CacheError: The cache has nothing of that name.
    """
    rows = cache.read(
        "SELECT DISTINCT key FROM requests WHERE request_id = ? "
        "AND arm = coalesce(?, arm)",
        (wanted, arm),
    )
    if not rows and re.fullmatch("[0-9a-fA-F]{8,64}", wanted):
        first, last = (bytes.fromhex(wanted.ljust(64, end)) for end in "0f")
        rows = cache.read(
            "SELECT key FROM verdicts WHERE key BETWEEN ? AND ?", (first, last)
        )
    found = cache.get_many([key.hex() for (key,) in rows])
    if not found:
        raise CacheError(
            f"cache {cache.name} has no verdict for {wanted!r}"
            + (f" in arm {arm!r}" if arm else "")
            + ". Give a request id that was judged with this cache, or a verdict "
            "key."
        )
    return [
        _trace(cache, verdict)
        for verdict in sorted(found.values(), key=lambda v: (v.vote, v.judged_at))
    ]


def _trace(cache: "Cache", verdict: StoredVerdict) -> Trace:
    key = bytes.fromhex(verdict.key)
    identity = cache.judge(verdict.judge_id)
    assert identity is not None  # a foreign key
    labels = cache.read(
        f"SELECT {LABEL} FROM judges j JOIN judge_rubrics jr ON jr.judge = j.id "
        "JOIN rubrics r ON r.hash = jr.rubric_hash WHERE j.judge_id = ? "
        "ORDER BY r.name, r.number",
        (verdict.judge_id,),
    )
    seen = cache.read(
        "SELECT request_id, nullif(arm, '') FROM requests WHERE key = ? "
        "ORDER BY request_id, arm",
        (key,),
    )
    calls = cache.read(
        f"SELECT {', '.join(Attempt._fields[1:])} FROM attempts WHERE key = ? "
        "ORDER BY id",
        (key,),
    )
    attempts = tuple(Attempt(verdict.key, *row) for row in calls)
    body = identity.request(verdict.user_message)
    if _re_asked(verdict, attempts):
        # The judge id names the usual limit; this answer was given twice that.
        limit = next(n for n in TOKEN_LIMITS if n in body)
        body[limit] *= 2
    return Trace(
        verdict=verdict,
        key=verdict.key,
        request=json.dumps(body, ensure_ascii=False, separators=(",", ":")),
        judge=identity,
        metric_versions=tuple(label for (label,) in labels),
        seen_as=tuple(seen),
        attempts=attempts,
    )


def _re_asked(verdict: StoredVerdict, attempts: Sequence[Attempt]) -> bool:
    """Whether the answer was asked for again because one before was cut short."""
    outcomes = [a.outcome for a in attempts]
    if verdict.status not in outcomes:
        return False
    last = len(outcomes) - 1 - outcomes[::-1].index(verdict.status)
    run_id = attempts[last].run_id
    return any(a.outcome == "truncated" and a.run_id == run_id for a in attempts[:last])


def export_jsonl(db: "Cache", path: str | Path) -> int:
    """Write everything but the ledger as JSON lines; returns how many verdicts.

    What this cache has paid is not what another has paid. The export appears whole or
    not at all; the same content is the same bytes, whichever database keeps it, but for
    the date on which it first saw a metric version.
    """
    path, verdicts = Path(path), 0
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as out:
            for record in _records(db):
                verdicts += record["type"] == "verdict"
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
        os.replace(part, path)
    except OSError as error:
        raise CacheError(
            f"the export cannot be written to {path}: {error.strerror}."
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return verdicts


def _records(db: "Cache") -> Iterator[dict[str, Any]]:
    yield _HEADER
    for document, created in db.read(
        "SELECT document, created_at FROM rubrics ORDER BY name, number"
    ):
        yield {"type": "rubric", "created_at": created, "document": document}
    for (document,) in db.read("SELECT document FROM judges ORDER BY id"):
        yield {"type": "judge", "document": document}
    for judge_id, rubric_hash in db.read(
        "SELECT j.judge_id, jr.rubric_hash FROM judge_rubrics jr JOIN judges j "
        "ON j.id = jr.judge ORDER BY 1, 2"
    ):
        yield {"type": "serves", "judge_id": judge_id, "rubric": rubric_hash}
    for endpoint, model, document in db.read(
        "SELECT endpoint, model, document FROM capabilities ORDER BY 1, 2"
    ):
        # How a server must be asked is part of the judge id: without it, what was
        # judged there cannot be replayed elsewhere.
        yield {
            "type": "capability",
            "endpoint": endpoint,
            "model": model,
            "document": json.loads(document),
        }
    for verdict in verdict_rows(db, "ORDER BY v.id"):
        yield {"type": "verdict", **verdict._asdict()}
    for rid, arm, key in db.stream(
        "SELECT request_id, nullif(arm, ''), key FROM requests "
        "ORDER BY request_id, arm, key"
    ):
        yield {"type": "request", "request_id": rid, "arm": arm, "key": key.hex()}
    for (document,) in db.read("SELECT document FROM calibrations ORDER BY id"):
        yield {"type": "calibration", "document": json.loads(document)}


def import_jsonl(cache: "Cache", path: str | Path) -> ImportReport:
    """Take in an export; twice is as good as once. All of it, or nothing."""
    path = Path(path)
    added = same = 0
    conflicts: list[str] = []
    invalid: list[str] = []
    versions: list[str] = []
    rubrics: dict[str, Rubric] = {}
    batch: list[StoredVerdict] = []

    def flush() -> None:
        nonlocal added, same
        known = cache.get_many([v.key for v in batch])
        for v in batch:
            old = known.get(v.key, v)
            if (old.score, old.status, old.reason) != (v.score, v.status, v.reason):
                conflicts.append(
                    f"{v.key}: {old.status} {old.score} kept, {v.status} {v.score} in "
                    f"{path.name}"
                )
            elif v.key in known:
                same += 1
        added += cache.put_many([v for v in batch if v.key not in known])
        batch.clear()

    def take(number: int, record: dict[str, Any]) -> None:
        kind = record.pop("type", None)
        if kind == "rubric":
            rubric = Rubric.from_document(record["document"])
            rubrics[rubric.hash] = rubric
            versions.append(cache.register_rubric(rubric))
        elif kind == "judge":
            cache.register_judge(JudgeIdentity.from_document(record["document"]))
        elif kind == "serves":
            if judge := cache.judge(record["judge_id"]):
                cache.register_judge(judge, rubrics.get(record["rubric"]))
        elif kind == "capability":
            if cache.capability(record["endpoint"], record["model"]) is None:
                cache.remember_capability(**record)
        elif kind == "verdict":
            v = StoredVerdict(**record)
            if v.key == verdict_key(v.judge_id, v.user_message, v.vote):
                batch.append(v)
            else:
                invalid.append(f"line {number}: the key is not of this content")
        elif kind == "request":
            cache.note_requests([(record["request_id"], record["arm"], record["key"])])
        elif kind == "calibration":
            cache.put_calibration(record["document"])
        elif kind != "header":
            raise CacheError(f"a record of type {kind!r} is not known")
        if len(batch) >= _BATCH:
            flush()

    with cache.transaction():
        for number, record in _lines(path):
            try:
                take(number, record)
            except (LookupError, TypeError, ValueError, ReplyResolutionError) as error:
                raise CacheError(
                    f"{path}, line {number}: {str(error).rstrip('.')}. Nothing was "
                    "imported."
                ) from error
        flush()
    return ImportReport(added, same, tuple(conflicts), tuple(invalid), tuple(versions))


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                record = json.loads(line)
                if not isinstance(record, dict) or (number == 1 and record != _HEADER):
                    break
                yield number, record
            else:
                if number:
                    return
    except ValueError as error:
        raise CacheError(
            f"{path}, line {number} is not JSON ({error}); the file may be cut off. "
            "Nothing was imported."
        ) from error
    except OSError as error:
        raise CacheError(f"{path} cannot be read: {error}.") from error
    raise CacheError(
        f"{path} is not an export of a cache (its first line does not say "
        f"{_HEADER['format']!r}). Write one with `cache export`."
    )

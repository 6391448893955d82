"""The cache as JSON lines, and back; checking a file from end to end."""

from collections.abc import Iterator
from dataclasses import dataclass, field
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reply_resolution.errors import CacheError, ReplyResolutionError
from reply_resolution.judge.identity import JudgeIdentity, verdict_key
from reply_resolution.judge.rubric import Rubric
from reply_resolution.judge.sqlite import VERDICTS, Database
from reply_resolution.judge.store import StoredVerdict

if TYPE_CHECKING:  # cache.py imports this module
    from reply_resolution.judge.cache import Cache

_FORMAT = "reply_resolution cache/1"


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did.

    Attributes:
        added: Verdicts that were new.
        same: Verdicts the cache had already, with the same score and status.
        conflicts: Keys the cache had with another score or status; its own were kept.
        invalid: Lines whose key does not fit their content, with the reason; these
            were not taken in.
        versions: Labels of the metric versions in the file, as numbered here.
    """

    added: int = 0
    same: int = 0
    conflicts: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    versions: tuple[str, ...] = field(default=())


def export_jsonl(db: Database, path: Path) -> int:
    """Write metric versions, judges, verdicts, request ids and calibrations.

    The ledger stays: what this file has paid is not what another has paid. The file
    appears whole or not at all.
    """
    verdicts = 0
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


def _records(db: Database) -> Iterator[dict[str, Any]]:
    yield {"type": "header", "format": _FORMAT}
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
    with db.locked() as connection:  # row by row: a cache may be larger than memory
        for row in connection.execute(f"{VERDICTS} ORDER BY v.id"):
            yield {"type": "verdict", **StoredVerdict._make(row)._asdict()}
        for rid, arm, key in connection.execute(
            "SELECT request_id, arm, lower(hex(key)) FROM requests"
        ):
            yield {"type": "request", "request_id": rid, "arm": arm or None, "key": key}
    for (document,) in db.read("SELECT document FROM calibrations ORDER BY id"):
        yield {"type": "calibration", "document": json.loads(document)}


def import_jsonl(cache: "Cache", db: Database, path: Path) -> ImportReport:
    """Take in an export, in one transaction."""
    counts = {"added": 0, "same": 0}
    conflicts: list[str] = []
    invalid: list[str] = []
    versions: list[str] = []
    rubrics: dict[str, Rubric] = {}
    batch: list[StoredVerdict] = []
    requests: list[tuple[str, str | None, str]] = []

    def flush() -> None:
        known = cache.get_many([v.key for v in batch])
        for v in batch:
            old = known.get(v.key)
            if old is None:
                continue
            if (old.score, old.status, old.reason) == (v.score, v.status, v.reason):
                counts["same"] += 1
            else:
                conflicts.append(
                    f"{v.key}: {old.status} {old.score} kept, {v.status} {v.score} in "
                    f"{path.name}"
                )
        counts["added"] += cache.put_many([v for v in batch if v.key not in known])
        cache.note_requests(requests)
        batch.clear()
        requests.clear()

    with db.transaction():
        for number, record in _lines(path):
            kind = record.get("type")
            try:
                if kind == "rubric":
                    rubric = Rubric.from_document(record["document"])
                    rubrics[rubric.hash] = rubric
                    versions.append(cache.register_rubric(rubric))
                elif kind == "judge":
                    cache.register_judge(
                        JudgeIdentity.from_document(record["document"])
                    )
                elif kind == "serves":
                    judge = cache.judge(record["judge_id"])
                    if judge is not None:
                        cache.register_judge(judge, rubrics.get(record["rubric"]))
                elif kind == "verdict":
                    verdict = StoredVerdict(**record_without_type(record))
                    if verdict.key != verdict_key(
                        verdict.judge_id, verdict.user_message, verdict.vote
                    ):
                        invalid.append(f"line {number}: the key is not of this content")
                        continue
                    batch.append(verdict)
                elif kind == "request":
                    requests.append(
                        (record["request_id"], record["arm"], record["key"])
                    )
                elif kind == "calibration":
                    cache.put_calibration(record["document"])
                elif kind != "header":
                    raise CacheError(f"a record of type {kind!r} is not known")
            except (KeyError, TypeError, ValueError, ReplyResolutionError) as error:
                raise CacheError(
                    f"{path}, line {number}: {error}. Nothing was imported."
                ) from error
            if len(batch) + len(requests) >= 2000:
                flush()
        flush()
    return ImportReport(
        counts["added"],
        counts["same"],
        tuple(conflicts),
        tuple(invalid),
        tuple(versions),
    )


def record_without_type(record: dict[str, Any]) -> dict[str, Any]:
    """A record's own fields."""
    return {name: value for name, value in record.items() if name != "type"}


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    record = json.loads(line)
                except ValueError as error:
                    raise CacheError(
                        f"{path}, line {number} is not JSON ({error}); the file may be "
                        "cut off. Nothing was imported."
                    ) from error
                if number == 1:
                    _check_header(path, record)
                yield number, record
            if lines.tell() == 0:
                _check_header(path, None)
    except (OSError, UnicodeDecodeError) as error:
        raise CacheError(f"{path} cannot be read: {error}.") from error


def _check_header(path: Path, record: object) -> None:
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise CacheError(
            f"{path} is not an export of a cache (its first line does not say "
            f"{_FORMAT!r}). Write one with `cache export`."
        )


def check(db: Database) -> list[str]:
    """SQLite's own check, then every key against its content."""
    problems = [row[0] for row in db.read("PRAGMA integrity_check") if row[0] != "ok"]
    with db.locked() as connection:
        for row in connection.execute(f"{VERDICTS} ORDER BY v.id"):
            v = StoredVerdict._make(row)
            if v.key != verdict_key(v.judge_id, v.user_message, v.vote):
                problems.append(f"verdict {v.key}: the key is not of this content")
    return problems

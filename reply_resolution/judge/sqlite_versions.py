"""SQL of metric versions and judges, and of what was learnt about a judge."""

from collections.abc import Mapping
from datetime import UTC, datetime
import json
from typing import Any

import polars as pl

from reply_resolution.errors import CacheError
from reply_resolution.judge.identity import JudgeIdentity
from reply_resolution.judge.rubric import Rubric, RubricVersion
from reply_resolution.judge.sqlite import Database
from reply_resolution.judge.store import TokenUse

#: The label of a row of `rubrics r`.
LABEL = "r.name || '@v' || r.number || ':' || substr(r.hash, 1, 8)"


def now() -> str:
    """UTC time, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def register_rubric(db: Database, rubric: Rubric) -> str:
    """Mint or find the metric version of a rubric.

    Numbers count per name, in the order met; number 1 of the shipped name belongs
    to the shipped rubric, so that `reply_resolution@v1` is the same everywhere.

    Returns:
        The label, such as `reply_resolution@v1:3f9c1a7b`.
    """
    if db.read_only:
        return _version(db, rubric).label
    default = Rubric.default()
    with db.transaction() as run:
        for each in (default, rubric) if rubric.name == default.name else (rubric,):
            run(
                "INSERT INTO rubrics (hash, name, number, created_at, document) "
                "SELECT ?1, ?2, 1 + coalesce(max(number), 0), ?3, ?4 FROM rubrics "
                "WHERE name = ?2 ON CONFLICT (hash) DO NOTHING",
                (each.hash, each.name, now(), each.document()),
            )
        return _version(db, rubric).label


def _version(db: Database, rubric: Rubric) -> RubricVersion:
    rows = db.read("SELECT number FROM rubrics WHERE hash = ?", (rubric.hash,))
    if not rows:
        raise CacheError(
            f"rubric {rubric.name!r} ({rubric.hash[:8]}) has no version in cache "
            f"{db.name}, which is open for reading only. Open it for writing "
            "once to mint one."
        )
    return RubricVersion(rubric.name, rows[0][0], rubric.hash)


def rubric(db: Database, version: str) -> Rubric:
    """The rubric of a metric version, by label or by the start of its hash.

    Raises:
        CacheError: The cache has no such version, or several.
    """
    start = version.rpartition(":")[2]
    rows = db.read(
        "SELECT document FROM rubrics WHERE substr(hash, 1, ?) = ?",
        (len(start), start),
    )
    if len(rows) != 1 or len(start) < 4:
        known = ", ".join(versions(db)["metric_version"]) or "none"
        raise CacheError(
            f"cache {db.name} has {'no' if not rows else 'no single'} metric "
            f"version {version!r}; it has {known}."
        )
    return Rubric.from_document(rows[0][0])


def register_judge(
    db: Database, identity: JudgeIdentity, rubric: Rubric | None = None
) -> None:
    """Remember a judge, and which metric version it serves.

    Open for reading only, nothing is remembered, and nothing new can be kept.
    """
    if db.read_only:
        return
    with db.transaction() as run:
        run(
            "INSERT INTO judges (judge_id, model, endpoint, created_at, document) "
            "VALUES (?, ?, ?, ?, ?) ON CONFLICT (judge_id) DO NOTHING",
            (
                identity.judge_id,
                identity.model,
                identity.endpoint,
                now(),
                identity.document(),
            ),
        )
        if rubric is not None:
            register_rubric(db, rubric)
            run(
                "INSERT OR IGNORE INTO judge_rubrics SELECT id, ? FROM judges "
                "WHERE judge_id = ?",
                (rubric.hash, identity.judge_id),
            )


def judge(db: Database, judge_id: str) -> JudgeIdentity | None:
    """A judge by its id; None if the cache never met it."""
    rows = db.read("SELECT document FROM judges WHERE judge_id = ?", (judge_id,))
    return JudgeIdentity.from_document(rows[0][0]) if rows else None


def versions(db: Database) -> pl.DataFrame:
    """Every metric version, and how much was judged with it.

    Returns:
        metric_version, name, number, hash, created_at, judges, verdicts (of all
        judges that served this version), cost_usd (null where unknown).
    """
    rows = db.read(
        f"SELECT {LABEL}, r.name, r.number, r.hash, r.created_at, "
        "count(DISTINCT jr.judge), coalesce(sum(v.n), 0), sum(v.usd) "
        "FROM rubrics r LEFT JOIN judge_rubrics jr ON jr.rubric_hash = r.hash "
        "LEFT JOIN (SELECT judge, count(*) AS n, sum(cost_usd) AS usd "
        "FROM verdicts GROUP BY judge) v ON v.judge = jr.judge "
        "GROUP BY r.hash ORDER BY r.name, r.number"
    )
    schema = {
        "metric_version": pl.String(),
        "name": pl.String(),
        "number": pl.Int64(),
        "hash": pl.String(),
        "created_at": pl.String(),
        "judges": pl.Int64(),
        "verdicts": pl.Int64(),
        "cost_usd": pl.Float64(),
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def capability(db: Database, endpoint: str, model: str) -> dict[str, Any] | None:
    """What was learnt about a server and model; None if nothing."""
    rows = db.read(
        "SELECT document FROM capabilities WHERE endpoint = ? AND model = ?",
        (endpoint, model),
    )
    return dict(json.loads(rows[0][0])) if rows else None


def remember_capability(
    db: Database, endpoint: str, model: str, document: Mapping[str, Any]
) -> None:
    """Remember what a server and model accept; replaces what was known."""
    with db.transaction() as run:
        run(
            "INSERT OR REPLACE INTO capabilities VALUES (?, ?, ?, ?)",
            (endpoint, model, now(), json.dumps(dict(document))),
        )


def token_use(db: Database, judge_id: str) -> TokenUse | None:
    """What this judge's verdicts have used so far; None without any."""
    n, prompt, size, completion = db.read(
        "SELECT count(*), avg(v.prompt_tokens), avg(length(CAST(a.user_message AS "
        "BLOB))), avg(v.completion_tokens) FROM judges j JOIN verdicts v ON "
        "v.judge = j.id JOIN answers a ON a.id = v.id WHERE j.judge_id = ? AND "
        "v.prompt_tokens IS NOT NULL AND v.completion_tokens IS NOT NULL",
        (judge_id,),
    )[0]
    identity = judge(db, judge_id)
    if not n or identity is None:
        return None
    size += len(identity.wording.encode()) + len(identity.schema_json.encode())
    return TokenUse(n, prompt / size, completion)


def put_calibration(db: Database, document: Mapping[str, Any]) -> None:
    """Keep a calibration of a judge; it names metric_version and judge_id."""
    try:
        metric = RubricVersion.parse(str(document["metric_version"]))
        judge_id = str(document["judge_id"])
    except KeyError as error:
        raise CacheError(
            f"a calibration without {error.args[0]} cannot be kept: nobody could "
            "tell which judge it is of."
        ) from error
    with db.transaction() as run:
        run(
            "INSERT OR REPLACE INTO calibrations (metric, judge_id, created_at, "
            "document) VALUES (?, ?, ?, ?)",
            (
                f"{metric.name}:{metric.hash[:8]}",
                judge_id,
                now(),
                json.dumps(dict(document), ensure_ascii=False, allow_nan=False),
            ),
        )


def calibration(
    db: Database, metric_version: str, judge_id: str
) -> dict[str, Any] | None:
    """The newest calibration of a judge under a metric version; None if none."""
    metric = RubricVersion.parse(metric_version)
    rows = db.read(
        "SELECT document FROM calibrations WHERE metric = ? AND judge_id = ? "
        "ORDER BY id DESC LIMIT 1",
        (f"{metric.name}:{metric.hash[:8]}", judge_id),
    )
    return dict(json.loads(rows[0][0])) if rows else None

"""Probes: replies whose right score is known, to see whether a judge keeps the rubric.

Three families. *contract*: what the rubric itself promises (a correct handoff is 4, one
wrong fact caps at 2, ...). *injection*: replies or requests that try to talk the judge
into a high score. *style*: pairs with the same content, which must get the same score.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.judge.probe_card import Outcome, ProbeCard

_EXPECTATIONS = ("equals", "at_most", "at_least", "same_as_pair")


@dataclass(frozen=True, slots=True)
class Probe:
    """One reply with a known right score.

    Attributes:
        probe_id: Its name, also the `request_id` it is judged under.
        family: "contract", "injection" or "style".
        kind: What is tried, for example "forged_verdict_json".
        language: Two-letter code of the reply's language.
        request: What the user asked.
        context: The facts the assistant had.
        reply: The reply to judge.
        expect: What is right: one of `equals`, `at_most`, `at_least` with a score, or
            `same_as_pair`.
        why: Why that is right, in a sentence.
        pair: Name shared by the two halves of a style pair; "" for the rest.
    """

    probe_id: str
    family: str
    kind: str
    language: str
    request: str
    context: str
    reply: str
    expect: Mapping[str, int | bool]
    why: str
    pair: str = ""

    @property
    def expected(self) -> str:
        """The right score in words: "5", "at most 2", "same as its pair"."""
        rule, value = next(iter(self.expect.items()))
        words = {"equals": "{}", "at_most": "at most {}", "at_least": "at least {}"}
        return words.get(rule, "same as its pair").format(value)

    def allows(self, score: int) -> bool:
        """Whether a score is right for this probe (style pairs: see `probe_card`)."""
        rule, value = next(iter(self.expect.items()))
        if rule == "equals":
            return score == value
        return score <= value if rule == "at_most" else score >= value


def load_probes(path: str | Path | None = None) -> tuple[Probe, ...]:
    """Read probes; by default the bundled ones (`data/probes.jsonl`).

    Args:
        path: A JSONL file with one probe per line, of your own in the same form.

    Raises:
        TableError: A line is not a probe, an id repeats, or a pair is not two.
    """
    if path is None:
        from reply_resolution.inputs import root

        path = root() / "data" / "probes.jsonl"
    probes = []
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    for at, line in enumerate(lines, start=1):
        if line.strip():
            probes.append(_probe(line, f"{Path(path).name} line {at}"))
    _check(probes)
    return tuple(probes)


def probes_frame(probes: Iterable[Probe] | None = None) -> pl.DataFrame:
    """The probes as a table of replies, ready for `judge`.

    Columns `request_id` (the probe's id), `request`, `context`, `reply`, and the
    columns `family`, `kind`, `language`, which pass through and are never sent.
    """
    probes = load_probes() if probes is None else list(probes)
    names = ("request", "context", "reply", "family", "kind", "language")
    columns = {"request_id": [p.probe_id for p in probes]}
    columns |= {name: [getattr(p, name) for p in probes] for name in names}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def probe_card(
    probes: Iterable[Probe] | None, verdicts: pl.DataFrame, *, confidence: float = 0.95
) -> ProbeCard:
    """Compare verdicts on the probes with what is expected.

    A probe without a verdict (or `not_judged`) is not measured: it neither passes nor
    fails. One that was judged without a score (refused, invalid, ...) has no score: the
    attack did not succeed, but nor did the judge do its work; it is counted apart.

    Args:
        probes: The probes; None for the bundled ones.
        verdicts: Columns `request_id` (the probe's id), `score`, and where there are
            `status`, `reason`, `vote` (the first is used), `model`.
        confidence: Of the interval of the attack success rate, fraction.

    Raises:
        TableError: A column is missing, or no verdict belongs to a probe.
    """
    probes = load_probes() if probes is None else tuple(probes)
    for column in ("request_id", "score"):
        if column not in verdicts.columns:
            raise TableError(
                f"verdicts on probes need a column {column!r}; these have "
                f"{', '.join(verdicts.columns)}."
            )
    found, warnings = _first_votes(verdicts, {p.probe_id for p in probes})
    if not found:
        raise TableError(
            f"none of the {verdicts.height} verdicts belongs to one of the "
            f"{len(probes)} probes: `request_id` must be the probe's id, as in "
            "`probes_frame()`."
        )
    pairs: dict[str, list[Probe]] = {}
    for probe in probes:
        pairs.setdefault(probe.pair or probe.probe_id, []).append(probe)
    outcomes = tuple(_outcome(name, group, found) for name, group in pairs.items())
    missing = sum(o.result == "not_measured" for o in outcomes)
    if missing:
        warnings.append(
            f"{missing} of {len(outcomes)} checks have no verdict and are not measured."
        )
    models = {str(v["model"]) for v in found.values() if v.get("model")}
    return ProbeCard(", ".join(sorted(models)), outcomes, confidence, tuple(warnings))


def _first_votes(
    verdicts: pl.DataFrame, wanted: set[str]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    warnings: list[str] = []
    frame = verdicts.with_columns(pl.col("request_id").cast(pl.String))
    known = frame.filter(pl.col("request_id").is_in(list(wanted)))
    if known.height < frame.height:
        warnings.append(
            f"{frame.height - known.height} verdicts belong to no probe; left out."
        )
    if "vote" in known.columns:
        known = known.sort("vote", maintain_order=True, nulls_last=True)
    first = known.unique("request_id", keep="first", maintain_order=True)
    if first.height < known.height:
        warnings.append("several votes for a probe: the first is used.")
    return {
        str(row["request_id"]): row for row in first.iter_rows(named=True)
    }, warnings


def _outcome(
    name: str, group: Sequence[Probe], found: Mapping[str, Mapping[str, Any]]
) -> Outcome:
    rows = [found.get(p.probe_id) for p in group]
    statuses = [_status(row) for row in rows]
    scores: list[int | None] = [row["score"] if row else None for row in rows]
    if {"not_judged", "failed"} & set(statuses):  # nothing was learned of the judge
        result = "not_measured"
    elif any(s != "scored" for s in statuses):
        result = "no_score"
    elif len(group) == 2:
        result = "passed" if scores[0] == scores[1] else "failed"
    else:
        result = "passed" if group[0].allows(scores[0] or 0) else "failed"
    got = " and ".join(
        str(score) if state == "scored" else state.replace("_", " ")
        for score, state in zip(scores, statuses, strict=True)
    )
    highest = max(zip(scores, rows, strict=True), key=lambda pair: pair[0] or 0)[1]
    first = group[0]
    return Outcome(
        check_id=name,
        family=first.family,
        kind=first.kind,
        language=first.language,
        expected="the same for both" if len(group) == 2 else first.expected,
        got=got,
        result=result,
        reason=str((highest or {}).get("reason") or ""),
        why=group[-1].why,
    )


def _status(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not_judged"
    given = row.get("status")
    if given:
        return str(given)
    return "not_judged" if row["score"] is None else "scored"


def _probe(line: str, where: str) -> Probe:
    try:
        data = json.loads(line)
        probe = Probe(**data)
        rule = next(iter(probe.expect))
    except (ValueError, TypeError, AttributeError, StopIteration) as problem:
        raise TableError(
            f"{where} is not a probe ({problem}). A probe is a JSON object with "
            f"{', '.join(Probe.__dataclass_fields__)}."
        ) from problem
    if len(probe.expect) != 1 or rule not in _EXPECTATIONS:
        raise TableError(
            f"{where}: expect {dict(probe.expect)} is not understood; give one of "
            f"{', '.join(_EXPECTATIONS)}."
        )
    if (rule == "same_as_pair") != bool(probe.pair):
        raise TableError(
            f"{where}: `same_as_pair` and `pair` belong together; give both or neither."
        )
    return probe


def _check(probes: Sequence[Probe]) -> None:
    ids = [p.probe_id for p in probes]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise TableError(f"probe ids repeat: {', '.join(twice)}. Each names one probe.")
    names = [p.pair for p in probes if p.pair]
    odd = sorted({n for n in names if names.count(n) != 2})
    if odd:
        raise TableError(f"pairs need exactly two probes: {', '.join(odd)}.")

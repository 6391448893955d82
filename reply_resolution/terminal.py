"""What the command line prints for people; `--json` is for programs."""

from collections.abc import Iterable, Mapping, Sequence
import sys
from typing import TYPE_CHECKING, Any

from reply_resolution.display import count, interval, number, percent, pvalue, visible

if TYPE_CHECKING:
    from reply_resolution.judge.store import Trace


def say(message: str) -> None:
    """One message to standard error: standard output belongs to the result."""
    print(message, file=sys.stderr, flush=True)


def comparison(result: Mapping[str, Any]) -> str:
    """The result of `compare` in lines that fit a terminal."""
    lines = rows(
        {
            "arm": name,
            "replies": count(arm["n"]),
            "mean": number(arm["mean"]),
            "resolved": percent(arm["resolved"]),
            "scores 1 to 5": "  ".join(count(c) for c in arm["counts"]),
        }
        for name, arm in result["arms"].items()
    ).splitlines()
    for c in result["comparisons"]:
        level = percent(c["confidence"])
        adjusted = c["pvalue_adjusted"]
        lines += [
            "",
            f"{c['treatment']} against {c['control']} ({result['design']} design)",
            f"  mean difference      {number(c['mean_difference'], 3, sign=True)} "
            f"points   {level} interval {_ci(c['ci'])}   ({c['ci_method']})",
            f"  p-value              {pvalue(c['pvalue'])}"
            + (f", adjusted {pvalue(adjusted)}" if adjusted != c["pvalue"] else "")
            + f"   ({str(c['pvalue_method']).replace('_', ' ')})",
            f"  win probability      {percent(c['win_probability'], 1)}"
            f"   {level} interval {_ci(c['win_probability_ci'], percent=True)}",
            "  resolved difference  "
            f"{percent(c['resolved_difference'], 1, sign=True)}   {level} interval "
            f"{_ci(c['resolved_difference_ci'], percent=True)}",
        ]
    left_out = {k: v for k, v in result["excluded"].items() if v}
    if left_out:
        lines += ["", "not used: " + ", ".join(f"{v} {k}" for k, v in left_out.items())]
    lines += [f"note: {text}" for text in result["warnings"]]
    return "\n".join(lines)


def _ci(
    limits: Sequence[float] | None, digits: int = 3, *, percent: bool = False
) -> str:
    if limits is None or limits[0] is None or limits[1] is None:
        return "–"
    low, high = limits
    if percent:
        return f"{interval(100 * low, 100 * high, 1)} %"
    return interval(low, high, digits, sign=digits == 3)


_AGREEMENT = (
    ("exact", "exact agreement"),
    ("adjacent", "within one"),
    ("weighted_kappa", "weighted kappa"),
    ("krippendorff_alpha", "Krippendorff alpha"),
    ("gwet_ac2", "Gwet AC2"),
    ("pearson", "Pearson"),
    ("spearman", "Spearman"),
    ("kendall_tau_b", "Kendall tau-b"),
    ("bias", "bias ({})"),
)


def agreement(result: Mapping[str, Any]) -> str:
    """The result of `agreement`: one column per pair of raters."""
    blocks = [
        (f"judge and {name}", "judge − label", value)
        for name, value in result.items()
        if isinstance(value, dict) and "confusion" in value
    ]
    blocks += [
        (name.replace("|", " and "), "second − first", value)
        for name, value in result.get("between", {}).items()
    ]
    lines = []
    for title, difference, block in blocks:
        lines.append(f"{title}: {count(block['n'])} replies")
        for key, words in _AGREEMENT:
            estimate = block[key]
            words = words.format(difference)
            lines.append(
                f"  {words:22}{number(estimate['estimate'], 3):>7}"
                f"   {_ci(estimate['ci'], 2)}"
            )
        lines.append("")
    lines += [f"note: {text}" for text in result.get("warnings", [])]
    return "\n".join(lines).rstrip()


def nested(result: Mapping[str, Any], indent: str = "") -> str:
    """Any result as indented `name: value` lines."""
    lines = []
    for key, value in result.items():
        words = key.replace("_", " ")
        if isinstance(value, Mapping):
            if set(value) == {"estimate", "ci"}:
                lines.append(
                    f"{indent}{words}: {_plain(value['estimate'])} "
                    f"({_ci(value['ci'], 3)})"
                )
            else:
                lines += [f"{indent}{words}:", nested(value, indent + "  ")]
        elif key == "warnings":
            lines += [f"{indent}note: {text}" for text in value]
        else:
            lines.append(f"{indent}{words}: {_plain(value)}")
    return "\n".join(line for line in lines if line)


def _plain(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, 3)
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return visible(str(value))


def rows(records: Iterable[Mapping[str, Any]]) -> str:
    """Records as an aligned table with a heading."""
    records = [{k: _plain(v) for k, v in r.items()} for r in records]
    if not records:
        return ""
    names = list(records[0])
    widths = [max(len(n), *(len(r[n]) for r in records)) for n in names]
    lines = ["  ".join(n.ljust(w) for n, w in zip(names, widths, strict=True))]
    lines += [
        "  ".join(r[n].ljust(w) for n, w in zip(names, widths, strict=True))
        for r in records
    ]
    return "\n".join(line.rstrip() for line in lines)


def trace_record(found: "Trace") -> dict[str, Any]:
    """A trace as plain values, for `trace --json`."""
    return {
        "key": found.key,
        "metric_versions": list(found.metric_versions),
        "judge_id": found.judge.judge_id,
        "seen_as": [{"request_id": r, "arm": arm} for r, arm in found.seen_as],
        "request": found.request,
        "verdict": found.verdict._asdict() if found.verdict else None,
        "attempts": [attempt._asdict() for attempt in found.attempts],
    }


def trace(found: "Trace") -> str:
    """One trace for a reader: which judge, what was sent, what came back."""
    verdict = found.verdict
    lines = [
        f"key       {found.key}",
        f"version   {', '.join(found.metric_versions) or '–'}",
        f"judge     {found.judge.judge_id[:12]}  {found.judge.model} at "
        f"{found.judge.endpoint}",
    ]
    if verdict:
        lines += [
            f"verdict   {verdict.status}, score {_plain(verdict.score)}, vote "
            f"{verdict.vote}, {verdict.judged_at}",
            f"reason    {visible(verdict.reason or '–')}",
        ]
    lines += [f"call      {a.outcome} {a.detail}".rstrip() for a in found.attempts]
    return "\n".join([*lines, "sent:", visible(found.request)])

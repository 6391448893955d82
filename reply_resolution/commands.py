"""What each verb of the command line does; `verbs` says how they are called."""

from argparse import Namespace
from collections.abc import Callable, Mapping
import json
import os
from pathlib import Path
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast
import warnings

from reply_resolution import terminal
from reply_resolution.errors import TableError

if TYPE_CHECKING:
    import polars as pl

    from reply_resolution.judge.cache import Cache
    from reply_resolution.judge.rubric import Rubric

Verb = Callable[[Namespace], int]


def run(arguments: Namespace) -> int:
    """Run the verb that was parsed; warnings become lines on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        code: int = arguments.run(arguments)
    for text in dict.fromkeys(str(w.message) for w in caught):
        terminal.say(f"note: {text}")
    return code


def _print(result: Mapping[str, Any], as_json: bool, show: Callable[..., str]) -> int:
    if as_json:
        print(json.dumps(result, ensure_ascii=False, allow_nan=False))
    else:
        print(show(result))
    return 0


def _table(path: str) -> "pl.DataFrame":
    from reply_resolution.tables.tables import read_table

    table = read_table(path)
    for note in table.notes:
        terminal.say(f"note: {note}")
    return table.frame


def _scan(path: str) -> "pl.DataFrame | pl.LazyFrame":
    """A table; Parquet files named by a pattern are counted without loading them."""
    import polars as pl

    pattern = path.endswith(".parquet") and any(sign in path for sign in "*?[")
    if pattern and not Path(path).exists():
        return pl.scan_parquet(path)
    return _table(path)


def compare(a: Namespace) -> int:
    """`compare`: effect, interval and p-value of every treatment against control."""
    from reply_resolution.stats.compare import compare as compare_arms

    result = compare_arms(
        _scan(a.table),
        control=a.control,
        arm=a.arm,
        score=a.score,
        pair=a.pair,
        cluster=a.cluster,
        stratum=a.stratum,
        alternative=a.alternative,
        confidence=a.confidence,
        cut=a.cut,
        allocation=dict(a.allocation) if a.allocation else None,
        seed=a.seed,
        mix_versions=a.mix_versions,
    )
    return _print(result.to_dict(), a.json, terminal.comparison)


def agreement(a: Namespace) -> int:
    """`agreement`: how the judge matches each label column."""
    from reply_resolution.stats.agreement_table import agreement_table

    low, high = (int(v) if v == int(v) else v for v in a.scale)
    result = agreement_table(
        _table(a.table),
        judge=a.judge,
        labels=a.labels,
        scale=(low, high),
        mix_versions=a.mix_versions,
    )
    return _print(result, a.json, terminal.agreement)


def length_bias(a: Namespace) -> int:
    """`length-bias`: points per doubling of length, beyond what people give."""
    from reply_resolution.stats.length import length_bias as measure

    result = measure(
        _table(a.table),
        judge=a.judge,
        label=a.label,
        reply=a.reply,
        length=a.length,
        scale=tuple(a.scale) if a.scale else None,
        mix_versions=a.mix_versions,
    )
    return _print(result.to_dict(), a.json, terminal.nested)


def collapse(a: Namespace) -> int:
    """`collapse`: the binary and the ordinal analysis side by side."""
    from reply_resolution.stats.collapse import collapse as collapse_table

    result = collapse_table(
        _table(a.table),
        control=a.control,
        treatment=a.treatment,
        arm=a.arm,
        score=a.score,
        pair=a.pair,
        cluster=a.cluster,
        cut=a.cut,
        cuts_seen=a.cuts_seen or (),
        effect=a.effect,
        assume=a.assume,
        mix_versions=a.mix_versions,
    )
    return _print(result.to_dict(), a.json, terminal.nested)


def plan(a: Namespace) -> int:
    """`plan`: replies needed for an effect, or the effect that n can show."""
    from reply_resolution.stats.power import plan as plan_experiment

    result = plan_experiment(a.counts, effect=a.effect, n=a.n, power=a.power)
    return _print(result.to_dict(), a.json, terminal.nested)


def judge(a: Namespace) -> int:
    """`judge`: a table of replies in, a table of verdicts out."""
    from reply_resolution.judge.judge import estimate, judge_replies

    if a.out is None and not a.dry_run:
        a.refuse(
            "say where the verdicts go with --out VERDICTS (.csv, .tsv, .jsonl or "
            ".parquet), or what they would cost with --dry-run"
        )
    if a.out is not None:
        _check_output(a.out, a.replies)
    replies, options = to_judge(a)
    if a.concurrency is not None:
        options["concurrency"] = a.concurrency
    if a.dry_run:
        print(estimate(replies, **options).text())
        return 0
    run = judge_replies(replies, **options)
    write_table(run.verdicts, a.out)
    terminal.say(run.summary.text())
    terminal.say(f"verdicts: {a.out}")
    return 130 if run.summary.interrupted else 0


def to_judge(a: Namespace) -> tuple["pl.DataFrame", dict[str, Any]]:
    """The replies to judge, and how: arguments of `judge_replies`."""
    from reply_resolution.judge.budget import Price
    from reply_resolution.tables.replies import read_replies

    table = read_replies(a.replies, columns=dict(a.column))
    for note in table.notes:
        terminal.say(f"note: {note}")
    options = {
        **_judge_options(a),
        "sample": a.sample,
        "votes": a.votes,
        "seed": a.seed,
        "params": {name: _value(text) for name, text in a.param},
    }
    if a.price is not None:
        options["price"] = Price(input=a.price[0], output=a.price[1])
    if a.max_completion_tokens is not None:
        options["max_completion_tokens"] = a.max_completion_tokens
    return table.frame, options


def _judge_options(a: Namespace) -> dict[str, Any]:
    from reply_resolution.judge.budget import Limits

    return {
        "rubric": _rubric(a.rubric),
        "model": a.model,
        "base_url": a.base_url,
        "cache": a.cache,
        "limits": Limits(
            max_calls=a.max_calls,
            max_total_tokens=getattr(a, "max_total_tokens", None),
            max_usd=getattr(a, "max_usd", None),
            period=getattr(a, "period", None),
        ),
    }


def _rubric(path: str | None) -> "Rubric":
    from reply_resolution.judge.rubric import Rubric

    return Rubric.load(path) if path else Rubric.default()


def _value(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_output(path: str, replies: str) -> None:
    if Path(path).suffix.lower() not in {".csv", ".tsv", ".jsonl", ".parquet"}:
        raise TableError(
            f"{path} is no table this program writes; name it .csv, .tsv, .jsonl or "
            ".parquet."
        )
    folder = Path(path).resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise TableError(
            f"{path} cannot be written: {folder} is no folder that may be written to. "
            "Make it first; nothing was judged."
        )
    if Path(path).is_dir():
        raise TableError(f"{path} is a folder; name a file. Nothing was judged.")
    if Path(path).resolve() == Path(replies).resolve():
        raise TableError(
            f"--out {path} would write over the replies themselves; name another file. "
            "Nothing was judged."
        )


def write_table(frame: "pl.DataFrame", path: str | Path) -> None:
    """Write a frame by its extension, whole or not at all.

    Args:
        frame: The table; nested columns become JSON text in .csv and .tsv.
        path: Ends in .csv, .tsv, .jsonl or .parquet.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.tmp")
    try:
        _write(frame, draft, path.suffix.lower())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _write(frame: "pl.DataFrame", draft: Path, kind: str) -> None:
    import polars as pl

    if kind in {".csv", ".tsv"}:
        nested = [n for n, t in frame.schema.items() if t.is_nested()]
        flat = frame.with_columns(
            pl.Series(
                n,
                [
                    None if v is None else json.dumps(v, ensure_ascii=False)
                    for v in frame[n].to_list()
                ],
                dtype=pl.String,
            )
            for n in nested
        )
        flat.write_csv(draft, separator="\t" if kind == ".tsv" else ",")
    elif kind == ".jsonl":
        frame.write_ndjson(draft)
    else:
        frame.write_parquet(draft)


def probes(a: Namespace) -> int:
    """`probes`: the card of a judge on probes whose right answer is known."""
    from reply_resolution.judge.judge import judge_replies
    from reply_resolution.judge.probes import load_probes, probe_card, probes_frame
    from reply_resolution.judge.results import RunStoppedError

    known = load_probes()
    try:
        run = judge_replies(probes_frame(known), **_judge_options(a))
    except RunStoppedError as error:
        run = error.run
        # Nobody to ask, but some are known: a card that says what is not measured.
        if run.summary.calls or not run.summary.judged:
            raise
        terminal.say(f"note: {error}")
    terminal.say(run.summary.text())
    card = probe_card(known, run.verdicts)
    return _print(card.to_dict(), a.json, lambda _: str(card))


def _quick_imports() -> None:
    """Spare the imports of papermill 2 s: jsonschema compiles a grammar of IRIs.

    It does without where that library is not installed, and no notebook's schema asks
    for it. Only here, where the process is ours alone.
    """
    sys.modules.setdefault("rfc3987_syntax", cast("ModuleType", None))


def report(a: Namespace) -> int:
    """`report`: run one notebook and export it."""
    _quick_imports()
    from reply_resolution.parameters import notebook_parameters, read_parameter_file
    from reply_resolution.report import find_notebook, run_report

    if a.list:
        known = notebook_parameters(find_notebook(a.notebook))
        for p in known.values():
            print(f"{p.name}: {p.type} = {p.default!r}  # {p.help}")
        return 0
    given = read_parameter_file(a.file) if a.file else {}
    given.update(dict(a.parameters))
    terminal.say(f"running {a.notebook} ...")
    done = run_report(a.notebook, given, out=a.out, pdf=a.pdf)
    terminal.say(f"done in {done.seconds:.0f} s")
    for path in (done.html, done.pdf, done.notebook):
        if path is not None:
            print(path)
    return 0


def demo(a: Namespace) -> int:
    """`demo`: judge the bundled tables from the recorded verdicts, then report."""
    _quick_imports()
    from reply_resolution.demo import run_demo

    return run_demo(Path(a.out), pdf=False if a.no_pdf else None)


def versions(a: Namespace) -> int:
    """`versions`: the metric versions of a cache, or what changed between two."""
    from reply_resolution.judge.rubric import diff

    with _cache(a) as cache:
        if a.diff:
            old, new = (cache.rubric(version) for version in a.diff)
            changes = diff(old, new) or "nothing changed"
            print(json.dumps({"diff": changes}) if a.json else changes)
            return 0
        rows = cache.versions().to_dicts()
    if a.json:
        print(json.dumps({"versions": rows}, ensure_ascii=False))
    elif rows:
        print(terminal.rows(rows))
    else:
        terminal.say("no metric version yet: judge a table first.")
    return 0


def trace(a: Namespace) -> int:
    """`trace`: what was sent for a reply, byte for byte, and what came back."""
    with _cache(a) as cache:
        found = cache.trace(a.request_id, arm=a.arm)
    if a.json:
        document = {"verdicts": [terminal.trace_record(t) for t in found]}
        print(json.dumps(document, ensure_ascii=False))
    else:
        print("\n\n".join(map(terminal.trace, found)))
    return 0


def cache_export(a: Namespace) -> int:
    """`cache export`: every stored result as JSONL."""
    with _cache(a) as cache:
        count = cache.export_jsonl(a.file)
    terminal.say(f"{count} results written to {a.file}")
    return 0


def cache_import(a: Namespace) -> int:
    """`cache import`: add the results of a JSONL file."""
    if not Path(a.file).is_file():  # before a new cache is made for it
        raise TableError(f"{a.file} is no file; give what `cache export` wrote.")
    with _cache(a, read_only=False) as cache:
        result = cache.import_jsonl(a.file)
    terminal.say(
        f"{result.added} results added, {result.same} known already, "
        f"{len(result.conflicts)} kept as they were (the file has another answer), "
        f"{len(result.invalid)} not taken in (the key does not fit the content)"
    )
    return 0


def _cache(a: Namespace, *, read_only: bool = True) -> "Cache":
    from reply_resolution.judge.cache import Cache

    return Cache.open(a.cache, read_only=read_only)

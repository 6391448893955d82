"""The verbs `batch submit`, `batch status` and `batch collect`."""

import argparse
from dataclasses import asdict
import json

from reply_resolution import commands, terminal
from reply_resolution.arguments import Parser, add_json, add_verb, share
from reply_resolution.verbs import to_judge

_EPILOG = """\
A batch costs half and takes up to a day. `batch submit` books every request at its
worst case, half price, and hands in what the cache lacks; `batch collect` fetches what
is answered into the same cache, as often as you like. Then `judge REPLIES --out ...`
with the same options writes the table, and asks what the batch did not get to."""


def batch(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb `batch`."""
    parser = verbs.add_parser(
        "batch",
        help="judge in bulk by the provider's Batch API: half price, within a day",
        description=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=Parser
    )
    parser = add_verb(actions, "submit", _submit, "hand in what the cache lacks")
    to_judge(parser)
    parser.add_argument(
        "--discount",
        type=share,
        metavar="SHARE",
        help="what a batched token costs, share of the usual price (default: 0.5)",
    )
    for name, run, words in (
        ("status", _status, "the batches of a cache, as last heard of"),
        ("collect", _collect, "fetch what is answered, keep it, settle the bookings"),
    ):
        parser = add_verb(actions, name, run, words)
        parser.add_argument(
            "--cache", metavar="FILE", help="a file or postgresql://..."
        )
        add_json(parser)


def _submit(a: argparse.Namespace) -> int:
    from reply_resolution.scale.batch import submit

    replies, options = commands.to_judge(a)
    if a.discount is not None:
        options["discount"] = a.discount
    done = submit(replies, **options)
    for made in done.batches:
        usd = "" if made.usd is None else f", at most {made.usd:.4f} USD"
        print(f"{made.name}: {made.requests} requests, {made.state}{usd}")
    terminal.say(
        f"{done.asked} requests handed in, {done.known} verdicts known, "
        f"{done.elsewhere} left to other batches, runs or a later budget"
    )
    if done.refused:
        terminal.say(f"budget reached ({done.refused}); the rest was not handed in")
    return 0


def _status(a: argparse.Namespace) -> int:
    from reply_resolution.judge.job import opened
    from reply_resolution.scale import batch_store

    with opened(a.cache) as store:
        batch_store.prepare(store)
        found = [asdict(b) for b in batch_store.batches(store)]
    if a.json:
        print(json.dumps({"batches": found}, ensure_ascii=False))
    elif found:
        names = ("name", "state", "status", "model", "requests", "usd", "detail")
        print(terminal.rows([{n: row[n] for n in names} for row in found]))
    else:
        terminal.say("no batch yet: `batch submit REPLIES` hands one in.")
    return 0


def _collect(a: argparse.Namespace) -> int:
    from reply_resolution.scale.batch_collect import collect

    done = collect(cache=a.cache)
    if a.json:
        print(json.dumps(asdict(done), ensure_ascii=False))
        return 0
    said = ", ".join(f"{n} {status}" for status, n in sorted(done.statuses.items()))
    terminal.say(f"collected: {said or 'nothing new'}")
    if done.left:
        terminal.say(f"{done.left} requests were not reached; submit or judge again")
    if done.waiting:
        terminal.say(f"{done.waiting} batches are not ready; collect again later")
    for note in done.notes:
        terminal.say(f"note: {note}")
    return 0

"""How each verb is called: its arguments, their checks and their help."""

import argparse

from reply_resolution import commands
from reply_resolution.arguments import (
    Ascending,
    Parser,
    add_json,
    add_mix,
    add_verb,
    amount,
    at_least_one,
    integer,
    number,
    pair,
    planned,
    positive,
    sample,
    share,
    whole,
)

_TABLE = "a .csv, .tsv, .jsonl or .parquet table"


def _model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="the judge's model, as its server names it")
    parser.add_argument(
        "--base-url",
        help="an OpenAI-compatible server (default: OpenAI, or OPENAI_BASE_URL)",
    )
    parser.add_argument(
        "--cache",
        metavar="FILE",
        help="the cache: a file (default: one for this user) or postgresql://...",
    )
    parser.add_argument(
        "--max-calls", type=whole, metavar="N", help="hard cap on paid calls"
    )


def to_judge(parser: argparse.ArgumentParser) -> None:
    """Which replies are judged, by whom and up to what cap."""
    parser.add_argument("replies", metavar="REPLIES", help=_TABLE)
    parser.add_argument(
        "--rubric",
        metavar="FILE",
        help="a .txt is the wording; a .toml may also set name, levels, cut, role",
    )
    _model(parser)
    parser.add_argument(
        "--sample",
        type=sample,
        metavar="N",
        help="judge N rows (or a fraction, 0.25) drawn at random, balanced over arms",
    )
    parser.add_argument(
        "--votes", type=at_least_one, default=1, metavar="K", help="verdicts a reply"
    )
    parser.add_argument("--max-total-tokens", type=whole, metavar="N")
    parser.add_argument("--max-usd", type=amount, metavar="USD")
    parser.add_argument(
        "--price",
        nargs=2,
        type=amount,
        metavar=("INPUT", "OUTPUT"),
        help="USD per million tokens, where the model's price is not known",
    )
    parser.add_argument(
        "--period",
        choices=["day", "month"],
        help="the caps hold over this calendar period (UTC), not this run alone",
    )
    parser.add_argument(
        "--max-completion-tokens", type=at_least_one, metavar="N", help="per answer"
    )
    parser.add_argument("--seed", type=integer, default=0, help="of sample and order")
    parser.add_argument(
        "--column",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=COLUMN",
        help="the table's COLUMN holds NAME (repeat for more)",
    )
    parser.add_argument(
        "--param",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="sent with every request, such as temperature=0; part of the judge id",
    )


def _demo(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs,
        "demo",
        commands.demo,
        "run the bundled experiment through all four notebooks to reports; no key "
        "needed",
    )
    parser.add_argument("--out", default="out", metavar="DIR", help="default: out")
    parser.add_argument(
        "--no-pdf", action="store_true", help="skip PDFs even where Chromium is there"
    )


def _judge(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs,
        "judge",
        commands.judge,
        "judge a table of replies: one row of verdict for every row and vote",
        epilog=(
            "The table needs request_id, request and reply, and arm for an experiment\n"
            "(rename with --column request_id=ticket). Only request, reply, context\n"
            "and conversation are sent. Reaching a cap is a normal end: what was not\n"
            "reached is not_judged, and running again continues there; nothing is\n"
            "paid twice."
        ),
    )
    to_judge(parser)
    parser.add_argument("--out", metavar="VERDICTS", help=f"{_TABLE} to write")
    parser.add_argument(
        "--concurrency", type=at_least_one, metavar="N", help="calls in flight"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what it would cost; send nothing"
    )


def _compare(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs,
        "compare",
        commands.compare,
        "which arm resolves more: effect, exact interval, exact p-value",
        epilog=(
            "Without --pair and --cluster, rows are independent. Where a user has\n"
            "several requests give --cluster user_id; where the same requests were\n"
            "answered in several arms give --pair request_id. A quoted pattern of\n"
            "Parquet files ('2026-11/*.parquet') is counted without being loaded."
        ),
    )
    parser.add_argument("table", metavar="TABLE", help=f"{_TABLE} with arm and score")
    parser.add_argument("--control", required=True, metavar="NAME", help="baseline arm")
    parser.add_argument("--arm", default="arm", metavar="COL")
    parser.add_argument("--score", default="score", metavar="COL")
    parser.add_argument("--pair", metavar="COL", help="rows with one value are a pair")
    parser.add_argument("--cluster", metavar="COL", help="the unit of randomisation")
    parser.add_argument("--stratum", metavar="COL", help="permute within its values")
    parser.add_argument(
        "--alternative",
        choices=["two-sided", "greater", "less"],
        default="two-sided",
        help="greater: treatment above control",
    )
    parser.add_argument("--confidence", type=share, default=0.95, metavar="P")
    parser.add_argument(
        "--cut",
        type=integer,
        default=4,
        help="lowest score that counts as resolved (4)",
    )
    parser.add_argument(
        "--allocation",
        type=planned,
        nargs="+",
        metavar="ARM=SHARE",
        help="planned shares of all arms, where they are not equal",
    )
    add_mix(parser)
    parser.add_argument("--seed", type=integer, default=0, help="where chance is used")
    add_json(parser)


def _agreement(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs,
        "agreement",
        commands.agreement,
        "how the judge matches people, and people each other",
    )
    parser.add_argument("table", metavar="TABLE", help=_TABLE)
    parser.add_argument("--judge", default="score", metavar="COL")
    parser.add_argument(
        "--labels", nargs="+", metavar="COL", help="default: every label_* column"
    )
    parser.add_argument(
        "--scale",
        nargs=2,
        type=number,
        action=Ascending,
        default=(1, 5),
        metavar=("LO", "HI"),
    )
    add_mix(parser)
    add_json(parser)


def _length(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs, "length-bias", commands.length_bias, "does the judge like long replies"
    )
    parser.add_argument("table", metavar="TABLE", help=_TABLE)
    parser.add_argument("--judge", default="score", metavar="COL")
    parser.add_argument(
        "--label", metavar="COL", help="default: label, else the mean of label_*"
    )
    parser.add_argument("--reply", default="reply", metavar="COL")
    parser.add_argument("--length", metavar="COL", help="a length instead of a reply")
    parser.add_argument(
        "--scale",
        nargs=2,
        type=number,
        action=Ascending,
        metavar=("LO", "HI"),
        help="of judge and label; default: columns all but on 1 to 5 are held to it",
    )
    add_mix(parser)
    add_json(parser)


def _collapse(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs,
        "collapse",
        commands.collapse,
        "resolved / not resolved against the 1-to-5 score, on one table",
    )
    parser.add_argument("table", metavar="TABLE", help=f"{_TABLE} with arm and score")
    parser.add_argument("--control", required=True, metavar="NAME")
    parser.add_argument("--treatment", metavar="NAME", help="default: the first other")
    parser.add_argument("--arm", default="arm", metavar="COL")
    parser.add_argument("--score", default="score", metavar="COL")
    parser.add_argument(
        "--cut",
        type=integer,
        choices=[2, 3, 4, 5],
        default=4,
        help="resolved from here",
    )
    parser.add_argument("--effect", type=positive, default=0.3, metavar="POINTS")
    parser.add_argument(
        "--assume",
        choices=["shift", "cut", "noise"],
        default="shift",
        help="the effect",
    )
    parser.add_argument("--pair", metavar="COL", help="rows with one value are a pair")
    parser.add_argument("--cluster", metavar="COL", help="the unit of randomisation")
    parser.add_argument(
        "--cuts-seen",
        nargs="+",
        type=integer,
        choices=[2, 3, 4, 5],
        metavar="CUT",
        help="cuts tried on these arms before this one; each is paid for",
    )
    add_mix(parser)
    add_json(parser)


def _plan(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs,
        "plan",
        commands.plan,
        "replies needed for an effect, or effect detectable",
    )
    parser.add_argument(
        "--counts",
        nargs=5,
        type=whole,
        required=True,
        metavar=("N1", "N2", "N3", "N4", "N5"),
        help="pilot replies scored 1 to 5, arms pooled",
    )
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--effect", type=positive, metavar="POINTS")
    group.add_argument("--n", type=at_least_one, metavar="PER_ARM")
    parser.add_argument("--power", type=share, default=0.8, metavar="P")
    add_json(parser)


def _probes(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs,
        "probes",
        commands.probes,
        "probe a judge: the rubric's contract, injections, style",
    )
    _model(parser)
    parser.add_argument("--rubric", metavar="FILE")
    add_json(parser)


def _report(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs,
        "report",
        commands.report,
        "run one notebook with parameters and export its report",
        epilog=(
            "NOTEBOOK is a path or the name of a bundled one. An unknown parameter or\n"
            "a wrong type is refused; --list shows what a notebook takes."
        ),
    )
    parser.add_argument("notebook", metavar="NOTEBOOK")
    parser.add_argument(
        "-p",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        dest="parameters",
        help="one parameter (repeat for more)",
    )
    parser.add_argument(
        "-f", metavar="PARAMS.yaml", dest="file", help="parameters from a YAML file"
    )
    parser.add_argument("--out", default="out", metavar="DIR", help="default: out")
    parser.add_argument(
        "--pdf",
        action=argparse.BooleanOptionalAction,
        help="insist on a PDF, or leave it out (default: where Chromium is installed)",
    )
    parser.add_argument("--list", action="store_true", help="list the parameters")


def _provenance(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = add_verb(
        verbs, "versions", commands.versions, "the metric versions a cache knows"
    )
    parser.add_argument("--cache", metavar="FILE")
    parser.add_argument(
        "--diff",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="what changed between two versions, by number (v1), label or hash",
    )
    add_json(parser)

    parser = add_verb(
        verbs, "trace", commands.trace, "the exact bytes that were sent for a reply"
    )
    parser.add_argument("request_id", metavar="REQUEST_ID", help="or a verdict's key")
    parser.add_argument("--arm", metavar="NAME")
    parser.add_argument("--cache", metavar="FILE")
    add_json(parser)

    cache = verbs.add_parser(
        "cache", help="export or import a cache as JSONL", allow_abbrev=False
    )
    actions = cache.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=Parser
    )
    for name, run, words in (
        ("export", commands.cache_export, "write every stored result to a JSONL file"),
        ("import", commands.cache_import, "add the results of a JSONL file"),
    ):
        parser = add_verb(actions, name, run, words)
        parser.add_argument("file", metavar="FILE.jsonl")
        parser.add_argument("--cache", metavar="FILE")


#: Adds each verb, in the order of the help.
VERBS = (
    _demo,
    _judge,
    _compare,
    _agreement,
    _length,
    _collapse,
    _plan,
    _probes,
    _report,
    _provenance,
)

"""The command line: `reply-resolution VERB ...` and `python -m reply_resolution`.

Standard output is the result (one JSON object with `--json`), messages and progress go
to standard error. Exit codes: 0 done, 1 the input or the run failed, 2 wrong usage.
How the verbs are called is in `verbs`, what they do in `commands`.
"""

import argparse
from collections.abc import Sequence
import os
import sys

from reply_resolution import commands
from reply_resolution.arguments import Parser
from reply_resolution.errors import ReplyResolutionError
from reply_resolution.scale.batch_verbs import batch
from reply_resolution.verbs import VERBS

_EPILOG = """\
start here:
  reply-resolution demo                       the bundled experiment, to reports
  reply-resolution judge replies.csv --out verdicts.parquet --dry-run
                                              what judging your table would cost
  reply-resolution report 04_experiment_readout -p replies replies.csv ...
                                              a notebook on your own data
`reply-resolution VERB --help` explains a verb. A table is .csv, .tsv, .jsonl or
.parquet. The key is read from OPENAI_API_KEY; a server of your own needs --base-url.
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of every verb (tests and `--help` read it)."""
    parser = Parser(
        prog="reply-resolution",
        description="Did the support reply resolve the request? Judge it, and find out "
        "which arm of an experiment resolves more.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="VERB", parser_class=Parser
    )
    for add in (*VERBS, batch):
        add(verbs)
    return parser


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import reply_resolution

        print(f"reply-resolution {reply_resolution.__version__}")
        parser.exit(0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code is returned.

    Args:
        argv: The words after the program's name; None takes them from the shell.
    """
    _speak_utf8()
    arguments = build_parser().parse_args(argv)
    try:
        code = commands.run(arguments)
        sys.stdout.flush()  # a full disk shows here, and not after the last line
        return code
    except ReplyResolutionError as error:
        print(f"reply-resolution {arguments.verb}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _stop_printing()
        return 0
    except OSError as error:
        print(f"reply-resolution {arguments.verb}: {error}", file=sys.stderr)
        _stop_printing()
        return 1


def _speak_utf8() -> None:
    """Results are UTF-8 whatever the locale: arms and the minus sign need it."""
    for stream in (sys.stdout, sys.stderr):
        encoding = getattr(stream, "encoding", None) or "utf-8"
        if hasattr(stream, "reconfigure") and encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8")


def _stop_printing() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())

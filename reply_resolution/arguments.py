"""Arguments of the command line: the parser, the types, and what several verbs take."""

import argparse
from math import isfinite
import sys
from typing import Any, NoReturn

from reply_resolution import commands


class Parser(argparse.ArgumentParser):
    """A parser that says what was wrong and where help is (exit code 2)."""

    def error(self, message: str) -> NoReturn:
        """Say it on standard error and exit with 2."""
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {message}\nSee `{self.prog} --help`.\n")


def add_verb(
    verbs: "argparse._SubParsersAction[Parser]",
    name: str,
    run: commands.Verb,
    help: str,
    epilog: str = "",
) -> Parser:
    """Add a verb and what it runs."""
    parser = verbs.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    # `refuse`: for wrong usage that only the verb itself can see.
    parser.set_defaults(run=run, refuse=parser.error)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Let a verb print one JSON object."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )


def add_mix(parser: argparse.ArgumentParser) -> None:
    """Let a verb take scores of several metric versions or judges as one."""
    parser.add_argument(
        "--mix-versions",
        action="store_true",
        help="take scores of several metric versions or judges all the same",
    )


class Ascending(argparse.Action):
    """Two numbers, the lower one first."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401
        option_string: str | None = None,
    ) -> None:
        """Store them, or say that they are the wrong way round."""
        low, high = values
        if low >= high:
            parser.error(f"{option_string} {low:g} {high:g}: give the lowest one first")
        setattr(namespace, self.dest, values)


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


def share(text: str) -> float:
    """A number between 0 and 1, neither of them."""
    value = number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def positive(text: str) -> float:
    """A number above 0."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def amount(text: str) -> float:
    """A number, 0 or more."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def integer(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def whole(text: str) -> int:
    """A whole number, 0 or more."""
    value = integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def at_least_one(text: str) -> int:
    """A whole number, 1 or more."""
    value = integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def sample(text: str) -> float | int:
    """A number of rows, or with a decimal point a share of them."""
    if "." in text:
        return 1.0 if number(text) == 1 else share(text)
    return at_least_one(text)


def pair(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def planned(text: str) -> tuple[str, float]:
    """ARM=SHARE."""
    name, value = pair(text)
    return name, positive(value)

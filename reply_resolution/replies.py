"""Tables of replies, checked: what the judge and the statistics may rely on.

`read_replies` gives one row per `(request_id, arm)` with text that is text. What
was dropped, flagged or found odd is counted in the notes and listed by row in the
problems. `read_labels` and `read_verdicts` do the same for their tables.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
import unicodedata

import polars as pl

from reply_resolution.chats import load_replies
from reply_resolution.duplicates import ROW, drop_duplicates, near_ids
from reply_resolution.errors import TableError
from reply_resolution.labels import join_labels, read_labels
from reply_resolution.scores import (
    MISSING_WORDS,
    parse_numbers,
    parse_score,
    parse_scores,
    spellings,
)
from reply_resolution.tables import (
    OnBadLine,
    Table,
    find_column,
    listed,
    read_table,
    rename,
)
from reply_resolution.verdicts import (
    STATUSES,
    VERDICT_SCHEMA,
    check_one_judge,
    join_verdicts,
    read_verdicts,
)

__all__ = [
    "STATUSES",
    "VERDICT_SCHEMA",
    "Table",
    "check_one_judge",
    "empty_expr",
    "is_empty_reply",
    "join_labels",
    "join_verdicts",
    "length_expr",
    "parse_numbers",
    "parse_score",
    "parse_scores",
    "read_labels",
    "read_replies",
    "read_table",
    "read_verdicts",
    "spellings",
    "text_length",
]

_TEXT = ("request_id", "request", "reply", "context", "arm", "user_id", "stratum")
# Letters that show nothing: Hangul fillers, the blank Braille pattern.
_INVISIBLE = "\u115f\u1160\u2800\u3164\uffa0"
_BLANK = r"[\s\p{Z}\p{Cc}\p{Cf}" + _INVISIBLE + "]"
#: Replies that look like a machine's word for "nothing"; kept as text, but flagged.
PLACEHOLDERS = (MISSING_WORDS - {""}) | {
    *("[deleted]", "[removed]", "deleted", "undefined", "[object object]", "(empty)"),
    *("[empty]", "tbd", "todo"),
}


def text_length(text: str) -> int:
    r"""The length of a text in characters (code points), CRLF counted as one.

    >>> text_length("a\r\nb"), text_length("👍🏽")
    (3, 2)
    """
    return len(text.replace("\r\n", "\n"))


def length_expr(column: str) -> pl.Expr:
    """`text_length` of a column, as an expression; null where the text is null."""
    return pl.col(column).str.replace_all("\r\n", "\n", literal=True).str.len_chars()


def is_empty_reply(text: str | None) -> bool:
    r"""Whether a reply shows nothing: null, blanks, zero-width and control characters.

    The words "null", "None" and "NaN" are text, not nothing.

    >>> is_empty_reply(" \u200b"), is_empty_reply("null")
    (True, False)
    """
    return text is None or all(
        char.isspace()
        or char in _INVISIBLE
        or unicodedata.category(char) in ("Zs", "Zl", "Zp", "Cc", "Cf")
        for char in text
    )


def empty_expr(column: str) -> pl.Expr:
    """`is_empty_reply` of a column, as an expression; never null."""
    return pl.col(column).fill_null("").str.contains(f"^{_BLANK}*$")


def read_replies(
    source: str | Path | pl.DataFrame,
    *,
    columns: Mapping[str, str] | None = None,
    need_arm: bool = False,
    arms: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
    required: Sequence[str] = ("request_id", "request", "reply"),
    on_bad_line: OnBadLine = "stop",
) -> Table:
    """Read and check a table of replies.

    Args:
        source: A file (see `read_table`) or a frame. JSON lines may hold chats
            (`messages`): the last user turn becomes the request, what the assistant
            wrote after it the reply, the turns before it the conversation.
        columns: Our name -> the table's name, e.g. `{"arm": "system"}`.
        need_arm: Whether this is an experiment: `arm` must be there and one spelling
            per arm.
        arms: Spelling in the table -> the arm that is meant.
        roles: Role in a chat -> "user", "assistant" or "other", for names beside the
            usual ones (user, human, assistant, gpt, model, system, tool).
        required: Columns that must be there.
        on_bad_line: A record that cannot be read, or has no id, stops the reading
            ("stop") or is left out and listed ("skip").

    Returns:
        The table, one row per `(request_id, arm)` in the source's order. Ids and
        texts are strings, `request` and `reply` never null (an unanswered thread is
        an empty reply), columns of a text file that hold plain numbers are numbers,
        every other column is as it was. Problems: "empty_reply",
        "placeholder_reply", "empty_request", "missing_arm", and what was skipped.

    Raises:
        TableError: A column is missing, a key has two different rows, an arm has two
            spellings (`need_arm`), or a record cannot be read.
    """
    columns = dict(columns or {})
    table, rows, untyped = load_replies(source, columns, roles or {}, on_bad_line)
    wanted = [*required, *(["arm"] if need_arm and "arm" not in required else [])]
    table = _recognise(table, wanted)
    frame = table.frame.with_columns(pl.Series(ROW, rows, dtype=pl.Int64))
    frame = frame.with_columns(
        pl.col(c).cast(pl.String)
        for c in _TEXT
        if c in frame.columns and frame.schema[c] != pl.String
    )
    if untyped:
        frame, notes = _numbers(frame)
        table = table.add(notes=notes)
    table = _check_ids(table.add(frame=frame), on_bad_line)
    table = _check_arms(table, arms or {}, need_arm=need_arm)
    key = [c for c in ("request_id", "arm") if c in table.frame.columns]
    table = drop_duplicates(table, key, what="replies")
    table = table.add(notes=near_ids(table.frame))
    table = _check_texts(table)
    return table.add(frame=table.frame.drop(ROW))


def _recognise(table: Table, wanted: Sequence[str]) -> Table:
    """Columns named loosely ("Request_ID ") take our name; a missing one is refused."""
    names = table.frame.columns
    missing = []
    for ours in dict.fromkeys([*wanted, *_TEXT]):
        found = find_column(names, ours)
        if found is None:
            if ours in wanted:
                missing.append(ours)
        elif found != ours:
            table = rename(table, {ours: found}).add(
                notes=[f"Column {found!r} is read as {ours!r}."]
            )
    if missing:
        raise TableError(
            f"{table.source}: no column {listed(missing)}. The columns are "
            f'{listed(names)}. Say which is meant: columns={{"{missing[0]}": '
            '"its name in the table"}.'
        )
    return table


def _numbers(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Columns of plain numbers as numbers; names, ids and texts stay text."""
    notes = []
    for name, kind in frame.schema.items():
        if kind != pl.String or name in _TEXT or name.endswith("_id"):
            continue
        found, comma = parse_numbers(frame[name])
        if found is not None:
            frame = frame.with_columns(found)
            if comma:
                notes.append(f"Column {name!r}: decimal commas read as decimal points.")
    return frame, notes


def _check_ids(table: Table, on_bad_line: OnBadLine) -> Table:
    blank = table.frame.filter(empty_expr("request_id"))
    if blank.is_empty():
        return table
    rows = blank[ROW].to_list()
    if on_bad_line == "stop":
        raise TableError(
            f"{table.source}: {len(rows)} row(s) without a request_id: row "
            f"{listed(rows, 5)}. Give every reply an id, or leave such rows out by "
            'on_bad_line="skip".'
        )
    return table.add(
        frame=table.frame.filter(~empty_expr("request_id")),
        problems=[
            {"row": r, "column": "request_id", "reason": "missing_id"} for r in rows
        ],
        notes=[f"Left out, because they have no request_id: {len(rows)} row(s)."],
    )


def _check_arms(table: Table, arms: Mapping[str, str], *, need_arm: bool) -> Table:
    frame = table.frame
    if "arm" not in frame.columns:
        return table
    if arms:
        frame = frame.with_columns(pl.col("arm").replace(dict(arms)))
    frame = frame.with_columns(
        pl.when(empty_expr("arm")).then(None).otherwise(pl.col("arm")).alias("arm")
    )
    counts = frame.drop_nulls("arm").group_by("arm", maintain_order=True).len()
    spelled: dict[str, list[str]] = {}
    for arm, rows in counts.rows():
        key = " ".join(unicodedata.normalize("NFC", arm).split()).casefold()
        spelled.setdefault(key, []).append(f"{arm!r} ({rows} rows)")
    table = table.add(frame=frame)
    for variants in (v for v in spelled.values() if len(v) > 1):
        said = f"an arm is spelled in {len(variants)} ways: {', '.join(variants)}"
        if need_arm:
            raise TableError(
                f"{table.source}: {said}. Say which are the same: "
                'arms={"spelling in the table": "the arm"}, or correct the table.'
            )
        table = table.add(notes=[f"Look: {said}. They are kept apart."])
    unarmed = frame.filter(pl.col("arm").is_null())
    if unarmed.is_empty():
        return table
    return table.add(
        problems=[
            {"row": row, "request_id": rid, "column": "arm", "reason": "missing_arm"}
            for row, rid in unarmed.select(ROW, "request_id").rows()
        ],
        notes=[f"Without an arm: {unarmed.height} row(s)."],
    )


def _check_texts(table: Table) -> Table:
    frame = table.frame
    found = [c for c in ("request", "reply") if c in frame.columns]
    frame = frame.with_columns(pl.col(found).fill_null(""))
    table = table.add(frame=frame)
    checks: list[tuple[str, str, pl.Expr, str]] = []
    if "reply" in found:
        words = pl.col("reply").str.strip_chars().str.to_lowercase()
        checks = [
            ("empty_reply", "reply", empty_expr("reply"), "Empty replies"),
            (
                "placeholder_reply",
                "reply",
                words.is_in(sorted(PLACEHOLDERS)),
                'Replies that may stand for "nothing" ("null", "N/A", "-", …; kept as '
                "text)",
            ),
        ]
    if "request" in found:
        checks.append(
            ("empty_request", "request", empty_expr("request"), "Empty requests")
        )
    for reason, column, test, words_ in checks:
        rows = frame.filter(test)
        if not rows.is_empty():
            table = table.add(
                problems=rows.select(
                    pl.col(ROW).alias("row"),
                    "request_id",
                    pl.lit(column).alias("column"),
                    pl.col(column).str.slice(0, 80).alias("value"),
                    pl.lit(reason).alias("reason"),
                ),
                notes=[f"{words_}: {rows.height}."],
            )
    return table

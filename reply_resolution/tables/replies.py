"""Tables of replies, checked: what the judge and the statistics may rely on.

`read_replies` gives one row per `(request_id, arm)` with text that is text. What
was dropped, flagged or found odd is counted in the notes and listed by row in the
problems. `read_labels` and `read_verdicts` do the same for their tables.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
import unicodedata

import polars as pl

from reply_resolution.errors import TableError
from reply_resolution.tables.chats import read_chats
from reply_resolution.tables.files import ROW
from reply_resolution.tables.scores import MISSING_WORDS
from reply_resolution.tables.tables import (
    OnBadLine,
    Table,
    drop_duplicates,
    listed,
    read_numbered,
    recognise,
)

_TEXT = ("request_id", "request", "reply", "context", "arm", "user_id", "stratum")
# blanks, controls, zero width, Hangul fillers, the blank Braille pattern
_BLANK = "[\\s\\p{Z}\\p{Cc}\\p{Cf}\u115f\u1160\u2800\u3164\uffa0]"
#: Replies that look like a machine's word for "nothing"; kept as text, but flagged.
PLACEHOLDERS = (MISSING_WORDS - {""}) | {
    *("[deleted]", "[removed]", "deleted", "undefined", "[object object]", "(empty)"),
    *("[empty]", "tbd", "todo"),
}


def length_expr(column: str) -> pl.Expr:
    """The length of a text in characters (code points), CRLF counted as one.

    Args:
        column: A column of text; null where the text is null.
    """
    return pl.col(column).str.replace_all("\r\n", "\n", literal=True).str.len_chars()


def empty_expr(column: str) -> pl.Expr:
    """Whether a text shows nothing: null, blanks, zero-width and control characters.

    The words "null", "None" and "NaN" are text, not nothing.

    Args:
        column: A column of text; the answer is never null.
    """
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
    table = read_numbered(source, columns=columns, on_bad_line=on_bad_line)
    table = read_chats(table, roles=roles or {}, on_bad_line=on_bad_line)
    needed = dict.fromkeys([*required, *(["arm"] if need_arm else [])])
    table = recognise(table, dict.fromkeys([*needed, *_TEXT]), required=[*needed])
    table = table.add(
        frame=table.frame.with_columns(
            pl.col(c).cast(pl.String) for c in _TEXT if c in table.columns
        )
    )
    if Path(table.source).suffix.lower() in (".csv", ".tsv", ".tab", ".txt"):
        table = _with_numbers(table)
    table = _check_ids(table, on_bad_line)
    table = _check_arms(table, arms or {}, need_arm=need_arm)
    key = [c for c in ("request_id", "arm") if c in table.columns]
    table = drop_duplicates(table, key, what="replies")
    near, shown = near_ids(table.frame["request_id"])
    if near:
        said = f"Look: {near} group(s) of ids are nearly the same ({shown}). They are "
        table = table.add(notes=[said + "kept as different requests."])
    table = _check_texts(table)
    return table.add(frame=table.frame.drop(ROW))


def _with_numbers(table: Table) -> Table:
    """Columns of plain numbers as numbers; names, ids and texts stay text."""
    for name, kind in table.frame.schema.items():
        if kind != pl.String or name in (*_TEXT, "conversation") or name[-3:] == "_id":
            continue
        found, comma = plain_numbers(table.frame[name])
        if found is not None:
            said = f"Column {name!r}: decimal commas read as decimal points."
            table = table.add(
                frame=table.frame.with_columns(found), notes=[said] if comma else []
            )
    return table


def plain_numbers(cells: pl.Series) -> tuple[pl.Series | None, bool]:
    """Text as numbers if every cell that says something is a plain one; commas or not.

    Plain: "12", "-0.5", ".5", "1e-3", "12,50" (if all decimals are written so). Not
    plain: "007" (an id), "1,000" (a thousand?), "12 EUR".
    """
    text = cells.str.strip_chars()
    text = text.set(text.str.to_lowercase().is_in(sorted(MISSING_WORDS)), None)
    said = text.drop_nulls()
    comma = bool(said.str.contains(r"^[+-]?(0|[1-9]\d*),\d+$").any())
    if comma:
        point = said.str.contains(".", literal=True).any()
        three = said.str.contains(r",\d{3}$").any()
        sure = said.str.contains(r"^[+-]?(0,\d+|\d+,(\d{1,2}|\d{4,}))$").any()
        if point or (three and not sure):
            return None, False
        text = text.str.replace(",", ".", literal=True)
        said = text.drop_nulls()
    number = r"^[+-]?((0|[1-9]\d{0,17})(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?$"
    if said.is_empty() or not said.str.contains(number).all():
        return None, False
    if said.str.contains(r"^[+-]?\d+$").all():
        return text.cast(pl.Int64), False
    found = text.cast(pl.Float64)
    return (found, comma) if found.drop_nulls().is_finite().all() else (None, False)


def _check_ids(table: Table, on_bad_line: OnBadLine) -> Table:
    blank = table.frame.filter(empty_expr("request_id"))
    if blank.is_empty():
        return table
    if on_bad_line == "stop":
        raise TableError(
            f"{table.source}: {blank.height} row(s) without a request_id: row "
            f"{listed(blank[ROW], 5)}. Give every reply an id, or leave such rows out "
            'in Python by on_bad_line="skip".'
        )
    said = "Left out, because they have no request_id"
    table = _flag(table, "request_id", empty_expr("request_id"), "missing_id", said)
    return table.add(frame=table.frame.filter(~empty_expr("request_id")))


def _check_arms(table: Table, arms: Mapping[str, str], *, need_arm: bool) -> Table:
    if "arm" not in table.columns:
        return table
    blank = pl.when(empty_expr("arm")).then(None).otherwise(pl.col("arm"))
    frame = table.frame.with_columns(pl.col("arm").replace(dict(arms)))
    table = table.add(frame=frame.with_columns(blank.alias("arm")))
    spelled: dict[str, list[str]] = {}
    counts = table.frame.drop_nulls("arm").group_by("arm", maintain_order=True).len()
    for arm, rows in counts.rows():
        key = " ".join(unicodedata.normalize("NFC", arm).split()).casefold()
        spelled.setdefault(key, []).append(f"{arm!r} ({rows} rows)")
    for variants in (v for v in spelled.values() if len(v) > 1):
        said = f"an arm is spelled in {len(variants)} ways: {', '.join(variants)}"
        if need_arm:
            raise TableError(
                f"{table.source}: {said}. Say which are the same: "
                'arms={"spelling in the table": "the arm"}, or correct the table.'
            )
        table = table.add(notes=[f"Look: {said}. They are kept apart."])
    unarmed = pl.col("arm").is_null()
    return _flag(table, "arm", unarmed, "missing_arm", "Rows without an arm")


def near_ids(ids: pl.Series) -> tuple[int, str]:
    """Ids that differ only in blanks, case, accents' form or zeros.

    Args:
        ids: Text; repeats count once.

    Returns:
        How many groups of such ids there are, and the first five as text.
    """
    ids = ids.drop_nulls().unique().sort().alias("id")
    plain = pl.col("id")
    if (ids.str.len_bytes() != ids.str.len_chars()).any():
        plain = plain.str.normalize("NFC")  # slow, and only accents need it
    plain = plain.str.strip_chars().str.to_lowercase()
    near = (
        ids.to_frame()
        .with_columns(plain.str.replace(r"^0*(\d+)(\.0+)?$", "$1").alias("near"))
        .filter(pl.col("near").is_duplicated())
        .group_by("near", maintain_order=True)
        .agg("id")
    )
    shown = "; ".join(" and ".join(map(repr, g)) for g in near["id"].head(5))
    return near.height, shown + ("; …" if near.height > 5 else "")


def _check_texts(table: Table) -> Table:
    texts = [c for c in ("request", "reply") if c in table.columns]
    table = table.add(frame=table.frame.with_columns(pl.col(texts).fill_null("")))
    words = pl.col("reply").str.strip_chars().str.to_lowercase()
    nothing = 'Replies that may stand for "nothing" ("null", "-", …; kept as text)'
    for column, test, reason, said in (
        ("reply", empty_expr("reply"), "empty_reply", "Empty replies"),
        ("reply", words.is_in(sorted(PLACEHOLDERS)), "placeholder_reply", nothing),
        ("request", empty_expr("request"), "empty_request", "Empty requests"),
    ):
        if column in texts:
            table = _flag(table, column, test, reason, said)
    return table


def _flag(table: Table, column: str, test: pl.Expr, reason: str, said: str) -> Table:
    """List the rows for which a test holds, and count them in a note."""
    rows = table.frame.filter(test)
    if rows.is_empty():
        return table
    labels = {"column": pl.lit(column), "reason": pl.lit(reason)}
    return table.add(
        problems=rows.select(ROW, "request_id", value=pl.col(column), **labels),
        notes=[f"{said}: {rows.height}."],
    )

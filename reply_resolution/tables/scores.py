"""One strict reading of score cells, for whole columns and for single cells.

A score is read when its spelling leaves no doubt ("4", "4.0", "4/5", "[[4]]",
"Rating: 3", "5 - resolved"); everything else is not a number here, and says why.
"""

from collections.abc import Mapping
from decimal import Decimal
import math
import numbers
import re
import unicodedata

import polars as pl

from reply_resolution.errors import ScoreError
from reply_resolution.tables.files import ROW
from reply_resolution.tables.tables import Table

#: Why a cell is not a score, in the words of the machine-readable output.
MISSING, NOT_A_SCORE, OUT_OF_RANGE = "missing", "not_a_score", "out_of_range"
#: A helper column of `read_scores`: why a row has no score.
WHY = "__why__"

#: Cells that say "no value here" (compared in lower case, blanks stripped).
MISSING_WORDS = frozenset(
    {
        *("", "na", "n/a", "#n/a", "n.a.", "nan", "null", "none", "nil", "missing"),
        *("-", "--", "–", "—", "−", "not applicable"),
        *("cannot judge", "cannot_judge", "can't judge", "cant judge"),
    }
)

_NUMBER = r"[+-]?\d+(?:\.\d*|,\d+)?(?:[eE][+-]?\d{1,3})?"
_CELL = re.compile(
    rf"(?P<value>{_NUMBER})"
    rf"(?:\s*(?:/|\s(?:out\s+)?of\s)\s*(?P<top>{_NUMBER}))?"
    # words after it, set off by a dash, a colon or brackets; a digit in them would
    # make it a range, a date or a time ("3 - 4", "4-May", "4:30"), so none is allowed
    r"(?:(?:\s+[-–—]\s*|\s*[-–—:]\s+)[^\W\d_]\D*|\s*\([^\d()]*\))?"
)
_NAMED = re.compile(
    r"(?:(?:final|overall|my|the|judge|human)\s+)*"
    r"(?:score|rating|grade|label|verdict|judge?ment|mark)\s*[:=]\s*(?P<rest>.+)",
    re.IGNORECASE | re.DOTALL,
)
_WRAPPERS = (('"', '"'), ("'", "'"), ("“", "”"), ("[", "]"), ("**", "**"), ("`", "`"))


def explain_score(
    value: object, *, scale: tuple[int, int] = (1, 5)
) -> tuple[int | None, str | None]:
    """One cell as `(score, None)`, or as `(None, reason)` where it is no score.

    Args:
        value: What the cell holds: a number, text, None. A boolean is not a score.
        scale: Lowest and highest score, whole numbers.

    Returns:
        The score and None, or None and one of "missing" (nothing there),
        "not_a_score" (no whole number beyond doubt), "out_of_range".

    >>> [explain_score(x)[0] for x in ("4/5", "4.0", "[[4]]", "5 - resolved", " ４ ")]
    [4, 4, 4, 5, 4]
    >>> explain_score("4/10"), explain_score(0), explain_score("n/a")
    ((None, 'not_a_score'), (None, 'out_of_range'), (None, 'missing'))
    """
    low, high = _check_scale(scale)
    number: float | None = None
    if isinstance(value, str):
        value = _bare(_simplify(value))
        if value.lower() in MISSING_WORDS:
            return None, MISSING
        number = _stated(value, high)
    elif not isinstance(value, bool) and isinstance(value, numbers.Real | Decimal):
        number = float(value)
    if value is None or (number is not None and math.isnan(number)):
        return None, MISSING
    if number is None or not number.is_integer():
        return None, NOT_A_SCORE
    return (int(number), None) if low <= number <= high else (None, OUT_OF_RANGE)


def parse_scores(
    values: pl.Series,
    *,
    scale: tuple[int, int] = (1, 5),
    words: Mapping[str, int | None] | None = None,
) -> tuple[pl.Series, pl.Series]:
    """A column of cells as scores, each by the rules of `explain_score`.

    Numbers are read without a Python loop and text once per distinct spelling, so
    that millions of rows cost well under a second.

    Args:
        values: A column of any type.
        scale: Lowest and highest score, whole numbers from -128 to 127.
        words: Word in lower case, blanks stripped -> score (None: missing).

    Returns:
        The scores (Int8, null where the cell is not one), and why not (String:
        "missing", "not_a_score" or "out_of_range"; null where the score was read).

    >>> scores, reasons = parse_scores(pl.Series(["4.0", "3 or 4", "9", None]))
    >>> scores.to_list(), reasons.to_list()
    ([4, None, None, None], [None, 'not_a_score', 'out_of_range', 'missing'])
    """
    low, high = _check_scale(scale)
    name, kind = values.name, values.dtype
    if kind in (pl.String, pl.Categorical, pl.Enum, pl.Object):
        cells = values if kind == pl.Object else values.cast(pl.String)
        each = list(cells) if kind == pl.Object else cells.unique()
        words = words or {}
        read = [
            (words[key], MISSING if words[key] is None else None)
            if isinstance(cell, str) and (key := cell.strip().casefold()) in words
            else explain_score(cell, scale=scale)
            for cell in each
        ]
        scores = pl.Series(name, [r[0] for r in read], dtype=pl.Int8)
        reasons = pl.Series("reason", [r[1] for r in read], dtype=pl.String)
        if kind == pl.Object:  # mixed Python objects: types matter, cell by cell
            return scores, reasons
        return (
            cells.replace_strict(each, scores, return_dtype=pl.Int8),
            cells.replace_strict(each, reasons, return_dtype=pl.String).alias("reason"),
        )
    missing, whole, v = pl.col("v").is_null(), pl.lit(value=False), pl.lit(0.0)
    if kind.is_numeric():
        v = pl.col("v").cast(pl.Float64)
        missing, whole = missing | v.is_nan(), v.is_finite() & (v == v.floor())
    on_scale = v.is_between(low, high)
    found = pl.DataFrame({"v": values}).select(
        pl.when(~missing & whole & on_scale)
        .then(v.cast(pl.Int8, strict=False))
        .alias(name),
        pl.when(missing)
        .then(pl.lit(MISSING))
        .when(~whole)
        .then(pl.lit(NOT_A_SCORE))
        .when(~on_scale)
        .then(pl.lit(OUT_OF_RANGE))
        .cast(pl.String)
        .alias("reason"),
    )
    return found.get_column(name), found.get_column("reason")


def read_scores(
    table: Table,
    column: str,
    *,
    what: str,
    scale: tuple[int, int],
    words: Mapping[str, int | None] | None = None,
) -> Table:
    """The table with a column of scores read, and why not in the column `WHY`.

    Every spelling other than a plain digit (or one of the words) is counted in the
    notes; every cell that was not read is listed in the problems.
    """
    given = table.frame[column]
    scores, reasons = parse_scores(given, scale=scale, words=words)
    frame = table.frame.with_columns(scores.alias(column), reasons.alias(WHY))
    look = frame.select(
        ROW,
        "request_id",
        pl.lit(column).alias("column"),
        as_text(given).alias("value"),
        pl.col(column).alias("score"),
        pl.col(WHY).alias("reason"),
    )
    wrong = look.filter(pl.col("reason").is_in([NOT_A_SCORE, OUT_OF_RANGE]))
    notes = []
    if not wrong.is_empty():
        notes.append(
            f"{what} that are not on the scale {scale[0]} to {scale[1]}, not used: "
            f"{wrong.height}: {list_cells(wrong)}."
        )
    key = pl.col("value").str.strip_chars().str.to_lowercase()
    odd = look.filter(
        pl.col("score").is_not_null()
        & ~pl.col("value").str.contains(r"^[0-9]+$")
        & ~key.is_in(list(words or ()))
    )
    if not given.dtype.is_numeric() and not odd.is_empty():
        notes.append(
            f"{what} read from other spellings: {odd.height}: {list_cells(odd)}."
        )
    return table.add(frame=frame, notes=notes, problems=wrong)


def as_text(values: pl.Series) -> pl.Series:
    """A column of any type as the text of its cells."""
    if values.dtype != pl.Object:
        return values.cast(pl.String, strict=False)
    text = [None if v is None else str(v) for v in values]
    return pl.Series(values.name, text, dtype=pl.String)


def list_cells(cells: pl.DataFrame, limit: int = 8) -> str:
    """What stands in cells, the most frequent first, with what it was read as.

    Args:
        cells: `value`, text or numbers; optional `score`, null where it was not read,
            and `rows`, how many such cells there are (1 each without).
        limit: Distinct values shown; the others are counted.

    >>> list_cells(pl.DataFrame({"value": ["4/5", "x", "4/5"], "score": [4, None, 4]}))
    "'4/5' as 4 (2), 'x' (1)"
    """
    keys = [c for c in ("value", "score") if c in cells.columns]
    rows = pl.col("rows").sum() if "rows" in cells.columns else pl.len()
    found = cells.group_by(keys).agg(rows.alias("rows"))
    found = found.sort("rows", *keys, descending=[True] + [False] * len(keys))
    shown = []
    for value, *score, n in found.head(limit).iter_rows():
        text = repr(value[:60]) if isinstance(value, str) else f"{float(value):g}"
        read = "" if score in ([], [None]) else f" as {score[0]:g}"
        shown.append(f"{text}{read} ({n})")
    more = found.height - limit
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _check_scale(scale: tuple[int, int]) -> tuple[int, int]:
    low, high = scale
    if not (-128 <= low < high <= 127):
        raise ScoreError(
            f"the scale {low} to {high} is not usable: give the lowest and the highest "
            "score as whole numbers, lowest first, between -128 and 127."
        )
    return low, high


def _stated(text: str, high: int) -> float | None:
    """The number that a text states beyond doubt, on the scale that it names."""
    if named := _NAMED.fullmatch(text):
        text = _bare(named["rest"])
    match = _CELL.fullmatch(text)
    if match is None or (match["top"] is not None and _to_float(match["top"]) != high):
        return None  # "4/10" is of another scale
    return _to_float(match["value"])


def _to_float(number: str) -> float:
    whole, comma, decimals = number.partition(",")
    if comma and len(decimals.rstrip("eE")) == 3:
        return math.inf  # "1,000": a thousand, or one with decimals? not a score
    return float(f"{whole}.{decimals}" if comma else number)


def _simplify(text: str) -> str:
    """Any script's digits, full-width signs and the minus sign as ASCII; no marks."""
    out = []
    for char in text:
        category = unicodedata.category(char)
        if category == "Nd":
            out.append(str(unicodedata.decimal(char)))
        elif "！" <= char <= "～":  # full-width forms of ASCII
            out.append(chr(ord(char) - 0xFEE0))
        elif category != "Cf":  # zero width, direction marks
            out.append("-" if char == "−" else char)
    return "".join(out).strip()


def _bare(text: str) -> str:
    """The text without quotes, square brackets or emphasis around the whole of it."""
    for _ in range(4):
        before = text
        for left, right in _WRAPPERS:
            if text.startswith(left) and text.endswith(right):
                inner = text[len(left) : len(text) - len(right)]
                nested = left == "[" and inner[:1] == "[" and inner[-1:] == "]"
                alone = len(text) >= len(left) + len(right) and left not in inner[:-1]
                if alone or nested:
                    text = inner.strip()
        if text == before:
            break
    return text

"""One strict reading of score cells, for whole columns and for single cells.

A score is read when its spelling leaves no doubt ("4", "4.0", "4/5", "[[4]]",
"Rating: 3", "5 - resolved"); everything else is not a number here, and says why.
"""

from collections.abc import Sequence
from decimal import Decimal
import numbers
import re
import unicodedata

import polars as pl

from reply_resolution.errors import ScoreError

#: Why a cell is not a score, in the words of the machine-readable output.
MISSING, NOT_A_SCORE, OUT_OF_RANGE = "missing", "not_a_score", "out_of_range"

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
_PLAIN = re.compile(r"[0-9]+")


def parse_score(value: object, *, scale: tuple[int, int] = (1, 5)) -> int | None:
    """One cell as a score, or None where it is not one beyond doubt.

    Args:
        value: What the cell holds: a number, text, None. A boolean is not a score.
        scale: Lowest and highest score, whole numbers.

    Returns:
        The score, a whole number on the scale, or None.

    >>> [parse_score(x) for x in ("4/5", "4.0", "[[4]]", "5 - resolved", " ４ ")]
    [4, 4, 4, 5, 4]
    >>> [parse_score(x) for x in ("4/10", "3 or 4", "-1", "2.5", "80%", True)]
    [None, None, None, None, None, None]
    """
    return explain_score(value, scale=scale)[0]


def explain_score(
    value: object, *, scale: tuple[int, int] = (1, 5)
) -> tuple[int | None, str | None]:
    """One cell as `(score, None)`, or as `(None, reason)` where it is no score.

    Args:
        value: What the cell holds.
        scale: Lowest and highest score, whole numbers.

    Returns:
        The score and None, or None and one of "missing" (nothing there),
        "not_a_score" (no whole number beyond doubt), "out_of_range".

    >>> explain_score("4/10"), explain_score(0), explain_score("n/a")
    ((None, 'not_a_score'), (None, 'out_of_range'), (None, 'missing'))
    """
    low, high = _check_scale(scale)
    if value is None:
        return None, MISSING
    if isinstance(value, str):
        number, reason = _read_text(value, high)
    elif isinstance(value, bool):
        return None, NOT_A_SCORE
    elif isinstance(value, numbers.Real | Decimal):
        number, reason = float(value), None
    else:
        return None, NOT_A_SCORE
    if number is None:
        return None, reason
    if number != number:
        return None, MISSING
    if number in (float("inf"), float("-inf")) or number != int(number):
        return None, NOT_A_SCORE
    return (int(number), None) if low <= number <= high else (None, OUT_OF_RANGE)


def parse_scores(
    values: pl.Series, *, scale: tuple[int, int] = (1, 5)
) -> tuple[pl.Series, pl.Series]:
    """A column of cells as scores, each by the rules of `parse_score`.

    Numbers are read without a Python loop and text once per distinct spelling, so
    that millions of rows cost well under a second.

    Args:
        values: A column of any type.
        scale: Lowest and highest score, whole numbers from -128 to 127.

    Returns:
        The scores (Int8, null where the cell is not one), and why not (String:
        "missing", "not_a_score" or "out_of_range"; null where the score was read).

    >>> scores, reasons = parse_scores(pl.Series(["4.0", "3 or 4", "9", None]))
    >>> scores.to_list(), reasons.to_list()
    ([4, None, None, None], [None, 'not_a_score', 'out_of_range', 'missing'])
    """
    low, high = _check_scale(scale)
    kind = values.dtype
    name = values.name
    if kind == pl.Null:
        return (
            pl.Series(name, [None] * len(values), dtype=pl.Int8),
            pl.Series("reason", [MISSING] * len(values), dtype=pl.String),
        )
    if kind in (pl.String, pl.Categorical, pl.Enum, pl.Object):
        return _parse_spellings(values, (low, high))
    if not kind.is_numeric():
        value, missing = pl.lit(None, dtype=pl.Int8), pl.col("v").is_null()
        whole = on_scale = pl.lit(value=False)
    else:
        v = pl.col("v")
        missing = v.is_null()
        whole = pl.lit(value=True)
        if not kind.is_integer():
            v = v.cast(pl.Float64)
            missing = v.is_null() | v.is_nan()
            whole = v.is_finite() & (v == v.floor())
        on_scale = v.is_between(low, high)
        value = v.cast(pl.Int8, strict=False)
    read = pl.DataFrame({"v": values}).select(
        pl.when(~missing & whole & on_scale).then(value).cast(pl.Int8).alias(name),
        pl.when(missing)
        .then(pl.lit(MISSING))
        .when(~whole)
        .then(pl.lit(NOT_A_SCORE))
        .when(~on_scale)
        .then(pl.lit(OUT_OF_RANGE))
        .cast(pl.String)
        .alias("reason"),
    )
    return read.get_column(name), read.get_column("reason")


def spellings(values: pl.Series, *, scale: tuple[int, int] = (1, 5)) -> pl.DataFrame:
    """Every spelling in a column that is not a plain digit on the scale, counted.

    Args:
        values: The column as it stands in the table.
        scale: Lowest and highest score.

    Returns:
        One row per spelling: `value` (text), `score` (what it was read as, null if
        not read), `reason` (why not; null if read), `rows` (how many), most first.
    """
    text = values.cast(pl.String) if values.dtype != pl.Object else _as_text(values)
    scores, reasons = parse_scores(values, scale=scale)
    return (
        pl.DataFrame(
            {"value": text, "score": scores, "reason": reasons},
        )
        .filter(pl.col("reason").is_not_null() | ~pl.col("value").str.contains(r"^\d$"))
        .group_by("value", "score", "reason", maintain_order=True)
        .agg(pl.len().alias("rows"))
        .sort("rows", descending=True, maintain_order=True)
    )


def _check_scale(scale: Sequence[int]) -> tuple[int, int]:
    low, high = scale
    if not (-128 <= low < high <= 127):
        raise ScoreError(
            f"the scale {low} to {high} is not usable: give the lowest and the highest "
            "score as whole numbers, lowest first, between -128 and 127."
        )
    return low, high


def _as_text(values: pl.Series) -> pl.Series:
    return pl.Series(
        values.name,
        [None if v is None else str(v) for v in values],
        dtype=pl.String,
    )


def _parse_spellings(
    values: pl.Series, scale: tuple[int, int]
) -> tuple[pl.Series, pl.Series]:
    if values.dtype == pl.Object:  # mixed Python objects: types matter, cell by cell
        pairs = [explain_score(v, scale=scale) for v in values]
        return (
            pl.Series(values.name, [p[0] for p in pairs], dtype=pl.Int8),
            pl.Series("reason", [p[1] for p in pairs], dtype=pl.String),
        )
    text = values.cast(pl.String)
    distinct = text.unique()
    pairs = [explain_score(v, scale=scale) for v in distinct]
    scores = pl.Series(values.name, [p[0] for p in pairs], dtype=pl.Int8)
    reasons = pl.Series("reason", [p[1] for p in pairs], dtype=pl.String)
    return (
        text.replace_strict(distinct, scores, return_dtype=pl.Int8),
        text.replace_strict(distinct, reasons, return_dtype=pl.String).alias("reason"),
    )


def _read_text(text: str, high: int) -> tuple[float | None, str | None]:
    """The number that a text states beyond doubt; else None and the reason."""
    if not _PLAIN.fullmatch(text):
        text = _bare(_simplify(text))
        if text.lower() in MISSING_WORDS:
            return None, MISSING
        if named := _NAMED.fullmatch(text):
            text = _bare(named["rest"])
    match = _CELL.fullmatch(text)
    if match is None:
        return None, NOT_A_SCORE
    if match["top"] is not None and _to_float(match["top"]) != high:
        return None, NOT_A_SCORE  # 4/10: another scale
    return _to_float(match["value"]), None


def _to_float(number: str) -> float:
    whole, comma, decimals = number.partition(",")
    if comma and len(decimals.rstrip("eE")) == 3:
        return float("inf")  # "1,000": a thousand, or one with decimals? not a score
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
        elif category == "Cf":  # zero width, direction marks
            continue
        else:
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


def parse_numbers(values: pl.Series) -> tuple[pl.Series | None, bool]:
    """A column of text as numbers, if every cell that says something is a plain one.

    Plain: "12", "-0.5", ".5", "1e-3", "12,50" (a decimal comma, if all the decimals
    are written so). Not plain: "007" (an id), "1,000", "12 EUR". Empty cells and
    words for "nothing" are null.

    Args:
        values: Text cells (a numeric column is returned as it is).

    Returns:
        The numbers (Int64 if all are whole, else Float64), or None if they are not
        all plain; and whether decimal commas were read.

    >>> parse_numbers(pl.Series("x", ["12,5", "3", ""]))[0].to_list()
    [12.5, 3.0, None]
    """
    if values.dtype.is_numeric():
        return values, False
    if values.dtype != pl.String:
        return None, False
    text = values.str.strip_chars()
    low = text.str.to_lowercase()
    text = text.set(low.is_in(sorted(MISSING_WORDS)), None)
    said = text.drop_nulls()
    name = values.name
    if said.is_empty():
        return None, False
    if said.str.contains(r"^[+-]?(0|[1-9]\d{0,17})$").all():
        return text.cast(pl.Int64).alias(name), False
    number = r"^[+-]?(0|[1-9]\d*)?(\.\d*)?([eE][+-]?\d{1,3})?$"
    comma = bool(said.str.contains(r"^[+-]?(0|[1-9]\d*),\d+$").any())
    if comma:
        # "1,000" alone could be a thousand: then nothing is read
        if said.str.contains(".", literal=True).any() or (
            said.str.contains(r",\d{3}$").any()
            and not said.str.contains(r"^[+-]?(0,\d+|\d+,(\d{1,2}|\d{4,}))$").any()
        ):
            return None, False
        text = text.str.replace(",", ".", literal=True)
        said = text.drop_nulls()
    if not (said.str.contains(number) & said.str.contains(r"\d")).all():
        return None, False
    found = text.cast(pl.Float64, strict=False).alias(name)
    if (
        found.null_count() != text.null_count()
        or not found.drop_nulls().is_finite().all()
    ):
        return None, False
    return found, comma

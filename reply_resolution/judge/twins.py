"""Twins: replies made longer, tidier or boastful, without resolving anything more.

The rubric says that length, formatting and tone must not count. A judge that scores a
twin unlike its original breaks it, and nothing but the change of form can be the cause.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import random
from typing import Any

import polars as pl

from reply_resolution.display import Html, element, html, table
from reply_resolution.errors import TableError
from reply_resolution.judge.twin_forms import reply_language, twin

#: What `make_twins` can do to a reply. A "condensed" twin needs a person who knows
#: what matters in it; a table of twins of your own may hold any kind.
KINDS = ("padded", "bulleted", "praised", "plain")


@dataclass(frozen=True)
class Twins:
    """Twins made from replies.

    Attributes:
        frame: One row per twin: `request_id`, `arm` (where the replies have one),
            `kind`, `language` (code), `reply`.
        skipped: One row per twin that could not be made: `request_id`, `kind`,
            `reason`.
        notes: What a reader should know, in sentences.
    """

    frame: pl.DataFrame
    skipped: pl.DataFrame
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        made = self.frame.group_by("kind", maintain_order=True).len()
        skipped = self.skipped.group_by("kind", "reason", maintain_order=True).len()
        rows = [
            {
                "kind": kind,
                "made": str(n),
                "not made": "; ".join(
                    f"{count} {reason}"
                    for name, reason, count in skipped.iter_rows()
                    if name == kind
                )
                or "none",
            }
            for kind, n in made.iter_rows()
        ]
        shown: Html = table(rows, caption="Twins made")
        return str(shown + html(*(element("p", n, class_="muted") for n in self.notes)))


def make_twins(
    replies: pl.DataFrame,
    *,
    kinds: Sequence[str] = ("padded", "bulleted", "praised"),
    n: int | None = None,
    seed: int = 0,
) -> Twins:
    """Make twins of a sample of replies.

    - *padded*: about twice as long. Neutral sentences of our own, in the reply's
      language, stand before, between and after its own; they state no fact, give no
      advice and refer nobody anywhere. Every word of the reply stays, in order.
    - *bulleted*: its sentences as bullets, paths and numbers in bold.
    - *praised*: praise of the question before it, praise of the answer behind it.
    - *plain*: bullets, headings and bold taken off.

    Args:
        replies: `request_id`, `reply`, and where there are `arm` and `language`
            (English name or code; guessed from common words where there is none).
        kinds: Out of `KINDS`.
        n: Replies drawn at random; None takes all.
        seed: Decides the draw and which sentences are used. The same seed and reply
            give the same twin, whatever else is in the table.

    Raises:
        TableError: A column is missing, or a kind is not known.

    >>> replies = pl.DataFrame({"request_id": ["r1"], "language": ["English"],
    ...     "reply": ["Open Settings > Team. The invitation is valid for 7 days."]})
    >>> print(make_twins(replies, kinds=["bulleted"]).frame["reply"][0])
    - Open **Settings > Team**.
    - The invitation is valid for **7** days.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise TableError(
            f"twins of kind {', '.join(map(repr, unknown))} cannot be made; choose "
            f"from {', '.join(KINDS)}, or give a table of twins (request_id, kind, "
            "reply)."
        )
    for column in ("request_id", "reply"):
        if column not in replies.columns:
            raise TableError(f"twins need a column {column!r} in the table of replies.")
    keys: list[str] = [c for c in ("request_id", "arm") if c in replies.columns]
    chosen = _sample(replies, keys, n, seed)
    made: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    guessed = 0
    for row in chosen.iter_rows(named=True):
        text = (row["reply"] or "").strip()
        language = reply_language(row.get("language"), text)
        guessed += not row.get("language") and language is not None
        for kind in kinds:
            # The reply's own seed: a larger sample leaves earlier twins as they were.
            chance = random.Random(f"{seed}|{[row[k] for k in keys]}|{kind}")
            made_twin, reason = twin(kind, text, language, chance)
            key = {k: row[k] for k in keys} | {"kind": kind}
            if made_twin is None:
                skipped.append(key | {"reason": reason})
            else:
                made.append(key | {"language": language or "", "reply": made_twin})
    notes: tuple[str, ...] = ()
    if guessed:
        notes = (f"The language of {guessed} replies was guessed from common words.",)
    head = dict.fromkeys((*keys, "kind"), pl.String)
    return Twins(
        pl.DataFrame(made, schema=head | {"language": pl.String, "reply": pl.String}),
        pl.DataFrame(skipped, schema=head | {"reason": pl.String}),
        notes,
    )


def check_twins(twins: pl.DataFrame, replies: pl.DataFrame) -> pl.DataFrame:
    """Check a table of twins of your own: `request_id`, `kind`, `reply` (and `arm`).

    Raises:
        TableError: A column is missing; a twin is empty, is there twice, or belongs to
            no reply. The message names the first one.
    """
    for column in ("request_id", "kind", "reply"):
        if column not in twins.columns:
            raise TableError(
                f"a table of twins needs a column {column!r}; it has "
                f"{', '.join(twins.columns)}."
            )
    keys = _keys(twins, replies)
    columns = [*keys, "kind", "reply"]
    frame = twins.select(pl.col(columns).cast(pl.String))
    known = replies.select(pl.col(keys).cast(pl.String)).unique()
    checks = {
        "has no text": frame.filter(
            pl.col("reply").fill_null("").str.strip_chars() == ""
        ),
        "is there twice": frame.filter(frame.select(*keys, "kind").is_duplicated()),
        "belongs to no reply in the table of replies": frame.join(
            known, on=keys, how="anti"
        ),
        "is called 'original', which is the name of the reply itself": frame.filter(
            pl.col("kind") == "original"
        ),
    }
    for problem, rows in checks.items():
        if rows.height:
            first = rows.row(0, named=True)
            raise TableError(
                f"twin {first['request_id']!r} of kind {first['kind']!r} {problem} "
                f"({rows.height} such rows). Correct the table of twins."
            )
    return frame


def twins_frame(replies: pl.DataFrame, twins: pl.DataFrame) -> pl.DataFrame:
    """Originals and twins as one table of replies for `judge`, pair by pair.

    The kind stands in the column `arm` ("original" for the reply itself): it is never
    sent, and a budget that runs out leaves whole pairs, as in any paired design. Where
    the replies have an arm of their own it becomes part of `request_id`.
    """
    twins = check_twins(twins, replies)
    keys = _keys(twins, replies)
    asked = [c for c in ("request", "context", "conversation") if c in replies.columns]
    originals = replies.with_columns(pl.col(keys).cast(pl.String)).join(
        twins.select(keys).unique(), on=keys, how="semi"
    )
    made = twins.join(originals.select(*keys, *asked), on=keys, how="left")
    frame = pl.concat(
        [
            originals.select(*keys, *asked, "reply", kind=pl.lit("original")),
            made.select(*keys, *asked, "reply", "kind"),
        ]
    )
    name = pl.concat_str(keys, separator="~") if len(keys) > 1 else pl.col(keys[0])
    return frame.select(
        name.alias("request_id"), pl.col("kind").alias("arm"), *asked, "reply"
    )


def judge_twins(
    replies: pl.DataFrame,
    twins: pl.DataFrame,
    *,
    judge: Callable[..., Any] | None = None,
    **options: Any,  # noqa: ANN401
) -> pl.DataFrame:
    """Judge twins and their originals blind, within the budget, and pair them.

    Args:
        replies: The table the twins were made of.
        twins: From `make_twins(...).frame`, or your own.
        judge: The function that judges; by default the package's own.
        **options: For `judge`: rubric, model, cache, limits, ...

    Returns:
        Pairs, as from `twin_pairs`.
    """
    if judge is None:
        from reply_resolution.judge.judge import judge as judge_replies

        judge = judge_replies
    frame = twins_frame(replies, twins)
    verdicts = judge(frame, **options).verdicts
    scores = verdicts.select("request_id", kind=pl.col("arm"), score=pl.col("score"))
    renamed = frame.rename({"arm": "kind"})
    return twin_pairs(
        renamed.filter(pl.col("kind") == "original").drop("kind"),
        renamed.filter(pl.col("kind") != "original"),
        scores,
    )


def twin_pairs(
    replies: pl.DataFrame,
    twins: pl.DataFrame,
    verdicts: pl.DataFrame,
    originals: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Twins beside their originals, with scores and lengths.

    Args:
        replies: The replies the twins were made of.
        twins: `request_id`, `kind`, `reply` (and `arm`).
        verdicts: Verdicts with `kind`; rows of kind "original" are the originals'.
        originals: Verdicts of the originals in a table of their own. Of several votes
            the last is taken: it was given beside the twins.

    Returns:
        One row per twin: the keys, `kind`, `score_original`, `score_twin` (null where
        not scored), `length_original`, `length_twin` (code points).
    """
    from reply_resolution.stats.columns import length_column

    twins = check_twins(twins, replies)
    keys = _keys(twins, replies)
    if "kind" not in verdicts.columns:
        raise TableError("verdicts on twins need a column 'kind', as the twins have.")
    if originals is None:
        originals = verdicts.filter(pl.col("kind") == "original")
    by = [k for k in keys if k in originals.columns and k in verdicts.columns]
    return (
        twins.with_columns(length_twin=length_column(twins))
        .join(
            _scores(verdicts, [*by, "kind"], "score_twin"), on=[*by, "kind"], how="left"
        )
        .join(_scores(originals, by, "score_original"), on=by, how="left")
        .join(
            replies.select(
                *(pl.col(k).cast(pl.String) for k in keys),
                length_original=length_column(replies),
            ),
            on=keys,
            how="left",
        )
        .select(
            *keys,
            "kind",
            "score_original",
            "score_twin",
            "length_original",
            "length_twin",
        )
    )


def _scores(verdicts: pl.DataFrame, keys: list[str], name: str) -> pl.DataFrame:
    frame = verdicts.with_columns(pl.col(keys).cast(pl.String))
    if "vote" in frame.columns:
        frame = frame.sort("vote", maintain_order=True)
    last = frame.unique(keys, keep="last", maintain_order=True)
    return last.select(*keys, pl.col("score").alias(name))


def _keys(twins: pl.DataFrame, replies: pl.DataFrame) -> list[str]:
    both = "arm" in twins.columns and "arm" in replies.columns
    return ["request_id", "arm"] if both else ["request_id"]


def _sample(
    replies: pl.DataFrame, keys: list[str], n: int | None, seed: int
) -> pl.DataFrame:
    if n is None or n >= replies.height:
        return replies
    order = sorted(
        range(replies.height),
        key=lambda i: random.Random(f"{seed}|{[replies[k][i] for k in keys]}").random(),
    )
    return replies[sorted(order[:n])]

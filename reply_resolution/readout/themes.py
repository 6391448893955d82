"""Why it moved: the words in the judge's reasons that tell the arms apart.

Plain counting that anybody can check: in how many replies of each arm a word or
short phrase occurs in the reason. No model, no topics; every theme names replies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import hashlib
import re

import numpy as np
from numpy.typing import NDArray
import polars as pl

from reply_resolution.errors import StatisticsError

#: A term in fewer replies than this is an anecdote.
_LEAST = 6
_LONGEST = 3
_SHUFFLES = 199
#: Two terms whose replies overlap by more than this (Jaccard) are one theme.
_SAME = 0.5
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
# Negations ("not", "never", "no", "without", "only") stay: they carry the finding.
_STOP = frozenset(
    re.split(
        r"\s+",
        "a an and are as at be been but by can could did do does for from had has have "
        "he her his i if in into is it its may more most of on or she so such than "
        "that the their them then there these they this those to too was were what "
        "when where which while who will with would you your both all also any each "
        "just about after before how here one two",
    )
)
#: Columns whose words name the topic of a reply; in its reason they are an echo.
_TOPIC = ("request", "context", "reply")


@dataclass(frozen=True, slots=True)
class Theme:
    """A word or phrase that occurs in the reasons of one arm more than of the other.

    Attributes:
        term: One to three words, lower case.
        control: Replies of the control arm whose reason contains it.
        treatment: Replies of the treatment arm whose reason contains it.
        control_share: The same as a fraction of the arm's reasons.
        treatment_share: The same for the treatment.
        mean_score: Mean score of all replies whose reason contains it, 1 to 5.
        contribution: Points of the difference in mean score that go along with it:
            the difference of its shares times how far its replies lie above the mean
            of all replies. Below 0 it speaks against the treatment.
        pvalue: Share of shuffled assignments in which any term at all differs as
            much (+1 rule); so it accounts for having searched. Fraction.
        replies: Up to three (request_id, arm) that contain it, from the arm where it
            is more frequent.
    """

    term: str
    control: int
    treatment: int
    control_share: float
    treatment_share: float
    mean_score: float
    contribution: float
    pvalue: float
    replies: tuple[tuple[str, str], ...]

    @property
    def difference(self) -> float:
        """Share in treatment minus share in control, fraction."""
        return self.treatment_share - self.control_share


@dataclass(frozen=True, slots=True)
class Themes:
    """The themes of one treatment against control.

    Attributes:
        against: Themes that go along with a lower score of the treatment, the largest
            contribution first.
        favour: Themes that go along with a higher score of the treatment.
        reasons: Reasons read, both arms.
        terms: Terms that occurred often enough to be compared.
        shuffles: Shuffled assignments behind `Theme.pvalue`.
    """

    against: tuple[Theme, ...]
    favour: tuple[Theme, ...]
    reasons: int
    terms: int
    shuffles: int


def draw_order(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    """The rows in the order of the SHA-256 of "seed:request_id:arm".

    The draw depends on the ids alone: not on the order of the rows, not on scores.

    Args:
        frame: Needs `request_id` and `arm` (strings).
        seed: Any whole number.
    """
    keys = [
        hashlib.sha256(f"{seed}:{i}:{a}".encode()).digest()
        for i, a in zip(frame["request_id"], frame["arm"], strict=True)
    ]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return frame[order]


def find_themes(
    frame: pl.DataFrame,
    *,
    control: str,
    treatment: str,
    seed: int,
    unit: str | None = None,
    limit: int = 3,
) -> Themes:
    """Words and phrases in the reasons that distinguish two arms.

    A term counts once per reply, and only where it has a word of the judge's own:
    words that also stand in the request, the context or the reply name the topic, and
    topics differ between the arms by chance. Terms whose shares differ by more than a
    standard error are ranked by their contribution to the difference in mean score;
    of terms that mark largely the same replies the strongest is kept. The p-value
    shuffles whole units between the arms and asks how often any term differs as much.

    Args:
        frame: One row per scored reply: `request_id`, `arm`, `score`, `reason`, and
            `request`, `context`, `reply` where there are any. Other arms' rows are
            ignored; so are rows without a reason.
        control: Name of the baseline arm.
        treatment: Name of the arm compared with it.
        seed: Of the order in which replies are named, and of the shuffles.
        unit: Column of what was randomised (a user); rows where None. For pairs, a
            request that occurs in both arms, the two sides are swapped.
        limit: Most themes for each direction.

    Raises:
        StatisticsError: An arm has no reason at all.
    """
    rows = frame.filter(
        pl.col("arm").is_in([control, treatment])
        & pl.col("reason").is_not_null()
        & (pl.col("reason").str.strip_chars() != "")
        & pl.col("score").is_not_null()
    )
    rows = draw_order(rows, seed)
    treated = (rows["arm"] == treatment).to_numpy()
    if not 0 < int(treated.sum()) < len(treated):
        raise StatisticsError(
            f"themes need reasons in both arms; {control!r} has "
            f"{int((~treated).sum())}, {treatment!r} {int(treated.sum())}."
        )
    topics = [rows[c].fill_null("").to_list() for c in _TOPIC if c in rows.columns]
    found = _occurrences(rows["reason"].to_list(), topics)
    terms = sorted(t for t, where in found.items() if len(where) >= _LEAST)
    if not terms:
        return Themes((), (), rows.height, 0, 0)
    from scipy import sparse

    matrix = sparse.csr_matrix(
        (
            np.ones(sum(len(found[t]) for t in terms)),
            np.concatenate([np.asarray(found[t]) for t in terms]),
            np.cumsum([0, *(len(found[t]) for t in terms)]),
        ),
        shape=(len(terms), rows.height),
    )
    z = _z(matrix, treated[:, None].astype(float))[:, 0]
    arms = _shuffled(rows, treated, unit, seed)
    best = np.asarray(np.abs(_z(matrix, arms)).max(axis=0))
    scores = rows["score"].cast(pl.Float64).to_numpy()
    ids = list(zip(rows["request_id"], rows["arm"], strict=True))
    n1, n0 = int(treated.sum()), int((~treated).sum())
    above = np.asarray(matrix @ (scores - scores.mean())) / np.asarray(
        matrix.sum(axis=1)
    ).reshape(-1)
    in_treatment = np.asarray(matrix @ treated.astype(float))
    in_control = np.asarray(matrix.sum(axis=1)).reshape(-1) - in_treatment
    contribution = (in_treatment / n1 - in_control / n0) * above
    themes: dict[bool, list[Theme]] = {True: [], False: []}
    kept: list[set[int]] = []
    # Ties go to the longer term: "never given" says more than "given".
    order = sorted(
        np.flatnonzero(np.abs(z) >= 1),
        key=lambda k: (-round(abs(contribution[k]), 9), -len(terms[k]), terms[k]),
    )
    for k in order:
        side = bool(contribution[k] > 0)
        where = set(found[terms[k]])
        if len(themes[side]) >= limit or any(_jaccard(where, w) > _SAME for w in kept):
            continue
        kept.append(where)
        arm = treatment if z[k] > 0 else control
        themes[side].append(
            Theme(
                term=terms[k],
                control=round(in_control[k]),
                treatment=round(in_treatment[k]),
                control_share=float(in_control[k]) / n0,
                treatment_share=float(in_treatment[k]) / n1,
                mean_score=float(scores[list(where)].mean()),
                contribution=float(contribution[k]),
                pvalue=float(1 + (best >= abs(z[k]) - 1e-12).sum()) / (1 + len(best)),
                replies=tuple([ids[i] for i in sorted(where) if ids[i][1] == arm][:3]),
            )
        )
    return Themes(
        tuple(themes[False]),
        tuple(themes[True]),
        rows.height,
        len(terms),
        _SHUFFLES,
    )


def _occurrences(
    reasons: Sequence[str], topics: Sequence[Sequence[str]]
) -> dict[str, list[int]]:
    """Term -> the rows whose reason contains it, each row once."""
    found: dict[str, list[int]] = {}
    for row, reason in enumerate(reasons):
        echo = set(_WORD.findall(" ".join(t[row] for t in topics).lower()))
        seen: set[str] = set()
        # A phrase does not run over the end of a sentence.
        for sentence in re.split(r"[.!?;:()\n]+", reason.lower()):
            words = _WORD.findall(sentence)
            own = [w not in _STOP and w not in echo and not w.isdigit() for w in words]
            for size in range(1, _LONGEST + 1):
                for start in range(len(words) - size + 1):
                    end = start + size
                    if words[start] in _STOP or words[end - 1] in _STOP:
                        continue
                    if any(own[start:end]) and (size > 1 or len(words[start]) > 2):
                        seen.add(" ".join(words[start:end]))
        for term in seen:
            found.setdefault(term, []).append(row)
    return found


def _z(matrix: "object", arms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Difference of shares in pooled standard errors; terms by assignments."""
    n1 = arms.sum(axis=0)
    n0 = arms.shape[0] - n1
    x1 = np.asarray(matrix @ arms)  # type: ignore[operator]
    total = np.asarray(matrix.sum(axis=1)).reshape(-1, 1)  # type: ignore[attr-defined]
    share = total / arms.shape[0]
    se = np.sqrt(share * (1 - share) * (1 / n1 + 1 / n0))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (x1 / n1 - (total - x1) / n0) / se
    return np.asarray(np.where(np.isfinite(z), z, 0.0))


def _shuffled(
    rows: pl.DataFrame, treated: NDArray[np.bool_], unit: str | None, seed: int
) -> NDArray[np.float64]:
    """Assignments as chance could have made them; rows by shuffles."""
    rng = np.random.default_rng(seed)
    ids = rows["request_id"]
    paired = ids.n_unique() < len(ids) and rows.n_unique(["request_id", "arm"]) == len(
        ids
    )
    if paired:
        codes = _codes(ids)
        flips = rng.integers(0, 2, (int(codes.max()) + 1, _SHUFFLES)).astype(bool)
        return np.asarray(treated[:, None] != flips[codes], dtype=np.float64)
    codes = _codes(rows[unit].cast(pl.String)) if unit else np.arange(len(ids))
    first = np.zeros(int(codes.max()) + 1, dtype=bool)
    first[codes] = treated
    draws = np.stack([rng.permutation(first) for _ in range(_SHUFFLES)], axis=1)
    return np.asarray(draws[codes], dtype=np.float64)


def _codes(values: pl.Series) -> NDArray[np.int64]:
    """0, 1, ... for the distinct values, in order of first appearance."""
    ranks = values.fill_null("\0").rank("dense").cast(pl.Int64)
    return np.asarray(ranks.to_numpy() - 1)


def _jaccard(a: set[int], b: set[int]) -> float:
    both = len(a & b)
    return both / (len(a) + len(b) - both)

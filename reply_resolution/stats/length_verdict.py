"""The length check in one sentence: found or not, and whether it matters here."""

from dataclasses import dataclass
from typing import Any, Literal

from reply_resolution.display import Html, element, html, number, status
from reply_resolution.errors import StatisticsError
from reply_resolution.stats.length import LengthBias
from reply_resolution.stats.length_effects import LengthEffect
from reply_resolution.stats.length_pairs import PairsTest
from reply_resolution.stats.regression import t_quantile

Word = Literal[
    "no bias found",
    "bias, too small to matter here",
    "bias that changes the size of the result, not its sign",
    "bias that could explain the result",
    "not measured",
]


@dataclass(frozen=True, slots=True)
class LengthVerdict:
    """What to make of the judge's length bias.

    Attributes:
        word: The verdict. "No bias found" is never "no bias": see `largest`.
        mark: "ok", "look", "stop" or "none", for the table of checks.
        sentence: The verdict in words, with its numbers.
        found_by: Which evidence finds a bias: "labels", "padded twins", both, none.
        largest: The largest bias, in points of the judge's scale per doubling of
            length, in either direction, that the evidence still allows; None where
            nothing was measured.
        at_stake: That bias times the length difference of the arms (of one doubling,
            where no experiment is given), points.
        margin: What would not matter, points.
        labels_needed: About how many labelled replies would bring `at_stake` under the
            margin if there is no bias; None where it already is, or is not known.
    """

    word: Word
    mark: str
    sentence: str
    found_by: tuple[str, ...]
    largest: float | None
    at_stake: float | None
    margin: float
    labels_needed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; undefined is None."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {"found_by": list(self.found_by)}

    def html(self) -> Html:
        """The verdict as the banner of a report."""
        mark = element("span", status(self.mark), class_=self.mark)
        word = element("strong", self.word[0].upper() + self.word[1:] + ".")
        line = element("p", mark, " ", word, " ", self.sentence)
        return html(element("div", line, class_="verdict"))

    def _repr_html_(self) -> str:
        return str(self.html())


def length_verdict(
    bias: LengthBias | None,
    pairs: PairsTest | None = None,
    effect: LengthEffect | None = None,
    *,
    margin: float = 0.2,
) -> LengthVerdict:
    """Weigh the labelled replies, the padded twins and the experiment.

    A bias counts as found when either kind of evidence finds it: a safety check should
    rather look twice. Two looks at 5% make a false alarm in up to one of ten checks.

    Args:
        bias: From `length_bias`; None where there are no labels.
        pairs: From `padded_pairs_test`; None where no twins were judged.
        effect: From `length_effect`; None where there is no experiment yet.
        margin: A bias in the effect that would not matter, points of the judge's
            scale, above 0.

    Raises:
        StatisticsError: The margin is not above 0.
    """
    if not margin > 0:
        raise StatisticsError(
            f"margin {margin} is not above 0: give the bias, in score points, that you "
            "would not mind in the effect."
        )
    bounds = _bounds(bias, pairs)
    if not bounds:
        return LengthVerdict(
            "not measured",
            "none",
            _why_not(bias),
            (),
            None,
            None,
            margin,
        )
    found = tuple(name for name, (_, is_found) in bounds.items() if is_found)
    largest = max(bound for bound, _ in bounds.values())
    doublings = abs(effect.doublings) if effect else 1.0
    at_stake = largest * doublings
    where = (
        f"{number(at_stake)} points in this experiment, where the typical reply of "
        f"{effect.treatment} is {number(effect.length_ratio, 1)} times as long"
        if effect
        else "the same if one arm's replies were twice as long"
    )
    amount = f"{number(largest)} points per doubling of length ({where})"
    word: Word
    if not found:
        word, mark, needed = "no bias found", "ok", None
        sentence = f"The largest bias that the data still allow is {amount}"
        if at_stake < margin:
            sentence += f", under the {number(margin)} that would matter."
        else:
            mark, needed = "look", _needed(bias, margin / doublings if doublings else 0)
            sentence += f"; that would matter (margin {number(margin)})."
            if needed:
                sentence += f" About {needed:,} labelled replies would settle it."
        return LengthVerdict(
            word, mark, sentence, found, largest, at_stake, margin, needed
        )
    by = " and ".join(found)
    if at_stake < margin:
        word, mark = "bias, too small to matter here", "ok"
        sentence = (
            f"Found by {by}, but at most {amount}, under the {number(margin)} that "
            "would matter."
        )
    elif effect and _stands(effect):
        word = "bias that changes the size of the result, not its sign"
        mark = "look"
        sentence = (
            f"Found by {by}, up to {amount}. Corrected for it, the effect is "
            f"{number(effect.corrected, sign=True)} instead of "
            f"{number(effect.judge_effect, sign=True)} points, and still clear of 0."
        )
    else:
        word, mark = "bias that could explain the result", "stop"
        sentence = f"Found by {by}, up to {amount}: more than the {number(margin)} "
        sentence += (
            "that would matter. Read the corrected effect, or repair the rubric."
        )
    return LengthVerdict(word, mark, sentence, found, largest, at_stake, margin)


def _why_not(bias: LengthBias | None) -> str:
    """Why nothing was measured, and what to do."""
    if bias is None:
        return (
            "Label replies, or judge padded twins: without either, nothing is known "
            "about length."
        )
    reasons = " ".join(w[0].upper() + w[1:] for w in bias.warnings)
    return f"The {bias.n} labelled replies cannot tell. {reasons}".strip()


def _bounds(
    bias: LengthBias | None, pairs: PairsTest | None
) -> dict[str, tuple[float, bool]]:
    """Evidence -> the largest bias it allows (judge points), whether it finds one."""
    bounds = {}
    if bias is not None and bias.judge_standard_error is not None:
        half = t_quantile(bias.confidence, bias.degrees) * bias.judge_standard_error
        slope = bias.judge_points_per_doubling or 0.0
        bounds["labels"] = (abs(slope) + half, bool(bias.found))
    if pairs is not None and pairs.points_per_doubling_ci is not None:
        low, high = pairs.points_per_doubling_ci
        bounds["padded twins"] = (max(abs(low), abs(high)), pairs.found)
    return bounds


def _needed(bias: LengthBias | None, target: float) -> int | None:
    """Labelled replies at which a fair judge's interval would end at the target."""
    if bias is None or bias.judge_standard_error is None or target <= 0:
        return None
    half = t_quantile(bias.confidence, bias.degrees) * bias.judge_standard_error
    needed = bias.n * (half / target) ** 2
    return int(-(-needed // 10) * 10) if needed > bias.n else None


def _stands(effect: LengthEffect) -> bool:
    """Whether the effect is clear of 0, on one side, before and after correction."""
    if effect.judge_ci is None or effect.corrected_ci is None:
        return False
    above = effect.judge_ci[0] > 0 and effect.corrected_ci[0] > 0
    below = effect.judge_ci[1] < 0 and effect.corrected_ci[1] < 0
    return above or below

"""Labels on the page: the levels to label by, how many there are, how many to give."""

from reply_resolution.calibration.study import Study
from reply_resolution.calibration.words import no_labels, says
from reply_resolution.display import Html, count, number, table
from reply_resolution.judge.rubric import Rubric


def rubric_levels() -> Html:
    """The five levels of the rubric."""
    rows = [{"level": str(n), "meaning": text} for n, text in Rubric.default().levels]
    return table(
        rows,
        headers={"level": "Score", "meaning": "Means"},
        caption="The rubric's levels",
    )


def plan_table(study: Study) -> Html:
    """What 50, 100, 200, 400 labels would tell."""
    rows = [
        {
            "labels": count(row.labels),
            "kappa": f"{number(row.kappa_low)} to {number(row.kappa_high)}",
            "bias": f"±{number(row.bias_half_width)}",
            "effect": f"±{number(row.effect_half_width)}",
        }
        for row in study.plan.rows
    ]
    headers = {
        "labels": "Labels",
        "kappa": "Weighted kappa, interval expected",
        "bias": "Judge minus people, points",
        "effect": "Corrected effect (half in each arm), points",
    }
    return table(rows, headers=headers, caption="What a number of labels would tell")


def plan_words(study: Study) -> Html:
    """How many labels the decision needs, in sentences."""
    plan = study.plan
    floor = number(study.rules.kappa_floor)
    words = [f"This expects {plan.assumption}."]
    words.append(
        f"About {count(max(plan.for_floor, study.rules.min_labels))} labels put the "
        f"interval of kappa above {floor}."
        if plan.for_floor
        else f"No number of labels puts kappa ({number(plan.kappa)}) safely above "
        f"{floor}."
    )
    words.append(
        f"{count(plan.for_effect)} labels in each arm let the corrected effect find "
        "the worthwhile gain in four of five experiments."
        if plan.for_effect
        else "The corrected effect cannot find the worthwhile gain however many "
        "replies are labelled: more replies must be judged."
    )
    words.append(
        f"{count(plan.for_margin)} labels in each arm show whether the judge "
        f"favours an arm, to ±{number(study.rules.favour_margin)} points."
    )
    return says(" ".join(words))


def label_counts(study: Study) -> Html:
    """How many labels each person gave, and what they could not judge."""
    if study.labels.is_empty():
        return no_labels(study)
    rows = []
    for name in study.labels["annotator"].unique().sort():
        own = study.labels.filter(study.labels["annotator"] == name)
        first = own.filter(own["repeat"] == 0)
        rows.append(
            {
                "person": str(name),
                "labels": count(first["label"].count()),
                "cannot": count(first["label"].null_count()),
                "repeats": count(len(own) - len(first)),
            }
        )
    headers = {
        "person": "Annotator",
        "labels": "Labels",
        "cannot": "No label, or cannot judge",
        "repeats": "Hidden repeats",
    }
    return table(rows, headers=headers, caption="Labels so far")

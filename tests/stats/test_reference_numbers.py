"""Every number of `reference_numbers.json`, from three real sets of people's labels.

The file was computed by scikit-learn, scipy, krippendorff, pingouin, statsmodels and
ppi-python (its `_meta`). Each number is computed here by the package and a second time
from first principles or by scipy; the two must agree to 1e-9, and both with what is
printed. A number that nothing here computes fails.

What the package has no function for (means, counts, intraclass correlations, the root
mean square error, coefficients of standardised regressions, normal intervals) is put
together from what it does give, or counted in the tables it reads.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from reply_resolution.readout.experiment_plan import Metric
from reply_resolution.readout.metrics import mean_effect
from reply_resolution.stats import concordance
from reply_resolution.stats.agreement import agreement
from reply_resolution.stats.agreement_table import read_column
from reply_resolution.stats.annotators import annotator_agreement, consensus
from reply_resolution.stats.correction import ppi_mean
from reply_resolution.stats.length import length_bias
from reply_resolution.stats.permutation import (
    paired_permutation_test,
    permutation_test,
)
from reply_resolution.stats.regression import least_squares
from reply_resolution.tables.labels import read_labels
from reply_resolution.tables.tables import read_table

Z = 1.959963984540054
FOUR, FIVE = (1, 4), (1, 5)


@dataclass(frozen=True)
class Drawn:
    """An exact p-value whose reference is from 20,000 drawn dealings.

    It is the share of them (`tails` 1), or twice that of the smaller tail (2).
    """

    p: float
    tails: int


@dataclass(frozen=True)
class Absent:
    """A published number whose ingredients are not in the data."""

    why: str


def numbers_of(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Path and value of every leaf that is not text."""
    items: Any = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list):
        items = enumerate(tree)
    elif not isinstance(tree, str):
        yield path, tree
    for key, value in items:
        yield from numbers_of(value, (*path, key))


def differs(wanted: Any, found: Any) -> bool:
    """Whether a number is not the printed one, to the digits that are printed."""
    if isinstance(found, Absent):
        return False
    if isinstance(found, Drawn):
        spread = (found.p * (found.tails - found.p) / 20_000) ** 0.5
        return not abs(float(wanted) - found.p) <= 4 * spread + 1.01e-4
    if not isinstance(wanted, Decimal):
        return any(value != wanted for value in np.atleast_1d(found))
    values = [float(value) for value in np.atleast_1d(found)]
    if not max(values) - min(values) <= 1e-9 * max(1.0, abs(values[0])):
        return True  # written so that NaN differs too
    unit = min(1e-6, 10.0 ** wanted.as_tuple().exponent)  # trailing zeros are cut
    allowed = unit / 2 + 1e-9 * abs(float(wanted))
    return not all(abs(value - float(wanted)) <= allowed for value in values)


# Tables, read by the package


@cache
def tidy(folder: Path) -> pl.DataFrame:
    """One row per reply; scores and lengths as numbers."""
    frame = read_table(folder / "tidy.csv", columns={"arm": "system"}).frame
    wanted = r"^(human_.*|judge_.*|reply_length_.*|auto_.*)$"
    numbers = frame.select(pl.col(wanted).exclude("judge_model"))
    read = {c.name: read_column(c, scale=(-1e6, 1e6)) for c in numbers}
    assert not any("not_a_score" in lost for _, lost, _ in read.values())
    return frame.with_columns(**{name: values for name, (values, _, _) in read.items()})


@cache
def labels(folder: Path, criterion: str, scale: tuple[int, int]) -> pl.DataFrame:
    """What people said by one criterion, long form."""
    columns = {"arm": "system", "annotator": "annotator_id", "label": "human_score"}
    own = read_table(next(folder.glob("human_ratings.*"))).frame
    own = own.filter(criterion=criterion)
    return read_labels(own, columns=columns, scale=scale).frame


# One kind of number each; a pair is (the package's, computed a second time)


def correlations(judge: pl.Series, human: pl.Series, *, rmse: bool = False) -> Any:
    """Three correlations; the error is what bias and limits say together."""
    from scipy import stats

    x, y = human.to_numpy(), judge.to_numpy()
    scale = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    found = agreement(y, x, scale=scale, resamples=100)
    out: dict[str, Any] = {
        "n": (found.n, len(x)),
        "pearson": (found.pearson.estimate, stats.pearsonr(x, y)[0]),
        "spearman": (found.spearman.estimate, stats.spearmanr(x, y)[0]),
        "kendall_tau_b": (found.kendall_tau_b.estimate, stats.kendalltau(x, y)[0]),
    }
    if rmse:
        low, high = found.limits
        spread = ((high - low) / 2 / Z) ** 2 * (found.n - 1) / found.n
        ours = (found.bias.estimate**2 + spread) ** 0.5
        out["rmse"] = (ours, np.sqrt(np.mean((y - x) ** 2)))
    return out


def plain_kappa(x: Any, y: Any) -> float:
    """Quadratic kappa from means alone: seen over expected squared difference."""
    expected = np.mean(x**2) + np.mean(y**2) - 2 * np.mean(x) * np.mean(y)
    return float(1 - np.mean((x - y) ** 2) / expected)


def kappa(judge: pl.Series, human: pl.Series, scale: tuple[int, int]) -> Any:
    """Quadratic weighted kappa on the whole scale."""
    found = agreement(judge, human, scale=scale, resamples=100)
    return found.weighted_kappa.estimate, plain_kappa(
        judge.to_numpy(), human.to_numpy()
    )


def half_up(values: pl.Series) -> pl.Series:
    """Rounded, halves upwards."""
    return (values + 0.5).floor()


def means(frame: pl.DataFrame, *columns: str) -> Any:
    """Means of the columns per arm."""
    return {
        name: {
            **{column: part[column].to_numpy().mean() for column in columns},
            "n": part.height,
        }
        for (name,), part in frame.group_by("arm")
    }


def by_length(frame: pl.DataFrame, judge: str, human: str, length: str) -> Any:
    """What a judge and people make of a reply's length."""
    from scipy import stats
    import statsmodels.api as sm

    found = length_bias(frame, judge=judge, label=human, length=length)
    j, h, size = (frame[name] for name in (judge, human, length))
    against, beside = correlations(j, size), correlations(h, size)
    against["spearman"] = (*against["spearman"], found.judge_length_spearman)
    beside["spearman"] = (*beside["spearman"], found.label_length_spearman)
    # Partial correlation: of what the people's ranks leave of the others'.
    rank_j, rank_h, rank_l = (stats.rankdata(v) for v in (j, h, size))
    left = [stats.linregress(rank_h, r) for r in (rank_j, rank_l)]
    rest = [
        r - fit.intercept - fit.slope * rank_h
        for r, fit in zip((rank_j, rank_l), left, strict=True)
    ]
    rho, n = stats.pearsonr(*rest)[0], found.n
    p = 2 * stats.t.sf(abs(rho) * ((n - 3) / (1 - rho**2)) ** 0.5, n - 3)
    outcome, *design = (stats.zscore(v.to_numpy()) for v in (j, h, (1 + size).log()))
    design = np.column_stack((np.ones(n), *design))
    ours, theirs = least_squares(design, outcome), sm.OLS(outcome, design).fit()
    error = np.sum((outcome - design @ ours.coefficients) ** 2) / (n - 3)
    se = np.sqrt(error * np.linalg.inv(design.T @ design)[2, 2])
    return {
        "n": found.n,
        "judge_vs_length": against,
        "human_vs_length": beside,
        "partial_spearman_judge_length_given_human": (found.partial_spearman, rho),
        "partial_p": (found.partial_pvalue, p),
        "ols_std_coef": {
            "human": (ours.coefficients[1], theirs.params[1]),
            "log_length": (ours.coefficients[2], theirs.params[2]),
            "log_length_p": (
                2 * stats.t.sf(abs(ours.coefficients[2]) / se, n - 3),
                theirs.pvalues[2],
            ),
        },
    }


def corrected(frame: pl.DataFrame, judge: str, human: str) -> Any:
    """PPI; normal intervals from the package's estimate and weight of the judge.

    The package's own are t intervals with the jackknife's variance: a little wider.
    """
    y, f = frame[human].to_numpy(), frame[judge].to_numpy()
    has = np.arange(len(y)) % 5 == 0
    given = np.where(has, y, np.nan)
    n, rest = has.sum(), (~has).sum()

    def part(lam: float | None) -> tuple[Any, list[float]]:
        found = ppi_mean(f, given, lam=lam)
        used = found.lam
        variance = np.var(y[has] - used * f[has]) / n + used**2 * np.var(f[~has]) / rest
        reach = Z * variance**0.5
        assert reach < found.high - found.estimate < 1.06 * reach
        second = used * f[~has].mean() + np.mean(y[has] - used * f[has])
        return found, [
            (found.estimate + sign * reach, second + sign * reach)
            for sign in (-1, 0, 1)
        ]

    (found, plain), (_, full), (_, tuned) = part(0.0), part(1.0), part(None)
    return {
        "n_labelled": found.n_labelled,
        "n_unlabelled": found.n_judged - found.n_labelled,
        "true_mean": y.mean(),
        "classical": [plain[0], plain[2]],
        "classical_point": plain[1],
        "judge_raw_mean": (found.judge_mean, f.mean()),
        "ppi_lam1": {"point": full[1], "ci95": [full[0], full[2]]},
        "ppi_pp": {"point": tuned[1], "ci95": [tuned[0], tuned[2]]},
    }


def arms(
    frame: pl.DataFrame, steps: dict[str, float], *pairs: str, paired: bool
) -> Any:
    """Arm against arm; `steps`: how many a point has, for tests that count them.

    Averages of labels are whole in such steps; what a judge's expected score loses in
    them is far less than the chance in the reference's drawing.
    """
    from scipy import stats

    def one(a: str, b: str, column: str, step: float) -> Any:
        found = mean_effect(
            frame,
            Metric(column),
            control=b,
            treatment=a,
            pair="request_id" if paired else None,
        )
        x, y = (
            frame.filter(arm=arm).sort("request_id")[column].to_numpy()
            for arm in (a, b)
        )
        whole = [np.rint(step * v).astype(int) for v in (x, y)]
        if paired:
            gaps, numbers = np.unique(whole[0] - whole[1], return_counts=True)
            absolute = doubled = paired_permutation_test(gaps, numbers).pvalue
            t = stats.ttest_rel(x, y)
        else:
            values = np.unique(np.concatenate(whole))
            c, d = ((v[:, None] == values).sum(0) for v in (whole[1], whole[0]))
            absolute = doubled = permutation_test(c, d, values=values).pvalue
            if len(values) < 10:  # with many values the conventions hardly differ
                doubled = permutation_test(
                    c, d, values=values, convention="doubled"
                ).pvalue
            t = stats.ttest_ind(x, y, equal_var=False)
        return {
            "n_a": (found.n_treatment, len(x)),
            "n_b": (found.n_control, len(y)),
            "paired": paired,
            "mean_a": (found.treatment_mean, x.mean()),
            "mean_b": (found.control_mean, y.mean()),
            "diff": (found.difference, x.mean() - y.mean()),
            "p_perm_scipy": Drawn(doubled, 2),
            "p_perm_abs": Drawn(absolute, 1),
            "p_t": (found.pvalue, t.pvalue),
        }

    return {
        pair: {
            column: one(*pair.split("_vs_"), column, step)
            for column, step in steps.items()
        }
        for pair in pairs
    }


def plain_alpha(items: list[Any]) -> float:
    """Ordinal alpha as it is defined, over every pair of labels."""
    items = [item for item in items if len(item) > 1]
    values, number = np.unique(np.concatenate(items), return_counts=True)
    upto = np.cumsum(number)

    def distance(a: float, b: float) -> float:
        i, j = sorted((np.searchsorted(values, a), np.searchsorted(values, b)))
        between = upto[j] - upto[i] + number[i]
        return float((between - (number[i] + number[j]) / 2) ** 2)

    seen = sum(distance(a, b) / (len(i) - 1) for i in items for a in i for b in i)
    expected = sum(
        m * k * distance(a, b)
        for a, m in zip(values, number, strict=True)
        for b, k in zip(values, number, strict=True)
    )
    return float(1 - seen * (number.sum() - 1) / expected)


def people(own: pl.DataFrame, scale: tuple[int, int]) -> Any:
    """Annotators among themselves."""
    own = own.drop_nulls("label")
    found = annotator_agreement(own, scale=scale, resamples=100)
    both = own.join(own, on=["request_id", "arm"], suffix="_other").filter(
        pl.col("annotator") != pl.col("annotator_other")
    )
    x, y = (both[c].cast(float).to_numpy() for c in ("label", "label_other"))
    items = own.group_by("request_id", "arm").agg("label")["label"].to_list()
    return {
        "alpha_ordinal": (found.krippendorff_alpha.estimate, plain_alpha(items)),
        "pairwise": {
            "n_pairs": (sum(p.n for p in found.pairs.values()), both.height // 2),
            "qwk": (found.weighted_kappa.estimate, plain_kappa(x, y)),
            "exact_agreement": (found.exact.estimate, np.mean(x == y)),
        },
    }


def people_and_others(own: pl.DataFrame) -> Any:
    """Each label against the mean of the other people's labels of the reply."""
    item = ["request_id", "arm"]
    own = own.drop_nulls("label").with_columns(pl.col("label").cast(pl.Float64))
    others = (pl.col("label").sum().over(item) - pl.col("label")) / (
        pl.len().over(item) - 1
    )
    frame = own.filter(pl.len().over(item) > 1).with_columns(others.alias("others"))
    found = correlations(frame["label"], frame["others"])
    return {"n": found["n"], **people(own, FOUR), "rating_vs_mean_of_others": found}


def intraclass(own: pl.DataFrame) -> Any:
    """Intraclass correlations: from the package's pairs and alpha, and from squares."""
    wide = own.pivot("annotator", index=["request_id", "arm"], values="label")
    table = wide.drop("request_id", "arm").to_numpy().astype(float)
    n, k = table.shape
    pairs = annotator_agreement(own, resamples=100).pairs.values()
    error = np.mean([((p.limits[1] - p.limits[0]) / 2 / Z) ** 2 / 2 for p in pairs])
    raters = n * sum(p.bias.estimate**2 for p in pairs) / k / (k - 1)
    within = (raters + error * (n - 1)) / n
    counts = (table[:, :, None] == np.arange(1, 6)).sum(1).astype(float)
    coincidences = (counts.T @ counts - np.diag(counts.sum(0))) / (k - 1)
    alpha = concordance.alpha_from_coincidences(
        coincidences, np.arange(1.0, 6), level="interval"
    )
    items = within * ((n * k - 1) / (1 - alpha) - n * (k - 1)) / (n - 1)

    def coefficients(rows: float, columns: float, left: float, inner: float) -> Any:
        return {
            "ICC(1,1)": (rows - inner) / (rows + (k - 1) * inner),
            "ICC(A,1)": (rows - left)
            / (rows + (k - 1) * left + k * (columns - left) / n),
            "ICC(C,1)": (rows - left) / (rows + (k - 1) * left),
            "ICC(1,k)": (rows - inner) / rows,
            "ICC(A,k)": (rows - left) / (rows + (columns - left) / n),
            "ICC(C,k)": (rows - left) / rows,
        }

    by_row, by_column = table.mean(1), table.mean(0)
    rest = table - by_row[:, None] - by_column + table.mean()
    plain = coefficients(
        k * by_row.var(ddof=1),
        n * by_column.var(ddof=1),
        (rest**2).sum() / (n - 1) / (k - 1),
        table.var(axis=1, ddof=1).mean(),
    )
    ours = coefficients(items, raters, error, within)
    return {**people(own, FIVE), "icc": {c: (ours[c], plain[c]) for c in plain}}


# The three sets


def llm_rubric_real(folder: Path) -> Any:
    """223 support chats, one rating each."""
    frame = tidy(folder)
    human, argmax = frame["human_score"], frame["judge_argmax"]
    judges = {
        name: correlations(frame[column], human, rmse=True)
        for name, column in {
            "expected": "judge_score",
            "argmax": "judge_argmax",
            "sample": "judge_sample",
            "sample_readme_draw": "judge_sample_readme",
        }.items()
    }
    shown = agreement(argmax, human, scale=FOUR, resamples=100).confusion
    published = {
        name: {
            ("kendall" if key == "kendall_tau_b" else key): value
            for key, value in judges[ours].items()
            if key != "n"
        }
        for name, ours in {
            "argmax_llm": "argmax",
            "expected_llm": "expected",
            "sample_llm (their own draw = column judge_sample_readme)": (
                "sample_readme_draw"
            ),
        }.items()
    }
    trained = Absent("the trained network's predictions were not published")
    published["trained_LLM-Rubric"] = dict.fromkeys(
        ("pearson", "spearman", "kendall"), trained
    )
    published["random"] = {"rmse": Absent("a random draw that was not published")}
    columns = ("judge_score", "human_score")
    return {
        "n": frame.height,
        "system_means": means(frame, *columns, "judge_argmax", "reply_length_chars"),
        "judge_vs_human": judges,
        "qwk": {
            "argmax": kappa(argmax, human, FOUR),
            "sample": kappa(frame["judge_sample"], human, FOUR),
            "expected_rounded_half_up": kappa(
                half_up(frame["judge_score"]), human, FOUR
            ),
        },
        "confusion_argmax_rows_human_cols_judge": [
            [
                (int(cell), frame.filter(human == i, argmax == j).height)
                for j, cell in enumerate(row, 1)
            ]
            for i, row in enumerate(shown, 1)
        ],
        "length": by_length(frame, *columns, "reply_length_chars"),
        "ppi": corrected(frame, *columns),
        "ab_independent": arms(
            frame,
            {"human_score": 1, "judge_score": 64},
            "system_0_vs_system_1",
            "system_0_vs_system_2",
            "system_1_vs_system_2",
            paired=False,
        ),
        "published_in_repo_README": published,
    }


def mtrag_human(folder: Path) -> Any:
    """477 replies of three systems, two to three of seven annotators, two judges."""
    frame = tidy(folder)
    models = frame.filter(pl.col("arm") != "reference")
    cloud = frame.filter(pl.col("domain").str.contains("(?i)cloud"))
    criteria = ("completeness", "faithfulness", "appropriateness", "naturalness")
    rated = [f"human_{name}" for name in (*criteria, "win_rate_pct")]
    rb, rl = ("judge_score", "human_completeness"), ("judge_rl_f", "human_faithfulness")

    def against(rows: pl.DataFrame, judge: str) -> Any:
        return {
            name.removeprefix("human_"): correlations(rows[judge], rows[name])
            for name in rated
        }

    def with_median(judge: str, human: str) -> Any:
        own = labels(folder, human.removeprefix("human_"), FOUR)
        both = frame.join(consensus(own, how="median"), on=["request_id", "arm"])
        score = half_up(1 + 3 * both[judge])
        return {"value": kappa(score, half_up(both["label"]), FOUR)}

    return {
        "n_items": frame.height,
        "n_requests": frame["request_id"].n_unique(),
        "system_means": means(
            frame, *rated, "judge_score", "judge_rl_f", "reply_length_chars"
        ),
        "human_human": {
            name: people_and_others(labels(folder, name, FOUR)) for name in criteria
        },
        "judge_vs_human": {
            judge: {
                **against(frame, column),
                "excluding_reference_system": against(models, column),
            }
            for judge, column in (("rb_llm", "judge_score"), ("rl_f", "judge_rl_f"))
        },
        "qwk_rb_llm_vs_median_completeness": with_median(*rb),
        "qwk_rl_f_vs_median_faithfulness": with_median(*rl),
        "length_rb_llm_completeness": by_length(frame, *rb, "reply_length_chars"),
        "length_rl_f_faithfulness": by_length(frame, *rl, "reply_length_chars"),
        "length_rb_llm_completeness_models_only": by_length(
            models, *rb, "reply_length_chars"
        ),
        "ab_paired": arms(
            frame,
            {
                "human_completeness": 6,
                "human_faithfulness": 6,
                "human_win_rate_pct": 0.06,  # sixths of 100
                "judge_score": 1000,
                "judge_rl_f": 1000,
            },
            "gpt-4o_vs_llama-3.1-405b-instruct",
            "reference_vs_gpt-4o",
            "reference_vs_llama-3.1-405b-instruct",
            paired=True,
        ),
        "ppi_rl_f_faithfulness": corrected(frame, *rl),
        "cloud_domain_only": {
            "n": cloud.height,
            "rb_llm_vs_completeness": correlations(*(cloud[c] for c in rb)),
            "rl_f_vs_faithfulness": correlations(*(cloud[c] for c in rl)),
        },
    }


def hanna(folder: Path) -> Any:
    """1,056 texts of eleven systems, three annotators, five judges of four wordings.

    As in the file, a judge's 0 (an answer that was not parsed) counts as a score.
    """
    frame, keys = tidy(folder), ["request_id", "arm"]
    machines = frame.filter(pl.col("arm") != "Human")
    wordings = read_table(folder / "judge_scores.parquet", columns={"arm": "system"})
    scores = wordings.frame.join(
        frame.select(*keys, "reply_length_tokens"), on=keys
    ).with_columns(name=pl.format("{}/{}", "judge_model", "criterion"))
    criteria = scores["criterion"].unique().to_list()
    people = {name: labels(folder, name, FIVE) for name in criteria}
    first = scores.filter(eval_prompt=1)
    judges = {
        name: part.join(consensus(people[part["criterion"][0]]), on=keys)
        for (name,), part in first.group_by("name")
    }
    bleu = correlations(machines["auto_bleu"], machines["human_score"])
    middle = frame.join(consensus(people["relevance"], how="median"), on=keys)

    def length(name: str) -> Any:
        return by_length(judges[name], "judge_score", "label", "reply_length_tokens")

    return {
        "n_items": frame.height,
        "system_means": means(
            frame, "human_score", "judge_score", "judge_chatgpt", "reply_length_tokens"
        ),
        "human_human": {name: intraclass(own) for name, own in people.items()},
        "judge_vs_human_mean_all_11_systems": {
            name: correlations(rows["judge_score"], rows["label"])
            for name, rows in judges.items()
        },
        "judge_vs_human_mean_excluding_Human_system": {
            name: correlations(rows["judge_score"], rows["label"])
            for name, every in judges.items()
            for rows in [every.filter(pl.col("arm") != "Human")]
        },
        "notebook_check_BLEU_vs_relevance_excluding_Human": {
            "ours": bleu,
            "published_in_notebook": {
                "pearson": bleu["pearson"],
                "spearman": bleu["spearman"],
                "kendall": bleu["kendall_tau_b"],
            },
        },
        "zero_scores_by_judge": {
            f"{judge}/{wording}": part.filter(judge_score=0).height
            for (judge, wording), part in scores.group_by("judge_model", "eval_prompt")
        },
        "qwk_beluga_half_up_vs_human_median_relevance": kappa(
            half_up(middle["judge_score"]), middle["label"], FIVE
        ),
        "length_beluga_relevance": length("Beluga-13B/relevance"),
        "length_chatgpt_relevance": length("ChatGPT/relevance"),
        "length_beluga_complexity": length("Beluga-13B/complexity"),
        "ab_paired_relevance": arms(
            frame,
            {"human_score": 3, "judge_score": 3, "judge_chatgpt": 3},
            "GPT-2_vs_HINT",
            "GPT_vs_RoBERTa",
            "Fusion_vs_CTRL",
            "GPT-2_vs_GPT-2 (tag)",
            "Human_vs_GPT-2",
            paired=True,
        ),
        "ppi_beluga_relevance": corrected(frame, "judge_score", "human_score"),
    }


SETS = {f.__name__: f for f in (llm_rubric_real, mtrag_human, hanna)}


@pytest.fixture(scope="module")
def reference(real_data: Path) -> dict[str, Any]:
    """The file, its decimals as printed."""
    text = (real_data / "reference_numbers.json").read_text("utf-8")
    return json.loads(text, parse_float=Decimal)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", SETS)
def test_every_number_of_a_set_is_reproduced(
    real_data: Path, reference: dict[str, Any], name: str
) -> None:
    """Each is computed, twice, and equals what is printed; none is left out."""
    wanted = dict(numbers_of(reference[name]))
    found = dict(numbers_of(SETS[name](real_data / name)))
    assert wanted.keys() ^ found.keys() == set()
    wrong = {p: (v, found[p]) for p, v in wanted.items() if differs(v, found[p])}
    assert wrong == {}


def test_no_set_of_the_file_is_left_out(reference: dict[str, Any]) -> None:
    """A set that is not computed above fails."""
    assert reference.keys() == {"_meta", *SETS}

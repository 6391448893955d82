"""Whose labels a calibration rests on, and who is labelling right now."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from reply_resolution.errors import LabelError
from reply_resolution.inputs import Inputs
from reply_resolution.labeling.session import LabelSession, draw_for_labels
from reply_resolution.tables.labels import read_labels


@dataclass(frozen=True, slots=True)
class Labelling:
    """The labels of a run of notebook 1.

    Attributes:
        labels: The labels to use, long form; none while somebody labels.
        session: The session of who labels here; None where nobody does.
        waiting: Where that session stands, and why no result is shown yet; "" where
            nobody is labelling.
    """

    labels: pl.DataFrame
    session: LabelSession | None
    waiting: str


def take_labels(
    data: Inputs, annotator: str, *, n: int, seed: int, out: str, interactive: bool
) -> Labelling:
    """The labels of the table and of the sessions in `out`, and the session going on.

    Whoever labels must see neither a score of these replies nor how others labelled
    them, so until they are done there are no labels to show a result of.

    Args:
        data: The tables, as loaded.
        annotator: Who labels here; "" is nobody, and then the sessions are left out.
        n: How many replies to label.
        seed: Of the draw and the order.
        out: The folder; labels are kept in `labels/<annotator>.jsonl` in it.
        interactive: Whether anybody is there to label; a batch run takes what is kept.

    Raises:
        LabelError: A person of a session already has labels in the table, or is
            spelt in two ways; a batch run finds no labels of the annotator.
    """
    annotator = annotator.strip()
    if not annotator:
        return Labelling(data.labels, None, "")
    if not interactive:
        kept = Path(out) / "labels" / f"{annotator}.jsonl"
        if not kept.is_file():
            raise LabelError(
                f"there are no labels of {annotator!r} in {kept.parent}. Labels given "
                "in JupyterLab are kept beside the notebook: run with --out "
                "notebooks/out (where its `out` was), or leave annotator empty."
            )
        return Labelling(all_labels(data, out), None, "")
    session = label_session(data, annotator, n=n, seed=seed, out=out)
    if session.done:
        return Labelling(all_labels(data, out), session, "")
    words = (
        f"{annotator} has answered {session.answered} of {session.total}. Until all "
        "are answered, nothing about scores and labels is shown on this page: it would "
        'lead whoever labels. Go on under "Label replies yourself".'
    )
    if n > data.replies.height:
        words += f" ({n} were asked for; there are {data.replies.height} replies.)"
    return Labelling(data.labels.clear(), session, words)


def label_session(
    data: Inputs, annotator: str, *, n: int, seed: int, out: str
) -> LabelSession:
    """The annotator's labelling session: started, or gone on with.

    Replies are drawn at random within arm; the same seed draws the same ones.

    Args:
        data: The tables, as loaded.
        annotator: Who labels.
        n: How many replies.
        seed: Of the draw and the order.
        out: The folder; labels are kept in `labels/<annotator>.jsonl` in it.

    Raises:
        LabelError: There are labels of somebody whose name differs in case only.
    """
    folder = Path(out) / "labels"
    for known in sorted(path.stem for path in folder.glob("*.jsonl")):
        if known != annotator and known.casefold() == annotator.casefold():
            raise LabelError(
                f"there are labels of {known!r} in {folder}, and you are "
                f"{annotator!r}. Set annotator to {known!r} to go on with them, or "
                "take another name."
            )
    # What is shown must not come with a score, a reason or a label beside it.
    plain = [
        c
        for c in ("request_id", "arm", "request", "reply", "context", "conversation")
        if c in data.replies.columns
    ]
    drawn = draw_for_labels(data.replies.select(plain), n, seed=seed)
    versions = (
        data.verdicts["metric_version"].drop_nulls().unique().to_list()
        if "metric_version" in data.verdicts.columns
        else []
    )
    return LabelSession.open(
        folder / f"{annotator}.jsonl",
        drawn,
        annotator=annotator,
        seed=seed,
        metric_version=versions[0] if len(versions) == 1 else None,
    )


def all_labels(data: Inputs, out: str) -> pl.DataFrame:
    """The labels of the table, and those of the sessions kept in `out`.

    Args:
        data: The tables, as loaded.
        out: The folder with `labels/`.

    Raises:
        LabelError: A person of a session already has labels in the table.
    """
    files = sorted((Path(out) / "labels").glob("*.jsonl"))
    if not files:
        return data.labels
    more = pl.concat([read_labels(file).frame for file in files])
    same = set(more["annotator"].unique()) & set(data.labels["annotator"].unique())
    if same:
        raise LabelError(
            f"{', '.join(sorted(same))} has labels in the table and in {out}/labels. "
            "Label under another name, or leave one of the two out."
        )
    known = data.labels.columns
    return pl.concat(
        [data.labels, more.select(pl.col(c) for c in known if c in more.columns)],
        how="diagonal_relaxed",
    )

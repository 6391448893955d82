"""Simulated worlds on which the intervals of agreement are reported, not tuned.

Written down before any interval was tried on them. Tuning, where there was any, used
the older worlds (`OLD`): three label shapes, judge equal in 70% or 90%. The fresh ones
(`FRESH`) are other joint tables of label (rows) and judge (columns), and other sizes:

- six tables of counts from real data (facts; the data themselves are not here):
  CEBaB stars, first annotator against gpt-4o (711 replies); MT-RAG completeness,
  median of people against rb_llm, and faithfulness against rl_f, both judges mapped
  by floor(1 + 3 x + 0.5) (477 each); LLM-Rubric, one user rating against gpt-3.5's
  argmax (223); HANNA relevance, mean of three people against Beluga-13B, both rounded
  half up, and two people against each other (1,056 each);
- six random tables: labels Dirichlet(1, ..., 1), each row of the judge Dirichlet with
  its mass by distance from the diagonal, once `blunt` and once `sharp` (rare gross
  errors), seeds 2026 to 2028;
- three hard ones: `misread` (equal in 96.5%, one level off in 3%, the far end of the
  scale in 0.5%), `never gross` (equal in 90%, else one level off), `narrow` (90% of
  the labels are 5, judge equal in 90%, else any other level alike).
"""

import numpy as np

SIZES = (100, 150, 200, 300, 500, 1000)

_SHAPES = {
    "spread": (0.15, 0.15, 0.20, 0.25, 0.25),
    "J-shaped": (0.20, 0.05, 0.05, 0.20, 0.50),
    "ceiling": (0.02, 0.02, 0.03, 0.13, 0.80),
}
_REAL = {
    "CEBaB": [
        [92, 39, 2, 1, 0],
        [22, 102, 12, 2, 1],
        [3, 69, 70, 28, 0],
        [0, 6, 14, 62, 8],
        [0, 0, 4, 59, 115],
    ],
    "MT-RAG completeness": [
        [11, 2, 11, 6],
        [1, 2, 8, 5],
        [0, 2, 16, 20],
        [5, 0, 127, 261],
    ],
    "MT-RAG faithfulness": [
        [22, 2, 1, 7],
        [12, 11, 15, 4],
        [5, 6, 42, 29],
        [4, 8, 54, 255],
    ],
    "LLM-Rubric": [[2, 0, 4, 4], [0, 1, 25, 37], [0, 1, 29, 76], [0, 1, 16, 27]],
    "HANNA judge": [
        [62, 49, 25, 4, 1],
        [104, 158, 81, 12, 0],
        [59, 155, 132, 28, 1],
        [17, 33, 57, 32, 2],
        [2, 8, 16, 17, 1],
    ],
    "HANNA people": [
        [140, 69, 31, 36, 25],
        [67, 82, 40, 31, 50],
        [39, 47, 14, 14, 25],
        [48, 51, 15, 13, 22],
        [31, 68, 26, 20, 52],
    ],
}
_MASS = {"blunt": (8, 1.5, 0.3, 0.1, 0.1), "sharp": (40, 3, 0.2, 0.1, 0.05)}


def _joint(shares, row):
    table = np.array([share * row(i) for i, share in enumerate(shares)])
    return table / table.sum()


def _off_by_one(i, equal, near, levels=5):
    """A row: equal, then one level off (shared by the neighbours there are)."""
    out = np.zeros(levels)
    out[i] = equal
    beside = [j for j in (i - 1, i + 1) if 0 <= j < levels]
    out[beside] = near / len(beside)
    return out


def _old(shape, sharp):
    def row(i):
        out = np.zeros(5)
        out[i] = sharp
        for j in (i - 1, i + 1):
            if 0 <= j < 5:
                out[j] += (1 - sharp) * 0.4
        return out + (1 - out.sum()) / 5

    return _joint(_SHAPES[shape], row)


def _random(kind, seed):
    rng = np.random.default_rng(seed)
    distance = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    mass = np.array(_MASS[kind])[distance]
    return _joint(rng.dirichlet(np.ones(5)), lambda i: rng.dirichlet(mass[i]))


def _misread(i):
    out = _off_by_one(i, 0.965, 0.03)
    out[0 if i >= 2 else 4] += 0.005
    return out


OLD = {
    f"{shape} {sharp:.0%}": _old(shape, sharp)
    for shape in _SHAPES
    for sharp in (0.7, 0.9)
}
FRESH = {
    **{name: np.array(table) / np.sum(table) for name, table in _REAL.items()},
    **{
        f"{kind} {seed}": _random(kind, seed)
        for kind in _MASS
        for seed in (2026, 2027, 2028)
    },
    "misread": _joint(_SHAPES["spread"], _misread),
    "never gross": _joint(_SHAPES["J-shaped"], lambda i: _off_by_one(i, 0.9, 0.1)),
    "narrow": _joint(
        (0.025, 0.025, 0.025, 0.025, 0.9),
        lambda i: np.where(np.arange(5) == i, 0.9, 0.025),
    ),
}

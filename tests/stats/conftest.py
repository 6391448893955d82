"""What the tests of exact statistics share: right answers by counting in integers."""

from collections.abc import Callable, Sequence
from fractions import Fraction
import json
from math import comb
from pathlib import Path
from typing import Any

import pytest

ORACLES = Path(__file__).parent / "oracles"


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], Any]:
    """Load one file of numbers that this project did not compute."""
    return lambda name: json.loads((ORACLES / f"{name}.json").read_text("utf-8"))


def _dealings(pool: Sequence[int], drawn: int, scores: Sequence[int]) -> dict[int, int]:
    ways = {(0, 0): 1}
    for size, score in zip(pool, scores, strict=True):
        new: dict[tuple[int, int], int] = {}
        for (dealt, total), n in ways.items():
            for x in range(min(size, drawn - dealt) + 1):
                key = (dealt + x, total + x * score)
                new[key] = new.get(key, 0) + n * comb(size, x)
        ways = new
    return {total: n for (dealt, total), n in ways.items() if dealt == drawn}


@pytest.fixture(scope="session")
def dealings() -> Callable[[Sequence[int], int, Sequence[int]], dict[int, int]]:
    """Ways to deal `drawn` of a pool, by the sum of their scores, as whole numbers."""
    return _dealings


@pytest.fixture(scope="session")
def counted_pvalue() -> Callable[..., Fraction]:
    """The permutation p-value as a fraction, by counting every dealing."""

    def pvalue(
        control: Sequence[int],
        treatment: Sequence[int],
        scores: Sequence[int],
        alternative: str = "two-sided",
    ) -> Fraction:
        pool = [a + b for a, b in zip(control, treatment, strict=True)]
        drawn, size = sum(treatment), sum(pool)
        ways = _dealings(pool, drawn, scores)
        seen = sum(n * s for n, s in zip(treatment, scores, strict=True))
        middle = Fraction(
            drawn * sum(n * s for n, s in zip(pool, scores, strict=True)), size
        )
        hits = 0
        for total, n in ways.items():
            if alternative == "greater":
                far = total >= seen
            elif alternative == "less":
                far = total <= seen
            else:
                far = abs(total - middle) >= abs(seen - middle)
            hits += n * far
        return Fraction(hits, comb(size, drawn))

    return pvalue

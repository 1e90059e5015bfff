"""The truths of many drawn images, and those that meet a condition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from retinabench.data.synthetic.fundus import ImageTruth, truth
from retinabench.data.synthetic.streams import POPULATIONS

Find = Callable[..., list[int]]


@pytest.fixture(scope="package")
def records() -> dict[str, list[ImageTruth]]:
    return {population: [truth(i, population=population) for i in range(4000)] for population in POPULATIONS}


@pytest.fixture(scope="package")
def find(records: dict[str, list[ImageTruth]]) -> Find:
    """Return the first `count` indices of a population that meet a condition."""

    def search(condition: Callable[[ImageTruth], bool], count: int = 1, population: str = "in_domain") -> list[int]:
        return [t.index for t in records[population] if condition(t)][:count]

    return search

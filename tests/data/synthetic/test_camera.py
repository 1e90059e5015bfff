"""The two cameras."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.data.synthetic.streams import POPULATIONS
from retinabench.data.synthetic.truth import (
    Truth,
    truth,
)


@pytest.fixture(scope="module")
def records() -> dict[str, list[Truth]]:
    return {population: [truth(i, population=population) for i in range(6000)] for population in POPULATIONS}


def test_the_cameras_differ(records: dict[str, list[Truth]]) -> None:
    blur = {p: np.median([t.camera["focus"] for t in rows]) for p, rows in records.items()}
    assert blur["shifted"] > 2 * blur["in_domain"]

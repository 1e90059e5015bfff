"""Random streams: every number of an image comes from a generator keyed by what it belongs to.

No stream sees how many numbers another one drew, so a change in the drawing of dust cannot move a vessel,
and any worker draws any image in any order.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Population = Literal["in_domain", "shifted"]
POPULATIONS: tuple[Population, ...] = ("in_domain", "shifted")

_STREAMS = (
    "patient_grade", "eye_grade", "label", "lesions", "visit", "camera", "patient_anatomy", "eye_anatomy", "placing",
    "texture", "stray", "noise",
)  # fmt: skip


def stream(name: str, seed: int, population: str, number: int) -> np.random.Generator:
    key = (seed, POPULATIONS.index(population), number, _STREAMS.index(name))
    return np.random.default_rng(key)

"""The truth of a synthetic image, which does not depend on its size: grade, labels, lesions, camera."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from retinabench.core.errors import InputError, nearest
from retinabench.data.synthetic.camera import take_settings
from retinabench.data.synthetic.streams import POPULATIONS, Population, stream

GRADE_MIX: dict[Population, NDArray[np.float64]] = {
    "in_domain": np.array([25810, 2443, 5292, 873, 708]) / 35126,
    "shifted": np.array([1805, 370, 999, 193, 295]) / 3662,
}
"""Proportion (5,) of each true grade: the counts of EyePACS train and of labelled APTOS."""

FELLOW_EYE_CORRELATION = 0.85
"""Correlation of the Gaussian copula that ties the true grades of a patient's two eyes: an assumption."""

CONFUSION: NDArray[np.float64] = np.array(
    [
        [0.960, 0.030, 0.010, 0.000, 0.000],
        [0.300, 0.580, 0.120, 0.000, 0.000],
        [0.050, 0.110, 0.780, 0.050, 0.010],
        [0.000, 0.010, 0.200, 0.740, 0.050],
        [0.005, 0.005, 0.060, 0.080, 0.850],
    ]
)
"""P(reported grade | true grade), (5, 5), rows sum to 1: one reader against the adjudicated truth.

An assumption with the shape that reader studies report: errors fall mostly on neighbouring grades, readers
miss more than they invent, and the commonest disagreement is a missed microaneurysm (Krause et al.,
Ophthalmology 125 (2018) 1264-1272, doi 10.1016/j.ophtha.2018.01.034). Here 30 % of grade 1 is read as 0, and
one eye in six of grade 2 is read below it, as an isolated small haemorrhage is taken for a microaneurysm.
For referable disease the reader has a specificity near 98 % and a sensitivity near 88 % in both populations.
"""

for _fixed in (CONFUSION, *GRADE_MIX.values()):
    _fixed.setflags(write=False)

LESIONS = (
    "microaneurysm",
    "blot_haemorrhage",
    "flame_haemorrhage",
    "hard_exudate",
    "cotton_wool_spot",
    "venous_beading",
    "new_vessels",
    "preretinal_haemorrhage",
    "vitreous_haemorrhage",
)


@dataclass(frozen=True)
class ImageTruth:
    """The truth of one image, at any size."""

    index: int
    patient: int
    eye: Literal["left", "right"]
    population: Population
    true_grade: int
    """International severity scale, 0-4."""
    reported_grade: int
    """The grade that one reader reports: drawn from `CONFUSION[true_grade]`."""
    p_referable: float
    """P(reported grade >= 2 | image) = CONFUSION[true_grade, 2:].sum().

    The image at full resolution shows its true grade, so this is what a perfect reader of it would state.
    """
    lesions: dict[str, int]
    """Number of lesions of each kind in `LESIONS` in the visible field."""
    camera: dict[str, float]
    """Settings of the camera that took the image, as `camera.take_settings` names them."""


def truth(index: int, *, seed: int = 0, population: str = "in_domain") -> ImageTruth:
    """Return the truth of image `index`: patient index // 2, left eye if the index is even."""
    where = _population(population)
    for name, value in (("index", index), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
            raise InputError(f"{name} is {value!r}", hint=f"Give {name} as a whole number from 0 on.")
    index, seed = int(index), int(seed)
    grade = _true_grade(index, seed, where)
    reader = stream("label", seed, where, index)
    reported = int(np.searchsorted(np.cumsum(CONFUSION[grade])[:-1], reader.random(), side="right"))
    return ImageTruth(
        index=index,
        patient=index // 2,
        eye="right" if index % 2 else "left",
        population=where,
        true_grade=grade,
        reported_grade=reported,
        p_referable=float(CONFUSION[grade, 2:].sum()),
        lesions=_lesion_counts(grade, stream("lesions", seed, where, index)),
        camera=take_settings(
            where, stream("visit", seed, where, index // 2), stream("camera", seed, where, index)
        ),
    )


def _population(name: str) -> Population:
    for known in POPULATIONS:
        if name == known:
            return known
    raise InputError(f"unknown population '{name}'", hint=nearest(str(name), POPULATIONS))


def _true_grade(index: int, seed: int, population: Population) -> int:
    """Gaussian copula: sqrt(r) z_patient + sqrt(1 - r) z_eye is standard normal, so the mix is exact."""
    shared = stream("patient_grade", seed, population, index // 2).standard_normal()
    own = stream("eye_grade", seed, population, index).standard_normal()
    z = np.sqrt(FELLOW_EYE_CORRELATION) * shared + np.sqrt(1 - FELLOW_EYE_CORRELATION) * own
    return int(np.searchsorted(_cumulative(population), ndtr(z), side="right"))


@lru_cache
def _cumulative(population: Population) -> NDArray[np.float64]:
    return np.cumsum(GRADE_MIX[population])[:-1]


def _lesion_counts(grade: int, rng: np.random.Generator) -> dict[str, int]:
    """Draw how many lesions of each kind the international clinical severity scale allows.

    0: none. 1: microaneurysms only. 2: more than microaneurysms, less than severe: fewer than 20
    haemorrhages in all, no beading. 3: the 4-2-1 rule, at least 20 haemorrhages in each of four quadrants or
    venous beading in two, or both; quadrants are those of the image. 4: new vessels, preretinal
    or vitreous haemorrhage, on top of the signs of grade 2.
    Source: Wilkinson et al., Ophthalmology 110 (2003) 1677-1682, doi 10.1016/S0161-6420(03)00475-5.
    """
    counts = dict.fromkeys(LESIONS, 0)
    if grade == 0:
        return counts
    if grade == 1:
        counts["microaneurysm"] = int(rng.integers(1, 9))
        return counts
    # How advanced the disease is within its grade; some of grade 2 has only just left grade 1.
    early = grade == 2 and rng.random() < 0.15
    burden = 0.1 * rng.random() if early else rng.random() ** 0.6
    counts["microaneurysm"] = int(rng.integers(5, 12) + 20 * burden)
    haemorrhages = int(5 + 15 * burden)
    if grade == 3:
        many = rng.random() < 0.6
        if many:
            haemorrhages = int(rng.integers(88, 125))
        if not many or rng.random() < 0.4:
            counts["venous_beading"] = 2
    flames = int(rng.binomial(haemorrhages - 2, 0.3)) + 1
    counts["flame_haemorrhage"] = flames
    counts["blot_haemorrhage"] = haemorrhages - flames
    counts["hard_exudate"] = (
        int(rng.integers(10, 30) + 120 * burden) if rng.random() < 0.45 + 0.45 * burden else 0
    )
    counts["cotton_wool_spot"] = (
        int(rng.integers(1, 3) + 4 * burden) if rng.random() < 0.35 + 0.4 * burden else 0
    )
    if grade == 4:
        sign = rng.choice(["vessels", "preretinal", "vitreous", "both"], p=[0.45, 0.15, 0.15, 0.25])
        counts["new_vessels"] = int(rng.integers(1, 4)) if sign in ("vessels", "both") else 0
        counts["preretinal_haemorrhage"] = int(sign in ("preretinal", "both"))
        counts["vitreous_haemorrhage"] = int(sign == "vitreous" or rng.random() < 0.15)
    return counts

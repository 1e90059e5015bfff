"""Sets of grades that hold the true one as often as asked: ordinal conformal prediction, clustered by patient.

A set begins with the grade that is called and grows to the more probable neighbour; it has no gaps. Grade g is in the set unless the mass b(g) of
the grades that enter before it is surprisingly large: if its conformal p-value

    (sum_i v_i [b_i(y_i) >= b(g)] + B) / (sum_i v_i + B),    v_i = w(y_i) / (images of the patient),    B = max w

over the validation images i is above 1 - coverage. The images of one patient depend on each other, but patients are exchangeable, and the p-value
counts each patient once, however many images there are of it. With w = 1 a random image of the next patient has its grade in the set at least as
often as asked, for any number of patients (hierarchical conformal prediction, Lee et al.): all images are used, where the usual remedy draws one per patient.

Weights tilt the promise: the mean of w(y) over the images whose set holds y is at least the coverage times the mean of w(y), both in expectation. Proof:
under the law that is tilted by w the new image is, given all patients without their order, one of their images with a probability proportional to v, and B is at
least the mass of its patient. Three weightings are given:

* `alike`: w = 1;
* `severity`: w = 1 + y, so that to miss grade 4 counts five times as much as to miss grade 0;
* `grade`: w = [y = g] for each candidate g, and [y >= 3] for grades 3 and 4, which are too rare alone. The promise holds within grades 0, 1 and 2, and
  within the severe grades together; gaps between grades are filled.

A grade that fewer than about 1 / (1 - coverage) validation patients have is in every set of `grade`. On shifted images nothing is promised; the coverage that is found
there says what remains.

References:
    Lu, Angelopoulos and Pomerantz, Improving trustworthiness of AI disease severity rating in medical imaging with ordinal conformal
    prediction sets, MICCAI (2022). Lee, Barber and Willett, Distribution-free inference with hierarchical data, arXiv:2306.06342 (2023).
    Podkopaev and Ramdas, Distribution-free uncertainty quantification for classification under label shift, UAI (2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import Document
from retinabench.metrics.arrays import Bools, Floats
from retinabench.metrics.bootstrap import check_level, cluster_codes
from retinabench.metrics.proportions import Interval, clustered_proportion
from retinabench.metrics.weighted_images import Index
from retinabench.predictions.columns import GRADES
from retinabench.predictions.table import Predictions

SEVERE = 3  # the lowest severe grade
COVERAGE = 0.9
Weighting = Literal["alike", "severity", "grade"]
EVERY = np.arange(GRADES)
_CLASS = np.minimum(EVERY, SEVERE)  # the severe grades promise their coverage together
# Candidate grade -> weight of each true grade.
_WEIGHTS = {
    "alike": np.ones((GRADES, GRADES)),
    "severity": np.tile(1.0 + EVERY, (GRADES, 1)),
    "grade": (_CLASS[:, None] == _CLASS).astype(np.float64),
}


class Graded(NamedTuple):
    """The images of a part whose grade is known: their places in it, grades, probabilities (N, 5), and numbers of their patients."""

    rows: Index
    grade: NDArray[np.intp]
    prob: Floats
    patient: NDArray[np.intp]

    @classmethod
    def of(cls, part: Predictions | None) -> Graded | None:
        if part is None or part.grade is None or part.grade_prob is None:
            return None
        rows = np.flatnonzero(part.grade >= 0)
        codes, _ = cluster_codes(part.patients[rows])
        return cls(rows, part.grade[rows].astype(np.intp), part.grade_prob[rows], codes)

    @property
    def per_patient(self) -> Floats:
        return np.asarray(1 / np.bincount(self.patient)[self.patient])


def entering_mass(prob: Floats) -> Floats:
    """Return b (N, 5), the mass of the grades that enter a set before each, of probabilities (N, 5); of equal neighbours the more severe one is first."""
    rows = np.arange(len(prob))
    padded = np.pad(prob, ((0, 0), (1, 1)), constant_values=-1.0)  # nothing lies beyond the grades
    low = high = prob.argmax(axis=1) + 1  # the ends of the set, as columns of `padded`
    before, mass = np.zeros_like(prob), padded[rows, low].copy()
    for _ in range(GRADES - 1):
        up = padded[rows, high + 1] >= padded[rows, low - 1]
        entered = np.where(up, high + 1, low - 1)
        before[rows, entered - 1] = mass
        mass += padded[rows, entered]
        low, high = np.where(up, low, entered), np.where(up, entered, high)
    return before


def _largest_mass(validation: Graded, weighting: Weighting, coverage: float) -> Floats:
    """(5,) the largest b at which each grade is in a set, infinite where the images decide nothing."""
    score = entering_mass(validation.prob)[np.arange(len(validation.grade)), validation.grade]
    levels, place = np.unique(score, return_inverse=True)
    found = np.full(GRADES, np.inf)
    for candidate, weights in enumerate(_WEIGHTS[weighting]):
        mass = np.bincount(place, weights[validation.grade] * validation.per_patient)
        at_or_above, most = np.cumsum(mass[::-1])[::-1], float(weights.max())
        enough = (1 - coverage) * (at_or_above[0] + most) - most
        if enough >= 0:
            found[candidate] = levels[at_or_above > enough + 1e-9].max()
    return found


def sets_within(mass: Floats, largest: Floats) -> Bools:
    """(N, 5) whether each grade is in the set, by the `entering_mass` (N, 5) and the largest one (5,) of each; gaps are filled."""
    inside = mass <= largest
    from_above = np.logical_or.accumulate(inside[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(np.logical_or.accumulate(inside, axis=1) & from_above)


def grade_sets(predictions: Predictions, weighting: Weighting = "alike", coverage: float = COVERAGE) -> Bools:
    """Return a set of neighbouring grades for each image, which holds the true one at least as often as asked.

    The in-domain validation images choose how large the sets are. The promise is for a random image of the next patient.

    Args:
        predictions: Predictions with `grade_prob`, and with validation images whose grade is known.
        weighting: `alike`; `severity`, where missing a severe grade counts more; or `grade`, which holds within each grade (3 and 4 together).
        coverage: How often the set holds the grade.

    Returns:
        (N, 5) whether each grade is in the set of each image.

    Raises:
        InputError: No in-domain validation image has a grade and grade probabilities.

    Examples:
        >>> import retinabench as rb
        >>> five = [[0.7, 0.2, 0.1, 0, 0]] * 20 + [[0.5, 0.3, 0.1, 0.1, 0]]
        >>> split = ["validation"] * 20 + ["test"]
        >>> predictions = rb.Predictions.from_softmax(five, grades=[0] * 18 + [1, 2, 0], split=split)
        >>> rb.grade_sets(predictions)[-1].tolist()
        [True, True, False, False, False]
    """
    if weighting not in get_args(Weighting):
        raise InputError(f"unknown weighting '{weighting}'", hint=nearest(weighting, get_args(Weighting)))
    check_level(coverage)
    validation = Graded.of(predictions.select(domain="in_domain", split="validation"))
    if validation is None:
        hint = "Mark some images by split = validation, with grade and grade_prob."
        raise InputError("has no validation images that choose the sets", file=predictions.source, hint=hint)
    assert predictions.grade_prob is not None
    return sets_within(entering_mass(predictions.grade_prob), _largest_mass(validation, weighting, coverage))


@dataclass(frozen=True)
class GroupSets(Document):
    """Coverage and size (in grades) of the sets of some images, per image of a random patient."""

    group: str
    images: int
    coverage: Interval
    size: Interval


@dataclass(frozen=True)
class GradeSets(Document):
    """The sets of one weighting: on how many validation patients they rest, and what they hold in groups, the first being all images as the weighting counts them."""

    asked: float
    patients: int
    largest_mass: Floats  # of each grade; infinite (null) where it is in every set
    groups: tuple[GroupSets, ...]


def evaluated_sets(
    images: Graded, validation: Graded, weighting: Weighting, groups: Mapping[str, Bools], level: float
) -> GradeSets:
    """Return what the sets hold on all images, on those of each grade, and on subgroups of the part (N,)."""
    largest = _largest_mass(validation, weighting, COVERAGE)
    inside, each = sets_within(entering_mass(images.prob), largest), images.per_patient
    right, size = inside[np.arange(len(each)), images.grade], inside.mean(axis=1)
    masses = {"all": each * (1.0 + images.grade) if weighting == "severity" else each}
    masses |= {f"grade: {one}": each * (images.grade == one) for one in EVERY}
    masses |= {name: each * members[images.rows] for name, members in groups.items()}
    found = []
    for name, mass in masses.items():
        if mass.any():
            share = clustered_proportion(size, mass, images.patient, level)
            grades = Interval(GRADES * share.value, GRADES * share.low, GRADES * share.high)
            covered = clustered_proportion(right, mass, images.patient, level)
            found.append(GroupSets(name, int(np.count_nonzero(mass)), covered, grades))
    return GradeSets(COVERAGE, int(validation.patient.max()) + 1, largest, tuple(found))

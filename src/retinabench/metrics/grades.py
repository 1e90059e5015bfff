"""Scores of the probabilities of the five grades, the error in grades along referral, and sets of grades.

The scores are of the images that have a `grade` y and a `grade_prob` p(0) ... p(4). The grade that the model *calls*, c, is the most probable one (the
lowest of equals). With F(k) = p(0) + ... + p(k) and averages over the images:

* `quadratic_kappa` = 1 - sum (y - c)^2 / E, where E is what the sum would be if y and c were independent with their own frequencies;
* `grade_accuracy`: the share with c = y; `grade_error`: the mean of |c - y|, in grades;
* `rps`: the mean of sum over k < 4 of (F(k) - [y <= k])^2 / 4, the ranked probability score: the Brier score of "above grade k", averaged over k;
* `grade_nll`: the mean of -ln p(y), in nats; `severe_called_healthy`: of the images of grade 3 or 4, the share with c = 0;
* `referral_grade_error_area`: the mean of `grade_error` of the retained images over all numbers of referred ones.

References:
    Cohen, Weighted kappa, Psychol. Bull. 70:213 (1968). Epstein, A scoring system for probability forecasts of ranked
    categories, J. Appl. Meteorol. 8:985 (1969).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import Document
from retinabench.metrics import intervals, registry, weighted_images
from retinabench.metrics.intervals import Interval, clustered_proportion
from retinabench.metrics.referral_curves import area_of, values_on_grid
from retinabench.metrics.registry import ScoreSpec, ScoreValue
from retinabench.metrics.weighted_images import Bools, Cases, Floats, Index, Weighted
from retinabench.predictions.columns import GRADES
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import SEVERE

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
        codes, _ = weighted_images.cluster_codes(part.patients[rows])
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
    weighted_images.check_level(coverage)
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

    asked: float
    patients: int  # of the validation images
    largest_mass: Floats  # of each grade; infinite (null) where it is in every set
    groups: tuple[GroupSets, ...]  # the first: all images as the weighting counts them


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


GRID = np.arange(20) / 20  # shares referred at which the curve is given
_score = partial(ScoreSpec, by_rows=False)
FEWEST = 10
_FEW = f"no interval: fewer than {FEWEST} patients have a grade of 2 or more, which decide the score"
_UNDEFINED = {
    "quadratic_kappa": "all images have, and are called, one grade",
    "severe_called_healthy": "no image has grade 3 or 4",
}


class GradedCases(Cases):
    """Sorted images with `grade` (N,), `called_grade` (N,), and `losses`: the error in grades, RPS and NLL (N, 5) if each grade were the true one."""

    def __init__(self, part: Predictions, images: Graded, uncertainty: Floats, threshold: float) -> None:
        rows = images.rows
        super().__init__(part.label[rows], part.prob[rows], uncertainty[rows], None, threshold, images.patient)
        self.grade, prob = images.grade[self.order], images.prob[self.order]
        self.called_grade = prob.argmax(axis=1)
        below = np.cumsum(prob, axis=1)[:, :4]
        self.losses = {
            "grade_error": np.abs(self.called_grade[:, None] - EVERY).astype(np.float64),
            "rps": np.stack([((below - (grade <= EVERY[:4])) ** 2).mean(axis=1) for grade in EVERY], axis=1),
            "grade_nll": -np.log(np.maximum(prob, weighted_images.EPS)),
        }
        self.grade_error = self.loss("grade_error")

    def loss(self, name: str) -> Floats:
        return np.asarray(self.losses[name][np.arange(len(self)), self.grade])


def _cases(w: Weighted) -> GradedCases:
    assert isinstance(w.cases, GradedCases)
    return w.cases


def _mean_loss_of(w: Weighted, name: str) -> Floats:
    return w.mean(_cases(w).loss(name))


def quadratic_kappa_of(w: Weighted) -> Floats:
    return 1 - weighted_images.ratio(w.sum((_cases(w).grade - _cases(w).called_grade) ** 2), _expected(w, 2))


def _expected(w: Weighted, power: int) -> Floats:
    """(...,) sum of |y - c|^power over the images if y and c were independent."""
    pair = _cases(w).grade, _cases(w).called_grade
    true, called = (np.stack([w.sum(grade == k) for k in EVERY], axis=-1) for grade in pair)
    distance = np.abs(EVERY[:, None] - EVERY) ** float(power)
    return np.asarray(np.einsum("...i,ij,...j->...", true, distance, called) / w.total)[()]


def _right_counts(w: Weighted) -> tuple[Bools, Floats]:
    return _cases(w).called_grade == _cases(w).grade, w.weight


def _severe_counts(w: Weighted) -> tuple[Bools, Floats]:
    return _cases(w).called_grade == 0, w.weight * (_cases(w).grade >= SEVERE)


def _share_of(w: Weighted, counts: registry.Counts) -> Floats:
    hit, weight = counts(w)
    return weighted_images.ratio((weight * hit.astype(np.float64)).sum(axis=-1), weight.sum(axis=-1))


def _pseudo_kappa(w: Weighted) -> intervals.Moments:
    """A patient is added who is called the grades of another one."""
    patients, mean = intervals.patients_of(w), float(_expected(w, 2) / w.total)
    square = float(_expected(w, 4) / w.total) / mean**2
    return intervals.WHOLE / patients, intervals.WHOLE * square / patients**2


def _pseudo_loss(w: Weighted, name: str, *, area: bool = False) -> intervals.Moments:
    """A patient is added who has the grades that are predicted worst."""
    return registry.pseudo_of_losses(w, _cases(w).losses[name].max(axis=1), area=area)


def _loss(name: str, label: str, unit: str = "", largest: float = np.inf) -> ScoreSpec:
    interval = registry.Loss(partial(_pseudo_loss, name=name), 0.0, largest)
    return _score(name, label, "lower", unit, 1, partial(_mean_loss_of, name=name), interval=interval)


def _share(name: str, label: str, direction: Literal["higher", "lower"], counts: registry.Counts) -> ScoreSpec:
    return _score(
        name, label, direction, "", 1, partial(_share_of, counts=counts), interval=registry.Proportion(counts)
    )


_AREA = registry.Loss(partial(_pseudo_loss, name="grade_error", area=True), 0.0, 4.0)
_BUILTIN = (
    _score(
        "quadratic_kappa", "Quadratic weighted kappa", "higher", "", 1, quadratic_kappa_of,
        interval=registry.Loss(_pseudo_kappa, 1.0, 2.0),
    ),
    _share("grade_accuracy", "Grade accuracy", "higher", _right_counts),
    _loss("grade_error", "Error in grades", largest=4.0),
    _loss("rps", "Ranked probability score", largest=1.0),
    _loss("grade_nll", "NLL of the grade", "nats"),
    _share("severe_called_healthy", "Severe called healthy", "lower", _severe_counts),
    _score(
        "referral_grade_error_area", "Referral area, error in grades", "lower", "", 1,
        partial(area_of, metric="grade_error"), interval=_AREA,
    ),
)  # fmt: skip
GRADE_SCORES = {spec.name: spec for spec in _BUILTIN}


def _band(w: Weighted, value: Floats, draws: Floats, level: float) -> Floats:
    """(2, T) ends of the error in grades of the retained images; the pseudo-patient is one of them with the chance that its images are retained."""
    mean, square = _pseudo_loss(w, "grade_error")
    variances = [intervals.replicate_error(column) ** 2 for column in draws.T]
    rows = zip(value, variances, 1 - GRID, strict=True)
    return np.array([intervals.loss_interval(v, d, (mean, square / k), 4.0, level) for v, d, k in rows]).T


@dataclass(frozen=True)
class GradeScores(Document):
    """The scores of the grades of one set.

    `confusion` (5, 5) counts images by true grade (rows) and called grade; `shares` are those of the row. `curve` holds the error in grades
    of the retained images by the share `referred`, with pointwise intervals; `sets` the sets of grades by their weighting.
    """

    images: int
    patients: int
    scores: Mapping[str, ScoreValue]
    confusion: NDArray[np.intp]
    shares: tuple[tuple[Interval, ...], ...]
    curve: Mapping[str, Floats]
    sets: Mapping[str, GradeSets]


def grade_scores(
    part: Predictions,
    uncertainty: Floats,
    validation: Predictions | None,
    groups: Mapping[str, Bools],
    *,
    threshold: float = 0.5,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    workers: int | None = None,
) -> GradeScores | None:
    """Return the scores of the images of a set whose grade is known, or None; `validation` chooses the sets of grades, `groups` are subgroups (N,) by name."""
    images, chosen = Graded.of(part), Graded.of(validation)
    if images is None:
        return None
    cases = GradedCases(part, images, uncertainty, threshold)

    def statistic(weight: Floats) -> Floats:
        w = Weighted(cases, np.take(weight, cases.order, axis=1))
        curve = values_on_grid(w, GRID, 0.0, ["grade_error"])["grade_error"]
        return np.concatenate([np.stack([spec(w) for spec in _BUILTIN], axis=1), curve], axis=1)

    point = statistic(np.ones((1, len(cases))))[0]
    draws, band = np.full((0, len(point)), np.nan), np.full((2, len(GRID)), np.nan)
    if bootstrap:
        draws = weighted_images.cluster_bootstrap(
            statistic, images.patient, replicates=bootstrap, seed=seed, workers=workers
        )
        band = _band(cases.weighted(), point[len(_BUILTIN) :], draws[:, len(_BUILTIN) :], level)
    whole, scores = cases.weighted(), {}
    diseased = len(np.unique(images.patient[images.grade >= 2]))
    for spec, value, column in zip(_BUILTIN, point.tolist(), draws.T, strict=False):
        if not np.isfinite(value):
            ends = registry.Ends(why=_UNDEFINED[spec.name])
        elif spec.name == "quadratic_kappa" and diseased < FEWEST:
            ends = registry.Ends(why=_FEW if bootstrap else None)
        else:
            ends = spec.interval.ends([whole], value, column, level) if bootstrap else registry.Ends()
        scores[spec.name] = ScoreValue(value, ends.low, ends.high, spec.version, ends.why)
    pairs = [(cases.grade == true, [cases.called_grade == called for called in EVERY]) for true in EVERY]
    confusion = np.array([[int((true & called).sum()) for called in row] for true, row in pairs])
    shares = tuple(tuple(clustered_proportion(one, true, cases.patient, level) for one in row) for true, row in pairs)
    curve = {"referred": GRID, "value": point[len(_BUILTIN) :], "low": band[0], "high": band[1]}
    sets = {}
    if chosen is not None:
        sets = {name: evaluated_sets(images, chosen, name, groups, level) for name in get_args(Weighting)}
    return GradeScores(len(cases), int(images.patient.max()) + 1, scores, confusion, shares, curve, sets)

"""Scores of the probabilities of the five grades: agreement, forecasts, and the error in grades along referral.

They are of the images that have a `grade` y and a `grade_prob` p(0) ... p(4). The grade that the model *calls*, c, is the most probable one (the
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
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import Document
from retinabench.metrics.arrays import Bools, Floats
from retinabench.metrics.bootstrap import cluster_bootstrap
from retinabench.metrics.grade_sets import EVERY, SEVERE, Graded, GradeSets, Weighting, evaluated_sets
from retinabench.metrics.intervals import (
    WHOLE,
    Counts,
    Ends,
    Loss,
    Moments,
    Proportion,
    loss_interval,
    patients_of,
    replicate_error,
)
from retinabench.metrics.proportions import Interval, clustered_proportion
from retinabench.metrics.pseudo_patient import of_losses
from retinabench.metrics.referral_curves import area_of, values_on_grid
from retinabench.metrics.registry import ScoreSpec, ScoreValue
from retinabench.metrics.weighted_images import EPS, Cases, Weighted, ratio
from retinabench.predictions.table import Predictions

GRID = np.arange(20) / 20  # shares referred at which the curve is given
_score = partial(ScoreSpec, by_rows=False)
FEWEST = 10
_FEW = f"no interval: fewer than {FEWEST} patients have a grade of 2 or more, which decide the score"
_UNDEFINED = {
    "quadratic_kappa": "all images have, and are called, one grade",
    "severe_called_healthy": "no image has grade 3 or 4",
}


class GradedCases(Cases):
    """Images with grades and their probabilities, sorted as `Cases` are.

    Attributes: `grade` (N,), `called_grade` (N,), and `losses`: the error in grades, RPS and NLL (N, 5) if each grade were the true one.
    """

    def __init__(self, part: Predictions, images: Graded, uncertainty: Floats, threshold: float) -> None:
        rows = images.rows
        super().__init__(part.label[rows], part.prob[rows], uncertainty[rows], None, threshold, images.patient)
        self.grade, prob = images.grade[self.order], images.prob[self.order]
        self.called_grade = prob.argmax(axis=1)
        below = np.cumsum(prob, axis=1)[:, :4]
        self.losses = {
            "grade_error": np.abs(self.called_grade[:, None] - EVERY).astype(np.float64),
            "rps": np.stack([((below - (grade <= EVERY[:4])) ** 2).mean(axis=1) for grade in EVERY], axis=1),
            "grade_nll": -np.log(np.maximum(prob, EPS)),
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
    return 1 - ratio(w.sum((_cases(w).grade - _cases(w).called_grade) ** 2), _expected(w, 2))


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


def _share_of(w: Weighted, counts: Counts) -> Floats:
    hit, weight = counts(w)
    return ratio((weight * hit.astype(np.float64)).sum(axis=-1), weight.sum(axis=-1))


def _pseudo_kappa(w: Weighted) -> Moments:
    """A patient is added who is called the grades of another one."""
    patients, mean = patients_of(w), float(_expected(w, 2) / w.total)
    square = float(_expected(w, 4) / w.total) / mean**2
    return WHOLE / patients, WHOLE * square / patients**2


def _pseudo_loss(w: Weighted, name: str, *, area: bool = False) -> Moments:
    """A patient is added who has the grades that are predicted worst."""
    return of_losses(w, _cases(w).losses[name].max(axis=1), area=area)


def _loss(name: str, label: str, unit: str = "", largest: float = np.inf) -> ScoreSpec:
    interval = Loss(partial(_pseudo_loss, name=name), 0.0, largest)
    return _score(name, label, "lower", unit, 1, partial(_mean_loss_of, name=name), interval=interval)


def _share(name: str, label: str, direction: Literal["higher", "lower"], counts: Counts) -> ScoreSpec:
    return _score(name, label, direction, "", 1, partial(_share_of, counts=counts), interval=Proportion(counts))


_AREA = Loss(partial(_pseudo_loss, name="grade_error", area=True), 0.0, 4.0)
_BUILTIN = (
    _score(
        "quadratic_kappa", "Quadratic weighted kappa", "higher", "", 1, quadratic_kappa_of,
        interval=Loss(_pseudo_kappa, 1.0, 2.0),
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
    mean, square = _pseudo_loss(w, "grade_error", area=False)
    kept = 1 - GRID
    rows = zip(value, draws.T, kept, strict=True)
    ends = [loss_interval(v, replicate_error(d) ** 2, (mean, square / k), 4.0, level) for v, d, k in rows]
    return np.array(ends).T


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
    """Return the scores of the images of a set whose grade is known; None where there are none.

    `validation` chooses the sets of grades, which are left out without it; `groups` are subgroups (N,) by name; `uncertainty` is (N,).
    """
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
        draws = cluster_bootstrap(statistic, images.patient, replicates=bootstrap, seed=seed, workers=workers)
        band = _band(cases.weighted(), point[len(_BUILTIN) :], draws[:, len(_BUILTIN) :], level)
    whole, scores = cases.weighted(), {}
    diseased = len(np.unique(images.patient[images.grade >= 2]))
    for spec, value, column in zip(_BUILTIN, point.tolist(), draws.T, strict=False):
        if not np.isfinite(value):
            ends = Ends(why=_UNDEFINED[spec.name])
        elif spec.name == "quadratic_kappa" and diseased < FEWEST:
            ends = Ends(why=_FEW if bootstrap else None)
        else:
            ends = spec.interval.ends([whole], value, column, level) if bootstrap else Ends()
        scores[spec.name] = ScoreValue(value, ends.low, ends.high, spec.version, ends.why)
    pairs = [(cases.grade == true, [cases.called_grade == called for called in EVERY]) for true in EVERY]
    return GradeScores(
        len(cases),
        int(images.patient.max()) + 1,
        scores,
        np.array([[int((true & called).sum()) for called in row] for true, row in pairs]),
        tuple(tuple(clustered_proportion(one, true, cases.patient, level) for one in row) for true, row in pairs),
        {"referred": GRID, "value": point[len(_BUILTIN) :], "low": band[0], "high": band[1]},
        {
            name: evaluated_sets(images, chosen, name, groups, level)
            for name in get_args(Weighting)
            if chosen is not None
        },
    )

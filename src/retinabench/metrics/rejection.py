"""Several uncertainties of one model compared, over the folds of a cross-validation where there are any.

The images of a fold are ordered among themselves, since each fold has a model of its own, whose uncertainties need not have the scale
of another's: the rank of an image within its fold, as a share of the fold, takes the place of its uncertainty. With folds of one size
the RC-Index of all images is then that of the vertical average, which is the mean over folds. Differences of two uncertainties are
tested by the one comparison (`paired.py`): patients are resampled, the trained models stay.

The standard error over folds is that of their values as if they were independent. They share training rows, and no estimate of the
variance of a cross-validation is unbiased (Bengio and Grandvalet, JMLR 5:1089, 2004): it describes the scatter of the folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from retinabench.core.results import Document
from retinabench.core.seeds import numpy_generator
from retinabench.metrics.classification import RC_GRID, accuracy_at, rc_area
from retinabench.metrics.image_sets import compared_uncertainties, referral_uncertainty
from retinabench.metrics.p_values import holm
from retinabench.metrics.paired import LEVEL, Aggregate, Methods, PairTest, aggregate, paired_sets
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases, Floats, Weighted
from retinabench.predictions.columns import DOMAINS
from retinabench.predictions.table import Predictions

SCORE = "rc_index"
FOLD_SCORES = ("auroc", "accuracy", "sensitivity", "nll", "failure_auroc", "referral_accuracy_area")  # shown over folds
REMOVED: Floats = np.linspace(0, 0.95, 96)  # of the curves; few images are left beyond


SAME = 1e-12  # accuracies that differ by less differ by rounding


def vertical_accuracy(folds: Sequence[Weighted], removed: Floats) -> Floats:
    """(M,) accuracy of the retained where fractions (M,) of each fold are removed, averaged vertically: the mean over folds."""
    return np.asarray(np.mean([accuracy_at(w, 1 - removed) for w in folds], axis=0))


def random_band(folds: Sequence[Weighted], removed: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """(M,) pointwise limits of `vertical_accuracy` where the images of each fold are removed in random order.

    Of n images with error e, the accuracy of the k retained has the variance e (1 - e) / k x (n - k) / (n - 1), which is exact;
    the mean over folds is taken as normal.
    """
    n = np.array([[float(w.total)] for w in folds])
    error = np.array([[float(w.mean(w.cases.error))] for w in folds])
    kept = n * (1 - removed)
    variance = error * (1 - error) / kept * (n - kept) / np.maximum(n - 1, 1)
    half = ndtri((1 + level) / 2) * np.sqrt(variance.sum(axis=0)) / len(folds)
    return np.asarray(1 - error.mean() - half), np.asarray(1 - error.mean() + half)


class Steadiness(NamedTuple):
    """How steadily a rejection curve rises: the share of steps that rise or end at 1, and its largest fall, with p-values of a random order of removal."""

    rises: float
    fall: float
    rises_p: float
    fall_p: float


def steadiness(folds: Sequence[Weighted], seed: int = 0, draws: int = 9999) -> Steadiness:
    """Measure the vertical average on the grid of the RC-Index; p = (1 + draws at least as steady) / (1 + draws), in random (multivariate hypergeometric) orders."""
    generator, drawn = numpy_generator(seed, "steadiness"), []
    for w in folds:
        cuts = np.rint(float(w.total) * np.append(RC_GRID, 1.0)).astype(np.int64)
        wrong = generator.multivariate_hypergeometric(
            np.diff(cuts), int(w.sum(w.cases.error)), draws, method="marginals"
        )
        retained = np.cumsum(wrong[:, ::-1], axis=1)[:, ::-1]
        drawn.append(1 - retained / np.maximum(cuts[-1] - cuts[:-1], 1))
    rises, fall = _rises_and_fall(vertical_accuracy(folds, RC_GRID)[None])
    null_rises, null_fall = _rises_and_fall(np.mean(drawn, axis=0))
    as_steady = (null_rises >= rises - SAME, null_fall <= fall + SAME)
    return Steadiness(float(rises[0]), float(fall[0]), *((1 + int(one.sum())) / (1 + draws) for one in as_steady))


def _rises_and_fall(curves: Floats) -> tuple[Floats, Floats]:
    """(R,) share of the steps of curves (R, M) that rise or end at 1, and the most that each falls below an earlier point."""
    steps, fall = np.diff(curves, axis=1), (np.maximum.accumulate(curves, axis=1) - curves).max(axis=1)
    rising = (steps > SAME) | (curves[:, 1:] >= 1 - SAME)
    return np.asarray(rising.mean(axis=1)), np.asarray(np.where(fall > SAME, fall, 0.0))


@dataclass(frozen=True)
class Rejection(Document):
    """What one uncertainty is worth: its RC-Index, the same over folds, how steadily its curve rises, and the first one minus it."""

    _hidden = ("curve",)

    index: float  # of all images
    low: float
    high: float
    folds: Aggregate
    vertical: float  # RC-Index of the vertical average
    steadiness: Steadiness
    curve: Floats  # (M,) that average at `REMOVED`
    difference: PairTest  # of the indices; NaN of the first
    p_holm: float


@dataclass(frozen=True)
class Rejections(Document):
    """The uncertainties of a model on one set, in the order in which they were asked for."""

    _hidden = ("oracle_curve", "random")

    images: int
    folds: int
    scores: dict[str, Aggregate]  # over folds
    uncertainties: dict[str, Rejection]
    oracle: float  # RC-Index of the vertical average where all wrong predictions are removed first
    oracle_curve: Floats
    random: Floats  # (2, M) 95 % limits of a random order, whose RC-Index is 0


def compare_uncertainties(
    predictions: Predictions, asked: str = "auto", *, threshold: float = 0.5, bootstrap: int = 1000, seed: int = 0
) -> dict[str, Rejections]:
    """Compare `compared_uncertainties` on the test images of each domain. Scores over folds are ordered by the first one asked for."""
    names, found = compared_uncertainties(predictions, asked), {}
    for domain in DOMAINS if names else ():
        part = predictions.select(split="test", domain=domain)
        if part is not None:
            values = {name: referral_uncertainty(part, name, threshold=threshold)[0] for name in dict.fromkeys(names)}
            order = referral_uncertainty(part, asked, threshold=threshold)[0]
            folds = _weighted(part, order, rows_of_folds(part), threshold)
            means = {name: aggregate([float(SCORES[name](w)) for w in folds]) for name in FOLD_SCORES if len(folds) > 1}
            found[domain] = _on_set(part, domain, values, means, threshold, bootstrap, seed)
    return found


def _on_set(
    part: Predictions,
    domain: str,
    values: dict[str, Floats],
    means: dict[str, Aggregate],
    threshold: float,
    bootstrap: int,
    seed: int,
) -> Rejections:
    rows = rows_of_folds(part)
    ranked = [values[name] if len(rows) < 2 else within_folds(values[name], rows) for name in values]
    (one,) = paired_sets(
        [replace(part, uncertainty=each, notes=()) for each in ranked], scores=[SCORE], sets=[domain], uncertainty="own",
        bootstrap=bootstrap, seed=seed, thresholds=[threshold] * len(values),
    )  # fmt: skip
    methods = Methods(one, 0, [[m] for m in range(len(values))], [[(name,)] for name in values])
    tests = [methods.test(0, m, LEVEL) for m in range(1, len(values))]
    p = [np.nan, *holm([test.p for test in tests]).tolist()]
    weighted = {name: _weighted(part, each, rows, threshold) for name, each in values.items()}
    rejections = {}
    for m, (name, folds) in enumerate(weighted.items()):
        ends, over_folds = methods.ends(m, LEVEL), aggregate([SCORES[SCORE](w) for w in folds])
        vertical = float(rc_area(RC_GRID, vertical_accuracy(folds, RC_GRID)))
        rising = steadiness(folds, seed), vertical_accuracy(folds, REMOVED)
        difference = tests[m - 1] if m else PairTest(np.nan)
        rejections[name] = Rejection(float(one.point[m, 0]), *ends[:2], over_folds, vertical, *rising, difference, p[m])
    first = next(iter(weighted.values()))
    best = [w.cases.reordered(w.cases.error).weighted() for w in first]
    oracle, curve = float(rc_area(RC_GRID, vertical_accuracy(best, RC_GRID))), vertical_accuracy(best, REMOVED)
    band = np.stack(random_band(first, REMOVED, LEVEL))
    return Rejections(len(part), len(rows), means, rejections, oracle, curve, band)


def rows_of_folds(part: Predictions) -> list[NDArray[np.intp]]:
    if part.fold is None:
        return [np.arange(len(part))]
    return [np.flatnonzero(part.fold == fold) for fold in np.unique(part.fold)]


def within_folds(values: Floats, rows: Sequence[NDArray[np.intp]]) -> Floats:
    """Return the rank of each value (N,) within its fold, as a share of the fold; equal values share their mean rank."""
    ranks = np.empty(len(values))
    for fold in rows:
        _, place, times = np.unique(values[fold], return_inverse=True, return_counts=True)
        ranks[fold] = (np.cumsum(times) - (times - 1) / 2)[place] / len(fold)
    return ranks


def _weighted(part: Predictions, values: Floats, rows: Sequence[NDArray[np.intp]], threshold: float) -> list[Weighted]:
    prob = part.prob
    return [Cases(part.label[fold], prob[fold], values[fold], threshold=threshold).weighted() for fold in rows]

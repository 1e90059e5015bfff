"""One number for how well an uncertainty tells correct predictions from wrong ones, and what remains after a share is referred.

With the images by increasing uncertainty, coverage c the retained fraction, E(c) the wrong predictions among them (as a
fraction of all images), err = E(1) and a = 1 - err:

    selective risk r(c) = E(c) / c          generalised risk g(c) = E(c)

These scores are not independent of one another. For correct or wrong predictions PRR = 2 x failure AUROC - 1 and
AUGRC = (1 - failure AUROC) a err + err^2 / 2 hold exactly: with the accuracy they carry one number. Only AURC and
RC-Index weigh the certain end differently (by 1/c), and RC-Index on every count, without ties and closed at 1, is err - AURC; given
the accuracy it lies in [(1-a) ln(1-a), -a ln a], over all accuracies in [-0.368, 0.368], not the poster's [-1, 1].

Sources: Geifman et al., ICLR 2019 (AURC, E-AURC); Traub et al., NeurIPS 2024 (AUGRC); Malinin 2019 (PRR);
Brown, Talbert and Talbert (RC-Index).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, xlogy

from retinabench.core.seeds import numpy_generator
from retinabench.metrics.arrays import Floats
from retinabench.metrics.classification import ordered_share
from retinabench.metrics.weighted_images import Weighted, ratio

RC_GRID: Floats = np.asarray(np.arange(10) * 0.1, np.float64)  # removed fractions; nothing is left at 1
SAME = 1e-12  # accuracies that differ by less differ by rounding


def aurc_of(w: Weighted) -> Floats:
    """Area under selective risk over coverage: trapezoid over the distinct uncertainties, the first risk kept to c = 0.

    Lower is better, in [0, 1]; the random order has err. The convention of fd-shifts (there often x 1000).

    References:
        Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR (2019).
        Jaeger et al., A call to reflect on evaluation practices for failure detection in image classification, ICLR (2023).
    """
    mass, wrong = w.mass, w.wrong_mass
    risk = np.divide(wrong, mass, out=np.zeros_like(wrong), where=mass > 0)
    # Blocks without weight repeat the risk before them; before the first with weight its own risk is kept.
    first = np.argmax(mass > 0, axis=-1)[..., None]
    risk = np.where(mass > 0, risk, np.take_along_axis(risk, first, axis=-1))
    area: Floats = (np.diff(mass) * (risk[..., 1:] + risk[..., :-1])).sum(axis=-1)
    return area / (2 * w.total)


def e_aurc_of(w: Weighted) -> Floats:
    """AURC beyond the oracle of the same accuracy in the limit of many images: AURC - (err + (1 - err) ln(1 - err)).

    Few images or few distinct uncertainties can bring it below 0: the trapezoid then cuts the corner of the curve.

    References:
        Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR (2019).
    """
    err = w.mean(w.cases.error)
    right = np.maximum(1 - err, 0.0)  # a weighted mean of ones can lie above 1 by rounding
    return w.derived(aurc_of) - (err + xlogy(right, right))


def augrc_of(w: Weighted) -> Floats:
    """Area under generalised risk over coverage; random err/2, best err^2/2, worst err - err^2/2.

    References:
        Traub et al., Overcoming common flaws in the evaluation of selective classification systems, NeurIPS (2024).
    """
    pairs: Floats = (np.diff(w.mass) * (w.wrong_mass[..., 1:] + w.wrong_mass[..., :-1])).sum(axis=-1)
    return pairs / 2 / w.total**2


def failure_auroc_of(w: Weighted) -> Floats:
    """P(a wrong prediction is more uncertain than a correct one) + P(tie) / 2; NaN if all are right or all wrong.

    References:
        Hendrycks and Gimpel, A baseline for detecting misclassified and out-of-distribution examples in neural networks,
        ICLR (2017).
    """
    return ordered_share(w.mass - w.wrong_mass, w.wrong_mass)


def ranked_errors(w: Weighted) -> tuple[Floats, Floats, Floats]:
    wrong = w.weight * w.cases.error
    return w.cases.uncertainty, wrong, w.weight - wrong


def prr_of(w: Weighted) -> Floats:
    """Prediction rejection ratio (A_random - A) / (A_random - A_oracle) of areas under generalised risk; at most 1.

    A_random = err/2, A_oracle = err^2/2. NaN where all are right or all wrong.

    References:
        Malinin et al., Incorporating uncertainty into deep learning for spoken language assessment, ACL (2017).
    """
    random = w.mean(w.cases.error) / 2
    possible = random - 2 * random**2
    return ratio(random - w.derived(augrc_of), np.where(possible > 1e-15, possible, 0.0))


def rc_index_of(w: Weighted) -> Floats:
    """Rejection Classification Index on the grid 0, 0.1, … 0.9: RC-Index@0.9.

    Area under the gain in accuracy y(x) - y(0) over the removed fraction x, trapezoid. Positive: removing uncertain images
    helps; 0 in expectation for a random order; negative: harmful. Its true range over all models is [-1/e, 1/e]; at accuracy a
    it lies in [(1-a) ln(1-a), -a ln a], so models of different accuracy are not comparable. Its value depends on the grid. The poster
    prints a range of -1 to 1.

    References:
        Brown, Talbert and Talbert (poster); their sample is averaged vertically over folds, with `rc_area` of the mean
        (`vertical_accuracy`). The index is linear in the curve, so that this equals the mean of the folds' indices.
    """
    return rc_area(RC_GRID, accuracy_at(w, 1 - RC_GRID))


def rc_area(x: Floats, accuracy: Floats) -> Floats:
    """RC-Index (...,) of accuracies (..., M) at x (M,): sum over i of (x_i - x_{i-1}) (y_i + y_{i-1} - 2 y_0) / 2."""
    gain = accuracy - accuracy[..., :1]
    return np.asarray(np.einsum("...m,m->...", gain[..., 1:] + gain[..., :-1], np.diff(x)))[()] / 2


def accuracy_at(w: Weighted, coverage: Floats) -> Floats:
    """(..., M) accuracy of the retained at coverages (M,) in (0, 1], blocks of ties shared evenly."""
    retained = np.asarray(coverage * w.total[..., None])
    return 1 - w.locate(retained).retained(w.wrong_mass) / retained


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
    """How steadily a rejection curve rises, and the p-values of a curve as steady where the order of removal is random.

    rises: share of the steps that rise, or end at 1. fall: the most that the curve falls from one point to a later one, 0 where it never does.
    """

    rises: float
    fall: float
    rises_p: float
    fall_p: float


def steadiness(folds: Sequence[Weighted], seed: int = 0, draws: int = 9999) -> Steadiness:
    """Measure the vertical average on the grid of the RC-Index, with its null distribution by random orders of removal.

    In a random order the wrong predictions of a fold fall into the tenths of its images by a multivariate hypergeometric
    distribution. p = (1 + draws at least as steady) / (1 + draws).
    """
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


def referred_names(referred: float = 0.5) -> tuple[str, ...]:
    """Return the names of `referred_values`, such as ``gain_at_50``; each is defined in `metrics/definitions.toml`."""
    parts = ("accuracy", "gain", "closed", "perfect_accuracy", "sensitivity", "specificity", "prevalence", "missed")
    return tuple(f"{part}_at_{100 * referred:g}" for part in parts)


def referred_values(w: Weighted, referred: float = 0.5) -> Floats:
    """Return the (..., 8) values of the retained images named by `referred_names`, where at least this share is referred; NaN where undefined."""
    cases, weight = w.cases, w.weight
    number = ((1 - referred) * w.count + 1e-9).astype(np.intp)
    kept = number * w.step
    at = w.at_points.chosen(np.maximum(number, 1)[..., None] - 1)

    def retained(sums: Floats) -> Floats:
        return at.retained(sums)[..., 0]

    positives = retained(w.positive_mass)
    called = retained(w.block_sums(weight * (cases.label & cases.called), whole=w.whole))
    passed = retained(w.block_sums(weight * ~(cases.label | cases.called), whole=w.whole))
    accuracy, sensitivity = ratio(kept - retained(w.wrong_mass), kept), ratio(called, positives)
    overall = 1 - w.wrong_mass[..., -1] / w.total
    perfect = np.minimum(1.0, overall * w.count / np.maximum(number, 1))
    missed = np.where(positives > 0, (1 - sensitivity) * positives, 0.0)
    values = np.stack(
        [
            accuracy,
            accuracy - overall,
            ratio(accuracy - overall, perfect - overall),
            perfect,
            sensitivity,
            ratio(passed, retained(w.mass) - positives),
            ratio(positives, kept),
            ratio(missed, w.positives),
        ],
        axis=-1,
    )
    values[number == 0] = np.nan
    return values


def referred_value(w: Weighted, name: str, referred: float = 0.5) -> Floats:
    """Return one of `referred_values`; those of a share are computed together, once for the same weights.

    References:
        Filos et al., A systematic comparison of Bayesian deep learning robustness in diabetic retinopathy tasks,
        arXiv:1912.10481 (2019).
    """
    value: Floats = w.derived(_values_at(referred))[..., referred_names(referred).index(name)]
    return value


@cache
def _values_at(referred: float) -> Callable[[Weighted], Floats]:
    return partial(referred_values, referred=referred)


def retained_counts(w: Weighted, success: str, of: str = "images", referred: float = 0.5) -> tuple[Floats, Floats]:
    """Return what a proportion of the retained images counts, for its interval.

    `success`: `right`, `called`, `not called` or `label`; `of`: `images`, `positives` or `negatives`.
    Shapes: returns (N,) success, 0 or 1, and (N,) what remains of the weight.
    """
    label = w.cases.label
    hit = {"right": ~w.cases.error, "called": w.cases.called, "not called": ~w.cases.called, "label": label}
    among = {"images": np.ones_like(label), "positives": label, "negatives": ~label}
    kept = w.retained(int((1 - referred) * w.count + 1e-9))
    return hit[success].astype(np.float64), np.where(among[of], kept, 0.0)


def retained_errors(w: Weighted, referred: float = 0.5) -> tuple[Floats, Floats]:
    return _retained_share(w, referred), w.weight * w.cases.error


def closed_scale(w: Weighted, referred: float = 0.5) -> tuple[float, float]:
    """Return a and b: the share of the possible gain is a + b x the share of the wrong predictions that is retained."""
    return 1.0, -float(w.count) / max(1, int((1 - referred) * w.count + 1e-9))


def missed_counts(w: Weighted, referred: float = 0.5) -> tuple[Floats, Floats]:
    return np.where(w.cases.called, 0.0, _retained_share(w, referred)), w.positive


def _retained_share(w: Weighted, referred: float) -> Floats:
    kept = retained_counts(w, "right", referred=referred)[1]
    return np.divide(kept, w.weight, out=np.zeros_like(kept), where=w.weight > 0)

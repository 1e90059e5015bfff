"""One number for how well an uncertainty tells correct predictions from wrong ones.

With the images by increasing uncertainty, coverage c the retained fraction, E(c) the wrong predictions among them (as a
fraction of all images), err = E(1) and a = 1 - err:

    selective risk r(c) = E(c) / c          generalised risk g(c) = E(c)

These scores are not independent of one another. For correct or wrong predictions PRR = 2 x failure AUROC - 1 and
AUGRC = (1 - failure AUROC) a err + err^2 / 2 hold exactly: with the accuracy they carry one number. Only AURC and
RC-Index weigh the certain end differently (by 1/c), and RC-Index on every count, without ties and closed at 1, is err - AURC; given the
accuracy it lies in [(1-a) ln(1-a), -a ln a], over all accuracies in [-0.368, 0.368], not the poster's [-1, 1].

Sources: Geifman et al., ICLR 2019 (AURC, E-AURC); Traub et al., NeurIPS 2024 (AUGRC); Malinin 2019 (PRR);
Brown, Talbert and Talbert (RC-Index).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from retinabench.metrics.classification import ranked_auroc
from retinabench.metrics.sorted_images import Weighted

Floats = NDArray[np.float64]


def risk_curve(w: Weighted) -> tuple[Floats, Floats]:
    """Coverage c (B+1,) and share of wrong predictions E (B+1,) at the ends of the blocks of equal uncertainty, led by 0, 0."""
    return w.mass / w.total, w.block_sums(w.weight * w.cases.error) / w.total


def aurc_of(w: Weighted) -> float:
    """Area under selective risk over coverage: trapezoid over the distinct uncertainties, the first risk kept to c = 0.

    Lower is better, in [0, 1]; the random order has err. The convention of fd-shifts (there often x 1000).

    References:
        Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR (2019).
        Jaeger et al., A call to reflect on evaluation practices for failure detection in image classification, ICLR (2023).
    """
    c, e = risk_curve(w)
    weighted = np.append(True, np.diff(c) > 0)  # blocks without weight are left out
    c, e = c[weighted], e[weighted]
    risk = e[1:] / c[1:]
    before = np.concatenate((risk[:1], risk[:-1]))
    return float(np.diff(c) @ (risk + before) / 2)


def best_aurc(err: float) -> float:
    """Return the AURC of the oracle in the limit of many images: err + (1 - err) ln(1 - err)."""
    right = max(1 - err, 0.0)  # a weighted mean of ones can lie above 1 by rounding
    return float(err + xlogy(right, right))


def e_aurc_of(w: Weighted) -> float:
    """AURC beyond the oracle of the same accuracy: AURC - (err + (1 - err) ln(1 - err)).

    Few images or few distinct uncertainties can bring it below 0: the trapezoid then cuts the corner of the curve.

    References:
        Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR (2019).
    """
    return aurc_of(w) - best_aurc(w.mean(w.cases.error))


def augrc_of(w: Weighted) -> float:
    """Area under generalised risk over coverage; random err/2, best err^2/2, worst err - err^2/2.

    References:
        Traub et al., Overcoming common flaws in the evaluation of selective classification systems, NeurIPS (2024).
    """
    c, e = risk_curve(w)
    return float(np.diff(c) @ (e[1:] + e[:-1]) / 2)


def failure_auroc_of(w: Weighted) -> float:
    """P(a wrong prediction is more uncertain than a correct one) + P(tie) / 2; NaN if all are right or all wrong.

    References:
        Hendrycks and Gimpel, A baseline for detecting misclassified and out-of-distribution examples in neural networks,
        ICLR (2017).
    """
    _, wrong, right = ranked_errors(w)
    return ranked_auroc(w.cases.by_uncertainty, wrong, right)


def ranked_errors(w: Weighted) -> tuple[Floats, Floats, Floats]:
    """Return what `failure_auroc_of` ranks: the uncertainty, and the mass of the wrong and of the correct predictions, all (N,)."""
    wrong = w.weight * w.cases.error
    return w.cases.uncertainty, wrong, w.weight - wrong


def prr_of(w: Weighted) -> float:
    """Prediction rejection ratio (A_random - A) / (A_random - A_oracle) of areas under generalised risk; at most 1.

    The oracle rejects every wrong prediction first, A_oracle = err^2 / 2. NaN where all predictions are correct, or all wrong.

    References:
        Malinin et al., Incorporating uncertainty into deep learning for spoken language assessment, ACL (2017).
    """
    random = w.mean(w.cases.error) / 2
    oracle = 2 * random**2
    if random - oracle <= 1e-15:
        return np.nan
    return (random - augrc_of(w)) / (random - oracle)


def rc_index_of(w: Weighted) -> float:
    """Return the Rejection Classification Index on the grid 0, 0.1, … 0.9 of removed fractions, RC-Index@0.9.

    Area under the gain in accuracy y(x) - y(0) over the removed fraction x, trapezoid. Positive: removing uncertain images
    helps; 0 in expectation for a random order; negative: harmful. Its true range over all models is [-1/e, 1/e]; at accuracy a
    it lies in [(1-a) ln(1-a), -a ln a], so models of different accuracy are not comparable. Its value depends on the grid.

    References:
        Brown, Talbert and Talbert (poster).
    """
    x = rc_grid()
    return rc_area(x, accuracy_at(w, 1 - x))


def rc_grid() -> Floats:
    """Removed fractions 0, 0.1, … 0.9."""
    return np.asarray(np.arange(10) * 0.1)


def rc_area(x: ArrayLike, accuracy: ArrayLike) -> float:
    """RC-Index of a given accuracy curve: sum over i of (x_i - x_{i-1}) (y_i + y_{i-1} - 2 y_0) / 2."""
    x, y = np.asarray(x, np.float64), np.asarray(accuracy, np.float64)
    return float(np.diff(x) @ (y[1:] + y[:-1] - 2 * y[0]) / 2)


def accuracy_at(w: Weighted, coverage: ArrayLike) -> Floats:
    """Accuracy of the retained at coverages in (0, 1], blocks of ties shared evenly; same shape as `coverage`."""
    retained = np.asarray(coverage, np.float64) * w.total
    block, fraction = w.locate(np.atleast_1d(retained))
    sums = w.block_sums(w.weight * w.cases.error)
    wrong = sums[block] + fraction * (sums[block + 1] - sums[block])
    return np.asarray(1 - wrong / np.atleast_1d(retained)).reshape(retained.shape)

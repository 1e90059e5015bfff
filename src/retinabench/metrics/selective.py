"""One number for how well an uncertainty tells correct predictions from wrong ones, and numbers of what remains after referral."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from retinabench.metrics.classification import ranked_auroc, sensitivity_within
from retinabench.metrics.referral_curves import METRICS, sensitivity_on_grid
from retinabench.metrics.weighted_images import SLACK, Batch, Cases, Weighted, ratio

Floats = NDArray[np.float64]

RC_STEP, RC_MAX = 0.1, 0.9


def risk_curve(w: Weighted, loss: Floats | None = None) -> tuple[Floats, Floats]:
    """Coverage c (B+1,) and cumulated loss E (B+1,) at the ends of the blocks of equal uncertainty, led by 0, 0.

    loss: (N,) in the sorted order of the cases; wrong predictions (0/1) where None.
    """
    loss = w.cases.error.astype(np.float64) if loss is None else loss
    return w.mass / w.total, w.block_sums(w.weight * loss) / w.total


def aurc_of(w: Weighted, loss: Floats | None = None) -> float:
    """Area under selective risk over coverage: trapezoid over the distinct uncertainties, the first risk kept to c = 0.

    Lower is better, in [0, 1]; the random order has err. The convention of fd-shifts (there often x 1000).

    References:
        Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR (2019).
        Jaeger et al., A call to reflect on evaluation practices for failure detection in image classification, ICLR (2023).
    """
    c, e = _distinct(*risk_curve(w, loss))
    risk = e[1:] / c[1:]
    before = np.concatenate((risk[:1], risk[:-1]))
    return float(np.diff(c) @ (risk + before) / 2)


def expected_aurc_of(w: Weighted, loss: Floats | None = None) -> float:
    """Area under selective risk in the limit of random tie breaking: E linear in c between distinct uncertainties.

    Sum over blocks from c0 to c1 of s (c1 - c0) + (E0 - s c0) ln(c1 / c0), with s = (E1 - E0) / (c1 - c0).
    """
    c, e = _distinct(*risk_curve(w, loss))
    slope = np.diff(e) / np.diff(c)
    start = e[:-1] - slope * c[:-1]  # 0 in the first block, where ln(c1 / 0) stands beside it
    ratio = np.log(c[1:] / np.where(c[:-1] > 0, c[:-1], c[1:]))
    return float(np.diff(e).sum() + start @ ratio)


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


def augrc_of(w: Weighted, loss: Floats | None = None) -> float:
    """Area under generalised risk over coverage; random err/2, best err^2/2, worst err - err^2/2.

    References:
        Traub et al., Overcoming common flaws in the evaluation of selective classification systems, NeurIPS (2024).
    """
    c, e = risk_curve(w, loss)
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


def prr_of(w: Weighted, loss: Floats | None = None) -> float:
    """Prediction rejection ratio (A_random - A) / (A_random - A_oracle) of areas under generalised risk; at most 1.

    loss (N,) may be graded; the oracle rejects the largest loss first (err^2 / 2 for correct or wrong predictions). NaN where
    all losses are equal.

    References:
        Malinin et al., Incorporating uncertainty into deep learning for spoken language assessment, ACL (2017).
    """
    if loss is None:
        random = w.mean(w.cases.error) / 2
        oracle = 2 * random**2
    else:
        order = np.argsort(loss, kind="stable")
        c = np.concatenate(([0.0], np.cumsum(w.weight[order]))) / w.total
        e = np.concatenate(([0.0], np.cumsum((w.weight * loss)[order]))) / w.total
        random, oracle = float(e[-1]) / 2, float(np.diff(c) @ (e[1:] + e[:-1]) / 2)
    if random - oracle <= 1e-15:
        return np.nan
    return (random - augrc_of(w, loss)) / (random - oracle)


def rc_index_of(w: Weighted, step: float = RC_STEP, x_max: float = RC_MAX) -> float:
    """Return the Rejection Classification Index on the grid 0, step, … x_max: RC-Index@0.9 with step 0.1 if not said.

    Area under the gain in accuracy y(x) - y(0) over the removed fraction x, trapezoid. Positive: removing uncertain images
    helps; 0 in expectation for a random order; negative: harmful. Its true range over all models is [-1/e, 1/e]; at accuracy a
    it lies in [(1-a) ln(1-a), -a ln a], so models of different accuracy are not comparable. Its value depends on the grid.

    References:
        Brown, Talbert and Talbert (poster); their sample is averaged vertically over folds, see `average_rc_index`.
    """
    x = rc_grid(step, x_max)
    return rc_area(x, accuracy_at(w, 1 - x))


def rc_grid(step: float = RC_STEP, x_max: float = RC_MAX) -> Floats:
    """Removed fractions 0, step, … x_max (x_max < 1: nothing is left at 1)."""
    return np.asarray(np.arange(round(x_max / step) + 1) * step)


def rc_area(x: ArrayLike, accuracy: ArrayLike) -> float:
    """RC-Index of a given accuracy curve: sum over i of (x_i - x_{i-1}) (y_i + y_{i-1} - 2 y_0) / 2."""
    x, y = np.asarray(x, np.float64), np.asarray(accuracy, np.float64)
    return float(np.diff(x) @ (y[1:] + y[:-1] - 2 * y[0]) / 2)


def average_rc_index(curves: ArrayLike, x: ArrayLike) -> float:
    """RC-Index of several folds: their accuracies (F, M) at removed fractions x (M,) are averaged vertically first."""
    return rc_area(x, np.asarray(curves, np.float64).mean(axis=0))


def closed_rc_index_of(w: Weighted) -> float:
    """RC-Index over every count, the last value repeated at 1: err - AURC where no uncertainties are tied."""
    x = np.concatenate((1 - w.points[::-1] / w.total, [1.0]))
    y = 1 - (w.retained_error / w.points)[::-1]
    return rc_area(x, np.append(y, y[-1]))


def relative_rc_index_of(w: Weighted) -> float:
    """Return the closed RC-Index over its largest value at this accuracy, -a ln a; NaN where all are right or wrong.

    Our own normalisation; not the authors' "relative RC-Index", whose formula we have not seen.
    """
    a = 1 - w.mean(w.cases.error)
    return closed_rc_index_of(w) / -float(xlogy(a, a)) if 0 < a < 1 else np.nan


def accuracy_at(w: Weighted, coverage: ArrayLike) -> Floats:
    """Accuracy of the retained at coverages in (0, 1], blocks of ties shared evenly; same shape as `coverage`."""
    retained = np.asarray(coverage, np.float64) * w.total
    block, fraction = w.locate(np.atleast_1d(retained))
    sums = w.block_sums(w.weight * w.cases.error)
    wrong = sums[block] + fraction * (sums[block + 1] - sums[block])
    return np.asarray(1 - wrong / np.atleast_1d(retained)).reshape(retained.shape)


def coverage_at_risk(w: Weighted, risk: float) -> float:
    """Return the largest coverage whose selective risk is at most `risk`, over the distinct uncertainties; 0 if none."""
    c, e = _distinct(*risk_curve(w))
    allowed = e[1:] <= risk * c[1:] + 1e-15
    return float(c[1:][allowed].max()) if allowed.any() else 0.0


def class_balanced_of(w: Weighted) -> tuple[float, float]:
    """AURC-BA and AUGRC-BA: risks averaged over the two classes, over the same coverage; NaN with one class.

    AURC-BA averages E_k(c) / c_k, an emptied class counting 0 (dropping it would reward keeping only the easy class);
    AUGRC-BA averages E_k(c) / n_k. Area by the trapezoid over distinct uncertainties. Source: fd-shifts.
    """
    if w.positives <= 0 or w.negatives <= 0:
        return np.nan, np.nan
    c = w.mass / w.total
    keep = np.concatenate(([True], np.diff(c) > 0))
    selective, generalised = np.zeros(len(c)), np.zeros(len(c))
    for mass in (w.positive, w.negative):
        held, wrong = w.block_sums(mass), w.block_sums(mass * w.cases.error)
        selective += np.divide(wrong, held, out=np.zeros(len(c)), where=held > 0) / 2
        generalised += wrong / (2 * held[-1])
    c, selective, generalised = c[keep], selective[keep], generalised[keep]
    selective[0] = selective[1]
    aurc, augrc = (float(np.diff(c) @ (r[1:] + r[:-1]) / 2) for r in (selective, generalised))
    return aurc, augrc


@dataclass(frozen=True)
class Selective:
    """The summaries of a graded loss, such as NLL per image or the squared error of a grade.

    best_aurc is that of the oracle, the smallest loss retained first; e_aurc = aurc - best_aurc.
    """

    aurc: float
    expected_aurc: float
    best_aurc: float
    e_aurc: float
    augrc: float
    prr: float


def selective(loss: ArrayLike, uncertainty: ArrayLike, weight: ArrayLike | None = None) -> Selective:
    """Return AURC, AUGRC and PRR of any loss under any uncertainty.

    For losses of 0 and 1 `best_aurc` is the limit of many images, err + (1 - err) ln(1 - err), as in `e_aurc`.

    Shapes: `loss` (N,), `uncertainty` (N,), `weight` (N,).
    """
    values = np.asarray(loss, np.float64)
    blank = np.zeros(len(values))
    w = Cases(blank, blank, uncertainty).weighted(weight)
    sorted_ = values[w.cases.order]
    aurc = aurc_of(w, sorted_)
    if np.isin(values, (0, 1)).all():
        best = best_aurc(w.mean(sorted_))
    else:
        rank = np.argsort(np.argsort(values, kind="stable"), kind="stable")
        oracle = Cases(blank, blank, rank).weighted(weight)
        best = aurc_of(oracle, values[oracle.cases.order])
    return Selective(
        aurc, expected_aurc_of(w, sorted_), best, aurc - best, augrc_of(w, sorted_), prr_of(w, sorted_)
    )


def _distinct(c: Floats, e: Floats) -> tuple[Floats, Floats]:
    """Leave out blocks without weight."""
    keep = np.concatenate(([True], np.diff(c) > 0))
    return c[keep], e[keep]


SPECIFICITY = 0.80

_AT = (
    "accuracy", "gain", "closed", "perfect_accuracy", "sensitivity", "specificity", "prevalence", "missed",
)  # fmt: skip

_CURVES = ("accuracy", "sensitivity", "specificity", "prevalence")


def names(referred: float = 0.5) -> tuple[str, ...]:
    """Return the names of `numbers` in this order, such as ``gain_at_50``; each is defined in `metrics/definitions.toml`."""
    return (*(f"{name}_at_{100 * referred:g}" for name in _AT), "sensitivity_at_specificity_80")


NAMES = names()


def numbers(w: Weighted, referred: float = 0.5) -> Floats:
    """Return the (K,) numbers named by `names`; NaN where undefined."""
    total, half = len(w.points), int((1 - referred) * len(w.points) + 1e-9)
    if half == 0:
        return np.full(len(NAMES), np.nan)
    value = {name: float(METRICS[name](w)[0][half - 1]) for name in _CURVES}
    accuracy = 1 - w.retained_error[-1] / w.total
    perfect = min(1.0, accuracy * total / half)
    gain = value["accuracy"] - accuracy
    positives = w.retained_positives[half - 1]
    missed = (1 - value["sensitivity"]) * positives if positives else 0
    return np.array(
        [
            value["accuracy"],
            gain,
            gain / (perfect - accuracy) if perfect > accuracy else np.nan,
            perfect,
            value["sensitivity"],
            value["specificity"],
            value["prevalence"],
            missed / w.positives if w.positives else np.nan,
            float(sensitivity_within(w, np.array([1 - SPECIFICITY]))[0]),
        ]
    )


def retained_counts(
    w: Weighted, success: str, of: str = "images", referred: float = 0.5
) -> tuple[Floats, Floats]:
    """Return what a proportion of the retained images counts, for its interval.

    Shapes: returns (N,).
    """
    label = w.cases.label
    hit = {"right": ~w.cases.error, "called": w.cases.called, "not called": ~w.cases.called, "label": label}
    among = {"images": np.ones_like(label), "positives": label, "negatives": ~label}
    kept = w.retained(int(np.floor((1 - referred) * len(w.points) + 1e-9)))
    return hit[success].astype(np.float64), np.where(among[of], kept, 0.0)


def missed_counts(w: Weighted, referred: float = 0.5) -> tuple[Floats, Floats]:
    """Return what `missed_at_50` counts: the share (N,) of each image retained and called negative, of the positive mass (N,)."""
    kept = retained_counts(w, "right", referred=referred)[1]
    share = np.divide(kept, w.weight, out=np.zeros_like(kept), where=w.weight > 0)
    return np.where(w.cases.called, 0.0, share), w.positive


def counts_at_specificity(w: Weighted) -> tuple[Floats, Floats]:
    """Return what `sensitivity_at_specificity_80` counts: (N,) above its threshold, of the positive mass (N,)."""
    ranking = w.cases.by_prob
    false = ranking.cumulate(w.negative) / w.negatives
    allowed = np.flatnonzero(false <= 1 - SPECIFICITY + 1e-12)
    lowest = ranking.values[allowed[-1]] if len(allowed) else np.inf
    return (w.cases.prob >= lowest).astype(np.float64), w.positive


def number(w: Weighted, name: str, referred: float = 0.5) -> float:
    """Return one of `numbers`.

    References:
        Filos et al., A systematic comparison of Bayesian deep learning robustness in diabetic retinopathy tasks,
        arXiv:1912.10481 (2019).
    """
    return float(numbers(w, referred)[names(referred).index(name)])


def aurc(batch: Batch) -> Floats:
    """(R,) `summaries.aurc_of`."""
    mass, wrong = batch.mass, batch.wrong
    risk = np.divide(wrong, mass, out=np.zeros_like(wrong), where=mass > 0)
    # Blocks without weight repeat the risk before them; before the first with weight its own risk is kept.
    first = np.argmax(mass > 0, axis=1)[:, None]
    risk = np.where(mass > 0, risk, np.take_along_axis(risk, first, axis=1))
    area: Floats = (np.diff(mass, axis=1) * (risk[:, 1:] + risk[:, :-1])).sum(axis=1)
    return area / (2 * batch.total)


def e_aurc(batch: Batch) -> Floats:
    """(R,) `summaries.e_aurc_of`."""
    err = batch.mean(batch.cases.error)
    right = np.maximum(1 - err, 0.0)
    return np.asarray(batch.derived(aurc) - (err + xlogy(right, right)))


def augrc(batch: Batch) -> Floats:
    """(R,) `summaries.augrc_of`."""
    return _wrong_before(batch) / batch.total**2


def failure_auroc(batch: Batch) -> Floats:
    """(R,) `summaries.failure_auroc_of`: of all pairs with a wrong prediction, those of two wrong ones are no comparison."""
    wrong = batch.wrong[:, -1]
    right = batch.mass[:, -1] - wrong
    return 1 - ratio(_wrong_before(batch) - wrong**2 / 2, wrong * right)


def prr(batch: Batch) -> Floats:
    """(R,) `summaries.prr_of`."""
    random = batch.mean(batch.cases.error) / 2
    possible = random - 2 * random**2
    return ratio(random - augrc(batch), np.where(possible > 1e-15, possible, 0.0))


def rc_index(batch: Batch) -> Floats:
    """(R,) `summaries.rc_index_of`."""
    x = rc_grid()
    retained = (1 - x) * batch.total[:, None]
    error = 1 - accurate(batch, retained)
    gain = error[:, :1] - error
    return np.asarray(np.einsum("rn,n->r", gain[:, 1:] + gain[:, :-1], np.diff(x)) / 2)


def accurate(batch: Batch, retained: Floats) -> Floats:
    """(R, M) accuracy of the retained for retained masses (R, M) in (0, W], blocks of ties shared evenly."""
    mass, wrong = batch.mass, batch.wrong
    reached = retained - SLACK * batch.total[:, None]
    block = np.stack([np.searchsorted(*row) for row in zip(mass, reached, strict=True)]) - 1
    block = np.clip(block, 0, mass.shape[1] - 2)
    before, after = (np.take_along_axis(mass, block + k, axis=1) for k in (0, 1))
    first, last = (np.take_along_axis(wrong, block + k, axis=1) for k in (0, 1))
    open_ = after - retained > SLACK * batch.total[:, None]
    fraction = np.divide(retained - before, after - before, out=np.ones_like(retained), where=open_)
    return 1 - (first + np.clip(fraction, 0.0, 1.0) * (last - first)) / retained


def _wrong_before(batch: Batch) -> Floats:
    """(R,) pairs of an image and a wrong prediction that is not more uncertain, those of one block counting half."""
    pairs = np.diff(batch.mass, axis=1) * (batch.wrong[:, 1:] + batch.wrong[:, :-1])
    return np.asarray(pairs.sum(axis=1) / 2)


def number_at(batch: Batch, name: str, referred: float = 0.5) -> Floats:
    """Return (R,) `half_referred.number`; the numbers of a share referred are computed together, once for a batch."""
    return batch.derived(_numbers(referred))[:, names(referred).index(name)]


@functools.cache
def _numbers(referred: float) -> Callable[[Batch], Floats]:
    return functools.partial(numbers_at, referred=referred, specificity=SPECIFICITY)


def numbers_at(batch: Batch, referred: float, specificity: float) -> Floats:
    """Return (R, K) `half_referred.numbers`, row by row."""
    cases, weight = batch.cases, batch.weight
    half = ((1 - referred) * batch.count + 1e-9).astype(np.intp)
    kept = half * batch.step
    at = _Place(batch, np.maximum(half, 1), kept)
    wrong, positives = at.retained(batch.wrong), at.retained(batch.positive)
    found = at.retained(batch.block_sums(weight * (cases.label & cases.called)))
    passed = at.retained(batch.block_sums(weight * ~(cases.label | cases.called)))
    accuracy, sensitivity = ratio(kept - wrong, kept), ratio(found, positives)
    overall = 1 - batch.wrong[:, -1] / batch.total
    perfect = np.minimum(1.0, overall * batch.count / np.maximum(half, 1))
    missed = np.where(positives > 0, (1 - sensitivity) * positives, 0.0)
    values = np.stack(
        [
            accuracy,
            accuracy - overall,
            ratio(accuracy - overall, perfect - overall),
            perfect,
            sensitivity,
            ratio(passed, at.retained(batch.mass) - positives),
            ratio(positives, kept),
            ratio(missed, batch.positives),
            sensitivity_on_grid(batch, np.array([1 - specificity]))[:, 0],
        ],
        axis=1,
    )
    values[half == 0] = np.nan
    return values


class _Place:
    """One point of the curves of every row: the block (R,) at it, and the fraction (R,) of that block which is retained."""

    def __init__(self, batch: Batch, point: NDArray[np.intp], kept: Floats) -> None:
        self.row = np.arange(len(point))
        self.block = np.minimum((batch.passed < point[:, None]).sum(axis=1) - 1, batch.passed.shape[1] - 2)
        before, after = batch.mass[self.row, self.block], batch.mass[self.row, self.block + 1]
        whole = after - kept <= SLACK * batch.total
        fraction = np.divide(kept - before, after - before, out=np.ones(len(kept)), where=~whole)
        self.fraction = np.clip(fraction, 0.0, 1.0)

    def retained(self, sums: Floats) -> Floats:
        """(R,) retained part of a mass, of which `sums` (R, B+1) is the sum over the blocks before."""
        before, after = sums[self.row, self.block], sums[self.row, self.block + 1]
        return np.asarray(before + self.fraction * (after - before))

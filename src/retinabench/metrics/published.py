"""The released Retina Benchmark protocol, faults included: its scores, curves and sets.

For comparison with published numbers only. What is wrong with each, and what the corrected rules do instead, is in
`docs/deviations.md`. Curves start with nothing referred and end with everything referred, where the value is 1 (0
for NLL) by definition. Areas are plain means of these arrays.

**Ties.** The released code sorts by NumPy's default sort, which is not stable: the order of images of equal
uncertainty, and with it every curve, depends on the NumPy version and on the row order. Every function here takes an
`order` for that reason; where it is None, `order_of` sorts as the released code does under the NumPy installed.

Reference: google/uncertainty-baselines at 163351d4c923, `baselines/diabetic_retinopathy_detection`; the calibration
error is that of google-research/robustness_metrics at 93ac2c25. Old scikit-learn semantics (before 1.6) hold: an
AUROC of one class is an error, counted as 0 in a curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.classification import Roc
from retinabench.metrics.image_sets import REFERRED
from retinabench.metrics.referral_curves import Curve
from retinabench.metrics.registry import ScoreValue
from retinabench.metrics.weighted_images import Bools, Floats
from retinabench.predictions.table import Predictions

Index = NDArray[np.intp]
BUCKETS = 100
METRICS = ("accuracy", "nll", "auroc", "auprc")
EYEPACS_GRADES = {0: 0.7359503164, 1: 0.07129130537, 2: 0.1472228732, 3: 0.0228966487, 4: 0.02263885634}


def order_of(uncertainty: ArrayLike) -> Index:
    """Order of referral, the certain first: NumPy's default sort, not stable."""
    return np.argsort(np.asarray(uncertainty))


def referral_curve(
    label: ArrayLike,
    prob: ArrayLike,
    uncertainty: ArrayLike,
    metric: str,
    oracle: bool = False,
    order: ArrayLike | None = None,
) -> Curve:
    """Return the curve of a metric over the referred fraction, by the released code.

    accuracy and nll have N+1 points, auroc and auprc (trapezoid) 101, at int(k/100 N) retained. `oracle` counts the referred as
    predicted correctly, as the 2021 code stored the curves; `order` (N,) are the rows, the certain first, to settle ties.
    """
    y, p = np.asarray(label), np.asarray(prob)
    rows = order_of(uncertainty) if order is None else np.asarray(order)
    if metric == "accuracy":
        value = mean_curve(y == (p > 0.5), rows, 1.0, oracle)
    elif metric == "nll":
        value = mean_curve(losses(y, p), rows, 0.0, oracle)
    elif metric in ("auroc", "auprc"):
        value = ranking_curve(y, p, rows, metric, oracle)
    else:
        raise InputError(f"unknown metric '{metric}' under the published rules", hint=nearest(metric, METRICS))
    n = len(y)
    referred = np.arange(len(value)) / (len(value) - 1)
    retained = (np.arange(n + 1) if len(value) == n + 1 and metric in ("accuracy", "nll") else _buckets(n))[::-1]
    positives = np.concatenate(([0.0], np.cumsum(y[rows] == 1)))[retained]
    negatives = np.asarray(retained - positives, np.float64)
    return Curve(metric, "published", referred, value, float(np.mean(value)), positives, negatives)


def losses(label: ArrayLike, prob: ArrayLike) -> Floats:
    """(N,) negative log likelihood, nats: clipped to [1e-15, 1 - 1e-15], the two classes brought back to sum 1."""
    y = np.asarray(label)
    return _log_loss(y, np.asarray(prob), 1e-15)


def nll(label: ArrayLike, prob: ArrayLike) -> float:
    """Mean NLL with scikit-learn 1.5's clipping: the machine epsilon of the type (2.2e-16 for float64)."""
    p = np.asarray(prob)
    return float(_log_loss(np.asarray(label), p, float(np.finfo(p.dtype).eps)).mean())


def _log_loss(y: NDArray[np.generic], p: NDArray[np.floating], eps: float) -> Floats:
    clipped = np.clip(p, eps, 1 - eps)
    other = 1 - clipped
    return np.asarray(-np.log(np.where(y == 1, clipped, other) / (clipped + other)))


def mean_curve(values: ArrayLike, order: Index, of_referred: float, oracle: bool) -> Floats:
    """Return the mean value (N,) of the retained at every count; that of a referred image where all are referred, or by the oracle everywhere."""
    sums = np.append(np.cumsum(np.asarray(values)[order])[::-1], 0.0)
    n = len(sums) - 1
    if oracle:
        return np.asarray((sums + of_referred * np.arange(n + 1)) / n)
    return np.append(sums[:-1] / np.arange(n, 0, -1), of_referred)


def _buckets(n: int) -> Index:
    return np.append((np.arange(BUCKETS) / BUCKETS * n).astype(np.intp), n)


def ranking_curve(label: ArrayLike, prob: ArrayLike, order: Index, metric: str, oracle: bool = False) -> Floats:
    """Return the AUROC or trapezoid AUPRC of the retained at 101 counts.

    From the most certain end: while one class is left and all predictions are correct, the value is 1. The first set that is not so
    ends this for good; from there an AUROC of one class counts 0, as does a set without images.
    """
    y, p, n = np.asarray(label)[order], np.asarray(prob)[order], len(order)
    area = cache(lambda count: (auroc if metric == "auroc" else auprc)(y[:count], p[:count]) or 0.0)
    values, lucky = [1.0], True
    for count in _buckets(n)[1:].tolist():  # which few images repeat
        last = len(values) == BUCKETS
        if lucky and not last and len(np.unique(y[:count])) == 1 and np.array_equal(p[:count] > 0.5, y[:count]):
            value = 1.0
        else:
            lucky, value = False, area(count)
            if oracle and not last:
                value = (count * value + n - count) / n
        values.append(value)
    return np.array(values[::-1])


def auroc(label: ArrayLike, prob: ArrayLike) -> float | None:
    hit, false = _counts(label, prob)
    if not len(hit) or hit[-1] == 0 or false[-1] == 0:
        return None
    return _trapezoid(np.append(0, false) / false[-1], np.append(0, hit) / hit[-1])


def auprc(label: ArrayLike, prob: ArrayLike) -> float | None:
    """Trapezoid under precision over recall, closed at (0, 1): 0.5 without positives, 1 without negatives."""
    hit, false = _counts(label, prob)
    if not len(hit):
        return None
    recall = hit / hit[-1] if hit[-1] else np.ones(len(hit))
    return _trapezoid(np.append(0.0, recall), np.append(1.0, hit / (hit + false)))


def _counts(label: ArrayLike, score: ArrayLike) -> tuple[Floats, Floats]:
    y, s = np.asarray(label) == 1, np.asarray(score)
    order = np.argsort(-s, kind="stable")
    ranked = s[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))[: len(s)]
    hit = np.cumsum(y[order], dtype=np.float64)[last]
    return hit, last + 1 - hit


def _trapezoid(x: Floats, y: Floats) -> float:
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


def ece(label: ArrayLike, prob: ArrayLike, bins: int = 15) -> float:
    """Return the top-label calibration error in single precision, bins [low, high) of equal width over [0, 1].

    The model says 0 where the two classes tie. Sums run over the images in their order, as does the original's; its last sum
    runs in packets of four, which decides the last bit.
    """
    count, right, sure = ece_bins(label, prob, bins)
    held = count > 0
    count, right, sure = count[held], right[held], sure[held]
    return float(_packet_sum(count / count.sum() * np.abs(right / count - sure / count)))


def ece_bins(label: ArrayLike, prob: ArrayLike, bins: int = 15) -> NDArray[np.float32]:
    """Return the sums of every bin of `ece`. Shapes: `label` (N,), `prob` (N,)."""
    one = np.float32(1)
    p = np.asarray(prob).astype(np.float32)
    answer = p > one - p
    confidence = np.where(answer, p, one - p)
    number = np.clip(np.floor(confidence * np.float32(bins)).astype(np.intp), 0, bins - 1)
    sums = np.zeros((3, bins), np.float32)
    np.add.at(sums[0], number, one)
    np.add.at(sums[1], number, (answer == (np.asarray(label) == 1)).astype(np.float32))
    np.add.at(sums[2], number, confidence)
    return sums


def _packet_sum(terms: NDArray[np.float32]) -> np.float32:
    whole = len(terms) // 4 * 4
    total = np.float32(0)
    if whole:
        packet = terms[:4].copy()
        for start in range(4, whole, 4):
            packet += terms[start : start + 4]
        total = np.float32((packet[0] + packet[2]) + (packet[1] + packet[3]))
    for term in terms[whole:]:
        total = np.float32(total + term)
    return total


def aggregate(values: ArrayLike) -> tuple[float, float, float]:
    """Mean, variance and standard error over seeds, all with ddof 0: too small by (n-1)/n; None is dropped."""
    v = np.asarray([x for x in np.asarray(values, object).tolist() if x is not None], np.float64)
    return float(v.mean()), float(v.var()), float(v.std() / np.sqrt(len(v)))


def sensitivity_at_nearest(curve: Roc, rates: ArrayLike) -> Floats:
    """Return the sensitivity of a curve at the points nearest in false-positive rate, not interpolated; `rates` (G,) -> (G,)."""
    distance = np.abs(curve.false_positive_rate[None, :] - np.asarray(rates)[:, None])
    return np.asarray(curve.sensitivity[distance.argmin(axis=1)], np.float64)


class PublishedScores(NamedTuple):
    """The scores of one set by the released code: the first fields of `SetScores`."""

    images: int
    patients: int | None
    positives: int
    scores: Mapping[str, ScoreValue]
    referral: Mapping[str, Mapping[str, float]]


def score_sets(test: Predictions, uncertainty: Floats, seed: int) -> dict[str, PublishedScores]:
    """Score every set that exists by the released code. Shapes: `uncertainty` (N,)."""
    if not 0 <= seed < 2**32:
        hint = "The published rules draw by NumPy's old generator: 0 to 4294967295."
        raise InputError(f"the seed is {seed}", hint=hint)
    shifted = test.domain == "shifted"
    near, far = np.flatnonzero(~shifted), np.flatnonzero(shifted)
    parts = {"in_domain": near, "shifted": far}
    sets = {name: _set(test.take(rows), uncertainty[rows]) for name, rows in parts.items() if len(rows)}
    if len(sets) == 2:
        rows = np.concatenate([near, far])  # the released joint set is the in-domain images, then the shifted ones
        joint, values, is_far = test.take(rows), uncertainty[rows], shifted[rows]
        detection = {"ood_auroc": auroc(is_far, values), "ood_auprc": auprc(is_far, values)}
        sets["joint"] = _set(joint, values, detection)
        sets["balanced"] = _balanced(joint, values, is_far, seed)
    return sets


def _set(part: Predictions, values: Floats, more: Mapping[str, float | None] | None = None) -> PublishedScores:
    y, p = part.label, part.prob
    curves = {metric: referral_curve(y, p, values, metric) for metric in METRICS}
    scores = {"accuracy": float(np.mean(y == (p > 0.5))), "auroc": auroc(y, p), "auprc": auprc(y, p)}
    return _results(part, scores | {"nll": nll(y, p), "ece_top_label": ece(y, p)}, curves, more or {})


def _balanced(joint: Predictions, values: Floats, far: Bools, seed: int) -> PublishedScores:
    """Accuracy and NLL over the duplicated rows; AUROC and AUPRC over the joint set as it is, a fault of the original."""
    rows = balanced_rows(far, seed)
    y, p = joint.label, joint.prob
    of = {metric: rows if metric in ("accuracy", "nll") else slice(None) for metric in METRICS}
    curves = {metric: referral_curve(y[held], p[held], values[held], metric) for metric, held in of.items()}
    return _results(joint, {}, curves, {})


def _results(
    part: Predictions, scores: Mapping[str, float | None], curves: Mapping[str, Curve], more: Mapping[str, float | None]
) -> PublishedScores:
    values = {**scores, **{f"referral_{metric}_area": curve.area for metric, curve in curves.items()}, **more}
    found = {
        name: ScoreValue(np.nan, why="one class only") if value is None else ScoreValue(value)
        for name, value in values.items()
    }
    referral = {
        metric: {f"{r:g}": float(curve.value[int(r * (len(curve.value) - 1))]) for r in REFERRED}
        for metric, curve in curves.items()
    }
    patients = None if part.patient_id is None else len(np.unique(part.patient_id))
    return PublishedScores(len(part), patients, int(part.label.sum()), found, referral)


def balanced_rows(shifted: ArrayLike, seed: int | np.random.RandomState) -> Index:
    """Rows of the balanced joint set: all in-domain, whole copies of the shifted, and a rest drawn without replacement by NumPy's old generator."""
    rng = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
    far = np.flatnonzero(np.asarray(shifted))
    near = np.flatnonzero(~np.asarray(shifted, bool))
    copies = int(len(near) / len(far))
    rest = rng.choice(far, size=len(near) - copies * len(far), replace=False)
    return np.concatenate([near, *[far] * copies, rest])


def rebalanced_rows(grade: ArrayLike, seed: int | np.random.RandomState, size: int = 10_000) -> Index:
    """Return rows drawn with replacement so that grades are as frequent as in the EyePACS test set (paper B.5).

    Grades are drawn in the order in which they first appear, int(proportion x size) of each: 9,997 of 10,000.
    """
    rng = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
    grades = np.asarray(grade)
    present, first = np.unique(grades, return_index=True)
    drawn = [
        rng.choice(np.flatnonzero(grades == g), size=int(EYEPACS_GRADES[int(g)] * size), replace=True)
        for g in present[np.argsort(first)]
    ]
    return np.concatenate(drawn)

"""Recalibration: the probabilities of a file mapped so that they fit the labels of its validation split.

With z = logit(p) and a logistic function s:

| method | map | source |
|---|---|---|
| `temperature` | s(z / T) | Guo, Pleiss, Sun and Weinberger, ICML 2017 |
| `platt` | s(a z + b) | Platt 1999, on the logit |
| `beta` | s(a ln p - b ln(1 - p) + c), a and b at least 0 | Kull, Silva Filho and Flach, AISTATS 2017 |
| `isotonic` | the nondecreasing step function of least squares, linear between its steps | Zadrozny and Elkan, KDD 2002 |
| `venn-abers` | p1 / (1 - p0 + p1), p0 and p1 the isotonic values at p with p added as negative and as positive | Vovk, Petej and Fedorova, NeurIPS 2015 |

The validation images chose the map, so that they are left out of the new predictions: nothing may be certified on them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit

from retinabench.core.errors import InputError
from retinabench.metrics.calibration import logistic_fit
from retinabench.metrics.clinical.groups import group_labels
from retinabench.metrics.weighted_images import EPS, Bools, Cases, Floats
from retinabench.predictions.table import Predictions

Map = Callable[[Floats], Floats]
Method = Literal["temperature", "platt", "beta", "isotonic", "venn-abers"]
FEWEST = 20  # validation images of each class; fewer fit no map
DIGITS = 4  # of the logits at which Venn-Abers predictors are computed


def recalibrate(predictions: Predictions, method: Method = "platt", by: str | None = None) -> Predictions:
    """Map the probabilities of the test images so that they fit the labels of the validation images.

    Args:
        predictions: Predictions with a validation and a test split; samples of an image count by their mean.
        method: `platt`, `temperature`, `beta`, `isotonic` or `venn-abers`.
        by: A column whose groups each have a map of their own; without it the in-domain validation images make one for all.

    Returns:
        The test images with new probabilities. The validation images chose the map, and are left out.

    Raises:
        InputError: A split is missing, a class has fewer than 20 validation images, or the map does not fit.

    Examples:
        >>> import numpy as np
        >>> import retinabench as rb
        >>> rng = np.random.default_rng(0)
        >>> label = rng.random(400) < 0.5
        >>> split = ["validation"] * 200 + ["test"] * 200
        >>> sure = rb.Predictions(range(400), label, np.where(rng.random(400) < 0.8, label, ~label) * 0.98 + 0.01, split=split)
        >>> np.unique(rb.recalibrate(sure, "temperature").prob.round(2)).tolist()
        [0.18, 0.82]
    """
    if method not in get_args(Method):
        raise InputError(f"unknown method '{method}'", hint=f"Valid: {', '.join(get_args(Method))}.")
    fitting = np.flatnonzero(
        (predictions.split == "validation") & (predictions.domain == "in_domain" if by is None else True)
    )
    others = np.flatnonzero(predictions.split == "test")
    if not len(fitting) or not len(others):
        hint = "Mark the images that choose the map by split = validation, and the others by split = test."
        raise InputError("needs images of the validation and of the test split", file=predictions.source, hint=hint)
    groups = np.full(len(predictions), "") if by is None else group_labels(predictions, by)
    prob = predictions.prob.copy()
    for name in np.unique(groups[others]):
        own, new = fitting[groups[fitting] == name], others[groups[others] == name]
        label = predictions.label[own] == 1
        if min(label.sum(), (~label).sum()) < FEWEST:
            where = f" of “{name}”" if by else ""
            problem = f"has {int(label.sum())} referable and {int((~label).sum())} other validation images{where}"
            raise InputError(problem, file=predictions.source, hint=f"A map needs {FEWEST} of each.")
        prob[new] = fitted(method, label, predictions.prob[own])(predictions.prob[new])
    test = predictions.take(others)
    return Predictions(
        test.image_id, test.label, np.clip(prob[others], 0, 1), grade=test.grade, patient_id=test.patient_id, domain=test.domain,
        split=test.split, uncertainty=test.uncertainty, subgroups=test.subgroups, metadata=test.metadata,
    )  # fmt: skip


def fitted(method: Method, label: Bools, prob: Floats) -> Map:
    if method == "isotonic":
        return _isotonic(label, prob)
    if method == "venn-abers":
        return _venn_abers(label, prob)
    w = Cases(label, prob).weighted()

    def design(p: Floats, columns: tuple[int, ...]) -> Floats:
        p = np.clip(p, EPS, 1 - EPS)
        all_columns = np.column_stack([np.ones(len(p)), logit(p), np.log(p), -np.log1p(-p)])
        return np.asarray(all_columns[:, columns])

    tried: dict[str, list[tuple[int, ...]]] = {
        "temperature": [(1,)],
        "platt": [(0, 1)],
        "beta": [(0, 2, 3), (0, 2), (0, 3)],
    }
    for columns in tried[method]:
        found = np.array(logistic_fit(w, design(w.cases.prob, columns), 0.0))
        if np.isfinite(found).all() and (found[columns[0] == 0 :] >= 0).all():  # all but the constant
            return lambda p, columns=columns, found=found: np.asarray(expit(design(p, columns) @ found))  # type: ignore[misc]
    raise InputError(f"'{method}' does not fit: the classes are parted, or the probabilities fall where disease rises")


def _isotonic(label: Bools, prob: Floats) -> Map:
    values, codes = np.unique(prob, return_inverse=True)
    count = np.bincount(codes)
    steps = isotonic_regression(np.bincount(codes, label) / count, weights=count).x
    return lambda p: np.asarray(np.interp(p, values, steps))


def _venn_abers(label: Bools, prob: Floats) -> Map:
    values, codes = np.unique(prob, return_inverse=True)
    count, positive = np.bincount(codes).astype(float), np.bincount(codes, label)

    def at(p: float) -> float:
        k = int(np.searchsorted(values, p))
        there = k < len(values) and values[k] == p
        ends = []
        for added in (0.0, 1.0):
            n, s = (count.copy(), positive.copy()) if there else (np.insert(count, k, 0.0), np.insert(positive, k, 0.0))
            n[k] += 1
            s[k] += added
            ends.append(float(isotonic_regression(s / n, weights=n).x[k]))
        return ends[1] / (1 - ends[0] + ends[1])

    def mapped(p: Floats) -> Floats:
        rounded = expit(np.round(logit(np.clip(p, EPS, 1 - EPS)), DIGITS))
        levels, places = np.unique(rounded, return_inverse=True)
        return np.array([at(one) for one in levels.tolist()])[places]

    return mapped

"""`score(..., rules="published")`: the numbers of the released protocol under our names, without intervals, and the rows of its sets.

The referral is ordered by what `score` was asked for; the released code knows only the total uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.published import scores as published
from retinabench.metrics.results import REFERRED, ScoreValue, SetScores
from retinabench.metrics.selective.referral_curves import Curve
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
EYEPACS_GRADES = {0: 0.7359503164, 1: 0.07129130537, 2: 0.1472228732, 3: 0.0228966487, 4: 0.02263885634}


def score_sets(test: Predictions, uncertainty: Floats, seed: int) -> dict[str, SetScores]:
    """Score every set that exists by the released code.

    Args:
        test: The images.
        uncertainty: (N,) what orders their referral.
        seed: Below 2^32; it draws the balanced set.

    Returns:
        Set name -> scores.

    Raises:
        InputError: The seed is too large for NumPy's old generator.
    """
    if not 0 <= seed < 2**32:
        raise InputError(
            f"the seed is {seed}", hint="The published rules draw by NumPy's old generator: 0 to 4294967295."
        )
    shifted = test.domain == "shifted"
    near, far = np.flatnonzero(~shifted), np.flatnonzero(shifted)
    sets = {
        name: _set(test.take(rows), uncertainty[rows])
        for name, rows in (("in_domain", near), ("shifted", far))
        if len(rows)
    }
    if len(sets) == 2:
        rows = np.concatenate(
            [near, far]
        )  # the released joint set is the in-domain images, then the shifted ones
        joint, values, is_far = test.take(rows), uncertainty[rows], shifted[rows]
        detection = {
            "ood_auroc": published.auroc(is_far, values),
            "ood_auprc": published.auprc(is_far, values),
        }
        sets["joint"] = _set(joint, values, detection)
        sets["balanced"] = _balanced(joint, values, is_far, seed)
    return sets


def _set(part: Predictions, values: Floats, more: Mapping[str, float | None] | None = None) -> SetScores:
    y, p = part.label, part.prob
    curves = {metric: published.referral_curve(y, p, values, metric) for metric in published.METRICS}
    scores = {
        "accuracy": float(np.mean(y == (p > 0.5))),
        "auroc": published.auroc(y, p),
        "auprc": published.auprc(y, p),
        "nll": published.nll(y, p),
        "ece_top_label": published.ece(y, p),
    }
    return _results(part, scores, curves, more or {})


def _balanced(joint: Predictions, values: Floats, far: NDArray[np.bool_], seed: int) -> SetScores:
    """Accuracy and NLL over the duplicated rows; AUROC and AUPRC over the joint set as it is, a fault of the original."""
    rows = balanced_rows(far, seed)
    y, p = joint.label, joint.prob
    curves = {
        metric: published.referral_curve(y[rows], p[rows], values[rows], metric)
        for metric in ("accuracy", "nll")
    } | {metric: published.referral_curve(y, p, values, metric) for metric in ("auroc", "auprc")}
    return _results(joint, {}, curves, {})


def _results(
    part: Predictions,
    scores: Mapping[str, float | None],
    curves: Mapping[str, Curve],
    more: Mapping[str, float | None],
) -> SetScores:
    areas = {f"referral_{metric}_area": curve.area for metric, curve in curves.items()}
    return SetScores(
        len(part),
        None if part.patient_id is None else len(np.unique(part.patient_id)),
        int(part.label.sum()),
        {name: _value(value) for name, value in {**scores, **areas, **more}.items()},
        referral={
            metric: {f"{r:g}": float(curve.value[int(r * (len(curve.value) - 1))]) for r in REFERRED}
            for metric, curve in curves.items()
        },
    )


def _value(value: float | None) -> ScoreValue:
    return ScoreValue(np.nan, why="one class only") if value is None else ScoreValue(value)


def balanced_rows(shifted: ArrayLike, seed: int | np.random.RandomState) -> published.Index:
    """Rows of the balanced joint set: all in-domain, then whole copies of the shifted, then a random rest.

    The rest is drawn without replacement by NumPy's old generator, after `np.random.seed(seed)`.
    """
    rng = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
    far = np.flatnonzero(np.asarray(shifted))
    near = np.flatnonzero(~np.asarray(shifted, bool))
    copies = int(len(near) / len(far))
    rest = rng.choice(far, size=len(near) - copies * len(far), replace=False)
    return np.concatenate([near, *[far] * copies, rest])


def rebalanced_rows(
    grade: ArrayLike, seed: int | np.random.RandomState, size: int = 10_000
) -> published.Index:
    """Return rows drawn with replacement so that grades are as frequent as in the EyePACS test set (paper B.5).

    Grades are drawn in the order in which they first appear, int(proportion x size) of each: 9,997 of 10,000.

    Args:
        grade: (N,) 0 to 4.
        seed: Seed or state of NumPy's old generator.
        size: Number of rows asked for.

    Returns:
        The rows.
    """
    rng = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
    grades = np.asarray(grade)
    present, first = np.unique(grades, return_index=True)
    drawn = [
        rng.choice(np.flatnonzero(grades == g), size=int(EYEPACS_GRADES[int(g)] * size), replace=True)
        for g in present[np.argsort(first)]
    ]
    return np.concatenate(drawn)

"""`score(..., rules="published")`: the released protocol's numbers under our names, without intervals.

The referral is ordered by what `score` was asked for; the released code knows only the total uncertainty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.published import scores as published
from retinabench.metrics.selective.referral_curves import Curve
from retinabench.metrics.sets import REFERRED
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]


def score_sets(test: Predictions, uncertainty: Floats, seed: int) -> dict[str, Any]:
    """Sets and scores as `score` gives them; `seed`, below 2^32, draws the balanced set."""
    if not 0 <= seed < 2**32:
        raise InputError(
            f"the seed is {seed}", hint="The published rules draw by NumPy's old generator: 0 to 4294967295."
        )
    shifted = test.domain == "shifted"
    sets = {
        name: _one(test.take(rows), uncertainty[rows])
        for name, rows in (("in_domain", np.flatnonzero(~shifted)), ("shifted", np.flatnonzero(shifted)))
        if len(rows)
    }
    if len(sets) == 2:
        # The released joint set is the in-domain images, then the shifted ones.
        rows = np.concatenate([np.flatnonzero(~shifted), np.flatnonzero(shifted)])
        joint, values, far = test.take(rows), uncertainty[rows], shifted[rows]
        sets["joint"] = _one(joint, values)
        sets["joint"]["scores"] |= {
            "ood_auroc": _entry(published.auroc(far, values)),
            "ood_auprc": _entry(published.auprc(far, values)),
        }
        sets["balanced"] = _balanced(joint, values, far, seed)
    return sets


def _one(part: Predictions, values: Floats) -> dict[str, Any]:
    y, p = part.label, part.prob
    curves = {metric: published.referral_curve(y, p, values, metric) for metric in published.METRICS}
    scores = {
        "accuracy": float(np.mean(y == (p > 0.5))),
        "auroc": published.auroc(y, p),
        "auprc": published.auprc(y, p),
        "nll": published.nll(y, p),
        "ece_top_label": published.ece(y, p),
    }
    return _set(part, scores, curves)


def _balanced(joint: Predictions, values: Floats, far: NDArray[np.bool_], seed: int) -> dict[str, Any]:
    """Accuracy and NLL over the duplicated rows; AUROC and AUPRC over the joint set as it is, a fault kept."""
    rows = published.balanced_rows(far, seed)
    y, p = joint.label, joint.prob
    curves = {
        metric: published.referral_curve(y[rows], p[rows], values[rows], metric)
        for metric in ("accuracy", "nll")
    } | {metric: published.referral_curve(y, p, values, metric) for metric in ("auroc", "auprc")}
    return _set(joint, {}, curves)


def _set(part: Predictions, scores: dict[str, float | None], curves: dict[str, Curve]) -> dict[str, Any]:
    areas = {f"referral_{metric}_area": curve.area for metric, curve in curves.items()}
    return {
        "images": len(part),
        "patients": None if part.patient_id is None else len(np.unique(part.patient_id)),
        "positives": int(part.label.sum()),
        "scores": {name: _entry(value) for name, value in (scores | areas).items()},
        "referral": {
            metric: {f"{r:g}": float(curve.value[int(r * (len(curve.value) - 1))]) for r in REFERRED}
            for metric, curve in curves.items()
        },
    }


def _entry(value: float | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"value": value, "low": None, "high": None, "version": 1}
    if value is None:
        entry["why"] = "one class only"
    return entry

"""The ROC and referral curves of one predictions file on common grids, so that runs can be averaged.

The sets are those of `metrics.sets` and, where the shifted set is graded and holds both classes, `rebalanced`: the
shifted images with the grade frequencies of the EyePACS test set (paper, section B.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics import published, referral_curves
from retinabench.metrics.classification import Roc, grade_weight, roc_curve, sensitivity_on_chords
from retinabench.metrics.image_sets import ImageSet
from retinabench.metrics.published import balanced_rows, rebalanced_rows
from retinabench.metrics.weighted_images import Cases, Weighted
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
Named = dict[tuple[str, str], Floats]
GRID = np.linspace(0, 1, 101)  # of the share referred
RATES = {"corrected": np.linspace(0, 1, 201), "published": np.arange(0, 1.02, 0.02)}
RETAINED = (0.6, 0.9)  # of the ROC curves after referral, Figure 6 of the 2019 paper
FEWEST = 0.05  # share of the images below which a curve is too noisy to be drawn
METRICS = published.METRICS
CONTROLS = ("accuracy", "nll", "auroc")  # metrics with an oracle; that of the AUPRC takes too long


@dataclass(frozen=True)
class Curves:
    """Curves by set.

    Attributes:
        referral: By (set, metric) the (101,) values over `GRID`.
        roc: By (set, share retained) the sensitivities over `RATES`.
        oracle: As `referral`, with the same predictions referred in the order of their true loss.
    """

    referral_curves: Named
    roc: dict[tuple[str, float], Floats]
    oracle: Named


def corrected_curves(
    test: Predictions, sets: Sequence[ImageSet], curves: dict[tuple[str, str], referral_curves.Curve]
) -> Curves:
    """Return the corrected curves of a file on the grids."""
    out = Curves({}, {}, {})
    for images in sets:
        whole = images.whole
        for metric in METRICS:
            curves[images.name, metric] = curve = referral_curves.curve_of(whole, metric)
            out.referral[images.name, metric] = _on_grid(curve)
        _rocs(out, images.name, whole)
        loss = images.cases.log_loss
        perfect = Cases(images.cases.label, images.cases.prob, loss).weighted(whole.weight)
        for metric in CONTROLS:
            out.oracle[images.name, metric] = _on_grid(referral_curves.curve_of(perfect, metric))
    if (part := rebalanced(test)) is not None:
        weight = grade_weight(part.grade)  # type: ignore[arg-type]  # `rebalanced` has checked the grades
        whole = Cases(part.label, part.prob, part.uncertainty).weighted(weight)
        _rocs(out, "rebalanced", whole)
        for metric in ("accuracy", "auroc"):
            out.referral["rebalanced", metric] = _on_grid(referral_curves.curve_of(whole, metric))
    return out


def rebalanced(test: Predictions) -> Predictions | None:
    """Return the shifted images if all are graded and both classes are present, else None."""
    part = test.select(domain="shifted")
    if part is None or part.grade is None or len(np.unique(part.label)) < 2:
        return None
    if (part.grade < 0).any():
        return None
    return part


def _on_grid(curve: referral_curves.Curve) -> Floats:
    """Return the (101,) values of a curve, NaN where too few images remain."""
    values = np.array(curve.value)
    held = curve.positives + curve.negatives
    few = held < max(referral_curves.MIN_CLASS, FEWEST * held.max()) - 1e-9
    if referral_curves.ranks_classes(curve.metric):
        few |= np.minimum(curve.positives, curve.negatives) < referral_curves.MIN_CLASS - 1e-9
    values[few] = np.nan
    return np.asarray(np.interp(GRID, curve.referred, values, right=np.nan))


def _rocs(out: Curves, name: str, w: Weighted) -> None:
    """Add the ROC curves of all images of a set and of those that remain after referral."""
    if w.positives <= 0 or w.negatives <= 0:
        return
    for share in (1.0, *RETAINED):
        kept = retained_weight(w, share)
        if (kept[w.cases.label].sum() > 0) and (kept[~w.cases.label].sum() > 0):
            out.roc[name, share] = read_roc(roc_curve(w.cases.label, w.cases.prob, kept))


def read_roc(curve: Roc) -> Floats:
    """Return the (201,) sensitivities of a curve over `RATES`."""
    return sensitivity_on_chords(curve, RATES["corrected"])


def retained_weight(w: Weighted, share: float) -> Floats:
    """Return (N,) weights, in the order of the cases, that retain this share of the mass; ties are shared evenly."""
    block, fraction = w.locate(np.array([share * w.total]))
    starts = np.concatenate(([0], w.cases.ends + 1))
    weight = w.weight.copy()
    weight[starts[block[0]] : starts[block[0] + 1]] *= fraction[0]
    weight[starts[block[0] + 1] :] = 0
    return weight


def published_curves(test: Predictions, seed: int) -> tuple[Curves, Named]:
    """Return the released code's curves, including its joint, balanced and rebalanced sets."""
    assert test.uncertainty is not None
    far = test.domain == "shifted"
    near = np.flatnonzero(~far)
    sets = {"in_domain": near, "shifted": np.flatnonzero(far)}
    sets = {name: rows for name, rows in sets.items() if len(rows)}
    if len(sets) == 2:
        sets["joint"] = np.concatenate(list(sets.values()))
        joint = sets["joint"]
        sets["balanced"] = joint[balanced_rows(far[joint], seed)]
        if (part := rebalanced(test)) is not None:
            assert part.grade is not None
            sets["rebalanced"] = sets["shifted"][rebalanced_rows(part.grade, seed)]
    out, whole = Curves({}, {}, {}), Named()
    for name, rows in sets.items():
        label, prob, uncertainty = test.label[rows], test.prob[rows], test.uncertainty[rows]
        for metric in METRICS:
            if name == "balanced" and metric in (
                "auroc",
                "auprc",
            ):  # the unbalanced joint set: a fault of the released code
                curve_rows = sets["joint"]
                arrays = test.label[curve_rows], test.prob[curve_rows], test.uncertainty[curve_rows]
            else:
                arrays = label, prob, uncertainty
            curve = published.referral_curve(*arrays, metric)
            whole[name, metric] = curve.value
            out.referral[name, metric] = np.interp(GRID, curve.referred, curve.value)
        if 0 < label.sum() < len(label):
            for share in (1.0, *RETAINED):
                kept = published.order_of(uncertainty)[: int(share * len(rows))]
                if 0 < label[kept].sum() < len(kept):
                    out.roc[name, share] = published.sensitivity_at_nearest(
                        roc_curve(label[kept], prob[kept]), RATES["published"]
                    )
    return out, whole

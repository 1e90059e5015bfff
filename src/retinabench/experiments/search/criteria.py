"""The criteria that choose a trial: two scores of the validation split, higher is better.

`in_domain_auroc`: AUROC of the in-domain validation images. `balanced_joint_accuracy_area`: area under the curve of
accuracy over referral of all validation images, the shifted ones with as much mass as the others (paper B.3).

Rules: `corrected` weighs the shifted images exactly and shares ties; `published` duplicates them and draws the rest at
random, sorts by NumPy's default order, and counts the endpoint without any retained image as accuracy 1, as released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from retinabench.metrics import classification, published, referral_curves
from retinabench.metrics.image_sets import SET_LABELS, ImageSet, referral_uncertainty
from retinabench.metrics.published import balanced_rows
from retinabench.metrics.registry import SCORES
from retinabench.predictions.table import Predictions

DRAW = 0  # seed of the duplication under published rules, the same for all trials of a search
Value = tuple[float, str]  # of a criterion, and the reason where it is NaN


@dataclass(frozen=True)
class Criterion:
    """A named criterion: a score of a set of the validation images, `function`: (validation images, rules) -> value; shifted: needs shifted images."""

    name: str
    score: str
    set: str
    function: Callable[[Predictions, str], Value]
    shifted: bool = False

    @property
    def title(self) -> str:
        """What tables and figures call it."""
        return f"{SCORES[self.score].label}, {SET_LABELS[self.set].lower()} validation"


def measure(name: str, predictions: Predictions, rules: str) -> Value:
    """Return a criterion's value, or NaN and why it has none; only validation rows count."""
    validation = predictions.select(split="validation")
    if validation is None:
        return np.nan, "the run has no validation images"
    return CRITERIA[name].function(validation, rules)


def _in_domain_auroc(validation: Predictions, rules: str) -> Value:
    """The number is the same under both rules, up to the last bits."""
    part = validation.select(domain="in_domain")
    if part is None:
        return np.nan, "the run has no in-domain validation images"
    positive = int(part.label.sum())
    if positive in (0, len(part)):
        return np.nan, f"one class only: {positive} of {len(part)} in-domain validation images are positive"
    value = (published if rules == "published" else classification).auroc(part.label, part.prob)
    return np.nan if value is None else value, ""


def _balanced_joint_accuracy_area(validation: Predictions, rules: str) -> Value:
    shifted = validation.domain == "shifted"
    for name, count in (("shifted", shifted.sum()), ("in-domain", (~shifted).sum())):
        if not count:
            return np.nan, f"the run has no {name} validation images"
    values, _ = referral_uncertainty(validation, "auto", exact=rules == "published")
    if rules == "corrected":
        return float(referral_curves.area_of(ImageSet("balanced", validation, values).whole, "accuracy")), ""
    # The released joint set is the in-domain images, then the shifted ones.
    rows = balanced_rows(shifted, DRAW)
    return published.referral_curve(validation.label[rows], validation.prob[rows], values[rows], "accuracy").area, ""


CRITERIA: dict[str, Criterion] = {
    one.name: one
    for one in (
        Criterion("in_domain_auroc", "auroc", "in_domain", _in_domain_auroc),
        Criterion(
            "balanced_joint_accuracy_area", "referral_accuracy_area", "balanced", _balanced_joint_accuracy_area, True
        ),
    )
}

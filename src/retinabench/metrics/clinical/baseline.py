"""What a model adds to predicting the same for every image, and what a correction of its prior would add.

The baseline predicts the same for every image, that of the larger class ("not referable" below a prevalence of one
half), and for probabilities the prevalence of the set. A model below it is worse than no model.

`baseline` in the JSON of `score` holds the larger class and its accuracy, `accuracy_gain`, `brier_skill`, `positive_patients`, and `corrected`,
the same model with every log odds moved by `offset` so that as many images are positive as predicted. A model is *useful* if accuracy or
Brier skill exceed the baseline with their interval, and *not useful* if neither does, one is below, and AUROC is below 0.70.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import Document
from retinabench.metrics.bootstrap import cluster_bootstrap
from retinabench.metrics.calibration import calibration_line_of, correct_prior, ece_positive_class_of
from retinabench.metrics.classification import accuracy_gain_of, accuracy_of, brier_skill_of, sensitivity_of
from retinabench.metrics.intervals import Ends
from retinabench.metrics.proportions import Interval
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases, Weighted
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
Kind = Literal[
    "one class",
    "inverted",
    "never positive",
    "always positive",
    "not useful",
    "probabilities",
    "not shown",
    "useful",
]
POOR = 0.7
"""An AUROC below this is called poor discrimination (Hosmer, Lemeshow and Sturdivant, Applied logistic regression, 2013)."""
FEW_PATIENTS = 10
"""Fewer patients with disease than this say little about sensitivity."""


@dataclass(frozen=True)
class PriorCorrection(Document):
    """The scores after every log odds is moved by `offset`, so that as many images are positive as predicted.

    Class weights in training move the log odds by the logarithm of their ratio; the order of the images stays.
    """

    offset: float
    chosen_on: str
    accuracy: float
    sensitivity: float
    brier_skill: float
    ece_positive_class: float


@dataclass(frozen=True)
class Baseline(Document):
    """The baseline of a set of images and what the model adds to it, per image."""

    answer: str
    accuracy: float
    accuracy_gain: Interval
    brier_skill: Interval
    positive_patients: int
    corrected: PriorCorrection | None


def baseline_of(
    w: Weighted,
    validation: Predictions | None = None,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Baseline:
    """Compare the decisions and probabilities of N images with the baseline."""
    cases = w.cases
    codes, patients, positive = cases.patient, int(cases.patient.max()) + 1, cases.label
    majority = w.positives > w.negatives
    sums = np.stack(
        [
            np.bincount(codes, column, patients)
            for column in (None, positive, ~cases.error, (cases.prob - positive) ** 2)
        ]
    )

    def statistic(weight: Floats) -> Floats:
        count, positives, right, squares = sums @ weight
        share = positives / count
        variance = share * (1 - share)
        gain = (right - (positives if majority else count - positives)) / count
        return np.array([gain, 1 - squares / count / variance if variance > 0 else np.nan])

    gain, skill = accuracy_gain_of(w), brier_skill_of(w)
    ends = [Ends(), Ends()]
    if bootstrap:
        draws = cluster_bootstrap(statistic, np.arange(patients), replicates=bootstrap, seed=seed)
        methods = SCORES["accuracy_gain"].interval, SCORES["brier_skill"].interval
        ends = [one.ends([w], v, d, level) for one, v, d in zip(methods, (gain, skill), draws.T, strict=True)]
    return Baseline(
        "referable" if majority else "not referable",
        max(w.positives, w.negatives) / w.total,
        Interval(gain, ends[0].low, ends[0].high),
        Interval(skill, ends[1].low, ends[1].high),
        len(np.unique(codes[positive])),
        _corrected(w, validation),
    )


def _corrected(w: Weighted, validation: Predictions | None) -> PriorCorrection | None:
    for split, source in (("validation", validation), ("test", None)):
        fitted_on = w if source is None else Cases(source.label, source.prob).weighted()
        offset = calibration_line_of(fitted_on).in_the_large
        if np.isfinite(offset) and (source is not None or split == "test"):
            break
    if not np.isfinite(offset):
        return None
    prob = correct_prior(w.cases.prob, float(np.exp(-offset)))
    moved = Cases(w.cases.label, prob, threshold=w.cases.threshold).weighted()
    scores = [score(moved) for score in (accuracy_of, sensitivity_of, brier_skill_of, ece_positive_class_of)]
    return PriorCorrection(float(offset), split, *scores)


def judge(
    *,
    sensitivity: Interval,
    specificity: Interval,
    auroc: Interval,
    accuracy_gain: Interval,
    brier_skill: Interval,
) -> Kind:
    """Say in one word what a model is worth against the baseline; each claim needs its interval, where there is one."""
    if not (np.isfinite(sensitivity.value) and np.isfinite(specificity.value)):
        return "one class"
    if _below(auroc, 0.5):
        return "inverted"
    if sensitivity.value == 0:
        return "never positive"
    if specificity.value == 0:
        return "always positive"
    gains = accuracy_gain, brier_skill
    if all(one.value <= 0 for one in gains) and any(_below(one, 0) for one in gains):
        return "not useful" if auroc.value < POOR else "probabilities"
    return "useful" if any(_above_zero(one) for one in gains) else "not shown"


def _below(one: Interval, bound: float) -> bool:
    return bool((one.high if np.isfinite(one.high) else one.value) < bound)


def _above_zero(one: Interval) -> bool:
    return bool((one.low if np.isfinite(one.low) else one.value) > 0)

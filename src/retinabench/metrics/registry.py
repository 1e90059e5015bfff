"""The registry of scores: what each is called, which way is better, its unit, its version and its function.

Every table, figure, page and exporter reads labels and directions from here. A new score is a function of weighted
images and one line in `_BUILTIN`; a plug-in adds one by an entry point of the group ``retinabench.scores`` that names a
`ScoreSpec`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.core.registry import Registry
from retinabench.metrics import calibration, classification, shift
from retinabench.metrics.batched import areas, averages, ranked
from retinabench.metrics.batched import selective as batched_summaries
from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.selective import half_referred, referral_curves, summaries
from retinabench.metrics.sorted_images import Weighted

Direction = Literal["higher", "lower", ""]
Needs = Literal["", "classes", "ten", "positives", "negatives", "errors", "domains"]
ON_REQUEST: tuple[str, ...] = ()
REFERRED_PERCENT = (0, 10, 20, 30, 40, 50, 70)


@dataclass(frozen=True)
class ScoreSpec:
    """A named score of a set of images.

    Args:
        name: Its key in files, such as ``auroc``.
        label: What tables and figures call it.
        direction: Which way is better; empty where neither is.
        unit: Its unit, such as ``nats``; empty for a pure number.
        version: Raised by any change of a number.
        function: Weighted images -> value, NaN where undefined.
        needs: What makes it defined: both ``classes``, ``ten`` images of each class, ``positives``, ``negatives``, right
            and wrong answers (``errors``), or both ``domains``.
        sets: The sets that `retinabench.score` computes it for; None for all, `ON_REQUEST` for none.
        batched: The same for many weightings at once, (R,) values equal to those of the function to 1e-12; None where only
            the function is known. Bootstrap replicates use it.
    """

    name: str
    label: str
    direction: Direction
    unit: str
    version: int
    function: Callable[[Weighted], float]
    needs: Needs = ""
    sets: tuple[str, ...] | None = None
    batched: Callable[[Batch], NDArray[np.float64]] | None = None

    def __call__(self, w: Weighted) -> float:
        """Return the value for weighted images, NaN where undefined."""
        return self.function(w)

    @property
    def sign(self) -> int:
        """1 where higher is better, -1 where lower is better, else 0."""
        return {"higher": 1, "lower": -1, "": 0}[self.direction]

    @property
    def arrow(self) -> str:
        """The direction as an arrow; empty where neither way is better."""
        return {"higher": "↑", "lower": "↓", "": ""}[self.direction]

    @property
    def heading(self) -> str:
        """Label, unit and arrow for the header of a column, such as `NLL, nats ↓`; the arrow is not broken off."""
        text = f"{self.label}, {self.unit}" if self.unit else self.label
        return f"{text}\u00a0{self.arrow}" if self.arrow else text

    def given_for(self, set_name: str) -> bool:
        """Whether `retinabench.score` computes the score for this set."""
        return self.sets is None or set_name in self.sets

    def available_for(self, set_name: str) -> bool:
        """Whether the score can be asked for on this set."""
        return self.given_for(set_name) or self.sets == ON_REQUEST

    def why_undefined(self, w: Weighted) -> str:
        """Say why the score has no value on these images, with the counts."""
        label, error = w.cases.label, w.cases.error
        classes = f"{int(label.sum())} positive and {int((~label).sum())} negative images"
        reasons = {
            "classes": f"needs both classes; the set has {classes}",
            "ten": f"needs at least {referral_curves.MIN_CLASS:g} images of each class; the set has {classes}",
            "positives": f"needs positive images; the set has {classes}",
            "negatives": f"needs negative images; the set has {classes}",
            "errors": f"needs right and wrong answers; the set has {int((~error).sum())} right and {int(error.sum())} wrong",
        }
        return reasons.get(self.needs, "undefined on this set")


def _area(metric: str, direction: Direction, unit: str = "", needs: Needs = "") -> ScoreSpec:
    function = partial(referral_curves.area_of, metric=metric)
    label = f"Referral {_METRIC_LABELS[metric]} area"
    return ScoreSpec(f"referral_{metric}_area", label, direction, unit, 1, function, needs)


def _at(metric: str, percent: int) -> ScoreSpec:
    function = partial(referral_curves.value_at, metric=metric, referred=percent / 100)
    label = (
        f"{_METRIC_LABELS[metric].capitalize() if metric == 'accuracy' else 'AUROC'}, {percent} % referred"
    )
    needs: Needs = "" if metric == "accuracy" else "classes"
    return ScoreSpec(f"{metric}_at_{percent}", label, "higher", "", 1, function, needs, ON_REQUEST)


def _half(name: str, label: str, direction: Direction, needs: Needs = "") -> ScoreSpec:
    return ScoreSpec(
        name, label, direction, "", 1, partial(half_referred.number, name=name), needs, ON_REQUEST
    )


_METRIC_LABELS = {"accuracy": "accuracy", "nll": "NLL", "auroc": "AUROC", "auprc": "AUPRC"}
_JOINT = ("joint",)
_BUILTIN = (
    ScoreSpec("accuracy", "Accuracy", "higher", "", 1, classification.accuracy_of),
    ScoreSpec("auroc", "AUROC", "higher", "", 1, classification.auroc_of, "classes"),
    ScoreSpec("auprc", "AUPRC", "higher", "", 1, classification.auprc_of, "positives"),
    ScoreSpec("nll", "NLL", "lower", "nats", 1, classification.nll_of),
    ScoreSpec("brier", "Brier score", "lower", "", 1, classification.brier_of),
    ScoreSpec("ece_top_label", "ECE, top label", "lower", "", 1, calibration.ece_top_label_of),
    ScoreSpec("ece_positive_class", "ECE, positive class", "lower", "", 1, calibration.ece_positive_class_of),
    ScoreSpec(
        "sensitivity", "Sensitivity at p > 1/2", "higher", "", 1, classification.sensitivity_of, "positives"
    ),
    ScoreSpec(
        "specificity", "Specificity at p > 1/2", "higher", "", 1, classification.specificity_of, "negatives"
    ),
    _area("accuracy", "higher"),
    _area("nll", "lower", "nats"),
    _area("auroc", "higher", needs="ten"),
    _area("auprc", "higher", needs="ten"),
    ScoreSpec("rc_index", "RC-Index@0.9", "higher", "", 1, summaries.rc_index_of),
    ScoreSpec("aurc", "AURC", "lower", "", 1, summaries.aurc_of),
    ScoreSpec("e_aurc", "E-AURC", "lower", "", 1, summaries.e_aurc_of),
    ScoreSpec("augrc", "AUGRC", "lower", "", 1, summaries.augrc_of),
    ScoreSpec("failure_auroc", "Failure AUROC", "higher", "", 1, summaries.failure_auroc_of, "errors"),
    ScoreSpec("prr", "PRR", "higher", "", 1, summaries.prr_of, "errors"),
    ScoreSpec("ood_auroc", "OOD detection AUROC", "higher", "", 1, shift.ood_auroc_of, "domains", _JOINT),
    ScoreSpec("ood_auprc", "OOD detection AUPRC", "higher", "", 1, shift.ood_auprc_of, "domains", _JOINT),
    *(_at(metric, percent) for metric in ("accuracy", "auroc") for percent in REFERRED_PERCENT),
    ScoreSpec(
        "brier_skill", "Brier skill", "higher", "", 1, classification.brier_skill_of, "classes", ON_REQUEST
    ),
    ScoreSpec(
        "accuracy_gain",
        "Accuracy over the larger class",
        "higher",
        "",
        1,
        classification.accuracy_gain_of,
        "",
        ON_REQUEST,
    ),
    _half("gain_at_50", "Gain over random referral", "higher"),
    _half("closed_at_50", "Share of the possible gain", "higher", "errors"),
    _half("perfect_accuracy_at_50", "Accuracy of oracle referral, 50 % referred", "higher"),
    _half("sensitivity_at_50", "Sensitivity, 50 % referred", "higher", "positives"),
    _half("specificity_at_50", "Specificity, 50 % referred", "higher", "negatives"),
    _half("prevalence_at_50", "Referable share, 50 % referred", ""),
    _half("missed_at_50", "Referable, missed", "lower", "positives"),
    _half("sensitivity_at_specificity_80", "Sensitivity at specificity 0.80", "higher", "classes"),
)
_BATCHED: dict[str, Callable[[Batch], NDArray[np.float64]]] = {
    "accuracy": averages.accuracy,
    "auroc": ranked.auroc,
    "auprc": ranked.auprc,
    "nll": averages.nll,
    "brier": averages.brier,
    "ece_top_label": averages.ece_top_label,
    "ece_positive_class": averages.ece_positive_class,
    "sensitivity": averages.sensitivity,
    "specificity": averages.specificity,
    "referral_accuracy_area": areas.accuracy_area,
    "referral_nll_area": areas.nll_area,
    "referral_auroc_area": areas.auroc_area,
    "rc_index": batched_summaries.rc_index,
    "aurc": batched_summaries.aurc,
    "e_aurc": batched_summaries.e_aurc,
    "augrc": batched_summaries.augrc,
    "failure_auroc": batched_summaries.failure_auroc,
    "prr": batched_summaries.prr,
    "ood_auroc": ranked.ood_auroc,
    "ood_auprc": ranked.ood_auprc,
}
SCORES: Registry[ScoreSpec] = Registry(
    "retinabench.scores",
    "score",
    {spec.name: replace(spec, batched=_BATCHED.get(spec.name)) for spec in _BUILTIN},
)

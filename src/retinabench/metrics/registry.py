"""The scores by name: a new score is one function of weighted images and one line in `SCORES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from retinabench.metrics import calibration, classification, shift
from retinabench.metrics.selective import referral_curves, summaries
from retinabench.metrics.sorted_images import Weighted

Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class Score:
    """A named number.

    function: weighted images -> value, NaN where undefined. direction: which way is better. version: raised by any
    change of a number. title: for tables; units are in `docs/scores.md`. needs: what makes it defined ("classes":
    both classes; "ten": ten images of each; "errors": right and wrong answers; "positives", "negatives"). sets: the sets it is given for, all
    where None.
    """

    name: str
    function: Callable[[Weighted], float]
    direction: Direction
    version: int
    title: str
    needs: str = ""
    sets: tuple[str, ...] | None = None

    def __call__(self, w: Weighted) -> float:
        """Value for weighted images."""
        return self.function(w)


def _all(*scores: Score) -> dict[str, Score]:
    return {score.name: score for score in scores}


SCORES: dict[str, Score] = _all(
    Score("accuracy", classification.accuracy_of, "higher", 1, "Accuracy"),
    Score("auroc", classification.auroc_of, "higher", 1, "AUROC", "classes"),
    Score("auprc", classification.auprc_of, "higher", 1, "AUPRC (average precision)", "positives"),
    Score("nll", classification.nll_of, "lower", 1, "NLL"),
    Score("brier", classification.brier_of, "lower", 1, "Brier"),
    Score("ece_top_label", calibration.ece_top_label_of, "lower", 1, "ECE, top label"),
    Score("ece_positive_class", calibration.ece_positive_class_of, "lower", 1, "ECE, positive class"),
    Score("sensitivity", classification.sensitivity_of, "higher", 1, "Sensitivity at p > 1/2", "positives"),
    Score("specificity", classification.specificity_of, "higher", 1, "Specificity at p > 1/2", "negatives"),
    Score(
        "referral_accuracy_area",
        partial(referral_curves.area_of, metric="accuracy"),
        "higher",
        1,
        "Area, accuracy over referral",
    ),
    Score(
        "referral_nll_area",
        partial(referral_curves.area_of, metric="nll"),
        "lower",
        1,
        "Area, NLL over referral",
    ),
    Score(
        "referral_auroc_area",
        partial(referral_curves.area_of, metric="auroc"),
        "higher",
        1,
        "Area, AUROC over referral",
        "ten",
    ),
    Score(
        "referral_auprc_area",
        partial(referral_curves.area_of, metric="auprc"),
        "higher",
        1,
        "Area, AUPRC over referral",
        "ten",
    ),
    Score("rc_index", summaries.rc_index_of, "higher", 1, "RC-Index@0.9, step 0.1"),
    Score("aurc", summaries.aurc_of, "lower", 1, "AURC"),
    Score("e_aurc", summaries.e_aurc_of, "lower", 1, "E-AURC"),
    Score("augrc", summaries.augrc_of, "lower", 1, "AUGRC"),
    Score("failure_auroc", summaries.failure_auroc_of, "higher", 1, "Failure AUROC", "errors"),
    Score("prr", summaries.prr_of, "higher", 1, "PRR", "errors"),
    Score("ood_auroc", shift.ood_auroc_of, "higher", 1, "AUROC, shifted", "domains", ("joint",)),
    Score("ood_auprc", shift.ood_auprc_of, "higher", 1, "AUPRC, shifted", "domains", ("joint",)),
)


def why_undefined(score: Score, w: Weighted) -> str:
    """Say why a score has no value here, with the counts."""
    label, error = w.cases.label, w.cases.error
    classes = f"{int(label.sum())} positive and {int((~label).sum())} negative images"
    needs = {
        "classes": f"needs both classes; the set has {classes}",
        "ten": f"needs at least {referral_curves.MIN_CLASS:g} images of each class; the set has {classes}",
        "positives": f"needs positive images; the set has {classes}",
        "negatives": f"needs negative images; the set has {classes}",
        "errors": f"needs right and wrong answers; the set has {int((~error).sum())} right and {int(error.sum())} wrong",
    }
    return needs.get(score.needs, "undefined on this set")

"""The registry of scores: what each is called, which way is better, its unit, its version, its function and its interval.

Every table, figure, page and exporter reads labels and directions from here. A new score is a function of weighted
images and one line in `_BUILTIN`; a plug-in adds one by an entry point of the group ``retinabench.scores`` that names a
`ScoreSpec`. What the built-in scores are, and when they mislead, stands in `definitions.toml`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from retinabench.core.registry import Registry
from retinabench.metrics import calibration, classification, referral_curves, selective
from retinabench.metrics.intervals import (
    Closed,
    IntervalMethod,
    NoInterval,
    Percentile,
    Proportion,
    Ranked,
    Scaled,
)
from retinabench.metrics.weighted_images import Batch, Weighted

Direction = Literal["higher", "lower", ""]

Needs = Literal["", "classes", "ten", "positives", "negatives", "errors", "domains"]

ON_REQUEST: tuple[str, ...] = ()


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
            and wrong predictions (``errors``), or both ``domains``.
        sets: The sets that `retinabench.score` computes it for; None for all, `ON_REQUEST` for none.
        batched: The same for many weightings at once, (R,) values equal to those of the function to 1e-12, of a share
            of the retained to 1e-9; None where only the function is known. Bootstrap replicates use it.
        interval: How its interval is computed, see `metrics.inference.interval_methods`.
        formula: Its definition, in the notation of `docs/scores.md`.
        misleads: When its value misleads, as the end of a sentence that begins with "It misleads when".
    """

    name: str
    label: str
    direction: Direction
    unit: str
    version: int
    function: Callable[[Weighted], float]
    needs: Needs = ""
    sets: tuple[str, ...] | None = None
    interval: IntervalMethod = field(default_factory=Percentile)
    batched: Callable[[Batch], NDArray[np.float64]] | None = None
    formula: str = ""
    misleads: str = ""

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
            "errors": f"needs correct and wrong predictions; the set has {int((~error).sum())} correct and {int(error.sum())} wrong",
        }
        return reasons.get(self.needs, "undefined on this set")


REFERRED_PERCENT = (0, 10, 20, 30, 40, 50, 70)


_SHARE = Scaled(0.0, 1.0)

_SHARE_OF_CLASSES = Scaled(0.0, 1.0, "classes")

_BIASED = NoInterval(
    "no interval: chance makes it larger, in replicates still more; see its null band and the debiased calibration error"
)


def _retained(**counted: Any) -> Proportion:
    return Proportion(partial(selective.retained_counts, **counted), resampled=True)


def _area(metric: str, direction: Direction, unit: str = "", needs: Needs = "") -> ScoreSpec:
    function = partial(referral_curves.area_of, metric=metric)
    label = f"Referral {_METRIC_LABELS[metric]} area"
    interval = (
        _SHARE if metric == "accuracy" else Scaled(0.0, math.inf if metric == "nll" else 1.0, "retained")
    )
    batched = {
        "accuracy": referral_curves.accuracy_area,
        "nll": referral_curves.nll_area,
        "auroc": referral_curves.auroc_area,
    }.get(metric)
    return ScoreSpec(
        f"referral_{metric}_area", label, direction, unit, 2, function, needs, None, interval, batched
    )


def _at(metric: str, percent: int) -> ScoreSpec:
    function = partial(referral_curves.value_at, metric=metric, referred=percent / 100)
    label = f"{'Accuracy' if metric == 'accuracy' else 'AUROC'}, {percent} % referred"
    needs: Needs = "" if metric == "accuracy" else "classes"
    interval: IntervalMethod = _SHARE_OF_CLASSES
    if metric == "accuracy":
        interval = _retained(success="right", referred=percent / 100)
    return ScoreSpec(f"{metric}_at_{percent}", label, "higher", "", 2, function, needs, ON_REQUEST, interval)


def referred_scores(referred: float = 0.5) -> dict[str, ScoreSpec]:
    """Return the scores of what remains when a share is referred, such as `gain_at_50`, and those of the same images beside them.

    Args:
        referred: Share of the images that is referred.

    Returns:
        Name of the score -> the score.
    """
    percent = f"{100 * referred:g}"
    found = []

    def add(name: str, label: str, direction: Direction, interval: IntervalMethod, needs: Needs = "") -> None:
        function = partial(selective.number, name=name, referred=referred)
        batched = partial(selective.number_at, name=name, referred=referred)
        found.append(ScoreSpec(name, label, direction, "", 2, function, needs, ON_REQUEST, interval, batched))

    def kept(success: str, of: str = "images") -> Proportion:
        return _retained(success=success, of=of, referred=referred)

    def missed() -> Proportion:
        return Proportion(partial(selective.missed_counts, referred=referred), resampled=True)

    told = f"{percent} % referred"
    add(f"accuracy_at_{percent}", f"Accuracy, {told}", "higher", kept("right"))
    add(f"gain_at_{percent}", "Gain over random referral", "higher", Scaled(-1.0, 1.0))
    add(f"closed_at_{percent}", "Share of the possible gain", "higher", Scaled(high=1.0), "errors")
    add(f"perfect_accuracy_at_{percent}", f"Accuracy of oracle referral, {told}", "higher", Percentile())
    for side, called in (("sensitivity", "called"), ("specificity", "not called")):
        of: Needs = "positives" if side == "sensitivity" else "negatives"
        add(f"{side}_at_{percent}", f"{side.capitalize()}, {told}", "higher", kept(called, of), of)
    add(f"prevalence_at_{percent}", f"Referable share, {told}", "", kept("label"))
    add(f"missed_at_{percent}", "Referable, missed", "lower", missed(), "positives")
    return {spec.name: spec for spec in found}


_METRIC_LABELS = {"accuracy": "accuracy", "nll": "NLL", "auroc": "AUROC", "auprc": "AUPRC"}

_JOINT = ("joint",)

_BUILTIN = (
    ScoreSpec(
        "accuracy", "Accuracy", "higher", "", 2, classification.accuracy_of,
        interval=Proportion(classification.right_counts), batched=classification.accuracy,
    ),
    ScoreSpec(
        "auroc", "AUROC", "higher", "", 2, classification.auroc_of, "classes",
        interval=Ranked(classification.ranked_classes), batched=classification.auroc_of_overall,
    ),
    ScoreSpec(
        "auprc", "AUPRC", "higher", "", 2, classification.auprc_of, "positives",
        interval=_SHARE_OF_CLASSES, batched=classification.auprc,
    ),
    ScoreSpec(
        "nll", "NLL", "lower", "nats", 2, classification.nll_of, interval=Scaled(0.0, of="classes"),
        batched=classification.nll_of_overall,
    ),
    ScoreSpec(
        "brier", "Brier score", "lower", "", 2, classification.brier_of, interval=_SHARE_OF_CLASSES,
        batched=classification.brier,
    ),
    ScoreSpec(
        "ece_top_label", "ECE, top label", "lower", "", 2, calibration.ece_top_label_of, interval=_BIASED,
        batched=classification.ece_top_label,
    ),
    ScoreSpec(
        "ece_positive_class", "ECE, positive class", "lower", "", 2, calibration.ece_positive_class_of,
        interval=_BIASED, batched=classification.ece_positive_class,
    ),
    *(
        ScoreSpec(
            f"calibration_error_{of}", f"Calibration error, debiased, {of.replace('_', ' ')}", "lower", "", 1,
            partial(calibration.calibration_error_of, of=of), "", ON_REQUEST,
            Closed(partial(calibration.calibration_error_interval, of=of)),
        )
        for of in get_args(calibration.Of)
    ),
    ScoreSpec(
        "sensitivity", "Sensitivity", "higher", "", 2, classification.sensitivity_of, "positives",
        interval=Proportion(classification.sensitivity_counts), batched=classification.sensitivity,
    ),
    ScoreSpec(
        "specificity", "Specificity", "higher", "", 2, classification.specificity_of, "negatives",
        interval=Proportion(classification.specificity_counts), batched=classification.specificity,
    ),
    _area("accuracy", "higher"),
    _area("nll", "lower", "nats"),
    _area("auroc", "higher", needs="ten"),
    _area("auprc", "higher", needs="ten"),
    ScoreSpec(
        "rc_index", "RC-Index@0.9", "higher", "", 2, selective.rc_index_of, interval=Scaled(of="errors"),
        batched=selective.rc_index,
    ),
    ScoreSpec("aurc", "AURC", "lower", "", 2, selective.aurc_of, interval=_SHARE, batched=selective.aurc),
    ScoreSpec(
        "e_aurc", "E-AURC", "lower", "", 2, selective.e_aurc_of, interval=Scaled(0.0, of="errors"),
        batched=selective.e_aurc,
    ),
    ScoreSpec("augrc", "AUGRC", "lower", "", 2, selective.augrc_of, interval=_SHARE, batched=selective.augrc),
    ScoreSpec(
        "failure_auroc", "Failure AUROC", "higher", "", 2, selective.failure_auroc_of, "errors",
        interval=Ranked(selective.ranked_errors), batched=selective.failure_auroc,
    ),
    ScoreSpec(
        "prr", "PRR", "higher", "", 2, selective.prr_of, "errors", interval=Ranked(selective.ranked_errors, -1.0),
        batched=selective.prr,
    ),
    ScoreSpec(
        "ood_auroc", "OOD detection AUROC", "higher", "", 2, classification.ood_auroc_of, "domains", _JOINT,
        Ranked(classification.ranked_domains), classification.ood_auroc,
    ),
    ScoreSpec(
        "ood_auprc", "OOD detection AUPRC", "higher", "", 2, classification.ood_auprc_of, "domains", _JOINT, Scaled(0.0, 1.0),
        classification.ood_auprc,
    ),
    *(_at(metric, percent) for metric in ("accuracy", "auroc") for percent in REFERRED_PERCENT),
    ScoreSpec(
        "brier_skill", "Brier skill", "higher", "", 2, classification.brier_skill_of, "classes", ON_REQUEST,
        Scaled(high=1.0), classification.brier_skill,
    ),
    ScoreSpec(
        "accuracy_gain", "Accuracy over the larger class", "higher", "", 2, classification.accuracy_gain_of,
        "", ON_REQUEST, Scaled(-1.0, 1.0), classification.accuracy_gain,
    ),
    *(spec for name, spec in referred_scores().items() if name != "accuracy_at_50"),
    ScoreSpec(
        "sensitivity_at_specificity_80", "Sensitivity at specificity 0.80", "higher", "", 2,
        partial(selective.number, name="sensitivity_at_specificity_80"), "classes", ON_REQUEST,
        Proportion(selective.counts_at_specificity, resampled=True),
        partial(selective.number_at, name="sensitivity_at_specificity_80"),
    ),
)  # fmt: skip

_DEFINITIONS = tomllib.loads(Path(__file__).with_name("definitions.toml").read_text("utf-8"))


def _completed(spec: ScoreSpec) -> ScoreSpec:
    entries = (one for name, one in _DEFINITIONS.items() if fnmatchcase(spec.name, name))
    formula, misleads = next(((one["formula"], one.get("misleads", "")) for one in entries), ("", ""))
    return replace(spec, formula=spec.formula or formula, misleads=spec.misleads or misleads)


SCORES: Registry[ScoreSpec] = Registry(
    "retinabench.scores", "score", {spec.name: _completed(spec) for spec in _BUILTIN}
)

"""The registry of scores: what each is called, which way is better, its unit, its version and its function.

Every table, figure, page and exporter reads labels and directions from here. A new score is a function of weighted
images and one line in `_BUILTIN`; a plug-in adds one by an entry point of the group ``retinabench.scores`` that names a
`ScoreSpec`. What the built-in scores are, and when they mislead, stands in `definitions.toml`.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, get_args

from retinabench.core.registry import Registry
from retinabench.metrics import classification, shift
from retinabench.metrics.batched import areas, overall, selective
from retinabench.metrics.calibration import binned, debiased
from retinabench.metrics.inference.interval_methods import (
    Closed,
    IntervalMethod,
    NoInterval,
    Percentile,
    Proportion,
    Ranked,
    Scaled,
)
from retinabench.metrics.score_spec import ON_REQUEST, Direction, Needs, ScoreSpec
from retinabench.metrics.selective import half_referred, referral_curves, summaries

REFERRED_PERCENT = (0, 10, 20, 30, 40, 50, 70)


_SHARE = Scaled(0.0, 1.0)
_SHARE_OF_CLASSES = Scaled(0.0, 1.0, "classes")
_BIASED = NoInterval(
    "no interval: chance makes it larger, in replicates still more; see its null band and the debiased calibration error"
)


def _retained(**counted: Any) -> Proportion:
    return Proportion(partial(half_referred.retained_counts, **counted), resampled=True)


def _area(metric: str, direction: Direction, unit: str = "", needs: Needs = "") -> ScoreSpec:
    function = partial(referral_curves.area_of, metric=metric)
    label = f"Referral {_METRIC_LABELS[metric]} area"
    interval = (
        _SHARE if metric == "accuracy" else Scaled(0.0, math.inf if metric == "nll" else 1.0, "retained")
    )
    batched = {"accuracy": areas.accuracy_area, "nll": areas.nll_area, "auroc": areas.auroc_area}.get(metric)
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
        function = partial(half_referred.number, name=name, referred=referred)
        batched = partial(selective.number_at, name=name, referred=referred)
        found.append(ScoreSpec(name, label, direction, "", 2, function, needs, ON_REQUEST, interval, batched))

    def kept(success: str, of: str = "images") -> Proportion:
        return _retained(success=success, of=of, referred=referred)

    def missed() -> Proportion:
        return Proportion(partial(half_referred.missed_counts, referred=referred), resampled=True)

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
        interval=Proportion(classification.right_counts), batched=overall.accuracy,
    ),
    ScoreSpec(
        "auroc", "AUROC", "higher", "", 2, classification.auroc_of, "classes",
        interval=Ranked(classification.ranked_classes), batched=overall.auroc,
    ),
    ScoreSpec(
        "auprc", "AUPRC", "higher", "", 2, classification.auprc_of, "positives",
        interval=_SHARE_OF_CLASSES, batched=overall.auprc,
    ),
    ScoreSpec(
        "nll", "NLL", "lower", "nats", 2, classification.nll_of, interval=Scaled(0.0, of="classes"),
        batched=overall.nll,
    ),
    ScoreSpec(
        "brier", "Brier score", "lower", "", 2, classification.brier_of, interval=_SHARE_OF_CLASSES,
        batched=overall.brier,
    ),
    ScoreSpec(
        "ece_top_label", "ECE, top label", "lower", "", 2, binned.ece_top_label_of, interval=_BIASED,
        batched=overall.ece_top_label,
    ),
    ScoreSpec(
        "ece_positive_class", "ECE, positive class", "lower", "", 2, binned.ece_positive_class_of,
        interval=_BIASED, batched=overall.ece_positive_class,
    ),
    *(
        ScoreSpec(
            f"calibration_error_{of}", f"Calibration error, debiased, {of.replace('_', ' ')}", "lower", "", 1,
            partial(debiased.calibration_error_of, of=of), "", ON_REQUEST,
            Closed(partial(debiased.calibration_error_interval, of=of)),
        )
        for of in get_args(binned.Of)
    ),
    ScoreSpec(
        "sensitivity", "Sensitivity", "higher", "", 2, classification.sensitivity_of, "positives",
        interval=Proportion(classification.sensitivity_counts), batched=overall.sensitivity,
    ),
    ScoreSpec(
        "specificity", "Specificity", "higher", "", 2, classification.specificity_of, "negatives",
        interval=Proportion(classification.specificity_counts), batched=overall.specificity,
    ),
    _area("accuracy", "higher"),
    _area("nll", "lower", "nats"),
    _area("auroc", "higher", needs="ten"),
    _area("auprc", "higher", needs="ten"),
    ScoreSpec(
        "rc_index", "RC-Index@0.9", "higher", "", 2, summaries.rc_index_of, interval=Scaled(of="errors"),
        batched=selective.rc_index,
    ),
    ScoreSpec("aurc", "AURC", "lower", "", 2, summaries.aurc_of, interval=_SHARE, batched=selective.aurc),
    ScoreSpec(
        "e_aurc", "E-AURC", "lower", "", 2, summaries.e_aurc_of, interval=Scaled(0.0, of="errors"),
        batched=selective.e_aurc,
    ),
    ScoreSpec("augrc", "AUGRC", "lower", "", 2, summaries.augrc_of, interval=_SHARE, batched=selective.augrc),
    ScoreSpec(
        "failure_auroc", "Failure AUROC", "higher", "", 2, summaries.failure_auroc_of, "errors",
        interval=Ranked(summaries.ranked_errors), batched=selective.failure_auroc,
    ),
    ScoreSpec(
        "prr", "PRR", "higher", "", 2, summaries.prr_of, "errors", interval=Ranked(summaries.ranked_errors, -1.0),
        batched=selective.prr,
    ),
    ScoreSpec(
        "ood_auroc", "OOD detection AUROC", "higher", "", 2, shift.ood_auroc_of, "domains", _JOINT,
        Ranked(shift.ranked_domains), overall.ood_auroc,
    ),
    ScoreSpec(
        "ood_auprc", "OOD detection AUPRC", "higher", "", 2, shift.ood_auprc_of, "domains", _JOINT, Scaled(0.0, 1.0),
        overall.ood_auprc,
    ),
    *(_at(metric, percent) for metric in ("accuracy", "auroc") for percent in REFERRED_PERCENT),
    ScoreSpec(
        "brier_skill", "Brier skill", "higher", "", 2, classification.brier_skill_of, "classes", ON_REQUEST,
        Scaled(high=1.0), overall.brier_skill,
    ),
    ScoreSpec(
        "accuracy_gain", "Accuracy over the larger class", "higher", "", 2, classification.accuracy_gain_of,
        "", ON_REQUEST, Scaled(-1.0, 1.0), overall.accuracy_gain,
    ),
    *(spec for name, spec in referred_scores().items() if name != "accuracy_at_50"),
    ScoreSpec(
        "sensitivity_at_specificity_80", "Sensitivity at specificity 0.80", "higher", "", 2,
        partial(half_referred.number, name="sensitivity_at_specificity_80"), "classes", ON_REQUEST,
        Proportion(half_referred.counts_at_specificity, resampled=True),
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

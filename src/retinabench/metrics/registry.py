"""The registry of scores: what each is called, which way is better, its unit, its version, its function and its interval.

Every table, figure, page and exporter reads labels and directions from here. A new score is a function of weighted
images and one line in `_BUILTIN`; a plug-in adds one by an entry point of the group ``retinabench.scores`` that names a
`ScoreSpec`. What the built-in scores are, and when they mislead, stands in `definitions.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from retinabench.core.registry import Registry
from retinabench.metrics import calibration, classification, intervals, referral_curves
from retinabench.metrics.proportions import Interval
from retinabench.metrics.weighted_images import Floats, Weighted

Direction = Literal["higher", "lower", ""]
Needs = Literal["", "classes", "retained", "positives", "negatives", "errors", "domains"]
ON_REQUEST: tuple[str, ...] = ()
REFERRED_PERCENT = (0, 10, 20, 30, 40, 50, 70)
_SHARE = intervals.Scaled(0.0, 1.0)
_AURC = intervals.Loss(intervals.pseudo_of_aurc, 0.0, 1.0)
_AUPRC = intervals.Loss(partial(intervals.pseudo_of_ranked, classes="positive"), 1.0, 1.0, "classes")
_BIASED = intervals.NoInterval(
    "no interval: chance makes it larger, in replicates still more; see its null band and the debiased calibration error"
)
_ERRORS = intervals.Ranked(classification.ranked_errors, pseudo=intervals.WHOLE)
_DEFINITIONS = tomllib.loads(Path(__file__).with_name("definitions.toml").read_text("utf-8"))


@dataclass(frozen=True)
class ScoreSpec:
    """A named score of a set of images."""

    name: str  # its key in files, such as `auroc`
    label: str  # in tables and figures
    direction: Direction  # which way is better
    unit: str
    version: int  # raised by any change of a number
    function: Callable[[Weighted], Floats | float]  # NaN where undefined
    needs: Needs = ""  # both classes (among the retained half), errors and right predictions, or both domains
    sets: tuple[str, ...] | None = None  # that `score` computes it for; None for all, `ON_REQUEST` for none
    interval: intervals.IntervalMethod = field(default_factory=intervals.Percentile)
    by_rows: bool = True  # one weighting at a time, which is slow; else (R, N) as well, and returns (R,)
    formula: str = ""  # in the notation of `docs/scores.md`
    misleads: str = ""  # the end of a sentence that begins with "It misleads when"

    def __call__(self, w: Weighted) -> Any:
        """Return the value of one weighting as a float, or values (R,) of R of them; NaN where undefined."""
        if w.weight.ndim > 1 and self.by_rows:
            return np.array([self.function(Weighted(w.cases, row)) for row in w.weight])
        value = w.derived(self.function)
        return value if w.weight.ndim > 1 else float(value)

    @property
    def sign(self) -> int:
        return {"higher": 1, "lower": -1, "": 0}[self.direction]

    @property
    def arrow(self) -> str:
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
        label, error = w.cases.label, w.cases.error
        classes = f"{int(label.sum())} positive and {int((~label).sum())} negative images"
        reasons = {
            "classes": f"needs both classes; the set has {classes}",
            "retained": f"needs images of both classes where 50 % are referred; the set has {classes}",
            "positives": f"needs positive images; the set has {classes}",
            "negatives": f"needs negative images; the set has {classes}",
            "errors": f"needs correct and wrong predictions; the set has {int((~error).sum())} correct and {int(error.sum())} wrong",
        }
        return reasons.get(self.needs, "undefined on this set")


@dataclass(frozen=True)
class ScoreValue(Interval):
    """A score of a set with its interval; NaN where undefined, with the reason in `why`.

    Args:
        value: The score.
        low: Lower end of its interval.
        high: Upper end of its interval.
        version: Version of the score.
        why: Why the value or its interval is undefined; None where both are known.

    Examples:
        >>> import retinabench as rb
        >>> one_class = rb.Predictions(["a", "b"], [0, 0], [0.1, 0.2])
        >>> rb.score(one_class, bootstrap=0)["in_domain"].auroc.why
        'needs both classes; the set has 0 positive and 2 negative images'
    """

    _optional = ("why",)

    version: int = 1
    why: str | None = None


def _share_of_retained(**counted: Any) -> intervals.Proportion:
    return intervals.Proportion(partial(classification.retained_counts, **counted), resampled=True)


def _ranked_retained(classes: Literal["both", "positive"]) -> intervals.Loss:
    return intervals.Loss(partial(intervals.pseudo_of_ranked, classes=classes, half=True), 1.0, 1.0, "retained")


_score = partial(ScoreSpec, by_rows=False)


def _area(
    metric: str,
    label: str,
    direction: Direction,
    unit: str,
    version: int,
    needs: Needs,
    interval: intervals.IntervalMethod,
) -> ScoreSpec:
    function = partial(referral_curves.area_of, metric=metric)
    return _score(f"referral_{metric}_area", label, direction, unit, version, function, needs, interval=interval)


def _at(metric: str, percent: int) -> ScoreSpec:
    function = partial(referral_curves.value_at, metric=metric, referred=percent / 100)
    label = f"{'Accuracy' if metric == 'accuracy' else 'AUROC'}, {percent} % referred"
    needs: Needs = "" if metric == "accuracy" else "classes"
    interval: intervals.IntervalMethod = _ranked_retained("both")
    if metric == "accuracy":
        interval = _share_of_retained(success="right", referred=percent / 100)
    return _score(f"{metric}_at_{percent}", label, "higher", "", 2, function, needs, ON_REQUEST, interval)


def referred_scores(referred: float = 0.5) -> dict[str, ScoreSpec]:
    """Return the scores of what remains when a share is referred, such as `gain_at_50`, by their names."""
    percent = f"{100 * referred:g}"
    at = f"{percent} % referred"
    missed = intervals.Proportion(partial(classification.missed_counts, referred=referred), resampled=True)
    closed = intervals.Proportion(
        partial(classification.retained_errors, referred=referred),
        True,
        partial(classification.closed_scale, referred=referred),
    )

    def kept(success: str, of: str = "images") -> intervals.Proportion:
        return _share_of_retained(success=success, of=of, referred=referred)

    rows: list[tuple[str, str, Direction, intervals.IntervalMethod, Needs]] = [
        ("accuracy", f"Accuracy, {at}", "higher", kept("right"), ""),
        ("gain", "Gain over random referral", "higher", intervals.Scaled(-1.0, 1.0, pseudo=1.0), ""),
        ("closed", "Share of the possible gain", "higher", closed, "errors"),
        ("perfect_accuracy", f"Accuracy of oracle referral, {at}", "higher", intervals.Percentile(), ""),
        ("sensitivity", f"Sensitivity, {at}", "higher", kept("called", "positives"), "positives"),
        ("specificity", f"Specificity, {at}", "higher", kept("not called", "negatives"), "negatives"),
        ("prevalence", f"Referable share, {at}", "", kept("label"), ""),
        ("missed", "Referable, missed", "lower", missed, "positives"),
    ]
    specs = {}
    for part, label, direction, interval, needs in rows:
        name = f"{part}_at_{percent}"
        function = partial(classification.referred_value, name=name, referred=referred)
        specs[name] = _score(name, label, direction, "", 2, function, needs, ON_REQUEST, interval)
    return specs


def _at_fixed(of: Literal["sensitivity", "specificity"], percent: int) -> ScoreSpec:
    rate = percent / 100
    fixed, function = (
        ("specificity", partial(classification.sensitivity_at_of, specificity=rate))
        if of == "sensitivity"
        else ("sensitivity", partial(classification.specificity_at_of, sensitivity=rate))
    )
    interval = intervals.Proportion(partial(classification.counts_at, rate=rate, of=of), resampled=True)
    return _score(
        f"{of}_at_{fixed}_{percent}", f"{of.capitalize()} at {fixed} {rate:.2f}", "higher", "", 2, function, "classes",
        ON_REQUEST, interval,
    )  # fmt: skip


_BUILTIN = (
    _score("accuracy", "Accuracy", "higher", "", 2, classification.accuracy_of, interval=intervals.Proportion(lambda w: (~w.cases.error, w.weight))),
    _score("auroc", "AUROC", "higher", "", 2, classification.auroc_of, "classes", interval=intervals.Ranked(lambda w: (w.cases.prob, w.positive, w.negative))),
    _score("auprc", "AUPRC", "higher", "", 2, classification.auprc_of, "positives", interval=_AUPRC),
    _score("nll", "NLL", "lower", "nats", 2, classification.nll_of,
        interval=intervals.Loss(partial(intervals.pseudo_of_probability, loss="log"), of="classes"),
    ),
    _score("brier", "Brier score", "lower", "", 2, classification.brier_of,
        interval=intervals.Loss(partial(intervals.pseudo_of_probability, loss="squared"), 0.0, 1.0, "classes"),
    ),
    _score("ece_top_label", "ECE, top label", "lower", "", 2, calibration.ece_top_label_of, interval=_BIASED),
    _score("ece_positive_class", "ECE, positive class", "lower", "", 2, calibration.ece_positive_class_of, interval=_BIASED),
    *(
        ScoreSpec(
            f"calibration_error_{of}", f"Calibration error, debiased, {of.replace('_', ' ')}", "lower", "", 1,
            partial(calibration.calibration_error_of, of=of), "", ON_REQUEST,
            intervals.Closed(partial(calibration.calibration_error_interval, of=of)),
        )
        for of in get_args(calibration.Of)
    ),
    _score(
        "sensitivity", "Sensitivity", "higher", "", 2, classification.sensitivity_of, "positives",
        interval=intervals.Proportion(lambda w: (w.cases.called, w.positive)),
    ),
    _score(
        "specificity", "Specificity", "higher", "", 2, classification.specificity_of, "negatives",
        interval=intervals.Proportion(lambda w: (~w.cases.called, w.negative)),
    ),
    _area("accuracy", "Referral accuracy area", "higher", "", 2, "", intervals.Loss(intervals.pseudo_of_aurc, 1.0, 1.0)),
    _area(
        "nll", "Referral NLL area", "lower", "nats", 2, "",
        intervals.Loss(partial(intervals.pseudo_of_probability, loss="log", area=True), of="retained"),
    ),
    _area("auroc", "Referral AUROC area", "higher", "", 3, "retained", _ranked_retained("both")),
    _area("auprc", "Referral AUPRC area", "higher", "", 3, "retained", _ranked_retained("positive")),
    _score("rc_index", "RC-Index@0.9", "higher", "", 2, classification.rc_index_of, interval=intervals.Scaled(of="errors")),
    _score("aurc", "AURC", "lower", "", 2, classification.aurc_of, interval=_AURC),
    _score("e_aurc", "E-AURC", "lower", "", 2, classification.e_aurc_of, interval=intervals.Loss(intervals.pseudo_of_e_aurc, of="errors")),
    _score("augrc", "AUGRC", "lower", "", 2, classification.augrc_of, interval=intervals.Loss(intervals.pseudo_of_augrc, 0.0, 1.0)),
    _score("failure_auroc", "Failure AUROC", "higher", "", 2, classification.failure_auroc_of, "errors", interval=_ERRORS),
    _score("prr", "PRR", "higher", "", 2, classification.prr_of, "errors", interval=intervals.Ranked(classification.ranked_errors, -1.0, intervals.WHOLE)),
    _score(
        "ood_auroc", "OOD detection AUROC", "higher", "", 2, classification.ood_auroc_of, "domains", ("joint",),
        intervals.Ranked(classification.ranked_domains),
    ),
    _score(
        "ood_auprc", "OOD detection AUPRC", "higher", "", 2, classification.ood_auprc_of, "domains", ("joint",), _SHARE,
    ),
    _score("ood_fpr95", "OOD detection FPR at 95 %", "lower", "", 1, classification.ood_fpr95_of, "domains", ON_REQUEST, _SHARE),
    *(_at(metric, percent) for metric in ("accuracy", "auroc") for percent in REFERRED_PERCENT),
    _score(
        "brier_skill", "Brier skill", "higher", "", 2, classification.brier_skill_of, "classes", ON_REQUEST, intervals.Loss(intervals.pseudo_of_brier_skill, 1.0)
    ),
    _score(
        "net_benefit_gain", "Net benefit over calling all or none", "higher", "", 1, classification.net_benefit_gain_of, "", ON_REQUEST,
        intervals.Scaled(),
    ),
    *(spec for name, spec in referred_scores().items() if name != "accuracy_at_50"),
    *(_at_fixed(of, percent) for of in ("sensitivity", "specificity") for percent in (80, 85, 90, 95)),
    *(
        _score(f"partial_auroc_{percent}", f"Partial AUROC, specificity {percent / 100:.2f} to 1", "higher", "", 1,
            partial(classification.partial_auroc_of, specificity=percent / 100), "classes", ON_REQUEST, _SHARE,
        )
        for percent in (80, 90)
    ),
)  # fmt: skip


def _completed(spec: ScoreSpec) -> ScoreSpec:
    entries = (entry for name, entry in _DEFINITIONS.items() if fnmatchcase(spec.name, name))
    entry = next(entries, {"formula": ""})
    return replace(spec, formula=spec.formula or entry["formula"], misleads=spec.misleads or entry.get("misleads", ""))


SCORES: Registry[ScoreSpec] = Registry(
    "retinabench.scores", "score", {spec.name: _completed(spec) for spec in _BUILTIN}
)

"""The registry of scores: what each is called, which way is better, its unit, its version, its function, and how it gets its interval.

Every table, figure, page and exporter reads labels and directions from here. A new score is a function of weighted
images and one line in `_BUILTIN`; a plug-in adds one by an entry point of the group ``retinabench.scores`` that names a
`ScoreSpec`. What the built-in scores are, and when they mislead, stands in `definitions.toml`.

Every table, page and exporter shows the interval of a score's method. No method gives an interval without width: where the sample
says nothing about the other side, there is either a bound that holds or none, with the reason.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from retinabench.core.registry import Registry
from retinabench.metrics import calibration, classification, intervals, referral_curves
from retinabench.metrics.intervals import HALF, WHOLE, Bounds, Interval, Moments, Of
from retinabench.metrics.weighted_images import EPS, Floats, Weighted, percentile_interval

Direction = Literal["higher", "lower", ""]
Needs = Literal["", "classes", "retained", "positives", "negatives", "errors", "domains"]
ON_REQUEST: tuple[str, ...] = ()
Counts = Callable[[Weighted], tuple[NDArray[np.generic], Floats]]
Ranks = Callable[[Weighted], tuple[Floats, Floats, Floats]]
ONE_PATIENT = "no interval: there is a single patient"
ONE_PATIENT_OF_CLASS = "no interval: a single patient has images of one of the classes"
FEW = {
    "patients": ONE_PATIENT,
    "classes": ONE_PATIENT_OF_CLASS,
    "retained": "no interval: fewer than four patients have images of one of the classes",
    "errors": f"no interval: fewer than {intervals.FEWEST_ERRORS} patients have a wrong (or a correct) prediction, which decides the score",
}
NOT_LINEAR = (
    "no interval: fewer predictions are correct than images are retained, so that oracle referral leaves errors"
)
UNDEFINED = "no interval: the score is undefined in more than 5 % of the bootstrap replicates"
ALL_ALIKE = "no interval: every bootstrap replicate has the same value, so that an interval would have no width"
REFERRED_PERCENT = (0, 10, 20, 30, 40, 50, 70)
_DEFINITIONS = tomllib.loads(Path(__file__).with_name("definitions.toml").read_text("utf-8"))


class Ends(NamedTuple):
    """The ends of an interval, NaN where there is none, and then why."""

    low: float = math.nan
    high: float = math.nan
    why: str | None = None


class IntervalMethod(Protocol):
    """How the interval of a score is computed; `resampled` says whether it needs bootstrap replicates."""

    @property
    def resampled(self) -> bool:
        """Whether `ends` needs replicates."""

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        """Return the interval of the mean of a score over the files of several seeds, most often one. Shapes: `draws` (R,)."""


@dataclass(frozen=True)
class Percentile:
    """The percentile interval of the replicates. Default for plug-in scores."""

    resampled: bool = True

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        if intervals.patients_of(sets[0]) < 2:
            return Ends(why=ONE_PATIENT)
        low, high = (float(end) for end in percentile_interval(draws, level))
        return _checked(low, high, draws)


@dataclass(frozen=True)
class Scaled:
    """Student's t interval with the std of the bootstrap replicates, on the logit or logarithmic scale of the bounds; see `scaled_interval`."""

    low: float = -math.inf  # the least value of the score
    high: float = math.inf
    of: Of = "patients"  # whose number, less one, are the degrees of freedom; see `patients_of`
    pseudo: float = 0.0  # of 1 / patients^2 is added to the squared error: a pseudo-patient with a loss of -1 or 1
    resampled: bool = True

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        patients = min(intervals.patients_of(w, self.of) for w in sets)
        if patients < 2:
            return Ends(why=FEW[self.of])
        degrees = min(patients, len(draws)) - 1
        error = math.sqrt(intervals.replicate_error(draws) ** 2 + self.pseudo / intervals.patients_of(sets[0]) ** 2)
        ends = intervals.scaled_interval(value, error, (self.low, self.high), degrees, level)
        return _checked(*ends, draws)


@dataclass(frozen=True)
class Proportion:
    """Jeffreys' interval at an effective number of images, see `clustered_proportion`."""

    counts: Counts  # success of each image in [0, 1] and what it counts for, both (N,)
    resampled: bool = False  # whether the images that count depend on the sample: replicates then tell the variance
    scale: Callable[[Weighted], tuple[float, float]] | None = None  # a and b of a score that is a + b x proportion

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        parts = [self.counts(w) for w in sets]
        success = np.concatenate([y for y, _ in parts])
        weight = np.concatenate([of / of.sum() if of.any() else of for _, of in parts])
        patient = np.concatenate([w.cases.patient for w in sets])
        at, slope = (0.0, 1.0) if self.scale is None else self.scale(sets[0])
        error = intervals.replicate_error(draws) / slope if self.resampled else 0.0
        variance = error**2 if math.isfinite(error) else 0.0
        found = intervals.clustered_proportion(success, weight, patient, level, variance=variance)
        if math.isnan(found.low):
            return Ends(why=ONE_PATIENT_OF_CLASS)
        if self.scale is not None and abs(at + slope * found.value - value) > 1e-9:
            return Ends(why=NOT_LINEAR)
        low, high = sorted(at + slope * end for end in (found.low, found.high))
        return Ends(low, high)


@dataclass(frozen=True)
class Loss:
    """Of a score that is a mean of rare, large losses; see `loss_interval`. The variance is that of the replicates."""

    pseudo: Callable[[Weighted], Moments]  # what a pseudo-patient adds whose predictions are wrong: mean, mean square
    best: float = 0.0  # the value without a loss: 0 of a loss, 1 of a share less a loss
    largest: float = math.inf
    of: Of = "patients"  # as in `Scaled`, of the differences of two models
    resampled: bool = True

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        if intervals.patients_of(sets[0]) < 2:
            return Ends(why=ONE_PATIENT)
        variance = intervals.replicate_error(draws) ** 2
        if math.isnan(variance):
            return Ends(why=UNDEFINED)
        sign = 1 if self.best == 0 else -1
        ends = intervals.loss_interval(sign * (value - self.best), variance, self.pseudo(sets[0]), self.largest, level)
        low, high = sorted(self.best + sign * end for end in ends)
        return Ends(low, high)


@dataclass(frozen=True)
class Ranked:
    """Of an AUROC or a linear function of one: `loss_interval` of 1 - AUROC with DeLong's or Obuchowski's error."""

    parts: Ranks  # score, and mass of the positive and of the negative images, all (N,)
    low: float = 0.0  # the value where the AUROC is 0
    pseudo: float = HALF  # as how many patients the pseudo-patient of each class counts
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        w = sets[0]
        score, positive, negative = self.parts(w)
        patients = intervals.patients_with(positive, w), intervals.patients_with(negative, w)
        if min(patients) < 2:
            return Ends(why=ONE_PATIENT_OF_CLASS)
        if score.min() == score.max():  # whose difference may overflow
            return Ends(why="no interval: all images are tied")
        span = 1 - self.low
        if len(sets) == 1:
            error = intervals.auroc_error(positive > 0, score, w.cases.patient, positive + negative).standard_error
        else:
            error = intervals.replicate_error(draws) / span
        if math.isnan(error):
            return Ends(why=UNDEFINED)
        low, high = intervals.auroc_interval((value - self.low) / span, error, *patients, level, self.pseudo)
        return Ends(self.low + span * low, self.low + span * high)


@dataclass(frozen=True)
class Closed:
    """An interval in closed form of the images alone, such as the inverse of a test of squared gaps."""

    function: Callable[[Weighted, float], Bounds]
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        if len(sets) > 1:
            return Ends(why="no interval of a mean over seeds; that of each seed is in its own scores")
        if intervals.patients_of(sets[0]) < 2:
            return Ends(why=ONE_PATIENT)
        low, high = self.function(sets[0], level)
        few = f"no interval: fewer than {intervals.FEWEST_WRONG} patients have a wrong (or a correct) prediction, which decides the score"
        return Ends(low, high, few if math.isnan(low) else None)


@dataclass(frozen=True)
class NoInterval:
    """No interval, because none would hold the truth as often as it says: chance makes an ECE larger, in replicates still more."""

    why: str
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        return Ends(why=self.why)


def difference_method(method: IntervalMethod) -> Scaled:
    """Return how a difference of two scores gets its interval from replicates that hold the same patients for both."""
    return Scaled(of=method.of if isinstance(method, Scaled | Loss) else "patients")


def _checked(low: float, high: float, draws: Floats) -> Ends:
    if high > low:
        return Ends(low, high)
    return Ends(why=UNDEFINED if math.isnan(intervals.replicate_error(draws)) else ALL_ALIKE)


# What a pseudo-patient whose predictions are wrong adds to each loss: its mean and its mean square. Its images have a random rank of the uncertainty. With G patients
# and a loss that adds x to the mean of an image, they are the mean of x / G, and of x^2 / G^2, times the patients that it counts as: `HALF`, or `pseudo_of_areas`.


def pseudo_of_areas(patients: int) -> float:
    """One pseudo-patient up to 300 patients, sqrt(G / 300) up to 1,200, then two; chosen by simulation, see `docs/intervals.md`."""
    return float(min(max(patients / 300, 1.0) ** 0.5, 2.0))


def _moments(w: Weighted, weight: float, mean: float, square: float) -> Moments:
    patients = intervals.patients_of(w)
    return weight * mean / patients, weight * square / patients**2


def _area_weight(w: Weighted) -> Floats:
    """(N,) weight of each image in an area over referral: -ln u, with u the share of the images that is retained where it is the next to go."""
    middle = (w.mass[1:] + w.mass[:-1]) / 2  # of each block of equal uncertainty
    sizes = np.diff(w.cases.edges)
    return np.repeat(-np.log(np.maximum(middle, EPS * w.total) / w.total), sizes)


def pseudo_of_probability(w: Weighted, loss: Literal["log", "squared"], *, area: bool = False) -> Moments:
    """NLL or Brier score, or the area of it over referral: the labels of a random patient are turned."""
    error = np.where(w.cases.label, w.cases.prob, 1 - w.cases.prob)  # if the label is turned
    x = error**2 if loss == "squared" else -np.log(np.clip(1 - error, EPS, 1 - EPS))
    return pseudo_of_losses(w, x, area=area)


def pseudo_of_losses(w: Weighted, x: Floats, *, area: bool = False) -> Moments:
    """Return what a mean of losses gains, or the area of it over referral, where a random image has the loss x (N,)."""
    x = x * _area_weight(w) if area else x
    return _moments(
        w, pseudo_of_areas(intervals.patients_of(w)) if area else HALF, float(w.mean(x)), float(w.mean(x**2))
    )


def pseudo_of_brier_skill(w: Weighted) -> Moments:
    """1 - Brier skill: the Brier score over that of always giving the prevalence."""
    mean, square = pseudo_of_probability(w, "squared")
    share = float(w.positives / w.total)
    scale = share * (1 - share)
    return mean / scale, square / scale**2


def pseudo_of_aurc(w: Weighted) -> Moments:
    """AURC: -ln u of a uniform rank u has mean 1 and mean square 2."""
    return _moments(w, pseudo_of_areas(intervals.patients_of(w)), 1, 2)


def pseudo_of_e_aurc(w: Weighted) -> Moments:
    """E-AURC: -ln u + ln a, because the error that the oracle leaves grows by -ln a at accuracy a."""
    log = float(np.log(max(1 - float(w.mean(w.cases.error)), EPS)))
    return _moments(w, pseudo_of_areas(intervals.patients_of(w)), 1 + log, 2 + 2 * log + log**2)


def pseudo_of_augrc(w: Weighted) -> Moments:
    """AUGRC: 1 - u of a uniform rank u."""
    return _moments(w, HALF, 1 / 2, 1 / 3)


def pseudo_of_ranked(w: Weighted, classes: Literal["both", "positive"] = "both", *, half: bool = False) -> Moments:
    """1 - AUROC (both classes), or 1 - AUPRC (positives), of all images or of the half that is retained: an image is ranked at random. The AUPRC of all counts a `WHOLE` one."""
    kept = w.retained(int(np.ceil(float(w.count) / 2))) if half else w.weight
    masses = [kept * w.cases.label, kept * ~w.cases.label][: 2 if classes == "both" else 1]
    counts = [len(np.unique(w.cases.patient[mass > 0])) for mass in masses]
    weight = WHOLE if classes == "positive" and not half else HALF
    return intervals.ranked_at_random([count for count in counts if count], weight)


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
    interval: IntervalMethod = field(default_factory=Percentile)
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


_SHARE = Scaled(0.0, 1.0)
_AURC = Loss(pseudo_of_aurc, 0.0, 1.0)
_AUPRC = Loss(partial(pseudo_of_ranked, classes="positive"), 1.0, 1.0, "classes")
_BIASED = NoInterval(
    "no interval: chance makes it larger, in replicates still more; see its null band and the debiased calibration error"
)
_ERRORS = Ranked(classification.ranked_errors, pseudo=WHOLE)


def _share_of_retained(**counted: Any) -> Proportion:
    return Proportion(partial(classification.retained_counts, **counted), resampled=True)


def _ranked_retained(classes: Literal["both", "positive"]) -> Loss:
    return Loss(partial(pseudo_of_ranked, classes=classes, half=True), 1.0, 1.0, "retained")


_score = partial(ScoreSpec, by_rows=False)


def _area(
    metric: str, label: str, direction: Direction, unit: str, version: int, needs: Needs, interval: IntervalMethod
) -> ScoreSpec:
    function = partial(referral_curves.area_of, metric=metric)
    return _score(f"referral_{metric}_area", label, direction, unit, version, function, needs, interval=interval)


def _at(metric: str, percent: int) -> ScoreSpec:
    function = partial(referral_curves.value_at, metric=metric, referred=percent / 100)
    label = f"{'Accuracy' if metric == 'accuracy' else 'AUROC'}, {percent} % referred"
    needs: Needs = "" if metric == "accuracy" else "classes"
    interval: IntervalMethod = _ranked_retained("both")
    if metric == "accuracy":
        interval = _share_of_retained(success="right", referred=percent / 100)
    return _score(f"{metric}_at_{percent}", label, "higher", "", 2, function, needs, ON_REQUEST, interval)


def referred_scores(referred: float = 0.5) -> dict[str, ScoreSpec]:
    """Return the scores of what remains when a share is referred, such as `gain_at_50`, by their names."""
    percent = f"{100 * referred:g}"
    at = f"{percent} % referred"
    missed = Proportion(partial(classification.missed_counts, referred=referred), resampled=True)
    closed = Proportion(
        partial(classification.retained_errors, referred=referred),
        True,
        partial(classification.closed_scale, referred=referred),
    )

    def kept(success: str, of: str = "images") -> Proportion:
        return _share_of_retained(success=success, of=of, referred=referred)

    rows: list[tuple[str, str, Direction, IntervalMethod, Needs]] = [
        ("accuracy", f"Accuracy, {at}", "higher", kept("right"), ""),
        ("gain", "Gain over random referral", "higher", Scaled(-1.0, 1.0, pseudo=1.0), ""),
        ("closed", "Share of the possible gain", "higher", closed, "errors"),
        ("perfect_accuracy", f"Accuracy of oracle referral, {at}", "higher", Percentile(), ""),
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
    interval = Proportion(partial(classification.counts_at, rate=rate, of=of), resampled=True)
    return _score(
        f"{of}_at_{fixed}_{percent}", f"{of.capitalize()} at {fixed} {rate:.2f}", "higher", "", 2, function, "classes",
        ON_REQUEST, interval,
    )  # fmt: skip


_BUILTIN = (
    _score("accuracy", "Accuracy", "higher", "", 2, classification.accuracy_of, interval=Proportion(lambda w: (~w.cases.error, w.weight))),
    _score("auroc", "AUROC", "higher", "", 2, classification.auroc_of, "classes", interval=Ranked(lambda w: (w.cases.prob, w.positive, w.negative))),
    _score("auprc", "AUPRC", "higher", "", 2, classification.auprc_of, "positives", interval=_AUPRC),
    _score("nll", "NLL", "lower", "nats", 2, classification.nll_of,
        interval=Loss(partial(pseudo_of_probability, loss="log"), of="classes"),
    ),
    _score("brier", "Brier score", "lower", "", 2, classification.brier_of,
        interval=Loss(partial(pseudo_of_probability, loss="squared"), 0.0, 1.0, "classes"),
    ),
    _score("ece_top_label", "ECE, top label", "lower", "", 2, calibration.ece_top_label_of, interval=_BIASED),
    _score("ece_positive_class", "ECE, positive class", "lower", "", 2, calibration.ece_positive_class_of, interval=_BIASED),
    *(
        ScoreSpec(
            f"calibration_error_{of}", f"Calibration error, debiased, {of.replace('_', ' ')}", "lower", "", 1,
            partial(calibration.calibration_error_of, of=of), "", ON_REQUEST,
            Closed(partial(calibration.calibration_error_interval, of=of)),
        )
        for of in get_args(calibration.Of)
    ),
    _score(
        "sensitivity", "Sensitivity", "higher", "", 2, classification.sensitivity_of, "positives",
        interval=Proportion(lambda w: (w.cases.called, w.positive)),
    ),
    _score(
        "specificity", "Specificity", "higher", "", 2, classification.specificity_of, "negatives",
        interval=Proportion(lambda w: (~w.cases.called, w.negative)),
    ),
    _area("accuracy", "Referral accuracy area", "higher", "", 2, "", Loss(pseudo_of_aurc, 1.0, 1.0)),
    _area(
        "nll", "Referral NLL area", "lower", "nats", 2, "",
        Loss(partial(pseudo_of_probability, loss="log", area=True), of="retained"),
    ),
    _area("auroc", "Referral AUROC area", "higher", "", 3, "retained", _ranked_retained("both")),
    _area("auprc", "Referral AUPRC area", "higher", "", 3, "retained", _ranked_retained("positive")),
    _score("rc_index", "RC-Index@0.9", "higher", "", 2, classification.rc_index_of, interval=Scaled(of="errors")),
    _score("aurc", "AURC", "lower", "", 2, classification.aurc_of, interval=_AURC),
    _score("e_aurc", "E-AURC", "lower", "", 2, classification.e_aurc_of, interval=Loss(pseudo_of_e_aurc, of="errors")),
    _score("augrc", "AUGRC", "lower", "", 2, classification.augrc_of, interval=Loss(pseudo_of_augrc, 0.0, 1.0)),
    _score("failure_auroc", "Failure AUROC", "higher", "", 2, classification.failure_auroc_of, "errors", interval=_ERRORS),
    _score("prr", "PRR", "higher", "", 2, classification.prr_of, "errors", interval=Ranked(classification.ranked_errors, -1.0, WHOLE)),
    _score(
        "ood_auroc", "OOD detection AUROC", "higher", "", 2, classification.ood_auroc_of, "domains", ("joint",),
        Ranked(classification.ranked_domains),
    ),
    _score(
        "ood_auprc", "OOD detection AUPRC", "higher", "", 2, classification.ood_auprc_of, "domains", ("joint",), _SHARE,
    ),
    _score("ood_fpr95", "OOD detection FPR at 95 %", "lower", "", 1, classification.ood_fpr95_of, "domains", ON_REQUEST, _SHARE),
    *(_at(metric, percent) for metric in ("accuracy", "auroc") for percent in REFERRED_PERCENT),
    _score(
        "brier_skill", "Brier skill", "higher", "", 2, classification.brier_skill_of, "classes", ON_REQUEST, Loss(pseudo_of_brier_skill, 1.0)
    ),
    _score(
        "net_benefit_gain", "Net benefit over calling all or none", "higher", "", 1, classification.net_benefit_gain_of, "", ON_REQUEST,
        Scaled(),
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

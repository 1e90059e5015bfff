"""From a prediction to decisions: the uncertainty that orders referral, the thresholds of calling and referring, and the same for patients.

With p_s the probability of posterior sample s, p = mean_s p_s, and H(p) = -p ln p - (1-p) ln(1-p) the entropy of a yes/no answer, the uncertainties of an
image are, in nats:

| name | formula | misleads when |
|---|---|---|
| `total` (default) | H(p) | compared with max probability or sqrt(p(1-p)): the ranking is the same |
| `aleatoric` | mean_s H(p_s) | the samples agree for the wrong reason |
| `epistemic` | total - aleatoric | there is one sample: it is 0 and the referral random |
| `variance` | mean_s (p_s - p)^2, unitless | as epistemic |
| `max_probability` | 1 - max(p, 1-p), unitless | as total |
| `margin` | exp(-abs(logit p - logit t)), t the decision threshold | t is not the cost of a false alarm over that of a miss |
| `own` | the file's column `uncertainty`, any scale | its sign is turned: the largest is referred first |
| NAME | the file's column `uncertainty_NAME`, any scale | as own |

Total, the maximum probability and the standard deviation sqrt(p(1-p)) are one ranking: they all order images by
|p - 1/2|, also where the decision is made at another threshold t; the margin is largest at t, where the model's decision
changes (at t = 1/2 it is that same ranking). Only epistemic, aleatoric and variance depend on how the samples
differ, which needs more than one of them.

An image is positive where its probability is at least the threshold; the default, 0.5, keeps the rule of the papers: above 0.5. Nothing is interpolated:
every operating point is reached by a threshold.

Source: Depeweg et al., ICML 2018; Filos et al. 2019; Band et al. 2021 (Retina Benchmark), equations 1 and 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlog1py, xlogy

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject, number_text
from retinabench.metrics.intervals import binary, finite_or_none
from retinabench.metrics.weighted_images import EPS, Bools, Floats, RankedImages, cluster_codes, is_positive
from retinabench.predictions.check import Check
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import GRADABLE, gradable_rows

DIGITS = 12


def binary_entropy(p: ArrayLike) -> Floats:
    """H(p) = -p ln p - (1-p) ln(1-p) in nats, any shape; 0 ln 0 = 0, nothing is clipped. At most ln 2 = 0.6931."""
    p = np.asarray(p, np.float64)
    return np.asarray(-(xlogy(p, p) + xlog1py(1 - p, -p)))


@dataclass(frozen=True)
class Uncertainty:
    """Per image, all (N,): predictive mean, and its uncertainties (nats; `variance` and `max_probability` unitless)."""

    mean: Floats
    total: Floats
    aleatoric: Floats
    epistemic: Floats
    variance: Floats
    max_probability: Floats


def decompose(probs: ArrayLike) -> Uncertainty:
    """Split the uncertainty of (N, S) or (N,) probabilities; formulas at the top of this file.

    `variance` is the population variance (ddof 0); `max_probability` is 1 - max(p, 1-p), in [0, 1/2]. Epistemic is
    never clipped: with equal samples it is 0 up to rounding, which can be negative by 1e-16.
    """
    probs = np.asarray(probs, np.float64)
    samples = probs[:, None] if probs.ndim == 1 else probs
    mean = samples.mean(axis=1)
    total, aleatoric = binary_entropy(mean), binary_entropy(samples).mean(axis=1)
    return Uncertainty(mean, total, aleatoric, total - aleatoric, samples.var(axis=1), 1 - np.maximum(mean, 1 - mean))


def margin(prob: ArrayLike, threshold: float) -> Floats:
    """Return how near probabilities are to the decision threshold: exp(-|logit p - logit t|).

    That is the odds of the one over the odds of the other, the smaller over the larger. The threshold is clipped to
    [1e-15, 1 - 1e-15].
    """
    p, t = np.asarray(prob, np.float64), min(max(threshold, EPS), 1 - EPS)
    with np.errstate(divide="ignore", over="ignore"):
        ratio = p / (1 - p) * ((1 - t) / t)
        return np.minimum(ratio, 1 / ratio)


UNCERTAINTIES = ("total", "epistemic", "aleatoric", "variance", "max_probability", "margin")


def gradable(images: Predictions) -> Bools:
    """(N,) whether an image can be graded, as its column `gradable` says."""
    return gradable_rows(Check(images.source), images.subgroups.get(GRADABLE), len(images))


def referral_uncertainty(
    predictions: Predictions, name: str = "auto", *, exact: bool = False, threshold: float = 0.5
) -> tuple[Floats, str]:
    """Return the values that order the referral, the largest first, and the name of what they are.

    Of several names, separated by commas, the first one orders. Computed values keep 12 significant digits (epistemic: of the total), unless `exact`: p = 0.3 and p = 0.7 are equally
    uncertain, and equal samples have no epistemic uncertainty, but in floating point their values differ in the 16th digit, and
    an order made of rounding errors would look like information. A user's own column is taken as it is.
    """
    name = name.partition(",")[0]
    if name == "auto":
        # The entropy is largest at one half, and says little about decisions at another threshold.
        name = ("total" if threshold == 0.5 else "margin") if predictions.uncertainty is None else "own"
    if name == "own":
        if predictions.uncertainty is None:
            hint = f"Add the column, or choose one of: {', '.join(UNCERTAINTIES)}."
            raise InputError("is missing", file=predictions.source, column="uncertainty", hint=hint)
        return np.asarray(predictions.uncertainty, np.float64), name
    if name in predictions.uncertainties:
        return np.asarray(predictions.uncertainties[name], np.float64), name
    if name not in UNCERTAINTIES:
        valid = ("auto", "own", *UNCERTAINTIES, *predictions.uncertainties)
        raise InputError(f"unknown uncertainty '{name}'", hint=nearest(name, valid))
    if name == "margin":
        values = margin(predictions.prob, threshold)
        return values if exact else significant(values), name
    if name in ("total", "max_probability"):  # of the mean alone
        mean = predictions.prob
        values = scale = binary_entropy(mean) if name == "total" else 1 - np.maximum(mean, 1 - mean)
    else:
        parts = decompose(predictions.probs)
        values = getattr(parts, name)
        scale = parts.total if name == "epistemic" else values
    return values if exact else significant(values, scale), name


def compared_uncertainties(predictions: Predictions, asked: str = "auto") -> list[str]:
    """Return the uncertainties to compare, those in `asked`, or for `auto` all columns `uncertainty_NAME`; none where there is one and no folds."""
    names = asked.split(",")
    if asked == "auto" and predictions.uncertainties:
        names = [*(["own"] if predictions.uncertainty is not None else []), *predictions.uncertainties]
    return names if len(names) > 1 or predictions.fold is not None else []


def significant(values: Floats, scale: Floats | None = None) -> Floats:
    """Keep `DIGITS` digits of each value (N,), counted from the first digit of its scale."""
    scale = values if scale is None else scale
    with np.errstate(divide="ignore"):
        place = np.where(scale > 0, np.floor(np.log10(scale)), 0.0)
    unit = 10.0 ** np.maximum(place - DIGITS + 1, -300)
    return np.asarray(np.round(values / unit) * unit + 0.0)


Rule = Literal["value", "youden", "sensitivity", "specificity"]
Split = Literal["", "validation", "test"]
DEFAULT = 0.5
ABOVE_ONE = float(np.nextafter(1, 2))  # A threshold that no probability reaches.
_FORM = re.compile(r"(youden|sensitivity|specificity)(?:=([^@]*))?(?:@(.*))?", re.IGNORECASE)
_HINT = (
    "Give a probability such as 0.3, or youden, sensitivity=0.85 or specificity=0.9, "
    "each with @validation or @test where it matters on which images it is chosen."
)


def operating_points(label: ArrayLike, prob: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """(thresholds, sensitivity, specificity), each (D + 1,): infinity, then the D distinct values from the top; NaN throughout for an absent class."""
    y, p = binary(label, "label"), np.asarray(prob, np.float64)
    if p.shape != y.shape or not np.isfinite(p).all():
        raise InputError(f"needed are {len(y)} finite numbers, one per label", column="prob")
    ranking = RankedImages(p)
    tp, fp = (ranking.cumulate(one.astype(np.float64)) for one in (y, ~y))
    with np.errstate(invalid="ignore"):
        # Counted, not subtracted: 1 - 0.2 is not 0.8 to the last bit, and a goal of 0.8 would be missed.
        return np.append(np.inf, ranking.values), tp / np.sum(y), (np.sum(~y) - fp) / np.sum(~y)


@dataclass(frozen=True)
class FrozenThreshold:
    """A threshold as it is applied."""

    value: float = DEFAULT
    rule: str = ""
    chosen_on: Split = ""
    images: int = 0
    shared: int = 0

    @property
    def is_default(self) -> bool:
        return self.value == DEFAULT and not self.rule

    @property
    def same_images(self) -> bool:
        """Whether the images that chose it are those that it is applied to, so that what it reaches is optimistic."""
        return self.chosen_on == "test"

    @property
    def comparison(self) -> str:
        """The rule as a comparison, such as ``p ≥ 0.312``."""
        if self.is_default:
            return "p > 0.5"
        return "no image" if self.value > 1 else f"p ≥ {self.value:.3g}"

    @property
    def note(self) -> str | None:
        """What a reader of thresholded scores must know; None for the default."""
        if self.is_default:
            return None
        text = f"an image counts as referable where {self.comparison}"
        if self.value > 1:
            text = "no threshold but one that calls no image referable meets the rule"
        if self.rule:
            text += f": {self.rule} on {self.images:,} images of the {self.chosen_on} split"
        if self.same_images:
            text += ", chosen on the same images that are scored, so that thresholded scores are optimistic"
        elif self.shared:
            text += f"; {self.shared:,} patients are in the test split, too, so that thresholded scores are optimistic"
        return text

    def to_dict(self) -> JsonObject:
        chosen = {name: getattr(self, name) or None for name in ("rule", "chosen_on", "images")}
        return {"value": finite_or_none(self.value), **chosen, "same_images": self.same_images}


ABOVE_HALF = FrozenThreshold()  # The default.


@dataclass(frozen=True)
class DecisionThreshold:
    """A number, or a rule that chooses it on the in-domain images of a split.

    Examples:
        >>> import retinabench as rb
        >>> DecisionThreshold.parse("sensitivity=.85@validation")
        DecisionThreshold(rule='sensitivity', goal=0.85, split='validation')
        >>> predictions = rb.Predictions(["a", "b", "c"], [0, 1, 1], [0.1, 0.3, 0.8])
        >>> DecisionThreshold.parse("youden").freeze(predictions).value
        0.3
    """

    rule: Rule = "value"
    goal: float = DEFAULT
    split: Split = ""

    @classmethod
    def parse(cls, given: DecisionThreshold | float | str) -> DecisionThreshold:
        if isinstance(given, DecisionThreshold):
            return given
        text = str(given).strip().replace(" ", "")
        number = _number(text)
        if number is not None:
            if not 0 <= number <= 1:
                raise InputError(f"the threshold {text} is not a probability", hint=_HINT)
            return cls("value", number)
        match = _FORM.fullmatch(text)
        if match is None:
            raise InputError(f"unknown threshold '{given}'", hint=_HINT)
        rule, goal = match[1].lower(), match[2]
        split = next((known for known in get_args(Split) if known == (match[3] or "").lower()), None)
        if split is None or match[3] == "":
            raise InputError(f"unknown split '{match[3]}' in the threshold '{given}'", hint=_HINT)
        if rule == "youden":
            if goal is not None:
                raise InputError("the threshold 'youden' has no goal", hint=_HINT)
            return cls("youden", math.nan, split)
        aim = _number(goal or "")
        if aim is None or not 0 < aim <= 1:
            raise InputError(f"the threshold '{given}' needs a goal above 0 and at most 1", hint=_HINT)
        return cls("sensitivity" if rule == "sensitivity" else "specificity", aim, split)

    def freeze(self, predictions: Predictions) -> FrozenThreshold:
        """Return the threshold for a file, one of its distinct probabilities; of equally good ones the highest."""
        if self.rule == "value":
            return FrozenThreshold(self.goal)
        split, images = self._images(predictions)
        value, sensitivity, specificity = operating_points(images.label, images.prob)
        if not (np.isfinite(sensitivity).all() and np.isfinite(specificity).all()):
            problem = f"a threshold by {self.text} needs images of both classes in the {split} split"
            raise InputError(problem, file=predictions.source, hint="Give a number, such as 0.3.")
        if self.rule == "youden":
            best = 1 + int(np.argmax(sensitivity[1:] + specificity[1:]))  # of finite thresholds
        else:
            first, other = (sensitivity, specificity)[:: 1 if self.rule == "sensitivity" else -1]
            best = int(np.argmax(np.where(first >= self.goal, other, -1)))
        found = float(min(value[best], ABOVE_ONE))
        if found == DEFAULT:  # 0.5 itself would be read as "above 0.5"
            found = float(np.nextafter(DEFAULT, 0))
        return FrozenThreshold(found, self.text, split, len(images), _shared_patients(predictions, split))

    @property
    def text(self) -> str:
        """The rule as it is given, without the split; empty for a number."""
        return {"value": "", "youden": "youden"}.get(self.rule, f"{self.rule}={number_text(self.goal)}")

    def _images(self, predictions: Predictions) -> tuple[Split, Predictions]:
        splits: tuple[Split, ...] = (self.split,) if self.split else ("validation", "test")
        for split in splits:
            for domain in ("in_domain", None):
                found = predictions.select(domain=domain, split=split)
                if found is not None:
                    return split, found
        problem = f"holds no image of the {splits[-1]} split, which is to choose the threshold ({self.text})"
        hint = "Add validation images, give a number, or choose on the scored images with @test."
        raise InputError(problem, file=predictions.source, hint=hint)


def _shared_patients(predictions: Predictions, split: Split) -> int:
    """Number of patients with validation images, which chose a threshold, and test images."""
    if split != "validation" or predictions.patient_id is None:
        return 0
    chose = predictions.split == split
    return len(np.intersect1d(predictions.patient_id[chose], predictions.patient_id[~chose]))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class ReferralRule:
    """A frozen rule of referral."""

    threshold: float = math.inf
    uncertainty: str = "total"
    rate: float | None = None
    chosen_on: Literal["", "validation", "test"] = ""
    images: int = 0

    @property
    def same_images(self) -> bool:
        """Whether the scored images themselves chose the threshold. Their labels did not, so that no rate is optimistic."""
        return self.chosen_on == "test"

    @property
    def extent(self) -> Literal["none", "some", "all"]:
        """Whether the rule refers no image, every image, or those above a threshold."""
        if math.isfinite(self.threshold):
            return "some"
        return "none" if self.threshold > 0 else "all"

    def refers(self, values: Floats) -> Bools:
        return np.asarray(values > self.threshold)

    def to_dict(self) -> JsonObject:
        chosen = {"rate": self.rate, "chosen_on": self.chosen_on or None, "images": self.images or None}
        return {"threshold": finite_or_none(self.threshold), "uncertainty": self.uncertainty, **chosen}


def referral_rule(
    predictions: Predictions, uncertainty: str, cut: float, *, threshold: float | None, rate: float | None
) -> ReferralRule:
    """Return the rule for a file: a rate becomes the lowest threshold above which at most this share of in-domain validation (else test) images lies."""
    if threshold is not None and rate is not None:
        raise InputError("a threshold and a rate of referral exclude each other", hint="Give one of them.")
    if rate is None:
        name = referral_uncertainty(predictions, uncertainty, threshold=cut)[1]
        return ReferralRule(math.inf if threshold is None else threshold, name)
    if not 0 <= rate <= 1:
        raise InputError(f"the referral rate is {rate:g}", hint="It lies between 0 and 1, such as 0.2.")
    return referral_rules(predictions, uncertainty, cut, [rate])[0]


def referral_rules(
    predictions: Predictions, uncertainty: str, cut: float, rates: Sequence[float]
) -> list[ReferralRule]:
    split: Literal["validation", "test"] = "validation"
    part = predictions.select(domain="in_domain", split=split)
    if part is None:
        split = "test"
        part = predictions.select(domain="in_domain", split=split) or predictions.select(split=split)
    if part is None:
        raise InputError("holds no image of the test split", file=predictions.source, column="split")
    found, name = referral_uncertainty(part, uncertainty, threshold=cut)
    values = np.sort(found)[::-1]
    places = [math.floor(rate * len(values) + 1e-9) for rate in rates]
    limits = [float(values[most]) if most < len(values) else -math.inf for most in places]
    return [ReferralRule(limit, name, rate, split, len(values)) for limit, rate in zip(limits, rates, strict=True)]


def worst_images(codes: NDArray[np.intp], prob: Floats) -> NDArray[np.intp]:
    """Return the image with the largest probability of each patient, the first of equals; `codes`, `prob` (N,) -> (P,)."""
    order = np.lexsort((-prob, codes))
    return np.asarray(order[np.append(True, np.diff(codes[order]) > 0)])


def patient_uncertainty(codes: NDArray[np.intp], called: Bools, uncertainty: Floats) -> Floats:
    """Return the uncertainty of each patient; `codes`, `called`, `uncertainty` (N,) -> (P,).

    A patient is diseased if one image is, and called referable if one image is. With the uncertainty u of the images, the model
    decides for the patient alone, at a threshold t, where it calls an image with u <= t referable, or where u <= t for all images.
    Both say u_patient <= t for

        u_patient = the least u of the images called referable; where there is none, the largest u of all images,

    so that every score, curve and certificate of images is also one of patients, with this uncertainty. The probability is that of
    the image with the largest one: the pivotal trial of IDx-DR judged participants by "at least one eye".

    References:
        Abramoff et al., Pivotal trial of an autonomous AI-based diagnostic system, npj Digit. Med. 1:39 (2018).
    """
    largest, least = np.full(codes.max() + 1, -np.inf), np.full(codes.max() + 1, np.inf)
    np.maximum.at(largest, codes, uncertainty)
    np.minimum.at(least, codes[called], uncertainty[called])
    return np.where(np.bincount(codes, called) > 0, least, largest)


def by_patient(
    predictions: Predictions, uncertainty: str = "auto", threshold: DecisionThreshold | float | str = DEFAULT
) -> Predictions:
    """Return one row per patient, domain and split, with `uncertainty` as its own; a threshold that is to be chosen, is chosen for patients.

    Args:
        predictions: Predictions with the patient of every image.
        uncertainty: What orders the referral of images, as in `score`.
        threshold: From which probability on the model calls an image referable; see `DecisionThreshold`.

    Returns:
        The patients: label and grade are the worst, the other columns those of the image with the largest probability.

    Raises:
        InputError: The predictions lack patients, or the uncertainty that is asked for.

    Examples:
        >>> import retinabench as rb
        >>> images = rb.Predictions(["a", "b", "c"], [0, 1, 0], [0.4, 0.9, 0.2], patient_id=["p", "p", "q"])
        >>> patients = rb.by_patient(images, "margin")
        >>> patients.image_id.tolist(), patients.label.tolist(), patients.uncertainty.round(3).tolist()
        (['p', 'q'], [1, 0], [0.111, 0.25])
    """
    if predictions.patient_id is None:
        hint = "Add the patient of every image."
        raise InputError("is missing", file=predictions.source, column="patient_id", hint=hint)
    parts = np.stack([predictions.domain == "shifted", predictions.split == "validation"])
    codes, _ = cluster_codes(cluster_codes(predictions.patient_id)[0] * 4 + parts[0] * 2 + parts[1])
    rows = worst_images(codes, predictions.prob)
    label, grade = np.zeros(len(rows), np.int8), None
    np.maximum.at(label, codes, predictions.label)
    if predictions.grade is not None:
        grade = np.full(len(rows), -1, np.int8)
        np.maximum.at(grade, codes, predictions.grade)
        grade[np.bincount(codes, predictions.grade < 0) > 0] = -1
    worst = predictions.take(rows)
    name = worst.patient_id
    assert name is not None
    twice = np.bincount(cluster_codes(name)[0])[cluster_codes(name)[0]] > 1  # in several domains or splits
    part = np.char.add(np.char.add(worst.domain, " "), worst.split)
    patients = replace(
        worst, image_id=np.where(twice, np.char.add(np.char.add(name, ", "), part), name), label=label, grade=grade,
        metadata={**worst.metadata, "rows": "patients"},
        notes=(*predictions.notes, "one row per patient (any eye)"),
    )  # fmt: skip
    cut = DecisionThreshold.parse(threshold).freeze(patients).value
    values, _ = referral_uncertainty(predictions, uncertainty, threshold=cut)
    return replace(patients, uncertainty=patient_uncertainty(codes, is_positive(predictions.prob, cut), values))

"""What of a file is scored: the uncertainty that orders referral, the thresholds of calling and referring, the sets of images, and their replicates.

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

import contextlib
import functools
import hashlib
import io
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlog1py, xlogy

from retinabench.core.errors import InputError, WorkError, check, disposable, nearest
from retinabench.core.files import write_bytes
from retinabench.core.results import JsonObject, number_text
from retinabench.metrics import weighted_images
from retinabench.metrics.classification import balanced_weight
from retinabench.metrics.intervals import Interval, binary, finite_or_none
from retinabench.metrics.referral_curves import coarse_auprc_area
from retinabench.metrics.registry import SCORES, ScoreSpec
from retinabench.metrics.weighted_images import EPS, Bools, Cases, Floats, Index, Weighted, cluster_bootstrap
from retinabench.predictions.check import Check
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import GRADABLE, gradable_rows

VARIABLE = "RETINABENCH_CACHE"
WORTH_KEEPING = 2**19  # Numbers in all replicates: what is computed faster than read is not kept.
MOST_BYTES = 200_000_000  # of all files; a predictions file of two domains takes about one megabyte
SET_LABELS = {"in_domain": "In-domain", "shifted": "Shifted", "joint": "Joint", "balanced": "Balanced"}
"""The sets by their key in files, with what tables and figures call them; see `docs/scores.md`."""
SETS = tuple(SET_LABELS)
PER_IMAGE, PER_PATIENT = "per image", "per patient"
PER_IMAGE_OF_A_RANDOM_PATIENT = "per image of a random patient"
"""Denominators of rates: images, patients, or images of which each patient's together count as 1."""

REFERRED = (0.0, 0.5, 0.7)  # Fractions referred at which `referral` and `retained` are given.
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
    ranking = weighted_images.RankedImages(p)
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


def check_known(kind: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            raise InputError(f"unknown {kind} '{name}'", hint=nearest(name, known))


class ImageSet:
    """One of `SETS`: its images, sorted for scoring, and how they are weighted. It keeps no ids.

    Attributes: `cluster` (N,) is the number of the patient (or image) of each row; `patients` the number of patients, None where
    they are not known; `positives` the number of images with label 1.
    """

    def __init__(self, name: str, part: Predictions, uncertainty: Floats, threshold: float = 0.5) -> None:
        self.name = name
        self.shifted = part.domain == "shifted"
        shifted = self.shifted if name == "joint" else None
        self.cluster, clusters = weighted_images.cluster_codes(part.patients)
        self.patients = None if part.patient_id is None else clusters
        self.positives = int(part.label.sum())
        self.cases = Cases(part.label, part.prob, uncertainty, shifted, threshold, self.cluster)
        self.scores = [s for s in SCORES.values() if s.given_for(name)]

    def balanced(self) -> ImageSet:
        """Return the balanced set of the images of this joint set; both share the sorted images and their indexes."""
        other = copy(self)
        other.name = "balanced"
        other.scores = [s for s in SCORES.values() if s.given_for("balanced")]
        return other

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def whole(self) -> Weighted:
        """Every image once; in the balanced set both domains with the same mass."""
        return self.cases.weighted(balanced_weight(self.shifted) if self.name == "balanced" else None)

    def weigh(self, weight: Floats) -> tuple[Weighted | None, Index]:
        """Return the images with weights (R, N), and which rows (R,) these are: replicates of the balanced set that hold one domain alone are left out."""
        if self.name == "balanced":
            weight = balanced_weight(self.shifted, weight)
        known = np.flatnonzero(np.isfinite(weight[:, 0]))
        ordered = np.take(weight[known], self.cases.order, axis=1)
        return (Weighted(self.cases, ordered) if len(known) else None), known


class SetEvaluator:
    """The scores of a set as a function of the weights of its images; `point` (K,) are their values on the whole set, computed where None.

    The area of AUPRC over referral is slow to compute. Replicates evaluate it at a few counts and add the difference
    between the exact and the coarse area of the whole set.
    """

    def __init__(self, images: ImageSet, scores: Sequence[ScoreSpec], point: Floats | None = None) -> None:
        self.images, self.scores, self.whole = images, scores, images.whole
        self.point = np.array([s(self.whole) for s in scores]) if point is None else point
        coarse = [k for k, s in enumerate(scores) if s.name == "referral_auprc_area"]
        self.offset = {k: self.point[k] - coarse_auprc_area(self.whole) for k in coarse}

    def __call__(self, weight: Floats) -> Floats:
        """Return the (R, K) scores of images with weights (R, N), NaN where undefined."""
        values = np.full((len(weight), len(self.scores)), np.nan)
        w, known = self.images.weigh(weight)
        if w is None:
            return values
        for k, s in enumerate(self.scores):
            if k in self.offset:  # clipped, because the offset could lift a coarse area of nearly 1 above it
                values[known, k] = np.clip(coarse_auprc_area(w) + self.offset[k], 0.0, 1.0)
            else:
                values[known, k] = s(w)
        return values


def image_sets(test: Predictions, uncertainty: Floats, threshold: float = 0.5) -> list[ImageSet]:
    """Return the sets that exist, in the order of `SETS`: each domain, and both together, as they are and balanced; `uncertainty` (N,)."""
    sets = []
    for domain in ("in_domain", "shifted"):
        rows = np.flatnonzero(test.domain == domain)
        if len(rows):
            sets.append(ImageSet(domain, test.take(rows), uncertainty[rows], threshold))
    if len(sets) == 2:
        joint = ImageSet("joint", test, uncertainty, threshold)
        sets += [joint, joint.balanced()]
    return sets


def order_notes(images: str, auroc: Interval) -> list[str]:
    """Return a note that the labels or probabilities of these images look inverted, or derived from each other; or none."""
    if auroc.value < 0.4 and (auroc.high < 0.5 or not np.isfinite(auroc.high)):
        return [
            f"WARNING: labels or probabilities look inverted: {images} AUROC {auroc.value:.2f} is far below 0.5. "
            "Label 1 and prob 1 mean referable"
        ]
    if auroc.value == 1 and auroc.low > 0.95:
        return [
            f"{images.lower()}: every referable image has a higher probability than every other: "
            "was 'prob' computed from the labels?"
        ]
    return []


def replicates_of(
    evaluator: SetEvaluator,
    cluster: Index,
    *,
    replicates: int,
    seed: int,
    workers: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> Floats:
    """Return the bootstrap replicates (R, K) of the scores of a set; `cluster` (N,) numbers the patients that are drawn.

    `score`, `report`, `compare`, `leaderboard` and `site` ask for the same replicates of the same file. They are written into a folder of
    the user, and read if everything that they depend on is equal: the images of the set, the patients that are drawn, the seed, the
    number of replicates, the score, and the source code of the metrics. A file's name holds the checksum of its content; the
    replicates of a damaged file are computed and written again.
    """
    folder, key = _folder(replicates * len(cluster)), ""
    kept: dict[str, Floats] = {}
    if folder:
        cases = evaluator.images.cases
        about = f"{evaluator.images.name} {len(cases)} {replicates} {seed} {cases.threshold!r}".encode()
        of_images = cases.label, cases.prob, cases.uncertainty, cases.patient, cluster[cases.order], cases.shifted
        key = _key([about, *of_images])
        kept = _read(folder, key)
    names = [_identity(spec) for spec in evaluator.scores]
    missing = [k for k, name in enumerate(names) if name not in kept]
    values = np.stack([kept.get(name, np.full(replicates, np.nan)) for name in names], axis=1)
    if missing:
        part = SetEvaluator(evaluator.images, [evaluator.scores[k] for k in missing], evaluator.point[missing])
        draws = cluster_bootstrap(part, cluster, replicates=replicates, seed=seed, workers=workers, advance=advance)
        values[:, missing] = draws
        if folder:
            _write(folder, key, {names[k]: values[:, k] for k in missing if names[k]})
    elif advance is not None:
        advance(replicates)
    return values


Column = TypeVar("Column", bound=NDArray[Any])


def kept_columns(
    of: Iterable[object], compute: Callable[[], Mapping[str, Column]], work: int = WORTH_KEEPING
) -> Mapping[str, Column]:
    """Return columns, computed or kept by an earlier command; they depend on `of`, arrays and numbers, and on the metrics."""
    if (folder := _folder(work)) is None:
        return compute()
    key = _key(of)
    found: Mapping[str, Any] = _read(folder, key)
    if not found:
        found = compute()
        _write(folder, key, found)
    return found


def _folder(work: int) -> Path | None:
    """Return the folder of files that anyone may delete; None where the user wants none, or the work is not worth one."""
    if work < WORTH_KEEPING:
        return None
    if (named := os.environ.get(VARIABLE)) is not None:
        return Path(named) if named else None
    usual = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": ("", "~/Library/Caches")}
    variable, otherwise = usual.get(sys.platform, ("XDG_CACHE_HOME", "~/.cache"))
    return Path(os.path.expanduser(os.environ.get(variable) or otherwise), "retinabench")


@functools.cache
def _source() -> bytes:
    digest = hashlib.sha256(f"{np.__version__} {scipy.__version__}".encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(check(path).read_bytes())
    return digest.digest()


def _key(of: Iterable[object]) -> str:
    digest = hashlib.sha256(_source())
    for part in of:
        digest.update(part if isinstance(part, bytes) else np.asarray(part, np.float64).tobytes())
    return digest.hexdigest()


def _identity(spec: ScoreSpec) -> str:
    """Return what tells a score from any other; empty for those of plug-ins, whose source may change unseen."""
    function, settings = spec.function, ""
    while isinstance(function, functools.partial):
        settings += f" {function.args} {function.keywords}"
        function = function.func
    if not function.__module__.startswith("retinabench."):
        return ""
    return f"{spec.name} {spec.version} {function.__module__}.{function.__qualname__}{settings}"


def _name(key: str, content: bytes) -> str:
    return f"{key}-{hashlib.sha256(key.encode() + content).hexdigest()}.npz"


def _read(folder: Path, key: str) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {}
    with contextlib.suppress(OSError, InputError):
        for path in folder.glob(f"{key}-*.npz"):
            content = check(path).read_bytes()
            if path.name == _name(key, content):
                with np.load(path, allow_pickle=False) as file:
                    columns |= {name: file[f"column_{k}"] for k, name in enumerate(file["names"].tolist())}
    return columns


def _write(folder: Path, key: str, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns, and delete the oldest files where there are too many; a full or closed folder is not an error."""
    held = io.BytesIO()
    arrays: dict[str, Any] = {f"column_{k}": column for k, column in enumerate(columns.values())}
    np.savez(held, names=list(columns), **arrays)
    with contextlib.suppress(OSError, InputError, WorkError):
        path = folder / _name(key, held.getvalue())
        write_bytes(path, held.getvalue())
        disposable(path)
        size = 0
        with os.scandir(folder) as entries:
            files = [(one.stat(), one.path) for one in entries if one.name.endswith(".npz")]
        for about, name in sorted(files, key=lambda one: -one[0].st_mtime):
            size += about.st_size
            if size > MOST_BYTES:
                os.unlink(name)

"""The probability from which an image is called referable, and the rule by which it is referred.

An image is positive where its probability is at least the threshold. The default, 0.5, keeps the rule of the papers:
positive where the probability is above 0.5.

The rule everywhere is "positive iff prob >= threshold". Nothing is interpolated: every operating point
is reached by a threshold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject, number_text, vars_of
from retinabench.metrics.arrays import Bools, Floats
from retinabench.metrics.clinical.screening_table import rate_shares
from retinabench.metrics.proportions import binary, clustered_proportion, finite_or_none
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

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
    """(thresholds, sensitivity, specificity), each (D + 1,): infinity, then the D distinct values from the top.

    Sensitivity rises, specificity falls along the arrays; NaN throughout for an absent class.
    """
    y, p = binary(label, "label"), np.asarray(prob, np.float64)
    if p.shape != y.shape or not np.isfinite(p).all():
        raise InputError(f"needed are {len(y)} finite numbers, one per label", column="prob")
    order = np.argsort(-p, kind="stable")
    ranked = p[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # the end of every block of equal values
    tp, said = np.cumsum(y[order])[last], last + 1
    positives, negatives = int(y.sum()), int((~y).sum())
    with np.errstate(invalid="ignore"):
        sensitivity = np.append(0, tp) / np.float64(positives)
        # Counted, not subtracted: 1 - 0.2 is not 0.8 to the last bit, and a goal of 0.8 would be missed.
        specificity = np.append(negatives, negatives - (said - tp)) / np.float64(negatives)
    return np.append(np.inf, ranked[last]), sensitivity, specificity


@dataclass(frozen=True)
class ClinicalGoal:
    """A clinical goal: the least sensitivity and specificity asked for, and by whom."""

    sensitivity: float
    specificity: float
    source: str


GOALS = {
    "nhs": ClinicalGoal(0.85, 0.80, "85 % / 80 % as recommended by the NHS (Leibig et al., Sci Rep 7:17816, 2017)"),
    "fda_pivotal": ClinicalGoal(0.85, 0.825, "endpoints of the IDx-DR pivotal trial (npj Digit Med 1:39, 2018)"),
}


def judge_goals(
    label: ArrayLike,
    positive: ArrayLike,
    cluster: ArrayLike | Sequence[Hashable] | None = None,
    *,
    goals: Mapping[str, ClinicalGoal] = GOALS,
    exploratory: bool = False,
) -> dict[str, JsonObject]:
    """Return, for each goal, whether the estimates meet it and whether the lower bounds do; two different claims.

    Neither is made where the threshold was chosen on the same images (`exploratory`): what it reaches there is optimistic. The bound is the lower end of the exact 95 % interval of `clustered_proportion`, one-sided 97.5 %. An absent class meets
    nothing. The approved IDx-DR met 85 % sensitivity by its estimate (173 of 198) and not by its bound (81.9 %).
    Shapes: `label` (N,), `positive` (N,), `cluster` (N,).
    """
    shares = rate_shares(binary(label, "label"), binary(positive, "positive"))
    ids: Any = np.arange(len(shares["sensitivity"][1])) if cluster is None else cluster
    rates = [clustered_proportion(*shares[name], ids, exact=True) for name in ("sensitivity", "specificity")]
    found = {"estimate": [one.value for one in rates], "bound": [one.low for one in rates]}
    return {
        name: {
            **vars_of(goal),
            **found,
            **{
                f"{kind}_met": not exploratory and one >= goal.sensitivity and other >= goal.specificity
                for kind, (one, other) in found.items()
            },
            "exploratory": exploratory,
        }
        for name, goal in goals.items()
    }


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
        return {
            "value": finite_or_none(self.value),
            "rule": self.rule or None,
            "chosen_on": self.chosen_on or None,
            "images": self.images or None,
            "same_images": self.same_images,
        }


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
        """Return the threshold for a file.

        The distinct probabilities are the candidates. Nothing is interpolated; of equally good ones the highest is taken.
        """
        if self.rule == "value":
            return FrozenThreshold(self.goal)
        split, images = self._images(predictions)
        value, sensitivity, specificity = operating_points(images.label, images.prob)
        if not (np.isfinite(sensitivity).all() and np.isfinite(specificity).all()):
            raise InputError(
                f"a threshold by {self.text} needs images of both classes in the {split} split",
                file=predictions.source,
                hint="Give a number, such as 0.3.",
            )
        if self.rule == "youden":
            best = 1 + int(np.argmax(sensitivity[1:] + specificity[1:]))  # of finite thresholds
        elif self.rule == "sensitivity":
            best = int(np.argmax(np.where(sensitivity >= self.goal, specificity, -1)))
        else:
            best = int(np.argmax(np.where(specificity >= self.goal, sensitivity, -1)))
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
        raise InputError(
            f"holds no image of the {splits[-1]} split, which is to choose the threshold ({self.text})",
            file=predictions.source,
            hint="Add validation images, give a number, or choose on the scored images with @test.",
        )


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
        return {
            "threshold": finite_or_none(self.threshold),
            "uncertainty": self.uncertainty,
            "rate": self.rate,
            "chosen_on": self.chosen_on or None,
            "images": self.images or None,
        }


def referral_rule(
    predictions: Predictions, uncertainty: str, cut: float, *, threshold: float | None, rate: float | None
) -> ReferralRule:
    """Return the rule for a file.

    A rate is turned into the lowest threshold above which at most this share of the in-domain validation images lies, or of the
    in-domain test images where there is no validation split. Images of equal uncertainty are referred together or not at all.
    """
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

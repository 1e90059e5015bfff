"""What is promised: goals, and the risks that they bound.

A rule retains the images with uncertainty <= t and refers the others to an expert. With w the weight of an image, the sums run over
the images of a new patient, and the expectation over patients:

    per image                        w = 1:                  all images of all patients count alike
    per image of a random patient    w = 1 / (images of the patient):    all patients count alike
    per patient (any eye)            one row per patient (`by_patient`), w = 1

| target | num | den |
|---|---|---|
| `selective_risk`, 1 - `accuracy` | retained and wrong | retained |
| `missed_referable`, 1 - `sensitivity` | referable, retained and called negative | referable |
| `missed_severe`, 1 - `severe_sensitivity` | grade >= 3, retained and called negative | grade >= 3 |
| 1 - `specificity` | not referable, retained and called positive | not referable |
| 1 - `npv` | referable, retained and called negative | retained and called negative |
| 1 - `ppv` | not referable, retained and called positive | retained and called positive |
| `referral_rate` (`workload`) | referred | all |

Referred images count as read without error: sensitivity is that of model and expert together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import Document, number_text
from retinabench.metrics.image_sets import PER_IMAGE, PER_IMAGE_OF_A_RANDOM_PATIENT, PER_PATIENT, referral_uncertainty
from retinabench.metrics.intervals import Interval, clopper_pearson, effective_images
from retinabench.metrics.weighted_images import Bools, Floats, cluster_codes, is_positive
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import SEVERE

Per = Literal["image", "patient-image", "patient"]
PER: dict[str, str] = {
    "image": PER_IMAGE,
    "patient-image": PER_IMAGE_OF_A_RANDOM_PATIENT,
    "patient": f"{PER_PATIENT} (any eye)",
}
"""The estimands and their names."""


@dataclass(frozen=True, eq=False)
class ReferralCases:
    """N images as a referral rule sees them; `label`, `positive`, `uncertainty`, `patient`, `weight`, `severe` (N,)."""

    label: Bools
    positive: Bools
    uncertainty: Floats
    patient: NDArray[np.intp]
    weight: Floats
    severe: Bools | None = None

    @classmethod
    def of(
        cls, part: Predictions, uncertainty: str = "auto", threshold: float = 0.5, per: Per = "image"
    ) -> ReferralCases:
        codes, _ = cluster_codes(np.arange(len(part)) if part.patient_id is None else part.patient_id)
        values, _ = referral_uncertainty(part, uncertainty, threshold=threshold)
        severe = None if part.grade is None else part.grade >= SEVERE
        return cls(part.label == 1, is_positive(part.prob, threshold), values, codes, weights(codes, per), severe)

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: Bools) -> ReferralCases:
        """Return some of the images; `rows` (N,)."""
        severe = None if self.severe is None else self.severe[rows]
        of = self.label[rows], self.positive[rows], self.uncertainty[rows], self.patient[rows], self.weight[rows]
        return ReferralCases(*of, severe)

    @property
    def most_images(self) -> int:
        return int(np.bincount(self.patient).max())


def weights(patient: NDArray[np.intp], per: Per) -> Floats:
    """Return the (N,) weights of images in an estimand, one of `PER`; raises `InputError` for another name."""
    if per not in PER:
        raise InputError(f"unknown estimand '{per}'", hint=nearest(per, PER))
    return np.ones(len(patient)) if per != "patient-image" else 1 / np.bincount(patient)[patient].astype(np.float64)


@dataclass(frozen=True)
class RatioRisk:
    """A ratio risk of a referral rule. Shapes: `counted` (N,), `among` (N,)."""

    heading: str
    at_least: bool
    counted: Callable[[ReferralCases], Bools]
    among: Callable[[ReferralCases], Bools]
    den_retained: bool = False
    of_referred: bool = False

    def sums(self, cases: ReferralCases, threshold: float) -> tuple[Floats, Floats]:
        """Return num and den of each image, with their weights, at a threshold of the uncertainty. Shapes: returns (N,)."""
        retained = cases.uncertainty <= threshold
        hit = self.counted(cases) & (~retained if self.of_referred else retained)
        of = self.among(cases) & (retained | (not self.den_retained))
        return hit * cases.weight, of * cases.weight

    def estimate(self, cases: ReferralCases, threshold: float, level: float = 0.95) -> Interval:
        """Return the target's value with its exact-type interval, clustered by patient; NaN where nothing counts."""
        num, den = self.sums(cases, threshold)
        risk = ratio_interval(num, den, cases.patient, level)
        return Interval(1 - risk.value, 1 - risk.high, 1 - risk.low) if self.at_least else risk


def ratio_interval(num: Floats, den: Floats, patient: NDArray[np.intp], level: float = 0.95) -> Interval:
    """Return sum num / sum den with the Clopper-Pearson interval at the effective number of images; `num`, `den`, `patient` (N,)."""
    counted = den > 0
    if not counted.any():
        return Interval(np.nan)
    value = float(num.sum() / den.sum())
    codes = np.unique(patient[counted], return_inverse=True)[1]
    if codes.max() == 0:  # the variance between patients is not known from one
        return Interval(value, 0.0, 1.0)
    trials = effective_images(num[counted] / den[counted], den[counted], codes, level)
    low, high = clopper_pearson(value * trials, trials, level)
    return Interval(value, float(low), float(high))


def _severe(cases: ReferralCases) -> Bools:
    if cases.severe is None:
        hint = (
            "A goal for severe disease (grade 3 and 4) needs the grades of the images: add the column, or name it "
            "with --column grade=NAME."
        )
        raise InputError("is missing", column="grade", hint=hint)
    return np.asarray(cases.severe, bool)


_COUNTED: dict[str, Callable[[ReferralCases], Bools]] = {
    "all": lambda cases: np.ones(len(cases), bool),
    "wrong": lambda cases: np.asarray(cases.label != cases.positive),
    "missed": lambda cases: cases.label & ~cases.positive,
    "alarm": lambda cases: ~cases.label & cases.positive,
    "missed severe": lambda cases: _severe(cases) & ~cases.positive,
}
TARGETS: dict[str, RatioRisk] = {
    "selective_risk": RatioRisk("error of the retained", False, _COUNTED["wrong"], _COUNTED["all"], den_retained=True),
    "accuracy": RatioRisk("accuracy of the retained", True, _COUNTED["wrong"], _COUNTED["all"], den_retained=True),
    "sensitivity": RatioRisk("sensitivity with expert", True, _COUNTED["missed"], lambda cases: cases.label),
    "missed_referable": RatioRisk("referable images missed", False, _COUNTED["missed"], lambda cases: cases.label),
    "severe_sensitivity": RatioRisk("sensitivity for grade 3-4", True, _COUNTED["missed severe"], _severe),
    "missed_severe": RatioRisk("severe images missed", False, _COUNTED["missed severe"], _severe),
    "specificity": RatioRisk("specificity with expert", True, _COUNTED["alarm"], lambda cases: ~cases.label),
    "npv": RatioRisk("NPV of the retained", True, _COUNTED["missed"], lambda cases: ~cases.positive, den_retained=True),
    "ppv": RatioRisk("PPV of the retained", True, _COUNTED["alarm"], lambda cases: cases.positive, den_retained=True),
    "referral_rate": RatioRisk("share read by the expert", False, _COUNTED["all"], _COUNTED["all"], of_referred=True),
}
ALIASES = {"workload": "referral_rate", "error": "selective_risk"}


@dataclass(frozen=True)
class Goal(Document):
    """A target and the value that it must reach.

    Examples:
        >>> Goal.parse("sensitivity=.9")
        Goal(target='sensitivity', value=0.9)
        >>> str(Goal("workload", 0.5))
        'referral_rate <= 0.5'
    """

    _keys, _also = {"value": "goal"}, ("at_least",)

    target: str
    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", ALIASES.get(self.target, self.target))
        if self.target not in TARGETS:
            raise InputError(f"unknown target '{self.target}'", hint=nearest(self.target, TARGETS))
        if not 0 <= self.value <= 1:
            raise InputError(f"the goal is {number_text(self.value)}", hint="A goal lies between 0 and 1.")

    @classmethod
    def parse(cls, text: str, target: str = "selective_risk") -> Goal:
        """Read `sensitivity=.9`; a number alone is the goal of `target`."""
        name, found, number = text.rpartition("=")
        try:
            if not found and target == "selective_risk" and float(number) > 0.5:
                hint = f"Say accuracy={number} or selective_risk={number}."
                raise InputError(f"a goal of {number} alone would allow that share of errors", hint=hint)
            return cls(name.strip() if found else target, float(number))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"unknown goal '{text}'", hint="Give 0.05 or sensitivity=0.9.") from None

    @property
    def spec(self) -> RatioRisk:
        return TARGETS[self.target]

    @property
    def max_risk(self) -> float:
        """The greatest E[num] / E[den]."""
        return 1 - self.value if self.spec.at_least else self.value

    @property
    def text(self) -> str:
        """The goal in words, such as `error of the retained at most 0.05`."""
        return f"{self.spec.heading} at {'least' if self.spec.at_least else 'most'} {number_text(self.value)}"

    def __str__(self) -> str:
        return f"{self.target} {'>=' if self.spec.at_least else '<='} {number_text(self.value)}"

    @property
    def at_least(self) -> bool:
        return self.spec.at_least


def as_goals(target: str, goal: float, goals: Sequence[Goal | str]) -> tuple[Goal, ...]:
    found = tuple(one if isinstance(one, Goal) else Goal.parse(one, target) for one in goals) or (Goal(target, goal),)
    names = [one.target for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the target '{name}' has two goals", hint="Give each target one goal.")
    return found

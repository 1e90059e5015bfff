"""The threshold at which a probability counts as "referable": given as a number, or chosen on labelled images.

An image is positive where its probability is at least the threshold. The default, 0.5, keeps the rule of the papers:
positive where the probability is above 0.5.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.metrics.clinical.operating_points import operating_points
from retinabench.metrics.proportions import finite_or_none
from retinabench.predictions.table import Predictions

Rule = Literal["value", "youden", "sensitivity", "specificity"]
Split = Literal["", "validation", "test"]
DEFAULT = 0.5
ABOVE_ONE = float(np.nextafter(1, 2))
"""A threshold that no probability reaches."""
_FORM = re.compile(r"(youden|sensitivity|specificity)(?:=([^@]*))?(?:@(.*))?", re.IGNORECASE)
_HINT = (
    "Give a probability such as 0.3, or youden, sensitivity=0.85 or specificity=0.9, "
    "each with @validation or @test where it matters on which images it is chosen."
)


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
        """Whether this is the rule of the papers, above 0.5."""
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
        """Return the threshold for JSON."""
        return {
            "value": finite_or_none(self.value),
            "rule": self.rule or None,
            "chosen_on": self.chosen_on or None,
            "images": self.images or None,
            "same_images": self.same_images,
        }


ABOVE_HALF = FrozenThreshold()
"""The default."""


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
        """Read a threshold as a user gives it."""
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

    def resolve(self, predictions: Predictions) -> float:
        """Return the value of `freeze`."""
        return self.freeze(predictions).value

    @property
    def text(self) -> str:
        """The rule as it is given, without the split; empty for a number."""
        return {"value": "", "youden": "youden"}.get(self.rule, f"{self.rule}={self.goal:g}")

    def _images(self, predictions: Predictions) -> tuple[Split, Predictions]:
        """The images that choose: in-domain ones where there are any."""
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

"""Which images are referred: those whose uncertainty lies above a threshold, which is given or follows from a rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.metrics.proportions import finite_or_none
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions


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

    def refers(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether images of these uncertainties (N,) are referred."""
        return np.asarray(values > self.threshold)

    def to_dict(self) -> JsonObject:
        """Return the rule for JSON."""
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
    """Return the rules of several rates; see `referral_rule`."""
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
    return [
        ReferralRule(limit, name, rate, split, len(values)) for limit, rate in zip(limits, rates, strict=True)
    ]

"""`Assumptions` of a study plan: stated, or what a pilot says."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.metrics.clinical.decision_threshold import DEFAULT, DecisionThreshold, FrozenThreshold
from retinabench.metrics.clinical.operating_points import two_by_two
from retinabench.metrics.intervals import auroc_error
from retinabench.metrics.planning.clusters import Clusters, intra_patient_correlation
from retinabench.metrics.weighted_images import EPS, is_positive
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Assumptions:
    """What is expected of the model and of the images.

    Attributes:
        prevalence: Share of referable images.
        sensitivity: Per image, at the decision threshold.
        specificity: Per image, at the decision threshold.
        auroc: Per image.
        clusters: How images are shared by patients.
        threshold: The decision threshold as a probability, for the net benefit; None: that of a calibrated model with this
            AUROC and sensitivity.
        predictors: Linear predictors logit(p) of a pilot; None: those of a calibrated model with this AUROC.
        origin: Where the numbers come from.
    """

    prevalence: float
    sensitivity: float = 0.9
    specificity: float = 0.9
    auroc: float = 0.95
    clusters: Clusters = field(default_factory=Clusters)
    threshold: float | None = None
    predictors: Floats | None = None
    origin: str = "stated"

    def __post_init__(self) -> None:
        if not 0 < self.prevalence < 1:
            raise InputError(f"the prevalence is {self.prevalence:g}", hint="It lies between 0 and 1.")
        for title, least in (("sensitivity", 0.0), ("specificity", 0.0), ("AUROC", 0.5)):
            value = getattr(self, title.lower())
            if not least < value < 1:
                raise InputError(
                    f"the {title} is {value:g} ({self.origin})",
                    hint=f"A study is planned for a value between {least:g} and 1: state one, such as --{title.lower()} 0.95.",
                )

    def to_dict(self) -> JsonObject:
        """Return the assumptions for JSON; of a pilot's linear predictors only their number."""
        content = {
            name: value for name, value in vars(self).items() if name not in ("clusters", "predictors")
        }
        pilot = None if self.predictors is None else len(self.predictors)
        return content | asdict(self.clusters) | {"pilot_images": pilot}


@dataclass(frozen=True)
class Stated:
    """Values that a user states in place of a pilot's or of the defaults, see `Assumptions`; None where nothing is stated."""

    prevalence: float | None = None
    sensitivity: float | None = None
    specificity: float | None = None
    auroc: float | None = None
    images_per_patient: float | None = None
    correlation: float | None = None

    def among(self, *names: str) -> dict[str, float]:
        """Return those of some values that are stated, by name."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


NOTHING = Stated()
_RATES = ("prevalence", "sensitivity", "specificity", "auroc")


def stated_assumptions(
    stated: Stated,
    pilot: Predictions | None = None,
    threshold: DecisionThreshold | float | str = DEFAULT,
) -> Assumptions:
    """Return assumptions: what is stated, then what a pilot says, then the defaults."""
    if pilot is not None:
        found = from_pilot(pilot, DecisionThreshold.parse(threshold).freeze(pilot), stated)
    elif stated.prevalence is not None:
        found = Assumptions(**stated.among(*_RATES))  # type: ignore[arg-type]
    else:
        raise InputError(
            "the prevalence is not known",
            hint="Give --prevalence, such as 0.1, or the predictions of a pilot.",
        )
    mates = found.clusters.mates if stated.images_per_patient is None else None
    shared = stated.among("images_per_patient", "correlation")
    return replace(found, clusters=replace(found.clusters, **shared, mates=mates))


def from_pilot(predictions: Predictions, threshold: FrozenThreshold, stated: Stated = NOTHING) -> Assumptions:
    """Return the assumptions that a pilot gives: those of its in-domain test images."""
    part = predictions.select(domain="in_domain", split="test") or predictions.select(split="test")
    if part is None or not 0 < part.label.mean() < 1:
        raise InputError("needs test images of both classes", file=predictions.source, column="label")
    y, said = part.label == 1, is_positive(part.prob, threshold.value)
    table = two_by_two(y, said)
    clusters = Clusters(images_per_patient=1, correlation=0, disease_correlation=0)
    sizes = np.ones(len(part)) if part.patient_id is None else np.unique_counts(part.patient_id).counts
    if part.patient_id is not None and sizes.max() > 1:
        of_class = [
            intra_patient_correlation(said[rows] == y[rows], part.patient_id[rows]) for rows in (y, ~y)
        ]
        known = [one for one in of_class if math.isfinite(one)]
        disease = intra_patient_correlation(y, part.patient_id)
        default = Clusters()
        right = max(known, default=default.correlation)
        clusters = Clusters(float(sizes.mean()), right, disease, float(sizes @ sizes / sizes.sum()))
    rates = {
        "prevalence": float(y.mean()),
        "sensitivity": table.sensitivity,
        "specificity": table.specificity,
        "auroc": max(auroc_error(y, part.prob).auroc, 0.501),
    }
    return Assumptions(
        **(rates | stated.among(*_RATES)),
        clusters=clusters,
        threshold=threshold.value,
        predictors=np.asarray(logit(np.clip(part.prob, EPS, 1 - EPS)), np.float64),
        origin=f"pilot of {len(part):,} images",
    )

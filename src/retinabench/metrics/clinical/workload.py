"""What referral costs an expert: images and patients to read, and the hours that this takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.inference.bootstrap import cluster_codes
from retinabench.metrics.inference.interval import Interval, finite_or_none
from retinabench.metrics.inference.proportions import clustered_proportion
from retinabench.predictions.table import Predictions

PATIENTS = 1000
"""Hours are stated for so many patients."""


@dataclass(frozen=True)
class Workload:
    """The work of the expert.

    Args:
        images: Share of the images that are referred.
        patients: Share of the patients of whom an image is referred; of the images where patients are not known.
        found: Of the referred images, the share that is referable.
        images_per_patient: Mean number of images of a patient.
        images_per_hour: What an expert reads; stated, not measured.
    """

    images: Interval
    patients: Interval
    found: Interval
    images_per_patient: float
    images_per_hour: float

    @property
    def hours(self) -> float:
        """Expert hours for 1,000 patients, reading the referred images."""
        return PATIENTS * self.images_per_patient * self.images.value / self.images_per_hour

    @property
    def hours_reading_all(self) -> float:
        """Expert hours for 1,000 patients, reading every image."""
        return PATIENTS * self.images_per_patient / self.images_per_hour

    @property
    def images_per_expert_hour(self) -> float:
        """Images that are screened in the time in which an expert works for an hour; infinite where none is referred."""
        return self.images_per_hour / self.images.value if self.images.value else np.inf

    @property
    def patients_per_expert_hour(self) -> float:
        """Patients who are screened in the time in which an expert works for an hour."""
        return self.images_per_expert_hour / self.images_per_patient

    def to_dict(self) -> dict[str, Any]:
        """Return the part of the JSON."""
        shares = {name: getattr(self, name).to_dict() for name in ("images", "patients", "found")}
        names = ("images_per_patient", "images_per_hour", "hours", "hours_reading_all", "images_per_expert_hour",
                 "patients_per_expert_hour")  # fmt: skip
        return shares | {name: finite_or_none(getattr(self, name)) for name in names}


def workload(part: Predictions, referred: NDArray[np.bool_], images_per_hour: float) -> Workload:
    """Return the work that a referral means.

    Args:
        part: N images.
        referred: (N,) whether the image is referred.
        images_per_hour: What an expert reads in an hour.

    Returns:
        Shares with clustered intervals, and hours.
    """
    codes, patients = cluster_codes(part.image_id if part.patient_id is None else part.patient_id)
    any_image = np.bincount(codes, referred, patients) > 0
    every = np.ones(patients, bool)
    return Workload(
        clustered_proportion(referred, np.ones(len(codes)), codes),
        clustered_proportion(any_image, every, np.arange(patients)),
        clustered_proportion(part.label, referred, codes),
        len(codes) / patients,
        images_per_hour,
    )

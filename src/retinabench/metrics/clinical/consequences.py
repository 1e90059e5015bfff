"""What follows from a referral: the disease that is missed all the same, and the expert's work.

An image is missed where it is referable and neither called referable nor sent to an expert.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import JsonObject, json_content
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.proportions import Interval, clustered_proportion
from retinabench.predictions.table import Predictions

SEVERE = 3
"""The first grade of severe disease: severe non-proliferative (3) and proliferative (4) retinopathy."""
PATIENTS = 1000
"""Hours are stated for so many patients."""
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MissedImage:
    """A referable image that the model calls not referable and retains."""

    image_id: str
    patient_id: str | None
    grade: int | None
    prob: float
    uncertainty: float


@dataclass(frozen=True)
class Missed:
    """What is missed after referral, per image, and what referral adds."""

    referable: Interval
    severe: Interval | None
    alone: Interval
    caught: Interval
    errors_caught: Interval
    images: tuple[MissedImage, ...]
    patients: tuple[str, ...]
    referable_patients: int
    severe_total: int
    curve: tuple[Floats, Floats]

    @property
    def severe_images(self) -> tuple[MissedImage, ...]:
        """The missed images of grade 3 and 4."""
        return tuple(one for one in self.images if one.grade is not None and one.grade >= SEVERE)

    def to_dict(self) -> JsonObject:
        """Return the part of the JSON."""
        shares = {
            name: getattr(self, name) for name in ("referable", "severe", "alone", "caught", "errors_caught")
        }
        referred, missed = self.curve
        content = {
            **shares,
            "images": self.images,
            "patients": self.patients,
            "referable_patients": self.referable_patients,
            "severe_images": self.severe_total if self.severe is not None else None,
            "curve": {"referred": referred, "missed": missed},
        }
        return {name: json_content(one) for name, one in content.items()}


def missed_disease(
    part: Predictions, positive: Bools, referred: Bools, uncertainty: NDArray[np.float64]
) -> Missed:
    """Return what a model with referral misses.

    Shapes: `positive` (N,), `referred` (N,), `uncertainty` (N,).
    """
    y = part.label == 1
    patient = part.image_id if part.patient_id is None else part.patient_id
    codes, _ = cluster_codes(patient)
    lost = y & ~positive & ~referred
    grade = np.full(len(y), -1) if part.grade is None else part.grade
    order = np.lexsort((part.image_id, part.prob, -grade))
    images = tuple(
        MissedImage(
            str(part.image_id[k]),
            None if part.patient_id is None else str(part.patient_id[k]),
            int(grade[k]) if grade[k] >= 0 else None,
            float(part.prob[k]),
            float(uncertainty[k]),
        )
        for k in order[lost[order]]
    )
    ids = np.unique(patient)
    ill, seen = (np.bincount(codes, case, len(ids)) > 0 for case in (y, positive | referred))
    return Missed(
        clustered_proportion(lost, y, codes),
        None if part.grade is None else clustered_proportion(lost, y & (grade >= SEVERE), codes),
        clustered_proportion(~positive, y, codes),
        clustered_proportion(referred, y & ~positive, codes),
        clustered_proportion(referred, y != positive, codes),
        images,
        tuple(str(one) for one in ids[ill & ~seen]),
        int(ill.sum()),
        int((y & (grade >= SEVERE)).sum()),
        _missed_curve(y, y & ~positive, uncertainty),
    )


def _missed_curve(y: Bools, lost: Bools, uncertainty: Floats) -> tuple[Floats, Floats]:
    """Missed share at every percent of referral, the most uncertain first."""
    order = np.argsort(-uncertainty, kind="stable")
    ranked = uncertainty[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, len(ranked))
    left = lost.sum() - np.append(0, np.cumsum(lost[order])[ends - 1])
    referred = np.linspace(0, 1, 101)
    missed = np.interp(referred, np.append(0, ends) / len(ranked), left)
    return referred, missed / y.sum() if y.any() else np.full(101, np.nan)


@dataclass(frozen=True)
class Workload:
    """The work of the expert."""

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

    def to_dict(self) -> JsonObject:
        """Return the part of the JSON."""
        names = ("images", "patients", "found", "images_per_patient", "images_per_hour", "hours", "hours_reading_all", "images_per_expert_hour",
                 "patients_per_expert_hour")  # fmt: skip
        return {name: json_content(getattr(self, name)) for name in names}


def workload(part: Predictions, referred: NDArray[np.bool_], images_per_hour: float) -> Workload:
    """Return the work that a referral means.

    Shapes: `referred` (N,).
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

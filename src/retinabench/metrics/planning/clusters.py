"""Images of one patient are not independent: what that costs, as a design effect.

>>> Clusters(images_per_patient=2, correlation=0.5, disease_correlation=1.0).positive_effect(0.1)
1.5
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from retinabench.core.errors import InputError
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.proportions import binary


@dataclass(frozen=True)
class Clusters:
    """How images are shared by patients.

    A design effect D says that D dependent images tell as much as one independent image: 1 + (size - 1) x correlation, with
    the size of the group of images that share a patient *and* a label, as met by a random image of that label.

    Attributes:
        images_per_patient: Mean number of images of a patient, at least 1.
        correlation: Correlation, within a patient, of the model's being right on two images of the same label.
        disease_correlation: Correlation of the labels of two images of a patient. 1: both eyes or neither are diseased,
            which gives the largest design effect.
        mates: Mean number of images of the patient of a random image, sum m_i^2 / sum m_i, which counts where patients have
            unequally many; None: all have equally many.
    """

    images_per_patient: float = 2.0
    correlation: float = 0.5
    disease_correlation: float = 1.0
    mates: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.images_per_patient < np.inf:
            raise InputError(
                f"a patient has {self.images_per_patient:g} images", hint="The mean is 1 or more, such as 2."
            )
        for name in ("correlation", "disease_correlation"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(
                    f"the {name.replace('_', ' ')} is {getattr(self, name):g}", hint="It lies in [0, 1]."
                )

    def positive_effect(self, prevalence: float) -> float:
        """Return the design effect among the positive images at this prevalence."""
        return self._effect(prevalence + self.disease_correlation * (1 - prevalence))

    def negative_effect(self, prevalence: float) -> float:
        """Return the design effect among negative images of this prevalence."""
        return self._effect(1 - prevalence + self.disease_correlation * prevalence)

    @property
    def effect(self) -> float:
        """The design effect of a mean over all images of a patient."""
        return self._effect(1.0)

    def _effect(self, shared: float) -> float:
        """Return 1 + (m - 1) x P(another image of the patient has the label of this one) x correlation."""
        size = self.images_per_patient if self.mates is None else self.mates
        return 1 + (size - 1) * shared * self.correlation


def intra_patient_correlation(success: ArrayLike, cluster: ArrayLike | Sequence[Hashable]) -> float:
    """Return the correlation of a yes/no outcome between images of a patient.

    With Y_i successes among the m_i images of patient i, M images, G patients and p = sum Y_i / M:
    1 - sum Y_i (m_i - Y_i) / m_i / ((M - G) p (1 - p)), cut to [0, 1].

    References:
        Fleiss and Cuzick, The reliability of dichotomous judgments: unequal numbers of judges per subject, Appl. Psychol.
        Meas. 3:537 (1979).

    Shapes: `success` (N,), `cluster` (N,).
    """
    hit = binary(success, "success")
    codes, patients = cluster_codes(cluster)
    images = np.bincount(codes, minlength=patients)
    successes = np.bincount(codes, hit, patients)
    p = float(hit.mean())
    scale = (len(hit) - patients) * p * (1 - p)
    if scale <= 0:
        return float("nan")
    within = float(np.sum(successes * (images - successes) / images))
    return float(np.clip(1 - within / scale, 0, 1))

"""How much a model's probability and its uncertainty change, per image and on average over patients.

For an image x with a concept c, and f the model's P(referable) or one of its uncertainties,

    occluded = f(x with c filled) - f(x),    control = mean_k f(x with control k filled) - f(x),

and the effect of the concept is their difference. Averages are over images, their intervals over patients (cluster
bootstrap).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import Document, JsonObject
from retinabench.core.version import __version__
from retinabench.metrics.bootstrap import cluster_bootstrap, percentile_interval
from retinabench.metrics.proportions import Interval

Floats = NDArray[np.float64]
SCHEMA = "retinabench.occlusion/1"
KINDS = ("occluded", "control", "difference", "rendered", "error")
"""Changes: with the concept filled, with the control filled, the first minus the second, with the concept left out of the
drawing, and what filling changes beyond that."""


@dataclass(frozen=True)
class Effect(Document):
    """What removing a concept does to a model."""

    concept: str
    images: int
    patients: int
    without_control: int
    area: float | None
    before: float | None
    probability: Mapping[str, Interval]
    uncertainty: Mapping[str, Interval]
    epistemic: Mapping[str, Interval] | None
    referred: int
    reversed_occluded: int
    reversed_control: float


@dataclass(frozen=True)
class ConceptFreeImages(Document):
    """Images without any concept: their number and their mean P(referable), None where there are none."""

    images: int
    probability: float | None


@dataclass(frozen=True)
class Occlusion(Document):
    """What the lesions of a bank contribute to a model's decision."""

    bank: str
    drawn: bool
    model: str
    weights: str
    size: int
    samples: int
    images: int
    patients: int
    controls: int
    replicates: int
    seed: int
    reference: ConceptFreeImages
    effects: Sequence[Effect]
    notes: Sequence[str]

    def to_dict(self) -> JsonObject:
        """Return the content of `occlusion.json`."""
        return {"schema": SCHEMA, **super().to_dict(), "version": __version__}


@dataclass(frozen=True, eq=False)
class OccludedImage:
    """What a model says of the versions of one image that has a concept.

    Each value is a row of three: P(referable), total and epistemic uncertainty (NaN without posterior samples).

    Shapes: `controls` (K, 3).
    """

    image_id: str
    patient_id: str
    concept: str
    area: float
    original: Floats
    occluded: Floats
    controls: Floats
    rendered: Floats | None

    def changes(self) -> Floats:
        """Return (5, 3): the changes of `KINDS`, NaN where they are unknown."""
        nothing = np.full(3, np.nan)
        occluded = self.occluded - self.original
        control = self.controls.mean(axis=0) - self.original if len(self.controls) else nothing
        rendered = nothing if self.rendered is None else self.rendered - self.original
        return np.stack([occluded, control, occluded - control, rendered, occluded - rendered])


def effect_of(concept: str, answered: Sequence[OccludedImage], *, replicates: int, seed: int) -> Effect:
    """Return the effect of a concept."""
    used = [one for one in answered if len(one.controls)]
    changes = np.stack([one.changes() for one in used]) if used else np.empty((0, len(KINDS), 3))
    probability, uncertainty, epistemic = (
        _averages(changes[..., k], [one.patient_id for one in used], replicates, seed) for k in range(3)
    )
    referred = [one for one in used if one.original[0] >= 0.5]
    return Effect(
        concept=concept,
        images=len(used),
        patients=len({one.patient_id for one in used}),
        without_control=len(answered) - len(used),
        area=float(np.mean([one.area for one in used])) if used else None,
        before=float(np.mean([one.original[0] for one in used])) if used else None,
        probability=probability,
        uncertainty=uncertainty,
        epistemic=epistemic if np.isfinite(epistemic["occluded"].value) else None,
        referred=len(referred),
        reversed_occluded=sum(bool(one.occluded[0] < 0.5) for one in referred),
        reversed_control=float(sum((one.controls[:, 0] < 0.5).mean() for one in referred)),
    )


def _averages(values: Floats, patients: Sequence[str], replicates: int, seed: int) -> dict[str, Interval]:
    """Return the means over images of changes (N, 5), with intervals over patients."""
    if not len(values):
        return {kind: Interval(np.nan) for kind in KINDS}

    def means(weight: Floats) -> Floats:
        return np.asarray(weight @ values / weight.sum())

    low, high = percentile_interval(cluster_bootstrap(means, patients, replicates=replicates, seed=seed))
    point = values.mean(axis=0)
    return {kind: Interval(*(float(ends[k]) for ends in (point, low, high))) for k, kind in enumerate(KINDS)}

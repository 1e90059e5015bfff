"""The decision that predictions serve: to refer a patient to an expert or not, at unequal costs of the two errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity.targets.targets import Target

# The classes that need an expert: grades from 2 on; of skin, the malignant and pre-malignant ones.
REFERABLE = {
    "fundus": (2, 3, 4),
    "idrid": (2, 3, 4),
    "retinamnist": (2, 3, 4),
    "dermamnist": (0, 1, 4),
}
MISSED, NEEDLESS = (
    4.0,
    1.0,
)  # cost of not referring one who needs it, and of referring one who does not: P > 1/5 is referred


def referable(target: Target) -> NDArray[np.bool_] | None:
    """Return which classes (C,) need an expert, or None where the task has no such decision."""
    if target.name not in REFERABLE:
        return None
    return np.isin(np.arange(target.outputs), REFERABLE[target.name])


def costs(target: Target) -> NDArray[np.float64] | None:
    """Return the costs (2, C) of leaving and of referring, for `distances.decision_regret`."""
    needs = referable(target)
    return None if needs is None else np.stack([MISSED * needs, NEEDLESS * ~needs])

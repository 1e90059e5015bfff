"""Test whether new patients have the distribution of uncertainty that the validation patients had."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.inference.bootstrap import cluster_codes
from retinabench.metrics.uncertainty import uncertainties


@dataclass(frozen=True)
class Resemblance:
    """Kolmogorov-Smirnov distance of two uncertainty distributions, its permutation p-value, and the verdict at `level`."""

    distance: float
    p_value: float
    level: float
    permutations: int

    @property
    def void(self) -> bool:
        """Whether exchangeability is refuted at `level`: a guarantee from the first set does not hold on the second."""
        return self.p_value <= self.level

    def to_dict(self) -> dict[str, Any]:
        """The fields and the verdict."""
        return {**vars(self), "void": self.void}


def resemblance(
    uncertainty_a: ArrayLike,
    patient_a: ArrayLike | Sequence[Hashable] | None,
    uncertainty_b: ArrayLike,
    patient_b: ArrayLike | Sequence[Hashable] | None,
    *,
    permutations: int = 999,
    level: float = 0.05,
    seed: int = 0,
) -> Resemblance:
    """Test whether two sets of patients have the same distribution of uncertainty.

    The statistic is max_t |F_a(t) - F_b(t)| of the empirical distributions of the images. Whole patients are exchanged between
    the sets, so that the p-value (1 + #{permuted >= observed}) / (1 + permutations) is exact: exchangeable patients are
    called shifted with probability at most `level`. It sees changes of the uncertainty and no others: "not refuted" is not
    "proven". Labels are not used, so that it can be run on new patients before any expert has read them.

    Args:
        uncertainty_a: (N_a,) finite.
        patient_a: (N_a,) patients; None: every image its own.
        uncertainty_b: (N_b,) finite.
        patient_b: (N_b,) patients; None: every image its own.
        permutations: Number of permutations.
        level: Level of the test.
        seed: Seed of the permutations.

    Returns:
        Distance, p-value and verdict.

    Raises:
        InputError: A set is empty.
    """
    a, b = (uncertainties(values, len(np.asarray(values))) for values in (uncertainty_a, uncertainty_b))
    if not len(a) or not len(b):
        raise InputError("both sets must hold images to be compared")
    codes_a, patients_a = cluster_codes(np.arange(len(a)) if patient_a is None else patient_a)
    codes_b, patients_b = cluster_codes(np.arange(len(b)) if patient_b is None else patient_b)
    values, codes = np.concatenate([a, b]), np.concatenate([codes_a, codes_b + patients_a])
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    codes = codes[order]
    in_a = np.arange(patients_a + patients_b) < patients_a
    rng = np.random.default_rng([seed, 0x5117])
    observed = _distance(in_a[codes], ends)
    reached = sum(
        _distance(rng.permutation(in_a)[codes], ends) >= observed - 1e-12 for _ in range(permutations)
    )
    return Resemblance(observed, (1 + reached) / (1 + permutations), level, permutations)


def _distance(in_a: NDArray[np.bool_], ends: NDArray[np.intp]) -> float:
    count_a = np.cumsum(in_a)[ends]
    count_b = ends + 1 - count_a
    return float(np.abs(count_a / count_a[-1] - count_b / count_b[-1]).max())

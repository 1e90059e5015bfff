"""A screen for covariate shift: do new patients have the probabilities and uncertainties that the validation patients had?

It needs no labels, and it is no test of the guarantee. A guarantee can break without any change of these distributions: errors of
which the model is sure look like correct calls. Where such errors broke the guarantee, the screen gave no alarm in nearly all
simulated studies (`docs/monitoring.md`); and a shift that it finds may leave the guarantee intact.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import Document, JsonObject
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.decisions import uncertainties

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Resemblance(Document):
    """The largest Kolmogorov-Smirnov distance of two sets, its permutation p-value, and the verdict at `level`."""

    distance: float
    p_value: float
    level: float
    permutations: int

    @property
    def alarm(self) -> bool:
        """Whether exchangeability is refuted at `level`: the guarantee is then about other patients than these."""
        return self.p_value <= self.level

    def to_dict(self) -> JsonObject:
        return {**super().to_dict(), "alarm": self.alarm}


def resemblance(
    values_a: ArrayLike,
    patient_a: ArrayLike | Sequence[Hashable] | None,
    values_b: ArrayLike,
    patient_b: ArrayLike | Sequence[Hashable] | None,
    *,
    permutations: int = 999,
    level: float = 0.05,
    seed: int = 0,
) -> Resemblance:
    """Test whether two sets of patients have the same distributions of some values, such as uncertainty and probability.

    The statistic is the largest of max_t |F_a(t) - F_b(t)| over the values, F being the empirical distributions of the images. Whole
    patients are exchanged between the sets, so that the p-value (1 + #{permuted >= observed}) / (1 + permutations) is exact:
    exchangeable patients are called shifted with probability at most `level`, however many values are compared.
    """
    a, b = (np.asarray(values, np.float64) for values in (values_a, values_b))
    if not len(a) or not len(b):
        raise InputError("both sets must hold images to be compared")
    codes_a, patients_a = cluster_codes(np.arange(len(a)) if patient_a is None else patient_a)
    codes_b, patients_b = cluster_codes(np.arange(len(b)) if patient_b is None else patient_b)
    codes = np.concatenate([codes_a, codes_b + patients_a])
    both = np.concatenate([a.reshape(len(a), -1), b.reshape(len(b), -1)]).T
    ranked = [_ranked(uncertainties(values, len(codes)), codes) for values in both]

    def largest(in_a: NDArray[np.bool_]) -> float:
        return max(_distance(in_a[ordered], ends) for ordered, ends in ranked)

    in_a = np.arange(patients_a + patients_b) < patients_a
    rng = np.random.default_rng([seed, 0x5117])
    observed = largest(in_a)
    reached = sum(largest(rng.permutation(in_a)) >= observed - 1e-12 for _ in range(permutations))
    return Resemblance(observed, (1 + reached) / (1 + permutations), level, permutations)


def _ranked(values: Floats, codes: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(N,) patients in the order of their values, and the last place of each distinct value."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    return codes[order], np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))


def _distance(in_a: NDArray[np.bool_], ends: NDArray[np.intp]) -> float:
    count_a = np.cumsum(in_a)[ends]
    count_b = ends + 1 - count_a
    return float(np.abs(count_a / count_a[-1] - count_b / count_b[-1]).max())

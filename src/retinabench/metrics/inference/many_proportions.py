"""Intervals of many proportions of the same images at once: what `clustered_proportion` gives for each, up to rounding.

A grid of thresholds asks for tens of thousands of intervals, of which each alone takes longer than all of one row together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from retinabench.metrics.inference.proportions import PRIOR_PATIENTS, clopper_pearson, jeffreys

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sums:
    """What the intervals of K proportions need of their images, all (K,).

    Attributes:
        value: The proportions, NaN where no image counts.
        effective: The effective number of images of each; see `effective_images`.
        copies: The same, if the images of a patient were copies of each other.
        patients: Number of patients with an image that counts.
    """

    value: Floats
    effective: Floats
    copies: Floats
    patients: NDArray[np.intp]

    @classmethod
    def joined(cls, parts: Sequence[Sums]) -> Sums:
        """Return the sums of several groups of proportions one after the other."""
        return cls(
            *(np.concatenate([getattr(one, name) for one in parts]) for name in cls.__dataclass_fields__)
        )


def patient_starts(codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return where the images of each patient begin, for images sorted by patient."""
    return np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]]) if len(codes) else np.empty(0, np.intp)


def proportion_sums(success: ArrayLike, weight: ArrayLike, starts: NDArray[np.intp]) -> Sums:
    """Return the sums of K proportions over the same N images.

    Args:
        success: (K, N) or (N,) in [0, 1].
        weight: (K, N) or (N,) >= 0, what each image counts for; at least one of the two has two axes.
        starts: (G,) where the images of each patient begin; the images are sorted by patient.

    Returns:
        Their sums, for `proportion_intervals`.
    """
    y, w = np.broadcast_arrays(np.asarray(success, np.float64), np.asarray(weight, np.float64))
    rows = len(y)
    if not y.shape[1]:
        nothing = np.full(rows, np.nan)
        return Sums(nothing, nothing, nothing, np.zeros(rows, np.intp))
    hits = np.add.reduceat(w * y, starts, axis=1)
    misses = np.add.reduceat(w * (1 - y), starts, axis=1)
    of_patient = hits + misses
    total, images, patients = of_patient.sum(1), (w > 0).sum(1), (of_patient > 0).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.where(misses.any(1), np.where(hits.any(1), hits.sum(1) / total, 0.0), 1.0)
        p[total == 0] = np.nan
        copies = total**2 / np.einsum("ij,ij->i", of_patient, of_patient)
        alone = total**2 / np.einsum("ij,ij->i", w, w)
        residual = hits - p[:, None] * of_patient
        linear = patients / (patients - 1) * np.einsum("ij,ij->i", residual, residual) / total**2
        found = np.maximum(np.where(patients < images, linear, 0.0), p * (1 - p) / alone)
        seen = np.minimum((hits > 0).sum(1), (misses > 0).sum(1))
        inverse = (seen * found / (p * (1 - p)) + PRIOR_PATIENTS / copies) / (seen + PRIOR_PATIENTS)
        t, z = stats.t.ppf(0.975, np.maximum(patients - 1, 1)), stats.norm.ppf(0.975)
        effective = np.where(patients == images, 1.0, (z / t) ** 2) / inverse
    return Sums(p, effective, copies, patients)


def proportion_intervals(sums: Sums) -> tuple[Floats, Floats]:
    """Return the ends (K,) of the 95 % intervals of `clustered_proportion`.

    Args:
        sums: What is known of K proportions.

    Returns:
        Low and high ends; NaN where no image counts or all that count are of one patient.
    """
    p = sums.value
    low, high = np.full((2, len(p)), np.nan)
    known = sums.patients > 1
    inner = known & (p > 0) & (p < 1)
    perfect = np.full(len(p), np.nan)
    perfect[known] = clopper_pearson(sums.copies[known], sums.copies[known])[0]
    n = sums.effective[inner]
    found = jeffreys(p[inner] * n, n)
    low[inner] = np.minimum(np.minimum(p[inner], perfect[inner]), found[0])
    high[inner] = np.maximum(np.maximum(p[inner], 1 - perfect[inner]), found[1])
    never, always = known & (p == 0), known & (p == 1)
    low[never], high[never] = 0.0, 1 - perfect[never]
    low[always], high[always] = perfect[always], 1.0
    return low, high

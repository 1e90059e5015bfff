"""The debiased calibration error of images of shared patients, with an interval.

An expected calibration error adds up |gap| over bins, and chance makes every gap larger: a calibrated model never has 0, its
replicates scatter even more, and no bootstrap interval holds its true 0. Here the gaps are squared, which lets chance be taken
off exactly, and the interval is found by inverting a test.

With the residual r_gb = sum w_i (y_i - f_i) and the mass m_gb = sum w_i of patient g in bin b of 15, only different patients
are multiplied, so that each term has the square of the true gap as its mean:

    error^2 = sum over bins of share_b x (r_b^2 - sum_g r_gb^2) / (m_b^2 - sum_g m_gb^2)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.calibration.binned import BINS, Of, judged, width_bin
from retinabench.metrics.sorted_images import Weighted

Floats = NDArray[np.float64]
NULL_DRAWS, STEPS = 2000, 120
PATIENTS = 2**17
"""Patients whose sums are in memory at once."""


def calibration_error_of(w: Weighted, of: Of = "positive_class") -> float:
    """Return the debiased root mean square gap between what is observed and forecast, over 15 bins of equal width.

    Args:
        w: The weighted images.
        of: `top_label` (confidence in the decision, p or 1-p, against being right) or `positive_class` (p against y).

    Returns:
        The error, 0 where the squared gaps are no larger than chance makes them; NaN where no bin has two patients.

    References:
        Kumar, Liang and Ma, Verified uncertainty calibration, NeurIPS 2019, whose debiased estimator takes images as independent.
    """
    found = w.derived(_SUMS[of])
    if not found.known.any():
        return float("nan")
    return float(np.sqrt(max(found.square, 0.0)))


def calibration_error_interval(
    w: Weighted, level: float = 0.95, *, of: Of = "positive_class"
) -> tuple[float, float]:
    """Return the interval of `calibration_error_of`, which may begin at 0.

    The estimated gaps are normal about the true ones, with the covariance of the sums over patients. Of the true gaps only
    their size is sought and their proportions are taken as estimated: the interval holds every size under which the squared
    error found lies between the (1-level)/2 and (1+level)/2 quantiles. It holds 0 exactly where a calibrated model could
    have shown as much.

    Args:
        w: The weighted images.
        level: Level of the interval.
        of: As in `calibration_error_of`.

    Returns:
        The ends; NaN where no bin has two patients.
    """
    sums = w.derived(_SUMS[of])
    if not sums.known.any():
        return float("nan"), float("nan")
    found, share, gap = sums.square, sums.share, sums.gap
    values, vectors = np.linalg.eigh(sums.scatter())
    noise = _normals(len(gap)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    size = float(np.sqrt(share @ gap**2))
    along = 2 * noise @ (share * gap) / size if size > 0 else np.zeros(len(noise))
    chance = noise**2 @ share
    chance -= chance.mean()
    largest = np.sqrt(max(found, 0.0)) + 2 * np.std(along) + 2 * np.sqrt(np.std(chance)) + 1e-12
    sizes = np.linspace(0, largest, STEPS)
    tails = [(1 - level) / 2, (1 + level) / 2]
    lowest, highest = np.quantile(sizes[:, None] ** 2 + np.outer(sizes, along) + chance, tails, axis=1)
    # Gaps even smaller than a calibrated model's bound the error as those would that chance explains exactly.
    return _first(sizes, highest - found), _last(sizes, (found if found > lowest[0] else 0.0) - lowest)


class _Sums:
    """What the errors need of the residual and mass of each patient in each of the M bins, of which K have two patients.

    Attributes: `known` (M,) these bins; `share` (K,) of their mass; `gap` (K,) observed - forecast; `square` the squared error, 0
    in expectation for a calibrated model.
    """

    def __init__(self, w: Weighted, of: Of) -> None:
        self.w, self.of = w, of
        residual, mass, squares, held = (np.zeros(BINS) for _ in range(4))
        of_mass = np.zeros(BINS)
        for some, masses in self._parts():
            residual += some.sum(axis=1)
            mass += masses.sum(axis=1)
            squares += np.sum(some**2, axis=1)
            of_mass += np.sum(masses**2, axis=1)
            held += np.count_nonzero(masses, axis=1)
        self.known = held > 1
        self.total = mass[self.known]
        self.share = self.total / self.total.sum() if self.known.any() else self.total
        self.gap = residual[self.known] / self.total
        above = residual[self.known] ** 2 - squares[self.known]
        self.square = float(self.share @ (above / (self.total**2 - of_mass[self.known])))

    def scatter(self) -> Floats:
        """(K, K) sums over patients of the products of their residuals in two bins, each over the bin's mass."""
        found = np.zeros((len(self.total), len(self.total)))
        for residual, _ in self._parts():
            scatter = residual[self.known] / self.total[:, None]
            found += scatter @ scatter.T
        return found

    def _parts(self) -> Iterator[tuple[Floats, Floats]]:
        """Residual and mass of some patients in each bin, both (M, G)."""
        w, patient = self.w, self.w.cases.patient
        forecast, happened = judged(w.cases, self.of)
        bin_of, patients = width_bin(forecast, BINS), int(patient.max()) + 1
        order = np.argsort(patient, kind="stable") if patients > PATIENTS else None
        places = (
            None
            if order is None
            else np.searchsorted(patient, np.arange(0, patients, PATIENTS), sorter=order)
        )
        for number, first in enumerate(range(0, patients, PATIENTS)):
            rows: slice | NDArray[np.intp] = slice(None)
            if order is not None and places is not None:
                end = places[number + 1] if number + 1 < len(places) else len(order)
                rows = order[places[number] : end]
            count, weight = min(PATIENTS, patients - first), w.weight[rows]
            cell = bin_of[rows] * count + (patient[rows] - first)
            yield (
                _in_cells(cell, weight * (happened[rows] - forecast[rows]), count),
                _in_cells(cell, weight, count),
            )


_SUMS = {of: partial(_Sums, of=of) for of in get_args(Of)}


def _in_cells(cell: NDArray[np.intp], values: Floats, patients: int) -> Floats:
    return np.asarray(np.bincount(cell, values, BINS * patients).reshape(BINS, patients), np.float64)


@lru_cache(maxsize=BINS)
def _normals(bins: int) -> Floats:
    """(2000, bins) standard normal numbers, the same in every call: an interval is a function of the images."""
    return np.random.default_rng(0).standard_normal((NULL_DRAWS, bins))


def _first(sizes: Floats, above: Floats) -> float:
    """The smallest size at which `above` is not negative, between two of them linearly."""
    inside = np.flatnonzero(above >= 0)
    k = int(inside[0]) if len(inside) else len(sizes) - 1
    if k == 0 or above[k] == above[k - 1]:
        return float(sizes[k])
    return float(sizes[k - 1] + (sizes[k] - sizes[k - 1]) * above[k - 1] / (above[k - 1] - above[k]))


def _last(sizes: Floats, above: Floats) -> float:
    """The largest size at which `above` is not negative, between two of them linearly."""
    inside = np.flatnonzero(above >= 0)
    k = int(inside[-1]) if len(inside) else 0
    if k == len(sizes) - 1 or above[k] == above[k + 1]:
        return float(sizes[k])
    return float(sizes[k] + (sizes[k + 1] - sizes[k]) * above[k] / (above[k] - above[k + 1]))

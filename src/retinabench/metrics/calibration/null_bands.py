"""The calibration error of perfectly calibrated probabilities: its null band, by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.metrics.calibration.binned import (
    BINS,
    SPACINGS,
    Floats,
    Of,
    judged,
    means_of,
    width_bin,
)
from retinabench.metrics.inference.replicates import stacked
from retinabench.metrics.sorted_images import Weighted

LEVEL = 0.95  # of the bands
BLOCK = 2**16
"""Images that are drawn at once, so that what is made of them stays in the cache."""


def null_bands_of(w: Weighted, replicates: int = 1000, seed: int = 0) -> dict[Of, tuple[float, float, float]]:
    """Return the ECE that a perfectly calibrated model with these forecasts would show, in bins of equal width.

    What happens is drawn from the forecasts themselves, by a normal variable that the images of a patient share in part: as
    much as their residuals are correlated here (`shared_residual`). Images that fail together scatter every bin more. Both
    meanings of calibration take little more time together than one.

    Args:
        w: The weighted images.
        replicates: Number of draws.
        seed: Seed of the draws.

    Returns:
        Mean, low and high end of the band at `LEVEL`, by what is forecast.
    """
    both: tuple[Of, ...] = get_args(Of)
    errors = _NullDraws(w, both, seed).errors(replicates)
    return {of: _band(column) for of, column in zip(both, errors.T, strict=True)}


def _band(errors: Floats) -> tuple[float, float, float]:
    low, high = np.quantile(errors, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(np.mean(errors)), float(low), float(high)


class _Forecast:
    """One meaning of calibration: what is forecast, in bins, and how a normal variable decides what happens."""

    def __init__(self, w: Weighted, of: Of) -> None:
        forecast, _ = judged(w.cases, of)
        self.sums = SPACINGS["width"](forecast, w.weight, BINS)
        self.mass, self.foreseen = self.sums(w.weight), self.sums(w.weight * forecast)
        self.rare = bool(2 * self.foreseen.sum() < self.mass.sum())
        shared = shared_residual(w, of)
        # Normal variables of single precision: as good here, and drawn in half the time.
        self.cut = stats.norm.ppf(forecast).astype(np.float32)
        self.own, self.common = np.sqrt(np.array([1 - shared, shared], np.float32))
        self.number: NDArray[np.uint8] | None = None
        if (w.weight == 1).all():
            self.number = width_bin(forecast, BINS).astype(np.uint8)

    def happens(
        self, own: NDArray[np.float32], common: NDArray[np.float32], part: slice
    ) -> NDArray[np.bool_]:
        """Whether it happens to each image of a part, from its own normal variable and that of its patient."""
        latent = self.own * own
        if self.common > 0:
            latent += self.common * common
        return np.asarray(latent < self.cut[part])

    def error(self, observed: Floats) -> float:
        """The ECE where so much happened in each bin."""
        return means_of(self.mass, self.foreseen, observed).expected_error()


class _NullDraws:
    """Draws of what happens to the images of a calibrated model, and the ECE of each, by one or both meanings."""

    def __init__(self, w: Weighted, meanings: Sequence[Of], seed: int) -> None:
        self.forecasts = [_Forecast(w, of) for of in meanings]
        self.weight, self.patient = w.weight, w.cases.patient
        self.patients, self.seed = int(self.patient.max()) + 1, seed

    def errors(self, replicates: int) -> Floats:
        """(R, K) errors of each draw by each meaning."""
        return stacked(
            lambda numbers: np.array([self._errors_of(k) for k in numbers]), replicates, len(self.weight)
        )

    def _errors_of(self, number: int) -> list[float]:
        rng, n = np.random.default_rng([self.seed, number]), len(self.weight)
        own = rng.standard_normal(n, np.float32)
        common = rng.standard_normal(self.patients, np.float32) if self._shared else own[:1]
        happened: list[Any] = [0 if one.number is not None else np.empty(n) for one in self.forecasts]
        for start in range(0, n, BLOCK):
            part = slice(start, start + BLOCK)
            of_patient = common[self.patient[part]] if self._shared else own[part]
            for place, one in enumerate(self.forecasts):
                hit = one.happens(own[part], of_patient, part)
                if (
                    one.number is not None
                ):  # counts are exact in every order; those of the rarer case take less time
                    counted = hit if one.rare else ~hit
                    happened[place] += np.bincount(one.number[part][counted], minlength=BINS)
                else:
                    happened[place][part] = self.weight[part] * hit
        return [
            one.error(one.sums(found) if one.number is None else found if one.rare else one.mass - found)
            for one, found in zip(self.forecasts, happened, strict=True)
        ]

    @property
    def _shared(self) -> bool:
        return any(one.common > 0 for one in self.forecasts)


def shared_residual(w: Weighted, of: Of = "positive_class") -> float:
    """Return the correlation of two images of a patient, in the normal variable behind what happens to them.

    The residuals y - f of all pairs of images of a patient have the correlation r = sum (y - f)(y' - f') / sum s s' with
    s^2 = f (1 - f); a shared normal variable of correlation sin(pi r / 2) gives it to forecasts of 1/2.

    Args:
        w: The weighted images.
        of: What is forecast.

    Returns:
        The correlation, in [0, 0.99]; 0 where no patient has two images.
    """
    forecast, happened = judged(w.cases, of)
    patient, residual = w.cases.patient, happened - forecast
    scale = np.sqrt(forecast * (1 - forecast))
    together, expected = (
        float(np.sum(np.bincount(patient, value) ** 2) - value @ value) for value in (residual, scale)
    )
    correlation = together / expected if expected > 1e-12 else 0.0
    return float(np.clip(np.sin(np.pi / 2 * np.clip(correlation, 0, 1)), 0, 0.99))

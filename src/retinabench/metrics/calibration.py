"""Calibration errors in bins, of weighted images.

Two meanings of binary calibration error are in use and are named apart: *top label* (confidence in the answer, p where it
is positive and 1-p where not, against being right) and *positive class* (p against y). Bins of equal width are (low, high],
the first with its low edge; bins of equal mass hold the same number of images, images of equal forecast being shared evenly
where an edge falls among them, so that nothing depends on the order of the rows.

A calibration error of finitely many images is above 0 even for a perfectly calibrated model: read it beside its
`null_band_of`, or use the debiased error of `metrics.calibration_error`, which has an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.inference.replicates import stacked
from retinabench.metrics.sorted_images import Cases, Weighted

Floats = NDArray[np.float64]
Of = Literal["top_label", "positive_class"]
Spacing = Literal["width", "mass"]

BINS = 15
BLOCK = 2**16
"""Images that are drawn at once, so that what is made of them stays in the cache."""


@dataclass(frozen=True)
class Bins:
    """A reliability diagram: per bin (M,) its weight, and the weighted means forecast and observed (NaN if empty)."""

    weight: Floats
    forecast: Floats
    observed: Floats

    @property
    def share(self) -> Floats:
        """(M,) share of the weight."""
        return np.asarray(self.weight / self.weight.sum())

    @property
    def gap(self) -> Floats:
        """(M,) observed - forecast, 0 where empty."""
        return np.where(self.weight > 0, self.observed - self.forecast, 0.0)

    def expected_error(self) -> float:
        """ECE: sum of share x |gap|."""
        return float(self.share @ np.abs(self.gap))


def bins_of(w: Weighted, of: Of = "positive_class", spacing: Spacing = "width", bins: int = BINS) -> Bins:
    """Return the reliability diagram of weighted images.

    Args:
        w: The weighted images.
        of: `top_label` (confidence max(p, 1-p) against being right) or `positive_class` (p against y).
        spacing: Bins of equal `width` or of equal `mass`.
        bins: Number of bins M.

    Returns:
        The M bins.

    Raises:
        InputError: An argument is not known.
    """
    if of not in ("top_label", "positive_class"):
        raise InputError(f"unknown calibration of '{of}'", hint=nearest(of, ("top_label", "positive_class")))
    if spacing not in ("width", "mass"):
        raise InputError(f"unknown spacing '{spacing}'", hint=nearest(spacing, ("width", "mass")))
    if bins < 1:
        raise InputError(f"{bins} bins", hint="Ask for 1 or more.")
    forecast, observed = judged(w.cases, of)
    sums = _SPACINGS[spacing](forecast, w.weight, bins)
    return _means(sums(w.weight), sums(w.weight * forecast), sums(w.weight * observed))


def judged(cases: Cases, of: Of) -> tuple[Floats, Floats]:
    """Forecasts (N,) and what happened, 0 or 1."""
    if of == "top_label":
        return np.where(cases.called, cases.prob, 1 - cases.prob), (~cases.error).astype(np.float64)
    return cases.prob, cases.label.astype(np.float64)


def reliability(
    label: ArrayLike,
    prob: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    of: Of = "positive_class",
    spacing: Spacing = "width",
    bins: int = BINS,
) -> Bins:
    """Return the reliability diagram of arrays.

    Args:
        label: (N,) 0 or 1.
        prob: (N,) P(label = 1).
        weight: (N,) images that each row stands for; None: 1 each.
        of: `top_label` (confidence max(p, 1-p) against being right) or `positive_class` (p against y).
        spacing: Bins of equal `width` or of equal `mass`.
        bins: Number of bins M.

    Returns:
        The M bins.
    """
    return bins_of(Cases(label, prob).weighted(weight), of, spacing, bins)


Sums = Callable[[Floats], Floats]  # (N,) masses of images to (M,) masses of bins


def width_bin(forecast: Floats, bins: int) -> NDArray[np.intp]:
    """(N,) number of the bin (low, high] of equal width that holds each forecast; 0 is in the first."""
    number = np.searchsorted(np.linspace(0, 1, bins + 1), forecast, side="left") - 1
    return np.asarray(np.clip(number, 0, bins - 1))


def _equal_width(forecast: Floats, weight: Floats, bins: int) -> Sums:
    number = width_bin(forecast, bins)
    return lambda mass: np.bincount(number, mass, minlength=bins).astype(np.float64)


def _equal_mass(forecast: Floats, weight: Floats, bins: int) -> Sums:
    """Edges as in dealing W images to bins that differ by at most one, the larger first (whole W)."""
    order = np.argsort(forecast, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(forecast[order])), len(order) - 1)

    def cumulate(mass: Floats) -> Floats:
        return np.concatenate(([0.0], np.cumsum(mass[order])[ends]))

    total = cumulate(weight)
    size, larger = divmod(float(total[-1]), bins)
    edges = np.arange(bins + 1) * size + np.minimum(np.arange(bins + 1), larger)
    if larger != round(larger):  # no whole number of images: equal parts
        edges = np.linspace(0, total[-1], bins + 1)
    keep = np.concatenate(([True], np.diff(total) > 0))
    return lambda mass: np.diff(np.interp(edges, total[keep], cumulate(mass)[keep]))


_SPACINGS: dict[str, Callable[[Floats, Floats, int], Sums]] = {"width": _equal_width, "mass": _equal_mass}


def _means(mass: Floats, forecast: Floats, observed: Floats) -> Bins:
    empty = np.full(len(mass), np.nan)
    return Bins(
        mass,
        np.divide(forecast, mass, out=empty.copy(), where=mass > 0),
        np.divide(observed, mass, out=empty, where=mass > 0),
    )


def ece_top_label_of(w: Weighted) -> float:
    """Expected calibration error of the model's answer, 15 bins of equal width: sum of share x |observed - forecast|.

    References:
        Guo et al., On calibration of modern neural networks, ICML (2017).
    """
    return bins_of(w, "top_label").expected_error()


def ece_positive_class_of(w: Weighted) -> float:
    """Expected calibration error of P(label = 1), 15 bins of equal width: sum of share x |observed - forecast|.

    References:
        Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, AAAI (2015).
        Guo et al., On calibration of modern neural networks, ICML (2017).
    """
    return bins_of(w, "positive_class").expected_error()


def null_band_of(
    w: Weighted,
    of: Of = "positive_class",
    spacing: Spacing = "width",
    bins: int = BINS,
    replicates: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return the ECE that a perfectly calibrated model with these forecasts would show.

    What happens is drawn from the forecasts themselves, by a normal variable that the images of a patient share in part: as
    much as their residuals are correlated here (`shared_residual`). Images that fail together scatter every bin more.

    Args:
        w: The weighted images.
        of: `top_label` (confidence max(p, 1-p) against being right) or `positive_class` (p against y).
        spacing: Bins of equal `width` or of equal `mass`.
        bins: Number of bins M.
        replicates: Number of draws.
        level: Level of the band.
        seed: Seed of the draws.

    Returns:
        Mean, low and high end of the band.
    """
    drawn = _NullDraws(w, (of,), spacing, bins, seed)
    return _band(drawn.errors(replicates)[:, 0], level)


def null_bands_of(
    w: Weighted, replicates: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[Of, tuple[float, float, float]]:
    """Return `null_band_of` in bins of equal width for both meanings of calibration, in little more time than one takes.

    Args:
        w: The weighted images.
        replicates: Number of draws.
        level: Level of the bands.
        seed: Seed of the draws.

    Returns:
        The bands by what is forecast.
    """
    both: tuple[Of, ...] = get_args(Of)
    errors = _NullDraws(w, both, "width", BINS, seed).errors(replicates)
    return {of: _band(column, level) for of, column in zip(both, errors.T, strict=True)}


def _band(errors: Floats, level: float) -> tuple[float, float, float]:
    low, high = np.quantile(errors, [(1 - level) / 2, (1 + level) / 2])
    return float(np.mean(errors)), float(low), float(high)


class _Forecast:
    """One meaning of calibration: what is forecast, in bins, and how a normal variable decides what happens."""

    def __init__(self, w: Weighted, of: Of, spacing: Spacing, bins: int) -> None:
        forecast, _ = judged(w.cases, of)
        self.sums = _SPACINGS[spacing](forecast, w.weight, bins)
        self.mass, self.foreseen = self.sums(w.weight), self.sums(w.weight * forecast)
        self.rare = bool(2 * self.foreseen.sum() < self.mass.sum())
        shared = shared_residual(w, of)
        # Normal variables of single precision: as good here, and drawn in half the time.
        self.cut = stats.norm.ppf(forecast).astype(np.float32)
        self.own, self.common = np.sqrt(np.array([1 - shared, shared], np.float32))
        self.number: NDArray[np.uint8] | None = None
        if spacing == "width" and bins < 256 and (w.weight == 1).all():
            self.number = width_bin(forecast, bins).astype(np.uint8)

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
        return _means(self.mass, self.foreseen, observed).expected_error()


class _NullDraws:
    """Draws of what happens to the images of a calibrated model, and the ECE of each, by one or both meanings."""

    def __init__(self, w: Weighted, meanings: Sequence[Of], spacing: Spacing, bins: int, seed: int) -> None:
        self.forecasts = [_Forecast(w, of, spacing, bins) for of in meanings]
        self.weight, self.patient = w.weight, w.cases.patient
        self.patients, self.bins, self.seed = int(self.patient.max()) + 1, bins, seed

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
                    happened[place] += np.bincount(one.number[part][counted], minlength=self.bins)
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


@dataclass(frozen=True)
class Murphy:
    """Brier = reliability - resolution + uncertainty + within_bin.

    reliability: sum of share x gap^2, 0 is best. resolution: sum of share x (observed - prevalence)^2, high is good.
    uncertainty: prevalence (1 - prevalence). within_bin: what forecasts differ inside the bins.
    """

    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float
    skill: float


def murphy_of(w: Weighted, bins: int = 10) -> Murphy:
    """Split the Brier score over bins of equal width; `skill` = 1 - Brier / uncertainty, NaN with one class.

    Args:
        w: The weighted images.
        bins: Number of bins.

    Returns:
        The parts of the Brier score.

    References:
        Murphy, J. Appl. Meteorol. 12:595 (1973); the within-bin term: Stephenson, Coelho and Jolliffe, Weather Forecast.
        23:752 (2008).
    """
    diagram = bins_of(w, "positive_class", "width", bins)
    share, prevalence = diagram.share, w.positives / w.total
    held = share > 0
    score = w.mean((w.cases.prob - w.cases.label) ** 2)
    rel = float(share @ diagram.gap**2)
    res = float(share[held] @ (diagram.observed[held] - prevalence) ** 2)
    unc = prevalence * (1 - prevalence)
    return Murphy(score, rel, res, unc, score - (rel - res + unc), 1 - score / unc if unc > 0 else np.nan)

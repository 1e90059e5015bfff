"""Calibration errors in bins, of weighted images.

Two meanings of binary calibration error are in use and are named apart: *top label* (confidence in the decision, p where it
is positive and 1-p where not, against being right) and *positive class* (p against y). Bins of equal width are (low, high],
the first with its low edge; bins of equal mass hold the same number of images, images of equal forecast being shared evenly
where an edge falls among them, so that nothing depends on the order of the rows.

A calibration error of finitely many images is above 0 even for a perfectly calibrated model: read it beside its
`null_bands.null_bands_of`, or use the debiased error of `metrics.calibration.debiased`, which has an interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.sorted_images import Cases, Weighted

Floats = NDArray[np.float64]
Of = Literal["top_label", "positive_class"]
Spacing = Literal["width", "mass"]

BINS = 15


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
    sums = SPACINGS[spacing](forecast, w.weight, bins)
    return means_of(sums(w.weight), sums(w.weight * forecast), sums(w.weight * observed))


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


SPACINGS: dict[str, Callable[[Floats, Floats, int], Sums]] = {"width": _equal_width, "mass": _equal_mass}


def means_of(mass: Floats, forecast: Floats, observed: Floats) -> Bins:
    """Return the bins of these sums: their mass, and their mean forecast and observation.

    Args:
        mass: Weight in each bin, (B,).
        forecast: Sum of the weighted forecasts, (B,).
        observed: Sum of the weighted observations, (B,).
    """
    empty = np.full(len(mass), np.nan)
    return Bins(
        mass,
        np.divide(forecast, mass, out=empty.copy(), where=mass > 0),
        np.divide(observed, mass, out=empty, where=mass > 0),
    )


def ece_top_label_of(w: Weighted) -> float:
    """Expected calibration error of the model's decision, 15 bins of equal width: sum of share x |observed - forecast|.

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

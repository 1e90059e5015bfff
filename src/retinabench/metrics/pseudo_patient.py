"""What a pseudo-patient whose predictions are wrong adds to each loss: its mean and its mean square, for `intervals.loss_interval`.

The images of the pseudo-patient have a random rank of the uncertainty. With G patients and a loss that adds x to the mean of an image, the
moments are the mean of x / G, and of x^2 / G^2, times the number of patients that it counts as: `HALF`, or `of_areas` where the order of referral decides.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from retinabench.metrics.arrays import Floats
from retinabench.metrics.intervals import HALF, Moments, patients_of, ranked_at_random
from retinabench.metrics.weighted_images import EPS, Weighted

LARGE, MOST = 300, 2.0


def of_areas(patients: int) -> float:
    """One pseudo-patient up to 300 patients, sqrt(G / 300) up to 1,200, then two: what is rarer than one patient in 300 is often unseen in 1,000, too.

    Chosen by simulation, see `docs/intervals.md`.
    """
    return float(min(max(patients / LARGE, 1.0) ** 0.5, MOST))


def _moments(w: Weighted, weight: float, mean: float, square: float) -> Moments:
    patients = patients_of(w)
    return weight * mean / patients, weight * square / patients**2


def _area_weight(w: Weighted) -> Floats:
    """(N,) weight of each image in an area over referral: -ln u, with u the share of the images that is retained where it is the next to go."""
    middle = (w.mass[1:] + w.mass[:-1]) / 2  # of each block of equal uncertainty
    sizes = np.diff(w.cases.edges)
    return np.repeat(-np.log(np.maximum(middle, EPS * w.total) / w.total), sizes)


def of_probability(w: Weighted, loss: Literal["log", "squared"], *, area: bool = False) -> Moments:
    """NLL or Brier score, or the area of it over referral: the labels of a random patient are turned."""
    error = np.where(w.cases.label, w.cases.prob, 1 - w.cases.prob)  # if the label is turned
    x = error**2 if loss == "squared" else -np.log(np.clip(1 - error, EPS, 1 - EPS))
    return of_losses(w, x, area=area)


def of_losses(w: Weighted, x: Floats, *, area: bool = False) -> Moments:
    """Return what a mean of losses gains, or the area of it over referral, where a random image has the loss x (N,)."""
    x = x * _area_weight(w) if area else x
    return _moments(w, of_areas(patients_of(w)) if area else HALF, float(w.mean(x)), float(w.mean(x**2)))


def of_brier_skill(w: Weighted) -> Moments:
    """1 - Brier skill: the Brier score over that of always giving the prevalence."""
    mean, square = of_probability(w, "squared")
    share = float(w.positives / w.total)
    scale = share * (1 - share)
    return mean / scale, square / scale**2


def of_aurc(w: Weighted) -> Moments:
    """AURC: -ln u of a uniform rank u has mean 1 and mean square 2."""
    return _moments(w, of_areas(patients_of(w)), 1, 2)


def of_e_aurc(w: Weighted) -> Moments:
    """E-AURC: -ln u + ln a, because the error that the oracle leaves grows by -ln a at accuracy a."""
    log = float(np.log(max(1 - float(w.mean(w.cases.error)), EPS)))
    return _moments(w, of_areas(patients_of(w)), 1 + log, 2 + 2 * log + log**2)


def of_augrc(w: Weighted) -> Moments:
    """AUGRC: 1 - u of a uniform rank u."""
    return _moments(w, HALF, 1 / 2, 1 / 3)


def of_ranked(w: Weighted, classes: Literal["both", "positive"] = "both", *, half: bool = False) -> Moments:
    """1 - AUROC (both classes), or 1 - AUPRC (positives), of all images or of the half that is retained: an image is ranked at random."""
    kept = w.retained(int(np.ceil(float(w.count) / 2))) if half else w.weight
    masses = [kept * w.cases.label, kept * ~w.cases.label][: 2 if classes == "both" else 1]
    counts = [len(np.unique(w.cases.patient[mass > 0])) for mass in masses]
    return ranked_at_random([count for count in counts if count], HALF)

"""Calibration: errors in bins with their null bands, the debiased error, the calibration line, and what a set shows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import expit, logit

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import Document, JsonObject, json_content, vars_of
from retinabench.metrics.bootstrap import cluster_codes, stacked
from retinabench.metrics.intervals import FEWEST_ERRORS, patients_of, scaled_interval
from retinabench.metrics.proportions import Interval, binary, clustered_proportion
from retinabench.metrics.weighted_images import EPS, Cases, Weighted

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
    """Return the reliability diagram of weighted images."""
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

    Shapes: `label` (N,), `prob` (N,), `weight` (N,).
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

    Shapes: `mass` (B,), `forecast` (B,), `observed` (B,).
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


NULL_DRAWS, STEPS = 2000, 120

PATIENTS = 2**17

"""Patients whose sums are in memory at once."""


def calibration_error_of(w: Weighted, of: Of = "positive_class") -> float:
    """Return the debiased root mean square gap between what is observed and forecast, over 15 bins of equal width.

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


LEVEL = 0.95  # of the bands

BLOCK = 2**16

"""Images that are drawn at once, so that what is made of them stays in the cache."""


def null_bands_of(w: Weighted, replicates: int = 1000, seed: int = 0) -> dict[Of, tuple[float, float, float]]:
    """Return the ECE that a perfectly calibrated model with these forecasts would show, in bins of equal width.

    What happens is drawn from the forecasts themselves, by a normal variable that the images of a patient share in part: as
    much as their residuals are correlated here (`shared_residual`). Images that fail together scatter every bin more. Both
    meanings of calibration take little more time together than one.
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
    """
    forecast, happened = judged(w.cases, of)
    patient, residual = w.cases.patient, happened - forecast
    scale = np.sqrt(forecast * (1 - forecast))
    together, expected = (
        float(np.sum(np.bincount(patient, value) ** 2) - value @ value) for value in (residual, scale)
    )
    correlation = together / expected if expected > 1e-12 else 0.0
    return float(np.clip(np.sin(np.pi / 2 * np.clip(correlation, 0, 1)), 0, 0.99))


ROUNDS, TOLERANCE = 100, 1e-12


@dataclass(frozen=True)
class CalibrationLine:
    """intercept, slope: the fitted line; in_the_large: the intercept at slope 1; observed_over_expected: sum y / sum p.

    Ideal: 0, 1, 0, 1. NaN where the maximum likelihood does not exist (one class, or classes parted by p).
    """

    intercept: float
    slope: float
    in_the_large: float
    observed_over_expected: float


def calibration_line_of(w: Weighted) -> CalibrationLine:
    """Fit the calibration line by maximum likelihood; p is clipped to [1e-15, 1 - 1e-15]."""
    return w.derived(_line)


def _line(w: Weighted) -> CalibrationLine:
    x = np.asarray(logit(np.clip(w.cases.prob, EPS, 1 - EPS)), np.float64)
    one = np.ones((len(x), 1))
    intercept, slope = _fit(w, np.column_stack([one, x]), 0.0)
    (large,) = _fit(w, one, x)
    expected = float(w.weight @ w.cases.prob)
    return CalibrationLine(intercept, slope, large, w.positives / expected if expected > 0 else np.nan)


def line_intervals_of(w: Weighted, level: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return intervals of the calibration line, clustered by patient.

    The standard errors of the fits are sandwiches A^-1 G/(G-1) sum_g s_g s_g' A^-1 with the scores s_g of the G patients and
    the curvature A of the likelihood, with Student's t of one degree of freedom less than the rarer class has patients, or than
    patients have an image on the wrong side of one half, if these are fewer: where the classes are nearly parted, few images decide
    the fits, and below 5 such patients they have no interval. The ratio of observed to expected has the linearised error of a
    ratio, on the logarithmic scale.

    References:
        Liang and Zeger, Longitudinal data analysis using generalized linear models, Biometrika 73:13 (1986).
    """
    line = calibration_line_of(w)
    x = np.asarray(logit(np.clip(w.cases.prob, EPS, 1 - EPS)), np.float64)
    one, patients = np.ones((len(x), 1)), int(np.count_nonzero(np.bincount(w.cases.patient, w.weight)))
    errors = _sandwich(w, np.column_stack([one, x]), np.array([line.intercept, line.slope]), 0 * x)
    errors = np.append(errors, _sandwich(w, one, np.array([line.in_the_large]), x))
    residual = np.bincount(
        w.cases.patient, w.weight * (w.cases.label - line.observed_over_expected * w.cases.prob)
    )
    ratio = np.sqrt(patients / max(patients - 1, 1) * float(residual @ residual)) / max(
        float(w.weight @ w.cases.prob), 1e-300
    )
    positive = (0.0, np.inf)
    classes = patients_of(w, "classes") - 1
    wrong = len(np.unique(w.cases.patient[(w.weight > 0) & ((w.cases.prob > 0.5) != w.cases.label)]))
    of_fits = min(classes, wrong - 1) if wrong >= FEWEST_ERRORS else 0
    fits = [((-np.inf, np.inf), of_fits)] * 3
    return {
        name: scaled_interval(value, float(error), bounds, degrees, level)
        for (name, value), error, (bounds, degrees) in zip(
            vars(line).items(), [*errors, ratio], [*fits, (positive, classes)], strict=True
        )
    }


def _sandwich(w: Weighted, design: Floats, beta: Floats, offset: Floats) -> Floats:
    """(K,) standard errors of the coefficients of a logistic fit, clustered by patient; NaN where there is no fit."""
    if not np.isfinite(beta).all():
        return np.full(len(beta), np.nan)
    mean = np.asarray(expit(offset + design @ beta), np.float64)
    curvature = (design * (w.weight * mean * (1 - mean))[:, None]).T @ design
    scores = design * (w.weight * (w.cases.label - mean))[:, None]
    by_patient = np.stack([np.bincount(w.cases.patient, column) for column in scores.T], axis=1)
    patients = int(np.count_nonzero(np.bincount(w.cases.patient, w.weight)))
    if patients < 2:
        return np.full(len(beta), np.nan)
    bread = np.linalg.pinv(curvature)
    meat = patients / (patients - 1) * by_patient.T @ by_patient
    return np.asarray(np.sqrt(np.maximum(np.diag(bread @ meat @ bread), 0.0)), np.float64)


def _fit(w: Weighted, design: Floats, offset: Floats | float) -> tuple[float, ...]:
    """Newton's method for weighted logistic regression, steps halved where the likelihood would fall."""
    undefined: tuple[float, ...] = (float("nan"),) * design.shape[1]
    if w.positives <= 0 or w.negatives <= 0:
        return undefined
    beta: Floats = np.zeros(design.shape[1])
    beta[1:] = 1.0
    y = w.cases.label

    def loss(b: Floats) -> float:
        z = offset + design @ b
        return float(w.weight @ np.logaddexp(0, np.where(y, -z, z)))

    now = loss(beta)
    for _ in range(ROUNDS):
        mean = np.asarray(expit(offset + design @ beta), np.float64)
        gradient = design.T @ (w.weight * (y - mean))
        curvature = (design * (w.weight * mean * (1 - mean))[:, None]).T @ design
        try:
            step = np.linalg.solve(curvature, gradient)
        except np.linalg.LinAlgError:
            return undefined
        scale = 1.0
        while not (then := loss(beta + scale * step)) <= now + 1e-12 * abs(now) and scale > 1e-8:
            scale /= 2
        beta, now = beta + scale * step, then
        if not np.isfinite(beta).all() or np.abs(beta).max() > 1e3:
            return undefined
        if np.abs(scale * step).max() < TOLERANCE * max(1.0, np.abs(beta).max()):
            return tuple(float(b) for b in beta)
    return undefined


def correct_prior(prob: ArrayLike, positive_weight: float) -> Floats:
    """Undo class weights of training: logit(p) - ln(positive_weight), (N,) to (N,).

    positive_weight: how many times more a positive image counted in the training loss than a negative one. A model
    trained to a balanced prior at 19.6 % prevalence has (1 - 0.196) / 0.196 = 4.1. The order of the images by p, and
    so AUROC, stays; NLL, Brier, accuracy at 1/2 and every uncertainty that follows |p - 1/2| change.
    """
    if not positive_weight > 0:
        raise InputError(f"the weight of positive images is {positive_weight}", hint="It must be above 0.")
    p = np.asarray(prob, np.float64)
    return np.asarray(p / (p + positive_weight * (1 - p)))


SET_CALIBRATION_NULL_DRAWS = 200

LINE = ("intercept", "slope", "in_the_large", "observed_over_expected")


@dataclass(frozen=True)
class SetCalibration(Document):
    """Whether the probabilities of a set can be read as risks."""

    line_intercept: Interval
    line_slope: Interval
    line_in_the_large: Interval
    line_observed_over_expected: Interval
    brier: Murphy
    null_ece_top_label: Interval
    calibration_error_top_label: Interval
    null_ece_positive_class: Interval
    calibration_error_positive_class: Interval

    def to_dict(self) -> JsonObject:
        """Return the JSON content, which has no objects inside."""
        fields = {name: one for name, one in vars_of(self).items() if isinstance(one, Interval)}
        lines = {name: one for name, one in fields.items() if name.startswith("line_")}
        content = {name: one.value for name, one in lines.items()}
        for name, one in lines.items():
            content |= _ends(name, one)
        content |= {f"brier_{part}": value for part, value in vars(self.brier).items() if part != "brier"}
        for name, one in fields.items():
            if name not in lines:
                middle = f"{name}_mean" if name.startswith("null_") else name
                content |= {middle: one.value, **_ends(name, one)}
        found: JsonObject = json_content(content)
        return found


def set_calibration(w: Weighted, seed: int, level: float) -> SetCalibration:
    """Return the calibration line, the parts of the Brier score, and calibration errors with those of a calibrated model."""
    line, ends = calibration_line_of(w), line_intervals_of(w, level)
    slope = {f"line_{name}": Interval(getattr(line, name), *ends[name]) for name in LINE}
    bands = null_bands_of(w, replicates=SET_CALIBRATION_NULL_DRAWS, seed=seed)

    def error(of: Of) -> Interval:
        return Interval(calibration_error_of(w, of), *calibration_error_interval(w, level, of=of))

    return SetCalibration(
        **slope,
        brier=murphy_of(w),
        null_ece_top_label=Interval(*bands["top_label"]),
        calibration_error_top_label=error("top_label"),
        null_ece_positive_class=Interval(*bands["positive_class"]),
        calibration_error_positive_class=error("positive_class"),
    )


def _ends(name: str, one: Interval) -> dict[str, float]:
    return {f"{name}_low": one.low, f"{name}_high": one.high}


SUMMARY_BINS = 10


@dataclass(frozen=True)
class CurvePoint:
    """A tenth of the images, by their probability: its mean, and the share that is referable."""

    forecast: float
    observed: Interval
    images: int


@dataclass(frozen=True)
class CalibrationSummary(Document):
    """Calibration of P(referable), per image."""

    slope: Interval
    intercept: Interval
    in_the_large: Interval
    observed_over_expected: Interval
    curve: tuple[CurvePoint, ...]


def calibration_summary(label: ArrayLike, prob: ArrayLike, cluster: ArrayLike) -> CalibrationSummary:
    """Return the calibration line and curve with clustered 95 % intervals.

    The line and its intervals are those of `score` (`line_intervals_of`). With images of one class, observed over expected has
    the interval of the prevalence, divided by the mean probability.

    References:
        Van Calster et al., BMC Medicine 17:230 (2019), for the measures.

    Shapes: `label` (N,), `prob` (N,), `cluster` (N,).
    """
    y, p = binary(label, "label"), np.asarray(prob, np.float64)
    codes, _ = cluster_codes(cluster)
    w = Cases(y, p, patient=codes).weighted()
    ends = line_intervals_of(w)
    line = {name: Interval(value, *ends[name]) for name, value in vars(calibration_line_of(w)).items()}
    if p.any() and (y.all() or not y.any()):
        share, mean = clustered_proportion(y, np.ones(len(y)), codes), float(p.mean())
        line["observed_over_expected"] = Interval(share.value / mean, share.low / mean, share.high / mean)
    return CalibrationSummary(**line, curve=_curve(y, p, codes))


def _curve(y: NDArray[np.bool_], p: Floats, codes: NDArray[np.intp]) -> tuple[CurvePoint, ...]:
    """Groups of equally many images by probability; equal probabilities stay together."""
    order = np.sort(p)
    edges = np.unique(order[np.linspace(0, len(p) - 1, SUMMARY_BINS + 1).round().astype(int)[1:-1]])
    number = np.searchsorted(edges, p, side="left")
    points = []
    for k in np.unique(number):
        held = number == k
        observed = clustered_proportion(y, held, codes)
        points.append(CurvePoint(float(p[held].mean()), observed, int(held.sum())))
    return tuple(points)

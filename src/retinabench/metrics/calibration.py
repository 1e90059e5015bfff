"""Calibration: errors in bins with their null bands, the debiased error, the calibration line, and what a set shows of them.

Two meanings of binary calibration error are in use and are named apart: *top label* (confidence in the decision, p where it
is positive and 1-p where not, against being right) and *positive class* (p against y). Bins are of equal width, (low, high],
the first with its low edge.

A calibration error of finitely many images is above 0 even for a perfectly calibrated model: read it beside its null band
(`null_bands_of`), or use the debiased error (`calibration_error_of`), which has an interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special
from scipy.special import expit, logit

from retinabench.core.errors import InputError
from retinabench.core.results import Document, JsonObject, json_content, vars_of
from retinabench.metrics import intervals
from retinabench.metrics.intervals import Interval, binary, clustered_proportion, patients_of, scaled_interval
from retinabench.metrics.weighted_images import EPS, Bools, Cases, Floats, Weighted, cluster_codes, stacked

Of = Literal["top_label", "positive_class"]
BINS, BRIER_BINS, CURVE_BINS = 15, 10, 10
NULL_DRAWS = 200  # Draws of the null bands of a set.
ERROR_DRAWS, STEPS = 2000, 120
LEVEL = 0.95  # of the null bands
BLOCK = 2**16  # Images that are drawn at once, so that what is made of them stays in the cache.
ROUNDS, TOLERANCE = 100, 1e-12
UNREAD = 20  # errors that are expected among images whose labels look like the model's calls, and none is there


@dataclass(frozen=True)
class Bins:
    """A reliability diagram: per bin (M,) its weight, and the weighted means forecast and observed (NaN if empty), the last also (R, M)."""

    weight: Floats
    forecast: Floats
    observed: Floats

    @classmethod
    def of_sums(cls, mass: Floats, forecast: Floats, observed: Floats) -> Bins:
        """Return the bins of these sums: their mass, and the weighted sums of forecasts and observations."""
        means = (
            np.divide(sums, mass, out=np.full(sums.shape, np.nan), where=mass > 0) for sums in (forecast, observed)
        )
        return cls(mass, *means)

    @property
    def share(self) -> Floats:
        return np.asarray(self.weight / self.weight.sum())

    @property
    def gap(self) -> Floats:
        """(M,) observed - forecast, 0 where empty."""
        return np.where(self.weight > 0, self.observed - self.forecast, 0.0)

    def expected_error(self) -> Floats:
        """(...,) one for each row of `observed`."""
        return np.asarray(np.apply_along_axis(self.share.__matmul__, -1, np.abs(self.gap)))[()]


def judged(cases: Cases, of: Of) -> tuple[Floats, Floats]:
    if of == "top_label":
        return np.where(cases.called, cases.prob, 1 - cases.prob), (~cases.error).astype(np.float64)
    return cases.prob, cases.label.astype(np.float64)


def bin_numbers(forecast: Floats, bins: int) -> NDArray[np.intp]:
    """(N,) number of the bin (low, high] of equal width that holds each forecast; 0 is in the first."""
    number = np.searchsorted(np.linspace(0, 1, bins + 1), forecast, side="left") - 1
    return np.asarray(np.clip(number, 0, bins - 1))


def bins_of(w: Weighted, of: Of = "positive_class", bins: int = BINS) -> Bins:
    forecast, observed = judged(w.cases, of)
    number = bin_numbers(forecast, bins)
    masses = (w.weight, w.weight * forecast, w.weight * observed)
    return Bins.of_sums(*(np.bincount(number, mass, minlength=bins).astype(np.float64) for mass in masses))


def ece_top_label_of(w: Weighted) -> Floats:
    """Expected calibration error of the model's decision, 15 bins of equal width: sum of share x |observed - forecast|.

    References:
        Guo et al., On calibration of modern neural networks, ICML (2017).
    """
    return _expected_error(w, w.cases.derived(_gaps, "top_label"))


def ece_positive_class_of(w: Weighted) -> Floats:
    """Expected calibration error of P(label = 1), 15 bins of equal width: sum of share x |observed - forecast|.

    References:
        Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, AAAI (2015).
        Guo et al., On calibration of modern neural networks, ICML (2017).
    """
    return _expected_error(w, w.cases.derived(_gaps, "positive_class"))


def _expected_error(w: Weighted, gaps: sparse.csr_array) -> Floats:
    """(...,) sum over bins of |sum of w (observed - forecast)| / W."""
    of_bins = np.ascontiguousarray(np.abs(gaps @ w.weight.T).T)
    return np.asarray(of_bins.sum(axis=-1) / w.total)[()]


def _gaps(cases: Cases, of: Of) -> sparse.csr_array:
    """(bins, N) observed - forecast of each image, in the row of its bin."""
    forecast, observed = judged(cases, of)
    places = bin_numbers(forecast, BINS), np.arange(len(cases))
    return sparse.csr_array((observed - forecast, places), shape=(BINS, len(cases)))


@dataclass(frozen=True)
class Murphy:
    """Brier = reliability - resolution + uncertainty + within_bin.

    reliability: sum of share x gap^2, 0 is best. resolution: sum of share x (observed - prevalence)^2, high is good.
    uncertainty: prevalence (1 - prevalence). within_bin: what forecasts differ inside the bins.
    skill: 1 - Brier / uncertainty, NaN with one class.
    """

    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float
    skill: float


def murphy_of(w: Weighted) -> Murphy:
    """Split the Brier score over 10 bins of equal width.

    References:
        Murphy, J. Appl. Meteorol. 12:595 (1973); the within-bin term: Stephenson, Coelho and Jolliffe, Weather Forecast.
        23:752 (2008).
    """
    diagram = bins_of(w, "positive_class", BRIER_BINS)
    share, prevalence = diagram.share, float(w.positives / w.total)
    held = share > 0
    brier = float(w.mean(w.cases.squared_error))
    rel = float(share @ diagram.gap**2)
    res = float(share[held] @ (diagram.observed[held] - prevalence) ** 2)
    unc = prevalence * (1 - prevalence)
    return Murphy(brier, rel, res, unc, brier - (rel - res + unc), 1 - brier / unc if unc > 0 else np.nan)


# The debiased error.
#
# An expected calibration error adds up |gap| over bins, and chance makes every gap larger: a calibrated model never has 0, its
# replicates scatter even more, and no bootstrap interval holds its true 0. Here the gaps are squared, which lets chance be taken
# off exactly, and the interval is found by inverting a test.


class _PatientSums:
    """Sums over the images of each patient in each of the M bins, of which K have two patients.

    With the residual r_gb = sum w_i (y_i - f_i) and the mass m_gb = sum w_i of patient g in bin b, only different patients are
    multiplied, so that each term has the square of the true gap as its mean:

        square = sum over bins of share_b x (r_b^2 - sum_g r_gb^2) / (m_b^2 - sum_g m_gb^2)

    Attributes: `known` (M,) these bins; `share` (K,) of their mass; `gap` (K,) observed - forecast; `square` the squared error, 0
    in expectation for a calibrated model.
    """

    def __init__(self, w: Weighted, of: Of) -> None:
        forecast, happened = judged(w.cases, of)
        places = w.cases.patient, bin_numbers(forecast, BINS)
        shape = int(w.cases.patient.max()) + 1, BINS
        residual, mass = (
            sparse.csr_array((values, places), shape=shape) for values in (w.weight * (happened - forecast), w.weight)
        )
        self.known = (mass > 0).sum(axis=0) > 1
        self.residual = residual[:, self.known]
        self.total: Floats = mass.sum(axis=0)[self.known]
        self.share = self.total / self.total.sum() if self.known.any() else self.total
        sums: Floats = self.residual.sum(axis=0)
        self.gap = sums / self.total
        above = sums**2 - (self.residual**2).sum(axis=0)
        self.square = float(self.share @ (above / (self.total**2 - (mass**2).sum(axis=0)[self.known])))

    def scatter(self) -> Floats:
        """(K, K) sums over patients of the products of their residuals in two bins, each over the bin's mass."""
        products: Floats = (self.residual.T @ self.residual).toarray()
        return products / np.outer(self.total, self.total)


def calibration_error_of(w: Weighted, of: Of = "positive_class") -> float:
    """Return the debiased root mean square gap between what is observed and forecast, over 15 bins of equal width.

    0 where the squared gaps are no larger than chance makes them; NaN where no bin has two patients.

    References:
        Kumar, Liang and Ma, Verified uncertainty calibration, NeurIPS 2019, whose debiased estimator takes images as independent.
    """
    sums = w.derived(_PatientSums, of)
    return float(np.sqrt(max(sums.square, 0.0))) if sums.known.any() else float("nan")


def calibration_error_interval(w: Weighted, level: float = 0.95, *, of: Of = "positive_class") -> tuple[float, float]:
    """Return the interval of `calibration_error_of`, which may begin at 0.

    The estimated gaps are normal about the true ones, with the covariance of the sums over patients. Of the true gaps only
    their size is sought and their proportions are taken as estimated: the interval holds every size under which the squared
    error lies between the (1-level)/2 and (1+level)/2 quantiles. It holds 0 exactly where a calibrated model could
    have shown as much. Few patients with a wrong prediction decide the error, and it has no interval where fewer than `FEWEST_WRONG` have one, or a right one.
    """
    sums = w.derived(_PatientSums, of)
    if not sums.known.any() or patients_of(w, "errors") < intervals.FEWEST_WRONG:
        return float("nan"), float("nan")
    square, share, gap = sums.square, sums.share, sums.gap
    values, vectors = np.linalg.eigh(sums.scatter())
    noise = _normals(len(gap)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    size = float(np.sqrt(share @ gap**2))
    along = 2 * noise @ (share * gap) / size if size > 0 else np.zeros(len(noise))
    chance = noise**2 @ share
    chance -= chance.mean()
    largest = np.sqrt(max(square, 0.0)) + 2 * np.std(along) + 2 * np.sqrt(np.std(chance)) + 1e-12
    sizes = np.linspace(0, largest, STEPS)
    tails = [(1 - level) / 2, (1 + level) / 2]
    lowest, highest = np.quantile(sizes[:, None] ** 2 + np.outer(sizes, along) + chance, tails, axis=1)
    # Gaps even smaller than a calibrated model's bound the error as those would that chance explains exactly.
    high = _first(-sizes[::-1], (square if square > lowest[0] else 0.0) - lowest[::-1])
    return _first(sizes, highest - square), -high


@lru_cache(maxsize=BINS)
def _normals(bins: int) -> Floats:
    """(2000, bins) standard normal numbers, the same in every call: an interval is a function of the images."""
    return np.random.default_rng(0).standard_normal((ERROR_DRAWS, bins))


def _first(sizes: Floats, above: Floats) -> float:
    """The smallest of increasing sizes at which `above` is not negative, between two of them linearly; else the last."""
    inside = np.flatnonzero(above >= 0)
    k = int(inside[0]) if len(inside) else len(sizes) - 1
    if k == 0 or above[k] == above[k - 1]:
        return float(sizes[k])
    return float(sizes[k - 1] + (sizes[k] - sizes[k - 1]) * above[k - 1] / (above[k - 1] - above[k]))


def null_bands_of(w: Weighted, replicates: int = 1000, seed: int = 0) -> dict[Of, tuple[float, float, float]]:
    """Return the ECE that a perfectly calibrated model with these forecasts would show, in bins of equal width.

    What happens is drawn from the forecasts themselves, by a normal variable that the images of a patient share in part: as
    much as their residuals are correlated here (`shared_residual`). Images that fail together scatter every bin more. Both
    meanings of calibration take little more time together than one.

    Returns mean, low and high end of the band at `LEVEL`, by what is forecast.
    """
    forecasts = {of: _Forecast(w, of) for of in get_args(Of)}
    n, patient, counted = len(w.weight), w.cases.patient, bool((w.weight == 1).all())
    patients = int(patient.max()) + 1 if any(one.common > 0 for one in forecasts.values()) else 0

    def errors_of(numbers: range) -> Floats:
        drawn = np.stack([np.random.default_rng([seed, k]).standard_normal(n + patients, np.float32) for k in numbers])
        own, common = drawn[:, :n], drawn[:, n:]
        happened: dict[Of, Any] = {of: 0 if counted else np.empty(own.shape) for of in forecasts}
        for part in (slice(start, start + BLOCK) for start in range(0, n, BLOCK)):
            of_patient = common[:, patient[part]] if patients else own[:, part]
            for of, one in forecasts.items():
                hit = one.happens(own[:, part], of_patient, part)
                if counted:  # counts are exact in every order; those of the rarer case take less time
                    happened[of] += one.counts(hit == one.rare, part)
                else:
                    happened[of][:, part] = w.weight[part] * hit
        return np.stack([one.errors(happened[of], counted=counted) for of, one in forecasts.items()], axis=1)

    errors = stacked(errors_of, replicates, n)
    ends = np.quantile(errors, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {
        of: (float(np.mean(column)), float(low), float(high))
        for of, column, low, high in zip(forecasts, errors.T, *ends, strict=True)
    }


class _Forecast:
    """One meaning of calibration: what is forecast, in bins, and how a normal variable decides what happens."""

    def __init__(self, w: Weighted, of: Of) -> None:
        forecast, _ = judged(w.cases, of)
        self.number = bin_numbers(forecast, BINS).astype(np.uint8)
        self.mass, self.expected = self.sums(w.weight), self.sums(w.weight * forecast)
        self.rare = bool(2 * self.expected.sum() < self.mass.sum())
        shared = shared_residual(w, of)
        # Normal variables of single precision: as good here, and drawn in half the time.
        self.cut = special.ndtri(forecast).astype(np.float32)
        self.own, self.common = np.sqrt(np.array([1 - shared, shared], np.float32))

    def sums(self, mass: Floats) -> Floats:
        return np.bincount(self.number, mass, minlength=BINS).astype(np.float64)

    def counts(self, of: Bools, part: slice) -> NDArray[np.intp]:
        """(R, BINS) numbers of those images of a part that are chosen, (R, n)."""
        bins = self.number[None, part] + (BINS * np.arange(len(of))[:, None] if len(of) > 1 else np.uint8(0))
        return np.bincount(bins[of], minlength=BINS * len(of)).reshape(-1, BINS)

    def happens(self, own: NDArray[np.float32], common: NDArray[np.float32], part: slice) -> Bools:
        """Whether it happens to each image of a part, from its own normal variable and that of its patient."""
        latent = self.own * own
        if self.common > 0:
            latent += self.common * common
        return np.asarray(latent < self.cut[part])

    def errors(self, happened: Floats, *, counted: bool) -> Floats:
        """(R,) ECEs where this mass, (R, N), happens; or, if `counted`, (R, BINS) numbers do, or do not where that is rarer."""
        happened = happened if counted else np.stack([*map(self.sums, happened)])
        observed = self.mass - happened if counted and not self.rare else happened
        return Bins.of_sums(self.mass, self.expected, observed).expected_error()


def shared_residual(w: Weighted, of: Of = "positive_class") -> float:
    """Return the correlation of two images of a patient, in the normal variable behind what happens to them.

    The residuals y - f of all pairs of images of a patient have the correlation r = sum (y - f)(y' - f') / sum s s' with
    s^2 = f (1 - f); a shared normal variable of correlation sin(pi r / 2) gives it to forecasts of 1/2.
    In [0, 0.99]; 0 where no patient has two images.
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
class CalibrationLine:
    """The logistic line logit P(y = 1) = intercept + slope x logit(p).

    Slope below 1: the model is overconfident; above 1: it is underconfident. in_the_large: the intercept with the slope held at
    1, 0 where as many images are positive as predicted. observed_over_expected: sum y / sum p. Ideal: 0, 1, 0, 1. NaN where the
    maximum likelihood does not exist (one class, or classes parted by p).

    References:
        Cox, Biometrika 45:562 (1958); Van Calster et al., BMC Medicine 17:230 (2019).
    """

    intercept: float
    slope: float
    in_the_large: float
    observed_over_expected: float


def calibration_line_of(w: Weighted) -> CalibrationLine:
    """Fit the calibration line by maximum likelihood; p is clipped to [1e-15, 1 - 1e-15]."""
    x, one = _logits(w)
    intercept, slope = logistic_fit(w, np.column_stack([one, x]), 0.0)
    (large,) = logistic_fit(w, one, x)
    expected = float(w.weight @ w.cases.prob)
    return CalibrationLine(intercept, slope, large, float(w.positives) / expected if expected > 0 else np.nan)


def _logits(w: Weighted) -> tuple[Floats, Floats]:
    x = np.asarray(logit(np.clip(w.cases.prob, EPS, 1 - EPS)), np.float64)
    return x, np.ones((len(x), 1))


def line_intervals_of(w: Weighted, level: float = 0.95) -> dict[str, Interval]:
    """Return the calibration line with its intervals, clustered by patient, by the fields of `CalibrationLine`.

    The standard errors of the fits are sandwiches (`logistic_covariance`), with Student's t of one degree of freedom less than the rarer class has patients, or
    than patients have an image on the wrong side of one half, if these are fewer: where the classes are nearly parted, few images decide the fits, and below 5
    such patients they have no interval. The lower end of the slope reckons with half a patient more whose labels are turned, as those of the losses do
    (`loss_interval`): a few sure errors lower the slope, and a study may have none of them. The ratio of observed to expected has the linearised error of a ratio, on the
    logarithmic scale.

    References:
        Liang and Zeger, Longitudinal data analysis using generalized linear models, Biometrika 73:13 (1986).
    """
    line, cases = w.derived(calibration_line_of), w.cases
    x, one = _logits(w)
    patients = patients_of(w)
    design, fit = np.column_stack([one, x]), np.array([line.intercept, line.slope])
    errors = _sandwich(w, design, fit, 0 * x)
    errors = np.append(errors, _sandwich(w, one, np.array([line.in_the_large]), x))
    residual = np.bincount(cases.patient, w.weight * (cases.label - line.observed_over_expected * cases.prob))
    ratio = np.sqrt(patients / max(patients - 1, 1) * float(residual @ residual))
    ratio /= max(float(w.weight @ cases.prob), 1e-300)
    degrees = patients_of(w, "classes") - 1
    wrong = len(np.unique(cases.patient[(w.weight > 0) & ((cases.prob > 0.5) != cases.label)]))
    of_fits = min(degrees, wrong - 1) if wrong >= intervals.FEWEST_ERRORS else 0
    limits = [((-np.inf, np.inf), of_fits)] * 3 + [((0.0, np.inf), degrees)]
    found = {
        name: Interval(value, *scaled_interval(value, float(error), bounds, free, level))
        for (name, value), error, (bounds, free) in zip(vars(line).items(), [*errors, ratio], limits, strict=True)
    }
    if math.isfinite(found["slope"].low):
        mean, curvature = logistic_curvature(w, design, fit, 0.0)
        turned = design @ np.linalg.pinv(curvature)[1] * (1 - cases.label - mean) * (float(w.total) / patients)
        lower, square = (intervals.HALF * float(w.mean(turned**power)) for power in (1, 2))
        wider = math.hypot(errors[1], math.sqrt(square))
        low, _ = scaled_interval(line.slope + min(lower, 0.0), wider, (-np.inf, np.inf), of_fits, level)
        found["slope"] = replace(found["slope"], low=low)
    return found


def _sandwich(w: Weighted, design: Floats, beta: Floats, offset: Floats) -> Floats:
    """(K,) standard errors of the coefficients of a logistic fit, clustered by patient; NaN where there is no fit."""
    if not np.isfinite(beta).all() or patients_of(w) < 2:
        return np.full(len(beta), np.nan)
    return np.asarray(np.sqrt(np.maximum(np.diag(logistic_covariance(w, design, beta, offset)), 0.0)), np.float64)


def logistic_covariance(w: Weighted, design: Floats, beta: Floats, offset: Floats) -> Floats:
    """(K, K) sandwich covariance of the coefficients of a logistic fit, clustered by patient.

    The scores of each patient are those about the fit without this patient, to first order: s_g becomes (1 - A_g A^-1)^-1 s_g, with the curvatures A_g of the
    patient and A of all. Else a patient who draws the fit toward himself would look as if he varied little.

    References:
        Mancl and DeRouen, A covariance estimator for GEE with improved small-sample properties, Biometrics 57:126 (2001).
    """
    mean, curvature = logistic_curvature(w, design, beta, offset)
    scores = design * (w.weight * (w.cases.label - mean))[:, None]
    weight, patient, terms = w.weight * mean * (1 - mean), w.cases.patient, range(design.shape[1])
    own = np.stack([[np.bincount(patient, weight * design[:, i] * design[:, j]) for i in terms] for j in terms])
    by_patient = np.stack([np.bincount(patient, column) for column in scores.T], axis=1)
    bread = np.linalg.pinv(curvature)
    left = np.eye(len(terms)) - own.transpose(2, 0, 1) @ bread
    without = (np.linalg.pinv(left) @ by_patient[:, :, None])[:, :, 0]
    return np.asarray(bread @ without.T @ without @ bread, np.float64)


def logistic_curvature(w: Weighted, design: Floats, beta: Floats, offset: Floats | float) -> tuple[Floats, Floats]:
    """(N,) mean of a logistic model, and (K, K) the curvature of its likelihood."""
    mean = np.asarray(expit(offset + design @ beta), np.float64)
    return mean, (design * (w.weight * mean * (1 - mean))[:, None]).T @ design


def logistic_fit(w: Weighted, design: Floats, offset: Floats | float) -> tuple[float, ...]:
    """Newton's method for weighted logistic regression, steps halved where the likelihood would fall."""
    undefined: tuple[float, ...] = (float("nan"),) * design.shape[1]
    if w.positives <= 0 or w.negatives <= 0:
        return undefined
    beta: Floats = np.zeros(design.shape[1])
    beta[1:2] = 1.0
    y = w.cases.label

    def loss(b: Floats) -> float:
        z = offset + design @ b
        return float(w.weight @ np.logaddexp(0, np.where(y, -z, z)))

    now = loss(beta)
    for _ in range(ROUNDS):
        mean, curvature = logistic_curvature(w, design, beta, offset)
        gradient = design.T @ (w.weight * (y - mean))
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


def input_notes(
    images: str, label: ArrayLike, prob: ArrayLike, uncertainty: ArrayLike, patient: ArrayLike, threshold: float = 0.5
) -> list[str]:
    """Return notes on probabilities that look like confidences, and on labels that look like the model's calls, as if nobody had read the images.

    Of the images that are called referable, and of the others, the surest are those surer than every error. The logistic line of P(wrong) on the model's own
    log odds of being wrong, fitted to the rest, expects errors among them, at its value less two standard errors (clustered by patient) and at most one half.
    At least `UNREAD` and a tenth of the errors that are there must be lacking: models whose probabilities are flat or steep lacked at most 10 in simulations.
    """
    cases, unread, lacking = Cases(label, prob, uncertainty, patient=np.asarray(patient), threshold=threshold), 0, 0.0
    if len(cases) >= UNREAD and cases.prob.min() >= 0.5 and cases.label.mean() < 0.9:
        told = "no probability is below 0.5. Is 'prob' the confidence in the call? It must be P(referable)"
        return [f"WARNING: {images}: {told}"]
    for called in (False, True):
        side = cases.called == called
        wrong, values, of = cases.error[side], cases.uncertainty[side], cases.patient[side]
        if not UNREAD <= np.count_nonzero(wrong) < len(wrong) or not (sure := values < values[wrong].min()).any():
            continue
        chance = np.clip(1 - cases.prob[side] if called else cases.prob[side], EPS, 1 - EPS)
        seen = Cases(wrong[~sure], chance[~sure], values[~sure], patient=of[~sure]).weighted()
        x, one = _logits(seen)
        line = np.array(logistic_fit(seen, design := np.column_stack([one, x]), 0.0))
        if not line[1] > 0 or patients_of(seen) < 2:
            continue
        far = np.column_stack([np.ones(np.count_nonzero(sure)), logit(chance[sure])])
        error = np.sqrt(np.sum(far @ logistic_covariance(seen, design, line, 0 * x) * far, axis=1))
        expected = float(np.minimum(expit(far @ line - 2 * error), 0.5).sum())
        if expected >= max(UNREAD, np.count_nonzero(wrong) / 10):
            unread, lacking = unread + len(far), lacking + expected
    if not unread:
        return []
    return [
        f"WARNING: {images}: the labels of the {unread:,} surest images are the model's own calls without an exception, where at least "
        f"{lacking:.0f} errors are expected. If nobody has read these images, every result is too good: have a random sample of them read"
    ]


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


@dataclass(frozen=True)
class SetCalibration(Document):
    """Whether the probabilities of a set can be read as risks: `calibration` in the results and the JSON of `score`.

    In the JSON, the ends of an interval are numbers of their own, with `_low` and `_high` behind the name, and the parts of the
    Brier score begin with `brier_`.
    """

    line_intercept: Interval  # of logit P(y) = intercept + slope logit(p); 0 is right where the slope is 1
    line_slope: Interval  # 1 is right, below 1 the probabilities are too extreme
    line_in_the_large: Interval  # the intercept with the slope held at 1
    line_observed_over_expected: Interval  # referable images over the sum of the probabilities
    brier: Murphy  # over 10 bins (Murphy 1973)
    null_ece_top_label: Interval  # of a perfectly calibrated model with these probabilities: mean, 95 % band
    calibration_error_top_label: Interval
    null_ece_positive_class: Interval
    calibration_error_positive_class: Interval

    def to_dict(self) -> JsonObject:
        content: JsonObject = {f"brier_{part}": value for part, value in vars(self.brier).items() if part != "brier"}
        for name, shown in vars_of(self).items():
            if isinstance(shown, Interval):
                middle = f"{name}_mean" if name.startswith("null_") else name
                content |= {middle: shown.value, f"{name}_low": shown.low, f"{name}_high": shown.high}
        return dict(json_content(content))


def set_calibration(w: Weighted, seed: int, level: float) -> SetCalibration:
    """Return the calibration line, the parts of the Brier score, and calibration errors with those of a calibrated model, whose outcomes `seed` draws."""
    found = {f"line_{name}": interval for name, interval in line_intervals_of(w, level).items()}
    for of, band in null_bands_of(w, replicates=NULL_DRAWS, seed=seed).items():
        found[f"null_ece_{of}"] = Interval(*band)
        ends = calibration_error_interval(w, level, of=of)
        found[f"calibration_error_{of}"] = Interval(calibration_error_of(w, of), *ends)
    return SetCalibration(brier=murphy_of(w), **found)


@dataclass(frozen=True)
class CurvePoint:
    """A tenth of the images, by their probability: its mean, and the share that is referable."""

    forecast: float
    observed: Interval
    images: int


@dataclass(frozen=True)
class CalibrationSummary(Document):
    """Calibration of P(referable), per image: the fields of `CalibrationLine`, and the curve over groups of equally many images."""

    slope: Interval
    intercept: Interval
    in_the_large: Interval
    observed_over_expected: Interval
    curve: tuple[CurvePoint, ...]


def calibration_summary(label: ArrayLike, prob: ArrayLike, cluster: ArrayLike) -> CalibrationSummary:
    """Return the calibration line and curve of images (N,) with 95 % intervals, clustered by patient (N,).

    With images of one class, observed over expected has the interval of the prevalence, divided by the mean probability.
    """
    y, p = binary(label, "label"), np.asarray(prob, np.float64)
    codes, _ = cluster_codes(cluster)
    line = line_intervals_of(Cases(y, p, patient=codes).weighted())
    if p.any() and (y.all() or not y.any()):
        share, mean = clustered_proportion(y, np.ones(len(y)), codes), float(p.mean())
        line["observed_over_expected"] = Interval(share.value / mean, share.low / mean, share.high / mean)
    return CalibrationSummary(**line, curve=_curve(y, p, codes))


def _curve(y: Bools, p: Floats, codes: NDArray[np.intp]) -> tuple[CurvePoint, ...]:
    """Groups of equally many images by probability; equal probabilities stay together."""
    order = np.sort(p)
    edges = np.unique(order[np.linspace(0, len(p) - 1, CURVE_BINS + 1).round().astype(int)[1:-1]])
    number = np.searchsorted(edges, p, side="left")
    groups = [number == k for k in np.unique(number)]
    return tuple(CurvePoint(float(p[g].mean()), clustered_proportion(y, g, codes), int(g.sum())) for g in groups)

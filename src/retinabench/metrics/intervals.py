"""Intervals and tests of scores: the closed-form error of an AUROC, and one interval method per kind of score.

A score with a bound at 0 or 1 is skewed near it, and rare patients decide it: percentile and t intervals miss the truth on the far side, up to
ten times too often. `loss_interval` reckons with a patient who was not seen.

Every table, page and exporter shows the interval of this method. No method gives an interval without width: where the sample
says nothing about the other side, there is either a bound that holds or none, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from retinabench.core.errors import InputError
from retinabench.metrics.proportions import binary, clopper_pearson, clustered_proportion
from retinabench.metrics.weighted_images import (
    EPS,
    MAX_UNDEFINED,
    Bools,
    Floats,
    Weighted,
    cluster_codes,
    percentile_interval,
)

Bounds = tuple[float, float]
Moments = tuple[float, float]  # mean and mean square of what a pseudo-patient adds to a loss
Counts = Callable[[Weighted], tuple[NDArray[np.generic], Floats]]
Of = Literal["patients", "classes", "retained", "errors"]
Ranks = Callable[[Weighted], tuple[Floats, Floats, Floats]]
ROUNDING = 1e-12  # replicates that differ by less are equal: an area of ones is 1 only up to rounding
FEWEST_ERRORS = 5
FEWEST_WRONG = 10  # of a calibration error, whose interval takes the gaps for normal
HALF, WHOLE = 0.5, 1.0
"""As how many patients the pseudo-patient counts: half a patient, as in Jeffreys' interval, for scores of all images; a whole one for those that the order of
referral decides, whose few large terms a smaller number does not reckon with (`docs/intervals.md`)."""
MORE_DEGREES = 5  # chosen by simulation, see `docs/intervals.md`
FEWEST_DRAWS = 200  # replicates that tell how differences depend on each other
MOST_EXACT = 4000  # the convolution takes less than a tenth of a second
ONE_PATIENT = "no interval: there is a single patient"
ONE_PATIENT_OF_CLASS = "no interval: a single patient has images of one of the classes"
FEW = {
    "patients": ONE_PATIENT,
    "classes": ONE_PATIENT_OF_CLASS,
    "retained": "no interval: fewer than four patients have images of one of the classes",
    "errors": f"no interval: fewer than {FEWEST_ERRORS} patients have a wrong (or a correct) prediction, which decides the score",
}
NOT_LINEAR = (
    "no interval: fewer predictions are correct than images are retained, so that oracle referral leaves errors"
)
UNDEFINED = "no interval: the score is undefined in more than 5 % of the bootstrap replicates"
ALL_ALIKE = "no interval: every bootstrap replicate has the same value, so that an interval would have no width"


def scaled_interval(
    value: float, error: float, bounds: Bounds, degrees: float, level: float = 0.95
) -> tuple[float, float]:
    """Return the t interval of a score on the scale that its bounds ask for.

    With bounds a and b the scale is ln((x - a) / (b - x)), with a alone ln(x - a), with b alone -ln(b - x), with none x itself.
    The standard error there follows by the derivative of the scale (the delta method). A value on or beyond a bound has the
    scale x.
    """
    if not error > 0 or not math.isfinite(value) or degrees < 1:
        return math.nan, math.nan
    half = float(special.stdtrit(degrees, (1 + level) / 2)) * error
    above, below = value - bounds[0], bounds[1] - value
    if not (above > 0 and below > 0) or above == below == math.inf:
        return max(value - half, bounds[0]), min(value + half, bounds[1])
    ends = []
    for side in (-half, half):
        if below == math.inf:
            ends.append(bounds[0] + above * math.exp(min(side / above, 700.0)))
        elif above == math.inf:
            ends.append(bounds[1] - below * math.exp(min(-side / below, 700.0)))
        else:
            odds = math.log(above / below) + side * (1 / above + 1 / below)
            ends.append(bounds[0] + (above + below) / (1 + math.exp(min(-odds, 700.0))))
    return ends[0], ends[1]


def replicate_error(draws: ArrayLike) -> float:
    values = np.asarray(draws, np.float64)
    known = values[np.isfinite(values)]
    if len(known) < 2 or len(known) < (1 - MAX_UNDEFINED) * len(values):
        return math.nan
    equal = np.ptp(known) <= ROUNDING * max(1.0, float(np.abs(known).max()))
    return 0.0 if equal else float(known.std(ddof=1))


def t_test(difference: float, error: float, degrees: float) -> float:
    """Return the two-sided p-value of "no difference" from a standard error, by Student's t distribution."""
    if difference == 0:
        return 1.0
    if not error > 0 or degrees < 1:
        return math.nan
    return float(2 * special.stdtr(degrees, -abs(difference) / error))


@dataclass(frozen=True)
class AurocError:
    """An AUROC (or a difference of two) with its standard error, and the patients with images of each class."""

    auroc: float
    standard_error: float
    difference: bool = False
    degrees: float = np.inf
    positives: int = 0
    negatives: int = 0

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval of 1 - AUROC (`loss_interval`), or of a difference Student's t, cut to [-1, 1]; NaN where the error is undefined."""
        if not self.difference:
            return auroc_interval(self.auroc, self.standard_error, self.positives, self.negatives, level)
        bounds = -np.inf, np.inf
        low, high = scaled_interval(self.auroc, self.standard_error, bounds, self.degrees, level)
        return (max(low, -1.0), min(high, 1.0)) if low <= high else (low, high)

    @property
    def p_value(self) -> float:
        """Two-sided p-value of "AUROC = 1/2", or of "no difference", by Student's t distribution."""
        return t_test(self.auroc - (0.0 if self.difference else 0.5), self.standard_error, self.degrees)


def loss_interval(
    loss: float, variance: float, pseudo: Moments, largest: float = math.inf, level: float = 0.95
) -> tuple[float, float]:
    """Return the interval of a mean of losses that are rare and large, such as 1 - AUROC, AURC or NLL.

    A study without the rare patient knows neither the mean nor its variance: t intervals of such scores hold the truth in as few as half
    of the studies. The lower end is the quantile of the gamma distribution of mean y and variance v, the upper one that of mean y + e
    and variance v + s, where e and s are the mean and the mean square of what a pseudo-patient adds whose
    predictions are wrong (`HALF` a patient, or a `WHOLE` one). It is the interval of a weighted sum of Poisson counts, whose weights are here the losses. For
    losses of at most `largest` the distributions are beta distributions, and beyond half of it the pseudo-patient adds to largest - y.

    References:
        Fay and Feuer, Confidence intervals for directly standardized rates: a method based on the gamma distribution, Stat. Med. 16:791
        (1997); Tiwari, Clegg and Zou, Efficient interval estimation for age-adjusted cancer rates, Stat. Methods Med. Res.
        15:547 (2006), where the added count has a random weight.

    >>> low, high = loss_interval(0.0, 0.0, (0.0025, 0.000025))  # no loss was seen in 100 patients
    >>> low, round(high, 4)
    (0.0, 0.0172)
    """
    if not (math.isfinite(loss) and math.isfinite(variance)):
        return math.nan, math.nan
    if loss > largest / 2:
        low, high = loss_interval(largest - loss, variance, pseudo, largest, level)
        return largest - high, largest - low
    varies = loss > 0 and variance > ROUNDING * loss**2
    low = _matched(loss, variance, largest, (1 - level) / 2) if varies else min(loss, 0.0)
    return low, _matched(max(loss, 0.0) + pseudo[0], variance + pseudo[1], largest, (1 + level) / 2)


def _matched(mean: float, variance: float, largest: float, quantile: float) -> float:
    """The quantile of the gamma distribution of this mean and variance, or of the beta distribution on [0, largest]."""
    if largest == math.inf:
        return float(special.gammaincinv(mean**2 / variance, quantile) * variance / mean)
    share, most = mean / largest, mean * (largest - mean) / variance - 1
    if share >= 1 or most <= 0:  # further from 0 and `largest` than any distribution allows: nothing is known
        return largest if quantile > 0.5 else 0.0
    return largest * float(special.betaincinv(share * most, (1 - share) * most, quantile))


def auroc_interval(
    auroc: float, error: float, positives: int, negatives: int, level: float = 0.95, weight: float = HALF
) -> tuple[float, float]:
    """Return `loss_interval` of 1 - AUROC, from its standard error and the patients with images of each class.

    The pseudo-patients of both classes count as `weight` patients each and are ranked at random. Where every patient is ranked rightly the bound is the
    exact one of as many successes as the rarer class has patients.
    """
    fewest = min(positives, negatives)
    if math.isnan(error) or fewest < 1:
        return math.nan, math.nan
    if auroc in (0, 1):
        perfect = float(clopper_pearson(fewest, fewest, level)[0])
        return (perfect, 1.0) if auroc == 1 else (0.0, 1 - perfect)
    if error == 0:
        return 0.0, 1.0  # every patient has the same share of right comparisons: nothing is known of others
    low, high = loss_interval(1 - auroc, error**2, ranked_at_random([positives, negatives], weight), 1.0, level)
    return 1 - high, 1 - low


def ranked_at_random(patients: Sequence[int], weight: float) -> Moments:
    """What a pseudo-patient of each class adds to 1 - AUROC if it is ranked at random among these numbers of patients."""
    shares = [1 / count for count in patients]
    return weight * sum(shares) / 2, weight * sum(share**2 for share in shares) / 3


def auroc_error(
    label: ArrayLike, score: ArrayLike, cluster: ArrayLike | None = None, weight: ArrayLike | None = None
) -> AurocError:
    """Return the AUROC with its closed-form standard error.

    With m positives X and n negatives Y, V10_i = mean_j psi(X_i, Y_j), V01_j = mean_i psi(X_i, Y_j) and psi = 1, 1/2, 0 for
    above, equal, below. Without clusters (DeLong) var = S10/m + S01/n with S10, S01 the variances (one ddof) of V10 and V01.
    With clusters (Obuchowski), sums V10_i., V01_i. over the m_i positives and n_i negatives of patient i, I patients, I10 of
    them with a positive, I01 with a negative, and A the AUROC:

        S10 = I10 / ((I10 - 1) m) sum (V10_i. - m_i A)^2     S01 = I01 / ((I01 - 1) n) sum (V01_i. - n_i A)^2
        S11 = I / (I - 1) sum (V10_i. - m_i A)(V01_i. - n_i A)     var = S10/m + S01/n + 2 S11/(m n)

    References:
        DeLong, DeLong and Clarke-Pearson, Biometrics 44:837 (1988); Obuchowski, Biometrics 53:567 (1997).
    """
    return _error(label, [score], cluster, weight)


def auroc_difference(
    label: ArrayLike,
    score_a: ArrayLike,
    score_b: ArrayLike,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> AurocError:
    """Return the difference of two AUROCs on the same images, with the standard error of the paired difference.

    Placement values are linear in the AUROC, hence `auroc_error` of their differences: the covariance is in them.
    """
    return _error(label, [score_a, score_b], cluster, weight)


def _error(
    label: ArrayLike, scores: Sequence[ArrayLike], cluster: ArrayLike | None, weights: ArrayLike | None
) -> AurocError:
    y, difference = binary(label, "label"), len(scores) > 1
    weight = np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)
    placements = [_placements(y, score, weight) for score in scores]
    placement = placements[0] - placements[1] if difference else placements[0]
    m, n = float(weight[y].sum()), float(weight[~y].sum())
    if m == 0 or n == 0:
        return AurocError(math.nan, math.nan, difference)
    codes, patients = cluster_codes(np.arange(len(y)) if cluster is None else cluster)
    if len(codes) != len(y):
        raise InputError(f"{len(codes)} cluster ids for {len(y)} labels")
    auroc = float(weight[y] @ placement[y]) / m
    # Deviation of each patient's summed placements from what the AUROC predicts, by class.
    deviation = weight * (placement - auroc)
    of_positives = np.bincount(codes, np.where(y, deviation, 0.0), patients)
    of_negatives = np.bincount(codes, np.where(y, 0.0, deviation), patients)
    held = weight > 0
    with_positive, with_negative = len(np.unique(codes[held & y])), len(np.unique(codes[held & ~y]))
    if with_positive < 2 or with_negative < 2:
        return AurocError(auroc, float("nan"), difference)
    known = len(np.unique(codes[held]))
    v10 = with_positive / (with_positive - 1) * float(of_positives @ of_positives) / m**2
    v01 = with_negative / (with_negative - 1) * float(of_negatives @ of_negatives) / n**2
    v11 = known / (known - 1) * float(of_positives @ of_negatives) / (m * n)
    noise = v10**2 / (with_positive - 1) + v01**2 / (with_negative - 1)
    degrees = (v10 + v01) ** 2 / noise if noise > 0 else min(with_positive, with_negative) - 1.0
    error = float(np.sqrt(max(v10 + v01 + 2 * v11, 0.0)))
    return AurocError(auroc, error, difference, degrees, with_positive, with_negative)


def _placements(y: Bools, values: ArrayLike, weight: Floats) -> Floats:
    """(N,) share of the other class's weight against which each image is ranked rightly, ties counted half."""
    score, out = np.asarray(values, np.float64), np.empty(len(y))
    if score.shape != y.shape or not np.isfinite(score).all():
        raise InputError(f"needed are {len(y)} finite numbers, one per label", column="score")
    for side, sign in ((y, 1), (~y, -1)):
        order = np.argsort(sign * score[~side], kind="stable")
        other, mass = (sign * score[~side])[order], np.concatenate(([0.0], np.cumsum(weight[~side][order])))
        if len(other) and side.any() and mass[-1] > 0:
            x = sign * score[side]
            below = mass[np.searchsorted(other, x, "left")] + mass[np.searchsorted(other, x, "right")]
            out[side] = below / (2 * mass[-1])
    return out


class Ends(NamedTuple):
    """The ends of an interval, NaN where there is none, and then why."""

    low: float = math.nan
    high: float = math.nan
    why: str | None = None


class IntervalMethod(Protocol):
    """How the interval of a score is computed; `resampled` says whether it needs bootstrap replicates."""

    @property
    def resampled(self) -> bool:
        """Whether `ends` needs replicates."""

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        """Return the interval of the mean of a score over the files of several seeds, most often one. Shapes: `draws` (R,)."""


@dataclass(frozen=True)
class Percentile:
    """The percentile interval of the replicates. Default for plug-in scores."""

    resampled: bool = True

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        if patients_of(sets[0]) < 2:
            return Ends(why=ONE_PATIENT)
        low, high = (float(end) for end in percentile_interval(draws, level))
        return _checked(low, high, draws)


@dataclass(frozen=True)
class Scaled:
    """Student's t interval with the std of the bootstrap replicates, on the logit or logarithmic scale of the bounds; see `scaled_interval`."""

    low: float = -math.inf  # the least value of the score
    high: float = math.inf
    of: Of = "patients"  # whose number, less one, are the degrees of freedom; see `patients_of`
    pseudo: float = 0.0  # of 1 / patients^2 is added to the squared error: a pseudo-patient with a loss of -1 or 1
    resampled: bool = True

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        patients = min(patients_of(w, self.of) for w in sets)
        if patients < 2:
            return Ends(why=FEW[self.of])
        degrees = min(patients, len(draws)) - 1
        error = math.sqrt(replicate_error(draws) ** 2 + self.pseudo / patients_of(sets[0]) ** 2)
        ends = scaled_interval(value, error, (self.low, self.high), degrees, level)
        return _checked(*ends, draws)


@dataclass(frozen=True)
class Proportion:
    """Jeffreys' interval at an effective number of images, see `clustered_proportion`."""

    counts: Counts  # success of each image in [0, 1] and what it counts for, both (N,)
    resampled: bool = False  # whether the images that count depend on the sample: replicates then tell the variance
    scale: Callable[[Weighted], tuple[float, float]] | None = None  # a and b of a score that is a + b x proportion

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        parts = [self.counts(w) for w in sets]
        success = np.concatenate([y for y, _ in parts])
        weight = np.concatenate([of / of.sum() if of.any() else of for _, of in parts])
        patient = np.concatenate([w.cases.patient for w in sets])
        at, slope = (0.0, 1.0) if self.scale is None else self.scale(sets[0])
        error = replicate_error(draws) / slope if self.resampled else 0.0
        variance = error**2 if math.isfinite(error) else 0.0
        found = clustered_proportion(success, weight, patient, level, variance=variance)
        if math.isnan(found.low):
            return Ends(why=ONE_PATIENT_OF_CLASS)
        if self.scale is not None and abs(at + slope * found.value - value) > 1e-9:
            return Ends(why=NOT_LINEAR)
        low, high = sorted(at + slope * end for end in (found.low, found.high))
        return Ends(low, high)


@dataclass(frozen=True)
class Loss:
    """Of a score that is a mean of rare, large losses; see `loss_interval`. The variance is that of the replicates."""

    pseudo: Callable[[Weighted], Moments]  # what a pseudo-patient adds whose predictions are wrong: mean, mean square
    best: float = 0.0  # the value without a loss: 0 of a loss, 1 of a share less a loss
    largest: float = math.inf
    of: Of = "patients"  # as in `Scaled`, of the differences of two models
    resampled: bool = True

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        if patients_of(sets[0]) < 2:
            return Ends(why=ONE_PATIENT)
        variance = replicate_error(draws) ** 2
        if math.isnan(variance):
            return Ends(why=UNDEFINED)
        sign = 1 if self.best == 0 else -1
        ends = loss_interval(sign * (value - self.best), variance, self.pseudo(sets[0]), self.largest, level)
        low, high = sorted(self.best + sign * end for end in ends)
        return Ends(low, high)


@dataclass(frozen=True)
class Ranked:
    """Of an AUROC or a linear function of one: `loss_interval` of 1 - AUROC with DeLong's or Obuchowski's error."""

    parts: Ranks  # score, and mass of the positive and of the negative images, all (N,)
    low: float = 0.0  # the value where the AUROC is 0
    pseudo: float = HALF  # as how many patients the pseudo-patient of each class counts
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        w = sets[0]
        score, positive, negative = self.parts(w)
        patients = _patients(positive, w), _patients(negative, w)
        if min(patients) < 2:
            return Ends(why=ONE_PATIENT_OF_CLASS)
        if score.min() == score.max():  # whose difference may overflow
            return Ends(why="no interval: all images are tied")
        span = 1 - self.low
        if len(sets) == 1:
            error = auroc_error(positive > 0, score, w.cases.patient, positive + negative).standard_error
        else:
            error = replicate_error(draws) / span
        if math.isnan(error):
            return Ends(why=UNDEFINED)
        low, high = auroc_interval((value - self.low) / span, error, *patients, level, self.pseudo)
        return Ends(self.low + span * low, self.low + span * high)


@dataclass(frozen=True)
class Closed:
    """An interval in closed form of the images alone, such as the inverse of a test of squared gaps."""

    function: Callable[[Weighted, float], Bounds]
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        if len(sets) > 1:
            return Ends(why="no interval of a mean over seeds; that of each seed is in its own scores")
        if patients_of(sets[0]) < 2:
            return Ends(why=ONE_PATIENT)
        low, high = self.function(sets[0], level)
        few = f"no interval: fewer than {FEWEST_WRONG} patients have a wrong (or a correct) prediction, which decides the score"
        return Ends(low, high, few if math.isnan(low) else None)


@dataclass(frozen=True)
class NoInterval:
    """No interval, because none would hold the truth as often as it says: chance makes an ECE larger, in replicates still more."""

    why: str
    resampled: bool = False

    def ends(self, sets: Sequence[Weighted], value: float, draws: Floats, level: float) -> Ends:
        return Ends(why=self.why)


def difference_method(method: IntervalMethod) -> Scaled:
    """Return how a difference of two scores gets its interval from replicates that hold the same patients for both."""
    return Scaled(of=method.of if isinstance(method, Scaled | Loss) else "patients")


def patients_of(w: Weighted, of: Of = "patients") -> int:
    """Return the number of patients that decide a standard error, 0 where they are too few.

    They are all `patients`; those of the rarer of the `classes`; `retained`, for an area over referral: 5 more than those with a wrong
    prediction in the surer half of the images, because these decide it, at most half of those of the rarer class; or `errors`: those with
    the rarer of wrong and correct predictions, and none below 5 of them.
    """
    if of == "classes":  # of those that are there
        return min(filter(None, (_patients(w.positive, w), _patients(w.negative, w))), default=0)
    if of == "errors":
        wrong = w.weight * w.cases.error
        rarer = min(_patients(wrong, w), _patients(w.weight - wrong, w))
        return rarer if rarer >= FEWEST_ERRORS else 0
    if of == "retained":
        blocks = int(np.searchsorted(w.mass, w.total / 2, side="right")) - 1
        sure = int(w.cases.ends[blocks - 1]) + 1 if blocks else 0
        wrong = w.weight * w.cases.error
        wrong[sure:] = 0
        return min(patients_of(w, "classes") // 2, _patients(wrong, w) + MORE_DEGREES + 1)
    return _patients(w.weight, w)


def _patients(mass: Floats, w: Weighted) -> int:
    held = mass > 0
    return int(np.count_nonzero(np.bincount(w.cases.patient[held]))) if held.any() else 0


def _checked(low: float, high: float, draws: Floats) -> Ends:
    if high > low:
        return Ends(low, high)
    return Ends(why=UNDEFINED if math.isnan(replicate_error(draws)) else ALL_ALIKE)


# What a pseudo-patient whose predictions are wrong adds to each loss: its mean and its mean square. Its images have a random rank of the uncertainty. With G patients
# and a loss that adds x to the mean of an image, they are the mean of x / G, and of x^2 / G^2, times the patients that it counts as: `HALF`, or `pseudo_of_areas`.


def pseudo_of_areas(patients: int) -> float:
    """One pseudo-patient up to 300 patients, sqrt(G / 300) up to 1,200, then two; chosen by simulation, see `docs/intervals.md`."""
    return float(min(max(patients / 300, 1.0) ** 0.5, 2.0))


def _moments(w: Weighted, weight: float, mean: float, square: float) -> Moments:
    patients = patients_of(w)
    return weight * mean / patients, weight * square / patients**2


def _area_weight(w: Weighted) -> Floats:
    """(N,) weight of each image in an area over referral: -ln u, with u the share of the images that is retained where it is the next to go."""
    middle = (w.mass[1:] + w.mass[:-1]) / 2  # of each block of equal uncertainty
    sizes = np.diff(w.cases.edges)
    return np.repeat(-np.log(np.maximum(middle, EPS * w.total) / w.total), sizes)


def pseudo_of_probability(w: Weighted, loss: Literal["log", "squared"], *, area: bool = False) -> Moments:
    """NLL or Brier score, or the area of it over referral: the labels of a random patient are turned."""
    error = np.where(w.cases.label, w.cases.prob, 1 - w.cases.prob)  # if the label is turned
    x = error**2 if loss == "squared" else -np.log(np.clip(1 - error, EPS, 1 - EPS))
    return pseudo_of_losses(w, x, area=area)


def pseudo_of_losses(w: Weighted, x: Floats, *, area: bool = False) -> Moments:
    """Return what a mean of losses gains, or the area of it over referral, where a random image has the loss x (N,)."""
    x = x * _area_weight(w) if area else x
    return _moments(w, pseudo_of_areas(patients_of(w)) if area else HALF, float(w.mean(x)), float(w.mean(x**2)))


def pseudo_of_brier_skill(w: Weighted) -> Moments:
    """1 - Brier skill: the Brier score over that of always giving the prevalence."""
    mean, square = pseudo_of_probability(w, "squared")
    share = float(w.positives / w.total)
    scale = share * (1 - share)
    return mean / scale, square / scale**2


def pseudo_of_aurc(w: Weighted) -> Moments:
    """AURC: -ln u of a uniform rank u has mean 1 and mean square 2."""
    return _moments(w, pseudo_of_areas(patients_of(w)), 1, 2)


def pseudo_of_e_aurc(w: Weighted) -> Moments:
    """E-AURC: -ln u + ln a, because the error that the oracle leaves grows by -ln a at accuracy a."""
    log = float(np.log(max(1 - float(w.mean(w.cases.error)), EPS)))
    return _moments(w, pseudo_of_areas(patients_of(w)), 1 + log, 2 + 2 * log + log**2)


def pseudo_of_augrc(w: Weighted) -> Moments:
    """AUGRC: 1 - u of a uniform rank u."""
    return _moments(w, HALF, 1 / 2, 1 / 3)


def pseudo_of_ranked(w: Weighted, classes: Literal["both", "positive"] = "both", *, half: bool = False) -> Moments:
    """1 - AUROC (both classes), or 1 - AUPRC (positives), of all images or of the half that is retained: an image is ranked at random."""
    kept = w.retained(int(np.ceil(float(w.count) / 2))) if half else w.weight
    masses = [kept * w.cases.label, kept * ~w.cases.label][: 2 if classes == "both" else 1]
    counts = [len(np.unique(w.cases.patient[mass > 0])) for mass in masses]
    return ranked_at_random([count for count in counts if count], HALF)


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm's step-down adjusted p-values, which control the family-wise error under any dependence.

    Sorted p_(1) <= … <= p_(m): adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).

    References:
        Holm, A simple sequentially rejective multiple test procedure, Scand. J. Stat. 6:65 (1979).
    """
    p = np.asarray(p_values, np.float64)
    out = np.full(p.shape, np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    out[order] = np.maximum.accumulate(np.minimum(1.0, factors * p[order]))
    return out


def min_p(p_values: ArrayLike, draws: ArrayLike) -> Floats:
    """Return Westfall and Young's step-down adjusted p-values (K,) of K differences whose replicates are `draws` (R, K).

    Scores that say the same thing thrice are one test, not three. The replicates of each difference about their mean, in place of those under
    "no difference", have p-values of their own: their ranks by distance, over R. With p_(1) <= ... <= p_(K):

        adjusted p_(i) = max over j <= i of P(least replicate p-value of the differences j ... K <= p_(j))

    Below 5 / R the ratio to the p-value is that at 5 / R, so that no number of replicates bounds it from below. Holm's correction where there are
    fewer than `FEWEST_DRAWS` replicates.

    References:
        Westfall and Young, Resampling-based multiple testing (1993), algorithm 2.8; Ge, Dudoit and Speed, Resampling-based
        multiple testing for microarray data analysis, TEST 12:1 (2003).
    """
    p, values = np.asarray(p_values, np.float64), np.asarray(draws, np.float64)
    known = np.flatnonzero(np.isfinite(p))
    if len(values) < FEWEST_DRAWS or len(known) < 2:
        return holm(p)
    order = known[np.argsort(-p[known], kind="stable")]
    least, out, smallest = np.ones(len(values)), np.full(p.shape, np.nan), 5 / len(values)
    for k in order:  # from the largest p-value to the smallest one
        column = values[:, k]
        defined = np.isfinite(column)
        distance = np.where(defined, np.abs(column - column[defined].mean() if defined.any() else 0.0), 0.0)
        least = np.minimum(least, np.searchsorted(np.sort(-distance), -distance, "right") / len(values))
        at = max(float(p[k]), smallest)
        out[k] = min(1.0, max(p[k], float(np.mean(least <= at)) * p[k] / at))
    ascending = order[::-1]
    out[ascending] = np.maximum.accumulate(out[ascending])
    return out


def sign_flip_p_value(differences: ArrayLike) -> float:
    """Return the two-sided p-value of "no difference" from the difference in each patient, by exchanging the models.

    If the models do not differ, each difference could as well have the other sign: p is the share of all 2^G signs under which the
    absolute sum is at least as large. With one image per patient and differences of 0 and +-1 it is McNemar's exact test. The
    distribution of whole differences is exact, by convolution over their sizes; where they are not whole, or their absolute sum
    is above 4,000, it is the normal one of the same variance.

    References:
        Fisher, The design of experiments (1935), section 21; McNemar, Psychometrika 12:153 (1947).
    """
    d = np.asarray(differences, np.float64)
    d = d[d != 0]
    found = abs(float(d.sum()))
    if not len(d) or found == 0:
        return 1.0
    if not (d == np.round(d)).all() or np.abs(d).sum() > MOST_EXACT:
        return float(min(1.0, 2 * special.ndtr(-found / np.sqrt(d @ d))))
    sizes, counts = np.unique(np.abs(d).astype(np.intp), return_counts=True)
    chance = np.ones(1)  # of each number of the sum's steps of 1 above its least
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        steps = np.zeros(2 * size * count + 1)
        half = np.arange(count // 2, count)  # from the middle out: each binomial chance is a multiple of the one before
        upper = np.cumprod(np.append(1.0, (count - half) / (half + 1)))
        chances = np.concatenate([upper[:0:-1], upper[count % 2 :]])
        steps[:: 2 * size] = chances / chances.sum()
        chance = np.convolve(chance, steps)
    total = int(np.abs(d).sum())
    return float(min(1.0, chance[np.abs(np.arange(-total, total + 1)) >= found].sum()))

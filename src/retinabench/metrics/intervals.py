"""Intervals in closed form: of proportions of images of shared patients, of bounded scores, of means of rare losses, and of an AUROC.

A score with a bound at 0 or 1 is skewed near it, and rare patients decide it: percentile and t intervals miss the truth on the far side, up to
ten times too often. `loss_interval` reckons with a patient who was not seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from retinabench.core.errors import InputError
from retinabench.core.results import Document
from retinabench.metrics.p_values import t_test
from retinabench.metrics.weighted_images import MAX_UNDEFINED, Bools, Floats, Weighted, cluster_codes

# Weight of the design effect of copied images: 93 to 97 % also for few errors and many images a patient.
PRIOR_PATIENTS = 2.0
MOST_VALUES = 8  # of a share that is taken apart
OTHERS_UNSEEN = 10  # patients who all have the same share; fewer do not show that others have it too
Bounds = tuple[float, float]
Moments = tuple[float, float]  # mean and mean square of what a pseudo-patient adds to a loss
Of = Literal["patients", "classes", "retained", "errors"]
ROUNDING = 1e-12  # replicates that differ by less are equal: an area of ones is 1 only up to rounding
FEWEST_ERRORS = 5
FEWEST_WRONG = 10  # of a calibration error, whose interval takes the gaps for normal
HALF, WHOLE = 0.5, 1.0
"""As how many patients the pseudo-patient counts: half a patient, as in Jeffreys' interval, for scores of all images; a whole one for the AUPRC and for scores
that the order of referral decides, whose few large terms a smaller number does not reckon with (`docs/intervals.md`)."""
MORE_DEGREES = 5  # chosen by simulation, see `docs/intervals.md`


@dataclass(frozen=True)
class Interval(Document):
    """A value and the ends of its interval; NaN where undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan


def finite_or_none(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def binary(values: ArrayLike, name: str) -> Bools:
    """(N,) bool of zeros and ones; anything else raises `InputError`."""
    array = np.asarray(values)
    if array.ndim != 1 or not np.isin(array, (0, 1)).all():
        raise InputError("must be (N,) zeros and ones", column=name)
    return array.astype(bool)


def clopper_pearson(successes: ArrayLike, trials: ArrayLike, level: float = 0.95) -> tuple[Any, Any]:
    """Return the Clopper-Pearson interval of a proportion, which covers at least `level` for independent trials.

    low = Beta^-1((1-level)/2; k, n-k+1), high = Beta^-1((1+level)/2; k+1, n-k). Usual in regulation; wider than needed on
    average.

    References:
        Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of the binomial, Biometrika
        26:404 (1934).
    """
    k, n = _counts(successes, trials)
    tail = (1 - level) / 2
    low = np.where(k == 0, 0.0, special.betaincinv(np.where(k == 0, 1, k), n - k + 1, tail))
    high = np.where(k == n, 1.0, special.betaincinv(k + 1, np.where(k == n, 1, n - k), 1 - tail))
    return np.where(n > 0, low, np.nan)[()], np.where(n > 0, high, np.nan)[()]


def jeffreys(successes: ArrayLike, trials: ArrayLike, level: float = 0.95) -> tuple[Any, Any]:
    """Return the modified Jeffreys interval of a proportion, which covers `level` on average over p.

    low = Beta^-1((1-level)/2; k + 1/2, n-k + 1/2), high = Beta^-1((1+level)/2; k + 1/2, n-k + 1/2). At k = 0 and k = n the ends
    are those of Clopper and Pearson. Neither k nor n has to be whole, which an effective number of trials never is.

    References:
        Brown, Cai and DasGupta, Interval estimation for a binomial proportion, Stat. Sci. 16:101 (2001), section 4.1.
    """
    k, n = _counts(successes, trials)
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"):
        # With less than one trial the quantiles can leave out k/n itself.
        low = np.minimum(special.betaincinv(k + 0.5, n - k + 0.5, tail), k / n)
        high = np.maximum(special.betaincinv(k + 0.5, n - k + 0.5, 1 - tail), k / n)
    edge = (k == 0) | (k == n)
    exact = clopper_pearson(k, n, level) if edge.any() else (low, high)
    return np.where(edge, exact[0], low)[()], np.where(edge, exact[1], high)[()]


def _counts(successes: ArrayLike, trials: ArrayLike) -> tuple[Floats, Floats]:
    k, n = np.asarray(successes, np.float64), np.asarray(trials, np.float64)
    k, n = (k, n) if k.shape == n.shape else np.broadcast_arrays(k, n)
    if (k < 0).any() or (k > n).any():
        raise InputError("a count of successes lies outside 0 … trials")
    return k, n


def clustered_proportion(
    success: ArrayLike,
    weight: ArrayLike,
    cluster: ArrayLike,
    level: float = 0.95,
    exact: bool = False,
    variance: float = 0.0,
) -> Interval:
    """Return the proportion of successes among weighted images, with an interval for images of shared patients.

    The interval is `jeffreys` at an effective number of images, as Korn and Graubard's is Clopper and Pearson's. With
    p = sum w_i y_i / sum w_i and the residual r_g = sum w_i (y_i - p) of each of G patients, the linearised variance is
    v = G/(G-1) sum r_g^2 / (sum w_i)^2, and the effective number of images p (1-p) / v, at most that of independent images,
    (sum w_i)^2 / sum w_i^2. Where successes are shares of few values, such as 1, 0 and the stated rate of a reader, the interval is
    that of a sum of proportions (`shares_with_ends`); where they are shares of many values, independent images vary by less than p (1-p), and v by as much less.

    Few errors say little about how they cluster, and v is then too small: the design effect is averaged with that of images
    that are copies of each other, which counts as `PRIOR_PATIENTS` patients, the found one as the patients with a success or
    those with a failure, whichever are fewer. With t for z, at G - 1 degrees of freedom, the effective number falls by
    (z / t)^2. At p = 0 or 1 the end is exact for copied images, and no record with an error has a better bound.

    References:
        Korn and Graubard, Confidence intervals for proportions with small expected number of positive counts estimated from
        survey data, Survey Methodology 24:193 (1998). Franco, Little, Louis and Slud, Comparative study of confidence intervals
        for proportions in complex sample surveys, J. Surv. Stat. Methodol. 7:334 (2019), where Jeffreys' covers best.

    `success` lies in [0, 1], a share where it is a mean, such as that over several seeds. `exact` takes the wider interval of Clopper and Pearson
    at the effective number, which never covers less than its level. `variance` of the proportion replaces v where it is larger: which images
    count may itself depend on the sample. NaN where no image counts, the ends also where all that count are of one patient.
    Shapes: `success`, `weight`, `cluster` (N,).
    """
    codes, _ = cluster_codes(cluster)
    y, w = np.asarray(success, np.float64), np.asarray(weight, np.float64)
    if not y.shape == w.shape == codes.shape:
        raise InputError(f"{len(y)} successes, {len(w)} weights and {len(codes)} patients")
    if not ((y >= 0) & (y <= 1)).all() or not (np.isfinite(w) & (w >= 0)).all():
        raise InputError("successes must lie between 0 and 1, weights must be finite and at least 0")
    order = np.argsort(codes, kind="stable")
    of = y[order][None], w[order], patient_starts(codes[order])
    found = shares_with_ends(*of, level, exact=exact, variance=variance)
    return Interval(*(float(one[0]) for one in found))


def effective_images(success: Floats, weight: Floats, codes: NDArray[np.intp], level: float) -> float:
    """Return the number of independent images, not always whole, that would know a proportion as well as these do; see `clustered_proportion`."""
    order = np.argsort(codes, kind="stable")
    sums = proportion_sums(success[order][None], weight[order], patient_starts(codes[order]), level)
    most = weight.sum() ** 2 / (weight @ weight)
    return float(min(sums.effective[0], most) if 0 < sums.value[0] < 1 else sums.copies[0])


@dataclass(frozen=True, eq=False)
class Sums:
    """What the intervals of K proportions need of their images, all (K,)."""

    value: Floats  # the proportions, NaN where no image counts
    effective: Floats  # the effective number of images of each; see `effective_images`
    copies: Floats  # the same, if the images of a patient were copies of each other
    patients: NDArray[np.intp]  # number of patients with an image that counts


def patient_starts(codes: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]]) if len(codes) else np.empty(0, np.intp)


def proportion_sums(
    success: ArrayLike, weight: ArrayLike, starts: NDArray[np.intp], level: float = 0.95, variance: float = 0.0
) -> Sums:
    """Return the sums of K proportions over the same N images. Shapes: `success` (K, N), `weight` (K, N), `starts` (G,)."""
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
        # Variance of one image; less than p (1 - p) where successes are shares, and 0 where all are the same share.
        own = np.einsum("ij,ij->i", w, (y - p[:, None]) ** 2) / total
        found = np.maximum(np.where(patients < images, linear, 0.0), np.maximum(own / alone, variance))
        seen = np.minimum((hits > 0).sum(1), (misses > 0).sum(1))
        inverse = (seen * found + PRIOR_PATIENTS * own / copies) / (p * (1 - p)) / (seen + PRIOR_PATIENTS)
        tail = (1 + level) / 2
        t, z = special.stdtrit(np.maximum(patients - 1, 1), tail), special.ndtri(tail)
        effective = np.where(patients == images, 1.0, (z / t) ** 2) / np.maximum(inverse, 1e-12)
        shares = own < 0.999 * p * (1 - p)  # no bound of a perfect record
        copies = np.where(shares, np.maximum(copies, effective), copies)
    return Sums(p, effective, copies, patients)


def proportion_intervals(sums: Sums, level: float = 0.95, *, exact: bool = False) -> tuple[Floats, Floats]:
    """Return the ends (K,) of the intervals of `clustered_proportion`; NaN where no image counts or all that do are of one patient."""
    p = sums.value
    low, high = np.full((2, len(p)), np.nan)
    known = sums.patients > 1
    inner = known & (p > 0) & (p < 1)
    perfect = np.full(len(p), np.nan)
    perfect[known] = special.betaincinv(sums.copies[known], 1.0, (1 - level) / 2)  # as `clopper_pearson` at k = n
    n = sums.effective[inner]
    found = (clopper_pearson if exact else jeffreys)(p[inner] * n, n, level)
    low[inner] = np.minimum(np.minimum(p[inner], perfect[inner]), found[0])
    high[inner] = np.maximum(np.maximum(p[inner], 1 - perfect[inner]), found[1])
    never, always = known & (p == 0), known & (p == 1)
    low[never], high[never] = 0.0, 1 - perfect[never]
    low[always], high[always] = perfect[always], 1.0
    return low, high


def shares_with_ends(
    success: ArrayLike,
    weight: ArrayLike,
    starts: NDArray[np.intp],
    level: float = 0.95,
    exact: bool = False,
    variance: float = 0.0,
) -> tuple[Floats, Floats, Floats]:
    """Return K proportions over the same N images and the ends of their intervals, (K,) each. Shapes: `success` (K, N), `weight` (K, N), `starts` (G,).

    Successes of few values v, such as 0, 1 and the stated rate of a reader, are taken apart: with m the most frequent value,

        p = m + sum_v (v - m) P(v)

    is a linear combination of proportions (`combined_proportions`). A study in which no image was called wrongly, and some were read, then still says that some
    images may be called wrongly, where the variance of the shares is nearly 0. So does one in which all images of fewer than `OTHERS_UNSEEN` patients were read.
    """
    y, w = np.broadcast_arrays(np.asarray(success, np.float64), np.asarray(weight, np.float64))
    sums = proportion_sums(y, w, starts, level, variance)
    low, high = proportion_intervals(sums, level, exact=exact)
    shares = np.unique(y[(w > 0) & (y != 0) & (y != 1)])
    if variance > 0 or not 0 < len(shares) <= MOST_VALUES - 2:
        return sums.value, low, high
    values = np.array([0.0, *shares, 1.0])
    mass = np.array([(w * (y == value)).sum(axis=1) for value in values])
    taken = ((mass > 0).sum(axis=0) > 1) | (sums.patients < OTHERS_UNSEEN)
    several = taken & (mass[(values > 0) & (values < 1)] > 0).any(axis=0) & np.isfinite(low)
    if several.any():
        y, w = y[several], w[several]
        most = values[mass[:, several].argmax(axis=0)]
        parts = [proportion_sums(y == value, w, starts, level) for value in values]
        ends = [proportion_intervals(one, level, exact=exact) for one in parts]
        residual = np.array([
            np.add.reduceat(w * ((y == value) - one.value[:, None]), starts, axis=1)
            for value, one in zip(values, parts, strict=True)
        ])  # fmt: skip
        below = np.array([one.value - end[0] for one, end in zip(parts, ends, strict=True)])
        above = np.array([end[1] - one.value for one, end in zip(parts, ends, strict=True)])
        correlation = _correlation(np.moveaxis(residual, 1, 0))
        coefficient = (values[:, None] - most).T
        found = _combined(sums.value[several], coefficient, correlation, below.T, above.T)
        low[several], high[several] = np.maximum(found[0], 0.0), np.minimum(found[1], 1.0)
    return sums.value, low, high


def _combined(
    value: Floats, coefficient: Floats, correlation: Floats, below: Floats, above: Floats
) -> tuple[Floats, Floats]:
    """The ends of K combinations, `value` (K,), of P proportions: `coefficient`, `below` and `above` (K, P), `correlation` (K, P, P).

    The method is MOVER (method of variance estimates recovery): the distance of each end of a combination from its value is made of the
    distances of the proportions' own ends from theirs. With intervals that hold at 0 and 1, the combination's does too, where a
    standard error would be 0.

    References:
        Zou, Huang and Zhang, A note on confidence interval estimation for a linear function of binomial proportions, Comput. Stat.
        Data Anal. 53:1080 (2009); Donner and Zou, Closed-form confidence intervals for functions of the normal mean and standard
        deviation, Stat. Methods Med. Res. 21:347 (2012).
    """
    ends = []
    for down, up in ((below, above), (above, below)):
        distance = coefficient * np.where(coefficient > 0, down, up)
        square = np.einsum("ki,kij,kj->k", distance, correlation, distance)
        ends.append(np.sqrt(np.maximum(square, 0.0)))
    return value - ends[0], value + ends[1]


def _correlation(residual: Floats) -> Floats:
    """(..., K, K) correlation of rows (..., K, G); 0 beside the diagonal where a row does not vary."""
    product = residual @ np.swapaxes(residual, -1, -2)
    scale = np.sqrt(np.diagonal(product, axis1=-2, axis2=-1))
    scale = np.where(scale > 0, scale, np.inf)
    return np.asarray(np.where(np.eye(scale.shape[-1]) > 0, 1.0, product / (scale[..., None] * scale[..., None, :])))


def combined_proportions(
    parts: Sequence[tuple[float, ArrayLike]], cluster: ArrayLike, weight: Floats | None = None
) -> Interval:
    """Return a linear combination of proportions of the same weighted images, with its clustered 95 % interval.

    With proportions p_k of ends l_k and u_k and correlations r_jk of their patients' residuals, the lower end of sum c_k p_k is
    its value less sqrt(sum_jk s_j s_k r_jk d_j d_k), where d_k = |c_k| (p_k - l_k) and s_k = 1 for c_k > 0, and
    |c_k| (u_k - p_k) and -1 else.
    """
    codes, _ = cluster_codes(cluster)
    w = np.ones(len(codes)) if weight is None else weight
    c, share = (np.array([each], np.float64) for each in zip(*parts, strict=True))
    return Interval(*(float(one[0]) for one in combinations(c, share, codes, w)))


def combinations(c: Floats, share: Floats, codes: NDArray[np.intp], w: Floats) -> tuple[Floats, Floats, Floats]:
    """Return K combinations `c` (K, P) of proportions `share` (K, P, N), as `combined_proportions` does, and their ends; (K,) each."""
    order, rows, patients = np.argsort(codes, kind="stable"), share.reshape(-1, share.shape[2]), int(codes.max()) + 1
    sums = proportion_sums(rows[:, order], w[order], patient_starts(codes[order]))
    low, high = proportion_intervals(sums)
    value, below, above = (one.reshape(c.shape) for one in (sums.value, sums.value - low, high - sums.value))
    residual = [np.bincount(codes, w * (row - p), patients) for row, p in zip(rows, sums.value, strict=True)]
    centre = np.array([one @ p for one, p in zip(c, value, strict=True)])
    given = centre, c, _correlation(np.array(residual, np.float64).reshape(*c.shape, -1)), below, above
    ends = [_combined(*(one[k : k + 1] for one in given)) for k in range(len(c))]  # to the bits of one alone
    return centre, *np.concatenate(ends, axis=1)


def clustered_mean(values: Floats, cluster: ArrayLike, level: float = 0.95) -> Interval:
    """Return the mean of values (N,) with its t interval, clustered by patient (N,); no ends for fewer than two patients."""
    if not len(values):
        return Interval(np.nan)
    mean = float(values.mean())
    of_patient = np.bincount(np.unique(np.asarray(cluster), return_inverse=True)[1], values - mean)
    patients = len(of_patient)
    if patients < 2:
        return Interval(mean)
    error = float(np.sqrt(patients / (patients - 1) * of_patient @ of_patient)) / len(values)
    half = float(special.stdtrit(patients - 1, (1 + level) / 2)) * error
    return Interval(mean, mean - half, mean + half)


def difference_of(a: Interval, b: Interval) -> Interval:
    """Return a - b with the interval of two independent proportions (Newcombe's hybrid method)."""
    value = a.value - b.value
    low = value - float(np.hypot(a.value - a.low, b.high - b.value))
    high = value + float(np.hypot(a.high - a.value, b.value - b.low))
    return Interval(value, max(low, -1.0), min(high, 1.0))


def share_of_two(a: Interval, b: Interval, weight_a: float, weight_b: float) -> Interval:
    """Return weight_a a / (weight_a a + weight_b b) of two independent proportions.

    A share v lies in the interval where the interval of (1 - v) weight_a a - v weight_b b holds 0: its ends are roots of a
    quadratic in v / (1 - v).
    """
    up, down = weight_a * a.value, weight_b * b.value
    value = up / (up + down) if up + down > 0 else np.nan

    def end(distance_a: float, distance_b: float, sign: int) -> float:
        below, above = up**2 - (weight_a * distance_a) ** 2, down**2 - (weight_b * distance_b) ** 2
        if (above if sign > 0 else below) <= 0:
            return float(sign > 0)
        root = up * down + math.sqrt(max((up * down) ** 2 - above * below, 0.0))
        return root / (root + above) if sign > 0 else below / (below + root)

    if not np.isfinite([value, a.low, a.high, b.low, b.high]).all():
        return Interval(value)
    low = end(a.value - a.low, b.high - b.value, -1)
    high = end(a.high - a.value, b.value - b.low, +1)
    return Interval(value, min(low, value), max(high, value))


def patients_of(w: Weighted, of: Of = "patients") -> int:
    """Return the number of patients that decide a standard error, 0 where they are too few.

    They are all `patients`; those of the rarer of the `classes`; `retained`, for an area over referral: 5 more than those with a wrong
    prediction in the surer half of the images, because these decide it, at most half of those of the rarer class; or `errors`: those with
    the rarer of wrong and correct predictions, and none below 5 of them.
    """
    if of == "classes":  # of those that are there
        return min(filter(None, (patients_with(w.positive, w), patients_with(w.negative, w))), default=0)
    if of == "errors":
        wrong = w.weight * w.cases.error
        rarer = min(patients_with(wrong, w), patients_with(w.weight - wrong, w))
        return rarer if rarer >= FEWEST_ERRORS else 0
    if of == "retained":
        blocks = int(np.searchsorted(w.mass, w.total / 2, side="right")) - 1
        sure = int(w.cases.ends[blocks - 1]) + 1 if blocks else 0
        wrong = w.weight * w.cases.error
        wrong[sure:] = 0
        return min(patients_of(w, "classes") // 2, patients_with(wrong, w) + MORE_DEGREES + 1)
    return patients_with(w.weight, w)


def patients_with(mass: Floats, w: Weighted) -> int:
    held = mass > 0
    return int(np.count_nonzero(np.bincount(w.cases.patient[held]))) if held.any() else 0


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

    Each end leaves out half of 1 - level, but for small losses. A study without a loss has the upper end u, and no study of its size a smaller one: where the true mean is below u,
    only the lower end can miss it. This end leaves out all of 1 - level as long as it is below u.

    References:
        Fay and Feuer, Confidence intervals for directly standardized rates: a method based on the gamma distribution, Stat. Med. 16:791
        (1997); Tiwari, Clegg and Zou, Efficient interval estimation for age-adjusted cancer rates, Stat. Methods Med. Res.
        15:547 (2006), where the added count has a random weight. Blaker, Confidence curves and improved exact confidence intervals for discrete
        distributions, Can. J. Stat. 28:783 (2000), whose intervals have such tails.

    >>> low, high = loss_interval(0.0, 0.0, (0.0025, 0.000025))  # no loss was seen in 100 patients
    >>> low, round(high, 4)
    (0.0, 0.0172)
    """
    if not (math.isfinite(loss) and math.isfinite(variance)):
        return math.nan, math.nan
    if loss > largest / 2:
        low, high = loss_interval(largest - loss, variance, pseudo, largest, level)
        return largest - high, largest - low
    high = _matched(max(loss, 0.0) + pseudo[0], variance + pseudo[1], largest, (1 + level) / 2)
    if not (loss > 0 and variance > ROUNDING * loss**2):
        return min(loss, 0.0), high
    half, whole = (_matched(loss, variance, largest, left_out) for left_out in ((1 - level) / 2, 1 - level))
    unseen = _matched(*pseudo, largest, (1 + level) / 2) if pseudo[0] > 0 else 0.0
    return max(half, min(whole, unseen, loss)), high


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

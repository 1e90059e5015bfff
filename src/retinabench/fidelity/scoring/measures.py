"""How far an approximation is from the true posterior: the measures, their levels of error, and what gives a submission no place.

Letters: N test points, n points of one group, C classes, S posterior samples, R replicates, K chains.

**Measures.** Every measure is a function of means over points (`Measure`), so that a thousand replicates are one matrix product;
the distances are those of `distances.py`. `agreement` (share of argmax p = argmax q) and `total_variation` (½ Σ_c |p_c - q_c|) rank
classifications, `wasserstein` (W1 between draws of y) regressions. Points whose two most probable classes the reference does not tell
apart, by 3 standard errors, leave the agreement (version 2 of it): there it is a coin flip. A ranking of its own has `posterior_std`, the mean
of ½ Σ_c |σ_c - τ_c| over stds σ and τ of the class probabilities under the submitted samples and the posterior: a method whose mean is right
may have too narrow a posterior. It is in the unit of the total variation, and defined for a single sample, whose σ is 0; `variance_ratio`,
Σ σ² / Σ τ², says in which direction. Beside them stand rank correlation and error of the mutual information, disagreement gap, miscalibration with q as truth, regret (missed: 4, needless referral: 1), W2, the competition's
`w2_kit` (minus W1) and `w2_as_printed` (√1000 W2), and usefulness against the labels.

**Levels.** Test points are resampled. Four chains and three seeds are too few to resample: with replacement a mean of four chains
has a quarter of its variance missing. Their part of a replicate is a linear combination, with standard normal weights, of what each
chain or seed changes (a multiplier bootstrap), whose variance is that of the jackknife over chains, and of the mean over seeds.
The weights of the chains are the same for all that is compared; the replicates over n seeds are those of Student's t with n - 1
degrees of freedom.

**Nearness.** A reference has an error of its own, and so has each of its chains. The exact posterior is as far from it as that
error, and independent draws are farther. What is less than half as far from the reference, or less than a quarter from one chain,
has used it; so has what equals it, the mean of some of its chains, samples or states, or holds such samples or draws of y.

**Equivalent draws** (version 2). The mean of n independent draws of the posterior is a submission too. Its distance from the posterior
falls as 1 / √n, on every target from another first value, so that the number of draws compares targets where distances do not. The
distance d from the reference also holds the reference's own error e; the errors are independent, so that √(d² - e²) is the distance from
the posterior. If that is at most e (d ≤ √2 e), only a lower bound is known: the number of draws at distance e.

**Order.** Rows in another order name the right class as often as chance: Σ_c (share of rows that are named c) (share of points that
are c). Where the reference names it more often, a submission no better than chance is marked and not ranked. Counted runs are
exempt, and so are submissions that name (nearly) one class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import vars_of
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import Reference, chains_of, predictive
from retinabench.fidelity.submissions.submission import DRAWS, Submission
from retinabench.fidelity.targets.target import Target
from retinabench.metrics.arrays import referral_curve
from retinabench.metrics.image_sets import binary_entropy
from retinabench.metrics.weighted_images import percentile_interval

_VARIED = 0.05  # least share of rows that name another class than the most frequent one
_DOUBT, _PROOF = 2.0, 4.0  # standard errors of an accuracy above chance


def order_doubt(submission: Submission, reference: NDArray[np.floating], truth: NDArray[np.integer] | None) -> str:
    """Return why the order of a submission is in doubt; empty where it is not, or cannot be told."""
    if submission.probs is None or truth is None or submission.about.counted:
        return ""
    named = submission.probs.argmax(axis=1)
    if 1 - np.bincount(named).max() / len(named) < _VARIED:
        return ""
    if _excess(reference.argmax(axis=1), truth)[1] < _PROOF or _excess(named, truth)[1] > _DOUBT:
        return ""
    accuracy, chance = (named == truth).mean(), _excess(named, truth)[0]
    return f"its order is in doubt: an accuracy of {accuracy:.3f}, where rows in any other order give {chance:.3f}"


def _excess(named: NDArray[np.integer], truth: NDArray[np.integer]) -> tuple[float, float]:
    """Return the accuracy of rows in random order, and how many standard errors the accuracy lies above it."""
    classes = int(max(named.max(), truth.max())) + 1
    shares = (np.bincount(values, minlength=classes) / len(values) for values in (named, truth))
    chance = float(np.dot(*shares))
    error = np.sqrt(max(chance * (1 - chance), 1e-12) / len(truth))
    return chance, float(((named == truth).mean() - chance) / error)


Values = NDArray[np.float64]
ALL = "all"
BLOCK = 1 << 22  # weights turned into float64 at once


@dataclass(frozen=True, eq=False)
class Measure:
    """A number that is a function of the means over points of M terms, (n, M)."""

    terms: Values
    finish: Callable[[Values], Values]


def mean_of(values: Values) -> Measure:
    """Return the mean of one value per point, (n,)."""
    return Measure(np.asarray(values, np.float64)[:, None], lambda means: means[..., 0])


def ratio_of(upper: NDArray[Any], lower: NDArray[Any]) -> Measure:
    """Return the mean of one value per point over that of another, both (n,); NaN over 0."""

    def ratio(means: Values) -> Values:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(means[..., 0] / means[..., 1])

    return Measure(np.stack([upper, lower], axis=1).astype(np.float64), ratio)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value, and its value in each replicate, (R,), or (0,) where it is not resampled."""

    value: float
    draws: Values

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the percentile interval; NaN without replicates."""
        if not len(self.draws):
            return np.nan, np.nan
        low, high = percentile_interval(self.draws[:, None], level)
        return float(low[0]), float(high[0])


def average(estimates: list[Estimate]) -> Estimate:
    return Estimate(float(np.mean([one.value for one in estimates])), np.mean([one.draws for one in estimates], axis=0))


def groups_of(target: Target, group: NDArray[np.str_]) -> dict[str, NDArray[np.intp]]:
    """Return the rows of each group of test points: all, every kind, and every strength of a kind that has several."""
    kinds = np.array([name.partition("-")[0] for name in group.tolist()])
    strengths = np.array([name.rpartition("-")[2] if "-" in name else "" for name in group.tolist()])
    found = {ALL: np.arange(len(group))}
    for kind in target.groups:
        found[kind] = np.flatnonzero(kinds == kind)
        of_kind = sorted(set(strengths[found[kind]].tolist()))
        if len(of_kind) > 1:
            found |= {f"{kind} {s}": np.flatnonzero((kinds == kind) & (strengths == s)) for s in of_kind if s.isdigit()}
    return {name: rows for name, rows in found.items() if len(rows)}


@dataclass(frozen=True, eq=False)
class Resampling:
    """How often each test point occurs in each replicate, (R, N), resampled with replacement within its kind."""

    counts: NDArray[np.uint8]
    groups: dict[str, NDArray[np.intp]]

    @classmethod
    def of(cls, target: Target, group: NDArray[np.str_], replicates: int, seed: int) -> Resampling:
        """Return resampled test points of a target, by the group (N,) of each."""
        groups = groups_of(target, group)
        generator = numpy_generator(seed, "fidelity bootstrap", target.name)
        counts = np.zeros((replicates, len(group)), np.uint8)
        for rows in (groups[kind] for kind in target.groups if kind in groups):
            n = len(rows)
            for some in _blocks(replicates, n):
                drawn = generator.integers(n, size=(some.stop - some.start, n))
                drawn += np.arange(len(drawn))[:, None] * n
                counts[some, rows] = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        return cls(counts, groups)

    def estimate(self, measures: dict[str, Measure], group: str) -> dict[str, Estimate]:
        """Return the estimates of measures whose points are the rows of `group`."""
        rows = self.groups[group]
        terms = np.concatenate([measure.terms for measure in measures.values()], axis=1)
        means = np.empty((len(self.counts), terms.shape[1]))
        for some in _blocks(len(self.counts), len(rows)):
            weights = self.counts[some][:, rows].astype(np.float64)
            with np.errstate(invalid="ignore", divide="ignore"):
                means[some] = weights @ terms / weights.sum(axis=1)[:, None]
        point, place, found = terms.mean(axis=0), 0, {}
        for name, measure in measures.items():
            own = slice(place, place := place + measure.terms.shape[1])
            found[name] = Estimate(float(measure.finish(point[own])), measure.finish(means[:, own]))
        return found


def _blocks(replicates: int, points: int) -> Iterator[slice]:
    step = max(1, BLOCK // max(1, points))
    for start in range(0, replicates, step):
        yield slice(start, min(start + step, replicates))


def chain_weights(reference: Reference, task: str, replicates: int, seed: int) -> Values:
    """Return the weights of the chains in each replicate, (R, K)."""
    return numpy_generator(seed, "fidelity chains", task).standard_normal((replicates, reference.chains))


def chain_changes(
    submission: Submission, reference: Reference, groups: Mapping[str, NDArray[np.intp]]
) -> dict[str, dict[str, Values]]:
    """Return what each chain changes in the ranked distances: their values (K,) without it, less the mean of these."""
    if reference.chains < 2:
        return {}
    likelihood = submission.likelihood
    others = [distances.of_others(chains_of(reference), k, likelihood) for k in range(reference.chains)]
    found: dict[str, dict[str, Values]] = {group: {} for group in groups}
    known = decided(reference) if likelihood == "categorical" else None
    for name, distance in distances.RANKED[likelihood].items():
        terms = [distance(submission.values, one) for one in others]
        for group, rows in groups.items():
            some = rows[known[rows]] if name == "agreement" and known is not None else rows
            means = np.array([of_points[some].mean() if len(some) else 0.0 for of_points in terms])
            found[group][name] = means - means.mean()
    return found


_UNDECIDED = 3.0  # standard errors of the difference of two probabilities
_TIE = 1e-6  # difference of probabilities that are equal


def decided(reference: Reference) -> NDArray[np.bool_]:
    """Return at which points (N,) a classification's reference tells its two most probable classes apart.

    The errors of the two are added: probabilities of two classes have opposite errors. Imported references state no errors; all their
    points stay, as in the competition.
    """
    probs = reference.probs
    if reference.external:
        return np.ones(len(probs), bool)
    first = np.argsort(probs, axis=1)[:, -2:]
    low, high = np.take_along_axis(probs, first, axis=1).T
    error = np.nansum(np.take_along_axis(reference.mcse.astype(np.float64), first, axis=1), axis=1)
    return np.asarray(high - low > np.maximum(_UNDECIDED * error, _TIE))


def with_chains(estimate: Estimate, changes: Values, weights: Values) -> Estimate:
    """Return an estimate whose replicates also vary with the chains: with their changes (K,) and weights (R, K).

    References:
        Efron & Tibshirani 1993, "An Introduction to the Bootstrap", chapter 11, for the jackknife's variance.
    """
    if len(estimate.draws) != len(weights):
        return estimate
    k = len(changes)
    return Estimate(estimate.value, estimate.draws + np.sqrt((k - 1) / k) * (weights @ changes))


def seed_shifts(values: Mapping[str, Values], replicates: int, seed: int, entry: str) -> dict[str, Values]:
    """Return how the mean over S seeds varies in each replicate, (R,), jointly for all measures."""
    if (count := len(next(iter(values.values()), np.empty(0)))) < 2:
        return {}
    generator = numpy_generator(seed, "fidelity seeds", entry)
    weights = generator.standard_normal((replicates, count))
    weights /= np.sqrt(generator.chisquare(count - 1, replicates) / (count - 1))[:, None]
    with np.errstate(invalid="ignore"):  # an infinite NLL of one seed: how the mean varies is not defined
        return {k: weights @ (each - each.mean()) / np.sqrt(count * (count - 1)) for k, each in values.items()}


def classification(probs: NDArray[np.floating], label: NDArray[np.int64]) -> dict[str, Measure]:
    """Return accuracy and mean negative log-likelihood of probabilities (n, C) to classes (n,)."""
    with np.errstate(divide="ignore"):
        nll = -np.log(probs[np.arange(len(probs)), label].astype(np.float64))
    return {"accuracy": mean_of(probs.argmax(axis=1) == label), "nll": mean_of(nll)}


def referral_area(probs: NDArray[np.floating], label: NDArray[np.int64], needs_expert: NDArray[np.bool_]) -> Estimate:
    """Return the mean accuracy of P(needs an expert) > 1/2 over all shares referred, the most uncertain first."""
    prob = np.clip(probs[:, needs_expert].sum(axis=1, dtype=np.float64), 0, 1)
    uncertainty = np.round(binary_entropy(prob), 12)  # p and 1 - p are equally uncertain
    return Estimate(referral_curve(needs_expert[label].astype(int), prob, uncertainty, "accuracy").area, np.empty(0))


def regression(draws: NDArray[np.floating], truth: NDArray[np.floating]) -> dict[str, Measure]:
    """Return RMSE of the mean, CRPS and the share of y (n,) inside the central 90 % of the draws (n, S)."""
    y = np.asarray(truth, np.float64)
    low, high = np.quantile(draws, (0.05, 0.95), axis=1)
    squares = (draws.mean(axis=1, dtype=np.float64) - y) ** 2
    return {
        "rmse": Measure(squares[:, None], lambda means: np.sqrt(means[..., 0])),
        "crps": mean_of(crps(draws, y)),
        "coverage_90": mean_of((y >= low) & (y <= high)),
    }


def crps(draws: NDArray[np.floating], y: Values) -> Values:
    """Return E|Y - y| - ½ E|Y - Y'| of the empirical distribution of draws (n, S), for truths y (n,).

    References:
        Gneiting & Raftery 2007, "Strictly proper scoring rules, prediction, and estimation".
    """
    ordered = np.sort(draws.astype(np.float64), axis=1)
    s = ordered.shape[1]
    # Σ_ij |y_i - y_j| = 2 Σ_i (2 i - s + 1) y_(i), i from 0.
    pairs = ordered @ (2 * np.arange(s) - s + 1) / s**2
    return np.asarray(np.abs(ordered - y[:, None]).mean(axis=1) - pairs)


Floats = NDArray[np.floating]
EQUAL = "equal to the reference"
NEARER = "nearer to the reference than independent draws could be"
_GRAIN = 1e-4  # largest difference of equal probabilities: four decimals
# Largest difference of equal draws, in stds over their number; of independent draws one in seven is as near.
_GRAIN_OF_DRAWS = 0.25
_MOST_CHAINS = 16  # whose 65,535 subsets are all compared; of more chains each, and the mean of all
_BLOCK = 64  # probabilities that are compared with all subsets at a time: almost none is left after the first
_COPIED = 0.5  # share of samples, or draws, that stand in the reference
_LIMIT = 0.5  # of the distance of exact inference
_LIMIT_OF_CHAINS = 0.25  # the same of one of its chains


def nearness(submission: Submission, reference: Reference) -> str:
    """Return `EQUAL` or `NEARER` where a submission is not independent of the reference, else an empty text."""
    values, theirs = submission.values, predictive(reference)
    distance = distances.DISTANCE[submission.likelihood]
    if submission.likelihood == "categorical":
        if _of_some_chains(values, reference) or _holds_samples(submission, reference):
            return EQUAL
        if reference.external:
            return ""
        exact = float(posterior_distance(reference.mcse).mean())
        # The error of one of K chains is √K times that of their mean.
        nearest = min(float(distance(values, chain).mean()) for chain in chains_of(reference))
        if nearest < _LIMIT_OF_CHAINS * exact * np.sqrt(reference.chains):
            return NEARER
    else:
        if _shared(values, theirs) > _COPIED:
            return EQUAL
        # The distance of M draws from their own distribution is half of that of two halves of them from each other.
        exact = float(distances.noise_floor(theirs).mean()) / 2
    return NEARER if float(distance(values, theirs).mean()) < _LIMIT * exact else ""


def posterior_distance(mcse: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the expected total variation (N,) of the exact probabilities from the reference: √(2/π) Σ_c e_c / 2, e (N, C) its errors."""
    return np.asarray(np.nansum(mcse, axis=1) * np.sqrt(2 / np.pi) / 2, np.float64)


def _of_some_chains(probs: Floats, reference: Reference) -> bool:
    """Whether probabilities (N, C) are those of some chains of the reference: its means, or those of what it keeps."""
    parts, chains = [chains_of(reference)], reference.chains
    if reference.samples is not None and len(reference.samples) % chains == 0:  # they are in chain order
        samples = reference.samples.reshape(chains, -1, *probs.shape)
        parts.append(samples.mean(axis=1, dtype=np.float64))
    if reference.states is not None:
        parts.append(reference.states.mean(axis=0, dtype=np.float64))
    return any(_is_mean_of_some(probs, part) for part in parts)


def _is_mean_of_some(probs: Floats, chains: Floats) -> bool:
    """Whether probabilities (N, C) are the mean of any of the chains (K, N, C)."""
    count = len(chains)
    chosen = np.vstack([np.eye(count), np.ones(count)])
    if count <= _MOST_CHAINS:
        chosen = (np.arange(1, 2**count)[:, None] >> np.arange(count) & 1).astype(np.float64)
    weights = chosen / chosen.sum(axis=1, keepdims=True)
    values, wanted = chains.reshape(count, -1).astype(np.float64), probs.ravel()
    for start in range(0, wanted.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        difference = np.abs(weights @ values[:, block] - wanted[block]).max(axis=1)
        weights = weights[difference <= _GRAIN]
        if not len(weights):
            return False
    return True


def _holds_samples(submission: Submission, reference: Reference) -> bool:
    """Whether samples (S, N, C) of a submission stand among those, or the states, that the reference keeps."""
    if submission.samples is None:
        return False
    kept = [part for part in (reference.samples, reference.states) if part is not None]
    points = submission.samples.shape[1:]
    theirs = {one.tobytes() for part in kept for one in part.reshape(-1, *points).astype(np.float16)}
    ours = [one.tobytes() for one in submission.samples.astype(np.float16)]
    return sum(one in theirs for one in ours) > _COPIED * len(ours)


def _shared(draws: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
    """Return the share of draws (N, S) that stand among those of the reference (N, M) at the same point, up to rounding."""
    found = []
    for ours, theirs in zip(draws, np.sort(reference, axis=1), strict=True):
        place = np.searchsorted(theirs, ours).clip(1, len(theirs) - 1)
        nearest = np.minimum(np.abs(ours - theirs[place - 1]), np.abs(ours - theirs[place]))
        found.append(np.mean(nearest <= _GRAIN_OF_DRAWS * theirs.std() / len(theirs)))
    return float(np.mean(found))


COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
REPEATS = (200, 8)  # least number of draws in all the sets of one size, and of sets
POINTS = 64  # of a regression, evenly spaced: sorting draws is slow


@dataclass(frozen=True)
class DrawCurve:
    """The mean distance of n independent draws from the posterior, that of a perfect submission from the reference, and the reference's own error."""

    distance: tuple[float, ...]
    floor: float
    error: float

    @property
    def most(self) -> float:
        """The number of draws that are as far from the posterior as the reference is."""
        return self._invert(max(self.floor, 1e-12))

    def draws(self, distance: float) -> float:
        """Return the number of draws that are as far from the reference as `distance`, at most `most`; below 1 where one draw is nearer."""
        if not np.isfinite(distance):
            return float("nan")
        return float(min(self._invert(np.sqrt(max(distance**2 - self.error**2, 1e-24))), self.most))

    def _invert(self, distance: float) -> float:
        known, counts = np.log(self.distance[::-1]), np.log(COUNTS[::-1])
        if known[0] <= np.log(distance) <= known[-1]:
            return float(np.exp(np.interp(np.log(distance), known, counts)))
        end = 0 if np.log(distance) > known[-1] else -1  # beyond the ends it falls as 1 / √n
        return float(COUNTS[end] * (self.distance[end] / distance) ** 2)


def draw_curve(reference: Reference, rows: NDArray[np.intp], floor: float, error: float) -> DrawCurve | None:
    """Return the distances of independent draws, or None where the reference keeps none."""
    generator = numpy_generator(0, "equivalent draws")
    if reference.chain_probs is not None:
        if reference.samples is None:
            return None
        samples = reference.samples[:, rows].astype(np.float64, order="C")  # or each of many sums would copy them
        return DrawCurve(_curve(lambda n: _of_probabilities(samples, n, generator)), floor, error)
    if reference.external:
        return None
    mean, std, draws = _components(reference, rows)
    levels = ((np.arange(DRAWS) + 0.5) * draws.shape[1] / DRAWS).astype(np.intp)  # as many as a submission has
    draws = np.sort(draws, axis=1)[:, levels].T
    return DrawCurve(_curve(lambda n: _of_draws(mean, std, draws, n, generator), most=REPEATS[1]), floor, error)


def _curve(measure: Callable[[int], float], most: int = 200) -> tuple[float, ...]:
    repeats = [min(most, max(REPEATS[0] // n, REPEATS[1])) for n in COUNTS]
    found = [float(np.mean([measure(n) for _ in range(times)])) for n, times in zip(COUNTS, repeats, strict=True)]
    return tuple(np.minimum.accumulate(found).tolist())


def _of_probabilities(samples: Values, n: int, generator: np.random.Generator) -> float:
    """Return the distance of the mean of n samples (S, N, C) from that of all, which the thinned ones stand for."""
    drawn = generator.multinomial(n, np.full(len(samples), 1 / len(samples))) / n
    return float(np.abs(np.tensordot(drawn - 1 / len(samples), samples, 1)).sum(axis=1).mean() / 2)


def _of_draws(mean: Values, std: Values, draws: Values, n: int, generator: np.random.Generator) -> float:
    """Return the Wasserstein distance of draws of y from n of the states (S, N), from as many sorted ones (D, N)."""
    chosen = generator.integers(len(mean), size=n)[np.arange(len(draws)) * n // len(draws)]
    y = mean[chosen] + std[chosen] * generator.standard_normal(draws.shape)
    return float(np.abs(np.sort(y, axis=0) - draws).mean())


def _components(reference: Reference, rows: NDArray[np.intp]) -> tuple[Values, Values, Values]:
    """Return means and stds of states (S, n), and the reference's draws (n, M), of some of the points.

    Without the states, draws of y stand for their means, drawn together until their std is that of the means, with the rest
    of the variance as noise of one size.
    """
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), POINTS)).astype(np.intp)]
    draws = reference.draws[rows].astype(np.float64)
    if reference.states is not None:
        states = reference.states[:, :, rows].astype(np.float64)
        flat = states.reshape(-1, len(rows), states.shape[-1])
        return flat[..., 0], flat[..., 1], draws
    centre, total = draws.mean(axis=1), draws.std(axis=1)
    epistemic = np.minimum(reference.epistemic[rows].astype(np.float64), total)
    mean = centre + (draws.T - centre) * epistemic / np.maximum(total, 1e-12)
    return mean, np.broadcast_to(np.sqrt(total**2 - epistemic**2), mean.shape), draws


Probabilities = NDArray[np.floating]
BINS = 15  # of the confidence


class MeasureNote(NamedTuple):
    """What readers need to know of a measure."""

    label: str
    higher: bool | None  # is better; None where 1 is best
    unit: str = ""
    bounds: tuple[float, float] = (-np.inf, np.inf)  # which the normal part of a replicate may pass
    undefined: str = "undefined here"
    version: int = 1


_SHARE, _POSITIVE, _NO_SAMPLES = (0.0, 1.0), (0.0, np.inf), "needs posterior samples"
MEASURES = {
    "agreement": MeasureNote(
        "agreement", True, bounds=_SHARE, undefined="the reference decides no point here", version=2
    ),
    "total_variation": MeasureNote("total variation", False, bounds=_SHARE),
    "posterior_std": MeasureNote("error of posterior std", False, bounds=_SHARE, undefined=_NO_SAMPLES),
    "variance_ratio": MeasureNote("variance ratio", None, bounds=_POSITIVE, undefined=_NO_SAMPLES),
    "epistemic_correlation": MeasureNote("epistemic rank correlation", True, undefined=f"{_NO_SAMPLES} that differ"),
    "epistemic_error": MeasureNote("epistemic error", False, "nats", undefined=_NO_SAMPLES),
    "disagreement_gap": MeasureNote("disagreement gap", False, undefined=_NO_SAMPLES),
    "miscalibration": MeasureNote("miscalibration", False),
    "regret": MeasureNote("decision regret", False, "needless referrals", _POSITIVE),
    "wasserstein": MeasureNote("Wasserstein-1", False, "stds of y", _POSITIVE),
    "w2": MeasureNote("Wasserstein-2", False, "stds of y", _POSITIVE),
    "w2_kit": MeasureNote("w2_kit (-W1)", True, "stds of y"),
    "w2_as_printed": MeasureNote("W2 as printed", False, bounds=_POSITIVE),
    "accuracy": MeasureNote("accuracy", True, bounds=_SHARE),
    "nll": MeasureNote(
        "NLL", False, "nats", _POSITIVE, "a class that occurs got probability 0, or less than is stored"
    ),
    "referral_area": MeasureNote("referral area", True, bounds=_SHARE),
    "rmse": MeasureNote("RMSE", False, "stds of y", _POSITIVE),
    "crps": MeasureNote("CRPS", False, "stds of y", _POSITIVE),
    "coverage_90": MeasureNote("coverage of 90 %", True, bounds=_SHARE),
}

RANKED = {likelihood: tuple(known) for likelihood, known in distances.RANKED.items()}
"""The measures by which the board ranks."""
SECOND_MOMENT = "posterior_std"
"""What ranks the submissions with samples once more."""


@dataclass(frozen=True, eq=False)
class SampleSums:
    """Sums over S posterior samples of probabilities (N, C), their squares (N, C), entropies (N,) and votes (N, C): the information measures follow from them."""

    samples: int
    probs: Values
    squares: Values
    entropy: Values
    votes: Values

    @classmethod
    def of(cls, samples: Probabilities) -> SampleSums:
        """Return the sums of samples (S, N, C)."""
        s, n, classes = samples.shape
        (probs, squares, votes), entropy = np.zeros((3, n, classes)), np.zeros(n)
        for one in samples:
            p = one.astype(np.float64)
            probs += p
            squares += p * p
            entropy += distances.entropy(p)
            votes[np.arange(n), p.argmax(axis=1)] += 1
        return cls(s, probs, squares, entropy, votes)

    @classmethod
    def joined(cls, parts: Sequence[SampleSums]) -> SampleSums:
        samples, *sums = zip(*(vars_of(part).values() for part in parts), strict=True)
        return cls(sum(samples), *(np.sum(of_parts, axis=0) for of_parts in sums))

    @property
    def std(self) -> Values:
        """Standard deviation of the class probabilities over the samples, (N, C)."""
        return np.sqrt(np.maximum(self.squares / self.samples - np.square(self.probs / self.samples), 0))

    @property
    def epistemic(self) -> Values:
        """The mutual information of `distances.epistemic`, (N,), in nats, clipped at 0 against the rounding of samples."""
        return np.maximum(distances.entropy(self.probs / self.samples) - self.entropy / self.samples, 0)

    @property
    def disagreement(self) -> Values:
        """The disagreement of `distances.pairwise_disagreement`, (N,); 0 for a single sample."""
        if self.samples == 1:
            return self.entropy * 0
        return np.asarray(1 - (self.votes * (self.votes - 1)).sum(axis=1) / (self.samples * (self.samples - 1)))

    def rows(self, rows: NDArray[np.intp]) -> SampleSums:
        return SampleSums(self.samples, self.probs[rows], self.squares[rows], self.entropy[rows], self.votes[rows])


class Posterior(NamedTuple):
    """What a classification is compared with: probabilities and their stds (N, C), mutual information, disagreement, what is decided (N,)."""

    probs: Probabilities
    epistemic: NDArray[np.floating]
    disagreement: NDArray[np.floating]
    std: Values
    decided: NDArray[np.bool_]

    def rows(self, rows: NDArray[np.intp]) -> Posterior:
        return Posterior._make(values[rows] for values in self)


def close_classification(
    probs: Probabilities,
    sums: SampleSums | None,
    std: NDArray[np.floating] | None,
    posterior: Posterior,
    *,
    costs: Values | None,
) -> dict[str, Measure]:
    """Return the measures of closeness of a classification, for one group of n points and the costs (2, C) of a decision."""
    reference = posterior.probs
    found = {
        "agreement": ratio_of(distances.agreement(probs, reference) * posterior.decided, posterior.decided),
        "total_variation": mean_of(distances.total_variation(probs, reference)),
        "miscalibration": miscalibration(probs, reference),
    }
    if std is not None:
        found[SECOND_MOMENT] = mean_of(np.abs(std - posterior.std).sum(axis=1) / 2)
        found["variance_ratio"] = ratio_of(np.square(std).sum(axis=1), np.square(posterior.std).sum(axis=1))
    if sums is not None:
        found["epistemic_correlation"] = rank_correlation(sums.epistemic, posterior.epistemic)
        found["epistemic_error"] = mean_of(np.abs(sums.epistemic - posterior.epistemic))
        gap = sums.disagreement - posterior.disagreement
        found["disagreement_gap"] = Measure(gap[:, None], lambda means: np.abs(means[..., 0]))
    if costs is not None:
        found["regret"] = mean_of(distances.decision_regret(probs, reference, costs))
    return found


def close_regression(draws: Probabilities, reference: Probabilities) -> dict[str, Measure]:
    """Return the measures of closeness of draws of y to those of the reference, for one group.

    The competition called minus the mean of W1 "W2" (`w2_kit`); equation (3) of its paper, taken literally, is the square root
    of a sum over draws without 1/S (`w2_as_printed`). Both are theirs where S = M = 1,000.

    References:
        Wilson, Izmailov, Hoffman, Gal, Li, Pradier, Vikram, Foong, Lotfi & Farquhar 2021, "Evaluating approximate inference
        in Bayesian deep learning".
    """
    first, second = (distances.wasserstein(draws, reference, order) for order in (1, 2))
    return {
        "wasserstein": mean_of(first),
        "w2": mean_of(second),
        "w2_kit": mean_of(-first),
        "w2_as_printed": mean_of(np.sqrt(draws.shape[1]) * second),
    }


def miscalibration(probs: Probabilities, reference: Probabilities) -> Measure:
    """Return the calibration error with the reference as truth.

    Over `BINS` bins of equal width of the confidence max p: the weighted mean |mean of max p - mean reference
    probability of that class|. Its terms are the gaps between confidence and reference by bin.
    """
    named, rows = probs.argmax(axis=1), np.arange(len(probs))
    confidence, truth = probs[rows, named], reference[rows, named]
    gaps = np.zeros((len(probs), BINS))
    gaps[rows, np.minimum((confidence * BINS).astype(int), BINS - 1)] = confidence - truth
    return Measure(gaps, lambda means: np.asarray(np.abs(means).sum(axis=-1)))


def rank_correlation(a: NDArray[np.floating], b: NDArray[np.floating]) -> Measure:
    """Return Spearman's correlation of a and b, (n,); NaN where one is constant. Replicates use the ranks of the sample."""
    x, y = ((rankdata(v) - (len(v) + 1) / 2) / len(v) for v in (a, b))

    def correlation(means: Values) -> Values:
        mx, my, xx, yy, xy = np.moveaxis(means, -1, 0)
        product = (xx - mx**2) * (yy - my**2)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(product > 1e-12, (xy - mx * my) / np.sqrt(np.maximum(product, 0)), np.nan))

    return Measure(np.stack([x, y, x * x, y * y, x * y], axis=1), correlation)

"""Models on the same images: aligned by image, replicates of the same patients, and the difference of two of them.

Models tend to fail on the same hard images. A replicate therefore draws patients once and scores every file on them, so that
what they have in common cancels in a difference. Seeds are paired where both methods have the same seeds, because a method may be
built on the networks of another one; else they are independent. `docs/comparison.md` says who asks, and how p-values are corrected.

- One file against one file: a proportion has an exact test (if the models do not differ, swapping their predictions of a patient
  changes nothing), an AUROC its closed-form standard error, every other score the std of its differences over the replicates.
- Several seeds: the difference of means has the variance v = v_patients + v_seeds, the first over the replicates, the second over
  seeds; that of paired seeds is of their differences. Its degrees of freedom are those of Welch and Satterthwaite,
  v² / (v_patients² / d_patients + v_seeds² / d_seeds). One seed has no variance over seeds: the result is about this run.

No p-value is bounded below by the number of replicates.

Ensembles of K of the same n seeds share members: their values are not independent, and their standard deviation over
the square root of their number is too small. The mean over subsets is a U-statistic of the n seeds; its standard error is
estimated by the delete-one jackknife over seeds. For K = 1 it is the usual standard error.

References:
    Satterthwaite, An approximate distribution of estimates of variance components, Biometrics Bull. 2:110 (1946).
    Bonett and Price, Adjusted Wald confidence interval for a difference of binomial proportions based on paired data,
    J. Educ. Behav. Stat. 37:479 (2012).
    Arvesen, Jackknifing U-statistics, Ann. Math. Stat. 40:2076 (1969).
    Efron and Stein, The jackknife estimate of variance, Ann. Stat. 9:586 (1981).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import comb
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from retinabench.core.errors import InputError
from retinabench.core.results import Document
from retinabench.metrics import registry
from retinabench.metrics.image_sets import (
    SETS,
    FrozenThreshold,
    ImageSet,
    SetEvaluator,
    check_known,
    image_sets,
    referral_uncertainty,
    replicates_of,
)
from retinabench.metrics.intervals import auroc_difference, patients_of, replicate_error, scaled_interval
from retinabench.metrics.p_values import sign_flip_p_value, t_test
from retinabench.metrics.registry import SCORES, Ends, Proportion, Ranked, ScoreSpec, difference_method
from retinabench.metrics.weighted_images import Bools, Floats, Weighted, in_steps
from retinabench.predictions.check import without_patients
from retinabench.predictions.table import Predictions, Subsets, notes_of_files

LEVEL = 0.95
SAME_ORDER = "no interval: both models rank the images in the same order"
Wanted = Sequence[str] | Mapping[str, Sequence[str]] | None
"""Names of scores, on every set or by set; None for those of `score`."""
Entry = TypeVar("Entry", bound=Document)


@dataclass(frozen=True)
class OnSet(Document, Generic[Entry]):
    """What is found on one set, by score."""

    images: int
    patients: int | None
    positives: int
    scores: Mapping[str, Entry]

    def __getitem__(self, name: str) -> Entry:
        return self.scores[name]


@dataclass(frozen=True, eq=False)
class PairedSet:
    """One set of images scored by M models: point (M, K), draws (R, M, K) on the same patients; NaN where undefined."""

    name: str
    images: int
    patients: int | None
    positives: int
    scores: tuple[ScoreSpec, ...]
    point: Floats
    draws: Floats
    whole: tuple[Weighted, ...]


def paired_sets(
    models: Sequence[Predictions],
    *,
    scores: Wanted = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    bootstrap: int = 1000,
    seed: int = 0,
    thresholds: Sequence[float] | None = None,
    advance: Callable[[int], None] | None = None,
) -> list[PairedSet]:
    """Return M aligned models scored on every set that exists, on replicates of the same patients; `advance` gets the number of models that are done."""
    named = [one for of in scores.values() for one in of] if isinstance(scores, Mapping) else scores
    check_known("score", named, list(SCORES))
    check_known("set", sets, SETS)
    cuts = [0.5] * len(models) if thresholds is None else thresholds
    pairs = zip(models, cuts, strict=True)
    values = [referral_uncertainty(model, uncertainty, threshold=cut)[0] for model, cut in pairs]
    wanted = []
    for images in zip(*map(image_sets, models, values, cuts), strict=True):
        one = images[0]
        asked = scores.get(one.name, ()) if isinstance(scores, Mapping) else scores
        known = one.scores if asked is None else [s for s in SCORES.values() if s.available_for(one.name)]
        chosen = tuple(s for s in known if asked is None or s.name in asked)
        if chosen and (sets is None or one.name in sets):
            wanted.append((images, chosen))
    work = bootstrap * sum(len(images[0]) for images, _ in wanted)
    done = in_steps(advance, len(models), work)
    return [_paired_set(images, chosen, bootstrap, seed, done) for images, chosen in wanted]


def _paired_set(
    models: Sequence[ImageSet], chosen: tuple[ScoreSpec, ...], bootstrap: int, seed: int, done: Callable[[float], None]
) -> PairedSet:
    images = next((each for each in models if each.patients is not None), models[0])
    evaluators, draws = [SetEvaluator(each, chosen) for each in models], np.empty((0, len(models), len(chosen)))

    def advance(rows: int) -> None:
        done(rows * len(images) / len(models))

    if bootstrap:
        of = partial(replicates_of, cluster=images.cluster, replicates=bootstrap, seed=seed, advance=advance)
        draws = np.stack([of(one) for one in evaluators], axis=1)
    point, whole = np.array([one.point for one in evaluators]), tuple(one.whole for one in evaluators)
    return PairedSet(images.name, len(images), images.patients, images.positives, chosen, point, draws, whole)


def notes_on(
    models: Sequence[Predictions], names: Sequence[str], uncertainty: str, thresholds: Sequence[FrozenThreshold] = ()
) -> tuple[str, ...]:
    """Return what a reader of a comparison must know of its aligned inputs, one sentence per note."""
    notes = notes_of_files(names, [model.notes for model in models])
    notes += [f"{name}: {cut.note}" for name, cut in zip(names, thresholds, strict=False) if cut.note]
    if all(model.patient_id is None for model in models):
        notes.append(without_patients(models[0].image_id.tolist()))
    first: dict[int, str] = {}
    used = {}
    for name, model in zip(names, models, strict=True):
        values, used[name] = referral_uncertainty(model, uncertainty)
        if (other := first.setdefault(hash((model.prob.tobytes(), values.tobytes())), name)) != name:
            notes.append(f"{other} and {name} hold the same probabilities: do they come from one model?")
    if len(set(used.values())) > 1:
        notes.append("referral is ordered by " + ", ".join(f"{kind} in {name}" for name, kind in used.items()))
    return tuple(notes)


@dataclass(frozen=True, eq=False)
class Side:
    """A method by one score: its values over seeds (S,), the replicates (R,) of their mean, and what each seed adds to it.

    `effects` are those of `seed_effects`; `spread` is the variance over seeds, with its degrees of freedom, that a method with a
    single seed takes from elsewhere.
    """

    values: Floats
    draws: Floats
    effects: Mapping[Hashable, float]
    spread: tuple[float, float] = (0.0, 1.0)

    @property
    def value(self) -> float:
        return float(self.values.mean())

    @property
    def over_seeds(self) -> tuple[float, float]:
        if not self.effects:
            return self.spread
        return sum(e**2 for e in self.effects.values()), len(self.effects) - 1.0


class PairTest(NamedTuple):
    """A difference with its interval, p-value of "no difference", standard error and degrees of freedom; NaN, and why, where undefined."""

    difference: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    why: str | None = None
    error: float = math.nan
    degrees: float = math.nan


def mean_difference(a: Side, b: Side, degrees: float, level: float = LEVEL) -> PairTest:
    """Return the difference a - b of the means over seeds, tested over the replicates of `degrees` and the seeds."""
    difference = a.value - b.value
    if not len(a.draws) or not math.isfinite(difference):
        return PairTest(difference)
    error = replicate_error(a.draws - b.draws)
    if error > 0 and degrees >= 1:
        parts = [(error**2, degrees)]
        if a.effects and a.effects.keys() == b.effects.keys():
            shared = [a.effects[seed] - b.effects[seed] for seed in a.effects]
            parts.append((sum(e**2 for e in shared), len(shared) - 1.0))
        else:
            parts += [a.over_seeds, b.over_seeds]
        total = sum(variance for variance, _ in parts)
        error, degrees = math.sqrt(total), total**2 / sum(variance**2 / d for variance, d in parts if variance > 0)
    ends = scaled_interval(difference, error, (-math.inf, math.inf), degrees, level)
    return PairTest(difference, *ends, t_test(difference, error, degrees), None, error, degrees)


def places(better: Bools) -> list[tuple[int, int]]:
    """Return the best and the worst place of each of M models, where `better[a, b]` (M, M) says that a is better than b, resolved."""
    ahead, behind = better.sum(axis=0).tolist(), better.sum(axis=1).tolist()
    return [(a + 1, len(better) - b) for a, b in zip(ahead, behind, strict=True)]


def ranks(draws: ArrayLike, higher_is_better: bool) -> Floats:
    """Ranks (R, M) of M models in each replicate, 1 = best, ties shared by their mean; NaN rows where any is undefined."""
    values = np.asarray(draws, np.float64)
    values = values if higher_is_better else -values
    better = (values[:, None, :] > values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    out = better + (equal + 1) / 2.0
    out[~np.isfinite(values).all(axis=1)] = np.nan
    return np.asarray(out)


class Methods:
    """Methods by one score on one set: the rows of `PairedSet` that are seeds of each, and their sides."""

    def __init__(self, one: PairedSet, k: int, rows: Sequence[Sequence[int]], seeds: Sequence[Subsets]) -> None:
        self.one, self.k, self.spec, self.rows = one, k, one.scores[k], rows
        self.sides = []
        for own, subsets in zip(rows, seeds, strict=True):
            values = one.point[list(own), k]
            effects = seed_effects(values, subsets)
            self.sides.append(Side(values, one.draws[:, list(own), k].mean(axis=1), effects))

    @cached_property
    def patients(self) -> list[int]:
        """The number of patients that decide the score of each method, the fewest of its seeds."""
        of = difference_method(self.spec.interval).of
        return [min(patients_of(self.one.whole[row], of) for row in own) for own in self.rows]

    def test(self, i: int, j: int, level: float) -> PairTest:
        a, b = ([self.one.whole[row] for row in self.rows[m]] for m in (i, j))
        difference = self.sides[i].value - self.sides[j].value
        if not len(self.one.draws) or not math.isfinite(difference):
            return PairTest(difference)
        if a[0].cases.patient.max() < 1:
            return PairTest(difference, why=registry.ONE_PATIENT)
        draws = self.sides[i].draws - self.sides[j].draws
        method = self.spec.interval
        if len(a) == len(b) == 1 and isinstance(method, Proportion) and not method.resampled:
            return _of_proportions(method, a[0], b[0], difference, level)
        if len(a) == len(b) == 1 and isinstance(method, Ranked):
            found = _of_aurocs(method, a[0], b[0], difference, level)
            if found is not None:
                return found if found.why == SAME_ORDER else _explained(found, draws)
        degrees = min(self.patients[i], self.patients[j], len(draws)) - 1.0
        return _explained(mean_difference(self.sides[i], self.sides[j], degrees, level), draws)

    def ends(self, m: int, level: float) -> Ends:
        side = self.sides[m]
        if not len(side.draws) or not math.isfinite(side.value):
            return Ends()
        return self.spec.interval.ends([self.one.whole[row] for row in self.rows[m]], side.value, side.draws, level)

    def why_undefined(self, m: int) -> str | None:
        for row in self.rows[m]:
            if not np.isfinite(self.one.point[row, self.k]):
                return self.spec.why_undefined(self.one.whole[row])
        return None


def _of_aurocs(method: Ranked, a: Weighted, b: Weighted, difference: float, level: float) -> PairTest | None:
    """Test by the closed-form error of a difference of two AUROCs; None where the models count different images."""
    (score_a, *masses_a), (score_b, *masses_b) = (_in_rows(w, *method.parts(w)) for w in (a, b))
    if not np.array_equal(masses_a, masses_b):
        return None
    patient = _in_rows(a, a.cases.patient)[0]
    found = auroc_difference(masses_a[0] > 0, score_a, score_b, patient, np.sum(masses_a, axis=0))
    if found.standard_error == 0 and difference == 0:
        return PairTest(difference, p=1.0, why=SAME_ORDER)
    span = 1 - method.low
    low, high = (span * end for end in found.interval(level))
    return PairTest(difference, low, high, found.p_value, None, span * found.standard_error, found.degrees)


def _of_proportions(method: Proportion, a: Weighted, b: Weighted, difference: float, level: float) -> PairTest:
    """Exact test by patients; Bonett and Price's adjusted interval, of sums over patients.

    Two patients are added, of whom the first model gets all right and the second none, and the other way round: no set is so
    small that the interval would have no width.
    """
    (hit_a, weight), (hit_b, other) = (_in_rows(w, *method.counts(w)) for w in (a, b))
    if not np.array_equal(weight, other):
        raise InputError("the models count different images")
    patient = _in_rows(a, a.cases.patient)[0].astype(np.intp)
    held = np.bincount(patient, weight)
    gained = np.bincount(patient, weight * (hit_a - hit_b))[held > 0]
    held = held[held > 0]
    if len(held) < 2:
        return PairTest(difference, why=registry.ONE_PATIENT)
    usual = held.mean()
    held, more = np.append(held, [usual, usual]), np.append(gained, [usual, -usual])
    centre = more.sum() / held.sum()
    residual, patients = more - centre * held, len(held)
    error = math.sqrt(patients / (patients - 1) * float(residual @ residual)) / held.sum()
    half = float(stdtrit(patients - 1, (1 + level) / 2)) * error
    low, high = max(-1.0, centre - half), min(1.0, centre + half)
    ends = float(min(low, difference)), float(max(high, difference))
    return PairTest(difference, *ends, sign_flip_p_value(gained), None, error, patients - 1.0)


def _in_rows(w: Weighted, *columns: NDArray[np.generic]) -> list[Floats]:
    """Columns (N,) in the sorted order of the images, in the order of the rows, which all models share."""
    out = []
    for column in columns:
        rows = np.empty(len(column))
        rows[w.cases.order] = column
        out.append(rows)
    return out


def _explained(found: PairTest, draws: Floats) -> PairTest:
    if found.high > found.low:
        return found
    why = registry.UNDEFINED if math.isnan(replicate_error(draws)) else registry.ALL_ALIKE
    equal = why == registry.ALL_ALIKE and abs(found.difference) < 1e-12  # but for rounding
    return PairTest(found.difference, p=1.0 if equal else found.p, why=why)


@dataclass(frozen=True)
class Aggregate:
    """Mean, standard deviation (ddof 1), standard error (std / sqrt(n)) and number of runs; NaN where undefined."""

    mean: float
    std: float
    error: float
    runs: int


def aggregate(values: ArrayLike | Sequence[float | None]) -> Aggregate:
    """Mean and standard error over runs, ddof 1; undefined runs (None, NaN) make the aggregate undefined, and one run has no error."""
    v = np.array([np.nan if x is None else x for x in np.asarray(values, object).tolist()], np.float64)
    if not len(v):
        raise InputError("no runs to aggregate")
    std = float(v.std(ddof=1)) if len(v) > 1 else np.nan
    return Aggregate(float(v.mean()), std, std / float(np.sqrt(len(v))), len(v))


def mean_over_subsets(
    values: Sequence[float | None], subsets: Sequence[tuple[int, ...]], seeds: int, rules: str = "corrected"
) -> Aggregate:
    """Return the mean over subsets of seeds with its standard error. Shapes: `values` (M,)."""
    found = aggregate(values)
    if rules == "published":
        std = float(np.asarray(values, np.float64).std()) if np.isfinite(found.mean) else np.nan
        return Aggregate(found.mean, std, std / float(np.sqrt(len(values))), found.runs)
    size = len(subsets[0])
    if size == 1 or (len(subsets) > 1 and len(_members(subsets)) == size * len(subsets)):
        return found
    error = np.nan
    if seeds > size and len(subsets) == comb(seeds, size) and np.isfinite(found.mean):
        effects = seed_effects(np.asarray(values, np.float64).tolist(), subsets)  # none where a seed is in every subset
        error = float(np.sqrt(sum(e**2 for e in effects.values()))) if effects else np.nan
    return Aggregate(found.mean, found.std, error, found.runs)


def seed_effects(values: ArrayLike, subsets: Sequence[tuple[Hashable, ...]]) -> dict[Hashable, float]:
    """Return by seed its part e of the mean over M subsets, scaled so that the sum of e² is the variance of the mean over seeds.

    With n seeds, mean m_(s) without the subsets of seed s, and mean m of these: e_s = sqrt((n - 1) / n) (m_(s) - m), the delete-one
    jackknife. Of single seeds the sum of e² is their variance (ddof 1) over n. Subsets that share no seed are units by themselves.
    Empty for a single subset, and where a seed is in every subset: nothing is known of other seeds.
    """
    members = _members(subsets)
    apart = len(members) == sum(map(len, subsets))
    units: list[Hashable] = sorted(subsets, key=str) if apart else list(members)
    v = np.asarray(values, np.float64).tolist()
    without = [
        [value for value, subset in zip(v, subsets, strict=True) if unit not in ([subset] if apart else subset)]
        for unit in units
    ]
    if len(units) < 2 or not all(without):
        return {}
    means, n = np.array([np.mean(part) for part in without]), len(units)
    return dict(zip(units, (np.sqrt((n - 1) / n) * (means - means.mean())).tolist(), strict=True))


def _members(subsets: Sequence[tuple[Hashable, ...]]) -> list[Hashable]:
    return sorted({seed for subset in subsets for seed in subset}, key=str)

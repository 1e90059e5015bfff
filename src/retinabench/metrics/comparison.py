"""Which of several models is better: differences over patients and seeds, tests, Holm's correction, ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.core.results import (
    Document,
    IntervalRow,
    JsonObject,
    Row,
    Tabular,
    draw_intervals,
    json_content,
    vars_of,
)
from retinabench.core.untrusted import shown
from retinabench.metrics.bootstrap import check_level, check_seed, percentile_interval
from retinabench.metrics.clinical.thresholds import ABOVE_HALF, DEFAULT, DecisionThreshold, FrozenThreshold
from retinabench.metrics.image_sets import SET_LABELS, SETS
from retinabench.metrics.intervals import (
    ALL_ALIKE,
    ONE_PATIENT,
    UNDEFINED,
    Proportion,
    Ranked,
    auroc_difference,
    difference_method,
    holm,
    patients_of,
    replicate_error,
    scaled_interval,
    sign_flip_p_value,
    t_test,
)
from retinabench.metrics.over_seeds import aggregate
from retinabench.metrics.paired import OnSet, PairedSet, align, notes_on, paired_sets
from retinabench.metrics.proportions import Interval
from retinabench.metrics.published import score_sets
from retinabench.metrics.registry import SCORES, ScoreSpec
from retinabench.metrics.score_results import PLOTTED, check_known
from retinabench.metrics.scoring import Rules, check_rules, frozen_threshold, interval_of
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.metrics.weighted_images import Weighted
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Floats = NDArray[np.float64]

SAME_ORDER = "no interval: both models rank the images in the same order"


@dataclass(frozen=True)
class PairedDifference:
    """First minus second model, with its interval and the two-sided p-value of "no difference"; NaN, and why, where undefined."""

    difference: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    why: str | None = None


def paired_difference(one: PairedSet, k: int, i: int, j: int, level: float = 0.95) -> PairedDifference:
    """Return the difference of one score between two models of a set."""
    spec, draws = one.scores[k], one.draws[:, i, k] - one.draws[:, j, k]
    difference = float(one.point[i, k] - one.point[j, k])
    if not len(draws) or not math.isfinite(difference):
        return PairedDifference(difference)
    a, b = one.whole[i], one.whole[j]
    if len(np.unique(a.cases.patient)) < 2:
        return PairedDifference(difference, why=ONE_PATIENT)
    method = spec.interval
    if isinstance(method, Proportion) and not method.resampled:
        return _of_proportions(method, a, b, difference, level)
    if isinstance(method, Ranked):
        (score_a, *masses_a), (score_b, *masses_b) = (_in_rows(w, *method.parts(w)) for w in (a, b))
        if np.array_equal(masses_a, masses_b):
            found = auroc_difference(
                masses_a[0] > 0, score_a, score_b, _in_rows(a, a.cases.patient)[0], np.sum(masses_a, axis=0)
            )
            if found.standard_error == 0 and difference == 0:
                return PairedDifference(difference, p=1.0, why=SAME_ORDER)
            span = 1 - method.low
            low, high = (span * end for end in found.interval(level))
            return _known(PairedDifference(difference, low, high, found.p_value), draws)
    of = difference_method(method).of
    degrees = min(patients_of(a, of), patients_of(b, of), len(draws)) - 1
    error = replicate_error(draws)
    ends = scaled_interval(difference, error, (-math.inf, math.inf), degrees, level)
    return _known(PairedDifference(difference, *ends, t_test(difference, error, degrees)), draws)


def _of_proportions(
    method: Proportion, a: Weighted, b: Weighted, difference: float, level: float
) -> PairedDifference:
    """Exact test by patients; Bonett and Price's adjusted interval, of sums over patients.

    Two patients are added, of whom the first model gets all right and the second none, and the other way round: no set is so
    small that the interval would have no width.

    References:
        Bonett and Price, Adjusted Wald confidence interval for a difference of binomial proportions based on paired data,
        J. Educ. Behav. Stat. 37:479 (2012).
    """
    (hit_a, weight), (hit_b, other) = (_in_rows(w, *method.counts(w)) for w in (a, b))
    if not np.array_equal(weight, other):
        raise InputError("the models count different images")
    patient = _in_rows(a, a.cases.patient)[0].astype(np.intp)
    held = np.bincount(patient, weight)
    gained = np.bincount(patient, weight * (hit_a - hit_b))[held > 0]
    held = held[held > 0]
    if len(held) < 2:
        return PairedDifference(difference, why=ONE_PATIENT)
    usual = held.mean()
    held, more = np.append(held, [usual, usual]), np.append(gained, [usual, -usual])
    centre = more.sum() / held.sum()
    residual, patients = more - centre * held, len(held)
    error = math.sqrt(patients / (patients - 1) * float(residual @ residual)) / held.sum()
    half = float(stats.t.ppf((1 + level) / 2, patients - 1)) * error
    low, high = max(-1.0, centre - half), min(1.0, centre + half)
    return PairedDifference(
        difference, float(min(low, difference)), float(max(high, difference)), sign_flip_p_value(gained)
    )


def _in_rows(w: Weighted, *columns: NDArray[np.generic]) -> list[Floats]:
    """Columns (N,) in the sorted order of the images, in the order of the rows, which all models share."""
    out = []
    for column in columns:
        rows = np.empty(len(column))
        rows[w.cases.order] = column
        out.append(rows)
    return out


def _known(found: PairedDifference, draws: Floats) -> PairedDifference:
    if found.high > found.low:
        return found
    why = UNDEFINED if math.isnan(replicate_error(draws)) else ALL_ALIKE
    return PairedDifference(found.difference, p=found.p, why=why)


NO_INTERVALS = "the published protocol has no intervals"


@dataclass(frozen=True)
class Difference(Document):
    """A score of two models and their difference a - b; NaN where undefined, with the reason in `why`.

    Args:
        a: Value of the first model.
        b: Value of the second model.
        difference: a - b.
        low: Lower end of its interval.
        high: Upper end of its interval.
        p: Two-sided p-value of "no difference".
        p_holm: The same after Holm's correction over all scores of the set.
        better: `a` or `b` where `p_holm` lies below 1 - level, else None.
        version: Version of the score.
        why: Why a number is undefined.

    Examples:
        >>> import retinabench as rb
        >>> first = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> second = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9])
        >>> found = rb.compare(first, second, bootstrap=0)["in_domain"]["auroc"]
        >>> found.a, found.b
        (0.75, 1.0)
    """

    _optional = ("why",)

    a: float
    b: float
    difference: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    p_holm: float = np.nan
    better: str | None = None
    version: int = 1
    why: str | None = None


class SetComparison(OnSet[Difference]):
    """The differences on one set, by score.

    Args:
        images: Number of images.
        patients: Number of patients; None where they are not known.
        positives: Number of images with label 1.
        scores: Name of a score -> the difference.

    Examples:
        >>> import retinabench as rb
        >>> model = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.6])
        >>> rb.compare(model, model, bootstrap=0)["in_domain"].images
        2
    """


@dataclass(frozen=True)
class Comparison(Tabular, Document):
    """Differences a - b of every score on every set: `comparison["in_domain"]["auroc"].difference`.

    Args:
        a: Name of the first model.
        b: Name of the second model.
        rules: `corrected` or `published`.
        bootstrap: Number of bootstrap replicates.
        seed: Seed of the bootstrap.
        level: Level of the intervals.
        sets: Set name -> differences.
        notes: What a reader of the numbers must know.
        thresholds: The decision thresholds of the two models.

    Examples:
        >>> import retinabench as rb
        >>> first = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> second = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9])
        >>> comparison = rb.compare(first, second, bootstrap=0, scores=["auroc"])
        >>> comparison["in_domain"]["auroc"].difference
        -0.25
    """

    a: str
    b: str
    rules: str
    bootstrap: int
    seed: int
    level: float
    sets: Mapping[str, SetComparison]
    notes: tuple[str, ...] = ()
    thresholds: tuple[FrozenThreshold, FrozenThreshold] = (ABOVE_HALF, ABOVE_HALF)

    def __getitem__(self, name: str) -> SetComparison:
        return self.sets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sets)

    def records(self) -> list[Row]:
        """Return one dictionary per set and score."""
        return [
            {"set": SET_LABELS[name], "score": SCORES[key].label, **vars(found)}
            for name, one in self.sets.items()
            for key, found in one.scores.items()
        ]

    def plot(self, axes: Axes | None = None, scores: Sequence[str] = PLOTTED) -> Axes:
        """Draw the differences a - b with their intervals.

        Args:
            axes: Where to draw; None: a new figure.
            scores: Names of the scores; those that were not compared are left out.

        Returns:
            The axes.
        """
        check_known("score", scores, list(SCORES))
        rows = [
            IntervalRow(f"{SCORES[key].label}, {SET_LABELS[name].lower()}", one.difference, one.low, one.high)
            for key in scores
            for name, compared in self.sets.items()
            if (one := compared.scores.get(key))
        ]
        return draw_intervals(rows, axes, label=f"{self.a} - {self.b}", zero=True)

    def to_dict(self) -> JsonObject:
        """Return what `retinabench compare --json` writes."""
        return {"schema": "retinabench.comparison/1", **super().to_dict()}


def compare(
    a: Predictions,
    b: Predictions,
    rules: Rules = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
    *,
    scores: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    threshold: DecisionThreshold | float | str = DEFAULT,
    level: float = 0.95,
) -> Comparison:
    """Return the paired, patient-clustered differences a - b of every score.

    Both files must hold the same test images, in any order, with the same truth. Each replicate scores both models on the
    same patients. Where p-values come from: `metrics.comparison.differences`.

    Args:
        a: Predictions of the first model.
        b: Predictions of the second model.
        rules: `corrected`, or `published` for values of the published protocol, which has no intervals.
        bootstrap: Number of replicates; 0 for values without intervals.
        seed: Seed of the bootstrap.
        scores: Names of scores; None for all of `score`.
        sets: Names of sets; None for all.
        uncertainty: What orders the referral, as in `score`.
        threshold: The decision threshold, as in `score`; a rule chooses it for each model on its own file.
        level: Level of the intervals.

    Returns:
        The differences of every set.

    Raises:
        InputError: Images, labels, domains, grades or patients differ; the message names the first.

    Examples:
        >>> import retinabench as rb
        >>> model = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.6])
        >>> rb.compare(model, model, bootstrap=0)["in_domain"]["accuracy"].difference
        0.0
    """
    check_rules(rules)
    check_known("score", scores, list(SCORES))
    check_known("set", sets, SETS)
    _check_intervals(bootstrap, seed, level)
    cuts = [frozen_threshold(model, threshold, rules) for model in (a, b)]
    first, second = align([a, b])
    names = _two_names(a, b)
    notes = notes_on([first, second], names, uncertainty, cuts)
    if rules == "published":
        table = _published(first, second, scores, sets, uncertainty, seed)
        return Comparison(*names, rules, 0, seed, level, table, (*notes, NO_INTERVALS))
    options: Any = {"scores": scores, "sets": sets, "bootstrap": bootstrap, "seed": seed}
    options |= {"uncertainty": uncertainty, "thresholds": [cut.value for cut in cuts]}
    paired = paired_sets([first, second], **options)
    found = {one.name: _compared(one, level) for one in paired}
    return Comparison(*names, rules, bootstrap, seed, level, found, notes, (cuts[0], cuts[1]))


def _check_intervals(bootstrap: int, seed: int, level: float) -> None:
    if bootstrap < 0:
        raise InputError(f"{bootstrap} bootstrap replicates", hint="Ask for 0 (no intervals) or more.")
    check_seed(seed)
    check_level(level)


def _two_names(a: Predictions, b: Predictions) -> tuple[str, str]:
    """The files of two models as reports show them, in full where that does not tell them apart."""
    first, second = shown(a.source or "a"), shown(b.source or "b")
    return (first, second) if first != second else (a.source or "a", b.source or "b")


def _compared(one: PairedSet, level: float) -> SetComparison:
    return SetComparison(one.images, one.patients, one.positives, _differences(one, level))


def _differences(one: PairedSet, level: float) -> dict[str, Difference]:
    found = [paired_difference(one, k, 0, 1, level) for k in range(len(one.scores))]
    adjusted = holm([each.p for each in found]).tolist()
    out = {}
    for k, (spec, each, p_holm) in enumerate(zip(one.scores, found, adjusted, strict=True)):
        a, b = one.point[:, k].tolist()
        undefined = [i for i in (0, 1) if not np.isfinite(one.point[i, k])]
        why = (
            f"{'ab'[undefined[0]]}: {spec.why_undefined(one.whole[undefined[0]])}" if undefined else each.why
        )
        better = _better(spec, each.difference, p_holm, 1 - level)
        numbers = each.difference, each.low, each.high, each.p, p_holm
        out[spec.name] = Difference(a, b, *numbers, better, spec.version, why)
    return out


def _better(spec: ScoreSpec, difference: float, p: float, alpha: float) -> str | None:
    if not p < alpha or difference == 0:
        return None
    return "a" if difference * spec.sign > 0 else "b"


def _published(
    a: Predictions,
    b: Predictions,
    scores: Sequence[str] | None,
    sets: Sequence[str] | None,
    uncertainty: str,
    seed: int,
) -> dict[str, SetComparison]:
    one, two = (
        score_sets(model, referral_uncertainty(model, uncertainty, exact=True)[0], seed) for model in (a, b)
    )
    table = {}
    for name, values in one.items():
        if sets is not None and name not in sets:
            continue
        found = {}
        for score, entry in values.scores.items():
            if scores is None or score in scores:
                x, y = entry.value, two[name][score].value
                why = None if np.isfinite(x - y) else "one class only"
                found[score] = Difference(x, y, x - y, version=entry.version, why=why)
        table[name] = SetComparison(values.images, values.patients, values.positives, found)
    return table


@dataclass(frozen=True)
class RankedModel(Interval):
    """The value of a model with its interval, and its rank."""

    first: float = np.nan
    rank: float = np.nan
    rank_low: float = np.nan
    rank_high: float = np.nan


@dataclass(frozen=True)
class RankedPair(Document):
    """The difference a - b of two models, its interval and p-values; `p_holm` is corrected over the pairs of a score."""

    a: str
    b: str
    difference: float
    low: float
    high: float
    p: float
    p_holm: float


@dataclass(frozen=True)
class ScoreRanking(Document):
    """The models by one score on one set, and all their pairs."""

    direction: str
    models: Mapping[str, RankedModel]
    pairs: tuple[RankedPair, ...]


class SetRanking(OnSet[ScoreRanking]):
    """The rankings on one set, by score."""


@dataclass(frozen=True)
class Ranking(Tabular, Document):
    """Several models ranked on the same images: `ranking["in_domain"]["auroc"].models["ours"].rank`.

    Args:
        models: Names of the models.
        bootstrap: Number of bootstrap replicates.
        seed: Seed of the bootstrap.
        level: Level of the intervals.
        sets: Set name -> rankings.
        notes: What a reader of the numbers must know.

    Examples:
        >>> import retinabench as rb
        >>> good = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9])
        >>> poor = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> ranking = rb.rank({"good": good, "poor": poor}, bootstrap=20, scores=["auroc"])
        >>> ranking["in_domain"]["auroc"].models["good"].value
        1.0
    """

    models: tuple[str, ...]
    bootstrap: int
    seed: int
    level: float
    sets: Mapping[str, SetRanking]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> SetRanking:
        return self.sets[name]

    def records(self) -> list[Row]:
        """Return one dictionary per set, score and model."""
        return [
            {"set": SET_LABELS[name], "score": SCORES[key].label, "model": model, **vars(found)}
            for name, one in self.sets.items()
            for key, ranking in one.scores.items()
            for model, found in ranking.models.items()
        ]

    def plot(self, axes: Axes | None = None, score: str | None = None, set: str | None = None) -> Axes:
        """Draw the models by one score, the best at the top, with their intervals.

        Args:
            axes: Where to draw; None: a new figure.
            score: Name of the score; None: the first that was ranked.
            set: Name of the set; None: the first.

        Returns:
            The axes.
        """
        name = next(iter(self.sets)) if set is None else set
        key = next(iter(self.sets[name].scores)) if score is None else score
        ranking = self.sets[name][key]
        order = sorted(
            ranking.models.items(), key=lambda item: item[1].value, reverse=ranking.direction != "lower"
        )
        rows = [IntervalRow(model, one.value, one.low, one.high) for model, one in order]
        return draw_intervals(rows, axes, label=f"{SCORES[key].heading}, {SET_LABELS[name].lower()}")

    def to_dict(self) -> JsonObject:
        """Return plain dictionaries, lists, text, numbers and None."""
        return {"schema": "retinabench.leaderboard/1", **super().to_dict()}


def rank(
    models: Mapping[str, Predictions],
    bootstrap: int = 1000,
    seed: int = 0,
    *,
    scores: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    level: float = 0.95,
) -> Ranking:
    """Rank models on the same images: values, intervals, how often each is first, and all pairs.

    The patients of a replicate are the same for all models. Holm's correction runs over the pairs of one score on one
    set.

    Args:
        models: Name -> predictions, two or more.
        bootstrap: Number of replicates; 0 for values without intervals and ranks.
        seed: Seed of the bootstrap.
        scores: Names of scores; None for all of `score`.
        sets: Names of sets; None for all.
        uncertainty: What orders the referral, as in `score`.
        level: Level of the intervals.

    Returns:
        The ranking of every score on every set.

    Raises:
        InputError: There are fewer than two models, or they do not hold the same images with the same truth.

    Examples:
        >>> import retinabench as rb
        >>> model = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.6])
        >>> rb.rank({"one": model, "two": model}, bootstrap=0).models
        ('one', 'two')
    """
    if len(models) < 2:
        raise InputError(f"{len(models)} model to rank", hint="Name two or more.")
    check_level(level)  # here, since without replicates no interval asks
    names = tuple(models)
    aligned = align(list(models.values()))
    paired = paired_sets(
        aligned, scores=scores, sets=sets, uncertainty=uncertainty, bootstrap=bootstrap, seed=seed
    )
    found = {}
    for one in paired:
        rankings = {spec.name: _ranked(names, one, k, level) for k, spec in enumerate(one.scores)}
        found[one.name] = SetRanking(one.images, one.patients, one.positives, rankings)
    return Ranking(names, bootstrap, seed, level, found, notes_on(aligned, names, uncertainty))


def ranks(draws: ArrayLike, higher_is_better: bool) -> Floats:
    """Ranks (R, M) of M models in each replicate, 1 = best, ties shared by their mean; NaN rows where any is undefined."""
    values = np.asarray(draws, np.float64)
    values = values if higher_is_better else -values
    better = (values[:, None, :] > values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    out = better + (equal + 1) / 2.0
    out[~np.isfinite(values).all(axis=1)] = np.nan
    return np.asarray(out)


def _ranked(names: tuple[str, ...], one: PairedSet, k: int, level: float) -> ScoreRanking:
    """Rank by the score k of a set."""
    spec, draws = one.scores[k], one.draws[:, :, k]
    ends = [
        interval_of(spec, whole, value, column, level)
        for whole, value, column in zip(one.whole, one.point[:, k].tolist(), draws.T, strict=True)
    ]
    places = ranks(draws, spec.sign > 0)
    rank_low, rank_high = (
        percentile_interval(places, level, points=True) if len(places) else np.full((2, len(names)), np.nan)
    )
    first = mean = np.full(len(names), np.nan)
    defined = places[np.isfinite(places).all(axis=1)]
    if len(defined):
        best = defined == defined.min(axis=1, keepdims=True)
        first = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
        mean = defined.mean(axis=0)
    columns = (
        one.point[:, k],
        [e.low for e in ends],
        [e.high for e in ends],
        first,
        mean,
        rank_low,
        rank_high,
    )
    models = {name: RankedModel(*(float(x[m]) for x in columns)) for m, name in enumerate(names)}
    return ScoreRanking(spec.direction, models, _pairs(names, one, k, level))


def _pairs(names: tuple[str, ...], one: PairedSet, k: int, level: float) -> tuple[RankedPair, ...]:
    pairs = list(combinations(range(len(names)), 2))
    found = [paired_difference(one, k, i, j, level) for i, j in pairs]
    return tuple(
        RankedPair(names[i], names[j], each.difference, each.low, each.high, each.p, p_holm)
        for (i, j), each, p_holm in zip(pairs, found, holm([each.p for each in found]).tolist(), strict=True)
    )


LEVEL = 0.95


@dataclass(frozen=True)
class Standing(Interval):
    """A score of a method: the mean over its seeds with the interval over patients, and the ranks that are resolved."""

    error: float = math.nan
    rank: int = 0
    worst: int = 0

    def to_dict(self) -> JsonObject:
        """Return the numbers for JSON, None where undefined."""
        return {**super().to_dict(), "rank": self.rank or None, "worst": self.worst or None}


@dataclass(frozen=True)
class ScoreStandings:
    """The methods by one score on one set, the best value first, and all their pairs."""

    spec: ScoreSpec
    methods: Mapping[str, Standing]
    pairs: tuple[RankedPair, ...]

    def pair(self, a: str, b: str) -> RankedPair | None:
        """Return the difference a - b, whichever way round it was computed."""
        for one in self.pairs:
            if (one.a, one.b) == (a, b):
                return one
            if (one.a, one.b) == (b, a):
                return RankedPair(a, b, -one.difference, -one.high, -one.low, one.p, one.p_holm)
        return None

    def better(self) -> set[tuple[str, str]]:
        """Return the pairs (better, worse) whose difference is resolved."""
        return {order for one in self.pairs if (order := _resolved(one, self.spec.sign)) is not None}

    def to_dict(self) -> JsonObject:
        """Return the score's part of the JSON."""
        return {
            "direction": self.spec.direction,
            "version": self.spec.version,
            "methods": json_content(self.methods),
            "pairs": json_content(self.pairs),
        }


@dataclass(frozen=True)
class SetStandings:
    """The standings on one set, by score."""

    name: str
    images: int
    patients: int | None
    positives: int
    scores: Mapping[str, ScoreStandings]

    def __getitem__(self, name: str) -> ScoreStandings:
        return self.scores[name]

    def to_dict(self) -> JsonObject:
        """Return the set's part of the JSON."""
        return {name: json_content(one) for name, one in vars_of(self).items() if name != "name"}


def standings(
    methods: Mapping[str, Sequence[Predictions]],
    scores: Sequence[str],
    sets: Sequence[str] | None = None,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, SetStandings]:
    """Rank methods on the same images, each with the predictions of one or more seeds."""
    names = list(methods)
    files = [(name, one) for name in names for one in methods[name]]
    aligned = align([one for _, one in files])
    rows = {name: [k for k, (owner, _) in enumerate(files) if owner == name] for name in names}
    seeds = {name: _seeds(methods[name]) for name in names}
    found = {}
    for one in paired_sets(aligned, scores=scores, sets=sets, bootstrap=bootstrap, seed=seed):
        ranked = {spec.name: _standings(one, k, rows, seeds) for k, spec in enumerate(one.scores)}
        found[one.name] = SetStandings(one.name, one.images, one.patients, one.positives, ranked)
    return found


def _seeds(files: Sequence[Predictions]) -> tuple[str, ...]:
    """Return what tells the seeds of a method apart, empty where the files do not say."""
    seeds = [str(one.metadata.get("seed", "")) for one in files]
    return tuple(seeds) if all(seeds) and len(set(seeds)) == len(seeds) else ()


def _standings(
    one: PairedSet, k: int, rows: Mapping[str, list[int]], seeds: Mapping[str, tuple[str, ...]]
) -> ScoreStandings:
    spec, values = one.scores[k], {name: one.point[own, k] for name, own in rows.items()}
    draws = {name: one.draws[:, own, k].mean(axis=1) for name, own in rows.items()}
    pairs = [
        _difference_of_means(
            one, k, (a, b), rows, values, draws, paired=bool(seeds[a]) and seeds[a] == seeds[b]
        )
        for a, b in combinations(rows, 2)
    ]
    corrected = holm([pair.p for pair in pairs]).tolist()
    pairs = [
        RankedPair(pair.a, pair.b, pair.difference, pair.low, pair.high, pair.p, p)
        for pair, p in zip(pairs, corrected, strict=True)
    ]
    better = {found for pair in pairs if (found := _resolved(pair, spec.sign)) is not None}
    standing = {name: _standing(spec, one, own, values[name], draws[name]) for name, own in rows.items()}
    order = sorted(rows, key=lambda name: _key(standing[name].value, spec.sign))
    known = [name for name in order if math.isfinite(standing[name].value)]
    ranked = {}
    for name in order:
        ahead = sum(other == name for _, other in better)
        behind = sum(other == name for other, _ in better)
        places = (ahead + 1, len(known) - behind) if name in known and spec.sign else (0, 0)
        plain = standing[name]
        ranked[name] = Standing(plain.value, plain.low, plain.high, plain.error, *places)
    return ScoreStandings(spec, ranked, tuple(pairs))


def _standing(spec: ScoreSpec, one: PairedSet, own: list[int], values: Floats, draws: Floats) -> Standing:
    mean = aggregate(values.tolist())
    low = high = math.nan
    if len(draws) and math.isfinite(mean.mean):
        ends = spec.interval.ends([one.whole[row] for row in own], mean.mean, draws, LEVEL)
        low, high = ends.low, ends.high
    return Standing(mean.mean, low, high, mean.error)


def _difference_of_means(
    one: PairedSet,
    k: int,
    names: tuple[str, str],
    rows: Mapping[str, list[int]],
    values: Mapping[str, Floats],
    draws: Mapping[str, Floats],
    *,
    paired: bool,
) -> RankedPair:
    a, b = names
    difference = float(values[a].mean() - values[b].mean())
    if not len(draws[a]) or not math.isfinite(difference):
        return RankedPair(a, b, difference, math.nan, math.nan, math.nan, math.nan)
    method = difference_method(one.scores[k].interval)
    error = replicate_error(draws[a] - draws[b])
    patients = min(patients_of(one.whole[row], method.of) for name in names for row in rows[name])
    degrees = float(min(patients, len(draws[a])) - 1)
    if error > 0:
        error, degrees = _with_seeds(error, degrees, values[a], values[b], paired=paired)
    ends = scaled_interval(difference, error, (-math.inf, math.inf), degrees, LEVEL)
    return RankedPair(a, b, difference, *ends, t_test(difference, error, degrees), math.nan)


def _with_seeds(error: float, degrees: float, a: Floats, b: Floats, *, paired: bool) -> tuple[float, float]:
    """Return the standard error with the variance over seeds added, and its degrees of freedom."""
    parts = [(error**2, degrees)]
    samples = [a - b] if paired else [a, b]
    for sample in samples:
        if len(sample) > 1 and (variance := float(sample.var(ddof=1)) / len(sample)) > 0:
            parts.append((variance, len(sample) - 1.0))
    total = sum(variance for variance, _ in parts)
    return math.sqrt(total), total**2 / sum(variance**2 / d for variance, d in parts)


def _resolved(pair: RankedPair, sign: int) -> tuple[str, str] | None:
    """Return the pair as (better, worse), None where they cannot be told apart."""
    if not sign or not pair.p_holm < 1 - LEVEL:
        return None
    return (pair.a, pair.b) if sign * pair.difference > 0 else (pair.b, pair.a)


def _key(value: float, sign: int) -> tuple[bool, float]:
    """Order the best value first, and what is undefined last."""
    return (not math.isfinite(value), -sign * value if math.isfinite(value) else 0.0)

"""Which of several models is better, over patients and seeds: differences of two, ranks of several, Holm's correction.

`paired.py` says what is paired with what and which test a difference has, `docs/comparison.md` who asks. Holm's correction runs over
the comparisons that are shown together: the scores of a set for two models, the pairs of one score for several. The rank of a
model lies between one more than the number of models that are better, resolved, and the last that those leave which are worse,
resolved: models that cannot be told apart share their ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from retinabench.core.errors import InputError, shown
from retinabench.core.results import Document, IntervalRow, Row, Tabular, draw_intervals
from retinabench.core.seeds import numpy_generator
from retinabench.metrics import image_sets
from retinabench.metrics.image_sets import SET_LABELS, SETS, DecisionThreshold, FrozenThreshold, check_known
from retinabench.metrics.intervals import Interval
from retinabench.metrics.p_values import holm, min_p
from retinabench.metrics.paired import LEVEL, Methods, OnSet, Side, Wanted, notes_on, paired_sets, places, ranks
from retinabench.metrics.published import score_sets
from retinabench.metrics.registry import SCORES
from retinabench.metrics.scoring import PLOTTED, Rules, ScoreSettings, frozen_threshold
from retinabench.metrics.weighted_images import Floats, check_level, percentile_interval
from retinabench.predictions.table import Predictions, Subsets, align, seeds_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Model = Predictions | Sequence[Predictions]
NO_INTERVALS = "the published protocol has no intervals"


@dataclass(frozen=True)
class Difference(Document):
    """A score of two models and their difference a - b; NaN where undefined, with the reason in `why`.

    Args:
        a: Value of the first model, the mean over its seeds.
        b: Value of the second model.
        difference: a - b.
        low: Lower end of its interval.
        high: Upper end of its interval.
        p: Two-sided p-value of "no difference".
        p_holm: The same after Holm's correction over the scores of the set.
        p_adjusted: The same after Westfall and Young's correction, which knows that scores depend on each other.
        better: `a` or `b` where `p_adjusted` lies below 1 - level, else None.
        non_inferior: With a margin, whether a is shown to be less than the margin worse than b; else None.
        version: Version of the score.
        why: Why a number is undefined.

    Examples:
        >>> import retinabench as rb
        >>> first = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> second = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9])
        >>> difference = rb.compare(first, second, bootstrap=0)["in_domain"]["auroc"]
        >>> difference.a, difference.b
        (0.75, 1.0)
    """

    _optional = ("why", "non_inferior")

    a: float
    b: float
    difference: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan
    p_holm: float = np.nan
    p_adjusted: float = np.nan
    better: str | None = None
    non_inferior: bool | None = None
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
        thresholds: The decision threshold of each file, those of the first model first.
        margin: The margin of the test for non-inferiority; None without one.

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
    thresholds: tuple[FrozenThreshold, ...] = (image_sets.ABOVE_HALF, image_sets.ABOVE_HALF)
    margin: float | None = None

    _schema, _optional = "retinabench.comparison/1", ("margin",)

    def __getitem__(self, name: str) -> SetComparison:
        return self.sets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sets)

    def records(self) -> list[Row]:
        rows = [(name, key, one) for name, compared in self.sets.items() for key, one in compared.scores.items()]
        return [{"set": SET_LABELS[name], "score": SCORES[key].label, **vars(one)} for name, key, one in rows]

    def plot(self, axes: Axes | None = None, scores: Sequence[str] = PLOTTED) -> Axes:
        check_known("score", scores, list(SCORES))
        rows = [
            IntervalRow(f"{SCORES[key].label}, {SET_LABELS[name].lower()}", one.difference, one.low, one.high)
            for key in scores
            for name, compared in self.sets.items()
            if (one := compared.scores.get(key))
        ]
        return draw_intervals(rows, axes, label=f"{self.a} - {self.b}", zero=True)


def compare(
    a: Model,
    b: Model,
    rules: Rules = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
    *,
    scores: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    threshold: DecisionThreshold | float | str = image_sets.DEFAULT,
    level: float = 0.95,
    margin: float | None = None,
) -> Comparison:
    """Return the paired, patient-clustered differences a - b of every score.

    All files must hold the same test images, in any order, with the same truth. Each replicate scores both models on the
    same patients. What is paired with what, and where p-values come from: `docs/comparison.md`.

    Args:
        a: Predictions of the first model, or a list with those of its seeds.
        b: Predictions of the second model, or a list.
        rules: `corrected`, or `published` for values of the published protocol, which has no intervals.
        bootstrap: Number of replicates; 0 for values without intervals.
        seed: Seed of the bootstrap.
        scores: Names of scores; None for all of `score`. A primary score that is named alone is tested without a correction.
        sets: Names of sets; None for all.
        uncertainty: What orders the referral, as in `score`.
        threshold: The decision threshold, as in `score`; a rule chooses it for each file on itself.
        level: Level of the intervals.
        margin: Test for non-inferiority: by how much the first model may be worse, in units of the one score that is named.

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
    ScoreSettings(rules, bootstrap, seed)
    check_known("score", scores, list(SCORES))
    check_known("set", sets, SETS)
    check_level(level)
    if margin is not None:
        _check_margin(margin, scores, has_intervals=rules == "corrected" and bootstrap > 0)
    models = [[one] if isinstance(one, Predictions) else list(one) for one in (a, b)]
    files = [*models[0], *models[1]]
    cuts = tuple(frozen_threshold(file, threshold, rules) for file in files)
    aligned = align(files)
    names = _two_names(*models)
    labels = names if len(files) == 2 else [shown(file.source or f"file {k}") for k, file in enumerate(files)]
    notes = notes_on(aligned, labels, uncertainty, cuts)
    seeds = [seeds_of(*one) for one in zip("ab", models, strict=True)]
    if len(files) > 2:
        counts = ", ".join(f"{len(model)} of {name}" for name, model in zip(names, models, strict=True))
        paired = "paired, since both have the same" if set(seeds[0]) == set(seeds[1]) else "independent"
        notes = (*notes, f"means over seeds: {counts}; seeds are {paired}")
    rows = range(len(models[0])), range(len(models[0]), len(files))
    if rules == "published":
        every = _published(aligned, rows, scores, uncertainty, seed)
        table = {name: one for name, one in every.items() if sets is None or name in sets}
        return Comparison(*names, rules, 0, seed, level, table, (*notes, NO_INTERVALS))
    found = {}
    for one in paired_sets(
        aligned, scores=scores, sets=sets, bootstrap=bootstrap, seed=seed, uncertainty=uncertainty,
        thresholds=[cut.value for cut in cuts],
    ):  # fmt: skip
        pairs = [Methods(one, k, rows, seeds) for k in range(len(one.scores))]
        differences = _differences(pairs, level, margin)
        found[one.name] = SetComparison(one.images, one.patients, one.positives, differences)
    return Comparison(*names, rules, bootstrap, seed, level, found, notes, cuts, margin)


def _check_margin(margin: float, scores: Sequence[str] | None, *, has_intervals: bool) -> None:
    if not margin > 0:
        raise InputError(f"the margin is {margin:g}", hint="Give one above 0, such as 0.02.")
    if scores is None or len(scores) != 1 or not SCORES[scores[0]].sign:
        raise InputError(
            "a margin belongs to one score", hint="Name one that is better higher or lower, such as auroc."
        )
    if not has_intervals:
        raise InputError("a margin needs intervals", hint="Use the corrected rules, and bootstrap replicates.")


def _differences(pairs: Sequence[Methods], level: float, margin: float | None) -> dict[str, Difference]:
    tests = [pair.test(0, 1, level) for pair in pairs]
    p = [test.p for test in tests]
    draws = np.stack([pair.sides[0].draws - pair.sides[1].draws for pair in pairs], axis=-1)
    found = {}
    for pair, test, by_holm, adjusted in zip(pairs, tests, holm(p).tolist(), min_p(p, draws).tolist(), strict=True):
        spec, better, non_inferior = pair.spec, None, None
        undefined = [f"{side}: {why}" for m, side in enumerate("ab") if (why := pair.why_undefined(m)) is not None]
        why = undefined[0] if undefined else test.why
        if adjusted < 1 - level and test.difference != 0:
            better = "a" if test.difference * spec.sign > 0 else "b"
        if margin is not None:
            non_inferior = (test.low if spec.sign > 0 else -test.high) > -margin
        a, b = (side.value for side in pair.sides)
        found[spec.name] = Difference(a, b, *test[:4], by_holm, adjusted, better, non_inferior, spec.version, why)
    return found


def _two_names(a: Sequence[Predictions], b: Sequence[Predictions]) -> tuple[str, str]:
    """What reports call two models: their files, in full where these are not told apart; several seeds by their title."""
    titles = (model[0].metadata.get("title") or model[0].metadata.get("method") for model in (a, b))
    first, second = (
        shown(model[0].source or side) if len(model) == 1 else str(title or side)
        for side, model, title in zip("ab", (a, b), titles, strict=True)
    )
    return (first, second) if first != second else (a[0].source or "a", b[0].source or "b")


def _published(
    files: Sequence[Predictions], rows: Sequence[range], scores: Sequence[str] | None, uncertainty: str, seed: int
) -> dict[str, SetComparison]:
    tables = [score_sets(one, image_sets.referral_uncertainty(one, uncertainty, exact=True)[0], seed) for one in files]
    table = {}
    for name, first in tables[0].items():
        found = {}
        for score, entry in first.scores.items():
            if scores is None or score in scores:
                a, b = (float(np.mean([tables[k][name].scores[score].value for k in own])) for own in rows)
                why = None if np.isfinite(a - b) else "one class only"
                found[score] = Difference(a, b, a - b, version=entry.version, why=why)
        table[name] = SetComparison(first.images, first.patients, first.positives, found)
    return table


@dataclass(frozen=True)
class RankedModel(Interval):
    """The mean of a model over its seeds with its interval over patients, and its rank."""

    first: float = np.nan  # share of the replicates in which it is the best, ties shared
    rank: float = np.nan  # mean over the replicates, 1 is best
    rank_low: float = np.nan
    rank_high: float = np.nan
    error: float = np.nan  # over seeds; NaN for a single one
    best: int = 0  # rank that the resolved differences leave; 0 without a value or a direction
    worst: int = 0
    values: tuple[float, ...] = ()  # of its seeds


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

    def pair(self, a: str, b: str) -> RankedPair:
        """Return the difference a - b, whichever way round it was computed."""
        for one in self.pairs:
            if (one.a, one.b) == (a, b):
                return one
            if (one.a, one.b) == (b, a):
                return RankedPair(a, b, -one.difference, -one.high, -one.low, one.p, one.p_holm)
        raise KeyError((a, b))

    def better(self) -> set[tuple[str, str]]:
        return {
            (one.a, one.b) if (one.difference > 0) == (self.direction == "higher") else (one.b, one.a)
            for one in self.pairs
            if one.p_holm < 1 - LEVEL and self.direction
        }

    def order(self) -> list[str]:
        sign = -1 if self.direction == "higher" else 1
        values = {name: sign * model.value for name, model in self.models.items()}
        return sorted(values, key=lambda name: values[name] if math.isfinite(values[name]) else math.inf)


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

    _schema = "retinabench.leaderboard/1"

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
            {"set": SET_LABELS[name], "score": SCORES[key].label, "model": model}
            | {field: value for field, value in vars(ranked).items() if field != "values"}
            for name, one in self.sets.items()
            for key, ranking in one.scores.items()
            for model, ranked in ranking.models.items()
        ]

    def plot(self, axes: Axes | None = None, score: str | None = None, set: str | None = None) -> Axes:
        """Draw the models by one score (None: the first, on the first set), the best at the top, with their intervals."""
        name = next(iter(self.sets)) if set is None else set
        key = next(iter(self.sets[name].scores)) if score is None else score
        ranking = self.sets[name][key]
        best = [(model, ranking.models[model]) for model in ranking.order()]
        rows = [IntervalRow(model, one.value, one.low, one.high) for model, one in best]
        return draw_intervals(rows, axes, label=f"{SCORES[key].heading}, {SET_LABELS[name].lower()}")


def rank(
    models: Mapping[str, Model],
    bootstrap: int = 1000,
    seed: int = 0,
    *,
    scores: Wanted = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    level: float = 0.95,
) -> Ranking:
    """Rank models on the same images: values, intervals, how often each is first, and all pairs.

    The patients of a replicate are the same for all models; seeds are paired where two models have the same. Holm's correction
    runs over the pairs of one score on one set, see `docs/comparison.md`.

    Args:
        models: Name -> predictions, or a list with those of its seeds; two models or more.
        bootstrap: Number of replicates; 0 for values without intervals and ranks.
        seed: Seed of the bootstrap.
        scores: Names of scores, or set -> names; None for all of `score`.
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
    found, notes = rank_methods(models, bootstrap, seed, scores=scores, sets=sets, uncertainty=uncertainty, level=level)
    return Ranking(tuple(models), bootstrap, seed, level, found, notes)


def rank_methods(
    models: Mapping[str, Model],
    bootstrap: int,
    seed: int,
    *,
    scores: Wanted = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    level: float = LEVEL,
    seeds: Mapping[str, Subsets] | None = None,
    unranked: Sequence[str] = (),
    advance: Callable[[int], None] | None = None,
) -> tuple[dict[str, SetRanking], tuple[str, ...]]:
    """Return what `rank` holds, by set, and its notes. `seeds`: behind each file, where the files do not state them; `unranked` models have values only."""
    check_level(level)  # here, since without replicates no interval asks
    of = {name: [one] if isinstance(one, Predictions) else list(one) for name, one in models.items()}
    files = [one for name in of for one in of[name]]
    names = [name if len(own) == 1 else f"{name}, seed {k}" for name, own in of.items() for k in range(len(own))]
    aligned = align(files)
    subsets = [(seeds or {}).get(name) or seeds_of(name, of[name]) for name in of]
    stops = np.cumsum([len(own) for own in of.values()]).tolist()
    rows = [range(stop - len(own), stop) for own, stop in zip(of.values(), stops, strict=True)]
    found = {}
    for one in paired_sets(
        aligned, scores=scores, sets=sets, uncertainty=uncertainty, bootstrap=bootstrap, seed=seed, advance=advance
    ):
        ranked = {
            spec.name: _ranked(list(of), Methods(one, k, rows, subsets), level, seed, unranked)
            for k, spec in enumerate(one.scores)
        }
        found[one.name] = SetRanking(one.images, one.patients, one.positives, ranked)
    return found, notes_on(aligned, names, uncertainty)


def _ranked(names: Sequence[str], methods: Methods, level: float, seed: int, unranked: Sequence[str]) -> ScoreRanking:
    spec, sides = methods.spec, methods.sides
    of_pairs = list(combinations([m for m, name in enumerate(names) if name not in unranked], 2))
    tests = [methods.test(i, j, level) for i, j in of_pairs]
    pairs = tuple(
        RankedPair(names[i], names[j], *test[:4], p)
        for (i, j), test, p in zip(of_pairs, tests, holm([test.p for test in tests]).tolist(), strict=True)
    )
    models = {}
    for m, (name, side) in enumerate(zip(names, sides, strict=True)):
        low, high, _ = methods.ends(m, level)
        error = math.sqrt(side.over_seeds[0]) if side.effects else math.nan
        models[name] = RankedModel(side.value, low, high, error=error, values=tuple(side.values.tolist()))
    ranking = ScoreRanking(spec.direction, models, pairs)
    known = [m for m, side in enumerate(sides) if math.isfinite(side.value) and names[m] not in unranked]
    order = {names[m]: k for k, m in enumerate(known)}
    better = np.zeros((len(known), len(known)), bool)
    for a, b in ranking.better():
        better[order[a], order[b]] = True
    left = places(better) if spec.sign else [(0, 0)] * len(known)
    draws = [_with_shift(sides[m], names[m], seed) for m in known]
    of_ranks = _replicated(np.stack(draws, axis=1) if draws else np.empty((0, 0)), spec.sign > 0, level)
    for k, m in enumerate(known):
        first, mean, low, high = (float(column[k]) for column in of_ranks)
        best, worst = left[k]
        models[names[m]] = replace(
            models[names[m]], first=first, rank=mean, rank_low=low, rank_high=high, best=best, worst=worst
        )
    return ranking


def _replicated(draws: Floats, higher: bool, level: float) -> list[Floats]:
    """Share of the replicates (R, M) in which each of M models is first, its mean rank, and the ends of its interval."""
    of_replicates = ranks(draws, higher)
    defined = of_replicates[np.isfinite(of_replicates).all(axis=1)]
    if not len(defined):
        return [np.full(draws.shape[1], np.nan)] * 4
    best = defined == defined.min(axis=1, keepdims=True)
    first = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    return [first, defined.mean(axis=0), *percentile_interval(of_replicates, level, points=True)]


def _with_shift(side: Side, name: str, seed: int) -> Floats:
    """Return the replicates (R,) of a mean, which also vary with its seeds: Student's t of their effects, shared by equal seeds."""
    if not len(side.draws) or len(side.effects) < 2:
        return side.draws
    effects = np.array(list(side.effects.values()))
    generator = numpy_generator(seed, "seeds drawn again", *map(str, side.effects))
    weights = generator.standard_normal((len(side.draws), len(effects)))
    weights /= np.sqrt(generator.chisquare(len(effects) - 1, len(side.draws)) / (len(effects) - 1))[:, None]
    return np.asarray(side.draws + weights @ effects)

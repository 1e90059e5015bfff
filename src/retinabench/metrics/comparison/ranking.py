"""Several models on the same images: values, how often each is first, its rank, and all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import Document, IntervalRow, JsonObject, Row, Tabular, draw_intervals
from retinabench.metrics.comparison.differences import paired_difference
from retinabench.metrics.comparison.paired import OnSet, PairedSet, align, notes_on, paired_sets
from retinabench.metrics.inference.bootstrap import check_level, percentile_interval
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.p_values import holm
from retinabench.metrics.registry import SCORES
from retinabench.metrics.set_scores import interval_of
from retinabench.metrics.sets import SET_LABELS
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RankedModel(Interval):
    """The value of a model with its interval, and its rank.

    Args:
        value: The score.
        low: Lower end of its interval.
        high: Upper end of its interval.
        first: Share of the replicates in which the model is the best, ties shared.
        rank: Mean rank over the replicates, 1 is best.
        rank_low: Lower end of the interval of the rank.
        rank_high: Upper end of the interval of the rank.
    """

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

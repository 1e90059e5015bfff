"""Several models on the same images: values, how often each is first, its rank, and all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.inference.bootstrap import percentile_interval
from retinabench.metrics.inference.compare import counts, difference_p_value, holm, notes_on, number_or_none
from retinabench.metrics.inference.paired import align, paired_sets
from retinabench.metrics.registry import ScoreSpec
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Leaderboard:
    """Several models ranked on the same images; `to_dict` for JSON.

    sets: {set: {images, patients, positives, scores: {name: {direction, models: {model: {value, low, high,
    first, rank, rank_low, rank_high}}, pairs: [{a, b, difference, low, high, p, p_holm}]}}}}.
    `first` is the share of replicates in which the model is the best (ties shared), `rank` its mean rank over them.
    """

    models: tuple[str, ...]
    bootstrap: int
    seed: int
    level: float
    sets: Mapping[str, Any]
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries, lists, text, numbers and None."""
        return {
            "schema": "retinabench.leaderboard/1",
            **vars(self),
            "models": list(self.models),
            "notes": list(self.notes),
        }


def rank(
    models: Mapping[str, Predictions],
    bootstrap: int = 1000,
    seed: int = 0,
    *,
    scores: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    level: float = 0.95,
) -> Leaderboard:
    """Rank models on the same images: values, intervals, how often each is first, and all pairs with Holm's correction.

    models: {name: predictions}, two or more. The patients of a replicate are the same for all models. Holm's correction
    runs over the pairs of one score on one set.
    """
    if len(models) < 2:
        raise InputError(f"{len(models)} model to rank", hint="Name two or more.")
    names = tuple(models)
    aligned = align(list(models.values()))
    paired = paired_sets(
        aligned,
        scores=scores,
        sets=sets,
        uncertainty=uncertainty,
        bootstrap=bootstrap,
        seed=seed,
    )
    table = {
        one.name: {
            **counts(one),
            "scores": {
                score.name: _ranked(names, score, one.point[:, k], one.draws[:, :, k], level)
                for k, score in enumerate(one.scores)
            },
        }
        for one in paired
    }
    return Leaderboard(names, bootstrap, seed, level, table, notes_on(aligned, names, uncertainty))


def ranks(draws: ArrayLike, higher_is_better: bool) -> Floats:
    """Ranks (R, M) of M models in each draw, 1 = best, ties shared by their mean; NaN rows where any is undefined."""
    values = np.asarray(draws, np.float64)
    values = values if higher_is_better else -values
    better = (values[:, None, :] > values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    out = better + (equal + 1) / 2.0
    out[~np.isfinite(values).all(axis=1)] = np.nan
    return np.asarray(out)


def _ranked(
    names: tuple[str, ...], score: ScoreSpec, point: Floats, draws: Floats, level: float
) -> dict[str, Any]:
    """draws: (R, M), point: (M,)."""
    if not len(draws):
        draws = np.full((1, len(names)), np.nan)
    places = ranks(draws, score.sign > 0)
    low, high = percentile_interval(draws, level)
    rank_low, rank_high = percentile_interval(places, level)
    defined = places[np.isfinite(places).all(axis=1)]
    best = defined == defined.min(axis=1, keepdims=True) if len(defined) else defined
    first = (
        (best / best.sum(axis=1, keepdims=True)).mean(axis=0) if len(defined) else np.full(len(names), np.nan)
    )
    mean = defined.mean(axis=0) if len(defined) else first
    models = {
        name: {
            "value": number_or_none(point[k]),
            "low": number_or_none(low[k]),
            "high": number_or_none(high[k]),
            "first": number_or_none(first[k]),
            "rank": number_or_none(mean[k]),
            "rank_low": number_or_none(rank_low[k]),
            "rank_high": number_or_none(rank_high[k]),
        }
        for k, name in enumerate(names)
    }
    pairs = list(combinations(range(len(names)), 2))
    differences = [draws[:, i] - draws[:, j] for i, j in pairs]
    p = np.array([difference_p_value(values) for values in differences])
    listed = []
    for (i, j), values, raw, adjusted in zip(pairs, differences, p, holm(p), strict=True):
        ends = percentile_interval(values, level)
        listed.append(
            {
                "a": names[i],
                "b": names[j],
                "difference": number_or_none(point[i] - point[j]),
                "low": number_or_none(float(ends[0])),
                "high": number_or_none(float(ends[1])),
                "p": number_or_none(raw),
                "p_holm": number_or_none(adjusted),
            }
        )
    return {"direction": score.direction, "models": models, "pairs": listed}

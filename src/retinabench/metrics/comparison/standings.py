"""Methods with several seeds ranked on the same images: a rank is only as exact as the differences are resolved.

A difference of two methods has two sources of error: the patients, who are resampled together for all methods, and the seeds of
the training. Both variances are added. Where two methods have the same seeds their values are paired by seed, because a method
may be built on the networks of another one. With v = v_patients + v_seeds the degrees of freedom are those of Welch and
Satterthwaite, v² / (v_patients² / d_patients + v_seeds² / d_seeds), and p-values of all pairs of a score on a set are corrected
by Holm. A method without a second seed has no variance over seeds; deterministic methods need none.

The rank of a method is one more than the number of methods that are better than it, resolved; its worst rank leaves below it
only the methods that are worse, resolved. Methods that cannot be told apart share their ranks.

References:
    Satterthwaite, An approximate distribution of estimates of variance components, Biometrics Bull. 2:110 (1946).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import JsonObject, json_content, vars_of
from retinabench.metrics.comparison.paired import PairedSet, align, paired_sets
from retinabench.metrics.comparison.ranking import RankedPair
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.interval_methods import difference_method, patients_of
from retinabench.metrics.inference.over_seeds import aggregate
from retinabench.metrics.inference.p_values import holm
from retinabench.metrics.inference.scaled import replicate_error, scaled_interval, t_test
from retinabench.metrics.score_spec import ScoreSpec
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True)
class Standing(Interval):
    """A score of a method: the mean over its seeds with the interval over patients, and the ranks that are resolved.

    Args:
        value: The mean over the seeds.
        low: Lower end of its interval over patients.
        high: Upper end of its interval over patients.
        error: Its standard error over seeds, NaN for a single one.
        rank: One more than the number of methods that are better, resolved; 0 where the score is undefined.
        worst: The number of methods that are ranked, less those that are worse, resolved.
    """

    error: float = math.nan
    rank: int = 0
    worst: int = 0

    def to_dict(self) -> JsonObject:
        """Return the numbers for JSON, None where undefined."""
        return {**super().to_dict(), "rank": self.rank or None, "worst": self.worst or None}


@dataclass(frozen=True)
class ScoreStandings:
    """The methods by one score on one set, the best value first, and all their pairs.

    Args:
        spec: The score.
        methods: Name -> standing, sorted by value; those without a value last.
        pairs: The differences; `p_holm` is corrected over all of them.
    """

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
    """Rank methods on the same images, each with the predictions of one or more seeds.

    Args:
        methods: Name -> predictions of its seeds, all of the same images with the same truth.
        scores: Names of scores.
        sets: Names of sets; None for all.
        bootstrap: Number of replicates over patients; 0 for values without intervals, where nothing is resolved.
        seed: Seed of the bootstrap.

    Returns:
        Name of the set -> its standings.

    Raises:
        InputError: The predictions are not of the same images, or a score or set is not known.
    """
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
        _difference(one, k, (a, b), rows, values, draws, paired=bool(seeds[a]) and seeds[a] == seeds[b])
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


def _difference(
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

"""The numbers of a study: means over seeds and over ensembles, their standard errors, and ranks with intervals.

The interval of a rank covers two sources of variation: every replicate of the bootstrap draws patients again, the same for
all entries, and the seeds of every method (`metrics.inference.over_seeds`). For ensembles that hold all seeds of a method there
are no other seeds to draw: their intervals cover the patients alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.progress import Advance
from retinabench.core.random_streams import derive, numpy_generator
from retinabench.core.subprocesses import in_processes
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.prediction_files import ResultRow
from retinabench.metrics.bootstrap import percentile_interval
from retinabench.metrics.comparison import ranks
from retinabench.metrics.over_seeds import aggregate, mean_over_subsets, resampled_weights, weighted_mean
from retinabench.metrics.paired import align, paired_sets
from retinabench.metrics.registry import SCORES
from retinabench.metrics.scoring import score
from retinabench.predictions.io import read_predictions

Floats = NDArray[np.float64]
Key = tuple[str, str]  # set and score
DOMAIN = ("accuracy", "auroc", "nll", "ece_top_label", "referral_accuracy_area", "referral_auroc_area")
MAIN: dict[str, tuple[str, ...]] = {
    "in_domain": DOMAIN,
    "shifted": DOMAIN,
    "joint": ("ood_auroc",),
    "balanced": ("referral_accuracy_area",),
}
LEVEL = 0.95
WORTH_PROCESSES = 20_000_000  # images x replicates: about half a minute of one core


@dataclass(frozen=True)
class MeanScore:
    """The mean of a score over the runs of an entry; NaN where a number is undefined.

    Attributes:
        mean: Mean over runs.
        error: Its standard error over seeds.
        runs: Number of runs.
        rank: Rank of the mean among the entries.
        rank_low: Lower end of the 95 % interval of the rank.
        rank_high: Upper end of the 95 % interval of the rank.
        first: Share of the replicates in which the entry is first.
    """

    mean: float = np.nan
    error: float = np.nan
    runs: int = 0
    rank: float = np.nan
    rank_low: float = np.nan
    rank_high: float = np.nan
    first: float = np.nan

    @property
    def ranked(self) -> bool:
        """Whether the entry has a rank."""
        return bool(np.isfinite(self.rank))

    def to_dict(self) -> dict[str, float | None]:
        """Return the numbers for JSON: None where undefined, ranks only where there are any."""
        record: dict[str, float | None] = {
            "mean": _number(self.mean), "error": _number(self.error), "runs": self.runs,
        }  # fmt: skip
        if self.ranked:
            record["rank"] = self.rank
        if np.isfinite(self.first):
            record |= {name: _number(getattr(self, name)) for name in ("rank_low", "rank_high", "first")}
        return record


EntryScores = dict[Key, MeanScore]


def score_entries(
    study: Study, entries: Sequence[ResultRow], advance: Advance = lambda steps: None
) -> list[EntryScores]:
    """Score the entries of one task and criterion.

    An entry with a seed that diverged, or without any file, has no mean and no rank.
    """
    files = list(dict.fromkeys(file for entry in entries for file in entry.files))
    if not files:
        return [{} for _ in entries]
    replicates: dict[Key, Floats] = {}
    if study.rules == "published":
        values = _published(files, study.seed, advance)
    else:
        values, replicates = _corrected(files, study.bootstrap, study.seed, advance)
    index = {file: k for k, file in enumerate(files)}
    columns = [[index[file] for file in entry.files] for entry in entries]
    table: list[EntryScores] = [{} for _ in entries]
    for key, of_files in values.items():
        means = [
            _mean(study, entry, of_files[of_entry]) for entry, of_entry in zip(entries, columns, strict=True)
        ]
        ranked = _with_ranks(study, entries, columns, replicates.get(key), means, key)
        for row, own in zip(table, ranked, strict=True):
            row[key] = own
    return table


def _corrected(
    files: Sequence[Path], bootstrap: int, seed: int, advance: Advance
) -> tuple[dict[Key, Floats], dict[Key, Floats]]:
    """Return by score the values (M,) of M files and their replicates (R, M) on the same patients.

    Every file is scored on its own: the same seed draws the same patients.
    """
    jobs = [(file, files[0], bootstrap, derive(seed, "benchmark")) for file in files]
    images = len(read_predictions(files[0]))
    pays = len(files) * bootstrap * images > WORTH_PROCESSES
    point: dict[Key, Floats] = {}
    resampled: dict[Key, Floats] = {}
    for k, found in in_processes(_one_file, jobs, min(os.cpu_count() or 1, len(files)) if pays else 1):
        for key, (value, replicates) in found.items():
            point.setdefault(key, np.full(len(files), np.nan))[k] = value
            if bootstrap:
                resampled.setdefault(key, np.full((bootstrap, len(files)), np.nan))[:, k] = replicates
        advance(1)
    return point, resampled


def _one_file(job: tuple[Path, Path, int, int]) -> dict[Key, tuple[float, Floats]]:
    """Return value and replicates (R,) of every score of a file, its images in the order of the first file."""
    file, first, bootstrap, seed = job
    model = align([read_predictions(first), read_predictions(file)])[1:]
    found = {}
    for name, kinds in MAIN.items():
        for one in paired_sets(model, scores=kinds, sets=(name,), bootstrap=bootstrap, seed=seed):
            for k, kind in enumerate(one.scores):
                found[name, kind.name] = float(one.point[0, k]), one.draws[:, 0, k]
    return found


def _published(files: Sequence[Path], seed: int, advance: Advance) -> dict[Key, Floats]:
    """Return by score the values (M,) by the released code, which has no intervals."""
    scored = []
    for file in files:
        scored.append(score(read_predictions(file), "published", 0, seed).sets)
        advance(1)
    found = {}
    for name, kinds in MAIN.items():
        for kind in kinds:
            scores = [sets[name].scores if name in sets else {} for sets in scored]
            values = np.array([each[kind].value if kind in each else np.nan for each in scores])
            if np.isfinite(values).any():
                found[name, kind] = values
    return found


def _mean(study: Study, entry: ResultRow, values: Floats) -> MeanScore:
    """Return mean and standard error of an entry; undefined where a seed diverged, which is a property of the method."""
    if not len(values):
        return MeanScore()
    groups = [
        [k for k, one in enumerate(entry.subsets) if set(one) <= set(seeds)]
        for seeds in study.seeds_by_repeat
    ]
    if entry.members > 1 and len(groups) > 1 and all(groups):  # of other divisions: independent of each other
        found = aggregate([float(values[group].mean()) for group in groups])
    else:
        seeds = len(study.run_seeds) - len(entry.lacking)
        found = mean_over_subsets(values.tolist(), entry.subsets, seeds, study.rules)
    if entry.diverged:
        return MeanScore(runs=len(values))
    return MeanScore(found.mean, found.error, len(values))


def _with_ranks(
    study: Study,
    entries: Sequence[ResultRow],
    columns: Sequence[Sequence[int]],
    replicates: Floats | None,
    scores: Sequence[MeanScore],
    key: Key,
) -> list[MeanScore]:
    """Add the rank of the means, and its interval and `first` where there are replicates, to the scores with a mean."""
    known = [k for k, score in enumerate(scores) if np.isfinite(score.mean)]
    out = list(scores)
    if not known:
        return out
    higher = SCORES[key[1]].sign > 0
    places = ranks(np.array([[scores[k].mean for k in known]]), higher)[0]
    for k, place in zip(known, places, strict=True):
        out[k] = replace(out[k], rank=float(place))
    if replicates is None:
        return out
    resampled = []
    for k in known:
        generator = numpy_generator(study.seed, "seeds drawn again", entries[k].method, *key)
        weights = resampled_weights(entries[k].subsets, len(replicates), generator)
        resampled.append(weighted_mean(replicates[:, columns[k]], weights))
    table = ranks(np.stack(resampled, axis=1), higher)
    defined = table[np.isfinite(table).all(axis=1)]
    if not len(defined):
        return out
    low, high = percentile_interval(table, LEVEL, points=True)
    best = defined == defined.min(axis=1, keepdims=True)
    first = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    for at, k in enumerate(known):
        out[k] = replace(out[k], rank_low=float(low[at]), rank_high=float(high[at]), first=float(first[at]))
    return out


def in_order(rows: Sequence[EntryScores]) -> tuple[Key | None, list[int]]:
    """Order the entries by the balanced area of accuracy over referral, else by the in-domain one."""
    for key in (("balanced", "referral_accuracy_area"), ("in_domain", "referral_accuracy_area")):
        places = [row.get(key, MeanScore()) for row in rows]
        if any(place.ranked for place in places):
            order = sorted(
                range(len(rows)),
                key=lambda k: (not places[k].ranked, places[k].rank if places[k].ranked else 0.0, k),
            )
            return key, order
    return None, list(range(len(rows)))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

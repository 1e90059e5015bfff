"""The numbers of a study: means over seeds and over ensembles, their errors, and ranks with intervals.

A rank's interval covers two sources of chance at once: every replicate draws patients again, the same for all entries,
and draws the seeds of every method again (`spread.py`). Ensembles that hold all seeds of a method have no other seeds to
be drawn: their interval is of patients alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.progress import Advance
from retinabench.core.random_streams import derive, numpy_generator
from retinabench.core.subprocesses import in_processes
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.prediction_files import Entry
from retinabench.experiments.study.standard_errors import over_seeds, resampled_weights, weighted_mean
from retinabench.metrics.inference.bootstrap import percentile_interval
from retinabench.metrics.inference.paired import align, paired_sets
from retinabench.metrics.inference.ranking import ranks
from retinabench.metrics.registry import SCORES
from retinabench.metrics.score import score
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


def score_entries(
    study: Study, entries: Sequence[Entry], advance: Advance = lambda steps: None
) -> list[dict[str, Any]]:
    """Score the entries of one task and criterion: per entry {set: {score: {mean, error, runs, rank …}}}.

    An entry with a seed that diverged, or without any file, has no mean and no rank: it stands behind all others.
    Raises `InputError` where files hold other images than the first.
    """
    files = list(dict.fromkeys(file for entry in entries for file in entry.files))
    if not files:
        return [{} for _ in entries]
    draws: dict[Key, Floats] = {}
    if study.rules == "published":
        point = _published(files, study.seed, advance)
    else:
        point, draws = _corrected(files, study.bootstrap, study.seed, advance)
    place = {file: k for k, file in enumerate(files)}
    columns = [[place[file] for file in entry.files] for entry in entries]
    table: list[dict[str, Any]] = [{} for _ in entries]
    for (name, kind), values in point.items():
        for entry, columns_of, row in zip(entries, columns, table, strict=True):
            row.setdefault(name, {})[kind] = _mean(study, entry, values[columns_of])
        replicates = draws.get((name, kind))
        _rank(study, entries, columns, values, replicates, [row[name][kind] for row in table], (name, kind))
    return table


def _corrected(
    files: Sequence[Path], bootstrap: int, seed: int, advance: Advance
) -> tuple[dict[Key, Floats], dict[Key, Floats]]:
    """Values (M,) of M files, and draws (R, M) on the same patients.

    Every file is scored by itself: the same seed draws the same patients, and files are many.
    """
    jobs = [(file, files[0], bootstrap, derive(seed, "benchmark")) for file in files]
    images = len(read_predictions(files[0]))
    pays = len(files) * bootstrap * images > WORTH_PROCESSES
    point: dict[Key, Floats] = {}
    draws: dict[Key, Floats] = {}
    for k, found in in_processes(_one_file, jobs, min(os.cpu_count() or 1, len(files)) if pays else 1):
        for key, (value, replicates) in found.items():
            point.setdefault(key, np.full(len(files), np.nan))[k] = value
            if bootstrap:
                draws.setdefault(key, np.full((bootstrap, len(files)), np.nan))[:, k] = replicates
        advance(1)
    return point, draws


def _one_file(job: tuple[Path, Path, int, int]) -> dict[Key, tuple[float, Floats]]:
    """Value and draws (R,) of every score of a file, its images in the order of the first file."""
    file, first, bootstrap, seed = job
    model = align([read_predictions(first), read_predictions(file)])[1:]
    found = {}
    for name, kinds in MAIN.items():
        for one in paired_sets(model, scores=kinds, sets=(name,), bootstrap=bootstrap, seed=seed):
            for k, kind in enumerate(one.scores):
                found[name, kind.name] = float(one.point[0, k]), one.draws[:, 0, k]
    return found


def _published(files: Sequence[Path], seed: int, advance: Advance) -> dict[Key, Floats]:
    """Values (M,) by the released code, which has no intervals."""
    scored = []
    for file in files:
        scored.append(score(read_predictions(file), "published", 0, seed).sets)
        advance(1)
    found = {}
    for name, kinds in MAIN.items():
        for kind in kinds:
            values = [sets.get(name, {}).get("scores", {}).get(kind, {}).get("value") for sets in scored]
            if any(value is not None for value in values):
                found[name, kind] = np.array([np.nan if v is None else v for v in values], np.float64)
    return found


def _mean(study: Study, entry: Entry, values: Floats) -> dict[str, Any]:
    """Mean and standard error of an entry; none where a seed diverged: that is a fact about the method."""
    if not len(values):
        return {"mean": None, "error": None, "runs": 0}
    found = over_seeds(values.tolist(), entry.subsets, study.seeds - len(entry.lacking), study.rules)
    mean = None if entry.diverged else found.mean
    return {
        "mean": _number(mean),
        "error": _number(found.error if mean is not None else None),
        "runs": len(values),
    }


def _rank(
    study: Study,
    entries: Sequence[Entry],
    columns: Sequence[Sequence[int]],
    values: Floats,
    replicates: Floats | None,
    rows: Sequence[dict[str, Any]],
    key: Key,
) -> None:
    """Add `rank` (of the means), and its interval and `first` where there are replicates, to the rows that have a mean."""
    ranked = [k for k, row in enumerate(rows) if row["mean"] is not None]
    higher = SCORES[key[1]].sign > 0
    if not ranked:
        return
    places = ranks(np.array([[rows[k]["mean"] for k in ranked]]), higher)[0]
    for k, place in zip(ranked, places, strict=True):
        rows[k]["rank"] = float(place)
    if replicates is None:
        return
    drawn = []
    for k in ranked:
        generator = numpy_generator(study.seed, "seeds drawn again", entries[k].method, *key)
        weights = resampled_weights(entries[k].subsets, len(replicates), generator)
        drawn.append(weighted_mean(replicates[:, columns[k]], weights))
    table = ranks(np.stack(drawn, axis=1), higher)
    defined = table[np.isfinite(table).all(axis=1)]
    if not len(defined):
        return
    low, high = percentile_interval(table, LEVEL)
    best = defined == defined.min(axis=1, keepdims=True)
    first = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    for at, k in enumerate(ranked):
        rows[k] |= {
            "rank_low": _number(low[at]),
            "rank_high": _number(high[at]),
            "first": _number(first[at]),
        }


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def in_order(rows: Sequence[Mapping[str, Any]]) -> tuple[Key | None, list[int]]:
    """Return what orders the entries (the balanced area where it is defined), and their order, the best first."""
    for key in (("balanced", "referral_accuracy_area"), ("in_domain", "referral_accuracy_area")):
        places = [row.get(key[0], {}).get(key[1], {}).get("rank") for row in rows]
        if any(place is not None for place in places):
            return key, sorted(
                range(len(rows)),
                key=lambda k: (places[k] is None, places[k] if places[k] is not None else 0.0, k),
            )
    return None, list(range(len(rows)))

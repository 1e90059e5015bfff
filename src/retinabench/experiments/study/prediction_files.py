"""The prediction files of a study: every choice's seeds, and their ensembles, labelled with what they were tuned on.

    predictions/TASK/CRITERION/METHOD/seed-0.parquet
    predictions/TASK/CRITERION/METHOD/ensemble-0-1-2.parquet

They are all that scores, tables and pages read; any of them can be handed on.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet

from retinabench.core.errors import state
from retinabench.core.files import remove
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.study import Chosen
from retinabench.methods.composed import Ensemble
from retinabench.predictions.columns import read_metadata
from retinabench.predictions.io import METADATA_KEY, read_predictions, write_predictions
from retinabench.predictions.table import Predictions

FOLDER = "predictions"
PUBLISHED_DRAWS = 6
MOST_SUBSETS = 20


@dataclass(frozen=True)
class ResultRow:
    """A row of the results: the single runs of a choice, or their ensembles."""

    task: str
    criterion: str
    method: str
    name: str
    members: int
    subsets: tuple[tuple[int, ...], ...]
    files: tuple[Path, ...]
    diverged: tuple[int, ...]
    lacking: tuple[int, ...]
    why: str = ""

    @property
    def complete(self) -> bool:
        """Whether every seed has its predictions."""
        return not (self.diverged or self.lacking or self.why)


def label_predictions(study: Study, out: Path, chosen: Sequence[Chosen]) -> list[ResultRow]:
    """Write the files that are missing or stale, delete those that belong to no choice, and return the entries."""
    names = method_titles(chosen)
    entries = [entry for one in chosen for entry in _entries(study, out, one, names[one.cell.task, one.cell.method])]
    current = {file for entry in entries for file in entry.files}
    for file in (out / FOLDER).rglob("*.parquet"):
        if file not in current and not file.name.startswith("."):
            remove(file)
    return entries


def method_titles(chosen: Sequence[Chosen]) -> dict[tuple[str, str], str]:
    """What readers call a method of a task: its title, with its label where two would be called the same."""
    titles = {(choice.cell.task, choice.cell.method): choice.cell.base.method.describe() for choice in chosen}
    counts = Counter((task, name) for (task, _), name in titles.items())
    return {key: f"{name} ({key[1]})" if counts[key[0], name] > 1 else name for key, name in titles.items()}


def _entries(study: Study, out: Path, choice: Chosen, name: str) -> list[ResultRow]:
    folder = out / FOLDER / choice.cell.task / choice.criterion / choice.cell.method
    states = {seed: outcome.state for seed, outcome in choice.outcomes.items()}
    diverged = tuple(seed for seed, state in states.items() if state == "diverged")
    lacking = tuple(seed for seed, state in states.items() if state not in ("done", "diverged"))
    # The label of a study's task tells apart data sets under one kind of task.
    about = {"dataset": choice.cell.task, **({"criterion": choice.criterion} if study.criteria else {})}
    cache: dict[int, Predictions] = {}

    def member(seed: int) -> Predictions:
        if seed not in cache:
            read = read_predictions(choice.folders[seed] / "predictions.parquet")
            cache[seed] = replace(read, metadata={**read.metadata, "title": name, **about})
        return cache[seed]

    def written(sets: Sequence[tuple[int, ...]], word: str) -> tuple[Path, ...]:
        files = []
        for number, seeds in enumerate(sets):
            file = folder / f"{word}-{'-'.join(map(str, seeds))}.parquet"
            # What a labelled file depends on: the runs that it holds, and what they are called.
            parts = [name, choice.cell.task, choice.criterion, *(choice.folders[seed].name for seed in seeds)]
            stamp = hashlib.sha256("/".join(parts).encode()).hexdigest()[:12]
            if file not in files and not _is_current(file, stamp):
                found = member(seeds[0])
                if len(seeds) > 1:
                    found = pool([member(seed) for seed in seeds], seeds, number)
                write_predictions(replace(found, metadata={**found.metadata, "stamp": stamp}), file, checked=True)
            files.append(file)
        return tuple(files)

    def entry(what: str, members: int, sets: Sequence[tuple[int, ...]], word: str) -> ResultRow:
        made = [one for one in sets if all(states.get(seed) == "done" for seed in one)]
        return ResultRow(
            choice.cell.task, choice.criterion, choice.cell.method, what, members, tuple(made), written(made, word),
            diverged, lacking, choice.why,
        )  # fmt: skip

    single = entry(name, 1, [(seed,) for seed in study.run_seeds], "seed")
    pooled = entry(f"ensemble of {study.ensemble} {name}", study.ensemble, ensembles(study), "ensemble")
    return [single, pooled] if study.ensemble else [single]


def _is_current(file: Path, stamp: str) -> bool:
    if not file.is_file() or state(file) == "damaged":
        return False
    schema = pyarrow.parquet.read_schema(file).metadata or {}
    return bool(read_metadata(file, schema.get(METADATA_KEY, b"{}")).get("stamp") == stamp)


def ensembles(study: Study) -> list[tuple[int, ...]]:
    """Return which seeds form the study's ensembles (`subsets`); members of one have the same folds."""
    groups = study.seeds_by_repeat
    return [one for seeds in groups for one in subsets(seeds, study.ensemble, study.rules)]


def subsets(seeds: Sequence[int], members: int, rules: str) -> list[tuple[int, ...]]:
    """Return which seeds form the ensembles of `members`.

    corrected: every subset, C(n, K) of them: 20 of 3 out of 6. Where there are more than 20, the seeds are cut into as many
    ensembles as they give, 3 of 3 out of 9: these share no member. published: six random draws without replacement, as the
    Retina Benchmark's evaluation makes them (`RandomState(0).choice`); a subset that is drawn again counts again, except
    where there is only one.
    """
    if members == 0:
        return []
    every = list(combinations(seeds, members))
    if rules == "corrected" and len(every) > MOST_SUBSETS:
        return [tuple(seeds[k : k + members]) for k in range(0, len(seeds) - members + 1, members)]
    if rules == "corrected" or len(every) == 1:
        return every
    draw = np.random.RandomState(0)  # the released code's generator
    drawn = [draw.choice(len(seeds), members, replace=False) for _ in range(PUBLISHED_DRAWS)]
    return [tuple(sorted(seeds[k] for k in some)) for some in drawn]


def pool(members: Sequence[Predictions], seeds: Sequence[int], number: int) -> Predictions:
    """Pool runs that differ by their seed as ensemble `number` of several, which stands for its seed."""
    pooled = Ensemble.combine(members)
    single = str(members[0].metadata.get("title") or members[0].metadata.get("method", "model"))
    hashes = "/".join(str(member.metadata.get("config_hash")) for member in members)
    title = f"ensemble of {len(members)} {single}"
    about = {
        **pooled.metadata, "method": "ensemble", "title": title, "member_seeds": list(seeds), "seed": number,
        "run": f"{title}, seeds {', '.join(map(str, seeds))}",
        "config_hash": hashlib.sha256(hashes.encode()).hexdigest()[:12],
    }  # fmt: skip
    return replace(pooled, metadata=about)

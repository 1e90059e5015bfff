"""Predictions files read, told apart by task, tuning criterion, blur and method, and measured once each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.core.progress import Progress
from retinabench.core.subprocesses import in_processes
from retinabench.metrics.inference.bootstrap import check_seed
from retinabench.metrics.inference.over_seeds import aggregate
from retinabench.metrics.inference.paired import align
from retinabench.metrics.score import RULES
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.commands import find_files
from retinabench.reports.papers.labels import Origin, origin, read_labels
from retinabench.reports.papers.measure import Job, Measured, measure

Floats = NDArray[np.float64]
STANDARD_BLUR = 30  # of both papers' preprocessing: what is not said to be otherwise belongs there
SMALL = 400_000  # images in all files: fewer are measured before other processes have started


@dataclass
class Group:
    """The runs of one method: a row of a table, a line of a figure.

    base: the method of a single member; ensemble: whether members are pooled. runs: measured files, seed by seed; tests:
    their test images. members: the seeds that each run pools, where the files say so.
    """

    name: str
    base: str
    ensemble: bool
    blur: int | None
    runs: list[Measured] = field(default_factory=list)
    tests: list[Predictions] = field(default_factory=list)
    members: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def independent(self) -> int:
        """The number of independent trainings behind the runs: of runs, or of seeds where runs share members."""
        return len({seed for pooled in self.members for seed in pooled}) if self._shares else len(self.runs)

    @property
    def _shares(self) -> bool:
        pooled = [seed for seeds in self.members for seed in seeds]
        return len(self.members) == len(self.runs) and len(set(pooled)) < len(pooled)

    def error(self, values: Sequence[float]) -> float:
        """Standard error of the mean (ddof 1) of a value per run, NaN for a single run.

        Ensembles that share members are no independent runs: for them the jackknife over the members' seeds, the mean
        of the ensembles without one seed at a time (Arvesen, Jackknifing U-statistics, Ann. Math. Stat. 40:2076, 1969).
        """
        if self._shares:
            seeds = sorted({seed for pooled in self.members for seed in pooled})
            without = [
                [v for v, pooled in zip(values, self.members, strict=True) if seed not in pooled]
                for seed in seeds
            ]
            if all(without):
                means = np.array([np.mean(part) for part in without])
                n = len(seeds)
                return float(np.sqrt((n - 1) / n * np.sum((means - means.mean()) ** 2)))
        return aggregate(values).error


@dataclass(frozen=True)
class Study:
    """The methods of one task tuned on one criterion.

    groups: at the standard blur. variants: the methods that have several blur constants, at each of them.
    """

    task: str
    criterion: str
    groups: list[Group]
    variants: list[Group]


@dataclass(frozen=True)
class Collection:
    """All studies of the files, and how they were scored. notes: what a reader must know of the files."""

    studies: list[Study]
    rules: str
    bootstrap: int
    seed: int
    files: int
    notes: tuple[str, ...] = ()


def collect(
    files: Sequence[Path],
    labels: Path | None,
    rules: str,
    bootstrap: int,
    seed: int,
    workers: int | None,
    progress: Progress,
) -> Collection:
    """Read, align and measure all files; see `write_tables`."""
    if rules not in RULES:
        raise InputError(f"unknown rules '{rules}'", hint=nearest(rules, RULES))
    if bootstrap < 0:
        raise InputError(f"{bootstrap} bootstrap replicates", hint="Ask for 0 (no intervals) or more.")
    check_seed(seed)
    paths = find_files(files)
    if not paths:
        raise InputError("there is nothing to tabulate", hint="Give one predictions file or more.")
    told = read_labels(labels, paths)
    tests, origins, members = [], [], []
    for path in paths:
        predictions = read_predictions(path)
        origins.append(origin(predictions, told.get(path.resolve(), {})))
        seeds = predictions.metadata.get("member_seeds")
        members.append(tuple(seeds) if isinstance(seeds, list) else ())
        tests.append(_slim(predictions, exact=rules == "published"))
    _refuse_twins(origins, members, paths)
    tests = _aligned(tests, [one.task for one in origins])
    names = _names(origins)
    runs = [sum(_place(a) == _place(b) for b in origins) for a in origins]
    jobs = [
        Job(test, rules, bootstrap if alone == 1 and rules == "corrected" else 0, seed)
        for test, alone in zip(tests, runs, strict=True)
    ]
    groups: dict[tuple[str, str, str, str, int | None], Group] = {}
    for k, found in enumerate(_measured(jobs, workers, progress)):
        one = origins[k]
        group = groups.setdefault(_place(one), Group(names[k], one.base, one.ensemble, one.blur))
        group.runs.append(found)
        group.tests.append(tests[k])
        if members[k]:
            group.members.append(members[k])
    notes = tuple(dict.fromkeys(note for test in tests for note in test.notes))
    if any(test.patient_id is None for test in tests):
        notes += ("no patient_id: every image is its own cluster, errors and intervals may be too narrow",)
    return Collection(_studies(groups), rules, bootstrap, seed, len(paths), notes)


def _place(one: Origin) -> tuple[str, str, str, str, int | None]:
    """What runs of one method share."""
    return one.task, one.criterion, one.method, one.setting, one.blur


def _slim(predictions: Predictions, exact: bool) -> Predictions:
    """The test images with the mean probability and what orders their referral, without the samples."""
    test = predictions.select(split="test")
    if test is None:
        raise InputError("holds no image of the test split", file=predictions.source)
    values, _ = referral_uncertainty(test, exact=exact)
    return replace(test, probs=test.prob[:, None], uncertainty=values, metadata={})


def _refuse_twins(
    origins: Sequence[Origin], members: Sequence[tuple[int, ...]], paths: Sequence[Path]
) -> None:
    """A run that stands twice would make its method look more certain than it is."""
    seen: dict[object, Path] = {}
    for one, pooled, path in zip(origins, members, paths, strict=True):
        if one.seed is None:
            continue
        key = (_place(one), one.seed, pooled)
        if key in seen:
            raise InputError(
                f"is seed {one.seed} of {one.method}, as is {seen[key]}",
                file=path,
                hint="Name every run once, or tell the files apart with --labels.",
            )
        seen[key] = path


def _aligned(tests: list[Predictions], tasks: Sequence[str]) -> list[Predictions]:
    """The tests of every task in one order of rows; they share the columns that say the same."""
    out = list(tests)
    for task in dict.fromkeys(tasks):
        rows = [k for k, one in enumerate(tasks) if one == task]
        matched = align([tests[k] for k in rows])
        truth = {
            column: next((v for one in matched if (v := getattr(one, column)) is not None), None)
            for column in ("image_id", "label", "domain", "split", "patient_id", "grade")
        }
        for k, one in zip(rows, matched, strict=True):
            # Not `replace`: the columns have been checked, and checking them again takes longer than reading them.
            for column, values in truth.items():
                object.__setattr__(one, column, values)
            out[k] = one
    return out


def _names(origins: Sequence[Origin]) -> list[str]:
    """What readers call each file's method: with its setting, where others of its title have another."""
    names = []
    for one in origins:
        settings = {
            other.setting
            for other in origins
            if (other.task, other.criterion, other.method, other.blur)
            == (one.task, one.criterion, one.method, one.blur)
        }
        names.append(f"{one.method} ({one.setting})" if len(settings) > 1 and one.setting else one.method)
    return names


def _measured(jobs: Sequence[Job], workers: int | None, progress: Progress) -> list[Measured]:
    images = sum(len(job.test) * (1 + job.bootstrap / 50) for job in jobs)
    processes = workers or (1 if images < SMALL else os.cpu_count() or 1)
    found: list[Measured | None] = [None] * len(jobs)
    with progress.track("Scoring", len(jobs), unit="files") as advance:
        for k, one in in_processes(measure, jobs, min(processes, len(jobs))):
            found[k] = one
            advance(1)
    return [one for one in found if one is not None]


def _studies(groups: Mapping[tuple[str, str, str, str, int | None], Group]) -> list[Study]:
    studies = []
    for task, criterion in dict.fromkeys((key[0], key[1]) for key in groups):
        mine = [group for key, group in groups.items() if key[:2] == (task, criterion)]
        bases = list(dict.fromkeys(group.base for group in mine))
        mine.sort(key=lambda group: (bases.index(group.base), group.ensemble))
        standard = [group for group in mine if group.blur in (None, STANDARD_BLUR)]
        blurs: dict[str, set[int]] = {}
        for group in mine:
            blurs.setdefault(group.name, set()).add(group.blur or STANDARD_BLUR)
        variants = [group for group in mine if len(blurs[group.name]) > 1]
        studies.append(Study(task, criterion, standard, variants))
    return studies

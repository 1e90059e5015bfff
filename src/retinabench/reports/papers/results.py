"""The results of predictions files, grouped by task, data set, tuning criterion and method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from retinabench.metrics.over_seeds import aggregate, jackknife_error
from retinabench.predictions.table import Predictions
from retinabench.reports.papers.measurements import Measurements
from retinabench.reports.papers.origins import (
    criterion_title,
    slug,
    task_title,
)


@dataclass
class MethodRuns:
    """The runs of one method: a row of a table, a line of a figure.

    Attributes:
        name: Title of the method.
        base: Title of the method of a single member.
        ensemble: Whether members are pooled.
        blur: Blur constant of the preprocessing, None if unknown.
        runs: The measurements of each run.
        tests: The test images of each run.
        member_seeds: The seeds that each run pools; as many as `runs` where every file states them.
    """

    name: str
    base: str
    ensemble: bool
    blur: int | None
    runs: list[Measurements] = field(default_factory=list)
    tests: list[Predictions] = field(default_factory=list)
    member_seeds: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def independent(self) -> int:
        """The number of independent trainings: of runs, or of seeds where runs share members."""
        return (
            len({seed for pooled in self.member_seeds for seed in pooled}) if self._shares else len(self.runs)
        )

    @property
    def _shares(self) -> bool:
        pooled = [seed for seeds in self.member_seeds for seed in seeds]
        return len(self.member_seeds) == len(self.runs) and len(set(pooled)) < len(pooled)

    def standard_error(self, values: Sequence[float]) -> float:
        """Return the standard error of the mean over runs, NaN for a single run.

        Ensembles that share members are not independent: their standard error is that of the jackknife over the seeds
        of the members (`metrics.inference.over_seeds`).
        """
        shared = jackknife_error(values, self.member_seeds) if self._shares else np.nan
        return shared if np.isfinite(shared) else aggregate(values).error


@dataclass(frozen=True)
class TaskResults:
    """The methods of one task on one data set, tuned on one criterion.

    Attributes:
        task: Name of the task.
        dataset: Name of the data set where the task has several, else "".
        criterion: The tuning criterion.
        methods: The methods at the standard blur.
        blur_variants: The methods that have several blur constants, at each of them.
    """

    task: str
    dataset: str
    criterion: str
    methods: list[MethodRuns]
    blur_variants: list[MethodRuns]

    @property
    def kind(self) -> str:
        """The task, without the mark of the released variant."""
        return self.task.removesuffix("_published")

    @property
    def slug(self) -> str:
        """Task, data set and criterion as part of a file name."""
        return slug(self.task, self.dataset, self.criterion)

    def title(self, criterion: bool = True) -> str:
        """Return task, data set and, if asked for, criterion: `Country Shift, tuned on …`."""
        task = task_title(self.task) + (f" on {self.dataset}" if self.dataset else "")
        tuned = criterion_title(self.criterion) if criterion else ""
        return f"{task}, {tuned}" if tuned else task

    def holds(self, set_name: str) -> bool:
        """Tell whether any run has scores of a set."""
        return has_set(self.methods, set_name)

    def missing(self, kind: str, needed: str) -> str:
        """Return the line for a table or figure that cannot be made."""
        return f"{kind[0].upper()}{kind[1:]}, {self.title()}: needs {needed}."


@dataclass(frozen=True)
class Collection:
    """All results of the files, and how they were scored. notes: remarks on the files for the reader."""

    results: list[TaskResults]
    rules: str
    bootstrap: int
    seed: int
    files: int
    notes: tuple[str, ...] = ()


def has_set(methods: Sequence[MethodRuns], set_name: str) -> bool:
    """Tell whether any run of some methods has scores of a set."""
    return any(key[0] == set_name for method in methods for run in method.runs for key in run.value)

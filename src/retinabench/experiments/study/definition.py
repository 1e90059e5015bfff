"""What a study is: tasks, methods with their search spaces, criteria, trials, seeds, ensembles; frozen, from TOML.

    title = "Two methods on my data"
    trials = 32
    criteria = ["in_domain_auroc", "balanced_joint_accuracy_area"]
    seeds = 6
    ensemble = 3
    [tasks.country_shift]
    data = "data/eyepacs"
    shifted = "data/aptos"
    [base.optimizer]
    epochs = 60
    [methods.map]
    config = "corrected/map/country/in_domain"
    space = "map"
    [methods.dropout]
    config = "corrected/dropout/country/in_domain"
    space = "dropout"

Names of presets, or paths as every verb takes them: relative to the current folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen, first_problem, read_toml
from retinabench.data.registry import TASKS
from retinabench.experiments.config import override
from retinabench.experiments.search.criteria import CRITERIA

HERE = Path(__file__).parent / "studies"
MOST_ENSEMBLES = 10_000
UNTUNED = "as_configured"  # the one "criterion" of a study that tunes nothing
LABEL = r"[A-Za-z0-9][A-Za-z0-9_.-]*"  # becomes a folder's name


class Drawn(Frozen):
    """A synthetic data set, which the study draws and prepares itself."""

    images: int = Field(3200, ge=32, le=1_000_000)
    size: int = Field(64, ge=16, le=2048)
    seed: int = Field(0, ge=0)


class StudyTask(Frozen):
    """A task on prepared folders, or on a synthetic data set."""

    task: str = ""
    data: str | None = None
    shifted: str | None = None
    trained_in: str = ""
    draw: Drawn | None = None
    dataset: str | None = None
    shifted_dataset: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.data is None) == (self.draw is None):
            raise ValueError("needs one of 'data' (a prepared folder) and 'draw' (images, size, seed)")
        if self.draw is not None and self.shifted is not None:
            raise ValueError("a drawn data set has its own shifted images. Leave out 'shifted'")
        return self


class StudyMethod(Frozen):
    """A method's configuration, and the space that is searched around it."""

    config: str | None = None
    run: JsonObject = Field(default_factory=dict)
    space: str | None = None
    tuned: dict[str, str] = Field(default_factory=dict)


class Study(Frozen):
    """The whole definition."""

    title: str = Field("A study of retinabench", min_length=1)
    tasks: dict[str, StudyTask] = Field(min_length=1)
    methods: dict[str, StudyMethod] = Field(min_length=1)
    base: JsonObject = Field(default_factory=dict)
    criteria: tuple[str, ...] = ()
    trials: int = Field(32, ge=0, le=100_000)
    seeds: int = Field(6, ge=1, le=1000)
    seed: int = Field(0, ge=0)
    folds: int = Field(0, ge=0)
    repeats: int = Field(1, ge=1)
    ensemble: int = Field(3, ge=0)
    rules: Literal["corrected", "published"] = "corrected"
    bootstrap: int = Field(1000, ge=0, le=1_000_000)
    precision: Literal["float32", "tf32", "bfloat16"] | None = None
    readers: int | None = Field(None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _one_task_per_shifted_set(cls, given: Any) -> Any:
        """Make tasks of one whose `shifted` is a list."""
        if not isinstance(given, dict) or not isinstance(given.get("tasks"), dict):
            return given
        tasks: JsonObject = {}
        for label, task in given["tasks"].items():
            tasks[label] = task
            if isinstance(task, dict) and isinstance(task.get("shifted"), list) and task["shifted"]:
                first, *others = (str(folder) for folder in task["shifted"])
                tasks[label] = {**task, "shifted": first}
                for folder in others:
                    name = f"{label}-{Path(folder).name}"
                    if name in given["tasks"] or name in tasks:
                        raise ValueError(f"tasks.{label}: two data sets under 'shifted' would be called {name}")
                    same = {"task": task.get("task") or label, "shifted": folder, "trained_in": label}
                    tasks[name] = {**task, **same}
        return {**given, "tasks": tasks}

    @field_validator("tasks", "methods")
    @classmethod
    def _labels(cls, given: JsonObject) -> JsonObject:
        for label, one in given.items():
            if not re.fullmatch(LABEL, label) or len(label) > 100:
                raise ValueError(f"'{label}' cannot name a folder: use letters, digits, '_', '-' and '.'")
            if isinstance(one, StudyTask) and (name := one.task or label) not in TASKS:
                raise ValueError(f"unknown task '{name}'. {nearest(name, TASKS)}")
        return given

    @field_validator("criteria")
    @classmethod
    def _criteria(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for name in given:
            if name not in CRITERIA:
                raise ValueError(f"unknown criterion '{name}'. {nearest(name, CRITERIA)}")
        if len(set(given)) < len(given):
            raise ValueError("a criterion is named twice")
        return given

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for label, task in self.tasks.items():
            if task.trained_in and self.tasks.get(task.trained_in, task).trained_in:
                raise ValueError(f"tasks.{label}: trained_in must name a task that has no trained_in")
        if self.trials and not self.criteria:
            raise ValueError("trials need 'criteria' to choose by; trials = 0 runs every method as configured")
        if self.ensemble == 1 or self.ensemble > self.seeds:
            raise ValueError(f"an ensemble of {self.ensemble} of {self.seeds} seeds: needs 2 … seeds, or 0")
        if self.folds == 1 or (self.repeats > 1 and not self.folds):
            raise ValueError("a cross-validation needs folds = 2 or more; repeats are those of its division")
        if self.folds and self.trials:
            either = "Set trials = 0, or folds = 0"
            raise ValueError(f"a search chooses by images that cross-validation would test on. {either}")
        if math.comb(self.seeds, self.ensemble) > MOST_ENSEMBLES:
            more = f"more than {MOST_ENSEMBLES:,} ensembles of {self.ensemble}"
            raise ValueError(f"{self.seeds} seeds form {more}. Lower seeds")
        for label, method in self.methods.items():
            if self.trials and method.space is None:
                raise ValueError(f"methods.{label}: a method that is searched needs a 'space'")
            lacking = [name for name in self.criteria if name not in method.tuned]
            if not self.trials and lacking:
                raise ValueError(f"methods.{label}: without trials it needs 'tuned.{lacking[0]}'")
        return self

    @property
    def choices(self) -> tuple[str, ...]:
        """The tuning criteria, or the one way in which a study without any runs."""
        return self.criteria or (UNTUNED,)

    @property
    def run_seeds(self) -> tuple[int, ...]:
        """The seeds of every choice's runs: `seeds` for each repeat."""
        return tuple(range(self.seed, self.seed + self.seeds * self.repeats))

    @property
    def seeds_by_repeat(self) -> tuple[tuple[int, ...], ...]:
        """The seeds of each repeat; one group without cross-validation."""
        firsts = range(0, self.seeds * self.repeats, self.seeds)
        return tuple(self.run_seeds[first : first + self.seeds] for first in firsts)


def read_study(source: str | Path, overrides: Sequence[str] = (), tasks: JsonObject | None = None) -> Study:
    """Read a study, then apply `key=value` settings; `tasks` take the place of its own."""
    name, known = str(source), study_presets()
    if name not in known and Path(source).suffix != ".toml":
        raise InputError(f"unknown study '{name}'", hint=f"{nearest(name, known)} Or name a .toml file.")
    file = known.get(name, Path(source))
    tree = read_toml(file) | ({} if tasks is None else {"tasks": tasks})
    for word in overrides:
        override(tree, word)
    try:
        return Study(**tree)
    except ValidationError as error:
        raise first_problem(error, file, _keys, [word.partition("=")[0] for word in overrides]) from None


@cache
def study_presets() -> dict[str, Path]:
    return {path.stem: path for path in sorted(HERE.glob("*.toml"))}


def _keys(path: Sequence[str]) -> list[str]:
    """Return the valid keys of the table at `path`."""
    tables: Mapping[str, type[BaseModel]] = {"tasks": StudyTask, "methods": StudyMethod}
    if len(path) == 3:
        return list(Drawn.model_fields)
    return list((tables[path[0]] if path else Study).model_fields)

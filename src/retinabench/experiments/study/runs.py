"""The data and the runs of a study: for every task and method a base run, its trials, and its choices with every seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from retinabench.core.atomic_files import write_json
from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.results import JsonObject
from retinabench.core.settings import merged
from retinabench.data.ingest.prepare import prepare
from retinabench.data.prepared.folder import prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import CrossValidation, Run, build_run, with_precision
from retinabench.experiments.config_sources import find
from retinabench.experiments.run import run_folder
from retinabench.experiments.search.space import Space, read_space
from retinabench.experiments.search.sweep import trial_runs
from retinabench.experiments.study.definition import UNTUNED, Drawn, Study
from retinabench.methods.registry import METHODS

CHOICES = "choices.json"
RUNS = "runs"


@dataclass(frozen=True)
class StudyCell:
    """One method on one task. folder: its place in the study; the runs of trials and seeds lie in `runs` below it.

    beside: where the runs of another task or method lie whose weights this one predicts with; its own runs lie there too.
    depth: number of cells through which its weights come, which are computed before it.
    """

    task: str
    method: str
    base: Run
    space: Space | None
    folder: Path
    beside: Path | None = None
    depth: int = 0

    @property
    def runs(self) -> Path:
        """Where runs are computed; a trial that is chosen is the run of the first seed."""
        return self.beside or self.folder / RUNS


def _data_folder(study: Study, label: str, out: Path) -> Path:
    """Return where the prepared data of a task lie, or will lie; tasks that draw alike share them."""
    task = study.tasks[label]
    if task.draw is not None:
        return out / "data" / f"synthetic-{task.draw.images}-{task.draw.size}-{task.draw.seed}"
    assert task.data is not None
    return Path(task.data)


def open_tasks(study: Study, out: Path, progress: Progress = QUIET) -> dict[str, Task]:
    """Draw what is to be drawn, and open every task by its label.

    Args:
        study: The definition.
        out: The study's folder.
        progress: Shows what is drawn.

    Returns:
        The tasks by label.

    Raises:
        InputError: A folder, or a task on it, is not usable.
    """
    for label, task in study.tasks.items():
        if task.draw is not None:
            draw(task.draw, _data_folder(study, label, out), progress)
    return {label: open_task(study, label, out) for label in study.tasks}


def open_task(study: Study, label: str, out: Path) -> Task:
    """Open one task whose data are there.

    Args:
        study: The definition.
        label: Of the task.
        out: The study's folder.

    Returns:
        The task.
    """
    task = study.tasks[label]
    return load_task(_data_folder(study, label, out), task.task or label, task.shifted)


def is_drawn(study: Study, label: str, out: Path) -> bool:
    """Tell whether a task's data are there, or need no drawing.

    Args:
        study: The definition.
        label: Of the task.
        out: The study's folder.

    Returns:
        Whether nothing is left to draw.
    """
    return study.tasks[label].draw is None or prepared(_data_folder(study, label, out))


def draw(drawn: Drawn, folder: Path, progress: Progress = QUIET) -> None:
    """Draw and prepare a data set, or find it done.

    Args:
        drawn: Number, size in pixels and seed of the images.
        folder: The prepared folder.
        progress: Shows what is drawn.
    """
    prepare(
        "synthetic",
        folder,
        recipe=Recipe(drawn.size),
        images=drawn.images,
        seed=drawn.seed,
        progress=progress,
    )


def cells(study: Study, out: Path) -> list[StudyCell]:
    """Return every task with every method; configurations and spaces are checked against each other.

    Raises `InputError` naming file and key.
    """
    found: dict[tuple[str, str], StudyCell] = {}
    for task, given in sorted(study.tasks.items(), key=lambda item: bool(item[1].trained_in)):
        for method in study.methods:
            cell = _cell(study, task, method, out)
            if given.trained_in:
                trains = found[given.trained_in, method]
                cell = replace(cell, beside=trains.runs, depth=trains.depth + 1)
            found[task, method] = cell
        if not given.trained_in:
            found |= _with_shared_weights([found[task, method] for method in study.methods])
    every = [found[task, method] for task in study.tasks for method in study.methods]
    for cell in every:
        trials(study, cell)
    return every


def _cell(study: Study, task: str, method: str, out: Path) -> StudyCell:
    given = study.methods[method]
    searched = study.trials and given.space is not None and not study.tasks[task].trained_in
    space = read_space(given.space) if searched and given.space is not None else None
    return StudyCell(task, method, base_run(study, task, method, out), space, out / task / method)


def _with_shared_weights(of_task: Sequence[StudyCell]) -> dict[tuple[str, str], StudyCell]:
    """Return the cells whose method uses the weights of another method's run that the study trains, as it does."""
    found = {}
    for cell in of_task:
        method = METHODS[cell.base.method.name]
        if cell.space is not None or not hasattr(method, "trained_by"):
            continue
        weights = method.trained_by(cell.base)
        for other in of_task:
            if other.space is None and other.base == weights:
                found[cell.task, cell.method] = replace(cell, beside=other.runs, depth=1)
    return found


def base_run(study: Study, task: str, method: str, out: Path, criterion: str = UNTUNED) -> Run:
    """Return the run that a method starts from on a task: its configuration, then `base`, then its own differences.

    Args:
        study: The definition.
        task: Label of the task.
        method: Label of the method.
        out: The study's folder.
        criterion: Takes the configuration that is `tuned` by it, where the method names one.

    Raises:
        InputError: The configuration is not usable, names no method, or the method is an ensemble.
    """
    given = study.methods[method]
    source = given.tuned.get(criterion, given.config)
    file: Path | None = None
    tree: JsonObject = {}
    if source is not None:
        file, tree = find(source.replace("{rules}", study.rules))
    tree = merged(merged(_tables(tree), _tables(study.base)), _tables(given.run))
    tree["method"] = _method(tree.get("method"), method, configured=file is not None)
    tree |= {
        "data": str(_data_folder(study, task, out)),
        "shifted": study.tasks[task].shifted,
        "task": study.tasks[task].task or task,
        "seed": study.seed,
    }
    run = build_run(with_precision(tree, study.precision), file)
    if run.method.pools_seeds:
        raise InputError(
            f"methods.{method}: is an ensemble, and a study makes the ensembles of every method itself",
            hint="Name the members' method, and how many of them under 'ensemble'.",
        )
    return run


def _method(given: object, label: str, *, configured: bool) -> object:
    """Return the settings of a method; where they do not name it, its label in the study does.

    `configured`: whether a configuration was read, which is one of MAP where it names no other method.
    """
    if given is not None and not isinstance(given, dict):
        return given  # its name, or refused later
    table: JsonObject = given or {}
    if "name" in table or (label not in METHODS and configured):
        return table
    if label not in METHODS:
        raise InputError(
            f"methods.{label}: no method is named, and the label '{label}' is not the name of one",
            hint=f"Set methods.{label}.run.method.name, or a 'config' that names it.",
        )
    return {"name": label, **table}


def trials(study: Study, cell: StudyCell) -> list[Run]:
    """Return the runs of a cell's trials, none in a study without."""
    if cell.space is None:
        return []
    return trial_runs(cell.base, cell.space, study.trials, study.seed)


def with_seeds(study: Study, choice: Run) -> list[Run]:
    """Return a choice's runs with every seed of the study, each a cross-validation where the study asks for folds."""
    return [
        choice.model_copy(
            update={
                "seed": seed,
                "cross_validation": CrossValidation(folds=study.folds, repeat=repeat)
                if study.folds
                else None,
            }
        )
        for repeat, seeds in enumerate(study.seeds_by_repeat)
        for seed in seeds
    ]


def most_runs(study: Study) -> int:
    """Runs of one method on one task beside its trials, if every criterion chooses another trial."""
    beside = len(study.run_seeds) - (study.trials > 0)  # the chosen trial is the first seed's run
    return beside * len(study.choices)


@dataclass(frozen=True)
class SavedChoice:
    """What a criterion has chosen so far: the run, None where no trial has a value, of how many trials."""

    trials: int
    run: Run | None


def read_choices(cell: StudyCell) -> dict[str, SavedChoice]:
    """Return the saved choices of a cell by criterion."""
    try:
        found = json.loads(check(cell.folder / CHOICES).read_text())
    except FileNotFoundError:
        return {}
    return {
        criterion: SavedChoice(one["trials"], None if one["run"] is None else Run(**one["run"]))
        for criterion, one in found.items()
    }


def write_choices(cell: StudyCell, choices: Mapping[str, SavedChoice]) -> None:
    """Save the choices of a cell by criterion, unless they are the saved ones."""
    if choices == read_choices(cell):
        return
    content = {
        criterion: {"trials": one.trials, "run": None if one.run is None else one.run.model_dump(mode="json")}
        for criterion, one in choices.items()
    }
    write_json(cell.folder / CHOICES, content, checked=True)


def folder_of(run: Run, cell: StudyCell, task: Task) -> Path:
    """Return the folder of a run of a cell.

    Args:
        run: The run.
        cell: Its cell.
        task: The task of the cell.
    """
    return run_folder(run, cell.runs, task)


def _tables(tree: JsonObject) -> JsonObject:
    """Return settings in which `method = "map"`, short for its table, is that table."""
    short = {key: {"name": tree[key]} for key in ("method", "model") if isinstance(tree.get(key), str)}
    return tree | short

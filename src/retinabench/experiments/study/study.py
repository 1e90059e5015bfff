"""The runs of a study: trials, choices by each criterion, and the choices with every seed.

What was computed before is found and not computed again: a study that was stopped, or has got another method, seed or
more trials, computes what is missing. All trials of all methods are one queue, and so are all seeds of all choices, so
that the machines of a cluster wait for each other only twice.

    study.json       the manifest: version, protocol, data
    TASK/METHOD/     a search (`search/search.py`) and `choices.json`; the runs of every seed lie with the trials
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from retinabench.core.errors import QUIET, InputError, Progress, WorkError, check
from retinabench.core.files import write_json
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen, merged, read_checked
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.prepare import prepare
from retinabench.data.prepared import prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import PROTOCOL, CrossValidation, Run, build_run, find, with_precision
from retinabench.experiments.engines.scheduler import JobEngine
from retinabench.experiments.many import Result, run_many
from retinabench.experiments.run import run_folder
from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.ranking import FIGURE, write_figure, write_ranking
from retinabench.experiments.search.search import (
    RUNS,
    RunTable,
    begin_search,
    by_engine,
    check_images,
    rank_trials,
    trial_runs,
)
from retinabench.experiments.search.space import Space, points, read_space
from retinabench.experiments.study.definition import UNTUNED, Study
from retinabench.methods.registry import METHODS

SCHEMA = "retinabench.study/1"
ALLOWED = ("data", "turns")  # in a folder without a manifest: drawn data; the locks of version 0.1
CHOICES = "choices.json"


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


@dataclass
class Chosen:
    """What a criterion chose for a method on a task, and the results of its runs with every seed."""

    cell: StudyCell
    criterion: str
    run: Run | None  # None where no trial has a value
    why: str = ""  # the reason, where nothing is chosen
    value: float | None = None  # of the criterion, of the chosen trial
    outcomes: dict[int, Result] = field(default_factory=dict)  # by seed
    folders: dict[int, Path] = field(default_factory=dict)  # by seed
    searched: Mapping[str, int] = field(default_factory=dict)  # state -> number of trials


class SavedChoice(Frozen):
    """What a criterion has chosen so far: the run, None where no trial has a value, of how many trials."""

    trials: int
    run: Run | None


def compute(study: Study, out: Path, engine: JobEngine, progress: Progress = QUIET) -> list[Chosen]:
    """Compute what is missing of a study's runs below `out`, whichever fail; return every method's choice by every criterion."""
    every = cells(study, out)
    tasks = open_tasks(study, out, progress)
    for criterion in study.criteria if study.trials else ():
        for label, task in tasks.items():
            check_images(CRITERIA[criterion], task, label)
    _begin(out, {label: task.data.fingerprint for label, task in tasks.items()})
    tables: dict[Path, RunTable] = {}
    for cell in every:
        fingerprint = tasks[cell.task].data.fingerprint
        if cell.space is not None:  # a changed configuration is refused before anything is computed
            begin_search(cell.folder, cell.base, cell.space, study.seed, fingerprint)
        tables[cell.folder] = RunTable(cell.folder, fingerprint, cell.runs)
    work = by_engine(engine)
    run_many([tables[cell.folder].item(run) for cell in every for run in trials(study, cell)], work)
    chosen: list[Chosen] = []
    for cell in sorted(every, key=lambda cell: bool(study.tasks[cell.task].trained_in)):
        chosen += _choose(study, cell, out, tables[cell.folder], chosen, progress)
    chosen.sort(key=lambda choice: every.index(choice.cell))
    wanted = [(choice, run) for choice in chosen if choice.run for run in with_seeds(study, choice.run)]
    for depth in sorted({choice.cell.depth for choice in chosen}):  # the deeper use weights of the others
        run_many([tables[one.cell.folder].item(run) for one, run in wanted if one.cell.depth == depth], work)
    for choice, run in wanted:
        table = tables[choice.cell.folder]
        choice.folders[run.seed] = folder_of(run, choice.cell, tasks[choice.cell.task])
        choice.outcomes[run.seed] = table.known[table.item(run).key]
    return chosen


def workspace(out: Path) -> Workspace:
    """Return the folder of a study, to lock and to begin."""
    return Workspace(out, "benchmark", "study.json")


def _begin(out: Path, fingerprints: Mapping[str, str]) -> None:
    """Write the manifest of a study, or compare it with the one that is there and add the data of new tasks."""
    folder = workspace(out)
    manifest = {"schema": SCHEMA, "protocol": PROTOCOL, "version": __version__, "data": dict(fingerprints)}

    def decisive(content: JsonObject) -> JsonObject:
        known = {label: content["data"].get(label, one) for label, one in fingerprints.items()}
        return {**content, "data": known}

    hint = "Restore the data, install the version that began it, or choose another --out."
    begun = folder.begin(manifest, decisive=decisive, hint=hint)
    grown = {**begun, "data": {**begun["data"], **fingerprints}}
    if grown != begun:
        folder.update(grown)


def _choose(
    study: Study, cell: StudyCell, out: Path, table: RunTable, earlier: Sequence[Chosen], progress: Progress
) -> Iterator[Chosen]:
    """Yield the choice of every criterion, and save it for `--status`; that of the task whose weights are used, if any."""
    saved = {}
    source = study.tasks[cell.task].trained_in
    trained = {one.criterion: one for one in earlier if (one.cell.task, one.cell.method) == (source, cell.method)}
    for criterion in study.choices:
        if source:  # other shifted images are predicted with the weights of that task's runs
            one = trained[criterion]
            run = one.run and one.run.model_copy(update={"shifted": cell.base.shifted})
            choice = Chosen(cell, criterion, run, one.why, one.value)
        elif cell.space is None:
            choice = Chosen(cell, criterion, base_run(study, cell.task, cell.method, out, criterion))
        else:
            choice = _best_trial(study, cell, cell.space, table, criterion)
            if choice.run is None:
                progress.say(f"{cell.task}, {cell.method}: {choice.why}")
        saved[criterion] = SavedChoice(trials=study.trials, run=choice.run)
        yield choice
    if saved != read_choices(cell):
        content = {criterion: one.model_dump(mode="json") for criterion, one in saved.items()}
        write_json(cell.folder / CHOICES, content, checked=True)


def _best_trial(study: Study, cell: StudyCell, space: Space, table: RunTable, criterion: str) -> Chosen:
    """Rank the trials of a cell and write the ranking; its figure where the ranking is another than before."""
    runs = trials(study, cell)
    results = [table.known[table.item(run).key] for run in runs]
    values = points(space, 0, study.trials, study.seed)
    ranking = rank_trials(results, runs, values, criterion, study.rules, space, table.runs)
    folder = cell.folder / f"{criterion}-{study.rules}"
    file = folder / "ranking.json"
    before = check(file).read_bytes() if (folder / f"{FIGURE}.png").is_file() else b""
    write_ranking(ranking, folder)
    if check(file).read_bytes() != before:
        write_figure(ranking, folder)
    searched: Counter[str] = Counter(row.state for row in ranking.rows)
    try:
        return Chosen(cell, criterion, ranking.first.run, value=ranking.first.value, searched=searched)
    except WorkError as error:
        return Chosen(cell, criterion, None, why=str(error), searched=searched)


# ------------------------------------------------------------------------------- the data of the tasks


def _data_folder(study: Study, label: str, out: Path) -> Path:
    """Return where the prepared data of a task lie, or will lie; tasks that draw alike share them."""
    task = study.tasks[label]
    if task.draw is not None:
        return out / "data" / f"synthetic-{task.draw.images}-{task.draw.size}-{task.draw.seed}"
    assert task.data is not None
    return Path(task.data)


def open_tasks(study: Study, out: Path, progress: Progress = QUIET) -> dict[str, Task]:
    """Draw what is to be drawn below `out`, and open every task by its label."""
    for label, task in study.tasks.items():
        if (drawn := task.draw) is not None:
            folder, recipe = _data_folder(study, label, out), Recipe(drawn.size)
            prepare("synthetic", folder, recipe=recipe, images=drawn.images, seed=drawn.seed, progress=progress)
    return {label: open_task(study, label, out) for label in study.tasks}


def open_task(study: Study, label: str, out: Path) -> Task:
    task = study.tasks[label]
    return load_task(_data_folder(study, label, out), task.task or label, task.shifted)


def is_drawn(study: Study, label: str, out: Path) -> bool:
    """Tell whether a task's data are there, or need no drawing."""
    return study.tasks[label].draw is None or prepared(_data_folder(study, label, out))


# ------------------------------------------------------------------------------- the runs of the methods


def cells(study: Study, out: Path) -> list[StudyCell]:
    """Return every task with every method; configurations and spaces are checked against each other."""
    found: dict[tuple[str, str], StudyCell] = {}
    for task, given in sorted(study.tasks.items(), key=lambda item: bool(item[1].trained_in)):
        for method in study.methods:
            space = study.methods[method].space if study.trials and not given.trained_in else None
            searched = None if space is None else read_space(space)
            cell = StudyCell(task, method, base_run(study, task, method, out), searched, out / task / method)
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

    `criterion` takes the configuration that is `tuned` by it, where the method names one. Raises `InputError` where the
    configuration is not usable or names no method, or the method is an ensemble.
    """
    given = study.methods[method]
    source = given.tuned.get(criterion, given.config)
    named = source and source.replace("{rules}", study.rules).replace("{task}", task)
    file, tree = find(named) if named is not None else (None, JsonObject())
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
        problem = f"methods.{method}: is an ensemble, and a study makes the ensembles of every method itself"
        raise InputError(problem, hint="Name the members' method, and how many of them under 'ensemble'.")
    return run


def _method(given: object, label: str, *, configured: bool) -> object:
    """Return the settings of a method, by its label where they name none; `configured`: a configuration was read, of MAP by default."""
    if given is not None and not isinstance(given, dict):
        return given  # its name, or refused later
    table: JsonObject = given or {}
    if "name" in table or (label not in METHODS and configured):
        return table
    if label not in METHODS:
        problem = f"methods.{label}: no method is named, and the label '{label}' is not the name of one"
        raise InputError(problem, hint=f"Set methods.{label}.run.method.name, or a 'config' that names it.")
    return {"name": label, **table}


def _tables(tree: JsonObject) -> JsonObject:
    """Return settings in which `method = "map"`, short for its table, is that table."""
    short = {key: {"name": tree[key]} for key in ("method", "model") if isinstance(tree.get(key), str)}
    return tree | short


def trials(study: Study, cell: StudyCell) -> list[Run]:
    """Return the runs of a cell's trials, none in a study without."""
    return [] if cell.space is None else trial_runs(cell.base, cell.space, study.trials, study.seed)


def with_seeds(study: Study, choice: Run) -> list[Run]:
    """Return a choice's runs with every seed of the study, each a cross-validation where the study asks for folds."""
    found = []
    for repeat, seeds in enumerate(study.seeds_by_repeat):
        division = CrossValidation(folds=study.folds, repeat=repeat) if study.folds else None
        found += [choice.model_copy(update={"seed": seed, "cross_validation": division}) for seed in seeds]
    return found


def most_runs(study: Study) -> int:
    """Runs of one method on one task beside its trials, if every criterion chooses another trial."""
    beside = len(study.run_seeds) - (study.trials > 0)  # the chosen trial is the first seed's run
    return beside * len(study.choices)


def folder_of(run: Run, cell: StudyCell, task: Task) -> Path:
    return run_folder(run, cell.runs, task)


_CHOICES = TypeAdapter(dict[str, SavedChoice])


def read_choices(cell: StudyCell) -> dict[str, SavedChoice]:
    return read_checked(cell.folder / CHOICES, _CHOICES.validate_python) or {}

"""The runs of a study: trials, choices by each criterion, and the choices with every seed.

What was computed before is found and not computed again: a study that was stopped, or has got another method, seed or
more trials, computes what is missing. All trials of all methods are one queue, and so are all seeds of all choices.

    study.json             the manifest: version, protocol, data
    TASK/METHOD/           a search and the choices; the runs of every seed lie with the trials
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import check, write_json
from retinabench.core.progress import QUIET, Progress
from retinabench.core.results import JsonObject
from retinabench.core.settings import merged
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.prepare import prepare
from retinabench.data.prepared import prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import PROTOCOL, CrossValidation, Run, build_run, find, with_precision
from retinabench.experiments.engines.scheduler import Job, JobEngine, Outcome, State
from retinabench.experiments.run import run_folder
from retinabench.experiments.run_folder import describe
from retinabench.experiments.search import search as sweep
from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.plots import write_figures
from retinabench.experiments.search.ranking import TrialRanking, write_ranking
from retinabench.experiments.search.results import Writer
from retinabench.experiments.search.search import measured, search, training_seconds, trial_runs
from retinabench.experiments.search.space import Space, read_space
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
    """Draw what is to be drawn, and open every task by its label."""
    for label, task in study.tasks.items():
        if task.draw is not None:
            draw(task.draw, _data_folder(study, label, out), progress)
    return {label: open_task(study, label, out) for label in study.tasks}


def open_task(study: Study, label: str, out: Path) -> Task:
    """Open one task whose data are there."""
    task = study.tasks[label]
    return load_task(_data_folder(study, label, out), task.task or label, task.shifted)


def is_drawn(study: Study, label: str, out: Path) -> bool:
    """Tell whether a task's data are there, or need no drawing."""
    return study.tasks[label].draw is None or prepared(_data_folder(study, label, out))


def draw(drawn: Drawn, folder: Path, progress: Progress = QUIET) -> None:
    """Draw and prepare a data set, or find it done."""
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
    """Return the run that a method starts from on a task: its configuration, then `base`, then its own differences."""
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
    """Return the folder of a run of a cell."""
    return run_folder(run, cell.runs, task)


def _tables(tree: JsonObject) -> JsonObject:
    """Return settings in which `method = "map"`, short for its table, is that table."""
    short = {key: {"name": tree[key]} for key in ("method", "model") if isinstance(tree.get(key), str)}
    return tree | short


FOLDER = "outcomes"

RunKey = tuple[Path, str]  # parent of the run's folder, and the run's hash


@dataclass
class RecordingEngine:
    """An engine that records every outcome in the study's folder, and computes no job twice in one command."""

    engine: JobEngine
    out: Path
    fingerprint: Callable[[Run], str]
    seen: dict[RunKey, Outcome] = field(default_factory=dict)

    def key(self, job: Job) -> RunKey:
        """Return what tells one job from another: two methods of a study may have runs in common."""
        return job.out, job.run.hash(self.fingerprint(job.run))

    def compute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yield the outcome of every job once; see `JobEngine`."""
        waiting: dict[RunKey, Job] = {}
        again: list[RunKey] = []
        for job in jobs:
            key = self.key(job)
            if key in self.seen:
                yield self.seen[key]
            elif key in waiting:
                again.append(key)
            else:
                waiting[key] = job
        for outcome in self.engine.compute(list(waiting.values())) if waiting else ():
            key = self.key(outcome.job)
            self.seen[key] = outcome
            self._record(key[1], outcome)
            yield outcome
        for key in again:
            yield self.seen[key]

    def found(self, job: Job, folder: Path) -> None:
        """Note a run whose folder is done; where the command was killed between the two, its record is missing or old."""
        key = self.key(job)
        self.seen.setdefault(key, Outcome(job, "done", folder, 0.0, 0))
        before = read_record(self.out, key[1])
        if before is None or before.state != "done":
            self._record(key[1], Outcome(job, "done", folder, training_seconds(folder), 1))

    def _record(self, key: str, outcome: Outcome) -> None:
        before = read_record(self.out, key)
        if outcome.state == "done" and before is not None and before.state == "done":
            return  # found done: the seconds of the work stay
        record = RunRecord(
            run=describe(outcome.job.run),
            state=outcome.state,
            seconds=outcome.seconds,
            attempts=outcome.attempts,
            message=outcome.message,
            at=time.time(),
            log=None if outcome.log is None else str(outcome.log),
        )
        write_json(self.out / FOLDER / f"{key}.json", asdict(record))


@dataclass(frozen=True)
class RunRecord:
    """The last outcome of a run, as `outcomes/HASH.json` holds it."""

    run: str
    state: State
    seconds: float
    attempts: int
    message: str
    at: float
    log: str | None


def read_record(out: Path, key: str) -> RunRecord | None:
    """Return the last outcome of the run with the hash `key`, None where it has none yet."""
    try:
        return RunRecord(**json.loads((out / FOLDER / f"{key}.json").read_text()))
    except FileNotFoundError:
        return None


def read_records(out: Path) -> list[RunRecord]:
    """Return the last outcomes of all runs of a study."""
    found = (read_record(out, file.stem) for file in (out / FOLDER).glob("*.json"))
    return [record for record in found if record is not None]


SCHEMA = "retinabench.study/1"

ALLOWED = ("data", "turns")  # in a folder without a manifest: drawn data; the locks of version 0.1

LAST_FIGURE = "marginals.png"  # of those that `write_figures` writes


@dataclass
class Chosen:
    """What a criterion chose for a method on a task, and the outcomes of its runs with every seed."""

    cell: StudyCell
    criterion: str
    run: Run | None
    why: str = ""
    value: float | None = None
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    folders: dict[int, Path] = field(default_factory=dict)
    searched: dict[str, int] = field(default_factory=dict)


def compute(study: Study, out: Path, engine: JobEngine, progress: Progress = QUIET) -> list[Chosen]:
    """Compute what is missing of a study's runs below `out`; return every method's choice by every criterion.

    A run that fails stops no other.
    """
    every = cells(study, out)
    tasks = open_tasks(study, out, progress)
    _check_criteria(study, tasks)
    _begin(out, {label: task.data.fingerprint for label, task in tasks.items()})
    for cell in every:
        if cell.space is not None:  # a changed configuration is refused before anything is computed
            sweep.begin_search(
                cell.folder, cell.base, cell.space, study.seed, tasks[cell.task].data.fingerprint
            )
    fingerprints = {(cell.base.data, cell.base.shifted): tasks[cell.task].data.fingerprint for cell in every}
    recorded = RecordingEngine(engine, out, lambda run: fingerprints[run.data, run.shifted])
    _search(study, recorded, every, tasks)
    chosen: list[Chosen] = []
    for cell in sorted(every, key=lambda cell: bool(study.tasks[cell.task].trained_in)):
        chosen += _choose(study, cell, recorded, progress, out, chosen)
    chosen.sort(key=lambda choice: every.index(choice.cell))
    wanted = [(choice, run) for choice in chosen if choice.run for run in with_seeds(study, choice.run)]
    for depth in sorted({choice.cell.depth for choice in chosen}):  # the deeper use weights of the others
        some = [(one.cell, run) for one, run in wanted if one.cell.depth == depth]
        for _ in _missing(recorded, some, tasks):
            pass
    for choice, run in wanted:
        choice.folders[run.seed] = folder_of(run, choice.cell, tasks[choice.cell.task])
        choice.outcomes[run.seed] = recorded.seen[recorded.key(Job(run, choice.cell.runs))]
    return chosen


def workspace(out: Path) -> Workspace:
    """Return the folder of a study, to lock and to begin."""
    return Workspace(out, "benchmark", "study.json")


def _begin(out: Path, fingerprints: Mapping[str, str]) -> None:
    """Write the manifest of a study, or compare it with the one that is there and add what is new."""
    folder = workspace(out)
    manifest = {"schema": SCHEMA, "protocol": PROTOCOL, "version": __version__, "data": dict(fingerprints)}

    def decisive(content: JsonObject) -> JsonObject:
        known = {
            label: content["data"].get(label, fingerprint) for label, fingerprint in fingerprints.items()
        }
        return {**content, "data": known}

    begun = folder.begin(
        manifest,
        decisive=decisive,
        hint="Restore the data, install the version that began it, or choose another --out.",
    )
    grown = {**begun, "data": {**begun["data"], **fingerprints}}
    if grown != begun:
        folder.update(grown)


def _check_criteria(study: Study, tasks: Mapping[str, Task]) -> None:
    """Raise `InputError` where a criterion has nothing to choose by, before any trial is computed."""
    for criterion in study.criteria if study.trials else ():
        for label, task in tasks.items():
            if CRITERIA[criterion].shifted and "shifted_validation" not in task.splits:
                raise InputError(
                    f"tasks.{label}: has no shifted validation images, which {criterion} needs",
                    file=task.data.folder,
                    hint="Leave that criterion out, or name data with a shifted domain.",
                )


def _search(
    study: Study, recorded: RecordingEngine, every: Sequence[StudyCell], tasks: dict[str, Task]
) -> None:
    """Compute the trials of all searches, and put them into the searches' own tables."""
    of_folder = {cell.runs: cell for cell in every if cell.beside is None}
    wanted = [(cell, run) for cell in every for run in trials(study, cell)]
    with ExitStack() as opened:
        writers: dict[Path, Writer] = {}
        for outcome in _missing(recorded, wanted, tasks):
            where, key = recorded.key(outcome.job)
            if where not in writers:
                identity = sweep.sweep_manifest(tasks[of_folder[where].task].data.fingerprint)
                table = of_folder[where].folder / sweep.RESULTS
                writers[where] = opened.enter_context(Writer(table, identity))
            writers[where].add(measured(key, outcome))


def _missing(
    recorded: RecordingEngine, wanted: Sequence[tuple[StudyCell, Run]], tasks: dict[str, Task]
) -> Iterator[Outcome]:
    """Compute the runs that are not done, and yield what comes of them; the others are noted as done."""
    jobs = []
    for cell, run in wanted:
        job, folder = Job(run, cell.runs), folder_of(run, cell, tasks[cell.task])
        if (folder / "done").is_file():
            recorded.found(job, folder)
        else:
            jobs.append(job)
    yield from recorded.compute(jobs)


def _choose(
    study: Study,
    cell: StudyCell,
    recorded: RecordingEngine,
    progress: Progress,
    out: Path,
    earlier: Sequence[Chosen],
) -> Iterator[Chosen]:
    """Yield the choice of every criterion, and save it for `--status`; that of the task whose weights are used, if any."""
    saved = {}
    trains = {
        one.criterion: one
        for one in earlier
        if (one.cell.task, one.cell.method) == (study.tasks[cell.task].trained_in, cell.method)
    }
    for criterion in study.choices:
        if study.tasks[cell.task].trained_in:
            choice = _of_other_task(trains[criterion], cell)
        elif cell.space is None:
            choice = Chosen(cell, criterion, base_run(study, cell.task, cell.method, out, criterion))
        else:
            ranking = search(
                cell.base,
                cell.space,
                trials=study.trials,
                criterion=criterion,
                rules=study.rules,
                out=cell.folder,
                engine=recorded,
                seed=study.seed,
                progress=QUIET,
            )
            _write(ranking, cell.folder / f"{criterion}-{study.rules}")
            choice = _best(cell, criterion, ranking)
            if choice.run is None:
                progress.say(f"{cell.task}, {cell.method}: {choice.why}")
        saved[criterion] = SavedChoice(study.trials, choice.run)
        yield choice
    write_choices(cell, saved)


def _of_other_task(trained: Chosen, cell: StudyCell) -> Chosen:
    """Return the choice of a task that predicts other shifted images with the weights of another task's runs."""
    run = trained.run and trained.run.model_copy(update={"shifted": cell.base.shifted})
    return Chosen(cell, trained.criterion, run, trained.why, trained.value)


def _write(ranking: TrialRanking, folder: Path) -> None:
    """Write a ranking, and its figures where it is another than before."""
    table = folder / "ranking.json"
    before = table.read_bytes() if (folder / LAST_FIGURE).is_file() else b""
    write_ranking(ranking, folder)
    if table.read_bytes() != before:
        write_figures(ranking, folder)


def _best(cell: StudyCell, criterion: str, ranking: TrialRanking) -> Chosen:
    states = [row.state for row in ranking.rows]
    counts: dict[str, int] = {state: states.count(state) for state in dict.fromkeys(states)}
    try:
        best = ranking.first
    except WorkError as error:
        return Chosen(cell, criterion, None, why=str(error), searched=counts)
    return Chosen(cell, criterion, best.run, value=best.value, searched=counts)


def is_tuned(study: Study) -> bool:
    """Tell whether criteria chose anything in this study."""
    return study.choices != (UNTUNED,)

"""The runs of a study: trials, choices by each criterion, and the choices with every seed.

What was computed before is found and not computed again: a study that was stopped, or has got another method, seed or
more trials, computes what is missing. All trials of all methods are one queue, and so are all seeds of all choices, so
that the machines of a cluster wait for each other only twice.

The folder of a study holds

    study.json             the manifest: version, protocol, data
    TASK/METHOD/           a search (`search/sweep.py`) and the choices; the runs of every seed lie with the trials
    outcomes/HASH.json     per run: its last outcome and its seconds, from which `--status` tells the time left
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from retinabench.core.errors import InputError, WorkError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.tasks import Task
from retinabench.experiments.config import PROTOCOL, Run
from retinabench.experiments.engines.jobs import Job, JobEngine, Outcome
from retinabench.experiments.search import sweep
from retinabench.experiments.search.criteria import CRITERIA
from retinabench.experiments.search.plots import write_figures
from retinabench.experiments.search.ranking import TrialRanking, write_ranking
from retinabench.experiments.search.results import Writer
from retinabench.experiments.search.search import measured, search
from retinabench.experiments.study.definition import UNTUNED, Study
from retinabench.experiments.study.outcomes import RecordingEngine
from retinabench.experiments.study.runs import (
    SavedChoice,
    StudyCell,
    base_run,
    cells,
    folder_of,
    open_tasks,
    trials,
    with_seeds,
    write_choices,
)

SCHEMA = "retinabench.study/1"
ALLOWED = ("data", "turns")  # in a folder without a manifest: drawn data; the locks of version 0.1
LAST_FIGURE = "marginals.png"  # of those that `write_figures` writes


@dataclass
class Chosen:
    """What a criterion chose for a method on a task, and the outcomes of its runs with every seed.

    Args:
        cell: The method on the task.
        criterion: The criterion.
        run: The chosen run; None where no trial has a value.
        why: Why there is no choice.
        value: The criterion's value of the chosen trial.
        outcomes: Seed -> outcome of its run.
        folders: Seed -> folder of its run.
        searched: State -> number of trials.
    """

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

    Args:
        study: The definition.
        out: The study's folder.
        engine: Computes the runs.
        progress: Shows what is done.

    Raises:
        InputError: The definition, the data or the folder are not usable.
    """
    every = cells(study, out)
    tasks = open_tasks(study, out, progress)
    _check_criteria(study, tasks)
    _begin(out, {label: task.data.fingerprint for label, task in tasks.items()})
    for cell in every:
        if cell.space is not None:  # a changed configuration is refused before anything is computed
            sweep.begin(cell.folder, cell.base, cell.space, study.seed, tasks[cell.task].data.fingerprint)
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
    """Write the manifest of a study, or compare it with the one that is there and add what is new.

    Args:
        out: The study's folder.
        fingerprints: Task label -> fingerprint of its data.

    Raises:
        InputError: The folder was begun by another version or with other data.
    """
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
                identity = sweep.identity(tasks[of_folder[where].task].data.fingerprint)
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

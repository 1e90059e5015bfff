"""A search: the trials of a space are computed by an engine, measured by a criterion, and ranked.

    sweep.json         the manifest: version, protocol, data, base run, space, seed
    runs/              the run folders of all trials (`experiments/run.py`)
    results/           the result table (`experiments/many.py`)
    CRITERION-RULES/   a ranking: table, chosen configuration, figure (`ranking.py`)

The criterion is not part of the manifest: another one ranks the same trials. A finished run is not computed again, nor is
one that diverged; one that failed is tried again by the next search, which also adds trials.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path

from retinabench.core.errors import QUIET, InputError, Progress, WorkError, check, nearest
from retinabench.core.results import JsonObject
from retinabench.core.settings import flat
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import PROTOCOL, Run, load_run
from retinabench.experiments.engines.scheduler import Job, JobEngine
from retinabench.experiments.many import Item, Result, ResultTable, run_many
from retinabench.experiments.search.criteria import CRITERIA, Criterion, measure
from retinabench.experiments.search.ranking import Trial, TrialRanking, in_order
from retinabench.experiments.search.space import Point, Space, points
from retinabench.metrics.scoring import RULES
from retinabench.predictions.io import read_predictions

SCHEMA = "retinabench.sweep/1"
RUNS, RESULTS = "runs", "results"
FIXED = ("data", "shifted", "task", "seed", "model.name")  # the trials of a search are comparable


def search(
    base: Run,
    space: Space,
    *,
    trials: int = 32,
    criterion: str = "in_domain_auroc",
    rules: str = "corrected",
    out: Path,
    engine: JobEngine,
    seed: int = 0,
    progress: Progress = QUIET,
) -> TrialRanking:
    """Compute what is missing of trials 0 … trials - 1 below `out`, all with the seed of `base`, and rank them, the best first."""
    runs = trial_runs(base, space, trials, seed)
    task = load_task(base.data, base.task, base.shifted)
    check_images(CRITERIA[criterion], task, task.name)
    score = f"{criterion}/{rules}"

    def described(result: Result) -> str:
        value, why = result.scores.get(score), result.whys.get(score)
        said = result.state.replace("_", " ") if value is None else f"{value:.4f}"
        return f"{said}{f', undefined: {why}' if why else ''}"

    with workspace(out).lock():
        begin_search(out, base, space, seed, task.data.fingerprint)
        table = RunTable(out, task.data.fingerprint)
        results = run_many([table.item(run) for run in runs], by_engine(engine), described, progress)
    return rank_trials(results, runs, points(space, 0, trials, seed), criterion, rules, space, table.runs)


def check_images(chosen: Criterion, task: Task, label: str) -> None:
    if chosen.shifted and "shifted_validation" not in task.splits:
        problem = f"the task '{label}' has no shifted validation images, which {chosen.name} needs"
        hint = "Choose by in_domain_auroc, or name data with a shifted domain (--shifted)."
        raise InputError(problem, file=task.data.folder, hint=hint)


def rank_trials(
    results: Sequence[Result],
    runs: Sequence[Run],
    values: Sequence[Point],
    criterion: str,
    rules: str,
    space: Space,
    folder: Path,
) -> TrialRanking:
    """Rank the trials of a search by a criterion; `folder` holds their run folders."""
    score = f"{criterion}/{rules}"
    rows = []
    for trial, (one, run, point) in enumerate(zip(results, runs, values, strict=True)):
        value, why = one.scores.get(score), one.message or one.whys.get(score, "")
        place = folder / one.folder if one.folder else None
        known = math.nan if value is None else value
        rows.append(Trial(trial, point, run, one.state, known, why, one.seconds, one.attempts, place))
    return TrialRanking(criterion, rules, space, in_order(rows))


# ------------------------------------------------------------------------------- the folder of a search


def workspace(out: Path) -> Workspace:
    """Return the folder of a search, to lock and to begin."""
    return Workspace(out, "search", "sweep.json")


def identity(fingerprint: str) -> JsonObject:
    """Return what every row of the result table depends on beside its run."""
    return {"version": __version__, "protocol": PROTOCOL, "fingerprint": fingerprint}


def begin_search(out: Path, base: Run, space: Space, seed: int, fingerprint: str) -> None:
    """Write the manifest of a search, or compare it with the one that is there."""
    fixed = flat(base.model_dump(mode="json", exclude={"data", "shifted"}))  # the fingerprint stands for both
    manifest = {
        "schema": SCHEMA,
        **identity(fingerprint),
        "seed": seed,
        "base": {key: value for key, value in fixed if key not in space.parameters},
        "space": space.to_dict(),
        "first": points(space, 0, 1, seed)[0],  # detects a SciPy version that draws different points
    }

    def decisive(content: JsonObject) -> JsonObject:
        """All of a manifest, and the order of the space's keys, which is that of its dimensions."""
        rest = {key: value for key, value in content.items() if key != "first"}
        return {**rest, "order of keys": list(content.get("space", ())), "first": content.get("first")}

    hint = "Restore the data and the settings, install the version that began it, or choose another --out."
    workspace(out).begin(manifest, decisive=decisive, hint=hint)


class RunTable(ResultTable):
    """Runs and their results: `runs/` and `results/` below a folder.

    The table is a cache of the run folders: a finished run without a row is read again, and a row whose folder is gone
    does not count. Lines are therefore not flushed to the disk one by one.
    """

    def __init__(self, folder: Path, fingerprint: str, runs: Path | None = None) -> None:
        super().__init__(folder / RESULTS, identity(fingerprint))
        self.fingerprint, self.runs = fingerprint, runs or folder / RUNS
        self._folders = {path.name.rpartition("-")[2]: path.name for path in self.runs.glob("*-*")}
        self.known = {
            key: row
            for key, row in self.known.items()
            if key in self._folders or not (row.state == "done" or (row.state == "diverged" and row.folder))
        }

    def item(self, run: Run) -> Item[Job]:
        """Return a run as an item of `run_many`."""
        return Item(self, run.hash(self.fingerprint), Job(run, self.runs))

    def settled(self, key: str) -> bool:
        """Whether a run needs no computing: its row says so, or its folder is finished and is read now."""
        if super().settled(key):
            return True
        folder = self.runs / self._folders.get(key, "")
        if folder == self.runs or not (folder / "done").is_file():
            return False
        scores, whys = all_criteria(folder)
        ended = (folder / "done").stat().st_mtime
        self.add(Result(key, "done", folder.name, training_seconds(folder), 1, ended, scores=scores, whys=whys))
        return True

    def confirm(self, result: Result) -> None:
        """Raise `WorkError` where the folder of a finished run has gone, or lacks a file."""
        if result.state == "done":
            run = Workspace(self.runs / result.folder, "run", "run.json")
            if not run.done:
                again = "Delete what is left of it and repeat the command: the run is computed again."
                raise WorkError(f"{run.folder}: files are missing or damaged. {again}")
            run.confirm(content=False)


def by_engine(engine: JobEngine) -> Callable[[Sequence[Item[Job]]], Iterator[tuple[Item[Job], Result]]]:
    """Return what computes the runs of `run_many`; a finished run is measured by every criterion under all rules."""

    def compute(items: Sequence[Item[Job]]) -> Iterator[tuple[Item[Job], Result]]:
        of_job = {id(item.work): item for item in items}
        for one in engine.compute([item.work for item in items]):
            item, folder = of_job[id(one.job)], one.folder
            scores, whys = all_criteria(folder) if one.state == "done" and folder is not None else ({}, {})
            yield item, Result(
                item.key, one.state, folder.name if folder is not None else "", one.seconds, one.attempts, time.time(),
                one.message, str(one.log or ""), scores, whys,
            )  # fmt: skip

    return compute


def training_seconds(folder: Path) -> float:
    """Return what the run's own record says of its training; 0 for a run that only composes others."""
    try:
        lines = check(folder / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return 0.0
    return float(sum(json.loads(line)["seconds"] for line in lines))


def all_criteria(folder: Path) -> tuple[dict[str, float | None], dict[str, str]]:
    """Return `criterion/rules` -> value, and the reasons of those that are undefined, for a run folder."""
    predictions = read_predictions(folder / "predictions.parquet")
    scores: dict[str, float | None] = {}
    whys: dict[str, str] = {}
    for name in CRITERIA:
        for rules in RULES:
            value, why = measure(name, predictions, rules)
            scores[f"{name}/{rules}"] = value if math.isfinite(value) else None
            if why:
                whys[f"{name}/{rules}"] = why
    return scores, whys


# ------------------------------------------------------------------------------- the runs of the trials


def trial_runs(base: Run, space: Space, trials: int, seed: int) -> list[Run]:
    """Return the runs of all trials: `base` with the values of the space's points; what it refuses is named with file and key."""
    known = [key for key in values_of(base) if key not in FIXED]
    known = [key for key in known if not (key.startswith("method.") and key.endswith(".name"))]
    for key, parameter in space.parameters.items():
        if key not in known:
            problem = f"unknown key '{key}' for the method '{base.method.name}'"
            raise InputError(problem, file=space.file, hint=nearest(key, known))
        for value in parameter.bounds():  # the run may refuse an end of a range
            _vary(base, {key: value}, space, "")
    every = enumerate(points(space, 0, trials, seed))
    return [_vary(base, values, space, f"trial {number}: ") for number, values in every]


def values_of(run: Run) -> JsonObject:
    return dict(flat(run.model_dump(mode="json")))


def _vary(base: Run, values: Point, space: Space, what: str) -> Run:
    tree = deepcopy(base.model_dump(mode="json"))
    for key, value in values.items():
        *tables, last = key.split(".")
        inner = tree
        for table in tables:
            inner = inner[table]
        inner[last] = value
    try:
        return load_run(None, **tree)
    except InputError as error:
        raise InputError(f"{what}{error.problem}", file=space.file, hint=error.hint) from None

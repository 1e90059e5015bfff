"""A search: the trials of a space are computed by an engine, measured by a criterion, and ranked.

    sweep.json         the manifest: version, protocol, data, base run, space, seed
    runs/              the run folders of all trials (`experiments/run.py`)
    results/           the result table (`results.py`)
    CRITERION-RULES/   a ranking: table, chosen configuration, figures (`ranking.py`)

The criterion is not part of the manifest: another one ranks the same trials. A finished run is not computed again, nor is
one that diverged; one that failed is tried again by the next search, which also adds trials.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

from retinabench.core.errors import InputError, nearest
from retinabench.core.progress import QUIET, Progress
from retinabench.core.results import JsonObject
from retinabench.core.settings import flat
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import PROTOCOL, Run, load_run
from retinabench.experiments.engines.scheduler import Job, JobEngine, Outcome
from retinabench.experiments.search.criteria import CRITERIA, Criterion, find, measure
from retinabench.experiments.search.ranking import Trial, TrialRanking, in_order
from retinabench.experiments.search.results import Result, Writer, read_results, run_folders, valid
from retinabench.experiments.search.space import Point, Space, points
from retinabench.metrics.scoring import RULES
from retinabench.predictions.io import read_predictions

SCHEMA = "retinabench.sweep/1"

RUNS, RESULTS = "runs", "results"

FIXED = ("data", "shifted", "task", "seed", "model.name")  # the trials of a search are comparable


def workspace(out: Path) -> Workspace:
    """Return the folder of a search, to lock and to begin."""
    return Workspace(out, "search", "sweep.json")


def sweep_manifest(fingerprint: str) -> JsonObject:
    """Return what every row of the result table depends on beside its run."""
    return {"version": __version__, "protocol": PROTOCOL, "fingerprint": fingerprint}


def begin_search(out: Path, base: Run, space: Space, seed: int, fingerprint: str) -> None:
    """Write the manifest of a search, or compare it with the one that is there."""
    varied = {parameter.key for parameter in space}
    fixed = dict(
        flat(base.model_dump(mode="json", exclude={"data", "shifted"}))
    )  # the fingerprint stands for both
    manifest = {
        "schema": SCHEMA,
        **sweep_manifest(fingerprint),
        "seed": seed,
        "base": {key: value for key, value in fixed.items() if key not in varied},
        "space": space.to_dict(),
        # Another release of SciPy may draw other points: then this one differs.
        "first": points(space, 0, 1, seed)[0],
    }
    workspace(out).begin(
        manifest,
        decisive=_decisive,
        hint="Restore the data and the settings, install the version that began it, or choose another --out.",
    )


def _decisive(manifest: JsonObject) -> JsonObject:
    """Return what must agree: all of a manifest, and the order of the space's keys, which is that of its dimensions."""
    rest = {key: value for key, value in manifest.items() if key != "first"}
    return {**rest, "order of keys": list(manifest.get("space", ())), "first": manifest.get("first")}


def trial_runs(base: Run, space: Space, trials: int, seed: int) -> list[Run]:
    """Return the runs of all trials: `base` with the values of the space's points."""
    check_space(base, space)
    return [
        _vary(base, values, space, f"trial {number}: ")
        for number, values in enumerate(points(space, 0, trials, seed))
    ]


def check_space(base: Run, space: Space) -> None:
    """Raise `InputError` naming file and key where the run has no such key, or refuses an end of a range."""
    known = [key for key in values_of(base) if _may_vary(key)]
    for parameter in space:
        if parameter.key not in known:
            raise InputError(
                f"unknown key '{parameter.key}' for the method '{base.method.name}'",
                file=space.file,
                hint=nearest(parameter.key, known),
            )
        for value in parameter.bounds():
            _vary(base, {parameter.key: value}, space, "")


def values_of(run: Run) -> JsonObject:
    """Return all values of a run under dotted keys."""
    return dict(flat(run.model_dump(mode="json")))


def _may_vary(key: str) -> bool:
    return key not in FIXED and not (key.startswith("method.") and key.endswith(".name"))


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
    halving: int | None = None,
    progress: Progress = QUIET,
) -> TrialRanking:
    """Compute trials 0 … trials - 1 below `out`, or what is missing of them, and rank them, the best first.

    Trials that diverge or fail are kept, marked, and rank last.

    References:
        Jamieson & Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization".
    """
    chosen = find(criterion, rules)
    if trials < 1:
        raise InputError(f"{trials} trials", hint="Ask for 1 or more.")
    shares = _shares(halving, rules)
    runs = trial_runs(base, space, trials, seed)
    task = load_task(base.data, base.task, base.shifted)
    _check_images(chosen, task)
    with workspace(out).lock():
        begin_search(out, base, space, seed, task.data.fingerprint)
        with _Sweep(out, task.data.fingerprint, engine, f"{criterion}/{rules}", progress) as work:
            rows = _climb(runs, points(space, 0, trials, seed), shares, halving or 1, work)
    return TrialRanking(criterion, rules, space, in_order(rows.values()))


def _climb(
    runs: Sequence[Run],
    values: Sequence[Point],
    shares: Sequence[int],
    halving: int,
    work: _Sweep,
) -> dict[int, Trial]:
    """Train all trials for the first share of their epochs, the best 1 / halving of them for the next, and so on."""
    rows: dict[int, Trial] = {}
    alive = list(range(len(runs)))
    for rung, share in enumerate(shares):
        short = [_shortened(runs[trial], share) for trial in alive]
        for trial, run, result in zip(alive, short, work.compute(short), strict=True):
            value = result.scores.get(work.score)
            row = Trial(
                trial=trial,
                values=values[trial],
                run=runs[trial],
                state=result.state,
                value=math.nan if value is None else value,
                why=result.message or result.whys.get(work.score, ""),
                epochs=run.optimizer.epochs,
                seconds=result.seconds,
                attempts=result.attempts,
                folder=work.runs / result.folder if result.folder else None,
            )
            before = rows.get(trial)
            if before is not None and before.epochs < row.epochs:
                row = replace(row, seconds=before.seconds + row.seconds)
            rows[trial] = row
        places = math.ceil(len(runs) / halving ** (rung + 1))
        best = in_order(rows[trial] for trial in alive)[:places]
        alive = sorted(row.trial for row in best if math.isfinite(row.value))
    return rows


def _shares(halving: int | None, rules: str) -> list[int]:
    """Return into how many parts the epochs are cut, of which one is trained: 1 at last."""
    if halving is None:
        return [1]
    if rules == "published":
        hint = "Leave out --halving, or use the corrected rules."
        raise InputError("the published protocol trains every trial in full", hint=hint)
    if halving < 2:
        raise InputError(f"halving by {halving}", hint="Keep one of 2 or more.")
    return [halving**2, halving, 1]


def _shortened(run: Run, share: int) -> Run:
    """Return the run with 1 / share of its epochs, at least one, its schedule compressed with them."""
    whole = run.optimizer
    epochs = math.ceil(whole.epochs / share)
    if epochs == whole.epochs:
        return run
    changes = {"epochs": epochs, "warmup": whole.warmup * epochs / whole.epochs}
    return run.model_copy(update={"optimizer": whole.model_copy(update=changes)})


def _check_images(chosen: Criterion, task: Task) -> None:
    if chosen.shifted and "shifted_validation" not in task.splits:
        raise InputError(
            f"the task '{task.name}' has no shifted validation images, which {chosen.name} needs",
            file=task.data.folder,
            hint="Tune by in_domain_auroc, or name data with a shifted domain (--shifted).",
        )


@dataclass
class _Sweep:
    """The runs of one sweep: those known from its folder, and the engine for the others."""

    out: Path
    fingerprint: str
    engine: JobEngine
    score: str
    progress: Progress

    def __enter__(self) -> _Sweep:
        self.runs = self.out / RUNS
        identity = sweep_manifest(self.fingerprint)
        self.folders = run_folders(self.runs)
        self.known = valid(read_results(self.out / RESULTS, identity), self.folders)
        self.writer = Writer(self.out / RESULTS, identity)
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()

    def compute(self, runs: Sequence[Run]) -> list[Result]:
        """Return the result of every run, in their order; equal runs are computed once."""
        hashes = [run.hash(self.fingerprint) for run in runs]
        by_hash = dict(zip(hashes, runs, strict=True))
        jobs = [Job(run, self.runs) for key, run in by_hash.items() if not self._settled(key)]
        done = len(by_hash) - len(jobs)
        if done:
            self.progress.say(f"{done} of {len(by_hash)} trials: done before")
        for outcome in self.engine.compute(jobs) if jobs else ():
            result = measured(outcome.job.run.hash(self.fingerprint), outcome)
            self._note(result)
            done += 1
            self._say(result, f"{done} of {len(by_hash)} trials")
        return [self.known[key] for key in hashes]

    def _settled(self, key: str) -> bool:
        """Whether a run needs no computing: its row says so, or its folder is finished and is read now."""
        if key in self.known:
            return self.known[key].state in ("done", "diverged")
        if key not in self.folders or not (self.runs / self.folders[key] / "done").is_file():
            return False
        self._note(from_folder(key, self.runs / self.folders[key]))
        return True

    def _note(self, result: Result) -> None:
        self.writer.add(result)
        self.known[result.run] = result

    def _say(self, result: Result, place: str) -> None:
        value, why = result.scores.get(self.score), result.whys.get(self.score)
        told = f"{value:.4f}" if value is not None else result.state.replace("_", " ")
        self.progress.say(f"{place}: {told}{f', undefined: {why}' if why else ''}")


def measured(run: str, outcome: Outcome) -> Result:
    """Return the row of an outcome; a finished run is measured by every criterion under all rules."""
    row = Result(
        run=run,
        state=outcome.state,
        folder=outcome.folder.name if outcome.folder is not None else "",
        seconds=outcome.seconds,
        attempts=outcome.attempts,
        ended=time.time(),
        message=outcome.message,
        log=str(outcome.log or ""),
    )
    if outcome.state != "done" or outcome.folder is None:
        return row
    scores, whys = all_criteria(outcome.folder)
    return replace(row, scores=scores, whys=whys)


def from_folder(run: str, folder: Path) -> Result:
    """Return the row of a finished run that the table does not know."""
    scores, whys = all_criteria(folder)
    ended = (folder / "done").stat().st_mtime
    return Result(run, "done", folder.name, training_seconds(folder), 1, ended, scores=scores, whys=whys)


def training_seconds(folder: Path) -> float:
    """What the run's own record says of its training; 0 for a run that only composes others."""
    try:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
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
            found = measure(name, predictions, rules)
            scores[f"{name}/{rules}"] = found.value if math.isfinite(found.value) else None
            if found.why:
                whys[f"{name}/{rules}"] = found.why
    return scores, whys

"""A search: the trials of a space are computed by an engine, measured by a criterion, and ranked.

All state is in the folder. A finished run is not computed again, nor is one that diverged (it would diverge again); one
that failed or lacked memory is tried again by the next search. A search that was killed continues when it is repeated;
with more trials it adds to those that are there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run
from retinabench.experiments.engines.jobs import Job, JobEngine, Outcome
from retinabench.experiments.search import sweep
from retinabench.experiments.search.criteria import CRITERIA, Criterion, find, measure
from retinabench.experiments.search.ranking import Trial, TrialRanking, in_order
from retinabench.experiments.search.results import Result, Writer, read_results, run_folders, valid
from retinabench.experiments.search.space import Point, Space, points
from retinabench.experiments.search.sweep import trial_runs
from retinabench.metrics.score import RULES
from retinabench.predictions.io import read_predictions


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

    Args:
        base: The run that the space varies; its seed is every trial's.
        space: What varies.
        trials: Number of points of the space.
        criterion: What ranks the trials, a name of `CRITERIA`.
        rules: `corrected` or `published`.
        out: The folder of the search.
        engine: Computes the trials.
        seed: Seed of the points.
        halving: η of successive halving: all trials are trained for 1 / η² of the epochs, the best 1 / η of them for
            1 / η of the epochs, the best 1 / η of those in full. Every training is a run of its own with its whole
            schedule, warm-up in proportion, so that the last ones equal those of a full search bit for bit.
        progress: Shows how far the work is.

    Returns:
        The trials, the best first.

    Raises:
        InputError: The space does not fit the run, a criterion lacks its images, or the folder holds another search or
            is locked by one.

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
    with sweep.workspace(out).lock():
        sweep.begin(out, base, space, seed, task.data.fingerprint)
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
        self.runs = self.out / sweep.RUNS
        identity = sweep.identity(self.fingerprint)
        self.folders = run_folders(self.runs)
        self.known = valid(read_results(self.out / sweep.RESULTS, identity), self.folders)
        self.writer = Writer(self.out / sweep.RESULTS, identity)
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

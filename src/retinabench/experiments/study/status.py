"""The status of a study, read from its folder alone, whether or not a process works in it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from retinabench.core.workspace import Holder
from retinabench.data.tasks import Task
from retinabench.experiments.config import Run
from retinabench.experiments.run_folder import describe
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.study import (
    RunRecord,
    StudyCell,
    cells,
    folder_of,
    is_drawn,
    most_runs,
    open_task,
    read_choices,
    read_record,
    read_records,
    trials,
    with_seeds,
    workspace,
)

KINDS = ("done", "running", "failed", "left")


@dataclass
class MethodStatus:
    """One method on one task: how many trials and runs of other seeds are in each of `KINDS`.

    seconds: mean of a finished run, None before the first one. failures: runs with their records.
    """

    task: str
    method: str
    trials: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    seconds: float | None = None
    failures: list[tuple[str, RunRecord]] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Runs that are not done yet, those under way included."""
        return sum(self.trials[kind] + self.runs[kind] for kind in ("running", "left"))

    @property
    def seconds_left(self) -> float | None:
        """Device-seconds of what is left, None where no run has ended yet."""
        if not self.left:
            return 0.0
        return None if self.seconds is None else self.left * self.seconds


@dataclass(frozen=True)
class Status:
    """The status of all methods. holder: the process that works in the folder, if any. at_once: observed number of parallel runs."""

    lines: list[MethodStatus]
    holder: Holder | None
    at_once: float | None
    finished: bool

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the live command has computed all runs; None where this is unknown.

        A method without a finished run is assumed to cost as much as the others on average.
        """
        known = [line.seconds for line in self.lines if line.seconds is not None]
        if self.at_once is None or not known:
            return None
        usual = sum(known) / len(known)
        return (
            sum(line.left * (usual if line.seconds is None else line.seconds) for line in self.lines)
            / self.at_once
        )


def read_status(study: Study, out: Path) -> Status:
    """Read the folder of a study without writing or waiting.

    Raises `InputError` where the definition or its data are not usable.
    """
    now = workspace(out).holder()
    since = now.since if now else time.time()
    every = cells(study, out)
    tasks = {
        label: open_task(study, label, out) if is_drawn(study, label, out) else None for label in study.tasks
    }
    lines = [_method_status(study, cell, tasks[cell.task], out, now is not None, since) for cell in every]
    return Status(
        lines,
        now,
        _at_once(out, now),
        (out / "summary.json").is_file() and not any(line.left for line in lines),
    )


def _method_status(
    study: Study, cell: StudyCell, task: Task | None, out: Path, live: bool, since: float
) -> MethodStatus:
    line = MethodStatus(cell.task, cell.method)
    searched = trials(study, cell)
    if task is None:
        line.trials["left"], line.runs["left"] = len(searched), most_runs(study)
        return line
    names: set[str] = set()
    seconds: list[float] = []

    def count(runs: Iterable[Run], into: Counter[str]) -> None:
        for run in runs:
            folder = folder_of(run, cell, task)
            if folder.name in names:
                continue
            names.add(folder.name)
            found = read_record(out, run.hash(task.data.fingerprint))
            kind = _kind(folder, found, live, since)
            into[kind] += 1
            if kind == "failed" and found is not None:
                line.failures.append((describe(run), found))
            if kind == "done" and found is not None:
                seconds.append(found.seconds)

    count(searched, line.trials)
    chosen = read_choices(cell)
    current = [
        chosen[name] for name in study.choices if name in chosen and chosen[name].trials == study.trials
    ]
    for one in current:
        if one.run is not None:
            count(with_seeds(study, one.run), line.runs)
    if undecided := len(study.choices) - len(current):
        line.runs["left"] += undecided * (len(study.run_seeds) - (cell.space is not None))
    line.seconds = sum(seconds) / len(seconds) if seconds else None
    return line


def _kind(folder: Path, found: RunRecord | None, live: bool, since: float) -> str:
    if (folder / "done").is_file():
        return "done"
    newest = max((file.stat().st_mtime for file in folder.glob("*")), default=0.0) if live else 0.0
    if newest > since and (found is None or not _fresh(found, newest)):
        return "running"
    return "left" if found is None or found.state == "done" else "failed"


def _fresh(found: RunRecord, newest: float) -> bool:
    """Tell whether a record is newer than the last file of its run."""
    return found.at >= newest


def _at_once(out: Path, now: Holder | None) -> float | None:
    """Return the seconds of work that ended since the running command began, over the time since then."""
    if now is None:
        return None
    worked = sum(record.seconds for record in read_records(out) if record.at > now.since)
    elapsed = time.time() - now.since
    return max(1.0, worked / elapsed) if worked else None

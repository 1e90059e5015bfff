"""The status of a study, read from its folder alone, whether or not a process works in it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from retinabench.core.workspace import Holder
from retinabench.data.tasks import Task
from retinabench.experiments.config import Run
from retinabench.experiments.many import Result, read_results
from retinabench.experiments.run_folder import describe
from retinabench.experiments.search.search import RESULTS, training_seconds
from retinabench.experiments.study import study as runs
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.plan import duration
from retinabench.experiments.study.study import StudyCell, folder_of
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table

KINDS = ("done", "running", "failed", "left")


@dataclass
class MethodStatus:
    """One method on one task: how many trials and runs of other seeds are in each of `KINDS`.

    seconds: mean of a finished run, None before the first one. failures: runs with their results.
    """

    task: str
    method: str
    trials: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    seconds: float | None = None
    failures: list[tuple[str, Result]] = field(default_factory=list)

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
        """Seconds until the live command has computed all runs, None where unknown; a method without a finished run is taken to cost as much as the others on average."""
        known = [line.seconds for line in self.lines if line.seconds is not None]
        if self.at_once is None or not known:
            return None
        usual = sum(known) / len(known)
        return sum(line.left * (line.seconds or usual) for line in self.lines) / self.at_once


def read_status(study: Study, out: Path) -> Status:
    """Read the folder of a study without writing or waiting; `InputError` where the definition or its data are not usable."""
    now = runs.workspace(out).holder()
    every = runs.cells(study, out)
    drawn = {label: runs.is_drawn(study, label, out) for label in study.tasks}
    tasks = {label: runs.open_task(study, label, out) if there else None for label, there in drawn.items()}
    known = {cell.folder: read_results(cell.folder / RESULTS, None) for cell in every}
    lines = [_method_status(study, cell, tasks[cell.task], known[cell.folder], now) for cell in every]
    at_once = None
    if now is not None:
        rows = (row for table in known.values() for row in table.values())
        worked = sum(row.seconds for row in rows if row.ended > now.since)
        at_once = max(1.0, worked / (time.time() - now.since)) if worked else None
    finished = (out / "summary.json").is_file() and not any(line.left for line in lines)
    return Status(lines, now, at_once, finished)


def _method_status(
    study: Study, cell: StudyCell, task: Task | None, known: dict[str, Result], now: Holder | None
) -> MethodStatus:
    line = MethodStatus(cell.task, cell.method)
    searched = runs.trials(study, cell)
    if task is None:
        line.trials["left"], line.runs["left"] = len(searched), runs.most_runs(study)
        return line
    names: set[str] = set()
    seconds: list[float] = []

    def count(some: Iterable[Run], into: Counter[str]) -> None:
        for run in some:
            folder = folder_of(run, cell, task)
            if folder.name in names:
                continue
            names.add(folder.name)
            row = known.get(run.hash(task.data.fingerprint))
            kind = _kind(folder, row, now)
            into[kind] += 1
            if kind == "failed" and row is not None:
                line.failures.append((describe(run), row))
            if kind == "done":
                seconds.append(training_seconds(folder) if row is None else row.seconds)

    count(searched, line.trials)
    chosen = runs.read_choices(cell)
    current = [chosen[name] for name in study.choices if name in chosen and chosen[name].trials == study.trials]
    for one in current:
        if one.run is not None:
            count(runs.with_seeds(study, one.run), line.runs)
    if undecided := len(study.choices) - len(current):
        line.runs["left"] += undecided * (len(study.run_seeds) - (cell.space is not None))
    line.seconds = sum(seconds) / len(seconds) if seconds else None
    return line


def _kind(folder: Path, row: Result | None, now: Holder | None) -> str:
    if (folder / "done").is_file():
        return "done"
    if now is not None:
        newest = max((file.stat().st_mtime for file in folder.glob("*")), default=0.0)
        if newest > now.since and (row is None or row.ended < newest):
            return "running"
    return "left" if row is None or row.state == "done" else "failed"


def status_table(status: Status) -> Table:
    """Return how many runs are in each state, per method and task."""
    columns = [Column("method", text=True)]
    columns += [Column(f"{name}: {' / '.join(KINDS)}") for name in ("trials", "other runs")]
    rows = []
    for line in status.lines:
        left = line.seconds_left
        texts = (
            line.method,
            *(" / ".join(str(counted[kind]) for kind in KINDS) for counted in (line.trials, line.runs)),
            "" if line.seconds is None else duration(line.seconds),
            "unknown" if left is None else f"{left / 3600:.3g}",
        )
        rows.append(Row(line.task, [Cell(text) for text in texts]))
    return Table.of("Status", [*columns, Column("each"), Column("hours left")], rows, row_header="task")


def status_lines(status: Status) -> Iterator[str]:
    """Yield which runs failed, which process is at work, and what is left."""
    for line in status.lines:
        for run, row in line.failures:
            log = f" (log: {row.log})" if row.log else ""
            yield f"{line.task}, {run}: {row.state.replace('_', ' ')}: {row.message}{log}"
    left = sum(line.left for line in status.lines)
    if status.holder is not None:
        since = duration(time.time() - status.holder.since)
        ends = "" if status.seconds_left is None else f", about {duration(status.seconds_left)} left"
        yield f"at work for {since} (process {status.holder.process} on {status.holder.host}): {left} runs left{ends}"
    elif left:
        yield f"no process is at work: {left} runs left; the same command without --status continues"
    elif status.finished:
        yield "finished: see summary.md"
    else:
        yield "all runs are done; the same command without --status writes the summary"

"""The last outcome of every run of a study, in small files beside its runs: what failed and why, and the seconds of each.

Whether a run is done is decided by its own folder alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from retinabench.core.atomic_files import write_json
from retinabench.experiments.config import Run
from retinabench.experiments.engines.jobs import Job, JobEngine, Outcome, State
from retinabench.experiments.run_folder import describe
from retinabench.experiments.search.search import training_seconds

FOLDER = "outcomes"
RunKey = tuple[Path, str]  # parent of the run's folder, and the run's hash


@dataclass
class RecordingEngine:
    """An engine that records every outcome in the study's folder, and computes no job twice in one command.

    Args:
        engine: Computes the jobs.
        out: The study's folder.
        fingerprint: Returns the fingerprint of a run's data, which is part of the run's hash.
        seen: Outcomes of the jobs of this command.
    """

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
        """Note a run whose folder is done; where the command was killed between the two, its record is missing or old.

        Args:
            job: The run.
            folder: Its folder.
        """
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
    """The last outcome of a run, as `outcomes/HASH.json` holds it.

    Args:
        run: The run in a few words.
        state: `done`, `diverged`, `out_of_memory` or `failed`.
        seconds: Time of the last start.
        attempts: How often it was started.
        message: One line, empty when done.
        at: When it ended, in seconds since the epoch.
        log: The file with its output, where there is one.
    """

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

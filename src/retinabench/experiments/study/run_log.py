"""What came of every job of a study, kept beside its runs: who reads the folder sees what failed, and why.

One small file per run, `outcomes/HASH.json`: its seconds are what `status` tells the time left by. Whether a run is done
is said by its folder alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinabench.core.atomic_files import write_json
from retinabench.experiments.config import Run
from retinabench.experiments.engines.jobs import Job, JobEngine, Outcome
from retinabench.experiments.run import describe

FOLDER = "outcomes"
Key = tuple[Path, str]  # below which folder, and the run's hash


@dataclass
class Recorded:
    """An engine that notes every outcome in `out`, and computes no job twice in one command.

    fingerprint: of a run's data, as its hash has it. seen: what came of the jobs of this command.
    """

    engine: JobEngine
    out: Path
    fingerprint: Callable[[Run], str]
    seen: dict[Key, Outcome] = field(default_factory=dict)

    def key(self, job: Job) -> Key:
        """Return what tells one job from another: two methods of a study may have runs in common."""
        return job.out, job.run.hash(self.fingerprint(job.run))

    def compute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yield the outcome of every job once; see `JobEngine`."""
        waiting: dict[Key, Job] = {}
        again: list[Key] = []
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
            self._note(key[1], outcome)
            yield outcome
        for key in again:
            yield self.seen[key]

    def _note(self, key: str, outcome: Outcome) -> None:
        file = self.out / FOLDER / f"{key}.json"
        before = read_outcome(self.out, key)
        if outcome.state == "done" and before is not None and before["state"] == "done":
            return  # found done: the seconds of the work stay
        write_json(
            file,
            {
                "run": describe(outcome.job.run),
                "state": outcome.state,
                "seconds": outcome.seconds,
                "attempts": outcome.attempts,
                "message": outcome.message,
                "at": time.time(),
                "log": None if outcome.log is None else str(outcome.log),
            },
        )


def read_outcome(out: Path, key: str) -> dict[str, Any] | None:
    """Return what came of the run of a hash, None where nothing is known yet."""
    try:
        found: dict[str, Any] = json.loads((out / FOLDER / f"{key}.json").read_text())
    except FileNotFoundError:
        return None
    return found

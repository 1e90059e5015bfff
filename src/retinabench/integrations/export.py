"""`retinabench track`: run folders in, one tracker's runs out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from retinabench.core.errors import InputError, nearest
from retinabench.core.progress import QUIET, Progress
from retinabench.integrations import tensorboard, wandb
from retinabench.integrations.record import read_record

# A tracker is a module with `export(records, out, project) -> lines`.
TRACKERS: dict[str, ModuleType] = {"tensorboard": tensorboard, "wandb": wandb}


def track_runs(
    folders: Sequence[Path],
    to: str,
    out: Path,
    *,
    project: str,
    rules: str = "corrected",
    progress: Progress = QUIET,
) -> list[str]:
    """Export run folders, finished or still in training; return what was written, a line each.

    Raises `InputError` where the tracker is unknown or not installed, a folder is no run, or two share a name.
    """
    if to not in TRACKERS:
        raise InputError(f"unknown tracker '{to}'", hint=nearest(to, TRACKERS))
    records = []
    with progress.track("Reading runs", len(folders), unit="runs") as advance:
        for folder in folders:
            records.append(read_record(folder, rules))
            advance(1)
    names = [record.name for record in records]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two folders are called '{twice}'", hint="Export them to different --out folders.")
    lines: list[str] = TRACKERS[to].export(records, out, project)
    return lines

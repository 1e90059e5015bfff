"""Export of run folders to a tracker, for `retinabench track`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from retinabench.core.errors import InputError, nearest
from retinabench.core.progress import QUIET, Progress
from retinabench.integrations import mlflow, tensorboard, wandb
from retinabench.integrations.tracked_run import read_run
from retinabench.metrics.score import Rules

TRACKERS: dict[str, ModuleType] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}
"""Modules with a function `export(runs, out, project)` that returns lines about what it wrote."""


def track_runs(
    folders: Sequence[Path],
    to: str,
    out: Path,
    *,
    project: str,
    rules: Rules = "corrected",
    progress: Progress = QUIET,
) -> list[str]:
    """Export run folders, finished or still in training.

    Args:
        folders: The run folders.
        to: Name of the tracker.
        out: Folder for its files.
        project: Project on the server, where the tracker has projects.
        rules: Rules of the scores.
        progress: Reports the progress.

    Returns:
        A line for each run that was written.

    Raises:
        InputError: Where the tracker is unknown or not installed, a folder is not a run, or two share a name.
    """
    if to not in TRACKERS:
        raise InputError(f"unknown tracker '{to}'", hint=nearest(to, TRACKERS))
    runs = []
    with progress.track("Reading runs", len(folders), unit="runs") as advance:
        for folder in folders:
            runs.append(read_run(folder, rules))
            advance(1)
    names = [run.name for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"two folders have the name '{twice}'", hint="Export them to different --out folders."
        )
    lines: list[str] = TRACKERS[to].export(runs, out, project)
    return lines

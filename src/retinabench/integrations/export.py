"""Export of run folders to a tracker, for `retinabench track`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from retinabench.core.errors import InputError, nearest
from retinabench.core.progress import QUIET, Advance, Progress
from retinabench.integrations import mlflow, tensorboard, wandb
from retinabench.integrations.tracked_run import TrackedRun, read_run
from retinabench.metrics.scoring import Rules

TRACKERS: dict[str, ModuleType] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}
"""Modules with a function `export(runs, out, project)` that returns lines about what it wrote."""
MOST_RUNS = 10_000


def track_runs(
    folders: Sequence[Path],
    to: str,
    out: Path,
    *,
    project: str,
    rules: Rules = "corrected",
    progress: Progress = QUIET,
) -> list[str]:
    """Export run folders, finished or still in training, one after the other."""
    if to not in TRACKERS:
        raise InputError(f"unknown tracker '{to}'", hint=nearest(to, TRACKERS))
    if len(folders) > MOST_RUNS:
        raise InputError(
            f"{len(folders):,} runs are more than are exported at once ({MOST_RUNS:,})",
            hint="Export them in several commands; each adds to what was exported before.",
        )
    names = Counter(folder.resolve().name for folder in folders)
    if names and (twice := names.most_common(1)[0])[1] > 1:
        raise InputError(
            f"two folders have the name '{twice[0]}'", hint="Export them to different --out folders."
        )
    for folder in folders:  # before anything is written
        if not (folder / "run.json").is_file():
            read_run(folder, rules)
    with progress.track("Exporting", len(folders), unit="runs") as advance:
        lines: list[str] = TRACKERS[to].export(_each_run(folders, rules, advance), out, project)
    return lines


def _each_run(folders: Sequence[Path], rules: Rules, advance: Advance) -> Iterator[TrackedRun]:
    for folder in folders:
        yield read_run(folder, rules)
        advance(1)

"""The command `track`: export of runs to other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from retinabench.cli.options import Out, Rules, Silent
from retinabench.cli.output import progress_of


def track(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, finished or still in training.")],
    to: Annotated[
        str, typer.Option("--to", help="tensorboard, or wandb (WANDB_MODE=offline: without network).")
    ] = "tensorboard",
    out: Out = Path("tracking"),
    project: Annotated[str, typer.Option("--project", help="Project of Weights & Biases.")] = "retinabench",
    rules: Rules = "corrected",
    quiet: Silent = False,
) -> None:
    """Export settings, curves and scores of runs to TensorBoard or Weights & Biases; repeat it to add new epochs."""
    from retinabench.integrations.export import track_runs

    for line in track_runs(folders, to, out, project=project, rules=rules, progress=progress_of(quiet)):
        print(line)

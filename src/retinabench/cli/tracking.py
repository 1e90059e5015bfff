"""Runs shown in other tools: `track`."""

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
    project: Annotated[str, typer.Option("--project", help="Of Weights & Biases.")] = "retinabench",
    rules: Rules = "corrected",
    quiet: Silent = False,
) -> None:
    """Show settings, curves and scores of runs in TensorBoard or Weights & Biases; repeat it to add what is new."""
    from retinabench.integrations.export import track_runs

    for line in track_runs(folders, to, out, project=project, rules=rules, progress=progress_of(quiet)):
        print(line)

"""`retinabench fidelity tune`: search an entry's settings on a development target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retinabench.cli.options import Seed, Silent
from retinabench.cli.output import progress_of

if TYPE_CHECKING:
    from retinabench.fidelity.submissions.tuning import Trial


def tune(
    method: Annotated[str, typer.Argument(help="An entry for which settings are searched.")],
    task: Annotated[
        str, typer.Option("--task", help="A development target: fundus-small or energy-gap-wall.")
    ] = "fundus-small",
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The target's data, where they do not come with the package."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option("--reference", help="Its reference; default: the shipped one.")
    ] = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Points of the search space.")] = 8,
    budget: Annotated[
        float, typer.Option("--budget", min=1, help="Gradient evaluations per training example, each trial.")
    ] = 1000,
    out: Annotated[Path, typer.Option("--out", help="Folder for runs and records.")] = Path(
        "fidelity-tuning"
    ),
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Search the settings that come closest to a development target's reference; a killed search continues."""
    from retinabench.experiments.execution import Resources
    from retinabench.fidelity.submissions.runner import CPU
    from retinabench.fidelity.submissions.tuning import tune as search
    from retinabench.fidelity.targets.registry import TARGETS

    found = search(
        method, TARGETS.find(task), data, reference, trials=trials, budget=budget, seed=seed, out=out,
        resources=Resources(CPU.device, 0, progress_of(quiet)),
    )  # fmt: skip
    for number, trial in enumerate(found.trials):
        print(
            f"{number:3}  {'failed' if trial.distance is None else f'{trial.distance:.4f}'}  {_settings(trial)}"
        )
    print(f"best: {found.best.distance:.4f}  {_settings(found.best)}")
    print(out / f"{method}-{task}.json")


def _settings(trial: Trial) -> str:
    return " ".join(f"{key}={value}" for key, value in trial.settings.items())

"""From one configuration to the best of many: `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from retinabench.cli.options import (
    Address,
    Attempts,
    Cpus,
    Device,
    Gpus,
    Out,
    Parallel,
    Rules,
    RunEngine,
    Seed,
    Silent,
    Storage,
)
from retinabench.cli.output import progress_of


def tune(
    data: Annotated[Path, typer.Option("--data", help="Prepared folder.")],
    space: Annotated[
        str,
        typer.Option("--space", help="TOML file of ranges, or one that comes along, such as demo/dropout."),
    ],
    shifted: Annotated[
        Path | None, typer.Option("--shifted", help="Another one, whose images are the shifted domain.")
    ] = None,
    out: Out = Path("sweep"),
    config: Annotated[
        str | None, typer.Option("--config", help="TOML file or preset of what the space does not vary.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value, such as optimizer.epochs=20.")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="As of `train`; default: country_shift.")] = None,
    method: Annotated[str | None, typer.Option("--method", help="As of `train`.")] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Points of the space; more later keep the first.")
    ] = 32,
    criterion: Annotated[
        Literal["in_domain_auroc", "balanced_joint_accuracy_area"],
        typer.Option(
            "--criterion", help="What ranks the trials, on the validation split; see docs/tuning.md."
        ),
    ] = "in_domain_auroc",
    rules: Rules = "corrected",
    halving: Annotated[
        int | None,
        typer.Option(
            "--halving", min=2, help="Give up hopeless trials: the best 1/N train N times as long, twice."
        ),
    ] = None,
    engine: RunEngine = "local",
    parallel: Parallel = None,
    address: Address = None,
    cpus: Cpus = 1.0,
    gpus: Gpus = 0.0,
    storage: Storage = None,
    attempts: Attempts = 2,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Silent = False,
) -> None:
    """Search the hyper-parameters of a method: compute trials, rank them, write the best as a configuration.

    The same command continues a stopped search; more --trials add to it, another --criterion ranks it anew.
    """
    from rich.console import Console

    from retinabench.experiments.config import load_run
    from retinabench.experiments.engines.engine import make_engine
    from retinabench.experiments.search.plots import write_figures
    from retinabench.experiments.search.ranking import ranking_table, write_ranking
    from retinabench.experiments.search.search import search
    from retinabench.experiments.search.space import read_space
    from retinabench.reports.toolkit.renderers import to_terminal

    words = list(overrides or ())
    if method is not None:
        words.insert(0, f'method.name="{method}"')
    base = load_run(
        config, words, data=str(data), shifted=None if shifted is None else str(shifted), task=task, seed=seed
    )
    ranges = read_space(space)
    progress = progress_of(quiet)
    workers = make_engine(
        engine, parallel=parallel, device=device, address=address, cpus=cpus, gpus=gpus, storage=storage,
        attempts=attempts, progress=progress,
    )  # fmt: skip
    ranking = search(
        base, ranges, trials=trials, criterion=criterion, rules=rules, out=out, engine=workers, seed=seed,
        halving=halving, progress=progress,
    )  # fmt: skip
    folder = out / f"{criterion}-{rules}"
    write_ranking(ranking, folder)
    write_figures(ranking, folder)
    Console().print(to_terminal(ranking_table(ranking)))
    if ranking.first:  # says why where there is none
        print(folder / "best.toml")

"""From one configuration to the best of many: `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from retinabench.cli.application import option, print_table, progress_of, say
from retinabench.cli.options import (
    Address,
    Attempts,
    Config,
    Cpus,
    Data,
    Device,
    Gpus,
    Method,
    Out,
    Overrides,
    Parallel,
    Rules,
    RunEngine,
    Seed,
    Shifted,
    Silent,
    Storage,
    Task,
)
from retinabench.cli.training import configured_run

SpaceFile = Annotated[
    str, option("--space", "NAME|FILE", "TOML file of ranges, or one that comes along, such as demo/dropout.")
]
Trials = Annotated[int, option("--trials", "N", "Points of the space; more later keep the first.", min=1)]
Criterion = Annotated[
    Literal["in_domain_auroc", "balanced_joint_accuracy_area"],
    option(
        "--criterion",
        "CRITERION",
        "What ranks the trials, on the validation split: in_domain_auroc or balanced_joint_accuracy_area.",
    ),
]
Halving = Annotated[
    int | None,
    option("--halving", "N", "Give up hopeless trials: the best 1/N train N times as long, twice.", min=2),
]


def tune(
    data: Data,
    space: SpaceFile,
    shifted: Shifted = None,
    out: Out = Path("sweep"),
    config: Config = None,
    overrides: Overrides = None,
    task: Task = None,
    method: Method = None,
    trials: Trials = 32,
    criterion: Criterion = "in_domain_auroc",
    rules: Rules = "corrected",
    halving: Halving = None,
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

    from retinabench.experiments.engines.engine import make_engine, precision_of
    from retinabench.experiments.search.plots import write_figures
    from retinabench.experiments.search.ranking import ranking_table, write_ranking
    from retinabench.experiments.search.search import search
    from retinabench.experiments.search.space import read_space
    from retinabench.reports.toolkit.terminal import to_terminal

    precision = precision_of(engine, device, gpus)
    base = configured_run(config, overrides, data, shifted, task, method, seed, precision)
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
    print_table(to_terminal(ranking_table(ranking)))
    if ranking.first:  # says why where there is none
        say(folder / "best.toml")

"""Many runs in one command: `tune`, `benchmark` and `uci`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli.application import argument, flag, option, print_table, progress_of, say
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
    Workers,
)
from retinabench.cli.training import configured_run
from retinabench.core.errors import InputError
from retinabench.core.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from retinabench.experiments.engines.scheduler import JobEngine
    from retinabench.experiments.study.definition import Study


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
    from retinabench.reports.toolkit.tables import to_terminal

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


StudyName = Annotated[
    str,
    typer.Argument(
        metavar="PRESET|FILE.toml",
        help="demo, synthetic, severity, country, blur_country, blur_severity, filos2019, or a study of your own.",
    ),
]

StudyOverrides = Annotated[
    list[str] | None, argument("KEY=VALUE", "key=value, such as seeds=3 or base.optimizer.epochs=10.")
]

StudyOut = Annotated[Path | None, option("--out", "FOLDER", "Folder to write into; default: benchmark-NAME.")]

Plan = Annotated[
    bool, flag("--plan", help="Only say what it will compute, in hours and disk, from a timed probe.")
]

Speed = Annotated[
    float | None,
    option(
        "--images-per-second",
        "X",
        "With --plan: price GPU-hours at so many training images of MAP per second; the data need not be there.",
        min=1e-6,
    ),
]

Status = Annotated[bool, flag("--status", help="Only say where it stands, also while another process works.")]

FirstSeed = Annotated[
    int | None, option("--seed", "N", "First seed of the runs, and of all else that is random.", min=0)
]

UciSets = Annotated[
    str | None,
    option(
        "--sets",
        "SETS",
        "boston, concrete, energy, kin8nm, naval, power, protein, wine, yacht, joined by commas; "
        "default: those that are there.",
    ),
]


def benchmark(
    study: StudyName,
    overrides: StudyOverrides = None,
    out: StudyOut = None,
    plan: Plan = False,
    images_per_second: Speed = None,
    status: Status = False,
    seed: FirstSeed = None,
    engine: RunEngine = "local",
    address: Address = None,
    parallel: Parallel = None,
    device: Device = "auto",
    cpus: Cpus = 1.0,
    gpus: Gpus = 0.0,
    storage: Storage = None,
    attempts: Attempts = 2,
    quiet: Silent = False,
) -> None:
    """Tune, train with several seeds, ensemble, score and tabulate several methods; the same command continues."""
    from retinabench.experiments.study.definition import read_study

    words = [*(overrides or ()), *([] if seed is None else [f"seed={seed}"])]
    definition = read_study(study, words)
    folder = out or Path(f"benchmark-{Path(study).stem}")
    from retinabench.experiments.engines.engine import make_engine, precision_of

    if definition.precision is None:
        definition = definition.model_copy(update={"precision": precision_of(engine, device, gpus)})
    if status:
        _show_status(definition, folder)
        return

    progress = progress_of(quiet)

    def begin() -> JobEngine:
        return make_engine(
            engine, parallel=parallel, device=device, address=address, cpus=cpus, gpus=gpus, storage=storage,
            attempts=attempts, progress=progress, readers=definition.readers,
        )  # fmt: skip

    if images_per_second is not None and not plan:
        raise InputError("--images-per-second is for --plan", hint="Add --plan, or leave it out.")
    if plan:
        local = begin if engine == "local" and images_per_second is None else None
        threads = max(1, int(cpus))
        _show_plan(definition, folder, local, parallel, device, threads, progress, images_per_second)
    else:
        _compute(definition, folder, begin(), progress)


def _show_status(definition: Study, folder: Path) -> None:
    from retinabench.experiments.study import console
    from retinabench.experiments.study.status import read_status
    from retinabench.reports.toolkit.tables import to_terminal

    found = read_status(definition, folder)
    print_table(to_terminal(console.status_table(found)))
    for line in console.status_lines(found):
        say(line)


def _show_plan(
    definition: Study,
    folder: Path,
    local: Callable[[], JobEngine] | None,
    parallel: int | None,
    device: str,
    threads: int,
    progress: Progress,
    images_per_second: float | None,
) -> None:
    from retinabench.experiments.engines.engine import LocalEngine
    from retinabench.experiments.execution import Resources
    from retinabench.experiments.study import console
    from retinabench.experiments.study.plan import make_plan
    from retinabench.reports.toolkit.tables import to_terminal

    engine = local() if local is not None else None
    places = engine.places if isinstance(engine, LocalEngine) else parallel
    planned = make_plan(definition, folder, Resources(device), places, threads, progress, images_per_second)
    print_table(to_terminal(console.plan_table(planned)))
    for line in console.plan_lines(planned):
        say(line)


def _compute(definition: Study, folder: Path, engine: JobEngine, progress: Progress) -> None:
    from retinabench.experiments.study import console
    from retinabench.experiments.study.benchmark import benchmark as run_benchmark
    from retinabench.reports.toolkit.tables import to_terminal

    summary = run_benchmark(definition, folder, engine, progress)
    for table in console.summary_tables(summary):
        print_table(to_terminal(table))
    for note in summary.notes:
        say(f"note: {note}", error=True)
    say(folder / "summary.md")


def uci(
    source: Annotated[Path, option("--source", "PATH", "Folder with the UCI sets, such as UCI_Datasets.")],
    sets: UciSets = None,
    out: Out = Path("uci"),
    epochs: Annotated[
        int, option("--epochs", "N", "40: the standard protocol; 400: to convergence.", min=1)
    ] = 40,
    workers: Workers = None,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Compare MC dropout, mean-field VI and deep ensembles on the UCI regression sets, beside the published table."""
    from retinabench.experiments.uci import compare_methods

    names = [name.strip() for name in sets.split(",")] if sets is not None else []
    files = compare_methods(
        source,
        names,
        out,
        epochs=epochs,
        seed=seed,
        workers=workers or os.cpu_count() or 1,
        progress=progress_of(quiet),
    )
    for file in files:
        say(file)

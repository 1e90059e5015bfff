"""A whole study in one command: `benchmark`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retinabench.cli.options import (
    Address,
    Attempts,
    Cpus,
    Device,
    Gpus,
    Parallel,
    RunEngine,
    Silent,
    Storage,
)
from retinabench.cli.output import progress_of

if TYPE_CHECKING:
    from retinabench.experiments.engines.jobs import JobEngine


def benchmark(
    study: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|FILE.toml",
            help="demo, synthetic, severity, country, filos2019, or a study of your own.",
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value, such as seeds=3 or base.optimizer.epochs=10.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write into; default: benchmark-NAME.")
    ] = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Only say what it will compute, in hours and disk, from a timed probe."),
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Only say where it stands, also while another process works.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="First seed of the runs, and of all else that is random."),
    ] = None,
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
    from rich.console import Console

    from retinabench.experiments.study import console
    from retinabench.experiments.study.definition import read_study
    from retinabench.reports.toolkit.renderers import to_terminal

    words = [*(overrides or ()), *([] if seed is None else [f"seed={seed}"])]
    definition = read_study(study, words)
    folder = out or Path(f"benchmark-{Path(study).stem}")
    progress = progress_of(quiet)
    screen = Console()
    if status:
        from retinabench.experiments.study.status import read_status

        found = read_status(definition, folder)
        screen.print(to_terminal(console.status_table(found)))
        for line in console.status_lines(found):
            print(line)
        return
    from retinabench.experiments.engines.engine import make_engine

    def begin() -> JobEngine:
        return make_engine(
            engine,
            parallel=parallel,
            device=device,
            address=address,
            cpus=cpus,
            gpus=gpus,
            storage=storage,
            attempts=attempts,
            progress=progress,
        )

    if plan:
        from retinabench.experiments.engines.local import LocalEngine
        from retinabench.experiments.execution import Resources
        from retinabench.experiments.study.cost_plan import make_plan

        computes = begin() if engine == "local" else None
        places = computes.places if isinstance(computes, LocalEngine) else parallel
        planned = make_plan(definition, folder, Resources(device), places, max(1, int(cpus)), progress)
        screen.print(to_terminal(console.plan_table(planned)))
        for line in console.plan_lines(planned):
            print(line)
        return
    from retinabench.experiments.study.benchmark import benchmark as run_benchmark

    summary = run_benchmark(definition, folder, begin(), progress)
    for table in console.summary_tables(summary):
        screen.print(to_terminal(table))
    for note in summary.notes:
        print(f"note: {note}", file=sys.stderr)
    print(folder / "summary.md")

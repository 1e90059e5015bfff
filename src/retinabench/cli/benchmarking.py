"""A whole study in one command: `benchmark`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinabench.cli.options import Device, Silent
from retinabench.cli.output import progress_of

if TYPE_CHECKING:
    from retinabench.tune.jobs import JobEngine


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
    engine: Annotated[
        Literal["local", "ray"], typer.Option("--engine", help="Processes of this machine, or a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="Of a running Ray cluster; default: one of this machine.")
    ] = None,
    parallel: Annotated[int | None, typer.Option("--parallel", min=1, help="Runs at once.")] = None,
    device: Device = "auto",
    cpus: Annotated[float, typer.Option("--cpus", min=0, help="Cores of one run, on Ray.")] = 1.0,
    gpus: Annotated[
        float, typer.Option("--gpus", min=0, help="GPUs of one run, on Ray; 0.5: two share one.")
    ] = 0.0,
    storage: Annotated[
        str | None,
        typer.Option("--storage", help="Where a cluster's runs meet: a shared folder or an fsspec URL."),
    ] = None,
    attempts: Annotated[int, typer.Option("--attempts", min=1, help="Tries of a run that fails.")] = 2,
    quiet: Silent = False,
) -> None:
    """Tune, train with several seeds, ensemble, score and tabulate several methods; the same command continues."""
    from rich.console import Console

    from retinabench.protocol import console
    from retinabench.protocol.definition import read_study

    words = [*(overrides or ()), *([] if seed is None else [f"seed={seed}"])]
    definition = read_study(study, words)
    folder = out or Path(f"benchmark-{Path(study).stem}")
    progress = progress_of(quiet)
    screen = Console()
    if status:
        from retinabench.protocol.status import read_status

        found = read_status(definition, folder)
        screen.print(console.status_table(found))
        for line in console.status_lines(found):
            print(line)
        return
    from retinabench.tune.engine import make_engine

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
        from retinabench.protocol.plan import make_plan
        from retinabench.run import Engine
        from retinabench.tune.local import LocalEngine

        computes = begin() if engine == "local" else None
        places = computes.places if isinstance(computes, LocalEngine) else parallel
        planned = make_plan(definition, folder, Engine(device), places, max(1, int(cpus)), progress)
        screen.print(console.plan_table(planned))
        for line in console.plan_lines(planned):
            print(line)
        return
    from retinabench.protocol.benchmark import benchmark as run_benchmark

    summary = run_benchmark(definition, folder, begin(), progress)
    for table in console.summary_tables(summary):
        screen.print(table)
    for note in summary["notes"]:
        print(f"note: {note}", file=sys.stderr)
    print(folder / "summary.md")

"""The 2019 UCI comparison: `uci`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from retinabench.cli.options import Out, Seed, Silent, Workers
from retinabench.cli.output import progress_of


def uci(
    source: Annotated[Path, typer.Option("--source", help="Folder with the UCI sets, such as UCI_Datasets.")],
    sets: Annotated[
        str | None,
        typer.Option(
            "--sets",
            help="boston, concrete, energy, kin8nm, naval, power, protein, wine, yacht, joined by commas; "
            "default: those that are there.",
        ),
    ] = None,
    out: Out = Path("uci"),
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, help="40: the standard protocol; 400: to convergence.")
    ] = 40,
    workers: Workers = None,
    seed: Seed = 0,
    quiet: Silent = False,
) -> None:
    """Compare MC dropout, mean-field VI and deep ensembles on the UCI regression sets, beside the published table."""
    from retinabench.experiments.uci.comparison import compare_methods

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
        print(file)

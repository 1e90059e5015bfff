"""Options that several verbs share, and what their help says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from retinabench.data.registry import TASKS
from retinabench.methods.registry import METHODS

Out = Annotated[Path, typer.Option("--out", help="Folder to write into.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
Silent = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; default: one per core.")]
Threads = Annotated[int | None, typer.Option("--workers", min=1, help="Threads; default: one per core.")]
Readers = Annotated[int, typer.Option("--readers", min=0, help="Processes that read images ahead.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Rules = Annotated[
    Literal["corrected", "published"],
    typer.Option(
        "--rules", help="corrected: ours; published: as the released Retina Benchmark, faults included."
    ),
]
Uncertainty = Annotated[
    str,
    typer.Option(
        "--uncertainty",
        help="What orders the referral: auto, own, total, epistemic, aleatoric, variance, max_probability, margin.",
    ),
]
Threshold = Annotated[
    str,
    typer.Option(
        "--threshold",
        help="From which probability on an image counts as referable: 0.3, youden, sensitivity=.85@validation, "
        "specificity=.9@validation; default: above 0.5.",
    ),
]
Json = Annotated[Path | None, typer.Option("--json", help="Write everything as JSON.")]
Bootstrap = Annotated[int, typer.Option("--bootstrap", min=0, help="Replicates for the intervals; 0: none.")]

# Of the verbs that train.
Data = Annotated[Path, typer.Option("--data", help="Prepared folder.")]
Shifted = Annotated[
    Path | None, typer.Option("--shifted", help="A second prepared folder, to test on as the shifted domain.")
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config", help="TOML file, or a preset such as demo/map; settings left out have defaults."
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="key=value, such as method.rate=0.2 or optimizer.epochs=20.")
]
Task = Annotated[str | None, typer.Option("--task", help=f"One of: {', '.join(TASKS)}.")]
Method = Annotated[str | None, typer.Option("--method", help=f"One of: {', '.join(METHODS)}.")]

# Of the verbs that compute many runs.
RunEngine = Annotated[
    Literal["local", "ray"], typer.Option("--engine", help="Processes of this machine, or a Ray cluster.")
]
Address = Annotated[
    str | None, typer.Option("--address", help="Of a running Ray cluster; default: one of this machine.")
]
Parallel = Annotated[
    int | None, typer.Option("--parallel", min=1, help="Runs at a time; default: as many as fit.")
]
Cpus = Annotated[float, typer.Option("--cpus", min=0, help="Cores of one run, on Ray.")]
Gpus = Annotated[float, typer.Option("--gpus", min=0, help="GPUs of one run, on Ray; 0.5: two share one.")]
Storage = Annotated[
    str | None,
    typer.Option("--storage", help="Where a cluster's runs meet: a shared folder or an fsspec URL."),
]
Attempts = Annotated[int, typer.Option("--attempts", min=1, help="How often a run that fails is started.")]

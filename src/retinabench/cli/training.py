"""From prepared data to predictions: `demo` (the whole path on drawn retinas), `train`, `predict`; `check` of a method."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retinabench.cli.options import (
    Config,
    Data,
    Device,
    Method,
    Out,
    Overrides,
    Readers,
    Seed,
    Shifted,
    Silent,
    Task,
    Workers,
)
from retinabench.cli.output import progress_of
from retinabench.core.errors import WorkError

if TYPE_CHECKING:
    from retinabench.experiments.config import Run


def demo(
    out: Out = Path("retinabench-demo"), seed: Seed = 0, workers: Workers = None, quiet: Silent = False
) -> None:
    """Draw retinas, train MAP, MC dropout and a deep ensemble, score them under camera shift, write a report."""
    from retinabench.experiments.demo import run_demo

    run_demo(out, seed=seed, workers=workers, progress=progress_of(quiet))


def train(
    data: Data,
    shifted: Shifted = None,
    out: Out = Path("runs"),
    config: Config = None,
    overrides: Overrides = None,
    task: Task = None,
    method: Method = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of weights, order and noise.")
    ] = None,
    device: Device = "auto",
    readers: Readers = 0,
    quiet: Silent = False,
) -> None:
    """Train one run and write its predictions; the same command continues a killed one."""
    from retinabench.experiments.execution import Resources
    from retinabench.experiments.run import execute
    from retinabench.methods.training.distributed import current

    run = configured_run(config, overrides, data, shifted, task, method, seed)
    folder = execute(run, out, Resources(device, readers, progress_of(quiet)))
    if current().leads:  # of several processes that train together, one prints
        print(folder / "predictions.parquet")


def predict(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[Path, typer.Option("--data", help="Prepared folder, to test on as the shifted domain.")],
    out: Annotated[Path, typer.Option("--out", help="Predictions file to write: .parquet, .csv or .npz.")],
    device: Device = "auto",
    readers: Readers = 0,
    quiet: Silent = False,
) -> None:
    """Test a trained run on another data set, without training again."""
    from retinabench.experiments.execution import Resources
    from retinabench.experiments.predict import predict_on

    print(predict_on(folder, data, out, Resources(device, readers, progress_of(quiet))))


def check(
    method: Annotated[
        str,
        typer.Argument(
            help="A method's name, its Python file (my_method.py) or its module (my_package.mine)."
        ),
    ],
    overrides: Overrides = None,
    quiet: Silent = False,
) -> None:
    """Check in seconds that one method keeps its contract: seeds, saved state, shapes, continued trainings."""
    from retinabench.experiments.conformance import check_method, find_method

    failed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for one in check_method(find_method(method), Path(folder), tuple(overrides or ())):
            count, failed = count + 1, failed + bool(one.problem)
            if one.problem:
                print(f"failed  {one.check}: {one.problem}", flush=True)
            elif not quiet:
                print(f"ok      {one.check} ({one.seconds:.1f} s)", flush=True)
    if failed:
        raise WorkError(f"{failed} of {count} checks failed")


def configured_run(
    config: str | None,
    overrides: list[str] | None,
    data: Path,
    shifted: Path | None,
    task: str | None,
    method: str | None,
    seed: int | None,
) -> Run:
    """Return the run that the options of a verb describe; `method` counts before the overrides."""
    from retinabench.experiments.config import load_run

    words = [*([] if method is None else [f'method.name="{method}"']), *(overrides or ())]
    second = None if shifted is None else str(shifted)
    return load_run(config, words, data=str(data), shifted=second, task=task, seed=seed)

"""From prepared data to predictions: `demo` (the whole path on drawn retinas), `train`, `predict`, `track`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from retinabench.cli import main as cli
from retinabench.core.errors import InputError
from retinabench.data.registry import TASKS
from retinabench.methods.registry import METHODS

if TYPE_CHECKING:
    from retinabench.experiments.config import Run

Data = Annotated[Path, cli.option("--data", "FOLDER", "Prepared folder.")]
Shifted = Annotated[
    Path | None, cli.option("--shifted", "FOLDER", "A second prepared folder, to test on as the shifted domain.")
]
Config = Annotated[
    str | None,
    cli.option("--config", "NAME|FILE", "TOML file, or a preset such as demo/map; settings left out have defaults."),
]
Task = Annotated[str | None, cli.option("--task", "TASK", f"One of: {', '.join(TASKS)}.")]
Method = Annotated[str | None, cli.option("--method", "METHOD", f"One of: {', '.join(METHODS)}.")]


def demo(
    out: cli.Out = Path("retinabench-demo"), seed: cli.Seed = 0, workers: cli.Workers = None, quiet: cli.Silent = False
) -> None:
    """Draw retinas, train MAP, MC dropout and a deep ensemble, score them under camera shift, write a report."""
    from retinabench.experiments.demo import run_demo

    run_demo(out, seed=seed, workers=workers, progress=cli.progress_of(quiet))


def train(
    data: Data,
    shifted: Shifted = None,
    out: cli.Out = Path("runs"),
    config: Config = None,
    overrides: cli.Overrides = None,
    task: Task = None,
    method: Method = None,
    model: cli.Model = None,
    seed: Annotated[int | None, cli.option("--seed", "N", "Seed of weights, order and noise.", min=0)] = None,
    tracker: Annotated[
        str | None,
        cli.option(
            "--track", "TRACKER", "Show the training live, in the folder `tracking`: tensorboard, wandb, mlflow."
        ),
    ] = None,
    device: cli.Device = "auto",
    readers: cli.Readers = None,
    quiet: cli.Silent = False,
) -> None:
    """Train one run and write its predictions; the same command continues a killed one."""
    cli.import_scipy()
    from retinabench.experiments.execution import Resources
    from retinabench.experiments.run import execute
    from retinabench.methods.training.distributed import current

    resources = Resources(device, readers, cli.progress_of(quiet))
    if tracker is not None:
        from retinabench.integrations.trackers import live

        resources = replace(resources, saved=live(tracker, Path("tracking"), resources.progress))
    run = configured_run(config, overrides, data, shifted, task, method, seed, resources.precision(), model)
    folder = execute(run, out, resources)
    if current().leads:  # of several processes that train together, one prints
        cli.say(folder / "predictions.parquet")


def predict(
    folder: Annotated[Path, cli.argument("RUN", "Folder of a finished run, or of an exported model.")],
    out: Annotated[Path, cli.option("--out", "FILE", "Predictions file to write: .parquet, .csv or .npz.")],
    data: Annotated[
        Path | None, cli.option("--data", "FOLDER", "With a run: prepared folder, to test on as the shifted domain.")
    ] = None,
    images: Annotated[
        Path | None, cli.option("--images", "PATH", "With an exported model: folder or zip of images, or a table.")
    ] = None,
    labels: Annotated[
        str | None,
        cli.option("--labels", "FILE", "With --images: a CSV (image, grade, patient), in that folder or elsewhere."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        cli.option("--column", "NAME=COLUMN", "With --labels: ROLE=NAME of a column, such as grade=icdr."),
    ] = None,
    model: cli.OwnModel = None,
    device: cli.Device = "auto",
    readers: cli.Readers = None,
    quiet: cli.Silent = False,
) -> None:
    """Test a trained run on another data set, or predict raw images with an exported model."""
    if (data is None) == (images is None):
        raise InputError("name either --data (with a run) or --images (with an exported model)")
    if data is not None and (labels is not None or columns):
        raise InputError("--labels and --column belong to --images")
    for word in columns or ():
        if "=" not in word:
            raise InputError(f"--column {word} is not ROLE=NAME", hint="For example: --column grade=icdr")
    from retinabench.experiments.execution import Resources
    from retinabench.methods.training.distributed import current

    resources = Resources(device, readers, cli.progress_of(quiet))
    if data is not None:
        from retinabench.experiments.predict import predict_on

        written = predict_on(folder, data, out, resources, network=model)
        if current().leads:
            cli.say(written)
    elif images is not None:
        from retinabench.experiments.exporting.model import load_model
        from retinabench.experiments.exporting.predict_images import predict_images

        named = dict(word.split("=", 1) for word in columns or ())
        exported = load_model(folder, str(resources.torch_device()), model=model)
        found = predict_images(exported, images, out, labels=labels, columns=named, progress=cli.progress_of(quiet))
        for line in found.refused:
            cli.say(f"left out: {line}", error=True)
        cli.print_notes(found.notes)
        cli.say(found.predictions)
        cli.say(found.referral_list)


def export(
    folder: Annotated[Path, cli.argument("RUN", "Folder of a finished run.")],
    out: Annotated[Path, cli.option("--out", "FOLDER", "Folder to write; new or empty.")],
    model: cli.OwnModel = None,
) -> None:
    """Write a finished run as a model that predicts images, or rows of a table, on any machine, without the training data."""
    from retinabench.experiments.exporting.model import export_run

    cli.say(export_run(folder, out, network=model))


def configured_run(
    config: str | None,
    overrides: list[str] | None,
    data: Path,
    shifted: Path | None,
    task: str | None,
    method: str | None,
    seed: int | None,
    precision: str | None = None,
    model: str | None = None,
) -> Run:
    from retinabench.experiments.config import load_run

    named = {"method.name": method, "model.name": model}
    words = [*(f"{key}={json.dumps(name)}" for key, name in named.items() if name is not None), *(overrides or ())]
    second = None if shifted is None else str(shifted)
    return load_run(config, words, precision, data=str(data), shifted=second, task=task, seed=seed)


def track(
    folders: Annotated[list[Path], cli.argument("FOLDER", "Run folders, finished or still in training.")],
    to: Annotated[
        str, cli.option("--to", "TRACKER", "tensorboard, mlflow, or wandb (WANDB_MODE=offline: without network).")
    ] = "tensorboard",
    out: cli.Out = Path("tracking"),
    quiet: cli.Silent = False,
) -> None:
    """Export settings, curves and scores of runs to TensorBoard, MLflow or Weights & Biases; repeat it to add new epochs."""
    from retinabench.integrations.trackers import track_runs

    for line in track_runs(folders, to, out, progress=cli.progress_of(quiet)):
        cli.say(line)

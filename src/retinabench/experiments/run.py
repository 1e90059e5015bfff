"""One Run, from data to predictions: idempotent, resumable, the same bits every time on one machine.

The run's folder is named after its method, seed and hash and holds
- `run.json`: the run, its identity and where it was computed; written first;
- `last.pt`, `best.pt`, `metrics.jsonl`, `samples/`: the training so far (`methods/checkpoint.py`, `collected.py`);
- `posterior.pt`: what the method has learnt;
- `predictions.parquet`: THE result;
- `done`: written last.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from retinabench.core.atomic_files import sweep, write_bytes, write_json
from retinabench.core.errors import DivergedError, InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.random_streams import torch_generator
from retinabench.core.version import __version__
from retinabench.data.loader import Batches
from retinabench.data.merge import recipe_of
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run
from retinabench.methods.base import Posterior, precision
from retinabench.methods.ensembles import ensemble
from retinabench.methods.mcmc.weight_samples import SAMPLES
from retinabench.methods.posthoc import temperature
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import MethodConfig
from retinabench.methods.training import distributed
from retinabench.methods.training.checkpoint import Checkpoint, load_tensors, save_tensors
from retinabench.models.build import build_model
from retinabench.predictions.io import read_predictions, write_predictions
from retinabench.predictions.table import Predictions

PREDICT_BATCH = 128
PREDICTED = ("validation", "shifted_validation", "test", "shifted_test")


@dataclass(frozen=True)
class Engine:
    """Where and how a run is computed; nothing here is part of its identity.

    Several processes started by `torchrun` train one run together (`methods/distributed.py`).
    """

    device: str = "auto"
    workers: int = 0
    progress: Progress = QUIET

    def torch_device(self) -> torch.device:
        """Return the device; `auto` takes a GPU where there is one, under `torchrun` each process its own.

        Raises `InputError` where the device is unknown or absent.
        """
        name = self.device if self.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
        if name == "cuda" and distributed.expected():
            name = distributed.local_device()
        try:
            torch.empty(0, device=name)
            return torch.device(name)
        except (RuntimeError, AssertionError):
            raise InputError(
                f"no device '{self.device}' here", hint="Valid: auto, cpu, cuda, cuda:N."
            ) from None


def execute(run: Run, out: Path, engine: Engine = Engine()) -> Path:
    """Compute `run` below `out`, or continue it, or find it done; return its folder."""
    if not distributed.join(engine.torch_device()).leads:
        engine = replace(engine, progress=QUIET)
    task = load_task(run.data, run.task, run.shifted)
    folder = run_folder(run, out, task)
    if (folder / "done").is_file():
        engine.progress.say(f"{title(run.method)}, seed {run.seed}: done before")
        return folder
    distributed.wait()  # until every process has looked for `done`
    method = METHODS[run.method.name]
    if is_composed(method):
        members = [
            read_predictions(execute(m, out, engine) / "predictions.parquet") for m in method.member_runs(run)
        ]
        _claim(folder, run, task, engine)
        combined = method.combine(members)
        about = metadata(run, task, members=combined.metadata["members"])
        predictions = replace(combined, metadata=about)
    else:
        _claim(folder, run, task, engine)
        predictions = _train_and_predict(run, task, folder, engine)
    if distributed.current().leads:
        write_predictions(predictions, folder / "predictions.parquet")
        write_bytes(folder / "done", b"")
    distributed.wait()  # until the files are there
    return folder


def run_folder(run: Run, out: Path, task: Task) -> Path:
    """Return the folder of a run: readable first, unique by its hash."""
    return out / f"{describe(run).replace(' ', '-')}-{run.hash(task.data.fingerprint)}"


def describe(run: Run) -> str:
    """Return the run in a few words: `dropout resnet18 seed 2`."""
    name = _phrase(run.method, lambda single: single.name)
    return f"{name} {run.model.name} seed {run.seed}"


def title(method: MethodConfig) -> str:
    """Return what readers call a method: `ensemble of 3 MC dropout`."""
    return _phrase(method, lambda single: single.title or single.name)


def _phrase(method: MethodConfig, word: Callable[[MethodConfig], str]) -> str:
    """Put a method into words, its members included; `word` names one that has none."""
    if isinstance(method, ensemble.Config):
        return f"ensemble of {method.members} {_phrase(method.member, word)}"
    if isinstance(method, temperature.Config):
        return f"tempered {_phrase(method.member, word)}"
    return word(method)


def is_composed(method: ModuleType) -> bool:
    """Tell whether a method composes the runs of others instead of training (`methods/base.py`)."""
    return hasattr(method, "member_runs")


def load_posterior(folder: Path, device: str = "cpu") -> tuple[Run, Posterior]:
    """Return a finished single run and its posterior.

    Raises `InputError` where the folder holds none.
    """
    try:
        run = Run(**json.loads((folder / "run.json").read_text())["run"])
        state = load_tensors(folder / "posterior.pt", mapped=True)
    except FileNotFoundError as error:
        raise InputError(
            f"holds no finished training ({Path(error.filename).name} is missing)", file=folder
        ) from None
    model = build_model(run.model, run.seed).to(device)
    posterior: Posterior = METHODS[run.method.name].build(model, run)
    posterior.restore(state)
    return run, posterior


def _claim(folder: Path, run: Run, task: Task, engine: Engine) -> None:
    if not distributed.current().leads:
        return
    sweep(folder)
    for note in task.notes:
        engine.progress.say(f"note: {note}")
    content = {
        "run": run.model_dump(mode="json"),
        "fingerprint": task.data.fingerprint,
        "identity": run.identity(task.data.fingerprint),
        "version": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processes": distributed.current().count,
    }
    write_json(folder / "run.json", content)


def _train_and_predict(run: Run, task: Task, folder: Path, engine: Engine) -> Predictions:
    device = engine.torch_device()
    batches = make_batches(run, task, device, engine.workers)
    model = build_model(run.model, run.seed).to(device)
    method = METHODS[run.method.name]
    if (folder / "posterior.pt").is_file():
        posterior = method.build(model, run)
        posterior.restore(load_tensors(folder / "posterior.pt", mapped=True))
    else:
        leads = distributed.current().leads
        what = f"Training {title(run.method)}, seed {run.seed}"
        posterior = method.fit(model, batches, run, Checkpoint(folder, engine.progress, what, writes=leads))
        distributed.wait()  # until every process has read best.pt and the samples
        if leads:
            save_tensors(folder / "posterior.pt", posterior.state())
    if distributed.current().leads:  # posterior.pt holds them now
        (folder / "best.pt").unlink(missing_ok=True)
        shutil.rmtree(folder / SAMPLES, ignore_errors=True)
    return predict(run, task, posterior, batches, engine.progress)


def make_batches(run: Run, task: Task, device: torch.device, workers: int = 0) -> Batches:
    """Return the batches of a run: its task's rows with its own settings."""
    return Batches(
        data=task.data,
        train=task.splits["train"],
        validation=task.splits["validation"],
        batch_size=run.optimizer.batch_size,
        seed=run.seed,
        augment=run.optimizer.augment,
        standardise=run.model.inputs == "standardised",
        device=device,
        workers=workers,
    )


def predict(
    run: Run, task: Task, posterior: Posterior, batches: Batches, progress: Progress = QUIET
) -> Predictions:
    """Predict every split but the training one, with the run's number of samples.

    Raises `DivergedError` where a prediction is not a number.
    """
    part = task[tuple(split for split in PREDICTED if split in task.splits)]
    generator = torch_generator(batches.device, run.seed, "predict")
    probs = []
    with progress.track(
        f"Predicting {title(run.method)}, seed {run.seed}", len(part), unit="images"
    ) as advance:
        for images, _ in batches.rows(part.rows, PREDICT_BATCH):
            with precision(run, batches.device):
                drawn = posterior.predict(images, run.method.samples, generator)
            probs.append(drawn[..., 1].T.cpu().numpy())
            advance(len(images))
    if not all(np.isfinite(drawn).all() for drawn in probs):
        raise DivergedError(
            f"{title(run.method)} predicts values that are no numbers. Lower optimizer.lr, or look at method.*."
        )
    return Predictions(
        image_id=part.image_id,
        label=part.label,
        probs=np.concatenate(probs),
        grade=getattr(part, "grade", None),
        patient_id=part.patient_id,
        domain=part.domain,
        split=part.split,
        metadata=metadata(run, task, members=1),
    )


def metadata(run: Run, task: Task, members: int) -> dict[str, Any]:
    """Return what the predictions file says of its origin; `blur` where the pictures had Graham's preprocessing."""
    recipe = recipe_of(task.data.folder)
    return {
        "method": run.method.name,
        "title": title(run.method),
        "setting": run.setting(task.data.fingerprint),
        "run": describe(run),
        "task": run.task,
        "model": run.model.name,
        "data": task.data.name,
        **({"blur": recipe["blur"]} if recipe.get("preprocess") == "graham" else {}),
        "seed": run.seed,
        "members": members,
        "config_hash": run.hash(task.data.fingerprint),
        "version": __version__,
    }

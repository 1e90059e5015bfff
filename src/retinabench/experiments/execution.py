"""One training from its settings to its result: idempotent, resumable, the same bits on one machine.

What is trained is a `RunTask`: prepared images (`experiments/run.py`) or a target of the fidelity benchmark. The folder of
a run holds

- `run.json`: the run and where it was begun; written first;
- `last.pt`, `best.pt`, `metrics.jsonl`, `samples/`: the training so far (`methods/training/checkpoint.py`);
- `posterior.pt`: the trained posterior, where the task keeps it; then the training's own files but `metrics.jsonl` are gone;
- the result, in the task's own format;
- `done`: written last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

import torch
from torch import nn

from retinabench.core.errors import QUIET, InputError, Progress
from retinabench.core.files import remove, sweep
from retinabench.core.results import JsonObject
from retinabench.core.subprocesses import cores
from retinabench.core.workspace import Workspace
from retinabench.data.loader import ArraySource, Batches, is_out_of_memory, keep_limits, out_of_memory
from retinabench.experiments.config import Run
from retinabench.methods.base import is_composed
from retinabench.methods.posteriors import SAMPLES
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.checkpoint import Checkpoint, load_tensors, save_tensors, taking_over
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import Posterior
from retinabench.models.build import set_arithmetic, supports_bfloat16

READERS = 8  # processes that read for one GPU


@dataclass(frozen=True)
class Resources:
    """Where a run is computed, and where its progress is shown; none of it changes the run's hash.

    Several processes started by `torchrun` train one run together (`methods/training/distributed.py`). saved: what is called with
    the folder of a run after each of its checkpoints, and when it is done.
    """

    device: str = "auto"
    readers: int | None = None
    progress: Progress = QUIET
    saved: Callable[[Path], None] = lambda folder: None

    def torch_device(self) -> torch.device:
        """Choose the device; `auto` takes a GPU where there is one, under `torchrun` each process its own."""
        name = self.device if self.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
        if name == "cuda" and distributed.expected():
            name = distributed.local_device()
        try:
            torch.empty(0, device=name)
            return torch.device(name)
        except (RuntimeError, AssertionError):
            raise InputError(f"no device '{name}' here", hint=_devices_here()) from None

    def reading(self) -> int:
        """Return the number of processes that read images ahead."""
        if self.readers is not None:
            return self.readers
        if self.torch_device().type != "cuda":
            return 0
        return min(READERS, cores() // max(1, torch.cuda.device_count()))

    def precision(self) -> Literal["bfloat16"] | None:
        """Return the precision of runs whose settings name none: bfloat16 on a GPU that has it, else None."""
        return "bfloat16" if supports_bfloat16(self.torch_device()) else None


def _devices_here() -> str:
    count = torch.cuda.device_count()
    cards = f"this machine has {count} {'GPU' if count == 1 else 'GPUs'}"
    if count and distributed.expected():
        return f"Give torchrun --nproc-per-node {count}: {cards}."
    return f"Valid: auto, cpu{', cuda, cuda:N' if count else ''}; {cards}."


DEFAULT_RESOURCES = Resources()
Result = TypeVar("Result")
POSTERIOR = "posterior.pt"


@dataclass
class Training(Generic[Result]):
    """All that one training needs."""

    model: nn.Module
    batches: Batches
    predict: Callable[[Posterior], Result]
    title: str
    counts: dict[str, float] = field(default_factory=dict)
    interval: float = 0.0


class RunTask(Protocol[Result]):
    """What runs are trained on, and what becomes of their predictions."""

    @property
    def likelihood(self) -> Likelihood:
        """What the outputs of the network mean."""

    @property
    def decisive(self) -> tuple[str, ...]:
        """The keys of the manifest that must agree when a folder is continued."""

    @property
    def keeps_posterior(self) -> bool:
        """Whether `posterior.pt` stays in the folder of a finished run."""

    def folder_name(self, run: Run) -> str:
        """Return the name of a run's folder; it holds a hash of all that decides the result."""

    def manifest(self, run: Run) -> JsonObject:
        """Return the content of `run.json`."""

    def training(self, run: Run, resources: Resources) -> Training[Result]:
        """Return what the training of a run needs; not called for a run that combines others."""

    def combine(self, run: Run, members: Sequence[Result]) -> Result:
        """Return the result of a run that combines others, given theirs."""

    def read(self, folder: Path) -> Result:
        """Return the result of a finished run."""

    def write(self, result: Result, run: Run, folder: Path) -> None:
        """Write the result of a run into its folder."""


def execute_run(task: RunTask[Result], run: Run, out: Path, resources: Resources, weights: Path | None = None) -> Path:
    """Compute a run, continue it, or find it done. Of several processes with the same run one computes it, and the others wait; those of `torchrun` train together."""
    check_likelihood(run, task.likelihood)
    device = resources.torch_device()
    if not (leads := distributed.join(device).leads):
        resources = replace(resources, progress=QUIET)
    workspace = Workspace(out / task.folder_name(run), "run", "run.json")
    if distributed.leader_says(workspace.done, device):
        if leads:
            workspace.confirm(InputError)
        resources.progress.say(f"{workspace.folder.name}: done before")
        if leads:
            sweep(workspace.folder)  # what a command left that was killed behind its last file
            resources.saved(workspace.folder)
            if not task.keeps_posterior:
                _delete_training(workspace.folder)
        return workspace.folder
    wanted = member_runs(run)
    members = [execute_run(task, member, out, resources) for member in wanted]
    sources = [weights] if weights else [execute_run(task, one, out, resources) for one in trained_by(task, run)]
    with contextlib.ExitStack() as stack:
        if leads:
            stack.enter_context(workspace.lock(wait=True, say=resources.progress.say))
        if distributed.leader_says(workspace.done, device):  # by another process, in the meantime
            return workspace.folder
        if leads:
            workspace.begin(
                task.manifest(run),
                decisive=lambda manifest: {key: manifest.get(key) for key in task.decisive},
                hint="Restore what it was begun with, or choose another --out.",
            )
        if wanted:
            result = task.combine(run, [task.read(folder) for folder in members])
        else:
            if leads and sources and not (workspace.folder / POSTERIOR).is_file():
                state = load_tensors(sources[0] / POSTERIOR, mapped=True)
                save_tensors(workspace.folder / POSTERIOR, state)  # the trained weights of a finished run
            distributed.wait()
            try:
                result = _train_and_predict(task, run, workspace.folder, resources)
            except Exception as error:
                if is_out_of_memory(error):  # where nothing can be cut (`data/loader.py`)
                    raise out_of_memory(run.method.describe(), device) from None
                raise
        if leads:
            task.write(result, run, workspace.folder)
            workspace.finish()
            if not task.keeps_posterior:
                _delete_training(workspace.folder)
            resources.saved(workspace.folder)
        distributed.wait()
    return workspace.folder


def check_likelihood(run: TrainingRun, likelihood: Likelihood) -> None:
    supported = run.method.supported()
    if likelihood.name not in supported:
        asked = f"the likelihood {likelihood.name}, which the data ask for; it supports {', '.join(supported)}"
        raise InputError(f"the method '{run.method.name}' does not support {asked}", hint="Name another method.")


def check_inputs(run: TrainingRun) -> None:
    """Refuse a method that needs images where the inputs are features or other arrays."""
    if run.method.needs_images:
        inputs = "the inputs are features that are computed once, or no images"
        hint = "Name another method, or train more than the head (model.trained)."
        raise InputError(f"the method '{run.method.name}' needs images, and {inputs}", hint=hint)


def member_runs(run: Run) -> list[Run]:
    """Return the runs whose results a run combines: one for each fold, or the members of a composed method; none if it trains."""
    division = run.cross_validation
    if division is not None and division.fold is None:
        folds = (division.model_copy(update={"fold": fold}) for fold in range(division.folds))
        return [run.model_copy(update={"cross_validation": one}) for one in folds]
    method = METHODS[run.method.name]
    return method.member_runs(run) if is_composed(method) else []


def trained_by(task: RunTask[Result], run: Run) -> list[Run]:
    """Return the run whose trained weights a method uses in place of training its own (`methods/base.py`), none of others."""
    method = METHODS[run.method.name]
    shares = task.keeps_posterior and hasattr(method, "trained_by") and not member_runs(run)
    return [method.trained_by(run)] if shares else []


def _train_and_predict(task: RunTask[Result], run: Run, folder: Path, resources: Resources) -> Result:
    method, leads, saved = METHODS[run.method.name], distributed.current().leads, folder / POSTERIOR
    training = task.training(run, resources)
    set_arithmetic(run.optimizer.precision, training.batches.device)
    if isinstance(training.batches.source, ArraySource):
        check_inputs(run)
    keep_limits(training.batches.limits, folder, resources.progress, writes=leads)
    if saved.is_file():
        posterior = method.build(training.model, run, task.likelihood)
        state = load_tensors(saved, mapped=True)
        with taking_over(saved):
            posterior.restore(state)
        if leads:
            _delete_training(folder, POSTERIOR)
        return training.predict(posterior)
    checkpoint = Checkpoint(
        folder, resources.progress, training.title, writes=leads, interval=training.interval, counts=training.counts,
        saved=resources.saved,
    )  # fmt: skip
    posterior = method.fit(training.model, training.batches, run, checkpoint, task.likelihood)
    if task.keeps_posterior:
        distributed.wait()  # until every process has read best.pt and the samples
        if leads:
            save_tensors(saved, posterior.state())
            _delete_training(folder, POSTERIOR)
    return training.predict(posterior)


def _delete_training(folder: Path, kept: str = "") -> None:
    """Delete everything that only a training that continues would need."""
    remove(folder / SAMPLES)
    for leftover in folder.glob("*.pt"):
        if leftover.name != kept:
            remove(leftover)

"""The checks of a method: each runs it on easy data, and raises `NonconformingError` with what was seen instead."""

from __future__ import annotations

import filecmp
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from retinabench.core.errors import WorkError
from retinabench.core.progress import Advance, Quiet
from retinabench.data.easy_images import EASY_PARTS
from retinabench.data.tasks import load_task
from retinabench.experiments.conformance.likelihoods import learns_under_its_likelihoods
from retinabench.experiments.conformance.subject import (
    ONE_CPU,
    NonconformingError,
    Subject,
    predictions_of,
    require,
)
from retinabench.experiments.exporting.export import export_run
from retinabench.experiments.exporting.exported import load_model
from retinabench.experiments.image_predictions import predict
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute, make_batches
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.base import is_composed
from retinabench.methods.settings import MethodConfig
from retinabench.metrics.classification import auroc

EXPORTED = 1e-5  # largest difference of an exported model's probabilities
LEAST_AUROC = 0.9  # of 32 test images; guessing gives 0.5 with a standard error of 0.1


_Check = Callable[[Subject], None]


def states_its_settings(subject: Subject) -> None:
    """`Config` is a frozen `MethodConfig` with the name of the method, and the module has a docstring as its card."""
    config, method = type(subject.run.method), subject.method
    require(issubclass(config, MethodConfig), "Config does not derive from MethodConfig")
    stated, name = config.model_fields["name"].default, subject.run.method.name
    require(stated == name, f"Config states the name '{stated}', and the method is registered as '{name}'")
    require(bool((method.__doc__ or "").strip()), "the module has no docstring")
    wanted = ("member_runs", "combine") if is_composed(method) else ("build", "fit")
    missing = [function for function in wanted if not callable(getattr(method, function, None))]
    require(not missing, f"the module has no {' and no '.join(missing)}")


def learns(subject: Subject) -> None:
    """The test images of both domains are predicted, and those with a bright patch are told from the others."""
    predictions = subject.predictions
    require(set(predictions.split) == {"validation", "test"}, f"splits are {sorted(set(predictions.split))}")
    require(set(predictions.domain) == {"in_domain", "shifted"}, "a domain is missing")
    test = predictions.select(split="test")
    if test is None:
        raise NonconformingError("no image of the split 'test' was predicted")
    area = auroc(test.label, test.prob)
    require(area > LEAST_AUROC, f"AUROC is {area:.3f} on images that are easy to tell apart")


def records_its_origin(subject: Subject) -> None:
    """The predictions file states method, seed and members, and the folder is named after the run's hash."""
    about, run = subject.predictions.metadata, subject.run
    require(about["method"] == run.method.name, f"the file states the method '{about['method']}'")
    require(about["seed"] == run.seed, f"the file states the seed {about['seed']}")
    require(subject.finished.name.endswith(about["config_hash"]), "the folder does not end in the run's hash")
    require(
        about["samples"] % about["members"] == 0,
        f"{about['samples']} samples of {about['members']} members",
    )


def is_reproducible(subject: Subject) -> None:
    """The same run gives the same file, wherever the global random generators of PyTorch stand."""
    torch.manual_seed(time.time_ns() % (1 << 31))
    again = execute(subject.run, subject.folder / "again", ONE_CPU)
    require(again.name == subject.finished.name, "the folder has another name")
    require(
        _same_file(again, subject.finished, "predictions.parquet"),
        "the same run gives other predictions: it draws from a generator that is not derived from the seed",
    )


def depends_on_the_seed(subject: Subject) -> None:
    """Another seed gives other predictions."""
    other = execute(subject.run.model_copy(update={"seed": 9}), subject.folder / "other", ONE_CPU)
    require(
        not np.array_equal(predictions_of(other).probs, subject.predictions.probs),
        "seeds 0 and 9 predict the same",
    )


def is_computed_once(subject: Subject) -> None:
    """A finished run is found, not computed again."""
    file = subject.finished / "predictions.parquet"
    before = file.stat().st_mtime_ns
    execute(subject.run, subject.finished.parent, ONE_CPU)
    require(file.stat().st_mtime_ns == before, "a finished run was computed again")


def continues_after_a_stop(subject: Subject) -> None:
    """A run that was stopped in its third epoch continues, and ends with the same bits."""
    out = subject.folder / "stopped"
    steps = _Stopping(after=2 * EASY_PARTS[0][2] // subject.run.optimizer.batch_size + 1)
    try:
        execute(subject.run, out, Resources("cpu", progress=steps))
    except _StoppedError:
        require(not list(out.glob("*/done")), "a stopped run counts as done")
    else:
        require(is_composed(subject.method) or not steps.counts, "the training went on after an exception")
    torch.manual_seed(1)
    folder = execute(subject.run, out, ONE_CPU)
    files = ["predictions.parquet"] + ["posterior.pt"] * (not is_composed(subject.method))
    different = [file for file in files if not _same_file(folder, subject.finished, file)]
    require(not different, f"stopped and continued, it gives another {' and '.join(different)}")


def restores_its_posterior(subject: Subject) -> None:
    """The posterior that was saved predicts the same bits as the one that was trained."""
    run, posterior = load_posterior(subject.finished, network=subject.network)
    require(run == subject.run, "run.json gives another run back")
    task = load_task(run.data, run.task)
    again = predict(run, task, posterior, make_batches(run, task, torch.device("cpu")))
    require(
        np.array_equal(again.probs, subject.predictions.probs),
        "the posterior that was saved and restored predicts other values: `state` leaves something out",
    )


def travels(subject: Subject) -> None:
    """The exported model predicts what its run did, without the data, to 1e-5; a method fitted to predictions has none."""
    config = type(subject.run.method)
    if is_composed(subject.method) and not config.pools_seeds:
        return
    folder = export_run(subject.finished, subject.folder / "model", subject.network, scores=False)
    model = load_model(folder, model=subject.network)
    task, own = load_task(subject.run.data, subject.run.task), subject.predictions
    rows = {name: row for row, name in enumerate(task.image_id.tolist())}
    images = task.data.images([rows[name] for name in own.image_id.tolist()])
    far = float(np.abs(model.predict(images) - own.probs).max())
    require(far < EXPORTED, f"the exported model predicts probabilities that are {far:.2g} away")
    require(model.weights == own.metadata["weights"], "the exported weights are others")


def predicts_probabilities(subject: Subject) -> None:
    """`predict` gives (S, B, C) probabilities, S as asked or 1, and the same for the same generator."""
    _, posterior = load_posterior(subject.finished, network=subject.network)
    size = load_task(subject.run.data, subject.run.task).data.size
    images = torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(0))
    probs = posterior.predict(images, 4, torch.Generator().manual_seed(1))
    require(
        probs.shape in {(4, 3, 2), (1, 3, 2)},
        f"4 samples of 3 images have the shape {tuple(probs.shape)}; (4, 3, 2) or (1, 3, 2) is right",
    )
    total = probs.sum(dim=2)
    require(torch.allclose(total, torch.ones_like(total)), "the probabilities of the classes do not sum to 1")
    again = posterior.predict(images, 4, torch.Generator().manual_seed(1))
    require(torch.equal(probs, again), "two calls with equal generators predict different values")


def refuses_a_diverged_training(subject: Subject) -> None:
    """A learning rate of 1e30 ends the training with a `WorkError` that names the step, and saves no posterior."""
    optimizer = subject.run.optimizer.model_copy(update={"lr": 1e30, "warmup": 0})
    out = subject.folder / "diverged"
    try:
        execute(subject.run.model_copy(update={"optimizer": optimizer}), out, ONE_CPU)
    except WorkError as error:
        require("not finite at step" in str(error), f"the message does not name the step: {error}")
    else:
        raise NonconformingError("a learning rate of 1e30 gave a posterior")
    require(not list(out.glob("*/posterior.pt")), "a diverged training left posterior.pt")


CHECKS: dict[str, _Check] = {
    check.__name__: check
    for check in (
        states_its_settings,
        learns,
        records_its_origin,
        is_reproducible,
        depends_on_the_seed,
        is_computed_once,
        continues_after_a_stop,
        restores_its_posterior,
        travels,
        predicts_probabilities,
        learns_under_its_likelihoods,
        refuses_a_diverged_training,
    )
}
# What only a method that trains can be asked; a composed one has no posterior of its own.
OF_TRAINED = {
    "restores_its_posterior", "predicts_probabilities", "learns_under_its_likelihoods", "refuses_a_diverged_training",
}  # fmt: skip


class _StoppedError(Exception):
    """Stands for the end of the process."""


class _Stopping(Quiet):
    """Progress that raises in the first training that reaches a number of steps."""

    def __init__(self, after: int) -> None:
        self._after, self.counts = after, 0

    @contextmanager
    def track(self, what: str, total: int, unit: str = "") -> Iterator[Advance]:
        """Count the steps of a training."""
        done = 0

        def advance(steps: int) -> None:
            nonlocal done
            done += steps
            self.counts += steps
            if unit == "steps" and done >= self._after:
                raise _StoppedError

        yield advance


def _same_file(one: Path, other: Path, name: str) -> bool:
    return filecmp.cmp(one / name, other / name, shallow=False)

"""Conformance of a method with its contract, for `retinabench check`, for plug-ins and for the tests.

Each check runs the method on `write_easy_data`: 160 images of 16 x 16 pixels, in which every referable image has a bright
patch, with a network of a few thousand weights. All checks of one method take seconds.
"""

from __future__ import annotations

import filecmp
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from retinabench.core.errors import Advance, InputError, Quiet, WorkError
from retinabench.core.random_streams import torch_generator
from retinabench.core.registry import import_location
from retinabench.data.easy_images import EASY_PARTS, write_easy_data
from retinabench.data.loader import array_batches
from retinabench.data.tasks import load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.exporting.model import export_run, load_model
from retinabench.experiments.run import execute, make_batches, predict
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import MethodConfig
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, MultiLabel
from retinabench.metrics.classification import auroc
from retinabench.models.build import check_size, initialise
from retinabench.models.networks.small import MLP
from retinabench.models.registry import has_choice
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions

ONE_CPU = Resources("cpu")


class NonconformingError(WorkError):
    """A method does not do what its contract promises; the message says what was seen instead."""


@dataclass(frozen=True)
class Subject:
    """One run of the method under test, and the folder that the checks compute in; what several checks need is computed once."""

    run: Run
    folder: Path

    @property
    def method(self) -> ModuleType:
        found: ModuleType = METHODS[self.run.method.name]
        return found

    @property
    def network(self) -> str | None:
        """The function of a user's network; None for other networks."""
        return self.run.model.name if self.run.model.own else None

    @cached_property
    def finished(self) -> Path:
        return execute(self.run, self.folder / "runs", ONE_CPU)

    @cached_property
    def predictions(self) -> Predictions:
        return predictions_of(self.finished)


def predictions_of(folder: Path) -> Predictions:
    return read_predictions(folder / "predictions.parquet")


def require(condition: bool, problem: str) -> None:
    if not condition:
        raise NonconformingError(problem)


_LIKELIHOODS = (Bernoulli(), Categorical(3), Gaussian(floor=0.3), MultiLabel(3))


def learns_under_its_likelihoods(subject: Subject) -> None:
    """Under every likelihood that `Config` declares, a small network learns to predict easy points."""
    for likelihood in _LIKELIHOODS:
        if likelihood.name not in subject.run.method.supported():
            continue
        inputs, targets = easy_points(likelihood.name)
        drawn = _fitted(subject, inputs, targets, likelihood)
        found, asked = tuple(drawn.shape), f"{likelihood.name}: 8 samples of 120 points"
        width = max(2, likelihood.outputs)
        require(found[1:] == (120, width), f"{asked} have the shape {found}, not (8, 120, {width})")
        require(bool(drawn.isfinite().all()), f"{asked} are not finite")
        error, constant = errors_of(likelihood.name, drawn.mean(dim=0), targets)
        seen = f"the error on easy training points is {error:.3f}; that of a constant is {constant:.3f}"
        require(error < 0.85 * constant, f"{likelihood.name}: {seen}")


def weighs_classes(subject: Subject) -> None:
    """With `optimizer.reweight` a network trained where one point in six is referable predicts more of it."""
    if "bernoulli" not in subject.run.method.supported():
        return
    inputs, _ = easy_points("bernoulli")
    rare = (inputs[:, 0] > 1).float()
    # A chain finds the networks that fit all points, which show no weights, unless the prior keeps it from them.
    settings = {"epochs": 10} | ({} if subject.run.method.has_learning_rate else {"l2": 0.05})
    plain, weighted = (
        float(_fitted(subject, inputs, rare, Bernoulli(), reweight=one, **settings).mean(dim=0)[:, 1].mean())
        for one in ("none", "constant")
    )
    require(
        weighted > plain + 0.01,
        f"with optimizer.reweight=constant the mean probability of a rare class is {weighted:.3f}, without it {plain:.3f}: "
        "the loss is not weighted. Return losses of shape (B,) from the objective, or use `cross_entropy`",
    )


def _fitted(subject: Subject, inputs: Tensor, targets: Tensor, likelihood: Likelihood, **settings: object) -> Tensor:
    """Train a small network on 120 points of three features; return 8 samples of their predictions, (S, 120, C)."""
    common = {"epochs": 30, "batch_size": 20, "lr": 0.02, "warmup": 0.0, "reweight": "none", "select": "last"}
    optimizer = subject.run.optimizer.model_copy(update=common | settings)
    run, cpu = subject.run.model_copy(update={"optimizer": optimizer}), torch.device("cpu")
    network: torch.nn.Module = MLP(3, 16, likelihood.outputs, torch.nn.ReLU)
    if subject.run.method.needs_images:  # of one colour each
        inputs = inputs[:, :, None, None].repeat(1, 1, 4, 4)
        network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), network)
    initialise(network, torch_generator(cpu, run.seed, "weights"))
    batches = array_batches(inputs.numpy(), targets.numpy(), 20, run.seed, cpu)
    posterior = subject.method.fit(network, batches, run, Checkpoint(), likelihood)
    with torch.no_grad():
        drawn: Tensor = posterior.predict(inputs, 8, torch.Generator().manual_seed(1))
    return drawn


def easy_points(likelihood: str) -> tuple[Tensor, Tensor]:
    """Return 120 points (120, 3) and their targets, which a linear layer can tell, as the likelihood of that name takes them."""
    inputs = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    targets = {
        "bernoulli": (inputs[:, 0] > 0).float(),
        "categorical": inputs.argmax(dim=1),
        "gaussian": inputs[:, 0],
        "multilabel": (inputs > 0).float(),
    }
    return inputs, targets[likelihood]


def errors_of(name: str, predicted: Tensor, targets: Tensor) -> tuple[float, float]:
    """Return the mean squared error of predicted means or probabilities (N, C), and that of the best constant."""
    if name == "gaussian":
        predicted = predicted[:, 0]
    elif name == "bernoulli":
        predicted = predicted[:, 1]
    elif name == "categorical":
        targets = torch.nn.functional.one_hot(targets, predicted.shape[1]).float()
    return float((predicted - targets).square().mean()), float((targets - targets.mean(dim=0)).square().mean())


EXPORTED = 1e-5  # largest difference of an exported model's probabilities
LEAST_AUROC = 0.9  # of 32 test images; guessing gives 0.5 with a standard error of 0.1


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
    require(about["samples"] % about["members"] == 0, f"{about['samples']} samples of {about['members']} members")


def is_reproducible(subject: Subject) -> None:
    """The same run gives the same file, wherever the global random generators of PyTorch stand."""
    torch.manual_seed(time.time_ns() % (1 << 31))
    again = execute(subject.run, subject.folder / "again", ONE_CPU)
    require(again.name == subject.finished.name, "the folder has another name")
    problem = "the same run gives other predictions: it draws from a generator that is not derived from the seed"
    require(_same_file(again, subject.finished, "predictions.parquet"), problem)


def depends_on_the_seed(subject: Subject) -> None:
    """Another seed gives other predictions."""
    other = execute(subject.run.model_copy(update={"seed": 9}), subject.folder / "other", ONE_CPU)
    same = np.array_equal(predictions_of(other).probs, subject.predictions.probs)
    require(not same, "seeds 0 and 9 predict the same")


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
    problem = "the posterior that was saved and restored predicts other values: `state` leaves something out"
    require(np.array_equal(again.probs, subject.predictions.probs), problem)


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
    shape = f"4 samples of 3 images have the shape {tuple(probs.shape)}; (4, 3, 2) or (1, 3, 2) is right"
    require(probs.shape in {(4, 3, 2), (1, 3, 2)}, shape)
    total = probs.sum(dim=2)
    require(torch.allclose(total, torch.ones_like(total)), "the probabilities of the classes do not sum to 1")
    again = posterior.predict(images, 4, torch.Generator().manual_seed(1))
    require(torch.equal(probs, again), "two calls with equal generators predict different values")


def refuses_a_diverged_training(subject: Subject) -> None:
    """A learning rate of 1e30 ends the training with a `WorkError` that names the step, and saves no posterior, where there is one."""
    if not subject.run.method.has_learning_rate:
        return
    optimizer = subject.run.optimizer.model_copy(update={"lr": 1e30, "warmup": 0})
    out = subject.folder / "diverged"
    try:
        execute(subject.run.model_copy(update={"optimizer": optimizer}), out, ONE_CPU)
    except WorkError as error:
        require("not finite at step" in str(error), f"the message does not name the step: {error}")
    else:
        raise NonconformingError("a learning rate of 1e30 gave a posterior")
    require(not list(out.glob("*/posterior.pt")), "a diverged training left posterior.pt")


CHECKS: dict[str, Callable[[Subject], None]] = {
    check.__name__: check
    for check in (
        states_its_settings, learns, records_its_origin, is_reproducible, depends_on_the_seed, is_computed_once,
        continues_after_a_stop, restores_its_posterior, travels, predicts_probabilities, learns_under_its_likelihoods,
        weighs_classes, refuses_a_diverged_training,
    )
}  # fmt: skip
# What only a method that trains can be asked; a composed one has no posterior of its own.
OF_TRAINED = {
    "restores_its_posterior", "predicts_probabilities", "learns_under_its_likelihoods", "weighs_classes",
    "refuses_a_diverged_training",
}  # fmt: skip


class _StoppedError(Exception):
    """Stands for the end of the process."""


class _Stopping(Quiet):
    """Progress that raises in the first training that reaches a number of steps."""

    def __init__(self, after: int) -> None:
        self._after, self.counts = after, 0

    @contextmanager
    def track(self, what: str, total: int, unit: str = "") -> Iterator[Advance]:
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


CHOICES = ("width=4", "stem=small")
NETWORK = ("model.name=resnet18", *(f"model.{word}" for word in CHOICES))
SHORT = (
    "optimizer.epochs=3", "optimizer.batch_size=16", "optimizer.lr=0.05", "optimizer.validation_share=1",
    "optimizer.reweight=minibatch",
)  # fmt: skip
TINY = (*NETWORK, *SHORT)


@dataclass(frozen=True)
class CheckOutcome:
    """The result of one check: its name, what went wrong (empty where nothing did), and the seconds it took."""

    check: str
    problem: str
    seconds: float


def check_method(
    name: str,
    folder: Path,
    overrides: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    *,
    network: str | None = None,
    size: int = 16,
) -> Iterator[CheckOutcome]:
    """Run the checks on one method, and yield the outcome of each as it is known."""
    data = write_easy_data(folder / "data", size)
    named = [json.dumps(network)] if network is not None else []
    named += [value for key, _, value in (word.partition("=") for word in overrides) if key == "model.name"]
    of_network = list(NETWORK)
    if named:  # those settings of ours that it has as well
        has = partial(has_choice, named[-1].strip("'\""))
        of_network = [f"model.name={named[-1]}", *(f"model.{word}" for word in CHOICES if has(word.partition("=")[0]))]
    own = ["optimizer.select=nll"] if network is not None else []
    run = load_run(None, [*of_network, *own, *SHORT, f"method.name={name}", *overrides], data=str(data))
    check_size(run.model, size)
    subject = Subject(run, folder)
    for check in only or checks_of(name):
        begun, problem = time.monotonic(), ""
        try:
            CHECKS[check](subject)
        except Exception as error:  # a method that raises does not conform either, whatever it raises
            problem = str(error) if isinstance(error, NonconformingError) else f"{type(error).__name__}: {error}"
        yield CheckOutcome(check, problem, time.monotonic() - begun)


def checks_of(name: str) -> list[str]:
    composed = is_composed(METHODS[name])
    return [check for check in CHECKS if not (composed and check in OF_TRAINED)]


def find_method(name: str) -> str:
    """Return the name of a method, which is registered for this process where it is not yet."""
    if name in METHODS:
        return name
    if not (name.endswith(".py") or "." in name):
        METHODS.find(name)
    module = import_location(name)
    fields = getattr(getattr(module, "Config", None), "model_fields", {})
    own = fields["name"].default if "name" in fields else None
    if not isinstance(own, str):
        raise InputError("is not a method: it has no `Config` whose field `name` has a default", file=name)
    if METHODS.is_builtin(own):
        if module.__name__ == getattr(METHODS[own], "__name__", None):
            return own  # the built-in method itself, by the name of its module
        problem = f"the name '{own}' is taken by a method of retinabench"
        raise InputError(problem, file=name, hint="Give Config.name another default.")
    METHODS.add(own, module, instead=True)  # what is installed under that name may be an older state of the file
    return own

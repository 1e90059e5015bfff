"""The training loop of every method that trains by gradient descent, with its optimiser and learning rate.

After each epoch the posterior predicts the validation split, and a checkpoint is written. A killed training continues
from there and ends with the same bits on a CPU, since the order of the images and all noise depend on seed and epoch
alone. Under `torchrun` all processes train and validate together.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.core.random_streams import derive, torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.checkpoint import Checkpoint, TrainingState
from retinabench.methods.training.gradients import (
    BatchInfo,
    Losses,
    Objective,
    cross_entropy,
    describe_batch,
    gradients,
    probe_limit,
    share_limits,
)
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import NetworkPosterior, network_state, precision
from retinabench.methods.training.prediction import validation_plan, validation_scores
from retinabench.metrics.registry import SCORES
from retinabench.models.build import compile_network
from retinabench.models.stochastic.drawing import use_generator

ParameterGroup = dict[str, Any]  # Parameters and the settings of their optimiser, as PyTorch keeps them.


def parameter_groups(model: nn.Module, config: Optimizer) -> list[ParameterGroup]:
    """Return the trained parameters as an optimiser's groups: those on which the L2 term acts (`l2_on`), then the others.

    `weights` have two or more axes, biases and norms one. A parameter with the attribute `no_decay = True`, such as the
    log-scale of a posterior, belongs to neither and is never decayed. Parameters with an attribute `lr_factor`, such as
    those of a pretrained trunk, have groups of their own for each factor. No group is empty.
    """
    parts: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            kind = "weights" if parameter.ndim > 1 else "norms_and_biases"
            acts = config.l2_on in (kind, "everything") and not getattr(parameter, "no_decay", False)
            factor = float(getattr(parameter, "lr_factor", 1.0))
            parts.setdefault((acts, factor), []).append(parameter)
    groups: list[ParameterGroup] = []
    for acts, factor in sorted(parts, reverse=True):
        group = {"params": parts[acts, factor], "weight_decay": 2 * config.l2 if acts else 0.0}
        groups.append(group if factor == 1 else {**group, "lr_factor": factor})
    return groups


class Uncompiled(torch.optim.Optimizer):
    """An optimiser that does not import PyTorch's compiler.

    PyTorch wraps these methods so that the compiler skips them; the wrapper imports the compiler, which takes 1.4 s.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, without a record for PyTorch's profiler, which takes as long as a small step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def __init_subclass__(cls) -> None:
        cls.step.hooked = True  # type: ignore[attr-defined]  # no wrapper for PyTorch's profiler, as costly as a small step


class SGD(Uncompiled, torch.optim.SGD):
    """Stochastic gradient descent."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


class Adam(Uncompiled, torch.optim.Adam):
    """Adam."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


def make_optimizer(model: nn.Module, config: Optimizer) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum or Adam on `parameter_groups`.

    `weight_decay = 2 * l2` puts the gradient of `l2 * Σ w²` into the loss's gradient (it is not decoupled). On a GPU a step is
    one kernel for all parameters (`fused`).
    """
    groups = parameter_groups(model, config)
    devices = {p.device.type for group in groups for p in group["params"]}
    # On a CPU PyTorch steps through the parameters one by one; to say so saves it the choice at every step.
    kernel: Any = {"fused": True} if devices == {"cuda"} else {"foreach": False} if devices == {"cpu"} else {}
    if config.name == "adam":
        return Adam(groups, lr=config.lr, betas=(config.momentum, 0.999), **kernel)
    return SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.momentum > 0, **kernel)


def set_pace(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], lr_factor: float) -> None:
    """Move `parameters` into groups of their own with this factor on the learning rate; all else of them stays."""
    chosen = {id(p) for p in parameters}
    for group in list(optimizer.param_groups):
        moved = [p for p in group["params"] if id(p) in chosen]
        if moved:
            group["params"] = [p for p in group["params"] if id(p) not in chosen]
            optimizer.add_param_group({**group, "params": moved, "lr_factor": lr_factor})
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]


def restore_optimizer(optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
    """Give an optimiser the state of a checkpoint back, in place; its settings stay those of the run, but for counted steps."""
    own = [dict(group) for group in optimizer.param_groups]
    begun = {parameter: dict(values) for parameter, values in optimizer.state.items()}
    optimizer.load_state_dict(state)
    for group, settings in zip(optimizer.param_groups, own, strict=True):
        steps = group.get("steps", 0)
        if type(steps) is not int or steps < 0:
            raise ValueError(f"steps of the optimiser are {steps!s:.30}")
        group.update({name: value for name, value in settings.items() if name not in ("params", "steps")})
    for parameter, values in begun.items():
        restored = optimizer.state.get(parameter, {})
        if any(type(restored.get(name)) is not type(value) for name, value in values.items()):
            raise ValueError("lacks a state of the optimiser")
    for parameter, restored in optimizer.state.items():
        for name, value in restored.items():
            if isinstance(value, Tensor):
                if value.numel() > 1 and value.shape != parameter.shape:
                    raise ValueError(f"{name} of the optimiser has shape {tuple(value.shape)}")
            elif value is not None and not (name == "step" and type(value) is int):
                raise ValueError(f"{name} of the optimiser is {value!s:.30}")


def learning_rate(step: int, steps_per_epoch: int, config: Optimizer) -> float:
    """Return the learning rate of 0-based `step`.

    During the warm-up it rises linearly from 0 to `lr`. The schedule `step`: times 0.2 at one and at two thirds of the
    epochs. `linear`: from `lr` down to `final_lr` * `lr`, on a line that starts at step 0 and ends `warmup` epochs before
    the training does, as in the Retina Benchmark. `cosine`: from `lr` at the end of the warm-up down to 0.
    """
    warm, total = round(config.warmup * steps_per_epoch), config.epochs * steps_per_epoch
    if step < warm:
        return config.lr * step / warm
    if config.schedule == "step":
        return config.lr * 0.2 ** sum(step >= total * third // 3 for third in (1, 2))
    decaying = max(1, total - warm)
    if config.schedule == "linear":
        left = 1 - min(1.0, step / decaying)
        return config.lr * (left * (1 - config.final_lr) + config.final_lr)
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / decaying)))
    return config.lr


Trained = TypeVar("Trained", bound=NetworkPosterior)


class Stateful(Protocol):
    """What a method accumulates beside the network, such as SWAG's moments: saved and restored with the checkpoint."""

    def state_dict(self) -> TrainingState:
        """Return tensors and numbers, nested in dicts and lists."""

    def load_state_dict(self, state: TrainingState) -> None:
        """Continue from what `state_dict` returned."""


def train(
    posterior: Trained,
    batches: Batches,
    run: TrainingRun,
    checkpoint: Checkpoint,
    *,
    objective: Objective | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Callable[[int], float] | None = None,
    after_epoch: Callable[[int], None] | None = None,
    extra: Stateful | None = None,
) -> Trained:
    """Train the network of `posterior` for the run's epochs; return the posterior of the selected epoch.

    A group of the optimiser may have a factor `lr_factor` on the learning rate. `schedule` takes the 0-based step; `after_epoch` is called
    before the validation of its 0-based epoch; `extra` is saved and restored with network and optimiser.
    """
    config, model = run.optimizer, posterior.model
    check_reweight(config, posterior.likelihood)
    if config.compile and batches.device.type == "cuda":
        compile_network(model, fall_back=True)
    objective = objective or likelihood_only(model, batches, run, posterior.likelihood)
    optimizer = optimizer or make_optimizer(model, config)
    schedule = schedule or (lambda step: learning_rate(step, batches.steps, config))
    start, best = _resume(checkpoint, model, optimizer, extra, config.epochs)
    plan = validation_plan(run, len(batches.train), len(batches.validation))
    if start < config.epochs:
        probe_limit(objective, model, optimizer, batches, run, start)
    with checkpoint.progress.track(checkpoint.title, config.epochs * batches.steps, unit="steps") as advance:
        advance(start * batches.steps)
        for epoch in range(start, config.epochs):
            began, final = time.perf_counter(), epoch + 1 == config.epochs
            with torch.random.fork_rng(devices=[batches.device] if batches.device.type == "cuda" else []):
                # A user's network may draw from PyTorch's global generator (`nn.Dropout`).
                # `torch.manual_seed` also writes down who called it, for each device that is not there: 1 ms.
                seed = derive(run.seed, "foreign noise", epoch, distributed.current().rank)
                torch.default_generator.manual_seed(seed)
                if batches.device.type == "cuda":
                    torch.cuda.manual_seed(seed)
                losses = _epoch(model, batches, run, optimizer, schedule, objective, epoch, advance)
            share_limits(batches.limits, "training", batches.device)
            distributed.share_buffers(model)
            distributed.check_equal(model)
            if after_epoch is not None:
                after_epoch(epoch)
            due = final or (epoch + 1) % plan.every == 0
            scores = validation_scores(posterior, batches, run, epoch, plan.samples) if due else {}
            if config.select == "last":
                criterion = 0.0 if final else -math.inf
            else:
                criterion = scores[config.select] * SCORES[config.select].sign if due else -math.inf
            if criterion > best:
                best = criterion
                checkpoint.keep_best(posterior.state())
            row = {"epoch": epoch + 1, "lr": schedule((epoch + 1) * batches.steps - 1), "loss": sum(losses.values())}
            row |= {f"loss_{name}": value for name, value in losses.items() if len(losses) > 1}
            row |= {f"validation_{name}": value for name, value in scores.items()}
            checkpoint.history.append({**row, "seconds": round(time.perf_counter() - began, 3)})
            if final or checkpoint.due():
                state = {"model": network_state(model), "optimizer": optimizer.state_dict()}
                state |= {"extra": extra.state_dict()} if extra is not None else {}
                checkpoint.save({**state, "epoch": epoch + 1, "best": best})
    checkpoint.restore_best(posterior.restore)
    return posterior


def check_reweight(config: Optimizer, likelihood: Likelihood) -> None:
    if config.reweight != "none" and not likelihood.reweightable:
        hint = "Set optimizer.reweight=none."
        raise InputError(f"optimizer.reweight={config.reweight} is for two classes, not for {likelihood}", hint=hint)


class TrainedByObjective:
    """A method whose `fit` trains the network of `build` by one objective and one optimiser: those of MAP where it has none."""

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> Any:
        raise NotImplementedError

    @classmethod
    def fit(
        cls, model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> Any:
        posterior = cls.build(model, run, likelihood)
        optimizer, objective = cls.optimizer(posterior, run), cls.objective(posterior, batches, run)
        return train(posterior, batches, run, checkpoint, objective=objective, optimizer=optimizer)

    @staticmethod
    def objective(posterior: Any, batches: Batches, run: TrainingRun) -> Objective | None:
        """Return the terms of the loss."""

    @staticmethod
    def optimizer(posterior: Any, run: TrainingRun) -> torch.optim.Optimizer | None:
        """Return the optimiser."""


def select_last_epoch(run: TrainingRun) -> TrainingRun:
    """Return `run` with its last epoch as the chosen one, for methods that average over the end of the training."""
    return run.model_copy(update={"optimizer": run.optimizer.model_copy(update={"select": "last"})})


def likelihood_only(model: nn.Module, batches: Batches, run: TrainingRun, likelihood: Likelihood) -> Objective:
    """Return the objective of one forward pass and no penalty."""

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        with precision(run, batches.device):
            outputs = model(images)
        return {"cross_entropy": cross_entropy(outputs, labels, likelihood, batch)}

    return objective


def _resume(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer, extra: Stateful | None, epochs: int
) -> tuple[int, float]:
    """Restore the last checkpoint, if there is one; return the first epoch and the best criterion so far."""
    saved = checkpoint.resume()
    if saved is None:
        return 0, -math.inf
    with checkpoint.taking_over():
        model.load_state_dict(saved["model"])
        restore_optimizer(optimizer, saved["optimizer"])
        if extra is not None:
            if not isinstance(saved["extra"], dict):
                raise TypeError("the state of the method is not a dictionary")
            extra.load_state_dict(saved["extra"])
        epoch, best = saved["epoch"], float(saved["best"])
        if type(epoch) is not int or not 0 < epoch <= epochs or math.isnan(best):
            raise ValueError(f"epoch {epoch!r:.30} of {epochs}, best {best:g}")
    return epoch, best


def _epoch(
    model: nn.Module,
    batches: Batches,
    run: TrainingRun,
    optimizer: torch.optim.Optimizer,
    schedule: Callable[[int], float],
    objective: Objective,
    epoch: int,
    advance: Callable[[int], None],
) -> dict[str, float]:
    """Take one step per batch; return the mean of every loss term over the epoch's images."""
    ranks = distributed.current()  # every process has noise of its own
    noise = torch_generator(batches.device, run.seed, "noise", epoch, *(ranks.rank,) * (ranks.rank > 0))
    use_generator(model, noise)
    losses = Losses(run, batches, schedule)
    model.train()
    step = epoch * batches.steps
    for images, labels in batches.epoch(epoch, ranks.rank, ranks.count):
        rate, limits, accumulate = schedule(step), batches.limits, run.optimizer.accumulate
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("lr_factor", 1.0)
        batch = describe_batch(labels, step, batches, run.optimizer.reweight)
        parts = gradients(objective, model, optimizer, images, labels, batch, noise, limits, accumulate)
        losses.record(parts, step)
        distributed.sum_gradients(p for group in optimizer.param_groups for p in group["params"])
        optimizer.step()
        step += 1
        advance(1)
    return losses.means()

"""SWAG: a Gaussian fitted to the iterates of SGD (Maddox et al. 2019). MultiSWAG is `ensemble` with SWAG members.

**Idea.** SGD with a constant learning rate moves around a minimum. A Gaussian is fitted to its iterates.

    q(θ) = N(θ̄, scale · (diag(variance) + D Dᵀ / (K - 1)))

θ̄ and the variance are those of all collected weights, the K columns of D the last deviations from the mean so
far. MultiSWAG is an `ensemble` of SWAG members.

**Settings.** `start` (share of the training before collecting), `lr_factor` (the constant rate, over the peak
rate), `per_epoch` (collections), `rank` K, `scale` (½: the paper; 1: the Retina Benchmark's script, with `start
= 0.78`, `rank = 20`, `per_epoch = 1`), `samples`.

**Cost.** Training as MAP, one pass over the training images for the batch norms, (K + 2) P numbers. A
prediction: S passes; S draws of K P products serve all its batches (up to 1 GiB of weights, beyond which each
batch draws anew). Batch norm's statistics are taken once, at θ̄; taking them for every draw, as the paper does,
costs S passes over the training set for a prediction.

**When it fails.** The width is that of SGD's noise, which depends on the learning rate and the batch size, and
equals the posterior's only by luck. With a large rate the draws leave the region in which the batch norms'
statistics hold: on the synthetic images `lr_factor = 0.3` cost one seed of three 0.12 of accuracy, 0.1 at most
0.03. With few epochs few iterates are collected, and they are correlated. The last weights are used:
`optimizer.select` does not apply.

**Source.** Maddox et al. 2019, A Simple Baseline for Bayesian Uncertainty in Deep Learning; Mandt et al. 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.ensembles.weight_moments import Moments, draw, flat_weights, named_weights
from retinabench.methods.map import PointPosterior
from retinabench.methods.posteriors import DrawnWeights, before_steps
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import (
    Stateful,
    learning_rate,
    likelihood_only,
    select_last_epoch,
    train,
)
from retinabench.methods.training.posterior import State, precision


class PathConfig(MethodConfig):
    """Options of the methods that collect iterates, at a constant learning rate at the end of the training.

    start: share of the training after which iterates are collected. lr_factor: the constant learning rate of that phase
    over the run's peak rate. per_epoch: iterates collected in an epoch. rank: K, the largest number of deviations kept
    (the latest).
    """

    start: float = Field(0.75, ge=0, lt=1)
    lr_factor: float = Field(0.1, gt=0)
    per_epoch: int = Field(4, ge=1)
    rank: int = Field(20, ge=2)

    def phase(self, total: int, steps_per_epoch: int) -> tuple[int, int]:
        """Return the step after which iterates are collected, and the steps between two of them."""
        return round(self.start * total), max(1, steps_per_epoch // self.per_epoch)


class Config(PathConfig):
    """samples: weight draws per prediction. scale: ½ as in the paper, 1 as in the Retina Benchmark's script.

    A scale of 0 is stochastic weight averaging; the other options are those of `PathConfig`.
    """

    title = "SWAG"

    name: Literal["swag"] = "swag"
    samples: int = Field(5, ge=1)
    scale: float = Field(0.5, ge=0)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target(
            "around a mode of the loss, as wide as the noise of SGD", optimizer.target(points, "")
        )


@dataclass
class SwagPosterior(DrawnWeights):
    """The mean in the network, the variance (P,) and the deviations (K, P) beside it."""

    variance: Tensor
    deviations: Tensor
    scale: float

    @property
    def beside(self) -> State:
        """Variance and deviations."""
        return {"variance": self.variance, "deviations": self.deviations}

    def draw(self, samples: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        """Yield draws of the Gaussian."""
        mean = flat_weights(self.model)
        for _ in range(samples):
            vector = draw(mean, self.variance, self.deviations, self.scale, generator)
            yield named_weights(self.model, vector)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SwagPosterior:
    """Return the network as the mean of a Gaussian of width 0."""
    mean = flat_weights(model)
    return SwagPosterior(
        model, likelihood, torch.zeros_like(mean), mean.new_zeros(0, len(mean)), as_config(run, Config).scale
    )


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SwagPosterior:
    """Train, collect, set the mean, take batch norm's statistics anew, and return the Gaussian.

    The checkpoint's validation is that of SGD.
    """
    method, posterior = as_config(run, Config), build(model, run, likelihood)
    total = run.optimizer.epochs * batches.steps
    first, every = method.phase(total, batches.steps)
    moments = Moments(len(posterior.variance), method.rank, batches.device)
    train_path(
        PointPosterior(model, likelihood), batches, run, checkpoint,
        ends=range(first + every, total, every), collect=lambda _: moments.collect(flat_weights(model)), extra=moments,
    )  # fmt: skip
    moments.collect(flat_weights(model))
    set_mean(model, moments.mean, batches, run)
    posterior.variance, posterior.deviations = moments.variance, moments.deviations
    return posterior


def train_path(
    posterior: PointPosterior,
    batches: Batches,
    run: TrainingRun,
    checkpoint: Checkpoint,
    *,
    ends: Sequence[int],
    collect: Callable[[int], None],
    extra: Stateful,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Train a network with the rate of a `PathConfig`, and collect its iterates."""
    method: PathConfig = as_config(run, PathConfig)
    first, _ = method.phase(run.optimizer.epochs * batches.steps, batches.steps)

    def schedule(step: int) -> float:
        if step < first:
            return learning_rate(step, batches.steps, run.optimizer)
        return method.lr_factor * run.optimizer.lr

    objective = likelihood_only(posterior.model, batches, run, posterior.likelihood)
    train(
        posterior, batches, select_last_epoch(run), checkpoint,
        objective=before_steps(objective, ends, collect), optimizer=optimizer, schedule=schedule, extra=extra,
    )  # fmt: skip


@torch.no_grad()
def set_mean(model: nn.Module, mean: Tensor, batches: Batches, run: TrainingRun) -> None:
    """Give the network a mean (P,) of its weights, and take batch norm's statistics anew (`update_batch_norm`)."""
    for name, weights in named_weights(model, mean).items():
        model.get_parameter(name).copy_(weights)
    update_batch_norm(model, batches, run)


@torch.no_grad()
def update_batch_norm(model: nn.Module, batches: Batches, run: TrainingRun) -> None:
    """Set every batch norm's statistics to the average over the batches of one epoch of the training rows."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average instead of a moving one
    model.train()
    for images, _ in batches.epoch(run.optimizer.epochs):
        with precision(run, batches.device):
            model(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


FIDELITY = (
    FidelitySettings(
        name="swag",
        title="SWAG",
        method={"name": "swag", "samples": 100, "start": 0.5, "scale": 0.5, "rank": 20, "per_epoch": 1},
        optimizer={"name": "sgd", "momentum": 0.9, "schedule": "constant"},
        categorical={"optimizer": {"lr": 0.021}, "method": {"lr_factor": 0.72}},
        gaussian={"optimizer": {"lr": 0.00068}, "method": {"lr_factor": 0.52}},
        search={
            "categorical": {"method.lr_factor": log_range(0.1, 1.0), "optimizer.lr": log_range(0.001, 0.05)},
            "gaussian": {"method.lr_factor": log_range(0.1, 1.0), "optimizer.lr": log_range(0.0002, 0.01)},
        },
    ),
)

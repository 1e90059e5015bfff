"""The stochastic-gradient samplers: one long training with noise, whose iterates are the samples.

Its learning rate `lr` is that of SGD on the mean loss, whose noise has the variance that makes the iterates draws of the
posterior (`langevin.py`). With `l2 = 1 / (2 N s²)` on everything, no reweighting and no augmentation this is the posterior
under the prior N(0, s²), at temperature 1 but for the error of the step, O(lr), and the noise of the mini-batches, of
the same order.

Batch norm's running statistics are collected with each sample. They are averages over the last few steps, as everywhere.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field
from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.map import PointPosterior
from retinabench.methods.mcmc.langevin import Langevin
from retinabench.methods.posteriors import CollectedPosterior, Collector, before_steps, evenly_spaced
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import likelihood_only, parameter_groups, select_last_epoch, train

Schedule = Callable[[int], float]
"""0-based step -> the factor on the run's learning rate."""


class Config(MethodConfig):
    """samples: collected, and predicted with. burn_in: share of the training before the first of them.

    temperature: T of the density exp(-U / T) that is sampled, 1 for the posterior. preconditioner: `rmsprop` gives every
    weight a step of its own, learnt during the burn-in and then frozen; `lr` is then of the size of Adam's.
    """

    samples: int = Field(5, ge=1)
    burn_in: float = Field(0.5, gt=0, lt=1)
    temperature: float = Field(1.0, ge=0)
    preconditioner: Literal["none", "rmsprop"] = "none"

    def momentum(self, optimizer: Optimizer) -> float:
        """Return b of the step (`langevin.py`)."""
        return optimizer.momentum

    def factor(self, first: int, ends: Sequence[int]) -> Schedule:
        """Return the factor on the learning rate.

        It is constant during the burn-in of `first` steps, then ½ (1 + cos(π t / cycle)) in cycles, each of which ends where
        a sample is collected.
        """
        starts = [first, *ends]

        def at(step: int) -> float:
            if step < first:
                return 1.0
            cycle = min(bisect_right(starts, step), len(ends)) - 1
            begin, end = starts[cycle], starts[cycle + 1]
            return 0.5 * (1 + math.cos(math.pi * (step - begin) / (end - begin)))

        return at

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return optimizer.target(points, "draws, up to the error of the step", self.temperature)


class ConstantStepConfig(Config):
    """lr_factor: the constant step of the sampling over that at the start of the burn-in."""

    lr_factor: float = Field(0.3, gt=0)

    def factor(self, first: int, ends: Sequence[int]) -> Schedule:
        """Return a cosine from 1 down to `lr_factor` during the burn-in of `first` steps, constant afterwards."""
        final = self.lr_factor
        return lambda step: (
            final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / max(1, first))))
        )


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> CollectedPosterior:
    """Return the posterior without samples."""
    return CollectedPosterior(model, likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> CollectedPosterior:
    """Run one chain and return its samples, evenly spaced after the burn-in.

    The rate also rises linearly from 0 over the first `optimizer.warmup` epochs. The checkpoint's validation is that of the
    last iterate.
    """
    method: Config = as_config(run, Config)
    total = run.optimizer.epochs * batches.steps
    first, warm = round(method.burn_in * total), round(run.optimizer.warmup * batches.steps)
    ends = evenly_spaced(first, total, method.samples, run)
    shape, collector = method.factor(first, ends), Collector(model, checkpoint)
    optimizer = Langevin(
        parameter_groups(model, run.optimizer),
        lr=run.optimizer.lr,
        momentum=method.momentum(run.optimizer),
        images=len(batches.train),
        temperature=method.temperature,
        adapt=max(1, first) if method.preconditioner == "rmsprop" else 0,
        seed=run.seed,
    )
    train(
        PointPosterior(model, likelihood),
        batches,
        select_last_epoch(run),
        checkpoint,
        objective=before_steps(likelihood_only(model, batches, run, likelihood), ends, collector.collect),
        optimizer=optimizer,
        schedule=lambda step: run.optimizer.lr * shape(step) * (min(1.0, step / warm) if warm else 1.0),
    )
    collector.collect(method.samples - 1)
    return collector.posterior(method.samples, likelihood)

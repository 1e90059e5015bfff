"""What IVON and VOGN share: independent Gaussians over all weights, trained by natural gradients.

q(θ) = N(m, 1 / (λ (h + δ))), with h an estimate of the diagonal of the mean loss's Hessian, λ = N / temperature, and λ δ
the precision of the Gaussian prior. Both methods move the mean by m ← m - rate · (ḡ + δ m) / (h + δ), ḡ the moving average
of the gradient; they differ in how they estimate h.

Two conventions of a cold posterior are in use. Here the precision is λ (h + δ) with λ = N / T: the power of the likelihood is λ / N = 1 / T, the
precision of the prior λ δ = 1 / (T s²). Likelihood and prior are cooled alike, as when U / T is sampled. In `gaussian_vi` and `mfvi` T
stands before the divergence: the likelihood alone has the power 1 / T. The winners of 2021 took λ by itself: their 2024 settings have
λ / N = 4, 2.9 and 11.7 with prior precisions λ δ of 40 (the task's: 20), 100 (100) and 30 (30). Such a run has `method.temperature` = N / λ
and `optimizer.l2` = λ δ / (2 λ).
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import torch
from pydantic import AliasChoices, Field
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.map import PointPosterior
from retinabench.methods.posteriors import WeightPosterior, point
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import Objective
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import select_last_epoch, train


class NaturalGradientConfig(MethodConfig):
    """Options of both methods.

    samples: weight draws per prediction. std: of every weight under q at the start, which sets h0 = 1 / (λ std²) - δ.
    beta2: decay of h's moving average; a training much shorter than 1 / (1 - beta2) steps leaves q about as wide as it
    began. temperature: of the whole posterior, λ = N / temperature; below 1 it is a cold posterior.
    The rest is the optimiser's: δ = 2 `l2`, on every parameter; beta1 = `momentum`; the learning rate is `lr` over
    1 - `momentum`, so that at h = h0 a step is as long as that of SGD in the same run.
    """

    approximates: ClassVar[str]

    samples: int = Field(5, ge=1)
    std: float = Field(0.005, gt=0, validation_alias=AliasChoices("std", "deviation"))
    beta2: float = Field(0.9995, ge=0, lt=1)
    temperature: float = Field(1.0, gt=0)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior; δ acts on every parameter, whatever `l2_on` is."""
        variance = self.temperature * optimizer.prior_variance(points)
        return TargetPosterior(self.temperature, variance, self.approximates)


class NaturalGradientOptimizer(torch.optim.Optimizer):
    """The state (ḡ, h, number of steps) of every parameter, and its standard deviation under q."""

    def __init__(
        self, parameters: list[nn.Parameter], *, lr: float, lr_factor: float, ess: float, delta: float,
        hessian: float, beta1: float, beta2: float, clip: float = 0.0,
    ) -> None:  # fmt: skip
        defaults = {
            "lr": lr, "lr_factor": lr_factor, "ess": ess, "delta": delta, "hessian": hessian,
            "beta1": beta1, "beta2": beta2, "clip": clip,
        }  # fmt: skip
        super().__init__(parameters, defaults)
        for parameter in parameters:
            start = {"momentum": torch.zeros_like(parameter), "hessian": torch.full_like(parameter, hessian)}
            self.state[parameter] = {**start, "step": 0}

    def std(self, parameter: nn.Parameter) -> Tensor:
        """Return the standard deviation 1 / √(λ (h + δ)) of one parameter, in its shape."""
        group = self.param_groups[0]
        precision: Tensor = group["ess"] * (self.state[parameter]["hessian"] + group["delta"])
        return precision.rsqrt()

    def move(self, parameter: nn.Parameter, hessian: Tensor) -> None:
        """Take one step of a parameter with its gradient and its new h, in its shape."""
        group, state = self.param_groups[0], self.state[parameter]
        assert parameter.grad is not None
        state["step"] += 1
        state["momentum"] = group["beta1"] * state["momentum"] + (1 - group["beta1"]) * parameter.grad
        state["hessian"] = hessian
        rate = group["lr"] * (group["hessian"] + group["delta"])
        debias = 1 - group["beta1"] ** state["step"]
        parameter.copy_(
            next_mean(parameter, state["momentum"], hessian, rate, group["delta"], debias, group["clip"])
        )


Kind = TypeVar("Kind", bound=NaturalGradientOptimizer)


def next_mean(
    mean: Tensor, momentum: Tensor, h: Tensor, rate: float, delta: float, debias: float, clip: float
) -> Tensor:
    """Return mean - rate · (ḡ / debias + δ m) / (h + δ), the fraction clipped to [-clip, clip] where clip > 0."""
    direction = (momentum / debias + delta * mean) / (h + delta)
    return mean - rate * (direction.clamp(-clip, clip) if clip else direction)


def initial_hessian(std: float, ess: float, delta: float) -> float:
    """Return h0 > 0 with 1 / √(λ (h0 + δ)) = std."""
    hessian = 1 / (ess * std**2) - delta
    if hessian <= 0:
        raise InputError(
            f"method.std {std:g} is wider than the prior, {(ess * delta) ** -0.5:.3g}",
            hint="Lower method.std or optimizer.l2.",
        )
    return hessian


def make_natural_optimizer(
    kind: type[Kind], model: nn.Module, run: TrainingRun, points: int, clip: float = 0.0
) -> Kind:
    """Return the optimiser of a run on N = `points` training points."""
    options: NaturalGradientConfig = as_config(run, NaturalGradientConfig)
    settings = run.optimizer
    ess, delta = points / options.temperature, 2 * settings.l2
    return kind(
        [p for p in model.parameters() if p.requires_grad],
        lr=settings.lr,
        lr_factor=1 / (1 - settings.momentum),
        ess=ess,
        delta=delta,
        hessian=initial_hessian(options.std, ess, delta),
        beta1=settings.momentum,
        beta2=options.beta2,
        clip=clip,
    )


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> WeightPosterior:
    """Return the network with q as a point."""
    return point(model, likelihood)


def train_gaussian(
    model: nn.Module,
    batches: Batches,
    run: TrainingRun,
    checkpoint: Checkpoint,
    likelihood: Likelihood,
    *,
    objective: Objective,
    optimizer: NaturalGradientOptimizer,
) -> WeightPosterior:
    """Train q and return it; the last epoch is used, since h converges last.

    The checkpoint's validation is that of the mean.
    """
    train(
        PointPosterior(model, likelihood),
        batches,
        select_last_epoch(run),
        checkpoint,
        objective=objective,
        optimizer=optimizer,
    )
    posterior = point(model, likelihood)
    for name, p in model.named_parameters():
        if p.requires_grad:
            posterior.stds[name] = optimizer.std(p).detach()
    return posterior

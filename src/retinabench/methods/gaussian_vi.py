"""Mean-field variational inference over every parameter (Graves 2011, Blundell et al. 2015): the stated posterior's.

**Idea.** The best independent Gaussian for the posterior that `optimizer.l2` states: over every parameter,
biases and norms included, with a prior N(0, s²) that is the same for all. What `mfvi` is to the Retina
Benchmark, this is to the fidelity benchmark.

    q(θ) = N(m, diag(σ²)), σ = log(1 + exp ρ), minimises  E_q[-log p(D | θ)] + T KL(q ‖ N(0, s²)),   1 / s² = 2 N l2
    KL = ½ Σ (σ² / s² + m² / s² - 1 - log(σ² / s²))

The divergence is exact; the expectation is taken with one draw of all weights for the batch.

**Settings.** `std` of a weight at the start; `train_samples` draws per step, in pairs m ± noise; `samples`;
`kl_temperature` T of the divergence, below 1 a posterior whose likelihood counts 1 / T-fold (the prior stays as
it is; IVON's temperature cools both). `optimizer.l2_on` does not apply.

**Cost.** Twice the parameters; a step is `train_samples` passes with as many random numbers as there are
weights. A prediction: S passes, the draws serving all its batches.

**When it fails.** One draw serves the whole batch, so that gradients are noisier than flipout's: use a rate that falls to 0,
and `train_samples` = 2, which takes the noise of a linear model out of its mean. σ moves by Adam in units of ρ: from 0.01 to 0.2
takes a hundred steps at a rate of 0.03, and SGD, whose gradient of ρ is about 1 / N, never gets there. At T = 1 with few images
most weights fall back to the prior. The last epoch is used; `metrics.jsonl` shows the scores of the mean.

**Source.** Graves 2011, Practical Variational Inference for Neural Networks; Blundell et al. 2015, Weight
Uncertainty in Neural Networks.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import AliasChoices, Field
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import ADAM, as_config, fidelity_entry, log_range
from retinabench.methods.map import PointPosterior
from retinabench.methods.posteriors import WeightPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective, cross_entropy
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import make_optimizer, select_last_epoch, train
from retinabench.methods.training.posterior import precision


class Config(MethodConfig):
    """samples: weight draws per prediction. train_samples: per step, in pairs m ± noise.

    std: of every weight under q at the start. temperature: T, the divergence counts T-fold; below 1 a cold posterior.
    """

    title = "mean-field Gaussian"

    name: Literal["gaussian_vi"] = "gaussian_vi"
    samples: int = Field(5, ge=1)
    train_samples: int = Field(1, ge=1)
    std: float = Field(0.01, gt=0, validation_alias=AliasChoices("std", "deviation"))
    kl_temperature: float = Field(1.0, gt=0, validation_alias=AliasChoices("kl_temperature", "temperature"))

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return TargetPosterior(self.kl_temperature, optimizer.prior_variance(points), "the best independent Gaussian")


class Scales(nn.Module):
    """ρ by name, σ = softplus(ρ): what the optimiser moves beside the network."""

    def __init__(self, model: nn.Module, std: float) -> None:
        super().__init__()
        start = math.log(math.expm1(std))
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.rho = nn.ParameterList([torch.full_like(p, start) for p in trained.values()])
        self.names = list(trained)

    def stds(self) -> dict[str, Tensor]:
        return {name: softplus(rho) for name, rho in zip(self.names, self.rho, strict=True)}


build = WeightPosterior.build


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> WeightPosterior:
    """Train q and return it; the last epoch is used. The checkpoint's validation is that of the mean."""
    options, settings = as_config(run, Config), run.optimizer
    if settings.l2 == 0:
        raise InputError("gaussian_vi takes its prior from optimizer.l2, which is 0", hint="Set optimizer.l2.")
    scales = Scales(model, options.std)
    undecayed = settings.model_copy(update={"l2": 0.0})  # the divergence holds the prior
    trained = train(
        PointPosterior(model, likelihood), batches, select_last_epoch(run), checkpoint,
        objective=bound(model, scales, batches, run, likelihood),
        optimizer=make_optimizer(nn.ModuleList([model, scales]), undecayed), extra=scales,
    )  # fmt: skip
    posterior = build(trained.model, run, likelihood)
    for name, std in scales.stds().items():
        posterior.stds[name] = std.detach()
    return posterior


def bound(model: nn.Module, scales: Scales, batches: Batches, run: TrainingRun, likelihood: Likelihood) -> Objective:
    """Return the terms `cross_entropy` and `kl` of the negative evidence bound, per training point."""
    options = as_config(run, Config)
    points, prior_precision = len(batches.train), 2 * len(batches.train) * run.optimizer.l2

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        generator = torch_generator(images.device, run.seed, "gaussian_vi", batch.step)
        stds = scales.stds()
        means = {name: p for name, p in model.named_parameters() if name in stds}
        losses: list[Tensor] = []
        noise: dict[str, Tensor] = {}
        for number in range(options.train_samples):
            if number % 2:  # what is odd in the noise leaves the gradient of the mean
                noise = {name: -draw for name, draw in noise.items()}
            else:
                noise = {name: torch.randn(p.shape, generator=generator, device=p.device) for name, p in means.items()}
            weights = {name: p + stds[name] * noise[name] for name, p in means.items()}
            with precision(run, batches.device):
                outputs = functional_call(model, weights, (images,))
            losses.append(cross_entropy(outputs, labels, likelihood, batch))
        parts = (kl_to_zero_mean_prior(p, stds[name], prior_precision) for name, p in means.items())
        divergence = sum(parts, torch.zeros((), device=images.device))
        return {"cross_entropy": torch.stack(losses).mean(), "kl": options.kl_temperature * divergence / points}

    return objective


def kl_to_zero_mean_prior(mean: Tensor, std: Tensor, prior_precision: float) -> Tensor:
    """Return KL(N(mean, std²) ‖ N(0, 1 / prior_precision)) in nats, a scalar over all elements."""
    scaled = prior_precision * std.square()
    return 0.5 * (scaled + prior_precision * mean.square() - 1 - scaled.log()).sum()


FIDELITY = (
    fidelity_entry(
        "gaussian_vi",
        "mean-field Gaussian",
        {"samples": 100, "train_samples": 2},
        ADAM,
        tuned={"optimizer.lr": ({100: 0.027, 1000: 0.0085, "large": 0.0027}, 0.0036), "method.std": (0.0088, 0.0056)},
        searched={"method.std": log_range(0.005, 0.1), "optimizer.lr": log_range(0.0005, 0.02)},
    ),
)

"""IVON: a Gaussian over all weights, learnt by natural gradients (Shen et al. 2024; Lin, Schmidt & Khan 2020).

q(θ) = N(m, 1 / (λ (h + δ))), with h the diagonal of the mean loss's Hessian, λ = N / temperature, and λ δ the precision
of the Gaussian prior. Each step draws θ = m + ε / √(λ (h + δ)), takes the gradient g there, and reads the curvature off
the same g by Price's theorem, E[∂²ℓ] = E[λ (h + δ) (θ - m) g]: second order at the cost of one backward pass.

Written from the papers' equations.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range, precision
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import Objective, last_epoch_answers, train
from retinabench.methods.training.losses import BatchInfo, cross_entropy
from retinabench.methods.variational.diagonal_gaussian import WeightPosterior, point
from retinabench.methods.variational.ivon_optimizer import Ivon


class Config(MethodConfig):
    """samples, train_samples: weight draws per prediction and per step.

    deviation: of every weight under q at the start, which sets h0 = 1 / (λ deviation²) - δ (the paper sets h0). beta2: of
    h's moving average; the paper's 0.99999 is for 100,000 steps and more. A training much shorter than 1 / (1 - beta2)
    steps leaves q about as wide as it began.
    temperature: below 1 a cold posterior, λ = N / temperature. clip: largest |g / (h + δ)| taken in a step, 0 for none.
    The rest is the optimiser's: δ = 2 `l2`, on every parameter; beta1 = `momentum`; the learning rate is `lr` over
    1 - `momentum`, so that at h = h0 a step is as long as that of SGD in the same run.
    """

    title = "IVON"

    name: Literal["ivon"] = "ivon"
    samples: int = Field(5, ge=1)
    train_samples: int = Field(1, ge=1)
    deviation: float = Field(0.005, gt=0)
    beta2: float = Field(0.9995, ge=0, lt=1)
    temperature: float = Field(1.0, gt=0)
    clip: float = Field(0.0, ge=0)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        variance = self.temperature * optimizer.prior_variance(points)  # δ acts on every parameter
        return TargetPosterior(self.temperature, variance, "the best independent Gaussian")


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> WeightPosterior:
    """Return the network with q as it is before the first step would widen it: a point."""
    return point(model, likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> WeightPosterior:
    """Train q; the last epoch answers, since h has to arrive first. The checkpoint's validation is the mean's."""
    method, config = as_config(run, Config), run.optimizer
    ess, delta = len(batches.train) / method.temperature, 2 * config.l2
    optimizer = Ivon(
        [p for p in model.parameters() if p.requires_grad],
        lr=config.lr,
        lr_factor=1 / (1 - config.momentum),
        ess=ess,
        delta=delta,
        hessian=initial_hessian(method.deviation, ess, delta),
        beta1=config.momentum,
        beta2=method.beta2,
        clip=method.clip,
    )
    trained = train(
        PointPosterior(model, likelihood),
        batches,
        last_epoch_answers(run),
        checkpoint,
        objective=perturbed_objective(model, optimizer, batches, run, likelihood),
        optimizer=optimizer,
    )
    posterior = build(trained.model, run, likelihood)
    for name, p in trained.model.named_parameters():
        if p.requires_grad:
            posterior.deviations[name] = optimizer.deviation(p).detach()
    return posterior


def initial_hessian(deviation: float, ess: float, delta: float) -> float:
    """Return h0 > 0 with 1 / √(λ (h0 + δ)) = deviation.

    Raises `InputError` where the prior alone is narrower than that.
    """
    hessian = 1 / (ess * deviation**2) - delta
    if hessian <= 0:
        raise InputError(
            f"method.deviation {deviation:g} is wider than the prior, {(ess * delta) ** -0.5:.3g}",
            hint="Lower method.deviation or optimizer.l2.",
        )
    return hessian


def perturbed_objective(
    model: nn.Module, optimizer: Ivon, batches: Batches, run: TrainingRun, likelihood: Likelihood
) -> Objective:
    """Return the cross-entropy at weights drawn from q; the noise of a step depends on seed and step alone."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    samples = as_config(run, Config).train_samples

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        generator = torch_generator(images.device, run.seed, "ivon", batch.step)
        losses = []
        for _ in range(samples):
            with precision(run, batches.device):
                logits = functional_call(model, optimizer.perturbed(named, generator), (images,))
            losses.append(cross_entropy(logits, labels, likelihood, run.optimizer.reweight, batch))
        return {"cross_entropy": torch.stack(losses).mean()}

    return objective


FIDELITY = (
    FidelitySettings(
        name="ivon",
        title="IVON",
        method={"name": "ivon", "samples": 100, "train_samples": 1},
        optimizer={"momentum": 0.9, "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.03}, "method": {"deviation": 0.011, "beta2": 0.9995}},
        gaussian={"optimizer": {"lr": 0.0012}, "method": {"deviation": 0.021, "beta2": 0.998}},
        search={
            "categorical": {
                "method.deviation": log_range(0.01, 0.1),
                "method.beta2": {"choices": [0.998, 0.9995]},
                "optimizer.lr": log_range(0.002, 0.1),
            },
            "gaussian": {
                "method.deviation": log_range(0.01, 0.1),
                "method.beta2": {"choices": [0.998, 0.9995]},
                "optimizer.lr": log_range(0.0005, 0.02),
            },
        },
    ),
    FidelitySettings(
        name="ivon-mixture",
        title="mixture of IVON",
        method={
            "name": "ensemble",
            "members": 16,
            "member": {"name": "ivon", "samples": 64, "train_samples": 1, "beta2": 0.9995},
        },
        optimizer={"momentum": 0.9, "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.012}, "method": {"member": {"deviation": 0.017}}},
        gaussian={"optimizer": {"lr": 0.012}, "method": {"members": 6, "member": {"deviation": 0.012}}},
        search={
            "categorical": {
                "method.members": {"choices": [6, 10, 16]},
                "method.member.deviation": log_range(0.01, 0.1),
                "optimizer.lr": log_range(0.002, 0.1),
            },
            "gaussian": {
                "method.members": {"choices": [6, 10, 16]},
                "method.member.deviation": log_range(0.01, 0.1),
                "optimizer.lr": log_range(0.0005, 0.02),
            },
        },
    ),
)

"""SNGP: a Gaussian process on the last layer's input, by random features and Laplace's approximation (Liu et al. 2020).

**Idea.** Far from the training images the output should return to the prior. The last layer is a Gaussian process with the
kernel a² exp(-|h - h'|² / (2 ℓ² D)) of the trunk's features h (D), in M random Fourier features, and the trunk keeps
distances because the spectral norm of its layers is bounded.

    f = Φ(h) β,   Φ = a √(2 / M) cos(W h / (ℓ √D) + b),   β ~ N(0, I),   q(β) = N(β*, (H + I)⁻¹)

β* is trained with the trunk by the penalised likelihood; H is the curvature at the end (`laplace`).

**Settings.** `random_features` M, `length_scale` ℓ (in stds of one feature), `kernel_variance` a², `spectral_bound`
(0: none), `samples`. A head that is trained alone has no layers to bound: there the trunk is a pretrained network, whose distances
are whatever its training made them.

**Cost.** MAP's training with M + 1 weights per output instead of D + 1, and one power iteration per layer and step;
then one pass over the training images. Memory (C (M + 1))² numbers. Predictions: one pass in all.

**When it fails.** M features hold a kernel with an error of about a² / √M. With a length scale that is far too short every image is
far from all others, with one that is far too long the model is linear. Without bounded layers two different images may have the same features. Where
trunk features are standardised, distances in 2,560 dimensions are nearly all alike. A regression is refused: with the default
kernel its noise and mean diverge at learning rates that suit classes.

**Source.** Liu et al. 2020, Simple and Principled Uncertainty Estimation with Deterministic Deep Learning via Distance
Awareness; Rahimi and Recht 2007 (random features). The paper has one covariance for all classes, from the largest
probability; here H is the exact curvature of the likelihood. Predictions are sampled, not by the mean-field formula.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.map import PointPosterior
from retinabench.methods.posthoc.laplace import last_layer_curvature
from retinabench.methods.posthoc.laplace_posterior import LastLayerPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import likelihood_only, train
from retinabench.models.last_layer import SplitNetwork, split_last_layer
from retinabench.models.spectral_norm import bound_spectral_norms


class Config(MethodConfig):
    """samples: draws of β per prediction.

    random_features: M. length_scale: ℓ of the kernel, in units of √D. kernel_variance: a², the prior variance of an output.
    spectral_bound: largest spectral norm of a layer of the trunk where the trunk is trained; 0: no bound.
    """

    title = "SNGP"
    likelihoods = ("bernoulli", "categorical", "multilabel")

    name: Literal["sngp"] = "sngp"
    samples: int = Field(100, ge=1)
    random_features: int = Field(1024, ge=1)
    length_scale: float = Field(2.0, gt=0)
    kernel_variance: float = Field(100.0, gt=0)
    spectral_bound: float = Field(6.0, ge=0)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target("a prior over functions of the features; the weights below are points")


class RandomFeatures(nn.Module):
    """h (B, D) -> a √(2 / M) cos(W h / (ℓ √D) + b), (B, M); W and b are drawn once and kept."""

    frequencies: Tensor
    phases: Tensor

    def __init__(self, width: int, settings: Config, generator: torch.Generator) -> None:
        super().__init__()
        size = settings.random_features
        self.amplitude = math.sqrt(2 * settings.kernel_variance / size)
        scale = settings.length_scale * math.sqrt(width)
        self.register_buffer("frequencies", torch.randn(width, size, generator=generator) / scale)
        self.register_buffer("phases", 2 * math.pi * torch.rand(size, generator=generator))

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, M), float32."""
        with torch.autocast(features.device.type, enabled=False):
            return self.amplitude * torch.cos(features.float() @ self.frequencies + self.phases)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> LastLayerPosterior:
    """Put random features and a linear layer where the last layer was, and bound the layers of the trunk."""
    method, network = as_config(run, Config), split_last_layer(model)
    assert isinstance(network.head, nn.Linear)
    device = network.head.weight.device
    if method.spectral_bound:
        start = torch_generator("cpu", run.seed, "sngp", "spectral_norm")
        bound_spectral_norms(network.trunk, method.spectral_bound, start)
    drawn = torch_generator("cpu", run.seed, "sngp", "random_features")
    features = RandomFeatures(network.width, method, drawn).to(device)
    head = nn.Linear(method.random_features, network.head.out_features, device=device)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
        parameter.no_decay = True  # type: ignore[attr-defined]  # the prior of β acts instead
    split = SplitNetwork(nn.Sequential(network.trunk, features), head, method.random_features, network.name)
    size = head.weight.numel() + head.bias.numel()
    return LastLayerPosterior(split, likelihood, head.weight.new_zeros(size, size))


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> LastLayerPosterior:
    """Train the mode, measure the curvature in one pass and return the posterior; validation is that of the mode."""
    posterior = build(model, run, likelihood)
    point = PointPosterior(posterior.model, likelihood)
    train(point, batches, run, checkpoint, objective=penalised(posterior, batches, run))
    posterior.model.eval()
    posterior.factor = inverse_root(last_layer_curvature(posterior, batches, run)).float()
    return posterior


def inverse_root(curvature: Tensor) -> Tensor:
    """Return F (P, P) with F Fᵀ = (H + I)⁻¹, of H + I = L Lᵀ: L⁻ᵀ, at a fraction of the cost of eigenvectors."""
    identity = torch.eye(len(curvature), dtype=curvature.dtype, device=curvature.device)
    lower = torch.linalg.cholesky(curvature + identity)
    root: Tensor = torch.linalg.solve_triangular(lower, identity, upper=False).mT
    return root


def penalised(posterior: LastLayerPosterior, batches: Batches, run: TrainingRun) -> Objective:
    """Return the loss of MAP and the prior of β and of the bias, |β|² / 2N."""
    data = likelihood_only(posterior.model, batches, run, posterior.likelihood)
    points, weights = len(batches.train), list(posterior.model.head.parameters())

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        squares = sum((p.square().sum() for p in weights), torch.zeros((), device=labels.device))
        return {**data(images, labels, batch), "prior": 0.5 * squares / points}

    return objective

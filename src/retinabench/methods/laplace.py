"""Laplace's approximation (MacKay 1992; Daxberger et al. 2021): a Gaussian around MAP, as wide as the likelihood allows.

    q(θ) = N(θ*, (H + δ I)⁻¹),  H the Gauss-Newton curvature of the likelihood at θ*, δ the prior's precision

δ maximises the evidence. `last_layer`: the last layer's weights with their full covariance. `diagonal`: all weights,
the diagonal of H alone. Training is MAP's; then one pass over the training pictures, without augmentation. Where the
likelihood was reweighted by class (`optimizer.reweight`), H is that of the reweighted likelihood, with the classes'
shares in the whole training set: the Gaussian then belongs to the function that θ* maximises.

Predictions are samples of the network that is linear in θ - θ*, f(x) + J(x) (θ - θ*), the model of which H is the exact
curvature (Immer et al. 2021). For the last layer that is the network itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, jvp

from retinabench import config
from retinabench.config import Run
from retinabench.data.loader import Batches
from retinabench.methods.base import (
    State,
    as_config,
    class_probabilities,
    precision,
    restore_with,
    rewound,
    state_with,
)
from retinabench.methods.journal import Journal
from retinabench.methods.laplace_curvature import diagonal_curvature, evidence_precision, linear_curvature
from retinabench.methods.losses import class_weights
from retinabench.methods.map import PointPosterior
from retinabench.methods.training import train
from retinabench.models.last_layer import SplitNetwork, split_last_layer, with_bias


class Config(config.Method):
    """weights: which are random. prior_precision: δ; without one the evidence decides. samples: per prediction."""

    title = "Laplace"

    name: Literal["laplace"] = "laplace"
    weights: Literal["last_layer", "diagonal"] = "last_layer"
    prior_precision: float | None = Field(None, gt=0)
    samples: int = Field(5, ge=1)


@dataclass
class LastLayerPosterior:
    """A trunk, the last layer's MAP weights, and a factor F (P, P) of their covariance F Fᵀ, P = C (D + 1)."""

    model: SplitNetwork
    factor: Tensor

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """(B, 3, H, W) -> (S, B, C): one pass of the trunk, S last layers."""
        self.model.eval()
        draws, features = rewound(generator), self.model.features(images)
        with torch.autocast(images.device.type, enabled=False):
            logits, probs = self.model.head(features), []
            for _ in range(samples):
                noise = torch.randn(len(self.factor), generator=draws, device=images.device)
                shift = (self.factor @ noise).view(logits.shape[1], -1)
                probs.append(class_probabilities(logits + with_bias(features) @ shift.T))
        return torch.stack(probs)

    def state(self) -> State:
        """The network's tensors and the factor."""
        return state_with(self.model, {"factor": self.factor})

    def restore(self, state: State) -> None:
        """Take over saved tensors."""
        self.factor = restore_with(self.model, state)["factor"]


@dataclass
class DiagonalPosterior:
    """The MAP network and the standard deviation of every parameter, by name."""

    model: nn.Module
    deviations: dict[str, Tensor]

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """(B, 3, H, W) -> (S, B, C): S draws of the linearised network, each a directional derivative."""
        self.model.eval()
        draws, probs = rewound(generator), []
        center = {name: p.detach() for name, p in self.model.named_parameters()}

        def network(weights: dict[str, Tensor]) -> Tensor:
            logits: Tensor = functional_call(self.model, weights, (images,))
            return logits

        for _ in range(samples):
            shift = {
                name: self.deviations[name] * torch.randn(p.shape, generator=draws, device=p.device)
                for name, p in center.items()
            }
            logits, change = jvp(network, (center,), (shift,))  # type: ignore[misc]  # no auxiliary output
            probs.append(class_probabilities(logits.float() + change.float()))
        return torch.stack(probs)

    def state(self) -> State:
        """The network's tensors and the deviations."""
        return state_with(self.model, self.deviations)

    def restore(self, state: State) -> None:
        """Take over saved tensors."""
        self.deviations = restore_with(self.model, state)


def build(model: nn.Module, run: Run) -> LastLayerPosterior | DiagonalPosterior:
    """Return the network with a Gaussian of no width around it."""
    if as_config(run, Config).weights == "diagonal":
        return DiagonalPosterior(model, {name: torch.zeros_like(p) for name, p in model.named_parameters()})
    network = split_last_layer(model)
    size = len(_head_weights(network).flatten())
    return LastLayerPosterior(network, torch.zeros(size, size, device=_head_weights(network).device))


def fit(
    model: nn.Module, batches: Batches, run: Run, journal: Journal
) -> LastLayerPosterior | DiagonalPosterior:
    """Train MAP, then measure the curvature in one pass and choose δ. The journal's validation is MAP's."""
    posterior = build(model, run)
    train(PointPosterior(posterior.model), batches, run, journal)
    posterior.model.eval()
    if isinstance(posterior, LastLayerPosterior):
        _widen_last_layer(posterior, batches, run)
    else:
        _widen_diagonal(posterior, batches, run)
    return posterior


@torch.no_grad()
def _widen_last_layer(posterior: LastLayerPosterior, batches: Batches, run: Run) -> None:
    """Set the factor to V (λ + δ)^-½, with H = V λ Vᵀ."""
    network, head = posterior.model, _head_weights(posterior.model)
    curvature = torch.zeros(posterior.factor.shape, dtype=torch.float64, device=batches.device)
    for images, weights in _weighted(batches, run):
        with precision(run, batches.device):
            features = network.features(images)
        logits = network.head(features)
        curvature += linear_curvature(with_bias(features), logits, weights)
    eigenvalues, vectors = torch.linalg.eigh(curvature)
    delta = as_config(run, Config).prior_precision or evidence_precision(
        eigenvalues.cpu().numpy(), float(head.double().square().sum())
    )
    posterior.factor = (vectors * (eigenvalues.clamp(min=0) + delta).rsqrt()).float()


def _widen_diagonal(posterior: DiagonalPosterior, batches: Batches, run: Run) -> None:
    """Set the deviations to (h + δ)^-½, with h the diagonal of H."""
    model = posterior.model
    curvature = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for images, weights in _weighted(batches, run):
        with precision(run, batches.device):
            for name, part in diagonal_curvature(model, images, weights).items():
                curvature[name] += part
    squared_norm = sum(float(p.detach().double().square().sum()) for p in model.parameters())
    everything = torch.cat([h.flatten() for h in curvature.values()]).double().cpu().numpy()
    delta = as_config(run, Config).prior_precision or evidence_precision(everything, squared_norm)
    posterior.deviations = {name: (h + delta).rsqrt() for name, h in curvature.items()}


def _weighted(batches: Batches, run: Run) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the training pictures in batches, each with the weights (B,) of its images in the likelihood."""
    labels = torch.from_numpy(batches.data.records.label[batches.train].astype("float32")).to(batches.device)
    weights = class_weights(labels) if run.optimizer.reweight == "minibatch" else torch.ones_like(labels)
    start = 0
    for images, _ in batches.rows(batches.train):
        yield images, weights[start : start + len(images)]
        start += len(images)


def _head_weights(network: SplitNetwork) -> Tensor:
    """Weights and bias of the last layer, (C, D + 1)."""
    head = network.head
    assert isinstance(head, nn.Linear)
    bias = head.bias if head.bias is not None else head.weight.new_zeros(head.out_features)
    return torch.cat([head.weight, bias[:, None]], dim=1).detach()

"""Running moments of the weights along a path of SGD, and draws of the Gaussian that they give."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from retinabench.methods.training.checkpoint import TrainingState


class Moments:
    """Running mean, sum of squared deviations (P,) and the last K deviations of vectors, by Welford's updates."""

    def __init__(self, size: int, rank: int, device: torch.device) -> None:
        self.rank, self.count = rank, 0
        self.mean = torch.zeros(size, device=device)
        self.squares = torch.zeros(size, device=device)
        self.deviations = torch.zeros(0, size, device=device)

    def collect(self, weights: Tensor) -> None:
        """Take in one vector (P,)."""
        self.count += 1
        before = weights - self.mean
        self.mean = self.mean + before / self.count
        deviation = weights - self.mean
        self.squares = self.squares + before * deviation
        self.deviations = torch.cat([self.deviations, deviation[None]])[-self.rank :]

    @property
    def variance(self) -> Tensor:
        """(P,), of the collected vectors, divided by their number."""
        return self.squares / max(1, self.count)

    def state_dict(self) -> TrainingState:
        """All that was collected."""
        tensors = {"mean": self.mean, "squares": self.squares, "deviations": self.deviations}
        return {**{name: tensor.cpu() for name, tensor in tensors.items()}, "count": self.count}

    def load_state_dict(self, state: TrainingState) -> None:
        """Continue from what was collected; ValueError where that are the moments of another network."""
        count, found = state["count"], {name: state[name] for name in ("mean", "squares", "deviations")}
        if type(count) is not int or count < 0:
            raise ValueError(f"count is {count!s:.20}")
        for name, tensor in found.items():
            if tensor.shape[-1:] != self.mean.shape:
                raise ValueError(f"'{name}' has shape {tuple(tensor.shape)}")
        self.count, device = count, self.mean.device
        self.mean, self.squares, self.deviations = (tensor.to(device) for tensor in found.values())


def draw(
    mean: Tensor, variance: Tensor, deviations: Tensor, scale: float, generator: torch.Generator
) -> Tensor:
    """Draw one vector of N(mean, scale · (diag(variance) + Dᵀ D / (K - 1))).

    Shapes: `mean` (P,), `variance` (P,), `deviations` (K, P), returns (P,).
    """
    columns = len(deviations)
    diagonal = variance.sqrt() * torch.randn(mean.shape, generator=generator, device=mean.device)
    weights = torch.randn(columns, generator=generator, device=mean.device)
    return mean + math.sqrt(scale) * (diagonal + weights @ deviations / math.sqrt(max(1, columns - 1)))


def flat_weights(model: nn.Module) -> Tensor:
    """Return all parameters of `model` as one vector (P,), a copy."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def named_weights(model: nn.Module, vector: Tensor) -> dict[str, Tensor]:
    """Cut a vector (P,) into the parameters of `model`, by name, in their shapes and memory layouts."""
    named = dict(model.named_parameters())
    pieces = torch.split(vector, [p.numel() for p in named.values()])
    return {
        name: torch.empty_like(p, requires_grad=False).copy_(piece.view(p.shape))
        for (name, p), piece in zip(named.items(), pieces, strict=True)
    }

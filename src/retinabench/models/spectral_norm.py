"""Spectral normalisation with a bound: no layer's matrix stretches a vector by more than a stated factor."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


class SpectralBound(nn.Module):
    """W -> W min(1, bound / σ(W)), the largest singular value σ by one power iteration per forward pass in training.

    A kernel (out, in, h, w) counts as its matrix (out, in · h · w).

    References:
        Miyato et al. (2018), "Spectral normalization for generative adversarial networks", ICLR; with a bound above 1, Liu et al. (2020),
        equation 10.
    """

    left: Tensor

    def __init__(self, weight: Tensor, bound: float, generator: torch.Generator) -> None:
        super().__init__()
        self.bound = bound
        left = torch.randn(len(weight), generator=generator).to(weight.device)
        self.register_buffer("left", left / left.norm())
        for _ in range(10):
            self._iterate(weight.detach().flatten(1))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the bounded weight."""
        matrix = weight.flatten(1)
        if self.training and torch.is_grad_enabled():
            self._iterate(matrix.detach())
        left = self.left.clone()  # the next pass changes it in place
        sigma = (left @ matrix).norm()
        bounded: Tensor = weight * (self.bound / sigma.clamp(min=1e-12)).clamp(max=1.0)
        return bounded

    @torch.no_grad()
    def _iterate(self, matrix: Tensor) -> None:
        left = matrix @ (self.left @ matrix)
        self.left.copy_(left / left.norm().clamp(min=1e-12))


def bound_spectral_norms(model: nn.Module, bound: float, generator: torch.Generator) -> int:
    """Bound the spectral norm of every trained convolution and linear layer of `model`, in place."""
    layers = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear)) and m.weight.requires_grad]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", SpectralBound(layer.weight, bound, generator))
    return len(layers)

"""Low-rank adapters (Hu et al. 2021): W_k = W + (α / r) B_k A_k, with A_k and B_k learnt for each of K members.

The weight is that of a linear layer, or of a convolution as a matrix of outputs and of inputs times kernel. W and the bias
stay as they are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from retinabench.models.stochastic.affine import Affine, fan_in, operation
from retinabench.models.stochastic.drawing import Draw, Drawing


class LowRank(Drawing):
    """A layer in place of `layer`, which starts as the same function for every member.

    Parameters: `weight` and `bias`, frozen; `down`, A of shape (K, r, inputs), N(0, 1 / inputs); `up`, B of shape (K, outputs, r), 0.

    Args:
        layer: The replaced layer.
        members: K.
        rank: r; at most the rank that the weight can have.
        alpha: α.
        generator: Source of the draws, on the CPU.
    """

    def __init__(
        self, layer: Affine, members: int, rank: int, alpha: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        outputs, inputs = len(layer.weight), fan_in(layer.weight)
        self.scale, self.operation = alpha / rank, operation(layer)
        kept = min(rank, outputs, inputs)
        drawn = torch.randn(members, kept, inputs, generator=generator).div_(math.sqrt(inputs))
        self.down = nn.Parameter(layer.weight.new_empty(drawn.shape).copy_(drawn))
        self.up = nn.Parameter(layer.weight.new_zeros(members, outputs, kept))
        for parameter in layer.parameters():
            if (factor := getattr(parameter, "lr_factor", None)) is not None:
                self.down.lr_factor = self.up.lr_factor = factor  # type: ignore[attr-defined]
            parameter.requires_grad_(False)

    def adapters(self) -> list[nn.Parameter]:
        """Return A and B of all members."""
        return [self.down, self.up]

    def forward(self, x: Tensor) -> Tensor:
        """As the replaced layer."""
        return self.each_draw(x, self._adapted)

    def _adapted(self, x: Tensor, draw: Draw) -> Tensor:
        return self.operation(x, self.cached(draw, lambda: self._weight(draw)), self.bias)

    def _weight(self, draw: Draw) -> Tensor:
        member = draw.number % len(self.up)
        update = self.scale * (self.up[member] @ self.down[member])
        weight: Tensor = self.weight + update.view(self.weight.shape)
        return weight

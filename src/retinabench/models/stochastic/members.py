"""Layers of their own for each member of an ensemble, in the place of one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from retinabench.models.stochastic.drawing import Drawing


class Members(Drawing):
    """K layers in the place of one: posterior sample n passes through the layer n mod K.

    Args:
        layers: Of the members.
    """

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """(R * B, D) of R posterior samples -> (R * B, O)."""
        return self.each_draw(x, lambda rows, draw: self.layers[draw.number % len(self.layers)](rows))

    def each(self, x: Tensor, count: int | None = None) -> Tensor:
        """Return what the first `count` layers, by default all, make of the same rows: (B, D) -> (K, B, O)."""
        return torch.stack([layer(x) for layer in list(self.layers)[:count]])

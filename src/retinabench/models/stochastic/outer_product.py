"""Layers whose weight is multiplied by an outer product, W_k = W ∘ (s_k r_kᵀ): what their kinds have in common.

y = s ∘ (W (r ∘ x)) + b: a pair of vectors per row of a training batch costs two multiplications. In evaluation each posterior
sample has one weight, multiplied out, for all of its rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from retinabench.models.stochastic.affine import Affine, operation, per_channel
from retinabench.models.stochastic.drawing import Draw, Drawing


class OuterProduct(Drawing, ABC):
    """A layer in place of `layer`, whose weight is shared by K pairs of factors; posterior sample n has the pair n mod K.

    Args:
        layer: The replaced layer; its weight is kept, under its name.
        pairs: Number K of pairs.
    """

    def __init__(self, layer: Affine, pairs: int) -> None:
        super().__init__()
        self.weight = layer.weight
        self.pairs = pairs
        self.operation, self.is_linear = operation(layer), isinstance(layer, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        """As the replaced layer."""
        return self.each_draw(x, self._own_factors if self.training else self._one_weight)

    def pair_of(self, rows: int, draw: Draw) -> Tensor:
        """Return which pair each row of a training batch has, (rows,): pair n mod K for row n.

        Args:
            rows: Number of rows.
            draw: Of the pass.
        """
        return torch.arange(rows, device=self.weight.device) % self.pairs

    @abstractmethod
    def factors(self, chosen: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Return r (B, inputs) and s (B, outputs).

        Args:
            chosen: Number of each row's pair, (B,).
            draw: Where noise comes from.
        """

    @abstractmethod
    def biases(self, chosen: Tensor) -> Tensor | None:
        """Return the biases (B, outputs), or (1, outputs) where all rows have the same; None without any.

        Args:
            chosen: Number of each row's pair, (B,).
        """

    def _own_factors(self, x: Tensor, draw: Draw) -> Tensor:
        """Training: factors for each row, which cannot be folded into one weight."""
        chosen = self.pair_of(len(x), draw)
        into, out = self.factors(chosen, draw)
        y = self.operation(x * per_channel(into, x, self.is_linear).to(x.dtype), self.weight, None)
        y = y * per_channel(out, y, self.is_linear).to(y.dtype)
        bias = self.biases(chosen)
        return y if bias is None else y + per_channel(bias, y, self.is_linear).to(y.dtype)

    def _one_weight(self, x: Tensor, draw: Draw) -> Tensor:
        """Evaluation: one weight W ∘ (s rᵀ) for all rows of the posterior sample."""
        chosen = torch.tensor([draw.number % self.pairs], device=self.weight.device)
        bias = self.biases(chosen)
        weight = self.cached(draw, lambda: self._weight(chosen, draw))
        return self.operation(x, weight, None if bias is None else bias[0])

    def _weight(self, chosen: Tensor, draw: Draw) -> Tensor:
        (into,), (out,) = self.factors(chosen, draw)
        outputs, inputs = self.weight.shape[:2]
        # The outputs of a group see the inputs of that group alone.
        groups = len(into) // inputs
        factors = into.view(groups, inputs).repeat_interleave(outputs // groups, dim=0) * out[:, None]
        weight: Tensor = self.weight * factors.view(outputs, inputs, *[1] * (self.weight.ndim - 2))
        return weight

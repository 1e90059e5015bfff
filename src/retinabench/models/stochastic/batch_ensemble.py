"""BatchEnsemble layers (Wen et al. 2020): W_k = W ∘ (s_k r_kᵀ), r_k, s_k and the bias b_k learnt for each of K members."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from retinabench.models.stochastic.affine import Affine, channels
from retinabench.models.stochastic.drawing import Draw
from retinabench.models.stochastic.outer_product import OuterProduct


class BatchEnsemble(OuterProduct):
    """A layer in place of `layer`, whose weight the members share.

    Parameters: `weight`, of shape (K, inputs) `input_factors`, (K, outputs) `output_factors`, and K vectors `bias`. The
    factors are never decayed; all learn at the rate of the weight.

    Args:
        layer: The replaced layer.
        members: K.
        std: Of the factors' initial values, around 1.
        generator: Source of the draws, on the CPU.
    """

    def __init__(self, layer: Affine, members: int, std: float, generator: torch.Generator) -> None:
        super().__init__(layer, members)
        self.input_factors, self.output_factors = (
            _around_one(layer.weight.new_empty(members, size), std, generator) for size in channels(layer)
        )
        self.bias = nn.ParameterList(
            [] if layer.bias is None else [nn.Parameter(layer.bias.detach().clone()) for _ in range(members)]
        )
        if (factor := getattr(layer.weight, "lr_factor", None)) is not None:
            for parameter in self.parameters():
                parameter.lr_factor = factor  # type: ignore[attr-defined]

    def pair_of(self, rows: int, draw: Draw) -> Tensor:
        """Return the member of each row: equal shares, one after the other, the first for the member of the draw's number.

        Layers on windows of images have many rows for each image, which all lie in its member's share.

        Args:
            rows: Number of rows.
            draw: Of the pass.
        """
        return (torch.arange(rows, device=self.weight.device) * self.pairs // rows + draw.number) % self.pairs

    def factors(self, chosen: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Return r and s of each row (see `OuterProduct`)."""
        return self.input_factors[chosen], self.output_factors[chosen]

    def biases(self, chosen: Tensor) -> Tensor | None:
        """Return the bias of each row (see `OuterProduct`)."""
        return torch.stack(list(self.bias))[chosen] if len(self.bias) else None


def _around_one(like: Tensor, std: float, generator: torch.Generator) -> nn.Parameter:
    drawn = torch.randn(like.shape, generator=generator)  # in host memory, so that the device does not matter
    parameter = nn.Parameter(like.copy_(1 + std * drawn))
    parameter.no_decay = True  # type: ignore[attr-defined]
    return parameter

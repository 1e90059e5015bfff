"""Rank-1 layers (Dusenberry et al. 2020): W_k = W ∘ (s_k r_kᵀ), a distribution over r and s alone.

A draw costs two vectors, so every row of a training batch has its own. The posterior is a
mixture of K components, N(mean_k, σ_k²) for each entry of r and s: K ensemble members in one network, with W, b and
norms in common. While training, row b belongs to component b mod K; posterior sample number n to component n mod K.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from retinabench.models.stochastic.affine import Affine, channels
from retinabench.models.stochastic.drawing import Draw, standard_normal
from retinabench.models.stochastic.families import gaussian_kl
from retinabench.models.stochastic.outer_product import OuterProduct
from retinabench.models.stochastic.variational import initial_rho

# The initial std of the multiplicative noise, that of dropout with rate 0.001, and the std of its ρ.
INITIAL_STDDEV = (math.sqrt(0.001 / 0.999), 0.1)


class Rank1(OuterProduct):
    """A layer in place of `layer`, its weight and bias deterministic.

    positive: probability of +1 in the components' initial means, random signs. prior_mean: `sign`, the nearer of +1 and
    -1, or `one`, as released. clip: cuts samples at ± this, or None.
    Parameters: `weight`, `bias`, and of shape (K, inputs) `input_mean`, `input_rho`, (K, outputs) `output_mean`,
    `output_rho`.
    """

    def __init__(
        self,
        layer: Affine,
        *,
        components: int,
        positive: float,
        prior_mean: Literal["sign", "one"],
        prior_stddev: float,
        clip: float | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(layer, components)
        self.bias = layer.bias
        inputs, outputs = (
            torch.empty(components, size, device=layer.weight.device) for size in channels(layer)
        )
        self.input_mean = _initial_signs(inputs, positive, generator)
        self.input_rho = initial_rho(inputs, INITIAL_STDDEV, generator)
        self.output_mean = _initial_signs(outputs, positive, generator)
        self.output_rho = initial_rho(outputs, INITIAL_STDDEV, generator)
        self.clip = clip
        self.prior_mean, self.prior_stddev = prior_mean, prior_stddev

    def fast_weights(self) -> list[nn.Parameter]:
        """The parameters of the distributions of r and s."""
        return [self.input_mean, self.input_rho, self.output_mean, self.output_rho]

    def kl_terms(self) -> list[Tensor]:
        """Two divergences in nats, of r and of s: the mean over components of KL(q_k ‖ prior).

        KL is convex, so this bounds the mixture's divergence from above; the gap is at most log K.
        """
        return [self._kl(self.input_mean, self.input_rho), self._kl(self.output_mean, self.output_rho)]

    def factors(self, chosen: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Return a sample of r and s for each row (see `OuterProduct`)."""
        into = self._sample(self.input_mean, self.input_rho, chosen, draw)
        return into, self._sample(self.output_mean, self.output_rho, chosen, draw)

    def biases(self, chosen: Tensor) -> Tensor | None:
        """Return the one bias (see `OuterProduct`)."""
        return None if self.bias is None else self.bias[None]

    def _kl(self, mean: Tensor, rho: Tensor) -> Tensor:
        # The prior (N(-1, τ²) + N(1, τ²)) / 2 is, up to log 2, its nearer half: the other one is 2 / τ standard deviations away.
        offset = mean.abs() - 1 if self.prior_mean == "sign" else mean - 1
        return gaussian_kl(offset, functional.softplus(rho), self.prior_stddev) / self.pairs

    def _sample(self, mean: Tensor, rho: Tensor, chosen: Tensor, draw: Draw) -> Tensor:
        mean, stddev = mean[chosen], functional.softplus(rho)[chosen]
        sample = mean + stddev * standard_normal(mean.shape, draw.generator)
        return sample if self.clip is None else sample.clamp(-self.clip, self.clip)


def _initial_signs(like: Tensor, positive: float, generator: torch.Generator) -> nn.Parameter:
    """Draw +1 with probability `positive`, else -1, in the shape of `like`."""
    signs = torch.where(torch.rand(like.shape, generator=generator) < positive, 1.0, -1.0)
    parameter = nn.Parameter(torch.empty_like(like).copy_(signs))
    parameter.no_decay = True  # type: ignore[attr-defined]
    return parameter

"""Rank-1 layers (Dusenberry et al. 2020): W_k = W ∘ (s_k r_kᵀ), a distribution over r and s alone.

y = s ∘ (W (r ∘ x)) + b: a draw costs two vectors, so every row of a training batch has its own. The posterior is a
mixture of K components, N(mean_k, σ_k²) for each entry of r and s: K ensemble members in one network, with W, b and
norms in common. While training, row b belongs to component b mod K; posterior sample number n to component n mod K.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from retinabench.models.stochastic.affine import Affine, channels, operation, per_channel
from retinabench.models.stochastic.drawing import Draw, Drawing, standard_normal
from retinabench.models.stochastic.families import gaussian_kl
from retinabench.models.stochastic.variational import initial_rho

# The initial std of the multiplicative noise, that of dropout with rate 0.001, and the std of its ρ.
INITIAL_STDDEV = (math.sqrt(0.001 / 0.999), 0.1)


class Rank1(Drawing):
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
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        inputs, outputs = (
            torch.empty(components, size, device=layer.weight.device) for size in channels(layer)
        )
        self.input_mean = _initial_signs(inputs, positive, generator)
        self.input_rho = initial_rho(inputs, INITIAL_STDDEV, generator)
        self.output_mean = _initial_signs(outputs, positive, generator)
        self.output_rho = initial_rho(outputs, INITIAL_STDDEV, generator)
        self.components, self.clip = components, clip
        self.prior_mean, self.prior_stddev = prior_mean, prior_stddev
        self.operation, self.is_linear = operation(layer), isinstance(layer, nn.Linear)

    def fast_weights(self) -> list[nn.Parameter]:
        """The parameters of the distributions of r and s."""
        return [self.input_mean, self.input_rho, self.output_mean, self.output_rho]

    def forward(self, x: Tensor) -> Tensor:
        """As the replaced layer."""
        return self.each_draw(x, self._own_factors if self.training else self._one_weight)

    def kl_terms(self) -> list[Tensor]:
        """Two divergences in nats, of r and of s: the mean over components of KL(q_k ‖ prior).

        KL is convex, so this bounds the mixture's divergence from above; the gap is at most log K.
        """
        return [self._kl(self.input_mean, self.input_rho), self._kl(self.output_mean, self.output_rho)]

    def _kl(self, mean: Tensor, rho: Tensor) -> Tensor:
        # The prior (N(-1, τ²) + N(1, τ²)) / 2 is, up to log 2, its nearer half: the other one is 2 / τ standard deviations away.
        offset = mean.abs() - 1 if self.prior_mean == "sign" else mean - 1
        return gaussian_kl(offset, functional.softplus(rho), self.prior_stddev) / self.components

    def _own_factors(self, x: Tensor, draw: Draw) -> Tensor:
        """Training: factors for each row, which cannot be folded into one weight."""
        chosen = torch.arange(len(x), device=x.device) % self.components
        into = self._sample(self.input_mean, self.input_rho, chosen, draw)
        out = self._sample(self.output_mean, self.output_rho, chosen, draw)
        y = self.operation(x * per_channel(into, x, self.is_linear).to(x.dtype), self.weight, None)
        y = y * per_channel(out, y, self.is_linear).to(y.dtype)
        if self.bias is None:
            return y
        return y + per_channel(self.bias[None], y, self.is_linear).to(y.dtype)

    def _one_weight(self, x: Tensor, draw: Draw) -> Tensor:
        """Evaluation: one weight W ∘ (s rᵀ) for all rows of the posterior sample."""
        return self.operation(x, self.cached(draw, lambda: self._weight(draw)), self.bias)

    def _weight(self, draw: Draw) -> Tensor:
        chosen = torch.tensor([draw.number % self.components], device=self.weight.device)
        into = self._sample(self.input_mean, self.input_rho, chosen, draw)[0]
        out = self._sample(self.output_mean, self.output_rho, chosen, draw)[0]
        outputs, inputs = self.weight.shape[:2]
        # The outputs of a group see the inputs of that group alone.
        groups = len(into) // inputs
        factors = into.view(groups, inputs).repeat_interleave(outputs // groups, dim=0) * out[:, None]
        return self.weight * factors.view(outputs, inputs, *[1] * (self.weight.ndim - 2))

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

"""A linear layer or convolution whose weight has a posterior w = μ + σ ∘ ε, σ = log(1 + exp(ρ)).

While training, either one weight for all rows of the pass (reparameterised, Kingma & Welling 2014), or flipout (Wen et
al. 2018): row b has the perturbation σ ∘ ε ∘ s_b r_bᵀ with its own random signs s_b, r_b. Both have the same mean and
variance for each row, but with flipout the rows' noise is uncorrelated, and so the gradient's variance falls with the
batch. In evaluation each posterior sample is one weight, shared by its rows: one network, a coherent function.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from retinabench.models.stochastic.affine import Affine, channels, fan_in, operation, per_channel
from retinabench.models.stochastic.drawing import Draw, Drawing, random_signs
from retinabench.models.stochastic.families import Family


class Prior(NamedTuple):
    """N(m, τ²) for every weight.

    mean: `zero`, or `tied` to the posterior's mean, which the KL then leaves alone. stddev: τ; None is He's
    sqrt(2 / fan_in).
    """

    mean: Literal["tied", "zero"]
    stddev: float | None = None


class Variational(Drawing):
    """A layer in place of `layer`: its weight is the posterior's mean, its bias stays deterministic.

    stddev: the mean of the initial σ and the std s of ρ ~ softplus⁻¹(mean) + N(0, s²), cut at 2 s.
    Parameters: `weight` (the mean, under its old name), `rho` of the same shape, `bias`.
    """

    def __init__(
        self,
        layer: Affine,
        *,
        family: Family,
        prior: Prior,
        flipout: bool,
        stddev: tuple[float, float],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.rho = initial_rho(layer.weight, stddev, generator)
        # What the KL acts on is not decayed as well; a tied prior leaves the mean to the L2 term.
        self.weight.no_decay = prior.mean == "zero"  # type: ignore[attr-defined]
        self.family, self.flipout = family, flipout
        self.tied = prior.mean == "tied"
        self.prior_stddev = prior.stddev or math.sqrt(2 / fan_in(layer.weight))
        self.operation, self.is_linear = operation(layer), isinstance(layer, nn.Linear)
        self.inputs, self.outputs = channels(layer)

    @property
    def stddev(self) -> Tensor:
        """σ of every weight."""
        return functional.softplus(self.rho)

    def forward(self, x: Tensor) -> Tensor:
        """As the replaced layer."""
        if not self.training:
            return self.each_draw(x, self._kept_weight)
        stddev, compute = self.stddev, self._flipout if self.flipout else self._one_weight
        return self.each_draw(x, lambda rows, draw: compute(rows, draw, stddev))

    def kl_terms(self) -> list[Tensor]:
        """The divergence of the weight's posterior from its prior, in nats."""
        offset = None if self.tied else self.weight
        return [self.family.kl(offset, self.stddev, self.prior_stddev)]

    def _sample(self, draw: Draw, stddev: Tensor) -> Tensor:
        return self.weight + stddev * self.family.noise(self.weight.shape, draw.generator)

    def _kept_weight(self, x: Tensor, draw: Draw) -> Tensor:
        return self.operation(x, self.cached(draw, lambda: self._sample(draw, self.stddev)), self.bias)

    def _one_weight(self, x: Tensor, draw: Draw, stddev: Tensor) -> Tensor:
        return self.operation(x, self._sample(draw, stddev), self.bias)

    def _flipout(self, x: Tensor, draw: Draw, stddev: Tensor) -> Tensor:
        noise = self.family.noise(self.weight.shape, draw.generator)
        mean = self.operation(x, self.weight, self.bias)
        into = random_signs(torch.Size((len(x), self.inputs)), draw.generator)
        out = random_signs(torch.Size((len(x), self.outputs)), draw.generator)
        flipped = x * per_channel(into, x, self.is_linear).to(x.dtype)
        perturbation = self.operation(flipped, stddev * noise, None)
        return mean + perturbation * per_channel(out, mean, self.is_linear).to(mean.dtype)


def initial_rho(like: Tensor, stddev: tuple[float, float], generator: torch.Generator) -> nn.Parameter:
    """Return ρ in the shape and layout of `like`: softplus⁻¹(mean) + std * N(0, 1), cut at two standard deviations.

    Args:
        like: A tensor of the wanted shape and device.
        stddev: Mean of the initial σ, and std of ρ.
        generator: Source of the draws, on the CPU.
    """
    mean, std = stddev
    rho = torch.randn(like.shape, generator=generator)  # in host memory, so that the device does not matter
    while (far := rho.abs() > 2).any():
        rho[far] = torch.randn(int(far.sum()), generator=generator)
    rho.mul_(std).add_(math.log(math.expm1(mean)))
    parameter = nn.Parameter(torch.empty_like(like).copy_(rho))
    parameter.no_decay = True  # type: ignore[attr-defined]
    return parameter

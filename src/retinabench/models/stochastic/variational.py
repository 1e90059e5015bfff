"""Layers whose weight has a posterior w = μ + σ ∘ ε: Gaussian, radial, or radial as released.

The prior is N(m, τ²) for every entry. The families differ in the noise ε, which has mean 0 and is unchanged when signs are
flipped; flipout (Wen et al. 2018) needs that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from retinabench.models.stochastic.drawing import (
    Affine,
    Draw,
    Drawing,
    channels,
    fan_in,
    operation,
    per_channel,
    random_signs,
    standard_normal,
)

EULER = 0.5772156649015329


class Family(NamedTuple):
    """noise(shape, generator) draws ε; kl(offset, σ, τ) is the divergence in nats, a scalar."""

    noise: Callable[[torch.Size, torch.Generator], Tensor]
    kl: Callable[[Tensor | None, Tensor, float], Tensor]


def gaussian_kl(offset: Tensor | None, stddev: Tensor, prior_stddev: float) -> Tensor:
    """Return KL(N(μ, σ²) ‖ N(m, τ²)) = Σ log(τ / σ) + (σ² + (μ - m)²) / 2τ² - 1/2, in nats."""
    constant = stddev.numel() * (math.log(prior_stddev) - 0.5)
    return _expected_square(offset, stddev, 1) / (2 * prior_stddev**2) - stddev.log().sum() + constant


def radial_noise(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """ε = r z / ‖z‖, z ~ N(0, I) and r ~ N(0, 1): one direction and one distance for the layer's whole weight.

    Farquhar et al. 2020. ‖ε‖ = |r| is half-normal whatever the number of weights D; each entry has variance 1 / D.
    """
    direction = standard_normal(shape, generator)
    scale: Tensor = _distance(generator) / torch.linalg.vector_norm(direction)
    return direction * scale


def radial_kl(offset: Tensor | None, stddev: Tensor, prior_stddev: float) -> Tensor:
    """Return the KL of the radial posterior from N(m, τ² I) in nats: closed, constants included.

    E[ε_i²] = 1 / D makes the cross-entropy Σ (σ² / D + (μ - m)²) / 2τ² + log τ + log(2π) / 2.
    """
    size = stddev.numel()
    return _radial_cross_entropy(offset, stddev, prior_stddev, size) - radial_entropy(size) - stddev.log().sum()


def per_filter_noise(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw as the released Retina Benchmark: directions over the outputs of each input position, one distance for all.

    Every vector w[:, i, ...] has norm |r|, so ‖ε‖² = r² times the number of input positions.
    """
    direction = standard_normal(shape, generator)
    scale: Tensor = _distance(generator) / torch.linalg.vector_norm(direction, dim=0, keepdim=True)
    return direction * scale


def per_filter_kl(offset: Tensor | None, stddev: Tensor, prior_stddev: float) -> Tensor:
    """Return Σ over the vectors w[:, i, ...] of the KL of each vector's own, radial, marginal, in nats.

    All at once they have no density: they share one distance. This sum has the gradient that was meant.
    """
    outputs = stddev.shape[0]
    entropy = stddev.numel() / outputs * radial_entropy(outputs) + stddev.log().sum()
    return _radial_cross_entropy(offset, stddev, prior_stddev, outputs) - entropy


def radial_entropy(size: int) -> float:
    """Differential entropy in nats of ε = r u in `size` dimensions: r ~ N(0, 1), u uniform on the unit sphere.

    H = log S - log 2 + log(2π) / 2 + 1/2 + (D - 1) E log|r|,  S = 2 π^{D/2} / Γ(D/2) the sphere's surface,
    E log|r| = -(γ + log 2) / 2. For D = 1 it is that of N(0, 1).
    """
    surface = math.log(2) + size / 2 * math.log(math.pi) - math.lgamma(size / 2)
    log_distance = -(EULER + math.log(2)) / 2
    return surface - math.log(2) + math.log(2 * math.pi) / 2 + 0.5 + (size - 1) * log_distance


def _radial_cross_entropy(offset: Tensor | None, stddev: Tensor, prior_stddev: float, size: int) -> Tensor:
    constant = stddev.numel() * (math.log(prior_stddev) + math.log(2 * math.pi) / 2)
    return _expected_square(offset, stddev, size) / (2 * prior_stddev**2) + constant


def _expected_square(offset: Tensor | None, stddev: Tensor, size: int) -> Tensor:
    """E ‖w - m‖² where each entry of ε has variance 1 / size."""
    noise = stddev.square().sum() / size
    return noise if offset is None else noise + offset.square().sum()


def _distance(generator: torch.Generator) -> Tensor:
    return torch.randn((), generator=generator, device=generator.device)


FAMILIES: dict[str, Family] = {
    "gaussian": Family(standard_normal, gaussian_kl),
    "radial": Family(radial_noise, radial_kl),
    "radial_per_filter": Family(per_filter_noise, per_filter_kl),
}


class Prior(NamedTuple):
    """N(m, τ²) for every weight.

    mean: `zero`, or `tied` to the posterior's mean, which the KL then leaves alone. stddev: τ; None is He's
    sqrt(2 / fan_in).
    """

    mean: Literal["tied", "zero"]
    stddev: float | None = None


class Variational(Drawing):
    """A layer in place of `layer`: its weight is the posterior's mean, its bias stays deterministic.

    While training, either one weight for all rows of the pass (reparameterised, Kingma & Welling 2014), or flipout (Wen et al.
    2018): row b has the perturbation σ ∘ ε ∘ s_b r_bᵀ with its own random signs, of the same mean and variance, so that the rows'
    noise is uncorrelated. In evaluation each posterior sample is one weight, shared by its rows.
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
        if not self.training:
            return self.each_draw(x, self._kept_weight)
        stddev, compute = self.stddev, self._flipout if self.flipout else self._one_weight
        return self.each_draw(x, lambda rows, draw: compute(rows, draw, stddev))

    def kl_terms(self) -> list[Tensor]:
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
    """Return ρ in the shape and layout of `like`: softplus⁻¹(mean) + std * N(0, 1), cut at two standard deviations."""
    mean, std = stddev
    rho = torch.randn(like.shape, generator=generator)  # in host memory, so that the device does not matter
    while (far := rho.abs() > 2).any():
        rho[far] = torch.randn(int(far.sum()), generator=generator)
    rho.mul_(std).add_(math.log(math.expm1(mean)))
    parameter = nn.Parameter(torch.empty_like(like).copy_(rho))
    parameter.no_decay = True  # type: ignore[attr-defined]
    return parameter

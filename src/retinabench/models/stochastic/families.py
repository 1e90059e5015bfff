"""The noise of a weight's posterior, and its divergence from a Gaussian prior: Gaussian, radial, radial as released.

A weight is w = μ + σ ∘ ε. The families differ in ε. All have mean 0 and are unchanged when signs are flipped, which is
what flipout needs. The prior is N(m, τ²) for every entry; `offset` is μ - m, or None where m is tied to μ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from retinabench.models.stochastic.drawing import standard_normal

EULER = 0.5772156649015329


class Family(NamedTuple):
    """noise(shape, generator) draws ε; kl(offset, σ, τ) is the divergence in nats, a scalar."""

    noise: Callable[[torch.Size, torch.Generator], Tensor]
    kl: Callable[[Tensor | None, Tensor, float], Tensor]


def gaussian_kl(offset: Tensor | None, stddev: Tensor, prior_stddev: float) -> Tensor:
    """Return KL(N(μ, σ²) ‖ N(m, τ²)) = Σ log(τ / σ) + (σ² + (μ - m)²) / 2τ² - 1/2, in nats.

    Args:
        offset: μ - m, in the shape of `stddev`; None is 0.
        stddev: σ of every entry; (outputs, inputs, ...) of a layer's weight.
        prior_stddev: τ.
    """
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

    Args:
        offset: μ - m, in the shape of `stddev`; None is 0.
        stddev: σ of every entry; (outputs, inputs, ...) of a layer's weight.
        prior_stddev: τ.
    """
    size = stddev.numel()
    return (
        _radial_cross_entropy(offset, stddev, prior_stddev, size) - radial_entropy(size) - stddev.log().sum()
    )


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

    Args:
        offset: μ - m, in the shape of `stddev`; None is 0.
        stddev: σ of every entry; (outputs, inputs, ...) of a layer's weight.
        prior_stddev: τ.
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

"""Stein variational gradient descent on flat parameters: particles that climb the posterior and repel each other.

Every particle moves along

    φ(w_i) = 1/K Σ_j [k(w_j, w_i) ∇ log π(w_j) + ∇_{w_j} k(w_j, w_i)],    k(a, b) = exp(-|a - b|² / h),

the direction in the unit ball of the kernel's space that lowers the divergence of the particles from π fastest. The bandwidth is
h = median² / log(K + 1), median over the distances of all pairs. With one particle it is gradient ascent to the maximum of π.

Letters: K particles, P parameters.

References:
    Liu & Wang 2016, "Stein Variational Gradient Descent: A General Purpose Bayesian Inference Algorithm". Their bandwidth has log K.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def direction(weights: Tensor, slope: Tensor) -> Tensor:
    """Return φ of all particles.

    Args:
        weights: (K, P).
        slope: Gradient of log π at them, (K, P).

    Returns:
        (K, P).
    """
    squares = torch.cdist(weights, weights).square()
    width = bandwidth(squares)
    kernel = (-squares / width).exp()
    repulsion = 2 / width * (kernel.sum(dim=1, keepdim=True) * weights - kernel @ weights)
    return (kernel @ slope + repulsion) / len(weights)


def bandwidth(squares: Tensor) -> float:
    """Return h of squared distances (K, K); 1 where there is one particle or most are in one place."""
    particles = len(squares)
    if particles == 1:
        return 1.0
    pairs = squares[tuple(torch.triu_indices(particles, particles, 1))]
    return float(pairs.median()) / math.log(particles + 1) or 1.0

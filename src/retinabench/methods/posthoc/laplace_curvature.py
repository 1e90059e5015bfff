"""The Gauss-Newton curvature of the likelihood, and the prior precision that maximises the evidence.

The generalised Gauss-Newton matrix is H = Σ_n w_n J_nᵀ Λ_n J_n, J_n the Jacobian of the logits of image n, Λ_n the
Fisher information of its label in the outputs: p (1 - p) for one logit, diag(p) - p pᵀ for a softmax, and for mean and
raw standard deviation of a Gaussian diag(1, 2 (dσ/dr)²) / σ². Of logits it is the Hessian of the cross-entropy, and for weights
that enter them linearly H is the Hessian itself.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from retinabench.methods.training.likelihood import Likelihood

EXAMPLES_AT_ONCE = 16


def linear_curvature(features: Tensor, logits: Tensor, weights: Tensor, likelihood: Likelihood) -> Tensor:
    """Return H of the last layer's weights, in float64.

    Output by output: entry c D + d belongs to weight d of output c.

    Shapes: `features` (B, D), `logits` (B, C), `weights` (B,).
    """
    phi = features.double()
    hessian = likelihood.information(logits.double()) * weights.double()[:, None, None]
    size = logits.shape[1] * features.shape[1]
    return torch.einsum("bij,bd,be->idje", hessian, phi, phi).reshape(size, size)


def diagonal_curvature(
    model: nn.Module, images: Tensor, weights: Tensor, likelihood: Likelihood
) -> dict[str, Tensor]:
    """Return the diagonal of H over all parameters of `model`, by name.

    Λ = Rᵀ R, so that the diagonal is the sum of squares of the Jacobian of R f, R held fixed: one row per output.

    Shapes: `images` (B, ...), `weights` (B,).
    """
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def rooted(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
        logits: Tensor = functional_call(model, parameters, (image[None],))[0].float()
        return likelihood.root_times(logits.detach(), logits)

    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    jacobian = vmap(jacrev(rooted), in_dims=(None, 0))
    for start in range(0, len(images), EXAMPLES_AT_ONCE):
        some = slice(start, start + EXAMPLES_AT_ONCE)
        for name, rows in jacobian(parameters, images[some]).items():
            total[name] += torch.einsum("bc...,b->...", rows.square(), weights[some])
    return total


def evidence_precision(eigenvalues: NDArray[np.float64], squared_norm: float) -> float:
    """Return the prior precision δ that maximises Laplace's log evidence (MacKay 1992).

    log p(D) ≈ log p(D | θ*) - ½ δ |θ*|² + ½ Σ_j (log δ - log(λ_j + δ)), with λ_j the eigenvalues (P,) of H. Its
    derivative in log δ is ½ (γ - δ |θ*|²), γ = Σ λ_j / (λ_j + δ) the number of well-determined weights: it falls, so
    that its one root is the maximum.
    """
    eigenvalues = np.clip(eigenvalues, 0, None)

    def slope(log_precision: float) -> float:
        precision = math.exp(log_precision)
        return float((eigenvalues / (eigenvalues + precision)).sum() - precision * squared_norm)

    low, high = -30.0, 30.0
    if slope(low) <= 0:  # nothing is determined by the data
        return math.exp(low)
    return math.exp(high) if slope(high) >= 0 else math.exp(brentq(slope, low, high, xtol=1e-10))

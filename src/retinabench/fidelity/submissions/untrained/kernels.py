"""Covariances of networks of infinite width: of their values, and of their tangents."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Covariance = Callable[[Tensor, Tensor, float, int], Tensor]
"""Inputs (N, D) and (M, D), prior variance of the weights, hidden units -> the covariance (N, M)."""


def relu_covariance(a: Tensor, b: Tensor, prior_variance: float, width: int) -> Tensor:
    """Return the prior covariance K (N, M) of a network with one hidden layer of ReLU units between two sets of inputs.

    With k = s² |x̃|², k' alike and θ the angle of x̃ and x̃', E[relu(z) relu(z')] = √(k k') (sin θ + (π - θ) cos θ) / 2π.

    Shapes: `a` (N, D), `b` (M, D).
    """
    a, b = (torch.cat([x, torch.ones_like(x[:, :1])], dim=1) for x in (a, b))
    lengths = a.norm(dim=1)[:, None] * b.norm(dim=1)
    cosine = (a @ b.T / lengths).clamp(-1, 1)
    angle = cosine.acos()
    expected = prior_variance * lengths * (angle.sin() + (math.pi - angle) * cosine) / (2 * math.pi)
    covariance: Tensor = prior_variance * (1 + width * expected)
    return covariance


def tangent_covariance(a: Tensor, b: Tensor, prior_variance: float, width: int) -> Tensor:
    """Return s² Θ (N, M), Θ the neural tangent kernel of that network at random weights of variance s².

    Θ sums the products of the slopes by all weights: those by the output's weights and bias give K / s², those by the hidden layer's
    H s² E[1(z > 0) 1(z' > 0)] x̃·x̃', and the expectation is (π - θ) / 2π.

    Shapes: `a` (N, D), `b` (M, D).
    """
    covariance = relu_covariance(a, b, prior_variance, width)
    a, b = (torch.cat([x, torch.ones_like(x[:, :1])], dim=1) for x in (a, b))
    products = a @ b.T
    cosine = (products / (a.norm(dim=1)[:, None] * b.norm(dim=1))).clamp(-1, 1)
    both = (math.pi - cosine.acos()) / (2 * math.pi)
    covariance += prior_variance**2 * width * both * products
    return covariance


def linear_covariance(a: Tensor, b: Tensor, prior_variance: float, width: int) -> Tensor:
    """Return s² x̃·x̃' (N, M): a linear layer's own process, which is its tangent as well.

    Shapes: `a` (N, D), `b` (M, D).
    """
    return prior_variance * (1 + a @ b.T)


KERNELS: dict[str, Covariance] = {"nngp": relu_covariance, "ntk": tangent_covariance}

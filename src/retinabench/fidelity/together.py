"""Networks whose weights differ from chain to chain, evaluated together: (K, ...) weights, the same inputs for all.

One entry per network that is worth it, equal to the module's own `forward` and to automatic differentiation. Letters:
K chains, P weights, N points, D features, H hidden units, O outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear, silu, softplus

Weights = Mapping[str, Tensor]


def lenet_smooth(weights: Weights, inputs: Tensor) -> Tensor:
    """(K, ...), (N, 3, 28, 28) -> (K, N, O).

    The first convolution, of inputs that all chains share, is one of K times as many channels. The later ones stay
    apart: on processors a grouped convolution takes three times as long as its groups.
    """
    chains, width = weights["conv1.bias"].shape
    first = conv2d(inputs, weights["conv1.weight"].flatten(0, 1), weights["conv1.bias"].flatten(), padding=2)
    maps = torch.split(_halved(silu(first)), width, dim=1)
    return torch.stack([_after_first(_one(weights, k), maps[k]) for k in range(chains)])


def _after_first(weights: Weights, maps: Tensor) -> Tensor:
    maps = _halved(silu(conv2d(maps, weights["conv2.weight"], weights["conv2.bias"])))
    x = silu(linear(maps.flatten(1), weights["fc1.weight"], weights["fc1.bias"]))
    x = silu(linear(x, weights["fc2.weight"], weights["fc2.bias"]))
    return linear(x, weights["fc.weight"], weights["fc.bias"])


def _halved(maps: Tensor) -> Tensor:
    """Average 2 x 2 blocks: on processors this is four times as fast as `avg_pool2d`."""
    rows = maps[:, :, ::2] + maps[:, :, 1::2]
    return (rows[..., ::2] + rows[..., 1::2]) * 0.25


def _one(weights: Weights, chain: int) -> dict[str, Tensor]:
    return {name: values[chain] for name, values in weights.items()}


def mlp(weights: Weights, inputs: Tensor) -> Tensor:
    """(K, ...), (N, D) -> (K, N, O): one hidden layer of rectified units."""
    hidden = torch.baddbmm(
        weights["fc1.bias"][:, None],
        inputs.expand(len(weights["fc1.bias"]), -1, -1),
        weights["fc1.weight"].mT,
    )
    return torch.baddbmm(weights["fc.bias"][:, None], hidden.relu(), weights["fc.weight"].mT)


def mlp_gaussian(weights: Tensor, inputs: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """(K, P), (N, D), (N,) -> Σ log N(y; μ, softplus(r)²) (K,) and its gradient (K, P), in closed form.

    ∂/∂μ = z / σ and ∂/∂r = (z² - 1) / σ · sigmoid(r) with z = (y - μ) / σ. Four products and no graph: a third of the
    time of automatic differentiation. The inputs are shared, so the first layers of all chains are one product.
    """
    chains, (points, features) = len(weights), inputs.shape
    hidden = (weights.shape[1] - 2) // (features + 3)
    w1, b1, w2, b2 = torch.split(weights, [hidden * features, hidden, 2 * hidden, 2], dim=1)
    w2 = w2.view(chains, 2, hidden)
    ones = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1).T
    first = torch.cat([w1.view(chains, hidden, features), b1[:, :, None]], dim=2).flatten(0, 1)
    active = (first @ ones).relu_().view(chains, hidden, points)
    mean, raw = torch.baddbmm(b2[:, :, None], w2, active).unbind(dim=1)
    deviation = softplus(raw)
    z = (truth - mean) / deviation
    values = -(0.5 * z * z + deviation.log()).sum(dim=1) - points * 0.5 * math.log(2 * math.pi)
    slope = torch.stack([z / deviation, (z * z - 1) / deviation * raw.sigmoid()], dim=1)
    # A rectified number's sign is its derivative; `where` would take as long as all the rest.
    inner = (w2.mT @ slope).mul_(active.sign()).view(-1, points)
    # This way round the product of long rows is four times as fast.
    first = (ones @ inner.T).T.view(chains, hidden, features + 1)
    parts = (first[:, :, :-1].flatten(1), first[:, :, -1], (slope @ active.mT).flatten(1), slope.sum(dim=2))
    return values, torch.cat(parts, dim=1)


class Together(NamedTuple):
    """forward: (K, ...) weights, (N, ...) -> (K, N, O). chains, points: how many a core works on best at once."""

    forward: Callable[[Weights, Tensor], Tensor]
    chains: int
    points: int


TOGETHER = {"lenet-smooth": Together(lenet_smooth, 2, 250), "mlp-8-50-2": Together(mlp, 64, 4096)}

# Log-likelihoods with a gradient by hand, by network and likelihood.
BY_HAND: dict[tuple[str, str], Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    ("mlp-8-50-2", "gaussian"): mlp_gaussian
}

"""Networks whose weights differ from chain to chain, evaluated together: (K, ...) weights, the same inputs for all.

One entry per network that is worth it, equal to the module's own `forward`. Letters: K chains, N points, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear, silu

Weights = Mapping[str, Tensor]


def lenet_smooth(weights: Weights, inputs: Tensor) -> Tensor:
    """(K, ...), (N, 3, 28, 28) -> (K, N, O).

    The first convolution, of inputs that all chains share, is one of K times as many channels. The later ones stay
    apart: on processors a grouped convolution takes three times as long as its groups.
    """
    chains, width = weights["conv1.bias"].shape
    first = conv2d(inputs, weights["conv1.weight"].flatten(0, 1), weights["conv1.bias"].flatten(), padding=2)
    maps = _halved(silu(first)).split(width, dim=1)
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
        weights["fc1.bias"][:, None], inputs.expand(len(weights["fc1.bias"]), -1, -1), weights["fc1.weight"].mT
    )
    return torch.baddbmm(weights["fc.bias"][:, None], hidden.relu(), weights["fc.weight"].mT)


class Together(NamedTuple):
    """forward: (K, ...) weights, (N, ...) -> (K, N, O). chains, points: how many a core works on best at once."""

    forward: Callable[[Weights, Tensor], Tensor]
    chains: int
    points: int


TOGETHER = {"lenet-smooth": Together(lenet_smooth, 2, 250), "mlp-8-50-2": Together(mlp, 64, 4096)}

"""Evaluation of a network at the weights of several chains at once, on the same inputs.

Only networks for which it is faster have an entry; the values are those of the module's own `forward` and of automatic
differentiation. Letters: K chains, P weights, N points, D features, H hidden units, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear, silu

from retinabench.fidelity.targets.closed_forms.mlp_gaussian import MLPGaussian
from retinabench.fidelity.targets.closed_forms.softmax_heads import HiddenSoftmax, LinearSoftmax

Weights = Mapping[str, Tensor]


def lenet_smooth(weights: Weights, inputs: Tensor) -> Tensor:
    """(K, ...), (N, 3, 28, 28) -> (K, N, O).

    The first convolution, of inputs that all chains share, is one of K times as many channels. The later ones are
    separate: on processors a grouped convolution takes three times as long as its groups.
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


def linear_head(weights: Weights, inputs: Tensor) -> Tensor:
    """(K, ...), (N, D) -> (K, N, O): one linear layer."""
    together = inputs.expand(len(weights["fc.bias"]), -1, -1)
    return torch.baddbmm(weights["fc.bias"][:, None], together, weights["fc.weight"].mT)


class Batched(NamedTuple):
    """An evaluation at the weights of several chains.

    Shapes: `forward` (K, ...).
    """

    forward: Callable[[Weights, Tensor], Tensor]
    chains: int
    points: int


BATCHED = {
    "lenet-smooth": Batched(lenet_smooth, 2, 250),
    "mlp-8-50-2": Batched(mlp, 64, 4096),
    "head-8-8": Batched(mlp, 64, 4096),
    "head-8": Batched(linear_head, 64, 4096),
    "head-2": Batched(linear_head, 64, 4096),
}

# Log-likelihoods with a gradient in closed form, by network and likelihood; they take training inputs, targets and the floor.
CLOSED_FORM: dict[tuple[str, str], Callable[[Tensor, Tensor, float], MLPGaussian | LinearSoftmax]] = {
    ("mlp-8-50-2", "gaussian"): MLPGaussian,
    ("head-2", "categorical"): LinearSoftmax,
    ("head-8", "categorical"): LinearSoftmax,
    ("head-8-8", "categorical"): HiddenSoftmax,
}

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

from retinabench.methods.hmc import LogLikelihood

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


class MLPGaussian:
    """Σ log N(y; μ, σ²), σ = softplus(r) + floor, of one hidden layer of rectified units and its gradient, in closed form.

    With z = (y - μ) / σ the slopes of a point's term are s₀ = ∂/∂μ = z / σ and s₁ = ∂/∂r = (z² - 1) / σ · sigmoid(r). Where
    unit h is active, 1, its value is a_h · x with x = (inputs, 1); so all weights' slopes come from one product,
    M[o, d, h] = Σ_n s_o x_d 1_h: those of a_hd are Σ_o w_oh M[o, d, h], those of w_oh are Σ_d a_hd M[o, d, h]. The two large
    arrays are kept between calls: asking for their memory anew can take longer than all arithmetic.
    """

    def __init__(self, inputs: Tensor, truth: Tensor, floor: float = 0.0) -> None:
        self.x = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1).T.contiguous()  # (D + 1, N)
        self.truth, self.floor = truth, floor
        self.active = self.products = inputs.new_empty(0)

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        chains, (columns, points) = len(weights), self.x.shape
        hidden = (weights.shape[1] - 2) // (columns + 2)
        if len(self.products) != chains:
            self.active = weights.new_empty(chains * hidden, points)
            self.products = weights.new_empty(chains, 2, columns, points)
        sizes = [hidden * (columns - 1), hidden, 2 * hidden, 2]
        w1, b1, w2, b2 = torch.split(weights, sizes, dim=1)
        a, w = torch.cat([w1.view(chains, hidden, -1), b1[:, :, None]], dim=2), w2.view(chains, 2, hidden)
        active = torch.mm(a.flatten(0, 1), self.x, out=self.active).relu_().view(chains, hidden, points)
        mean, raw = torch.baddbmm(b2[:, :, None], w, active).unbind(dim=1)
        deviation = softplus(raw).add_(self.floor)
        z = (self.truth - mean) / deviation
        values = -(0.5 * z * z + deviation.log()).sum(dim=1) - points * 0.5 * math.log(2 * math.pi)
        slope = torch.stack([z / deviation, (z * z - 1) / deviation * raw.sigmoid()], dim=1)
        products = torch.mul(slope[:, :, None], self.x, out=self.products).view(chains, -1, points)
        m = (products @ active.sign_().mT).view(chains, 2, columns, hidden)
        of_a, of_w = (m * w[:, :, None]).sum(dim=1), (m * a.mT[:, None]).sum(dim=2)
        parts = (of_a[:, :-1].mT.flatten(1), of_a[:, -1], of_w.flatten(1), slope.sum(dim=2))
        return values, torch.cat(parts, dim=1)


class Together(NamedTuple):
    """forward: (K, ...) weights, (N, ...) -> (K, N, O). chains, points: how many a core works on best at once."""

    forward: Callable[[Weights, Tensor], Tensor]
    chains: int
    points: int


TOGETHER = {"lenet-smooth": Together(lenet_smooth, 2, 250), "mlp-8-50-2": Together(mlp, 64, 4096)}

# Log-likelihoods with a gradient by hand, by network and likelihood: made from the training points.
BY_HAND: dict[tuple[str, str], Callable[[Tensor, Tensor, float], LogLikelihood]] = {
    ("mlp-8-50-2", "gaussian"): MLPGaussian
}

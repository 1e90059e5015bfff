"""Evaluation of a network at the weights of several chains at once, on the same inputs.

Only networks for which it is faster have an entry; the values are those of the module's own `forward` and of automatic
differentiation. Letters: K chains, P weights, N points, D features, H hidden units, O outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear, silu, softplus

from retinabench.fidelity.targets.softmax_heads import HiddenSoftmax, LinearSoftmax

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


class MLPGaussian:
    """Σ log N(y; μ, σ²), σ = softplus(r) + floor, of one hidden layer of rectified units and its gradient, in closed form.

    With z = (y - μ) / σ the slopes of a point's term are s₀ = ∂/∂μ = z / σ and s₁ = ∂/∂r = (z² - 1) / σ · sigmoid(r). Where
    unit h is active, 1, its value is a_h · x with x = (inputs, 1); so all weights' slopes come from one product,
    M[o, d, h] = Σ_n s_o x_d 1_h: those of a_hd are Σ_o w_oh M[o, d, h], those of w_oh are Σ_d a_hd M[o, d, h].

    Arrays and their views are reused between calls: allocating them again can take longer than all arithmetic, and making
    a view as long as a small operation. Results are new arrays.
    """

    def __init__(self, inputs: Tensor, truth: Tensor, floor: float = 0.0) -> None:
        self.x = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1).T.contiguous()  # (D + 1, N)
        self.truth, self.floor = truth, floor
        self.constant = inputs.new_tensor(-0.5 * math.log(2 * math.pi) * len(truth))
        self.buffers: _Buffers | None = None

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        gradient = self.gradient(weights)
        k = self.buffers
        assert k is not None
        energy = torch.log(k.std, out=k.energy).addcmul_(k.z, k.z, value=0.5)
        return torch.sub(self.constant, energy.sum(dim=1)), gradient

    def gradient(self, weights: Tensor) -> Tensor:
        """(K, P) -> (K, P)."""
        if self.buffers is None or self.buffers.shape != weights.shape:
            self.buffers = _Buffers(weights, self.x)
        k = self.buffers
        torch.index_select(weights.reshape(-1), 0, k.order, out=k.flat)
        torch.mm(k.a_rows, self.x, out=k.active_rows).relu_()
        torch.bmm(k.w, k.active, out=k.outputs).add_(k.b)
        k.std = std = softplus(k.raw).add_(self.floor)
        z = torch.sub(self.truth, k.mean, out=k.z).div_(std)
        torch.div(z, std, out=k.slope_of_mean)
        torch.mul(z, z, out=k.slope_of_raw).sub_(1).div_(std).mul_(k.raw.sigmoid_())
        torch.mul(k.slope_of_all, self.x, out=k.products)
        k.active_rows.gt_(0)
        torch.bmm(k.products_rows, k.active_columns, out=k.m_rows)
        torch.mul(k.m_of_mean, k.w_of_mean, out=k.of_a).addcmul_(k.m_of_raw, k.w_of_raw)
        torch.sum(k.m.mul_(k.a_columns), dim=2, out=k.of_w)
        torch.sum(k.slope, dim=2, keepdim=True, out=k.of_b)
        return k.gradient.index_select(0, k.back).view(k.shape)


class _Buffers:
    """The arrays of an evaluation of (K, P) weights, and views of them.

    order: where each element of a (K, H, D + 1), w (K, 2, H) and b (K, 2, 1), one after the other, is found in the
    weights. back: where each weight's slope is found in of_a (K, D + 1, H), of_w and of_b.
    """

    def __init__(self, weights: Tensor, x: Tensor) -> None:
        self.shape = weights.shape
        chains, (columns, points) = len(weights), x.shape
        hidden = (weights.shape[1] - 2) // (columns + 2)
        numbers = torch.arange(weights.numel(), device=weights.device).view(chains, -1)
        w1, b1, *last = torch.split(numbers, [hidden * (columns - 1), hidden, 2 * hidden, 2], dim=1)
        a = torch.cat([w1.view(chains, hidden, -1), b1[:, :, None]], dim=2)
        self.order = torch.cat([part.flatten() for part in (a, *last)])
        self.back = torch.cat([part.flatten() for part in (a.mT, *last)]).argsort()

        def parts(flat: Tensor, *shapes: tuple[int, ...]) -> list[Tensor]:
            sizes = [math.prod(shape) for shape in shapes]
            return [p.view(shape) for p, shape in zip(torch.split(flat, sizes), shapes, strict=True)]

        of_output, of_bias = (chains, 2, hidden), (chains, 2, 1)
        self.flat, self.gradient = weights.new_empty(2, weights.numel()).unbind()
        self.a, self.w, self.b = parts(self.flat, (chains, hidden, columns), of_output, of_bias)
        self.of_a, self.of_w, self.of_b = parts(self.gradient, (chains, columns, hidden), of_output, of_bias)
        self.active = weights.new_empty(chains, hidden, points)
        self.a_rows, self.active_rows = self.a.flatten(0, 1), self.active.flatten(0, 1)
        self.a_columns, self.active_columns = self.a.mT[:, None], self.active.mT
        self.outputs, self.slope = weights.new_empty(2, chains, 2, points).unbind()
        self.mean, self.raw = self.outputs.unbind(dim=1)
        self.slope_of_mean, self.slope_of_raw = self.slope.unbind(dim=1)
        self.slope_of_all = self.slope[:, :, None]
        self.z, self.energy, self.std = weights.new_empty(3, chains, points).unbind()
        self.products, self.m = (weights.new_empty(chains, 2, columns, size) for size in (points, hidden))
        self.products_rows, self.m_rows = self.products.flatten(1, 2), self.m.flatten(1, 2)
        self.m_of_mean, self.m_of_raw = self.m.unbind(dim=1)
        self.w_of_mean, self.w_of_raw = self.w[:, :1], self.w[:, 1:]


class Batched(NamedTuple):
    """An evaluation at the weights of several chains.

    Args:
        forward: (K, ...) weights, (N, ...) inputs -> (K, N, O).
        chains: How many a core processes fastest at once.
        points: How many a core processes fastest at once.
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

# Log-likelihoods with a hand-written gradient, by network and likelihood; they take training inputs, targets and the floor.
BY_HAND: dict[tuple[str, str], Callable[[Tensor, Tensor, float], MLPGaussian | LinearSoftmax]] = {
    ("mlp-8-50-2", "gaussian"): MLPGaussian,
    ("head-2", "categorical"): LinearSoftmax,
    ("head-8", "categorical"): LinearSoftmax,
    ("head-8-8", "categorical"): HiddenSoftmax,
}

"""Log-likelihoods of small networks and their gradients in closed form, for several chains at once.

Letters: K chains, P weights, N points, D features, H hidden units, C classes.

`MLPGaussian`: Σ_n log N(y_n; μ_n, σ_n²), σ = softplus(r) + floor, (μ, r) = W₂ relu(W₁ x + b₁) + b₂. With z = (y - μ) / σ the slopes
of a point's term are ∂/∂μ = z / σ and ∂/∂r = (z² - 1) / σ · sigmoid(r). `plain` states it in PyTorch; the same sums are also
written as loops, which Numba compiles where it is installed: the hidden layer of one chain stays in the cache. The flat weights are
W₁ (H, D), b₁ (H), W₂ (2, H), b₂ (2).

`LinearSoftmax`, `HiddenSoftmax`: Σ log softmax(f)_y. With e = 1_y - softmax(f), the slopes by the last layer are e hᵀ, those by hidden
units w ᵀ e where these are active, those by the first layer the latter times the inputs. Automatic differentiation takes ten times
as long on networks so small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

Floats = NDArray[np.floating[Any]]
Loops = Callable[[Floats, Floats, Floats, Any, Floats, Floats], None]
"""weights (K, P), inputs (D, N), truth (N,), floor, values (K,) and gradients (K, P), the last two to be written."""


class MLPGaussian:
    """The log-likelihood of training points, inputs (N, D) and truth (N,), as a `LogLikelihood` of `methods/hmc.py`."""

    def __init__(self, inputs: Tensor, truth: Tensor, floor: float = 0.0) -> None:
        self.inputs, self.truth, self.floor = inputs, truth, floor
        self.columns = inputs.T.contiguous()
        self.compiled = not inputs.is_cuda and find_spec("numba") is not None

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        if not self.compiled:
            return plain(weights, self.inputs, self.truth, self.floor)
        weights = weights.contiguous()
        values, gradients = weights.new_empty(len(weights)), torch.empty_like(weights)
        features = len(self.columns)
        evaluate = loops(features, (weights.shape[1] - 2) // (features + 3))
        x, truth = self.columns.numpy(), self.truth.numpy()
        evaluate(weights.numpy(), x, truth, x.dtype.type(self.floor), values.numpy(), gradients.numpy())
        return values, gradients

    def gradient(self, weights: Tensor) -> Tensor:
        return self(weights)[1]


def plain(weights: Tensor, inputs: Tensor, truth: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return the log-likelihoods (K,) of inputs (N, D) and truth (N,), and their gradients (K, P)."""
    chains, features = len(weights), inputs.shape[1]
    hidden = (weights.shape[1] - 2) // (features + 3)
    flat = torch.split(weights, [hidden * features, hidden, 2 * hidden, 2], dim=1)
    w1, b1, w2, b2 = flat[0].view(chains, hidden, -1), flat[1], flat[2].view(chains, 2, -1), flat[3]
    x = inputs.expand(chains, -1, -1)
    active = torch.baddbmm(b1[:, None], x, w1.mT).relu_()  # (K, N, H)
    mean, raw = torch.baddbmm(b2[:, None], active, w2.mT).unbind(dim=2)  # (K, N)
    std = softplus(raw) + floor
    z = (truth - mean) / std
    slopes = torch.stack([z / std, (z * z - 1) / std * raw.sigmoid()], dim=2)  # (K, N, 2)
    of_hidden = (slopes @ w2) * (active > 0)
    values = -(0.5 * z * z + std.log() + 0.5 * math.log(2 * math.pi)).sum(dim=1)
    parts = of_hidden.mT @ x, of_hidden.sum(dim=1), slopes.mT @ active, slopes.sum(dim=1)
    return values, torch.cat([part.flatten(1) for part in parts], dim=1)


@lru_cache(maxsize=8)
def loops(features: int, hidden: int) -> Loops:
    """Return the loops over chains, units and points, compiled for numbers of features and hidden units.

    Only with the number of features known does the compiler unroll the innermost loop. Scalars are read before the loops over
    points, since the compiler cannot know that these do not overwrite them. Sums may be reordered (`reassoc`); infinite values
    and NaN keep their meaning.
    """
    import numba

    jit = numba.njit(fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")
    layer, points, back = jit(_layer(features)), jit(_points), jit(_back(features))
    b1, w2 = hidden * features, hidden * (features + 1)
    b2 = w2 + 2 * hidden

    def evaluate(weights: Floats, x: Floats, truth: Floats, floor: Any, values: Floats, gradients: Floats) -> None:
        active = np.empty((hidden, x.shape[1]), x.dtype)
        outputs, slope = np.empty((2, x.shape[1]), x.dtype), np.empty(x.shape[1], x.dtype)
        for k in range(len(weights)):
            w, g = weights[k], gradients[k]
            outputs[0], outputs[1] = w[b2], w[b2 + 1]
            for h in range(hidden):
                layer(w[h * features : b1], w[b1 + h], w[w2 + h], w[w2 + hidden + h], x, active[h], outputs)
            values[k] = points(outputs, truth, floor)
            g[b2], g[b2 + 1] = outputs[0].sum(), outputs[1].sum()
            for h in range(hidden):
                g[b1 + h], g[w2 + h], g[w2 + hidden + h] = back(
                    w[w2 + h], w[w2 + hidden + h], x, active[h], outputs, slope, g[h * features : b1]
                )

    compiled: Loops = jit(evaluate)
    return compiled


def _layer(features: int) -> Callable[..., None]:
    """Return the loop that writes the values of one hidden unit (N,) and adds them to the outputs (2, N)."""

    def layer(weights: Floats, bias: Any, to_mean: Any, to_raw: Any, x: Floats, unit: Floats, outputs: Floats) -> None:
        zero = bias - bias
        for n in range(len(unit)):
            value = bias
            for d in range(features):
                value += weights[d] * x[d, n]
            value = max(value, zero)
            unit[n] = value
            outputs[0, n] += to_mean * value
            outputs[1, n] += to_raw * value

    return layer


def _points(outputs: Floats, truth: Floats, floor: Any) -> float:
    """Return the log-likelihood and write the slopes of the outputs (2, N) in their place."""
    one = outputs.dtype.type(1)
    total = 0.0
    for n in range(len(truth)):
        raw = outputs[1, n]
        small = math.exp(-abs(raw))
        std = max(raw, one - one) + math.log(one + small) + floor
        z = (truth[n] - outputs[0, n]) / std
        total -= 0.5 * z * z + math.log(std)
        outputs[0, n] = z / std
        outputs[1, n] = (z * z - one) / std * ((one if raw >= 0 else small) / (one + small))
    return total - 0.5 * math.log(2 * math.pi) * len(truth)


def _back(features: int) -> Callable[..., tuple[Any, Any, Any]]:
    """Return the loop that gives the slopes of one hidden unit's bias and two output weights, and writes those of its weights (D,)."""

    def back(
        to_mean: Any, to_raw: Any, x: Floats, unit: Floats, slopes: Floats, slope: Floats, of_weights: Floats
    ) -> tuple[Any, Any, Any]:
        zero = to_mean - to_mean
        of_bias = of_mean = of_raw = zero
        for n in range(len(unit)):
            of_mean += unit[n] * slopes[0, n]
            of_raw += unit[n] * slopes[1, n]
            slope[n] = to_mean * slopes[0, n] + to_raw * slopes[1, n] if unit[n] > zero else zero
            of_bias += slope[n]
        for d in range(features):
            total = zero
            for n in range(len(unit)):
                total += slope[n] * x[d, n]
            of_weights[d] = total
        return of_bias, of_mean, of_raw

    return back


class LinearSoftmax:
    """One linear layer, of inputs (N, D) and classes (N,)."""

    def __init__(self, inputs: Tensor, truth: Tensor, floor: float = 0.0) -> None:
        self.x = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)  # (N, D + 1)
        self.truth = truth
        self.hits: dict[int, Tensor] = {}  # 1_y, (C, N), by C

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        outputs, state = self._outputs(weights)
        logs, hits = outputs.log_softmax(dim=1), self._hits(outputs)
        return (logs * hits).sum(dim=(1, 2)), self._gradient(hits - logs.exp(), state)

    def gradient(self, weights: Tensor) -> Tensor:
        """(K, P) -> (K, P)."""
        outputs, state = self._outputs(weights)
        return self._gradient(self._hits(outputs) - outputs.softmax(dim=1), state)

    def _hits(self, outputs: Tensor) -> Tensor:
        classes = outputs.shape[1]
        if classes not in self.hits:
            self.hits[classes] = torch.nn.functional.one_hot(self.truth, classes).T.to(outputs.dtype)
        return self.hits[classes]

    def _outputs(self, weights: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the outputs (K, C, N), and what the gradient needs besides their slopes."""
        chains, features = len(weights), self.x.shape[1] - 1
        classes = weights.shape[1] // (features + 1)
        cut = classes * features
        joined = torch.cat([weights[:, :cut].reshape(-1, features), weights[:, cut:].reshape(-1, 1)], dim=1)
        return (joined @ self.x.T).view(chains, classes, -1), ()

    def _gradient(self, slope: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        return _of_layer(slope, self.x)


class HiddenSoftmax(LinearSoftmax):
    """One hidden layer before the linear one: of rectified units, or of `smooth` ones, z sigmoid(z)."""

    def __init__(
        self, inputs: Tensor, truth: Tensor, floor: float = 0.0, *, hidden: int = 8, smooth: bool = False
    ) -> None:
        super().__init__(inputs, truth, floor)
        self.hidden, self.smooth = hidden, smooth

    def _outputs(self, weights: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        chains, features, hidden = len(weights), self.x.shape[1] - 1, self.hidden
        first = hidden * features
        classes = (weights.shape[1] - first - hidden) // (hidden + 1)
        w1, b1, w2, b2 = torch.split(weights, [first, hidden, classes * hidden, classes], dim=1)
        joined = torch.cat([w1.reshape(-1, features), b1.reshape(-1, 1)], dim=1)
        units = (joined @ self.x.T).view(chains, hidden, -1)  # (K, H, N)
        if self.smooth:
            gate = units.sigmoid()
            active = units * gate
            bend = gate.addcmul_(active, 1 - gate)
        else:
            active = units.relu_()
            bend = active > 0
        last = w2.reshape(chains, classes, hidden)
        return torch.baddbmm(b2[:, :, None], last, active), (active, bend, last)

    def _gradient(self, slope: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        active, bend, last = state
        of_last = [torch.bmm(slope, active.mT).flatten(1), slope.sum(dim=2)]
        of_hidden = torch.bmm(last.mT, slope).mul_(bend)
        return torch.cat([_of_layer(of_hidden, self.x), *of_last], dim=1)


def _of_layer(slope: Tensor, x: Tensor) -> Tensor:
    """Return the slopes by weights and biases of a linear layer, (K, O (D + 1)), from those by its outputs, (K, O, N)."""
    products = slope @ x  # (K, O, D + 1)
    return torch.cat([products[..., :-1].flatten(1), products[..., -1]], dim=1)

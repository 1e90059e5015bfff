"""Σ log softmax(f)_y of small heads on features and its gradient, in closed form, for several chains at once.

Automatic differentiation takes ten times as long on networks so small, nearly all of it between operations. With e = 1_y - softmax(f), the slope by the
outputs, the slopes by the last layer are e hᵀ, those by hidden units w ᵀ e where these are active, and those by the first layer the latter
times the inputs. Values and gradients are those of `batched_networks.py` with `autograd`, to rounding (tested).

Letters: K chains, P weights, N points, D features, H hidden units, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor


class LinearSoftmax:
    """One linear layer.

    Shapes: `inputs` (N, D), `truth` (N,).
    """

    def __init__(self, inputs: Tensor, truth: Tensor, floor: float = 0.0) -> None:
        self.x = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)  # (N, D + 1)
        self.truth = truth
        self.hits: dict[int, Tensor] = {}  # 1_y, (C, N), by C

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        outputs, state = self._outputs(weights)
        logs = outputs.log_softmax(dim=1)
        hits = self._hits(outputs)
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
    """One hidden layer of rectified units before the linear one.

    Shapes: `inputs` (N, D), `truth` (N,).
    """

    def __init__(self, inputs: Tensor, truth: Tensor, floor: float = 0.0, hidden: int = 8) -> None:
        super().__init__(inputs, truth, floor)
        self.hidden = hidden

    def _outputs(self, weights: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        chains, features, hidden = len(weights), self.x.shape[1] - 1, self.hidden
        first = hidden * features
        classes = (weights.shape[1] - first - hidden) // (hidden + 1)
        w1, b1, w2, b2 = torch.split(weights, [first, hidden, classes * hidden, classes], dim=1)
        joined = torch.cat([w1.reshape(-1, features), b1.reshape(-1, 1)], dim=1)
        active = (joined @ self.x.T).view(chains, hidden, -1).relu_()  # (K, H, N)
        last = w2.reshape(chains, classes, hidden)
        return torch.baddbmm(b2[:, :, None], last, active), (active, last)

    def _gradient(self, slope: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        active, last = state
        of_last = [torch.bmm(slope, active.mT).flatten(1), slope.sum(dim=2)]
        of_hidden = torch.bmm(last.mT, slope).mul_(active > 0)
        return torch.cat([_of_layer(of_hidden, self.x), *of_last], dim=1)


def _of_layer(slope: Tensor, x: Tensor) -> Tensor:
    """Return the slopes by weights and biases of a linear layer, (K, O (D + 1)), from those by its outputs, (K, O, N)."""
    products = slope @ x  # (K, O, D + 1)
    return torch.cat([products[..., :-1].flatten(1), products[..., -1]], dim=1)

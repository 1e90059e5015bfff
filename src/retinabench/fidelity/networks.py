"""The small networks of the fidelity targets as array functions: outputs and slopes of flat weights, for one draw or for many.

Letters: P weights, N points, D inputs, H units, O outputs; "..." are any leading axes, such as draws. The flat weights are in the order
of the parameters of `models/networks/small.py`: of each layer the matrix (units, inputs), then the biases.

Functions of `xp` are written over the array functions of that namespace, `numpy` or `jax.numpy`, so that JAX can trace them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Array = Any  # of the namespace


@dataclass(frozen=True)
class Dense:
    """Linear layers of some widths (D, H, …, O), with rectified units between them, or `smooth` ones, z sigmoid(z)."""

    widths: tuple[int, ...]
    smooth: bool = False

    def outputs(self, weights: Array, inputs: Array, xp: Any) -> Array:
        """(..., P), (N, D) -> (..., N, O)."""
        return self._values(weights, inputs, xp)[-1]

    def slopes(self, weights: Floats, inputs: Floats, by_outputs: Floats) -> Floats:
        """(..., P), (N, D) and the slopes by the outputs (..., N, O) -> those by the weights (..., P)."""
        values, parts, slope = self._values(weights, inputs, np), [], by_outputs
        for number, (matrix, _) in reversed(list(enumerate(self._layers(weights)))):
            units = self._active(values[number], np) if number else inputs
            by_matrix = np.swapaxes(slope, -1, -2) @ units
            parts += [slope.sum(axis=-2), by_matrix.reshape(*by_matrix.shape[:-2], -1)]
            if number:
                slope = (slope @ matrix) * self._slope(values[number], units)
        return np.concatenate(parts[::-1], axis=-1)

    def _values(self, weights: Array, inputs: Array, xp: Any) -> list[Array]:
        """Return the inputs, and the values of the units of each layer before their activation, (..., N, units)."""
        values = [inputs]
        for number, (matrix, bias) in enumerate(self._layers(weights)):
            units = self._active(values[-1], xp) if number else inputs
            values.append(xp.matmul(units, xp.swapaxes(matrix, -1, -2)) + bias[..., None, :])
        return values

    def _active(self, values: Array, xp: Any) -> Array:
        return values * (0.5 + 0.5 * xp.tanh(0.5 * values)) if self.smooth else xp.maximum(values, 0)

    def _slope(self, values: Floats, units: Floats) -> Floats:
        if not self.smooth:
            return np.asarray(values > 0)
        sigmoid = 0.5 + 0.5 * np.tanh(0.5 * values)
        return np.asarray(sigmoid + units * (1 - sigmoid))

    def _layers(self, weights: Array) -> list[tuple[Array, Array]]:
        layers, start = [], 0
        for inputs, units in zip(self.widths[:-1], self.widths[1:], strict=True):
            end = start + inputs * units
            matrix = weights[..., start:end].reshape(*weights.shape[:-1], units, inputs)
            layers.append((matrix, weights[..., end : end + units]))
            start = end + units
        return layers


class Bent:
    """Two weights u, v; the second logit is a (u + v²) + b v for inputs (a, b), the first 0."""

    def outputs(self, weights: Array, inputs: Array, xp: Any) -> Array:
        """(..., 2), (N, 2) -> (..., N, 2)."""
        u, v = weights[..., :1], weights[..., 1:]
        second = (u + v * v) * inputs[:, 0] + v * inputs[:, 1]
        return xp.stack([xp.zeros_like(second), second], axis=-1)

    def slopes(self, weights: Floats, inputs: Floats, by_outputs: Floats) -> Floats:
        """(..., 2), (N, 2), (..., N, 2) -> (..., 2)."""
        by_sum, by_v = (by_outputs[..., 1] @ column for column in inputs.T)
        return np.stack([by_sum, 2 * weights[..., 1] * by_sum + by_v], axis=-1)


SMOOTH_HEADS = {f"head-8-{units}-smooth": units for units in (50, 72, 350)}
"""The hidden units of the heads of smooth units, by name."""

NETWORKS: dict[str, Callable[[int], Dense | Bent]] = {
    "head-2": lambda outputs: Dense((2, outputs)),
    "head-8": lambda outputs: Dense((8, outputs)),
    "head-8-8": lambda outputs: Dense((8, 8, outputs)),
    **{name: lambda outputs, units=units: Dense((8, units, outputs), True) for name, units in SMOOTH_HEADS.items()},  # type: ignore[misc]
    "mlp-8-50-2": lambda outputs: Dense((8, 50, outputs)),
    "banana": lambda _: Bent(),
}
"""By the name of the network, from the number of outputs."""


@dataclass(frozen=True, eq=False)
class Categorical:
    """Classes (N,), of logits (..., N, C)."""

    classes: NDArray[np.int64]

    def log_density(self, outputs: Array, xp: Any) -> Array:
        """Return Σ_n log softmax(f_n)_y, (...)."""
        return ((outputs - _log_sum(outputs, xp)) * np.eye(outputs.shape[-1])[self.classes]).sum(axis=(-2, -1))

    def slopes(self, outputs: Floats) -> Floats:
        """Return those of the sum by the outputs, (..., N, C)."""
        return np.eye(outputs.shape[-1])[self.classes] - self.predict(outputs)

    def predict(self, outputs: Floats) -> Floats:
        """Return class probabilities, (..., N, C)."""
        return np.asarray(np.exp(outputs - _log_sum(outputs, np)))


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Values y (N,) ~ N(μ, σ²), σ = softplus(r) + floor, of outputs (μ, r), (..., N, 2)."""

    y: Floats
    floor: float = 0.0

    def log_density(self, outputs: Array, xp: Any) -> Array:
        """Return Σ_n log N(y_n; μ_n, σ_n²), (...)."""
        std = xp.logaddexp(outputs[..., 1], 0.0) + self.floor
        z = (self.y - outputs[..., 0]) / std
        return (-0.5 * z * z - xp.log(std)).sum(axis=-1) - 0.5 * math.log(2 * math.pi) * len(self.y)

    def slopes(self, outputs: Floats) -> Floats:
        """Return those of the sum by the outputs, (..., N, 2)."""
        mean, std = np.moveaxis(self.predict(outputs), -1, 0)
        z = (self.y - mean) / std
        sigmoid = np.exp(-np.logaddexp(0, -outputs[..., 1]))
        return np.stack([z / std, (z * z - 1) / std * sigmoid], axis=-1)

    def predict(self, outputs: Floats) -> Floats:
        """Return means and stds, (..., N, 2)."""
        return np.stack([outputs[..., 0], np.logaddexp(outputs[..., 1], 0.0) + self.floor], axis=-1)


def _log_sum(logits: Array, xp: Any) -> Array:
    most = logits.max(axis=-1, keepdims=True)
    return most + xp.log(xp.exp(logits - most).sum(axis=-1, keepdims=True))

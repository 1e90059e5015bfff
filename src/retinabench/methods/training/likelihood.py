"""What the outputs of a network mean: the likelihood, in one place for every method.

    (B, 1) and labels 0 or 1 (float)    the logit of class 1                                      Bernoulli
    (B, C) and class numbers (int)      logits                                                    categorical
    (B, 2) and real targets (float)     mean μ and r, the deviation is softplus(r) + a floor      Gaussian

The first two tell themselves apart by their shape. The third is set for a stretch of work by `regression()`, so that
methods need not know of it: they minimise `cross_entropy` and answer with `predictive`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, softplus

_floor: ContextVar[float | None] = ContextVar("floor", default=None)


@contextmanager
def regression(on: bool = True, floor: float = 0.0) -> Iterator[None]:
    """Let the outputs within be mean and raw deviation of a Gaussian, whose deviation is never below `floor`."""
    token = _floor.set(floor if on else None)
    try:
        yield
    finally:
        _floor.reset(token)


def is_regression() -> bool:
    """Say whether the outputs are those of a Gaussian."""
    return _floor.get() is not None


def deviation_of(raw: Tensor) -> Tensor:
    """Return the deviation of raw outputs r, any shape, of a regression: softplus(r) + floor."""
    floor = _floor.get()
    deviation = softplus(raw)
    return deviation + floor if floor else deviation


def negative_log_likelihood(outputs: Tensor, labels: Tensor) -> Tensor:
    """Outputs (B, O), labels (B,) -> (B,), in nats, in the outputs' precision."""
    if is_regression():
        deviation = deviation_of(outputs[:, 1])
        squares = ((labels - outputs[:, 0]) / deviation).square()
        return 0.5 * squares + deviation.log() + 0.5 * math.log(2 * math.pi)
    if outputs.shape[1] == 1:
        return binary_cross_entropy_with_logits(outputs.squeeze(1), labels, reduction="none")
    return cross_entropy(outputs, labels, reduction="none")


def predictive(outputs: Tensor) -> Tensor:
    """Turn outputs into the parameters of the predictive distribution, float32.

    (B, 1) by the sigmoid and (B, C) by the softmax into class probabilities (B, 2) and (B, C); those of a regression
    into mean and deviation (B, 2).
    """
    outputs = outputs.float()
    if is_regression():
        return torch.stack([outputs[:, 0], deviation_of(outputs[:, 1])], dim=1)
    if outputs.shape[1] > 1:
        return outputs.softmax(dim=1)
    referable = outputs.sigmoid()
    return torch.cat([1 - referable, referable], dim=1)

"""Many networks with one hidden layer of ReLU, trained at once: every parameter has a leading axis, the networks.

The networks share nothing: their losses are added, Adam works element by element, and every split has a stream of
random numbers of its own. Each of them ends as if it had been trained alone, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from retinabench.core.progress import Advance
from retinabench.core.random_streams import torch_generator

Parameters = dict[str, Tensor]
BATCH_SIZE, LR = 128, 0.01  # of all methods
# parameters, inputs (M, B, D), targets (M, B) -> the loss of every network (M,)
Loss = Callable[[Parameters, Tensor, Tensor], Tensor]


def streams(splits: int, seed: int, *name: str | int) -> list[torch.Generator]:
    """Return a random stream per split, each a function of the seed, its name and the split's number alone."""
    return [torch_generator("cpu", seed, "uci", *name, k) for k in range(splits)]


def draw(
    generators: Sequence[torch.Generator], networks: int, sample: Callable[[torch.Generator], Tensor]
) -> Tensor:
    """Draw once per generator and hand the draw to all networks of its split: (networks, …).

    Networks of one split stand together; those that differ in a setting alone share their noise, so that settings
    are compared under the same luck.
    """
    drawn = torch.stack([sample(generator) for generator in generators])
    return drawn.repeat_interleave(networks // len(generators), dim=0)


def initial(
    generators: Sequence[torch.Generator], networks: int, features: int, hidden: int, outputs: int = 1
) -> Parameters:
    """Return Glorot's uniform weights and zero biases.

    hidden.weight (M, D, H), hidden.bias (M, 1, H), output.weight (M, H, outputs), output.bias (M, 1, outputs).
    """

    def glorot(rows: int, columns: int) -> Tensor:
        limit = math.sqrt(6 / (rows + columns))
        uniform = draw(generators, networks, lambda g: torch.rand(rows, columns, generator=g))
        return (2 * uniform - 1) * limit

    return {
        "hidden.weight": glorot(features, hidden),
        "hidden.bias": torch.zeros(networks, 1, hidden),
        "output.weight": glorot(hidden, outputs),
        "output.bias": torch.zeros(networks, 1, outputs),
    }


def forward(weights: Parameters, inputs: Tensor) -> Tensor:
    """(M, B, D) -> (M, B, outputs)."""
    hidden = torch.baddbmm(weights["hidden.bias"], inputs, weights["hidden.weight"]).relu()
    return torch.baddbmm(weights["output.bias"], hidden, weights["output.weight"])


def train(
    parameters: Parameters,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    epochs: int,
    generators: Sequence[torch.Generator],
    advance: Advance = lambda steps: None,
) -> Parameters:
    """Minimise `loss` with Adam, at a constant rate that falls to 0 in the last quarter; return the parameters.

    inputs: (K, n, D) and targets: (K, n) of K splits; M networks, M / K of each split. generators: of the order of the
    rows, one per split or one per network. `advance` is told after every epoch.
    """
    splits, rows, features = inputs.shape
    networks = len(next(iter(parameters.values())))
    own_split = torch.arange(splits).repeat_interleave(networks // splits)[:, None] * rows
    flat_inputs, flat_targets = inputs.reshape(-1, features), targets.reshape(-1)
    parameters = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    optimizer = torch.optim.Adam(parameters.values(), lr=LR, fused=True)
    for epoch in range(epochs):
        order = draw(generators, networks, lambda g: torch.randperm(rows, generator=g)) + own_split
        for start in range(0, rows, BATCH_SIZE):
            progress = (epoch + start / rows) / epochs
            optimizer.param_groups[0]["lr"] = LR * min(1, 4 * (1 - progress))
            chosen = order[:, start : start + BATCH_SIZE]
            optimizer.zero_grad(set_to_none=True)
            loss(parameters, flat_inputs[chosen], flat_targets[chosen]).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        advance(1)
    return {name: value.detach() for name, value in parameters.items()}

"""Deep ensembles (Lakshminarayanan et al. 2017): five networks that predict mean and variance, by likelihood.

As published, every member sees all training rows, in an order of its own and from weights of its own. Two differences:
no adversarial examples, and a tenth of the published learning rate of 0.1, at which one member or another diverges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from retinabench.core.progress import Advance
from retinabench.core.random_streams import torch_generator
from retinabench.data.datasets.uci import Floats, Regression
from retinabench.experiments.uci.folds import Fold, final_fold
from retinabench.experiments.uci.networks import Parameters, forward, initial, train

TITLE = "Deep ensemble"
VERSION = 1
TRAININGS = 1
MEMBERS = 5
LEAST_VARIANCE = 1e-6  # of the standardised target, as published


def compute(
    data: Regression, hidden: int, epochs: int, seed: int, advance: Advance = lambda steps: None
) -> tuple[Floats, Floats, list[dict[str, Any]]]:
    """Train the members of all splits and predict the test rows.

    Returns means and variances (5, K, m) in the target's own units; nothing is chosen.
    """
    fold = final_fold(data)
    generators = [
        torch_generator("cpu", seed, "uci", data.name, "ensemble", member, k)
        for k in range(len(fold))
        for member in range(MEMBERS)
    ]
    means, variances = predict(fit(fold, hidden, epochs, generators, advance), fold.held_inputs)
    own_variances = fold.scale[:, None] ** 2 * variances.double().numpy()
    return fold.own_units(means), own_variances, [{} for _ in range(len(fold))]


def fit(
    fold: Fold,
    hidden: int,
    epochs: int,
    generators: Sequence[torch.Generator],
    advance: Advance = lambda steps: None,
) -> Parameters:
    """Train one network per generator, those of one split together, each with its own weights and order."""
    return train(
        initial(generators, len(generators), fold.inputs.shape[2], hidden, outputs=2),
        negative_log_likelihood,
        fold.inputs,
        fold.targets,
        epochs=epochs,
        generators=generators,
        advance=advance,
    )


def negative_log_likelihood(weights: Parameters, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over a batch of -log N(y; mean, variance): (M,)."""
    mean, variance = moments(weights, inputs)
    return 0.5 * (math.log(2 * math.pi) + variance.log() + (targets - mean).square() / variance).mean(dim=1)


def moments(weights: Parameters, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """(M, B, D) -> mean and variance, (M, B) each; the variance is softplus of the second output."""
    mean, raw = forward(weights, inputs).unbind(dim=2)
    return mean, softplus(raw) + LEAST_VARIANCE


@torch.no_grad()
def predict(weights: Parameters, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Predict standardised inputs (K, m, D): mean and variance of every member, (members, K, m) each."""
    members = len(weights["hidden.bias"]) // len(inputs)
    shape = (len(inputs), members, inputs.shape[1])
    mean, variance = moments(weights, inputs.repeat_interleave(members, dim=0))
    return mean.view(shape).transpose(0, 1), variance.view(shape).transpose(0, 1)

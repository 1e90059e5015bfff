"""MC dropout (Gal & Ghahramani 2016): dropout before both layers, in training and in prediction.

Protocol of the released grid search: weight decay by a prior length scale of 0.01, and for every split the dropout rate
and the noise precision tau that have the highest likelihood on the last fifth of its TRAINING rows. (The first release
chose them by Bayesian optimisation that saw test points.) Two differences: tau does not enter the training here, whose
weight decay takes the noise's deviation to be that of the target, so that one network per rate serves a fine grid of
tau instead of three values; and the network that is tested has been trained again on all training rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retinabench.core.progress import Advance
from retinabench.data.datasets.uci import Floats, Regression
from retinabench.experiments.uci.folds import Fold, final_fold, tuning_fold
from retinabench.experiments.uci.networks import Parameters, draw, initial, streams, train

TITLE = "MC dropout"
VERSION = 1
TRAININGS = 2  # for tuning, then for testing
LENGTH_SCALE = 0.01
SAMPLES, TUNING_SAMPLES = 1000, 100
RATES = (0.005, 0.01, 0.05, 0.1)
# Of the standardised target; between two of them lies no likelihood more than 0.006 nats above both.
PRECISIONS = tuple(10 ** (i / 8) for i in range(41))


def compute(
    data: Regression, hidden: int, epochs: int, seed: int, advance: Advance = lambda steps: None
) -> tuple[Floats, Floats, list[dict[str, Any]]]:
    """Tune, train and predict the test rows of every split.

    Returns means and variances (T, K, m) in the target's own units, and per split what was chosen.
    """

    def noise(purpose: str) -> list[torch.Generator]:
        return streams(len(data.train), seed, data.name, "dropout", purpose)

    rates, variance = choose(tuning_fold(data), hidden, epochs, noise("tune"), noise("try"), advance)
    fold = final_fold(data)
    weights = fit(fold, rates, hidden, epochs, noise("fit"), advance)
    means = fold.own_units(predict(weights, fold.held_inputs, rates, SAMPLES, noise("predict")))
    chosen = [
        {"rate": round(float(rate), 6), "noise_deviation": math.sqrt(one)}
        for rate, one in zip(rates, variance, strict=True)
    ]
    return means, np.broadcast_to(variance[:, None], means.shape), chosen


def choose(
    fold: Fold,
    hidden: int,
    epochs: int,
    training_noise: Sequence[torch.Generator],
    prediction_noise: Sequence[torch.Generator],
    advance: Advance = lambda steps: None,
) -> tuple[Tensor, Floats]:
    """Return the rate (K,) and the noise's variance in own units (K,) with the highest likelihood of the held rows."""
    rates = torch.tensor(RATES).repeat(len(fold))
    weights = fit(fold, rates, hidden, epochs, training_noise, advance)
    drawn = predict(weights, fold.held_inputs, rates, TUNING_SAMPLES, prediction_noise)
    best = likelihoods(drawn, fold).view(len(fold), -1).argmax(dim=1)
    precision = np.asarray(PRECISIONS)[best % len(PRECISIONS)]
    # In own units, since the next fold has another scale.
    return torch.tensor(RATES)[best // len(PRECISIONS)], fold.scale**2 / precision


def fit(
    fold: Fold,
    rates: Tensor,
    hidden: int,
    epochs: int,
    generators: Sequence[torch.Generator],
    advance: Advance = lambda steps: None,
) -> Parameters:
    """Train one network per entry of `rates` (M,); M / K networks per split, those of one split together.

    Loss: mean squared error + l2 Σ w² over both weight matrices, l2 = length_scale² (1 - rate) / (2 n), with tau = 1 in
    standardised units.
    """
    rows, features = fold.inputs.shape[1:]
    l2 = LENGTH_SCALE**2 * (1 - rates) / (2 * rows)

    def loss(weights: Parameters, inputs: Tensor, targets: Tensor) -> Tensor:
        error = (forward(weights, inputs, rates, generators) - targets).square().mean(dim=1)
        squares = (weights[name].square().sum(dim=(1, 2)) for name in ("hidden.weight", "output.weight"))
        return error + l2 * sum(squares)

    return train(
        initial(generators, len(rates), features, hidden),
        loss,
        fold.inputs,
        fold.targets,
        epochs=epochs,
        generators=generators,
        advance=advance,
    )


def forward(
    weights: Parameters, inputs: Tensor, rates: Tensor, generators: Sequence[torch.Generator]
) -> Tensor:
    """(M, B, D) -> (M, B), every unit kept with probability 1 - rate and then divided by it."""

    def kept(like: Tensor) -> Tensor:
        uniform = draw(generators, len(generators), lambda g: torch.rand(like.shape[1:], generator=g))
        # Networks of one split share the uniforms: rates are compared under the same luck.
        keep = uniform[:, None] >= rates.view(len(generators), -1, 1, 1)
        return like * keep.view(like.shape)

    scale = (1 / (1 - rates))[:, None, None]  # on the few weights instead of the many units
    hidden = torch.baddbmm(weights["hidden.bias"], kept(inputs), weights["hidden.weight"] * scale).relu()
    output = torch.baddbmm(weights["output.bias"], kept(hidden), weights["output.weight"] * scale)
    return output.squeeze(2)


@torch.no_grad()
def predict(
    weights: Parameters, inputs: Tensor, rates: Tensor, samples: int, generators: Sequence[torch.Generator]
) -> Tensor:
    """Draw standardised predictions for inputs (K, m, D): (T, M, m)."""
    own = inputs.repeat_interleave(len(rates) // len(inputs), dim=0)
    return torch.stack([forward(weights, own, rates, generators) for _ in range(samples)])


def likelihoods(drawn: Tensor, fold: Fold) -> Tensor:
    """Mean log-likelihood of the held rows for every network and precision: (M, 41).

    drawn: (T, M, m). The mixture's, log Σ_t N(y; f_t, 1 / tau), up to what is the same for all.
    """
    copies = drawn.shape[1] // len(fold)
    target = (fold.held_target - fold.centre[:, None]) / fold.scale[:, None]
    distances = (drawn - torch.from_numpy(target).float().repeat_interleave(copies, dim=0)).square()
    found = [
        (torch.logsumexp(-0.5 * tau * distances, dim=0) + 0.5 * math.log(tau)).mean(dim=1)
        for tau in PRECISIONS
    ]
    return torch.stack(found, dim=1)

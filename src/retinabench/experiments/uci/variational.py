"""Mean-field variational inference (Graves 2011, Blundell et al. 2015) with a Gaussian likelihood.

Every weight has a Gaussian of its own, the prior of each is N(0, 1), and the noise's variance is learnt with the
posterior by the evidence bound, which needs no validation rows. The hidden units' pre-activations are drawn by local
reparameterisation (Kingma et al. 2015), one draw per point; given them, the output is a Gaussian whose two moments are
known, and so its weights are integrated out instead of drawn, in the bound and in the predictive mixture alike. Both
are exact in distribution: for one point, the pre-activations of different units are independent.
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
from retinabench.experiments.uci.folds import Fold, final_fold
from retinabench.experiments.uci.networks import Parameters, draw, initial, streams, train

TITLE = "Mean-field VI"
VERSION = 1
TRAININGS = 1
SAMPLES = 1000
WEIGHTS = ("hidden.weight", "hidden.bias", "output.weight", "output.bias")
FIRST_DEVIATION = 0.05  # of every weight's Gaussian, before training
FIRST_NOISE = 0.1  # variance, of the standardised target


def compute(
    data: Regression, hidden: int, epochs: int, seed: int, advance: Advance = lambda steps: None
) -> tuple[Floats, Floats, list[dict[str, Any]]]:
    """Train all splits and predict the test rows.

    Returns means and variances (T, K, m) in the target's own units, and per split the learnt noise.
    """
    fold = final_fold(data)
    posterior = fit(fold, hidden, epochs, streams(len(fold), seed, data.name, "variational", "fit"), advance)
    generators = streams(len(fold), seed, data.name, "variational", "predict")
    means, variances = predict(posterior, fold.held_inputs, SAMPLES, generators)
    own_variances = fold.scale[:, None] ** 2 * variances.double().numpy()
    noise = fold.scale * np.exp(0.5 * posterior["log_noise"].double().numpy())
    return fold.own_units(means), own_variances, [{"noise_deviation": float(one)} for one in noise]


def fit(
    fold: Fold,
    hidden: int,
    epochs: int,
    generators: Sequence[torch.Generator],
    advance: Advance = lambda steps: None,
) -> Parameters:
    """Maximise the evidence bound of every split: one posterior each."""
    splits, rows, features = fold.inputs.shape
    means = initial(generators, splits, features, hidden)
    start = dict(means)
    for name, mean in means.items():
        start[f"{name}.log_deviation"] = torch.full_like(mean, math.log(FIRST_DEVIATION))
    start["log_noise"] = torch.full((splits,), math.log(FIRST_NOISE))

    def loss(posterior: Parameters, inputs: Tensor, targets: Tensor) -> Tensor:
        fit_term = expected_negative_log_likelihood(posterior, inputs, targets, generators)
        return fit_term + divergence(posterior) / rows

    return train(
        start,
        loss,
        fold.inputs,
        fold.targets,
        epochs=epochs,
        generators=generators,
        advance=advance,
    )


def expected_negative_log_likelihood(
    posterior: Parameters, inputs: Tensor, targets: Tensor, generators: Sequence[torch.Generator]
) -> Tensor:
    """Return -E[log N(y; f, noise)], mean over a batch: (K,). E[(y - f)²] = (y - mean)² + variance given the units."""
    mean, variance = output(posterior, hidden_units(posterior, inputs, generators))
    log_noise = posterior["log_noise"]
    error = ((targets - mean).square() + variance).mean(dim=1)
    return 0.5 * (math.log(2 * math.pi) + log_noise + error * torch.exp(-log_noise))


def divergence(posterior: Parameters) -> Tensor:
    """KL(q || N(0, 1)), summed over all weights: (K,)."""
    total = torch.zeros_like(posterior["log_noise"])
    for name in WEIGHTS:
        mean, log_deviation = posterior[name], posterior[f"{name}.log_deviation"]
        terms = 0.5 * ((2 * log_deviation).exp() + mean.square() - 1) - log_deviation
        total = total + terms.sum(dim=(1, 2))
    return total


def hidden_units(posterior: Parameters, inputs: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """Draw the hidden units of inputs (K, B, D): (K, B, H)."""
    mean, variance = _moments(posterior, "hidden", inputs)
    noise = draw(generators, len(generators), lambda g: torch.randn(mean.shape[1:], generator=g))
    return (mean + variance.sqrt() * noise).relu()


def output(posterior: Parameters, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of the output given the hidden units (K, B, H), without noise: (K, B) each."""
    mean, variance = _moments(posterior, "output", hidden)
    return mean.squeeze(2), variance.squeeze(2)


@torch.no_grad()
def predict(
    posterior: Parameters, inputs: Tensor, samples: int, generators: Sequence[torch.Generator]
) -> tuple[Tensor, Tensor]:
    """Draw standardised predictions for inputs (K, m, D): means and variances, the noise included, (T, K, m) each."""
    noise = posterior["log_noise"].exp()[:, None]
    drawn = [output(posterior, hidden_units(posterior, inputs, generators)) for _ in range(samples)]
    return torch.stack([mean for mean, _ in drawn]), torch.stack([variance + noise for _, variance in drawn])


def _moments(posterior: Parameters, layer: str, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of an affine map with independent Gaussian weights."""
    variances = {part: (2 * posterior[f"{layer}.{part}.log_deviation"]).exp() for part in ("weight", "bias")}
    mean = torch.baddbmm(posterior[f"{layer}.bias"], inputs, posterior[f"{layer}.weight"])
    return mean, torch.baddbmm(variances["bias"], inputs.square(), variances["weight"])

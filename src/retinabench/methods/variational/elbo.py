"""Options of the variational methods, and the negative evidence lower bound as the objective of the training loop.

-ELBO / N = E_q[CE] + T w(t) KL(q ‖ p) / N, with N training images, the temperature T and the annealing w of the step.
T = 1 and w = 1 is the bound itself, up to the class weights of the cross-entropy, which are those of MAP.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.settings import MethodConfig, TrainingRun
from retinabench.methods.training.gradients import BatchInfo, Objective, cross_entropy
from retinabench.methods.training.posterior import precision
from retinabench.models.stochastic.drawing import Affine, kl, swap
from retinabench.models.stochastic.variational import Family, Prior, Variational

Annealing = Literal["none", "linear", "cyclical", "linear_released"]
CYCLES = 4
RELEASED_EPOCHS = 200


class VariationalConfig(MethodConfig):
    """Options of every method with a variational objective.

    samples: posterior samples per prediction. train_samples: forward passes per training step.
    kl_temperature: T. annealing: the course of the KL's weight (`kl_weight`).
    """

    samples: int = Field(5, ge=1)
    train_samples: int = Field(1, ge=1)
    kl_temperature: float = Field(1.0, ge=0)
    annealing: Annealing = "linear"


class WeightConfig(VariationalConfig):
    """Options of the methods with a posterior over every weight.

    estimator: `flipout`, or `reparameterised` with one weight for the batch.
    prior_mean: `tied` to the posterior's mean, as published, or `zero`. prior_stddev: None is sqrt(2 / fan-in).
    stddev_mean_init, stddev_stddev_init: the initial σ, and the std of softplus⁻¹(σ) around it.
    """

    estimator: Literal["flipout", "reparameterised"] = "flipout"
    prior_mean: Literal["tied", "zero"] = "tied"
    prior_stddev: float | None = Field(None, gt=0)
    stddev_mean_init: float = Field(1e-3, gt=0)
    stddev_stddev_init: float = Field(0.1, ge=0)


def around_weights(model: nn.Module, options: WeightConfig, family: Family, seed: int) -> nn.Module:
    """Put a posterior of `family` around the weights of every linear layer and convolution, in place; return the network."""
    generator = torch_generator("cpu", seed, "variational")

    def make(layer: Affine) -> nn.Module:
        return Variational(
            layer,
            family=family,
            prior=Prior(options.prior_mean, options.prior_stddev),
            flipout=options.estimator == "flipout",
            stddev=(options.stddev_mean_init, options.stddev_stddev_init),
            generator=generator,
        )

    return swap(model, make)


def elbo(
    posterior: SampledPosterior, batches: Batches, run: TrainingRun, options: VariationalConfig
) -> Objective:
    """Return the objective with the terms `cross_entropy` and `kl`."""
    model, likelihood = posterior.model, posterior.likelihood

    def data_term(images: Tensor, labels: Tensor, batch: BatchInfo) -> Tensor:
        with precision(run, images.device):
            outputs = model(images)  # every pass draws its own noise
        return cross_entropy(outputs, labels, likelihood, run.optimizer.reweight, batch)

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        weight = kl_weight(batch.step, batches.steps, run.optimizer.epochs, options.annealing)
        weight *= options.kl_temperature / len(batches.train)
        return {
            "cross_entropy": torch.stack(
                [data_term(images, labels, batch) for _ in range(options.train_samples)]
            ).mean(),
            "kl": weight * kl(model),
        }

    return objective


def kl_weight(step: int, steps_per_epoch: int, epochs: int, annealing: Annealing) -> float:
    """Return the weight of the KL divergence at 0-based `step`.

    References:
        Bowman et al. (2016), "Generating sentences from a continuous space"; Fu et al. (2019), "Cyclical annealing
        schedule".
    """
    total = epochs * steps_per_epoch
    if annealing == "linear":
        return min(1.0, 2 * (step + 1) / total)
    if annealing == "cyclical":
        return min(1.0, 2 * ((step * CYCLES) % total + CYCLES) / total)
    if annealing == "linear_released":
        return min(1.0, (step + 1) / (RELEASED_EPOCHS * steps_per_epoch))
    return 1.0

"""Mean-field variational inference (Graves 2011, Blundell et al. 2015): an independent Gaussian for every weight.

q(w) = Π N(w_i; μ_i, σ_i²) minimises E_q[-log p(y | x, w)] + KL(q ‖ p), the gradient by flipout (Wen et al. 2018).
Biases and norms stay deterministic, as published.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.posteriors.sampled import SampledPosterior
from retinabench.methods.settings import Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.variational.elbo import WeightConfig, around_weights, elbo
from retinabench.models.stochastic.families import FAMILIES


class Config(WeightConfig):
    """The options shared with radial, and no other (`methods/variational.py`)."""

    title = "MFVI"

    name: Literal["mfvi"] = "mfvi"

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        variance, std = optimizer.prior_variance(points), self.prior_stddev
        if optimizer.l2_on != "everything":
            return optimizer.target(
                points, ""
            )  # the biases and norms, which are points, have their prior in the L2 term
        if self.prior_mean != "zero" or std is None:
            return no_target("a prior that follows the means, or the width of a layer")
        if self.annealing == "linear_released":
            return no_target("the weight of the divergence depends on the number of epochs")
        if abs(std**2 / variance - 1) > 1e-6:
            return no_target(f"two priors: variance {std**2:.3g} of weights, {variance:.3g} of biases")
        how = "the best independent Gaussian of the weights, biases and norms as points"
        return TargetPosterior(self.kl_temperature, variance, how)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
    """Put Gaussians around the weights."""
    network = around_weights(model, as_config(run, Config), FAMILIES["gaussian"], run.seed)
    return SampledPosterior(network, likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SampledPosterior:
    """Put Gaussians around the weights and train them."""
    posterior = build(model, run, likelihood)
    objective = elbo(posterior, batches, run, as_config(run, Config))
    return train(posterior, batches, run, checkpoint, objective=objective)


FIDELITY = (
    FidelitySettings(
        name="mfvi",
        title="MFVI",
        method={
            "name": "mfvi",
            "samples": 100,
            "annealing": "none",
            "prior_mean": "zero",
            "prior_stddev": "prior_std",
        },
        optimizer={"name": "adam", "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.00073}, "method": {"stddev_mean_init": 0.016}},
        gaussian={"optimizer": {"lr": 0.0061}, "method": {"stddev_mean_init": 0.0056}},
        search={
            "categorical": {
                "method.stddev_mean_init": log_range(0.005, 0.1),
                "optimizer.lr": log_range(0.0005, 0.01),
            },
            "gaussian": {
                "method.stddev_mean_init": log_range(0.005, 0.1),
                "optimizer.lr": log_range(0.001, 0.03),
            },
        },
    ),
)

"""Radial Bayesian network (Farquhar et al. 2020): the weights' noise has a uniform direction and a normal length.

w = μ + σ ∘ r z / ‖z‖, z ~ N(0, I), r ~ N(0, 1). A Gaussian of D dimensions lies at distance sqrt(D) from its mean; this
one lies near it whatever D is, so that samples look like the mean and gradients stay quiet. The objective is MFVI's,
the KL closed.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.posteriors.sampled import SampledPosterior
from retinabench.methods.settings import Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.variational.elbo import WeightConfig, around_weights, elbo
from retinabench.models.stochastic.families import FAMILIES


class Config(WeightConfig):
    """norm: over what the noise is normalised.

    `layer`: the layer's whole weight, as in the paper. `per_filter`: the outputs of each input position, as released.
    The other options are those of MFVI. The noise of a layer has length σ, where MFVI's has σ sqrt(D), and the weight about
    sqrt(2 · outputs): the default moves it by a share like MFVI's.
    """

    title = "Radial"

    name: Literal["radial"] = "radial"
    stddev_mean_init: float = Field(0.1, gt=0)
    norm: Literal["layer", "per_filter"] = "layer"

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target("the noise's law is not the one whose divergence from the prior is taken")


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
    """Put radial posteriors around the weights."""
    options = as_config(run, Config)
    family = FAMILIES["radial" if options.norm == "layer" else "radial_per_filter"]
    return SampledPosterior(around_weights(model, options, family, run.seed), likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SampledPosterior:
    """Put radial posteriors around the weights and train them."""
    posterior = build(model, run, likelihood)
    objective = elbo(posterior, batches, run, as_config(run, Config))
    return train(posterior, batches, run, checkpoint, objective=objective)

"""Mean-field variational inference (Graves 2011, Blundell et al. 2015): an independent Gaussian for every weight.

q(w) = Π N(w_i; μ_i, σ_i²) minimises E_q[-log p(y | x, w)] + KL(q ‖ p), the gradient by flipout (Wen et al. 2018).
Biases and norms stay deterministic, as published.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.training.sampling import SampledPosterior
from retinabench.methods.variational.elbo import WeightConfig, around_weights, elbo
from retinabench.models.stochastic.families import FAMILIES


class Config(WeightConfig):
    """The options shared with radial, and no other (`methods/variational.py`)."""

    title = "MFVI"

    name: Literal["mfvi"] = "mfvi"


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

"""MC dropout (Gal & Ghahramani 2016): dropout that stays on; every forward pass is one posterior sample.

**Idea.** A network trained with dropout is taken as a posterior: dropout stays on at prediction, and every pass
is a sample.

**Equation.** h ← h ∘ m / (1 - rate), m ~ Bernoulli(1 - rate) for every activation of every image. Trained as
MAP, cross-entropy and L2; p(y | x) is the mean over S passes. Batch norm predicts with its running statistics:
only the dropout is random.

**Settings.** `rate` 0.1, rounded to a multiple of 2^-16, `samples` 5. The places are the network's
`dropout_sites` (ResNet-50: 37, behind every activation that no sum precedes and behind the norm of each
projection, as published), or every activation of a network that names none.

**Cost.** Sixteen random bits per activation, and a multiplication: a tenth to a fifth more than a pass of
ResNet-18 on one core, more where the network is narrow. A prediction is S passes.

**When it fails.** The noise does not shrink with data: its amount is a hyper-parameter, to be tuned on
validation NLL. Each image has masks of its own, so a sample is no function: samples of different images are
independent. Small networks and short trainings learn late with a high rate.

**Tested.** Number and place of the sites; mean and share of what is kept; the same noise whatever the number of
samples in a pass.

**Source.** Gal & Ghahramani 2016; Filos et al. 2019.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.models.stochastic.dropout import add_dropout


class Config(MethodConfig):
    """rate: share of activations dropped at each site. samples: forward passes per prediction."""

    title = "MC dropout"

    name: Literal["dropout"] = "dropout"
    rate: float = Field(0.1, ge=0, lt=1)
    samples: int = Field(5, ge=1)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target(
            "no density of the weights is stated: noise on activations", optimizer.target(points, "")
        )


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
    """Put dropout into the network and return the posterior."""
    return SampledPosterior(add_dropout(model, as_config(run, Config).rate), likelihood, per_image=True)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SampledPosterior:
    """Put dropout into the network, train it and return the posterior."""
    return train(build(model, run, likelihood), batches, run, checkpoint)


FIDELITY = (
    FidelitySettings(
        name="dropout",
        title="MC dropout",
        method={"name": "dropout", "samples": 100},
        optimizer={"name": "adam", "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.00057}, "method": {"rate": 0.28}},
        gaussian={"optimizer": {"lr": 0.0068}, "method": {"rate": 0.0035}},
        search={
            "categorical": {"method.rate": log_range(0.02, 0.4), "optimizer.lr": log_range(0.0003, 0.005)},
            "gaussian": {"method.rate": log_range(0.003, 0.2), "optimizer.lr": log_range(0.002, 0.02)},
        },
    ),
)

"""MC dropout (Gal & Ghahramani 2016): dropout that stays on; every forward pass is one posterior sample.

Sites: as in the Retina Benchmark (37 in ResNet-50, see `models/resnet.py`). Batch norm predicts with its running
statistics, only the dropout is random.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.posteriors.sampled import SampledPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.models.stochastic import add_dropout


class Config(MethodConfig):
    """rate: share of activations dropped at each site. samples: forward passes per prediction."""

    title = "MC dropout"

    name: Literal["dropout"] = "dropout"
    rate: float = Field(0.1, ge=0, lt=1)
    samples: int = Field(5, ge=1)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return no_target("no density of the weights is stated: noise on activations")


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
    """Put dropout into the network."""
    return SampledPosterior(add_dropout(model, as_config(run, Config).rate), likelihood, per_image=True)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SampledPosterior:
    """Put dropout into the network and train it."""
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

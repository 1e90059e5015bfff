"""MC dropout (Gal & Ghahramani 2016): dropout that stays on; every forward pass is one posterior sample.

Sites: as in the Retina Benchmark (37 in ResNet-50, see `models/resnet.py`). Batch norm predicts with its running
statistics, only the dropout is random.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.settings import MethodConfig, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.training.sampling import SampledPosterior
from retinabench.models.stochastic import add_dropout


class Config(MethodConfig):
    """rate: share of activations dropped at each site. samples: forward passes per prediction."""

    title = "MC dropout"

    name: Literal["dropout"] = "dropout"
    rate: float = Field(0.1, ge=0, lt=1)
    samples: int = Field(5, ge=1)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
    """Put dropout into the network."""
    return SampledPosterior(add_dropout(model, as_config(run, Config).rate), likelihood, per_image=True)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> SampledPosterior:
    """Put dropout into the network and train it."""
    return train(build(model, run, likelihood), batches, run, checkpoint)

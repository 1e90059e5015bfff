"""MC dropout (Gal & Ghahramani 2016): dropout that stays on; every forward pass is one posterior sample.

Sites: as in the Retina Benchmark (37 in ResNet-50, see `models/resnet.py`). Batch norm predicts with its running
statistics, only the dropout is random.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from retinabench import config
from retinabench.config import Run
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config
from retinabench.methods.journal import Journal
from retinabench.methods.sampling import SampledPosterior
from retinabench.methods.training import train
from retinabench.models.stochastic import add_dropout


class Config(config.Method):
    """rate: share of activations dropped at each site. samples: forward passes per prediction."""

    title = "MC dropout"

    name: Literal["dropout"] = "dropout"
    rate: float = Field(0.1, ge=0, lt=1)
    samples: int = Field(5, ge=1)


def build(model: nn.Module, run: Run) -> SampledPosterior:
    """Put dropout into the network."""
    return SampledPosterior(add_dropout(model, as_config(run, Config).rate), per_image=True)


def fit(model: nn.Module, batches: Batches, run: Run, journal: Journal) -> SampledPosterior:
    """Put dropout into the network and train it."""
    return train(build(model, run), batches, run, journal)

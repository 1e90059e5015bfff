"""MC dropout (Gal & Ghahramani 2016): dropout that stays on; every forward pass is one posterior sample.

Sites: as in the Retina Benchmark (37 in ResNet-50, see `models/resnet.py`). Batch norm predicts with its running
statistics, only the dropout is random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench import config
from retinabench.config import Run
from retinabench.data.loader import Batches
from retinabench.methods.base import State, as_config, class_probabilities, network_state
from retinabench.methods.journal import Journal
from retinabench.methods.training import train
from retinabench.models.stochastic import add_dropout, use_generator


class Config(config.Method):
    """rate: share of activations dropped at each site. samples: forward passes per prediction."""

    title = "MC dropout"

    name: Literal["dropout"] = "dropout"
    rate: float = Field(0.1, ge=0, lt=1)
    samples: int = Field(5, ge=1)


@dataclass
class DropoutPosterior:
    """One network whose units are kept at random."""

    model: nn.Module

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """(B, 3, H, W) -> (S, B, C), S independent masks per image."""
        self.model.eval()
        use_generator(self.model, generator)
        return torch.stack([class_probabilities(self.model(images)) for _ in range(samples)])

    def state(self) -> State:
        """The network's tensors; the masks are not learnt."""
        return network_state(self.model)

    def restore(self, state: State) -> None:
        """Take over saved tensors."""
        self.model.load_state_dict(state)


def build(model: nn.Module, run: Run) -> DropoutPosterior:
    """Put dropout into the network."""
    return DropoutPosterior(add_dropout(model, as_config(run, Config).rate))


def fit(model: nn.Module, batches: Batches, run: Run, journal: Journal) -> DropoutPosterior:
    """Put dropout into the network and train it."""
    return train(build(model, run), batches, run, journal)

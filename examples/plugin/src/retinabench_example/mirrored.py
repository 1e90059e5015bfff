"""Test-time augmentation: every posterior sample is MAP's prediction of randomly mirrored images.

References:
    Ayhan and Berens 2018, Test-time data augmentation for estimation of heteroscedastic aleatoric uncertainty, MIDL.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.data.loader import Batches
from retinabench.methods.map import PointPosterior
from retinabench.methods.settings import MethodConfig, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train


class Config(MethodConfig):
    """Settings of `mirrored`.

    Args:
        samples: Mirrored copies of each image, S.
    """

    title = "Test-time mirroring"

    name: Literal["mirrored"] = "mirrored"
    samples: int = Field(5, ge=1)


class MirroredPosterior(PointPosterior):
    """One network, whose predictions differ because its images are mirrored."""

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images (B, 3, H, W); inputs without height and width stay as they are."""
        self.model.eval()
        flips = torch.randint(0, 2, (samples, 2), generator=generator, device=generator.device).tolist()
        axes = (2, 3) if images.ndim == 4 else ()
        views = (images.flip([axis for axis in axes if flip[axis - 2]]) for flip in flips)
        return torch.stack([self.likelihood.predictive(self.model(view)) for view in views])


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> MirroredPosterior:
    """Return the posterior around an untrained network."""
    return MirroredPosterior(model, likelihood)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> MirroredPosterior:
    """Train the network as MAP does; an objective of its own would go to `train` as `objective=`."""
    return train(build(model, run, likelihood), batches, run, checkpoint)

"""Anchored ensembles (Pearce et al. 2020): one member, a MAP network whose prior is centred at an anchor drawn from it.

θ_k = argmin_θ  mean NLL + l2 Σ (θ - a_k)²,  a_k ~ N(0, 1 / (2 N l2)). The ensemble is `ensemble` with K of these: their
anchors, initial weights and orders of pictures differ with the seed. `matched` anchors are those under which a
linear-Gaussian model's members are draws of its posterior (`anchors.py`).
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, log_range
from retinabench.methods.ensembles.anchors import (
    Anchors,
    anchored_objective,
    anchored_target,
    prior_std,
    without_l2,
)
from retinabench.methods.map import PointPosterior, build
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train
from retinabench.methods.training.optimizers import make_optimizer

__all__ = ["FIDELITY", "Config", "build", "fit"]


class Config(MethodConfig):
    """anchors: drawn from the `prior`, or `matched` to the posterior: after half of the epochs, noise of the likelihood's
    own covariance there joins them. That costs one more pass over the training pictures.
    """

    title = "anchored MAP"

    name: Literal["anchored"] = "anchored"
    samples: Literal[1] = 1
    anchors: Literal["prior", "matched"] = "prior"

    def gradients_per_example(self, optimizer: Optimizer) -> float:
        """Return the passes over the training images: the epochs, and one per member for `matched` anchors."""
        return optimizer.epochs + float(self.anchors == "matched")

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return anchored_target(optimizer, points, self.anchors)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> PointPosterior:
    """Draw the anchors and train.

    Raises `InputError` where the run has no prior to draw from.
    """
    anchors, std = Anchors(model, run), prior_std(run, len(batches.train))
    generator = torch_generator(batches.device, run.seed, "anchor", 0)
    anchors.anchor.normal_(generator=generator).mul_(std)

    def add_noise(epoch: int) -> None:
        if epoch + 1 == (run.optimizer.epochs + 1) // 2:
            draws = torch_generator(batches.device, run.seed, "score", 0)
            anchors.draw_score(model, batches, run, likelihood, draws)

    return train(
        build(model, run, likelihood),
        batches,
        run,
        checkpoint,
        objective=anchored_objective(model, batches, run, likelihood, anchors),
        optimizer=make_optimizer(model, without_l2(run.optimizer)),
        after_epoch=add_noise if anchors.matched else None,
        extra=anchors,
    )


FIDELITY = (
    FidelitySettings(
        name="anchored",
        title="anchored ensemble",
        method={"name": "ensemble", "members": 20, "member": {"name": "anchored", "anchors": "matched"}},
        optimizer={"name": "adam", "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.0046}},
        gaussian={"optimizer": {"lr": 0.0069}, "method": {"members": 5}},
        search={
            "categorical": {
                "method.members": {"choices": [5, 10, 20]},
                "optimizer.lr": log_range(0.0003, 0.01),
            },
            "gaussian": {"method.members": {"choices": [5, 10, 20]}, "optimizer.lr": log_range(0.002, 0.03)},
        },
    ),
)

"""Anchored ensembles (Pearce et al. 2020): one member, a MAP network whose prior is centred at an anchor drawn from it.

**Idea.** One member of an anchored ensemble: MAP with the prior centred at an anchor that was drawn from it.
Where the data determine nothing, the members differ as the prior does.

    θ_k = argmin_θ  mean_n NLL(y_n, f_θ(x_n)) + l2 Σ (θ - a_k)²,   a_k ~ N(0, s²),   s² = 1 / (2 N l2)

The ensemble is `ensemble` with K of these:

    retinabench train --config demo/map method.name=ensemble method.members=10 method.member.name=anchored

**Target.** Temperature 1 and the prior N(0, s²) on the parameters of `optimizer.l2_on`, in this sense: for a
linear-Gaussian model of posterior covariance Σ, members with anchors from the `prior` have the right mean and
the covariance Σ² / s², which is smaller than Σ wherever the data determine anything (a twentieth of it for 20
points and s = ½, tested). Those with `matched` anchors have the covariance Σ and are exact draws (tested). For
a network both are approximations.

**Settings.** `anchors`: `prior`, as in practice, or `matched`: a ~ N(0, s² + s⁴ F), which Pearce et al.'s
theorem 1 asks for. F, the Fisher information, is not formed: after half of the epochs the labels of all images
are drawn from the network's own prediction, and the score of these labels, whose covariance is F, pulls at the
weights from then on.

**Cost.** As MAP; `matched` takes one more pass over the training images.

**When it fails.** With anchors of the prior the members of a confident fit agree; what differs between them is
what the initial weights and the order of the images brought. A weight without L2 has no prior and no anchor. A
wide prior (small l2 and few images) has anchors far away: draw one member and look.

**Source.** Pearce et al. 2020, Uncertainty in Neural Networks: Approximately Bayesian Ensembling; Lu & Van Roy
2017 (perturbed targets).
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
from retinabench.methods.training.loop import make_optimizer, train

__all__ = ["FIDELITY", "Config", "build", "fit"]


class Config(MethodConfig):
    """anchors: drawn from the `prior`, or `matched` to the posterior: after half of the epochs, noise of the likelihood's
    own covariance there joins them. That costs one more pass over the training images.
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
    """Draw the anchors, train and return the member."""
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

"""Anchors: where the prior's pull points to, drawn anew for each member of an ensemble.

The prior of a run is N(0, s²), s² = 1 / (2 N l2), on the parameters on which its L2 term acts. A member minimises

    mean NLL + l2 Σ (w - a)² - zᵀ w / N,   a ~ N(0, s² I)

z = 0 is the anchored ensemble as it is practised (Pearce et al. 2020). For a linear-Gaussian model of posterior covariance
Σ its members have the right mean and the covariance Σ² / s², which is less than Σ wherever the data say something. Those
authors' theorem 1 asks for anchors of the covariance s² I + s⁴ F instead, F the Fisher information; that is what z ~ N(0, F)
does: members then are exact draws of the posterior, as in randomised maximum likelihood. F is never formed: the score
z = Σ_n ∇ log p(y_n* | x_n, w) of labels y* drawn from the network itself has exactly that covariance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.data.loader import Batches
from retinabench.methods.settings import Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import TrainingState
from retinabench.methods.training.gradients import BatchInfo, Objective
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import likelihood_only, parameter_groups
from retinabench.methods.training.posterior import precision


def prior_std(run: TrainingRun, images: int) -> float:
    """Return s = 1 / √(2 N l2)."""
    if not run.optimizer.l2 or run.optimizer.l2_on == "nothing":
        raise InputError(
            f"the method '{run.method.name}' draws anchors from the prior, and optimizer.l2 = {run.optimizer.l2:g} "
            f"on {run.optimizer.l2_on} is none",
            hint="Set optimizer.l2 above 0 and optimizer.l2_on to weights or everything.",
        )
    return 1 / math.sqrt(2 * images * run.optimizer.l2)


def anchored_target(optimizer: Optimizer, points: int, anchors: str) -> TargetPosterior:
    """Return what the members of anchored ensembles are draws of."""
    how = {
        "prior": "minimisers around anchors of the prior: narrower, of a linear-Gaussian model too",
        "matched": "minimisers of randomised losses: draws, of a linear-Gaussian model",
    }
    return optimizer.target(points, how[anchors])


def anchored_parameters(model: nn.Module, config: Optimizer) -> list[nn.Parameter]:
    """Return the parameters that have a prior."""
    groups = parameter_groups(model, config)
    return [p for group in groups if group["weight_decay"] for p in group["params"]]


def without_l2(config: Optimizer) -> Optimizer:
    """Return the optimiser's settings for a loss that holds the prior itself."""
    return config.model_copy(update={"l2": 0.0})


class Anchors:
    """The anchors a (A,) of a member, flat over the parameters with a prior, and its z (P,) over all trained ones."""

    def __init__(self, model: nn.Module, run: TrainingRun) -> None:
        self.prior = anchored_parameters(model, run.optimizer)
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.matched: bool = run.method.model_dump()["anchors"] == "matched"
        device = self.trained[0].device
        self.anchor = torch.zeros(sum(p.numel() for p in self.prior), device=device)
        self.score = torch.zeros(sum(p.numel() for p in self.trained), device=device)

    def draw_score(
        self,
        model: nn.Module,
        batches: Batches,
        run: TrainingRun,
        likelihood: Likelihood,
        generator: torch.Generator,
    ) -> None:
        """Draw z at the network as it predicts now: one pass over the training images, not augmented."""
        training, total = model.training, torch.zeros_like(self.score)
        model.eval()
        for images, _ in batches.rows(batches.train, run.optimizer.batch_size):
            with precision(run, batches.device):
                outputs = model(images).float()
            drawn = likelihood.sample(outputs.detach(), generator)
            log_likelihood = -likelihood.negative_log_likelihood(outputs, drawn).sum()
            slopes = torch.autograd.grad(log_likelihood, self.trained)
            total += torch.cat([slope.reshape(-1) for slope in slopes])
        model.train(training)
        self.score = total

    def state_dict(self) -> TrainingState:
        """Anchors and score."""
        return {"anchor": self.anchor.cpu(), "score": self.score.cpu()}

    def load_state_dict(self, state: TrainingState) -> None:
        """Continue with them."""
        self.anchor = state["anchor"].to(self.anchor.device)
        self.score = state["score"].to(self.score.device)


def anchored_objective(
    model: nn.Module, batches: Batches, run: TrainingRun, likelihood: Likelihood, anchors: Anchors
) -> Objective:
    """Return the likelihood and the pull towards the anchors, l2 Σ (w - a)² - zᵀ w / N."""
    data_term = likelihood_only(model, batches, run, likelihood)
    l2, images = run.optimizer.l2, len(batches.train)

    def objective(inputs: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        weights = torch.cat([p.reshape(-1) for p in anchors.prior])
        pull = l2 * (weights - anchors.anchor).square().sum()
        if anchors.matched:
            pull = pull - anchors.score @ torch.cat([p.reshape(-1) for p in anchors.trained]) / images
        return {**data_term(inputs, labels, batch), "anchor": pull}

    return objective

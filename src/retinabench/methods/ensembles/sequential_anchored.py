"""Sequential anchored ensembles (Delaunoy & Louppe 2022): member after member in one training, each from the last one's weights.

**Idea.** An anchored ensemble (`anchored`) of many members in one training: the anchors move a little from one
member to the next, and the next starts from the last one's weights, so that a few epochs find its minimum.

    a_{k+1} from a_k by the guided walk: x' = x + d |e|, accepted with min(1, π(x') / π(x)), else d ← -d;   π = N(0, s²)

Every coordinate walks on its own and keeps its direction until it is refused (Gustafson 1998): the law of the
anchors is the prior's, and they cross it in about 1 / `walk` members. All training images train; none are held
out to choose weights.

**Target.** That of `anchored`, with its remark on `prior` and `matched` anchors: with enough steps per member
the members' law is that of fresh ones, tested for both on a linear-Gaussian model. With too few a member lags
between the minima of several anchors.

**Settings.** `samples` (members, all of which predict), `first` (the share of the training that the first one
takes), `lr_factor` (peak learning rate of the others over the first one's; each has a cosine of its own),
`walk` (std of a move over the prior's std; the authors' settings are 0.05 to 0.1), `anchors` (`prior` or
`matched`: the noise is drawn anew for each member at the last one's weights). The authors' 351 members in 1,000
epochs: `ensemble` of 3, `samples` = 117, `first` = 0.3, 332 epochs each.

**Cost.** One training. A member after the first: its share of the epochs, one write of the weights; `matched`
one more pass over the training images. Storage as in `sgld`: one network in memory.

**When it fails.** One chain stays in the mode that its first member found: use several (`ensemble`). Members
next to each other share most of their anchors, so that many members are few independent ones.

**Source.** Delaunoy & Louppe 2022, SAE: Sequential Anchored Ensembles; Gustafson 1998, A guided walk Metropolis
algorithm; Pearce et al. 2020.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.ensembles.anchors import (
    Anchors,
    anchored_objective,
    anchored_target,
    prior_std,
    without_l2,
)
from retinabench.methods.map import PointPosterior
from retinabench.methods.mcmc.sgmcmc import build
from retinabench.methods.posteriors import CollectedPosterior, Collector, before_steps, evenly_spaced
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint, TrainingState
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import make_optimizer, select_last_epoch, train

__all__ = ["FIDELITY", "Config", "build", "fit"]


class Config(MethodConfig):
    """samples: members of the chain, all of which predict. first: the first one's share of the training.

    lr_factor: the peak learning rate of the others over that of the first. walk: one move of the anchors, over the prior's
    std. anchors: drawn from the `prior`, or `matched` to the posterior, with noise of the likelihood's covariance at
    the last member, drawn anew for each (`anchors.py`): one more pass over the training images per member.
    """

    title = "sequential anchored"

    name: Literal["sequential_anchored"] = "sequential_anchored"
    samples: int = Field(5, ge=2)
    first: float = Field(0.5, gt=0, lt=1)
    lr_factor: float = Field(1.0, gt=0)
    walk: float = Field(0.1, gt=0)
    anchors: Literal["prior", "matched"] = "prior"

    def gradients_per_example(self, optimizer: Optimizer) -> float:
        """Return the passes over the training images: the epochs, and one per member for `matched` anchors."""
        return optimizer.epochs + self.samples * float(self.anchors == "matched")

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return anchored_target(optimizer, points, self.anchors)


class WalkingAnchors(Anchors):
    """Anchors that a guided walk moves, with the direction (A,) of each."""

    def __init__(self, model: nn.Module, run: TrainingRun, images: int) -> None:
        super().__init__(model, run)
        self.std, self.seed = prior_std(run, images), run.seed
        self.walk: float = as_config(run, Config).walk
        draws = self._draws(0)
        self.anchor.normal_(generator=draws).mul_(self.std)
        self.direction = torch.rand(self.anchor.shape, generator=draws, device=self.anchor.device) < 0.5
        self.direction = 2.0 * self.direction - 1

    def _draws(self, member: int) -> torch.Generator:
        return torch_generator(self.anchor.device, self.seed, "anchor", member)

    def move(self, member: int) -> None:
        """Take one step of the walk, to the anchors of the 0-based `member`."""
        draws, like = self._draws(member), self.anchor
        noise = torch.randn(like.shape, generator=draws, device=like.device) * (self.walk * self.std)
        uniform = torch.rand(like.shape, generator=draws, device=like.device)
        self.anchor, self.direction = guided_walk(like, self.direction, noise, uniform, self.std)

    def state_dict(self) -> TrainingState:
        """Anchors, score and directions."""
        return {**super().state_dict(), "direction": self.direction.cpu()}

    def load_state_dict(self, state: TrainingState) -> None:
        """Continue with them."""
        super().load_state_dict(state)
        self.direction = state["direction"].to(self.direction.device)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> CollectedPosterior:
    """Train the members one after the other and return them.

    The checkpoint's validation is that of the network of the moment.
    """
    method: Config = as_config(run, Config)
    total = run.optimizer.epochs * batches.steps
    first = max(1, round(method.first * total))
    ends = [first, *evenly_spaced(first, total, method.samples - 1, run)]
    anchors, collector = WalkingAnchors(model, run, len(batches.train)), Collector(model, checkpoint)
    objective = anchored_objective(model, batches, run, likelihood, anchors)
    if anchors.matched:
        begins = [first // 2, *ends[:-1]]  # the noise of the first member awaits half of its training

        def draw(member: int) -> None:
            draws = torch_generator(batches.device, run.seed, "score", member)
            anchors.draw_score(model, batches, run, likelihood, draws)

        objective = before_steps(objective, begins, draw)
    objective = before_steps(objective, ends[:-1], lambda ended: anchors.move(ended + 1))
    train(
        PointPosterior(model, likelihood),
        batches,
        select_last_epoch(run),
        checkpoint,
        objective=before_steps(objective, ends, collector.collect),
        optimizer=make_optimizer(model, without_l2(run.optimizer)),
        schedule=lambda step: run.optimizer.lr * rate(step, batches.steps, run, ends),
        extra=anchors,
    )
    collector.collect(method.samples - 1)
    return collector.posterior(method.samples, likelihood)


def rate(step: int, steps_per_epoch: int, run: TrainingRun, ends: list[int]) -> float:
    """Return the factor on the learning rate: a cosine down to 0 for each member, the first one after the run's warm-up."""
    method, warm = as_config(run, Config), round(run.optimizer.warmup * steps_per_epoch)
    member = min(bisect_right(ends, step), len(ends) - 1)
    begin = ends[member - 1] if member else min(warm, ends[0] - 1)
    if step < begin:
        return step / warm
    cosine = 0.5 * (1 + math.cos(math.pi * (step - begin) / (ends[member] - begin)))
    return cosine * (method.lr_factor if member else 1.0)


def guided_walk(
    position: Tensor, direction: Tensor, noise: Tensor, uniform: Tensor, std: float
) -> tuple[Tensor, Tensor]:
    """Move every coordinate once by a guided walk whose stationary law is N(0, std²).

    A Metropolis chain of each coordinate that keeps its direction until a proposal is refused: propose x' = x + d |e|; accept
    with probability min(1, π(x') / π(x)), otherwise stay and turn round, d ← -d.

    References:
        Gustafson (1998), "A guided walk Metropolis algorithm".

    Shapes: `position` (P,), `direction` (P,), `noise` (P,), `uniform` (P,), returns (P,).
    """
    proposal = position + direction * noise.abs()
    # The difference of the squares as a product: exact where the two are close.
    log_ratio = (position - proposal) * (position + proposal) / (2 * std**2)
    accepted = uniform <= log_ratio.exp()
    return torch.where(accepted, proposal, position), torch.where(accepted, direction, -direction)


FIDELITY = (
    FidelitySettings(
        name="sequential_anchored",
        title="sequential anchored, 3 chains",
        method={
            "name": "ensemble",
            "members": 3,
            "member": {"name": "sequential_anchored", "samples": 33, "first": 0.3, "anchors": "matched"},
        },
        optimizer={"name": "adam", "schedule": "cosine"},
        categorical={"optimizer": {"lr": 0.0097}, "method": {"member": {"lr_factor": 0.96, "walk": 0.32}}},
        gaussian={"optimizer": {"lr": 0.013}, "method": {"member": {"lr_factor": 0.22, "walk": 0.13}}},
        search={
            "categorical": {
                "method.member.lr_factor": log_range(0.2, 2.0),
                "method.member.walk": log_range(0.03, 0.5),
                "optimizer.lr": log_range(0.0003, 0.01),
            },
            "gaussian": {
                "method.member.lr_factor": log_range(0.2, 2.0),
                "method.member.walk": log_range(0.03, 0.5),
                "optimizer.lr": log_range(0.002, 0.03),
            },
        },
    ),
)

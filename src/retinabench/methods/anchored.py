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
from bisect import bisect_right
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods import map as map_method
from retinabench.methods.base import ADAM, as_config, fidelity_entry, log_range
from retinabench.methods.map import PointPosterior
from retinabench.methods.posteriors import CollectedPosterior, Collector, before_steps, evenly_spaced
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint, TrainingState
from retinabench.methods.training.gradients import BatchInfo, Objective
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import (
    likelihood_only,
    make_optimizer,
    parameter_groups,
    select_last_epoch,
    train,
)
from retinabench.methods.training.posterior import precision


class AnchoredConfig(MethodConfig):
    """anchors: drawn from the `prior`, or `matched` to the posterior: noise of the likelihood's own covariance joins them,
    drawn for each member, which costs one more pass over the training images.
    """

    anchors: Literal["prior", "matched"] = "prior"

    def gradients_per_example(self, optimizer: Optimizer) -> float:
        """Return the passes over the training images: the epochs, and one per member for `matched` anchors."""
        return optimizer.epochs + self.samples * float(self.anchors == "matched")

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return what the members are draws of."""
        how = {
            "prior": "minimisers around anchors of the prior: narrower, of a linear-Gaussian model too",
            "matched": "minimisers of randomised losses: draws, of a linear-Gaussian model",
        }
        return optimizer.target(points, how[self.anchors])


def prior_std(run: TrainingRun, images: int) -> float:
    """Return s = 1 / √(2 N l2)."""
    if not run.optimizer.l2 or run.optimizer.l2_on == "nothing":
        raise InputError(
            f"the method '{run.method.name}' draws anchors from the prior, and optimizer.l2 = {run.optimizer.l2:g} "
            f"on {run.optimizer.l2_on} is none",
            hint="Set optimizer.l2 above 0 and optimizer.l2_on to weights or everything.",
        )
    return 1 / math.sqrt(2 * images * run.optimizer.l2)


class Anchors:
    """The anchors a (A,) of a member, flat over the parameters with a prior, and its z (P,) over all trained ones."""

    def __init__(self, model: nn.Module, run: TrainingRun) -> None:
        groups = parameter_groups(model, run.optimizer)
        self.prior = [p for group in groups if group["weight_decay"] for p in group["params"]]
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.matched: bool = as_config(run, AnchoredConfig).anchors == "matched"
        device = self.trained[0].device
        self.anchor = torch.zeros(sum(p.numel() for p in self.prior), device=device)
        self.score = torch.zeros(sum(p.numel() for p in self.trained), device=device)

    def draw_score(
        self, model: nn.Module, batches: Batches, run: TrainingRun, likelihood: Likelihood, generator: torch.Generator
    ) -> None:
        """Draw z at the network as it predicts now: one pass over the training images, not augmented."""
        training, self.score = model.training, torch.zeros_like(self.score)
        model.eval()
        for images, _ in batches.rows(batches.train, run.optimizer.batch_size):
            with precision(run, batches.device):
                outputs = model(images).float()
            drawn = likelihood.sample(outputs.detach(), generator)
            slopes = torch.autograd.grad(-likelihood.negative_log_likelihood(outputs, drawn).sum(), self.trained)
            self.score += torch.cat([slope.reshape(-1) for slope in slopes])
        model.train(training)

    def state_dict(self) -> TrainingState:
        return {"anchor": self.anchor.cpu(), "score": self.score.cpu()}

    def load_state_dict(self, state: TrainingState) -> None:
        self.anchor = state["anchor"].to(self.anchor.device)
        self.score = state["score"].to(self.score.device)


def anchored_objective(
    model: nn.Module, batches: Batches, run: TrainingRun, likelihood: Likelihood, anchors: Anchors
) -> Objective:
    """Return the likelihood and the pull towards the anchors, l2 Σ (w - a)² - zᵀ w / N."""
    data_term = likelihood_only(model, batches, run, likelihood)
    l2, images = run.optimizer.l2, len(batches.train)

    def objective(inputs: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        pull = l2 * (torch.cat([p.reshape(-1) for p in anchors.prior]) - anchors.anchor).square().sum()
        if anchors.matched:
            pull = pull - anchors.score @ torch.cat([p.reshape(-1) for p in anchors.trained]) / images
        return {**data_term(inputs, labels, batch), "anchor": pull}

    return objective


class Anchored:
    """Anchored ensembles (Pearce et al. 2020): one member, a MAP network whose prior is centred at an anchor drawn from it.

    **Idea.** One member of an anchored ensemble: MAP with the prior centred at an anchor that was drawn from it.
    Where the data determine nothing, the members differ as the prior does.

        θ_k = argmin_θ  mean_n NLL(y_n, f_θ(x_n)) + l2 Σ (θ - a_k)²,   a_k ~ N(0, s²),   s² = 1 / (2 N l2)

    The ensemble is `ensemble` with K of these:

        retinabench train --config demo/map method.name=ensemble method.members=10 method.member.name=anchored

    **Target.** Temperature 1 and the prior N(0, s²) on the parameters of `optimizer.l2_on`. For a linear-Gaussian model of posterior
    covariance Σ, members with anchors from the `prior` have the right mean and the covariance Σ² / s², which is smaller than Σ
    wherever the data determine anything; those with `matched` anchors are exact draws (both tested). For a network both are
    approximations.

    **Settings.** `anchors`: `prior`, as in practice, or `matched`: a ~ N(0, s² + s⁴ F), which Pearce et al.'s theorem 1 asks for.
    F, the Fisher information, is not formed: after half of the epochs the labels of all images are drawn from the network's own
    prediction, and the score of these labels, whose covariance is F, pulls at the weights from then on.

    **Cost.** As MAP; `matched` takes one more pass over the training images.

    **When it fails.** With anchors of the prior the members of a confident fit agree; what differs between them is what the initial
    weights and the order of the images brought. A weight without L2 has no prior and no anchor.

    **Source.** Pearce et al. 2020, Uncertainty in Neural Networks: Approximately Bayesian Ensembling; Lu & Van Roy
    2017 (perturbed targets).
    """

    class Config(AnchoredConfig):
        """The option of `AnchoredConfig`."""

        title = "anchored MAP"

        name: Literal["anchored"] = "anchored"
        samples: Literal[1] = 1

    build = staticmethod(map_method.build)

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> PointPosterior:
        anchors, std = Anchors(model, run), prior_std(run, len(batches.train))
        anchors.anchor.normal_(generator=torch_generator(batches.device, run.seed, "anchor", 0)).mul_(std)

        def add_noise(epoch: int) -> None:
            if epoch + 1 == (run.optimizer.epochs + 1) // 2:
                draws = torch_generator(batches.device, run.seed, "score", 0)
                anchors.draw_score(model, batches, run, likelihood, draws)

        return train(
            PointPosterior(model, likelihood), batches, run, checkpoint,
            objective=anchored_objective(model, batches, run, likelihood, anchors),
            optimizer=make_optimizer(model, run.optimizer.model_copy(update={"l2": 0.0})),
            after_epoch=add_noise if anchors.matched else None, extra=anchors,
        )  # fmt: skip

    FIDELITY = (
        fidelity_entry(
            "anchored",
            "anchored ensemble",
            {"name": "ensemble", "members": 20, "member": {"name": "anchored", "anchors": "matched"}},
            ADAM,
            tuned={"optimizer.lr": ({100: 0.46, 1000: 0.046, "large": 0.0046}, 0.0069), "method.members": (None, 5)},
            searched={
                "method.members": {"choices": [5, 10, 20]},
                "optimizer.lr": (log_range(0.0003, 0.01), log_range(0.002, 0.03)),
            },
        ),
    )


class WalkingAnchors(Anchors):
    """Anchors that a guided walk moves, with the direction (A,) of each."""

    def __init__(self, model: nn.Module, run: TrainingRun, images: int) -> None:
        super().__init__(model, run)
        self.std, self.seed = prior_std(run, images), run.seed
        self.walk: float = as_config(run, SequentialAnchored.Config).walk
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
        return {**super().state_dict(), "direction": self.direction.cpu()}

    def load_state_dict(self, state: TrainingState) -> None:
        super().load_state_dict(state)
        self.direction = state["direction"].to(self.direction.device)


class SequentialAnchored:
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

    **Settings.** `samples` (members, all of which predict), `first` (the share of the training that the first one takes),
    `lr_factor` (peak learning rate of the others over the first one's; each has a cosine of its own), `walk` (std of a move over the
    prior's std; the authors' settings are 0.05 to 0.1), `anchors` (the noise of `matched` ones is drawn anew for each member).
    The authors' 351 members in 1,000 epochs: `ensemble` of 3, `samples` = 117, `first` = 0.3, 332 epochs each.

    **Cost.** One training. A member after the first: its share of the epochs, one write of the weights; `matched`
    one more pass over the training images. Storage as in `sgld`: one network in memory.

    **When it fails.** One chain stays in the mode that its first member found: use several (`ensemble`). Members
    next to each other share most of their anchors, so that many members are few independent ones.

    **Source.** Delaunoy & Louppe 2022, SAE: Sequential Anchored Ensembles; Gustafson 1998, A guided walk Metropolis
    algorithm; Pearce et al. 2020.
    """

    class Config(AnchoredConfig):
        """The option of `AnchoredConfig`, and those described in the card."""

        title = "sequential anchored"

        name: Literal["sequential_anchored"] = "sequential_anchored"
        samples: int = Field(5, ge=2)
        first: float = Field(0.5, gt=0, lt=1)
        lr_factor: float = Field(1.0, gt=0)
        walk: float = Field(0.1, gt=0)

    build = CollectedPosterior.build

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> CollectedPosterior:
        """Train the members one after the other and return them; the checkpoint's validation is that of the current network."""
        method: SequentialAnchored.Config = as_config(run, SequentialAnchored.Config)
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
            PointPosterior(model, likelihood), batches, select_last_epoch(run), checkpoint,
            objective=before_steps(objective, ends, collector.collect),
            optimizer=make_optimizer(model, run.optimizer.model_copy(update={"l2": 0.0})),
            schedule=lambda step: run.optimizer.lr * rate(step, batches.steps, run, ends), extra=anchors,
        )  # fmt: skip
        collector.collect(method.samples - 1)
        return collector.posterior(method.samples, likelihood)

    FIDELITY = (
        fidelity_entry(
            "sequential_anchored",
            "sequential anchored, 3 chains",
            {
                "name": "ensemble",
                "members": 3,
                "member": {"name": "sequential_anchored", "samples": 33, "first": 0.3, "anchors": "matched"},
            },
            ADAM,
            tuned={
                "optimizer.lr": ({1000: 0.097, "large": 0.0097}, 0.013),
                "method.member.lr_factor": (0.96, 0.22),
                "method.member.walk": (0.32, 0.13),
            },
            searched={
                "method.member.lr_factor": log_range(0.2, 2.0),
                "method.member.walk": log_range(0.03, 0.5),
                "optimizer.lr": (log_range(0.0003, 0.01), log_range(0.002, 0.03)),
            },
        ),
    )


def rate(step: int, steps_per_epoch: int, run: TrainingRun, ends: list[int]) -> float:
    """Return the factor on the learning rate: a cosine down to 0 for each member, the first one after the run's warm-up."""
    method, warm = as_config(run, SequentialAnchored.Config), round(run.optimizer.warmup * steps_per_epoch)
    member = min(bisect_right(ends, step), len(ends) - 1)
    begin = ends[member - 1] if member else min(warm, ends[0] - 1)
    if step < begin:
        return step / warm
    cosine = 0.5 * (1 + math.cos(math.pi * (step - begin) / (ends[member] - begin)))
    return cosine * (method.lr_factor if member else 1.0)


def guided_walk(
    position: Tensor, direction: Tensor, noise: Tensor, uniform: Tensor, std: float
) -> tuple[Tensor, Tensor]:
    """Move every coordinate once by a guided walk whose stationary law is N(0, std²); return positions and directions (P,).

    Propose x' = x + d |e|; accept with probability min(1, π(x') / π(x)), otherwise stay and turn round, d ← -d (Gustafson 1998).
    """
    proposal = position + direction * noise.abs()
    # The difference of the squares as a product: exact where the two are close.
    log_ratio = (position - proposal) * (position + proposal) / (2 * std**2)
    accepted = uniform <= log_ratio.exp()
    return torch.where(accepted, proposal, position), torch.where(accepted, direction, -direction)

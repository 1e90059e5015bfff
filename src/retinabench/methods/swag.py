"""SWAG and its mixtures: Gaussians fitted to the iterates along the path of a training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from retinabench.core.errors import InputError
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config, fidelity_entry, log_range
from retinabench.methods.map import PointPosterior
from retinabench.methods.posteriors import DrawnWeights, before_steps
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun, no_target
from retinabench.methods.sgmcmc import Langevin
from retinabench.methods.training.checkpoint import Checkpoint, TrainingState
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import (
    Stateful,
    learning_rate,
    likelihood_only,
    parameter_groups,
    select_last_epoch,
    train,
)
from retinabench.methods.training.posterior import State, precision

FAMILIES = ("diagonal", "low_rank", "per_layer")
TENSORS = ("mean", "squares", "deviations")


class Moments:
    """Running mean, sum of squared deviations (P,) and the last K deviations of vectors, by Welford's updates."""

    def __init__(self, size: int, rank: int, device: torch.device) -> None:
        self.rank, self.count = rank, 0
        self.mean = torch.zeros(size, device=device)
        self.squares = torch.zeros(size, device=device)
        self.deviations = torch.zeros(0, size, device=device)

    def collect(self, weights: Tensor) -> None:
        """Take in one vector (P,)."""
        self.count += 1
        before = weights - self.mean
        self.mean = self.mean + before / self.count
        deviation = weights - self.mean
        self.squares = self.squares + before * deviation
        self.deviations = torch.cat([self.deviations, deviation[None]])[-self.rank :]

    @property
    def variance(self) -> Tensor:
        """(P,), of the collected vectors, divided by their number."""
        return self.squares / max(1, self.count)

    def state_dict(self) -> TrainingState:
        return {**{name: getattr(self, name).cpu() for name in TENSORS}, "count": self.count}

    def load_state_dict(self, state: TrainingState) -> None:
        """Continue from what was collected; ValueError where that are the moments of another network."""
        self.count, device = state["count"], self.mean.device
        if type(self.count) is not int or self.count < 0:
            raise ValueError(f"count is {self.count!s:.20}")
        for name in TENSORS:
            if state[name].shape[-1:] != self.mean.shape:
                raise ValueError(f"'{name}' has shape {tuple(state[name].shape)}")
            setattr(self, name, state[name].to(device))


def draw(mean: Tensor, variance: Tensor, deviations: Tensor, scale: float, generator: torch.Generator) -> Tensor:
    """Draw one vector of N(mean, scale · (diag(variance) + Dᵀ D / (K - 1))); `mean`, `variance` (P,), `deviations` (K, P) -> (P,)."""
    columns = len(deviations)
    diagonal = variance.sqrt() * torch.randn(mean.shape, generator=generator, device=mean.device)
    weights = torch.randn(columns, generator=generator, device=mean.device)
    return mean + math.sqrt(scale) * (diagonal + weights @ deviations / math.sqrt(max(1, columns - 1)))


def flat_weights(model: nn.Module) -> Tensor:
    """Return all parameters of `model` as one vector (P,), a copy."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def named_weights(model: nn.Module, vector: Tensor) -> dict[str, Tensor]:
    """Cut a vector (P,) into the parameters of `model`, by name, in their shapes and memory layouts."""
    pieces = iter(torch.split(vector, [p.numel() for p in model.parameters()]))
    return {
        name: torch.empty_like(p, requires_grad=False).copy_(next(pieces).view(p.shape))
        for name, p in model.named_parameters()
    }


class PathConfig(MethodConfig):
    """Options of methods that collect iterates at a constant learning rate: start, lr_factor, per_epoch and rank (see `Swag`)."""

    start: float = Field(0.75, ge=0, lt=1)
    lr_factor: float = Field(0.1, gt=0)
    per_epoch: int = Field(4, ge=1)
    rank: int = Field(20, ge=2)

    def phase(self, total: int, steps_per_epoch: int) -> tuple[int, int]:
        """Return the step after which iterates are collected, and the steps between two of them."""
        return round(self.start * total), max(1, steps_per_epoch // self.per_epoch)


def train_path(
    posterior: PointPosterior,
    batches: Batches,
    run: TrainingRun,
    checkpoint: Checkpoint,
    *,
    ends: Sequence[int],
    collect: Callable[[int], None],
    extra: Stateful,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Train a network with the rate of a `PathConfig`, and collect its iterates."""
    method: PathConfig = as_config(run, PathConfig)
    first, _ = method.phase(run.optimizer.epochs * batches.steps, batches.steps)

    def schedule(step: int) -> float:
        if step < first:
            return learning_rate(step, batches.steps, run.optimizer)
        return method.lr_factor * run.optimizer.lr

    objective = likelihood_only(posterior.model, batches, run, posterior.likelihood)
    train(
        posterior, batches, select_last_epoch(run), checkpoint,
        objective=before_steps(objective, ends, collect), optimizer=optimizer, schedule=schedule, extra=extra,
    )  # fmt: skip


@torch.no_grad()
def set_mean(model: nn.Module, mean: Tensor, batches: Batches, run: TrainingRun) -> None:
    """Give the network a mean (P,) of its weights; batch norm's statistics become the average over the batches of one epoch."""
    for name, weights in named_weights(model, mean).items():
        model.get_parameter(name).copy_(weights)
    norms = {module: module.momentum for module in model.modules() if isinstance(module, _BatchNorm)}
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average instead of a moving one
    model.train()
    for images, _ in batches.epoch(run.optimizer.epochs):
        with precision(run, batches.device):
            model(images)
    for norm, momentum in norms.items():
        norm.momentum = momentum
    model.eval()


@dataclass
class SwagPosterior(DrawnWeights):
    """The mean in the network, the variance (P,) and the deviations (K, P) beside it."""

    variance: Tensor
    deviations: Tensor
    scale: float

    @property
    def beside(self) -> State:
        return {"variance": self.variance, "deviations": self.deviations}

    def draw(self, samples: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        mean = flat_weights(self.model)
        for _ in range(samples):
            yield named_weights(self.model, draw(mean, self.variance, self.deviations, self.scale, generator))


class Swag:
    """SWAG: a Gaussian fitted to the iterates of SGD (Maddox et al. 2019). MultiSWAG is `ensemble` with SWAG members.

    **Idea.** SGD with a constant learning rate moves around a minimum. A Gaussian is fitted to its iterates.

        q(θ) = N(θ̄, scale · (diag(variance) + D Dᵀ / (K - 1)))

    θ̄ and the variance are those of all collected weights, the K columns of D the last deviations from the mean so
    far.

    **Settings.** `start` (share of the training before collecting), `lr_factor` (the constant rate, over the peak
    rate), `per_epoch` (collections), `rank` K (the latest deviations), `scale` (½: the paper; 1: the Retina Benchmark's
    script, with `start = 0.78`, `rank = 20`, `per_epoch = 1`), `samples` (weight draws per prediction).

    **Cost.** Training as MAP, one pass over the training images for the batch norms, (K + 2) P numbers. A
    prediction: S passes; S draws of K P products serve all its batches (up to 1 GiB of weights, beyond which each
    batch draws anew). Batch norm's statistics are taken once, at θ̄; taking them for every draw, as the paper does,
    costs S passes over the training set for a prediction.

    **When it fails.** The width is that of SGD's noise, which depends on the learning rate and the batch size, and
    equals the posterior's only by luck. With a large rate the draws leave the region in which the batch norms'
    statistics hold: on the synthetic images `lr_factor = 0.3` cost one seed of three 0.12 of accuracy, 0.1 at most
    0.03. With few epochs few iterates are collected, and they are correlated. The last weights are used:
    `optimizer.select` does not apply.

    **Source.** Maddox et al. 2019, A Simple Baseline for Bayesian Uncertainty in Deep Learning; Mandt et al. 2017.
    """

    class Config(PathConfig):
        """The options of `PathConfig`, samples, and scale; a scale of 0 is stochastic weight averaging."""

        without_target = "around a mode of the loss, as wide as the noise of SGD"
        loss_is_log_posterior = True
        title = "SWAG"

        name: Literal["swag"] = "swag"
        samples: int = Field(5, ge=1)
        scale: float = Field(0.5, ge=0)

    @staticmethod
    def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SwagPosterior:
        """Return the network as the mean of a Gaussian of width 0."""
        mean, scale = flat_weights(model), as_config(run, Swag.Config).scale
        return SwagPosterior(model, likelihood, torch.zeros_like(mean), mean.new_zeros(0, len(mean)), scale)

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> SwagPosterior:
        """Train, collect, set the mean, and return the Gaussian; the checkpoint's validation is that of SGD."""
        method, posterior = as_config(run, Swag.Config), Swag.build(model, run, likelihood)
        total = run.optimizer.epochs * batches.steps
        first, every = method.phase(total, batches.steps)
        moments = Moments(len(posterior.variance), method.rank, batches.device)
        train_path(
            PointPosterior(model, likelihood), batches, run, checkpoint,
            ends=range(first + every, total, every), collect=lambda _: moments.collect(flat_weights(model)), extra=moments,
        )  # fmt: skip
        moments.collect(flat_weights(model))
        set_mean(model, moments.mean, batches, run)
        posterior.variance, posterior.deviations = moments.variance, moments.deviations
        return posterior

    FIDELITY = (
        fidelity_entry(
            "swag",
            "SWAG",
            {"samples": 100, "start": 0.5, "scale": 0.5, "rank": 20, "per_epoch": 1},
            {"name": "sgd", "momentum": 0.9, "schedule": "constant"},
            tuned={"optimizer.lr": ({1000: 0.066, "large": 0.021}, 0.00068), "method.lr_factor": (0.72, 0.52)},
            searched={
                "method.lr_factor": log_range(0.1, 1.0),
                "optimizer.lr": (log_range(0.001, 0.05), log_range(0.0002, 0.01)),
            },
        ),
    )


@dataclass
class SwagMixture(DrawnWeights):
    """M components: means and variances (M, P), deviations (M, K, P). The network holds their mean."""

    means: Tensor
    variances: Tensor
    deviations: Tensor
    covariance: str
    scale: float

    @property
    def beside(self) -> State:
        return {"means": self.means, "variances": self.variances, "deviations": self.deviations}

    def draw(self, samples: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        """Yield draws, of the families in turn where there are several."""
        for number in range(samples):
            family = FAMILIES[number % len(FAMILIES)] if self.covariance == "all" else self.covariance
            yield named_weights(self.model, self.sample(family, generator))

    def sample(self, family: str, generator: torch.Generator) -> Tensor:
        if family == "per_layer":
            return torch.cat([self._block(family, part, generator) for part in layer_slices(self.model)])
        return self._block(family, slice(None), generator)

    def _block(self, family: str, part: slice, generator: torch.Generator) -> Tensor:
        """Draw the weights of `part` of one component, chosen for this part."""
        chosen = int(torch.randint(len(self.means), (), generator=generator, device=generator.device))
        mean, variance = self.means[chosen, part], self.variances[chosen, part]
        if family == "diagonal":
            return draw(mean, variance, self.deviations[chosen, :0, part], self.scale, generator)
        return draw(mean, variance, self.deviations[chosen, :, part], 0.5 * self.scale, generator)


def layer_slices(model: nn.Module) -> list[slice]:
    """Return each layer's part of the flat weights, which follow the modules."""
    sizes = [sum(p.numel() for p in module.parameters(recurse=False)) for module in model.modules()]
    return [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True) if size]


class Stretches:
    """The moments of M stretches of a path, filled one after the other."""

    def __init__(self, components: int, size: int, rank: int, device: torch.device) -> None:
        self.moments = [Moments(size, rank, device) for _ in range(components)]

    def state_dict(self) -> TrainingState:
        return {"moments": [moments.state_dict() for moments in self.moments]}

    def load_state_dict(self, state: TrainingState) -> None:
        for moments, saved in zip(self.moments, state["moments"], strict=True):
            moments.load_state_dict(saved)


class MultiSwag:
    """SWAG along the iterates of SGD or of SGLD, with Gaussians of several shapes and mixtures of them.

    **Idea.** The Gaussians of `swag` have several shapes. An `ensemble` of K of these methods is MultiSWAG, and with
    `path = "sgld"` the mixture that came second in the competition of 2021.

        diagonal    N(θ̄, scale · diag(variance))
        low_rank    N(θ̄, scale · ½ (diag(variance) + D Dᵀ / (K - 1)))
        per_layer   the same in each layer, independently of the others
        all         the three in turn, draw by draw: an ensemble over families from one training

    **Target.** Along SGD none: the width is that of the gradient's noise; with full batches it is 0 (tested), and
    it depends on learning rate and batch size (`swag`). Along SGLD the iterates are at temperature 1 under the
    prior N(0, 1 / (2 N l2)), and `diagonal` has the posterior's marginal variances (tested on a linear-Gaussian
    model); correlations are lost but for those that D keeps.

    **Settings.** `path` (`sgd`: the run's optimiser; `sgld`: its learning rate, no momentum), `start`, `lr_factor`,
    `per_epoch`, `rank` as in `swag`, `covariance`, `components` (M stretches of the path with moments of their own;
    a draw chooses one, `per_layer` one for each layer), `scale` (1: the covariance of the iterates), `samples`.

    **Cost.** Training as MAP, M (K + 2) P numbers, one pass over the training images for the batch norms at the
    mean of all components. A prediction as SWAG's.

    **When it fails.** As SWAG. Stretches of one path overlap; components that differ need restarts, that is
    members. Layers that choose their components on their own are not a network that was ever trained: with
    components far apart its predictions are poor.

    **Source.** Wilson & Izmailov 2020, Bayesian Deep Learning and a Probabilistic Perspective of Generalization;
    Maddox et al. 2019; Wilson et al. 2022 (the competition's report; its authors' code is not public).
    """

    class Config(PathConfig):
        """The options of `PathConfig`, with `rank` deviations for each component, and those described in the card."""

        title = "SWAG mixture"

        name: Literal["multiswag"] = "multiswag"
        samples: int = Field(6, ge=1)
        path: Literal["sgd", "sgld"] = "sgd"
        start: float = Field(0.5, ge=0, lt=1)
        covariance: Literal["diagonal", "low_rank", "per_layer", "all"] = "all"
        components: int = Field(1, ge=1)
        scale: float = Field(1.0, ge=0)

        def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
            """Return the target posterior (see `MethodConfig`)."""
            if self.path == "sgd":
                return no_target("around modes of the loss, as wide as the noise of SGD", optimizer.target(points, ""))
            return optimizer.target(points, "Gaussians fitted to draws of Langevin dynamics")

    @staticmethod
    def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SwagMixture:
        """Return the network as the mean of one Gaussian of width 0."""
        method, mean = as_config(run, MultiSwag.Config), flat_weights(model)[None]
        empty = mean.new_zeros(1, 0, mean.shape[1])
        return SwagMixture(model, likelihood, mean, torch.zeros_like(mean), empty, method.covariance, method.scale)

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> SwagMixture:
        """Train, collect, set the mean, and return the mixture; the checkpoint's validation is that of the path."""
        method, posterior = as_config(run, MultiSwag.Config), MultiSwag.build(model, run, likelihood)
        total = run.optimizer.epochs * batches.steps
        first, every = method.phase(total, batches.steps)
        ends = list(range(first + every, total + 1, every))
        if len(ends) < 2 * method.components:
            problem = f"{len(ends)} iterates are too few for {method.components} components of two and more"
            raise InputError(problem, hint="Lower method.components or method.start, or raise optimizer.epochs.")
        optimizer = None
        if method.path == "sgld":
            optimizer = Langevin(
                parameter_groups(model, run.optimizer), lr=run.optimizer.lr, momentum=0.0, images=len(batches.train),
                temperature=1.0, adapt=0, seed=run.seed,
            )  # fmt: skip
        stretches = Stretches(method.components, posterior.means.shape[1], method.rank, batches.device)

        def collect(number: int) -> None:
            stretches.moments[number * method.components // len(ends)].collect(flat_weights(model))

        train_path(
            PointPosterior(model, likelihood), batches, run, checkpoint,
            ends=ends, collect=collect, extra=stretches, optimizer=optimizer,
        )  # fmt: skip
        if ends[-1] == total:
            collect(len(ends) - 1)
        moments, fewest = stretches.moments, min(len(m.deviations) for m in stretches.moments)
        posterior.means = torch.stack([m.mean for m in moments])
        posterior.variances = torch.stack([m.variance for m in moments])
        posterior.deviations = torch.stack([m.deviations[-fewest:] for m in moments])
        set_mean(model, posterior.means.mean(dim=0), batches, run)
        return posterior

    FIDELITY = (
        fidelity_entry(
            "multiswag",
            "MultiSWAG along SGLD",
            {"samples": 100, "path": "sgld", "start": 0.3, "per_epoch": 1, "components": 4},
            tuned={
                "optimizer.lr": ({100: 2.5, 1000: 0.79, "large": 0.079}, 0.0022),
                "method.lr_factor": (0.11, 0.21),
                "method.scale": (0.67, 0.58),
            },
            searched={
                "method.lr_factor": log_range(0.1, 1.0),
                "method.scale": {"low": 0.3, "high": 1.0},
                "optimizer.lr": (log_range(0.01, 0.2), log_range(0.001, 0.03)),
            },
        ),
    )

"""Samplers of the posterior of all weights by full-batch gradients, for heads and small networks, by `chains.py` and `pathfinder.py`.

Letters: K chains, P trained weights, S posterior samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods import chains
from retinabench.methods.base import FidelitySettings, as_config, fidelity_entry
from retinabench.methods.pathfinder import pathfinder
from retinabench.methods.posteriors import CollectedPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, cross_entropy
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import check_reweight, parameter_groups
from retinabench.methods.training.posterior import State

FEWEST_GRADIENTS = 20  # one for each of the trajectories that a chain makes at least
MOST_STATES = 1000  # of an entry of the fidelity benchmark
SAMPLERS = {**chains.SAMPLERS, "pathfinder": pathfinder}


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def tensors(model: nn.Module, weights: Tensor) -> State:
    """Return the trained parameters as views of weights (P,), and copies of the buffers, by name."""
    shapes = {name: p.shape for name, p in trained(model).items()}
    pieces = torch.split(weights, [shape.numel() for shape in shapes.values()])
    cut = {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
    return cut | {name: buffer.clone() for name, buffer in model.named_buffers()}


class NetworkLikelihood:
    """log p(y | x, w) of all training rows by the trained weights of a network, as a `LogLikelihood` of `hmc.py`, in float32.

    It is -N times the loss of the training loop, so that class weights count, and batch norm has the statistics of all training
    rows. The prior of the chains is N(0, s² I); of weights that `optimizer.l2_on` leaves out it is taken off here.
    """

    def __init__(
        self, model: nn.Module, batches: Batches, run: TrainingRun, likelihood: Likelihood, variance: float
    ) -> None:
        check_reweight(run.optimizer, likelihood)
        self.model, self.likelihood = model, likelihood
        self.inputs = torch.cat([some for some, _ in batches.rows(batches.train)])
        self.labels = batches.targets(batches.train)
        self.batch = BatchInfo.of(self.labels, reweight=run.optimizer.reweight)
        groups = parameter_groups(model, run.optimizer)
        decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
        free = [torch.full((p.numel(),), float(id(p) not in decayed) / variance) for p in trained(model).values()]
        self.free = torch.cat(free).to(batches.device)  # (P,), 1 / s² of weights without a prior, 0 of the others
        model.train()
        norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
        model.eval()
        for norm in norms:
            norm.train()
            norm.momentum = 1.0

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        values, gradients = zip(*(self._of_one(one) for one in weights), strict=True)
        return torch.stack(values), torch.stack(gradients)

    def _of_one(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        w = weights.detach().to(self.inputs.device).requires_grad_()
        with torch.enable_grad():
            outputs = functional_call(self.model, tensors(self.model, w), (self.inputs,))
            value = -len(self.labels) * cross_entropy(outputs, self.labels, self.likelihood, self.batch)
            value = value + 0.5 * (self.free * w.square()).sum()
            (gradient,) = torch.autograd.grad(value, w)
        return value.detach().cpu(), gradient.cpu()

    @torch.no_grad()
    def sample(self, weights: Tensor) -> State:
        """Return all tensors of the network with weights (P,), the statistics of its batch norm those of the training rows."""
        found = {**self.model.state_dict(), **tensors(self.model, weights.to(self.inputs.device))}
        functional_call(self.model, found, (self.inputs,))
        return found

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Return the weights of the network, (1, P); of several chains with the matrices drawn anew at their root mean squares."""
        parts = [p.detach().cpu().expand(count, *p.shape).clone() for p in trained(self.model).values()]
        for part in parts:
            if count > 1 and part.ndim > 2:
                part[:] = part.square().mean().sqrt() * torch.randn(part.shape, generator=generator)
        return torch.cat([part.flatten(1) for part in parts], dim=1)


class ChainConfig(MethodConfig):
    """gradients: evaluations of the loss of all training images, by all chains together; without a value `optimizer.epochs` says.

    samples: evenly spaced states after the burn-in, and predicted with; those of a chain with fewer are repeated.
    """

    has_learning_rate = False
    approximates = "draws of one chain"

    samples: int = Field(100, ge=1, le=100_000)
    gradients: int | None = Field(1000, ge=FEWEST_GRADIENTS)

    @property
    def sampler(self) -> str:
        """The name in `SAMPLERS`."""
        return self.name

    def gradients_per_example(self, optimizer: Optimizer) -> float:
        return float(self.gradients or optimizer.epochs)


def entry(name: str, title: str, **method: object) -> FidelitySettings:
    return fidelity_entry(name, title, {"samples": MOST_STATES, "gradients": None, **method})


class Chains:
    """What the methods share: chains within a budget of evaluations, of which evenly spaced states are the samples."""

    build = CollectedPosterior.build

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> CollectedPosterior:
        """Run the chains; a training that was stopped begins again."""
        method: ChainConfig = as_config(run, ChainConfig)
        budget, name = int(method.gradients_per_example(run.optimizer)), method.sampler
        if budget < FEWEST_GRADIENTS:
            problem = f"'{name}' needs a budget of at least {FEWEST_GRADIENTS} gradients per example, not {budget}"
            raise InputError(problem, hint="Give a larger --budget, or set method.gradients.")
        variance = run.optimizer.prior_variance(len(batches.train))
        if math.isinf(variance):
            raise InputError(f"'{name}' needs a prior on the weights", hint="Set optimizer.l2 above 0.")
        size = sum(p.numel() for p in trained(model).values())
        if batches.whole is None:
            own = NetworkLikelihood(model, batches, run, likelihood, variance)
            counted, stream = chains.Counted(own), tuple[str, ...]()
            prior = chains.Prior(size, variance, own.starts)
            sample: Callable[[Tensor], State] = own.sample
        else:
            density, stream = batches.whole()
            counted, prior, sample = chains.Counted(density), chains.Prior(size, variance), partial(tensors, model)
        exact = "exact" if name in chains.EXACT else "approximate"
        generator = torch_generator("cpu", run.seed, f"{exact} sampler", name, *stream)
        with checkpoint.progress.track(checkpoint.title, budget, unit="steps") as advance:
            kept = torch.cat(SAMPLERS[name](prior, counted, budget, generator, advance))
        # Files that are joined, as those of folds, have equally many samples: states of a short chain are repeated.
        count = method.samples if batches.whole is None else min(len(kept), method.samples)
        rows = np.linspace(0, len(kept) - 1, count).round().astype(int).tolist()
        samples = {row: sample(kept[row].clone()) for row in dict.fromkeys(rows)}
        return CollectedPosterior(model, likelihood, [samples[row] for row in rows])


class Hmc(Chains):
    """HMC: Hamiltonian Monte Carlo (Duane et al. 1987; Neal 2011) by full-batch gradients, one chain.

    **Idea.** The weights move like a particle in the potential -log π(w); each trajectory ends in an exact accept-or-reject step.

        H(w, p) = -log π(w) + |p|² / 2,   accepted with probability min(1, exp(H - H'))

    **Target.** The posterior itself: temperature 1 and the prior N(0, 1 / (2 N l2)) on the parameters of `optimizer.l2_on`, flat on the
    others. The draws have no bias but that of the burn-in, 30 % of the gradients, in which step size and scales of the weights are learnt:
    one for each, or of up to 64 weights with 67 gradients or more for each a matrix (`chains.scale_of`).

    **Settings.** `gradients`, of all training images; `samples`. The chain starts at the network's weights. `optimizer.l2`, `l2_on`
    and `reweight` apply; `lr`, `epochs`, `batch_size`, `augment` and `precision` (it is float32) do not.

    **Cost.** `gradients` passes over all training images, which are in memory at once: a head on cached features takes seconds.
    A killed run begins again. A prediction: S passes.

    **When it fails.** One chain sees one mode, and its length is what tells: of networks with more than some thousand weights
    1,000 gradients are burn-in. Batch norm makes the posterior flat along the scales of weights.

    **Source.** Duane, Kennedy, Pendleton & Roweth 1987; Neal 2011, MCMC using Hamiltonian dynamics; Izmailov et al. 2021.
    """

    class Config(ChainConfig):
        """The options of `ChainConfig`."""

        title = "HMC"

        name: Literal["hmc"] = "hmc"

    FIDELITY = (entry("hmc", "HMC, one chain"),)


class Nuts(Chains):
    """NUTS: the no-U-turn sampler (Hoffman & Gelman 2014) by full-batch gradients, one chain.

    **Idea.** HMC whose trajectories end where they turn back (`hmc.Nuts`), so that their length needs no choice.

    **Target.** As in `hmc`: the posterior itself.

    **Settings.** As in `hmc`: `gradients`, `samples`.

    **Cost.** As `hmc`. A trajectory takes at most a twentieth of the gradients.

    **When it fails.** As `hmc`. Where the budget cuts its trajectories, it is a random walk.

    **Source.** Hoffman & Gelman 2014, The No-U-Turn Sampler; Betancourt 2017.
    """

    class Config(ChainConfig):
        """The options of `ChainConfig`."""

        title = "NUTS"

        name: Literal["nuts"] = "nuts"

    FIDELITY = (entry("nuts", "NUTS, one chain"),)


class Mclmc(Chains):
    """MCLMC: microcanonical Langevin Monte Carlo (Robnik et al. 2023), and MAMS, its adjusted form.

    **Idea.** A particle of constant speed turns towards higher density and forgets its direction over a length (`hmc.microcanonical_step`).
    Every step is a draw.

    **Target.** As in `hmc`, up to the error of the step, whose energy variance is held at .0005 per weight. With `adjusted` trajectories are
    accepted or rejected, and the draws have no bias (MAMS).

    **Settings.** `adjusted`; `gradients` and `samples` as in `hmc`.

    **Cost.** As `hmc`.

    **When it fails.** As `hmc`. It needs two weights at least.

    **Source.** Robnik, De Luca, Silverstein & Seljak 2023, Microcanonical Hamiltonian Monte Carlo; Robnik, Cohn-Gordon & Seljak 2025 (MAMS).
    """

    class Config(ChainConfig):
        """adjusted: see the card."""

        title = "MCLMC"

        name: Literal["mclmc"] = "mclmc"
        adjusted: bool = False

        @property
        def sampler(self) -> str:
            return "mams" if self.adjusted else "mclmc"

        def describe(self, *, titles: bool = True) -> str:
            """Return MAMS where it is adjusted."""
            return "MAMS" if self.adjusted and titles else super().describe(titles=titles)

        def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
            """Return the target posterior (see `MethodConfig`)."""
            how = self.approximates if self.adjusted else f"{self.approximates}, up to the error of its step"
            return optimizer.target(points, how)

    FIDELITY = (
        entry("mclmc", "microcanonical Langevin (MCLMC)"),
        entry("mams", "microcanonical trajectories, adjusted (MAMS)", adjusted=True),
    )


class Mile(Chains):
    """MILE: microcanonical Langevin ensembles (Sommer et al. 2025): an ensemble whose members start chains of MCLMC.

    **Idea.** Five to eight networks are optimised by Adam with 30 % of the gradients; from there each is a chain of `mclmc`, with
    one step size for all.

    **Target.** As in `mclmc` within the modes that the members find; their weights are those of the optimisation, not of the posterior.

    **Settings.** `gradients` of all members together, `samples`. Members start from matrices drawn anew, of the network's root mean squares.

    **Cost.** As `hmc`.

    **When it fails.** As `mclmc`. At 1,000 gradients a member has 60 steps of Adam and 140 of its chain.

    **Source.** Sommer, Robnik, Nozadze, Seljak & Rügamer 2025, Microcanonical Langevin Ensembles.
    """

    class Config(ChainConfig):
        """The options of `ChainConfig`."""

        title = "MILE"
        approximates = "draws of chains from optimised starts, up to the error of their step"

        name: Literal["mile"] = "mile"

    FIDELITY = (entry("mile", "microcanonical ensemble (MILE)"),)


class Pathfinder(Chains):
    """Pathfinder: Gaussians along the paths of an optimiser (Zhang et al. 2022), several paths.

    **Idea.** L-BFGS climbs log π from several starts. At each point of a path, its estimate H of the inverse Hessian gives the Gaussian
    N(w + H ∇ log π, H), and the one with the greatest evidence bound speaks for its path.

        q = argmax_t E_q[log π(w) - log q(w)],   q_t = N(w_t + H_t ∇ log π(w_t), H_t)

    **Target.** As in `hmc`. Draws are resampled by Pareto-smoothed importance weights where these are reliable (k of .7 at most), which
    takes the error of the Gaussians away; else they are of a mixture of all paths in equal parts, as of an ensemble.

    **Settings.** As in `hmc`: `gradients`, 50 or more for each of at most 100 paths, of which L-BFGS takes six tenths at most; `samples`. Several paths
    start from matrices drawn anew, of the network's root mean squares.

    **Cost.** As `hmc`; linear algebra of P times twice the steps of a path, P the number of weights.

    **When it fails.** With more than some twenty weights the importance weights are not reliable, and the draws are of Gaussians: more
    gradients then add paths, and where the posterior has one mode nothing more. Equal parts are not the weights of the modes. A path of 30
    gradients tells 30 directions at most, and in all others a draw is as wide as the prior: networks of thousands of weights predict nothing
    under a wide one (a larger `optimizer.l2` narrows it).

    **Source.** Zhang, Carpenter, Gelman & Vehtari 2022, Pathfinder: Parallel quasi-Newton variational inference.
    """

    class Config(ChainConfig):
        """The options of `ChainConfig`."""

        title = "Pathfinder"
        approximates = "draws of Gaussians about the modes that its paths find"

        name: Literal["pathfinder"] = "pathfinder"

    FIDELITY = (entry("pathfinder", "Pathfinder"),)

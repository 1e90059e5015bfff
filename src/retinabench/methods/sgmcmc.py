"""SGLD, SGHMC and cyclical SGHMC: one long training with noise, whose iterates are the samples.

Target: π(w) ∝ exp(-U(w) / T), U = N · loss the negative log-posterior of all N images. With h = lr / N the step is

    v ← b v - √h ∇U + √(2 (1 - b) T) C^½ ξ,    w ← w + √h C⁻¹ v,    ξ ~ N(0, I)

b = 0 and C = I give w ← w - h ∇U + √(2 h T) ξ, Langevin's; in terms of the mean loss that is a step of SGD of the
learning rate `lr` and noise of variance 2 lr T / N. b > 0 is SGD with momentum b and the same noise (Chen et al. 2014, in
the form of Wenzel et al. 2020). C is the identity, or ε + √V with V the RMSprop average of (∇U / N)² (Li et al. 2016).

A C that depends on w would ask for a drift Γ = ∇ · C⁻¹, which published code leaves out, and so samples another density. Here C
learns for `adapt` steps and is then frozen: Γ = 0, and the samples after that are those of the target.

With `l2 = 1 / (2 N s²)` on everything, no reweighting and no augmentation the target is the posterior under the prior N(0, s²),
at temperature 1 but for the error of the step, O(lr), and the noise of the mini-batches, of the same order. Batch norm's running
statistics, averages over the last few steps, are collected with each sample.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import HEAVY_BALL, as_config, fidelity_entry, log_range
from retinabench.methods.map import PointPosterior
from retinabench.methods.posteriors import CollectedPosterior, Collector, before_steps, evenly_spaced
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import (
    ParameterGroup,
    Uncompiled,
    likelihood_only,
    parameter_groups,
    select_last_epoch,
    train,
)

DECAY, EPSILON = 0.99, 1e-7  # of RMSprop, as in Izmailov et al. 2021


class Langevin(Uncompiled):
    """The step above; a group's `weight_decay` is the prior's part of the gradient. images: N. adapt: 0 for C = I.

    The noise of a step depends on `seed` and its number alone, so that a resumed training repeats it.
    """

    def __init__(
        self, groups: list[ParameterGroup], *, lr: float, momentum: float, images: int, temperature: float,
        adapt: int, seed: int,
    ) -> None:  # fmt: skip
        own = {"lr": lr, "momentum": momentum, "weight_decay": 0.0, "images": images, "temperature": temperature,
               "adapt": adapt, "seed": seed, "steps": 0}  # fmt: skip
        super().__init__(groups, own)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["velocity"] = torch.zeros_like(p)
                if adapt:
                    self.state[p]["squares"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the loss is taken outside
        parameters, first = [p for group in self.param_groups for p in group["params"]], self.param_groups[0]
        # Drawn at once: a network has many small parameters.
        generator = torch_generator(parameters[0].device, first["seed"], "langevin", first["steps"])
        sizes = [p.numel() for p in parameters]
        flat = torch.randn(sum(sizes), generator=generator, device=parameters[0].device)
        pieces = iter(torch.split(flat, sizes))
        for group in self.param_groups:
            self._move(group, [next(pieces).view(p.shape) for p in group["params"]])
            group["steps"] += 1

    def _move(self, group: ParameterGroup, noise: list[Tensor]) -> None:
        parameters, b = group["params"], group["momentum"]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        torch._foreach_add_(gradients, parameters, alpha=group["weight_decay"])
        scales = self._preconditioner(group, gradients)
        root = math.sqrt(group["lr"] / group["images"])
        velocities = [self.state[p]["velocity"] for p in parameters]
        torch._foreach_mul_(velocities, b)
        torch._foreach_add_(velocities, gradients, alpha=-root * group["images"])
        if scales:
            torch._foreach_mul_(noise, torch._foreach_sqrt(scales))
        torch._foreach_add_(velocities, noise, alpha=math.sqrt(2 * (1 - b) * group["temperature"]))
        moves = torch._foreach_div(velocities, scales) if scales else velocities
        torch._foreach_add_(parameters, moves, alpha=root)

    def _preconditioner(self, group: ParameterGroup, gradients: list[Tensor]) -> list[Tensor]:
        """Return the diagonal of C by parameter, learning from the gradients as long as it may; [] for the identity."""
        if not group["adapt"]:
            return []
        squares = [self.state[p]["squares"] for p in group["params"]]
        if group["steps"] < group["adapt"]:
            torch._foreach_mul_(squares, DECAY)
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - DECAY)
        # Divided by the weight that the average has gathered, so that the first steps are no longer than the others.
        gathered = 1 - DECAY ** min(group["steps"] + 1, group["adapt"])
        scales = torch._foreach_div(squares, gathered)
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, EPSILON)
        return scales  # type: ignore[return-value]


Schedule = Callable[[int], float]  # 0-based step -> the factor on the run's learning rate.


class ChainConfig(MethodConfig):
    """samples: collected, and predicted with. burn_in, temperature, preconditioner: see `Sgld`."""

    samples: int = Field(5, ge=1)
    burn_in: float = Field(0.5, gt=0, lt=1)
    temperature: float = Field(1.0, ge=0)
    preconditioner: Literal["none", "rmsprop"] = "none"

    def momentum(self, optimizer: Optimizer) -> float:
        """Return b of the step."""
        return optimizer.momentum

    def factor(self, first: int, ends: Sequence[int]) -> Schedule:
        """Return 1 during the burn-in of `first` steps, then ½ (1 + cos(π t / cycle)) in cycles that end where samples are taken."""
        starts = [first, *ends]

        def at(step: int) -> float:
            if step < first:
                return 1.0
            cycle = min(bisect_right(starts, step), len(ends)) - 1
            begin, end = starts[cycle], starts[cycle + 1]
            return 0.5 * (1 + math.cos(math.pi * (step - begin) / (end - begin)))

        return at

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior (see `MethodConfig`)."""
        return optimizer.target(points, "draws, up to the error of the step", self.temperature)


class ConstantStepConfig(ChainConfig):
    """lr_factor: the constant step of the sampling over that at the start of the burn-in."""

    lr_factor: float = Field(0.3, gt=0)

    def factor(self, first: int, ends: Sequence[int]) -> Schedule:
        """Return a cosine from 1 down to `lr_factor` during the burn-in of `first` steps, constant afterwards."""
        final = self.lr_factor
        return lambda step: final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / max(1, first))))


class Chain:
    """What the samplers share: one chain, whose samples are evenly spaced after the burn-in."""

    build = CollectedPosterior.build

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> CollectedPosterior:
        """Run one chain and return its samples; the checkpoint's validation is that of the last iterate."""
        method: ChainConfig = as_config(run, ChainConfig)
        total = run.optimizer.epochs * batches.steps
        first, warm = round(method.burn_in * total), round(run.optimizer.warmup * batches.steps)
        ends = evenly_spaced(first, total, method.samples, run)
        shape, collector = method.factor(first, ends), Collector(model, checkpoint)
        optimizer = Langevin(
            parameter_groups(model, run.optimizer), lr=run.optimizer.lr,
            momentum=method.momentum(run.optimizer), images=len(batches.train), temperature=method.temperature,
            adapt=max(1, first) if method.preconditioner == "rmsprop" else 0, seed=run.seed,
        )  # fmt: skip
        train(
            PointPosterior(model, likelihood), batches, select_last_epoch(run), checkpoint,
            objective=before_steps(likelihood_only(model, batches, run, likelihood), ends, collector.collect),
            optimizer=optimizer,
            schedule=lambda step: run.optimizer.lr * shape(step) * (min(1.0, step / warm) if warm else 1.0),
        )  # fmt: skip
        collector.collect(method.samples - 1)
        return collector.posterior(method.samples, likelihood)


class Sgld(Chain):
    """SGLD: stochastic-gradient Langevin dynamics (Welling & Teh 2011), at a step that becomes constant.

    **Idea.** Plain SGD with as much noise as makes its iterates draws of the posterior, once the step is small.

        w ← w - h ∇U(w) + √(2 h T) ξ,   ξ ~ N(0, I),   U = N · loss,   h = lr / N

    A step is that of plain SGD of the learning rate `lr`; the noise has the variance 2 lr T / N. The step falls along a
    cosine during the burn-in and is constant afterwards, where samples are collected at equal distances.

    **Target.** Temperature 1 and the prior N(0, 1 / (2 N l2)) on the parameters of `optimizer.l2_on`, flat on the others. Exact as
    h → 0: on U = a (w - μ)² / 2 the variance is 1 / (a (1 - h a / 2)) with full batches; the noise of mini-batches adds an error of
    the same order (both tested). With `reweight` or `augment` the likelihood is another one.

    **Settings.** `samples`, `burn_in` (share of the training before them), `lr_factor` (the constant step over the first one),
    `temperature` T, `preconditioner`: `rmsprop` divides the step of every weight by C and the noise by √C; C learns during the
    burn-in and is then frozen, and `lr` is of the size of Adam's. `optimizer.momentum`, `name`, `schedule`, `final_lr` and `select`
    do not apply; `warmup` does.

    **Cost.** A step: SGD's, and one random number per weight. Samples are files below the run's folder while it trains, and are
    read from `posterior.pt` as they predict, one network at a time: 20 samples of a ResNet-18 (853 MiB) take 244 MiB of memory, 2 of
    them 238 MiB. A prediction: S passes.

    **When it fails.** Neighbouring samples are nearly the same network where the step is small; where it is large they are too
    wide. With few images a short chain from a random start has not reached the posterior. Batch norm's running statistics lag
    behind the iterates.

    **Source.** Welling & Teh 2011; Li et al. 2016 (the preconditioner); Izmailov et al. 2021 (the schedule).
    """

    class Config(ConstantStepConfig):
        """The options of `ConstantStepConfig`."""

        title = "SGLD"

        name: Literal["sgld"] = "sgld"

        def momentum(self, optimizer: Optimizer) -> float:
            """Return 0: the step is Langevin's."""
            return 0.0

    FIDELITY = (
        fidelity_entry(
            "sgld",
            "SGLD",
            {"samples": 100, "burn_in": 0.3},
            tuned={"optimizer.lr": ({1000: 2.0, "large": 0.02}, 0.0061), "method.lr_factor": (0.77, 0.11)},
            searched={
                "method.lr_factor": log_range(0.1, 1.0),
                "optimizer.lr": (log_range(0.01, 0.2), log_range(0.001, 0.03)),
            },
        ),
        *(
            # The published steps are of the gradient of the sum over all training points.
            fidelity_entry(
                f"sgld-{step}",
                f"SGLD, step {step}",
                {"samples": 100, "burn_in": 0.1, "lr_factor": 1.0},
                {"lr": f"{step} per point"},
            )
            for step in ("1e-6", "3e-6")
        ),
    )


class Sghmc(Chain):
    """SGHMC: stochastic-gradient Hamiltonian Monte Carlo (Chen et al. 2014): SGLD with momentum.

    **Idea.** SGLD with momentum: noise keeps the velocities at the temperature, and they carry the weights along.

        v ← b v - √h ∇U(w) + √(2 (1 - b) T) C^½ ξ,   w ← w + √h C⁻¹ v,   h = lr / N,   b = `optimizer.momentum`

    The steps are those of heavy-ball SGD of the same `lr` and b; all else is as in SGLD (`sgld`).

    **Target.** Temperature 1 and the prior N(0, 1 / (2 N l2)) on the parameters of `optimizer.l2_on`. Exact as h →
    0: on U = a (w - μ)² / 2 the variance is 1 / (a (1 - h a / (2 (1 + b)))) with full batches, tested.

    **Settings.** `samples`, `burn_in`, `lr_factor`, `temperature`, `preconditioner` as in `sgld`; b and `lr` are
    the optimiser's, whose `name`, `schedule`, `final_lr` and `select` do not apply.

    **Cost.** As SGLD, and one number more per weight.

    **When it fails.** As SGLD, though at equal stationary error it moves 1 / (1 - b) times as far per step. The
    noise of mini-batches heats it: it has no estimate of that noise to subtract, as Chen et al. propose, and at a
    large step samples above its temperature.

    **Source.** Chen et al. 2014, Stochastic Gradient Hamiltonian Monte Carlo; Wenzel et al. 2020 (this form of the
    step); Izmailov et al. 2021.
    """

    class Config(ConstantStepConfig):
        """The options of `ConstantStepConfig`."""

        title = "SGHMC"

        name: Literal["sghmc"] = "sghmc"

    FIDELITY = (
        fidelity_entry(
            "sghmc",
            "SGHMC",
            {"samples": 100, "burn_in": 0.3},
            HEAVY_BALL,
            tuned={"optimizer.lr": ({100: 3.5, 1000: 1.1, "large": 0.035}, 0.0016), "method.lr_factor": (0.23, 0.11)},
            searched={
                "method.lr_factor": log_range(0.1, 1.0),
                "optimizer.lr": (log_range(0.002, 0.05), log_range(0.0002, 0.01)),
            },
        ),
        fidelity_entry(
            "sghmc-chains",
            "SGHMC, two chains",
            {
                "name": "ensemble",
                "members": 2,
                "member": {"name": "sghmc", "samples": 50, "burn_in": 0.3, "lr_factor": 0.12},
            },
            HEAVY_BALL,
            tuned={"optimizer.lr": ({100: 0.1, 1000: 3.2, "large": 0.032}, 0.0058)},
            searched={
                "method.members": {"choices": [2, 4, 8]},
                "method.member.lr_factor": log_range(0.1, 1.0),
                "optimizer.lr": (log_range(0.002, 0.05), log_range(0.0002, 0.01)),
            },
        ),
    )


class CyclicalSghmc(Chain):
    """Cyclical SGHMC (Zhang et al. 2020): the step of SGHMC falls and is raised again; every cycle ends in one sample.

    **Idea.** SGHMC whose step falls to nothing and is raised again: long steps leave a mode, short ones settle in
    one, and every cycle ends in a sample.

        h(t) = lr / N · ½ (1 + cos(π t / cycle)),   after a burn-in at the constant lr / N

    **Target.** Temperature 1 and the prior N(0, 1 / (2 N l2)) on the parameters of `optimizer.l2_on`, as the step
    of a whole cycle becomes small. The noise is on in all of a cycle; without it in the first part, as in the
    paper, that part optimises and the samples are colder than the posterior.

    **Settings.** `samples` (cycles, one sample each), `burn_in`, `temperature`, `preconditioner` as in `sgld`. b
    and `lr` are the optimiser's.

    **Cost.** As SGHMC; samples are far apart, so there are few of them.

    **When it fails.** With short cycles a sample has not settled; with long ones there are too few of them. The
    last steps of a cycle are so short that their noise does nothing: a sample is a little nearer to its mode than
    the posterior.

    **Source.** Zhang et al. 2020, Cyclical Stochastic Gradient MCMC; Izmailov et al. 2021 (one sample per cycle).
    """

    class Config(ChainConfig):
        """samples: cycles, of equal length, after the burn-in; the rest as in `ChainConfig`."""

        title = "cyclical SGHMC"

        name: Literal["csghmc"] = "csghmc"

    FIDELITY = (
        fidelity_entry(
            "csghmc",
            "cyclical SGHMC",
            {"burn_in": 0.2},
            HEAVY_BALL,
            tuned={"optimizer.lr": ({1000: 0.55, "large": 0.0055}, 0.0012), "method.samples": (60, 15)},
            searched={
                "method.samples": {"choices": [15, 30, 60]},
                "optimizer.lr": (log_range(0.002, 0.05), log_range(0.0002, 0.01)),
            },
        ),
    )

"""SGLD: stochastic-gradient Langevin dynamics (Welling & Teh 2011), at a step that becomes constant.

**Idea.** Plain SGD with as much noise as makes its iterates draws of the posterior, once the step is small.

    w ← w - h ∇U(w) + √(2 h T) ξ,   ξ ~ N(0, I),   U = N · loss,   h = lr / N

A step is that of plain SGD of the learning rate `lr`; the noise has the variance 2 lr T / N. The step falls
along a cosine during the burn-in and is constant afterwards, where samples are collected at equal distances.

**Target.** Temperature 1 and the prior N(0, 1 / (2 N l2)) on the parameters of `optimizer.l2_on`, flat on the
others. Exact as h → 0. On U = a (w - μ)² / 2 the variance is 1 / (a (1 - h a / 2)) with full batches, tested;
the noise of mini-batches adds an error of the same order, tested to halve with h. With `reweight` or `augment`
the likelihood is another one.

**Settings.** `samples` (collected, and predicted with), `burn_in` (share of the training before them),
`lr_factor` (the constant step over the first one), `temperature` (T), `preconditioner`: `rmsprop` divides the
step of every weight by C = ε + √V, V the moving average of its squared gradient, and the noise by √C; `lr` is
then of the size of Adam's. A C that follows w asks for a drift Γ = ∇ · C⁻¹; the published preconditioned
samplers leave it out, and so sample another density than the posterior. Here C learns during the burn-in only
and is then frozen: nothing is left out. `optimizer.momentum`, `name`, `schedule`, `final_lr` and `select` do
not apply; `warmup` does.

**Cost.** A step: SGD's, and one random number per weight. Samples are files below the run's folder while it
trains, and are read from `posterior.pt` as they predict, one network at a time: with 20 samples of a ResNet-18
(853 MiB) a process takes 244 MiB of memory of its own, with 2 of them 238 MiB; the rest is the file's, which
the system may drop. A prediction: S passes.

**When it fails.** Neighbouring samples are nearly the same network where the step is small; where it is large
the samples are too wide. With few images the posterior is wide, and a short chain from a random start has not
reached it: of four tiny runs of 12 steps on 64 images one ranked at 0.87 where MAP ranks at 1. Batch norm's
running statistics lag behind the iterates.

**Source.** Welling & Teh 2011; Li et al. 2016 (the preconditioner); Izmailov et al. 2021 (the schedule).
"""

from __future__ import annotations

from typing import Literal

from retinabench.methods.base import FidelitySettings, log_range
from retinabench.methods.mcmc import sgmcmc
from retinabench.methods.mcmc.sgmcmc import build, fit
from retinabench.methods.settings import Optimizer

__all__ = ["FIDELITY", "Config", "build", "fit"]


class Config(sgmcmc.ConstantStepConfig):
    """The options of `sgmcmc.ConstantStepConfig`, and no other."""

    title = "SGLD"

    name: Literal["sgld"] = "sgld"

    def momentum(self, optimizer: Optimizer) -> float:
        """Return 0: the step is Langevin's."""
        return 0.0


FIDELITY = (
    FidelitySettings(
        name="sgld",
        title="SGLD",
        method={"name": "sgld", "samples": 100, "burn_in": 0.3},
        categorical={"optimizer": {"lr": 0.02}, "method": {"lr_factor": 0.77}},
        gaussian={"optimizer": {"lr": 0.0061}, "method": {"lr_factor": 0.11}},
        search={
            "categorical": {"method.lr_factor": log_range(0.1, 1.0), "optimizer.lr": log_range(0.01, 0.2)},
            "gaussian": {"method.lr_factor": log_range(0.1, 1.0), "optimizer.lr": log_range(0.001, 0.03)},
        },
    ),
    *(
        FidelitySettings(
            name=f"sgld-{step}",
            title=f"SGLD, step {step}",
            method={"name": "sgld", "samples": 100, "burn_in": 0.1, "lr_factor": 1.0},
            # The published steps are of the gradient of the sum over all training points.
            optimizer={"lr": f"{step} per point"},
        )
        for step in ("1e-6", "3e-6")
    ),
)

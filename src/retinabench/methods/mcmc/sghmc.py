"""SGHMC: stochastic-gradient Hamiltonian Monte Carlo (Chen et al. 2014): SGLD with momentum.

**Idea.** SGLD with momentum: noise keeps the velocities at the temperature, and they carry the weights along.

    v ← b v - √h ∇U(w) + √(2 (1 - b) T) C^½ ξ,   w ← w + √h C⁻¹ v,   h = lr / N,   b = `optimizer.momentum`

The steps are those of heavy-ball SGD of the same `lr` and b. Schedule, samples and their storage are those of
SGLD (`sgld`).

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

from __future__ import annotations

from typing import Literal

from retinabench.methods.base import FidelitySettings, log_range
from retinabench.methods.mcmc import sgmcmc
from retinabench.methods.mcmc.sgmcmc import build, fit

__all__ = ["FIDELITY", "Config", "build", "fit"]


class Config(sgmcmc.ConstantStepConfig):
    """The options of `sgmcmc.ConstantStepConfig`, and no other."""

    title = "SGHMC"

    name: Literal["sghmc"] = "sghmc"


FIDELITY = (
    FidelitySettings(
        name="sghmc",
        title="SGHMC",
        method={"name": "sghmc", "samples": 100, "burn_in": 0.3},
        optimizer={"momentum": 0.9},
        categorical={"optimizer": {"lr": 0.035}, "method": {"lr_factor": 0.23}},
        gaussian={"optimizer": {"lr": 0.0016}, "method": {"lr_factor": 0.11}},
        search={
            "categorical": {"method.lr_factor": log_range(0.1, 1.0), "optimizer.lr": log_range(0.002, 0.05)},
            "gaussian": {"method.lr_factor": log_range(0.1, 1.0), "optimizer.lr": log_range(0.0002, 0.01)},
        },
    ),
    FidelitySettings(
        name="sghmc-chains",
        title="SGHMC, two chains",
        method={
            "name": "ensemble",
            "members": 2,
            "member": {"name": "sghmc", "samples": 50, "burn_in": 0.3, "lr_factor": 0.12},
        },
        optimizer={"momentum": 0.9},
        categorical={"optimizer": {"lr": 0.032}},
        gaussian={"optimizer": {"lr": 0.0058}},
        search={
            "categorical": {
                "method.members": {"choices": [2, 4, 8]},
                "method.member.lr_factor": log_range(0.1, 1.0),
                "optimizer.lr": log_range(0.002, 0.05),
            },
            "gaussian": {
                "method.members": {"choices": [2, 4, 8]},
                "method.member.lr_factor": log_range(0.1, 1.0),
                "optimizer.lr": log_range(0.0002, 0.01),
            },
        },
    ),
)

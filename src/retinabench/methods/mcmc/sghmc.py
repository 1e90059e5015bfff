"""SGHMC: stochastic-gradient Hamiltonian Monte Carlo (Chen et al. 2014): SGLD with momentum.

v ← b v - √h ∇U(w) + √(2 (1 - b) T) ξ, w ← w + √h v, h = lr / N, b = `optimizer.momentum`: heavy-ball SGD of the same `lr` and b, with
noise. The step falls along a cosine during the burn-in and stays; samples are then collected at equal distances.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, as_config, log_range
from retinabench.methods.mcmc import sgmcmc
from retinabench.methods.mcmc.sgmcmc import build, constant_after_burn_in, sample_chain
from retinabench.methods.posteriors.collected import CollectedPosterior
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood

__all__ = ["FIDELITY", "Config", "build", "fit"]


class Config(sgmcmc.Config):
    """lr_factor: the constant step of the sampling over that at the start of the burn-in; the rest as in `sgmcmc.py`."""

    title = "SGHMC"

    name: Literal["sghmc"] = "sghmc"
    lr_factor: float = Field(0.3, gt=0)


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> CollectedPosterior:
    """Sample one chain."""
    return sample_chain(
        model,
        batches,
        run,
        checkpoint,
        likelihood,
        momentum=run.optimizer.momentum,
        lr=run.optimizer.lr,
        factor=constant_after_burn_in(as_config(run, Config).lr_factor),
    )


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

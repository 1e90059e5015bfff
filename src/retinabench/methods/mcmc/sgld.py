"""SGLD: stochastic-gradient Langevin dynamics (Welling & Teh 2011), at a step that becomes constant.

w ← w - h ∇U(w) + √(2 h T) ξ, ξ ~ N(0, I), h = lr / N: a step of plain SGD of the learning rate `lr`, and noise. The step falls
along a cosine during the burn-in and stays; samples are then collected at equal distances.
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

    title = "SGLD"

    name: Literal["sgld"] = "sgld"
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
        momentum=0.0,
        lr=run.optimizer.lr,
        factor=constant_after_burn_in(as_config(run, Config).lr_factor),
    )


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
)

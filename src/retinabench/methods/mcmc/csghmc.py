"""Cyclical SGHMC (Zhang et al. 2020): the step of SGHMC falls and is raised again; every cycle ends in one sample.

After a burn-in at the constant step h0 = lr / N, step t of a cycle has h = h0 / 2 (1 + cos(π t / cycle)): long steps cross from
one mode to another, short ones settle there. The noise is that of the posterior in all of them; the paper leaves it out
of the first part of a cycle, which then only optimises.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import FidelitySettings, log_range
from retinabench.methods.mcmc import sgmcmc
from retinabench.methods.mcmc.sgmcmc import build, cyclical, sample_chain
from retinabench.methods.posteriors.collected import CollectedPosterior
from retinabench.methods.settings import TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood

__all__ = ["FIDELITY", "Config", "build", "fit"]


class Config(sgmcmc.Config):
    """samples: cycles, of equal length, after the burn-in; the rest as in `sgmcmc.py`."""

    title = "cyclical SGHMC"

    name: Literal["csghmc"] = "csghmc"


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
        factor=cyclical,
    )


FIDELITY = (
    FidelitySettings(
        name="csghmc",
        title="cyclical SGHMC",
        method={"name": "csghmc", "burn_in": 0.2},
        optimizer={"momentum": 0.9},
        categorical={"optimizer": {"lr": 0.0055}, "method": {"samples": 60}},
        gaussian={"optimizer": {"lr": 0.0012}, "method": {"samples": 15}},
        search={
            "categorical": {
                "method.samples": {"choices": [15, 30, 60]},
                "optimizer.lr": log_range(0.002, 0.05),
            },
            "gaussian": {
                "method.samples": {"choices": [15, 30, 60]},
                "optimizer.lr": log_range(0.0002, 0.01),
            },
        },
    ),
)

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

from __future__ import annotations

from typing import Literal

from retinabench.methods.base import FidelitySettings, log_range
from retinabench.methods.mcmc import sgmcmc
from retinabench.methods.mcmc.sgmcmc import build, fit

__all__ = ["FIDELITY", "Config", "build", "fit"]


class Config(sgmcmc.Config):
    """samples: cycles, of equal length, after the burn-in; the rest as in `sgmcmc.py`."""

    title = "cyclical SGHMC"

    name: Literal["csghmc"] = "csghmc"


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

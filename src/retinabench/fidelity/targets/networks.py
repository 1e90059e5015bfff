"""The network of a target."""

from __future__ import annotations

from torch import nn

from retinabench.fidelity.targets.target import Target
from retinabench.methods.training.likelihood import Categorical, Gaussian, Likelihood
from retinabench.models.build import build_published


def likelihood_of(target: Target) -> Likelihood:
    """Return what the outputs of the target's network mean."""
    return Gaussian(target.floor) if target.likelihood == "gaussian" else Categorical(target.outputs)


def build_network(target: Target, seed: int) -> nn.Module:
    """Return the target's network, its weights a function of `seed`."""
    model = build_published(target.network, seed, target.outputs)
    count = sum(p.numel() for p in model.parameters())
    if count != target.parameters:
        raise AssertionError(
            f"'{target.network}' has {count} weights; '{target.name}' says {target.parameters}"
        )
    return model

"""What training on a target needs: its network, its likelihood and the batches of its training points."""

from __future__ import annotations

import torch
from torch import nn

from retinabench.data.loader import Batches, array_batches
from retinabench.fidelity.targets.data import TargetData, labels, standardised
from retinabench.fidelity.targets.target import Target
from retinabench.methods.training.likelihood import Categorical, Gaussian, Likelihood
from retinabench.models.build import build_published


def build_network(target: Target, seed: int) -> nn.Module:
    """Return the target's network, its weights a function of `seed`."""
    model = build_published(target.network, seed, target.outputs)
    count = sum(p.numel() for p in model.parameters())
    if count != target.parameters:
        raise AssertionError(
            f"'{target.network}' has {count} weights; '{target.name}' says {target.parameters}"
        )
    return model


def likelihood_of(target: Target) -> Likelihood:
    """Return what the outputs of the target's network mean."""
    return Gaussian(target.floor) if target.likelihood == "gaussian" else Categorical(target.outputs)


def point_batches(data: TargetData, batch_size: int, seed: int, device: torch.device) -> Batches:
    """Return the batches of all training points, of which none is held out: the posterior is that of all of them."""
    return array_batches(standardised(data)[0], labels(data)[0], batch_size, seed, device)

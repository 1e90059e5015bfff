"""The networks of the targets: one literal dict, each with exactly the number of weights that its target states."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from retinabench.core.random_streams import torch_generator
from retinabench.fidelity.targets.targets import Target
from retinabench.models.alexnet import AlexNet
from retinabench.models.cnn_lstm import CnnLstm
from retinabench.models.lenet import lenet
from retinabench.models.mlp import MLP
from retinabench.models.resnet import initialise
from retinabench.models.resnet_frn import ResNetFRN

NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "lenet-smooth": lambda outputs: lenet(outputs=outputs, activation=nn.SiLU),
    "lenet": lambda outputs: lenet(outputs=outputs),
    "alexnet-swish": lambda outputs: AlexNet(64, outputs),
    "resnet20-frn-swish": lambda outputs: ResNetFRN(16, outputs),
    "cnn-lstm": CnnLstm,
    "mlp-8-50-2": lambda outputs: MLP(8, 50, outputs, nn.ReLU),
}


def build_network(target: Target, seed: int) -> nn.Module:
    """Return the target's network, its weights a function of `seed`."""
    model = NETWORKS[target.network](target.outputs)
    count = sum(p.numel() for p in model.parameters())
    if count != target.parameters:
        raise AssertionError(
            f"'{target.network}' has {count} weights; '{target.name}' says {target.parameters}"
        )
    initialise(model, torch_generator("cpu", seed, "weights"))
    return model

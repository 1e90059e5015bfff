"""Networks: one literal dict. A new network is one file and one line in `MODELS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from retinabench.models.resnet import initialise, resnet18, resnet34, resnet50
from retinabench.seeds import torch_generator

if TYPE_CHECKING:
    from retinabench.config import Model

MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
}


def build_model(config: Model, seed: int, outputs: int = 1) -> nn.Module:
    """Build a network whose weights depend on `seed` alone, in channels-last layout: the faster one everywhere."""
    model = MODELS[config.name](width=config.width, outputs=outputs, stem=config.stem)
    initialise(model, torch_generator("cpu", seed, "weights"))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]  # torch's stubs

"""Networks: one literal dict. A new network is one file and one line in `MODELS`."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import nn

from retinabench.core.random_streams import torch_generator
from retinabench.experiments.config import TIMM, Model
from retinabench.models.lenet import lenet
from retinabench.models.mlp import mlp
from retinabench.models.resnet import initialise, resnet18, resnet34, resnet50
from retinabench.models.timm_adapter import timm_network
from retinabench.models.vgg import vgg

# A builder takes `width`, whose default is the published one, `outputs`, and `stem` where there is a choice of stems.
MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "vgg": vgg,
    "lenet": lenet,
    "mlp": mlp,
}


def build_model(config: Model, seed: int, outputs: int = 1) -> nn.Module:
    """Build a network whose weights depend on `seed` alone, in channels-last layout: the faster one everywhere."""
    if config.name.startswith(TIMM):
        model: nn.Module = timm_network(config.name.removeprefix(TIMM), seed, outputs)
    else:
        stem = {"stem": config.stem} if has_stems(config.name) else {}
        model = MODELS[config.name](width=config.width, outputs=outputs, **stem)
        initialise(model, torch_generator("cpu", seed, "weights"))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]  # torch's stubs


def published_width(name: str) -> int:
    """Return the width that a network was published with; the default, meaning nothing, where there is no choice."""
    if name not in MODELS:
        return int(Model.model_fields["width"].default)
    return int(inspect.signature(MODELS[name]).parameters["width"].default)


def has_stems(name: str) -> bool:
    """Say whether a network has more than one stem."""
    return name in MODELS and "stem" in inspect.signature(MODELS[name]).parameters

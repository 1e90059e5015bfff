"""Construction of networks from their settings."""

from __future__ import annotations

import torch
from torch import nn

from retinabench.core.random_streams import torch_generator
from retinabench.models.registry import MODELS
from retinabench.models.resnet import initialise
from retinabench.models.settings import TIMM, ModelConfig, has_stems
from retinabench.models.timm_adapter import timm_network


def build_model(config: ModelConfig, seed: int, outputs: int = 1) -> nn.Module:
    """Build a network whose weights depend on `seed` alone, in channels-last layout: the faster one everywhere."""
    if config.name.startswith(TIMM):
        model: nn.Module = timm_network(config.name.removeprefix(TIMM), seed, outputs)
    else:
        stem = {"stem": config.stem} if has_stems(config.name) else {}
        model = MODELS[config.name](width=config.width, outputs=outputs, **stem)
        initialise(model, torch_generator("cpu", seed, "weights"))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]  # torch's stubs

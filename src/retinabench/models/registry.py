"""The networks by name. A new network is one module with a builder, and one line here or an entry point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from retinabench.core.registry import Registry

# A builder takes `width`, whose default is the published one, `outputs`, and `stem` where there is a choice of stems.
MODELS: Registry[Callable[..., Any]] = Registry(
    "retinabench.models",
    "model",
    {
        "resnet18": "retinabench.models.resnet:resnet18",
        "resnet34": "retinabench.models.resnet:resnet34",
        "resnet50": "retinabench.models.resnet:resnet50",
        "vgg": "retinabench.models.vgg:vgg",
        "lenet": "retinabench.models.lenet:lenet",
        "mlp": "retinabench.models.mlp:mlp",
    },
)

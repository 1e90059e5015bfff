"""The networks by name.

A new network is one module of `networks/` with a builder, and one line here or an entry point of the group ``retinabench.models``. A
builder is a function with keyword parameters: ``width``, where the network has one, whose default is the published
width; ``outputs``; ``stem``, ``activation`` and ``pool``, where there is a choice; and ``columns`` where it also takes tables. It returns the module without fresh weights
(`models.build.initialise` draws them). The number of its weights is stated beside it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from retinabench.core.registry import Registry

Builder = TypeVar("Builder", bound=Callable[..., Any])

MODELS: Registry[Callable[..., Any]] = Registry(
    "retinabench.models",
    "model",
    {
        "resnet18": "retinabench.models.networks.resnet:resnet18",
        "resnet34": "retinabench.models.networks.resnet:resnet34",
        "resnet50": "retinabench.models.networks.resnet:resnet50",
        "drn_d_22": "retinabench.models.networks.drn:drn_d_22",
        "resnet20-frn-swish": "retinabench.models.networks.resnet:ResNetFRN",
        "vgg": "retinabench.models.networks.convolutional:VGG",
        "lenet": "retinabench.models.networks.convolutional:lenet",
        "lenet-smooth": "retinabench.models.networks.convolutional:lenet_smooth",
        "lenet-3-smooth": "retinabench.models.networks.convolutional:lenet_3_smooth",
        "alexnet-swish": "retinabench.models.networks.convolutional:AlexNet",
        "cnn-lstm": "retinabench.models.networks.convolutional:CnnLstm",
        **{
            f"efficientnet_lite{number}": f"retinabench.models.networks.efficientnet_lite:efficientnet_lite{number}"
            for number in range(5)
        },
        "mlp": "retinabench.models.networks.small:mlp",
        "linear": "retinabench.models.networks.small:linear",
        "mlp-8-50-2": "retinabench.models.networks.small:mlp_8_50_2",
        **{
            name: f"retinabench.models.networks.small:{name.replace('-', '_')}"
            for name in ("head-2", "head-8", "head-8-8", "head-8-50-smooth", "head-8-72-smooth", "head-8-350-smooth")
        },
        "head-8-heavy": "retinabench.models.networks.small:HeavyHead",
        "head-8-hierarchical": "retinabench.models.networks.small:HierarchicalHead",
        "banana": "retinabench.models.networks.small:Banana",
    },
)


def takes(inputs: str) -> Callable[[Builder], Builder]:
    """Mark a builder whose network takes something other than images of any size."""

    def mark(builder: Builder) -> Builder:
        builder.inputs = inputs  # type: ignore[attr-defined]
        return builder

    return mark


def special_inputs(name: str) -> str:
    """Return what a network takes if that is not images of any size, else an empty string."""
    return str(getattr(MODELS[name], "inputs", ""))


def published_width(name: str) -> int | None:
    """Return the width that a network was published with, None where it has no choice of widths."""
    width = inspect.signature(MODELS[name]).parameters.get("width")
    return None if width is None else int(width.default)


def has_choice(name: str, setting: str) -> bool:
    """Return whether a network of `MODELS` has a choice of ``stem``, ``activation``, ``pool``, ``width`` or ``columns``."""
    return name in MODELS and setting in inspect.signature(MODELS[name]).parameters

"""Put stochastic layers into any network, in place; sum their divergences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from retinabench.core.errors import InputError
from retinabench.models.stochastic.affine import Affine

GEOMETRY = (
    "in_features", "out_features", "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups",
)  # fmt: skip


@runtime_checkable
class HasKL(Protocol):
    """A layer with divergences from its priors."""

    def kl_terms(self) -> list[Tensor]:
        """One scalar in nats for each posterior."""


def swap(model: nn.Module, make: Callable[[Affine], nn.Module]) -> nn.Module:
    """Replace every linear layer and 2-d convolution of `model` by `make(layer)`, in place; return the network.

    A layer that is used in several places stays one layer. A layer whose weight is not trained, as in the frozen stages of a
    pretrained network, is left as it is. Subclasses of the two may compute something else and are
    left as they are too; every one of them that holds weights of two or more axes is named in a warning.
    """
    kept = [
        f"{name} ({type(module).__name__})"
        for name, module in model.named_modules()
        if type(module) not in (nn.Linear, nn.Conv2d)
        and any(p.ndim > 1 and p.requires_grad for p in module.parameters(recurse=False))
    ]
    if kept:
        warnings.warn(f"these layers are left as they are: {', '.join(kept)}", stacklevel=2)
    home = nn.Module()  # so that a network that is a single layer has a parent too
    home.network = model
    made: dict[Affine, nn.Module] = {}
    for parent in list(home.modules()):
        for name, layer in list(parent._modules.items()):
            if (
                isinstance(layer, Affine)
                and type(layer) in (nn.Linear, nn.Conv2d)
                and layer.weight.requires_grad
            ):
                if layer not in made:
                    made[layer] = _with_geometry(make(layer), layer)
                setattr(parent, name, made[layer])
    return home.network


def _with_geometry(made: nn.Module, layer: Affine) -> nn.Module:
    """Give a layer the attributes that a network may read of the one it replaces, as for padding that depends on them."""
    for name in GEOMETRY:
        if hasattr(layer, name) and not hasattr(made, name):
            setattr(made, name, getattr(layer, name))
    return made


def kl_terms(model: nn.Module) -> list[Tensor]:
    """Return the divergence of each posterior in `model` from its prior, in nats."""
    return [term for module in model.modules() if isinstance(module, HasKL) for term in module.kl_terms()]


def kl(model: nn.Module) -> Tensor:
    """Return the sum of `kl_terms`, a scalar; raises `InputError` where there are none."""
    terms = kl_terms(model)
    if not terms:
        raise InputError("the network has no linear or convolutional layer that could sample its weights")
    return torch.stack(terms).sum()
